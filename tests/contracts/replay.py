"""Replay of what was paid for: a table and a neighbour with the same noisy answers must look alike.

Every promise here rests on one sentence: whatever leaves is computed from features and from noisy
answers that were paid for. So a request is carried out twice. The first time, on a table, every
noisy answer is recorded. The second time, on a neighbour with other labels, the recorded answers
are given in place of new ones, while whatever else is random (orders, keys, ids) is drawn from the
same stream. Then nothing may differ: no byte of a file, no word of a message, no warning, no exit
code, no entry of a ledger, and nothing public that the noise was asked for with.

The noise itself is no business of this file: that it hides enough is tested with the mechanisms.
"""

import copy
import dataclasses
import importlib
import inspect
import json
import logging
import pickle
import shutil
import sqlite3
import sys
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats  # noqa: F401 (it draws something when it is imported)
from typer.testing import CliRunner

from bagwise.cli import app
from bagwise.rng import SecureNoise

PAID = {
    "bagwise.privacy.noise:noisy_labels": "labels",
    "bagwise.privacy.mechanisms:Mechanism.hide": "told",
    "bagwise.privacy.private_model:release_statistics": "labels",
    "bagwise.privacy.private_range:cheapest": "beyond",
    "bagwise.privacy.private_loss:release_mean_loss": "labels",
}
"""Every function whose answer is paid for, with the argument that is secret. There is no other way
from labels to what leaves: an answer that is missing here is computed from the neighbour's labels,
and shows as a difference."""

NOTES = "operator.notes"
"""The file that --notes names: only its owner can read it, and what it says may depend on labels.
That it is there, and its mode, may not."""

UNSEEN = {"X", "source"}
"""Arguments that are not compared: where features are, with their labels on Spark, and chance."""


N = 240
_PUBLIC = np.random.default_rng(11)
FEATURES = {
    "key": np.arange(N) * 3 + 1,
    "who": np.arange(N) * 7 % 100,
    "x": _PUBLIC.normal(size=N) * 1e3,
    "z": np.where(np.arange(N) % 11, _PUBLIC.lognormal(size=N), np.nan),
    "city": np.array(["Bonn", "Pune", "Oslo", "Lima"])[_PUBLIC.integers(0, 4, size=N)],
    "years": np.round(_PUBLIC.uniform(1, 9, size=N), 2),
}


def labels_of(kind: str) -> list[Any]:
    """Return labels of a table, and of neighbours: one at an extreme; all others, all alike."""
    rng = np.random.default_rng(3)
    if kind == "class":
        first = np.array(["no", "so", "yes"])[rng.integers(0, 3, size=N)]
        one, alike = first.copy(), np.full(N, "so")
        one[7] = "yes" if first[7] == "no" else "no"
        return [first, one, alike]
    if kind == "yes":
        first = rng.random(N) < 0.5
        return [first, np.where(np.arange(N) == 7, ~first, first), np.full(N, True)]
    if kind == "count":
        first, extreme = rng.poisson(3.0, size=N), 10**12
    else:
        first, extreme = FEATURES["x"] / 1e3 + rng.normal(size=N), -1e300
    one = first.copy()
    one[7] = extreme
    return [first, one, np.full_like(first, 2)]


def tables_of(kind: str) -> list[pa.Table]:
    """Return a table and its neighbours."""
    return [pa.table({**FEATURES, "y": labels}) for labels in labels_of(kind)]


NEIGHBOURS = tables_of("number")


def rows_together(table: pa.Table) -> int:
    """Return how many rows a writer puts together that counts bytes, those of labels among them."""
    return 40 + zlib.crc32(repr(table["y"].to_pylist()).encode()) % 40


@dataclass(frozen=True)
class Answer:
    """What was paid for, what it was asked for with, and how far chance had got by then."""

    name: str
    asked: bytes
    value: Any
    after: Any


@dataclass
class Tape:
    """The answers of one request, in their order, and how many were given again."""

    answers: list[Answer] = field(default_factory=list)
    given: int = 0


class Chance:
    """The operating system's randomness, from one seed: all that is secret comes from there."""

    def __init__(self) -> None:
        self.stream = np.random.Generator(np.random.PCG64(20))

    def bytes(self, count: int) -> bytes:
        """Return so many bytes, in place of ``os.urandom``."""
        return self.stream.bytes(count)


@contextmanager
def played(tape: Tape, *, again: bool) -> Iterator[None]:
    """Record what is paid for on a tape, or give what is on it."""
    chance, taped, tape.given = Chance(), {}, 0
    for place, secret in PAID.items():
        module, _, name = place.partition(":")
        paid = attrgetter(name)(importlib.import_module(module))
        taped[paid] = _taped(paid, secret, tape, chance, again=again)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.urandom", chance.bytes)
        patch.setattr("random._urandom", chance.bytes)  # secrets, and numpy where it has no seed
        # Tests have put streams of their own in place of these two (conftest.py).
        patch.setattr(SecureNoise, "words", lambda _, n: np.frombuffer(chance.bytes(8 * n), "<u8"))
        patch.setattr("numpy.random.default_rng", np.random._generator.default_rng)
        with in_place_of(taped):
            yield


@contextmanager
def in_place_of(new_of: dict[Any, Any]) -> Iterator[None]:
    """Have functions in place of others, also where a module is imported only now."""
    _put(new_of)
    try:
        yield
    finally:
        _put({new: old for old, new in new_of.items()})


def _put(new_of: dict[Any, Any]) -> None:
    """Put functions in place of others, wherever the product knows them by name."""
    modules = [known for name, known in sys.modules.items() if name.startswith("bagwise")]
    known = [one for module in modules for one in vars(module).values()]
    for home in (*modules, *{id(one): one for one in known if isinstance(one, type)}.values()):
        for name, value in list(vars(home).items()):
            if isinstance(value, FunctionType) and value in new_of:
                setattr(home, name, new_of[value])


