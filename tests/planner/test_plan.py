"""The planner: right about real releases, blind to labels, and the same for the same features."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bagwise as bw
from bagwise.bagging import STRATEGIES, BaggingStrategy, find_strategy, spell_settings
from bagwise.bagging.bags import Bags
from bagwise.errors import (
    BagTooSmallError,
    BoundsError,
    BudgetError,
    ColumnError,
    MissingExtraError,
    OutputExistsError,
    StrategyError,
)
from bagwise.planner import features_of
from bagwise.planner.problem import PlanProblem
from bagwise.planner.sample import sample_matrix
from bagwise.planner.search import regrets
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.verbs import ReleaseRequest
from tests import stats
from tools.settings import filed

BOUNDS = (-10.0, 10.0)
PRIVATE = {"bounds": BOUNDS, "epsilon": 1.0, "delta": 1e-5}
METRIC = bw.KMeansBags(scale="model")


def features(n=1500, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 5


@pytest.fixture(scope="module")
def private():
    return bw.plan(features(), **filed(bag_sizes=[10, 100], prior=(2.0, 0.5), **PRIVATE))


@pytest.fixture(scope="module")
def open_plan():
    return bw.plan(features(), not_private=True, bag_sizes=[10, 100], prior=(2.0, 0.5))


def test_candidates_are_ranked_and_complete(private, open_plan):
    for found in (private, open_plan):
        regret = regrets(found.candidates, found.prior)
        last = [candidate.few_bags for candidate in found.candidates]
        assert sorted(zip(last, regret, strict=True)) == list(zip(last, regret, strict=True))
        assert found.best is found.candidates[0]
    seen = {(c.strategy, c.label_kind, c.scores) for c in private.candidates}
    assert {("random", "pick", "none"), ("kmeans", "mean", "none")} <= seen
    assert {c.scores for c in private.candidates} == {"none"}
    assert {c.delta for c in private.candidates} == {0.0}  # Laplace noise is the least here
    assert open_plan.best.strategy in ("kmeans", "optimal")
    assert open_plan.best.bag_size == 10


ERROR = {"bounds": BOUNDS, "prior": (2.0, 0.5), "strategies": ["kmeans", "random"]}


def shown_error(found):
    return found.accuracy(found.best.predictions.total).error


@pytest.mark.parametrize("error", [0.75, 1.0, 1.6])
def test_the_smallest_epsilon_for_an_error_serves_and_a_smaller_one_does_not(error):
    found = bw.plan(features(), **filed(error=error, **ERROR))
    assert 0.01 < found.epsilon < 20
    assert shown_error(found) <= error
    assert f"--epsilon {found.epsilon:g} " in found.command()
    again = bw.plan(features(), **filed(epsilon=found.epsilon, **ERROR))
    assert again.to_json() == found.to_json()
    assert shown_error(bw.plan(features(), **filed(epsilon=0.8 * found.epsilon, **ERROR))) > error


def test_an_error_that_any_epsilon_serves_has_the_smallest_and_one_that_none_serves_is_refused():
    assert bw.plan(features(), **filed(error=1000.0, **ERROR)).epsilon == 0.01
    with pytest.raises(BudgetError, match=r"no epsilon up to 20 .* at most 0.1: at 20 it is 0.6"):
        bw.plan(features(), **filed(error=0.1, **ERROR))


@pytest.mark.parametrize(
    ("others", "match"),
    [
        ({"error": 1.0, "epsilon": 1.0}, "neither epsilon"),
        ({"error": 1.0, "not_private": True}, "neither epsilon"),
        ({"error": 0.0}, "positive number"),
        ({"error": float("nan")}, "positive number"),
    ],
)
def test_an_error_stands_alone_and_is_positive(others, match):
    with pytest.raises(BudgetError, match=match):
        bw.plan(features(), **filed(**others, **ERROR))


def carry_out(candidate, X, theta, noise, rng, *, epsilon=1.0):
    y = X @ theta + noise * rng.standard_normal(len(X))
    table = pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y})
    options = {"bag_size": candidate.bag_size, "strategy": candidate.strategy}
    privacy = {"not_private": True} if candidate.delta is None else {
        "bounds": BOUNDS, "epsilon": epsilon, "delta": candidate.delta,
        "tighten": "none", "centre": "none",
    }  # fmt: skip
    release = bw.make_release(
        table, **filed(label="y", label_kind=candidate.label_kind, **options, **privacy)
    )
    model = bw.fit_release(release, loss=candidate.loss)
    return np.mean((model.predict_encoded(X) - X @ theta) ** 2)


@pytest.mark.filterwarnings("ignore::bagwise.errors.BagwiseWarning")
def test_real_releases_have_the_predicted_error(private):
    """Secure noise: errors are skewed, so a far smaller alpha stands for one in a million."""
    X = features() - features().mean(axis=0)
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    root = vectors / np.sqrt(values) @ vectors.T
    candidate = private.best
    rng = np.random.default_rng(3)
    errors = []
    for _ in range(25):
        direction = rng.standard_normal(3)
        theta = root @ direction * 2.0 / np.linalg.norm(direction)
        errors.append(carry_out(candidate, X, theta, 0.5, rng))
    assert stats.mean_is(errors, candidate.predictions.total, alpha=1e-12)
    assert not stats.mean_is(errors, 4 * candidate.predictions.total, alpha=1e-12)


def as_frame(X, labels):
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": labels})


GARBAGE = {
    "permuted": lambda y: np.random.default_rng(5).permutation(y),
    "text": lambda y: [f"no number {i}" for i in range(len(y))],
    "missing": lambda y: [None] * len(y),
    "huge": lambda y: 1e300 * y,
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("kind", ["frame", "table", "file"])
def test_a_label_left_in_the_table_changes_nothing(garbage, kind, tmp_path):
    X = features(400, d=2)
    y = X @ [1.0, -2.0]
    plans = []
    for name, labels in (("clean", y), ("garbage", garbage(y))):
        source = as_frame(X, labels)
        if kind != "frame":
            source = pa.Table.from_pandas(source, preserve_index=False)
        if kind == "file":
            pq.write_table(source, tmp_path / f"{name}.parquet")
            source = tmp_path / f"{name}.parquet"
        few = {"bag_sizes": [10], "strategies": ["random"]}
        plans.append(bw.plan(source, **filed(label="y", **PRIVATE, **few)))
    assert plans[0].to_json() == plans[1].to_json()


def test_the_label_is_no_feature_of_the_plan():
    X = features(400, d=2)
    few = {"bag_sizes": [10], "strategies": ["random"], "not_private": True}
    frame = as_frame(X, np.random.default_rng(2).normal(size=400))
    assert bw.plan(frame, **filed(label="y", **few)).problem.sample.X.shape == (400, 2)
    assert bw.plan(frame, **filed(label="price", **few)).problem.sample.X.shape == (
        400,
        3,
    )  # only a name
    without = bw.plan(frame.drop(columns="y"), **filed(label="y", **few))
    assert without.to_json() == bw.plan(frame, **filed(label="y", **few)).to_json()
    with pytest.raises(ColumnError, match="there are no feature columns"):
        bw.plan(frame[["y"]], **filed(label="y", **few))


def test_the_same_features_give_the_same_bytes(private, tmp_path):
    again = bw.plan(features(), **filed(bag_sizes=[10, 100], prior=(2.0, 0.5), **PRIVATE))
    first, second = (p.save(tmp_path / f"{i}.json") for i, p in enumerate((private, again)))
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text()
    assert str(tmp_path) not in text
    with pytest.raises(OutputExistsError):
        private.save(first)


def test_text_and_page(private, tmp_path):
    frame = pd.DataFrame(private.to_json()["candidates"])
    assert len(frame) == len(private.candidates)
    assert frame["intervals"].is_monotonic_decreasing
    text = str(private)
    assert "Both assume this" in text
    assert "released directly" in text
    assert private.best.strategy in private._repr_html_()
    page = private.save(tmp_path / "plan.html").read_text()
    assert "<span>bagwise release TABLE</span>" in page
    assert page.count('role="img"') == 4
    assert "<script" not in page
    with pytest.raises(StrategyError, match=r"\.json or \.html"):
        private.save(tmp_path / "plan.txt")


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_direct_release_is_off_by_what_was_predicted(delta):
    """By releases of models: theta from the prior, labels and noise drawn afresh."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 3))
    asked = {"bounds": (-10.0, 10.0), "epsilon": 0.3, "delta": delta}
    found = bw.plan(X, **filed(strategies=["random"], **asked))
    prior, errors = found.prior, []
    for _ in range(60):
        theta = rng.normal(size=3) * prior.signal_sd / np.sqrt(3)
        labels = X @ theta + prior.label_noise_sd * rng.normal(size=2000)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(3)}, "y": labels})
        model = bw.release_model(table, label="y", privacy=bw.Privacy(tighten="none"), **asked)
        errors.append(np.mean((model.predict(table) - X @ theta) ** 2))
    # The share that is kept is estimated from three slopes, which costs a little more.
    low, high = np.mean(errors) + np.array([-4, 4]) * np.std(errors) / np.sqrt(len(errors))
    assert low / 1.1 < found.direct.total < high
    assert not low / 1.1 < 2 * found.direct.total < high


