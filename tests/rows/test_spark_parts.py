"""Parts of the engine for Spark that need no Spark: keys, Java, sessions, and what is refused."""

import os
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import bagwise as bw
from bagwise.errors import (
    BagwiseError,
    ColumnError,
    EngineError,
    LowMemoryError,
    MissingExtraError,
    StrategyError,
)
from bagwise.rows import keys
from bagwise.rows.matrix import _draw
from bagwise.rows.parts import Part, by_key
from bagwise.rows.spark import session
from bagwise.rows.spark.tasks import Refusal, guarded, split_rows
from tests import stats
from tools.settings import filed

SECRET = bytes(range(32))


def test_keys_of_rows_are_aes_blocks_that_do_not_depend_on_who_asks():
    found = keys.row_keys(SECRET, "order", 5, 1000)
    assert len(set(found.tolist())) == 1000
    np.testing.assert_array_equal(found[100:], keys.row_keys(SECRET, "order", 105, 900))
    cipher = Cipher(algorithms.AES(keys.derived(SECRET, "order")), modes.ECB())  # noqa: S305
    block = (107).to_bytes(8, "little") + bytes(8)
    alone = cipher.encryptor().update(block)
    assert found[102] == int.from_bytes(alone[:8], "little")
    for secret, purpose in ((SECRET, "labels"), (bytes(32), "order")):
        other = keys.row_keys(secret, purpose, 5, 1000)
        assert not set(found.tolist()) & set(other.tolist())


def test_keys_are_spread_evenly_over_buckets():
    n, buckets = 200_000, 7
    counts = np.bincount(by_key(keys.row_keys(SECRET, "order", 0, n), buckets), minlength=buckets)
    assert stats.is_uniform(counts)
    counts[0] += n // 100  # one bucket that is larger by less than a tenth is noticed
    assert not stats.is_uniform(counts)


def test_the_least_block_is_that_of_any_row_of_a_bag_and_no_two_are_equal():
    n, size = 40_000, 5
    blocks = keys.row_blocks(SECRET, "pick", 0, n * size).view(np.int64)  # as Spark compares them
    assert len({tuple(block) for block in blocks.tolist()}) == n * size
    high, low = np.moveaxis(blocks.reshape(n, size, 2), 2, 0)
    first = np.lexsort((low, high), axis=1)[:, 0]
    counts = np.bincount(first, minlength=size)
    assert stats.is_uniform(counts)
    counts[0] += n // 50  # a row that is favoured by a tenth is noticed
    assert not stats.is_uniform(counts)
    assert not np.array_equal(
        blocks[:, 0].view(np.uint64), keys.row_keys(SECRET, "order", 0, n * size)
    )


def test_masked_labels_come_back_and_show_nothing():
    labels = np.zeros(64)
    hidden = keys.masked(SECRET, b"n" * 16, labels.tobytes())
    assert keys.masked(SECRET, b"n" * 16, hidden) == labels.tobytes()
    words = np.frombuffer(hidden, dtype=np.uint64)
    assert len(set(words.tolist())) == 64  # equal labels do not look alike
    assert keys.masked(SECRET, b"m" * 16, labels.tobytes()) != hidden


def test_a_box_opens_what_was_sealed_for_it_and_nothing_else():
    box, other = keys.SealedBox(), keys.SealedBox()
    message = keys.seal(box.public, b"sums")
    assert box.open(message) == b"sums"
    assert keys.seal(box.public, b"sums") != message
    flipped = message[:-1] + bytes([message[-1] ^ 1])
    for changed in (flipped, message[:20], b"", keys.seal(other.public, b"x")):
        with pytest.raises(EngineError, match="another run"):
            box.open(changed)


def test_rows_go_to_their_targets_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr("bagwise.rows.spark.tasks.ROWS_AT_ONCE", 3)
    targets = np.array([2, 0, 2, 2, 2, 0, 2])
    parts = list(split_rows(targets, pa.table({"x": range(7)})))
    assert [(t, p["x"].to_pylist()) for t, p in parts] == [
        (0, [1, 5]), (2, [0, 2, 3]), (2, [4, 6]),
    ]  # fmt: skip


def test_tasks_say_what_is_for_the_caller_and_withhold_what_is_not():
    def refuse():
        raise ColumnError("column 'x' is odd.")

    def quote():
        raise ValueError("label 4.25")

    found = guarded(refuse)
    assert isinstance(found, Refusal)
    assert isinstance(found.to_error(), ColumnError)
    assert str(found.to_error()) == "column 'x' is odd."
    assert type(Refusal("LowMemoryError", "words").to_error()) is BagwiseError
    with pytest.raises(RuntimeError, match=r"ValueError at test_spark_parts\.py") as caught:
        guarded(quote)
    assert "4.25" not in str(caught.value)
    assert caught.value.__context__ is None
    assert isinstance(guarded(lambda: 3), int)
    assert issubclass(LowMemoryError, BagwiseError)


