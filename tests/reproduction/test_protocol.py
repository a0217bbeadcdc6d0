"""The early-stopped training: its optimiser, its start, and where it ends if it is not stopped."""

import math

import numpy as np
import pytest
import torch

from bagwise.bagging.bags import Bags
from reproduction.protocol import (
    STEP,
    TRUTH_LENGTH,
    adam,
    small_truth,
    start_weights,
    train,
    unit_rows,
)
from tests import stats

TRUTH = np.array([0.1, -0.2, 0.2])


def problem(m=80, size=5, d=3):
    """Return rows of length 1 in shuffled bags of one size, and noisy labels of bags."""
    rng = np.random.default_rng(31)
    X = unit_rows(rng.standard_normal((m * size, d)))
    bags = Bags(rng.permutation(np.repeat(np.arange(m), size)))
    return X, bags, bags.mean(X @ TRUTH[:d]) + 0.1 * rng.standard_normal(m)


def torchs_adam(inputs, targets, start, *, epochs):
    """Train the same linear layer by PyTorch, all bags in one batch."""
    weights = torch.tensor(start, requires_grad=True)
    rows, labels = torch.tensor(inputs), torch.tensor(targets)[:, None]
    optimiser = torch.optim.Adam([weights], lr=STEP)
    for step in range(1, epochs + 1):
        # PyTorch adds its guard after the correction of the squares, Keras before.
        optimiser.param_groups[0]["eps"] = 1e-7 / math.sqrt(1 - 0.999**step)
        optimiser.zero_grad()
        torch.mean((rows @ weights - labels) ** 2).backward()
        optimiser.step()
    return weights.detach().numpy()


@pytest.mark.parametrize("rows_per_bag", [1, 5])
def test_adam_is_that_of_pytorch(rows_per_bag):
    rng = np.random.default_rng(32)
    inputs = rng.standard_normal((60, rows_per_bag, 4))
    targets, start = rng.standard_normal(60), rng.standard_normal(4)
    ours = adam(inputs, targets, start, batch=60, epochs=200, rng=rng)
    np.testing.assert_allclose(
        ours, torchs_adam(inputs, targets, start, epochs=200), rtol=0, atol=1e-10
    )
    assert np.linalg.norm(ours - start) > 0.1
    one_less = torchs_adam(inputs, targets, start, epochs=199)
    assert abs(ours - one_less).max() > 1e-5


def test_adam_leaves_its_start_alone():
    start = np.ones(2)
    rng = np.random.default_rng(0)
    adam(np.ones((3, 1, 2)), np.zeros(3), start, batch=2, epochs=1, rng=rng)
    np.testing.assert_array_equal(start, np.ones(2))


def steps_by_hand(X, labels_of_rows, weights, steps, keep=slice(None)):
    """Return the weights after steps whose gradient is added up row by row."""
    X, labels_of_rows = X[keep], labels_of_rows[keep]
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, steps + 1):
        gradient = np.zeros_like(weights)
        for x, label in zip(X, labels_of_rows, strict=True):
            gradient += 2 * (x @ weights - label) * x / len(X)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        size = STEP * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        weights = weights - size * mean / (np.sqrt(square) + 1e-7)
    return weights


def squared_error(weights, truth):
    return np.sum((weights - truth) ** 2) / truth.size


