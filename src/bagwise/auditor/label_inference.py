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
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.auditor.guessing import Advantage, dp_limit, over_chance, over_others, when_sure
from bagwise.auditor.likelihood import Reader, hidden_by_noise, reader_of
from bagwise.auditor.matching import labels_of_rows
from bagwise.auditor.regression import predict_rows
from bagwise.bagging.bags import Bags
from bagwise.errors import TableError
from bagwise.files.records import Record
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


class Attack(Record, frozen=True):
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


class LabelInference(Record, frozen=True):
    """What readers of a release learn about single labels.

    `colour` is red if any attack is, else that of the first: it knows most, and is the most
    precise.
    """

    colour: Colour
    confidence: float
    bags: int
    bags_used: int
    note: str
    attacks: tuple[Attack, ...]


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
    guesses = {"redrawn": known.redrawn(trials, noise), "as published": known.published()}
    attacks = [
        _attack(
            f"neighbours known, {name}",
            release,
            over_chance(right, alpha=alpha),
            when_sure(right, sureness, alpha=alpha),
        )
        for name, (right, sureness) in guesses.items()
    ]
    attacks += [
        _attack(name, release, over_others(*pair, alpha=alpha))
        for name, pair in _learned(release, values, usable, rng).items()
    ]
    red = any(attack.colour == "red" for attack in attacks)
    return LabelInference(
        colour="red" if red else attacks[0].colour,
        confidence=confidence,
        bags=release.bags.n_bags,
        bags_used=usable.size,
        note=NOTE,
        attacks=tuple(attacks),
    )


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


def _rows_by_bag(bags: Bags) -> tuple[IntArray, IntArray]:
    """Return the rows of the first bag, then of the second and so on, and where each begins."""
    order = np.argsort(bags.index, kind="stable")[int((~bags.in_bag).sum()) :]
    return order, np.cumsum(bags.sizes) - bags.sizes


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
        if np.all(self.values == self.values[0]):
            raise TableError("all labels are equal, so that there is nothing to guess.")
        size = float(self.bags.sizes[self.usable].mean())
        block = max(1, int(_ROWS_AT_ONCE / size))
        right, sureness = zip(
            *(
                self._redraw_once(min(block, trials - start), noise)
                for start in range(0, trials, block)
            ),
            strict=True,
        )
        return np.concatenate(right), np.concatenate(sureness)

    def _redraw_once(self, trials: int, noise: NoiseSource) -> tuple[AnyArray, FloatArray]:
        labels, bags, rows = self._copies(self.rng.choice(self.usable, size=trials))
        # Two rows with different labels, for each trial.
        drawn = self.rng.integers(0, self.values.size, size=(trials, 2))
        while (same := self.values[drawn[:, 0]] == self.values[drawn[:, 1]]).any():
            drawn[same] = self.rng.integers(0, self.values.size, size=(int(same.sum()), 2))
        pair = self.values[drawn]
        truth = self.rng.integers(0, 2, size=trials)
        labels[rows] = pair[np.arange(trials), truth]
        shown = self.reader.redraw(labels, bags, noise)
        return self._guess(self.reader.log_ratio(shown, labels, bags, rows, pair), truth)

    def published(self) -> tuple[AnyArray, FloatArray]:
        """Guess between a row's label and that of another row, from the published bag label.

        Both are drawn from the same labels, so that before the release either is as likely.
        """
        labels, bags, rows = self._copies(self.usable)
        truth = self.rng.integers(0, 2, size=self.usable.size)
        other = self.values[self.rng.integers(0, self.values.size, size=self.usable.size)]
        own = labels[rows]
        pair = np.stack([np.where(truth == 0, own, other), np.where(truth == 0, other, own)], 1)
        ratio = self.reader.log_ratio(self.shown[self.usable], labels, bags, rows, pair)
        differ = own != other
        return self._guess(ratio[differ], truth[differ])

    def _copies(self, chosen: IntArray) -> tuple[AnyArray, Bags, IntArray]:
        """Return the labels of the chosen bags, one after the other, and one row of each."""
        order, starts = _rows_by_bag(self.bags)
        lengths = self.bags.sizes[chosen]
        new_starts = np.cumsum(lengths) - lengths
        within = np.arange(int(lengths.sum())) - np.repeat(new_starts, lengths)
        rows = order[np.repeat(starts[chosen], lengths) + within]
        one = new_starts + self.rng.integers(0, lengths)
        return self.values[rows].copy(), Bags(np.repeat(np.arange(chosen.size), lengths)), one

    def _guess(self, ratio: FloatArray, truth: IntArray) -> tuple[AnyArray, FloatArray]:
        """Return which guesses are right, and how sure they are; a coin decides what is even."""
        coin = self.rng.integers(0, 2, size=truth.size)
        return np.where(ratio == 0, coin, ratio > 0) == truth, np.abs(ratio)


def _learned(
    release: Release, values: AnyArray, usable: IntArray, rng: np.random.Generator
) -> dict[str, tuple[AnyArray, AnyArray]]:
    """Return which guesses of a model of the bags are right, with and without the row's own bag."""
    order, starts = _rows_by_bag(release.bags)
    rows: IntArray = order[starts[usable] + rng.integers(0, release.bags.sizes[usable])]
    without, own = predict_rows(release, rows)
    truth, shown = values[rows], release.labels[usable]
    if release.classes is not None:
        base = without.argmax(axis=1) == truth
        ends = shown.max(axis=1) >= 1 - AT_THE_END
        return {
            "regression": (own.argmax(axis=1) == truth, base),
            "homogeneous bags": ((shown.argmax(axis=1) == truth)[ends], base[ends]),
        }
    spread = float(np.ptp(values)) or 1.0
    close, same = CLOSE * spread, AT_THE_END * spread
    middle = float(np.median(release.labels))
    low, high = release.certificate.bounds or (float(values.min()), float(values.max()))
    ends = (shown <= low + same) | (shown >= high - same)
    # Whoever knows the features alone would name the end that is nearer to the prediction.
    named = np.where(np.abs(without - low) < np.abs(without - high), low, high)
    pure = (np.abs(np.clip(shown, low, high) - truth) <= same, np.abs(named - truth) <= same)
    return {
        "regression": (np.abs(own - truth) <= close, np.abs(without - truth) <= close),
        "threshold": ((own > middle) == (truth > middle), (without > middle) == (truth > middle)),
        "homogeneous bags": (pure[0][ends], pure[1][ends]),
    }


def _attack(
    name: str, release: Release, advantage: Advantage | None, sure: Advantage | None = None
) -> Attack:
    """Return an attack with its colour."""
    epsilon, delta = release.certificate.epsilon, release.certificate.delta
    limit = sure_limit = 0.0
    if epsilon is not None and delta is not None:
        share = 1.0
        if sure is not None and advantage is not None and sure.guesses:
            share = min(1.0, 2 * sure.guesses / advantage.guesses)
        limit = dp_limit(epsilon, delta)
        sure_limit = dp_limit(epsilon, delta, share=max(share, math.ulp(1.0)))
    colour: Colour = "amber"
    if (advantage and advantage.low > limit) or (sure and sure.low > sure_limit):
        colour = "red"
    elif advantage is None or advantage.high <= limit:
        colour = "green"
    return Attack(name=name, advantage=advantage, when_sure=sure, limit=limit, colour=colour)
