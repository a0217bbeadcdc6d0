"""Read a model file of any kind that this package writes."""

from pathlib import Path

from bagwise.errors import ModelFileError
from bagwise.files.json_files import read_json
from bagwise.models.model import LARGEST, refuse_directory
from bagwise.models.row_model import RowModel
from bagwise.models.tree_model import TreeModel

KINDS: tuple[type[RowModel] | type[TreeModel], ...] = (RowModel, TreeModel)


def load_model(path: str | Path) -> RowModel | TreeModel:
    """Return the model in a file; kinds that are not known are refused, and none is imported."""
    refuse_directory(path)
    content = read_json(Path(path), error=ModelFileError, what="a model file", limit=LARGEST)
    for kind in KINDS:
        if content.get("schema") == kind.SCHEMA:
            return kind.load(path)
    known = ", ".join(kind.SCHEMA for kind in KINDS)
    raise ModelFileError(f"{path} is not a model file that this version reads ({known}).")
