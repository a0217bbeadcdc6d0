"""Redraw the noise of a mechanism, and estimate a lower bound on its epsilon.

Each mechanism is drawn from on a pair of tables that differ in the labels of one protected unit and
are the worst for it: for noise on a number, one that moves by the whole sensitivity; for picks, a
bag whose other labels are all at one end. An attacker guesses which of the two it was from a score,
and the guesses become a lower bound on epsilon that holds with a stated confidence. That cannot
prove privacy; it can disprove it.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from bagwise._types import FloatArray
from bagwise.auditor.guessing import rate_interval
from bagwise.files.records import Record
from bagwise.privacy.accounting import total_epsilon
from bagwise.privacy.mechanisms import Draw, Mechanism
from bagwise.rng import NoiseSource, SecureNoise

Verdict = Literal["refuted", "not refuted", "not tested"]

_NOT_TESTED: Verdict = "not tested"

USUAL_DELTA = 1e-6
"""At which a mechanism's epsilon is told where a certificate promises nothing."""


class MechanismAudit(Record, frozen=True):
    """The part of a mechanism's epsilon that an attack has demonstrated.

    Attributes
    ----------
    kind, hides : str
        Which mechanism, and what it hides.
    claimed : float or None
        Its epsilon by the accountant, at `delta`; None if that has no limit.
    shown : float or None
        With the confidence that was asked for, it is not less than this.
    verdict : {"refuted", "not refuted", "not tested"}
        Refuted if more was shown than is claimed. An attack that fails proves nothing.
    draws : int
        From each of the two tables.
    """

    kind: str
    hides: str
    claimed: float | None
    delta: float
    shown: float | None
    verdict: Verdict
    draws: int


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
    >>> from bagwise.privacy.calibrate import ExactCalibration
    >>> from bagwise.privacy.queries import BagMeans
    >>> rule = ExactCalibration(1.0, 0.0, (0.0, 1.0)).with_noise("laplace")
    >>> event = rule.least(BagMeans.of(rule.bounds))
    >>> audit, = audit_events([event], delta=0.0, draws=20_000, alpha=1e-6)
    >>> audit.verdict, 0.7 < audit.shown <= audit.claimed <= 1.0
    ('not refuted', True)
    """
    noise = source or SecureNoise()
    pairs = [event.neighbours(noise) for event in events]
    each = alpha / max(1, sum(map(len, pairs)))
    audits = []
    for event, worst in zip(events, pairs, strict=True):
        at = delta if event.pure_epsilon is None else 0.0
        claimed = total_epsilon([event], at) if event.pure_epsilon is None else event.epsilon
        found = [audit(*pair, delta=at, draws=draws, alpha=each).epsilon for pair in worst]
        shown, verdict = max(found, default=None), _NOT_TESTED
        if shown is not None:
            verdict = "refuted" if shown > claimed else "not refuted"
        audits.append(
            MechanismAudit(
                kind=event.kind,
                hides=event.hides,
                claimed=claimed if math.isfinite(claimed) else None,
                delta=at,
                shown=shown,
                verdict=verdict,
                draws=draws if found else 0,
            )
        )
    return audits


class Audit(NamedTuple):
    """The result of the attack.

    With confidence 1 - alpha the mechanism is not (less than `epsilon`, delta)-private. The
    attacker says "first data set" above the threshold; `hits` and `false_alarms` are the shares of
    such guesses on the first and on the second.
    """

    epsilon: float
    threshold: float
    hits: float
    false_alarms: float


def audit(first: Draw, second: Draw, *, delta: float, draws: int, alpha: float = 1e-3) -> Audit:
    """Bound epsilon from below by attacking draws from two neighbouring data sets.

    Parameters
    ----------
    first, second : callables
        Return that many independent scores; the attacker's score should grow with the likelihood
        ratio of the first to the second data set.
    delta : float
        The delta at which epsilon is claimed.
    draws : int
        Draws from each; half of them choose the threshold, the other half measure.
    alpha : float
        Chance of a wrong bound.

    References
    ----------
    Clopper and Pearson (1934) for the intervals; Jagielski, Ullman and Oprea (2020) for the audit.
    """
    half = draws // 2
    threshold = _best_threshold(first(half), second(half), delta)
    hits = int(np.sum(first(half) > threshold))
    false_alarms = int(np.sum(second(half) > threshold))
    epsilon = epsilon_lower_bound(hits, false_alarms, half, delta=delta, alpha=alpha)
    return Audit(epsilon, threshold, hits / half, false_alarms / half)


def epsilon_lower_bound(
    hits: int, false_alarms: int, draws: int, *, delta: float, alpha: float
) -> float:
    """Return a lower bound of epsilon from these counts, with confidence 1 - alpha.

    >>> round(epsilon_lower_bound(900, 100, 1000, delta=0.0, alpha=0.05), 2)
    1.99
    """
    rate, _ = rate_interval(hits, draws, alpha=alpha)
    _, alarm = rate_interval(false_alarms, draws, alpha=alpha)
    return max(0.0, math.log((rate - delta) / alarm)) if rate > delta else 0.0


def _best_threshold(first: FloatArray, second: FloatArray, delta: float) -> float:
    """Choose the threshold with the largest bound, if the counts were nearly exact."""
    candidates = np.unique(np.quantile(first, np.linspace(0.0, 0.9999, 400)))
    draws = first.size
    hits = draws - np.searchsorted(np.sort(first), candidates, side="right")
    alarms = draws - np.searchsorted(np.sort(second), candidates, side="right")
    bounds = [
        epsilon_lower_bound(int(h), int(a), draws, delta=delta, alpha=1e-3)
        for h, a in zip(hits, alarms, strict=True)
    ]
    return float(candidates[int(np.argmax(bounds))])