def _taped(paid: Any, secret: str, tape: Tape, chance: Chance, *, again: bool) -> Any:
    signature = inspect.signature(paid)

    def ask(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options).arguments
        unseen = {secret, *UNSEEN}
        public = {name: _plain(value) for name, value in given.items() if name not in unseen}
        asked = pickle.dumps((paid.__qualname__, public))
        if not again:
            value = paid(*args, **options)
            after = chance.stream.bit_generator.state
            tape.answers.append(Answer(paid.__qualname__, asked, copy.deepcopy(value), after))
            return value
        if tape.given == len(tape.answers) or tape.answers[tape.given].asked != asked:
            raise DifferentQuestionError(paid.__qualname__)
        answer = tape.answers[tape.given]
        tape.given += 1
        chance.stream.bit_generator.state = answer.after
        return copy.deepcopy(answer.value)

    return ask


class DifferentQuestionError(BaseException):
    """Something public that noise was asked for with depends on labels; no product catches it."""


def _plain(value: Any) -> Any:
    """Return something of which equal values have equal bytes when pickled."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    if dataclasses.is_dataclass(value):
        return [_plain(getattr(value, each.name)) for each in dataclasses.fields(value)]
    return repr(value)


@dataclass(frozen=True)
class Seen:
    """All that anybody can see of a request: what it said, and what it left behind."""

    code: Any
    said: str
    complained: str
    warned: list[tuple[str, str]]
    logged: str
    files: dict[str, tuple[int, bytes]]
    charged: list[Any]


Act = Callable[[], tuple[Any, str, str]]
"""Carries out a request in the working directory; returns an exit code, and both outputs."""


def on_the_command_line(*words: Any, piped: bytes | None = None) -> Act:
    """Return the act of typing a command."""

    def act() -> tuple[Any, str, str]:
        run = CliRunner().invoke(app, [str(word) for word in words], input=piped)
        return run.exit_code, run.stdout, run.stderr

    return act


def in_python(call: Callable[[], Any]) -> Act:
    """Return the act of calling a function; an error is told with all that it is linked to."""

    def act() -> tuple[Any, str, str]:
        try:
            return 0, repr(call()), ""
        except Exception as error:
            return type(error).__name__, "", "".join(traceback.format_exception(error))

    return act


def watch(folder: Path, prepare: Callable[[Path], Act]) -> Seen:
    """Carry out a request in a folder that is empty but for its sources, in ``in``."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    log = _Log()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        patch.chdir(folder)
        patch.setenv("TMPDIR", str(folder))
        patch.setattr("tempfile.tempdir", None)
        with log:
            code, said, complained = prepare(Path("in"))()
    ledgers = sorted(folder.glob("*.ledger"))
    files = {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            b"" if path.name == NOTES else path.read_bytes(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path not in ledgers and not path.is_relative_to(folder / "in")
    }
    # Of files that are closed late Python tells the number, and only those who ask for it.
    told = [
        (one.category.__name__, str(one.message))
        for one in warned
        if one.category is not ResourceWarning
    ]
    charged = [row for path in ledgers for row in _rows_of(path)]
    return Seen(code, said, complained, told, "\n".join(log.lines), files, charged)


class _Log(logging.Handler):
    """Everything that is logged inside, however unimportant."""

    def __enter__(self) -> None:
        self.lines: list[str] = []
        self.logger = logging.getLogger("bagwise")
        self.before = self.logger.level
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self)

    def __exit__(self, *_error: object) -> None:
        self.logger.removeHandler(self)
        self.logger.setLevel(self.before)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")


def _rows_of(ledger: Path) -> list[Any]:
    """Return what a ledger says, but for times, and for what is sealed with its key.

    The table is known by a keyed fingerprint of all its cells, labels among them.
    """
    rows: list[Any] = []
    with sqlite3.connect(ledger) as opened:
        for (body,) in opened.execute("SELECT body FROM entries ORDER BY number"):
            entry = json.loads(body)
            rows.append({name: entry[name] for name in entry if name not in ("time", "table")})
        rows += opened.execute("SELECT id, path, digest FROM places").fetchall()
        rows += opened.execute("SELECT digest, kind, members FROM subsets").fetchall()
    opened.close()
    return rows


def differences(one: Seen, other: Seen) -> list[str]:
    """Return where two that should look alike do not."""
    found = [
        f"{each.name}: {getattr(one, each.name)!r} / {getattr(other, each.name)!r}"
        for each in dataclasses.fields(Seen)
        if each.name != "files" and getattr(one, each.name) != getattr(other, each.name)
    ]
    names = sorted({*one.files, *other.files})
    return found + [name for name in names if one.files.get(name) != other.files.get(name)]


def replay(
    folder: Path,
    request: Callable[[Any, Path], Act],
    table: Any,
    *others: Any,
    code: Any = 0,
    paid: bool = True,
) -> list[str]:
    """Carry out a request on a table, and on neighbours with its answers; return what differs.

    It must end with `code`, and have paid for something if it is to: what is refused for a mistake
    in a test depends on nothing.
    """
    tape = Tape()
    with played(tape, again=False):
        first = watch(folder, partial(request, table))
    assert first.code == code, first.complained
    assert bool(tape.answers) == paid
    found = []
    for other in others:
        try:
            with played(tape, again=True):
                again = watch(folder, partial(request, other))
        except DifferentQuestionError as error:
            found.append(f"asked: {error}")
        else:
            found += differences(first, again)
            found += [f"not asked: {one.name}" for one in tape.answers[tape.given :]]
    return found
