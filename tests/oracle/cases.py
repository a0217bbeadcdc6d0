"""What is frozen: fits, releases and the figures behind the errata, by public names alone.

Whoever moves or renames code changes nothing here, and finds the same figures. The only names from
inside are those below.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import bagwise as bw
from bagwise.errors import BagwiseWarning
from bagwise.rng import SecureNoise
from bagwise.theory.exact import exact_risk
from tools.settings import filed

Figures = dict[str, Any]
SEEDED = np.random.default_rng  # before conftest.py puts its own in the place


@contextmanager
def replayed(seed: int) -> Iterator[None]:
    """Draw secret words from a seed: of the same words come the same noise, picks and orders."""
    stream = SEEDED(seed)

    def words(_: SecureNoise, count: int) -> Any:
        return stream.integers(0, 2**64, size=count, dtype=np.uint64)

    with (
        mock.patch.object(SecureNoise, "words", words),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", BagwiseWarning)
        yield


# --- Fits: rows in given bags.

ROWS, SIZE = 600, 5
_rng = SEEDED(31)
X = _rng.standard_normal((ROWS, 3))
NEW = _rng.standard_normal((4, 3))
ETA = 0.4 + X @ np.array([0.5, -0.3, 0.2])
BAGS = _rng.permutation(ROWS) // SIZE
SORTED = np.argsort(np.argsort(ETA)) // SIZE
UNIFORM = _rng.random(ROWS)
LABELS = {
    "gaussian": ETA + 0.5 * _rng.standard_normal(ROWS),
    "poisson": _rng.poisson(np.exp(ETA)).astype(float),
    "gamma": _rng.gamma(4.0, np.exp(ETA) / 4.0),
    "inverse_gaussian": _rng.wald(np.exp(ETA), 3.0),
    "bernoulli": (1 / (1 + np.exp(-ETA)) > UNIFORM).astype(float),
}
NOISE = _rng.laplace(scale=0.3 / np.sqrt(2), size=ROWS // SIZE)
THREE = np.digitize(UNIFORM + 0.1 * ETA, [0.33, 0.7])


def means(y: Any, bags: Any = BAGS, noise: Any = 0.0) -> Any:
    """Return the mean label of each row's bag, plus the noise of that bag."""
    return (np.bincount(bags, y) / np.bincount(bags) + noise)[bags]


def picks(y: Any, bags: Any = BAGS) -> Any:
    """Return the label of the first row of each row's bag."""
    return y[np.unique(bags, return_index=True)[1]][bags]


def glm(y: Any, *, bags: Any = BAGS, given: Figures | None = None, **settings: Any) -> Figures:
    """Fit a generalised linear model, and return all that it says."""
    model = bw.BaggedGLM(**settings).fit(X, y, bags=bags, **(given or {}))
    covariance = model.covariance_
    return {
        "coef": model.coef_,
        "intercept": model.intercept_,
        "dispersion": model.dispersion_,
        "standard_errors": None if covariance is None else np.sqrt(np.diag(covariance)),
        "predictions": model.predict(NEW, exposure=2.0 if "exposure" in (given or {}) else None),
    }


def trees(kind: Any, y: Any, **settings: Any) -> Figures:
    """Boost trees with a seed, and return what they predict."""
    model = kind(random_state=0, n_jobs=1, max_rounds=40, n_folds=3, **settings)
    model.fit(X, y, bags=SORTED)
    chances = {"chances": model.predict_proba(NEW)} if hasattr(model, "predict_proba") else {}
    return {"predictions": model.predict(NEW), **chances, "members": len(model.members_)}


def fits() -> dict[str, Callable[[], Figures]]:
    """Return each fit by name."""
    y, p, b = LABELS["gaussian"], LABELS["poisson"], LABELS["bernoulli"]
    noisy, noise = means(y, noise=NOISE), {"noise_sd": 0.3}
    by_super = bw.make_bags(X, bag_size=SIZE, strategy="super", seed=3).index
    exposure = np.linspace(0.5, 3.0, ROWS)
    cases: dict[str, Callable[[], Figures]] = {
        f"{name} by {loss} loss": partial(
            glm, means(labels, SORTED), bags=SORTED, family=name, loss=loss,
        )
        for name, labels in LABELS.items()
        for loss in ("bag", "instance", "aggregate")
    }  # fmt: skip
    return cases | {
        "debiased": lambda: glm(means(y), loss="instance", debias=True),
        "rows": lambda: glm(y, bags=None),
        "equal weights": lambda: glm(means(y), weights="equal", covariance="robust"),
        "ridge": lambda: glm(means(y), ridge=0.1),
        "exposure": lambda: glm(
            means(p * exposure), family="poisson", given={"exposure": exposure}
        ),
        "super-bags": lambda: glm(means(y, by_super), bags=by_super),
        "classes": three_classes,
        "shrunk, Gaussian noise": lambda: glm(noisy, given=noise, bounds=(-4, 4)),
        "shrunk, Laplace noise": lambda: glm(noisy, noise="laplace", given=noise, bounds=(-4, 4)),
        "shrunk counts": lambda: glm(means(p, noise=NOISE), family="poisson", given=noise),
        "shrunk chances": lambda: glm(means(b, noise=NOISE), family="bernoulli", given=noise),
        "picks by bag loss": lambda: glm(picks(y), label_kind="pick"),
        "picks by instance loss": lambda: glm(
            picks(y, SORTED), bags=SORTED, label_kind="pick", loss="instance"
        ),
        "picks by mixture": lambda: glm(picks(y), label_kind="pick", loss="mixture"),
        "noisy picks by mixture": lambda: glm(
            picks(y) + NOISE[BAGS], label_kind="pick", loss="mixture", given=noise
        ),
        "trees": lambda: trees(bw.BaggedBooster, means(y, SORTED)),
        "trees of counts": lambda: trees(bw.BaggedBooster, means(p, SORTED), family="poisson"),
        "trees of classes": lambda: trees(bw.BaggedClassifier, means(b, SORTED)),
    }


