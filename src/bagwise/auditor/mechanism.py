"""Redraw the noise of a mechanism at its own parameters, and see how much of its epsilon shows.

Each mechanism is drawn from on a pair of tables that differ in the labels of one protected unit and
are the worst for it: for noise on a number, one that moves by the whole sensitivity; for picks, a
bag whose other labels are all at one end. `privacy.audit` has the attack and its bound.
"""

import math
from collections.abc import Sequence
from typing import Literal

from bagwise.files.records import Record
from bagwise.privacy.accounting import total_epsilon
from bagwise.privacy.audit import Draw, audit
from bagwise.privacy.mechanisms import Mechanism
from bagwise.rng import NoiseSource, SecureNoise

Verdict = Literal["refuted", "not refuted", "not tested"]

USUAL_DELTA = 1e-6
"""At which a mechanism's epsilon is told where a certificate promises nothing."""


class MechanismAudit(Record, frozen=True):
    """How much of its epsilon one mechanism was shown to spend.

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
    >>> event = ExactCalibration(1.0, 0.0, (0.0, 1.0)).with_noise("laplace").bag_means()
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
    pure = event.pure_epsilon
    at = delta if pure is None else 0.0
    claimed = total_epsilon([event], delta) if pure is None else float(pure)
    shown = max(
        (audit(*pair, delta=at, draws=draws, alpha=alpha).epsilon for pair in pairs), default=None
    )
    verdict: Verdict = "not tested"
    if shown is not None:
        verdict = "refuted" if shown > claimed else "not refuted"
    return MechanismAudit(
        kind=event.kind,
        hides=event.hides,
        claimed=claimed if math.isfinite(claimed) else None,
        delta=at,
        shown=shown,
        verdict=verdict,
        draws=0 if shown is None else draws,
    )
