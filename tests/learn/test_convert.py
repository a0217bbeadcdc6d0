import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score

from bagwise.bagging.bags import Bags
from bagwise.errors import BagsError, BagwiseError, ColumnError, LabelError
from bagwise.learn.bag_data import (
    BaggedData,
    from_frame,
    from_group_means,
    with_rows,
)
from bagwise.learn.estimator import BaggedGLM
from bagwise.learn.model_selection import BagKFold, bag_scorer

SECRET = 0.123456


@pytest.fixture
def rows():
    """Rows of unequal bags that are not sorted by bag, and the labels of the bags."""
    rng = np.random.default_rng(0)
    index = rng.permutation(np.repeat(np.arange(12), rng.integers(1, 6, size=12)))
    X = rng.normal(size=(index.size, 2))
    labels = Bags(index).mean(X @ [2.0, -1.0] + 0.1 * rng.normal(size=index.size)) + 3
    return X, index, labels


def fitted(data, **parameters):
    model = BaggedGLM(**parameters).fit(data.X, data.y, **data.fit_params())
    return [*model.coef_, model.intercept_]


def test_every_layout_gives_the_same_fit(rows):
    X, index, labels = rows
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["district"] = [f"D{number}" for number in index]
    frame["rate"] = labels[index]
    bags = Bags(index)
    means = pd.DataFrame(bags.mean(X), columns=["a", "b"])
    means["rate"] = labels
    means["people"] = bags.sizes
    expected = fitted(BaggedData(X, labels[index], index))
    for data in (
        from_frame(frame, bag="district", label="rate"),
        from_group_means(means, label="rate", size="people"),
    ):
        np.testing.assert_allclose(fitted(data, loss="aggregate"), expected, rtol=1e-9)


def test_data_goes_through_cross_validation(rows):
    X, index, labels = rows
    data = BaggedData(X, labels[index], index, noise_sd=0.1)
    with sklearn.config_context(enable_metadata_routing=True):
        model = BaggedGLM().set_fit_request(bags=True, noise_sd=True)
        scores = cross_val_score(
            model, data.X, data.y, params=data.fit_params(),
            cv=BagKFold(3, random_state=0), scoring=bag_scorer("mse"), error_score="raise",
        )  # fmt: skip
    assert (scores > -1).all()


# BaggedData


def test_what_is_kept_is_one_entry_per_row():
    data = BaggedData(
        X=[[1, 2], [3, 4], [5, 6]], y=[7, 7, 8], bags=["x", "x", "y"], noise_sd=0.5,
        sample_weight=[1, 1, 2], feature_names=["a", "b"],
    )  # fmt: skip
    assert data.X.dtype == data.y.dtype == np.float64
    assert data.bags.tolist() == [0, 0, 1]
    assert data.feature_names == ("a", "b")
    params = data.fit_params()
    assert params.keys() == {"bags", "noise_sd", "sample_weight"}
    assert params["noise_sd"].tolist() == [0.5, 0.5, 0.5]
    assert params["sample_weight"].tolist() == [1, 1, 2]
    assert BaggedData([[1.0]], [2.0], Bags(np.array([0]))).fit_params().keys() == {"bags"}
    with pytest.raises(TypeError, match="not iterable"):
        iter(data)  # type: ignore[call-overload]
    with pytest.raises(AttributeError):
        data.X = None  # type: ignore[misc]


