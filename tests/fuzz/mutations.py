"""Damaged, edited and forged copies of the files that a verifier reads, drawn at random.

`make_originals` writes one file of each kind, `mutants` yields copies with one thing wrong. Half of
the time hashes are made to agree again, as a forger would, so that deeper checks are reached too.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bagwise as bw
from bagwise.files.json_files import canonical
from bagwise.files.parquet_files import write_plain
from bagwise.models.model import digest_of as _digest
from bagwise.release.manifest import CROISSANT
from tests.forging import rehash

PRIVATE = {"label": "y", "epsilon": 1.0, "delta": 1e-5}

PLAIN = {"store_schema": False, "write_statistics": False}

NUMBERS = (
    *(0, -1, 1, 2, 7, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30, 5 * 10**8),
    *(0.5, -0.0, 1e-300, 5e-324, 1e15, 1e100, 1e200, 1.7e308, -1.7e308),
)
TEXTS = (
    "",
    "y",
    "\x1b[2J\x1b]0;gone\x07",
    "\u202etxet",
    "a\nok",
    "\ud800",
    "x" * 10_000,
    "label",
    "{}",
)
VALUES = (None, True, False, [], {}, [[]], {"a": 1}, [1, "2"], *TEXTS, *NUMBERS)


@dataclass(frozen=True)
class Mutant:
    """A file or directory with something wrong in it, and what."""

    kind: str
    path: Path
    what: str


def make_originals(directory: Path) -> dict[str, Path]:
    """Write a release of each kind, a model of each kind, bounds, and an evaluation."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=120)
    city = np.where(rng.random(120) < 0.6, "Bonn", "Pune")
    y = np.clip(3 + x + (city == "Pune"), 0, 10)
    table = pa.table({"id": np.arange(120), "x": x, "city": city, "y": y})
    kinds = table.set_column(3, "y", pa.array(np.where(y > 3, "yes", np.where(y > 2, "no", "?"))))
    numeric = {**PRIVATE, "bag_size": 6, "bounds": (0, 10), "id": "id"}
    classes = {**PRIVATE, "bag_size": 6, "classes": ["yes", "no", "?"], "exclude": ["id"]}
    releases = {
        "mean": bw.make_release(table, **numeric),
        "pick": bw.make_release(table, **numeric, bagging=bw.Bagging(label_kind="pick")),
        "classes": bw.make_release(kinds, **classes),
        "class picks": bw.make_release(
            kinds, **{**classes, "delta": 0.0}, bagging=bw.Bagging(label_kind="pick")
        ),
        "by model": bw.make_release(
            table, **numeric, strategy="sorted", bagging=bw.Bagging(scores="model")
        ),
        "open": bw.make_release(table, label="y", bag_size=6, not_private=True, id="id"),
    }
    paths = {f"release {name}": made.save(directory / name) for name, made in releases.items()}
    cells = pa.table({"city": ["Bonn", "Pune"], "x": ["1", "0"], "sum": [20.0, 30.0]})
    tables = [bw.LabelTable(cells, ["city"]), bw.LabelTable(cells, ["x", "city"], {"x": [0.5]})]
    models = {
        "fitted": bw.fit_release(releases["open"]),
        "classes": bw.fit_release(releases["classes"]),
        "released": bw.release_model(table, **PRIVATE, bounds=(0, 10), exclude=["id"]),
        "sums": bw.fit(table, tables=tables, label="y"),
    }
    for name, model in models.items():
        paths[f"model {name}"] = model.save(directory / f"model {name}.json", force=True)
    scores = bw.evaluate_rows_privately(models["released"], table, bounds=(0, 10), epsilon=1.0)
    paths["evaluation"] = scores.save(directory / "evaluation.json")
    return paths


def mutants(
    originals: dict[str, Path], directory: Path, rng: np.random.Generator, count: int
) -> Iterator[Mutant]:
    """Yield `count` mutants; each is gone when the next is asked for."""
    for number in range(count):
        name = _choose(rng, sorted(originals))
        copy = directory / f"mutant {number}"
        source = originals[name]
        kind = name.split()[0]
        if kind == "release":
            shutil.copytree(source, copy)
            what = _mutate_release(copy, rng)
        else:
            shutil.copy(source, copy)
            what = _mutate_file(copy, rng)
        yield Mutant(kind, copy, f"{name}: {what}")
        shutil.rmtree(copy) if copy.is_dir() else copy.unlink()