def test_commands_make_the_release(private):
    from typer.testing import CliRunner

    from bagwise.cli import app

    words = private.command().split()
    assert words[:3] == ["bagwise", "release", "TABLE"]
    shown = CliRunner().invoke(app, ["release", "--help"], terminal_width=200, color=False).output
    assert all(word in shown for word in words if word.startswith("--"))
    assert "--not-private" in bw.plan(features(200), not_private=True, bag_sizes=[5]).command()
    assert "privacy" in private.explain()
    assert "With a weak signal" in private.explain(1)
    with pytest.raises(StrategyError, match="has candidates 0 to"):
        private.explain(10_000)


def test_commands_repeat_what_decides_which_columns_leave(tmp_path):
    """A command without --exclude would publish a column that the plan left out."""
    from typer.testing import CliRunner

    from bagwise.cli import app

    found = bw.plan(
        features(200),
        bag_sizes=[5],
        bagging=bw.Bagging(strategies=["random"]),
        bounds=(-1234567.5, 2.0),
        epsilon=1.2345678,
        delta=1e-6,
        label="my label",
        options="--exclude big",
    )
    command = found.command()
    assert "--label 'my label' --exclude big" in command
    assert "--bounds -1234567.5 2 " in command
    assert "--epsilon 1.2345678 " in command
    import pyarrow.csv

    X, path = features(200), str(tmp_path / "t.csv")
    columns = {"a": X[:, 0], "big": X[:, 1], "who": X[:, 2], "y": X[:, 0]}
    pyarrow.csv.write_csv(pa.table(columns), path)
    asked = ["--not-private", "--exclude", "big", "--unit", "who", "--json"]
    shown = CliRunner().invoke(app, ["plan", path, "--label", "y", *asked])
    assert shown.exit_code == 0, shown.output
    command = json.loads(shown.stdout)["candidates"][0]["command"]
    assert "--label y --unit who --exclude big" in command
    assert CliRunner().invoke(app, ["plan", path, "--not-private"]).exit_code == 2


