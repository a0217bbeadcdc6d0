"""The pages on theory and the docstrings speak of the same statements and functions."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    page.stem: page.read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs" / "theory").glob("*.md"))
}

# In the order of the paper: theorems, lemmas and propositions share one counter.
STATEMENTS = (
    *(f"Def {n}" for n in range(1, 5)),
    *(f"Thm {n}" for n in (1, 2, 3, 4, 5, 20, 22, 23)),
    *(f"Prop {n}" for n in (6, 7, 10)),
    *(f"Lemma {n}" for n in (8, 9, *range(11, 20), 21)),
    "Algorithm 1",
    "Algorithm 2",
)
STATUSES = ("holds", "holds under a condition", "corrected", "false", "new")
NUMBERED = re.compile(r"\b(Def|Thm|Prop|Lemma)s?\.?\s+(\d+(?:\s*(?:-|,|and|to)\s*\d+)*)")
LETTERED = re.compile(r"\b([EF])(\d+)(?:(?:-| to )\1(\d+))?\b")


def table_rows(page):
    """Return the cells of the rows of the first table on a page."""
    opening = PAGES[page].split("\n## ", 1)[0]
    rows = [line for line in opening.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows[2:]]
    return [[cell.strip() for cell in row] for row in cells]


ROWS = table_rows("statements")
ERRATA = {row[0] for row in table_rows("errata")}
FORMULAS = set(re.findall(r"^\*\*(F\d+), ", "\n".join(PAGES.values()), flags=re.MULTILINE))


def expand(numbers):
    """Return 1, 2, 3, 5 for "1-3 and 5"."""
    for part in re.split(r"\s*(?:,|and)\s*", numbers):
        first, *last = re.split(r"\s*(?:-|to)\s*", part)
        yield from range(int(first), int(last[0] if last else first) + 1)


def citations(text):
    """Return the statements, errata and formulas that a text names."""
    for word, numbers in NUMBERED.findall(text):
        yield from (f"{word} {number}" for number in expand(numbers))
    for letter, first, last in LETTERED.findall(text):
        yield from (f"{letter}{number}" for number in range(int(first), int(last or first) + 1))


def docstrings():
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "reproduction").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield f"{path.name}:{getattr(node, 'name', 'module')}", text


CITED = sorted({(where, what) for where, text in docstrings() for what in citations(text)})


def is_on_a_page(what):
    return what in ERRATA | FORMULAS | {row[0] for row in ROWS}


def test_citations_are_understood():
    text = "Defs. 1-3, Thms 4 and 5, Lemmas 8, 9, 17-19; E1 and E2, F1-F4, F1 to F3. Theorem 8."
    found = set(citations(text))
    assert {"Def 1", "Def 3", "Thm 5", "Lemma 9", "Lemma 18", "E2", "F3", "F4"} <= found
    assert "Thm 8" not in found
    assert not is_on_a_page("Thm 6")
    assert not is_on_a_page("E99")
    assert not is_on_a_page("F9")


def test_docstrings_cite_something():
    assert len(CITED) > 60
    assert {what[0] for _, what in CITED} >= set("DTPLEF")


@pytest.mark.parametrize(("where", "what"), CITED)
def test_what_docstrings_cite_is_on_a_page(where, what):
    assert is_on_a_page(what), f"{where} cites {what}"


def test_every_statement_of_the_paper_has_one_row():
    named = [row[0] for row in ROWS]
    assert len(named) == len(set(named))
    assert set(STATEMENTS) <= set(named)
    numbered = {name for name in named if re.fullmatch(r"(Def|Thm|Prop|Lemma) \d+", name)}
    assert numbered == {name for name in STATEMENTS if not name.startswith("Algorithm")}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_row_has_a_status_and_a_function(row):
    _, status, holds, functions = row
    word, *errata = status.split(", ")
    assert word in STATUSES
    assert set(errata) <= ERRATA
    assert word != "false" or errata
    assert holds
    assert_importable(functions)


def assert_importable(cell):
    names = re.findall(r"`([^`]+)`", cell)
    assert names
    for name in names:
        module, _, attribute = name.rpartition(".")
        if not module.startswith("reproduction"):
            module = f"bagwise.{module}"
        assert hasattr(importlib.import_module(module), attribute), name


def test_proofs_that_the_table_points_to_are_there():
    words = re.sub(r"`[^`]*`", "", " ".join(row[2] for row in ROWS))
    pointers = set(re.findall(r"\(([a-z])\)", words))
    assert pointers == set(
        re.findall(r"^\*\*\(([a-z])\)\*\* ", PAGES["proofs"], flags=re.MULTILINE)
    )
    assert len(pointers) > 5


def test_every_erratum_has_a_counter_example():
    """Each erratum has a test by its name, here or among the tests of privacy."""
    elsewhere = {"E12": "privacy/test_membership.py"}
    tested = (
        (ROOT / "tests" / "reproduction" / "test_printed.py").read_text(encoding="utf-8").lower()
    )
    for erratum in ERRATA - set(elsewhere):
        assert re.search(rf"def test_(\w+_)?{erratum.lower()}_", tested), erratum
    for erratum, file in elsewhere.items():
        assert erratum in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_a_wrong_row_would_be_noticed():
    with pytest.raises(AssertionError):
        assert_importable("`reproduction.bounds.no_such_bound`")
