"""Run the commands of the README with an installed bagwise, on a table of rents made up here.

``python -m tools.readme .environments/wheel/bin/bagwise`` (``make wheel``). Pages need an extra, so
`report` is run without a page.
"""

import csv
import random
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def commands(text: str) -> list[list[str]]:
    r"""Return the commands of a page that begin with bagwise, as words.

    >>> commands("```sh\nbagwise verify out  # a remark\nmake test\n```\n")
    [['bagwise', 'verify', 'out']]
    """
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("bagwise ")]


def write_rents(folder: Path) -> None:
    """Write `rents.csv`, and `new.csv` without the rents."""
    draw = random.Random(0)  # noqa: S311 (no secret)
    rows = [(area, 200 + 12 * area + draw.gauss(0, 100)) for area in range(20, 140)] * 40
    for name, heading in (("rents.csv", ("area", "rent")), ("new.csv", ("area",))):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([heading, *(row[: len(heading)] for row in rows)])


def main(program: str) -> None:
    """Run them in a directory of their own; the first that fails ends it."""
    found = commands(README.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        write_rents(Path(folder))
        for _, verb, *words in found:
            rest = words[: words.index("-o")] if verb == "report" else words
            sys.stdout.write(f"$ bagwise {shlex.join([verb, *rest])}\n")
            sys.stdout.flush()
            subprocess.run([program, verb, *rest], cwd=folder, check=True)  # noqa: S603


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).absolute()))
