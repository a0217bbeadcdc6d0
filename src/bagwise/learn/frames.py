"""Fit any estimator to a release, and predict on tables of unencoded columns."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from sklearn.base import clone

from bagwise._types import AnyArray, FloatArray
from bagwise.errors import StrategyError
from bagwise.learn.boosters import BoostsTrees
from bagwise.learn.from_release import data_to_fit
from bagwise.models.model import TrainedOn
from bagwise.models.trees import TreeModel
from bagwise.release.release import Release
from bagwise.rows.encode import Encoder
from bagwise.rows.labels import Bounds
from bagwise.rows.table import read_table


@dataclass(frozen=True, eq=False)
class FrameModel:
    """A fitted estimator that takes raw columns, as the custodian's table has them.

    Attributes
    ----------
    estimator : fitted estimator
    encoder : Encoder
        From raw columns to X.
    label : str
    trained_on : TrainedOn
    target : str or None
        The class whose share is predicted, for a label with classes.
    classes : tuple of str or None
        The classes whose chances are predicted.
    bounds : (low, high) or None
        What a label can be, as the custodian has stated it; predictions are clipped to it.
    """

    estimator: Any
    encoder: Encoder
    label: str
    trained_on: TrainedOn
    target: str | None = None
    classes: tuple[str, ...] | None = None
    bounds: Bounds | None = None

    def transform(self, frame: Any) -> FloatArray:
        """Return the X that the estimator was given, for a frame or file of raw columns."""
        return self.encoder.transform(read_table(frame))

    def predict(self, frame: Any, *, clip: bool = True) -> AnyArray:
        """Return what the estimator predicts for each row of a frame or file.

        Predictions are clipped to the stated `bounds` of a label, unless `clip` is False.
        """
        predicted = np.asarray(self.estimator.predict(self.transform(frame)))
        if not clip or self.bounds is None or self.classes is not None:
            return predicted
        return np.asarray(np.clip(predicted, *self.bounds))

    def predict_proba(self, frame: Any) -> FloatArray:
        """Return the chance of every class, (n, classes), for estimators that tell."""
        return np.asarray(self.estimator.predict_proba(self.transform(frame)))

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write boosted trees as a model file, which ``bagwise predict`` reads."""
        return self.to_trees().save(path, force=force)

    def to_trees(self) -> TreeModel:
        """Return boosted trees as a model of plain arrays; other estimators have no such form."""
        fitted = self.estimator
        if not isinstance(fitted, BoostsTrees):
            raise StrategyError(
                f"{type(fitted).__name__} cannot be saved: reading a pickle would run any code in "
                "it. Use BaggedBooster, BaggedClassifier or fit_release, or save the estimator in "
                "the format of its own library."
            )
        return TreeModel(
            family=fitted.family_,
            link=fitted.link_,
            label=self.label,
            encoder=self.encoder,
            levels=fitted.levels_,
            members=fitted.members_,
            trained_on=replace(self.trained_on, row_variance=fitted.row_variance_),
            target=self.target,
            classes=self.classes,
            bounds=self.bounds,
        )


def fit_estimator(
    release: Release,
    estimator: Any,
    *,
    target: str | None = None,
    rows: Any = None,
    rows_noise_sd: float = 0.0,
) -> FrameModel:
    """Fit any estimator that learns from bags to a release, and keep it with the encoder.

    Parameters
    ----------
    estimator : BaggedBooster, BaggedClassifier, BaggedGLM, BaggedRegressor or alike
        Not changed: a clone is fitted, with the label kind of the release.
    target : str, optional
        For a label with classes, the one whose share is to be predicted.
    rows, rows_noise_sd
        Rows of the learner's own, as for `fit_release`.

    Examples
    --------
    >>> import pandas as pd
    >>> from bagwise import BaggedRegressor, make_release
    >>> area = np.arange(20.0, 120.0)
    >>> frame = pd.DataFrame({"area": area, "rent": 150 + 11 * area})
    >>> release = make_release(frame, label="rent", bag_size=10, not_private=True)
    >>> model = fit_estimator(release, BaggedRegressor())
    >>> model.predict(frame.head(3)).round(6).tolist()
    [370.0, 381.0, 392.0]
    """
    if release.provenance.exposure is not None:
        raise StrategyError(
            f"the labels of the release grow with the exposure {release.provenance.exposure!r}, "
            "which this estimator ignores. Use fit_release (bagwise fit without --model)."
        )
    data, _ = data_to_fit(release, target, rows, rows_noise_sd)
    # An estimator is told what a release knows: the kind of its labels, and its classes.
    model = clone(estimator)
    known: dict[str, Any] = {"label_kind": release.label_kind}
    if release.classes is not None and target is None:
        known["classes"] = list(release.classes)
    taken = model.get_params(deep=False)
    model.set_params(**{name: value for name, value in known.items() if name in taken})
    bags = data.bags
    labels, noise_sd = bags.repeat(data.labels), bags.repeat(data.noise_sd)
    model.fit(data.X, labels, bags=bags.index, noise_sd=noise_sd)
    return FrameModel(
        estimator=model,
        encoder=release.encoder,
        label=release.provenance.label,
        trained_on=TrainedOn(
            privacy=release.certificate.headline,
            n_rows=release.bags.n_rows,
            n_bags=release.bags.n_bags,
            n_labelled_rows=data.X.shape[0] - int(release.bags.in_bag.sum()),
            label_kind=release.label_kind,
            strategy=release.provenance.strategy,
        ),
        target=target,
        classes=release.classes if target is None else None,
        bounds=release.certificate.stated_bounds,
    )
