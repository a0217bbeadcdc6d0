"""Tables of others are read as said."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import outside as tables

ROWS = 60


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    raw = "median_income housing_median_age total_rooms total_bedrooms population households"
    names = [*raw.split(), "latitude", "longitude", "median_house_value"]
    frame = pd.DataFrame(rng.uniform(1, 9, size=(ROWS, len(names))), columns=names)
    frame.loc[3, "total_bedrooms"] = np.nan
    frame.to_csv(tmp_path / "housing.csv", index=False)
    crime = pd.DataFrame(rng.uniform(size=(ROWS, 4)), columns=["a", "fold", "b", "gaps"])
    crime.assign(ViolentCrimesPerPop=rng.uniform(size=ROWS), gaps="?").to_csv(
        tmp_path / "communities.data", index=False
    )
    (tmp_path / "bank").mkdir()
    for part in ("train", "test"):
        X = pd.DataFrame(rng.normal(size=(ROWS, 3)))
        X.to_csv(tmp_path / "bank" / f"x_{part}.csv", index=False)
        pd.DataFrame(rng.integers(2, size=ROWS)).to_csv(
            tmp_path / "bank" / f"y_{part}.csv", index=False
        )
    return tmp_path


@pytest.mark.parametrize(
    ("load", "columns"), [(tables.housing, 8), (tables.crime, 2), (tables.bank, 3)]
)
def test_a_table_is_cut_without_losing_a_row(folder, load, columns):
    table = load(folder, 0)
    assert len(table.features) == columns
    assert table.label not in table.features
    total = 2 * ROWS if load is tables.bank else ROWS
    assert table.train.num_rows + table.test.num_rows == total
    values = np.column_stack([table.train[name] for name in table.features])
    assert np.isfinite(values).all()
    again = load(folder, 0)
    assert again.train.equals(table.train)


def test_claims_are_counted_over_years(tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"Exposure": rng.uniform(0.1, 1, ROWS), "VehValue": rng.uniform(size=ROWS)}
    )
    for name in ("VehAge", "VehBody", "Gender", "DrivAge"):
        frame[name] = rng.choice(["x", "y"], ROWS)
    frame["ClaimOcc"], frame["ClaimAmount"] = 0, 0.0
    frame["ClaimNb"] = rng.poisson(0.2, ROWS)
    frame.to_parquet(tmp_path / "claims.parquet")
    table = tables.insurance(tmp_path / "claims.parquet", 0)
    assert table.exposure == "Exposure"
    assert set(table.features) == {"VehValue", "VehAge", "VehBody", "Gender", "DrivAge"}


def test_the_best_constant_rate_has_all_of_its_own_deviance(tmp_path):
    rng = np.random.default_rng(1)
    years = pd.DataFrame({"Exposure": rng.uniform(0.1, 1, ROWS), "ClaimNb": rng.poisson(1, ROWS)})
    table = tables._table(
        "t", [years, years], "ClaimNb", bounds=(0.0, 9.0), family="poisson", exposure="Exposure"
    )
    rate = years.ClaimNb.sum() / years.Exposure.sum()
    assert table.score(rate * years.Exposure.to_numpy()) == pytest.approx(1)
    assert table.score(np.full(ROWS, 9.0)) > 1


def test_a_line_has_a_figure_for_each_promise_or_size():
    row = {"way": "bags", "by": "bagwise", "error": 0.01, "bag_size": None}
    rows = [{**row, "epsilon": e, "mean": m} for e, m in ((None, 0.05), (1.0, 1.5))]
    assert tables.page(rows).splitlines()[2] == (
        "| bags | bagwise | 0.0500 ± 0.0100 | 1.500 ± 0.010 |"
    )
    sized = [{**each, "bag_size": 8} for each in rows]
    assert tables.page(sized).splitlines()[3] == ("| bags, epsilon 1 | bagwise | 1.500 ± 0.010 |")
