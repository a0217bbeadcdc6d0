"""The cells of the paper's tables, and what is printed in them."""

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, get_args

from bagwise.errors import StrategyError
from reproduction.synthetic import MIXINGS

Loss = Literal["bag", "aggregate", "instance"]
Strategy = Literal["random", "kmeans", "whitened", "sorted", "super"]

LABEL_KINDS: dict[str, str] = {"bag": "mean", "aggregate": "pick", "instance": "pick"}
"""What a bag's label is under each loss, in the paper's experiments."""

APPENDIX = (3, 4, 5)
"""The tables with all three kinds of features. Table 1 has some of their cells again, with other
values."""

_FORM = "LOSS,DATA,BAG_SIZE,LABEL_NOISE,STRATEGY and, for private labels, EPSILON"
_LARGEST_EPSILON = 20
_EXAMPLE = "for example bag,iso,10,0.5,kmeans"


@dataclass(frozen=True)
class Cell:
    """One experiment: a loss, a kind of features, a bag size, a label noise, a way to bag.

    Attributes
    ----------
    loss : {"bag", "aggregate", "instance"}
        On means for bag loss, on picks for the others.
    data : {"iso", "ind", "dep"}
        Covariance of the features: unit, diagonal, full.
    bag_size : int
    label_noise_sd : float
    strategy : {"random", "kmeans", "whitened", "sorted", "super"}
        `kmeans` looks at the features as they are, `whitened` after whitening by their true
        covariance; `sorted` cuts the sorted labels, `super` takes a random half of every two
        neighbouring such bags.
    epsilon : float or None
        With a delta of 1e-5.

    Examples
    --------
    >>> str(Cell.parse("bag, iso, 10, 0.5, kmeans"))
    'bag,iso,10,0.5,kmeans'
    >>> Cell.parse("instance,iso,10,0.5,sorted,1").epsilon
    1.0
    """

    loss: str
    data: str
    bag_size: int
    label_noise_sd: float
    strategy: str
    epsilon: float | None = None

    def __str__(self) -> str:
        named = (self.loss, self.data, str(self.bag_size), _digits(self.label_noise_sd))
        private = () if self.epsilon is None else (_digits(self.epsilon),)
        return ",".join((*named, self.strategy, *private))

    @classmethod
    def parse(cls, text: str) -> "Cell":
        """Read what `str` writes; say which field is wrong."""
        fields = [field.strip() for field in text.split(",")]
        if len(fields) not in (5, 6):
            raise StrategyError(f"a cell is {_FORM}; got {text!r}. Write it {_EXAMPLE}.")
        cell = cls(
            loss=_one_of("loss", fields[0], get_args(Loss)),
            data=_one_of("data", fields[1], tuple(MIXINGS)),
            bag_size=_bag_size(fields[2]),
            label_noise_sd=_positive("label noise", fields[3]),
            strategy=_one_of("strategy", fields[4], get_args(Strategy)),
            epsilon=_positive("epsilon", fields[5]) if len(fields) == 6 else None,
        )
        if cell.epsilon is not None and cell.epsilon > _LARGEST_EPSILON:
            raise StrategyError(
                f"the epsilon of a cell is {_LARGEST_EPSILON} at most, got {fields[5]!r}. Leave "
                "the sixth field out for labels that are not private."
            )
        if cell.epsilon is not None and not _is_in_private_table(cell):
            raise StrategyError(
                "with an epsilon a cell has instance loss, iso data, and kmeans or sorted bags, "
                f"as in the paper's table 2; got {text!r}."
            )
        return cell

    @property
    def label_kind(self) -> str:
        """What a bag's label is: a mean or a pick."""
        return LABEL_KINDS[self.loss]

    @property
    def by_labels(self) -> bool:
        """Whether the labels decide who is in a bag with whom."""
        return self.strategy in ("sorted", "super")


@dataclass(frozen=True)
class Printed:
    """A value of one of the paper's tables: mean and standard deviation over 15 runs."""

    table: int
    cell: Cell
    mean: float
    sd: float


PRINTED_RUNS = 15


@cache
def printed_values() -> tuple[Printed, ...]:
    """Return all values of tables 1 to 5, in the paper's order.

    Examples
    --------
    >>> len(printed_values())
    186
    >>> printed_values()[0].cell, printed_values()[0].mean   # doctest: +ELLIPSIS
    (Cell(loss='bag', data='iso', bag_size=10, ...), 0.0082)
    """
    text = resources.files(__package__).joinpath("printed.csv").read_text(encoding="utf-8")
    return tuple(_printed(csv.DictReader(text.splitlines())))


def table_cells(table: int) -> tuple[Cell, ...]:
    """Return the cells of one table."""
    return tuple(printed.cell for printed in printed_values() if printed.table == table)


def _printed(lines: Iterable[dict[str, str]]) -> Iterator[Printed]:
    for line in lines:
        names = ("loss", "data", "bag_size", "label_noise_sd", "strategy", "epsilon")
        cell = Cell.parse(",".join(line[name] for name in names if line[name]))
        yield Printed(int(line["table"]), cell, float(line["mean"]), float(line["sd"]))


def _digits(value: float) -> str:
    """Return all digits that matter: what is read back is the same cell."""
    return repr(float(value)).removesuffix(".0")


def _is_in_private_table(cell: Cell) -> bool:
    return (cell.loss, cell.data) == ("instance", "iso") and cell.strategy in ("kmeans", "sorted")


def _one_of(what: str, given: str, known: tuple[str, ...]) -> str:
    if given not in known:
        raise StrategyError(f"unknown {what} {given!r} in a cell; known are {', '.join(known)}.")
    return given


def _bag_size(given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise StrategyError(f"the bag size of a cell is a whole number from 1 on, got {given!r}.")
    return int(given)


def _positive(what: str, given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise StrategyError(f"the {what} of a cell is a positive number, got {given!r}.")
    return value