def _mutate_release(directory: Path, rng: np.random.Generator) -> str:
    file = directory / _choose(rng, sorted(path.name for path in directory.iterdir()))
    if file.suffix == ".parquet" and rng.random() < 0.7:
        what = mutate_table(file, rng)
    elif file.suffix == ".json" and rng.random() < 0.8:
        what = mutate_json(file, rng)
    else:
        what = mutate_bytes(file, rng)
    if file.name != "manifest.json" and rng.random() < 0.7:
        rehash(directory, describe_again=file.name != CROISSANT)
        what += ", rehashed"
    return f"{file.name}: {what}"


def _mutate_file(file: Path, rng: np.random.Generator) -> str:
    what = mutate_json(file, rng) if rng.random() < 0.85 else mutate_bytes(file, rng)
    if rng.random() < 0.7:
        try:
            content = json.loads(file.read_bytes())
            if "sha256" in content:
                del content["sha256"]
                file.write_bytes(canonical({**content, "sha256": _digest(content)}))
        except (RecursionError, TypeError, ValueError):
            return what
        what += ", rehashed"
    return what


def mutate_bytes(file: Path, rng: np.random.Generator) -> str:
    """Flip, cut, insert or append bytes."""
    content = bytearray(file.read_bytes())
    place = int(rng.integers(len(content) + 1))
    noise = rng.bytes(int(rng.integers(1, 20)))
    what = _choose(rng, ["flip", "cut", "insert", "append", "repeat", "empty"])
    if what == "flip":
        for spot in rng.integers(len(content), size=int(rng.integers(1, 4))):
            content[spot] ^= 1 << int(rng.integers(8))
    elif what == "cut":
        del content[place:]
    elif what == "insert":
        content[place:place] = noise
    elif what == "append":
        content += noise if rng.random() < 0.5 else b"\n"
    elif what == "repeat":
        content *= 2
    else:
        content.clear()
    file.write_bytes(bytes(content))
    return f"{what} at byte {place}"


def mutate_json(file: Path, rng: np.random.Generator) -> str:
    """Change one value or key of a JSON file, or how the file is spelled."""
    content = json.loads(file.read_bytes())
    if rng.random() < 0.15:
        return _respell(file, content, rng)
    place, holder, key = _somewhere(content, rng)
    change = _choose(rng, sorted(_CHANGES))
    _CHANGES[change](holder, key, rng)
    try:
        file.write_bytes(canonical(content))
    except ValueError:
        file.write_text(json.dumps(content))
    return f"{change} {place}"


def _somewhere(content: Any, rng: np.random.Generator) -> tuple[str, Any, Any]:
    """Return a random place in a tree: its path, the container, and the key or index."""
    places = []

    def walk(node: Any, path: str) -> None:
        pairs = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in pairs:
            places.append((f"{path}/{key}", node, key))
            if isinstance(value, dict | list):
                walk(value, f"{path}/{key}")

    walk(content, "")
    depths = np.array([1.0 / path.count("/") for path, _, _ in places])
    return places[int(rng.choice(len(places), p=depths / depths.sum()))]


def _drop(holder: Any, key: Any, rng: np.random.Generator) -> None:
    del holder[key]


def _rename(holder: Any, key: Any, rng: np.random.Generator) -> None:
    if isinstance(holder, dict):
        holder[_choose(rng, [*TEXTS[:5], f"{key}x"])] = holder.pop(key)
    else:
        holder.reverse()


def _add(holder: Any, key: Any, rng: np.random.Generator) -> None:
    value = _choose(rng, VALUES)
    if isinstance(holder, dict):
        holder[f"more {rng.integers(9)}"] = value
    else:
        holder.append(value)


def _swap(holder: Any, key: Any, rng: np.random.Generator) -> None:
    holder[key] = _choose(rng, VALUES)


