"""Which candidates are worth their time, and which of them to regret least.

Cheap bags are tried at every size, costly ones near the best.

The error of compact bags is a smooth function of their size with one valley. So every second size
is tried, and then the neighbours of the best. Where several strategies make compact bags, those
after the first are tried where the first is best: they start from its bags, and improve little.
Where all that has intervals would lose most of the signal, larger bags are tried as well. Bags
sorted by a private model, which come last unless they are named, are tried at every second
size. For learners that are not linear there is one kind of bags (`flexible`).

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
from bagwise.planner.candidates import Candidate, by_model, label_agnostic, single_labels
from bagwise.planner.flexible import SINGLY, FlexibleProblem, bags_for_flexible
from bagwise.planner.problem import Problem, title
from bagwise.planner.ranking import Plan
from bagwise.planner.request import PlanRequest, Prior, grid, usable, without_intervals
from bagwise.planner.sample import Population, Sample, sample_rows
from bagwise.requests.columns import read_given
from bagwise.requests.provenance import FlexibleLearner, LeastRegret, NothingToPlan
from bagwise.requests.queries import Outlook
from bagwise.requests.verbs import SMALLEST, Choice, ReleaseRequest
from bagwise.rows import Rows
from bagwise.show.stages import report_progress

HOPELESS = 0.5
"""Error of a choice, as a share of the signal's variance, from which on its intervals are no reason
to prefer it: they would be about a model that says next to nothing."""


def rank(sample: Sample, request: PlanRequest) -> Plan:
    """Rank what is asked for by its error on a sample of the features."""
    problem = problem_of(sample, request)
    found = find_candidates(problem, request)
    if not found:
        raise StrategyError(
            "the planner knows no error for labels of this kind here. Name a strategy and a bag "
            "size, or label_kind='mean'."
        )
    candidates = tuple(found)
    if request.learner == "linear":
        candidates = ranked(
            found,
            request.prior,
            intervals_first=not request.are_named,
            classes=request.classes or 1,
        )
    bounds, family = request.budget.bounds, request.family.name
    return Plan(candidates, problem, bounds, family, learner=request.learner)


def problem_of(sample: Sample, request: PlanRequest) -> Problem:
    """Return what a plan is made for."""
    return Problem(sample, request.prior, request.rule, request.classes, request.effort)


def find_candidates(problem: Problem, request: PlanRequest) -> list[Candidate]:
    """Return what is worth a comparison."""
    if request.learner == "flexible":
        return _for_flexible(problem, request)
    sizes = _sizes(problem, request)
    compact = [s for s in request.strategies if s.compact and not s.uses_scores]
    others = [s for s in request.strategies if s not in compact]
    search = _Search(problem, request, expected=len(sizes) * len(request.strategies))
    for strategy in others:
        step = 2 if strategy.uses_scores and not request.are_named else 1
        search.try_sizes(strategy, sizes[:1] if strategy.free_sizes else sizes[::step])
    for place, strategy in enumerate(compact):
        if place and not request.are_named:
            search.try_sizes(strategy, [search.best_size(compact[0])])
        elif request.bag_sizes:
            search.try_sizes(strategy, sizes)
        else:
            search.try_sizes(strategy, sizes[::2])
            best = sizes.index(search.best_size(strategy))
            search.try_sizes(strategy, sizes[max(0, best - 1) : best + 2])
            if search.is_hopeless:
                few_bags = without_intervals(
                    n_rows=problem.sample.n_rows,
                    coefficients=problem.coefficients,
                    least=request.min_bag_size,
                )
                search.try_sizes(strategy, few_bags)
    if request.single_labels:
        search.found.extend(single_labels(problem))
    return search.found


def _for_flexible(problem: Problem, request: PlanRequest) -> list[Candidate]:
    """Return bags for learners that are not linear, at the best size and those next to it.

    Single labels are among them where they may be.

    They are in the order of what such a learner should lose; such learners have bag loss.
    """
    flexible, most = FlexibleProblem.of(problem), request.max_bag_size
    sizes = usable(request.bag_sizes or (1,), n_rows=problem.sample.n_rows, most=most)
    if not request.bag_sizes:
        sizes = flexible.sizes(least=request.min_bag_size, most=most)
        best = sizes.index(min(sizes, key=flexible.lost))
        sizes = sizes[max(0, best - 1) : best + 2]
    search = _Search(problem, request, expected=len(sizes))
    search.try_sizes(bags_for_flexible(problem), sizes)
    found = [one for one in search.found if one.loss == "bag" and one.label_kind == "mean"]
    ranks = {id(one): flexible.lost(one.bag_size) for one in found}
    if request.single_labels:
        alone = [one for one in single_labels(problem) if one.noise == SINGLY]
        ranks |= {id(one): flexible.lost_singly() for one in alone}
        found += alone
    return sorted(found, key=lambda one: ranks[id(one)])


def _sizes(problem: Problem, request: PlanRequest) -> list[int]:
    n_rows, least = problem.sample.n_rows, request.min_bag_size
    named = request.bag_sizes
    wanted = named or grid(n_rows=n_rows, coefficients=problem.coefficients, least=least)
    return usable(wanted, n_rows=n_rows, most=request.max_bag_size)


class _Search:
    """Candidates so far; no bagging is tried twice."""

    def __init__(self, problem: Problem, request: PlanRequest, *, expected: int) -> None:
        self.problem, self.request, self.expected = problem, request, expected
        self.found: list[Candidate] = []
        self._tried: set[tuple[str, int]] = set()

    def try_sizes(self, strategy: BaggingStrategy, sizes: Sequence[int]) -> None:
        """Add every use of the bags of a strategy at these sizes."""
        way = by_model if strategy.uses_scores else label_agnostic
        for size in sizes:
            key = (title(strategy), size)
            if key in self._tried:
                continue
            report_progress(f"{strategy.name} bags of {size}", len(self._tried) / self.expected)
            self._tried.add(key)
            self.found.extend(way(self.problem, strategy, size, self.request.label_kinds))

    @property
    def is_hopeless(self) -> bool:
        """Whether nothing so far that has intervals keeps much of the signal."""
        classes = self.problem.classes or 1
        return is_hopeless(self.found, self.problem.prior, classes=classes)

    def best_size(self, strategy: BaggingStrategy) -> int:
        """Return the size at which a strategy that was tried is best."""
        own = [candidate for candidate in self.found if candidate.bagging == strategy]
        if not own:  # no noise is known for it at any size
            return min(size for _, size in self._tried)
        classes = self.problem.classes or 1
        return ranked(own, self.problem.prior, intervals_first=True, classes=classes)[0].bag_size


def regrets(candidates: Sequence[Candidate], prior: Prior, *, classes: int = 1) -> FloatArray:
    """Return the mean regret of each candidate, a share of the signal's variance."""
    scenarios = prior.scenarios()
    few = np.array([prior.few_bags * one.coefficients / one.n_bags for one in candidates])
    total = np.zeros(len(candidates))
    for name, believed in scenarios.items():
        # Without any signal the noise of labels is what an error can be compared with.
        scale = classes * (believed.signal_sd or believed.label_noise_sd) ** 2
        errors = np.array([candidate.scenarios[name] for candidate in candidates])
        total += (errors - errors.min()) / scale
    return np.asarray(total / len(scenarios) + few)


