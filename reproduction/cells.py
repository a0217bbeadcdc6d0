"""The cells of the paper's tables, and what is printed in them."""

import csv
import sys
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal

import msgspec

from bagwise.errors import StrategyError

LABEL_KINDS: dict[str, str] = {"bag": "mean", "aggregate": "pick", "instance": "pick"}
"""What a bag's label is under each loss, in the paper's experiments."""

APPENDIX = (3, 4, 5)
"""The tables with all three kinds of features. Table 1 has some of their cells again, with other
values."""

_POSITIVE = Annotated[float, msgspec.Meta(gt=0, le=sys.float_info.max)]
_FIELDS: dict[str, tuple[Any, str]] = {
    "loss": (Literal["bag", "aggregate", "instance"], "bag, aggregate or instance"),
    "data": (Literal["iso", "ind", "dep"], "iso, ind or dep"),
    "bag_size": (Annotated[int, msgspec.Meta(ge=1)], "a whole number from 1 on"),
    "label_noise_sd": (_POSITIVE, "a positive number"),
    "strategy": (
        Literal["random", "kmeans", "whitened", "sorted", "super"],
        "random, kmeans, whitened, sorted or super",
    ),
    "epsilon": (
        Annotated[float, msgspec.Meta(gt=0, le=20)],
        "a positive number up to 20. Leave the sixth field out for labels that are not private",
    ),
}
_FORM = "LOSS,DATA,BAG_SIZE,LABEL_NOISE,STRATEGY and, for private labels, EPSILON"


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
            raise StrategyError(
                f"a cell is {_FORM}; got {text!r}. Write it for example bag,iso,10,0.5,kmeans."
            )
        values = {}
        for (name, (kind, words)), field in zip(_FIELDS.items(), fields, strict=False):
            try:
                values[name] = msgspec.convert(field, kind, strict=False)
            except msgspec.ValidationError:
                what = name.removesuffix("_sd").replace("_", " ")
                raise StrategyError(f"the {what} of a cell is {words}; got {field!r}.") from None
        cell = cls(**values)
        in_table_2 = ("instance", "iso", cell.strategy in ("kmeans", "sorted"))
        if cell.epsilon is not None and (cell.loss, cell.data, True) != in_table_2:
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
    return tuple(
        Printed(
            table=int(line["table"]),
            cell=Cell.parse(",".join(line[name] for name in _FIELDS if line[name])),
            mean=float(line["mean"]),
            sd=float(line["sd"]),
        )
        for line in csv.DictReader(text.splitlines())
    )


def table_cells(table: int) -> tuple[Cell, ...]:
    """Return the cells of one table."""
    return tuple(printed.cell for printed in printed_values() if printed.table == table)


def _digits(value: float) -> str:
    """Return all digits that matter: what is read back is the same cell."""
    return repr(float(value)).removesuffix(".0")
