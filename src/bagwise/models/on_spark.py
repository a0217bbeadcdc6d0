"""Predictions for a DataFrame of Spark: where its rows are, some at a time."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from bagwise.errors import ColumnError, TableError, did_you_mean
from bagwise.models.model import Model
from bagwise.rows.spark.session import is_frame
from bagwise.rows.workers import guarded


def predict_on_spark(
    model: Model, frame: Any, *, id: str | None = None, rate: bool = False, clip: bool = True
) -> Any:
    """Return a DataFrame with a column `prediction`, beside the column `id` if one is named.

    It is evaluated when it is written or looked at, as every DataFrame is. For classes there is a
    column ``prediction=NAME`` with the chance of each. Predictions are clipped as
    ``model.predict`` does, unless `clip` is False.
    """
    if not is_frame(frame):
        raise TableError("give a DataFrame of Spark; model.predict takes everything else.")
    from pyspark.sql.types import DoubleType, StructField, StructType

    needed = [*model.encoder.inputs, *([] if model.exposure is None or rate else [model.exposure])]
    asked = list(dict.fromkeys([*([] if id is None else [id]), *needed]))
    for name in asked:
        if name not in frame.columns:
            raise ColumnError(
                f"{name!r} is not a column of the DataFrame.{did_you_mean(name, frame.columns)}"
            )
    key = [] if id is None else [frame.schema[id]]
    outputs = (StructField(name, DoubleType(), False) for name in model.outputs)
    schema = StructType([*key, *outputs])
    chosen = frame.select(*(f"`{name.replace('`', '``')}`" for name in asked))
    return chosen.mapInArrow(partial(_predict, model=model, id=id, rate=rate, clip=clip), schema)


def _predict(
    batches: Iterable[pa.RecordBatch], *, model: Model, id: str | None, rate: bool, clip: bool
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        predicted: Any = guarded(partial(model.predict_table, rows, id=id, rate=rate, clip=clip))
        if not isinstance(predicted, pa.Table):
            raise RuntimeError(predicted.text)  # of ours: names of columns, and no cells
        yield from predicted.to_batches()
