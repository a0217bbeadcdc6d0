"""Read a model file of any kind that this package writes."""

from pathlib import Path

from bagwise.errors import ModelFileError
from bagwise.files.json_files import read_json
from bagwise.models import row_model, tree_model
from bagwise.models.row_model import RowModel
from bagwise.models.tree_model import TreeModel


def load_model(path: str | Path) -> RowModel | TreeModel:
    """Return the model in a file; kinds that are not known are refused, and none is imported."""
    if Path(path).is_dir():
        return RowModel.load(path)  # which says what to do about a directory
    content = read_json(
        Path(path), error=ModelFileError, what="a model file", limit=tree_model.LARGEST
    )
    if content.get("schema") == tree_model.SCHEMA:
        return TreeModel.load(path)
    if content.get("schema") == row_model.SCHEMA:
        return RowModel.load(path)
    raise ModelFileError(
        f"{path} is not a model file that this version reads ({row_model.SCHEMA}, "
        f"{tree_model.SCHEMA})."
    )
