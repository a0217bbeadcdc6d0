"""Mechanisms: each is a query, a public map of the labels, and a law for the noise on its answer.

Accountant, calibration, certificate, `verify`, audit and learners ask the two, and never which pair
it is. A pair is worked out where the query knows its sensitivity in the norm that the law is proved
for. Any other pair, and any query or law that is not registered, is refused wherever it turns up:
nobody knows what it costs.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.errors import BudgetError, CertificateError
from bagwise.files.records import Record, closed_schemas, read_record, to_plain
from bagwise.privacy.curves import Curve
from bagwise.privacy.dispersion import ClaimedNoise
from bagwise.privacy.laws import LAWS, Exponential, Law
from bagwise.privacy.queries import (
    MOST_SIZES,
    QUERIES,
    BagLabels,
    Draw,
    Query,
    RangeCounts,
)
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
    def kind(self) -> str:
        """The name of its kind: the law, and the quantity that it hides."""
        return f"{self.law.kind}-{self.hides.replace(' ', '-')}"

    @property
    def hides(self) -> str:
        """The hidden quantity, in a word or two."""
        return self.query.hides

    @property
    def noise(self) -> str:
        """The name of the law."""
        return self.law.kind

    @property
    def grid_step(self) -> float:
        """The width of a step of the answers."""
        return self.query.grid_step

    @property
    def sensitivity(self) -> float:
        """The largest total change of the answers by a unit's labels, in units of the answers."""
        move = self.query.move(self.law.norm)
        return self.units * move.times * move.steps * self.grid_step

    @property
    def number_sd(self) -> float:
        """The standard deviation of the noise on each number that is hidden, in its units."""
        return self.law.sd * self.grid_step

    @cached_property
    def curve(self) -> Curve:
        """Delta at any epsilon >= 0, for the labels of its units replaced by any others."""
        return self.query.curve(self.laws, self.units)

    @cached_property
    def pure_epsilon(self) -> Fraction | None:
        """The cost without a delta; None if it needs one."""
        return self.query.pure_epsilon(self.laws, self.units)

    @property
    def supposes_one_bag(self) -> bool:
        """Whether its noise is right only if all rows of a unit are in one bag."""
        return (
            self.law.norm == "number"
            and self.query.unit_rows > 1 == self.query.move("number").times
        )

    @cached_property
    def extremes(self) -> tuple[float, int] | None:
        """The largest mu and the smallest bag of picks with Gaussian noise; None for others."""
        return self.query.extremes(self.laws)

    @property
    def epsilon(self) -> float:
        """The cost in epsilon, if it needs no delta."""
        if self.pure_epsilon is None:
            raise AssertionError(f"{self.kind} needs a delta")
        return float(self.pure_epsilon)

    @property
    def unit_rows(self) -> int:
        """The number of rows of a unit that it allows for."""
        return self.query.unit_rows

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
        self.query.check(bounds)
        possible = (law.is_possible(self.query.move(law.norm)) for law in self.laws)
        if self.units != 1 or not all(possible):
            raise CertificateError(f"event {self.kind!r} has impossible parameters.")

    def draw(self, count: int, source: NoiseSource) -> IntArray:
        """Draw noise for so many numbers, in grid steps."""
        return self.law.draw(count, source)

    def neighbours(self, source: NoiseSource) -> list[tuple[Draw, Draw]]:
        """Return draws on the two tables easiest to tell apart, for every possible worst case."""
        pairs = self.query.neighbours(self.laws, source)
        return [(_in_blocks(first), _in_blocks(second)) for first, second in pairs]

    @property
    def of_bags(self) -> BagLabels:
        """The query, if its answers are the labels of bags."""
        if not isinstance(self.query, BagLabels):
            raise AssertionError(f"the {self.hides} are no labels of bags")
        return self.query

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
        return low + self.of_bags.hide(self.laws, told + expected, sizes, source)

    def noise_sd(self, sizes: IntArray) -> FloatArray:
        """Return the standard deviation of the noise on the label of a bag of each size."""
        return self.of_bags.noise_sd(self.laws, sizes)

    def claimed_noise(self, sizes: IntArray) -> ClaimedNoise | None:
        """Return the noise on each bag label, to test for its absence; None without noise."""
        return self.of_bags.claimed_noise(self.laws, sizes)

    def exported(self, google: Any) -> list[Any]:
        """Return it as events of Google's dp-accounting, given its module of events."""
        return self.query.exported(self.laws, google)


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
