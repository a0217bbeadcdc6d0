"""What a release may promise, and the circumstances that belong beside it."""

from bagwise.privacy import Certificate
from bagwise.privacy.accounting import delivered
from bagwise.privacy.circumstances import Circumstance, OtherRule, SimulatedNoise
from bagwise.privacy.mark import Mark
from bagwise.privacy.mechanisms import Mechanism
from bagwise.requests.budget import Budget
from bagwise.rows.labels import Bounds


def certify(
    events: tuple[Mechanism, ...],
    budget: Budget,
    *,
    unit_rows: int,
    smallest_bag: int | None = None,
    tightened: Bounds | None = None,
    limit: float | None = None,
    circumstances: tuple[Circumstance, ...] = (),
    mark: Mark | None = None,
) -> Certificate:
    """Return the certificate of whatever spent a budget, checked against its own events."""
    rule, why_not = budget.calibration, _why_no_promise(budget)
    asked = None if why_not or rule is None else (rule.epsilon, rule.delta)
    epsilon, delta = (None, None) if asked is None else delivered(events, *asked)
    certificate = Certificate(
        epsilon=epsilon,
        delta=delta,
        bounds=None
        if budget.bounds is None
        else (float(budget.bounds[0]), float(budget.bounds[1])),
        events=events,
        smallest_bag=smallest_bag,
        noise_source=budget.noise_source.name if events else "none",
        unit=None if rule is None else budget.unit,
        unit_rows=1 if rule is None else unit_rows,
        circumstances=(*why_not, *circumstances),
        asked_epsilon=None if asked is None else asked[0],
        asked_delta=None if asked is None else asked[1],
        tightened=tightened,
        limit=limit,
        # What promises nothing spends nothing that could be named, and repeats where its seed does.
        mark=None if asked is None else mark or Mark.new(),
    )
    certificate.check()
    return certificate


def _why_no_promise(budget: Budget) -> tuple[Circumstance, ...]:
    """Return why nothing is claimed: the noise, or the rule for it, is for experiments."""
    rule = budget.calibration
    if rule is None or (rule.is_exact and budget.noise_source.is_secret):
        return ()
    if not budget.noise_source.is_secret:
        return (SimulatedNoise(),)
    return (OtherRule(epsilon=float(rule.epsilon), delta=float(rule.delta)),)
