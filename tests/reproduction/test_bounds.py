"""The corrected statements: golden values, hand-made cases, and exact error <= bound."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.bagging.random_bags import SuperBags
from bagwise.errors import BagsError
from bagwise.families import find_family
from bagwise.privacy.private_model import design_model
from bagwise.theory.exact import exact_risk
from reproduction.bounds import (
    aggregate_bound,
    bag_bound,
    bag_norm_bound,
    centroid_scatter,
    distance_bound,
    error_floor,
    instance_bound,
    largest_eigenvalue_bound,
    noisy_spread,
    pick_distance,
    pick_variance,
    picking_norm,
    sorted_aggregate_bound,
    sorted_instance_bound,
    sorted_spread_bound,
    spread,
    super_bag_eigenvalue_bound,
    super_bag_error_bound,
    super_bag_failure,
    super_bag_spread_bound,
)
from reproduction.gradients import (
    distance_from_gradient,
    expected_squared_gradient,
    gradient_bound,
    range_bound,
    range_objective,
)
from reproduction.squared_errors import distance_to_least_squares
from tests import stats
from tests.theory.cases import chunked, problems, scales, three_baggings

SLACK = 1 + 1e-9
KINDS = st.sampled_from(["mean", "pick"])
noises = st.one_of(st.just(0.0), scales)


def eigenvalues(matrix):
    return np.linalg.eigvalsh(matrix)


@given(problems(), scales, noises, KINDS)
def test_errors_are_within_their_bounds(problem, sigma, noise, kind):
    X, bags, theta = problem
    common = {"label_noise_sd": sigma, "noise_sd": noise}
    known = {"theta": theta, **common}
    by_instance = instance_bound(X, bags, label_kind=kind, **known)
    assert by_instance.holds is None
    for bound, label_kind, losses in (
        (by_instance, kind, ["instance"]),
        (bag_bound(X, bags, **common), "mean", ["bag", "aggregate"]),
        (aggregate_bound(X, bags, **known), "pick", ["aggregate"]),
    ):
        for loss in losses:
            risk = exact_risk(X, bags, label_kind=label_kind, loss=loss, **known)
            assert risk.total <= bound.value * SLACK


@given(problems(equal=True), scales)
def test_for_bags_of_one_size_the_bounds_are_those_of_the_theorems(problem, sigma):
    X, bags, theta = problem
    (n, d), k = X.shape, int(bags.sizes[0])
    least = eigenvalues(bags.mean(X).T @ bags.mean(X))[0]
    found = bag_bound(X, bags, label_noise_sd=sigma).value
    assert found == pytest.approx(sigma**2 * d / (k * least), rel=1e-9)
    within = spread(X @ theta, bags)
    found = aggregate_bound(X, bags, theta=theta, label_noise_sd=sigma).value
    assert found <= (within + n * sigma**2) / (k * least) * SLACK
    single = Bags.singletons(n)
    picks = instance_bound(X, single, theta=theta, label_noise_sd=sigma, label_kind="pick")
    means = instance_bound(X, single, theta=theta, label_noise_sd=sigma, label_kind="mean")
    assert picks.value == pytest.approx(means.value)  # rows of their own: no difference


def test_instance_bound_is_attained_by_equal_rows():
    X, bags = np.ones((12, 1)), Bags(np.arange(12) // 4)
    arguments = {"theta": np.array([3.0]), "label_noise_sd": 0.7, "noise_sd": 0.4}
    for kind in ("mean", "pick"):
        bound = instance_bound(X, bags, label_kind=kind, **arguments).value
        risk = exact_risk(X, bags, label_kind=kind, loss="instance", **arguments).total
        assert bound == pytest.approx(risk, rel=1e-12)


def test_the_spread_counts_twice_where_bias_and_choice_are_both_as_large_as_can_be():
    """One bag, two features: one differs inside the bag, the other does not."""
    X, bags, theta = (
        np.array([[1.0, 1.0], [-1.0, 1.0]]),
        Bags(np.array([0, 0])),
        np.array([1.0, 0.0]),
    )
    arguments = {"theta": theta, "label_noise_sd": 0.0, "label_kind": "pick"}
    risk = exact_risk(X, bags, loss="instance", **arguments)
    assert (risk.bias, risk.choice) == (1.0, 1.0)
    assert instance_bound(X, bags, **arguments).value == pytest.approx(2.0)
    bound = distance_bound(X, bags, labels=X @ theta, label_kind="pick")
    assert bound.value == pytest.approx(2.0)
    assert distance_to_least_squares(X, bags, labels=X @ theta, label_kind="pick").total == 2.0


@given(problems(), scales, noises, KINDS)
def test_the_distance_to_least_squares_is_within_its_bound(problem, sigma, noise, kind):
    X, bags, theta = problem
    labels = X @ theta + sigma * np.sin(np.arange(len(X)) * 1.7)
    arguments = {"labels": labels, "label_kind": kind, "noise_sd": noise}
    bound = distance_bound(X, bags, **arguments)
    assert distance_to_least_squares(X, bags, **arguments).total <= bound.value * SLACK
    assert bound.holds is True


def test_bags_that_determine_nothing_have_no_finite_bound():
    X, bags = np.array([[1.0], [-1.0], [1.0], [-1.0]]), Bags(np.array([0, 0, 1, 1]))
    assert bag_bound(X, bags, label_noise_sd=1.0).value == math.inf
    assert aggregate_bound(X, bags, theta=np.ones(1), label_noise_sd=1.0).value == math.inf
    zero = np.zeros((4, 1))
    assert picking_norm(zero, bags).value == math.inf
    assert error_floor(zero, label_noise_sd=1.0).value == math.inf


def test_noise_goes_with_its_bag():
    """Bags keep their numbers where rows are left out: here the larger one has the noise."""
    X, bags = np.ones((5, 1)), Bags(np.array([1, 1, 1, 0, -1]))
    noise = np.array([0.0, 2.0])
    bound = instance_bound(
        X, bags, theta=np.ones(1), label_noise_sd=0.0, label_kind="mean", noise_sd=noise
    )
    assert bound.value == pytest.approx(3 * 2.0**2 / 4)
    gradient = expected_squared_gradient(
        X,
        bags,
        theta=np.zeros(1),
        family="gaussian",
        phi=1.0,
        label_kind="mean",
        loss="instance",
        noise_sd=noise,
    )
    assert gradient == pytest.approx((3**2 * (1 / 3 + 4) + 1) / 4**2)


# What is sorted by its own noise: the errors are simulated.


def sorted_draws(bag_size, label_noise_sd, score_noise_sd, noise_sd, runs):
    """Yield rows, labels and bags sorted by noisy labels."""
    rng = np.random.default_rng(11)
    X, theta = rng.standard_normal((120, 2)), np.array([1.0, -0.5])
    for _ in range(runs):
        y = X @ theta + label_noise_sd * rng.standard_normal(120)
        bags = chunked(np.argsort(y + score_noise_sd * rng.standard_normal(120)), bag_size)
        yield X, theta, y, bags


@pytest.mark.parametrize("score_noise_sd", [0.0, 0.3, 1.0, 30.0])
@pytest.mark.parametrize("label_noise_sd", [0.0, 0.5])
def test_sorted_bags_are_within_their_bounds(label_noise_sd, score_noise_sd):
    scale = {"label_noise_sd": label_noise_sd, "score_noise_sd": score_noise_sd}
    spreads, instance, aggregate, least = [], [], [], []
    for X, theta, y, bags in sorted_draws(6, noise_sd=0.2, runs=300, **scale):
        spreads.append(spread(y, bags))
        # Given labels and bags, only the pick and the privacy noise are left: exact.
        distance = distance_to_least_squares(X, bags, labels=y, label_kind="pick", noise_sd=0.2)
        inverse = np.linalg.inv(X.T @ X)
        off = inverse @ (X.T @ (bags.repeat(bags.mean(y)) - X @ theta))
        instance.append(off @ off + distance.choice + distance.privacy)
        c = bags.mean(X)
        T = np.linalg.solve(c.T @ c, c.T)
        off = T @ bags.mean(y - X @ theta)
        aggregate.append(off @ off + np.sum(T**2, axis=0) @ (bags.variance(y) + 0.2**2))
        least.append(eigenvalues(c.T @ c)[0])
    arguments = {"theta": theta, "bag_size": 6, "noise_sd": 0.2, **scale}
    bound = sorted_spread_bound(X @ theta, bag_size=6, **scale)
    assert np.mean(spreads) <= bound.value * SLACK
    assert np.mean(instance) <= sorted_instance_bound(X, **arguments).value
    bound = sorted_aggregate_bound(X, least_eigenvalue=min(least), **arguments)
    assert np.mean(aggregate) <= bound.value
    assert bound.holds is None


def test_sorted_bags_of_one_row_have_the_error_of_least_squares():
    X, theta = np.random.default_rng(6).standard_normal((30, 2)), np.ones(2)
    bound = sorted_instance_bound(X, theta=theta, label_noise_sd=0.5, bag_size=1)
    assert bound.value == pytest.approx(0.25 * np.trace(np.linalg.inv(X.T @ X)))


def test_sorted_bounds_say_when_bags_cannot_be_of_one_size():
    bound = sorted_spread_bound(np.arange(7.0), bag_size=3, label_noise_sd=1.0, score_noise_sd=1.0)
    assert bound.holds is False


# Identities and lemmas.


@given(problems())
def test_the_objective_in_three_ways(problem):
    """Lemma 13 (and 9): |y|^2 less the squared sums over sizes; a matrix adds up (Lemma 18)."""
    X, bags, theta = problem
    rows = bags.in_bag
    y = X @ theta
    sums = bags.sum(y)
    by_sums = y[rows] @ y[rows] - np.sum(sums**2 / bags.sizes)
    assert spread(y, bags) == pytest.approx(by_sums, rel=1e-6, abs=1e-8 * (y @ y))
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((X.shape[1],) * 2))
    along = sum(spread(X @ z, bags) for z in basis.T)
    assert spread(X, bags) == pytest.approx(along, rel=1e-9)
    stretched = basis * np.linspace(1, 2, X.shape[1])  # orthogonal is not enough
    if X.shape[1] > 1 and along > 1e-9 * np.sum(X**2):
        assert sum(spread(X @ z, bags) for z in stretched.T) > along * (1 + 1e-6)


def every_pick(bags):
    members = [np.flatnonzero(bags.index == bag) for bag in range(bags.n_bags)]
    return itertools.product(*members)


def test_picks_by_counting_all_of_them():
    """Prop 7, Lemma 8 and Lemma 17, over all ways to pick from unequal bags."""
    values = np.array([1.0, -2.0, 0.5, 4.0, 3.0, 3.5, -1.0])
    bags = Bags(np.array([0, 0, 0, 1, 1, 2, 2]))
    picks = [values[list(rows)] for rows in every_pick(bags)]
    on_rows = [bags.repeat(pick) for pick in picks]
    assert np.mean([np.sum((a - values) ** 2) for a in on_rows]) == pytest.approx(
        pick_distance(values, bags)
    )
    assert np.mean([a @ a for a in on_rows]) == pytest.approx(values @ values)  # Lemma 8
    mean = bags.mean(values)
    assert np.mean([np.sum((pick - mean) ** 2) for pick in picks]) == pytest.approx(
        pick_variance(values, bags)
    )


def test_the_matrix_of_picks_has_one_norm_whatever_is_picked():
    """Prop 10: |G^-1 X' A|_F^2 is the sum of |G^-1 s_l|^2, for each A."""
    rng = np.random.default_rng(2)
    X, bags = rng.standard_normal((7, 2)), Bags(np.array([0, 0, 0, 1, 1, 2, 2]))
    inverse = np.linalg.inv(X.T @ X)
    exact = np.sum((bags.sum(X) @ inverse) ** 2)
    for rows in every_pick(bags):
        A = np.zeros((7, 7))
        A[np.arange(7), np.array(rows)[bags.index]] = 1
        assert np.sum((inverse @ X.T @ A) ** 2) == pytest.approx(exact)
        assert np.linalg.norm(A, 2) ** 2 == pytest.approx(3)  # the largest bag, not 1


