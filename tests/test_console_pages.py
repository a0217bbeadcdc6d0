"""The pages show what the tool prints today."""

from pathlib import Path

import pytest
from statsmodels.datasets import randhie

from tests.console_pages import difference, run_page, steps_of

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


# Pages whose blocks are run one after the other in one directory.
TUTORIAL = (
    "tutorial.md",
    "tutorial/promise.md",
    "tutorial/fit.md",
    "tutorial/options.md",
    "tutorial/other-tables.md",
    "release-format/manifest.md",
)
LEARNING = ("learning/command-line.md",)
ANNOTATE = ("annotate.md",)


def run_pages(names):
    for name in names:
        run_page((DOCS / name).read_text(encoding="utf-8"))


def test_the_tutorial_and_the_pages_that_go_on_with_its_release(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_pages(TUTORIAL)


def test_the_pages_on_learning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits = randhie.load_pandas().data
    held_out = visits.index // 200 % 5 == 4
    visits[~held_out].to_csv("visits.csv", index=False)
    visits[held_out].to_csv("holdout.csv", index=False)
    run_pages(LEARNING)


def test_the_page_on_labelling_budgets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_pages(ANNOTATE)


def test_no_other_page_shows_what_nobody_runs():
    shown = {
        page.relative_to(ROOT).as_posix()
        for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
        if list(steps_of(page.read_text(encoding="utf-8")))
    }
    assert shown == {f"docs/{name}" for name in (*TUTORIAL, *LEARNING, *ANNOTATE)}


PAGE = """
  model.json on
    holdout.csv
┌─────────┬─────────────┐
│ privacy │ NOT PRIVATE │
│ n_rows  │ 2000        │
│ rmse    │ 123.4       │
└─────────┴─────────────┘
Exact scores describe the labels ...
 area    -11.118  <0.0001  -11.3 to -10.86
"""
PRINTED = """
       model.json on holdout.csv
┌─────────┬────────────────────┐
│ privacy │ NOT                │
│         │ PRIVATE            │
│ n_rows  │ 2000               │
│ rmse    │ 125.91             │
└─────────┴────────────────────┘
Exact scores describe the labels of these rows: keep
them.
 area    -10.9    <0.0001  -11 to -10.8
"""


def test_noise_widths_and_broken_lines_do_not_matter():
    assert difference(PAGE, PRINTED) is None


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("NOT", "IS"),
        ("describe", "tell of"),
        ("model.json on holdout.csv", "model.json"),
        ("rmse ", "rmse │ of "),
        ("│ n_rows  │ 2000               │\n", ""),
        ("2000", "2001"),
        ("125.91", "12.591"),
        ("125.91", "187.1"),
        ("125.91", "none"),
        ("-10.9", "10.9"),
        ("<0.0001", "0.0001"),
        ("to -10.8", "to -10.8 or so"),
        ("to -10.8", "to"),
    ],
)
def test_a_word_that_changed_and_a_number_far_off_are_noticed(then, now):
    assert then in PRINTED
    assert difference(PAGE, PRINTED.replace(then, now)) is not None


def test_what_is_left_out_on_the_page_is_where_it_says():
    assert difference("a ... c", "a b b c") is None
    assert difference("a ... c", "a c") is None
    assert difference("a ... c ... d", "a b c b d") is None
    assert difference("a ... c ... d", "a b b d") is not None
    assert difference("a ... c", "a b") is not None
    assert difference("a ... a", "a") is not None
    assert difference("", "a") is not None


def test_a_page_that_is_not_true_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "```console\n$ bagwise verify here\nError: ... here ...\n$ echo $?\n{}\n```\n"
    run_page(page.format(2))
    with pytest.raises(AssertionError, match="echo"):
        run_page(page.format(3))
