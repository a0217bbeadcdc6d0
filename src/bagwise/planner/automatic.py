"""What "auto" means in a release: the planner's first choice, and a sentence that says why."""

import numpy as np

from bagwise.bagging import BaggingStrategy, check_bag_size, find_strategy
from bagwise.engines import Rows
from bagwise.errors import BagTooSmallError, StrategyError
from bagwise.planner import Candidate, Plan, rank
from bagwise.planner.candidates import planned
from bagwise.planner.request import PlanRequest
from bagwise.release.provenance import LeastError, LeavesOut, NothingToPlan
from bagwise.release.request import Choice, ReleaseRequest
from bagwise.rng import SecureNoise

_SEED = 0
MOST_ROWS = 10_000  # bags are compared on so many rows: a release should not wait for its plan


def decide(rows: Rows, request: ReleaseRequest) -> Choice:
    """Return the planner's first choice among those with the kind of label that is asked for.

    Where the bag size is given, only strategies that make bags of about that size are asked:
    whoever names a size expects so many bags. Features alone decide.
    """
    size = request.bag_size
    if size is not None:
        check_bag_size(size, n_rows=rows.num_rows)
    try:
        found = _plan(rows, request)
    except (BagTooSmallError, StrategyError):
        if size is None:
            raise
        return _random(request, size, NothingToPlan(cause="rows"))
    fitting = [
        candidate for candidate in found.candidates if candidate.label_kind == request.label_kind
    ]
    if not fitting and size is not None:
        return _random(request, size, NothingToPlan(cause="labels"))
    if not fitting:
        raise StrategyError(
            f"the planner knows no way to release {request.label_kind} labels here. Name a "
            "strategy and a bag size, or label_kind='mean'."
        )
    best = fitting[0]
    return request.choose(
        find_strategy(best.strategy),
        best.bag_size,
        best.scores,
        score_share=best.score_share,
        why=_why(best, found, _leaves_out(request)),
    )


def _random(request: ReleaseRequest, size: int, why: NothingToPlan) -> Choice:
    return request.choose(find_strategy("random"), size, "none", why=why)


def _plan(rows: Rows, request: ReleaseRequest) -> Plan:
    columns, size = request.columns, request.bag_size
    names = columns.features_in(rows)
    order = rows.feature_order(names, SecureNoise())
    # The same rows every time, so that no choice depends on luck; the features alone decide which.
    sample = np.sort(np.random.default_rng(_SEED).permutation(rows.num_rows)[:MOST_ROWS])
    X = columns.encoder_for(rows, names).transform(rows.take(order[sample]))
    asked = PlanRequest.of(
        request.budget,
        family="gaussian" if columns.classes is None else "bernoulli",
        bag_sizes=None if size is None else [size],
        strategies=_strategies(request),
        effort="fast",
    )
    return rank(X, asked, n_rows=rows.num_rows)


def _strategies(request: ReleaseRequest) -> list[BaggingStrategy]:
    rule, free = request.budget.calibration, request.bag_size is None
    sortable = request.scores == "auto" and request.columns.classes is None
    scored = sortable and free and rule is not None and rule.delta > 0
    return planned(scored=scored, free_sizes=free)


def _leaves_out(request: ReleaseRequest) -> LeavesOut:
    """Say what the planner's figure does not account for."""
    if request.budget.unit is not None and request.budget.calibration is not None:
        return "units"
    return "nothing" if request.columns.classes is None else "classes"


def _why(best: Candidate, found: Plan, leaves_out: LeavesOut) -> LeastError:
    return LeastError(
        rmse=float(best.rmse),
        loss=best.loss,
        signal_sd=float(found.prior.signal_sd),
        label_noise_sd=float(found.prior.label_noise_sd),
        factor=float(found.prior.factor),
        leaves_out=leaves_out,
    )
