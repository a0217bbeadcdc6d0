"""Nothing depends on labels but what was paid for, whatever is asked and wherever rows come from.

Every kind of request is replayed (`replay`) from a table in memory and from one on disk; every
other source has some requests that take all the ways through it.
"""

import dataclasses
import importlib
import io
import logging
import os
import sqlite3
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import csv, feather

import bagwise as bw
from bagwise.bagging import STRATEGIES, find_strategy
from bagwise.errors import BagwiseWarning, LabelError
from bagwise.release import label_bags
from bagwise.rows.labels import label_vector
from bagwise.rows.row_order import secret_order
from tests.contracts.replay import (
    FEATURES,
    NEIGHBOURS,
    NOTES,
    PAID,
    N,
    Tape,
    in_place_of,
    in_python,
    on_the_command_line,
    played,
    replay,
    rows_together,
    tables_of,
    watch,
)
from tools.settings import filed

SERVER = os.environ.get("BAGWISE_TEST_POSTGRESQL")
REPLAYED = f"replayed_{os.getpid()}"  # of several processes, each has its table
SCRATCH = tempfile.TemporaryDirectory()
MODEL = Path(SCRATCH.name) / "model.json"


@dataclasses.dataclass(frozen=True)
class Request:
    """Something to ask for, on the command line or in Python."""

    verb: str
    kind: str
    options: dict[str, Any]
    code: int | str = 0

    @property
    def outcome(self):
        """How it ends, and whether anything is paid for by then."""
        made = self.verb != "plan" and "dry_run" not in self.options
        return {"code": self.code, "paid": self.code == 0 and made}

    def typed(self, words, **how):
        """Return the act of asking for it with a table that words name."""
        to = {"release": ["-o", "out"], "plan": []}.get(self.verb, ["-o", "out.json"])
        given = [MODEL] if self.verb == "evaluate" else []
        ask = on_the_command_line(self.verb, *given, *words, *spelled(self.options), *to, **how)
        if "ledger" not in self.options:
            return ask
        who = ["--unit", "who"] if "unit" in self.options else ["--row-id", "key"]
        terms = ["--epsilon-total", 12, "--delta-total", 1e-3, *who]
        start = on_the_command_line("ledger", "init", self.options["ledger"], *terms)
        return lambda: (start(), ask())[1]

    def called(self, source, **more):
        """Return the act of asking for it with a source that Python has."""
        asks: dict[str, Any] = {
            "release": bw.make_release,
            "release-model": bw.release_model,
            "evaluate": partial(bw.evaluate_rows_privately, bw.load_model(MODEL)),
        }

        def call():
            ask, options = asks[self.verb], {**self.options, **more}
            if parameters := options.pop("strategy_parameters", None):
                options["strategy"] = find_strategy(options["strategy"], parameters)
            made = ask(source(), **filed(ask, **options))
            made.save("out" if self.verb == "release" else "out.json")
            return repr(made), made._repr_html_()

        return in_python(call)


def spelled(options):
    """Spell options as the command line has them."""
    words = []
    for name, value in options.items():
        if name == "strategy_parameters":
            words += [word for one in value.items() for word in ("--set", "=".join(one))]
            continue
        words.append("--" + name.replace("_", "-"))
        if isinstance(value, tuple):
            words += value
        elif value is not True:
            words.append(",".join(value) if isinstance(value, list) else value)
    return words


PRIVATE = {"label": "y", "epsilon": 2.0, "exclude": ["who", "key", "years"]}
NUMBERS = {**PRIVATE, "bounds": (-9.0, 9.0)}
COUNTS = {**PRIVATE, "bounds": (0.0, 20.0), "family": "poisson"}
CLASSES = {**PRIVATE, "classes": ["no", "so", "yes"]}
TENS = {**NUMBERS, "bag_size": 10}
PLAIN = {**TENS, "strategy": "random", "tighten": "none", "centre": "none"}
SORTED = {**TENS, "strategy": "sorted"}
KMEANS = {**TENS, "strategy": "kmeans"}
WIDE = {"bounds": (-1e6, 1e6), "tighten": "range"}
SCORED = {"label": "y", "epsilon": 0.5, "bounds": (-9.0, 9.0)}
FOUND = {"bounds": "auto", "epsilon": 12.0}


def release(options, kind="number", code=0):
    return Request("release", kind, options, code)


