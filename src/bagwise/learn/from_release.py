"""From a release to a row-level model, with the warnings that the combination deserves."""

import warnings

from bagwise.errors import BiasWarning
from bagwise.learn.estimator import BaggedGLM
from bagwise.release import Release
from bagwise.row_model import RowModel


def fit_release(
    release: Release,
    *,
    family: str = "gaussian",
    loss: str = "auto",
    target: str | None = None,
    debias: bool = False,
    ridge: float = 0.0,
    fit_intercept: bool = True,
) -> RowModel:
    """Fit a row-level model to a release and keep it with the release's encoder.

    For a label with classes, `target` names the class whose share is to be predicted.
    ``loss="auto"`` is instance loss where rows were sorted by scores, and bag loss elsewhere.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bagwise import make_release
    >>> table = pa.table({"rooms": [1.0, 2.0, 3.0, 4.0], "rent": [500, 700, 900, 1100]})
    >>> release = make_release(table, label="rent", bag_size=1, not_private=True)
    >>> fit_release(release).predict(table).round(6).tolist()
    [500.0, 700.0, 900.0, 1100.0]
    """
    sorted_by = release.provenance["scores"]
    if loss == "auto":
        loss = "bag" if sorted_by == "none" else "instance"
    _warn_of_bias(release, loss=loss, debias=debias)
    estimator = BaggedGLM(
        family=family,
        loss=loss,
        label_kind=release.label_kind,
        debias=debias,
        ridge=ridge,
        fit_intercept=fit_intercept,
    )
    X, y, _ = release.training_data(target)
    estimator.fit(X, y, **release.fit_params())
    return RowModel(
        family=family,
        loss=loss,
        label=release.provenance["label"],
        target=target,
        encoder=release.encoder,
        coef=estimator.coef_,
        intercept=float(estimator.intercept_),
        trained_on={
            "privacy": release.certificate.headline,
            "n_rows": release.bags.n_rows,
            "n_bags": release.bags.n_bags,
            "label_kind": release.label_kind,
            "strategy": release.provenance["strategy"],
        },
    )


def _warn_of_bias(release: Release, *, loss: str, debias: bool) -> None:
    scores = release.provenance["scores"]
    by_labels = scores in ("labels", "noisy-labels")
    if loss == "instance" and not debias and scores == "none" and release.bags.sizes.max() > 1:
        warnings.warn(
            "instance loss on bags that were not sorted shrinks the slopes towards zero, "
            "to about 1/bag_size for random bags. Use loss='bag' (--loss bag), or debias=True "
            "(--debias).",
            BiasWarning,
            stacklevel=3,
        )
    if (loss in ("bag", "aggregate") or debias) and by_labels:
        warnings.warn(
            f"{'debiased ' if debias else ''}{loss} loss on bags that were sorted by the same "
            "labels exaggerates the slopes: rows were grouped by their noise as well. "
            "Use plain loss='instance' (--loss instance).",
            BiasWarning,
            stacklevel=3,
        )