def is_hopeless(candidates: Sequence[Candidate], prior: Prior, *, classes: int = 1) -> bool:
    """Tell whether whatever has intervals would lose most of a signal as it is believed to be."""
    limit = HOPELESS * classes * prior.signal_sd**2
    return all(
        candidate.predictions.total > limit for candidate in candidates if candidate.intervals
    )


def ranked(
    candidates: Sequence[Candidate], prior: Prior, *, intervals_first: bool, classes: int = 1
) -> tuple[Candidate, ...]:
    """Return the candidates by their regret, those with intervals before all others if asked for.

    Bags that nobody asked for by name must serve whoever fits a model to them, and intervals belong
    to that. Few bags leave nothing to tell errors by, and instance loss has a bias that is in no
    interval. Where intervals leave no model to speak of, larger bags of the same kinds come with
    them: at a small epsilon the noise of many bags hides even the mean of the labels.
    """
    regret = regrets(candidates, prior, classes=classes)
    hopeless = is_hopeless(candidates, prior, classes=classes)
    last = np.array(
        [
            intervals_first and not (one.could_have_intervals if hopeless else one.intervals)
            for one in candidates
        ]
    )
    return tuple(candidates[i] for i in np.lexsort((regret, last)))


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
        return _choose_for_flexible(problem_of(sample, asked), request, most, singly=singly)
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


def _choose_for_flexible(
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
