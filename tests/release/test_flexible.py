"""Bags for learners that are not linear: the metric of a private model, paid for and published."""

import dataclasses
import json

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.bagging.bags import Bags
from bagwise.cli import app
from bagwise.errors import (
    BagwiseError,
    BudgetError,
    ReleaseError,
    StrategyError,
)
from bagwise.planner.flexible import FEWEST_BAGS, best_size, lost, lost_singly
from bagwise.planner.problem import PlanProblem
from bagwise.planner.sample import Sample
from bagwise.privacy import total_delta
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns
from bagwise.requests.provenance import FlexibleLearner
from bagwise.requests.queries import METRIC_SHARES
from bagwise.requests.verbs import ReleaseRequest
from bagwise.rng import SimulatedNoise
from tests.forging import rehash
from tests.release.test_release import edit_json, edit_provenance
from tools.settings import filed

N = 4000
BOUNDS = (-10.0, 10.0)
MODEL = bw.KMeansBags(scale="model")


def make_table(n=N, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.clip(3 * X[:, 0] + np.abs(X[:, 0]) - 2 * X[:, 1] + rng.normal(size=n), *BOUNDS)
    columns = {f"x{j}": X[:, j] for j in range(d)}
    return pa.table({**columns, "who": np.arange(n) % (n // 4), "part": np.arange(n) % 2, "y": y})


@pytest.fixture(scope="module")
def table():
    return make_table()


def release(table, **options):
    asked = {"label": "y", "bounds": BOUNDS, "epsilon": 4.0, "exclude": ["who", "part"]}
    return bw.make_release(
        table, **filed(**{"bag_size": 20, "strategy": MODEL, **asked, **options})
    )


def hidden(made):
    return [event.hides for event in made.certificate.events]


def within(made):
    """Share of the variance of each feature that lies within bags."""
    X = made.encoder.transform(made.features)
    left = X - made.bags.repeat(made.bags.mean(X))
    return (left**2).mean(axis=0) / X.var(axis=0)


# --- what is bought -------------------------------------------------------------------------------


@pytest.mark.parametrize("promise", [{}, {"delta": 1e-6}], ids=["pure", "delta"])
@pytest.mark.parametrize("label_kind", ["mean", "pick"])
@pytest.mark.filterwarnings("ignore::bagwise.errors.DominatedWarning")
def test_the_model_is_paid_for_and_published(table, promise, label_kind, tmp_path):
    made = release(table, label_kind=label_kind, **promise)
    assert hidden(made).count("model") == 1
    events = made.certificate.events
    assert total_delta(events, 4.0) <= promise.get("delta", 0.0)
    assert made.provenance.scores == "model"
    assert np.abs(made.model.coef[:2]).min() > np.abs(made.model.coef[2:]).max()
    found = bw.Release.load(made.save(tmp_path / "out"))
    assert "bags are compact in the metric of the published model" in found.verify().checks
    assert np.array_equal(found.model.coef, made.model.coef)


def test_rows_of_a_bag_are_alike_in_what_the_model_says_matters(table):
    plain, model = within(release(table, strategy="kmeans")), within(release(table))
    assert model[:2].max() < 0.5 * plain[:2].min()
    assert model[2:].min() > plain[2:].max()


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_one_model_serves_for_the_metric_and_for_centring(table, delta):
    made = release(table, centre="model", bounds=(-500, 500), delta=delta)
    assert hidden(made) == ["range", "model", "limit", "bag means"]
    assert made.certificate.limit is not None
    made.verify()
    plain = release(table, centre="model", bounds=(-500, 500), delta=delta, strategy="kmeans")
    assert hidden(plain) == hidden(made)
    # The price is that of centring alone: the metric comes with it.
    for one, other in zip(made.certificate.events, plain.certificate.events, strict=True):
        assert type(one) is type(other)
        assert one.pure_epsilon == pytest.approx(other.pure_epsilon, rel=1e-6)


def test_a_model_for_a_metric_has_its_share(table):
    auto = release(table, centre="none", tighten="none")
    share = METRIC_SHARES["laplace"]
    assert auto.certificate.events[0].pure_epsilon == pytest.approx(4 * share, rel=1e-3)


def test_the_noise_does_not_depend_on_what_the_model_found(table):
    """Bags follow a look at labels, so their noise must allow for any bags."""
    other = table.set_column(table.column_names.index("y"), "y", pa.array(np.zeros(N)))
    drawn = [release(one, tighten="none", centre="none") for one in (table, other)]
    assert drawn[0].certificate.events == drawn[1].certificate.events


def test_units_and_strata(table):
    made = release(table, unit="who", exclude="part", within="part")
    made.verify()
    assert made.certificate.unit_rows == 4
    part = made.instances["part"].to_numpy()
    assert all(np.unique(part[made.bags.index == bag]).size == 1 for bag in range(20))


def test_a_linear_fit_to_such_bags_has_bag_loss_and_intervals(table):
    model = bw.fit_release(release(table))
    assert model.loss == "bag"
    assert model.standard_errors is not None
    sorted_by = bw.fit_release(release(table, strategy="sorted"))
    assert (sorted_by.loss, sorted_by.standard_errors) == ("instance", None)


# --- what is refused ------------------------------------------------------------------------------


def test_there_is_no_model_without_an_epsilon_or_for_classes(table):
    with pytest.raises(StrategyError, match="private model, which needs an epsilon"):
        release(table, epsilon=None, not_private=True)
    for scores in ("noisy-labels", "labels"):
        with pytest.raises(StrategyError, match="from a private model"):
            release(table, scores=scores)
    with pytest.raises(StrategyError, match="needs scores"):
        release(table, scores="none")
    classes = {"classes": ["0", "1"], "bounds": None, "label": "part"}
    with pytest.raises(StrategyError, match="only features"):
        release(table, **classes, exclude=["who", "y"])
    with pytest.raises(StrategyError, match="comes from a private model"):
        bw.plan(table.drop_columns("y"), bagging=bw.Bagging(strategies=[MODEL]), not_private=True)


def test_what_a_flexible_learner_cannot_be_given(table):
    with pytest.raises(StrategyError, match="Did you mean 'flexible'"):
        release(table, learner="flexibel")
    with pytest.raises(StrategyError, match="name one strategy"):
        release(table, learner="flexible", strategy="auto", strategies=["kmeans"])
    for other in ({"strategies": ["kmeans"]}, {"single_labels": True}):
        with pytest.raises(StrategyError, match="ranked for linear learners"):
            bw.plan(
                table.drop_columns("y"),
                **filed(bounds=BOUNDS, epsilon=1.0, learner="flexible", **other),
            )
    with pytest.raises(BudgetError, match="a noisy number for every row"):
        release(table, learner="flexible", strategy="auto", noise="unbiased")


def test_what_cannot_be_made_is_refused_before_anything_is_charged(table, tmp_path):
    ledger = bw.Ledger.create(tmp_path / "spent.ledger", epsilon_total=10.0, delta_total=1e-6)
    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    few = {"memory_limit": 1, "spill": tmp_path}
    with pytest.raises(StrategyError, match="does not fit into memory"):
        bw.make_release(
            str(path),
            **filed(
                label="y",
                bounds=BOUNDS,
                epsilon=1.0,
                bag_size=20,
                strategy=MODEL,
                exclude="who",
                within="part",
                ledger=ledger,
                **few,
            ),
        )
    assert not ledger.charges()


# --- forgeries ------------------------------------------------------------------------------------


@pytest.fixture
def saved(table, tmp_path):
    return release(table, tighten="none", centre="none").save(tmp_path / "out")


def reject(path, match):
    rehash(path)
    with pytest.raises(BagwiseError, match=match):
        bw.Release.load(path).verify()


def test_a_metric_that_nobody_paid_for(table, saved):
    """Bags of a release without scores, said to be those of a model."""
    plain = release(table, strategy="kmeans", tighten="none", centre="none").save(saved / "../bare")
    edit_provenance(plain, strategy_parameters=read_parameters(saved))
    reject(plain, "strategy and the scores that it used do not agree")
    edit_provenance(plain, scores="model")
    reject(plain, "scores.json and the model that the manifest names do not agree")


def test_a_model_without_its_event(table):
    made = release(table, tighten="none", centre="none")
    bare = release(table, strategy="kmeans", tighten="none", centre="none")
    with pytest.raises(ReleaseError, match="does not pay for the scores"):
        dataclasses.replace(
            made,
            certificate=bare.certificate,
            noise_sd=np.full_like(made.noise_sd, bare.noise_sd[0]),
        ).verify()


def test_bags_by_a_model_that_is_hidden(saved):
    """The event is there, and the model is not; or another scale is claimed."""
    edit_provenance(saved, scores="none")
    reject(saved, "do not agree")
    edit_provenance(
        saved, scores="model", strategy_parameters={**read_parameters(saved), "scale": "std"}
    )
    reject(saved, "strategy and the scores that it used do not agree")


def read_parameters(path):
    manifest = json.loads((path / "manifest.json").read_text())
    return manifest["provenance"]["strategy_parameters"]


def test_other_weights_than_those_of_the_bags(saved):
    scores = json.loads((saved / "scores.json").read_text())
    found = scores["coefficients"]
    turned = dict(zip(found, reversed(found.values()), strict=True))
    edit_json(saved, "scores.json", coefficients=turned)
    reject(saved, "not compact in the metric")
    edit_json(saved, "scores.json", coefficients=found)
    rehash(saved)
    bw.Release.load(saved).verify()


@pytest.mark.parametrize("strategy", [MODEL, bw.KMeansBags()], ids=["model", "whiten"])
def test_bags_that_follow_the_labels_instead(table, strategy):
    made = release(table, strategy=strategy, tighten="none", centre="none")
    secret = np.random.default_rng(0).normal(size=N)  # what nobody paid for
    index = np.empty(N, dtype=np.int64)
    index[np.argsort(secret)] = np.arange(N) // 20
    forged = dataclasses.replace(made, bags=Bags(index).take(np.arange(N)))
    with pytest.raises(ReleaseError, match="not compact in the metric"):
        forged.verify()


def test_a_reason_in_other_words(saved):
    edit_provenance(saved, chosen_because={"kind": "flexible-learner", "noise_lost": -1.0})
    reject(saved, "noise_lost")
    edit_provenance(saved, chosen_because={"kind": "flexible-learner", "note": "3.14"})
    reject(saved, "chosen_because")


# --- what is chosen -------------------------------------------------------------------------------


def choice(made):
    parameters = made.provenance.strategy_parameters
    return made.provenance.strategy, parameters.get("scale"), made.provenance.bag_size


def test_flexible_learners_get_bags_by_a_model_and_the_release_says_why(table, tmp_path):
    made = release(table, learner="flexible", strategy="auto", bag_size=None)
    strategy, scale, size = choice(made)
    assert (strategy, scale) == ("kmeans", "model")
    assert size < 50
    reason = bw.Release.load(made.save(tmp_path / "out")).provenance.chosen_because
    assert isinstance(reason, FlexibleLearner)
    assert 0 < reason.noise_lost < 0.5
    assert "not linear" in reason.text()
    assert not reason.is_hopeless()
    named = release(table, learner="flexible", strategy="auto", bag_size=30)
    assert choice(named) == ("kmeans", "model", 30)
    assert isinstance(named.provenance.chosen_because, FlexibleLearner)
    other = release(table, learner="flexible", strategy="random", bag_size=None)
    assert choice(other) == ("random", None, size)
    linear = release(table, strategy="auto", bag_size=None)
    assert not isinstance(linear.provenance.chosen_because, FlexibleLearner)


def test_without_a_model_to_buy_rows_are_compared_by_their_features(table):
    open_ = release(
        table, learner="flexible", strategy="auto", epsilon=None, bounds=None, not_private=True
    )
    assert choice(open_) == ("kmeans", "whiten", 20)
    classes = release(
        table, learner="flexible", strategy="auto", bag_size=None, label="part",
        classes=["0", "1"], bounds=None, exclude=["who", "y"],
    )  # fmt: skip
    assert choice(classes)[:2] == ("kmeans", "whiten")
    # So many columns for so few rows that the model would be noise.
    wide = make_table(n=600, d=60)
    noise = release(wide, learner="flexible", strategy="auto", epsilon=0.3, bag_size=20)
    assert choice(noise)[:2] == ("kmeans", "whiten")


def problem_of(epsilon, n_rows=20_000, *, least=10, **sample):
    """A problem without features: all that a size depends on is public."""
    budget = Budget.of(epsilon, 0.0 if epsilon else None, bounds=(0.0, 1.0) if epsilon else None,
                       not_private=epsilon is None)  # fmt: skip
    rows = Sample(np.zeros((n_rows, 1)), **sample)
    request = ReleaseRequest.of(
        Columns.of("y"),
        budget,
        bag_size="auto",
        learner="flexible",
        bagging=bw.Bagging(min_bag_size=least),
    )
    return PlanProblem.of(rows, request, prior=(0.088, 0.088))


def test_bags_grow_with_the_noise_and_shrink_with_the_rows():
    def best(epsilon, n_rows=20_000, **sample):
        return best_size(problem_of(epsilon, n_rows, **sample))

    problem = problem_of(1.0, 8_000)
    assert min([10, 20, 50, 100, 200], key=lambda size: lost(problem, size)) == 50
    by_epsilon = [best(epsilon) for epsilon in (0.1, 0.3, 1.0, 4.0)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    assert by_epsilon[0] >= 5 * by_epsilon[-1]
    by_rows = [best(0.5, n) for n in (5_000, 20_000, 100_000, 10**6)]
    assert by_rows[1:] == sorted(by_rows[1:], reverse=True)
    assert best(0.5, 1_000) <= 1_000 // FEWEST_BAGS
    assert best(1.0, largest=4) >= best(1.0)
    assert best(None, 5_000, least=7) == 7


def test_single_labels_lose_less_than_bags_where_epsilon_is_large():
    problems = [problem_of(epsilon, 16_000) for epsilon in (1.0, 2.0, 4.0)]
    alone = [lost_singly(one) < lost(one, best_size(one)) for one in problems]
    assert alone == [False, False, True]


def test_single_labels_are_reported_where_bags_would_lose_more():
    """Much epsilon for many rows; whoever says anything about bags gets bags."""
    many = make_table(n=16_000, d=2)
    asked = {"learner": "flexible", "strategy": "auto", "bag_size": None, "bounds": (-10, 10)}
    made = release(many, **asked, epsilon=8.0)
    assert (choice(made)[0], choice(made)[2]) == ("random", 1)
    *_, last = made.certificate.events
    assert (last.hides, last.law.kind) == ("single labels", "unbiased")
    assert made.certificate.epsilon <= 8.0
    assert isinstance(made.provenance.chosen_because, FlexibleLearner)
    made.verify()
    features = many.drop_columns(["y", "who", "part"])
    found = bw.plan(features, bounds=(-10, 10), epsilon=8.0, learner="flexible")
    assert (found.best.noise, found.best.bag_size) == ("unbiased", 1)
    assert "--noise unbiased" in found.command()
    for said in (
        {"epsilon": 1.0},
        {"min_bag_size": 10},
        {"bag_size": 20},
        {"strategy": "random"},
        {"noise": "staircase"},
        {"within": "part"},
        {"family": "poisson", "bounds": (0, 10)},
    ):
        assert choice(release(many, **{**asked, "epsilon": 8.0, **said}))[2] >= 10


def test_no_size_is_known_for_picked_classes(table):
    with pytest.raises(StrategyError, match="picked classes"):
        release(
            table, learner="flexible", strategy="auto", bag_size=None, label="part",
            classes=["0", "1"], bounds=None, exclude=["who", "y"], label_kind="pick",
        )  # fmt: skip


@pytest.mark.parametrize("promise", [{}, {"delta": 1e-6}], ids=["pure", "delta"])
def test_a_plan_for_flexible_learners_says_what_a_release_would_do(table, promise):
    features = table.drop_columns(["y", "who", "part"])
    found = bw.plan(features, **filed(bounds=BOUNDS, epsilon=4.0, learner="flexible", **promise))
    made = release(table, learner="flexible", strategy="auto", bag_size=None, **promise)
    assert (found.best.strategy, found.best.bag_size) == (choice(made)[0], choice(made)[2])
    assert found.best.parameters == {"scale": "model"}
    assert {candidate.loss for candidate in found.candidates} == {"bag"}
    assert "--strategy kmeans --set scale=model --epsilon 4" in found.command()
    assert "--model boosted" in found.explain()
    assert found.to_json()["learner"] == "flexible"
    assert any("boosted trees" in remark for remark in found.remarks())
    named = bw.plan(
        features,
        **filed(bounds=BOUNDS, epsilon=4.0, learner="flexible", bag_sizes=[25, 40], **promise),
    )
    assert {candidate.bag_size for candidate in named.candidates} == {25, 40}


def test_a_metric_may_be_planned_by_name_among_others(table):
    features = table.drop_columns(["y", "who", "part"])
    found = bw.plan(
        features,
        bounds=BOUNDS,
        epsilon=4.0,
        bagging=bw.Bagging(strategies=[MODEL, "kmeans"]),
        bag_sizes=[20],
    )
    by_title = {c.title: c.scores for c in found.candidates if c.label_kind == "mean"}
    assert by_title == {"kmeans": "none", "kmeans scale=model": "model"}


def test_on_the_command_line(table, tmp_path):
    pq.write_table(table.drop_columns(["who", "part"]), tmp_path / "t.parquet")
    source, out = str(tmp_path / "t.parquet"), str(tmp_path / "out")
    options = ["--label", "y", "--bounds", "-10", "10", "--epsilon", "4", "--learner", "flexible"]
    run = CliRunner().invoke(app, ["release", source, *options, "-o", out])
    assert run.exit_code == 0, run.output
    assert "not linear" in " ".join(run.output.split())
    assert choice(bw.Release.load(out))[:2] == ("kmeans", "model")
    assert CliRunner().invoke(app, ["verify", out]).exit_code == 0
    plan = CliRunner().invoke(app, ["plan", source, *options, "--json"])
    assert plan.exit_code == 0, plan.output
    assert json.loads(plan.output)["candidates"][0]["parameters"] == {"scale": "model"}
    wrong = CliRunner().invoke(app, ["plan", source, *options[:-1], "bendy"])
    assert wrong.exit_code == 2
    assert "learner" in wrong.output


def test_simulated_noise_is_enough_for_experiments(table):
    made = release(table, noise_source=SimulatedNoise(1), not_private=True, learner="flexible",
                   strategy="auto", bag_size=None)  # fmt: skip
    assert choice(made)[:2] == ("kmeans", "model")
    assert not made.certificate.is_private
    made.verify()


def test_a_reason_reads_back():
    reason = FlexibleLearner(noise_lost=0.25)
    plain = msgspec.to_builtins(reason)
    assert plain == {"kind": "flexible-learner", "noise_lost": 0.25}
    assert FlexibleLearner(noise_lost=5.0).is_hopeless()
