"""The session of Spark: one of our own, or that of a frame; labels never lie about in clear."""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from bagwise.errors import EngineError, MissingExtraError
from bagwise.rows.spark import java

ENCRYPTED = "spark.io.encryption.enabled"
"""Shuffle files and spill are encrypted with a key that lives in the memory of the application."""

SETTINGS = {
    ENCRYPTED: "true",
    "spark.app.name": "bagwise",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""What a session of our own begins with; a caller may say otherwise, but for the first."""

_NAME = re.compile(r"spark\.[\w.-]+")


def is_frame(value: object) -> bool:
    """Tell whether something is a DataFrame of Spark, of the classic kind or of Spark Connect.

    By what it can do, since the two have no class in common that could be imported cheaply.

    >>> is_frame({"x": [1]})
    False
    """
    kind = type(value)
    ours = any(base.__module__.partition(".")[0] == "pyspark" for base in kind.__mro__)
    return ours and hasattr(kind, "mapInArrow") and hasattr(kind, "sparkSession")


def open_session(settings: Mapping[str, str] | None = None) -> Any:
    """Return the session that is active, or a new one; `settings` are those of Spark.

    Where `spark-submit` started this process, or a session is active, that one is taken.
    """
    if find_spec("pyspark") is None:
        raise MissingExtraError("the engine for Spark", "spark")
    given = dict(settings or {})
    if strange := [name for name in given if not _NAME.fullmatch(name)]:
        raise EngineError(f"settings of Spark are called spark.…, got {strange[0]!r}.")
    java.prepare()
    from pyspark.sql import SparkSession

    try:
        active = SparkSession.getActiveSession()
        if active is None:
            builder = SparkSession.builder
            if "spark.remote" not in given:
                builder = builder.config("spark.master", "local[*]")
            for name, value in (SETTINGS | given).items():
                builder = builder.config(name, value)
            active = builder.getOrCreate()
    except Exception as error:
        failure = EngineError(
            f"Spark did not start ({type(error).__name__}). Its own messages above say why; Java "
            "17, 21 and 25 are known to work."
        )
    else:
        check(active)
        return active
    raise failure


def check(session: Any) -> None:
    """Refuse a session that writes what goes through a shuffle in clear."""
    try:
        told = _started_with(session, ENCRYPTED)
    except Exception:  # a server that does not tell
        told = "unknown"
    if str(told).lower() != "true":
        raise EngineError(
            f"this session of Spark writes shuffle files and spill in clear ({ENCRYPTED} is "
            f"{told}), and labels go through them. Start it with {ENCRYPTED}=true; it cannot be "
            "changed later."
        )


def _started_with(session: Any, name: str) -> str:
    """Return a setting that the application was started with, and not what was said too late.

    A builder that finds a session takes its settings down there, and Spark goes on as it was. A
    server of Spark Connect takes down nothing that it does not do, and has no context to be asked.
    """
    if any(base.__module__.startswith("pyspark.sql.connect") for base in type(session).__mro__):
        return str(session.conf.get(name, "false"))
    return str(session.sparkContext.getConf().get(name, "false"))