@pytest.fixture
def fake_java(tmp_path):
    def make(name, version):
        path = tmp_path / name / "bin" / "java"
        path.parent.mkdir(parents=True)
        path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025' >&2\n")
        path.chmod(0o755)
        return path.parents[1]

    return make


def test_java_is_that_of_java_home_or_of_the_path_or_of_a_package(fake_java, tmp_path, monkeypatch):
    new, old = fake_java("new", "21.0.3"), fake_java("old", "1.8.0_402")
    empty = str(tmp_path / "empty")
    assert session.find_java({"JAVA_HOME": str(new), "PATH": empty}) == new
    on_path = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert session.find_java(on_path) is None
    session.prepare_java(on_path)
    assert "JAVA_HOME" not in on_path
    assert on_path["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"JAVA_HOME.*has Java 1; the PATH has none that runs"):
        session.find_java({"JAVA_HOME": str(old), "PATH": empty})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(session, "import_module", lambda name: SimpleNamespace(JAVA_HOME=new))
    home = session.find_java({"PATH": empty})
    launcher = home / "bin" / "java"
    assert os.access(launcher, os.X_OK)
    assert f'exec "{new / "bin" / "java"}"' in launcher.read_text()


def test_a_session_that_writes_in_clear_is_refused():
    def told(value, later="true"):
        conf, kept = (SimpleNamespace(get=lambda name, other=None, v=v: v) for v in (value, later))
        return SimpleNamespace(conf=kept, sparkContext=SimpleNamespace(getConf=lambda: conf))

    session.check(told("true"))
    # What was said to a session that was there already does not count.
    for found in (told("false"), told("unknown"), SimpleNamespace(conf=told("true").conf)):
        with pytest.raises(EngineError, match=r"spark\.io\.encryption\.enabled"):
            session.check(found)
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    connected.conf = SimpleNamespace(get=lambda name, other=None: "false")
    with pytest.raises(EngineError, match=r"spark\.io\.encryption\.enabled"):
        session.check(connected)
    with pytest.raises(EngineError, match="settings of Spark are called"):
        monkey = pytest.MonkeyPatch()
        with monkey.context() as patch:
            patch.setattr("importlib.util.find_spec", lambda name: name)
            session.open_session({"master": "local"})


def test_without_pyspark_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"bagwise\[spark\]"):
        bw.make_release(
            "t.parquet",
            label="y",
            bounds=(0, 1),
            epsilon=1.0,
            strategy="random",
            bag_size=9,
            engine=bw.Engine(name="spark"),
        )


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"seed": 3}, "a seed"),
        ({"keep_order": True}, "the order of the table"),
        ({"strategy": "sorted", "scores": "noisy-labels"}, "scores='noisy-labels'"),
    ],
)
def test_what_is_not_done_on_spark_is_refused_before_it_starts(asked, why):
    usual = {"label": "y", "bounds": (0, 1), "epsilon": 1.0, "strategy": "random", "bag_size": 9}
    with pytest.raises(StrategyError, match="not on Spark") as caught:
        bw.make_release("t.parquet", **filed(engine="spark", **{**usual, **asked}))
    assert why in str(caught.value)


def test_an_engine_is_one_that_there_is():
    with pytest.raises(StrategyError, match="unknown engine 'dask'"):
        bw.make_release("t", label="y", bag_size=2, not_private=True, engine=bw.Engine(name="dask"))


def test_which_rows_are_sampled_is_a_secret_and_does_not_depend_on_parts():
    table = pa.table({"x": np.arange(6000.0)})
    encoder = bw.Encoder.for_table(table, ["x"])

    def drawn(secret, *cuts):
        parts = [
            _draw(Part(i, a, table.slice(a, b - a), secret), encoder=encoder, share=0.1)
            for i, (a, b) in enumerate(pairwise([0, *cuts, 6000]))
        ]
        return set(np.concatenate(parts)[:, 0].tolist())

    one, other = drawn(SECRET), drawn(bytes(32))
    assert one == drawn(SECRET, 2500) == drawn(SECRET, 1, 2, 4000)
    assert 450 < len(one) < 750  # 600 expected, with a standard deviation of 23
    assert len(one & other) < 120  # 60 expected; drawn by their places alone, all of them
