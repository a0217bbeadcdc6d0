"""Break release, fit and evaluate at random points, and see what is left on the disk.

    python -m benchmarks.faults [--trials 200] [--seed 0] [--keep-nothing]

Each trial runs the command line in a process of its own, hurts it, and then checks:

- the output is the old one, whole, or a new one that verifies;
- no label is on the disk outside the source, neither as bytes nor as text, and none was printed;
- what was left over is readable by its owner only, and lies beside the output: the directory for
  temporary files is empty;
- the next run works and sweeps what was left.

Where this may mount file systems, the disk that is full or read-only is a real one: a small tmpfs
in a mount namespace of its own. Elsewhere a limit on the size of files stands for the one, and
calls that fail for the other. Linux only.
"""

# ruff: noqa: S606, S607 - mount, cp and unshare are what the system has under these names
import argparse
import errno
import functools
import json
import os
import re
import resource
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bagwise as bw
from bagwise.cli import main as command_line
from bagwise.errors import BagwiseError
from bagwise.files import atomic
from benchmarks._results import keep, timed

ROWS = 400
INSIDE = "BAGWISE_FAULTS_INSIDE"
WRITERS = 4
BROKEN = 70  # exit code of a child that ended with an exception nobody caught


# --- what is broken ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verb:
    """A command that writes one output."""

    output: str
    arguments: Callable[["Place"], list[str]]


@dataclass
class Place:
    """A directory with the source, the output's directory, and one for temporary files."""

    root: Path
    verb: Verb
    labels: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        self.source, self.out, self.log = (self.root / name for name in ("source", "out", "log"))
        self.table, self.target = str(self.source / "table.parquet"), self.out / self.verb.output

    def command(self, *options: str) -> list[str]:
        """Return what to run."""
        return [*self.verb.arguments(self), "-o", str(self.target), *options]

    def digest(self) -> str | None:
        """Verify the output; None if there is none."""
        if not self.target.exists():
            return None
        return bw.verify(self.target)[0].digest


def _release(place: Place, *options: str) -> list[str]:
    return ["release", place.table, "--label", "y", "--bounds", "0", "10", "--epsilon", "1",
            "--bag-size", "20", *options]  # fmt: skip


VERBS = {
    "release": Verb("release", lambda place: _release(place, "--strategy", "random")),
    "release by model": Verb(
        "release", lambda place: _release(place, "--strategy", "sorted", "--scores", "model",
                               "--delta", "1e-6", "--noise", "gaussian")
    ),
    "fit": Verb("model.json", lambda place: ["fit", str(place.source / "release")]),
    "evaluate": Verb(
        "scores.json",
        lambda place: [
            "evaluate", str(place.source / "model.json"), place.table, "--label", "y",
            "--bounds", "0", "10", "--epsilon", "1",
        ],
    ),
}  # fmt: skip


def prepare(root: Path, verb: Verb, *, old: bool, rng: np.random.Generator) -> Place:
    """Write the source, and an old output if there is to be one."""
    place = Place(root, verb, labels=rng.uniform(1.0, 9.0, size=ROWS))
    for directory in (place.source, place.out, root / "tmp"):
        directory.mkdir(parents=True)
    x = rng.normal(size=ROWS)
    city = np.where(rng.random(ROWS) < 0.5, "Bonn", "Pune").tolist()
    pq.write_table(pa.table({"x": x, "city": city, "y": place.labels}), place.table)
    table = pq.read_table(place.table)
    kept = bw.make_release(
        table, label="y", bounds=(0, 10), epsilon=1.0, bag_size=20, strategy="random"
    )
    kept.save(place.source / "release")
    bw.fit_release(kept).save(place.source / "model.json")
    if old:
        assert run(place, "--force") == 0, place.log.read_text()
    return place


# --- running the command line in a child ---------------------------------------------------------

Arm = Callable[[], None]


def start(place: Place, *options: str, arm: Arm = lambda: None) -> int:
    """Run the command line in a forked process; return its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream in (1, 2):
            os.dup2(log, stream)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["TMPDIR"] = tempfile.tempdir = str(place.root / "tmp")
        sys.argv = ["bagwise", *place.command(*options, "-q")]
        arm()
        command_line()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
    except BaseException:
        import traceback

        with suppress(BaseException):
            traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
        os._exit(code)


def finish(pid: int) -> int:
    """Wait for a child; return its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(place: Place, *options: str, arm: Arm = lambda: None) -> int:
    return finish(start(place, *options, arm=arm))


# --- points in a run -----------------------------------------------------------------------------

WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.listdir"}


