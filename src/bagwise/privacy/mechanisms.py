"""Mechanisms: each is a query, a public map of the labels, and a law for the noise on its answer.

Accountant, calibration, certificate, `verify`, audit and learners ask the two, and never which pair
it is. A pair is worked out where the query knows its sensitivity in the norm that the law is proved
for. Any other pair, and any query or law that is not registered, is refused wherever it turns up:
nobody knows what it costs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial, reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BudgetError, CertificateError
from bagwise.files.records import Record, closed_schemas, read_record, to_plain
from bagwise.privacy.curves import Curve, GaussianCurve, PickCurve, WorstCurve, grouped
from bagwise.privacy.dispersion import ClaimedNoise, Frequencies
from bagwise.privacy.laws import LAWS, Exponential, Law, Move, Noise, Randomiser
from bagwise.privacy.laws.law import LARGEST_COUNT, exported_coin
from bagwise.privacy.queries import MOST_SIZES, QUERIES, Picks, Query, RangeCounts
from bagwise.rng import NoiseSource
from bagwise.rows.labels import Bounds

MOST_MECHANISMS = 10
"""Mechanisms that a certificate may list. A release has six at most."""

_LAWS: Any = GenericAlias(tuple, (reduce(or_, LAWS.values()), ...))
_LIMITED: Any = Annotated[_LAWS, Meta(max_length=MOST_SIZES)]

# A mechanism in a file: of the queries and the laws that are registered.
_FIELDS: Any = [("query", reduce(or_, QUERIES.values())), ("laws", _LIMITED)]
_Entry: Any = msgspec.defstruct("Entry", _FIELDS, bases=(Record,), frozen=True)

_AT_ONCE = 50_000  # draws, so that memory does not grow with their number
_SHARP = 1e-6  # what a density is smoothed by, in deviations of the noise: as good as not at all

Draw = Callable[[int], FloatArray]


@dataclass(frozen=True)
class Mechanism:
    """One private query of the labels, with all of its parameters.

    Attributes
    ----------
    query : Query
    laws : tuple of Law
        One for all answers; for picks one for each size of bag. All are of one kind.
    units : int
        How many protected units are looked at together; 1 for what is released.
    """

    query: Query
    laws: tuple[Law, ...]
    units: int = 1

    def __post_init__(self) -> None:
        if not is_worked_out(self.query, self.laws):
            names = {getattr(law, "kind", type(law).__name__) for law in self.laws}
            raise BudgetError(
                f"nobody has worked out what {type(self.query).__name__} with {', '.join(names)} "
                "costs: the pair is not registered."
            )

    @property
    def law(self) -> Law:
        """The law of all answers; for picks that of the smallest bag."""
        return self.laws[0]

    @property
    def noise(self) -> Noise:
        """The law, if it adds noise."""
        if not isinstance(self.law, Noise):
            raise AssertionError(f"{self.law.kind} adds no noise")
        return self.law

    @property
    def kind(self) -> str:
        """The name of its kind: the law, and the quantity that it hides."""
        return f"{self.law.kind}-{self.hides.replace(' ', '-')}"

    @property
    def hides(self) -> str:
        """The hidden quantity, in a word or two."""
        return self.query.hides

    @property
    def grid_step(self) -> float:
        """The width of a step of the answers."""
        return self.query.grid_step

    @property
    def unit_rows(self) -> int:
        """The number of rows of a unit that it allows for."""
        return self.query.unit_rows

    @property
    def number_sd(self) -> float:
        """The standard deviation of the noise on each number that is hidden, in its units."""
        return self.law.sd * self.grid_step

    @property
    def move(self) -> Move:
        """How far the labels of its units move the answer, in the norm of its law."""
        move = self.query.moves[self.law.norm]
        return move._replace(times=move.times * self.units)

    @property
    def sensitivity(self) -> float:
        """The largest total change of the answers by a unit's labels, in units of the answers."""
        return self.move.times * self.move.steps * self.grid_step

    @property
    def supposes_one_bag(self) -> bool:
        """Whether its noise is right only if all rows of a unit are in one bag."""
        return self.law.norm == "number" and self.unit_rows > 1 == self.move.times

    # What it costs: a law says so for a move, and picks bring the cost down (`Picks`).

    @cached_property
    def curve(self) -> Curve:
        """Delta at any epsilon >= 0, for the labels of its units replaced by any others."""
        sizes = self.query.bag_sizes
        if not sizes:
            return self.law.curve(self.move)
        each = tuple(map(PickCurve, self._curves_of_shown, sizes))
        one = each[0] if len(each) == 1 else WorstCurve(each)
        return grouped(one, self.unit_rows * self.units)

    @property
    def _curves_of_shown(self) -> list[Curve]:
        """What a label costs that is picked, by size of bag."""
        return [law.curve(self.query.moves[law.norm]) for law in self.laws]

    @cached_property
    def pure_epsilon(self) -> Fraction | None:
        """The cost without a delta; None if it needs one."""
        if not isinstance(self.query, Picks):
            return self.law.pure_epsilon(self.move)
        if self.law.needs_delta:
            return None
        most = max(map(self.query.cost, self.laws, self.query.sizes))
        return self.unit_rows * self.units * Fraction(most)

    @cached_property
    def extremes(self) -> tuple[float, int] | None:
        """The largest mu and the smallest bag of picks with Gaussian noise; None for others.

        They bound the curve of every size at once, and P2 has a closed form for them after scores.
        """
        if not self.query.bag_sizes:
            return None
        mus = [one.mu for one in self._curves_of_shown if isinstance(one, GaussianCurve)]
        return (max(mus), self.query.bag_sizes[0]) if mus else None

    @property
    def epsilon(self) -> float:
        """The cost in epsilon, if it needs no delta."""
        if self.pure_epsilon is None:
            raise AssertionError(f"{self.kind} needs a delta")
        return float(self.pure_epsilon)

    def widened(self, units: int) -> "Mechanism":
        """Return the equivalent mechanism for this many units together."""
        return self if units == 1 else replace(self, units=self.units * units)

    def on_grid(self, step: float) -> "Mechanism":
        """Return the same noise in the same number of steps of another width, at equal cost.

        So a range that is found privately decides about what is hidden, and not how well.
        """
        return replace(self, query=msgspec.structs.replace(self.query, grid_step=step))

    def check(self, bounds: Bounds | None) -> None:
        """Raise CertificateError if no release within these bounds could have such parameters."""
        if bounds is None:
            raise CertificateError("the certificate has an event and no bounds.")
        query = self.query
        if not (1 <= query.unit_rows <= LARGEST_COUNT and query.is_possible):
            raise CertificateError(f"the query for {query.hides} has impossible parameters.")
        if not query.fits(bounds):
            raise CertificateError(f"the query for {query.hides} does not fit the bounds.")
        if self.units != 1 or not all(law.is_possible(query.moves[law.norm]) for law in self.laws):
            raise CertificateError(f"event {self.kind!r} has impossible parameters.")

    def neighbours(self, source: NoiseSource) -> list[tuple[Draw, Draw]]:
        """Return draws on the two tables easiest to tell apart, for every possible worst case.

        Of picks these are the smallest and the largest bag: between them, chances fall like noise.
        All other labels of the bag are at one end, and the changed one is picked or not. A choice
        has no number to test.
        """
        if self.law.norm == "choice":
            return []

        def pair(law: Law, size: int) -> tuple[Draw, Draw]:
            draw = partial(law.scores, self.query.moves[law.norm], source=source)
            unmoved = partial(draw, moved=False)

            def moved(count: int) -> FloatArray:
                scores = draw(count, moved=True)
                if size == 1:
                    return scores
                picked = source.index_below(np.full(count, size)) == 0
                return np.where(picked, scores, unmoved(count))

            return _in_blocks(moved), _in_blocks(unmoved)

        each = list(zip(self.laws, self.query.bag_sizes or (1,), strict=True))
        return [pair(*one) for one in {0: each[0], len(each) - 1: each[-1]}.values()]

    def exported(self, google: Any) -> list[Any]:
        """Return it as events of Google's dp-accounting, given its module of events.

        Picks are one event for each size, or the worst of its cost: it has mixtures of Gaussians
        only.
        """
        if not self.query.bag_sizes:
            return [self.law.exported(self.move, google)]
        if self.pure_epsilon is not None:
            return [exported_coin(float(self.pure_epsilon), google)]
        return [
            google.MixtureOfGaussiansDpEvent(
                law.sd / self.query.moves[law.norm].steps, [0.0, 1.0], [1 - 1 / size, 1 / size]
            )
            for law, size in zip(self.laws, self.query.bag_sizes, strict=True)
        ]

    # The labels of bags: (bags,), or (bags, classes) for shares of classes.

    def _by_law(self, sizes: IntArray) -> list[tuple[Law, IntArray]]:
        """Return each law with the bags that it is for; none is for a size that nobody named."""
        named = self.query.bag_sizes or ((1,) if self.query.combine == "mean" else ())
        if not named:
            return [(self.law, np.arange(sizes.size))]
        order = np.argsort(sizes, kind="stable")
        first = np.searchsorted(sizes, named, side="left", sorter=order)
        last = np.searchsorted(sizes, named, side="right", sorter=order)
        pairs = zip(self.laws, first, last, strict=True)
        return [(law, order[start:end]) for law, start, end in pairs]

    def _rows_in(self, labels: AnyArray, sizes: IntArray) -> IntArray:
        """Return how many rows each label is the mean of; a pick is of one."""
        rows = sizes if self.query.combine == "sum" else np.ones_like(sizes)
        return rows if labels.ndim == 1 else rows[:, None]

    def hide(
        self,
        told: AnyArray,
        sizes: IntArray,
        *,
        low: float,
        source: NoiseSource,
        expected: IntArray | int = 0,
    ) -> FloatArray:
        """Return the labels of bags, all or some at a time; draws noise that is already paid for.

        Parameters
        ----------
        told : (amounts, bags)
            What the rows of each bag have together, in whole steps above `low` or as it is.
        expected : (bags,) integers
            The same of public predictions, if `told` is what they leave of the labels.
        """
        exact = told + expected
        exact = exact[0] if len(exact) == 1 else exact.T
        hidden = [(law.hide(exact[here], source), here) for law, here in self._by_law(sizes)]
        shown = np.full((sizes.size, *hidden[0][0].shape[1:]), np.nan)
        for some, here in hidden:
            shown[here] = some
        return np.asarray(low + self.grid_step * shown / self._rows_in(shown, sizes))

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on the label of a bag of each size.

        NaN for a size that has none.
        """
        deviations = np.full(sizes.size, np.nan)
        for law, here in self._by_law(sizes):
            deviations[here] = law.sd
        return deviations * self.grid_step / self._rows_in(deviations, sizes)

    def claimed_noise(self, sizes: IntArray) -> ClaimedNoise | None:
        """Return the noise on each bag label, to test for its absence; None without noise."""
        if not isinstance(self.law, Noise):
            return None

        def each(chance: str, steps: FloatArray) -> FloatArray:
            chances = np.full(steps.shape, np.nan)
            for law, here in self._by_law(sizes):
                chances[here] = getattr(law, chance)(steps[here])
            return chances

        per_unit = self._rows_in(sizes, sizes) / self.grid_step
        return ClaimedNoise(per_unit, partial(each, "within"), partial(each, "beyond"))

    def suits_classes(self, classes: int | None) -> bool:
        """Return whether it suits a label with this many classes; None stands for a number."""
        known = {getattr(law, "classes", classes) for law in self.laws}
        return self.query.of_classes == (classes is not None) and known == {classes}

    def contradiction(self, labels: FloatArray, sizes: IntArray, low: float) -> str | None:
        """Return why these answers cannot be labels of bags; None if they can."""
        if isinstance(self.law, Noise):
            # Whole steps, as far as doubles can tell.
            per_unit = self._rows_in(labels, sizes) / self.grid_step
            steps, size = (labels - low) * per_unit, (np.abs(labels) + abs(low)) * per_unit
            sure = 8 * np.finfo(float).eps * size < 0.01
            if np.any(np.abs(steps - np.rint(steps))[sure] > 0.02):
                return "bag labels are not on the grid that their noise is drawn on."
            return None
        possible = np.full(labels.shape, np.nan)
        for law, outcomes, here in self._outcomes(labels, sizes, low):
            possible[here] = low + self.grid_step * law.shown(outcomes)
        if not np.allclose(labels, possible, rtol=1e-9, atol=1e-9 * self.grid_step):
            return "some labels are none of those that the certificate says are reported."
        return None

    def _outcomes(
        self, labels: FloatArray, sizes: IntArray, low: float
    ) -> Iterator[tuple[Randomiser, IntArray, IntArray]]:
        """Yield each law that replaces labels, the outcomes of bags, and these bags."""
        for law, here in self._by_law(sizes):
            if isinstance(law, Randomiser):
                yield law, law.outcomes((labels[here] - low) / self.grid_step), here

    def frequencies(self, labels: FloatArray, sizes: IntArray, low: float) -> Frequencies | None:
        """Return how often each label is reported; None where labels are moved, not replaced."""
        found = list(self._outcomes(labels, sizes, low))
        if not found:
            return None
        least, most = map(np.array, zip(*(law.extremes for law, _, _ in found), strict=True))
        outcomes = np.concatenate([some for _, some, _ in found])
        counts = np.bincount(outcomes, minlength=least.shape[1])
        return Frequencies(counts, least.min(axis=0), most.max(axis=0))

    def log_likelihood(
        self, shown: FloatArray, exact: FloatArray, sizes: IntArray, low: float
    ) -> FloatArray:
        """Return the log likelihood of bag labels given the exact ones, up to a constant."""
        if isinstance(self.law, Noise):
            off = (shown - exact).T / self.noise_sd(sizes)
            value, _ = self.law.terms(off, np.full(off.shape, _SHARP))
            return np.asarray(np.atleast_2d(value).sum(axis=0))
        chances = np.full(sizes.size, np.nan)
        for law, outcomes, here in self._outcomes(shown, sizes, low):
            chances[here] = law.chances_of(outcomes, (exact[here] - low) / self.grid_step)
        return np.asarray(np.log(chances))


def noisy_choice(
    of: Literal["bounds", "range", "limit"], epsilon: float, rows: int = 1
) -> Mechanism:
    """Return the private choice of bounds, a range or a limit for this epsilon.

    >>> noisy_choice("range", 0.25).kind
    'exponential-range'
    """
    return Mechanism(RangeCounts(of, rows), (Exponential(float(epsilon)),))


def is_worked_out(query: object, laws: tuple[object, ...]) -> bool:
    """Return whether the cost of a query under these laws has been worked out."""
    if not isinstance(query, Query) or QUERIES.get(query.called()) is not type(query):
        return False
    kinds = {type(law) for law in laws}
    if len(kinds) != 1 or len(laws) != max(1, len(query.bag_sizes)):
        return False
    (law,) = kinds
    return issubclass(law, Law) and LAWS.get(law.called()) is law and law.norm in query.moves


def is_known(mechanism: object) -> bool:
    """Return whether a mechanism is one of ours; the cost of others is unknown."""
    return type(mechanism) is Mechanism and is_worked_out(mechanism.query, mechanism.laws)


def mechanism_to_json(mechanism: Mechanism) -> dict[str, Any]:
    """Return a mechanism as plain values: its query, and the laws that hide the answer."""
    if not is_known(mechanism) or mechanism.units != 1:
        raise CertificateError(f"event {type(mechanism).__name__} is not registered.")
    return to_plain(_Entry(query=mechanism.query, laws=mechanism.laws))


def mechanisms_from_json(entries: Any) -> tuple[Mechanism, ...]:
    """Read mechanisms back, but only as many as can be accounted for quickly."""
    if not isinstance(entries, list):
        raise CertificateError("the events of a certificate are a list.")
    if len(entries) > MOST_MECHANISMS:
        raise CertificateError(
            f"a certificate has at most {MOST_MECHANISMS} events, not {len(entries)}."
        )
    return tuple(mechanism_from_json(entry) for entry in entries)


def mechanism_from_json(entry: Any) -> Mechanism:
    """Read a mechanism back; refuse unknown queries, laws, combinations and fields."""
    read = read_record(_Entry, entry, error=CertificateError, what="an event of the certificate")
    if not is_worked_out(read.query, read.laws):
        raise CertificateError("the certificate has an event that nobody has worked out.")
    return Mechanism(read.query, read.laws)


def mechanism_schema() -> dict[str, Any]:
    """Return the JSON Schema of a mechanism: its queries and laws come from their records."""
    laws = {"type": "array", "minItems": 1, "items": {"oneOf": closed_schemas(LAWS.values())}}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["query", "laws"],
        "properties": {"query": {"oneOf": closed_schemas(QUERIES.values())}, "laws": laws},
    }


def _in_blocks(draw: Draw) -> Draw:
    def many(count: int) -> FloatArray:
        sizes = [min(_AT_ONCE, count - start) for start in range(0, count, _AT_ONCE)]
        return np.concatenate([draw(size) for size in sizes])

    return many
