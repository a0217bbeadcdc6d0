"""The features and the request of a plan; bags are made once and priced."""

import dataclasses
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from bagwise._types import FloatArray
from bagwise.bagging import (
    STRATEGIES,
    BaggingStrategy,
    assign_bags,
    find_strategy,
    measures_by_scores,
    parameters_of,
    settings_of,
    spell_settings,
)
from bagwise.errors import BagTooSmallError, BudgetError, StrategyError
from bagwise.families import Family, find_family
from bagwise.planner.belief import Prior, read_prior
from bagwise.planner.sample import SEED, Sample
from bagwise.privacy.calibrate import ExactCalibration, ScoreNoise
from bagwise.privacy.mechanisms import Mechanism
from bagwise.privacy.noise import LabelKind
from bagwise.privacy.private_model import ModelDesign, design_model
from bagwise.requests.bag_labels import Reach, price_labels
from bagwise.requests.queries import METRIC_SHARES, NORMS, ModelQuery, price_model
from bagwise.requests.verbs import AUTO, ReleaseRequest
from bagwise.rows.whitening import Columns
from bagwise.theory.beliefs import draw_misfit, signal_root
from bagwise.theory.exact import CAUSES, BagMoments, Risk, prior_risk

LABEL_KINDS: tuple[LabelKind, ...] = ("mean", "pick")

BAGS_PER_COEFFICIENT = 3
"""Fewer bags than so many per coefficient leave hardly anything to tell the errors of a fit by."""

FEWEST_BAGS = 10
"""So many are left to learn anything from, where intervals are given up."""

_FEWEST_ROWS = 20  # of a bag in a sample, unless it is to have fewer anyway


@dataclass(frozen=True)
class Bagged:
    """Bags, as they would be in the whole table.

    Attributes
    ----------
    moments : BagMoments
    repeats : float
        How often each of these bags is there.
    reach : Reach
        What a unit can move.
    spent : tuple of Mechanism
        What was paid for before: a private model, where bags follow one.
    """

    moments: BagMoments
    repeats: float
    reach: Reach
    spent: tuple[Mechanism, ...] = ()

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return round(self.moments.sizes.size * self.repeats)


