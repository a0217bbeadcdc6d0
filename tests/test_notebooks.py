"""The notebooks in examples/notebooks run from top to bottom, and are kept without output."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from bagwise.cluster.kernels import are_to_be_kept
from bagwise.cluster.search import compile_kernels

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_is_one_for_each_of_three_users():
    assert [book.stem for book in BOOKS] == ["custodian", "label-buyer", "learner"]


@pytest.fixture(scope="module")
def compiled():
    """Kernels on disk: the first search on a machine would say that it compiles them."""
    if are_to_be_kept():
        compile_kernels()


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_tables_and_charts(path, tmp_path, monkeypatch, compiled):
    book = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in book.cells)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, timeout=600, startup_timeout=600, resources=place).execute()
    kinds = {
        kind
        for cell in book.cells
        for output in cell.get("outputs", [])
        for kind in output.get("data", {})
    }
    assert {"text/html", "image/svg+xml"} <= kinds
    streams = [o for cell in book.cells for o in cell.get("outputs", []) if "name" in o]
    assert [stream["text"] for stream in streams if stream["name"] == "stderr"] == []
