"""Predictions with intervals: what they cover, where they end, and who has none."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import LeakWarning, StrategyError
from bagwise.families import find_family
from bagwise.learn.row_variance import row_variance
from tools.settings import filed


def rows(n, *, seed, family="gaussian"):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    eta = 1 + x[:, 0] - 0.5 * x[:, 1]
    y = find_family(family).sample(eta, phi=0.5, rng=rng)
    return pa.table({"a": x[:, 0], "b": x[:, 1], "y": y})


def open_release(table, **options):
    chosen = {"bag_size": 8, "strategy": "kmeans", "seed": 0, "not_private": True, **options}
    return bw.make_release(table, **filed(label="y", **chosen))


@pytest.mark.parametrize("kind", ["glm", "boosted"])
@pytest.mark.parametrize("family", ["gaussian", "gamma", "poisson"])
def test_an_interval_covers_the_share_that_it_says(kind, family):
    """800 bags tell a variance to 5 %: a share of 0.9 is then met within 0.02, counts above."""
    model = bw.fit(open_release(rows(6400, seed=0, family=family)), model=kind, family=family)
    new = rows(6000, seed=1, family=family)
    predicted, low, high = model.predict(new, interval=0.9).T
    np.testing.assert_array_equal(predicted, model.predict(new))
    covered = np.mean((new["y"].to_numpy() >= low) & (new["y"].to_numpy() <= high))
    assert 0.87 < covered < (0.98 if family == "poisson" else 0.93)


def test_noise_on_labels_is_no_part_of_an_interval():
    """Eight draws tell 0.5 to 0.014, a quarter of the tolerance; the twin claims noise of 0.27."""
    rng = np.random.default_rng(0)
    bags = bw.Bags(np.arange(16000) // 8)
    options = {"family": find_family("gaussian"), "picked": False}
    found, twin = [], []
    for _ in range(8):
        X = rng.uniform(size=(16000, 2))
        off = bags.mean(np.sqrt(0.5) * rng.normal(size=16000)) + 0.3 * rng.normal(size=2000)
        for results, noise in ((found, 0.3), (twin, 0.27)):
            known = np.full(2000, noise)
            results.append(row_variance(X, bags, off, np.zeros(16000), known, **options))
    assert np.mean(found) == pytest.approx(0.5, abs=0.056)
    assert np.mean(twin) > 0.556


def test_misfit_that_bags_share_is_not_taken_for_noise_of_rows():
    """Bags of 20 rows are off by a wave together: as noise of rows it would count 20 times."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 1, size=(8000, 1)), axis=0)
    bags = bw.Bags(np.arange(8000) // 20)
    wave = np.sin(8 * X[:, 0])
    off = bags.mean(wave + 0.5 * rng.normal(size=8000))
    options = {"family": find_family("gaussian"), "picked": False}
    found = row_variance(X, bags, off, np.zeros(8000), np.zeros(400), **options)
    assert found == pytest.approx(0.25 + np.mean(wave**2), rel=0.2)
    assert 20 * np.mean(off**2) > 5 * found


def test_an_interval_follows_the_error_that_an_evaluation_measured():
    """A measured error is off by 1 % and 6000 labels by 0.4 %; the twin has half the error."""
    made = {"strategy": "random", "bag_size": 200, "bounds": (-3, 5), "epsilon": 0.2}
    model = bw.fit(bw.make_release(rows(6400, seed=0), **filed(label="y", **made)))
    held_out, new = rows(6400, seed=2), rows(6000, seed=1)
    scores = bw.evaluate(model, held_out, epsilon=0.5, bounds=(-3, 5), loss="absolute")
    covered = []
    for mae in (scores.mae, scores.mae / 2):
        _, low, high = model.predict(new, interval=0.9, mae=mae).T
        covered.append(np.mean((new["y"].to_numpy() >= low) & (new["y"].to_numpy() <= high)))
    assert 0.87 < covered[0] < 0.93
    assert covered[1] < 0.7
    counts = bw.fit(open_release(rows(800, seed=0, family="poisson")), family="poisson")
    for wrong, error in ((model, -1.0), (counts, 1.0)):
        with pytest.raises(StrategyError, match="mae must be above 0"):
            wrong.predict(new, interval=0.9, mae=error)


def test_an_interval_stays_within_the_stated_bounds_and_survives_the_file(tmp_path):
    table = rows(2000, seed=0)
    model = bw.fit(
        bw.make_release(table, **filed(label="y", bounds=(0, 2), epsilon=8.0, bag_size=8))
    )
    ends = model.predict(table, interval=0.9)[:, 1:]
    assert ends.min() == 0
    assert ends.max() == 2
    assert model.predict(table, interval=0.9, clip=False)[:, 2].max() > 2
    loaded = bw.load_model(model.save(tmp_path / "m.json"))
    np.testing.assert_array_equal(loaded.predict(table, interval=0.9)[:, 1:], ends)
    wider = loaded.predict(table, interval=0.99, clip=False)
    assert np.all(wider[:, 1] < loaded.predict(table, interval=0.9, clip=False)[:, 1])


def test_the_command_writes_the_ends(tmp_path):
    model = bw.fit(open_release(rows(800, seed=0))).save(tmp_path / "m.json")
    pq.write_table(rows(10, seed=1), tmp_path / "t.parquet")
    command = ["predict", model, tmp_path / "t.parquet", "-o", tmp_path / "p.csv"]
    done = CliRunner().invoke(app, [*map(str, command), "--interval", "0.9", "--mae", "1"])
    assert done.exit_code == 0
    header, *lines = (tmp_path / "p.csv").read_text().splitlines()
    assert header == '"prediction","lower","upper"'
    _, low, high = map(float, lines[0].split(","))
    assert high - low == pytest.approx(2 * np.log(19) / (2 * np.log(2)))  # a logistic law


def test_who_has_no_interval_says_why():
    table = rows(800, seed=0)
    model = bw.fit(open_release(table))
    with pytest.raises(StrategyError, match="between 0 and 1"):
        model.predict(table, interval=90)
    yes = table.set_column(2, "y", pa.array((table["y"].to_numpy() > 1).astype(float)))
    with pytest.warns(LeakWarning):
        chances = bw.fit(open_release(yes), family="bernoulli")
    with pytest.raises(StrategyError, match="predict_proba"):
        chances.predict(table, interval=0.9)
    few = bw.fit(open_release(rows(60, seed=0)))
    assert few.trained_on.n_bags < 20
    with pytest.raises(StrategyError, match="no intervals"):
        few.predict(table, interval=0.9)
    X, bags = np.arange(40.0)[:, None], bw.Bags(np.arange(40) // 4)
    options = {"family": find_family("gaussian"), "picked": False}
    assert row_variance(X, bags, np.ones(10), X[:, 0], np.zeros(10), **options) is None


def test_importances_are_shares_of_what_trees_gained():
    table = rows(4000, seed=0)
    noise = np.random.default_rng(2).normal(size=4000)
    steps = pa.array(np.where(table["a"].to_numpy() > 0, 5.0, 0.0) + noise)
    model = bw.fit(open_release(table.set_column(2, "y", steps)), model="boosted")
    shares = dict(zip(model.get_feature_names_out(), model.feature_importances_, strict=True))
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["a"] > 0.9


def test_coefficients_become_a_frame():
    frame = bw.fit(open_release(rows(800, seed=0))).summary().to_pandas()
    assert frame.loc["a", "estimate"] == pytest.approx(1, abs=0.3)
    assert {"lower", "upper", "p_value"} <= set(frame.columns)


def test_a_model_card_has_the_fields_of_hubs_and_no_name_breaks_out(tmp_path):
    table = rows(800, seed=0).rename_columns(["a`\n# x", "b", "y"])
    model = bw.fit(open_release(table)).save(tmp_path / "m.json")
    card = tmp_path / "README.md"
    assert CliRunner().invoke(app, ["report", str(model), "-o", str(card)]).exit_code == 0
    text = card.read_text(encoding="utf-8")
    assert text.startswith("---\nlibrary_name: bagwise\npipeline_tag: tabular-regression\n")
    assert "NOT PRIVATE" in text
    assert "\n# x" not in text