@given(problems())
def test_norms_and_eigenvalues_are_within_their_bounds(problem):
    X, bags, _ = problem
    rows, c = X[bags.in_bag], bags.mean(X)
    inverse = np.linalg.inv(rows.T @ rows)
    assert np.sum((bags.sum(X) @ inverse) ** 2) <= picking_norm(X, bags).value * SLACK
    assert eigenvalues(c.T @ c)[-1] <= largest_eigenvalue_bound(X, bags).value * SLACK
    assert np.max(np.sum(c**2, axis=1)) <= bag_norm_bound(X).value * SLACK


def test_golden_eigenvalues():
    """T3 of the theory page."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((600, 3))
    bags = chunked(rng.permutation(600), 5)
    found = eigenvalues(bags.mean(X).T @ bags.mean(X))
    np.testing.assert_allclose(found[[0, -1]], [18.2023029194, 28.6922721304], rtol=1e-10)
    assert largest_eigenvalue_bound(X, bags).value == pytest.approx(121.4417821224, rel=1e-10)


def test_noise_adds_to_the_spread_of_bags_that_do_not_know_it():
    """Lemma 14: (n - m) sigma^2 more; and a twin whose bags were sorted by that noise."""
    rng = np.random.default_rng(4)
    values, bags = rng.standard_normal(60), Bags(np.arange(60) // 6)
    noise = 0.8 * rng.standard_normal((4000, 60))
    spreads = [spread(values + one, bags) for one in noise]
    expected = noisy_spread(values, bags, noise_sd=0.8)
    assert stats.mean_is(spreads, expected)
    assert not stats.mean_is(spreads, spread(values, bags) + 60 * 0.8**2)
    sorted_ones = [spread(np.sort(values + one), bags) for one in noise[:500]]
    assert np.mean(sorted_ones) < expected / 4


@given(problems(equal=True), st.integers(0, 2**32 - 1))
def test_the_scatter_of_centroids(problem, seed):
    """Lemma 19, with 1/k."""
    X, bags, _ = problem
    z = np.random.default_rng(seed).standard_normal(X.shape[1])
    direct = np.sum((bags.mean(X) @ z) ** 2)
    found = centroid_scatter(X, bags, direction=z)
    assert found == pytest.approx(direct, rel=1e-6, abs=1e-9 * np.sum((X @ z) ** 2))


def test_the_scatter_of_centroids_is_about_bags_of_one_size():
    with pytest.raises(BagsError, match="one size"):
        centroid_scatter(np.ones((3, 1)), Bags(np.array([0, 0, 1])), direction=np.ones(1))


def test_sorting_by_one_axis_does_not_share_alike():
    """What follows Lemma 18 needs a clusterer that turns with its data."""
    rng = np.random.default_rng(17)
    compact, by_axis, fast = [], [], bw.KMeansBags(effort="fast")
    for seed in range(40):
        X = rng.standard_normal((120, 2))
        bags = bw.make_bags(X, bag_size=6, strategy=fast, seed=seed)
        compact.append(spread(X[:, 0], bags) - spread(X[:, 1], bags))
        bags = chunked(np.argsort(X[:, 0]), 6)
        by_axis.append(spread(X[:, 0], bags) - spread(X[:, 1], bags))
    assert stats.mean_is(compact, 0.0)
    assert not stats.mean_is(by_axis, 0.0)


# Random bags from super-bags.


def test_the_mean_of_random_halves():
    """E s s' over all halves of a super-bag, and the least eigenvalue that the bound rests on."""
    rng = np.random.default_rng(3)
    X, k = rng.standard_normal((6, 2)), 3
    halves = list(itertools.combinations(range(6), k))
    mean = np.mean([np.outer(X[list(h)].sum(0), X[list(h)].sum(0)) for h in halves], axis=0)
    total = X.sum(axis=0)
    formula = (k * X.T @ X + (k - 1) * np.outer(total, total)) / (2 * (2 * k - 1))
    np.testing.assert_allclose(mean, formula)
    least = super_bag_eigenvalue_bound(X, bag_size=k, t=0.0).value
    assert least <= eigenvalues(mean / k**2)[0] * SLACK


