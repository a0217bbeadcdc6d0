"""What the command line does when it is interrupted, cut off, or short of something."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import LowMemoryError, OutputError, ReleaseError
from bagwise.files import parquet_files
from bagwise.files.parquet_files import read_plain
from bagwise.show.stages import progress_to

BAGWISE = [sys.executable, "-m", "bagwise"]


@pytest.fixture
def release(table, tmp_path):
    bw.make_release(table, label="y", bag_size=10, strategy="random", not_private=True).save(
        tmp_path / "release"
    )
    return tmp_path / "release"


@pytest.mark.parametrize("arguments", [["--help"], ["verify"]])
def test_a_reader_that_has_enough_ends_the_run_quietly(release, arguments):
    command = [*BAGWISE, *arguments, *([] if "--help" in arguments else [release])]
    reading, writing = os.pipe()
    os.close(reading)  # before anything is written, so that no buffer hides it
    try:
        found = subprocess.run(command, check=False, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (found.returncode, found.stderr) == (141, b"")


def test_a_full_disk_behind_the_output_is_told(release):
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [*BAGWISE, "verify", release], check=False, stdout=full, stderr=subprocess.PIPE
        )
    assert found.returncode == 2
    assert b"No space left on device" in found.stderr
    assert b"Traceback" not in found.stderr


# The command line, which stays where its tables are written and nothing else is, until it is ended:
# whoever is quicker does not decide what is tested.
WRITING = """
import sys
from bagwise.cli import main
from bagwise.release import files

def stay(*_):
    print("writing", flush=True)
    sys.stdin.readline()
    raise AssertionError("this was to be the end")

files.write_json = stay
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_ended_while_it_writes_leaves_no_half_release(table, tmp_path, number):
    """Told to end, it takes its draft along; killed, it leaves that to the next run."""
    pq.write_table(table, tmp_path / "table.parquet")
    asked = ["release", tmp_path / "table.parquet", "--label", "y", "--bag-size", "5",
             "--not-private", "--strategy", "random", "-q", "-o", tmp_path / "out"]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", WRITING, *asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "writing\n", process.stderr.read()
        (draft,) = tmp_path.glob(".out.*.new")
        assert (draft / "instances.parquet").stat().st_size > 0
        process.send_signal(number)
        assert process.stderr.read() == ""
    told = number == signal.SIGTERM
    assert process.returncode == (128 + number if told else -number)
    left = {"table.parquet"} if told else {"table.parquet", draft.name}
    assert {entry.name for entry in tmp_path.iterdir()} == left
    again = subprocess.run([*BAGWISE, *asked], check=False, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    bw.Release.load(tmp_path / "out").verify()
    assert {entry.name for entry in tmp_path.iterdir()} == {"table.parquet", "out"}


def pressing(moment):
    """Press Ctrl-C once, in the middle of a search."""
    seen = []

    def press(*_):
        seen.append(1)
        if len(seen) == moment:
            signal.raise_signal(signal.SIGINT)

    return press


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(size=3000) for name in "abc"}
    return pa.table({**columns, "y": rng.normal(size=3000)})


@pytest.mark.parametrize("moment", [1, 3])
def test_ctrl_c_in_a_search_makes_no_release(points, moment):
    request = {"label": "y", "bag_size": 7, "not_private": True, "strategy": "kmeans"}
    with progress_to(pressing(moment)), pytest.raises(KeyboardInterrupt):
        bw.make_release(points, **request)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("old", [True, False])
def test_ctrl_c_in_a_search_publishes_nothing(points, tmp_path, old):
    pq.write_table(points, tmp_path / "points.parquet")
    target = tmp_path / "out"
    command = ["release", str(tmp_path / "points.parquet"), "--label", "y", "--bag-size", "7"]
    command += ["--not-private", "--strategy", "kmeans", "-q", "--force", "-o", str(target)]
    if old:
        assert CliRunner().invoke(app, command).exit_code == 0
    before = bw.verify(target)[0].digest if old else None
    with progress_to(pressing(2)):
        found = CliRunner().invoke(app, command)
    assert found.exit_code == 130
    assert "no output is incomplete" in found.output
    assert (bw.verify(target)[0].digest if target.exists() else None) == before
    assert {entry.name for entry in tmp_path.iterdir()} <= {"points.parquet", "out"}


def test_low_memory_is_not_taken_for_a_damaged_file(release, monkeypatch):
    def no_memory(*_):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(parquet_files, "_read", no_memory)
    with pytest.raises(LowMemoryError, match="not enough memory"):
        read_plain(release / "bags.parquet", error=ReleaseError)
    found = CliRunner().invoke(app, ["verify", str(release)])
    assert found.exit_code == 1
    assert "not enough memory" in found.output
    assert "Parquet" not in found.output


def test_a_place_that_takes_nothing_is_named(table):
    made = bw.make_release(table, label="y", bag_size=10, strategy="random", not_private=True)
    with pytest.raises(OutputError, match="/proc/release cannot be written"):
        made.save("/proc/release")


# Nothing is charged for what cannot be written.