def at_event(number: int, act: Callable[[], None], *, only: set[str] = WATCHED) -> Arm:
    """Act when the process asks the system for something for the n-th time."""

    def arm() -> None:
        count = 0

        def watch(event: str, _arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event in only:
                count += 1
                if count == number:
                    act()

        sys.addaudithook(watch)

    return arm


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail_with(number: int) -> Callable[[], None]:
    def act() -> None:
        raise OSError(number, os.strerror(number))

    return act


# --- the faults ----------------------------------------------------------------------------------


@functools.cache
def rehearsed(verb: Verb) -> tuple[int, float]:
    """Return how often a whole run asks the system for something, and how many seconds it takes."""
    with tempfile.TemporaryDirectory(prefix="bagwise-faults-") as directory:
        place = prepare(Path(directory) / "place", verb, old=False, rng=np.random.default_rng(0))
        counter = place.root / "events"

        def arm() -> None:
            seen = []
            sys.addaudithook(lambda event, _: seen.append(1) if event in WATCHED else None)
            leave = os._exit

            def tell(code: int) -> None:
                counter.write_text(str(len(seen)))
                leave(code)

            os._exit = tell

        assert run(place, "--force", arm=arm) == 0, place.log.read_text()
        seconds, code = timed(run, place, "--force")
        assert code == 0
        return int(counter.read_text()), seconds


def killed(place: Place, rng: np.random.Generator) -> list[int]:
    """SIGKILL, by the count of calls or by the clock."""
    count, seconds = rehearsed(place.verb)
    if rng.random() < 0.5:
        return [run(place, "--force", arm=at_event(int(rng.integers(1, count + 1)), die))]
    pid = start(place, "--force")
    time.sleep(float(rng.uniform(0, seconds)))
    os.kill(pid, signal.SIGKILL)
    return [finish(pid)]


def interrupted(place: Place, rng: np.random.Generator) -> list[int]:
    """Ctrl-C or SIGTERM, by the count of calls: nothing may be left over at all."""
    number = int(rng.integers(1, rehearsed(place.verb)[0] + 1))
    which = signal.SIGINT if rng.random() < 0.5 else signal.SIGTERM
    return [run(place, "--force", arm=at_event(number, lambda: signal.raise_signal(which)))]


def interrupted_rename(place: Place, rng: np.random.Generator) -> list[int]:
    """Let the last step fail, or die before or after it; with and without an exchange."""
    act = die if rng.random() < 0.5 else fail_with(errno.EIO)
    exchanges, number = bool(rng.random() < 0.5), int(rng.integers(1, 3))

    def arm() -> None:
        exchange = atomic._exchange
        if exchanges:

            def exchange_and_die(first: Path, second: Path) -> bool:
                done = exchange(first, second)
                die()  # a system that has exchanged them does not say that it has not
                return done

            atomic._exchange = exchange_and_die
        else:
            atomic._exchange = lambda *_: False
        at_event(number, act, only={"os.rename"})()

    return [run(place, "--force", arm=arm)]


def full_disk(place: Place, rng: np.random.Generator) -> list[int]:
    """No room: a small file system, or a limit on the size of a file."""
    if can_mount():
        _remount(place, "size=64m")
        # Room for some of the files that the output needs, by pages of the file system.
        room = int(rng.integers(1, 7 if place.verb.output == "release" else 3))
        used = os.statvfs(place.out)
        taken = (used.f_blocks - used.f_bfree) * used.f_frsize
        _remount(place, f"size={max(taken, 4096) + 4096 * (room - 1)}")
        codes = [run(place, "--force")]
        _remount(place, "size=64m")
        return codes
    limit = int(rng.integers(1, 2000))
    arm = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))  # noqa: E731
    return [run(place, "--force", arm=arm)]


def read_only(place: Place, _rng: np.random.Generator) -> list[int]:
    """Write to a target that takes nothing."""
    if can_mount():
        _remount(place, "ro")
        codes = [run(place, "--force")]
        _remount(place, "rw")
        return codes

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        changes = event in WATCHED - {"open", "os.listdir"}
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (changes or writes) and str(arguments[0]).startswith(str(place.out)):
            fail_with(errno.EROFS)()

    return [run(place, "--force", arm=lambda: sys.addaudithook(watch))]


def can_mount() -> bool:
    return os.environ.get(INSIDE) == "1"


