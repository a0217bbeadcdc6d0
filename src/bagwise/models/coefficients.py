"""Coefficients with their uncertainty: as data, as text, as HTML and as a plot."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy

from bagwise._printable import figure, printable
from bagwise._types import FloatArray
from bagwise.errors import StrategyError
from bagwise.files.atomic import new_file
from bagwise.show import charts, html

INTERCEPT = "(intercept)"
_PLOTS: dict[str, dict[str, Any]] = {
    "html": {"format": "html"},
    "svg": {"format": "svg"},
    "png": {"format": "png", "scale_factor": 2},
}


@dataclass(frozen=True, eq=False)
class Coefficients:
    """The estimates of each coefficient, with their uncertainty.

    Attributes
    ----------
    names : tuple of str
    estimate : (p,) floats
    standard_error : (p,) floats or None
        NaN for a coefficient that the data do not determine. None where no honest interval can be
        given; `note` says why.
    freedom : float
        Degrees of freedom of the t distribution behind intervals and p-values.
    title, note : str
    level : float
        Confidence level of the intervals.
    unshrunk : (p,) floats or None
        Where estimates were shrunk: what they would be without. Intervals, t and p belong to these,
        so that they hold whatever the coefficients are.

    Examples
    --------
    >>> summary = Coefficients(("rooms",), np.array([2.0]), np.array([0.5]), freedom=30)
    >>> summary.interval.round(3).tolist()
    [[0.979, 3.021]]
    >>> print(summary)
    Coefficients
           estimate  std. error     t       p  95 % interval
    rooms         2         0.5  4.00  0.0004  0.9789 to 3.021
    """

    names: tuple[str, ...]
    estimate: FloatArray
    standard_error: FloatArray | None
    freedom: float = np.inf
    title: str = "Coefficients"
    note: str = ""
    level: float = 0.95
    unshrunk: FloatArray | None = None

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise StrategyError(f"level must lie between 0 and 1, got {self.level!r}.")

    @property
    def _error(self) -> FloatArray:
        if self.standard_error is None:
            return np.full(self.estimate.shape, np.nan)
        return self.standard_error

    @property
    def center(self) -> FloatArray:
        """The middle of each interval."""
        return self.estimate if self.unshrunk is None else self.unshrunk

    @property
    def statistic(self) -> FloatArray:
        """The middle of each interval in units of its standard error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.center / self._error)

    @property
    def p_value(self) -> FloatArray:
        """Chance of so large a statistic, either way, if the coefficient were zero."""
        return np.asarray(2 * scipy.stats.t.sf(np.abs(self.statistic), self.freedom))

    @property
    def interval(self) -> FloatArray:
        """Lower and upper end of each confidence interval, (p, 2)."""
        reach = scipy.stats.t.ppf(0.5 + self.level / 2, self.freedom) * self._error
        return np.column_stack([self.center - reach, self.center + reach])

    def to_pandas(self) -> Any:
        """Return one row per coefficient, as a frame of pandas with their names as index."""
        return self.to_table().to_pandas().set_index("coefficient")

    def to_table(self) -> pa.Table:
        """Return one row per coefficient, as an Arrow table."""
        lower, upper = self.interval.T
        columns = {
            "coefficient": list(self.names),
            "estimate": self.estimate,
            **({} if self.unshrunk is None else {"unshrunk": self.unshrunk}),
            "standard_error": self._error,
            "t": self.statistic,
            "p_value": self.p_value,
            "lower": lower,
            "upper": upper,
        }
        return pa.table(columns)

    def to_json(self) -> dict[str, Any]:
        """Return one entry per coefficient as plain values; None stands for "not known"."""
        rows = [
            {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in row.items()}
            for row in self.to_table().to_pylist()
        ]
        return {"coefficients": rows, "level": self.level, "note": self.note}

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table as text, a heading first."""
        percent = f"{100 * self.level:g} % interval"
        if self.standard_error is None:
            rows = zip(self.names, self.estimate, strict=True)
            return [("", "estimate"), *((name, figure(value, 6)) for name, value in rows)]
        # Beside the unshrunk estimate t is left out: it is their ratio, and 80 columns are few.
        shrunk = self.unshrunk is not None
        middles = ("unshrunk", "std. error") if shrunk else ("std. error", "t")
        table: list[tuple[str, ...]] = [("", "estimate", *middles, "p", percent)]
        for name, value, middle, error, t, p, (low, high) in zip(
            self.names,
            self.estimate,
            self.center,
            self._error,
            self.statistic,
            self.p_value,
            self.interval,
            strict=True,
        ):
            if np.isnan(error):
                table.append((name, figure(value, 5), "", "", "", "not determined"))
                continue
            spread = figure(error)
            shown = (figure(middle, 5), spread) if shrunk else (spread, f"{t:.2f}")
            between = f"{figure(low, 4)} to {figure(high, 4)}"
            chance = f"{p:.4f}" if p >= 1e-4 else "<0.0001"
            table.append((name, figure(value, 5), *shown, chance, between))
        return table

    def __str__(self) -> str:
        cells = self.cells()
        last = len(cells[0]) - 1 if self.standard_error is not None else -1
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = [
            "  ".join(
                text.ljust(width) if i in (0, last) else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]
        text = [self.title, *lines, *([self.note] if self.note else [])]
        return "\n".join(printable(line) for line in text)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html.grid(self.title, self.cells(), note=self.note)

    def plot(self) -> charts.Chart:
        """Draw each slope with its interval; needs the extra ``bagwise[plot]``."""
        table = self.to_table().to_pylist()
        rows = [row for row in table if not row["coefficient"].endswith(INTERCEPT)]
        spread = None if self.standard_error is None else f"{100 * self.level:g} % interval"
        return charts.intervals(rows, title=self.title, spread=spread)

    def save_plot(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the plot as .html (which needs no network), .svg or .png."""
        target = Path(path)
        kind = target.suffix.lstrip(".").lower()
        if kind not in _PLOTS:
            raise StrategyError(f"a plot is one of {', '.join(_PLOTS)}, got {target.name!r}.")
        chart = self.plot()
        with new_file(target, force=force) as draft:
            chart.save(str(draft), **_PLOTS[kind])
        return target
