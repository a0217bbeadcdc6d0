"""What every backend of `Parts` promises; whoever has a backend runs all of it on theirs.

Functions that go to parts are defined here, where workers can import them.
"""

import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise.errors import ColumnError, EngineError
from bagwise.rows.parts import Parts, by_key

N, GROUPS = 500, 7


def some_rows():
    rng = np.random.default_rng(4)
    return pa.table(
        {
            "number": np.arange(N),
            "group": [f"g{one}" for one in rng.integers(0, GROUPS, size=N)],
            "x": rng.normal(size=N),
            "y": rng.normal(size=N) + 1000.0,
        }
    )


def sums(part):
    return part.number, part.first, part.table.num_rows, part.table["number"].to_numpy().sum()


def everything(part):
    return part.table


def at_random(part, *, parts):
    return by_key(part.keys("deal"), parts), part.table


def by_group(part):
    names = part.table["group"].to_pylist()
    return np.array([zlib.crc32(name.encode()) % 3 for name in names]), part.table


def counts(part):
    found = part.table["group"].value_counts().to_pylist()
    return {one["values"]: one["counts"] for one in found}


def with_drawn(part):
    drawn = part.generator("drawn").normal(size=part.table.num_rows)
    return part.table.append_column("drawn", pa.array(drawn))


def leaving(part):
    return part.table.select(["number", "x"])


def refuse(part):
    raise ColumnError("column 'x' is odd.")


def quote(part):
    raise ValueError(f"label {part.table['y'][0]}")


def read(parts, columns):
    return pa.concat_tables(parts.map(everything, columns))


def by_number(table):
    return table.take(pa.array(np.argsort(table["number"].to_numpy())))


def check_map(parts):
    """Work sees every row once, in the order of the table, and comes back in that order."""
    assert (parts.num_rows, parts.column_names) == (N, some_rows().column_names)
    found = parts.map(sums, ["number"])
    assert [one[0] for one in found] == list(range(len(parts.sizes)))
    assert [one[2] for one in found] == parts.sizes
    assert [one[1] for one in found] == np.cumsum([0, *parts.sizes[:-1]]).tolist()
    assert sum(one[3] for one in found) == N * (N - 1) // 2
    assert read(parts, ["x", "group"]).equals(some_rows().select(["x", "group"]))


def check_regroup(parts):
    """Rows of a group meet in one part, whole, in an order that tells nothing of the source."""
    gathered = parts.gather(by_group, counts, ["group"]).values()
    expected = counts(type("Part", (), {"table": some_rows()}))
    merged = {}
    for one in gathered:
        assert not merged.keys() & one.keys()
        merged |= one
    assert merged == expected
    regrouped = parts.regroup(by_group, everything, parts.column_names, masked="y")
    assert regrouped.num_rows == N
    found = read(regrouped, parts.column_names)
    assert by_number(found).equals(some_rows())
    numbers = found["number"].to_numpy()
    # Of a fair order: (n - 1) / 2 rises with a variance of (n + 1) / 12, six deviations.
    assert abs(np.sum(np.diff(numbers) > 0) - (N - 1) / 2) < 6 * np.sqrt((N + 1) / 12)
    backwards = regrouped.reordered(np.arange(len(regrouped.sizes))[::-1])
    assert backwards.sizes == regrouped.sizes[::-1]
    assert by_number(read(backwards, ["number", "y"])).equals(some_rows().select(["number", "y"]))


def check_repeats(parts):
    """What is random follows from the secret alone: work that is done again gives the same."""
    deal = partial(at_random, parts=3)
    one, other = (parts.regroup(deal, with_drawn, ["number", "y"], masked="y") for _ in range(2))
    assert read(one, one.column_names).equals(read(other, one.column_names))
    drawn = read(one, ["drawn"])["drawn"].to_numpy()
    assert len(set(drawn.tolist())) == N


def check_write(parts, folder):
    """Files have the same number of rows, in the order of the parts, and nothing else."""
    found = parts.write(leaving, ["number", "x", "y"], folder / "rows", rows_per_file=120)
    assert [one.rows for one in found] == [120, 120, 120, 120, 20]
    assert pa.concat_tables([pq.read_table(one.path) for one in found]).equals(
        some_rows().select(["number", "x"])
    )
    assert all(one.path.stat().st_mode & 0o777 == 0o600 for one in found)


def check_labels_are_masked(parts):
    """No file that is kept shows a label, and a run with another secret reads none."""
    regrouped = parts.regroup(by_group, everything, parts.column_names, masked="y")
    if not isinstance(regrouped, Parts):
        return
    spelled = [value.tobytes() for value in some_rows()["y"].to_numpy()]
    for split in regrouped.splits:
        content = Path(split.path).read_bytes()
        assert not any(one in content for one in spelled)
        assert Path(split.path).stat().st_mode & 0o777 == 0o600
    folder = Path(regrouped.splits[0].path).parent
    assert folder.stat().st_mode & 0o777 == 0o700
    shown = [value.tobytes() for value in some_rows()["x"].to_numpy()]  # the twin
    assert any(one in Path(regrouped.splits[0].path).read_bytes() for one in shown)


def check_errors(parts):
    """Errors of ours come back as they are; those of a library say where, and quote no cell."""
    with pytest.raises(ColumnError, match=r"^column 'x' is odd\.$"):
        parts.map(refuse, ["x"])
    if isinstance(parts, Parts):
        with pytest.raises((RuntimeError, EngineError)) as caught:
            parts.map(quote, ["y"])
        assert "label" not in str(caught.value)
        assert caught.value.__context__ is None


CHECKS = [
    check_map,
    check_regroup,
    check_repeats,
    check_write,
    check_labels_are_masked,
    check_errors,
]


def run(check, parts, folder):
    """Run one of the checks."""
    return check(parts, folder) if check is check_write else check(parts)