def _remount(place: Place, options: str) -> None:
    """Change the file system below the output, which `main` mounted, or mount it."""
    if not os.path.ismount(place.out):
        kept = place.root / "kept"
        place.out.rename(kept)
        place.out.mkdir()
        _mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place.out))
        subprocess.run(["cp", "-a", f"{kept}/.", str(place.out)], check=True)
        subprocess.run(["rm", "-r", str(kept)], check=True)
    _mount("-o", f"remount,{options}", str(place.out))


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def low_memory(place: Place, rng: np.random.Generator) -> list[int]:
    """Leave an address space that is hardly larger than what is in use."""
    extra = int(rng.integers(1, 150)) << 20

    def arm() -> None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + extra, now + extra))

    return [run(place, "--force", arm=arm)]


def many_writers(place: Place, rng: np.random.Generator) -> list[int]:
    """Several at once, one of which is killed."""
    pids = []
    for _ in range(WRITERS):
        pids.append(start(place, "--force"))
        time.sleep(float(rng.uniform(0, 0.02)))
    os.kill(pids[0], signal.SIGKILL)
    return [finish(pid) for pid in pids]


def clock_jumps(place: Place, rng: np.random.Generator) -> list[int]:
    """Let the clock go forwards and backwards by years, with drafts from past and future."""
    years = rng.uniform(-20, 20, size=1000) * 365 * 86_400
    for when in (0.0, 4e9):
        left = place.out / f".{place.target.name}.{int(when):016x}"
        if place.verb.output == "release":
            left = left.with_name(f"{left.name}.new")
            left.mkdir(mode=0o700)
        else:
            left = atomic.create_private(left.with_name(f"{left.name}.part"))
        os.utime(left, (when, when))

    def arm() -> None:
        now, jumps = time.time, iter(np.tile(years, 100).tolist())
        time.time = lambda: now() + next(jumps)
        time.time_ns = lambda: int(1e9 * time.time())

    return [run(place, "--force", arm=arm)]


def forked_workers(place: Place, _rng: np.random.Generator) -> list[int]:
    """Several outputs from one process that forks: each has noise of its own."""
    if place.verb.output != "release" and "scores" not in place.verb.output:
        return [run(place, "--force")]  # a fit draws nothing
    copies = [Place(place.root, Verb(f"{n}", place.verb.arguments)) for n in range(WRITERS)]
    codes = [finish(pid) for pid in [start(copy) for copy in copies]]
    found = [_noisy_numbers(copy.target) for copy in copies]
    for copy in copies:
        subprocess.run(["rm", "-r", str(copy.target)], check=True)
    alike = sum(a == b for i, a in enumerate(found) for b in found[:i])
    return codes if not alike else [*codes, BROKEN]


def _noisy_numbers(path: Path) -> bytes:
    if path.is_dir():
        return bw.Release.load(path).labels.tobytes()
    return struct.pack("<d", bw.PrivateScores.load(path).mean_loss)


FAULTS: dict[str, Callable[[Place, np.random.Generator], list[int]]] = {
    "kill": killed,
    "interrupt": interrupted,
    "interrupted rename": interrupted_rename,
    "full disk": full_disk,
    "read-only target": read_only,
    "low memory": low_memory,
    "many writers": many_writers,
    "clock jumps": clock_jumps,
    "forked workers": forked_workers,
}
SURVIVED = {"clock jumps", "forked workers"}  # these must not fail at all
TIDY = {"interrupt", "full disk", "read-only target", *SURVIVED}  # these leave nothing over


# --- the checks ----------------------------------------------------------------------------------


def labels_on_disk(place: Place) -> list[str]:
    """Name every file outside the source that holds a label, as bytes, in a table, or as text."""
    patterns = [struct.pack("<d", label) for label in place.labels]
    found = []
    for path in sorted(place.root.rglob("*")):
        if not path.is_file() or path.is_relative_to(place.source):
            continue
        content = path.read_bytes()
        if path.suffix == ".parquet":
            with suppress(pa.ArrowInvalid, OSError):  # a half-written one
                content += b"".join(
                    column.to_numpy().tobytes()
                    for column in pq.read_table(path).columns
                    if pa.types.is_floating(column.type)
                )
        if any(pattern in content for pattern in patterns) or _spells(content, place.labels):
            found.append(str(path.relative_to(place.root)))
    return found


def _spells(content: bytes, labels: np.ndarray) -> bool:
    """Tell whether a number of eight digits or more is a label, to as many digits as it has.

    Noise makes numbers that share eight digits with one of so many labels once in a while, but not
    all that they have.
    """
    numbers = re.findall(rb"\d\.\d{7,}", content)
    return any(np.any(abs(labels - float(n)) <= 10.0 ** (2 - len(n))) for n in numbers)


