"""Bring in the compiled parts: whether they can be had, and whether they must be compiled first."""

import functools
import importlib.util
import logging
from pathlib import Path
from typing import Any

from bagwise.errors import MissingExtraError

_log = logging.getLogger("bagwise")


def load_kernels() -> None:
    """Import the kernels, and say so if this is the first use and they have to be compiled."""
    if importlib.util.find_spec("numba") is None:
        raise MissingExtraError("size-constrained k-means", "fast")
    _announce()


@functools.cache
def _announce() -> None:
    """Tell once in a process if there are no compiled kernels on disk."""
    from bagwise.cluster import _exchange

    last: Any = _exchange.visit_pairs
    cached = Path(last.stats.cache_path).glob(f"*{last.__name__}*.nbi")
    if not last.signatures and not any(cached):
        _log.warning("compiling kernels, once (about 15 seconds)")
