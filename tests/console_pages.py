"""Runs the ```console blocks of a page as a reader would, and compares what is printed.

Noise is drawn afresh, so that not every number can be the one on the page. The rules:

- A whole number on the page, such as a count, is printed exactly so.
- A number with a decimal point on the page is met within `TOLERANCE` of its size.
- ``...`` on the page stands for any words, or none.
- All other words are the same, in the same order. Where lines are broken does not matter, nor does
  how wide a table is: its cells are compared one by one.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from bagwise.cli import app

TOLERANCE = 0.5
"""How far a number may be from the page, as a share of it: standard errors differ by a third."""

COLUMNS = 80

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"Save\s+this\s+as\s+`([\w.]+)`")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_RULE = re.compile(r"[\s─━┌┬┐├┼┤└┴┘╷╵╴╶]*")


@dataclass(frozen=True)
class Step:
    """A command on a page, and what the page shows that it prints."""

    command: str
    printed: str


def steps_of(page: str) -> Iterator[Step]:
    """Return the commands of a page in their order.

    >>> [step.command for step in steps_of("```console\\n$ ls \\\\\\n  -l\\nout\\n$ pwd\\n```\\n")]
    ['ls   -l', 'pwd']
    """
    for kind, content in _FENCED.findall(page):
        if kind == "console":
            first, *commands = re.split(r"^\$ ", content, flags=re.MULTILINE)
            assert not first, f"a console block begins with a command, not with {first!r}"
            for text in commands:
                command, _, printed = text.replace("\\\n", " ").partition("\n")
                yield Step(command, printed)


def scripts_of(page: str) -> Iterator[tuple[str, str]]:
    """Return names and contents of the files that a page asks to save."""
    for found in _SAVED.finditer(page):
        block = _FENCED.search(page, found.end())
        assert block is not None, f"nothing follows that could be saved as {found[1]}"
        yield found[1], block[2]


class Shell:
    """A shell in the current directory; bagwise runs inside this process, which saves imports."""

    def __init__(self) -> None:
        self.status = 0

    def run(self, command: str) -> str:
        """Run a command and return what it prints, errors as well."""
        name, *arguments = shlex.split(command)
        if name == "bagwise":
            found = CliRunner(env={"COLUMNS": str(COLUMNS)}).invoke(app, arguments)
            self.status = found.exit_code
            return found.output
        place = Path(sys.executable).parent
        ran = subprocess.run(
            [str(self.status) if word == "$?" else word for word in (name, *arguments)],
            env={**os.environ, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.status = ran.returncode
        return ran.stdout


def run_page(page: str) -> None:
    """Run all commands of a page in the current directory; fail where the page is not true."""
    shell = Shell()
    for name, content in scripts_of(page):
        Path(name).write_text(content, encoding="utf-8")
    for step in steps_of(page):
        printed = shell.run(step.command)
        wrong = difference(step.printed, printed)
        assert wrong is None, f"$ {step.command}\n{wrong}\nIt printed:\n{printed}"


def difference(page: str, printed: str) -> str | None:
    """Return where the output is not as the page has it; None if it is.

    >>> difference("rmse 123.4 on 20 rows", "rmse 119.8 on 20 rows")
    >>> difference("rmse 123.4 on 20 rows", "rmse 119.8 on 21 rows")
    "the page has '20', and what is printed '21'"
    """
    parts: list[list[str]] = [[]]
    for word in _words(page):
        if word == "...":
            parts.append([])
        else:
            parts[-1].append(word)
    words = _words(printed)
    first, *rest = parts
    wrong = _first_difference(first, words[: len(first)] if rest else words)
    if wrong is not None or not rest:
        return wrong
    *between, last = rest
    at = len(first)
    for part in between:
        places = range(at, len(words) - len(part) + 1)
        found = next((i for i in places if _fits(part, words[i : i + len(part)])), None)
        if found is None:
            return f"nothing is printed like {' '.join(part)!r}"
        at = found + len(part)
    if len(words) - len(last) < at:
        return f"nothing is printed like {' '.join(last)!r}"
    return _first_difference(last, words[len(words) - len(last) :])


def _fits(page: list[str], printed: list[str]) -> bool:
    return _first_difference(page, printed) is None


def _first_difference(page: list[str], printed: list[str]) -> str | None:
    for mine, theirs in zip(page, printed, strict=False):
        if not _same(mine, theirs):
            return f"the page has {mine!r}, and what is printed {theirs!r}"
    if len(page) != len(printed):
        more, where = (page, "on the page") if len(page) > len(printed) else (printed, "printed")
        return f"only {where}: {' '.join(more[min(len(page), len(printed)) :])!r}"
    return None


def _same(page: str, printed: str) -> bool:
    """Compare two words, the numbers in them by their value."""
    if _NUMBER.sub("#", page) != _NUMBER.sub("#", printed):
        return False
    pairs = zip(_NUMBER.findall(page), _NUMBER.findall(printed), strict=True)
    return all(
        abs(float(theirs) - float(mine)) <= TOLERANCE * abs(float(mine))
        if "." in mine
        else float(theirs) == float(mine)
        for mine, theirs in pairs
    )


def _words(text: str) -> list[str]:
    """Return the words, and a │ at each end of each cell of a table."""
    words: list[str] = []
    row: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("│"):
            cells = [cell.strip() for cell in line.strip().strip("│").split("│")]
            if cells[0] or not row:
                words += _cell_words(row)
                row = cells
            else:  # a cell that is broken over several lines
                row = [f"{old} {new}" for old, new in zip(row, cells, strict=True)]
        else:
            words += _cell_words(row)
            row = []
            words += [] if _RULE.fullmatch(line) else line.split()
    return words + _cell_words(row)


def _cell_words(row: list[str]) -> list[str]:
    return [word for cell in row for word in (*cell.split(), "│")]