@pytest.mark.parametrize("t", [0.1, 0.5, 0.9])
def test_random_halves_keep_to_their_bounds(t):
    """The failures are rarer than their bound says, and without failure the error is bounded."""
    rng = np.random.default_rng(5)
    X = rng.uniform(0.5, 1.0, size=(3000, 1)) * rng.choice([-1, 1], size=(3000, 1))
    failure = super_bag_failure(X, bag_size=2, t=t)
    least = super_bag_eigenvalue_bound(X, bag_size=2, t=t)
    bound = super_bag_error_bound(X, bag_size=2, t=t, label_noise_sd=0.5, noise_sd=0.1)
    failures = 0
    for _ in range(200):
        bags = SuperBags().assign(X, None, bag_size=2, rng=rng)
        c = bags.mean(X)
        ok = eigenvalues(c.T @ c)[0] >= least.value
        failures += not ok
        risk = exact_risk(
            X,
            bags,
            theta=np.ones(1),
            label_noise_sd=0.5,
            noise_sd=0.1,
            label_kind="mean",
            loss="bag",
        )
        assert not ok or risk.total <= bound.value
    assert failures / 200 <= failure.value
    assert failure.holds is None
    if t == 0.5:
        assert failure.value < 1e-3  # here the bound says something
    vacuous = super_bag_failure(rng.standard_normal((20, 5)), bag_size=5, t=t)
    assert vacuous.value == 1.0
    assert super_bag_failure(X[:21], bag_size=5, t=t).holds is False


