"""The compiled loops. Importing this package does not import numba; looking at a loop does.

Each module holds the loops of one stage, and `arith` what all are made of. ``kernels.moves`` is
imported when it is first asked for, so that the stages can name their loops like any other
function, and those who never search need neither numba nor its second of start.
"""

import functools
import importlib
import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise.errors import MissingExtraError

if TYPE_CHECKING:
    from bagwise.cluster.kernels import (
        align,
        arith,
        bisect,
        exchange,
        moves,
        neighbours,
        repair,
        trace,
    )
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module(f"{__name__}.{name}")


__all__ = [
    "align", "arith", "bisect", "exchange", "load_kernels", "moves", "neighbours", "repair",
    "trace",
]  # fmt: skip

_log = logging.getLogger("bagwise")


def load_kernels() -> None:
    """Import the kernels, and say so if this is the first use and they have to be compiled."""
    if importlib.util.find_spec("numba") is None:
        raise MissingExtraError("size-constrained k-means", "fast")
    _announce()


@functools.cache
def _announce() -> None:
    """Tell once in a process if there are no compiled kernels on disk."""
    from bagwise.cluster.kernels import exchange

    last: Any = exchange.visit_pairs
    cached = Path(last.stats.cache_path).glob(f"*{last.__name__}*.nbi")
    if not last.signatures and not any(cached):
        _log.warning("compiling kernels, once (about 15 seconds)")
