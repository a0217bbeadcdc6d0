"""Guess single labels from a release, and see how much better that goes than without it.

Five attackers, from one who knows every other label to one who knows the release only:

- *neighbours known, redrawn*: the attacker knows all other labels of a bag and that the label of
  one row is one of two; a coin decides which, and the bag's label is drawn anew by the release's
  own mechanism. As many trials as one likes, so this is the one that is precise.
- *neighbours known, as published*: the same about the numbers that were published. It also finds
  noise that was claimed and never added.
- *regression*: a model of the released bags predicts a label, once with and once without the
  label of the row's own bag. Only the difference counts: what the others tell about everybody is
  what a release is for.
- *threshold*: the same model says whether a label is above the middle of the bag labels.
- *homogeneous bags*: bags whose label is at an end of the range; all their rows should have it.

One row of each bag is guessed, so that guesses do not share noise and intervals hold.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.audit.guessing import Advantage, dp_limit, over_chance, over_others, when_sure
from bagwise.audit.likelihood import Reader, hidden_by_noise, reader_of
from bagwise.audit.matching import labels_of_rows
from bagwise.audit.regression import predict_rows
from bagwise.bagging.bags import Bags
from bagwise.errors import TableError
from bagwise.release.release import Release
from bagwise.rng import NoiseSource, SecureNoise, make_generator

Colour = Literal["green", "amber", "red"]

CLOSE, AT_THE_END = 0.1, 0.01
"""Shares of the labels' spread: what counts as a hit of a regression, and as the end of a range."""

_FEWEST_BAGS = 10
_ROWS_AT_ONCE = 2_000_000

NOTE = (
    "These figures depend on the labels. They are for the custodian: no certificate covers their "
    "publication."
)


@dataclass(frozen=True)
class Attack:
    """What one attacker achieved.

    Attributes
    ----------
    name : str
    advantage : Advantage or None
        Over a coin for those who know the neighbours, else over the same model without the bag's
        own label; None where there was nothing to guess.
    when_sure : Advantage or None
        That of the guesses which the attacker was most sure of.
    limit : float
        The largest advantage that the certificate allows; 0 where it promises nothing.
    colour : {"green", "amber", "red"}
        Red: more than the limit, with the stated confidence. Green: the interval of the advantage
        is within the limit. Amber: neither.
    """

    name: str
    advantage: Advantage | None
    when_sure: Advantage | None
    limit: float
    colour: Colour


@dataclass(frozen=True)
class LabelInference:
    """What readers of a release learn about single labels."""

    attacks: tuple[Attack, ...]
    confidence: float
    bags: int
    bags_used: int

    @property
    def colour(self) -> Colour:
        """Red if any attack is, else that of the first: it knows most, and is the most precise."""
        if any(attack.colour == "red" for attack in self.attacks):
            return "red"
        return self.attacks[0].colour

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "colour": self.colour,
            "confidence": self.confidence,
            "bags": self.bags,
            "bags_used": self.bags_used,
            "note": NOTE,
            "attacks": [asdict(attack) for attack in self.attacks],
        }


def infer_labels(
    release: Release,
    labels: Any,
    *,
    trials: int = 100_000,
    confidence: float = 0.95,
    seed: int | None = None,
    source: NoiseSource | None = None,
) -> LabelInference:
    """Attack the labels of single rows.

    Parameters
    ----------
    release : Release
    labels : path or frame
        The table that was released, with its labels.
    trials : int
        How often the noise is redrawn. Redrawn labels are looked at here and kept nowhere.
    confidence : float
        With which all intervals hold together.
    seed : int, optional
        Of the choice of rows; the noise has none.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bagwise import make_release
    >>> rng = np.random.default_rng(0)
    >>> table = pa.table({"x": rng.normal(size=400), "y": rng.random(400)})
    >>> open_bags = make_release(table, label="y", bag_size=8, strategy="random", not_private=True)
    >>> infer_labels(open_bags, table, trials=200, seed=0).colour
    'red'
    """
    rng, noise = make_generator(seed), source or SecureNoise()
    values, certain = labels_of_rows(release, labels)
    usable = _usable_bags(release, certain)
    alpha = (1 - confidence) / 7  # five attackers, two of them twice
    hidden, shown = hidden_by_noise(release, values)
    reader = reader_of(release, float(np.ptp(hidden)))
    known = _KnownNeighbours(release.bags, hidden, shown, usable, reader, rng)
    redrawn = known.redrawn(trials, noise)
    published = known.published()
    attacks = [
        _attack("neighbours known, redrawn", release, *_over_coin(*redrawn, alpha)),
        _attack("neighbours known, as published", release, *_over_coin(*published, alpha)),
        *_learned(release, values, usable, rng, alpha),
    ]
    return LabelInference(tuple(attacks), confidence, release.bags.n_bags, usable.size)


