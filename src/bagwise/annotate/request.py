"""What a project is about, checked once: which labels there can be, and what annotators see."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import numpy as np

from bagwise.annotate.store import Value
from bagwise.errors import ColumnError, LabelError, StrategyError
from bagwise.families import Family
from bagwise.planner.request import resolve_family
from bagwise.rows.labels import Bounds, check_bounds, check_classes

_CURRENCIES = "$€£¥₹₩₽₺"
_BLANKS = " \u00a0\u2009\u202f"  # also those that spreadsheets put between thousands
_GROUPS = re.compile(r"\d{1,3}( \d{3})+")


@dataclass(frozen=True)
class LabelKind:
    """What a label can be.

    Attributes
    ----------
    name : str
        Of the column.
    family : Family
    bounds : (low, high) or None
        Beyond these a label is a mistake.
    classes : tuple of str or None
    """

    name: str
    family: Family
    bounds: Bounds | None = None
    classes: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        *,
        family: str = "auto",
        bounds: Sequence[float] | None = None,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Check what a user says of the label.

        >>> LabelKind.of("grade", bounds=(1, 6)).family.name
        'gaussian'
        """
        if not isinstance(name, str) or not name.strip():
            raise ColumnError("label must be the name of a column.")
        named, limits = check_classes(classes), check_bounds(bounds)
        if named is not None and limits is not None:
            raise StrategyError("a label with classes has no bounds; leave them out.")
        if named is not None and any(one != one.strip() or not one for one in named):
            raise LabelError("the name of a class is not empty, nor has it blanks at its ends.")
        fitted = resolve_family(family, None if named is None else len(named))
        if named is not None and not fitted.has_classes:
            raise StrategyError("labels with classes are of the family multinomial: leave it out.")
        low, high = fitted.label_range
        if limits is not None and not low <= limits[0] < limits[1] <= high:
            raise StrategyError(f"labels of the family {fitted.name} do not have these bounds.")
        return cls(name, fitted, limits, named)

    def read(self, text: str, *, decimal: str = ".", certain: bool = False) -> Value:
        """Return a cell as a label; refuse it (`LabelError`) without quoting it.

        `certain` says that somebody named the decimal mark, so that the other one groups thousands.
        """
        if self.classes is not None:
            if text not in self.classes:
                raise LabelError(f"the label is none of {', '.join(self.classes)}")
            return text
        return self.check(read_number(text, decimal, certain=certain))

    def check(self, value: float) -> float:
        """Return a number that can be a label; refuse others."""
        if not np.isfinite(value):
            raise LabelError("the label is not a finite number")
        low, high = self.bounds or self.family.label_range
        if not low <= value <= high:
            raise LabelError(f"the label is not between {low:g} and {high:g}")
        if self.family.open_range and value in self.family.label_range:
            raise LabelError(f"the label is not {self.family.range_text}")
        if self.family.name == "bernoulli" and value not in (0.0, 1.0):
            raise LabelError("the label is neither 0 nor 1")
        if self.family.name == "poisson" and value != int(value):
            raise LabelError("the label is not a whole number")
        return value

    def describe(self) -> str:
        """Say what is asked for, for the page and for messages.

        >>> LabelKind.of("grade", bounds=(1, 6)).describe()
        'a number between 1 and 6'
        """
        if self.classes is not None:
            return "one of " + ", ".join(self.classes)
        if self.family.name == "bernoulli":
            return "0 or 1"
        kind = "a whole number" if self.family.name == "poisson" else "a number"
        low, high = self.bounds or self.family.label_range
        if np.isfinite([low, high]).all():
            return f"{kind} between {low:g} and {high:g}"
        return kind if not np.isfinite(low) else f"{kind} of at least {low:g}"


def read_number(text: str, decimal: str = ".", *, certain: bool = False) -> float:
    """Return a number as people write it: thousands may be grouped, and it may be an amount.

    "1,200" alone may be a thousand or one: nobody should guess, unless the decimal mark is certain.

    >>> read_number("$1,234"), read_number("1 234,5 €", ","), read_number("-1,234,567.5")
    (1234.0, 1234.5, -1234567.5)
    """
    bare = text.strip()
    sign, bare = (bare[0], bare[1:]) if bare[:1] in ("+", "-") else ("", bare)
    amount = bare.strip(_CURRENCIES + _BLANKS)
    is_money = amount != bare.strip()
    whole, mark, rest = amount.partition(decimal)
    other = "," if decimal == "." else "."
    for between in (*_BLANKS, "'", "’", other):
        groups = whole.split(between)
        if len(groups) > 1 and _GROUPS.fullmatch(" ".join(groups)):
            if between == other and not (is_money or certain or mark or len(groups) > 2):
                raise LabelError(
                    "the label is a thousand or a fraction: write it without the comma or point, "
                    "or say which mark is the decimal one (--read decimal=.)"
                )
            whole = "".join(groups)
            break
    number = f"{sign}{whole}.{rest}" if mark else sign + whole
    if "_" not in number and not set(number) & {",", " "}:
        with suppress(ValueError):
            return float(number)
    raise LabelError("the label is not a number")
