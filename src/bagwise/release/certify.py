"""What a release may promise, and the circumstances that belong beside it."""

from dataclasses import dataclass

from bagwise.privacy import Certificate
from bagwise.privacy.circumstances import Circumstance, OtherRule, SimulatedNoise
from bagwise.privacy.mechanisms import Mechanism
from bagwise.release.request import Budget


@dataclass(frozen=True)
class Promise:
    """What the certificate may claim."""

    epsilon: float | None
    delta: float | None
    circumstances: tuple[Circumstance, ...] = ()


def make_promise(budget: Budget) -> Promise:
    """Return what may be claimed: nothing without a calibration, secret noise and exact rules."""
    calibration = budget.calibration
    if calibration is None:
        return Promise(None, None)
    if not budget.noise.is_secret:
        return Promise(None, None, (SimulatedNoise(),))
    if not calibration.is_exact:
        rule = OtherRule(epsilon=float(calibration.epsilon), delta=float(calibration.delta))
        return Promise(None, None, (rule,))
    return Promise(calibration.epsilon, calibration.delta)


def certify(
    events: tuple[Mechanism, ...],
    budget: Budget,
    *,
    unit_rows: int,
    smallest_bag: int | None = None,
    circumstances: tuple[Circumstance, ...] = (),
) -> Certificate:
    """Return the certificate of whatever spent a budget, checked against its own events."""
    promise, hidden = make_promise(budget), budget.calibration is not None
    certificate = Certificate(
        epsilon=promise.epsilon,
        delta=promise.delta,
        bounds=budget.bounds,
        events=events,
        smallest_bag=smallest_bag,
        noise_source=budget.noise.name if events else "none",
        unit=budget.unit if hidden else None,
        unit_rows=unit_rows if hidden else 1,
        circumstances=(*promise.circumstances, *circumstances),
    )
    certificate.check()
    return certificate
