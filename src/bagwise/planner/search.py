"""Which candidates are worth their time: cheap bags at every size, costly ones near the best.

The error of compact bags is a smooth function of their size with one valley. So every second size
is tried, and then the neighbours of the best. Where several strategies make compact bags, those
after the first are tried where the first is best: they start from its bags, and improve little.
Bags sorted by a private model, which come last unless they are named, are tried at every second
size.
"""

from collections.abc import Sequence

from bagwise.bagging import BaggingStrategy, traits_of
from bagwise.planner.candidates import Candidate, label_agnostic, sorted_by_model
from bagwise.planner.problem import Problem, title
from bagwise.planner.regret import ranked
from bagwise.planner.request import PlanRequest
from bagwise.planner.sizes import grid, usable
from bagwise.show.stages import report_progress


def find_candidates(problem: Problem, request: PlanRequest) -> list[Candidate]:
    """Return what is worth a comparison."""
    sizes = _sizes(problem, request)
    compact = [s for s in request.strategies if traits_of(s).compact and not s.uses_scores]
    others = [s for s in request.strategies if s not in compact]
    search = _Search(problem, request, expected=len(sizes) * len(request.strategies))
    for strategy in others:
        step = 2 if strategy.uses_scores and not request.are_named else 1
        search.try_sizes(strategy, sizes[:1] if traits_of(strategy).free_sizes else sizes[::step])
    for place, strategy in enumerate(compact):
        if place and not request.are_named:
            search.try_sizes(strategy, [search.best_size(compact[0])])
        elif request.bag_sizes:
            search.try_sizes(strategy, sizes)
        else:
            search.try_sizes(strategy, sizes[::2])
            best = sizes.index(search.best_size(strategy))
            search.try_sizes(strategy, sizes[max(0, best - 1) : best + 2])
    return search.found


def _sizes(problem: Problem, request: PlanRequest) -> list[int]:
    n_rows, least = problem.sample.n_rows, request.min_bag_size
    named = request.bag_sizes
    wanted = named or grid(n_rows=n_rows, coefficients=problem.coefficients, least=least)
    return usable(wanted, n_rows=n_rows)


class _Search:
    """Candidates so far; no bagging is tried twice."""

    def __init__(self, problem: Problem, request: PlanRequest, *, expected: int) -> None:
        self.problem, self.request, self.expected = problem, request, expected
        self.found: list[Candidate] = []
        self._tried: set[tuple[str, int]] = set()

    def try_sizes(self, strategy: BaggingStrategy, sizes: Sequence[int]) -> None:
        """Add every use of the bags of a strategy at these sizes."""
        way = sorted_by_model if strategy.uses_scores else label_agnostic
        for size in sizes:
            key = (title(strategy), size)
            if key in self._tried:
                continue
            report_progress(f"{strategy.name} bags of {size}", len(self._tried) / self.expected)
            self._tried.add(key)
            self.found.extend(way(self.problem, strategy, size, self.request.label_kinds))

    def best_size(self, strategy: BaggingStrategy) -> int:
        """Return the size at which a strategy that was tried is best."""
        own = [candidate for candidate in self.found if candidate.bagging == strategy]
        if not own:  # no noise is known for it at any size
            return min(size for _, size in self._tried)
        classes = self.problem.classes or 1
        return ranked(own, self.problem.prior, intervals_first=True, classes=classes)[0].bag_size
