"""From a table to a model, in one round and in several."""

import shutil
import threading

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from bagwise import AnnotationProject, RowModel, load_model
from bagwise.annotate import files
from bagwise.errors import BagwiseError, ColumnError, OutputExistsError, ProjectError, StrategyError
from tests.annotate.conftest import answered, rents


def test_the_lists_have_what_an_annotator_needs(started, flats):
    for path in files.list_paths(started.directory, 1)[:2]:
        kind = pa.csv.read_csv if path.suffix == ".csv" else pq.read_table
        listed = kind(path)
        assert listed.column_names == ["row_id", "area", "note", "rent"]
        assert listed.num_rows == 40
        assert listed["rent"].null_count == 40
    assert set(listed["note"].to_pylist()) <= set(flats["note"].to_pylist())


def test_the_whole_way_and_a_second_round(started, flats, tmp_path):
    with pytest.raises(ProjectError, match="too few"):
        started.fit()
    started.import_labels(answered(started))
    model = started.fit()
    assert model.coefficients()["area"] == pytest.approx(10, abs=0.1)
    started.next_round(budget=20)
    assert started.status().open == 20
    again = AnnotationProject(started.directory)
    assert again.to_label().num_rows == again.to_label(2).num_rows == 20
    assert files.list_paths(started.directory, 2)[0].name == "to_label-2.csv"
    again.import_labels(answered(again))
    status = again.status()
    assert (status.asked, status.labelled, status.open) == (60, 60, 0)
    again.fit().save(tmp_path / "model.json")
    loaded = RowModel.load(tmp_path / "model.json")
    assert loaded.predict(flats) == pytest.approx(rents(flats), abs=3)
    assert loaded.trained_on.n_labelled_rows == 60
    assert loaded.summary().interval[0] == pytest.approx([10, 10], abs=0.1)


def test_two_who_want_another_round_at_once_get_one_each(started):
    started.import_labels(answered(started))
    projects = [AnnotationProject(started.directory) for _ in range(2)]
    threads = [
        threading.Thread(target=project.next_round, kwargs={"budget": 9, "design": "random"})
        for project in projects
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.number for one, _, _ in started.status().rounds] == [1, 2, 3]
    tasks = started.store.tasks()
    assert len({task.id for task in tasks}) == 40 + 9 + 9


def test_the_same_seed_chooses_the_same_rows(flats, tmp_path):
    def chosen(name, seed, table=flats):
        project = AnnotationProject.start(
            table, tmp_path / name, label="rent", budget=12, exclude=["note"], seed=seed,
        )  # fmt: skip
        return project.to_label()["row_id"].to_pylist()

    assert chosen("a", 5) == chosen("b", 5) != chosen("c", 6)


def test_a_column_with_labels_is_dropped_unread(flats, tmp_path):
    spoilt = flats.append_column("rent", pa.array(np.arange(400.0) + 918273))
    project = AnnotationProject.start(
        spoilt, tmp_path / "p", label="rent", budget=12, exclude=["note"], seed=1
    )
    assert "rent" not in project.rows.column_names
    assert not any(b"918274" in path.read_bytes() for path in project.directory.iterdir())


def test_classes_and_a_key_of_ones_own(flats, tmp_path):
    keyed = flats.append_column("key", pa.array(np.arange(400) * 7))
    project = AnnotationProject.start(
        keyed, tmp_path / "p", label="kind", budget=60, classes=["small", "large"], id="key",
        exclude=["note"], seed=1,
    )  # fmt: skip
    asked = project.to_label()
    assert asked.column_names == ["key", "area", "city", "kind"]
    large = asked["area"].to_numpy() > 70
    answers = pa.table({"key": asked["key"], "kind": np.where(large, "large", "small")})
    assert project.import_labels(answers).new == 60
    likely = project.fit().predict(flats).argmax(axis=1) == (flats["area"].to_numpy() > 70)
    assert likely.mean() > 0.8
    project.next_round(budget=10)
    project.answer(project.to_label()["key"][0].as_py(), "large")
    with pytest.raises(ProjectError, match="no row"):
        project.answer("nobody", "large")
    assert project.status().labelled == 61


