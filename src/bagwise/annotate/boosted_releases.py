"""Releases in rounds: each is bagged by the predictions of a model of those before it.

Whoever releases bags of rows with like expected labels leaves a learner most (Thm 1), and does not
know expected labels. PriorBoost learns them on the way: rows are dealt into parts; the first part
is released in bags by features; a model of what was released predicts the next part, whose rows are
put into bags by these predictions; and so on.

Privacy: a row is in one part, so that its label enters one release. Given everything released
before, that release is (epsilon, delta)-private for its labels, and what comes after is computed
from it and from labels of other rows. So all rounds together are (epsilon, delta)-private, the
largest of their promises and not the sum (parallel composition, which holds for rounds that depend
on earlier ones too). Units are dealt whole. The accountant checks each part's events.

References
----------
Javanmard, Fahrbach and Mirrokni (2024), PriorBoost, ICML. McSherry (2009) for parallel composition.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.api import make_release
from bagwise.bagging.bags import Bags
from bagwise.bagging.sorted_bags import SortedBags
from bagwise.bagging.strategy import BaggingStrategy
from bagwise.data.summary import ColumnSummary
from bagwise.data.table import read_table
from bagwise.engines.local import LocalRows
from bagwise.errors import BiasWarning, BudgetError, StrategyError
from bagwise.learn.estimator import BaggedGLM
from bagwise.ledger import Ledger
from bagwise.models.row_model import RowModel, TrainedOn
from bagwise.privacy.accounting import total_delta
from bagwise.privacy.certificate import Certificate, headline_of
from bagwise.privacy.units import units_of
from bagwise.release.release import Release
from bagwise.rng import SecureNoise
from bagwise.show.stages import OnStage, ignore_stage

_NOT_HERE = ("strategy", "strategies", "scores", "classes", "min_bag_size")
_DRIFT = 1e-9  # relative: what rounding may do to a delta


@dataclass(frozen=True)
class PredictedBags:
    """Put rows together whose predictions by a public linear model are alike.

    Parameters
    ----------
    coefficients : str
        One number for each column of X, separated by commas. They are published with the release,
        so they must be public: what earlier releases told, and nothing else.
    """

    name: ClassVar[str] = "predicted"
    summary: ClassVar[str] = "rows with like predictions of a public model"
    uses_scores: ClassVar[bool] = False
    planned: ClassVar[bool] = False

    coefficients: str = ""

    @classmethod
    def of(cls, coef: FloatArray) -> Self:
        """Write the coefficients down, exactly.

        >>> PredictedBags.of(np.array([0.1, -2.0]))
        PredictedBags(coefficients='0.1,-2.0')
        """
        return cls(",".join(repr(float(value)) for value in coef))

    def assign(
        self,
        X: AnyArray,
        scores: FloatArray | None,  # noqa: ARG002 (features alone)
        *,
        bag_size: int,
        rng: np.random.Generator,
    ) -> Bags:
        """Sort rows by their predictions, and cut."""
        coef = np.array([float(value) for value in self.coefficients.split(",") if value])
        if coef.size != X.shape[1]:
            raise StrategyError(f"there are {coef.size} coefficients for {X.shape[1]} columns.")
        predictions = np.asarray(X @ coef, dtype=np.float64)
        return SortedBags().assign(predictions[:, None], predictions, bag_size=bag_size, rng=rng)


class PartOfTable(LocalRows):
    """Some rows of a table, encoded by the facts of all of them, so that all parts agree."""

    def __init__(self, table: pa.Table, facts: Mapping[str, ColumnSummary]) -> None:
        super().__init__(table)
        self._facts = facts

    def summarise(self, names: Sequence[str]) -> dict[str, ColumnSummary]:
        """Return facts about columns of the whole table: features are public."""
        return {name: self._facts[name] for name in names}


@dataclass(frozen=True)
class BoostedReleases:
    """What was released in rounds.

    Attributes
    ----------
    releases : tuple of Release
        One for each part of the rows.
    model : RowModel
        Fitted to all of them.
    epsilon, delta : float or None
        What all of them together promise for any row, or unit; None where nothing is promised.
    """

    releases: tuple[Release, ...]
    model: RowModel
    epsilon: float | None
    delta: float | None


def release_in_rounds(
    table: Any,
    *,
    label: str,
    bag_size: int,
    rounds: int = 3,
    bounds: Sequence[float] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    not_private: bool = False,
    unit: str | None = None,
    first: str | BaggingStrategy = "kmeans",
    loss: str = "bag",
    ledger: Ledger | str | Path | None = None,
    on_stage: OnStage = ignore_stage,
    **options: Any,
) -> BoostedReleases:
    """Release a table in rounds, each bagged by what the rounds before have taught (PriorBoost).

    Parameters
    ----------
    rounds : int
        Parts that the rows are dealt into, at random and in secret.
    first : str or BaggingStrategy
        How rows of the first part are put together: a strategy that looks at features only.
    loss : {"bag", "instance"}
        What the model is fitted with.
    ledger : Ledger or path, optional
        Charged for each part by itself: parts share no row, which the ledger sees by its unit or
        its row id. So all rounds together cost what one of them does.
    **options
        Anything else that `make_release` takes; all rounds have the same.

    Notes
    -----
    All others are those of `make_release`. A promise of (epsilon, delta) holds for all rounds
    together.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(3000, 2))
    >>> table = pa.table({"a": x[:, 0], "b": x[:, 1], "y": x @ [1.0, 2.0] + rng.normal(size=3000)})
    >>> found = release_in_rounds(
    ...     table, label="y", bag_size=20, bounds=(-12, 12), epsilon=2.0, first="random"
    ... )
    >>> [release.bags.n_rows for release in found.releases], found.delta
    ([1000, 1000, 1000], 0.0)
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise StrategyError(f"rounds must be a whole number of at least 1, got {rounds!r}.")
    if given := set(options) & set(_NOT_HERE):
        raise StrategyError(f"releases in rounds know no {', '.join(sorted(given))}: leave it out.")
    if ledger is not None:  # chance decides who is in which part
        charged = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
        options["ledger"] = charged.part("public")
    whole = read_table(table, index_names=[label, *([unit] if unit else [])])
    facts = LocalRows(whole).summarise([name for name in whole.column_names if name != label])
    releases: list[Release] = []
    strategy: str | BaggingStrategy = first
    model = None
    for number, rows in enumerate(deal(whole, rounds, unit), start=1):
        on_stage(f"round {number} of {rounds}")
        part = PartOfTable(whole.take(pa.array(rows)), facts)
        released = make_release(
            part, label=label, bag_size=bag_size, bounds=bounds, epsilon=epsilon, delta=delta,
            not_private=not_private, unit=unit, strategy=strategy, **options,
        )  # fmt: skip
        releases.append(released)
        model = _fit(releases, loss)
        strategy = PredictedBags.of(model.coef)
    if model is None:
        raise AssertionError("there is at least one round")
    promised = joint_promise([release.certificate for release in releases])
    return BoostedReleases(tuple(releases), model, *promised)


