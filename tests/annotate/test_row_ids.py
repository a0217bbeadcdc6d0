import numpy as np
import pyarrow as pa
import pytest

from bagwise.annotate.rows import fingerprints, key_ids
from bagwise.errors import ColumnError


def test_ids_follow_the_content_and_not_the_place(flats):
    order = np.random.default_rng(0).permutation(flats.num_rows)
    ids = fingerprints(flats)
    assert len(set(ids)) == flats.num_rows
    assert fingerprints(flats.take(pa.array(order))) == [ids[i] for i in order]
    assert fingerprints(flats.select(["note", "area", "city"])) == ids


def test_a_missing_cell_an_empty_one_and_a_shifted_one_differ():
    table = pa.table({"a": ["x", "", None, "xy"], "b": ["yz", "", "", "z"]})
    assert len(set(fingerprints(table))) == 4


def test_no_id_reads_as_a_number():
    ids = fingerprints(pa.table({"a": np.arange(5000)}))
    for one in ids:
        with pytest.raises(ValueError, match="could not convert"):
            float(one)


def test_a_column_of_that_name_and_bad_keys_are_refused():
    with pytest.raises(ColumnError, match="row_id"):
        fingerprints(pa.table({"row_id": [1]}))
    assert key_ids(pa.table({"key": [3, 4]}), "key") == ["3", "4"]
    for bad in ([1, 1], [1, None], [" a", "b"], ["", "b"]):
        with pytest.raises(ColumnError):
            key_ids(pa.table({"key": bad}), "key")