def _usable_bags(release: Release, certain: AnyArray) -> IntArray:
    """Return the bags all of whose rows have a label that is certain to be theirs."""
    kept = release.bags.in_bag
    doubtful = np.bincount(release.bags.index[kept & ~certain], minlength=release.bags.n_bags)
    usable = np.flatnonzero(doubtful == 0)
    if usable.size < min(_FEWEST_BAGS, release.bags.n_bags):
        raise TableError(
            f"only {usable.size} of {release.bags.n_bags} bags can be matched with the table of "
            "labels, since many rows have the same features. Release with an id (--id), which "
            "tells rows apart."
        )
    return usable


@dataclass(frozen=True)
class _KnownNeighbours:
    """Attacks of those who know all other labels of a bag.

    Attributes
    ----------
    values : (n,)
        What the noise hides of each row.
    shown : (m,) or (m, classes)
        What was published about it.
    """

    bags: Bags
    values: AnyArray
    shown: FloatArray
    usable: IntArray
    reader: Reader
    rng: np.random.Generator

    def redrawn(self, trials: int, noise: NoiseSource) -> tuple[AnyArray, FloatArray]:
        """Return which guesses were right, and how sure they were."""
        size = float(self.bags.sizes[self.usable].mean())
        block = max(1, int(_ROWS_AT_ONCE / size))
        parts = [
            self._redraw_once(min(block, trials - start), noise)
            for start in range(0, trials, block)
        ]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _redraw_once(self, trials: int, noise: NoiseSource) -> tuple[AnyArray, FloatArray]:
        chosen = self.rng.choice(self.usable, size=trials)
        labels, bags, rows = self._copies(chosen)
        pair = self.values[self._pairs(trials)]
        truth = self.rng.integers(0, 2, size=trials)
        labels[rows] = pair[np.arange(trials), truth]
        shown = self.reader.redraw(labels, bags, noise)
        ratio = self.reader.log_ratio(shown, labels, bags, rows, pair)
        return _guess(ratio, truth, self.rng)

    def _pairs(self, count: int) -> IntArray:
        """Draw two rows with different labels, for each trial."""
        pair = self.rng.integers(0, self.values.size, size=(count, 2))
        if np.all(self.values == self.values[0]):
            raise TableError("all labels are equal, so that there is nothing to guess.")
        while (same := self.values[pair[:, 0]] == self.values[pair[:, 1]]).any():
            pair[same] = self.rng.integers(0, self.values.size, size=(int(same.sum()), 2))
        return pair

    def published(self) -> tuple[AnyArray, FloatArray]:
        """Guess between a row's label and that of another row, from the published bag label.

        Both are drawn from the same labels, so that before the release either is as likely.
        """
        labels, bags, rows = self._copies(self.usable)
        truth = self.rng.integers(0, 2, size=self.usable.size)
        other = self.values[self.rng.integers(0, self.values.size, size=self.usable.size)]
        own = labels[rows]
        pair = np.stack([np.where(truth == 0, own, other), np.where(truth == 0, other, own)], 1)
        shown = self.shown[self.usable]
        ratio = self.reader.log_ratio(shown, labels, bags, rows, pair)
        differ = own != other
        return _guess(ratio[differ], truth[differ], self.rng)

    def _copies(self, chosen: IntArray) -> tuple[AnyArray, Bags, IntArray]:
        """Return the labels of the chosen bags, one after the other, and one row of each."""
        index = self.bags.index
        order = np.argsort(index, kind="stable")[int((~self.bags.in_bag).sum()) :]
        sizes = self.bags.sizes
        ends = np.cumsum(sizes)
        lengths = sizes[chosen]
        new_starts = np.cumsum(lengths) - lengths
        within = np.arange(int(lengths.sum())) - np.repeat(new_starts, lengths)
        rows = order[np.repeat((ends - sizes)[chosen], lengths) + within]
        one = new_starts + self.rng.integers(0, lengths)
        return self.values[rows].copy(), Bags(np.repeat(np.arange(chosen.size), lengths)), one