REQUESTS = {
    "planned": release(NUMBERS),
    "planned, with a delta": release({**NUMBERS, "delta": 1e-5}),
    "planned, wide bounds": release({**NUMBERS, **WIDE}),
    "planned, centred": release({**NUMBERS, "centre": "model"}),
    "planned, wide and centred": release({**NUMBERS, **WIDE, "centre": "model", "epsilon": 8.0}),
    "sorted without a size": release({**NUMBERS, "strategy": "sorted"}, code=2),
    "planned, of one size": release(TENS),
    "bags too large": release({**NUMBERS, "bag_size": 500}, code=2),
    "planned bags too large": release({**NUMBERS, "min_bag_size": 200}, code=2),
    "flexible learner": release({**NUMBERS, "learner": "flexible"}),
    "flexible learner, wide": release({**TENS, **WIDE, "learner": "flexible"}),
    **{
        f"strategy {name}": release(
            {**TENS, "strategy": name} | ({"by": "city"} if kind().keeps_groups else {})
        )
        for name, kind in STRATEGIES.items()
    },
    "kmeans as a model sees rows": release({**KMEANS, "strategy_parameters": {"scale": "model"}}),
    "sorted by noisy labels": release({**SORTED, "scores": "noisy-labels", "delta": 1e-5}),
    "sorted by noisy labels, pure": release({**SORTED, "scores": "noisy-labels", **WIDE}),
    "sorted, wide and centred": release({**SORTED, **WIDE, "centre": "model", "delta": 1e-5}),
    "sorted halves": release(
        {**TENS, "strategy": "super", "strategy_parameters": {"order": "sorted", "half": "true"}}
        | {"scores": "model"}
    ),
    "noise laplace": release({**PLAIN, "noise": "laplace"}),
    "noise staircase": release({**PLAIN, "noise": "staircase"}),
    "noise gaussian": release({**PLAIN, "noise": "gaussian", "delta": 1e-5}),
    "noise unbiased": release({**NUMBERS, "noise": "unbiased"}),
    "noise unbiased, wide": release({**NUMBERS, **WIDE, "noise": "unbiased"}),
    "picks": release({**PLAIN, "label_kind": "pick"}),
    "picks, gaussian": release({**PLAIN, "label_kind": "pick", "delta": 1e-5}),
    "picks, sorted, of units": release(
        {**SORTED, "label_kind": "pick", "delta": 1e-5, "unit": "who", "exclude": ["key"]}
    ),
    "units": release({**NUMBERS, "unit": "who", "exclude": ["key", "years"]}),
    "units, sorted": release({**SORTED, **WIDE, "unit": "who", "exclude": ["key", "years"]}),
    "groups": release({**NUMBERS, "by": "city"}),
    "strata": release({**KMEANS, "within": "city"}),
    "bounds": release({**PRIVATE, **FOUND}),
    "bounds, too few labels": release({**PRIVATE, "bounds": "auto"}, code=2),
    "bounds, for tens": release({**PRIVATE, **FOUND, "bag_size": 10, "tighten": "range"}),
    "bounds, sorted, centred": release({**SORTED, **FOUND, "centre": "model"}),
    "bounds of counts": release({**COUNTS, **FOUND}, "count"),
    "bounds of yes or no": release({**PRIVATE, "bounds": "auto"}, "yes"),
    "keeping the order": release({**KMEANS, "keep_order": True, "id": "key", "exclude": ["who"]}),
    "a seed": release({**SORTED, "seed": 4, "centre": "model"}),
    "strong promise": release({**NUMBERS, "epsilon": 0.001}),
    "for machines": release({**NUMBERS, "json": True, "rows_per_file": 100}),
    "quiet": release({**NUMBERS, "quiet": True}),
    "with notes": release({**PLAIN, "notes": NOTES}),
    "a list of columns": release({**NUMBERS, "dry_run": True}, code=0),
    "columns to confirm": release({**NUMBERS, "exclude": ["key", "years"]}, code=2),
    "columns confirmed": release({**PLAIN, "exclude": ["key", "years"], "yes": True}),
    "counts": release(COUNTS, "count"),
    "counts, centred": release({**COUNTS, "bag_size": 10, "centre": "model"}, "count"),
    "counts over years": release(
        {**COUNTS, "exposure": "years", "exclude": ["who", "key"]}, "count"
    ),
    "yes or no": release({**PRIVATE, "bounds": (0.0, 1.0)}, "yes"),
    "yes or no, bounds too wide": release({**PLAIN, "bounds": (0.0, 10.0)}, "yes"),
    "classes": release(CLASSES, "class"),
    "classes, kmeans, with a delta": release(
        {**CLASSES, "strategy": "kmeans", "bag_size": 10, "delta": 1e-5}, "class"
    ),
    "classes, of units": release({**CLASSES, "unit": "who", "exclude": ["key"]}, "class"),
    "classes, picks": release({**CLASSES, "bag_size": 10, "label_kind": "pick"}, "class"),
    "plan": Request("plan", "number", NUMBERS),
    "model": Request("release-model", "number", NUMBERS),
    "model, wide, with a delta": Request(
        "release-model", "number", {**NUMBERS, **WIDE, "delta": 1e-5}
    ),
    "model of units": Request(
        "release-model", "number", {**NUMBERS, "unit": "who", "exclude": ["key", "years"]}
    ),
    "model of counts": Request("release-model", "count", COUNTS),
    "model of yes or no": Request(
        "release-model", "yes", {**PRIVATE, "bounds": (0.0, 1.0), "family": "bernoulli"}
    ),
    "model, bounds": Request("release-model", "number", {**PRIVATE, **FOUND}),
    "model of counts, bounds": Request("release-model", "count", {**COUNTS, **FOUND}),
    "scores, bounds": Request("evaluate", "number", {**SCORED, **FOUND}),
    "scores": Request("evaluate", "number", SCORED),
    "absolute scores": Request("evaluate", "number", {**SCORED, "loss": "absolute", "clip": 2.0}),
    "scores of units": Request("evaluate", "number", {**SCORED, "unit": "who", "json": True}),
    **{
        f"charged: {name}": Request(verb, "number", {**options, "ledger": "rows.ledger"}, *code)
        for name, verb, options, *code in (
            ("release", "release", {**SORTED, **WIDE, "centre": "model"}),
            ("release of units", "release", {**NUMBERS, "unit": "who", "exclude": ["key"]}),
            ("release of some rows", "release", {**NUMBERS, "chosen_by": "public"}),
            ("too much", "release", {**NUMBERS, "epsilon": 13.0}, 2),
            ("model", "release-model", NUMBERS),
            ("bounds", "release", {**PRIVATE, **FOUND}),
            ("scores, bounds", "evaluate", {**SCORED, **FOUND}),
            ("scores", "evaluate", SCORED),
        )
    },
}


