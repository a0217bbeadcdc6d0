"""Check for compiled loops; ``python -m bagwise.cluster.compile`` compiles all of them.

The loops take ten seconds to compile; numba keeps them on disk. If they are missing, a search
starts this module in the background, and small tables use `plain` in the meantime. You can also run
it while building a container image.
"""

import functools
import hashlib
import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba

from bagwise.cluster.exchanging import settle

_log = logging.getLogger("bagwise")

WAIT = "BAGWISE_KERNELS"
"""The variable that says "wait" where the first search, too, has to wait for its kernels."""


def load_kernels() -> None:
    """Make sure that kernels can be used, and say so if they have to be compiled first."""
    if not _on_disk():
        _announce("compiling kernels, once (about 15 seconds)")


def are_to_be_kept() -> bool:
    """Return whether kernels could be cached on disk but are not all there."""
    return _mark() is not None and not _on_disk()


@functools.cache
def are_compiled() -> bool:
    """Return whether kernels are on disk, or worth waiting for.

    Decided once in a process, so that within it the same seed gives the same clusters.
    """
    return os.environ.get(WAIT) == "wait" or _on_disk()


@functools.cache
def compile_in_background() -> None:
    """Start a detached process that compiles all kernels once, for later runs."""
    if _mark() is None:
        _announce(
            "compiled kernels cannot be kept: neither the package's directory nor your home can be "
            "written to. Few rows are searched without them; NUMBA_CACHE_DIR names another place."
        )
        return
    _announce(
        "compiling kernels in the background. Until then, few rows are searched without them, and "
        f"bags are a few percent less compact; {WAIT}=wait waits instead."
    )
    nothing = subprocess.DEVNULL
    with suppress(OSError):  # then the next search tries again
        subprocess.Popen(  # this very program, without any data
            [sys.executable, "-m", "bagwise.cluster.compile"],
            stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True,
            env={**os.environ, WAIT: "wait"},
        )  # fmt: skip


def mark_compiled() -> None:
    """Record on disk that all kernels are there."""
    mark = _mark()
    if mark is not None:
        with suppress(OSError):
            mark.touch()


def _on_disk() -> bool:
    mark = _mark()
    return mark is not None and mark.exists()


@functools.cache
def _mark() -> Path | None:
    """Return the file that says that kernels are compiled; None where they cannot be kept.

    What numba keeps is of use to the same versions, processor and sources only.
    """
    last: Any = settle
    if not last.stats.cache_path:
        return None
    key = hashlib.sha256()
    for part in (numba.__version__, sys.version, llvmlite.binding.get_host_cpu_name()):
        key.update(part.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        key.update(source.read_bytes())
    return Path(last.stats.cache_path) / f"bagwise-{key.hexdigest()[:16]}.ready"


@functools.cache
def _announce(notice: str) -> None:
    """Announce the compilation once in a process."""
    _log.warning(notice)


if __name__ == "__main__":
    from bagwise.cluster.search import compile_kernels

    load_kernels()
    compile_kernels()
