"""How often 95 % intervals hold the true slopes, over many releases with known coefficients.

Bags are made once for each setting; every release has fresh labels and fresh noise. The true slopes
are either the same each time, or drawn from the prior that shrinkage assumes: normal with one
variance in whitened columns. Unpenalised intervals should hold in both cases, posterior ones in the
second.

Results go into benchmarks/results/coverage.json, and from there onto docs/results/real-data.

python -m benchmarks.coverage [--only SETTING ...] [--releases N]
"""

import argparse
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

import bagwise as bw
from bagwise._types import FloatArray
from bagwise.families import find_family
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import noisy_bag_labels
from bagwise.privacy.queries import BagMeans
from bagwise.rng import SimulatedNoise
from bagwise.rows.labels import Bounds
from benchmarks._results import keep, read_rows
from benchmarks._same_bags import remembered_bags
from tools.settings import filed

NAME = "coverage"
RELEASES = 1000
FIXED, PRIOR = "fixed", "drawn from the prior"

# Each kind of interval that a fit gives, and how `summary` is asked for it.
INTERVALS: dict[str, dict[str, Any]] = {
    "confidence": {},
    "posterior": {"intervals": "posterior"},
}


def fit_params(bags: bw.Bags, event: Mechanism | None) -> dict[str, Any]:
    """Return what `BaggedGLM.fit` is told about the noise on labels."""
    if event is None:
        return {"bags": bags.index}
    return {"bags": bags.index, "noise_sd": event.noise_sd(bags.sizes)[bags.index]}


def dense_columns(rows: int, rng: np.random.Generator) -> FloatArray:
    """Return six normal columns, neighbours of which are correlated by a half."""
    z = rng.standard_normal((rows, 7))
    return np.asarray((z[:, :-1] + z[:, 1:]) / np.sqrt(2))