def test_failure_by_hand():
    """Rows of length 1 in one dimension: mu/beta = 240 / (2 * 2 * 3) = 20."""
    found = super_bag_failure(np.ones((240, 1)), bag_size=2, t=0.5).value
    assert found == pytest.approx((math.exp(-0.5) / 0.5**0.5) ** 20)
    # Two columns double it, and the longest row counts.
    longer = np.vstack([np.eye(2)] * 1200)
    longer[0] *= 2
    found = super_bag_failure(longer, bag_size=2, t=0.5).value
    assert found == pytest.approx(2 * (math.exp(-0.5) / 0.5**0.5) ** (1200 / 12 / 4))


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 6))
def test_splitting_super_bags_never_adds_spread(seed, k, count):
    """Thm 20, with what each split gains."""
    rng = np.random.default_rng(seed)
    n = 2 * k * count
    values = rng.standard_normal(n)
    whole, halves = Bags(np.arange(n) // (2 * k)), Bags(np.arange(n) // k)
    bound = super_bag_spread_bound(values, whole, halves)
    assert bound.holds is True
    sums = halves.sum(values).reshape(-1, 2)
    gain = np.sum((sums[:, 0] - sums[:, 1]) ** 2) / (2 * k)
    assert bound.value - gain == pytest.approx(spread(values, halves), abs=1e-9)


def test_bags_that_do_not_split_super_bags_are_noticed():
    whole, crossing = Bags(np.array([0, 0, 1, 1])), Bags(np.array([0, 1, 1, 0]))
    values = np.array([0.0, 0.0, 9.0, 9.0])
    bound = super_bag_spread_bound(values, whole, crossing)
    assert bound.holds is False
    assert spread(values, crossing) > bound.value


# Generalised linear models.


def logistic():
    rng = np.random.default_rng(0)
    X, theta = rng.standard_normal((400, 3)), rng.standard_normal(3)
    return X, theta, chunked(np.argsort(X @ theta, kind="stable"), 5)


def test_golden_gradients():
    """T6 of the theory page."""
    X, theta, bags = logistic()
    arguments = {"theta": theta, "family": "bernoulli", "label_kind": "pick"}
    found = expected_squared_gradient(X, bags, loss="instance", **arguments)
    assert found == pytest.approx(0.001515531627, rel=1e-9)
    found = expected_squared_gradient(X, bags, loss="aggregate", **arguments)
    assert found == pytest.approx(0.00151533829, rel=1e-8)
    # The sums that the bounds multiply with the squared norm of the rows.
    largest = eigenvalues(X.T @ X)[-1]
    found = gradient_bound(X, bags, loss="instance", **arguments).value
    assert found * 400**2 / largest == pytest.approx(64.264962, rel=1e-7)
    found = gradient_bound(X, bags, loss="aggregate", **arguments).value
    assert found * 80**2 / (largest / 5) == pytest.approx(12.85158, rel=1e-6)


@pytest.mark.parametrize("kind", ["mean", "pick"])
@pytest.mark.parametrize("loss", ["instance", "aggregate"])
@pytest.mark.parametrize("family", ["poisson", "bernoulli", "gamma"])
def test_gradients_by_simulation(family, loss, kind):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(60), rng.standard_normal((60, 2))])
    theta = np.array([0.2, 0.6, -0.5])
    bags = three_baggings(X, theta, 6, rng)["unequal"]
    model = find_family(family)
    phi = 0.5 if family == "gamma" else 1.0
    noise = rng.uniform(0.1, 0.5, size=bags.n_bags)
    eta, centre = X @ theta, bags.mean(X @ theta)
    order, first = np.argsort(bags.index, kind="stable"), np.cumsum(bags.sizes) - bags.sizes
    squares = np.empty(4000)
    for run in range(squares.size):
        y = model.sample(eta, phi=phi, rng=rng)
        labels = bags.mean(y) if kind == "mean" else y[order[first + rng.integers(bags.sizes)]]
        labels = labels + noise * rng.standard_normal(bags.n_bags)
        if loss == "instance":
            lever = model.natural_slope(eta) * (model.mean(eta) - labels[bags.index]) / phi
            gradient = X.T @ lever / len(X)
        else:
            lever = model.natural_slope(centre) * (model.mean(centre) - labels) / phi
            gradient = bags.mean(X).T @ lever / bags.n_bags
        squares[run] = gradient @ gradient
    arguments = {
        "theta": theta,
        "family": model,
        "label_kind": kind,
        "loss": loss,
        "phi": phi,
        "noise_sd": noise,
    }
    expected = expected_squared_gradient(X, bags, **arguments)
    assert stats.mean_is(squares, expected)
    assert not stats.mean_is(squares, 1.2 * expected)
    assert expected <= gradient_bound(X, bags, **arguments).value


