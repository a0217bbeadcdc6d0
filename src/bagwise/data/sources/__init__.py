"""Where tables come from: files, directories, frames, streams, pipes and databases.

`open_source` says which `Source` something is, by what it is called or what it can do: nothing is
read yet.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw

from bagwise.data.sources.arrow_files import ArrowFiles, DatasetSource, ParquetFiles
from bagwise.data.sources.csv_files import Csv
from bagwise.data.sources.locate import STANDARD_INPUT, Files, Kind, find_files
from bagwise.data.sources.queries import Query
from bagwise.data.sources.source import Source, StreamedSource
from bagwise.data.sources.streams import Frame, Piped, Stream

_FILES: dict[Kind, Callable[[Files], Source]] = {
    "Parquet": ParquetFiles,
    "Arrow": ArrowFiles,
    "CSV": lambda files: Csv(files.paths),
}


def open_source(source: Any) -> Source:
    """Return the source that something is; nothing is read but names.

    >>> import pyarrow as pa
    >>> type(open_source(pa.table({"x": [1]}).to_reader())).__name__
    'Stream'
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, str) and source == STANDARD_INPUT:
        return Piped()
    if _names_files(source):
        files = find_files(source)
        return _FILES[files.kind](files)
    if _is_dataset(source):
        return DatasetSource(source)
    return Stream(source) if _is_stream(source) else Frame(source)


def _names_files(source: Any) -> bool:
    if isinstance(source, list | tuple):
        return bool(source) and all(isinstance(part, str | Path) for part in source)
    return isinstance(source, str | Path)


def _is_dataset(source: Any) -> bool:
    """Tell without importing the module, which takes half a second: nobody has one without it."""
    datasets = sys.modules.get("pyarrow.dataset")
    return datasets is not None and isinstance(source, datasets.Dataset)


def _is_stream(source: Any) -> bool:
    """Tell whether something hands over Arrow batches, and is no frame that narwhals knows better.

    A relation of DuckDB is both; to narwhals it would be one more query.
    """
    return hasattr(source, "__arrow_c_stream__") and not nw.dependencies.is_into_dataframe(source)


__all__ = ["Csv", "Query", "Source", "StreamedSource", "open_source"]