def sparse_columns(rows: int, rng: np.random.Generator) -> FloatArray:
    """Return three normal columns, and one that is 1 in one row of a hundred."""
    rare = (rng.permutation(rows) < rows // 100).astype(np.float64)
    return np.column_stack([rng.standard_normal((rows, 3)), rare])


@dataclass(frozen=True)
class Setting:
    """Rows, a model with known coefficients, and the noise on its bag labels.

    Attributes
    ----------
    noise : str or None
        The kind of noise; None leaves the means exact.
    prior_sd : float
        Standard deviation of slopes in whitened columns, where they are drawn.
    phi : float
        Dispersion of a label.
    columns : callable
        Makes so many rows.
    queries : mapping or None
        `tighten` and `centre`: private queries on the labels come first, and their noise with them.
    """

    family: str
    slopes: tuple[float, ...]
    bounds: Bounds
    noise: str | None
    epsilon: float
    prior_sd: float
    intercept: float = 0.0
    bag_size: int = 20
    phi: float = 1.0
    rows: int = 6_000
    columns: Callable[[int, np.random.Generator], FloatArray] = field(default=dense_columns)
    queries: Mapping[str, str] | None = None

    def event(self) -> Mechanism | None:
        """Return the noise on bag sums that the promise asks for."""
        if self.noise is None:
            return None
        rule = ExactCalibration(self.epsilon, 0.0, self.bounds, noise=self.noise)
        return rule.least(BagMeans.of(self.bounds))


GAUSSIAN: dict[str, Any] = {
    "family": "gaussian",
    "slopes": (1.0, -0.5, 0.5, 0.0, 0.3, -1.0),
    "bounds": (-12.0, 12.0),
    "prior_sd": 0.7,
}
COUNTS: dict[str, Any] = {
    "family": "poisson", "bounds": (0.0, 30.0), "noise": "laplace", "intercept": 0.5,
}  # fmt: skip
SPARSE: dict[str, Any] = {
    **COUNTS, "slopes": (0.4, -0.3, 0.2, 1.0), "epsilon": 2.0, "prior_sd": 0.1,
    "columns": sparse_columns,
}  # fmt: skip
WIDE: dict[str, Any] = {
    **GAUSSIAN, "bounds": (-60.0, 60.0), "noise": "laplace", "epsilon": 1.0, "rows": 20_000,
}  # fmt: skip
SETTINGS = {
    "gaussian, moderate Laplace noise": Setting(**GAUSSIAN, noise="laplace", epsilon=4.0),
    "gaussian, heavy Laplace noise": Setting(**GAUSSIAN, noise="laplace", epsilon=0.5),
    "gaussian, staircase noise": Setting(**GAUSSIAN, noise="staircase", epsilon=4.0),
    "poisson, Laplace noise": Setting(
        **COUNTS, slopes=(0.4, -0.3, 0.2, 0.0, 0.1, -0.2), epsilon=2.0, prior_sd=0.25
    ),
    "bernoulli, Laplace noise": Setting(
        "bernoulli", (1.0, -0.8, 0.5, 0.0, 0.3, -0.5), (0.0, 1.0), "laplace", 1.0, prior_sd=0.6
    ),
    # Bags by k-means put all rows of a sparse column together: into two bags, or into one.
    "poisson, sparse column, no noise": Setting(**{**SPARSE, "noise": None}, rows=4_000),
    "poisson, sparse column, Laplace noise": Setting(**SPARSE, rows=4_000),
    "poisson, sparse column in one bag, no noise": Setting(**{**SPARSE, "noise": None}, rows=2_000),
    "poisson, sparse column in one bag, Laplace noise": Setting(**SPARSE, rows=2_000),
    # Bounds five times too wide: a range is found first, or a range and a model to centre on.
    "gaussian, tightened": Setting(**WIDE, queries={"tighten": "range", "centre": "none"}),
    "gaussian, tightened and centred": Setting(
        **WIDE, queries={"tighten": "range", "centre": "model"}
    ),
    "poisson, tightened": Setting(
        **{**COUNTS, "bounds": (0.0, 150.0)}, slopes=(0.4, -0.3, 0.2, 0.0, 0.1, -0.2), epsilon=2.0,
        prior_sd=0.25, rows=20_000, queries={"tighten": "range", "centre": "none"},
    ),
}  # fmt: skip


def prior_root(X: FloatArray) -> FloatArray:
    """Return L such that X L z, for independent standard z, has coefficients 1 in whitened columns.

    The whitened columns are ``X L``, with unit covariance; slopes of X are then ``L`` times theirs.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 10.0, 0.1]
    >>> np.cov((X @ prior_root(X)).T).round(6) + 0.0
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """
    values, vectors = np.linalg.eigh(np.cov(X.T))
    return np.asarray(vectors / np.sqrt(values))


def fit_means(
    setting: Setting,
    X: FloatArray,
    labels: FloatArray,
    bags: bw.Bags,
    event: Mechanism | None,
    source: SimulatedNoise,
) -> bw.BaggedGLM:
    """Fit bag means, with noise if there is any."""
    means = bags.mean(labels)
    if event is not None:
        means = noisy_bag_labels(labels, bags, bounds=setting.bounds, event=event, source=source)
    model = bw.BaggedGLM(setting.family, noise="gaussian" if event is None else event.law)
    return model.fit(X, means[bags.index], **fit_params(bags, event))


def fit_after_queries(
    setting: Setting, X: FloatArray, labels: FloatArray, source: SimulatedNoise
) -> bw.BaggedGLM:
    """Fit a whole release, with the private queries that come before its bags have labels."""
    table = {**{f"x{j}": column for j, column in enumerate(X.T)}, "y": labels}
    release = bw.make_release(
        pa.table(table),
        **filed(
            label="y",
            bounds=setting.bounds,
            epsilon=setting.epsilon,
            strategy="kmeans",
            seed=0,
            bag_size=setting.bag_size,
            family=setting.family,
            keep_order=True,
            noise_source=source,
            not_private=True,
            **setting.queries or {},
        ),
    )
    index = release.bags.index
    model = bw.BaggedGLM(
        setting.family, noise=release.noise_law, bounds=release.certificate.clipped_to
    )
    return model.fit(X, release.labels[index], bags=index, noise_sd=release.noise_sd[index])


def measure(name: str, *, drawn: bool, releases: int) -> list[dict[str, Any]]:
    """Return how often each kind of interval holds the truth in one setting."""
    setting = SETTINGS[name]
    family, rng = find_family(setting.family), np.random.default_rng(7)
    X = setting.columns(setting.rows, rng)
    root = prior_root(X)
    bags = bw.make_bags(X, bag_size=setting.bag_size, strategy="kmeans", seed=0)
    event, source = setting.event(), SimulatedNoise(11)
    held = {kind: np.zeros(X.shape[1]) for kind in INTERVALS}
    given = dict.fromkeys(INTERVALS, 0)
    for _ in range(releases):
        slopes = np.array(setting.slopes)
        if drawn:
            slopes = setting.prior_sd * root @ rng.standard_normal(X.shape[1])
        labels = family.sample(X @ slopes + setting.intercept, phi=setting.phi, rng=rng)
        if setting.queries is None:
            model = fit_means(setting, X, labels, bags, event, source)
        else:
            model = fit_after_queries(setting, X, labels, source)
        for kind, options in INTERVALS.items():
            if kind == "posterior" and model.posterior_covariance_ is None:
                continue  # nothing was shrunk
            found = model.summary(**options)
            if found.standard_error is not None:  # otherwise its note says why there is none
                low, high = found.interval[: X.shape[1]].T
                held[kind] += (low <= slopes) & (slopes <= high)
                given[kind] += 1
    return [
        {
            "setting": name,
            "theta": PRIOR if drawn else FIXED,
            "intervals": kind,
            "releases": releases,
            "without_interval": releases - given[kind],
            "mean": float(held[kind].mean() / given[kind]) if given[kind] else None,
            "lowest": float(held[kind].min() / given[kind]) if given[kind] else None,
            "covered": (held[kind] / max(given[kind], 1)).tolist(),
        }
        for kind in INTERVALS
    ]


def main() -> None:
    """Measure what is asked for, and keep it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", nargs="+", choices=list(SETTINGS), help="others stay")
    arguments.add_argument("--releases", type=int, default=RELEASES)
    asked = arguments.parse_args()
    warnings.simplefilter("ignore", bw.BagwiseWarning)
    names = asked.only or list(SETTINGS)
    rows = []
    for name in names:
        for drawn in (False, True):
            with remembered_bags():
                rows += measure(name, drawn=drawn, releases=asked.releases)
            print(rows[-1], flush=True)
    others = [row for row in read_rows(NAME) if row["setting"] not in names]
    order = list(SETTINGS)
    keep(NAME, sorted([*others, *rows], key=lambda row: order.index(row["setting"])), show=False)


if __name__ == "__main__":
    main()