@pytest.fixture
def charged(table, tmp_path, monkeypatch):
    """A folder with a table and a ledger; the verbs that charge it, each with its output."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(table, "table.parquet")
    bw.Ledger.create("l", epsilon_total=40.0)
    bw.release_model(table, label="y", bounds=(0, 9), epsilon=1.0).save("scored.json")
    spending = ["table.parquet", "--label", "y", "--epsilon", "20", "--ledger", "l"]
    bounds = ["--bounds", "0", "9"]
    return {
        "release": ["release", *spending, *bounds, "--bag-size", "5", "--strategy", "random"],
        "release-model": ["release-model", *spending, *bounds],
        "evaluate": ["evaluate", "scored.json", *spending, *bounds],
    }


VERBS = ["release", "release-model", "evaluate"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_disk_without_room_is_noticed_before_the_charge(charged, tmp_path, monkeypatch, verb):
    def no_room(_file, _start, size):
        assert size >= 2**24
        raise OSError(errno.ENOSPC, "")

    before = set(tmp_path.iterdir())
    with monkeypatch.context() as full:
        full.setattr(os, "posix_fallocate", no_room)
        found = CliRunner().invoke(app, [*charged[verb], "-o", "out"])
    assert found.exit_code == 2
    assert "out cannot be written: No space left on device" in found.output
    assert set(tmp_path.iterdir()) == before
    assert bw.Ledger.open("l").charges() == ()
    assert CliRunner().invoke(app, [*charged[verb], "-o", "out"]).exit_code == 0
    assert len(bw.Ledger.open("l").charges()) == 1
    assert set(tmp_path.iterdir()) == before | {tmp_path / "out"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_second_run_to_the_same_output_is_not_charged(charged, tmp_path, monkeypatch, verb):
    """The first has drawn and not written yet; the second must not pay for what it cannot write."""
    second = []
    charge = bw.Ledger.charge

    def meanwhile(self, *args, **kwargs):
        charge(self, *args, **kwargs)
        if not second:
            second.append(subprocess.run(
                [*BAGWISE, *charged[verb], "--anew", "-o", "out", "--force"], check=False,
                capture_output=True, text=True,
            ))  # fmt: skip

    monkeypatch.setattr(bw.Ledger, "charge", meanwhile)
    first = CliRunner().invoke(app, [*charged[verb], "-o", "out"])
    assert first.exit_code == 0, first.output
    assert second[0].returncode == 2
    assert "another run is about to write" in second[0].stderr
    (paid,) = bw.Ledger.open("l").charges()
    assert bw.verify(tmp_path / "out")[1].mark.id == paid.id
    assert not list(tmp_path.glob(".out.*"))


@pytest.mark.parametrize("verb", VERBS)
def test_an_output_that_appears_before_the_charge_is_not_charged_for(
    charged, tmp_path, monkeypatch, verb
):
    reserving = bw.Ledger.reserving
    monkeypatch.setattr(
        bw.Ledger, "reserving",
        lambda self, reserve: reserving(
            self, lambda *size: ((tmp_path / "out").write_text("another's"), reserve(*size))
        ),
    )  # fmt: skip
    found = CliRunner().invoke(app, [*charged[verb], "-o", "out"])
    assert found.exit_code == 2
    assert bw.Ledger.open("l").charges() == ()
    assert (tmp_path / "out").read_text() == "another's"


def test_too_many_files_are_refused_before_the_charge(charged, monkeypatch):
    monkeypatch.setattr("bagwise.release.files.MOST_PARTS", 3)
    found = CliRunner().invoke(app, [*charged["release"], "-o", "out", "--rows-per-file", "1"])
    assert "more than 3 files" in found.output
    assert bw.Ledger.open("l").charges() == ()


def test_what_was_paid_for_is_written_whatever_comes_after_it(charged, tmp_path, monkeypatch):
    monkeypatch.delattr("bagwise.cli.releases.print_coefficients")
    assert CliRunner().invoke(app, [*charged["release-model"], "-o", "out"]).exit_code == 1
    (paid,) = bw.Ledger.open("l").charges()
    assert bw.verify(tmp_path / "out")[1].mark.id == paid.id


LIMITED = """
import resource, sys
from bagwise.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
main()
"""


@pytest.mark.parametrize("source", ["points.parquet", "points.arrow"])
def test_a_full_disk_out_of_core_is_told(points, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    pq.write_table(points, "points.parquet")
    with pa.OSFile("points.arrow", "wb") as file, pa.ipc.new_stream(file, points.schema) as writer:
        writer.write_table(points)
    before = set(tmp_path.iterdir())
    found = subprocess.run(
        [sys.executable, "-c", LIMITED, "20000", "release", source, "--label", "y", "--bag-size",
         "10", "--bounds", "-9", "9", "--epsilon", "1", "--strategy", "random", "--memory-limit",
         "1KB", "-o", "out"], check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (found.returncode, "Traceback" in found.stderr) == (2, False)
    assert "could not be written: File too large" in found.stderr
    assert "withheld" not in found.stderr
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("verb", VERBS)
def test_every_run_sweeps_what_a_killed_one_left(charged, tmp_path, verb):
    """Not only those that do not fit into memory themselves: what is left may hold labels."""
    spill = tmp_path / f".bagwise.{'a' * 16}.spill"
    spill.mkdir(mode=0o700)
    (spill / "rows").write_text("labels")
    (tmp_path / f".other.{'b' * 16}.part").touch()
    (tmp_path / ".other.bagwise-claim").touch()
    assert CliRunner().invoke(app, [*charged[verb], "-o", "out"]).exit_code == 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