def as_parquet(table, place):
    pq.write_table(table, place / "t.parquet", row_group_size=rows_together(table))
    return place / "t.parquet"


def as_csv(table, place):
    csv.write_csv(table, place / "t.csv")
    return place / "t.csv"


def as_arrow(table, place):
    feather.write_feather(table, place / "t.arrow", chunksize=rows_together(table))
    return place / "t.arrow"


def as_sqlite(table, place):
    with sqlite3.connect(place / "t.db") as made:
        made.execute(f"CREATE TABLE t ({', '.join(table.column_names)})")
        cells = ", ".join("?" * table.num_columns)
        made.executemany(f"INSERT INTO t VALUES ({cells})", rows_of(table))  # noqa: S608
    made.close()
    return place / "t.db"


def in_postgresql(table, _place):
    """The table in a database; one column has exact numbers, which come as text."""
    kinds = {"int64": "bigint", "double": "double precision", "string": "text", "bool": "boolean"}
    kinds = {field.name: kinds[str(field.type)] for field in table.schema} | {"years": "numeric"}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    driver = importlib.import_module("adbc_driver_postgresql.dbapi")
    with driver.connect(SERVER) as link, link.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {REPLAYED}")
        cursor.execute(f"CREATE TABLE {REPLAYED} ({columns})")
        cells = ", ".join(f"${i + 1}" for i in range(len(kinds)))
        cursor.executemany(f"INSERT INTO {REPLAYED} VALUES ({cells})", rows_of(table))  # noqa: S608
        link.commit()
    return SERVER


def rows_of(table):
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def piped(write):
    def source(request, table, _place):
        held = io.BytesIO()
        write(table, held)
        return request.typed(["-"], piped=held.getvalue())

    return source


def to_arrow_stream(table, held):
    with pa.ipc.new_stream(held, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_together(table))


def several_files(request, table, place):
    for number in range(3):
        as_parquet(table.slice(80 * number, 80), place).rename(place / f"{number}.parquet")
    return request.typed([place])