@given(problems(), st.sampled_from(["gaussian", "poisson", "bernoulli"]), KINDS, noises)
def test_gradients_are_within_their_bounds(problem, family, kind, noise):
    X, bags, theta = problem
    theta = theta / np.abs(X @ theta).max() * 3  # eta within 3
    arguments = {"theta": theta, "family": family, "phi": 1.0, "noise_sd": noise}
    for loss in ("instance", "aggregate"):
        exact = expected_squared_gradient(X, bags, label_kind=kind, loss=loss, **arguments)
        bound = gradient_bound(X, bags, label_kind=kind, loss=loss, **arguments)
        assert exact <= bound.value * SLACK
    picks = {"label_kind": "pick", "loss": "aggregate"}
    by_parts = gradient_bound(X, bags, **picks, **arguments).value
    assert by_parts <= range_bound(X, bags, **arguments).value * SLACK


def test_the_smallest_bag_sets_the_bound_of_aggregate_loss():
    """All that is not zero is in the smaller of two bags."""
    X, bags = np.array([[10.0], [0.0], [0.0], [0.0]]), Bags(np.array([0, 1, 1, 1]))
    arguments = {
        "theta": np.zeros(1),
        "family": "gaussian",
        "label_kind": "pick",
        "loss": "aggregate",
    }
    exact = expected_squared_gradient(X, bags, **arguments)
    assert exact == pytest.approx(100 / 4)
    assert gradient_bound(X, bags, **arguments).value == pytest.approx(100 * 2 / 4)


