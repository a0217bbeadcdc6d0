"""Sources of tables: files, directories, frames, streams, pipes and databases.

`open_source` finds the `Source` class for an object, by its name or its methods; nothing is read
yet.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw

from bagwise.rows.sources.csv_files import Csv, Piped
from bagwise.rows.sources.files import (
    STANDARD_INPUT,
    ArrowFiles,
    Files,
    Kind,
    ParquetFiles,
    find_files,
)
from bagwise.rows.sources.queries import Query
from bagwise.rows.sources.source import DatasetSource, Frame, ScannedSource, Source, Stream

_FILES: dict[Kind, Callable[[Files], Source]] = {
    "Parquet": ParquetFiles,
    "Arrow": ArrowFiles,
    "CSV": lambda files: Csv(files.paths),
}


def open_source(source: Any) -> Source:
    """Return the source for an object or a path; only names are read.

    >>> import pyarrow as pa
    >>> type(open_source(pa.table({"x": [1]}).to_reader())).__name__
    'Stream'
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, str) and source == STANDARD_INPUT:
        return Piped()
    parts = source if isinstance(source, list | tuple) else [source]
    if parts and all(isinstance(part, str | Path) for part in parts):
        files = find_files(source)
        return _FILES[files.kind](files)
    # The module is not imported, which takes half a second: nobody has a dataset without it.
    datasets = sys.modules.get("pyarrow.dataset")
    if datasets is not None and isinstance(source, datasets.Dataset):
        return DatasetSource(source)
    # Narwhals knows frames better. To it, a relation of DuckDB would be one more query.
    if hasattr(source, "__arrow_c_stream__") and not nw.dependencies.is_into_dataframe(source):
        return Stream(source)
    return Frame(source)


__all__ = ["Csv", "Query", "ScannedSource", "Source", "Stream", "open_source"]