def related(table, _place):
    """A relation whose rows DuckDB computes when they are asked for."""
    link = duckdb.connect()
    link.register("t", table)
    return link.sql("SELECT * FROM t ORDER BY key DESC")


LIMIT = ["--memory-limit", "100KB"]
SOURCES = {
    "memory": lambda request, table, place: request.typed([as_parquet(table, place)]),
    "disk": lambda request, table, place: request.typed([as_parquet(table, place), *LIMIT]),
    "files": several_files,
    "CSV": lambda request, table, place: request.typed([as_csv(table, place)]),
    "CSV, limited": lambda request, table, place: request.typed([as_csv(table, place), *LIMIT]),
    "Arrow": lambda request, table, place: request.typed([as_arrow(table, place)]),
    "Arrow, limited": lambda request, table, place: request.typed([as_arrow(table, place), *LIMIT]),
    "piped CSV": piped(csv.write_csv),
    "piped Parquet": piped(pq.write_table),
    "piped Arrow": piped(to_arrow_stream),
    "SQLite": lambda request, table, place: request.typed(
        [as_sqlite(table, place), "--query", "SELECT * FROM t"]
    ),
    "PostgreSQL": lambda request, table, place: request.typed(
        [in_postgresql(table, place), "--query", f"SELECT * FROM {REPLAYED}"]  # noqa: S608
    ),
    "frame": lambda request, table, place: request.called(table.to_pandas),
    "DuckDB": lambda request, table, place: request.called(lambda: related(table, place)),
    "stream, limited": lambda request, table, place: request.called(
        lambda: table.to_reader(max_chunksize=rows_together(table)), memory_limit="100KB", spill="."
    ),
    "dataset, limited": lambda request, table, place: request.called(
        lambda: ds.dataset(as_parquet(table, place)), memory_limit="100KB", spill="."
    ),
}
LIMITED = [name for name in SOURCES if name == "disk" or "limited" in name]
SHORT = [
    "planned", "sorted, wide and centred", "counts over years", "classes", "model", "bounds",
    "scores",
]  # fmt: skip
"""Requests that take all ways through a source."""

ON_DISK = {"random", "sorted", "super", "kmeans", "optimal"}
NOT_ON_DISK = ["groups", "strata", *(f"strategy {name}" for name in set(STRATEGIES) - ON_DISK)]
"""Requests that are refused where rows are on disk, whatever the labels are."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Few rows are many batches and blocks."""
    monkeypatch.setattr("bagwise.files.stored.BATCH", 64)
    monkeypatch.setattr("bagwise.rows.whitening.BLOCK", 50)


@pytest.fixture(scope="module", autouse=True)
def made_before():
    """A model to score, which is public, in a file."""
    options = {"label": "y", "features": ["x", "city"], "bounds": (-9, 9), "epsilon": 8.0}
    bw.release_model(NEIGHBOURS[0], **options).save(MODEL, force=True)
    # A kernel that is compiled only now is told of, and draws the names of its files by chance.
    for name in sorted(ON_DISK):
        bw.make_release(NEIGHBOURS[0], **filed(**TENS, strategy=name))
    bw.make_release(NEIGHBOURS[0], **filed(**NUMBERS))


def cases():
    for source in [name for name in SOURCES if SERVER or name != "PostgreSQL"]:
        for name, request in REQUESTS.items():
            limited = source in LIMITED and request.verb not in ("release", "release-model")
            if not limited and (source in ("memory", "disk") or name in SHORT):
                yield pytest.param(source, name, id=f"{source}: {name}")


@pytest.mark.parametrize(("source", "name"), list(cases()))
def test_what_differs_in_labels_alone_looks_alike(source, name, tmp_path):
    request, ask = REQUESTS[name], SOURCES[source]
    if source == "disk" and name in NOT_ON_DISK:
        request = dataclasses.replace(request, code=2)
    if source == "stream, limited":
        request = dataclasses.replace(request, code="TableError")
    assert (
        replay(tmp_path / "run", partial(ask, request), *tables_of(request.kind), **request.outcome)
        == []
    )


def test_what_was_paid_for_is_found_again_whatever_the_labels_are(tmp_path):
    """The table is known by a fingerprint of all its cells, of which nothing else may depend."""
    request = REQUESTS["charged: release"]

    def twice(table, place):
        ask = SOURCES["memory"](request, table, place)
        again = ["release", place / "t.parquet", *spelled(request.options), "-o", "again"]
        return lambda: (ask(), on_the_command_line(*again)())[1]

    assert replay(tmp_path / "run", twice, *NEIGHBOURS) == []


