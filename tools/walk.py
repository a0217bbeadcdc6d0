"""How far a reader walks to follow a command: files, functions, and changes of file.

Every function of the package that a command enters is counted once, when it is entered first, in a
second run: what is imported, compiled or cached by the first is no part of the way. A change of
file is a function that is entered first from another file than the one before it.

::

    python -m tools.walk                 # the shortest release, of a table that is made up
    python -m tools.walk --list          # with every function, in order
    python -m tools.walk -- fit RELEASE  # any other command of bagwise
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from typer.testing import CliRunner

import bagwise
from bagwise.cli import app

ROWS = 20_000
RELEASE = ("release", "{table}", "--label", "y", "--bounds", "0", "100", "--epsilon", "1")
_PACKAGE = Path(bagwise.__file__).parent


@dataclass(frozen=True)
class Walk:
    """The functions of a package, as they were entered first: ``(file, name, line)`` each.

    >>> walk = Walk([("a.py", "f", 1), ("a.py", "g", 9), ("b.py", "h", 1), ("a.py", "i", 20)])
    >>> walk.files, walk.functions, walk.changes
    (2, 4, 2)
    """

    steps: Sequence[tuple[str, str, int]]

    @property
    def files(self) -> int:
        """How many files have one of the functions."""
        return len({file for file, _, _ in self.steps})

    @property
    def functions(self) -> int:
        """How many functions were entered."""
        return len(self.steps)

    @property
    def changes(self) -> int:
        """How often a function is in another file than the one before it."""
        places = [file for file, _, _ in self.steps]
        return sum(here != there for here, there in pairwise(places))


def follow(action: Callable[[], Any], package: Path = _PACKAGE) -> Walk:
    """Run `action`, and return the functions in the files of a package that it enters.

    Comprehensions, lambdas and the bodies of modules and classes count for the function that they
    are in.
    """
    steps: dict[tuple[str, str, int], None] = {}
    root = str(package)

    def enter(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and code.co_name[0] != "<":
            file = str(Path(code.co_filename).relative_to(package))
            steps.setdefault((file, code.co_qualname, code.co_firstlineno))

    sys.setprofile(enter)
    try:
        action()
    finally:
        sys.setprofile(None)
    return Walk(list(steps))


@contextlib.contextmanager
def _made_up_table() -> Iterator[Path]:
    """Write a table with a numeric label, two numbers and a text column."""
    rng = np.random.default_rng(0)
    x, z, town = rng.normal(size=ROWS), rng.normal(size=ROWS), rng.integers(0, 4, size=ROWS)
    y = np.clip(50 + 10 * x - 5 * z + 3 * town + 5 * rng.normal(size=ROWS), 0, 100)
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            f"{a:.4f},{b:.4f},town{c},{d:.3f}" for a, b, c, d in zip(x, z, town, y, strict=True)
        ]
        path = Path(folder) / "t.csv"
        path.write_text("\n".join(["x,z,town,y", *lines]) + "\n")
        yield path


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of a walk."""
    parser = argparse.ArgumentParser(prog="python -m tools.walk", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print every function as well")
    parser.add_argument("command", nargs="*", help="a command of bagwise; the shortest release")
    asked = parser.parse_args(arguments)
    with _made_up_table() as table:
        words = [word.format(table=table) for word in asked.command or RELEASE]

        def run() -> None:
            out = [] if asked.command else ["-o", str(table.with_name(f"out{len(made)}"))]
            made.append(CliRunner().invoke(app, [*words, *out], catch_exceptions=False))

        made: list[Any] = []
        run()
        walk = follow(run)
    if any(one.exit_code for one in made):
        sys.stderr.write(made[0].output)
        return 1
    if asked.list:
        sys.stdout.writelines(f"{file}:{line} {name}\n" for file, name, line in walk.steps)
    sys.stdout.write(
        f"{walk.files} files, {walk.functions} functions, {walk.changes} changes of file\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