@pytest.mark.parametrize("left_out", [False, True])
def test_instance_loss_sees_every_row_that_is_in_a_bag(left_out):
    X, bags, labels = problem()
    if left_out:  # the bags with even numbers
        even = bags.index % 2 == 0
        bags = Bags(np.where(even, -1, bags.index // 2))
        labels = labels[1::2]
    repeated = bags.repeat(labels)
    found = train(
        X, bags, labels, loss="instance", truth=TRUTH, epochs=3, rng=np.random.default_rng(33)
    )
    start = start_weights(3, np.random.default_rng(33))
    rows = np.flatnonzero(bags.in_bag)
    expected = squared_error(steps_by_hand(X, repeated, start, 3, rows), TRUTH)
    assert found.error == pytest.approx(expected, rel=1e-12)
    # Without the first row, the third step is already another.
    without = squared_error(steps_by_hand(X, repeated, start, 3, rows[1:]), TRUTH)
    assert found.error != pytest.approx(without, rel=1e-9)


@pytest.mark.parametrize("loss", ["bag", "aggregate"])
def test_the_other_losses_see_centroids(loss):
    X, bags, labels = problem()
    found = train(X, bags, labels, loss=loss, truth=TRUTH, epochs=3, rng=np.random.default_rng(33))
    start = start_weights(3, np.random.default_rng(33))
    expected = squared_error(steps_by_hand(bags.mean(X), labels, start, 3), TRUTH)
    assert found.error == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", ["bag", "aggregate", "instance"])
def test_long_training_ends_at_the_minimiser(loss):
    X, bags, labels = problem()
    inputs, targets = (X, bags.repeat(labels)) if loss == "instance" else (bags.mean(X), labels)
    best = np.linalg.lstsq(inputs, targets)[0]
    found = train(
        X, bags, labels, loss=loss, truth=TRUTH, epochs=12_000, rng=np.random.default_rng(34)
    )
    assert found.error == pytest.approx(squared_error(best, TRUTH), rel=1e-6)
    other = bags.mean(X) if loss == "instance" else X
    wrong = np.linalg.lstsq(other, labels if loss == "instance" else bags.repeat(labels))[0]
    assert found.error != pytest.approx(squared_error(wrong, TRUTH), rel=1e-2)


@pytest.mark.parametrize(("batch", "steps"), [(512, 3), (513, 2), (1025, 1), (2000, 1)])
def test_an_epoch_goes_through_all_bags_in_batches(batch, steps):
    """Whatever its gradient, the first steps of Adam are nearly of one length."""
    inputs, targets, rng = np.ones((1025, 1, 1)), np.zeros(1025), np.random.default_rng(0)
    weights = adam(inputs, targets, np.ones(1), batch=batch, epochs=2, rng=rng)
    assert 1 - weights[0] == pytest.approx(2 * steps * STEP, rel=0.01)


def test_batches_are_drawn_anew_and_leave_no_bag_out():
    """With one bag in a batch, only a bag of its own moves a coefficient."""
    inputs, targets = np.eye(6)[:, None, :], np.ones(6)
    found = adam(inputs, targets, np.zeros(6), batch=1, epochs=1, rng=np.random.default_rng(1))
    again = adam(inputs, targets, np.zeros(6), batch=1, epochs=1, rng=np.random.default_rng(2))
    assert (found > 0).all()
    assert set(found.round(12)) == set(again.round(12))  # each place in the order has its step
    assert list(found) != list(again)


def test_the_first_weights_are_glorots():
    rng = np.random.default_rng(35)
    weights = np.concatenate([start_weights(4, rng) for _ in range(5000)])
    assert stats.mean_is(weights**2, 2 / 5)
    assert not stats.mean_is(weights**2, 2 / 4)
    assert stats.mean_is(weights, 0.0)
    limit = math.sqrt(6 / 5)
    assert 0.99 * limit < abs(weights).max() <= limit


def test_the_share_along_the_start():
    """Untrained weights are the start, so that the share is the squared cosine of start - truth."""
    X, bags, labels = problem()
    found = train(X, bags, labels, loss="bag", truth=TRUTH, epochs=0, rng=np.random.default_rng(36))
    start = start_weights(3, np.random.default_rng(36))
    cosine = (start - TRUTH) @ start / np.linalg.norm(start - TRUTH) / np.linalg.norm(start)
    assert found.along_start == pytest.approx(cosine**2)
    assert found.error == pytest.approx(squared_error(start, TRUTH))
    assert 0.1 < found.along_start < 0.999


def test_rows_and_truth_are_scaled():
    X = np.array([[3.0, 4.0], [0.0, -2.0]])
    np.testing.assert_allclose(unit_rows(X), [[0.6, 0.8], [0.0, -1.0]])
    assert np.linalg.norm(small_truth(np.array([1.0, -5.0, 2.0]))) == pytest.approx(TRUTH_LENGTH)


def test_bags_of_different_sizes_are_a_mistake():
    X = unit_rows(np.ones((3, 1)))
    with pytest.raises(AssertionError, match="one size"):
        train(
            X,
            Bags(np.array([0, 0, 1])),
            np.zeros(2),
            loss="instance",
            truth=np.ones(1),
            epochs=1,
            rng=np.random.default_rng(0),
        )
