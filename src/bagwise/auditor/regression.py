"""Predict single rows from released bags, with and without the label of their own bag.

The model is ridge regression on bag means, fitted to the bags of other folds: a reader of these
knows how labels follow features, and nothing of the row's own bag. With the own bag's label comes
what is left of it after the model, shrunk by the share of it that is not privacy noise: the best
linear prediction of one row's residual from that of its bag.
"""

from collections.abc import Callable

import numpy as np
from sklearn.linear_model import RidgeCV

from bagwise._types import FloatArray, IntArray
from bagwise.release.release import Release
from bagwise.release.verify import bag_features

FOLDS = 5
_PENALTIES = np.logspace(-4, 6, 11)


def predict_rows(release: Release, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return predictions of the labels of `rows` without and with the label of their own bag.

    Each is (n,), or (n, classes) for shares of classes.
    """
    means, labels = bag_features(release), release.labels
    scale = means.std(axis=0)
    used = scale > 0
    centre, scale = means.mean(axis=0)[used], scale[used]
    Z = (means[:, used] - centre) / scale
    X = (release.encoder.transform(release.features.take(rows))[:, used] - centre) / scale
    bags = release.bags.index[rows]
    fold_of_bag = np.random.default_rng(0).permutation(release.bags.n_bags) % FOLDS
    at_rows, at_bags = np.empty((rows.size, *labels.shape[1:])), np.empty(labels.shape)
    for fold in range(FOLDS):
        rest = fold_of_bag != fold
        model = _fit(Z[rest], labels[rest], release.bags.sizes[rest])
        at_bags[~rest] = model(Z[~rest])
        here = fold_of_bag[bags] == fold
        if here.any():  # few rows may all be in other folds
            at_rows[here] = model(X[here])
    left = labels - at_bags
    return at_rows, at_rows + (_share_of_one(release, left) * left)[bags]


def _fit(Z: FloatArray, labels: FloatArray, sizes: IntArray) -> Callable[[FloatArray], FloatArray]:
    """Return a function that predicts; the mean where there is nothing to learn from."""
    if Z.shape[1] == 0 or Z.shape[0] < 3:
        mean = np.average(labels, axis=0, weights=sizes) if labels.size else 0.0
        return lambda X: np.broadcast_to(mean, (X.shape[0], *np.shape(mean)))
    model = RidgeCV(alphas=_PENALTIES).fit(Z, labels, sample_weight=sizes)
    return lambda X: np.asarray(model.predict(X))


def _share_of_one(release: Release, left: FloatArray) -> FloatArray:
    """Return the slope of one row's residual on that of its bag, for each bag."""
    noise = np.square(release.noise_sd)
    sizes = release.bags.sizes.astype(np.float64)
    columns = left[:, None] if left.ndim == 1 else left
    slopes = np.empty_like(columns)
    for j, one in enumerate(columns.T):
        if release.label_kind == "pick":
            variance = max(float(np.mean(np.square(one) - noise)), 0.0)
            slopes[:, j] = variance / sizes / np.maximum(variance + noise, 1e-300)
        else:
            variance = max(float(np.mean(sizes * (np.square(one) - noise))), 0.0)
            slopes[:, j] = variance / sizes / np.maximum(variance / sizes + noise, 1e-300)
    return slopes[:, 0] if left.ndim == 1 else slopes