def test_the_order_of_rows_changes_nothing():
    """A table may be sorted by its labels; a choice that depends on the order would tell."""
    X = features(400)
    plans = [
        json.dumps(bw.plan(X[order], not_private=True, bag_sizes=[10]).to_json())
        for order in (
            np.arange(400),
            np.argsort(X[:, 1]),
            np.random.default_rng(0).permutation(400),
        )
    ]
    assert plans[0] == plans[1] == plans[2]


def test_a_plan_that_promises_nothing_says_so():
    found = bw.plan(features(300), **filed(bag_sizes=[10], prior=(0.01, 5.0), **PRIVATE))
    assert "predicting the mean" in str(found)
    assert "predicting the mean" not in str(
        bw.plan(features(300), bag_sizes=[10], not_private=True)
    )


def test_a_sample_stands_for_the_whole_table(monkeypatch):
    X = features(8000, seed=5)
    whole = bw.plan(
        X, **filed(prior=(2.0, 0.5), bag_sizes=[20], strategies=["random", "kmeans"], **PRIVATE)
    )
    monkeypatch.setattr("bagwise.planner.sample.MOST_ROWS", 2000)
    sample = bw.plan(
        X, **filed(prior=(2.0, 0.5), bag_sizes=[20], strategies=["random", "kmeans"], **PRIVATE)
    )
    assert len(sample.problem.sample.X) == 2000
    assert "sample of 2000 of 8000" in str(sample)
    for strategy in ("random", "kmeans"):
        one, other = (
            next(c for c in p.candidates if c.strategy == strategy) for p in (whole, sample)
        )
        assert other.predictions.total == pytest.approx(one.predictions.total, rel=0.6)


