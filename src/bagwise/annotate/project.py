"""An annotation project: choose rows, import labels, fit a model, choose more rows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise._types import FloatArray
from bagwise._version import SOFTWARE
from bagwise.annotate import files
from bagwise.annotate.fit import (
    LabelledRows,
    bounds_of,
    fit_rows,
    fit_trees,
    predict_by_trees,
    predict_linearly,
)
from bagwise.annotate.labels import LabelKind, name_of, read_labels, refusal
from bagwise.annotate.quality import Quality, measure_quality
from bagwise.annotate.rows import ROW_ID, choose_rows, fingerprints, key_ids
from bagwise.annotate.store import AnswerStore, ConflictError, Round, Task, Value
from bagwise.errors import ColumnError, ProjectError, check_name
from bagwise.families import find_family
from bagwise.files.atomic import check_target, new_directory
from bagwise.files.locks import holding
from bagwise.learn.frames import FrameModel
from bagwise.models.model import TrainedOn
from bagwise.models.row_model import RowModel
from bagwise.models.trees import TreeModel
from bagwise.privacy.certificate import NOT_PRIVATE
from bagwise.rng import make_generator
from bagwise.rows.columns import find_column, select_features, without_dictionary
from bagwise.rows.encode import DEFAULT_MAX_LEVELS, Encoder
from bagwise.rows.sources.dialect import Told
from bagwise.rows.table import read_table
from bagwise.show.stages import OnStage, ignore_stage

MODELS = ("glm", "boosted")
_SEEDS = 2**31


@dataclass(frozen=True)
class Status:
    """The progress of a project: rows of the table, and labels requested and given by round."""

    n_rows: int
    rounds: tuple[tuple[Round, int, int], ...]

    @property
    def asked(self) -> int:
        """Number of requested labels."""
        return sum(asked for _, asked, _ in self.rounds)

    @property
    def labelled(self) -> int:
        """Number of labels given."""
        return sum(labelled for _, _, labelled in self.rounds)

    @property
    def open(self) -> int:
        """Number of missing labels."""
        return self.asked - self.labelled


@dataclass(frozen=True)
class Imported:
    """The result of an import: numbers of new labels, known labels, and empty lines."""

    new: int
    known: int
    open: int


class AnnotationProject:
    """A table without labels, rounds of rows to label, and the labels so far.

    Attributes
    ----------
    directory : Path
    kind : LabelKind
        The kind of label.
    id_name, show : str, tuple of str
        The column of ids, and the columns that annotators see.
    store : AnswerStore
        Rounds, rows to label, and answers.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=500)
    >>> with TemporaryDirectory() as place:
    ...     project = AnnotationProject.start(
    ...         pa.table({"x": x}), Path(place) / "flats", label="rent", budget=40,
    ...         design="random",
    ...     )
    ...     asked = project.to_label()
    ...     answers = {"row_id": asked["row_id"], "rent": 3 + 2 * asked["x"].to_numpy()}
    ...     _ = project.import_labels(pa.table(answers))
    ...     model = project.fit()
    >>> round(model.coefficients()["x"], 6)
    2.0
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._file = file = files.read_project(self.directory)
        self.id_name, self.show = file.id, file.show
        self.kind = LabelKind(file.label, find_family(file.family), file.bounds, file.classes)
        self.store = AnswerStore(self.directory / files.LABELS)
        self.store.check()

    @classmethod
    def start(
        cls,
        table: Any,
        directory: str | Path,
        *,
        label: str,
        budget: int,
        design: str = "kmeans",
        show: Sequence[str] | None = None,
        id: str | None = None,
        family: str = "auto",
        bounds: Sequence[float] | None = None,
        classes: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        nulls: str = "indicator",
        max_levels: int = DEFAULT_MAX_LEVELS,
        seed: int | None = None,
        force: bool = False,
        on_stage: OnStage = ignore_stage,
    ) -> Self:
        """Choose rows to label, and create a project.

        Parameters
        ----------
        table : path or paths, frame, stream, or Source
            All rows, without labels. A column with the name of the label is dropped unread.
        directory : path
        label : str
            Name of the label.
        budget : int
            Labels to buy.
        design : {"kmeans", "random"}
            Which rows to label: one from each group of similar rows, or random ones.
        show : list of str, optional
            Columns to show to annotators; by default all features.
        id : str, optional
            A key column; by default, ids are derived from the contents of rows.
        family, bounds, classes
            The possible labels; others are rejected on import.
        seed : int, optional
            Seed for the choice of rows.
        """
        # 1. Check what is asked for.
        if seed is not None and (type(seed) is not int or seed < 0):
            raise ProjectError("seed must be a whole number that is not negative.")
        target = Path(directory)
        check_target(target, force=force, kind=files.KIND)
        kind = LabelKind.of(label, family=family, bounds=bounds, classes=classes)
        on_stage("reading the table")
        wanted = [name for name in (label, id, *(show or ()), *(features or ())) if name]
        rows = read_table(table, index_names=wanted)
        names = select_features(
            rows, reserved=[n for n in (label, id) if n], features=features, exclude=exclude
        )
        encoder = Encoder.for_table(
            rows, names, named=features or (), max_levels=max_levels, nulls=nulls
        )
        shown = names if show is None else list(show)
        for name in shown:
            find_column(rows, name, role="show column")
        if label in shown or len(set(shown)) != len(shown):
            raise ColumnError("show names the label, or a column twice. Name others once.")
        # 2. Keep what learning and annotators need, beside an id.
        kept = rows.select([name for name in rows.column_names if name in {*names, *shown}])
        kept = pa.table([without_dictionary(c) for c in kept.columns], names=kept.column_names)
        ids = key_ids(rows, id) if id is not None else fingerprints(kept)
        id_name = id or ROW_ID
        kept = kept.drop_columns([id_name]) if id_name in kept.column_names else kept
        file = files.ProjectFile(
            schema=files.SCHEMA,
            software=SOFTWARE,
            label=kind.name,
            family=kind.family.name,
            bounds=kind.bounds,
            classes=kind.classes,
            id=id_name,
            show=tuple(shown),
            seed=int(make_generator(None).integers(_SEEDS)) if seed is None else seed,
            encoder=encoder,
        )
        # 3. Write it with its first round, all or nothing.
        with new_directory(target, force=force, kind=files.KIND) as draft:
            on_stage("writing the rows")
            rows = kept.add_column(0, id_name, pa.array(ids, pa.string()))
            pq.write_table(rows, draft / files.ROWS)
            files.write_project(file, draft)
            AnswerStore.create(draft / files.LABELS)
            cls(draft).next_round(budget=budget, design=design, on_stage=on_stage)
        return cls(target)

    def next_round(
        self, *, budget: int, design: str = "kmeans", on_stage: OnStage = ignore_stage
    ) -> None:
        """Choose more rows; parameters as for `start`."""
        # Two at once would choose the same rows: the second one waits.
        with holding(self.directory / files.PROJECT):
            on_stage("choosing rows")
            number = len(self.store.rounds()) + 1
            rng = np.random.default_rng([self._file.seed, number])
            asked = [self.places[task.id] for task in self.store.tasks()]
            free = np.setdiff1d(np.arange(self.n_rows), asked)
            rows = choose_rows(design, self.encoded, free, budget=budget, rng=rng)
            ids = self.rows.column(self.id_name).take(pa.array(rows))
            self.store.add_round(Round(number, design), ids.to_pylist())
            self.write_lists()

    def import_labels(
        self, source: Any, *, correct: bool = False, told: Told | None = None
    ) -> Imported:
        """Import the labels of a file or frame: either all of them, or none and an error.

        Parameters
        ----------
        source : path or frame
            With the columns of ids and labels; other columns are ignored. Lines without a label
            stay open. A JSON file must be an export of Label Studio.
        correct : bool
            Replace existing labels.
        told : Told, optional
            Format of a CSV file, if it cannot be detected.
        """
        checked = read_labels(
            source,
            kind=self.kind,
            id_name=self.id_name,
            known=self.known_ids(),
            told=told or Told(),
        )
        what = name_of(source)
        try:
            new = self.store.add_answers(checked.labels.items(), source=what, correct=correct)
        except ConflictError as conflict:
            lines = [checked.lines[key] for key in conflict.ids]
            problem = "the row has another label from before; --correct replaces it"
            raise refusal(what, {problem: lines}, checked.unit) from None
        return Imported(new, len(checked.labels) - new, checked.open)

    def answer(self, id: str, value: Value, *, source: str = "python") -> None:
        """Store one label."""
        if not self.known_ids().get(id, False):
            raise ProjectError("no row that is to be labelled has this id.")
        is_text = self.kind.classes is not None or isinstance(value, str)
        label = self.kind.read(str(value)) if is_text else self.kind.check(float(value))
        self.store.add_answers([(id, label)], source=source)

    def status(self) -> Status:
        """Return the progress of the project; missing lists are written again."""
        self.write_lists()
        tasks = self.store.tasks()
        asked = Counter(task.round for task in tasks)
        labelled = Counter(task.round for task in tasks if task.value is not None)
        rounds = ((one, asked[one.number], labelled[one.number]) for one in self.store.rounds())
        return Status(self.n_rows, tuple(rounds))

    def fit(self, *, model: str = "glm") -> RowModel | TreeModel:
        """Fit a model to the labelled rows: "glm" (`bagwise.annotate.fit`), or "boosted" trees."""
        check_name("model", model, MODELS)
        rows, kind = self.labelled_rows(), self.kind
        made_of: dict[str, Any] = {
            "privacy": NOT_PRIVATE,
            "n_labelled_rows": len(rows.y),
            "strategy": self.store.rounds()[-1].design,
        }
        if model == "boosted":
            return FrameModel(
                estimator=fit_trees(rows),
                encoder=rows.encoder,
                label=kind.name,
                trained_on=TrainedOn(n_rows=self.n_rows, **made_of),
                classes=kind.classes,
                bounds=kind.bounds,
            ).to_trees()
        fit = fit_rows(rows)
        return RowModel.of(
            fit,
            n_rows=self.n_rows,
            made_of=made_of,
            family=kind.family.name,
            link=kind.family.link,
            loss="instance",
            label=kind.name,
            bounds=bounds_of(rows, fit, kind.bounds),
            encoder=rows.encoder,
            classes=kind.classes,
        )

    def quality(self, *, model: str = "glm") -> Quality | None:
        """Estimate the error of a fit on new rows, and the effect of more labels.

        Uses cross-validation over the labels; None if there are too few of them.
        """
        check_name("model", model, MODELS)
        slow = model == "boosted"
        predictor = predict_by_trees if slow else predict_linearly
        return measure_quality(self.labelled_rows(), predictor, self.kind.bounds, is_slow=slow)

    @property
    def n_rows(self) -> int:
        """Rows of the table."""
        return int(self.rows.num_rows)

    @cached_property
    def rows(self) -> pa.Table:
        """All rows, with their ids."""
        table = files.read_rows(self.directory)
        for name in (self.id_name, *self.show, *self._file.encoder.inputs):
            find_column(table, name, role="project column")
        return table

    @cached_property
    def encoded(self) -> FloatArray:
        """All rows as numbers."""
        return self._file.encoder.transform(self.rows)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where the row of each id is."""
        return {key: place for place, key in enumerate(self.rows.column(self.id_name).to_pylist())}

    def shown(self, task: Task) -> dict[str, Any]:
        """Return what an annotator sees of a row."""
        place = self.places[task.id]
        return {name: self.rows.column(name)[place].as_py() for name in self.show}

    def known_ids(self) -> dict[str, bool]:
        """Return for every id whether its row was ever chosen for labelling."""
        asked = {task.id for task in self.store.tasks()}
        return {key: key in asked for key in self.places}

    def to_label(self, number: int | None = None) -> pa.Table:
        """Return the rows that have no label yet, of one round or of all, with an empty one."""
        tasks = self.store.open_tasks()
        return self.as_list([task for task in tasks if number in (None, task.round)])

    def labels(self) -> pa.Table:
        """Return the labels so far, with their ids."""
        answers = self.store.answers()
        ids = pa.array([answer.id for answer in answers], pa.string())
        values = pa.array([answer.value for answer in answers], self.kind.type)
        return pa.table({self.id_name: ids, self.kind.name: values})

    def labelled_rows(self) -> LabelledRows:
        """Return the labelled rows, encoded, and their labels; classes become indicators."""
        answers = self.store.answers()
        places = np.array([self.places[answer.id] for answer in answers], dtype=np.int64)
        if self.kind.classes is None:
            y = np.array([answer.value for answer in answers], np.float64)
        else:
            codes = [self.kind.classes.index(str(answer.value)) for answer in answers]
            y = np.eye(len(self.kind.classes))[np.array(codes, dtype=np.int64)]
        family, encoder = self.kind.family, self._file.encoder
        deviations = self.encoded.std(axis=0)
        return LabelledRows(self.encoded[places], y, family, encoder, deviations)

    def as_list(self, tasks: Sequence[Task]) -> pa.Table:
        """Return rows as annotators get them, with an empty label."""
        places = pa.array([self.places[task.id] for task in tasks], pa.int64())
        names = [self.id_name, *(name for name in self.show if name != self.id_name)]
        empty = pa.nulls(len(tasks), self.kind.type)
        return self.rows.select(names).take(places).append_column(self.kind.name, empty)

    def write_lists(self) -> None:
        """Write the lists of all rounds that are not there."""
        tasks = self.store.tasks()
        for one in self.store.rounds():
            if not all(path.exists() for path in files.list_paths(self.directory, one.number)):
                here = [task for task in tasks if task.round == one.number]
                files.write_lists(self.as_list(here), self.directory, one.number)
