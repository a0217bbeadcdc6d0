"""What a project is about, checked once: which labels there can be, and what annotators see."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bagwise.annotate.store import Value
from bagwise.errors import ColumnError, LabelError, StrategyError
from bagwise.families import Family, find_family
from bagwise.planner.request import resolve_family
from bagwise.rows.labels import Bounds, check_bounds, check_classes


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

    def read(self, text: str, *, decimal: str = ".") -> Value:
        """Return a cell as a label; refuse it (`LabelError`) without quoting it."""
        if self.classes is not None:
            if text not in self.classes:
                raise LabelError(f"the label is none of {', '.join(self.classes)}")
            return text
        value = _number(text, decimal)
        if value is None:
            raise LabelError("the label is not a number")
        return self.check(value)

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


def _number(text: str, decimal: str) -> float | None:
    other = "," if decimal == "." else "."
    if other in text or "_" in text:  # 1,200 may be a thousand or one: nobody should guess
        return None
    try:
        return float(text.replace(decimal, "."))
    except ValueError:
        return None


def kind_from(name: str, family: str, bounds: Any, classes: Any) -> LabelKind:
    """Return a kind as a project file has kept it."""
    limits = None if bounds is None else (bounds[0], bounds[1])
    return LabelKind(name, find_family(family), limits, classes)