def _guess(
    ratio: FloatArray, truth: IntArray, rng: np.random.Generator
) -> tuple[AnyArray, FloatArray]:
    coin = rng.integers(0, 2, size=truth.size)
    said = np.where(ratio == 0, coin, ratio > 0)
    return said == truth, np.abs(ratio)


def _over_coin(
    right: AnyArray, sureness: FloatArray, alpha: float
) -> tuple[Advantage | None, Advantage | None]:
    return over_chance(right, alpha=alpha), when_sure(right, sureness, alpha=alpha)


def _learned(
    release: Release, values: AnyArray, usable: IntArray, rng: np.random.Generator, alpha: float
) -> Sequence[Attack]:
    """Attack with what a model of the released bags says, with and without the row's own bag."""
    bags = release.bags
    order = np.argsort(bags.index, kind="stable")[int((~bags.in_bag).sum()) :]
    starts = np.cumsum(bags.sizes) - bags.sizes
    rows: IntArray = order[starts[usable] + rng.integers(0, bags.sizes[usable])]  # one of each
    without, own = predict_rows(release, rows)
    truth, shown = values[rows], release.labels[usable]
    if release.classes is not None:
        with_own, base = own.argmax(axis=1) == truth, without.argmax(axis=1) == truth
        ends = shown.max(axis=1) >= 1 - AT_THE_END
        pure = (shown.argmax(axis=1) == truth)[ends], base[ends]
        return [
            _attack("regression", release, over_others(with_own, base, alpha=alpha)),
            _attack("homogeneous bags", release, over_others(*pure, alpha=alpha)),
        ]
    spread = float(np.ptp(values)) or 1.0
    close, same = CLOSE * spread, AT_THE_END * spread
    middle = float(np.median(release.labels))
    low, high = release.certificate.bounds or (float(values.min()), float(values.max()))
    ends = (shown <= low + same) | (shown >= high - same)
    # Whoever knows the features alone would name the end that is nearer to the prediction.
    named = np.where(np.abs(without - low) < np.abs(without - high), low, high)
    pure = (np.abs(np.clip(shown, low, high) - truth) <= same, np.abs(named - truth) <= same)
    guesses = {
        "regression": (np.abs(own - truth) <= close, np.abs(without - truth) <= close),
        "threshold": ((own > middle) == (truth > middle), (without > middle) == (truth > middle)),
        "homogeneous bags": (pure[0][ends], pure[1][ends]),
    }
    return [
        _attack(name, release, over_others(*pair, alpha=alpha)) for name, pair in guesses.items()
    ]


def _attack(
    name: str, release: Release, advantage: Advantage | None, sure: Advantage | None = None
) -> Attack:
    limit, sure_limit = _limits(release, advantage, sure)
    colour: Colour = "amber"
    if (advantage and advantage.low > limit) or (sure and sure.low > sure_limit):
        colour = "red"
    elif advantage is None or advantage.high <= limit:
        colour = "green"
    return Attack(name, advantage, sure, limit, colour)


def _limits(
    release: Release, advantage: Advantage | None, sure: Advantage | None
) -> tuple[float, float]:
    epsilon, delta = release.certificate.epsilon, release.certificate.delta
    if epsilon is None or delta is None:
        return 0.0, 0.0
    share = 1.0
    if sure is not None and advantage is not None and sure.guesses:
        share = min(1.0, 2 * sure.guesses / advantage.guesses)
    return dp_limit(epsilon, delta), dp_limit(epsilon, delta, share=max(share, math.ulp(1.0)))
