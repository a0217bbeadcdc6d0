"""What "auto" means in a release: the planner's first choice, and a sentence that says why."""

from bagwise.bagging import check_bag_size, find_strategy
from bagwise.engines import Rows
from bagwise.errors import BagTooSmallError, StrategyError
from bagwise.planner import Candidate, Plan, rank
from bagwise.planner.request import PlanRequest
from bagwise.planner.sample import sample_rows
from bagwise.release.provenance import LeastRegret, NothingToPlan
from bagwise.release.request import Choice, ReleaseRequest


def decide(rows: Rows, request: ReleaseRequest) -> Choice:
    """Return the planner's first choice among those with the kind of label that is asked for.

    Unless they are named, strategies that sort or that make few large bags are not tried, since
    they leave a fit without intervals, and come after all others in a plan. Features alone decide.
    """
    size = request.bag_size
    if size is not None:
        check_bag_size(size, n_rows=rows.num_rows)
    names = request.columns.features_in(rows)
    # Columns may be refused here; only then are strategies tried, and their kernels compiled.
    sample = sample_rows(rows, request.columns, request.budget, names=names)
    asked = _asked(request)
    try:
        found = rank(sample, asked)
    except (BagTooSmallError, StrategyError) as error:
        if size is None or asked.are_named:
            raise
        cause = NothingToPlan(cause="rows" if isinstance(error, BagTooSmallError) else "labels")
        return request.choose(find_strategy("random"), size, "none", why=cause)
    best = found.best
    return request.choose(
        best.bagging,
        best.bag_size,
        best.scores,
        score_share=best.score_share,
        why=_why(best, found),
    )


def _asked(request: ReleaseRequest) -> PlanRequest:
    size, classes = request.bag_size, request.columns.classes
    named = request.strategies if request.strategy is None else (request.strategy,)
    return PlanRequest.of(
        request.budget,
        family=request.family,
        classes=None if classes is None else len(classes),
        bag_sizes=None if size is None else [size],
        min_bag_size=request.min_bag_size,
        strategies=named,
        scored=False,
        free_sizes=False,
        label_kinds=(request.label_kind,),
    )


def _why(best: Candidate, found: Plan) -> LeastRegret:
    return LeastRegret(
        rmse=float(best.rmse),
        loss=best.loss,
        signal_sd=float(found.prior.signal_sd),
        label_noise_sd=float(found.prior.label_noise_sd),
        factor=float(found.prior.factor),
        misfit=float(found.prior.misfit),
    )
