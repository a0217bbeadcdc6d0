import importlib.util
import itertools
import logging

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bagwise as bw
from bagwise.api import make_bags
from bagwise.bagging.aligned_bags import AlignedBags, coordinates, draw_in
from bagwise.bagging.bags import Bags
from bagwise.cluster import aligning, kernels
from bagwise.cluster.sizes import SizeRange
from bagwise.cluster.workers import Patience
from bagwise.errors import MissingExtraError, StrategyError
from bagwise.learn import fit_release
from bagwise.privacy.curves import gaussian_mu
from bagwise.theory.exact import exact_risk
from tests import stats
from tests.bagging.tables import tables

SCALES = ["whiten", "std", "none"]


def rows(n=300, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def aligned(X, bag_size, *, seed=0, **parameters):
    return make_bags(X, bag_size=bag_size, strategy=AlignedBags(**parameters), seed=seed)


def with_ones(X):
    return np.column_stack([X - X.mean(axis=0), np.ones(X.shape[0])])


def sums_of(Z, labels, bags):
    return np.array([Z[labels == b].sum(axis=0) for b in range(bags)])


def trace_of(Z, weights, labels, bags):
    """tr(W A^-1), from scratch."""
    S = sums_of(Z, labels, bags)
    return float(weights @ np.diag(np.linalg.inv(S.T @ S)))


def error_of(X, bags, scale="whiten"):
    """The error that noise of equal size on the sums of all bags leads to."""
    Z = with_ones(X)
    S = sums_of(Z, bags.index, bags.n_bags)
    slopes = np.linalg.pinv(S.T @ S, hermitian=True)[:-1, :-1]
    covariance = np.atleast_2d(np.cov(X.T, bias=True))
    return {
        "whiten": np.trace(slopes @ covariance),
        "std": np.diag(slopes) @ np.diag(covariance),
        "none": np.trace(slopes),
    }[scale]


def simplex_bags(X, seed=0):
    whitened = coordinates(X, "whiten")[0][:]
    r = whitened.shape[1]
    corners = aligning._simplex(r + 1, r, np.random.default_rng(seed))
    return Bags.from_labels((whitened @ corners.T).argmax(axis=1))


def sign_bags(X):
    whitened = coordinates(X, "whiten")[0][:]
    j = np.abs(whitened).argmax(axis=1)
    return Bags.from_labels(2 * j + (np.take_along_axis(whitened, j[:, None], 1)[:, 0] > 0))


# The changes that the search is made of


def random_state(seed, *, n=12, d=2, bags=4):
    rng = np.random.default_rng(seed)
    Z, labels = with_ones(rng.normal(size=(n, d))), rng.permutation(np.arange(n) % bags)
    return Z, np.append(rng.uniform(0.1, 1, d), 0.0), labels, bags


def attempt(Z, weights, labels, bags, e, a, b, worthwhile=-np.inf):
    sums = sums_of(Z, labels, bags)
    P, scratch = np.linalg.inv(sums.T @ sums), np.empty((4, Z.shape[1]))
    scratch[0] = e
    made = kernels.align.transfer(sums, P, weights, a, b, scratch, worthwhile)
    return made, sums, P


@pytest.mark.parametrize("seed", range(5))
def test_a_transfer_leads_to_the_sums_and_the_inverse_of_the_changed_bags(seed):
    Z, weights, labels, bags = random_state(seed)
    before = trace_of(Z, weights, labels, bags)
    changes = []
    for i, b in itertools.product(range(len(Z)), range(bags)):
        if b != labels[i]:
            changed = labels.copy()
            changed[i] = b
            changes.append((Z[i], labels[i], b, changed))
    for i, j in itertools.combinations(range(len(Z)), 2):
        if labels[i] != labels[j]:
            changed = labels.copy()
            changed[i], changed[j] = labels[j], labels[i]
            changes.append((Z[i] - Z[j], labels[i], labels[j], changed))
    kinds = set()
    for e, a, b, changed in changes:
        made, sums, P = attempt(Z, weights, labels, bags, e, a, b, worthwhile=-1e300)
        expected = sums_of(Z, changed, bags)
        after = trace_of(Z, weights, changed, bags)
        assert made
        assert np.allclose(sums, expected)
        assert np.allclose(P, np.linalg.inv(expected.T @ expected), rtol=1e-6)
        assert weights @ np.diag(P) == pytest.approx(after, rel=1e-6)
        # The decision is on the exact difference: just below it yes, just above it no.
        margin = 1e-4 * abs(before - after)
        worth = {
            sign: attempt(Z, weights, labels, bags, e, a, b, before - after + sign * margin)[0]
            for sign in (-1, 1)
        }
        assert worth == {-1: True, 1: False}
        kinds.add(after < before)
    assert kinds == {True, False}


def test_a_change_that_is_not_made_leaves_everything_as_it_was():
    Z, weights, labels, bags = random_state(0)
    made, sums, P = attempt(
        Z, weights, labels, bags, Z[0], labels[0], (labels[0] + 1) % bags, 1e300
    )
    expected = sums_of(Z, labels, bags)
    assert not made
    assert np.array_equal(sums, expected)
    assert np.array_equal(P, np.linalg.inv(expected.T @ expected))


@pytest.mark.parametrize(("least", "most"), [(1, 60), (14, 60), (1, 16), (15, 15)])
def test_sweeps_lower_the_trace_and_keep_sizes(least, most):
    lowered = 0
    for seed in range(5):
        Z, weights, labels, bags = random_state(seed, n=60, d=3)
        trace = trace_of(Z, weights, labels, bags)
        for _ in range(5):
            found = aligning._sweep(Z, labels, weights, SizeRange(bags, least, most))
            assert found == pytest.approx(trace_of(Z, weights, labels, bags), rel=1e-6)
            assert found <= trace * (1 + 1e-9)
            lowered += found < 0.9 * trace
            trace = found
            sizes = np.bincount(labels, minlength=bags)
            assert least <= sizes.min() <= sizes.max() <= most
    assert lowered >= 5


def least_error(X, bags, least):
    """The least error over all partitions, all at once."""
    choices = itertools.product(range(bags), repeat=len(X) - 1)
    member = np.eye(bags)[[(0, *labels) for labels in choices]]
    sums = np.einsum("pnb,nf->pbf", member[member.sum(axis=1).min(axis=1) >= least], with_ones(X))
    scatter = np.einsum("pbf,pbg->pfg", sums, sums)
    scatter = scatter[np.linalg.cond(scatter) < 1e12]
    slopes = np.linalg.inv(scatter)[:, :-1, :-1]
    return np.einsum("pfg,gf->p", slopes, np.atleast_2d(np.cov(X.T, bias=True))).min()


@pytest.mark.parametrize(("n", "d", "least"), [(12, 1, 1), (12, 1, 5), (10, 2, 1), (10, 2, 3)])
def test_on_few_rows_no_partition_is_much_better(n, d, least):
    ratios = []
    for seed in range(6):
        X = rows(n, d, seed)
        found = error_of(X, aligned(X, least, effort="best", clip=None))
        ratios.append(found / least_error(X, d + 1, least))
    assert min(ratios) == pytest.approx(1)
    assert max(ratios) < 1.1


def test_the_loops_stay_within_their_arrays(monkeypatch):
    # Compiled loops do not notice a wrong index. As plain Python they do the same, or fail.
    X = rows(60, 3)
    variants = ({}, {"max_size": 16}, {"n_bags": 6})
    compiled = [aligned(X, 8, effort="fast", **variant).index for variant in variants]
    loops = {
        name: loop.py_func for name, loop in vars(kernels.align).items() if hasattr(loop, "py_func")
    }
    for name, loop in loops.items():
        monkeypatch.setattr(kernels.align, name, loop)
    for variant, expected in zip(variants, compiled, strict=True):
        assert np.array_equal(aligned(X, 8, effort="fast", **variant).index, expected)


def test_the_loop_is_compiled_for_one_kind_of_input_only():
    # Each further kind would cost every user seconds.
    for X in (rows(40, 1), np.asfortranarray(rows(3000, 3)), rows(500, 6)[::2]):
        aligned(X, 5, max_size=len(X) // 3)
    assert len(kernels.align.exchange.signatures) == 1


# What the bags are good for


def designs(n):
    rng = np.random.default_rng(7)
    G = rng.normal(size=(n, 8))
    level = rng.choice(5, size=n, p=[0.4, 0.3, 0.2, 0.07, 0.03])
    return {
        "isotropic": G,
        "eigenvalues": G * np.sqrt(rng.uniform(0.1, 10, 8)),
        "mixed": G @ rng.normal(size=(8, 8)),
        "heavy": rng.standard_t(3, size=(n, 8)),
        "skewed": np.exp(G),
        "dummies": np.column_stack([np.eye(5)[level][:, 1:], G[:, :3] * [1, 5, 0.1]]),
    }


@pytest.mark.parametrize("name", designs(10))
def test_the_error_is_less_than_that_of_other_bags(name):
    X = designs(4000)[name]
    found = error_of(X, aligned(X, 20))
    assert found < 0.99 * min(error_of(X, simplex_bags(X, seed)) for seed in range(3))
    assert found < 0.9 * error_of(X, sign_bags(X))
    for bag_size in (40, 200):
        compact = make_bags(X, bag_size=bag_size, strategy=bw.KMeansBags(effort="fast"), seed=0)
        assert found < 0.95 * error_of(X, compact)
    assert found < 0.05 * error_of(X, make_bags(X, bag_size=40, seed=0))


@pytest.mark.parametrize("name", ["eigenvalues", "mixed", "dummies"])
def test_the_error_is_least_in_the_units_that_were_asked_for(name):
    X = designs(4000)[name]
    found = {scale: aligned(X, 20, scale=scale) for scale in SCALES}
    for asked in SCALES:
        errors = {scale: error_of(X, bags, asked) for scale, bags in found.items()}
        assert errors[asked] <= 1.03 * min(errors.values())
    assert error_of(X, found["none"], "none") < 0.95 * error_of(X, found["whiten"], "none")


def risk_at_the_paper_s_setting(X, bags):
    n, d = X.shape
    noise = 8 * np.sqrt(d + 1) / (gaussian_mu(1.0, 1e-5) * bags.sizes)
    return exact_risk(
        np.column_stack([X, np.ones(n)]),
        bags,
        theta=np.zeros(d + 1),
        label_noise_sd=0.5,
        label_kind="mean",
        loss="bag",
        weights="known-noise",
        noise_sd=noise,
        error=np.diag(np.append(np.ones(d), 0.0)),
    ).total


def test_the_risk_at_the_paper_s_setting():
    X = rows(50_000, 32)
    assert risk_at_the_paper_s_setting(X, aligned(X, 500)) < 0.086
    assert risk_at_the_paper_s_setting(X, simplex_bags(X)) > 0.089
    assert risk_at_the_paper_s_setting(X, sign_bags(X)) > 0.13


def test_more_bags_than_necessary_are_no_better():
    X = rows(4000, 6)
    least = error_of(X, aligned(X, 100))
    for n_bags in (8, 10, 13):
        bags = aligned(X, 100, n_bags=n_bags)
        assert bags.n_bags == n_bags
        assert error_of(X, bags) > least


# Sizes


@given(
    tables(rows, most=60),
    st.sampled_from(SCALES),
    st.sampled_from([None, 1.0, 3.0]),
    st.integers(0, 20),
)
def test_sizes_hold_for_any_table(table, scale, clip, more):
    X, bag_size = table
    n = X.shape[0]
    max_size = max(bag_size, -(-n // (n // bag_size))) + more
    options = {"effort": "fast", "scale": scale, "clip": clip}
    for bags, most in (
        (aligned(X, bag_size, **options), n),
        (aligned(X, bag_size, max_size=max_size, **options), max_size),
        (aligned(X, bag_size, n_bags=n // bag_size, **options), n),
    ):
        assert bags.in_bag.all()
        assert bag_size <= bags.sizes.min() <= bags.sizes.max() <= most
    assert bags.n_bags == n // bag_size
    again = aligned(X, bag_size, n_bags=n // bag_size, **options)
    assert np.array_equal(bags.index, again.index)


@pytest.mark.parametrize("bag_size", [5, 400, 590, 600])
def test_there_is_one_bag_more_than_directions(bag_size):
    X = rows(3000, 4)
    bags = aligned(X, bag_size)
    assert bags.n_bags == 5
    free = error_of(X, aligned(X, 5))
    assert error_of(X, bags) < 1.03 * free  # sizes that hardly matter cost hardly anything


def test_a_largest_size_makes_more_bags():
    X = rows(1000, 2)
    bags = aligned(X, 10, max_size=120)
    assert bags.n_bags == 9
    assert bags.sizes.max() <= 120
    random = make_bags(X, bag_size=111, seed=0)
    assert error_of(X, bags) < 0.1 * error_of(X, random)


def test_where_too_few_bags_fit_the_log_says_so(caplog):
    X = rows(100, 6) * [9, 9, 1, 1, 1, 1]
    with caplog.at_level(logging.WARNING, logger="bagwise"):
        assert aligned(X, 14, scale="std").n_bags == 7
        assert not caplog.messages
        bags = aligned(X, 33, scale="none")
    assert bags.n_bags == 3
    assert any("3 bags cannot determine 6 coefficients" in text for text in caplog.messages)
    # The two directions of largest spread are those that can be learnt.
    sums = sums_of(with_ones(X), bags.index, 3)[:, :6]
    assert np.sum(sums[:, :2] ** 2) > 50 * np.sum(sums[:, 2:] ** 2)


def test_what_can_be_learnt_with_too_few_bags_are_the_directions_that_most_columns_share():
    shared = rows(400, 2)
    X = shared[:, [0, 0, 0, 1, 1]] + 0.3 * rows(400, 5, 1)
    bags = aligned(X, 130)
    assert bags.n_bags == 3
    means = bags.mean(with_ones(X))[:, :5]
    factors = np.column_stack([means[:, :3].mean(axis=1), means[:, 3:].mean(axis=1)])
    assert np.sum((means - factors[:, [0, 0, 0, 1, 1]]) ** 2) < 0.02 * np.sum(means**2)


def test_impossible_requests_are_refused():
    X = rows(100, 2)
    for parameters in ({"n_bags": 11}, {"max_size": 9}, {"n_bags": 3, "max_size": 30}):
        with pytest.raises(StrategyError, match=r"100 rows cannot be put into .*bags of 10 to"):
            aligned(X, 10, **parameters)
    with pytest.raises(StrategyError, match="bags of 60 to 70 rows each"):
        aligned(X, 60, max_size=70)
    for parameters, message in (
        ({"scale": "metres"}, "unknown scale 'metres'; known are whiten, std, none"),
        ({"effort": "much"}, "unknown effort 'much'"),
        ({"n_bags": 0}, "n_bags must be a whole number"),
        ({"max_size": 2.5}, "max_size must be a whole number"),
        ({"clip": 0.5}, "clip must be a number of at least 1"),
    ):
        with pytest.raises(StrategyError, match=message):
            AlignedBags(**parameters)


def test_without_numba_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"'aligned' needs .*bagwise\[fast\]"):
        aligned(rows(), 5)


# What must not matter


@pytest.mark.parametrize("scale", ["whiten", "std"])
def test_bags_do_not_depend_on_units(scale):
    X = rows()
    one, other = (aligned(Y, 5, scale=scale) for Y in (X, X * 2.0 ** np.array([-30, 3, 0, 30])))
    assert np.array_equal(one.index, other.index)


def test_the_error_does_not_depend_on_rotations_of_equal_directions():
    X = rows(3000, 5)
    turn = np.linalg.qr(rows(5, 5, 1))[0]
    for scale in SCALES:
        one, other = (error_of(Y, aligned(Y, 50, scale=scale), scale) for Y in (X, X @ turn))
        assert other == pytest.approx(one, rel=0.02)
    skewed = np.exp(X)  # the twin: sign bags follow the axes, and turning the rows shows
    one, other = (error_of(Y, sign_bags(Y)) for Y in (skewed, skewed @ turn))
    assert other != pytest.approx(one, rel=0.02)


def test_the_order_of_the_rows_does_not_matter():
    X = rows(3000, 5)
    one, other = (error_of(Y, aligned(Y, 50)) for Y in (X, X[np.argsort(X[:, 0])]))
    assert other == pytest.approx(one, rel=0.02)


def test_constant_and_doubled_columns_change_nothing():
    X = rows(1000)
    wider = np.column_stack([X, np.full(1000, 0.1), X[:, 0]])
    bags = aligned(wider, 20)
    assert bags.n_bags == 5
    assert error_of(X, bags) == pytest.approx(error_of(X, aligned(X, 20)), rel=0.03)


def test_on_a_line_the_bags_are_its_two_halves_or_nearly():
    x = rows(1001, 1)
    bags = aligned(x, 20)
    assert bags.n_bags == 2
    low, high = sorted((x[bags.index == b, 0] for b in (0, 1)), key=np.mean)
    assert low.max() <= high.min()
    assert 450 < low.size < 550


def test_levels_of_a_category_are_bags_of_their_own():
    level = np.random.default_rng(0).permutation(np.repeat(np.arange(4), [50, 100, 200, 250]))
    bags = aligned(np.eye(4)[level], 20)
    assert sorted(bags.sizes) == [50, 100, 200, 250]
    assert all(np.unique(level[bags.index == b]).size == 1 for b in range(4))
    forced = aligned(np.eye(4)[level], 70)  # the rarest level needs company
    assert forced.sizes.min() >= 70
    assert np.unique(forced.index[level == 0]).size == 1


def test_a_rare_level_is_no_outlier_if_it_fills_a_bag():
    level = np.random.default_rng(0).permutation(np.repeat([0, 1], [25, 1975]))
    X = np.column_stack([rows(2000, 3), level])
    drawn, trusting = (aligned(X, 25, clip=clip).index for clip in (3.0, None))
    assert np.array_equal(drawn, trusting)
    drawn, trusting = (aligned(X, 60, clip=clip).index for clip in (3.0, None))
    assert not np.array_equal(drawn, trusting)


@pytest.mark.parametrize("n", [200, 2000])
@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
def test_an_outlier_does_not_own_a_direction(n, far):
    X = rows(n)
    outlying = np.vstack([X, np.full((1, 4), far)])
    usual = error_of(X, aligned(X, 10))
    clipped, trusting = (aligned(outlying, 10, clip=clip) for clip in (3.0, None))
    assert error_of(X, Bags.from_labels(clipped.index[:-1])) < 1.05 * usual
    # The twin: with trust in the model, one row is believed more than all others.
    assert error_of(X, Bags.from_labels(trusting.index[:-1])) > 1.2 * usual


@pytest.mark.parametrize("d", [1, 4])
def test_rows_are_drawn_in_to_the_leverage_that_is_allowed(d):
    X = rows(400, d)
    X[:3] *= 1e5
    drawn = draw_in(X, 0.05)
    centred = drawn - drawn.mean(axis=0)
    leverage = np.diag(centred @ np.linalg.inv(centred.T @ centred) @ centred.T)
    assert 0.03 < leverage.max() <= 0.05 * 1.5 * (1 + 1e-6)
    usual = rows(400, d)
    assert draw_in(usual, 0.5) is usual


@pytest.mark.parametrize("scale", SCALES)
def test_coordinates_are_white_and_know_what_errors_count(scale):
    X = rows(500, 3) @ np.array([[2.0, 0.3, 0.0], [0.0, 0.5, 0.1], [0.1, 0.0, 9.0]]) + 5
    Y, weights = coordinates(X, scale)
    assert np.allclose(Y.T @ Y / 500, np.eye(3), atol=1e-4)
    assert np.all(np.diff(weights) >= -1e-12)
    # An error of Y's coefficients with the identity as covariance is one of X's with that of X.
    covariance = np.cov(X.T, bias=True)
    slopes = np.linalg.inv(covariance)
    expected = {
        "whiten": 3.0,
        "std": np.diag(slopes) @ np.diag(covariance),
        "none": np.trace(slopes),
    }[scale]
    assert weights.sum() == pytest.approx(expected, rel=1e-4)


def test_bags_do_not_change_their_input():
    X = rows()
    kept = X.copy()
    aligned(X, 5)
    assert np.array_equal(X, kept)


def test_a_search_that_is_stopped_has_valid_bags():
    waiting = Patience()
    waiting.interrupted = True
    effort = aligning.Effort(starts=2, sweeps=5, enough=0.0)
    labels = aligning.align_rows(
        rows(200, 2), np.ones(2), SizeRange(3, 60, 75), effort,
        rng=np.random.default_rng(0), waiting=waiting,
    )  # fmt: skip
    sizes = np.bincount(labels)
    assert sizes.size == 3
    assert 60 <= sizes.min() <= sizes.max() <= 75


# The whole way


def test_private_releases_verify_and_their_fits_have_the_error_that_is_predicted():
    n, d = 3000, 3
    rng = np.random.default_rng(0)
    X, theta = rng.normal(size=(n, d)), np.array([1.0, -0.5, 0.2])
    standardised = []
    for seed in range(80):
        y = 0.3 + X @ theta + rng.normal(0, 0.5, n)
        columns = {f"x{j}": X[:, j] for j in range(d)} | {"y": y}
        strategy = AlignedBags(effort="fast")
        release = bw.make_release(
            pa.table(columns), label="y", bounds=(-20, 20), bag_size=100, strategy=strategy,
            epsilon=1.0, delta=1e-5, seed=seed,
        )  # fmt: skip
        release.verify()
        assert release.provenance.scores == "none"
        assert release.certificate.headline == "(1, 0)-label-DP"
        shown, _, ids = release.training_data()
        bags = Bags.from_labels(ids)
        noise = bags.mean(release.fit_params()["noise_sd"])
        assert bags.n_bags == d + 1
        # As many bags as coefficients: the fit solves the equations of the bag means.
        solve = np.linalg.inv(with_intercept(bags.mean(shown)))
        variances = 0.25 / bags.sizes + noise**2
        covariance = (solve * variances) @ solve.T
        found = fit_release(release).coefficients()
        error = np.array([found[f"x{j}"] for j in range(d)]) - theta
        root = np.linalg.cholesky(covariance[:d, :d])
        standardised.extend(np.linalg.solve(root, error))
    assert stats.sd_is(standardised, 1.0)
    # 240 values show a deviation of 1.8 but for six of their own standard deviations.
    assert not stats.sd_is(standardised, 1.8)


def with_intercept(X):
    return np.column_stack([X, np.ones(X.shape[0])])


class FromElsewhere:
    """Rows that are no array: they can only be read by slices."""

    def __init__(self, X):
        self._X, self.shape = X, X.shape

    def __getitem__(self, rows):
        assert (rows.stop or self.shape[0]) - (rows.start or 0) <= 700
        return self._X[rows].copy()


def test_rows_that_are_read_in_blocks_get_the_same_bags(monkeypatch):
    for module in ("bagwise.cluster.blocks", "bagwise.data.whitening"):
        monkeypatch.setattr(f"{module}.CHUNK", 700)
    rng = np.random.default_rng(4)
    X = rng.standard_t(3, size=(3000, 5)) @ rng.normal(size=(5, 5))
    X[:3] *= 40  # are drawn in
    made = [
        AlignedBags().assign(X, None, bag_size=30, rng=np.random.default_rng(8)),
        AlignedBags().assign_blocks(
            lambda order: FromElsewhere(X[order]), 3000, bag_size=30, rng=np.random.default_rng(8)
        ),
    ]
    assert np.array_equal(made[0].index, made[1].index)