@dataclass(frozen=True)
class PlanProblem:
    """The features of a plan, and the user's request.

    Attributes
    ----------
    sample : Sample
        The features.
    request : ReleaseRequest
        What is promised, and what is asked of bags.
    rule : ExactCalibration or None
        For the noise; None when not private.
    family : Family
    prior : Prior
        What is believed of the labels.
    bag_sizes : tuple of int
        Sizes to consider, the smallest first; none: those that are worth it.
    max_bag_size : int or None
        The largest that can be: the rows of the smallest stratum.
    strategies : tuple of BaggingStrategy
        Those to consider; none for flexible learners, for whom features decide.
    label_kinds : tuple of str
        Kinds of labels to consider.
    single_labels : bool
        Whether single labels are ranked beside bags; for flexible learners, whether they may be.
    """

    sample: Sample
    request: ReleaseRequest
    rule: ExactCalibration | None
    family: Family
    prior: Prior
    bag_sizes: tuple[int, ...]
    max_bag_size: int | None
    strategies: tuple[BaggingStrategy, ...]
    label_kinds: tuple[LabelKind, ...]
    single_labels: bool
    _bagged: dict[tuple[str, int], Bagged | None] = field(
        init=False, default_factory=dict, repr=False
    )
    _designs: dict[ScoreNoise, ModelDesign] = field(init=False, default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        sample: Sample,
        request: ReleaseRequest,
        *,
        prior: Any = None,
        bag_sizes: Sequence[int] = (),
        max_bag_size: int | None = None,
        label_kinds: tuple[LabelKind, ...] = LABEL_KINDS,
        single_labels: bool = False,
    ) -> Self:
        """Check what a plan is asked for beyond a release; the sizes are those to consider."""
        # 1. The label: its family, its bounds, and what hides it.
        rule, named, least = request.budget.calibration, request.named, request.min_bag_size
        classes = None if request.columns.classes is None else len(request.columns.classes)
        fitted = resolve_family(request.family, classes)
        bounds = None if classes is not None else request.budget.bounds
        low, high = fitted.label_range
        if bounds is not None and not low <= bounds[0] < bounds[1] <= high:
            raise StrategyError(f"labels of the family {fitted.name} do not have these bounds.")
        modelled = rule is not None and classes is None
        if single_labels and not modelled:
            raise StrategyError("single labels are planned for numbers under an epsilon only.")
        # 2. The bags.
        sizes = {int(size) for size in bag_sizes}
        if min(sizes, default=1) < 1:
            raise BagTooSmallError("bag sizes are whole numbers of at least 1.")
        chosen: tuple[BaggingStrategy, ...] = ()
        if request.learner == "flexible":
            if single_labels:
                raise StrategyError(
                    "single labels are ranked for linear learners: leave them out with "
                    "learner='flexible'."
                )
            # Where nothing is said of bags, there may be none.
            unsaid = not sizes and least is None and "mean" in label_kinds
            single_labels = modelled and unsaid and fitted.name == "gaussian"
        elif named is None:
            chosen = tuple(find_strategy(name) for name, kind in STRATEGIES.items() if kind.planned)
        else:
            chosen = named
            _check_named(named, modelled=modelled)
        return cls(
            sample,
            request,
            # What finding the bounds has spent is gone before the release begins.
            rule=None if rule is None else dataclasses.replace(rule, epsilon=rule.left, prior=()),
            family=fitted,
            prior=read_prior(prior, bounds, fitted, classes=classes),
            bag_sizes=tuple(sorted({max(size, least or 1) for size in sizes})),
            max_bag_size=max_bag_size,
            strategies=chosen,
            label_kinds=label_kinds,
            single_labels=single_labels,
        )

    @property
    def classes(self) -> int | None:
        """How many classes a label has, if it is no number."""
        return None if self.request.columns.classes is None else len(self.request.columns.classes)

    @property
    def are_named(self) -> bool:
        """Whether somebody asked for these strategies: then few large bags may come first."""
        return self.request.named is not None

    @cached_property
    def white(self) -> FloatArray:
        """The rows in white coordinates."""
        return Columns(self.sample.X).white_rows()

    @cached_property
    def root(self) -> FloatArray:
        """Where the signal is thought to lie."""
        return signal_root(self.sample.X)

    @cached_property
    def functions(self) -> FloatArray:
        """What a linear model may leave, in these rows."""
        return draw_misfit(self.white, np.random.default_rng(SEED))

    @property
    def coefficients(self) -> int:
        """How many a linear model has, the intercept included."""
        return int(self.white.shape[1]) + 1

    @property
    def numbers(self) -> int:
        """How many numbers a label is: errors are added up over classes."""
        return self.classes or 1

    def design_for(self, noise: ScoreNoise) -> ModelDesign:
        """Return how a private model with this noise would weight its rows."""
        if noise not in self._designs:
            X = self.sample.X
            design = design_model(X, [str(j) for j in range(X.shape[1])], norm=NORMS[noise])
            # Sums over all rows of the table, of which X may be a sample.
            grown = dataclasses.replace(design, jacobian=self.sample.copies * design.jacobian)
            self._designs[noise] = grown
        return self._designs[noise]

    def buy_metric(self) -> ModelQuery | None:
        """Return the private model that a release would buy for a metric; None if it cannot.

        Of the models with noise that the promise allows, it is the one with the smallest error.
        """
        rule, rows = self.rule, self.sample.largest
        if rule is None or self.classes is not None:
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
        """Make bags once, and keep their moments; None if they need something unavailable.

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
        fewest = 1 if strategy.free_sizes else min(bag_size, _FEWEST_ROWS)
        size = max(round(bag_size / times), fewest)
        # 2. Most are never chosen, so the search is quick, unless the strategy says how long it is.
        searching: Any = strategy
        if "effort" in parameters_of(strategy) and "effort" not in settings_of(strategy):
            searching = dataclasses.replace(searching, effort="fast")
        # 3. For the same reason what a strategy has to say can wait.
        log = logging.getLogger("bagwise")
        before = log.level
        log.setLevel(logging.ERROR)
        try:
            bags = assign_bags(searching, self.sample.X, scores, bag_size=size, rng=rng)
        finally:
            log.setLevel(before)
        # 4. The same bags in the whole table. Those that depend on labels could hold all rows of a
        #    unit; others are counted.
        if not strategy.free_sizes:
            times = bag_size / size
        moments = BagMoments.of(self.white, bags, self.functions, self.root).grown(times)
        sizes, rows = Counter(np.rint(moments.sizes).astype(int).tolist()), self.sample.largest
        reach = Reach.at_worst(sizes, rows)
        if not spent:
            square, touched = self.sample.units.reach(bags)
            reach = Reach(sizes, rows, max(square, rows), touched)
        return Bagged(moments, self.sample.copies / times, reach, spent)

    def _draw_scores(self, bought: ModelQuery, rng: np.random.Generator) -> FloatArray:
        """Draw theta and the private model's noise; return the model's predictions."""
        rows, design = self.white, bought.design
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
        sizes = np.rint(bagged.moments.sizes).astype(np.int64)
        if rule is None:
            return np.zeros(sizes.size), None
        event = self.event(kind, bagged.reach, rule, bagged.spent)
        if event is None:
            return None
        pure = all(one.pure_epsilon is not None for one in (*bagged.spent, event))
        return event.noise_sd(sizes), 0.0 if pure else rule.delta

    def event(
        self,
        kind: LabelKind,
        reach: Reach,
        rule: ExactCalibration,
        spent: tuple[Mechanism, ...] = (),
    ) -> Mechanism | None:
        """Return the mechanism for bag labels that a unit moves this much; None if unknown."""
        if kind == "pick" and self.classes is not None:
            return None  # chances of keeping a class are no noise of a size
        try:
            return price_labels(rule, reach, spent, label_kind=kind, classes=self.classes or 0)
        except BudgetError:
            return None

    def risk(
        self, bagged: Bagged, prior: Prior, kind: LabelKind, noise_sd: FloatArray | float
    ) -> Risk:
        """Return the exact error of predictions given the bags; for classes, of all together."""
        risk = prior_risk(
            bagged.moments,
            signal_sd=prior.signal_sd,
            label_noise_sd=prior.label_noise_sd,
            misfit=prior.misfit,
            label_kind=kind,
            noise_sd=noise_sd,
            repeats=bagged.repeats,
        )
        return Risk(**{name: self.numbers * getattr(risk, name) for name in CAUSES})


def title(strategy: BaggingStrategy) -> str:
    """Return the name of a strategy and what is set of its parameters."""
    return " ".join([strategy.name, *spell_settings(strategy)])


def resolve_family(family: str, classes: int | None) -> Family:
    """Return the family of that name; "auto" is the plainest that the labels allow."""
    if family == AUTO:
        return find_family("gaussian" if classes is None else "multinomial")
    fitted = find_family(family)
    if fitted.has_classes and classes is None:
        raise StrategyError(f"the family {family} is for labels with classes: name the classes.")
    if classes is not None and not (fitted.has_classes or fitted.name == "bernoulli"):
        raise StrategyError(f"labels with classes are not of the family {family}.")
    return fitted


def _check_named(named: tuple[BaggingStrategy, ...], *, modelled: bool) -> None:
    """Refuse strategies that no plan can rank.

    `modelled` says whether there can be a private model for those that need one.
    """
    if not named:
        raise StrategyError("name at least one strategy, or leave strategies out for all.")
    for strategy in named:
        if strategy.keeps_groups:
            raise StrategyError(
                f"strategy {strategy.name!r} needs existing groups, which a plan does not have: "
                "release with by= (--by), or name other strategies."
            )
        if strategy.uses_scores and not strategy.compact:
            raise StrategyError(
                f"strategy {strategy.name!r} sorts rows by private scores, but the planner ranks "
                "bags formed from features: state a bag size (bag_size, --bag-size; hundreds of "
                "rows if private), or name other strategies."
            )
        if strategy.uses_scores and not modelled:
            raise StrategyError(
                f"the scale of strategy {strategy.name!r} comes from a private model: give an "
                "epsilon and a numeric label, or name other strategies."
            )


def grid(*, n_rows: int, coefficients: int, least: int) -> list[int]:
    """Return sizes from `least` on, each about twice the one before, as far as intervals allow.

    The best size falls as epsilon grows, over two orders of magnitude; between neighbours on this
    grid the error hardly differs.

    >>> grid(n_rows=50_000, coefficients=33, least=10)
    [10, 20, 50, 100, 200, 500]
    >>> grid(n_rows=50_000, coefficients=33, least=60)
    [60, 100, 200, 500]
    """
    return powers(n_rows // (BAGS_PER_COEFFICIENT * coefficients), least)


def powers(most: int, least: int) -> list[int]:
    """Return `least`, and 10, 20, 50, 100 and so on between it and `most`."""
    sizes, decade = {least}, 10
    while decade <= most:
        sizes |= {size for size in (decade, 2 * decade, 5 * decade) if least < size <= most}
        decade *= 10
    return sorted(sizes)


def usable(sizes: Sequence[int], *, n_rows: int, most: int | None = None) -> list[int]:
    """Return the sizes that leave two bags, up to `most`."""
    limit = n_rows // 2 if most is None else min(most, n_rows // 2)
    kept = [size for size in sizes if size <= limit]
    if not kept:
        raise BagTooSmallError(
            f"{n_rows} rows do not fill two bags of {min(sizes)}, or a stratum none. Name a "
            "smaller bag size."
        )
    return kept
