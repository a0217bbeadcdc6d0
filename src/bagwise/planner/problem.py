"""What a plan is made for: features, a promise, a belief; bags are made once, and their noise."""

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging import (
    BaggingStrategy,
    assign_bags,
    parameters_of,
    settings_of,
    spell_settings,
)
from bagwise.bagging.bags import Bags
from bagwise.errors import BudgetError
from bagwise.planner.request import Prior
from bagwise.planner.sample import SEED, Sample
from bagwise.privacy.aggregate import LabelKind
from bagwise.privacy.calibrate import ExactCalibration, ScoreNoise
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.private_model import ModelDesign, design_model
from bagwise.requests.queries import NORMS
from bagwise.theory.beliefs import draw_misfit, signal_root
from bagwise.theory.exact import BagMoments, Whitening

FEWEST = 20  # rows of a bag in a sample, unless it is to have fewer anyway


@dataclass(frozen=True)
class Bagged:
    """Bags, as they would be in the whole table.

    Attributes
    ----------
    moments : BagMoments
    repeats : float
        How often each of these bags is there.
    square, touched : int
        What a unit can move: the sum over bags of its squared numbers of rows, and how many bags.
    """

    moments: BagMoments
    repeats: float
    square: int
    touched: int

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return round(self.moments.sizes.size * self.repeats)


@dataclass(frozen=True)
class Noise:
    """What hides the labels of bags: how much of it is on each, and the delta that it needs."""

    sd: FloatArray
    delta: float | None


@dataclass(frozen=True)
class Problem:
    """The features of a plan, and what is asked for.

    Attributes
    ----------
    sample : Sample
    prior : Prior
    calibration : ExactCalibration or None
        None when not private.
    classes : int or None
        How many classes a label has, if it is no number; errors are added up over them.
    effort : str
        How long strategies may search.
    """

    sample: Sample
    prior: Prior
    calibration: ExactCalibration | None
    classes: int | None = None
    effort: str = "fast"
    _bagged: dict[tuple[str, int], Bagged] = field(default_factory=dict, repr=False)
    _means: dict[tuple[object, ...], Mechanism] = field(default_factory=dict, repr=False)

    @cached_property
    def white(self) -> Whitening:
        """The rows in white coordinates."""
        return Whitening.of(self.sample.X)

    @cached_property
    def root(self) -> FloatArray:
        """Where the signal is thought to lie."""
        return signal_root(self.sample.X)

    @cached_property
    def functions(self) -> FloatArray:
        """What a linear model may leave, in these rows."""
        return draw_misfit(self.white.rows, np.random.default_rng(SEED))

    @property
    def coefficients(self) -> int:
        """How many a linear model has, the intercept included."""
        return int(self.white.rows.shape[1]) + 1

    @cached_property
    def _designs(self) -> dict[ScoreNoise, ModelDesign]:
        return {}  # of this sample: another problem has its own

    def design_for(self, noise: ScoreNoise) -> ModelDesign:
        """Return how a private model with this noise would weigh its rows."""
        if noise not in self._designs:
            X = self.sample.X
            design = design_model(X, [str(j) for j in range(X.shape[1])], norm=NORMS[noise])
            # Sums over all rows of the table, of which X may be a sample.
            grown = dataclasses.replace(design, jacobian=self.sample.copies * design.jacobian)
            self._designs[noise] = grown
        return self._designs[noise]

    def bag(self, strategy: BaggingStrategy, bag_size: int) -> Bagged:
        """Make the bags once, and keep what they keep of the rows."""
        key = (title(strategy), bag_size)
        if key not in self._bagged:
            rng = np.random.default_rng(SEED)
            size = self.sampled_size(strategy, bag_size)
            with _quietly():
                bags = assign_bags(
                    self.searching(strategy), self.sample.X, None, bag_size=size, rng=rng
                )
            self._bagged[key] = self.grown(bags, strategy, bag_size)
        return self._bagged[key]

    def sampled_size(self, strategy: BaggingStrategy, bag_size: int) -> int:
        """Return the size of bags in the sample that stand for bags of `bag_size` in the table.

        As many bags as in the table, each with its share of the sample, are as compact as those
        are. But a mean of very few rows tells of them, and not of their kind: then bags are larger,
        and each stands for several.
        """
        fewest = 1 if strategy.free_sizes else min(bag_size, FEWEST)
        return max(round(bag_size / self.sample.copies), fewest)

    def grown(self, bags: Bags, strategy: BaggingStrategy, bag_size: int) -> Bagged:
        """Return bags of the sample as they would be in the table."""
        times = self.sample.copies
        if not strategy.free_sizes:
            times = bag_size / self.sampled_size(strategy, bag_size)
        units = self.sample.units
        return Bagged(
            BagMoments.of(self.white, bags, self.functions, self.root).grown(times),
            repeats=self.sample.copies / times,
            square=max(units.square_in_bags(bags), self.sample.largest),
            touched=units.bags_touched(bags),
        )

    def noise(
        self, kind: LabelKind, bagged: Bagged, spent: tuple[Mechanism, ...] = ()
    ) -> Noise | None:
        """Return the noise that the promise takes; None where there is none that is known."""
        rule, rows = self.calibration, self.sample.largest
        sizes = bagged.moments.sizes
        if rule is None:
            return Noise(np.zeros(sizes.size), None)
        whole = np.rint(sizes).astype(np.int64)
        try:
            if kind == "mean":
                means = self._bag_means(rule, bagged, spent)
                pure = all(event.pure_epsilon is not None for event in (*spent, means))
                return Noise(means.noise_sd(whole), 0.0 if pure else rule.delta)
            if self.classes is not None:
                return None  # chances of keeping a class are no noise of a size
            picks = rule.picks(sizes=whole.tolist(), rows=rows)
            pure = picks.pure_epsilon is not None
            return Noise(picks.noise_sd(whole), 0.0 if pure else rule.delta)
        except BudgetError:
            return None

    def means_after(self, rule: ExactCalibration, event: Mechanism) -> Mechanism:
        """Return the noise for bags that follow what was bought with this event."""
        return self._bag_means(rule, None, (event,))

    def _bag_means(
        self, rule: ExactCalibration, bagged: Bagged | None, spent: tuple[Mechanism, ...]
    ) -> Mechanism:
        # Bags that depend on labels could hold all rows of a unit; others are known, and counted.
        rows = self.sample.largest
        square, touched = rows**2, rows
        if bagged is not None and not spent:
            square, touched = bagged.square, bagged.touched
        if self.classes is not None:  # a row that changes its class changes two counts
            square, touched, rows = 2 * square, 2 * rows, 2 * rows
        key = (rule, square, rows, touched, *spent)
        if key not in self._means:
            self._means[key] = rule.bag_means(
                square=square, rows=rows, numbers=touched, spent=spent
            )
        return self._means[key]

    def searching(self, strategy: BaggingStrategy) -> BaggingStrategy:
        """Return a strategy that searches as long as the plan may, unless it says how long."""
        if "effort" not in parameters_of(strategy) or "effort" in settings_of(strategy):
            return strategy
        return cast(BaggingStrategy, dataclasses.replace(cast(Any, strategy), effort=self.effort))


def title(strategy: BaggingStrategy) -> str:
    """Return the name of a strategy and what is set of its parameters."""
    return " ".join([strategy.name, *spell_settings(strategy)])


@contextmanager
def _quietly() -> Iterator[None]:
    """Hold back what a strategy has to say: most of those that are tried nobody will choose."""
    log = logging.getLogger("bagwise")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