def groupings(items, size):
    """Return all partitions into groups of one size."""
    if not items:
        yield []
        return
    head, *rest = items
    for others in itertools.combinations(rest, size - 1):
        left = [item for item in rest if item not in others]
        for groups in groupings(left, size):
            yield [(head, *others), *groups]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_bags_have_smaller_ranges_than_sorted_ones(size):
    rng = np.random.default_rng(size)
    n = 8 if size != 3 else 9
    X, theta = rng.standard_normal((n, 1)), np.array([1.3])
    best = math.inf
    for groups in groupings(list(range(n)), size):
        index = np.empty(n, dtype=int)
        for bag, rows in enumerate(groups):
            index[list(rows)] = bag
        objective = range_objective(X, Bags(index), theta=theta, family="poisson").sum()
        best = min(best, objective)
    ordered = chunked(np.argsort(X[:, 0]), size)
    found = range_objective(X, ordered, theta=theta, family="poisson").sum()
    assert found == pytest.approx(best, rel=1e-12)


@pytest.mark.filterwarnings("ignore::bagwise.errors.BiasWarning")
@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_the_distance_of_a_fit_is_within_what_its_gradient_says(family):
    """Lemma 21 on the segment between theta and the fit."""
    rng = np.random.default_rng(9)
    X, theta = rng.standard_normal((300, 2)), np.array([0.5, -0.3])
    bags = chunked(np.argsort(X @ theta), 5)
    model = find_family(family)
    labels = bags.mean(model.sample(X @ theta, phi=1.0, rng=rng))[bags.index]
    fit = bw.BaggedGLM(family, loss="instance", fit_intercept=False)
    hat = fit.fit(X, labels, bags=bags.index).coef_
    gradient = X.T @ (model.mean(X @ theta) - labels) / 300
    slopes = [model.slope(X @ (theta + s * (hat - theta))) for s in np.linspace(0, 1, 101)]
    curvatures = [eigenvalues((X * s[:, None]).T @ X / 300) for s in slopes]
    low, high = distance_from_gradient(
        gradient,
        least_curvature=min(values[0] for values in curvatures),
        largest_curvature=max(values[-1] for values in curvatures),
    )
    distance = np.linalg.norm(hat - theta)
    assert low.value <= distance <= high.value
    assert high.value < 3 * low.value  # so that both say something
    _, without = distance_from_gradient(gradient, least_curvature=0.0)
    assert without.value == math.inf


