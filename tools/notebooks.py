"""Run the notebooks and keep their output, for readers who do not run them: ``make notebooks``."""

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"


def books() -> list[Path]:
    """Return the notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def run(book: Any, folder: Path) -> None:
    """Run a notebook from top to bottom in a folder."""
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(book, timeout=600, startup_timeout=600, resources=place).execute()


def main() -> None:
    """Run all of them; times of execution are not kept."""
    for path in books():
        book = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as folder:
            run(book, Path(folder))
        for cell in book.cells:
            cell.metadata.pop("execution", None)
        book.metadata["language_info"] = {"name": "python"}
        nbformat.write(book, path)


if __name__ == "__main__":
    main()
