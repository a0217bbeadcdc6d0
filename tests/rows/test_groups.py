"""Groups by public columns, however the table is cut into chunks."""

import numpy as np
import pyarrow as pa
import pytest

from bagwise.rows.columns import number_groups

COLUMNS = {
    "text": pa.array(["b", None, "a", "b", None, "c", "a"]),
    "number": pa.array([3, 1, None, 3, None, 2, 1]),
    "category": pa.array(["b", None, "a", "b", None, "c", "a"]).dictionary_encode(),
    "nothing": pa.array([None] * 7, pa.string()),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_chunks_and_missing_values_do_not_change_groups(name, size):
    whole = pa.table({name: COLUMNS[name]})
    parts = pa.concat_tables([whole.slice(first, size) for first in range(0, 7, size)])
    values = whole[name].to_pylist()
    levels = [*sorted({v for v in values if v is not None}), None]
    expected = np.unique([levels.index(v) for v in values], return_inverse=True)[1]
    for table in (whole, parts):
        assert number_groups(table, [name], role="by").tolist() == expected.tolist()


def test_a_table_without_rows_has_no_groups():
    table = pa.table({"a": pa.chunked_array([], pa.string())})
    assert number_groups(table, ["a"], role="by").size == 0
