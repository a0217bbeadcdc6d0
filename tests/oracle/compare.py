"""Compare what a case says with what is kept, and say in words where they differ."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracle.cases import Figures, portable, replayed

KEPT = Path(__file__).with_name("oracle.json")
RELATIVE, ABSOLUTE = 1e-8, 1e-10
SEED = 31


def run(case: Any) -> Figures:
    """Return the figures of a case as JSON has them, with a stream that is its own."""
    with replayed(SEED):
        return dict(json.loads(json.dumps(portable(case()), default=_plain)))


def load() -> dict[str, Figures]:
    """Return what is kept."""
    return dict(json.loads(KEPT.read_text(encoding="utf-8"))) if KEPT.exists() else {}


def differences(kept: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield a line for each figure that is another one."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for name in sorted({*kept, *now}):
            yield from differences(kept.get(name), now.get(name), f"{where}.{name}".strip("."))
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        for place, (one, other) in enumerate(zip(kept, now, strict=True)):
            yield from differences(one, other, f"{where}[{place}]")
    elif not _same(kept, now):
        yield f"{where}: was {kept!r}, is {now!r}"


def _same(kept: Any, now: Any) -> bool:
    if isinstance(kept, float) and isinstance(now, int | float):
        return math.isclose(kept, now, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(kept == now)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else vars(value)
