"""Fitted models: row-level models and their coefficients."""

from pathlib import Path

from bagwise.errors import ModelFileError
from bagwise.files.json_files import read_json
from bagwise.models.cells import TablesModel
from bagwise.models.model import LARGEST, Model, refuse_directory
from bagwise.models.row_model import RowModel
from bagwise.models.trees import TreeModel

__all__ = ["Model", "RowModel", "TablesModel", "TreeModel", "load_model"]


def load_model(path: str | Path) -> RowModel | TreeModel:
    """Return the model in a file; kinds that are not known are refused, and none is imported."""
    refuse_directory(path)
    content = read_json(Path(path), error=ModelFileError, what="a model file", limit=LARGEST)
    kinds: tuple[type[RowModel] | type[TreeModel], ...] = (RowModel, TreeModel, TablesModel)
    for kind in kinds:
        if content.get("schema") == kind.SCHEMA:
            return kind.load(path)
    known = ", ".join(kind.SCHEMA for kind in kinds)
    raise ModelFileError(f"{path} is not a model file that this version reads ({known}).")