@pytest.mark.parametrize(
    ("error", "pattern", "wrong"),
    [
        (BagsError, "bags has 2 entries for 3 rows", {"bags": [0, 1]}),
        (BagsError, "y differs inside bag 0", {"y": [SECRET, 1.0, 1.0]}),
        (LabelError, "y has NaN or infinite values in 1 row.*row 2 ", {"y": [SECRET, np.nan, 1.0]}),
        (
            LabelError,
            "y has NaN or infinite values in 2 row.*row 1 ",
            {"y": [np.inf, -np.inf, 1.0]},
        ),
        (LabelError, "y must be an array of numbers", {"y": [SECRET, f"{SECRET}!", 1.0]}),
        (LabelError, r"one entry per row \(3\), got shape \(2,\)", {"y": [SECRET, 1.0]}),
        (ColumnError, "X has NaN or infinite values in 1 row", {"X": [[1.0], [np.nan], [2.0]]}),
        (BagsError, "X must have two dimensions", {"X": [1.0, 2.0, 3.0]}),
        (BagsError, "X is empty", {"X": np.empty((0, 3))}),
        (BagsError, "noise_sd must be finite and not negative", {"noise_sd": np.nan}),
        (BagsError, "noise_sd differs inside bag 0", {"noise_sd": [1.0, 2.0, 3.0]}),
        (BagsError, "noise_sd must be one number or one per row", {"noise_sd": [1.0, 1.0]}),
        (BagsError, "sample_weight must be one per row", {"sample_weight": [1.0]}),
        (BagsError, "not be negative anywhere", {"sample_weight": [1.0, 1.0, -1.0]}),
        (ColumnError, "X has 1 columns, but 2 feature names", {"feature_names": ["a", "b"]}),
    ],
)
def test_contradictions_are_refused_without_quoting_a_label(error, pattern, wrong):
    right = {"X": [[1.0], [2.0], [3.0]], "y": [SECRET, SECRET, 1.0], "bags": [0, 0, 1]}
    with pytest.raises(error, match=pattern) as caught:
        BaggedData(**{**right, **wrong})
    assert "0.123" not in str(caught.value)
    assert caught.value.__context__ is None


# A table of rows

COLUMNS = {
    "ward": ["n", "s", "n", "s"],
    "age": [30.0, 40.0, 50.0, 40.0],
    "sex": ["f", "m", "f", "f"],
    "rate": [0.5, 2.0, 0.5, 2.0],
    "sd": [0.1, 0.2, 0.1, 0.2],
}
COLUMNS_TABLE = pa.table(COLUMNS)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, pl.LazyFrame])
def test_frames_of_any_library(make):
    data = from_frame(make(COLUMNS), bag="ward", label="rate", noise_sd="sd")
    assert data.bags.tolist() == [0, 1, 0, 1]
    assert data.feature_names == ("age", "sex=m")
    assert data.X.tolist() == [[30, 0], [40, 1], [50, 0], [40, 0]]
    assert data.y.tolist() == COLUMNS["rate"]
    assert data.noise_sd.tolist() == COLUMNS["sd"]


def test_features_are_chosen_by_name_or_by_exclusion():
    frame = pd.DataFrame(COLUMNS)

    def names(**chosen):
        return from_frame(frame, bag="ward", label="rate", **chosen).feature_names

    assert names(features="age") == names(exclude=["sex", "sd"]) == ("age",)
    assert names(features=["sex", "age"]) == ("age", "sex=m")
    assert names(exclude={"age"}, noise_sd="sd") == ("sex=m",)
    assert names(exclude="sex", noise_sd=0.5) == ("age", "sd")


def test_a_column_like_an_id_is_a_feature_only_by_name():
    table = COLUMNS_TABLE.append_column("floor", pa.array([1, 2, 3, 4]))
    with pytest.raises(ColumnError, match="'floor' is different in every row, like an id"):
        from_frame(table, bag="ward", label="rate")
    data = from_frame(table, bag="ward", label="rate", features=["floor"])
    assert data.feature_names == ("floor",)


def test_one_number_may_be_the_noise_of_all_labels():
    data = from_frame(COLUMNS_TABLE, bag="ward", label="rate", noise_sd=0.5)
    assert data.noise_sd.tolist() == [0.5] * 4
    assert from_frame(COLUMNS_TABLE, bag="ward", label="rate").noise_sd is None


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([7, -3, 7, -3]),
        pa.array([0.5, 1.5, 0.5, 1.5]),
        pa.array([True, False, True, False]),
        pa.array(["n", "s", "n", "s"]).dictionary_encode(),
        pa.array([18_000, 18_001, 18_000, 18_001], pa.date32()),
        pa.chunked_array([["n", "s"], ["n", "s"]]),
        pa.chunked_array(
            [pa.array(["n", "s"]).dictionary_encode(), pa.array(["n", "s"]).dictionary_encode()]
        ),
    ],
    ids=lambda ids: str(ids.type),
)
def test_bag_ids_of_any_type(ids):
    table = COLUMNS_TABLE.set_column(0, "ward", ids)
    assert from_frame(table, bag="ward", label="rate").bags.tolist() == [0, 1, 0, 1]