def leftovers(place: Place) -> list[Path]:
    return [path for path in place.out.iterdir() if path != place.target]


def problems_after(place: Place, before: str | None, codes: list[int], fault: str) -> list[str]:
    """Say what is not as it should be after a fault, and after the next runs."""
    return [
        *problems_at_once(place, codes, fault),
        *problems_of_the_output(place, before, codes, fault),
        *(f"{path.name} was not swept" for path in leftovers(place)),
    ]


def problems_at_once(place: Place, codes: list[int], fault: str) -> list[str]:
    """Say what was printed, left over or left open by the run that was hurt."""
    found = [f"a label in {name}" for name in labels_on_disk(place)]
    found += [f"{path.name} in the temporary directory" for path in (place.root / "tmp").iterdir()]
    if any(code == BROKEN for code in codes) or b"Traceback" in place.log.read_bytes():
        found.append("an exception that nobody caught, or noise that repeats")
    if fault in SURVIVED and any(codes):
        found.append(f"failed with {codes}")
    if fault in TIDY and leftovers(place):
        found.append(f"left {[path.name for path in leftovers(place)]} behind")
    for path in leftovers(place):
        # A release that was exchanged or moved aside is the old one, which everybody may read.
        is_old = path.is_dir() and (path / "manifest.json").exists()
        if not is_old and stat.S_IMODE(path.stat().st_mode) & 0o077:
            found.append(f"{path.name} may be read by others")
    return found


def problems_of_the_output(
    place: Place, before: str | None, codes: list[int], fault: str
) -> list[str]:
    """Say whether the output is neither the old one nor a new one, now and after the next runs."""
    found = []
    there = place.target.exists() or any(path.suffix == ".old" for path in leftovers(place))
    if before is not None and not there:
        found.append("the old output is gone")
    try:
        # A run that is not forced puts back what was moved aside, and refuses or writes.
        if (again := run(place)) != (2 if there else 0):
            found.append(f"the next run ended with {again}")
        now = place.digest()
        told_failure = all(code > 0 for code in codes) and fault != "interrupt"
        if before is not None and told_failure and now != before:
            found.append("the output is another one, and the run says that it failed")
        if run(place, "--force") != 0:
            found.append("the run after it failed")
        if (last := place.digest()) is None or (last == now and place.verb.output == "release"):
            found.append("the run after it wrote nothing new")
    except BagwiseError as problem:
        found.append(f"does not verify: {problem}")
    return found


def trial(directory: Path, number: int, verb: str, fault: str, seed: int) -> dict[str, Any]:
    """Break one run, and return what was found."""
    rng = np.random.default_rng([seed, number])
    old = bool(rng.random() < 0.7)
    place = prepare(directory / str(number), VERBS[verb], old=old, rng=rng)
    before = place.digest()
    codes = FAULTS[fault](place, rng)
    problems = problems_after(place, before, codes, fault)
    if os.path.ismount(place.out):
        subprocess.run(["umount", str(place.out)], check=True)
    return {"verb": verb, "fault": fault, "codes": codes, "problems": problems}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep-nothing", action="store_true")
    chosen = parser.parse_args()
    alone = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    may = INSIDE not in os.environ and os.geteuid() == 0
    if may and not subprocess.run(alone, check=False, capture_output=True).returncode:
        # In a mount namespace of its own, so that no file system stays mounted.
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-m", "benchmarks.faults",
                              *sys.argv[1:]])  # fmt: skip
    os.umask(0o022)
    pa.set_cpu_count(1)
    names, verbs = list(FAULTS), list(VERBS)
    found = []
    with tempfile.TemporaryDirectory(prefix="bagwise-faults-") as directory:
        for n in range(chosen.trials):
            fault, verb = names[n % len(names)], verbs[n % len(verbs)]
            found.append(trial(Path(directory), n, verb, fault, chosen.seed))
            if found[-1]["problems"]:
                print(json.dumps(found[-1]), flush=True)
    rows = []
    for fault in names:
        here = [entry for entry in found if entry["fault"] == fault]
        codes = Counter(code for entry in here for code in entry["codes"])
        rows.append(
            {
                "fault": fault,
                "trials": len(here),
                "clean": sum(not entry["problems"] for entry in here),
                "exit_codes": {str(code): count for code, count in sorted(codes.items())},
            }
        )
    clean = sum(row["clean"] for row in rows)
    rows.append({"fault": "all", "trials": len(found), "clean": clean, "exit_codes": {}})
    if chosen.keep_nothing:
        print(json.dumps(rows))
    else:
        keep("faults", rows)
    return 0 if clean == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
