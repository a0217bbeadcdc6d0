"""What every engine promises: the rows of a table, whatever holds them, and exact facts about them.

A new engine is one more line in `ENGINES`: how it is made from an Arrow table.
"""

import functools
import itertools
import json
import math
import operator
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import bagwise as bw
from bagwise.bagging import STRATEGIES, assign_bags, find_strategy
from bagwise.errors import BagwiseWarning, ColumnError, StrategyError
from bagwise.files import stored
from bagwise.files.json_files import canonical
from bagwise.privacy.private_model import design_model
from bagwise.rng import SecureNoise, SimulatedNoise
from bagwise.rows import opening as spilled
from bagwise.rows.encode import Encoder
from bagwise.rows.matrix import EncodedRows
from bagwise.rows.opening import Memory, SpilledRows, open_rows
from bagwise.rows.row_order import feature_order
from bagwise.rows.summary import ColumnSummary, exact_sum
from bagwise.rows.table import Rows
from tools.settings import filed

SCRATCH = tempfile.TemporaryDirectory()


def on_disk(table, *, arrow=False):
    """The rows of a table in a file, of which hardly any may be in memory at once."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH.name))  # files must stay as long as their rows
    path = folder / ("table.arrow" if arrow else "table.parquet")
    if arrow:
        feather.write_feather(table, path)
    else:
        pq.write_table(table, path, row_group_size=17)
    rows = open_rows(path, memory=Memory(1, folder))
    assert isinstance(rows, SpilledRows)
    assert rows.rows_at_once < rows.num_rows
    return rows


ENGINES = {
    "local": Rows,
    "spilled": on_disk,
    "mapped": functools.partial(on_disk, arrow=True),
}

N = 120
FEATURES = ["a", "holes", "count", "city", "kind"]


def some_table():
    rng = np.random.default_rng(3)
    holes = rng.lognormal(sigma=3, size=N)
    holes[::11] = np.nan
    cities = np.array(["Bonn", "Pune", "Oslo", None], dtype=object)
    return pa.table(
        {
            "a": np.round(rng.normal(size=N), 1),
            "holes": holes,
            "count": rng.integers(0, 9, size=N),
            "city": pa.array(cities[rng.integers(0, 4, size=N)], pa.string()),
            "kind": pa.array(rng.choice(["x", "y"], size=N)).dictionary_encode(),
            "y": rng.normal(size=N),
        }
    )


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(stored, "BATCH", 16)
    monkeypatch.setattr(spilled, "BATCH", 16)


@pytest.fixture(params=ENGINES.values(), ids=list(ENGINES))
def engine(request):
    return request.param


def test_rows_are_those_of_the_table(engine):
    table, rows = some_table(), engine(some_table())
    assert isinstance(rows, Rows)
    assert not isinstance(table, Rows)
    assert (rows.num_rows, rows.column_names) == (N, table.column_names)
    order = np.random.default_rng(0).permutation(N)
    taken = rows.take(order).take(np.arange(40)[::-1])
    expected = table.take(order[:40][::-1])
    for _ in range(2):  # blocks may be kept in their order, and must not change anything
        assert taken.num_rows == 40
        for name in table.column_names:
            shown = [str(column.to_pylist()) for column in (taken.column(name), expected[name])]
            assert shown[0] == shown[1]  # as text: NaN is not equal to itself
        assert taken.block(["city", "y"], 5, 25).to_pylist() == (
            expected.select(["city", "y"]).slice(5, 20).to_pylist()
        )
        scanned = pa.concat_tables(taken.scan(["city", "y"]))
        assert scanned.to_pylist() == expected.select(["city", "y"]).to_pylist()
    assert rows.column("y").to_pylist() == table["y"].to_pylist()
    assert pa.concat_tables(rows.scan(["y"]))["y"].to_pylist() == table["y"].to_pylist()


def test_what_leaves_has_no_list_of_levels(engine):
    order = np.random.default_rng(0).permutation(N)
    leaving = engine(some_table()).take(order).hand_over(["kind", "a"])
    assert leaving.schema.types == [pa.string(), pa.float64()]
    assert leaving["a"].to_pylist() == some_table().take(order)["a"].to_pylist()


def test_the_order_by_features_is_that_of_the_values_missing_ones_last(engine):
    order = feature_order(engine(some_table()), ["count", "city", "a"], SecureNoise())
    rows = some_table().take(order).select(["count", "city", "a"]).to_pylist()
    keys = [(r["count"], r["city"] is None, r["city"] or "", r["a"]) for r in rows]
    assert keys == sorted(keys)
    assert sorted(order) == list(range(N))


@pytest.mark.parametrize("subset", [False, True])
def test_facts_give_the_recipe_of_the_rows(engine, subset):
    order = np.random.default_rng(0).permutation(N)[: 50 if subset else N]
    found = Encoder.from_summaries(engine(some_table()).take(order).summarise(FEATURES))
    assert found == Encoder.for_table(some_table().take(order), FEATURES)


@pytest.mark.parametrize("strategy", [*STRATEGIES, "kmeans scale=model"])
def test_releases_are_the_same_as_from_the_table(engine, strategy, tmp_path):
    strategy, _, setting = strategy.partition(" ")
    options = {"label": "y", "bag_size": 10, "strategy": strategy, "seed": 4, "not_private": True}
    if setting:
        options["strategy"] = find_strategy(strategy, dict([setting.split("=")]))
    if STRATEGIES[strategy]().keeps_groups:
        options["by"] = "city"
    private = {"epsilon": 2.0, "delta": 1e-4, "bounds": (-3, 3), "label_kind": "mean"}
    traits, written = STRATEGIES[strategy], []
    for name, source in (("table", some_table()), ("engine", engine(some_table()))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BagwiseWarning)
            by_cells = isinstance(source, SpilledRows) and source.rows_at_once < N
            by_cells &= traits.needs_features
            if by_cells and not traits.compact:  # or they would have to be all in memory
                with pytest.raises(StrategyError, match=r"in(to)? memory"):
                    bw.make_release(
                        source, **filed(**options, **private, noise_source=SimulatedNoise(7))
                    )
                return
            made = bw.make_release(
                source, **filed(**options, **private, noise_source=SimulatedNoise(7))
            )
        path = made.save(tmp_path / name, simulated_noise=True)
        written.append({file.name: file.read_bytes() for file in path.iterdir()})
    if by_cells:
        spent = [json.loads(files["certificate.json"]) for files in written]
        for certificate in spent:
            del certificate["smallest_bag"]
        assert spent[0] == spent[1]
    else:
        assert written[0] == written[1]
    bw.Release.load(path).verify()


def merge(parts):
    return functools.reduce(operator.add, parts)


def recipe(parts):
    facts = {
        name: merge([ColumnSummary.of(name, part[name]) for part in parts]) for name in FEATURES
    }
    return canonical(Encoder.from_summaries(facts).to_json())


def test_parts_in_any_order_add_up_to_the_same_bytes():
    cuts = [0, 1, 30, 31, 77, N]
    parts = [some_table().slice(a, b - a) for a, b in itertools.pairwise(cuts)]
    found = {recipe(order) for order in itertools.permutations(parts)}
    assert found == {canonical(Encoder.for_table(some_table(), FEATURES).to_json())}
    # The twin: sums of doubles, part by part, depend on the order.
    sums = [float(np.nansum(part["holes"].to_numpy())) for part in parts]
    assert len({sum(order) for order in itertools.permutations(sums)}) > 1


def test_a_key_is_found_in_parts_and_a_value_that_recurs_in_another_part_is_none():
    parts = [pa.chunked_array([[1, 2]]), pa.chunked_array([[3, 4]]), pa.chunked_array([[1]])]
    facts = [ColumnSummary.of("n", part) for part in parts]
    assert merge(facts[:2]).looks_like_a_key
    assert not merge(facts).looks_like_a_key
    with pytest.raises(ColumnError, match="like an id"):
        Encoder.from_summaries({"n": merge(facts[:2])})


@pytest.mark.parametrize("scale", [1e-310, 1.0, 1e100])
def test_sums_are_exact(scale):
    rng = np.random.default_rng(0)
    values = rng.normal(size=500) * scale * 10.0 ** rng.integers(-12, 0, size=500)
    values = np.concatenate([values, -values[:250], [5e-324, -0.0, scale]])
    assert exact_sum(values) / 2**1126 == math.fsum(values)
    assert exact_sum(values) == exact_sum(values[:100]) + exact_sum(values[100:])
    assert exact_sum(np.append(values, 5e-324)) != exact_sum(values)


class OnlyAShape:
    """Features that nobody may look at."""

    shape = (N, 3)


@pytest.mark.parametrize("name", [n for n in STRATEGIES if not STRATEGIES[n].needs_features])
def test_strategies_that_need_no_features_never_look_at_them(name):
    X, scores = np.random.default_rng(0).normal(size=(N, 3)), np.arange(N) * 1.0
    strategy = STRATEGIES[name]()
    made = [
        assign_bags(strategy, given, scores, bag_size=7, rng=np.random.default_rng(1)).index
        for given in (X, OnlyAShape())
    ]
    assert np.array_equal(*made)


def test_random_bags_of_a_release_are_made_without_encoding_a_row(monkeypatch):
    monkeypatch.setattr(Encoder, "transform", lambda *_: pytest.fail("X was made"))
    bw.make_release(
        some_table(), label="y", bag_size=10, strategy="random", epsilon=1.0, delta=0.0,
        bounds=(-3, 3),
    )  # fmt: skip


def test_features_that_cannot_be_computed_with_are_refused_unread():
    table = pa.table({"x": [1.0, np.inf, 2.0], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(ColumnError, match="infinite or huge"):
        bw.make_release(table, label="y", bag_size=1, strategy="random", not_private=True)


@pytest.mark.parametrize("kept", [0, 2**28])
def test_a_model_is_designed_from_blocks_as_from_the_whole(engine, kept, monkeypatch):
    monkeypatch.setattr("bagwise.rows.whitening.BLOCK", 7)
    monkeypatch.setattr("bagwise.rows.matrix.KEPT", kept)
    encoder = Encoder.for_table(some_table(), FEATURES)
    blocks, whole = EncodedRows(engine(some_table()), encoder), encoder.transform(some_table())
    coef = np.arange(1.0, whole.shape[1] + 1)
    assert blocks.shape == whole.shape
    np.testing.assert_allclose(blocks @ coef, whole @ coef)
    one, other = (design_model(X, encoder.feature_names) for X in (blocks, whole))
    np.testing.assert_allclose(one.privacy_trace, other.privacy_trace)
    assert one.sensitivity_steps == other.sensitivity_steps
