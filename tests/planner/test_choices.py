"""What the planner chooses: bags that serve a fit, whatever turns out to be true of the labels."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest

import bagwise as bw
from bagwise.errors import BagTooSmallError, DominatedWarning, StrategyError
from bagwise.planner import search
from bagwise.planner.problem import FEWEST_BAGS, grid
from bagwise.planner.sample import Population, sample_matrix, sample_rows
from bagwise.planner.search import rank, ranked, regrets
from bagwise.rows import whitening
from bagwise.rows.encode import Encoder
from bagwise.rows.table import Rows
from bagwise.theory.beliefs import draw_misfit
from tests import stats
from tools.settings import filed

BOUNDS = (-10.0, 10.0)
PRIVATE = {"bounds": BOUNDS, "epsilon": 1.0, "delta": 1e-5}


def features(n=1500, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 5


def as_table(X, y, **columns):
    return pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y, **columns})


def labelled(n=1500, **columns):
    X = features(n)
    y = X @ [1.0, 0.0, -1.0] / 3 + np.random.default_rng(0).normal(size=n)
    return as_table(X, y, **columns)


# --- which sizes ----------------------------------------------------------------------------------


def test_sizes_leave_three_bags_for_each_coefficient():
    for n, p in ((1000, 4), (50_000, 33), (10**6, 9)):
        sizes = grid(n_rows=n, coefficients=p, least=10)
        assert sizes[0] == 10
        assert n // sizes[-1] >= 3 * p
        assert n // (2.5 * sizes[-1]) < 3 * p  # and no further size of the grid would
        assert all(1.5 < big / small <= 2.5 for small, big in itertools.pairwise(sizes))
    assert grid(n_rows=100, coefficients=20, least=10) == [10]


def test_the_best_size_falls_as_epsilon_grows():
    X = np.random.default_rng(0).normal(size=(12_000, 4))
    best = [
        bw.plan(
            X, bounds=BOUNDS, epsilon=epsilon, delta=1e-6, bagging=bw.Bagging(strategies=["kmeans"])
        ).best.bag_size
        for epsilon in (0.05, 0.5, 8.0)
    ]
    assert best == sorted(best, reverse=True)
    assert best[0] >= 10 * best[-1]


def test_intervals_are_given_up_where_they_leave_no_model():
    """With 38 columns at a small epsilon, the noise of 120 bags hides the mean of the labels."""
    X = np.random.default_rng(0).normal(size=(1200, 38))
    weak, strong = (bw.plan(X, bounds=BOUNDS, epsilon=epsilon) for epsilon in (0.05, 8.0))
    assert weak.best.few_bags
    assert weak.best.n_bags >= FEWEST_BAGS
    spared = [one for one in weak.candidates if not one.few_bags]
    assert spared  # they were there to be chosen, and would lose more than there is
    assert all(one.predictions.total > weak.prior.signal_sd**2 for one in spared)
    assert min(one.predictions.total for one in spared) > 2 * weak.best.predictions.total
    assert not strong.best.few_bags
    assert not any(one.few_bags for one in strong.candidates if one.strategy == "kmeans")


def test_no_size_below_the_least_is_considered():
    found = bw.plan(features(), **filed(min_bag_size=30, **PRIVATE))
    assert min(candidate.bag_size for candidate in found.candidates) == 30
    made = bw.make_release(
        labelled(), **filed(label="y", min_bag_size=30, **PRIVATE | {"epsilon": 8.0})
    )
    assert made.provenance.bag_size >= 30
    with pytest.raises(BagTooSmallError, match="below min_bag_size 30"):
        bw.make_release(labelled(), **filed(label="y", bag_size=20, min_bag_size=30, **PRIVATE))
    with pytest.raises(BagTooSmallError, match="at least 1"):
        bw.make_release(labelled(), **filed(label="y", min_bag_size=0, **PRIVATE))


# --- by what they are ranked ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    return bw.plan(features(), **filed(**PRIVATE))


def test_few_bags_are_marked_and_come_first_only_if_they_are_named(found):
    assert not found.best.few_bags
    with_intervals = [not candidate.few_bags for candidate in found.candidates]
    assert with_intervals == sorted(with_intervals, reverse=True)
    assert "Choices marked *" not in str(found)  # none of those that are shown is
    named = bw.plan(features(), **filed(strategies=["kmeans"], bag_sizes=[300], **PRIVATE))
    few = named.best
    assert few.few_bags
    assert f"{few.n_bags}*" in {row[3] for row in named.cells(most=1000)}
    entry = named.to_json()["candidates"][named.candidates.index(few)]
    assert entry["few_bags"] is True
    assert entry["intervals"] is False
    assert "Choices marked * have fewer than three bags" in str(named)


def test_regret_is_the_mean_excess_over_the_best_of_each_scenario(found):
    candidates, prior = found.candidates[:5], found.prior
    expected = [
        np.mean(
            [
                (c.scenarios[name] - min(other.scenarios[name] for other in candidates))
                / believed.signal_sd**2
                for name, believed in prior.scenarios().items()
            ]
        )
        + 0.05 * c.coefficients / c.n_bags
        for c in candidates
    ]
    np.testing.assert_allclose(regrets(candidates, prior), expected, atol=1e-15)


def test_of_two_choices_that_are_alike_the_one_with_more_bags_is_regretted_less(found):
    one = found.best
    more = dataclasses.replace(one, n_bags=2 * one.n_bags)
    little, much = regrets([more, one], found.prior)
    assert much - little == pytest.approx(0.05 * one.coefficients / (2 * one.n_bags))
    told = dataclasses.replace(found.prior, few_bags=0.0)  # by a private model
    assert np.ptp(regrets([more, one], told)) == 0
    assert ranked([one, more], found.problem, intervals_first=True)[0] is more


def test_what_a_private_model_told_is_believed_and_few_bags_cost_nothing_more():
    """Labels that a model explains nearly all of are centred, and bags are planned with that."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12_000, 3))
    table = as_table(X, X @ [2.0, 1.0, 0.5] + 0.05 * rng.normal(size=12_000))
    plans = []

    def remember(problem):
        plans.append(rank(problem))
        return plans[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "rank", remember)
        release = bw.make_release(
            table, label="y", bounds=BOUNDS, epsilon=4.0, privacy=bw.Privacy(centre="model")
        )
    prior = plans[-1].prior
    assert release.certificate.limit is not None
    assert (prior.few_bags, prior.factor) == (0.0, 3.0)
    assert prior.signal_sd == pytest.approx(np.sqrt(5.25), rel=0.2)
    assert 0 < prior.misfit <= 0.05