def three_classes() -> Figures:
    """Fit the shares of three classes."""
    shares = np.column_stack([means((level == THREE).astype(float)) for level in range(3)])
    model = bw.BaggedGLM(family="multinomial").fit(X, shares, bags=BAGS)
    return {"coef": model.coef_, "intercept": model.intercept_, "chances": model.predict_proba(NEW)}


# --- Releases: one table, and noise that is replayed.

TABLE = pa.table(
    {
        "key": np.arange(ROWS),
        "a": X[:, 0],
        "b": X[:, 1],
        "town": pa.array(np.array(["Bonn", "Pune", "Œ"])[THREE].tolist()),
        "person": np.arange(ROWS) // 2,
        "years": np.linspace(0.5, 3.0, ROWS),
        "kind": pa.array(np.array(["no", "yes"])[LABELS["bernoulli"].astype(int)].tolist()),
        "y": np.clip(LABELS["gaussian"], -4, 4),
    }
)
SELDOM = ["person", "years", "kind"]


def released(**settings: Any) -> Figures:
    """Make a release, and return its bags, labels, events and what was expected of it."""
    label = settings.setdefault("label", "y")
    needed = {label, settings.get("unit"), settings.get("exposure")}
    settings.setdefault("exclude", [])
    table = TABLE.drop_columns([name for name in (*SELDOM, "y") if name not in needed])
    if "classes" not in settings and not settings.get("not_private"):
        settings.setdefault("bounds", (-4, 4))
    settings.setdefault("tighten", "none")
    settings.setdefault("centre", "none")
    release = bw.make_release(table, **filed(id="key", seed=5, **settings))
    order = np.argsort(release.instances["key"].to_numpy())
    certificate, reason = release.certificate, release.provenance.chosen_because
    facts = certificate.to_json()
    model = bw.fit_release(release)
    return {
        "bags": digest(release.bags.index[order]),
        "sizes": [int(release.bags.sizes.min()), int(release.bags.sizes.max())],
        "labels": [release.labels.ravel()[:3], release.labels.sum()],
        "noise_sd": release.noise_sd[:2],
        "promise": [certificate.headline, certificate.tightened, certificate.limit],
        "events": facts["events"],
        "strategy": [release.provenance.strategy, release.provenance.strategy_parameters],
        "expected": [getattr(reason, name, None) for name in ("rmse", "noise_lost")],
        "fit": [model.coef, model.intercept, model.standard_errors],
    }


def portable(figures: Figures) -> Figures:
    """Return the figures that every machine has alike.

    A search for bags compares sums whose last digit depends on the processor, so that it ends with
    other bags, just as good, on another machine; and so does whoever sorts by a fitted model.
    """
    strategy = figures.get("strategy", ["random"])[0]
    modelled = any(event["query"]["kind"] == "model" for event in figures.get("events", ()))
    searched = strategy in ("kmeans", "optimal") or (strategy == "sorted" and modelled)
    depends = ("bags", "sizes", "noise_sd", "labels", "expected", "fit") if searched else ()
    return {name: one for name, one in figures.items() if name not in depends}


def digest(index: Any) -> str:
    """Return a short name of a partition, whatever its bags are numbered by."""
    _, first, bag = np.unique(index, return_index=True, return_inverse=True)
    names = np.argsort(np.argsort(first))[bag]
    return hashlib.sha256(names.astype("<i8").tobytes()).hexdigest()[:16]


