"""Named streams, features with the covariance they claim, and bags of one size."""

import signal
from dataclasses import replace

import numpy as np
import pytest

from bagwise.show.stages import progress_to
from reproduction.bounds import spread
from reproduction.cells import Cell
from reproduction.draws import MIXINGS, Draw, draw_features
from tests import stats

DRAW = Draw("dep", n=600, d=3, run=2, seed=9)
D = 4
KINDS = ("iso", "ind", "dep")


def test_a_stream_repeats_and_each_purpose_has_its_own():
    first = DRAW.stream("noise").random(8)
    np.testing.assert_array_equal(first, DRAW.stream("noise").random(8))
    others = [
        DRAW.stream("theta"),
        DRAW.stream("noise", 1),
        *(
            replace(DRAW, **change).stream("noise")
            for change in ({"run": 3}, {"seed": 10}, {"n": 601}, {"d": 4}, {"data": "ind"})
        ),
    ]
    beginnings = {tuple(first), *(tuple(other.random(8)) for other in others)}
    assert len(beginnings) == 1 + len(others)


def test_a_draw_is_the_same_in_any_order():
    late, early = replace(DRAW), replace(DRAW)
    late.bags_without_labels("random", 10)
    noise = late.unit_noise
    for name in ("X", "theta", "unit_noise"):
        np.testing.assert_array_equal(getattr(early, name), getattr(late, name))
    np.testing.assert_array_equal(noise, early.unit_noise)


def test_cells_share_features_coefficients_and_noise():
    weak, strong = DRAW.labels(0.5), DRAW.labels(2.0)
    np.testing.assert_allclose((strong - weak) / 1.5, DRAW.unit_noise)
    np.testing.assert_allclose(weak - 0.5 * DRAW.unit_noise, DRAW.X @ DRAW.theta)


def test_cells_that_differ_in_their_loss_have_the_same_sorted_bags():
    cells = [Cell(loss, "dep", 10, 0.5, "sorted") for loss in ("bag", "aggregate", "instance")]
    first, *others = (DRAW.bags_by(DRAW.labels(0.5), cell).index for cell in cells)
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("strategy", ["random", "kmeans", "whitened"])
def test_bags_without_labels_have_one_size(strategy):
    bags = DRAW.bags_without_labels(strategy, 10)
    assert set(bags.sizes) == {10}
    assert bags.in_bag.all()
    np.testing.assert_array_equal(bags.index, DRAW.bags_without_labels(strategy, 10).index)


def test_sorted_bags_cut_the_sorted_scores():
    scores = DRAW.labels(0.5)
    bags = DRAW.bags_by(scores, Cell("bag", "dep", 10, 0.5, "sorted"))
    assert set(bags.sizes) == {10}
    np.testing.assert_array_equal(bags.index[np.argsort(scores)], np.repeat(np.arange(60), 10))


def test_super_bags_are_random_halves_of_twice_as_many_neighbours():
    scores = DRAW.labels(0.5)
    bags = DRAW.bags_by(scores, Cell("bag", "dep", 10, 0.5, "super"))
    assert set(bags.sizes) == {10}
    assert bags.in_bag.sum() == DRAW.n // 2
    pairs = np.repeat(np.arange(30), 20)
    index = bags.index[np.argsort(scores)]
    np.testing.assert_array_equal(index[index >= 0], pairs[index >= 0])
    lower = (index.reshape(30, 20)[:, :10] >= 0).sum(axis=1)
    assert lower.min() < 5 < lower.max()  # not always the lower half, nor every other row


def directions():
    """Return directions whose variances determine every entry of a covariance."""
    pairs = [(i, j) for i in range(D) for j in range(i)]
    return np.array([*np.eye(D), *(np.eye(D)[i] + np.eye(D)[j] for i, j in pairs)])


def has_covariance(X, covariance):
    """Whether the variances of Gaussian rows are right in all `directions`, each by chi-square."""
    ways = directions()
    return all(
        stats.sd_is(X @ way, np.sqrt(way @ covariance @ way), alpha=stats.ALPHA / len(ways))
        for way in ways
    )


@pytest.mark.parametrize("kind", KINDS)
def test_features_have_the_covariance_they_claim(kind):
    features = draw_features(kind, n=20_000, d=D, rng=np.random.default_rng(21))
    assert has_covariance(features.X, features.covariance)
    assert not has_covariance(features.X, 1.1 * features.covariance)
    tilted = features.covariance.copy()
    size = 0.1 * np.sqrt(tilted[0, 0] * tilted[1, 1])
    tilted[[0, 1], [1, 0]] += size
    assert not has_covariance(features.X, tilted)
    assert abs(features.X.mean(axis=0) / features.X.std(axis=0)).max() < 5 / np.sqrt(20_000)


def test_the_mixing_is_not_taken_for_its_transpose():
    rng = np.random.default_rng(22)
    features = draw_features("dep", n=20_000, d=D, rng=rng)
    mixing = MIXINGS["dep"](D, np.random.default_rng(22))
    np.testing.assert_allclose(features.covariance, mixing.T @ mixing)
    assert not has_covariance(features.X, mixing @ mixing.T)


def test_how_the_paper_draws_covariances():
    rng = np.random.default_rng(23)
    np.testing.assert_array_equal(MIXINGS["iso"](D, rng), np.eye(D))
    diagonal = MIXINGS["ind"](2000, rng)
    variances = np.diag(diagonal) ** 2
    np.testing.assert_array_equal(diagonal, np.diag(np.diag(diagonal)))
    assert 0.1 <= variances.min() < 0.2
    assert 9.9 < variances.max() <= 10
    assert stats.mean_is(variances, 5.05)
    assert not stats.mean_is(variances, 1.1 * 5.05)
    full = MIXINGS["dep"](100, rng).ravel()
    assert stats.sd_is(full, 1.0)
    assert not stats.sd_is(full, 1.1)
    assert stats.mean_is(full, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_whitening_uses_the_true_covariance(kind):
    features = draw_features(kind, n=20_000, d=D, rng=np.random.default_rng(24))
    white = features.whitened()
    assert has_covariance(white, np.eye(D))
    assert not has_covariance(white, 1.1 * np.eye(D))
    values, vectors = np.linalg.eigh(features.covariance)
    np.testing.assert_allclose(white @ (vectors * np.sqrt(values)) @ vectors.T, features.X)
    # By the sample's own covariance the result would be exactly white.
    assert abs(white.T @ white / 20_000 - np.eye(D)).max() > 1e-4


def test_whitened_bags_are_compact_after_whitening_and_others_before():
    draw = Draw("dep", n=600, d=4, run=0, seed=1)
    plain, white = (draw.bags_without_labels(name, 10) for name in ("kmeans", "whitened"))

    def total_spread(points, bags):
        return sum(spread(column, bags) for column in points.T)

    assert total_spread(draw.features.whitened(), white) < 0.9 * total_spread(
        draw.features.whitened(), plain
    )
    assert total_spread(draw.X, plain) < 0.9 * total_spread(draw.X, white)


def interrupt(_what, _share):
    signal.raise_signal(signal.SIGINT)


def test_an_interrupted_search_is_no_result():
    draw = Draw("iso", n=4_000, d=8, run=0, seed=0)
    with progress_to(interrupt), pytest.raises(KeyboardInterrupt):
        draw.bags_without_labels("kmeans", 10)