def test_one_more_candidate_swaps_no_others(found):
    """The reason for a mean: what is best in one scenario and bad elsewhere changes no order."""
    odd = dataclasses.replace(
        found.candidates[-1],
        risks={
            name: dataclasses.replace(
                found.best.predictions, bias=0.0 if name == "no misfit" else 1e6
            )
            for name in found.prior.scenarios()
        },
    )
    more = ranked([*found.candidates, odd], found.problem, intervals_first=True)
    assert [candidate for candidate in more if candidate is not odd] == list(found.candidates)


def test_scenarios_have_weak_and_strong_signals_and_no_and_large_misfit():
    prior = bw.Prior(2.0, 1.0, factor=4.0, misfit=0.1)
    by_name = prior.scenarios()
    assert by_name["as stated"] is prior
    assert by_name["weak signal"] == bw.Prior(0.5, 1.0, 4.0, 0.1)
    assert by_name["strong signal"] == bw.Prior(2.0, 0.25, 4.0, 0.1)
    assert by_name["no misfit"].misfit == 0
    assert by_name["large misfit"].misfit == pytest.approx(0.4)
    with pytest.raises(StrategyError, match="misfit"):
        bw.Prior(1.0, 1.0, misfit=-0.1)
    few = {"strategies": ["random"], "not_private": True}
    assert bw.plan(features(300), **filed(prior=(2.0, 1.0, 0.3), **few)).prior == bw.Prior(
        2, 1, misfit=0.3
    )


