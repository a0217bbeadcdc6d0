"""The pages on adding a strategy, a family and a law, done to the letter in a copy of bagwise."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parent.parent
# With conftest.py: without it the contracts would run by chance, and against a clock.
COPIED = ("src", "tests", "tools", "docs", "README.md", "conftest.py", "pyproject.toml")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PLACE = re.compile(r"`(src/bagwise/\S+\.py)`")


def neither_results_nor_drafts(folder, names):
    """Leave out results, and what a test beside this one is just now writing."""
    if not folder.endswith("__pycache__"):
        return {"results"}
    return [name for name in names if not name.endswith((".pyc", ".nbi", ".nbc", ".ready"))]


class Copy:
    """A copy of the checkout to which one page of the docs is applied."""

    def __init__(self, root):
        self.root = root
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                # Compiled loops come along: dates are kept, by which numba knows them.
                shutil.copytree(source, root / name, ignore=neither_results_nor_drafts)
            else:
                shutil.copy(source, root / name)

    def files(self):
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

    def apply(self, page):
        """Write the file and the line; return the example, and which files were touched."""
        before = self.files()
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        file, line, example = BLOCK.findall(text)
        registry, place = PLACE.findall(text)[:2]
        (self.root / place).write_text(file, encoding="utf-8")
        listed = (self.root / registry).read_text(encoding="utf-8").splitlines(keepends=True)
        last = max(i for i, known in enumerate(listed) if re.match(r"from .* as ", known))
        assert len(line.splitlines()) == 1
        changed = "".join([*listed[: last + 1], line, *listed[last + 1 :]])
        (self.root / registry).write_text(changed, encoding="utf-8")
        after = self.files()
        touched = {name for name in after if after[name] != before.get(name)}
        assert touched == {registry, place}
        return example

    def python(self, *arguments):
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONDONTWRITEBYTECODE": "",  # many a Python begins here
        }
        run = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
        return run.stdout

    def bagwise(self, *arguments):
        return self.python("-m", "bagwise", *arguments)

    def help(self, verb):
        return " ".join(self.bagwise(verb, "--help").replace("│", " ").split())

    def test(self, words, *files):
        quietly = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider")
        out = self.python("-m", "pytest", *quietly, *files, "-k", words)
        return int(re.search(r"(\d+) passed", out)[1])


def counts(path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    pd.DataFrame({"x": x, "z": rng.normal(size=60), "y": rng.poisson(np.exp(x / 2))}).to_csv(
        path, index=False
    )
    return path


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def test_a_strategy_is_one_file_and_one_line(copy):
    example = copy.apply("adding-a-strategy.md")
    copy.python("-c", example)
    table = counts(copy.root / "counts.csv")
    release = ("release", table, "--label", "y", "--bag-size", "6", "--not-private")
    made = copy.bagwise(
        *release, "--strategy", "column", "--set", "column=1", "-o", "out", "--json"
    )
    assert json.loads(made)["strategy"] == "column"
    copy.bagwise("verify", "out")
    plan = copy.bagwise(
        "plan", table, "--label", "y", "--not-private", "--min-bag-size", "6", "--json"
    )
    commands = [candidate["command"] for candidate in json.loads(plan)["candidates"]]
    assert any("--strategy column " in command for command in commands)
    assert "column: neighbours along one column" in copy.help("release")
    copy.python("-m", "tools.tables")
    assert "| `column`" in (copy.root / "docs" / "strategies.md").read_text(encoding="utf-8")
    words = "ColumnBags or strategy and column or public or registered or type_checkers or tables"
    files = ("tests/contracts", "tests/test_public_names.py", "tests/test_tables.py")
    assert copy.test(words, *files) > 20


def test_a_family_is_one_file_and_one_line(copy):
    example = copy.apply("adding-a-family.md")
    copy.python("-c", example)
    table = counts(copy.root / "counts.csv")
    release = ("release", table, "--label", "y", "--bag-size", "3", "--not-private")
    copy.bagwise(*release, "--strategy", "random", "--seed", "1", "-o", "out")
    family = ("--family", "negative_binomial")
    copy.bagwise("fit", "out", *family, "-o", "model.json")
    assert json.loads((copy.root / "model.json").read_text())["family"] == "negative_binomial"
    copy.bagwise("predict", "model.json", table, "-o", "predictions.csv")
    copy.bagwise("plan", table, "--label", "y", "--not-private", "--min-bag-size", "6", *family)
    assert "negative_binomial: a count that varies more" in copy.help("fit")
    copy.python("-m", "tools.tables")
    page = copy.root / "docs" / "learning" / "losses-and-families.md"
    assert "| `negative_binomial`" in page.read_text(encoding="utf-8")
    words = "NegativeBinomial or tables"
    assert copy.test(words, "tests/contracts/test_families.py", "tests/test_tables.py") > 20


def test_a_law_is_one_file_and_one_line(copy):
    example = copy.apply("adding-a-law.md")
    copy.python("-c", example)
    table = counts(copy.root / "counts.csv")
    asked = ("--label", "y", "--bounds", "0", "20", "--epsilon", "4", "--delta", "1e-4")
    bags = ("--bag-size", "6", "--strategy", "random", "--tighten", "none", "--centre", "none")
    made = ("release", table, *asked, *bags, "-o", "out", "--noise", "discrete-gaussian")
    copy.bagwise(*made)
    certificate = json.loads((copy.root / "out" / "certificate.json").read_text())
    (event,) = certificate["events"]
    assert event["query"]["kind"] == "bag-means"
    assert [law["kind"] for law in event["laws"]] == ["discrete-gaussian"]
    copy.bagwise("verify", "out")
    copy.bagwise("fit", "out", "-o", "model.json")
    # Every pair of it with a query is held against brute force, or refused.
    words = "discrete-gaussian and (covers or worked_out or keys or impossible or units)"
    assert copy.test(words, "tests/contracts/test_mechanisms.py") > 20


@pytest.mark.parametrize("page", ["adding-a-strategy.md", "adding-a-family.md", "adding-a-law.md"])
def test_its_code_is_in_the_style_of_the_house(copy, page):
    copy.apply(page)
    for arguments in (["check"], ["format", "--check"]):
        copy.python("-m", "ruff", *arguments, "--no-cache", "src")
