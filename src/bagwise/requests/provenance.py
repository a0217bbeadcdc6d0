"""How a release was made, with the planner's reason."""

import math
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from bagwise._printable import figure
from bagwise.bagging import STRATEGIES
from bagwise.files.records import Record
from bagwise.theory.accuracy import Accuracy, shrunk

WholeSize = Annotated[int, Meta(ge=1, le=2**48)]
NotNegative = Annotated[float, Meta(ge=0)]
Parameter = str | int | float | bool | None


class LeastRegret(Record, tag="least-regret", tag_field="kind", frozen=True):
    """The planner's first choice: the candidate of least regret.

    Attributes
    ----------
    rmse : float
        Expected error of predictions, a root mean square; for classes, of all of them together.
    loss : str
        The loss to fit with.
    signal_sd, label_noise_sd, factor, misfit : float
        The prior: see `planner.Prior`.
    """

    rmse: NotNegative
    loss: Annotated[str, Meta(pattern="^(bag|instance|aggregate|mixture|debiased)$")]
    signal_sd: NotNegative
    label_noise_sd: NotNegative
    factor: Annotated[float, Meta(ge=1)]
    misfit: NotNegative

    def accuracy(self, n_classes: int = 1, rows_each: float = math.inf) -> Accuracy:
        """Return how well a model should predict, if the prior is right.

        `rows_each` is how many rows there are for each coefficient. With classes the error is that
        of the chance of one of them.

        >>> weak = LeastRegret(rmse=0.1, loss="bag", signal_sd=0.1, label_noise_sd=1, factor=3,
        ...                    misfit=0)
        >>> weak.accuracy(rows_each=20).share  # true labels would hardly say more
        '0 %'
        """
        return Accuracy.of(
            self.rmse**2 / n_classes,
            with_labels=shrunk(self.label_noise_sd**2 / rows_each, self.signal_sd**2),
            signal=self.signal_sd**2,
            noise=self.label_noise_sd**2 + self.misfit * self.signal_sd**2,
        )

    def text(self, n_classes: int = 1, rows_each: float = math.inf) -> str:
        """Return the reason in words; the arguments are those of `accuracy`.

        >>> reason = LeastRegret(rmse=0.123, loss="bag", signal_sd=1, label_noise_sd=2, factor=3,
        ...                      misfit=0.15)
        >>> reason.text()[:15]
        'the safest choi'
        """
        belief = prior_text(self.signal_sd, self.label_noise_sd, self.factor, self.misfit)
        return (
            "the safest choice across plausible signal strengths. A model fitted with "
            f"{self.loss} loss {self.accuracy(n_classes, rows_each)}, if {belief}."
        )

    def is_hopeless(self, *, n_classes: int = 1) -> bool:
        """Return whether the mean label of all rows would predict about as well."""
        return self.accuracy(n_classes).kept < 0.1


class FlexibleLearner(Record, tag="flexible-learner", tag_field="kind", frozen=True):
    """Bags for a learner that is not linear, such as boosted trees.

    Attributes
    ----------
    noise_lost : float
        Share of what could be learnt that noise on the labels should cost.
    """

    noise_lost: NotNegative

    def text(self, n_classes: int = 1, rows_each: float = math.inf) -> str:  # noqa: ARG002
        """Return the reason in words.

        >>> FlexibleLearner(noise_lost=0.054).text().partition(". ")[2]
        'The noise on the labels should cost about 5.4 % of what could be learnt.'
        """
        return (
            "for a learner that is not linear, such as boosted trees. The noise on the labels "
            f"should cost about {min(100.0, 100 * self.noise_lost):.2g} % of what could be learnt."
        )

    def is_hopeless(self, *, n_classes: int = 1) -> bool:  # noqa: ARG002
        """Return whether noise hides nearly all that could be learnt."""
        return self.noise_lost > 0.9


class NothingToPlan(Record, tag="nothing-to-plan", tag_field="kind", frozen=True):
    """Random bags, because there is nothing to choose by."""

    cause: Literal["rows", "labels"]

    def text(self, n_classes: int = 1, rows_each: float = math.inf) -> str:  # noqa: ARG002
        """Return the reason in words."""
        if self.cause == "rows":
            return "there are too few rows for a plan."
        return "the planner knows no error for labels of this kind here."

    def is_hopeless(self, *, n_classes: int = 1) -> bool:  # noqa: ARG002
        """Return False: nothing is known of the error."""
        return False


Reason = LeastRegret | NothingToPlan | FlexibleLearner


def prior_text(signal_sd: float, label_noise_sd: float, factor: float, misfit: float) -> str:
    """Return the prior about the labels in words; `planner.Prior` explains the figures."""
    total = signal_sd**2 + label_noise_sd**2
    explained = signal_sd**2 / total if total > 0 else 0.0
    return (
        f"labels vary by {figure(total**0.5)} and the features explain {explained:.0%} of that "
        f"variance, {misfit:.0%} of which is not linear. Each may be wrong by a factor of "
        f"{factor:g}"
    )


class Provenance(Record, frozen=True):
    """How a release was made, as its manifest records it.

    Attributes
    ----------
    label : str
    classes : tuple of str or None
        The public classes of a label that has some.
    bag_size : int
        The smallest bag that was asked for.
    strategy, strategy_parameters
        How rows were put together.
    chosen_because : Reason or None
        Why the planner chose so, where it was asked.
    scores : {"none", "labels", "noisy-labels", "model"}
        What rows were sorted by, or measured by.
    centre : {"none", "model"}
        What labels were to be centred on; the certificate says whether it paid.
    seed : int or None
        Of the partition.
    row_order : {"secret permutation", "kept"}
    id : str or None
        The column that leaves as a key.
    by, within : tuple of str
        The columns that bags were given by, and those whose strata no bag crosses.
    exposure : str or None
        The column that says how long or how often each row was observed.
    missing_labels : int, or not there
        Rows that were left out because their label is missing; only where that was asked for.
    """

    label: str
    classes: tuple[str, ...] | None
    bag_size: WholeSize
    strategy: str
    strategy_parameters: dict[str, Parameter]
    chosen_because: Reason | None
    scores: Literal["none", "labels", "noisy-labels", "model"]
    centre: Literal["none", "model"]
    seed: Annotated[int, Meta(ge=0)] | None
    row_order: Literal["secret permutation", "kept"]
    id: str | None
    by: tuple[str, ...]
    within: tuple[str, ...]
    exposure: str | None
    missing_labels: Annotated[int, Meta(ge=0, le=2**48)] | UnsetType = UNSET

    @property
    def is_sorted(self) -> bool:
        """Whether rows share a bag for their scores alone; instance loss is made for such bags.

        If scores define a metric, rows of a bag have similar features, as they do without scores.
        """
        compact = self.strategy in STRATEGIES and STRATEGIES[self.strategy].compact
        return self.scores != "none" and not compact
