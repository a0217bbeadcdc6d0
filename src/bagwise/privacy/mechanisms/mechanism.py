"""What every mechanism tells about itself, so that nobody has to know which one it is.

A mechanism is a frozen record of what was done to the labels. Its meaning never changes once
released: a certificate written today must be read the same way in years, so a different way of
hiding is a new record with a new kind. Whoever meets a mechanism asks it: for its privacy curve,
its noise, whether it fits the bounds. Nothing branches on its type, so nothing can forget one.

All noise is on whole multiples of a public grid, so that sensitivities and scales are whole numbers
of `grid_step`. `sensitivity` is how far the hidden value can move when the labels of one protected
unit are replaced.
"""

import math
from fractions import Fraction
from operator import attrgetter
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import msgspec

from bagwise._types import FloatArray, IntArray
from bagwise.errors import CertificateError
from bagwise.files.records import Record
from bagwise.privacy.dispersion import ClaimedNoise
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.loss_distributions import Curve
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

Hides = Literal[
    "labels",
    "model",
    "bag means",
    "single labels",
    "bag picks",
    "class picks",
    "mean loss",
    "bounds",
    "range",
    "limit",
]
"""What is hidden. Labels and a model are for sorting rows or for centring, the next four are
labels of bags; bounds, a range and a limit say what labels, or what a model leaves of them, were
clipped to."""

LARGEST_COUNT = 2**48
"""Rows, classes or bag sizes that a mechanism may name."""

LARGEST_STEPS = 2**62
"""Grid steps that a sensitivity or a scale may have: noise is drawn on 64-bit integers."""

MOST_SIZES = 10_000
"""Sizes of bags that a mechanism may list. So many different ones take fifty million rows."""


class Mechanism(Protocol):
    """One look at the labels, with all that is to be known about it."""

    hides: ClassVar[Hides]

    @property
    def kind(self) -> str:
        """The name under which certificates know it."""

    @property
    def curve(self) -> Curve:
        """Delta at any epsilon >= 0, for the labels of one protected unit replaced by any others.

        Guarantee: an upper bound for every pair of neighbouring tables, also if what is hidden was
        chosen after earlier releases; its parameters may not be.
        """

    @property
    def pure_epsilon(self) -> Fraction | None:
        """What it costs without a delta; None if it needs one."""

    def widened(self, rows: int) -> "Mechanism":
        """Return what it amounts to for `rows` units together."""

    def check(self, bounds: Bounds | None) -> None:
        """Raise CertificateError if no release within these bounds could have such parameters."""

    def allows_units(self, rows: int, bounds: Bounds | None) -> bool:
        """Tell whether its noise can have been set for units of so many rows."""

    def exported(self, google: Any) -> list[Any]:
        """Return it as events of Google's dp-accounting, given its module of events."""


@runtime_checkable
class HidesBagLabels(Protocol):
    """A mechanism that hides the labels of bags."""

    hides: ClassVar[Hides]

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on the label of a bag of each size."""

    def claimed_noise(self, sizes: IntArray) -> ClaimedNoise | None:
        """Return the noise on each bag label, for a test of its absence; None if there is none."""

    def suits_classes(self, classes: int | None) -> bool:
        """Tell whether it hides a label with so many classes; None stands for a number."""


@runtime_checkable
class ListsSizes(Protocol):
    """A mechanism that lists sizes of bags, each with a noise of its own."""

    @property
    def bag_sizes(self) -> list[int]:
        """The sizes, in order."""


@runtime_checkable
class PicksOne(Protocol):
    """A mechanism that shows one number of each bag with noise.

    Several rows of a unit are covered by the general bound for groups, which then has to cover
    scores that were set for single rows as well.
    """

    rows: int

    @property
    def row_curve(self) -> Curve:
        """The curve of the worst size, for one row."""


@runtime_checkable
class PicksWithGaussianNoise(PicksOne, Protocol):
    """One number of each bag with Gaussian noise, for which P2 has a closed form after scores."""

    @property
    def extremes(self) -> tuple[float, int]:
        """The largest mu and the smallest size: bounds of the curve of every size at once."""


class Tagged(Record, frozen=True, tag_field="kind"):
    """A record that carries its kind."""

    @property
    def kind(self) -> str:
        """The name under which certificates know it."""
        return kind_of(type(self))


def kind_of(mechanism: type) -> str:
    """Return the kind of a mechanism's class."""
    return str(attrgetter("__struct_config__.tag")(mechanism))


class OneScale(Tagged, frozen=True, kw_only=False):
    """Noise of one scale on everything that is hidden.

    Attributes
    ----------
    sensitivity, noise_scale, grid_step : float
        In units of what is hidden; the first two are whole numbers of the third.
    """

    sensitivity: float
    noise_scale: float
    grid_step: float

    @property
    def shift(self) -> int:
        """The sensitivity in grid steps."""
        return round(self.sensitivity / self.grid_step)

    @property
    def scale(self) -> int:
        """The noise scale in grid steps."""
        return round(self.noise_scale / self.grid_step)

    def widened(self, rows: int) -> Self:
        """Return what it amounts to for `rows` units: they move what is hidden so far at most."""
        return msgspec.structs.replace(self, sensitivity=self.sensitivity * rows)

    def on_grid(self, step: float) -> Self:
        """Return the same noise in the same number of steps, of another width: it costs the same.

        So a range that is found privately decides about what is hidden, and not how well.
        """
        return msgspec.structs.replace(
            self, sensitivity=self.shift * step, noise_scale=self.scale * step, grid_step=step
        )

    def check(self, bounds: Bounds | None) -> None:
        """Refuse parameters that no release within these bounds could have."""
        check_on_grid(self.kind, bounds, self.grid_step, self.sensitivity, [self.noise_scale])


class DrawsNoise(Protocol):
    """A mechanism that adds noise of its own to whole numbers."""

    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise for so many numbers, in grid steps."""


def check_on_grid(
    kind: str, bounds: Bounds | None, step: float, sensitivity: float, scales: list[float]
) -> None:
    """Refuse noise that is not on the grid of the bounds, or allows for less than one label."""
    values = (sensitivity, step, *scales)
    if not scales or not all(math.isfinite(value) and value > 0 for value in values):
        raise impossible(kind)
    if bounds is None:
        raise CertificateError("the certificate has an event and no bounds.")
    width = bounds[1] - bounds[0]
    if not math.isclose(step, width / LABEL_STEPS, rel_tol=1e-9) or not all(
        is_whole(value / step) for value in (sensitivity, *scales)
    ):
        raise CertificateError(f"event {kind!r} is not on the grid of its bounds.")
    if not sensitivity >= width * (1 - 1e-12):
        raise CertificateError(f"event {kind!r} does not fit the bounds.")


def impossible(kind: str) -> CertificateError:
    """Return the error for parameters that nothing can have."""
    return CertificateError(f"event {kind!r} has impossible parameters.")


def is_whole(steps: float) -> bool:
    """Tell whether a quotient of two doubles is a whole number of steps."""
    return 0.5 <= steps <= LARGEST_STEPS and math.isclose(steps, round(steps), rel_tol=1e-9)


def are_sizes(sizes: list[int], rows: int) -> bool:
    """Tell whether sizes of bags, and the rows of a unit, can be such."""
    usual = 1 <= len(sizes) <= MOST_SIZES and 1 <= rows <= LARGEST_COUNT
    return usual and sizes == sorted(set(sizes)) and sizes[0] >= 1 and sizes[-1] <= LARGEST_COUNT