def test_misfit_is_a_cause_of_its_own(found):
    large = bw.plan(features(), **filed(prior=(2.0, 0.1, 0.5), strategies=["kmeans"], **PRIVATE))
    assert large.best.predictions.misfit > 0
    assert "misfit" in large.explain()
    assert "With a weak signal: keeps" in large.explain()  # others keep as much as stated
    assert "of which is not linear" in str(found)
    assert found.to_json()["candidates"][0]["predictions_misfit"] > 0


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
def test_real_releases_of_labels_that_are_not_linear_have_the_predicted_error():
    """Errors are skewed: a smaller alpha stands for one in a million."""
    X = features() - features().mean(axis=0)
    signal, noise, misfit = 3.0, 0.1, 0.6
    private = {"bounds": (-40.0, 40.0), "epsilon": 8.0, "delta": 0.0}
    found = bw.plan(
        X, **filed(prior=(signal, noise, misfit), bag_sizes=[100], strategies=["kmeans"], **private)
    )
    candidate = next(c for c in found.candidates if c.label_kind == "mean")
    assert candidate.predictions.shares()["misfit"] > 0.7
    white = whitening.Columns(X).white_rows()
    functions = draw_misfit(white, np.random.default_rng(5))
    rng, errors = np.random.default_rng(3), []
    for _ in range(60):
        expected = white @ (signal / np.sqrt(3) * rng.standard_normal(3))
        left = signal * np.sqrt(misfit) * functions[:, rng.integers(functions.shape[1])]
        y = expected + left + noise * rng.standard_normal(len(X))
        strategy = bw.KMeansBags(effort="fast")
        release = bw.make_release(
            as_table(X, y), **filed(label="y", bag_size=100, strategy=strategy, **private)
        )
        # A fit that shrinks would take the misfit for noise of labels, which the plan knows.
        model = bw.fit_release(release, loss="bag", ridge=0.0)
        errors.append(np.mean((model.predict_encoded(X) - expected) ** 2))
    assert stats.mean_is(errors, candidate.predictions.total, alpha=1e-8)
    linear = candidate.predictions.total - candidate.predictions.misfit
    assert not stats.mean_is(errors, linear, alpha=1e-3)


# --- what the noise has to hide -------------------------------------------------------------------


def people(n, rows_each):
    return [f"p{i // rows_each}" for i in range(n)]


def test_units_have_the_noise_that_their_release_has():
    table = labelled(who=people(1500, 5))
    private = {"bounds": BOUNDS, "epsilon": 2.0, "delta": 1e-5}
    few = {"bag_sizes": [50], "strategies": ["random"]}
    found = bw.plan(table, **filed(label="y", unit="who", **few, **private))
    alone = bw.plan(table.drop(["who"]), **filed(label="y", **few, **private))
    assert found.problem.sample.X.shape[1] == 3  # units are no feature
    assert found.problem.sample.largest == 5
    best = found.best
    assert best.predictions.total > 3 * alone.best.predictions.total
    made = bw.make_release(
        table,
        **filed(
            label="y",
            unit="who",
            bag_size=50,
            strategy="random",
            seed=0,
            **private | {"delta": best.delta},
        ),
    )
    bagged = found.problem.bag(best.bagging, 50)
    expected, _ = found.problem.noise("mean", bagged, found.problem.rule)
    assert expected.mean() == pytest.approx(made.noise_sd.mean(), rel=0.15)


def test_classes_have_the_noise_of_two_counts_and_add_up():
    X = features()
    names = np.array(["a", "b", "c"])[np.random.default_rng(0).integers(3, size=1500)]
    table = as_table(X, names)
    few = {"bag_sizes": [50], "strategies": ["random"]}
    private = {"epsilon": 2.0, "delta": 1e-5}
    classes = ["a", "b", "c"]
    found = bw.plan(table, **filed(label="y", classes=classes, **few, **private))
    assert found.problem.family.name == "multinomial"
    assert "--bounds" not in found.command()  # which a label with classes does not have
    best = found.best
    made = bw.make_release(
        table, label="y", classes=classes, bag_size=50, strategy="random", epsilon=2.0,
        delta=best.delta,
    )  # fmt: skip
    bagged = found.problem.bag(best.bagging, 50)
    planned, _ = found.problem.noise("mean", bagged, found.problem.rule)
    assert planned == pytest.approx(made.noise_sd)
    assert found.problem.noise("mean", bagged, None)[0].sum() == 0
    assert found.row_level == pytest.approx(3 * (1 / 3 * 2 / 3) * 4 / 1500)
    assert bw.make_release(table, **filed(label="y", classes=classes, **private)).bags.n_bags > 1
    with pytest.raises(StrategyError, match="not of the family poisson"):
        bw.plan(table, **filed(label="y", classes=classes, family="poisson", **few, **private))


def test_a_family_is_planned_for_if_it_is_named():
    table = as_table(features(), np.random.default_rng(0).poisson(3.0, size=1500))
    counts = {"bounds": (0.0, 8.0), "epsilon": 1.0, "delta": 1e-5}
    reasons = [
        bw.make_release(
            table, **filed(label="y", family=family, **counts)
        ).provenance.chosen_because
        for family in ("auto", "poisson")
    ]
    assert reasons[0].label_noise_sd != reasons[1].label_noise_sd
    assert reasons[1].label_noise_sd == pytest.approx(2.0)  # the root of the mean, 4


