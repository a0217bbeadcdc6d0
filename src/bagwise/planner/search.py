"""Which candidates to try, and how to rank them by regret.

Cheap bags are tried at every size, costly ones near the best.

The error of compact bags is a smooth function of their size with one valley. So every second size
is tried, and then the neighbours of the best. Where several strategies make compact bags, those
after the first are tried where the first is best: they start from its bags, and improve little.
Where all that has intervals would lose most of the signal, larger bags are tried as well. For
learners that are not linear there is one kind of bags (`flexible`).

No scenario of the prior is the truth. A choice that is best in one may be bad in the next: few
large bags are best where a linear model is right, and lead astray where it is not. So each choice
is judged by its regret in every scenario: which share of the signal's variance its error is, less
that of the best choice there. The mean of these over the scenarios ranks it.

A share of the signal, since that is what a release is judged by: how much of what the labels say a
model keeps. Ratios of errors would let a choice between a thousandth and two thousandths of the
signal, which nobody notices, outweigh one between a tenth and two tenths.

A mean, and not the largest regret: the latter depends on which other choices happen to be listed,
so that one more that nobody wants could swap the first two. To a mean the best of each scenario
adds the same for all.

Few bags are regretted for one thing more, which is in no scenario (`Prior.few_bags`).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging import BaggingStrategy, check_bag_size, find_strategy
from bagwise.errors import BagTooSmallError, StrategyError
from bagwise.planner import flexible
from bagwise.planner.belief import Prior, look_ahead
from bagwise.planner.candidates import SINGLY, Candidate, candidates_of, single_labels
from bagwise.planner.problem import FEWEST_BAGS, PlanProblem, grid, powers, title, usable
from bagwise.planner.ranking import Plan
from bagwise.planner.sample import Population, sample_rows
from bagwise.requests.answers import Answers
from bagwise.requests.provenance import FlexibleLearner, LeastRegret, NothingToPlan
from bagwise.requests.verbs import SMALLEST, Choice, ReleaseRequest
from bagwise.rows.table import Rows
from bagwise.show.stages import report_progress

HOPELESS = 0.5
"""Error of a choice, as a share of the signal's variance, from which on its intervals are no reason
to prefer it: they would be about a model that says next to nothing."""


def rank(problem: PlanProblem) -> Plan:
    """Rank what is asked for by its error on a sample of the features."""
    if problem.request.learner == "flexible":
        candidates = flexible.for_flexible(problem)
    else:
        found = _search(problem) + (single_labels(problem) if problem.single_labels else [])
        candidates = ranked(found, problem, intervals_first=not problem.are_named)
    if not candidates:
        raise StrategyError(
            "the planner knows no error for labels of this kind here. Name a strategy and a bag "
            "size, or label_kind='mean'."
        )
    return Plan(tuple(candidates), problem)


def _search(problem: PlanProblem) -> list[Candidate]:
    """Return the candidates that are worth a comparison."""
    n_rows, p = problem.sample.n_rows, problem.coefficients
    least = problem.request.min_bag_size or SMALLEST
    worthwhile = grid(n_rows=n_rows, coefficients=p, least=least)
    wanted, largest = problem.bag_sizes or worthwhile, worthwhile[-1]
    usual = usable(wanted, n_rows=n_rows, most=problem.max_bag_size)
    compact = [one for one in problem.strategies if one.compact and not one.uses_scores]
    tried: dict[tuple[str, int], list[Candidate]] = {}  # no bagging is tried twice

    def add(strategy: BaggingStrategy, sizes: Sequence[int]) -> list[Candidate]:
        """Try bags of a strategy at these sizes; return all that have been tried so far."""
        for size in sizes:
            if (title(strategy), size) not in tried:
                done = len(tried) / (len(usual) * len(problem.strategies))
                report_progress(f"{strategy.name} bags of {size}", done)
                tried[title(strategy), size] = list(candidates_of(problem, strategy, size))
        return [candidate for listed in tried.values() for candidate in listed]

    for strategy in sorted(problem.strategies, key=compact.__contains__):
        if strategy not in compact:
            add(strategy, usual[:1] if strategy.free_sizes else usual)
        elif strategy != compact[0] and not problem.are_named:
            add(strategy, [_best_size(compact[0], add(strategy, []), problem, usual[0])])
        elif problem.bag_sizes:
            add(strategy, usual)
        else:
            best = usual.index(_best_size(strategy, add(strategy, usual[::2]), problem, usual[0]))
            if is_hopeless(add(strategy, usual[max(0, best - 1) : best + 2]), problem):
                # Beyond the grid, as long as any bags are left.
                larger = [size for size in powers(n_rows // FEWEST_BAGS, least) if size > largest]
                add(strategy, larger)
    return [candidate for listed in tried.values() for candidate in listed]


def _best_size(
    strategy: BaggingStrategy, tried: list[Candidate], problem: PlanProblem, least: int
) -> int:
    """Return the size at which a strategy is best; the least where no noise is known for it."""
    own = [one for one in tried if one.bagging == strategy]
    return ranked(own, problem, intervals_first=True)[0].bag_size if own else least


def regrets(candidates: Sequence[Candidate], prior: Prior, *, classes: int = 1) -> FloatArray:
    """Return the mean regret of each candidate, as a share of the signal's variance."""
    scenarios = prior.scenarios()
    few = np.array([prior.few_bags * one.coefficients / one.n_bags for one in candidates])
    total = np.zeros(len(candidates))
    for name, believed in scenarios.items():
        # Without any signal the noise of labels is what an error can be compared with.
        scale = classes * (believed.signal_sd or believed.label_noise_sd) ** 2
        errors = np.array([candidate.scenarios[name] for candidate in candidates])
        total += (errors - errors.min(initial=np.inf)) / scale
    return np.asarray(total / len(scenarios) + few)


