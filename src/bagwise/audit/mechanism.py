"""Redraw the noise of a mechanism at its own parameters, and see how much of its epsilon shows.

Each mechanism is drawn from on a pair of tables that differ in the labels of one protected unit and
are the worst for it: for noise on a number, one that moves by the whole sensitivity; for picks, a
bag whose other labels are all at one end. `privacy.audit` has the attack and its bound.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from bagwise.errors import BudgetError, check_name
from bagwise.privacy.accounting import total_epsilon
from bagwise.privacy.audit import Draw, audit
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.grid import LABEL_STEPS
from bagwise.privacy.mechanisms import (
    LabelChannel,
    MeansBudget,
    Mechanism,
    RandomisedPicks,
    bag_means_mechanisms,
)
from bagwise.privacy.mechanisms.mechanism import OneScale
from bagwise.privacy.mechanisms.picks import NoisyPicks
from bagwise.rng import NoiseSource, SecureNoise
from bagwise.rows.labels import Bounds

Verdict = Literal["refuted", "not refuted", "not tested"]

USUAL_DELTA = 1e-6
"""At which a mechanism's epsilon is told where a certificate promises nothing."""

_AT_ONCE = 50_000


@dataclass(frozen=True)
class MechanismAudit:
    """How much of its epsilon one mechanism was shown to spend.

    Attributes
    ----------
    kind, hides : str
        Which mechanism, and what it hides.
    claimed : float
        Its epsilon by the accountant, at `delta`.
    shown : float or None
        With the confidence that was asked for, it is not less than this.
    verdict : {"refuted", "not refuted", "not tested"}
        Refuted if more was shown than is claimed. An attack that fails proves nothing.
    draws : int
        From each of the two tables.
    """

    kind: str
    hides: str
    claimed: float
    delta: float
    shown: float | None
    verdict: Verdict
    draws: int

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; an infinite epsilon as None."""
        return {**asdict(self), "claimed": self.claimed if math.isfinite(self.claimed) else None}


def audit_events(
    events: Sequence[Mechanism],
    *,
    delta: float,
    draws: int,
    alpha: float,
    source: NoiseSource | None = None,
) -> list[MechanismAudit]:
    """Attack each mechanism; all bounds hold together with probability 1 - alpha.

    Examples
    --------
    >>> event = mechanism_for("laplace-bag-means", epsilon=1.0)
    >>> found, = audit_events([event], delta=0.0, draws=20_000, alpha=1e-6)
    >>> found.verdict, 0.7 < found.shown <= found.claimed <= 1.0
    ('not refuted', True)
    """
    noise = source or SecureNoise()
    pairs = [_pairs(event, noise) for event in events]
    each = alpha / max(1, sum(map(len, pairs)))
    return [
        _audit_one(event, found, delta=delta, draws=draws, alpha=each)
        for event, found in zip(events, pairs, strict=True)
    ]


def _audit_one(
    event: Mechanism,
    pairs: Sequence[tuple[Draw, Draw]],
    *,
    delta: float,
    draws: int,
    alpha: float,
) -> MechanismAudit:
    needs_delta = event.pure_epsilon is None
    at = delta if needs_delta else 0.0
    claimed = total_epsilon([event], delta) if needs_delta else float(event.pure_epsilon or 0)
    shown = [
        audit(first, second, delta=at, draws=draws, alpha=alpha).epsilon for first, second in pairs
    ]
    verdict: Verdict = "not tested"
    if shown:
        verdict = "refuted" if max(shown) > claimed else "not refuted"
    return MechanismAudit(
        kind=event.kind,
        hides=event.hides,
        claimed=claimed,
        delta=at,
        shown=max(shown) if shown else None,
        verdict=verdict,
        draws=draws if shown else 0,
    )


def _pairs(event: Mechanism, source: NoiseSource) -> list[tuple[Draw, Draw]]:
    """Return draws from two neighbouring tables, for each size of bag that may be the worst.

    Scores grow with the likelihood ratio of the first table to the second: for noise that is
    log-concave, the noisy number itself. A choice of bounds has no number to look at.
    """
    if isinstance(event, NoisyPicks):
        return [_picks(event, size, source) for size in _extremes(s for s, _ in event.scales)]
    if isinstance(event, RandomisedPicks):
        return [_class_picks(event, size, source) for size in _extremes(s for s, _ in event.keeps)]
    if isinstance(event, LabelChannel):
        return [_reported(event, source)]
    if isinstance(event, OneScale):
        shift, draw = event.shift, event.draw  # type: ignore[attr-defined]
        return [
            (
                _in_blocks(lambda count: (shift + draw(count, source)).astype(np.float64)),
                _in_blocks(lambda count: draw(count, source).astype(np.float64)),
            )
        ]
    return []


def _extremes(sizes: Iterable[int]) -> list[int]:
    """Return the smallest and the largest size: between them, chances fall as noise does."""
    found = sorted(set(sizes))
    return found if len(found) == 1 else [found[0], found[-1]]


def _picks(event: NoisyPicks, size: int, source: NoiseSource) -> tuple[Draw, Draw]:
    def noise(count: int) -> Any:
        return event.draw(np.full(count, size), source).astype(np.float64)

    def first(count: int) -> Any:
        picked = source.index_below(np.full(count, size)) == 0
        return noise(count) + event.shift * picked

    return _in_blocks(first), _in_blocks(noise)


def _class_picks(event: RandomisedPicks, size: int, source: NoiseSource) -> tuple[Draw, Draw]:
    def reported(codes: Any) -> Any:
        sizes = np.full(codes.size, size)
        return (event.randomise(codes, sizes, source) == 1).astype(np.float64)

    def first(count: int) -> Any:
        return reported((source.index_below(np.full(count, size)) == 0).astype(np.int64))

    return _in_blocks(first), _in_blocks(lambda count: reported(np.zeros(count, dtype=np.int64)))


def _reported(event: LabelChannel, source: NoiseSource) -> tuple[Draw, Draw]:
    """Return draws for the two labels that are told apart best, by how much better each fits."""
    logs = np.log(np.array(event.chances, dtype=np.float64))
    column = int(np.argmax(np.ptp(logs, axis=0)))
    first, second = int(np.argmax(logs[:, column])), int(np.argmin(logs[:, column]))
    scores = logs[first] - logs[second]

    def draw(point: int) -> Draw:
        return _in_blocks(lambda count: scores[event.randomise(np.full(count, point), source)])

    return draw(first), draw(second)


def _in_blocks(draw: Draw) -> Draw:
    """Draw in pieces, so that memory does not grow with the number of draws."""

    def many(count: int) -> Any:
        sizes = [min(_AT_ONCE, count - start) for start in range(0, count, _AT_ONCE)]
        return np.concatenate([draw(size) for size in sizes])

    return many


def mechanism_for(
    kind: str,
    *,
    epsilon: float,
    delta: float = 0.0,
    bag_size: int = 50,
    classes: int = 2,
    bounds: Bounds = (0.0, 1.0),
) -> Mechanism:
    """Return a mechanism of this kind with the noise that a release of such a promise has.

    >>> mechanism_for("randomised-picks", epsilon=1.0, bag_size=10).hides
    'class picks'
    """
    rule = ExactCalibration(epsilon, delta, bounds)
    means = {mechanism.noise: mechanism for mechanism in bag_means_mechanisms().values()}
    step = (bounds[1] - bounds[0]) / LABEL_STEPS
    budget = MeansBudget(epsilon=Fraction(epsilon), mu=None, step=step, square=1, rows=1, numbers=1)

    def gaussian() -> ExactCalibration:
        return rule.with_noise("gaussian")

    makers: dict[str, Callable[[], Mechanism | None]] = {
        "gaussian-bag-means": lambda: gaussian().bag_means(),
        "laplace-bag-means": lambda: means["laplace"].for_budget(budget),
        "staircase-bag-means": lambda: means["staircase"].for_budget(budget),
        "picked-labels": lambda: gaussian().picks(sizes=[bag_size]),
        "laplace-picks": lambda: rule.with_noise("laplace").picks(sizes=[bag_size]),
        "randomised-picks": lambda: rule.class_picks(classes=classes, sizes=[bag_size]),
        "unbiased-labels": lambda: rule.single_labels("unbiased"),
        "gaussian-labels": lambda: gaussian().labels(share=1.0),
        "laplace-labels": lambda: rule.with_noise("laplace").labels(share=1.0),
    }
    check_name("mechanism", kind, makers, BudgetError)
    found = makers[kind]()
    if found is None:
        raise BudgetError(f"epsilon {epsilon:g} allows no noise of the kind {kind!r}.")
    return found
