"""Tables of label sums: equations by hand, cells that share rows or are absent, and intervals."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app
from bagwise.errors import LabelError, ModelFileError, StrategyError
from bagwise.files.json_files import canonical
from bagwise.models.cells import UNCERTIFIED
from bagwise.models.model import digest_of


def draw(seed=0, *, n=3000, levels=4, sd=0.8, pairs=0.0):
    """Draw rows of three columns, one a number, with log odds that are nearly additive in them."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {
            "a": rng.choice(list("wxyz")[:levels], n),
            "b": rng.choice(list("pqrs")[:levels], n),
            "c": rng.normal(size=n),
        }
    )
    bins = np.searchsorted([-0.5, 0.5], rows.c)
    effects = [rng.normal(scale=sd, size=levels) for _ in range(3)]
    codes = [np.asarray(c) for c in (rows.a.map("wxyz".index), rows.b.map("pqrs".index), bins)]
    eta = sum(e[c] for e, c in zip(effects, codes, strict=True)) - 0.5
    if pairs:
        for one, other in itertools.combinations(codes, 2):
            eta += pairs * rng.normal(size=(levels, levels))[one, other]
    chance = expit(eta)
    return rows, (rng.random(n) < chance).astype(float), chance


def tables_of(rows, y, *, orders=(1, 2), noise_sd=0.0, rng=None):
    binned = rows.assign(c=np.searchsorted([-0.5, 0.5], rows.c), y=y)
    tables = []
    for names in itertools.chain(*(itertools.combinations("abc", order) for order in orders)):
        cells = binned.groupby(list(names)).y.agg(["sum", "count"]).reset_index()
        if noise_sd:
            cells["sum"] += rng.normal(scale=noise_sd, size=len(cells))
        tables.append(bw.LabelTable(cells, names, {"c": [-0.5, 0.5]}, noise_sd))
    return tables


def test_single_columns_give_what_row_labels_give():
    rows, y, _ = draw()
    model = bw.fit(rows, tables=tables_of(rows, y, orders=(1,)))
    dummies = pd.get_dummies(rows.assign(c=np.searchsorted([-0.5, 0.5], rows.c)).astype(str))
    X, start = dummies.to_numpy(float), logit(y.mean())
    held = 3 / 1.5**2  # three tables of one column

    def loss(beta):
        eta = X @ beta + start
        value = np.logaddexp(0, eta).sum() - y @ eta + held * beta @ beta / 2
        return value, X.T @ (expit(eta) - y) + held * beta

    by_rows = minimize(loss, np.zeros(X.shape[1]), jac=True, options={"gtol": 1e-6}).x
    np.testing.assert_allclose(model.predict(rows), expit(X @ by_rows + start), atol=1e-5)


def test_pairs_that_add_up_to_singles_are_no_contradiction():
    rows, y, chance = draw(n=20_000)
    model = bw.fit(rows, tables=tables_of(rows, y))
    assert model.trained_on.converged
    assert model.coef.size == 4 + 4 + 3 + 16 + 12 + 12
    assert model.predict(rows).mean() == pytest.approx(y.mean(), abs=1e-4)
    assert np.sqrt(np.mean((model.predict(rows) - chance) ** 2)) < 0.02
    # Sums of other labels teach nothing.
    wrong = bw.fit(rows, tables=tables_of(rows, np.random.default_rng(1).permutation(y)))
    assert np.sqrt(np.mean((wrong.predict(rows) - chance) ** 2)) > 0.1


def test_noise_holds_back_and_more_so_where_it_is_larger():
    rows, y, chance = draw(n=20_000)
    noisy = tables_of(rows, y, noise_sd=300.0, rng=np.random.default_rng(3))
    known = bw.fit(rows, tables=noisy)
    unknown = bw.fit(rows, tables=[bw.LabelTable(t.cells, t.columns, t.cuts) for t in noisy])
    error = [np.mean((model.predict(rows) - chance) ** 2) for model in (known, unknown)]
    assert known.trained_on.converged
    assert error[0] < 0.7 * error[1]


def test_absent_cells_are_unknown_and_not_zero():
    rows, y, _ = draw(n=20_000)
    tables = tables_of(rows, y, orders=(1,))
    full = bw.fit(rows, tables=tables).predict(rows)
    small = tables[0].cells.iloc[1:]
    cut = bw.fit(rows, tables=[bw.LabelTable(small, ("a",)), *tables[1:]])
    assert cut.uncovered == (int((rows.a == "w").sum()), 0, 0)
    assert cut.predict(rows)[rows.a == "w"].mean() == pytest.approx(
        y[rows.a == "w"].mean(), abs=0.05
    )
    first = rows.a == "w"
    zero = tables[0].cells.assign(sum=lambda t: np.where(t.a == "w", 0.0, t["sum"]))
    none = bw.fit(rows, tables=[bw.LabelTable(zero, ("a",)), *tables[1:]])
    assert none.predict(rows)[first].mean() < y[first].mean() - 0.2
    assert full.mean() == pytest.approx(y.mean(), abs=1e-4)