def test_the_least_noise_that_keeps_the_promise_is_taken(found):
    """Laplace noise at epsilon 1, and Gaussian noise where a person is in very many bags."""
    assert found.best.delta == 0
    rows = 40
    table = labelled(3000, who=people(3000, rows))
    many = bw.plan(
        table, **filed(label="y", unit="who", strategies=["random"], bag_sizes=[10], **PRIVATE)
    )
    assert many.best.delta == PRIVATE["delta"]


# --- the sample -----------------------------------------------------------------------------------


def test_the_same_table_gets_the_same_answer(monkeypatch):
    """Whatever the order of its rows, and though only some of them are looked at."""
    monkeypatch.setattr("bagwise.planner.sample.MOST_ROWS", 600)
    table = labelled()
    orders = [np.random.default_rng(seed).permutation(1500) for seed in range(3)]
    plain = {"tighten": "none", "centre": "none"}  # a private look may change a plan, by its noise
    made = [
        bw.make_release(table.take(order), **filed(label="y", **PRIVATE, **plain))
        for order in orders
    ]
    assert len({release.provenance.chosen_because for release in made}) == 1
    assert len({(r.provenance.strategy, r.provenance.bag_size) for r in made}) == 1


def test_a_sample_of_units_has_all_rows_of_each_and_the_largest(monkeypatch):
    monkeypatch.setattr("bagwise.planner.sample.MOST_ROWS", 300)
    who = [f"p{i // 4}" for i in range(1480)] + ["big"] * 20
    table = labelled(who=who)
    rows, encoder = Rows(table), Encoder.for_table(table, ["x0", "x1", "x2"])
    sample = sample_rows(rows, Population(encoder, table.num_rows, "who", 20))
    assert set(np.bincount(sample.units.index)) <= {0, 4, 20}
    assert sample.largest == sample.units.largest == 20
    assert 300 <= len(sample.X) <= 320
    assert sample.n_rows == 1500


def test_a_sample_of_an_array_does_not_depend_on_its_order(monkeypatch):
    monkeypatch.setattr("bagwise.planner.sample.MOST_ROWS", 100)
    X = features(500)
    X[:50] = X[0]  # ties
    one = sample_matrix(X, n_rows=500).X
    other = sample_matrix(X[np.random.default_rng(0).permutation(500)], n_rows=500).X
    np.testing.assert_array_equal(one, other)


# --- left to the planner --------------------------------------------------------------------------


def test_label_bounds_and_epsilon_are_enough():
    table = labelled()
    made = bw.make_release(table, **filed(label="y", bag_size="auto", **PRIVATE))
    made.verify()
    assert made.certificate.epsilon <= 1.0
    assert made.certificate.delta <= 1e-5
    assert made.provenance.bag_size >= 10
    assert made.bags.n_bags >= 3 * 4
    assert made.provenance.scores == "none"
    assert made.provenance.chosen_because.misfit == 0.05
    found = bw.plan(table, **filed(label="y", **PRIVATE)).best
    assert (made.provenance.strategy, made.provenance.bag_size) == (found.strategy, found.bag_size)


@pytest.mark.parametrize("strategy", ["random", "kmeans", "optimal"])
def test_the_size_of_a_named_strategy_can_be_left_to_the_planner(strategy):
    made = bw.make_release(labelled(), **filed(label="y", strategy=strategy, **PRIVATE))
    made.verify()
    assert made.provenance.strategy == strategy
    assert made.provenance.chosen_because is not None


def test_what_does_not_go_together_is_refused():
    with pytest.raises(StrategyError, match="not both"):
        bw.make_release(
            labelled(), **filed(label="y", strategy="random", strategies=["random"], **PRIVATE)
        )
    with pytest.raises(StrategyError, match="names no units"):
        bw.plan(features(), **filed(unit="who", **PRIVATE))
    with pytest.warns(DominatedWarning, match="picked label has"):
        picked = bw.make_release(
            labelled(), **filed(label="y", label_kind="pick", **PRIVATE | {"delta": 0.0})
        )
    assert picked.certificate.delta == 0  # picks need no delta any more


def test_columns_are_refused_before_strategies_are_tried(monkeypatch):
    def too_early(*_args, **_kwargs):
        raise AssertionError("the kernels would have been compiled for nothing")

    monkeypatch.setattr("bagwise.planner.search.PlanProblem.of", too_early)
    rows = pa.table({"flat": [f"F{i}" for i in range(200)], "x": range(200), "y": range(200)})
    with pytest.raises(bw.BagwiseError, match="equals the label"):
        bw.make_release(rows, label="y", bounds=(0, 200), epsilon=1.0)
    with pytest.raises(bw.BagwiseError, match="like an id"):
        bw.make_release(rows, label="y", bounds=(0, 200), epsilon=1.0, exclude="x")