def _enlarge(holder: Any, key: Any, rng: np.random.Generator) -> None:
    value = holder[key]
    if isinstance(value, list):
        holder[key] = (value or [0]) * int(_choose(rng, [2, 100, 5000]))
    elif isinstance(value, bool | None):
        holder[key] = [value] * 3
    elif isinstance(value, int | float):
        holder[key] = value * _choose(rng, [-1, 2, 1 + 1e-6, 1e9, 1e300])
    elif isinstance(value, str):
        holder[key] = value * 2 + _choose(rng, TEXTS)
    else:
        holder[key] = {**value, **{str(i): i for i in range(1000)}}


def _extreme(holder: Any, key: Any, rng: np.random.Generator) -> None:
    holder[key] = _choose(rng, NUMBERS)


def _not_a_number(holder: Any, key: Any, rng: np.random.Generator) -> None:
    holder[key] = _choose(rng, [float("nan"), float("inf"), -float("inf")])


def _other_type(holder: Any, key: Any, rng: np.random.Generator) -> None:
    value = holder[key]
    holder[key] = _choose(rng, [[value], {"value": value}, str(value), None, bool(value)])


_CHANGES: dict[str, Callable[[Any, Any, np.random.Generator], None]] = {
    "drop": _drop,
    "rename": _rename,
    "add at": _add,
    "swap": _swap,
    "enlarge": _enlarge,
    "extreme": _extreme,
    "not a number": _not_a_number,
    "another type": _other_type,
}


def _respell(file: Path, content: dict[str, Any], rng: np.random.Generator) -> str:
    """Write the same values, or nearly, in another spelling."""
    text = canonical(content).decode()
    first = next(iter(content))
    deep = int(_choose(rng, [21, 900, 100_000]))
    spelled = {
        "on one line": json.dumps(content),
        "blanks": text + " \n",
        "a key twice": text.replace("{\n", f'{{\n  "{first}": "other",\n', 1),
        "deep lists": text.replace("{\n", '{\n  "deep": ' + "[" * deep + "]" * deep + ",\n", 1),
        "deep objects": '{"a":' * deep + "1" + "}" * deep,
        "never closed": "[" * deep,
        "long integer": text.replace("{\n", '{\n  "long": ' + "9" * 6000 + ",\n", 1),
        "a byte order mark": "\ufeff" + text,
        "unescaped": json.dumps({**content, "é": "ü"}, indent=2, ensure_ascii=False) + "\n",
        "a list": canonical({"a": [content]}).decode()[9:-2],
        "many quotes": '"\\"' * 50_000,
    }
    what = _choose(rng, sorted(spelled))
    file.write_bytes(spelled[what].encode("utf-8", "surrogatepass"))
    return what


def mutate_table(file: Path, rng: np.random.Generator) -> str:
    """Change a table, its types or what its file says beside it."""
    table = pq.read_table(file)
    name = _choose(rng, table.column_names)
    place = table.column_names.index(name)
    column = table.column(name)
    what = _choose(rng, sorted({*_COLUMNS, *_TABLES, *_FILES}))
    try:
        if what in _COLUMNS:
            table = table.set_column(place, name, _COLUMNS[what](column, rng))
        elif what in _TABLES:
            table = _TABLES[what](table, rng)
    except (pa.ArrowException, TypeError):
        table = table.set_column(place, name, pa.nulls(len(table)))
    if what in _FILES:
        _FILES[what](table, file)
    else:
        write_plain(table, file)
    return f"{what} in {name}"


def _with_gap(column: pa.ChunkedArray, rng: np.random.Generator) -> pa.Array:
    values = column.to_pylist()
    values[int(rng.integers(len(values)))] = None
    return pa.array(values, column.type)


def _with_extreme(column: pa.ChunkedArray, rng: np.random.Generator) -> pa.Array:
    values = column.to_pylist()
    spot = int(rng.integers(len(values)))
    if pa.types.is_integer(column.type):
        values[spot] = _choose(rng, [-1, -5, 5 * 10**8, 2**40, 2**63 - 1, -(2**63), 119, 19])
    elif pa.types.is_floating(column.type):
        values[spot] = _choose(rng, [np.nan, np.inf, -np.inf, 1e300, -1.0, 0.0])
    else:
        values[spot] = _choose(rng, [text for text in TEXTS if text != "\ud800"])
    return pa.array(values, column.type)


