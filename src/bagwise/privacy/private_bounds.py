"""Bounds for labels whose range nobody knows: private quantiles on a public grid of round numbers.

Bounds read off the labels would publish two of them. Here candidates are fixed beforehand, 0 and
plus or minus 1, 2, 5 times powers of ten. A bound moves outwards over them until only few labels
are left beyond it; the counts and the limit carry Laplace noise, and nothing is told but where it
stopped.

Guarantee: this is the "above threshold" mechanism. Replacing one label changes every count by at
most one, so that noise of scale 2/epsilon on the limit and 4/epsilon on each count makes the
stopping place epsilon-private, however many candidates are passed (Dwork and Roth 2014, Theorem
3.23; the proof shifts noise by whole steps only, so that it holds for discrete noise). Each of the
two bounds gets half of epsilon.
"""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import msgspec
import numpy as np
from msgspec import Meta

from bagwise._types import FloatArray, IntArray
from bagwise.data.labels import Bounds
from bagwise.errors import BoundsError
from bagwise.files.atomic import new_file
from bagwise.files.json_files import LARGEST_STATEMENT, canonical, write_json
from bagwise.files.records import Record, read_file, to_plain
from bagwise.privacy.certificate import Certificate
from bagwise.privacy.curves import check_epsilon
from bagwise.privacy.mechanisms import NoisyChoice
from bagwise.privacy.samplers import discrete_laplace
from bagwise.rng import NoiseSource, SecureNoise

SCHEMA: Final = "bagwise-bounds/2"

_EXPONENTS = range(-9, 16)
_PRECISION = 1000  # counts are in thousandths, so that a whole noise scale can be fine


@dataclass(frozen=True)
class PrivateBounds:
    """Bounds that were chosen privately, and what that cost.

    Attributes
    ----------
    bounds : (float, float)
    event : NoisyChoice
        To be charged to whatever is released with these bounds.
    unit : str or None
        The column whose values were protected together.
    """

    bounds: Bounds
    event: NoisyChoice
    unit: str | None = None

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the bounds as a JSON file for ``bagwise release --bounds-file``."""
        with new_file(Path(path), force=force) as draft:
            write_json(to_plain(self._to_file()), draft)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read bounds back; refuse those that no search of ours ends with."""
        file = read_file(
            _BoundsFile,
            Path(path),
            schema=SCHEMA,
            error=BoundsError,
            what="a bounds file",
            limit=LARGEST_STATEMENT,
        )
        low, high = file.bounds
        grid = candidates()
        if not low < high or low not in grid or high not in grid:
            raise BoundsError(f"{path} holds bounds that are not from the public candidates.")
        check_epsilon(file.epsilon)
        found = cls((low, high), NoisyChoice(file.epsilon, file.rows), file.unit)
        if found.digest != file.sha256:
            raise BoundsError(f"{path} was changed after it was written. Find the bounds again.")
        return found

    @property
    def certificate(self) -> Certificate:
        """What is promised about the labels that the bounds were chosen by."""
        return Certificate(
            epsilon=self.event.epsilon,
            delta=0.0,
            bounds=None,
            events=(self.event,),
            smallest_bag=None,
            noise_source=SecureNoise.name,
            unit=self.unit,
            unit_rows=self.event.rows if self.unit is not None else 1,
        )

    @property
    def digest(self) -> str:
        """SHA-256 that ties the bounds to what they cost."""
        return self._to_file().sha256

    def _to_file(self) -> "_BoundsFile":
        content = _BoundsFile(
            schema=SCHEMA,
            bounds=self.bounds,
            epsilon=self.event.epsilon,
            unit=self.unit,
            rows=self.event.rows,
            sha256="",
        )
        digest = hashlib.sha256(canonical(to_plain(content))).hexdigest()
        return msgspec.structs.replace(content, sha256=digest)


class _BoundsFile(Record, frozen=True):
    """The fields of a bounds file."""

    schema: Literal["bagwise-bounds/2"]
    bounds: tuple[float, float]
    epsilon: float
    unit: str | None
    rows: Annotated[int, Meta(ge=1, le=2**48)]
    sha256: str


def candidates() -> FloatArray:
    """Return the public grid: 0 and plus or minus 1, 2, 5 times powers of ten, in order.

    >>> grid = candidates()
    >>> grid[(grid > 0.5) & (grid < 30)].tolist()
    [1.0, 2.0, 5.0, 10.0, 20.0]
    """
    positive = [float(f"{digit}e{power}") for power in _EXPONENTS for digit in (1, 2, 5)]
    return np.array([*(-value for value in reversed(positive)), 0.0, *positive])


def choose_bounds(
    labels: FloatArray, *, epsilon: float, outside: float, source: NoiseSource, rows: int = 1
) -> PrivateBounds:
    """Choose bounds with about a share `outside` of the labels beyond each, spending epsilon.

    Parameters
    ----------
    labels : (n,) floats
    epsilon : float
        For both bounds together, without a delta.
    outside : float
        Share of labels that may be clipped on each side. It is raised where the noise would hide
        so few: beyond the last label all candidates look alike.
    source : NoiseSource
    rows : int
        Rows of a protected unit.
    """
    check_epsilon(epsilon)
    if not 0 <= outside < 0.25:
        raise BoundsError(f"outside must be at least 0 and below 0.25, got {outside:g}.")
    grid = candidates()
    # The noise of all counts and of the limit stays below this, except with probability 0.01.
    visible = (8 + 4) * rows / epsilon * math.log(grid.size / 0.01)
    allowed = max(outside * labels.size, visible)
    if allowed > labels.size / 4:
        raise BoundsError(
            f"{labels.size} labels are too few for private bounds at epsilon {epsilon:g}. "
            "Give public bounds, or more epsilon."
        )
    ordered = np.sort(labels)
    below = np.searchsorted(ordered, grid, side="left")  # labels under each candidate
    above = labels.size - np.searchsorted(ordered, grid, side="right")
    high = grid[_first_clear(above, allowed, epsilon / 2, rows, source)]
    low = grid[::-1][_first_clear(below[::-1], allowed, epsilon / 2, rows, source)]
    if not low < high:
        raise BoundsError(
            "the labels are too alike for private bounds. Give public bounds; note that this try "
            "has spent its epsilon."
        )
    return PrivateBounds((float(low), float(high)), NoisyChoice(float(epsilon), rows))


def _first_clear(
    counts: IntArray, allowed: float, epsilon: float, rows: int, source: NoiseSource
) -> int:
    """Return the first place where a noisy count is at most a noisy limit, or the last place."""
    step = _PRECISION * rows  # how far a unit moves a count, in thousandths
    limit = round(allowed * _PRECISION) + discrete_laplace(
        1, scale=math.ceil(2 * step / epsilon), source=source
    )
    noise = discrete_laplace(counts.size, scale=math.ceil(4 * step / epsilon), source=source)
    clear = np.flatnonzero(counts.astype(np.int64) * _PRECISION + noise <= limit)
    return int(clear[0]) if clear.size else counts.size - 1
