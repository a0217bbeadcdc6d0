"""From what a caller names to a table on Spark: a session, a place for files, and splits."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from bagwise.errors import EngineError
from bagwise.files.spill import SpillDirectory
from bagwise.rows.parts import FileParts
from bagwise.rows.spark.session import check, is_frame, open_session
from bagwise.rows.spark.table import open_files, open_frame
from bagwise.rows.spark.tasks import Cluster, run_job

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def open_on_spark(
    source: Any,
    *,
    label: str,
    classes: Sequence[str] | None = None,
    named: Sequence[str] = (),
    spill: str | Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> FileParts:
    """Return the rows of a DataFrame, or of Parquet files, on a session that is set up safely.

    What Arrow cannot reach by a path, ``s3a://…`` for instance, is read by Spark.
    """
    if is_frame(source):
        session = source.sparkSession
        check(session)
    else:
        session = open_session(settings)
    cluster = Cluster(session, SpillDirectory(_shared(spill, session)))
    if isinstance(source, str) and _REMOTE.match(source):
        source = run_job(lambda: session.read.parquet(source))
    if is_frame(source):
        return open_frame(source, cluster, label=label, classes=classes, named=named)
    return open_files(source, cluster, named=named)


def _shared(spill: str | Path | None, session: Any) -> Path:
    """Return a directory that all machines can reach; on one machine, any."""
    if spill is not None:
        return Path(spill)
    if str(session.conf.get("spark.master", "")).startswith("local"):
        return Path(gettempdir())
    raise EngineError(
        "on several machines, name a directory that all of them can reach: spill=. Files that go "
        "between steps are written there."
    )
