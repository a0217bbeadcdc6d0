"""Redraw the noise of a mechanism at its own parameters, and see how much of its epsilon shows.

Each mechanism is drawn from on a pair of tables that differ in the labels of one protected unit and
are the worst for it: for noise on a number, one that moves by the whole sensitivity; for picks, a
bag whose other labels are all at one end. `privacy.audit` has the attack and its bound.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from bagwise.errors import BudgetError, check_name
from bagwise.privacy.accounting import total_epsilon
from bagwise.privacy.audit import Draw, audit
from bagwise.privacy.calibrate import ExactCalibration
from bagwise.privacy.mechanisms import Mechanism
from bagwise.rng import NoiseSource, SecureNoise
from bagwise.rows.labels import Bounds

Verdict = Literal["refuted", "not refuted", "not tested"]

USUAL_DELTA = 1e-6
"""At which a mechanism's epsilon is told where a certificate promises nothing."""


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
    >>> audit, = audit_events([event], delta=0.0, draws=20_000, alpha=1e-6)
    >>> audit.verdict, 0.7 < audit.shown <= audit.claimed <= 1.0
    ('not refuted', True)
    """
    noise = source or SecureNoise()
    pairs = [event.neighbours(noise) for event in events]
    each = alpha / max(1, sum(map(len, pairs)))
    return [
        _audit_one(event, pair, delta=delta, draws=draws, alpha=each)
        for event, pair in zip(events, pairs, strict=True)
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

    >>> mechanism_for("randomised-response-class-picks", epsilon=1.0, bag_size=10).hides
    'class picks'
    """
    rule = ExactCalibration(epsilon, delta, bounds)

    def by(noise: str) -> ExactCalibration:
        return rule.with_noise(noise)

    makers: dict[str, Callable[[], Mechanism]] = {
        "gaussian-bag-means": lambda: by("gaussian").bag_means(),
        "laplace-bag-means": lambda: by("laplace").bag_means(),
        "staircase-bag-means": lambda: by("staircase").bag_means(),
        "gaussian-bag-picks": lambda: by("gaussian").picks(sizes=[bag_size]),
        "laplace-bag-picks": lambda: by("laplace").picks(sizes=[bag_size]),
        "randomised-response-class-picks": lambda: rule.class_picks(
            classes=classes, sizes=[bag_size]
        ),
        "unbiased-single-labels": lambda: rule.single_labels("unbiased"),
        "gaussian-labels": lambda: by("gaussian").labels(share=1.0),
        "laplace-labels": lambda: by("laplace").labels(share=1.0),
    }
    check_name("mechanism", kind, makers, BudgetError)
    return makers[kind]()
