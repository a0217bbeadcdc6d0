"""A labelling budget from beginning to end: choose rows, buy labels, learn, buy more."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from bagwise._types import IntArray
from bagwise.annotate import files
from bagwise.annotate.bought import Bought
from bagwise.annotate.designs import (
    BOOSTED,
    OPTIMAL,
    Selection,
    check_budget,
    check_pick,
    find_design,
)
from bagwise.annotate.expected import OWN_ROW, Outlook, look_ahead
from bagwise.annotate.imports import name_of, read_labels, refusal
from bagwise.annotate.pool import Pool, draw_pool
from bagwise.annotate.project_data import ProjectData
from bagwise.annotate.request import LabelKind
from bagwise.annotate.selection import Chosen, choose_use
from bagwise.annotate.starting import AUTO, compared_designs, describe, those_that_run
from bagwise.annotate.store import AnswerStore, ConflictError, Round, Value
from bagwise.bagging.bags import LEFT_OUT, Bags
from bagwise.data.encode import DEFAULT_MAX_LEVELS
from bagwise.data.sources.dialect import Told
from bagwise.data.table import read_table
from bagwise.errors import ProjectError
from bagwise.files.atomic import check_target, new_directory
from bagwise.files.locks import holding
from bagwise.models.row_model import RowModel, TrainedOn
from bagwise.privacy.certificate import NOT_PRIVATE
from bagwise.show.stages import OnStage, ignore_stage


@dataclass(frozen=True)
class Status:
    """How far a project is.

    Attributes
    ----------
    n_rows : int
        Rows of the table.
    rounds : tuple of (Round, asked, labelled)
    """

    n_rows: int
    rounds: tuple[tuple[Round, int, int], ...]

    @property
    def asked(self) -> int:
        """Labels that were asked for."""
        return sum(asked for _, asked, _ in self.rounds)

    @property
    def labelled(self) -> int:
        """Labels that are there."""
        return sum(labelled for _, _, labelled in self.rounds)

    @property
    def open(self) -> int:
        """Labels that are missing."""
        return self.asked - self.labelled


@dataclass(frozen=True)
class Imported:
    """What an import brought: labels that are new, known already, and lines left open."""

    new: int
    known: int
    open: int


class AnnotationProject(ProjectData):
    """A table without labels, a budget for some, and what was bought so far.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=500)
    >>> with TemporaryDirectory() as place:
    ...     project = AnnotationProject.start(
    ...         pa.table({"x": x}), Path(place) / "flats", label="rent", budget=40,
    ...         design="rows-random",
    ...     )
    ...     asked = project.to_label()
    ...     answers = {"row_id": asked["row_id"], "rent": 3 + 2 * asked["x"].to_numpy()}
    ...     _ = project.import_labels(pa.table(answers))
    ...     model, chosen = project.fit()
    >>> round(model.coefficients()["x"], 6)
    2.0
    """

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self.store.check()
        self.outlook: Outlook | None = None

    @classmethod
    def start(
        cls,
        table: Any,
        directory: str | Path,
        *,
        label: str,
        budget: int,
        design: str = AUTO,
        pick: str = "random",
        show: Sequence[str] | None = None,
        id: str | None = None,
        family: str = AUTO,
        bounds: Sequence[float] | None = None,
        classes: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        nulls: str = "indicator",
        max_levels: int = DEFAULT_MAX_LEVELS,
        prior: Any = None,
        seed: int | None = None,
        force: bool = False,
        on_stage: OnStage = ignore_stage,
    ) -> Self:
        """Choose rows to label, and write a project.

        Parameters
        ----------
        table : path or paths, frame, stream, or Source
            All rows, without labels. A column that is called as the label is dropped unread.
        directory : path
        label : str
            What the label is to be called.
        budget : int
            Labels to buy.
        design : str
            Which rows to label (`designs`); "auto" is what is expected to be regretted least.
        pick : {"random", "medoid"}
            For bags: any of its rows, or the one nearest to its centre.
        show : list of str, optional
            Columns that an annotator sees; by default all features.
        id : str, optional
            A key column; without one, rows get ids from their content.
        family, bounds, classes
            What a label can be; others are refused when they are imported.
        prior : Prior or tuple, optional
            What is believed of the labels (`plan`).
        seed : int, optional
            Drives which rows are chosen.
        """
        target = Path(directory)
        check_target(target, force=force, kind=files.KIND)
        kind = LabelKind.of(label, family=family, bounds=bounds, classes=classes)
        on_stage("reading the table")
        wanted = [name for name in (label, id, *(show or ()), *(features or ())) if name]
        rows = read_table(table, index_names=wanted)
        file, kept = describe(
            rows, kind, show=show, id=id, features=features, exclude=exclude, nulls=nulls,
            max_levels=max_levels, prior=kind.prior(prior), seed=seed,
        )  # fmt: skip
        with new_directory(target, force=force, kind=files.KIND) as draft:
            on_stage("writing the rows")
            files.write_rows(kept, draft)
            files.write_project(file, draft)
            AnswerStore.create(draft / files.LABELS)
            drafted = cls(draft)
            outlook = drafted._buy(budget, design=design, pick=pick, on_stage=on_stage)
        project = cls(target)
        project.outlook = outlook
        return project

    def next_round(
        self,
        *,
        budget: int,
        design: str = BOOSTED,
        pick: str = "random",
        on_stage: OnStage = ignore_stage,
    ) -> Outlook:
        """Choose more rows, with what was learnt so far.

        By default they are drawn from bags of rows with like predictions of the model so far: one
        round of PriorBoost.

        References
        ----------
        Javanmard, Fahrbach and Mirrokni (2024), PriorBoost, ICML.
        """
        self.outlook = self._buy(budget, design=design, pick=pick, on_stage=on_stage)
        return self.outlook

    def import_labels(
        self, source: Any, *, correct: bool = False, told: Told | None = None
    ) -> Imported:
        """Keep the labels of a file or a frame: all of them, or none and an error that says why.

        Parameters
        ----------
        source : path or frame
            With the column of ids and that of the label; others do not matter. Lines without a
            label are left open.
        correct : bool
            Replace labels that rows have already.
        told : Told, optional
            How a CSV file is written, where that cannot be found out.
        """
        checked = read_labels(
            source,
            kind=self.kind,
            id_name=self.id_name,
            known=self.known_ids(),
            told=told or Told(),
        )
        clash = None
        try:
            new = self.store.add_answers(
                checked.labels.items(), source=name_of(source), correct=correct
            )
        except ConflictError as conflict:
            clash = conflict.ids
        if clash is not None:
            lines = sorted(checked.lines[key] for key in clash)
            problems = [
                f"line {line}: the row has another label from before; --correct replaces it"
                for line in lines
            ]
            raise refusal(name_of(source), problems)
        return Imported(new, len(checked.labels) - new, checked.open)

    def answer(self, id: str, value: Value, *, source: str = "python") -> None:
        """Keep one label."""
        if not self.known_ids().get(id, False):
            raise ProjectError("no row that is to be labelled has this id.")
        self.store.add_answers([(id, self._checked(value))], source=source)

    def status(self) -> Status:
        """Return how far the project is; lists that are missing are written again."""
        self.write_lists()
        labelled = {answer.id for answer in self.store.answers()}
        tasks = self.store.tasks()
        rounds = []
        for one in self.store.rounds():
            asked = [task.id for task in tasks if task.round == one.number]
            rounds.append((one, len(asked), len(labelled.intersection(asked))))
        return Status(self.n_rows, tuple(rounds))

    def fit(self, *, uses: Sequence[str] | None = None) -> tuple[RowModel, Chosen]:
        """Compare the uses of the labels by cross-validation, and fit the one to trust.

        Parameters
        ----------
        uses : list of str, optional
            Those to compare (`uses`); one alone is used whatever comes out. Default: all.
        """
        bought = self.bought()
        chosen = choose_use(bought, uses)
        return self._model(bought, chosen), chosen

    def _checked(self, value: Value) -> Value:
        if self.kind.classes is not None or isinstance(value, str):
            return self.kind.read(str(value))
        return self.kind.check(float(value))

    def _pool(self, rng: np.random.Generator) -> tuple[Pool, IntArray]:
        """Return the rows to choose from, and where they are in the table."""
        asked = [self.places[task.id] for task in self.store.tasks()]
        places = np.union1d(draw_pool(self.n_rows, rng), np.array(asked, dtype=np.int64))
        within = np.searchsorted(places, np.array(asked, dtype=np.int64))
        return Pool(self.encoded[places], self.prior, labelled=within), places

    def _buy(self, budget: int, *, design: str, pick: str, on_stage: OnStage) -> Outlook:
        """Choose rows, and keep them as a new round; others who want one wait for it."""
        # Two at once would write the bags of the same round over each other.
        with holding(self.directory / files.PROJECT):
            return self._buy_alone(budget, design=design, pick=pick, on_stage=on_stage)

    def _buy_alone(self, budget: int, *, design: str, pick: str, on_stage: OnStage) -> Outlook:
        how = check_pick(pick)
        rounds = self.store.rounds()
        number = len(rounds) + 1
        rng = np.random.default_rng([self._file.seed, number])
        on_stage("looking at the rows")
        pool, places = self._pool(rng)
        budget = check_budget(budget, pool)
        names = compared_designs(design, first=not rounds)
        if BOOSTED in names:
            on_stage("fitting the labels so far")
            pool = self._informed(pool, places)
        on_stage("comparing designs")
        designs = those_that_run(names, named=design)
        outlook = look_ahead(pool, designs, budget=budget, pick=how, rng=rng)
        chosen = _least_regretted(outlook) if design == AUTO else design
        on_stage("choosing rows")
        selection = find_design(chosen).draw(pool, budget=budget, pick=how, rng=rng)[0]
        self._keep_round(Round(number, chosen, how), selection, places)
        return outlook

    def _keep_round(self, new: Round, selection: Selection, places: IntArray) -> None:
        ids = self.rows.column(self.id_name)
        if selection.bags is not None:
            index = np.full(self.n_rows, LEFT_OUT, dtype=np.int64)
            index[places] = selection.bags.index
            path = files.bags_path(self.directory, new.number)
            files.write_bags(Bags(index), ids, self.id_name, path)
        chosen = [ids[int(place)].as_py() for place in places[selection.rows]]
        share = self.n_rows / places.size
        self.store.add_round(new, list(zip(chosen, selection.weights * share, strict=True)))
        self.write_lists()

    def _informed(self, pool: Pool, places: IntArray) -> Pool:
        """Return the pool with what the labels so far predict."""
        _, chosen = self.fit()
        scores = self.kind.family.mean(chosen.fitted.predictor(self.encoded[places]))
        if scores.ndim == 2:  # rows with the same likely class together, the sure ones last
            scores = scores.argmax(axis=1) + scores.max(axis=1)
        return dataclasses.replace(pool, predictions=scores)

    def _model(self, bought: Bought, chosen: Chosen) -> RowModel:
        fitted = chosen.fitted
        last = self.store.rounds()[-1]
        note = f"{fitted.note} A label is used for {chosen.use.summary}."
        return RowModel(
            family=self.kind.family.name,
            link=self.kind.family.link,
            loss=chosen.use.name,
            label=self.kind.name,
            encoder=self._file.encoder,
            coef=fitted.coef,
            intercept=fitted.intercept,
            classes=self.kind.classes,
            standard_errors=fitted.standard_errors,
            unshrunk=fitted.unshrunk,
            freedom=fitted.freedom,
            note=note,
            trained_on=TrainedOn(
                n_rows=self.n_rows,
                privacy=NOT_PRIVATE,
                n_labelled_rows=bought.n_labels,
                label_kind="pick",
                strategy=last.design,
                dispersion=fitted.dispersion,
                converged=fitted.converged,
            ),
        )


def _least_regretted(outlook: Outlook) -> str:
    """Return the design for those who name none.

    Optimal designs look for the most extreme rows of a table. There a linear model is farthest from
    the truth, farther than any prior says: real tables have extreme rows by mistake.
    """
    own = [entry for entry in outlook.entries if entry.use == OWN_ROW]
    return next(entry.design for entry in own if entry.design not in OPTIMAL)