def test_what_is_there_is_not_replaced_unasked(started, flats):
    options = {"label": "rent", "budget": 9, "exclude": ["note"], "design": "random"}
    with pytest.raises(OutputExistsError):
        AnnotationProject.start(flats, started.directory, **options)
    AnnotationProject.start(flats, started.directory, **options, force=True)
    (started.directory / "mine.txt").write_text("keep")
    with pytest.raises(OutputExistsError, match="mine"):
        AnnotationProject.start(flats, started.directory, **options, force=True)


def test_a_start_that_fails_leaves_nothing(flats, tmp_path):
    for wrong in (
        {"budget": 401},
        {"design": "nothing"},
        {"show": ["nothing"]},
        {"show": ["area", "area"]},
        {"id": "city"},
        {"family": "poisson", "bounds": (-1, 1)},
    ):
        options = {"label": "rent", "budget": 9, "exclude": ["note"], **wrong}
        with pytest.raises((StrategyError, ColumnError, ProjectError)):
            AnnotationProject.start(flats, tmp_path / "p", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_project_is_refused(started, tmp_path):
    with pytest.raises(ProjectError, match="no annotation project"):
        AnnotationProject(tmp_path)
    for name, harm in {
        files.PROJECT: lambda path: path.write_text(path.read_text()[:-9]),
        files.ROWS: lambda path: path.write_bytes(b"PAR1"),
        files.LABELS: lambda path: path.unlink(),
    }.items():
        copy = tmp_path / f"copy-{name}"
        shutil.copytree(started.directory, copy)
        harm(copy / name)
        with pytest.raises(ProjectError):
            broken = AnnotationProject(copy)
            broken.import_labels(answered(started))
            broken.fit()


def test_a_list_that_is_gone_is_written_again_and_a_filled_one_is_not(started):
    csv, parquet, _ = files.list_paths(started.directory, 1)
    csv.write_text("filled in\n")
    parquet.unlink()
    started.status()
    assert csv.read_text() == "filled in\n"
    assert parquet.exists()


def test_whatever_happened_to_its_files_a_project_opens_or_is_refused(started, tmp_path):
    started.import_labels(answered(started))
    rng = np.random.default_rng(0)
    names = sorted(path.name for path in started.directory.iterdir())
    for trial in range(40):
        copy = tmp_path / f"copy-{trial}"
        shutil.copytree(started.directory, copy)
        path = copy / names[trial % len(names)]
        content = bytearray(path.read_bytes())
        for place in rng.integers(len(content), size=rng.integers(1, 30)):
            content[place] = rng.integers(256)
        path.write_bytes(content[: rng.integers(len(content)) if trial % 3 == 0 else None])
        try:
            broken = AnnotationProject(copy)
            broken.to_label()
            broken.labelled_rows()
            broken.import_labels(broken.labels())
        except BagwiseError as error:
            assert "\x1b" not in str(error)  # noqa: PT017


@pytest.mark.parametrize("classes", [None, ["small", "large", "none"]])
def test_trees_can_be_had_too(flats, tmp_path, classes):
    project = AnnotationProject.start(
        flats, tmp_path / "p", label="kind", budget=120, classes=classes, exclude=["note"], seed=1
    )
    asked = project.to_label()
    area = asked["area"].to_numpy()
    labels = np.abs(area - 70)
    if classes is not None:
        labels = np.array(classes)[(area // 50).astype(int) % 2]
    project.import_labels(asked.select(["row_id"]).append_column("kind", pa.array(labels)))
    model = project.fit(model="boosted")
    model.save(tmp_path / "model.json")
    found = load_model(tmp_path / "model.json").predict(flats)
    area = flats["area"].to_numpy()
    if classes is None:
        assert np.std(found - np.abs(area - 70)) < 8  # no linear model follows a bend
        assert project.quality(model="boosted").explained > 0.5
    else:
        assert np.mean(found.argmax(axis=1) == area // 50 % 2) > 0.9
