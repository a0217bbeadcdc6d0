"""What a release may promise, and the circumstances that belong beside it."""

from dataclasses import dataclass

from bagwise.bagging.bags import Bags
from bagwise.privacy import Certificate
from bagwise.privacy.calibrate import Calibration
from bagwise.privacy.circumstances import Circumstance, OtherRule, SimulatedNoise
from bagwise.privacy.mechanisms import Mechanism
from bagwise.release.request import Choice
from bagwise.release.verify import circumstances_of
from bagwise.rng import NoiseSource


@dataclass(frozen=True)
class Promise:
    """What the certificate may claim."""

    epsilon: float | None
    delta: float | None
    circumstances: tuple[Circumstance, ...] = ()


def make_promise(calibration: Calibration | None, noise: NoiseSource) -> Promise:
    """Return what may be claimed: nothing without a calibration, secret noise and exact rules."""
    if calibration is None:
        return Promise(None, None)
    if not noise.is_secret:
        return Promise(None, None, (SimulatedNoise(),))
    if not calibration.is_exact:
        rule = OtherRule(epsilon=float(calibration.epsilon), delta=float(calibration.delta))
        return Promise(None, None, (rule,))
    return Promise(calibration.epsilon, calibration.delta)


def certify_bags(
    events: tuple[Mechanism, ...], choice: Choice, bags: Bags, *, unit_rows: int
) -> Certificate:
    """Return the certificate of a release, checked against its own events."""
    promise = make_promise(choice.calibration, choice.noise)
    certificate = Certificate(
        epsilon=promise.epsilon,
        delta=promise.delta,
        bounds=choice.calibration.bounds if choice.calibration else choice.bounds,
        events=events,
        smallest_bag=int(bags.sizes.min()),
        noise_source=choice.noise.name if events else "none",
        unit=choice.columns.unit if choice.calibration else None,
        unit_rows=unit_rows if choice.calibration else 1,
        circumstances=(
            *promise.circumstances,
            *circumstances_of(scores=choice.scores, kept_order=choice.keep_order),
        ),
    )
    certificate.check()
    return certificate


def certify_loss(
    events: tuple[Mechanism, ...],
    calibration: Calibration,
    noise: NoiseSource,
    *,
    unit: str | None,
    unit_rows: int,
    circumstances: tuple[Circumstance, ...],
) -> Certificate:
    """Return the certificate of a mean loss, checked against its own events."""
    promise = make_promise(calibration, noise)
    certificate = Certificate(
        epsilon=promise.epsilon,
        delta=promise.delta,
        bounds=calibration.bounds,
        events=events,
        smallest_bag=None,
        noise_source=noise.name,
        unit=unit,
        unit_rows=unit_rows,
        circumstances=(*promise.circumstances, *circumstances),
    )
    certificate.check()
    return certificate