def test_a_file_whose_blocks_end_where_labels_are_short_or_long(tmp_path):
    """Arrow cuts text by its bytes, and so labels decide where features are cut."""
    n, rng = 60_000, np.random.default_rng(0)
    public = {"x": rng.normal(size=n), "city": rng.choice(["Bonn", "Pune"], size=n)}
    labels = rng.normal(size=n)
    tables = [pa.table({**public, "y": one}) for one in (labels, np.full(n, 2.0))]
    held = [as_csv(table, tmp_path).read_bytes() for table in tables]
    assert len(held[0]) > 2 * 2**20 > len(held[1]) + 2**18  # so many blocks of 2**20
    options = {**TENS, "bag_size": 100, "strategy": "sorted", "keep_order": True}
    del options["exclude"]
    assert replay(tmp_path / "run", partial(SOURCES["CSV"], release(options)), *tables) == []


@pytest.mark.parametrize("notes", [[], ["--notes", NOTES]])
@pytest.mark.parametrize("verb", ["release", "release-model"])
def test_what_compares_columns_with_labels_shows_in_notes_alone(verb, notes, tmp_path):
    """A column that follows the labels, or predicts them, in one table and not in another."""
    options = {key: NUMBERS[key] for key in ("label", "epsilon", "exclude", "bounds")}
    rng, said = np.random.default_rng(2), []
    x = np.asarray(FEATURES["x"])
    tables = [with_label(y) for y in (-x / 1e3, x / 1e3 + rng.normal(size=N) / 9, x * 0 + 1)]

    def ask(table, place):
        to = "out" if verb == "release" else "out.json"
        words = [verb, as_parquet(table, place), *spelled(options), "-o", to, *notes]
        act = on_the_command_line(*words)

        def noted():
            seen = act()
            said.append(Path(NOTES).read_text() if notes else "")
            return seen

        return noted

    assert replay(tmp_path / "run", ask, *tables) == []
    assert ["predicts" in one for one in said] == [bool(notes), bool(notes), False]


@pytest.mark.parametrize("kind", ["number", "class"])
@pytest.mark.parametrize("source", ["memory", "disk", "CSV, limited", "Arrow, limited"])
def test_rows_without_a_label_are_left_out_by_that_alone(source, kind, tmp_path):
    """Tables that miss the same labels look alike, whatever the others are."""
    options = PLAIN if kind == "number" else {**CLASSES, "bag_size": 10, "strategy": "random"}
    request = release({**options, "drop_missing_labels": True}, kind)
    tables = [
        with_label(
            [None if row % 7 == 3 else one for row, one in enumerate(table["y"].to_pylist())]
        )
        for table in tables_of(kind)
    ]
    assert replay(tmp_path / "run", partial(SOURCES[source], request), *tables) == []


def with_label(labels):
    return pa.table({**FEATURES, "y": labels})


def with_cell(kind, cell):
    return with_label([*tables_of(kind)[0]["y"].to_pylist()[:-1], cell])


REFUSALS = {
    "missing": (NUMBERS, with_cell("number", None), "is missing in 1 row"),
    "not a number": (NUMBERS, with_cell("number", float("nan")), "NaN or infinite in 1 row"),
    "infinite": (NUMBERS, with_cell("number", float("inf")), "NaN or infinite in 1 row"),
    "text": (NUMBERS, with_label(["a few"] * N), "is of type string, not a number"),
    "a missing class": (CLASSES, with_cell("class", None), "is missing in 1 row"),
    "outside the classes": (CLASSES, with_cell("class", "perhaps"), "none of the classes in 1 row"),
    "a copy beside missing labels": (
        NUMBERS,
        with_label([*FEATURES["x"].tolist()[:-1], None]),
        "column 'x' equals the label 'y' in every row that has a label",
    ),
    "a copy": (NUMBERS, with_label(FEATURES["x"]), "column 'x' equals the label 'y' in every row"),
}
"""All that may depend on labels, and is said: before anything is drawn, charged or written."""


@pytest.mark.parametrize("source", ["memory", "disk", "piped Parquet"])
@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_that_depend_on_labels(name, source, tmp_path):
    options, table, phrase = REFUSALS[name]
    request, tape = release({**options, "ledger": "rows.ledger"}), Tape()
    with played(tape, again=False):
        seen = watch(tmp_path / "run", lambda place: SOURCES[source](request, table, place))
    assert (seen.code, tape.answers, seen.charged, list(seen.files)) == (
        2,
        [],
        [],
        ["rows.ledger.key"],
    )
    assert phrase in seen.complained


