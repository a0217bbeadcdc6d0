"""The features and the request of a plan; bags are made once and priced."""

import dataclasses
import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging import (
    BaggingStrategy,
    assign_bags,
    measures_by_scores,
    parameters_of,
    settings_of,
    spell_settings,
)
from bagwise.errors import BudgetError
from bagwise.planner.request import PlanRequest, Prior
from bagwise.planner.sample import SEED, Sample
from bagwise.privacy.calibrate import ExactCalibration, ScoreNoise
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import LabelKind
from bagwise.privacy.private_model import ModelDesign, design_model
from bagwise.privacy.queries import BagMeans, BagPicks
from bagwise.requests.queries import METRIC_SHARES, NORMS, ModelQuery, price_model
from bagwise.theory.beliefs import draw_misfit, signal_root
from bagwise.theory.exact import CAUSES, BagMoments, Risk, Whitening, prior_risk

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
    spent : tuple of Mechanism
        What was paid for before: a private model, where bags follow one.
    """

    moments: BagMoments
    repeats: float
    square: int
    touched: int
    spent: tuple[Mechanism, ...] = ()

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return round(self.moments.sizes.size * self.repeats)


@dataclass(frozen=True)
class PlanProblem:
    """The features of a plan, and what is asked for."""

    sample: Sample
    request: PlanRequest
    _bagged: dict[tuple[str, int], Bagged | None] = field(default_factory=dict, repr=False)
    _designs: dict[ScoreNoise, ModelDesign] = field(default_factory=dict, repr=False)

    @property
    def prior(self) -> Prior:
        """What is believed of the labels."""
        return self.request.prior

    @property
    def rule(self) -> ExactCalibration | None:
        """The rule for noise; None when not private."""
        return self.request.rule

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

    @property
    def numbers(self) -> int:
        """How many numbers a label is: errors are added up over classes."""
        return self.request.classes or 1

    def design_for(self, noise: ScoreNoise) -> ModelDesign:
        """Return how a private model with this noise would weigh its rows."""
        if noise not in self._designs:
            X = self.sample.X
            design = design_model(X, [str(j) for j in range(X.shape[1])], norm=NORMS[noise])
            # Sums over all rows of the table, of which X may be a sample.
            grown = dataclasses.replace(design, jacobian=self.sample.copies * design.jacobian)
            self._designs[noise] = grown
        return self._designs[noise]

    def buy_metric(self) -> ModelQuery | None:
        """Return the private model that a release would buy for a metric; None if it cannot.

        Of those with the noise that the promise allows it is the one that is least off.
        """
        rule, rows = self.rule, self.sample.largest
        if rule is None or self.request.classes is not None:
            return None
        try:
            offers = [
                price_model(rule, self.design_for(noise), noise, METRIC_SHARES[noise],
                            unit_rows=rows)
                for noise in rule.score_noises
            ]  # fmt: skip
        except BudgetError:
            return None
        return min(offers, key=lambda offer: offer.error, default=None)

    def bag(self, strategy: BaggingStrategy, bag_size: int) -> Bagged | None:
        """Make bags once, and keep what they keep of the rows; None if they need what is not there.

        Bags by the metric of a private model follow one that is drawn from the prior.
        """
        key = (title(strategy), bag_size)
        if key not in self._bagged:
            self._bagged[key] = self._bag(strategy, bag_size)
        return self._bagged[key]

    def _bag(self, strategy: BaggingStrategy, bag_size: int) -> Bagged | None:
        times, scores, rng = self.sample.copies, None, np.random.default_rng(SEED)
        spent: tuple[Mechanism, ...] = ()
        if measures_by_scores(strategy):
            bought = self.buy_metric()
            if bought is None:
                return None
            rng, spent = np.random.default_rng([SEED, bag_size, 0]), (bought.event,)
            scores = self._draw_scores(bought, rng)
        # 1. As many bags as in the table, each with its share of the sample, are as compact as
        #    those are. But a mean of very few rows tells of them, and not of their kind: then bags
        #    are larger, and each stands for several.
        fewest = 1 if strategy.free_sizes else min(bag_size, FEWEST)
        size = max(round(bag_size / times), fewest)
        # 2. They are searched for as long as the plan may, unless the strategy says how long.
        searching = strategy
        if "effort" in parameters_of(strategy) and "effort" not in settings_of(strategy):
            effort = self.request.effort
            searching = cast(
                BaggingStrategy, dataclasses.replace(cast(Any, strategy), effort=effort)
            )
        # 3. Nobody will choose most of those that are tried: what a strategy has to say can wait.
        log = logging.getLogger("bagwise")
        before = log.level
        log.setLevel(logging.ERROR)
        try:
            bags = assign_bags(searching, self.sample.X, scores, bag_size=size, rng=rng)
        finally:
            log.setLevel(before)
        # 4. The same bags in the whole table.
        if not strategy.free_sizes:
            times = bag_size / size
        # Bags that depend on labels could hold all rows of a unit; others are counted.
        rows = self.sample.largest
        square, touched = (rows**2, rows) if spent else self.sample.units.reach(bags)
        return Bagged(
            BagMoments.of(self.white, bags, self.functions, self.root).grown(times),
            repeats=self.sample.copies / times,
            square=max(square, rows),
            touched=touched,
            spent=spent,
        )

    def _draw_scores(self, bought: ModelQuery, rng: np.random.Generator) -> FloatArray:
        """Draw theta and the private model's noise; return the model's predictions."""
        rows, design = self.white.rows, bought.design
        slopes = self.root @ rng.standard_normal(int(rows.shape[1]))
        slopes *= self.prior.signal_sd / max(float(np.linalg.norm(slopes)), 1e-300)
        by_noise = bought.event.number_sd * rng.standard_normal(design.rank)
        noise = design.basis @ (design.decoder @ by_noise)
        scores = rows @ slopes + (self.sample.X - design.center) / design.spread @ noise[1:]
        # The labels' own noise moves the model too, about as it moves least squares.
        by_labels = self.prior.label_noise_sd / np.sqrt(self.sample.n_rows)
        return np.asarray(scores + rows @ (by_labels * rng.standard_normal(rows.shape[1])))

    def noise(
        self, kind: LabelKind, bagged: Bagged, rule: ExactCalibration | None
    ) -> tuple[FloatArray, float | None] | None:
        """Return the noise on each bag and the delta that it needs; None if none is known."""
        sizes = bagged.moments.sizes
        if rule is None:
            return np.zeros(sizes.size), None
        whole = np.rint(sizes).astype(np.int64)
        try:
            if kind == "mean":
                event = self.means(rule, bagged.square, bagged.touched, bagged.spent)
            elif self.request.classes is None:
                counts = Counter(whole.tolist())
                query = BagPicks.of(rule.bounds, counts, self.sample.largest)
                event = rule.least(query, counts=counts)
            else:
                return None  # chances of keeping a class are no noise of a size
        except BudgetError:
            return None
        pure = all(one.pure_epsilon is not None for one in (*bagged.spent, event))
        return event.noise_sd(whole), 0.0 if pure else rule.delta

    def means(
        self, rule: ExactCalibration, square: int, touched: int, spent: tuple[Mechanism, ...] = ()
    ) -> Mechanism:
        """Return the noise for means of bags of which a unit moves so much."""
        rows = self.sample.largest
        if self.request.classes is not None:  # a row that changes its class changes two counts
            square, touched, rows = 2 * square, 2 * rows, 2 * rows
        query = BagMeans.of(rule.bounds, rows=rows, square=square, touched=touched)
        return rule.least(query, spent)

    def risk(
        self, bagged: Bagged, prior: Prior, kind: LabelKind, noise_sd: FloatArray | float
    ) -> Risk:
        """Return the exact error of predictions given the bags; of classes that of all together."""
        risk = prior_risk(
            bagged.moments,
            signal_sd=prior.signal_sd,
            label_noise_sd=prior.label_noise_sd,
            misfit=prior.misfit,
            label_kind=kind,
            loss="bag",
            noise_sd=noise_sd,
            repeats=bagged.repeats,
        )
        return Risk(**{name: self.numbers * getattr(risk, name) for name in CAUSES})


def title(strategy: BaggingStrategy) -> str:
    """Return the name of a strategy and what is set of its parameters."""
    return " ".join([strategy.name, *spell_settings(strategy)])