def test_priors_are_stated_or_follow_from_the_bounds():
    X = features(300)
    default = bw.plan(X, **filed(bag_sizes=[10], strategies=["random"], **PRIVATE)).prior
    assert np.hypot(default.signal_sd, default.label_noise_sd) == pytest.approx(20 / 8)
    counts = bw.plan(
        X,
        bag_sizes=[10],
        bagging=bw.Bagging(strategies=["random"], family="poisson"),
        bounds=(0, 8),
        epsilon=1.0,
        delta=1e-5,
    )
    assert counts.prior.label_noise_sd == pytest.approx(2.0)  # the root of the mean, 4
    assert "first order" in str(counts)
    for wrong in ("strong", (1.0,), (1.0, -2.0), (np.inf, 1.0), (0.0, 0.0)):
        with pytest.raises(StrategyError):
            bw.plan(X, not_private=True, prior=wrong)
    with pytest.raises(StrategyError, match="at least 1"):
        bw.Prior(1.0, 1.0, factor=0.5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, BudgetError, "state how private"),
        ({"epsilon": 1.0, "delta": 1e-5}, BoundsError, "a private plan needs bounds"),
        ({"not_private": True, "epsilon": 1.0}, BudgetError, "not both"),
        ({"not_private": True, "family": "multinomial"}, StrategyError, "name the classes"),
        ({"not_private": True, "bag_sizes": [400]}, BagTooSmallError, "do not fill two bags"),
        ({"not_private": True, "bag_sizes": [0]}, BagTooSmallError, "at least 1"),
        ({"not_private": True, "min_bag_size": -5}, BagTooSmallError, "at least 1"),
        ({"family": "bernoulli", **PRIVATE}, StrategyError, "do not have these bounds"),
    ],
)
def test_bad_requests_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        bw.plan(features(300, d=6), **filed(**arguments))
    with pytest.raises(ColumnError, match="'q' is not a column"):
        features_of(pa.table({"x": [1.0, 2.0]}), Columns.of("q"))


def test_without_the_extra_a_page_names_it(private, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"bagwise\[plot\]"):
        private.save(tmp_path / "plan.html")
    assert not list(tmp_path.iterdir())


def labelled(n=600):
    X = features(n)
    rng = np.random.default_rng(0)
    return pa.table(
        {**{f"x{j}": X[:, j] for j in range(3)}, "y": X @ [1, 0, -1] + rng.normal(size=n)}
    )


def test_auto_takes_the_first_choice_and_says_why(tmp_path):
    made = bw.make_release(labelled(), label="y", bag_size=10, not_private=True)
    assert made.provenance.strategy in ("kmeans", "optimal")
    assert "the safest choice" in made.provenance.chosen_because.text()
    assert made.bags.n_bags == 60  # whoever names a size expects so many bags
    loaded = bw.Release.load(made.save(tmp_path / "out"))
    loaded.verify()
    assert loaded.provenance.chosen_because == made.provenance.chosen_because
    named = bw.make_release(labelled(), label="y", bag_size=10, strategy="random", not_private=True)
    assert named.provenance.chosen_because is None


def test_what_is_left_to_the_planner_goes_together():
    with pytest.raises(BagTooSmallError, match="or 'auto'"):
        bw.make_release(labelled(), **filed(label="y", bag_size="large", **PRIVATE))
    with pytest.raises(StrategyError, match="name one"):
        bw.make_release(labelled(), **filed(label="y", bag_size="auto", scores="model", **PRIVATE))
    with pytest.raises(StrategyError, match="name strategy='sorted'"):
        bw.make_release(labelled(), **filed(label="y", bag_size=10, scores="model", **PRIVATE))
    with pytest.raises(BagTooSmallError, match="needs a bag size"):
        bw.make_release(labelled(), label="y", not_private=True)


def test_the_planner_never_sees_the_label(monkeypatch):
    from bagwise.planner import search

    seen = []
    real = search.rank

    def watched(problem):
        seen.append(problem.sample.X)
        return real(problem)

    monkeypatch.setattr(search, "rank", watched)
    bw.make_release(labelled(), label="y", bag_size=10, not_private=True)
    assert [X.shape[1] for X in seen] == [3]


def few(strategies, **options):
    return bw.plan(features(300), **filed(bag_sizes=[10], strategies=strategies, **options))


def test_instances_are_planned_with_their_parameters():
    found = few(["kmeans", bw.KMeansBags(scale="std", effort="fast")], not_private=True)
    titles = {candidate.title for candidate in found.candidates}
    assert titles == {"kmeans", "kmeans scale=std effort=fast"}
    rank = next(i for i, c in enumerate(found.candidates) if c.parameters)
    assert found.candidates[rank].strategy == "kmeans"
    assert "--strategy kmeans --set scale=std --set effort=fast" in found.command(rank)
    (plain, *_) = (i for i, c in enumerate(found.candidates) if not c.parameters)
    assert "--set" not in found.command(plain)
    entry = json.loads(json.dumps(found.to_json()))["candidates"][rank]
    assert entry["parameters"] == {"scale": "std", "effort": "fast"}
    assert "kmeans scale=std effort=fast" in str(found)
    bags = {c.title: c.predictions.total for c in found.candidates}
    assert bags["kmeans"] != bags["kmeans scale=std effort=fast"]


