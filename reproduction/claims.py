"""What the paper says about its tables, judged by each way of making them.

A claim is about settings: a kind of features, a bag size and so on. In each it says that one error
is below another, or that some are similar. A setting speaks for a claim, or against it, where a
95 % interval of a log ratio over runs says so; otherwise it is undecided.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from reproduction.cells import APPENDIX, PRINTED_RUNS, Cell
from reproduction.measured import Estimate, Measured, printed_means

SIMILAR = 2.0
"""Errors are called similar here if none is more than this many times another."""

Contrast = Mapping[Cell, int]
"""Powers of errors whose product is below 1 if a claim holds: {A: 1, B: -1} says A < B."""

Judge = Callable[[Contrast], int]
"""1 if errors speak for a contrast, -1 against it, 0 undecided."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and what it says in each setting.

    Attributes
    ----------
    text : str
        In words near the paper's.
    place : str
    contrasts : by setting, what must all hold there
    similar : whether the cells of a contrast must be similar, rather than below another
    needed : share of settings, more than which must speak for it
    tolerated : share of settings that may speak against it
    """

    text: str
    place: str
    contrasts: Mapping[str, Sequence[Contrast]]
    similar: bool = False
    needed: float = 0.5
    tolerated: float = 0.25

    @property
    def is_private(self) -> bool:
        """Whether it is about private labels."""
        return any(cell.epsilon is not None for cell in self.cells())

    def cells(self) -> Iterator[Cell]:
        """Yield every cell that it mentions."""
        for contrasts in self.contrasts.values():
            for contrast in contrasts:
                yield from contrast


@dataclass(frozen=True)
class Tally:
    """In how many settings errors speak for a claim, against it, or neither."""

    in_favour: int
    undecided: int
    against: int

    @property
    def settings(self) -> int:
        """How many there are."""
        return self.in_favour + self.undecided + self.against

    def supports(self, claim: Claim) -> bool:
        """Whether enough settings are in favour of a claim, and few enough against."""
        return self.in_favour > claim.needed * self.settings and not self.contradicts(claim)

    def contradicts(self, claim: Claim) -> bool:
        """Whether too many settings are against it."""
        return self.against > claim.tolerated * self.settings

    def __str__(self) -> str:
        return f"{self.in_favour} : {self.undecided} : {self.against}"


@dataclass(frozen=True)
class Verdict:
    """A claim, and how it fares: `tallies` by the way that errors were made."""

    claim: Claim
    tallies: Mapping[str, Tally]
    runs: int

    @property
    def word(self) -> str:
        """The verdict, on the exact minimisers first."""
        if self.tallies["exact"].supports(self.claim):
            return "holds"
        if self.tallies["protocol"].supports(self.claim):
            return "holds only under the protocol"
        return "fails" if self.tallies["exact"].contradicts(self.claim) else "undecided"


PRIVATE_NAMES = {"exact": "printed_noise", "enough noise": "correct_noise", "protocol": "protocol"}
"""The ways to judge private claims, and the names of their values."""
OPEN_NAMES = {"exact": "exact", "protocol": "protocol"}


def judge_claims(measured: Measured) -> list[Verdict]:
    """Judge every claim whose cells were all run."""
    return [
        _verdict(claim, measured)
        for claim in CLAIMS
        if all(cell in measured for cell in claim.cells())
    ]


def _verdict(claim: Claim, measured: Measured) -> Verdict:
    names = PRIVATE_NAMES if claim.is_private else OPEN_NAMES
    judge_printed = _printed_similar if claim.similar else _printed_sign
    tallies = {"printed": _tally(claim, judge_printed)}
    for way, name in names.items():
        tallies[way] = _tally(claim, _measured_judge(claim, measured, name))
    runs = min(measured.runs(cell, names["exact"]).size for cell in claim.cells())
    return Verdict(claim, tallies, runs)


def _tally(claim: Claim, judge: Judge) -> Tally:
    signs = [min(map(judge, contrasts)) for contrasts in claim.contrasts.values()]
    return Tally(*(sum(sign == wanted for sign in signs) for wanted in (1, 0, -1)))


def _measured_judge(claim: Claim, measured: Measured, name: str) -> Judge:
    def below_one(contrast: Contrast) -> int:
        # Cells of one run share features, coefficients and noise: compare within runs.
        logs = [power * np.log(measured.runs(cell, name)) for cell, power in contrast.items()]
        return -Estimate.of(np.sum(logs, axis=0)).sign

    def similar(contrast: Contrast) -> int:
        logs = np.array([np.log(measured.runs(cell, name)) for cell in contrast])
        means = logs.mean(axis=1)
        return _is_similar(Estimate.of(logs[means.argmax()] - logs[means.argmin()]))

    return similar if claim.similar else below_one


def _printed_sign(contrast: Contrast) -> int:
    printed = printed_means((2, *APPENDIX))
    mean = sum(power * np.log(printed[cell][0]) for cell, power in contrast.items())
    error = np.sqrt(sum((printed[cell][1] / printed[cell][0]) ** 2 for cell in contrast))
    return -Estimate(float(mean), float(error), PRINTED_RUNS).sign


def _printed_similar(contrast: Contrast) -> int:
    printed = printed_means(APPENDIX)
    largest, least = (
        chosen((printed[cell] for cell in contrast), key=lambda value: value[0])
        for chosen in (max, min)
    )
    error = math.hypot(largest[1] / largest[0], least[1] / least[0])
    return _is_similar(Estimate(math.log(largest[0] / least[0]), error, PRINTED_RUNS))


def _is_similar(ratio: Estimate) -> int:
    """Judge the log of the largest error over the smallest."""
    limit = math.log(SIMILAR)
    if ratio.mean + ratio.reach <= limit:
        return 1
    return -1 if ratio.mean - ratio.reach > limit else 0


def _below(loss: str, better: str, worse: str, kinds: Sequence[str]) -> dict[str, list[Contrast]]:
    """Say in each setting that bags by one strategy have less error than by another."""
    return {
        f"{data}, {size}, {noise:g}": [
            {
                Cell(loss, data, size, noise, better): 1,
                Cell(loss, data, size, noise, worse): -1,
            }
        ]
        for data, size, noise in product(kinds, (10, 50), (0.5, 2.0))
    }


def _in_order(loss: str, order: Sequence[str], kinds: Sequence[str]) -> dict[str, list[Contrast]]:
    """Say in each setting that errors come in an order."""
    return _all_of([_below(loss, *pair, kinds) for pair in pairwise(order)])


def _similar(order: Sequence[str], kinds: Sequence[str]) -> dict[str, list[Contrast]]:
    return {
        f"{data}, {size}, {noise:g}": [
            {Cell("instance", data, size, noise, strategy): 1 for strategy in order}
        ]
        for data, size, noise in product(kinds, (10, 50), (0.5, 2.0))
    }


def _best(best: str, others: Sequence[str], kinds: Sequence[str]) -> dict[str, list[Contrast]]:
    """Say in each setting that a strategy has the least error of all, under instance loss."""
    return _all_of([_below("instance", best, other, kinds) for other in others])


def _all_of(claims: Sequence[Mapping[str, Sequence[Contrast]]]) -> dict[str, list[Contrast]]:
    """Say all of several things in each setting."""
    return {
        setting: [contrast for claim in claims for contrast in claim[setting]]
        for setting in claims[0]
    }


def _private(size: int, strategy: str, epsilon: float) -> Cell:
    return Cell("instance", "iso", size, 0.5, strategy, epsilon)


def _drop(size: int, strategy: str, power: int) -> Contrast:
    """Return ``(error at epsilon 2 / error at epsilon 0.5) ** power``."""
    return {_private(size, strategy, 2.0): power, _private(size, strategy, 0.5): -power}


_NON_ISOTROPIC = ("ind", "dep")
_BAG = "Table 4, isotropic; table 1 has a part of it"
_AGGREGATE = "Table 3, isotropic; table 1 has a part of it"

CLAIMS = (
    Claim(
        "bag loss: instance k-means is better than random bags",
        _BAG,
        _below("bag", "kmeans", "random", ("iso",)),
    ),
    Claim(
        "bag loss: random bags are better than label k-means",
        _BAG,
        _below("bag", "random", "sorted", ("iso",)),
    ),
    Claim(
        "aggregate loss: instance k-means is better than random bags",
        _AGGREGATE,
        _below("aggregate", "kmeans", "random", ("iso",)),
    ),
    Claim(
        "aggregate loss: instance k-means is better than label k-means",
        _AGGREGATE,
        _below("aggregate", "kmeans", "sorted", ("iso",)),
    ),
    Claim(
        "aggregate loss: random bags are overall slightly better than label k-means",
        _AGGREGATE,
        _below("aggregate", "random", "sorted", ("iso",)),
    ),
    Claim(
        "instance loss: all mechanisms show similar performance",
        "Table 5; table 1 has a part of it",
        {
            **_similar(("kmeans", "sorted", "random"), ("iso",)),
            **_similar(("kmeans", "whitened", "sorted", "random"), _NON_ISOTROPIC),
        },
        similar=True,
    ),
    Claim(
        "instance loss: label k-means shows better performance in many cases",
        "Table 5",
        {
            **_best("sorted", ("kmeans", "random"), ("iso",)),
            **_best("sorted", ("kmeans", "whitened", "random"), _NON_ISOTROPIC),
        },
        needed=0.25,
    ),
    Claim(
        "bag loss: in most cases scaled instance k-means is better than instance k-means",
        "Table 4",
        _below("bag", "whitened", "kmeans", _NON_ISOTROPIC),
    ),
    Claim(
        "bag loss: in most cases instance k-means is better than random bags, and these than label "
        "k-means",
        "Table 4, non-isotropic",
        _in_order("bag", ("kmeans", "random", "sorted"), _NON_ISOTROPIC),
    ),
    Claim(
        "aggregate loss: in most cases scaled instance k-means is better than instance k-means",
        "Table 3",
        _below("aggregate", "whitened", "kmeans", _NON_ISOTROPIC),
    ),
    Claim(
        "aggregate loss: in most cases instance k-means is better than random bags, and these than "
        "label k-means",
        "Table 3, non-isotropic",
        _in_order("aggregate", ("kmeans", "random", "sorted"), _NON_ISOTROPIC),
    ),
    Claim(
        "private labels: for each mechanism, accuracy drops with a decrease in epsilon",
        "Table 2",
        {
            f"{strategy}, {size}": [_drop(size, strategy, 1)]
            for strategy, size in product(("kmeans", "sorted"), (10, 50))
        },
    ),
    Claim(
        "private labels: the drop is sharper for label k-means",
        "Table 2",
        {
            f"{size}": [{**_drop(size, "sorted", 1), **_drop(size, "kmeans", -1)}]
            for size in (10, 50)
        },
    ),
    Claim(
        "private labels: the drop is sharper for a smaller bag size",
        "Table 2",
        {
            strategy: [{**_drop(10, strategy, 1), **_drop(50, strategy, -1)}]
            for strategy in ("kmeans", "sorted")
        },
    ),
)
