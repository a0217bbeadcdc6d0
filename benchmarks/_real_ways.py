"""Ways to learn a row-level model, from true labels to nothing at all, each as one function.

A way is learnt on the rows to learn from and answers with predictions for the held-out ones.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import ClassVar

import numpy as np

import bagwise as bw
from bagwise._types import FloatArray
from bagwise.bagging import BaggingStrategy, find_strategy
from bagwise.requests.records import filed
from bagwise.rng import SecureNoise
from benchmarks._real_tables import RealTable
from benchmarks._rr_on_bins import randomise_labels

DELTA = 1e-6
GAUSSIAN, LAPLACE, RESPONSE, NONE = "Gaussian", "Laplace", "response", "none"
DELTAS = {GAUSSIAN: DELTA, LAPLACE: 0.0, RESPONSE: 0.0}

TRUE, CLIPPED, MEAN = "true labels", "true labels, clipped", "training mean"
RANDOM, KMEANS, SORTED = "random bags", "kmeans bags", "sorted bags"
PLANNER, PICKS = "planner's choice", "picks from kmeans bags"
LABELS, BINS, UNDONE = "noise on every label", "RR on bins", "RR on bins, bias undone"
MODEL = "released model"

_STRATEGIES = {RANDOM: "random", KMEANS: "kmeans", SORTED: "sorted"}
_KEPT: dict[tuple[str, str, int, int], tuple[bw.Bags, float]] = {}


@dataclass(frozen=True)
class Learnt:
    """Predictions for the held-out rows, and what was chosen on the way, if anything was."""

    predicted: FloatArray
    choice: str = ""


@dataclass(frozen=True)
class Way:
    """One way to learn, at one bag size and one epsilon.

    Attributes
    ----------
    epsilon : float or None
        None where nothing is promised.
    repeats : int
        How often chance is asked; 1 where there is none.
    learn : callable
        Takes the number of the repeat.
    prepare : callable
        Makes the bags for the number of the repeat, unless they were made before; returns how many
        seconds that took.
    """

    name: str
    learn: Callable[[int], Learnt]
    noise: str = NONE
    bag_size: int | None = None
    epsilon: float | None = None
    repeats: int = 1
    prepare: Callable[[int], float] = lambda _: 0.0


@dataclass(frozen=True)
class Repeats:
    """How often ways are repeated; on many rows the slow ones less often.

    Attributes
    ----------
    most, slow : int
        `slow` is for what asks the planner or makes a private model each time.
    kmeans : int
        How many partitions kmeans makes for each bag size; further repeats use them again.
    slow_sizes : tuple of int
        Bag sizes at which sorted bags are made.
    """

    most: int
    slow: int
    kmeans: int
    slow_sizes: tuple[int, ...]


@dataclass(frozen=True)
class MadeBefore(BaggingStrategy):
    """Bags of a strategy that looks at features only, made once for a table, a size and a seed.

    Making them is most of the work, and they are the same whatever the noise.
    """

    name: ClassVar[str] = "made-before"

    table: str
    strategy: str
    seed: int

    def assign(
        self,
        X: FloatArray,
        scores: FloatArray | None,
        *,
        bag_size: int,
        rng: np.random.Generator,  # noqa: ARG002 (its own seed tells which bags are meant)
    ) -> bw.Bags:
        """Return the bags of the strategy; they are made the first time."""
        return self.made(X, scores, bag_size=bag_size)[0]

    def made(
        self, X: FloatArray, scores: FloatArray | None = None, *, bag_size: int
    ) -> tuple[bw.Bags, float]:
        """Return the bags, and the seconds that it took to make them."""
        key = (self.table, self.strategy, bag_size, self.seed)
        # A release looks at rows in a new order each time, so bags are kept in one of the features.
        order = np.lexsort(X.T[::-1])
        if key not in _KEPT:
            start = time.perf_counter()
            bags = find_strategy(self.strategy).assign(
                X[order], scores, bag_size=bag_size, rng=np.random.default_rng(self.seed)
            )
            _KEPT[key] = bags, time.perf_counter() - start
        kept, seconds = _KEPT[key]
        index = np.empty_like(kept.index)
        index[order] = kept.index
        return bw.Bags(index), seconds


def forget_bags() -> None:
    """Drop the bags that were made, which belong to a table."""
    _KEPT.clear()


def reference_ways(data: RealTable) -> Iterator[Way]:
    """Yield the floor, the ceiling, and what the bounds alone cost."""
    yield Way(TRUE, lambda _: _fit_rows(data, data.labels))
    if (data.clipped != data.labels).any():
        yield Way(CLIPPED, lambda _: _fit_rows(data, data.clipped))
    mean = np.full(data.held_out.size, data.labels.mean())
    yield Way(MEAN, lambda _: Learnt(mean))


def exact_ways(data: RealTable, *, sizes: list[int], repeats: Repeats) -> Iterator[Way]:
    """Yield bags whose labels carry no noise."""
    for name, size in product((RANDOM, KMEANS), sizes):
        yield _bags(data, name, size, repeats=repeats)
    for size in sizes[:2]:
        yield _bags(data, PICKS, size, repeats=repeats)
    yield _planned(data, None, repeats=1)


def bag_ways(data: RealTable, *, sizes: list[int], repeats: Repeats) -> Iterator[Way]:
    """Yield the bags without noise that look at features, and nothing else."""
    for name, size in product((KMEANS,), sizes):
        yield _bags(data, name, size, repeats=repeats)


def private_ways(
    data: RealTable, epsilon: float, *, sizes: list[int], repeats: Repeats
) -> Iterator[Way]:
    """Yield everything that keeps labels private at this epsilon."""
    for size in sizes:
        for name, noise in product((RANDOM, KMEANS), (GAUSSIAN, LAPLACE)):
            yield _bags(data, name, size, epsilon=epsilon, noise=noise, repeats=repeats)
        if size in repeats.slow_sizes:
            yield _bags(data, SORTED, size, epsilon=epsilon, noise=GAUSSIAN, repeats=repeats)
    yield _planned(data, epsilon, repeats=repeats.slow)
    for noise in (GAUSSIAN, LAPLACE):
        yield _noisy_labels(data, epsilon, noise, repeats=repeats.most)
    for name in (BINS, UNDONE):
        yield _responses(data, epsilon, name, repeats=repeats.most)
    learn = partial(_released, data, epsilon)
    yield Way(MODEL, lambda _: learn(), "its own", epsilon=epsilon, repeats=repeats.slow)


def _bags(
    data: RealTable,
    name: str,
    size: int,
    *,
    repeats: Repeats,
    epsilon: float | None = None,
    noise: str = NONE,
) -> Way:
    strategy = "kmeans" if name == PICKS else _STRATEGIES[name]
    seeds = {"kmeans": repeats.kmeans}.get(strategy)
    options = {
        **_noise(data, epsilon, noise),
        "bag_size": size,
        "label_kind": "pick" if name == PICKS else "mean",
    }
    loss = "aggregate" if name == PICKS else "auto"

    def maker(repeat: int) -> MadeBefore | str:
        return strategy if seeds is None else MadeBefore(data.name, strategy, repeat % seeds)

    def learn(repeat: int) -> Learnt:
        made = maker(repeat)
        release = bw.make_release(data.train, **filed(label=data.label, strategy=made, **options))
        return _fit(data, release, loss=loss)

    def prepare(repeat: int) -> float:
        made = maker(repeat)
        return 0.0 if isinstance(made, str) else made.made(data.encoded[0], bag_size=size)[1]

    count = repeats.slow if name == SORTED else repeats.most
    if name == KMEANS and epsilon is None:
        count = repeats.kmeans
    return Way(name, learn, noise, size, epsilon, count, prepare)


def _planned(data: RealTable, epsilon: float | None, *, repeats: int) -> Way:
    def learn(_: int) -> Learnt:
        release = bw.make_release(
            data.train,
            **filed(label=data.label, bag_size="auto", **_privacy(data, epsilon, GAUSSIAN)),
        )
        how = release.provenance
        loud = "" if epsilon is None else LAPLACE if release.certificate.delta == 0 else GAUSSIAN
        choice = f"{how.strategy}, at least {how.bag_size} rows{loud and ', ' + loud}"
        return Learnt(_fit(data, release).predicted, choice)

    return Way(
        PLANNER, learn, NONE if epsilon is None else "its own", epsilon=epsilon, repeats=repeats
    )


def _noisy_labels(data: RealTable, epsilon: float, noise: str, *, repeats: int) -> Way:
    def learn(_: int) -> Learnt:
        release = bw.make_release(
            data.train,
            **filed(
                label=data.label, bag_size=1, strategy="random", **_noise(data, epsilon, noise)
            ),
        )
        return _fit(data, release)

    return Way(LABELS, learn, noise, 1, epsilon, repeats)


def _released(data: RealTable, epsilon: float) -> Learnt:
    privacy = _privacy(data, epsilon, GAUSSIAN)
    model = bw.release_model(data.train, label=data.label, family=data.family, **privacy)
    return Learnt(model.predict(data.test))


def _privacy(data: RealTable, epsilon: float | None, noise: str) -> dict[str, object]:
    if epsilon is None:
        return {"not_private": True}
    return {
        "epsilon": epsilon,
        "delta": 0.0 if noise == LAPLACE else DELTA,
        "bounds": data.bounds,
    }


def _noise(data: RealTable, epsilon: float | None, noise: str) -> dict[str, object]:
    """Return the promise and the noise that the way is named for."""
    insisted = {} if epsilon is None or noise == LAPLACE else {"noise": "gaussian"}
    return {**_privacy(data, epsilon, noise), **insisted}


def _fit(data: RealTable, release: bw.Release, *, loss: str = "auto") -> Learnt:
    return Learnt(bw.fit_release(release, family=data.family, loss=loss).predict(data.test))


def _fit_rows(
    data: RealTable, labels: FloatArray, *, noise_sd: float = 0.0, choice: str = ""
) -> Learnt:
    X, held_out = data.encoded
    model = bw.BaggedGLM(data.family).fit(X, labels, noise_sd=noise_sd)
    return Learnt(model.predict(held_out), choice)


def _responses(data: RealTable, epsilon: float, name: str, *, repeats: int) -> Way:
    def learn(_: int) -> Learnt:
        said = randomise_labels(
            data.labels, values=data.values, epsilon=epsilon, source=SecureNoise()
        )
        choice = f"{said.bins.count} bin{'s' if said.bins.count > 1 else ''}"
        if name == UNDONE:
            noise_sd = said.unbiased_noise_sd
            return _fit_rows(data, said.unbiased, noise_sd=noise_sd, choice=choice)
        return _fit_rows(data, said.labels, choice=choice)

    return Way(name, learn, RESPONSE, 1, epsilon, repeats)