def test_bags_may_be_the_index_of_a_pandas_frame():
    frame = pd.DataFrame(COLUMNS).set_index("ward")
    assert from_frame(frame, bag="ward", label="rate").bags.tolist() == [0, 1, 0, 1]


def test_missing_features_are_marked_as_in_a_release():
    table = COLUMNS_TABLE.set_column(1, "age", pa.array([30.0, None, 50.0, 40.0]))
    data = from_frame(table, bag="ward", label="rate", features="age")
    assert data.feature_names == ("age", "age=(missing)")
    assert data.X[1].tolist() == [40.0, 1.0]


def test_the_recipe_encodes_new_rows_the_same_way():
    data = from_frame(COLUMNS_TABLE, bag="ward", label="rate", exclude="sd")
    new = pa.table({"age": [1.0], "sex": ["m"]})
    assert data.encoder.transform(new).tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(
    ("error", "pattern", "changed", "arguments"),
    [
        (ColumnError, "bag 'wards' is not a column.*'ward'", {}, {"bag": "wards"}),
        (ColumnError, "label 'rates' is not a column", {}, {"label": "rates"}),
        (ColumnError, "noise_sd 'std' is not a column", {}, {"noise_sd": "std"}),
        (ColumnError, "features column 'ages' is not", {}, {"features": ["ages"]}),
        (ColumnError, "exclude column 'ages' is not", {}, {"exclude": ["ages"]}),
        (ColumnError, "'ward' cannot be a feature", {}, {"features": ["ward"]}),
        (ColumnError, "noise_sd 'sex' is of type string", {}, {"noise_sd": "sex"}),
        (BagsError, "bag 'ward' is missing in 1 row", {"ward": ["n", None, "n", "s"]}, {}),
        (BagsError, "bag 'ward' is missing in 1 row", {"ward": [1.0, np.nan, 1.0, 2.0]}, {}),
        (BagsError, "y differs inside bag 0", {"rate": [SECRET, 2.0, 0.5, 2.0]}, {}),
        (LabelError, "label 'rate' is missing in 1", {"rate": [SECRET, None, SECRET, 2.0]}, {}),
        (LabelError, "label 'rate' is NaN or", {"rate": [SECRET, np.inf, SECRET, 2.0]}, {}),
        (LabelError, "label 'rate' is of type string", {"rate": [str(SECRET)] * 4}, {}),
        (ColumnError, "'age' holds infinite", {"age": [1.0, np.inf, 1.0, 1.0]}, {}),
        (BagsError, "noise_sd must be finite", {"sd": [0.1, -1, 0.1, -1]}, {"noise_sd": "sd"}),
        (BagsError, "noise_sd must be finite", {"sd": [0.1, None, 0.1, 1]}, {"noise_sd": "sd"}),
    ],
)
def test_wrong_frames(error, pattern, changed, arguments):
    table = pa.table({**COLUMNS, **changed})
    with pytest.raises(error, match=pattern) as caught:
        from_frame(table, **{"bag": "ward", "label": "rate", **arguments})
    assert "0.123" not in str(caught.value)


# A table of groups


def test_groups_count_by_their_sizes():
    table = pa.table({"age": [30.5, 40.0], "rate": [0.2, 0.4], "people": [3, 1], "sd": [0.1, 0.2]})
    data = from_group_means(table, label="rate", size="people", noise_sd="sd")
    assert data.X.tolist() == [[30.5], [40.0]]
    assert data.bags.tolist() == [0, 1]
    assert data.fit_params()["sample_weight"].tolist() == [3.0, 1.0]
    assert data.fit_params()["noise_sd"].tolist() == [0.1, 0.2]
    assert data.feature_names == ("age",)


@pytest.mark.parametrize(
    ("error", "pattern", "size"),
    [
        (BagsError, "must be a positive whole number.*1 row.*row 2 ", [3, 0]),
        (BagsError, "must be a positive whole number.*2 row.*row 1 ", [-3, -1]),
        (BagsError, "must be a positive whole number", [3.0, 1.5]),
        (BagsError, "must be a positive whole number", [3.0, None]),
        (BagsError, "must be a positive whole number", [3.0, np.inf]),
        (ColumnError, "size 'people' is of type string", ["3", "1"]),
    ],
)
def test_wrong_sizes(error, pattern, size):
    table = pa.table({"age": [30.5, 40.0], "rate": [0.2, 0.4], "people": size})
    with pytest.raises(error, match=pattern):
        from_group_means(table, label="rate", size="people")


