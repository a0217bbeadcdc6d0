"""The notebooks in examples/notebooks run from top to bottom, and are kept with what they show."""

import nbformat
import pytest

from bagwise.cluster.compile import are_to_be_kept
from bagwise.cluster.search import compile_kernels
from tools.notebooks import books, run

BOOKS = books()


def test_there_is_one_for_each_of_three_users():
    assert [book.stem for book in BOOKS] == ["custodian", "label-buyer", "learner"]


@pytest.fixture(scope="module")
def compiled():
    """Kernels on disk: the first search on a machine would say that it compiles them."""
    if are_to_be_kept():
        compile_kernels()


def kinds(book):
    """Return in which formats the cells of a notebook show something."""
    outputs = (output for cell in book.cells for output in cell.get("outputs", []))
    return {kind for output in outputs for kind in output.get("data", {})}


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_tables_and_charts(path, tmp_path, monkeypatch, compiled):
    book = nbformat.read(path, as_version=4)
    assert {"text/html", "image/svg+xml"} <= kinds(book), "run `make notebooks`"
    kept = [cell.source for cell in book.cells]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run(book, tmp_path)
    assert [cell.source for cell in book.cells] == kept
    assert {"text/html", "image/svg+xml"} <= kinds(book)
    streams = [o for cell in book.cells for o in cell.get("outputs", []) if "name" in o]
    assert [stream["text"] for stream in streams if stream["name"] == "stderr"] == []