def test_a_command_with_settings_reads_back_as_the_instance():
    for strategy in (
        bw.OptimalBags(clip=None),
        bw.SuperBags(half=True),
        bw.OptimalBags(clip=1.5, scale="std"),
    ):
        settings = dict(setting.split("=") for setting in spell_settings(strategy))
        assert find_strategy(strategy.name, settings) == strategy


def test_frontiers_tell_instances_apart():
    found = few([bw.KMeansBags(), bw.KMeansBags(scale="std")], **PRIVATE)
    assert len([name for name in found.frontier if name.startswith("kmeans")]) == 2


def test_strategies_that_sort_need_a_bag_size():
    for strategy in ("sorted", bw.SuperBags(order="sorted")):
        for promise in (PRIVATE, {"not_private": True}):
            with pytest.raises(StrategyError, match=r"rows by private scores.*state a bag size"):
                few(["random", strategy], **promise)


def metric_bought(found, **sample):
    (strategy,) = {candidate.bagging for candidate in found.candidates}
    assert strategy == METRIC
    rows = dataclasses.replace(found.problem.sample, **sample)
    return dataclasses.replace(found.problem, sample=rows)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_rows_are_measured_by_the_model_that_a_release_buys(delta):
    found = few([METRIC], **PRIVATE | {"delta": delta})
    assert found.best.delta <= delta
    X = features(300)
    table = pa.table({**{f"x{j}": x for j, x in enumerate(X.T)}, "y": X.sum(axis=1)})
    own = {"strategy": METRIC, "centre": "none", "tighten": "none"}
    made = bw.make_release(
        table, **filed(label="y", bag_size=10, **own, **PRIVATE | {"delta": delta})
    )
    planned, paid = found.problem.buy_metric().event, made.certificate.events[0]
    assert isinstance(paid, type(planned))
    assert planned.number_sd == pytest.approx(paid.number_sd)


def test_a_sample_buys_the_model_of_its_table():
    found = few([METRIC], **PRIVATE | {"delta": 0.0})
    whole, part, rows = (
        metric_bought(found, **sample).buy_metric()
        for sample in ({"X": np.tile(features(300), (4, 1))}, {"copies": 4.0}, {})
    )
    assert part.error == pytest.approx(whole.error, rel=0.01)
    assert rows.error > 4 * part.error


def test_one_name_is_a_list_of_one_and_none_is_refused():
    assert {c.strategy for c in few("random", not_private=True).candidates} == {"random"}
    with pytest.raises(StrategyError, match="at least one"):
        few([], not_private=True)


@pytest.mark.parametrize("strategies", [["kmens"], ["random", "kmens"], "kmens"])
def test_unknown_strategies_are_refused_by_name(strategies):
    with pytest.raises(StrategyError, match=r"unknown strategy 'kmens'.*Did you mean 'kmeans'"):
        few(strategies, not_private=True)


def test_what_else_is_named_is_checked():
    with pytest.raises(StrategyError, match="Did you mean 'poisson'"):
        few(["random"], not_private=True, family="poison")


@dataclasses.dataclass(frozen=True)
class Own(BaggingStrategy):
    """Rows as they come, for a test."""

    name = "own"

    def assign(self, X, scores, *, bag_size, rng):
        return Bags(np.arange(len(X)) // bag_size)


def test_a_strategy_of_ones_own_is_planned_and_its_command_says_that_it_is_none():
    found = few([Own()], not_private=True)
    assert found.best.strategy == "own"
    assert "own is not registered" in found.command()


def test_what_is_tried_follows_from_the_registry():
    private = Budget.of(1.0, 1e-5, bounds=(0.0, 1.0))
    for budget in (private, Budget.of(None, None, not_private=True)):
        request = ReleaseRequest.of(Columns.of("y"), budget, bag_size="auto")
        problem = PlanProblem.of(sample_matrix(features(50), n_rows=50), request)
        tried = {one.name for one in problem.strategies}
        assert tried == {name for name, kind in STRATEGIES.items() if kind.planned}