# Twins: each of them lets a label out, and has to be found.


def telling(tell):
    """Return labels as ever, and tell of them."""

    def twin(table, label):
        labels = label_vector(table, label)
        tell(labels)
        return labels

    return twin


def warn(labels):
    warnings.warn(f"the largest label is {labels.max():g}.", BagwiseWarning, stacklevel=2)


def refuse(labels):
    if labels.min() < -1e6:
        raise LabelError("a label is far below the others.")


def note(labels):
    logging.getLogger("bagwise").info("labels begin with %r", labels[:8].tolist())


def keep(labels):
    Path("scratch").write_bytes(labels.tobytes())


def permit(labels):
    """As a file that only some may read if a label is large."""
    Path("scratch").touch()
    Path("scratch").chmod(0o600 if labels.min() < -1e6 else 0o644)


TELLING = {
    "a warning": (warn, "complained"),
    "an exit code": (refuse, "code"),
    "a log": (note, "logged"),
    "a file that stays": (keep, "scratch"),
    "a mode": (permit, "scratch"),
}


@pytest.mark.parametrize("twin", TELLING)
def test_a_twin_that_tells_of_labels_is_found(twin, tmp_path):
    tell, where = TELLING[twin]
    with in_place_of({label_vector: telling(tell)}):
        found = replay(tmp_path / "run", partial(SOURCES["memory"], release(PLAIN)), *NEIGHBOURS)
    assert any(one.startswith(where) for one in found)


def test_a_twin_that_orders_rows_by_labels_is_found(tmp_path):
    """In what leaves, and in sums of doubles, whose last bits depend on the order of the rows."""
    held = []

    def by_label(n_rows, source):
        source.permutation(n_rows)
        return np.argsort(held[-1], kind="stable")

    with in_place_of({label_vector: telling(held.append), secret_order: by_label}):
        for name, where in (
            ("noise laplace", "out/instances.parquet"),
            ("model", "asked: release_statistics"),
        ):
            ask = partial(SOURCES["memory"], REQUESTS[name])
            assert where in replay(tmp_path / "run", ask, *NEIGHBOURS)


def test_a_twin_whose_noise_depends_on_labels_is_found(tmp_path):
    """The bounds of the noise are those of the labels: answers are the same, and questions not."""

    settled = label_bags.settle_labels

    def twin(reach, answers, choice):
        made, budget = settled(reach, answers, choice), choice.budget

        def hide(told, sizes):
            step = float(np.ptp(told)) / 2**20
            event = made.events[-1].on_grid(step)
            return event.hide(told, sizes, low=budget.rule.bounds[0], source=budget.noise_source)

        return dataclasses.replace(made, hide=hide)

    with in_place_of({settled: twin}):
        found = replay(tmp_path / "run", partial(SOURCES["memory"], release(PLAIN)), *NEIGHBOURS)
    assert found == ["asked: Mechanism.hide"] * 2


PAYING = [
    ("noise:noisy_labels", "sorted by noisy labels"),
    ("mechanisms:Mechanism.hide", "noise laplace"),
    ("mechanisms:Mechanism.hide", "classes"),
    ("mechanisms:Mechanism.hide", "picks"),
    ("mechanisms:Mechanism.hide", "classes, picks"),
    ("mechanisms:Mechanism.hide", "noise unbiased"),
    ("private_model:release_statistics", "strategy sorted"),
    ("private_range:cheapest", "bounds"),
    ("private_loss:release_mean_loss", "scores"),
]


def test_every_answer_that_is_paid_for_is_asked_for_below():
    assert {f"bagwise.privacy.{place}" for place, _ in PAYING} == PAID.keys()


@pytest.mark.parametrize(("place", "name"), PAYING)
def test_an_answer_that_is_not_on_the_list_is_found(place, name, tmp_path, monkeypatch):
    """It is drawn from the neighbour's labels: so the list is complete if nothing differs."""
    monkeypatch.delitem(PAID, f"bagwise.privacy.{place}")
    request = REQUESTS[name]
    ask, tables = partial(SOURCES["memory"], request), tables_of(request.kind)
    paid = place.partition(":")[2] in ("noisy_labels", "release_statistics", "cheapest")
    assert replay(tmp_path / "run", ask, *tables, paid=paid) != []
