"""Which candidates are worth their time: cheap bags at every size, costly ones near the best.

The error of compact bags is a smooth function of their size with one valley. So every second size
is tried, and then the neighbours of the best. Where several strategies make compact bags, those
after the first are tried where the first is best: they start from its bags, and improve little.
Where all that has intervals would lose most of the signal, larger bags are tried as well. Bags
sorted by a private model, which come last unless they are named, are tried at every second
size. For learners that are not linear there is one kind of bags (`flexible`).
"""

from collections.abc import Sequence

from bagwise.bagging import BaggingStrategy
from bagwise.planner.candidates import Candidate, by_model, label_agnostic
from bagwise.planner.flexible import SINGLY, FlexibleProblem, bags_for_flexible
from bagwise.planner.problem import Problem, title
from bagwise.planner.regret import is_hopeless, ranked
from bagwise.planner.request import PlanRequest
from bagwise.planner.single_labels import single_labels
from bagwise.planner.sizes import grid, usable, without_intervals
from bagwise.show.stages import report_progress


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
