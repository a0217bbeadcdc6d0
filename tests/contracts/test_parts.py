"""Every backend of `Parts` that needs no Spark; tests/spark has the other."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from bagwise.files.spill import SpillDirectory
from bagwise.rows.parts import Parts
from bagwise.rows.spark.opening import open_files
from tests.contracts.parts import CHECKS, run, some_rows
from tests.contracts.this_machine import ThisMachine


def on_disk(folder):
    pq.write_table(some_rows().slice(0, 300), folder / "a.parquet", row_group_size=110)
    pq.write_table(some_rows().slice(300), folder / "b.parquet", row_group_size=90)
    return open_files(folder, ThisMachine(SpillDirectory(folder / "private")))


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_every_backend_keeps_the_contract(check, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    run(check, on_disk(source), tmp_path)


def test_nothing_is_left_of_an_exchange_and_labels_are_under_a_stream(tmp_path, monkeypatch):
    parts = on_disk(tmp_path)
    assert isinstance(parts, Parts)
    seen = []
    unlink = type(tmp_path).unlink

    def looking(path, *arguments, **named):
        seen.append(path.read_bytes())
        unlink(path, *arguments, **named)

    monkeypatch.setattr(type(tmp_path), "unlink", looking)
    parts.gather(lambda part: (np.zeros(part.table.num_rows, int), part.table), len_of, ["x", "y"])
    monkeypatch.undo()
    (dealt,) = seen
    assert len(dealt) > 500 * 16
    for name in ("x", "y"):
        assert not any(value.tobytes() in dealt for value in some_rows()[name].to_numpy())
    assert not list((tmp_path / "private").rglob("dealt*"))


def len_of(part):
    return part.table.num_rows