def is_hopeless(candidates: Sequence[Candidate], problem: PlanProblem) -> bool:
    """Return whether all candidates with intervals would lose most of the believed signal."""
    limit = HOPELESS * problem.numbers * problem.prior.signal_sd**2
    return all(one.predictions.total > limit for one in candidates if not one.few_bags)


def ranked(
    candidates: Sequence[Candidate], problem: PlanProblem, *, intervals_first: bool
) -> list[Candidate]:
    """Return the candidates by their regret, with intervals before all others if requested.

    Bags that nobody asked for by name must serve whoever fits a model to them, and intervals belong
    to that: few bags leave nothing to tell errors by. Where intervals leave no model to speak of,
    larger bags of the same kinds come with them: at a small epsilon the noise of many bags hides
    even the mean of the labels.
    """
    regret = regrets(candidates, problem.prior, classes=problem.numbers)
    hopeless = is_hopeless(candidates, problem)
    last = np.array(
        [
            intervals_first and (one.bagging.free_sizes if hopeless else one.few_bags)
            for one in candidates
        ]
    )
    return [candidates[i] for i in np.lexsort((regret, last))]


def decide(
    rows: Rows, request: ReleaseRequest, everyone: Population, answers: Answers | None = None
) -> Choice:
    """Return the planner's first choice among those with the requested kind of label.

    Features alone decide, and what private queries have told, which is paid for: answers are
    given where they came first. The rows may be a sample of everyone.
    """
    # 1. What is known of features and labels before any strategy is tried.
    size, kind, prior = request.bag_size, request.label_kind, None
    if size is not None:
        check_bag_size(size, n_rows=everyone.n_rows)
    asked = request
    if answers is not None:
        budget, prior = look_ahead(answers)
        asked = replace(request, budget=budget)
    problem = PlanProblem.of(
        sample_rows(rows, everyone),
        asked,
        prior=prior,
        bag_sizes=() if size is None else (size,),
        max_bag_size=everyone.smallest_stratum,
        label_kinds=(kind,),
    )
    # 2. For a learner that is not linear: the strategy of its kind, or no bags at all.
    if request.learner == "flexible":
        chosen = size or flexible.best_size(problem, kind)
        singly = problem.single_labels and request.may_report_singly
        if singly and (lost := flexible.lost_singly(problem)) < flexible.lost(problem, chosen):
            rule = request.budget.rule.with_noise(SINGLY)
            alone = replace(request, budget=replace(request.budget, calibration=rule))
            return alone.choose(find_strategy("random"), 1, "none", why=FlexibleLearner(lost))
        strategy = request.strategy or flexible.bags_for_flexible(problem)
        why = FlexibleLearner(noise_lost=flexible.noise_lost(problem, chosen, kind))
        return request.choose(strategy, chosen, request.scores, why=why)
    # 3. For a linear one: the choice of least regret, if anything is known of any.
    try:
        best = rank(problem).best
    except (BagTooSmallError, StrategyError) as error:
        if size is None or problem.are_named:
            raise
        cause = NothingToPlan(cause="rows" if isinstance(error, BagTooSmallError) else "labels")
        return request.choose(find_strategy("random"), size, "none", why=cause)
    belief = problem.prior
    reason = LeastRegret(
        rmse=float(best.rmse),
        loss=best.loss,
        signal_sd=float(belief.signal_sd),
        label_noise_sd=float(belief.label_noise_sd),
        factor=float(belief.factor),
        misfit=float(belief.misfit),
    )
    return request.choose(best.bagging, best.bag_size, best.scores, why=reason)