def deal(table: pa.Table, parts: int, unit: str | None) -> list[IntArray]:
    """Deal rows into parts of about the same size, at random; those of a unit stay together."""
    source = SecureNoise()
    if unit is None:
        return [np.sort(part) for part in np.array_split(source.permutation(table.num_rows), parts)]
    index = units_of(table, unit).index
    if index is None:
        raise AssertionError("units are numbered where a column names them")
    part_of = np.empty(int(index.max()) + 1, dtype=np.int64)
    part_of[source.permutation(part_of.size)] = np.arange(part_of.size) % parts
    found = [np.flatnonzero(part_of[index] == number) for number in range(parts)]
    if not all(part.size for part in found):
        raise StrategyError(f"there are fewer units than the {parts} rounds. Use fewer rounds.")
    return found


def joint_promise(certificates: Sequence[Certificate]) -> tuple[float | None, float | None]:
    """Return what releases about different rows promise together: the largest of their promises.

    Each is checked by the accountant against the events of its own release, which are all that
    its rows' labels went through.
    """
    if not all(certificate.is_private for certificate in certificates):
        return None, None
    epsilon = max(certificate.epsilon or 0.0 for certificate in certificates)
    delta = max(certificate.delta or 0.0 for certificate in certificates)
    for certificate in certificates:
        if total_delta(certificate.events, epsilon) > delta * (1 + _DRIFT):
            raise BudgetError("a round has spent more than its certificate says.")
    return epsilon, delta


def _fit(releases: Sequence[Release], loss: str) -> RowModel:
    """Fit one model to all releases so far."""
    firsts = np.cumsum([0, *(release.bags.n_bags for release in releases)])
    data = [release.training_data() for release in releases]
    laws = {release.noise_law for release in releases}
    ranges = {release.certificate.clipped_to for release in releases}
    last = releases[-1]
    promised = joint_promise([release.certificate for release in releases])
    estimator = BaggedGLM(
        loss=loss,
        label_kind=last.label_kind,
        noise=laws.pop() if len(laws) == 1 else "gaussian",
        bounds=ranges.pop() if len(ranges) == 1 else None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BiasWarning)  # bags are made for this loss
        estimator.fit(
            np.concatenate([X for X, _, _ in data]),
            np.concatenate([y for _, y, _ in data]),
            bags=np.concatenate(
                [ids + first for (_, _, ids), first in zip(data, firsts[:-1], strict=True)]
            ),
            noise_sd=np.concatenate([release.fit_params()["noise_sd"] for release in releases]),
        )
    found = estimator.summary()
    return RowModel(
        family="gaussian",
        loss=loss,
        label=last.provenance.label,
        encoder=last.encoder,
        coef=estimator.coef_,
        intercept=estimator.intercept_,
        standard_errors=found.standard_error,
        unshrunk=found.unshrunk,
        freedom=found.freedom,
        note=found.note,
        trained_on=TrainedOn(
            privacy=headline_of(*promised),  # the model knows of all rounds
            n_rows=sum(release.bags.n_rows for release in releases),
            n_bags=int(firsts[-1]),
            label_kind=last.label_kind,
            strategy=last.provenance.strategy,
            dispersion=None if estimator.dispersion_ is None else float(estimator.dispersion_),
            converged=bool(estimator.converged_),
        ),
    )