def test_a_missing_size_column():
    with pytest.raises(ColumnError, match="size 'n' is not a column"):
        from_group_means(pa.table({"age": [30.5], "rate": [0.2]}), label="rate", size="n")


# Rows with labels of their own


def test_rows_are_bags_of_one_row_with_noise_of_their_own(rows):
    X, index, labels = rows
    bagged = BaggedData(X, labels[index], index, noise_sd=0.5, feature_names=["a", "b"])
    data = with_rows(bagged, [[1.0, 2.0], [3.0, 4.0]], [5.0, 6.0], noise_sd=[0.1, 0.2])
    assert data.bags[-2:].tolist() == [12, 13]
    np.testing.assert_array_equal(data.bags[:-2], bagged.bags)
    assert data.X[-2:].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert data.y[-2:].tolist() == [5.0, 6.0]
    assert data.noise_sd.tolist() == [0.5] * len(X) + [0.1, 0.2]
    assert data.sample_weight is None
    assert data.feature_names == ("a", "b")


def test_rows_weigh_one_beside_groups():
    table = pa.table({"age": [30.5, 40.0], "rate": [0.2, 0.4], "people": [3, 1]})
    groups = from_group_means(table, label="rate", size="people")
    data = with_rows(groups, [[20.0]], [0.0])
    assert data.fit_params()["sample_weight"].tolist() == [3.0, 1.0, 1.0]
    assert data.noise_sd.tolist() == [0.0, 0.0, 0.0]


def test_a_few_rows_decide_what_bags_leave_open():
    # Both bags have the same centroid, so that they say nothing about the slope.
    bagged = BaggedData([[-1.0], [1.0], [-2.0], [2.0]], [1.0] * 4, [0, 0, 1, 1])
    data = with_rows(bagged, [[1.0], [2.0]], [3.0, 5.0])
    coef, intercept = fitted(data, weights="equal")
    expected = LinearRegression().fit([[0.0], [0.0], [1.0], [2.0]], [1.0, 1.0, 3.0, 5.0])
    assert coef == pytest.approx(expected.coef_[0])
    assert intercept == pytest.approx(expected.intercept_)


def test_rows_with_shares_of_classes():
    bagged = BaggedData(np.zeros((2, 1)), [[0.5, 0.5]] * 2, [0, 0])
    assert with_rows(bagged, [[1.0]], [[1.0, 0.0]]).y.tolist() == [[0.5, 0.5]] * 2 + [[1.0, 0.0]]


@pytest.mark.parametrize(
    ("error", "pattern", "wrong"),
    [
        (BagsError, "X_rows has 1 columns, the bags have 2", {"X_rows": [[1.0]]}),
        (LabelError, r"y_rows must have shape \(1,\), got \(2,\)", {"y_rows": [SECRET, 1.0]}),
        (LabelError, "y_rows has NaN", {"y_rows": [np.nan]}),
        (ColumnError, "X_rows has NaN", {"X_rows": [[np.nan, 1.0]]}),
        (BagsError, "noise_sd must be finite", {"noise_sd": -1.0}),
        (BagsError, "noise_sd must be one number or one per row", {"noise_sd": [0.1, 0.2]}),
    ],
)
def test_wrong_rows(rows, error, pattern, wrong):
    X, index, labels = rows
    bagged = BaggedData(X, labels[index], index)
    right = {"X_rows": [[1.0, 2.0]], "y_rows": [SECRET], "noise_sd": 0.0}
    with pytest.raises(error, match=pattern) as caught:
        with_rows(bagged, **{**right, **wrong})
    assert isinstance(caught.value, BagwiseError)
    assert "0.123" not in str(caught.value)


def test_means_of_groups_may_differ_in_every_row():
    table = pa.table({"population": [3, 5, 9], "y": [1.0, 2.0, 3.0], "rows": [10, 20, 30]})
    data = from_group_means(table, label="y", size="rows")
    assert data.feature_names == ("population",)