def test_sums_over_more_rows_are_scaled_to_those_at_hand():
    rows, y, _ = draw(n=20_000)
    part = rows.iloc[:5000]
    model = bw.fit(part, tables=tables_of(rows, y))
    assert model.predict(part).mean() == pytest.approx(y.mean(), abs=0.02)


def test_counts_are_learnt_as_rates():
    rows, _, chance = draw(n=20_000)
    visits = np.random.default_rng(5).poisson(3 * chance).astype(float)
    model = bw.fit(rows, tables=tables_of(rows, visits), family="poisson")
    assert np.sqrt(np.mean((model.predict(rows) / 3 / chance - 1) ** 2)) < 0.08


@pytest.mark.parametrize("noise_sd", [0.0, 15.0])
def test_intervals_know_that_answers_share_rows(noise_sd):
    """Effects are as large as the fit takes them to be; the twin knows nothing of the noise."""
    covered, twin = [], []
    for seed in range(30):
        rows, y, chance = draw(seed, n=1500, sd=1.5 / 3**0.5, pairs=0.75 / 3**0.5)
        rng = np.random.default_rng(1000 + seed)
        tables = tables_of(rows, y, noise_sd=noise_sd, rng=rng)
        model = bw.fit(rows, tables=tables)
        plain = bw.fit(rows, tables=[bw.LabelTable(t.cells, t.columns, t.cuts) for t in tables])
        for level in "wxyz":
            for other in "pqrs":
                chosen = (rows.a == level) & (rows.b == other)
                low, high = model.interval(rows[chosen])
                covered.append(low <= chance[chosen].mean() <= high)
                low, high = plain.interval(rows[chosen])
                twin.append(low <= chance[chosen].mean() <= high)
    assert 0.92 < np.mean(covered) < 0.98
    assert (np.mean(twin) < 0.92) == (noise_sd > 0)


def test_one_door_and_a_file_that_predicts(tmp_path):
    rows, y, _ = draw(n=2000)
    model = bw.fit(rows, tables=tables_of(rows, y), label="bought")
    path = model.save(tmp_path / "model.json")
    loaded = bw.load_model(path)
    assert loaded.predict(rows).tolist() == model.predict(rows).tolist()
    assert loaded.digest == model.digest
    # Intervals need the rows that were fitted, and all of them.
    chosen = rows[rows.a == "w"]
    assert loaded.interval(chosen, fitted=rows) == pytest.approx(model.interval(chosen))
    for known in ({}, {"fitted": chosen}):
        with pytest.raises(StrategyError, match="all rows that it was fitted to"):
            loaded.interval(chosen, **known)
    # What the commands make of it.
    table, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.assign(bought=y).to_csv(table, index=False)
    said = CliRunner().invoke(app, ["predict", str(path), str(table), "-o", str(out)])
    assert said.exit_code == 0, said.output
    np.testing.assert_allclose(pd.read_csv(out).prediction, model.predict(rows))
    page, card = tmp_path / "page.html", tmp_path / "card.md"
    for command in (["evaluate", path, table], ["verify", path],
                    ["report", path, "-o", page], ["report", path, "-o", card]):  # fmt: skip
        said = CliRunner().invoke(app, list(map(str, command)))
        assert said.exit_code == 0, said.output
    # Whoever made the sums may have added noise: nobody says that they did not.
    assert bw.verify(path)[0].headline == UNCERTIFIED
    for made in (page, card):
        text = made.read_text(encoding="utf-8")
        assert UNCERTIFIED in text
        assert "NOT PRIVATE" not in text
    # Another file than the one that was written.
    content = json.loads(path.read_text())
    content["encoder"]["tables"][0]["keys"][0] = 99
    del content["sha256"]
    path.write_bytes(canonical({**content, "sha256": digest_of(content)}))
    with pytest.raises(ModelFileError, match="cells"):
        bw.load_model(path)
    with pytest.raises(StrategyError, match="option of tables"):
        bw.fit(rows, tables=tables_of(rows, y), ridge=1.0)


def test_what_is_wrong_with_tables_is_said():
    rows, y, _ = draw(n=500)
    tables = tables_of(rows, y, orders=(1,))
    twice = pd.concat([tables[0].cells, tables[0].cells])
    with pytest.raises(LabelError, match="twice"):
        bw.fit(rows, tables=[bw.LabelTable(twice, ("a",))])
    with pytest.raises(StrategyError, match="increase"):
        bw.fit(rows, tables=[bw.LabelTable(tables[2].cells, ("c",), {"c": [1.0, 0.0]})])
    with pytest.raises(StrategyError, match="no table"):
        bw.fit(rows, tables=[])
    with pytest.raises(StrategyError, match="families"):
        bw.fit(rows, tables=tables, family="gaussian")
    with pytest.raises(LabelError, match="not negative"):
        bw.fit(rows, tables=[bw.LabelTable(tables[0].cells, ("a",), noise_sd=-1.0)])
    with pytest.raises(LabelError, match="no row"):
        bw.fit(rows, tables=[bw.LabelTable(tables[0].cells.assign(a="k"), ("a",))])
