"""Bounds for labels whose range nobody knows: a private choice on a public grid of round numbers.

Bounds read off the labels would publish two of them. Here candidates are fixed beforehand, 0 and
plus or minus 1, 2, 5 times powers of ten. Each bound is the candidate that costs least: by the
labels beyond it, and by a price for each step outwards, with noise on all costs and nothing told
but the winner (`private_range`, which has the proof). Each of the two bounds gets half of epsilon.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal, Self

import msgspec
import numpy as np
from msgspec import Meta

from bagwise._types import FloatArray, IntArray
from bagwise.errors import BoundsError
from bagwise.files.atomic import new_file
from bagwise.files.json_files import LARGEST_STATEMENT, canonical, write_json
from bagwise.files.records import Record, read_file, to_plain
from bagwise.privacy.certificate import Certificate
from bagwise.privacy.curves import check_epsilon
from bagwise.privacy.mark import Mark
from bagwise.privacy.mechanisms import BeforeDraw, Mechanism, noisy_choice, nothing_first
from bagwise.privacy.private_range import PRICE_OF_DOUBLING, candidates, cheapest, is_choice
from bagwise.rng import NoiseSource, SecureNoise
from bagwise.rows.labels import Bounds
from bagwise.show import html

SCHEMA: Final = "bagwise-bounds/2"

_FEWEST = 0.4  # scales of the noise that a step outwards must cost, or chance decides
_MOST = 0.25  # of all labels: what all steps together may cost


@dataclass(frozen=True)
class PrivateBounds:
    """Bounds that were chosen privately, and what that cost.

    Attributes
    ----------
    bounds : (float, float)
    event : Mechanism
        To be charged to whatever is released with these bounds.
    unit : str or None
        The column whose values were protected together.
    mark : Mark
        Id, day and data set: a ledger knows by it what was paid already.
    """

    bounds: Bounds
    event: Mechanism
    unit: str | None = None
    mark: Mark = field(default_factory=Mark.new)

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
        if not is_choice((low, high)):
            raise BoundsError(f"{path} holds bounds that are not from the public candidates.")
        check_epsilon(file.epsilon)
        mark = Mark(file.id, file.date, file.dataset)
        mark.check()
        found = cls((low, high), noisy_choice("bounds", file.epsilon, file.rows), file.unit, mark)
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
            unit_rows=self.event.unit_rows if self.unit is not None else 1,
            mark=self.mark,
        )

    @property
    def digest(self) -> str:
        """SHA-256 that ties the bounds to what they cost."""
        return self._to_file().sha256

    def _repr_html_(self) -> str:
        low, high = self.bounds
        return html.table(
            "Private bounds",
            [
                ("bounds", f"{low:g} to {high:g}"),
                ("privacy", self.certificate.headline),
                ("protected", self.certificate.protected),
            ],
        )

    def _to_file(self) -> "_BoundsFile":
        content = _BoundsFile(
            schema=SCHEMA,
            id=self.mark.id,
            date=self.mark.date,
            dataset=self.mark.dataset,
            bounds=self.bounds,
            epsilon=self.event.epsilon,
            unit=self.unit,
            rows=self.event.unit_rows,
            sha256="",
        )
        digest = hashlib.sha256(canonical(to_plain(content))).hexdigest()
        return msgspec.structs.replace(content, sha256=digest)


class _BoundsFile(Record, frozen=True):
    """The fields of a bounds file."""

    schema: Literal["bagwise-bounds/2"]
    id: str
    date: str
    dataset: str | None
    bounds: tuple[float, float]
    epsilon: float
    unit: str | None
    rows: Annotated[int, Meta(ge=1, le=2**48)]
    sha256: str


def choose_bounds(
    labels: FloatArray,
    *,
    epsilon: float,
    source: NoiseSource,
    outside: float | None = None,
    rows: int = 1,
    before_draw: BeforeDraw = nothing_first,
) -> PrivateBounds:
    """Choose bounds that few labels leave, spending epsilon.

    Parameters
    ----------
    labels : (n,) floats
    epsilon : float
        For both bounds together, without a delta.
    source : NoiseSource
    outside : float, optional
        Share of labels that may be clipped on each side. Without it labels are weighed against
        noise: a step outwards is taken if about ``4 / epsilon`` labels would be clipped otherwise,
        which is what the noise on counts allows to see, and no more than the noise on labels is
        worth.
    rows : int
        Rows of a protected unit.
    before_draw : callable
        Called with the event when nothing but the draw is left.
    """
    check_epsilon(epsilon)
    if outside is not None and not 0 <= outside < 0.25:
        raise BoundsError(f"outside must be at least 0 and below 0.25, got {outside:g}.")
    grid = candidates()
    steps = np.arange(grid.size, dtype=np.float64)  # each is about a doubling
    price = min(PRICE_OF_DOUBLING, _MOST * labels.size * epsilon / 2 / (rows * grid.size))
    if price < _FEWEST:
        raise BoundsError(
            f"{labels.size} labels are too few for private bounds at epsilon {epsilon:g}. "
            "Give public bounds, or more epsilon."
        )

    def choose(beyond: IntArray) -> int:
        free = 0.0 if outside is None else outside * labels.size
        return cheapest(
            beyond, steps, epsilon=epsilon / 2, rows=rows, source=source, price=price, free=free
        )

    ordered = np.sort(labels)
    above = labels.size - np.searchsorted(ordered, grid, side="right")
    below = np.searchsorted(ordered, grid[::-1], side="left")
    event = noisy_choice("bounds", epsilon, rows)
    before_draw((event,))
    high, low = grid[choose(above)], grid[::-1][choose(below)]
    if not low < high:
        raise BoundsError(
            "the labels are too alike for private bounds. Give public bounds; note that this try "
            "has spent its epsilon."
        )
    return PrivateBounds((float(low), float(high)), event)
