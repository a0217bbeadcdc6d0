"""What "auto" means in a release: the planner's first choice, and a sentence that says why."""

from dataclasses import replace

from bagwise.bagging import check_bag_size, find_strategy
from bagwise.errors import BagTooSmallError, StrategyError
from bagwise.planner.flexible import SINGLY, FlexibleProblem, bags_for_flexible
from bagwise.planner.prior import Prior
from bagwise.planner.problem import Problem
from bagwise.planner.request import PlanRequest
from bagwise.planner.sample import Population, sample_rows
from bagwise.planner.search import problem_of, rank
from bagwise.requests.columns import read_given
from bagwise.requests.provenance import FlexibleLearner, LeastRegret, NothingToPlan
from bagwise.requests.queries import Outlook
from bagwise.requests.verbs import SMALLEST, Choice, ReleaseRequest
from bagwise.rows import Rows


def decide(
    rows: Rows,
    request: ReleaseRequest,
    outlook: Outlook | None = None,
    population: Population | None = None,
) -> Choice:
    """Return the planner's first choice among those with the kind of label that is asked for.

    An outlook has what private looks at the labels have told; it is paid for. A population is given
    where `rows` are a sample of it.

    Unless they are named, strategies that sort or that make few large bags are not tried, since
    they leave a fit without intervals, and come after all others in a plan. Features alone decide.
    """
    size = request.bag_size
    if size is not None:
        n_rows = rows.num_rows if population is None else population.n_rows
        check_bag_size(size, n_rows=n_rows)
    if population is None:
        most = read_given(rows, by=(), within=request.columns.within).smallest_stratum
        names = request.columns.features_in(rows)
    else:
        most, names = population.smallest_stratum, list(population.names)
    # Columns may be refused here; only then are strategies tried, and their kernels compiled.
    sample = sample_rows(rows, request.columns, request.budget, names=names, population=population)
    asked = _asked(request, outlook, most)
    if request.learner == "flexible":
        singly = asked.single_labels and request.may_report_singly
        return _for_flexible(problem_of(sample, asked), request, most, singly=singly)
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
        why=LeastRegret(
            rmse=float(best.rmse),
            loss=best.loss,
            signal_sd=float(found.prior.signal_sd),
            label_noise_sd=float(found.prior.label_noise_sd),
            factor=float(found.prior.factor),
            misfit=float(found.prior.misfit),
        ),
    )


def _for_flexible(
    problem: Problem, request: ReleaseRequest, most: int | None, *, singly: bool
) -> Choice:
    """Return bags for a learner that is not linear, or single labels where these lose less."""
    sized = FlexibleProblem.of(problem, request.label_kind)
    least = SMALLEST if request.min_bag_size is None else request.min_bag_size
    size = request.bag_size or sized.best_size(least=least, most=most)
    if singly and (lost := sized.lost_singly()) < sized.lost(size):
        alone = request.reporting_singly(SINGLY)
        return alone.choose(find_strategy("random"), 1, "none", why=FlexibleLearner(lost))
    strategy = request.strategy or bags_for_flexible(problem)
    why = FlexibleLearner(noise_lost=sized.noise_lost(size))
    return request.choose(strategy, size, request.scores, why=why)


def _asked(request: ReleaseRequest, outlook: Outlook | None, most: int | None) -> PlanRequest:
    size, classes, budget = request.bag_size, request.columns.classes, request.budget
    named = request.strategies if request.strategy is None else (request.strategy,)
    prior = None
    if outlook is not None:
        budget = replace(budget, calibration=outlook.rule, bounds=outlook.rule.bounds)
        if outlook.belief is not None:
            # A private model has told what labels are like; a fit has the less to find out.
            signal_sd, label_noise_sd, misfit = outlook.belief
            prior = Prior(signal_sd, label_noise_sd, misfit=misfit, few_bags=0.0)
    if request.learner == "flexible":
        named = None
    return PlanRequest.of(
        budget,
        prior=prior,
        family=request.family,
        classes=None if classes is None else len(classes),
        bag_sizes=None if size is None else [size],
        min_bag_size=request.min_bag_size,
        strategies=named,
        scored=False,
        label_kinds=(request.label_kind,),
        max_bag_size=most,
        learner=request.learner,
    )