_COLUMNS: dict[str, Callable[[pa.ChunkedArray, np.random.Generator], Any]] = {
    "gap": _with_gap,
    "extreme value": _with_extreme,
    "all missing": lambda column, rng: pa.nulls(len(column), column.type),
    "no type": lambda column, rng: pa.nulls(len(column)),
    "as float": lambda column, rng: column.cast(pa.float64()),
    "as text": lambda column, rng: column.cast(pa.string()),
    "as bytes": lambda column, rng: column.cast(pa.string()).cast(pa.binary()),
    "as int32": lambda column, rng: column.cast(pa.int32()),
    "as unsigned": lambda column, rng: column.cast(pa.uint64()),
    "as decimal": lambda column, rng: column.cast(pa.decimal128(30, 5)),
    "as moments": lambda column, rng: column.cast(pa.int64()).cast(pa.timestamp("us")),
    "as booleans": lambda column, rng: column.cast(pa.bool_()),
    "as lists": lambda column, rng: pa.array([[value] for value in column.to_pylist()]),
    "as records": lambda column, rng: pa.array([{"a": value} for value in column.to_pylist()]),
    "shuffled": lambda column, rng: column.take(pa.array(rng.permutation(len(column)))),
    "constant": lambda column, rng: pa.array([column[0].as_py()] * len(column), column.type),
    "broken text": lambda column, rng: pa.Array.from_buffers(
        pa.string(),
        len(column),
        [
            None,
            pa.array(np.arange(len(column) + 1, dtype=np.int32)).buffers()[1],
            pa.py_buffer(b"\xff" * len(column)),
        ],
    ),
}

_TABLES: dict[str, Callable[[pa.Table, np.random.Generator], pa.Table]] = {
    "one column more": lambda table, rng: table.append_column(
        _choose(rng, ["y", "z", "\x1b[31m", "", "label"]), pa.array(np.arange(len(table)) * 1.0)
    ),
    "one column less": lambda table, rng: table.drop_columns([table.column_names[-1]]),
    "no columns": lambda table, rng: table.select([]),
    "columns reversed": lambda table, rng: table.select(table.column_names[::-1]),
    "a column twice": lambda table, rng: table.append_column(
        table.column_names[0], table.column(0)
    ),
    "a row less": lambda table, rng: table.slice(1),
    "no rows": lambda table, rng: table.slice(0, 0),
    "rows twice": lambda table, rng: pa.concat_tables([table, table]),
    "rows many times": lambda table, rng: pa.concat_tables([table] * 1000),
    "renamed": lambda table, rng: table.rename_columns(
        [_choose(rng, TEXTS[:5]), *table.column_names[1:]]
    ),
}


def _write_with_notes(table: pa.Table, file: Path) -> None:
    with pq.ParquetWriter(file, table.schema, **PLAIN, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"labels": "1,2,3"})


_FILES: dict[str, Callable[[pa.Table, Path], None]] = {
    "notes": _write_with_notes,
    "a schema of its own": pq.write_table,
    "field ids": lambda table, file: pq.write_table(
        table.cast(
            pa.schema([field.with_metadata({"PARQUET:field_id": "7"}) for field in table.schema])
        ),
        file,
        **PLAIN,
        compression="zstd",
    ),
    "statistics": lambda table, file: pq.write_table(
        table, file, store_schema=False, compression="zstd"
    ),
    "other pages": lambda table, file: pq.write_table(
        table, file, **PLAIN, compression="zstd", data_page_version="2.0"
    ),
    "checksums": lambda table, file: pq.write_table(
        table, file, **PLAIN, compression="zstd", write_page_checksum=True
    ),
    "page index": lambda table, file: pq.write_table(
        table, file, **PLAIN, compression="zstd", write_page_index=True
    ),
    "small groups": lambda table, file: pq.write_table(
        table, file, **PLAIN, compression="zstd", row_group_size=1
    ),
    "no compression": lambda table, file: pq.write_table(table, file, **PLAIN, compression="none"),
    "many rows": lambda table, file: write_plain(
        pa.table({"bag_id": pa.repeat(pa.scalar(0, pa.int64()), 20_000_000)}), file
    ),
    "long text": lambda table, file: write_plain(
        pa.table({"bag_id": _one_text("x" * 500_000, 3000)}), file
    ),
}


def _one_text(text: str, count: int) -> pa.Array:
    """Return a text many times over, which neither memory nor file holds more than once."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [text])


def _choose(rng: np.random.Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]
