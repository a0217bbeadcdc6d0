"""Guess single labels from a release, and compare with guesses made without it.

There are five attackers. The first knows all other labels; the last knows only the release:

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
from typing import Any, Literal

import numpy as np

from bagwise.auditor.attackers import guesses_by_neighbours, guesses_by_regression
from bagwise.auditor.guessing import Advantage, dp_limit, over_chance, over_others, when_sure
from bagwise.auditor.matching import labels_of_rows
from bagwise.errors import TableError
from bagwise.files.records import Record
from bagwise.release.release import Release
from bagwise.rng import NoiseSource, SecureNoise, make_generator

Colour = Literal["green", "amber", "red"]

_FEWEST_BAGS = 10

NOTE = (
    "These figures depend on the labels. They are for the custodian: no certificate covers their "
    "publication."
)


class Attack(Record, frozen=True):
    """The result of one attacker.

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
    # 1. The bags in which every row has a label that is certain to be its own.
    values, certain = labels_of_rows(release, labels)
    bags = release.bags
    doubtful = np.bincount(bags.index[bags.in_bag & ~certain], minlength=bags.n_bags)
    usable = np.flatnonzero(doubtful == 0)
    if usable.size < min(_FEWEST_BAGS, bags.n_bags):
        raise TableError(
            f"only {usable.size} of {bags.n_bags} bags can be matched with the table of labels, "
            "since many rows have the same features. Release with an id (--id), which tells rows "
            "apart."
        )
    # 2. Attacks on one row of each.
    alpha = (1 - confidence) / 7  # five attackers, two of them twice
    guesses = guesses_by_neighbours(release, values, usable, trials=trials, rng=rng, noise=noise)
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
        for name, pair in guesses_by_regression(release, values, usable, rng).items()
    ]
    red = any(attack.colour == "red" for attack in attacks)
    return LabelInference(
        colour="red" if red else attacks[0].colour,
        confidence=confidence,
        bags=bags.n_bags,
        bags_used=usable.size,
        note=NOTE,
        attacks=tuple(attacks),
    )


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