def test_to_first_order_the_error_is_the_gradient_in_the_metric_of_the_curvature():
    """For one feature, error = gradient / curvature."""
    rng = np.random.default_rng(10)
    X, theta = rng.standard_normal((200, 1)), np.array([0.4])
    bags = chunked(np.argsort(X[:, 0]), 4)
    arguments = {"theta": theta, "family": "poisson", "label_kind": "pick", "noise_sd": 0.1}
    curvature = np.mean(np.exp(X @ theta) * X[:, 0] ** 2)
    gradient = expected_squared_gradient(X, bags, loss="instance", **arguments)
    risk = exact_risk(X, bags, loss="instance", **arguments)
    assert risk.total == pytest.approx(gradient / curvature**2, rel=1e-12)


# The lower bound.


def test_golden_floor():
    """T7 of the theory page: tr A^(-1/2), and three usual mechanisms above it."""
    X = np.random.default_rng(0).standard_normal((200, 3))
    floor = error_floor(X, label_noise_sd=0.0, label_range=1.0, mu=1.0).value
    assert floor == pytest.approx(2.6598246822e-04, rel=1e-8)

    def power(exponent):
        values, vectors = np.linalg.eigh(X.T @ X)
        return (vectors * values**exponent) @ vectors.T

    def largest(K):
        return np.einsum("ij,jk,ik->i", X, K, X).max()

    leverage = largest(power(-1)) * np.trace(power(-1))
    spherical = largest(np.eye(3)) * np.trace(power(-2))
    shaped = largest(power(-1.5)) * np.trace(power(-0.5))
    expected = [1.1723673538e-03, 1.2020959712e-03, 1.1616098668e-03]
    np.testing.assert_allclose([leverage, spherical, shaped], expected, rtol=1e-9)
    assert floor < min(expected)


def test_the_floor_is_the_privacy_error_of_the_direct_release():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 2))
    design = design_model(X, ["a", "b"])
    Z = np.column_stack([np.ones(300), (X - design.center) / design.spread]) @ design.basis
    floor = error_floor(Z, label_noise_sd=0.0, label_range=3.0, mu=0.5).value
    assert floor == pytest.approx((3.0 / 0.5) ** 2 * design.privacy_trace, rel=1e-6)


@given(problems(), scales, st.floats(0.05, 5.0), st.floats(0.1, 10.0))
def test_no_bags_beat_the_floor(problem, sigma, mu, label_range):
    X, bags, theta = problem
    floor = error_floor(X[bags.in_bag], label_noise_sd=sigma, label_range=label_range, mu=mu).value
    arguments = {
        "theta": theta,
        "label_noise_sd": sigma,
        "label_kind": "mean",
        "noise_sd": label_range / (bags.sizes * mu),
    }
    for loss, weights in (("bag", "equal"), ("bag", "known-noise"), ("debiased", "equal")):
        risk = exact_risk(X, bags, loss=loss, weights=weights, **arguments)
        assert risk.total >= floor / SLACK
        without_noise = error_floor(X[bags.in_bag], label_noise_sd=sigma).value
        assert risk.label_noise >= without_noise / SLACK
        assert risk.privacy >= (floor - without_noise) / SLACK


def test_bags_of_one_row_in_one_dimension_attain_the_floor():
    """The twin: a floor that were 1 % higher would be broken."""
    X, mu = np.ones((50, 1)), 0.7
    floor = error_floor(X, label_noise_sd=0.3, label_range=2.0, mu=mu).value
    risk = exact_risk(
        X,
        Bags(np.zeros(50, dtype=int)),
        theta=np.ones(1),
        label_noise_sd=0.3,
        label_kind="mean",
        loss="bag",
        noise_sd=2.0 / (50 * mu),
    )
    assert risk.total == pytest.approx(floor, rel=1e-9)
