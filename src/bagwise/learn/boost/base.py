"""What the boosted regressor and the boosted classifier have in common."""

import importlib
import importlib.util
from collections.abc import Sequence
from numbers import Integral
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise._types import FloatArray
from bagwise.errors import MissingExtraError, StrategyError, check_name
from bagwise.learn.bag_data import BagData
from bagwise.learn.bag_weights import bag_weights, class_weights, working_variance
from bagwise.learn.boost.starts import STARTS, LabelModel
from bagwise.models.links import SOFTMAX
from bagwise.models.trees import Levels, Member, committee_means

if TYPE_CHECKING:
    from bagwise.learn.boost.committee import Boosting, Committee

_CELLS_WORTH_THREADS = 1_000_000


class BoostsTrees(BaseEstimator):  # type: ignore[misc]
    """Boost trees on a bag loss; a subclass says what labels are."""

    leaves: int | Sequence[int]
    learning_rate: float
    max_rounds: int
    patience: int
    n_folds: int
    start: str
    random_state: Any
    n_jobs: int | None

    def _boost(self, data: BagData, model: LabelModel) -> None:
        self._check_parameters()
        self.levels_ = Levels.find(data.X)
        boosting = self._boosting(data, model)
        weight = self._weights(boosting)
        committee = boosting.run(weight)
        self.members_: tuple[Member, ...] = committee.members
        self.ways_ = _described(committee, data, weight)
        self.n_bags_ = data.bags.n_bags
        self.label_model_ = model

    def _weights(self, boosting: "Boosting") -> FloatArray:
        data, model = boosting.data, boosting.model
        if model.link == SOFTMAX:
            return class_weights(
                data, label_kind=model.label_kind, predict_bags=boosting.predict_bags
            )
        return bag_weights(
            data,
            label_kind=model.label_kind,
            predict_bags=boosting.predict_bags,
            variance=working_variance(model.family, data),
        )

    def _boosting(self, data: BagData, model: LabelModel) -> "Boosting":
        committees = load_committees()
        growing = importlib.import_module("bagwise.learn.boost.growing")
        growth = growing.Growth(
            rows=growing.Rows.of(data.X, self.levels_),
            link=model.link,
            learning_rate=self.learning_rate,
            threads=_threads(self.n_jobs, data.X),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
        )
        boosting: Boosting = committees.Boosting(
            data=data,
            model=model,
            growth=growth,
            shapes=committees.shapes_of(_listed(self.leaves)),
            starts=list(STARTS) if self.start == "auto" else [self.start],
            most=self.max_rounds,
            patience=self.patience,
            n_folds=self.n_folds,
        )
        return boosting

    def _means(self, X: Any) -> FloatArray:
        """Return expected labels, (n,), or chances, (n, classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return committee_means(self.members_, self.levels_, X, self.label_model_.link)

    def _check_parameters(self) -> None:
        check_name("start", self.start, ("auto", *STARTS))
        for name, least in (("max_rounds", 1), ("patience", 1), ("n_folds", 2)):
            _check_count(getattr(self, name), name, least)
        for count in _listed(self.leaves):
            _check_count(count, "leaves", 2)
        if not 0 < self.learning_rate <= 1:
            raise StrategyError(
                f"learning_rate must be above 0 and at most 1, got {self.learning_rate!r}."
            )


def _threads(n_jobs: int | None, X: FloatArray) -> int:
    """Return how many threads grow trees, 0 for as many as LightGBM likes; trees are the same.

    Threads wait for each other several times a tree. Where a tree takes less than a millisecond,
    waiting takes longer than growing, and a hundred times longer if another program has the cores.
    """
    if n_jobs is not None:
        return n_jobs
    return 1 if X.size < _CELLS_WORTH_THREADS else 0


def load_committees() -> ModuleType:
    """Return the module that grows trees, or say what is missing."""
    if importlib.util.find_spec("lightgbm") is None:
        raise MissingExtraError("BaggedBooster", "boost")
    return importlib.import_module("bagwise.learn.boost.committee")


def _described(committee: "Committee", data: BagData, weight: FloatArray) -> list[dict[str, Any]]:
    """Return what was tried as plain values, errors without what noise adds to all of them."""
    by_bag = weight if weight.ndim == 1 else weight.sum(axis=1)
    noise = float(np.sum(by_bag * data.noise_sd**2) / np.sum(by_bag))
    return [
        {
            "start": way.start,
            "leaves": way.shape.leaves,
            "random_cuts": way.shape.random_cuts,
            "rounds": way.tried.rounds,
            "error": way.tried.error - noise,
            "weight": share,
        }
        for way, share in zip(committee.ways, committee.blend.tolist(), strict=True)
    ]


def _listed(leaves: int | Sequence[int]) -> Sequence[int]:
    return list(leaves) if isinstance(leaves, Sequence) else [leaves]


def _check_count(value: Any, name: str, least: int) -> None:
    if not isinstance(value, Integral) or value < least:
        raise StrategyError(f"{name} must be a whole number of at least {least}, got {value!r}.")
