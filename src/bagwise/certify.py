"""What a release may promise, and the remarks that belong beside it."""

from dataclasses import dataclass

from bagwise.bags import Bags
from bagwise.choice import Choice
from bagwise.privacy import Certificate, total_epsilon
from bagwise.privacy.calibrate import Calibration
from bagwise.privacy.certificate import exact
from bagwise.privacy.events import Event
from bagwise.rng import NoiseSource
from bagwise.scores import ScoresKind


@dataclass(frozen=True)
class Promise:
    """What the certificate may claim."""

    epsilon: float | None
    delta: float | None
    remarks: tuple[str, ...] = ()


def make_promise(
    calibration: Calibration | None, noise: NoiseSource, events: tuple[Event, ...]
) -> Promise:
    """Return what may be claimed: nothing without a calibration, secret noise and exact rules."""
    if calibration is None:
        return Promise(None, None)
    if not noise.is_secret:
        return Promise(
            None, None, ("The noise is simulated from a seed: who knows it removes it.",)
        )
    if not calibration.is_exact:
        true = total_epsilon(events, calibration.delta)
        return Promise(
            None,
            None,
            (
                f"The noise was set by another rule for epsilon {exact(calibration.epsilon)} and "
                f"delta {exact(calibration.delta)}. At that delta its true epsilon is {true:.6g}.",
            ),
        )
    return Promise(calibration.epsilon, calibration.delta)


def certify_bags(events: tuple[Event, ...], choice: Choice, bags: Bags) -> Certificate:
    """Return the certificate of a release, checked against its own events."""
    promise = make_promise(choice.calibration, choice.noise, events)
    certificate = Certificate(
        epsilon=promise.epsilon,
        delta=promise.delta,
        bounds=choice.calibration.bounds if choice.calibration else choice.bounds,
        events=events,
        smallest_bag=int(bags.sizes.min()),
        noise_source=choice.noise.name if events else "none",
        unit=choice.columns.unit if choice.calibration else None,
        remarks=(
            *promise.remarks,
            *delta_remark(promise.delta, bags.n_rows),
            *_leak_remark(choice.scores),
            *_order_remarks(choice),
        ),
    )
    certificate.check()
    return certificate


def certify_loss(
    events: tuple[Event, ...],
    calibration: Calibration,
    noise: NoiseSource,
    *,
    unit: str | None,
    remarks: tuple[str, ...],
) -> Certificate:
    """Return the certificate of a mean loss, checked against its own events."""
    promise = make_promise(calibration, noise, events)
    certificate = Certificate(
        epsilon=promise.epsilon,
        delta=promise.delta,
        bounds=calibration.bounds,
        events=events,
        smallest_bag=None,
        noise_source=noise.name,
        unit=unit,
        remarks=(*promise.remarks, *remarks),
    )
    certificate.check()
    return certificate


def delta_remark(delta: float | None, n_rows: int) -> tuple[str, ...]:
    """Say it in words when delta is above 1/n."""
    if delta is None or delta <= 1 / n_rows:
        return ()
    return (
        f"delta = {delta:g} is above 1/n: on its own terms the promise would allow showing "
        "one of the n labels outright. Choose delta well below 1/n.",
    )


def _leak_remark(scores: ScoresKind) -> tuple[str, ...]:
    if scores != "labels":
        return ()
    return ("Rows were put into bags by sorting their labels: membership alone tells the labels.",)


def _order_remarks(choice: Choice) -> tuple[str, ...]:
    remarks = []
    if choice.keep_order:
        remarks.append(
            "Rows are in the order of the source table. If that order depends on the labels, it "
            "tells about them, and nothing here protects against that."
        )
    if choice.seed is not None:
        remarks.append(
            "The partition comes from a public seed, which tells which positions of the source "
            "table share a bag. If that order depends on the labels, so does this."
        )
    return tuple(remarks)