def releases() -> dict[str, Callable[[], Figures]]:
    """Return each release by name."""
    pure, mixed = {"epsilon": 2.0}, {"epsilon": 1.0, "delta": 1e-5}
    random, gaussian = {"bag_size": 10, "strategy": "random"}, {**mixed, "noise": "gaussian"}
    classes = {"label": "kind", "classes": ["no", "yes"]}
    settings: dict[str, Figures] = {
        "open": {"bag_size": 10, "not_private": True},
        "open, sorted": {"bag_size": 10, "strategy": "sorted", "not_private": True},
        "laplace": {**random, **pure, "noise": "laplace"},
        "staircase": {**random, **pure, "noise": "staircase"},
        "gaussian": {**random, **gaussian},
        "by itself": pure,
        "by itself, delta": mixed,
        "tightened": {**random, **pure, "bounds": (-500, 500), "tighten": "range"},
        "centred": {**random, "epsilon": 20.0, "centre": "model"},
        "sorted by a model": {**random, **mixed, "strategy": "sorted"},
        "sorted by noisy labels": {
            **random, **pure, "strategy": "sorted", "scores": "noisy-labels",
        },
        "k-means": {**pure, "bag_size": 10, "strategy": "kmeans"},
        "optimal": {**pure, "bag_size": 10, "strategy": "optimal"},
        "super": {**mixed, "bag_size": 6, "strategy": "super"},
        "picks": {**random, **gaussian, "label_kind": "pick"},
        "pure picks": {**random, **pure, "label_kind": "pick"},
        "classes": {**random, **pure, **classes},
        "picked classes": {**random, **pure, **classes, "label_kind": "pick"},
        "single labels": {"epsilon": 3.0, "noise": "unbiased"},
        "units": {**random, **mixed, "unit": "person"},
        "groups, exposure": {
            **pure, "bounds": (0, 4), "by": "town", "exposure": "years", "features": ["a", "b"],
        },
        "flexible": {**pure, "epsilon": 8.0, "learner": "flexible"},
    }  # fmt: skip
    return {name: partial(released, **given) for name, given in settings.items()}


# --- Errata: what holds instead of the paper's statements.


def risk(rows: Any, bags: Any, label_kind: str, loss: str, theta: Any) -> list[float]:
    """Return the exact error and its part by label noise."""
    found = exact_risk(
        rows, bags, theta=theta, label_noise_sd=0.5, label_kind=label_kind, loss=loss
    )
    return [found.total, found.label_noise]


def noise_of(**settings: Any) -> float:
    """Return the standard deviation of noise on labels between 0 and 1."""
    table = TABLE.select(["a", "y"])
    release = bw.make_release(
        table,
        **filed(
            label="y",
            bounds=(0, 1),
            epsilon=1.0,
            delta=1e-5,
            noise="gaussian",
            strategy="random",
            seed=0,
            tighten="none",
            centre="none",
            **settings,
        ),
    )
    return float(release.noise_sd[0])


def errata() -> dict[str, Callable[[], Figures]]:
    """Return what holds, by the erratum."""
    rng = SEEDED(0)
    rows, theta = rng.standard_normal((240, 4)), rng.standard_normal(4)  # T1
    order = rng.permutation(240)
    chance, ranked = np.empty(240, int), np.empty(240, int)
    chance[order], ranked[np.argsort(rows @ theta)] = np.arange(240) // 6, np.arange(240) // 6
    bags, by_score = bw.Bags(chance), bw.Bags(ranked)
    same, y = bw.Bags(np.arange(40) // 10), LABELS["gaussian"]
    # What another label of one row does to bags by labels, whatever their centres are.
    moved = bw.make_bags(X, bag_size=SIZE, strategy="sorted", scores=np.r_[9.0, y[1:]], seed=0)
    by_label = bw.make_bags(X, bag_size=SIZE, strategy="sorted", scores=y, seed=0)
    spread = float(np.sum((y - by_label.mean(y)[by_label.index]) ** 2))
    chances = LABELS["bernoulli"]
    return {
        "E1": lambda: {"s": noise_of(bag_size=10)},
        "E2": lambda: {"s": [noise_of(bag_size=k, label_kind="pick") for k in (2, 10, 50)]},
        "E3": lambda: {"risk": risk(np.ones((40, 1)), same, "pick", "instance", np.array([2.0]))},
        "E4": lambda: {
            "small": risk(0.01 * rows, bags, "mean", "bag", theta),
            "order": [risk(rows, b, "mean", "bag", theta) for b in (bags, by_score)],
        },
        "E5": lambda: {"scatter": np.sum((bags.mean(rows) @ np.array([1.0, -1, 0.5, 2])) ** 2)},
        "E6": lambda: {"risk": risk(rows, bags, "pick", "aggregate", theta)},
        "E7": lambda: {"spread": spread},
        "E8": lambda: glm(means(y, by_label.index), bags=by_label.index),
        "E9": lambda: {"instance": glm(means(y), loss="instance")["coef"],
                       "F3": glm(means(y), loss="instance", debias=True)["coef"]},
        "E10": lambda: {
            f"{kind} {loss}": risk(rows, bags, kind, loss, theta)
            for kind, loss in (("pick", "instance"), ("pick", "aggregate"), ("mean", "instance"))
        },
        "E11": lambda: {
            loss: glm(means(chances, SORTED), bags=SORTED, family="bernoulli", loss=loss)["coef"]
            for loss in ("instance", "aggregate")
        },
        "E12": lambda: {"membership": [digest(by_label.index), digest(moved.index)]},
    }  # fmt: skip


def all_cases() -> dict[str, Callable[[], Figures]]:
    """Return everything that is frozen, by its kind and name."""
    kinds = {"fit": fits(), "release": releases(), "erratum": errata()}
    return {
        f"{kind}: {name}": case for kind, cases in kinds.items() for name, case in cases.items()
    }
