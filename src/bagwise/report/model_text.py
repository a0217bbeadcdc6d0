"""What a model has learned, as a table for a terminal; one function for each kind of model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from bagwise.models.row_model import RowModel
from bagwise.models.tree_model import TreeModel


@dataclass(frozen=True)
class ModelText:
    """A title, rows of cells with a heading, a remark, and the same as plain values."""

    title: str
    cells: Sequence[Sequence[str]]
    note: str
    values: dict[str, Any]


@singledispatch
def text_of(model: object) -> ModelText:
    """Return what a model has learned."""
    raise NotImplementedError(f"no text is known for {type(model).__name__}")


@text_of.register
def _coefficients(model: RowModel) -> ModelText:
    found = model.summary()
    return ModelText(found.title, found.cells(), found.note, found.to_json())


@text_of.register
def _trees(model: TreeModel) -> ModelText:
    asked = dict(sorted(model.importance().items(), key=lambda one: -one[1]))
    return ModelText(
        title=f"{model.label}: {model.family}, {model.n_trees} boosted trees",
        cells=[("column", "asked about"), *((n, f"{100 * s:.3g} %") for n, s in asked.items())],
        note="How often trees ask about a column says little about how much it matters.",
        values={"trees": model.n_trees, "asked_about": asked},
    )
