"""The rows of a request on Spark: the same steps as in memory, part by part.

- Nothing with one entry for each row is ever in one place: labels, bags and orders are in the files
  of the parts, and what comes back from them adds up (d x d matrices, counts, sums).
- Labels are drawn once. What is told of each bag, exactly, is written first, sealed for this
  process. Noise is drawn here, from those files, and written to the table of bags. Everything that
  may be done again, because a task failed or was slow, happens before or after that.
"""

import dataclasses
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging import STRATEGIES, check_bag_size, find_strategy
from bagwise.bagging.assigning import check_strata
from bagwise.bagging.bags import Bags
from bagwise.errors import ColumnError, ReleaseError, Shield, StrategyError
from bagwise.files.atomic import create_private
from bagwise.files.parquet_files import WrittenTable, write_plain
from bagwise.files.regular_files import sha256_of
from bagwise.files.spill import SpillDirectory
from bagwise.planner.sample import MOST_ROWS, Population
from bagwise.privacy import Certificate
from bagwise.privacy.noise import tell
from bagwise.privacy.private_range import Distance, count_beyond
from bagwise.release.bags_in_parts import (
    Moved,
    PartBags,
    by_block,
    check_formable,
    check_strata_of,
    form_bags,
    in_secret_order,
    leaving_rows,
)
from bagwise.release.label_bags import Labelling
from bagwise.release.manifest import BAG_ID
from bagwise.release.preview import Preview, preview_columns
from bagwise.release.release import Published, bag_schema
from bagwise.release.tables import UNWRITABLE, name_columns, remark_on_wide_bounds
from bagwise.release.verify import noise_per_bag
from bagwise.requests.answers import Answers, expected_labels
from bagwise.requests.bag_labels import Reach
from bagwise.requests.columns import Columns
from bagwise.requests.provenance import Provenance
from bagwise.requests.queries import resolve_scores
from bagwise.requests.verbs import Choice, ReleaseRequest
from bagwise.rows.columns import as_float
from bagwise.rows.encode import Encoder
from bagwise.rows.facts import (
    Strata,
    count_strata,
    gather_facts,
    largest_unit,
    reach_of_units,
    sample_rows,
    sample_units,
)
from bagwise.rows.keys import SealedBox, row_blocks, seal
from bagwise.rows.labels import check_label, equals_label, label_vector, note_likely_copies
from bagwise.rows.matrix import PartsMatrix
from bagwise.rows.parts import Part, Parts
from bagwise.rows.table import Rows, published_schema

ROWS_PER_FILE = 2**20
"""Rows of a file where nobody says how many."""


@dataclass(frozen=True)
class CountedLabels:
    """Labels in parts, which can be counted."""

    parts: Parts
    label: str

    @property
    def size(self) -> int:
        """Number of labels."""
        return self.parts.num_rows

    def count_beyond(self, distance: Distance, limits: FloatArray) -> IntArray:
        """Return how many labels are farther than each limit; limits fall."""

        def count(part: Part) -> IntArray:
            labels = as_float(part.table.column(0))  # which were found to be numbers
            return count_beyond(labels, distance=distance, limits=limits)

        return np.asarray(np.sum(self.parts.map(count, [self.label]), axis=0))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PartsRelease(Published):
    """A release made in parts: its noise is drawn, but its files are not written yet.

    Bags have their labels, once and for all: to save it twice writes the same labels twice. Rows
    are in their parts until `save` writes them. The private directory of the run, and the session
    of Spark, if there is one, must be there until then; the directory goes with this object.
    """

    bags: PartBags
    scratch: SpillDirectory
    columns: pa.Schema
    bag_table: WrittenTable

    @property
    def _row_schema(self) -> pa.Schema:
        return self.columns

    def _tables(self, rows_per_file: int | None) -> tuple[list[WrittenTable], WrittenTable]:
        parts = self.bags.parts.write(
            partial(leaving_rows, schema=self.columns, firsts=self.bags.firsts.tolist()),
            [*self.columns.names, BAG_ID],
            self.scratch.new_file("rows"),
            rows_per_file=ROWS_PER_FILE if rows_per_file is None else rows_per_file,
        )
        if sum(part.rows for part in parts) != self.n_rows:
            raise AssertionError("every row leaves once")
        return parts, self.bag_table


@dataclass(frozen=True)
class PartsTable:
    """Checked rows in parts.

    Attributes
    ----------
    parts : Parts
        In a secret order as soon as anything is computed from features.
    schema : pyarrow.Schema
        The columns that leave, as their files will have them.
    everyone : Population
        What is known of all rows.
    moved : Moved
        What goes along with a row.
    strata, groups : Strata or None
        Rows that must not share a bag, and rows that must.
    """

    source: Parts
    parts: Parts
    schema: pa.Schema
    everyone: Population
    preview: Preview
    moved: Moved
    strata: Strata | None
    groups: Strata | None

    labels = None  # they are with their rows

    @classmethod
    def checked(cls, table: Parts, request: ReleaseRequest) -> Self:
        """Gather facts about all columns; refuse a table if anything is wrong with it.

        Facts are exact sums and counts, so that no order of rows shows in them.
        """
        refuse_in_parts(request)
        columns, budget, kinds = request.columns, request.budget, table.schema
        label = columns.label
        if request.bag_size is not None:
            check_bag_size(request.bag_size, n_rows=table.num_rows)
        # 1. Columns by their names and types.
        check_label(kinds, label, columns.classes)
        names, leaving = name_columns(kinds.empty_table(), columns)
        with Shield(ColumnError(UNWRITABLE)):
            schema = published_schema(kinds, leaving)
        # 2. What is in them. Copies of the label are refused; the operator alone may know the rest.
        facts = gather_facts(
            table,
            names,
            leaving,
            label=label,
            key=columns.id,
            named=columns.features or (),
            classes=columns.classes,
            exposure=columns.exposure,
        )
        if copies := [name for name in leaving if name in facts.copies]:
            raise equals_label(copies[0], label)
        seen, classes = label_vector(facts.sample, label), columns.classes is not None
        note_likely_copies(facts.sample, leaving, seen, label=label, classes=classes)
        if budget.calibration is not None and budget.find_within is None and not classes:
            ends = np.array(facts.label_range)
            remark_on_wide_bounds(kinds.field(label).type, ends, bounds=budget.calibration.bounds)
        encoder = columns.encoder_from(facts.columns)
        # 3. Units, strata and groups, by what they are called.
        largest = 1 if budget.unit is None else largest_unit(table, budget.unit)
        groups = count_strata(table, columns.by, role="by") if columns.by else None
        strata, smallest = None, None
        if columns.within:
            strata = count_strata(table, columns.within, role="within")
            smallest = int(strata.rows.min())
            check_strata(smallest, request.bag_size or 1)
            tried = [find_strategy(name) for name, kind in STRATEGIES.items() if kind.planned]
            for strategy in request.named or tried:
                check_strata_of(strategy, strata)
        everyone = Population(encoder, table.num_rows, budget.unit, largest, smallest)
        preview, moved = (
            preview_columns(facts.columns, encoder, columns),
            Moved.of(leaving, columns),
        )
        return cls(table, table, schema, everyone, preview, moved, strata, groups)

    @property
    def counted(self) -> CountedLabels:
        """The labels, to be counted where they are."""
        return CountedLabels(self.parts, self.moved.label)

    def for_a_plan(self) -> Rows:
        """Return a sample of the rows, by features or units."""
        names, unit = self.everyone.encoder.inputs, self.everyone.unit
        if unit is None:
            return Rows(sample_rows(self.source, names, MOST_ROWS))
        largest = self.everyone.largest_unit
        return Rows(sample_units(self.source, names, unit, MOST_ROWS, largest=largest))

    def check_choice(self, choice: Choice) -> None:
        """Refuse a strategy that cannot work in parts."""
        check_formable(choice.strategy)

    def in_secret_order(self, request: ReleaseRequest) -> Self:
        """Put rows into a secret order if there is a model or a metric.

        These are doubles, whose last bits show an order of rows. Other bags follow from secret keys
        of rows, and from what is counted.
        """
        plain = isinstance(request, Choice) and not request.strategy.needs_features
        if plain and request.centre != "model" and request.scores == "none":
            return self
        return dataclasses.replace(self, parts=in_secret_order(self.source, self.moved))

    def matrix(self, _request: ReleaseRequest) -> PartsMatrix:
        """Return X, which stays where the rows are."""
        return PartsMatrix(self.parts, self.everyone.encoder, self.moved.label)

    def form_bags(self, X: PartsMatrix, answers: Answers, choice: Choice) -> "PartsInBags":
        """Put rows into bags, each of which lives in one part."""
        bags = form_bags(
            choice.strategy,
            X,
            answers.model,
            self.moved,
            bag_size=choice.bag_size,
            source=choice.budget.noise_source,
            strata=self.strata,
            groups=self.groups,
        )
        return PartsInBags(self, bags)


@dataclass(frozen=True)
class PartsInBags:
    """Rows in parts with their bags, in the secret order in which they will be published."""

    table: PartsTable
    bags: PartBags

    @property
    def reach(self) -> Reach:
        """The quantities of the bags that noise depends on.

        Rows that are left out count as if they were in bags of their own, as in memory.
        """
        unit, largest = self.table.everyone.unit, self.table.everyone.largest_unit
        if unit is None:
            return Reach(self.bags.sizes, 1, 1, 1)
        square, touched = reach_of_units(self.bags.parts, unit, BAG_ID)
        return Reach(self.bags.sizes, largest, max(square, largest), touched)

    def leaving(self, _answers: Answers, _choice: Choice) -> Self:
        """Return the rows unchanged, ready to be labelled."""
        return self

    def release(
        self,
        labelling: Labelling,
        choice: Choice,
        answers: Answers,
        certificate: Certificate,
        provenance: Provenance,
    ) -> PartsRelease:
        """Give every bag its label: seal its exact answer first, then draw the noise, once."""
        bags, encoder, columns = self.bags, self.table.everyone.encoder, choice.columns
        scratch = self.table.source.workers.scratch
        sums = tell_all(bags, labelling, encoder, answers, columns, scratch)
        drawn = _draw(sums, labelling, bags, bag_schema(columns.classes), scratch)
        if labelling.report is not None:
            # What bags without noise expose is judged by those of the first part.
            (rows,) = bags.parts.head().map(lambda part: part.table, [columns.label, BAG_ID])
            labels, some = rows[columns.label].to_numpy(), Bags(rows[BAG_ID].to_numpy())
            told = pq.read_table(drawn.path).slice(0, some.n_bags)
            shown = np.column_stack([told[name].to_numpy() for name in told.column_names[2:-1]])
            coded = columns.classes is not None
            labels, shown = (labels.astype(np.int64), shown) if coded else (labels, shown[:, 0])
            labelling.report(labels, some, shown)
        return PartsRelease(
            certificate=certificate,
            provenance=provenance,
            encoder=encoder,
            label_kind=choice.label_kind,
            model=answers.model,
            bags=bags,
            scratch=scratch,
            columns=self.table.schema,
            bag_table=drawn,
        )


def refuse_in_parts(request: ReleaseRequest) -> None:
    """Refuse what cannot be done on Spark, and suggest what to do instead."""
    rule = request.budget.calibration
    missing = {
        "a seed (bags come from a secret key)": request.seed is not None,
        "the order of the table (rows of a DataFrame have none)": request.keep_order,
    }
    if refused := [what for what, asked in missing.items() if asked]:
        raise StrategyError(f"not on Spark: {refused[0]}. Or leave out the engine.")
    for strategy in request.named or ():
        check_formable(strategy)
        kind = resolve_scores(request.scores, strategy=strategy, private=rule is not None)
        if kind == "noisy-labels":
            raise StrategyError(f"not on Spark yet: scores={kind!r}. Use scores='model'.")


# -- labels ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SealedSums:
    """The exact answers of bags, in their order, in files that only this process can read."""

    paths: tuple[str, ...]
    box: SealedBox

    def chunks(self) -> Iterator[tuple[AnyArray, IntArray]]:
        """Yield the exact answers, (amounts, bags), and the sizes of the bags of each part."""
        for path in self.paths:
            with np.load(io.BytesIO(self.box.open(Path(path).read_bytes()))) as content:
                yield content["told"], content["sizes"]


def tell_all(
    bags: PartBags,
    labelling: Labelling,
    encoder: Encoder,
    answers: Answers,
    columns: Columns,
    scratch: SpillDirectory,
) -> SealedSums:
    """Have the exact answers of all bags written to files, sealed for this process."""
    box, where = SealedBox(), str(scratch.new_file("sums"))
    public, measure, combine = box.public, labelling.measure, labelling.combine
    label, coded = columns.label, columns.classes is not None
    model, bounds = answers.model if labelling.predicts else None, answers.budget.bounds

    def sealed(part: Part) -> str:
        labels = as_float(part.table.column(label))
        if not np.isfinite(labels).all():
            raise AssertionError("labels were looked at before")
        bags, expected = Bags.owning(part.table.column(BAG_ID).to_numpy().copy()), None
        if model is not None and bounds is not None:
            expect = partial(expected_labels, model, bounds=bounds)
            expected = by_block(part.table, encoder, expect)
        measured = measure(labels.astype(np.int64) if coded else labels, expected)
        content = io.BytesIO()
        told = tell(measured, combine, bags, partial(_pick_in_part, part=part))
        np.savez(content, told=told, sizes=bags.sizes)
        path = create_private(Path(f"{where}.{part.number}.{token_hex(8)}"))
        path.write_bytes(seal(public, content.getvalue()))
        return str(path)

    read = [*(encoder.inputs if labelling.predicts else ()), label, BAG_ID]
    return SealedSums(tuple(bags.parts.map(sealed, read)), box)


def _pick_in_part(bags: Bags, *, part: Part) -> IntArray:
    """Return one row of each bag, the one whose block of the secret is least.

    The block is a function of the secret and the number of the row: whoever asks again, because a
    task failed or was slow, gets the same row. Which one it is goes into no file.
    """
    rows = np.flatnonzero(bags.in_bag)
    blocks = row_blocks(part.secret, "pick", part.first, part.table.num_rows)[rows]
    index = bags.index[rows]
    order = np.lexsort((blocks[:, 1], blocks[:, 0], index))
    return np.asarray(rows[order[np.searchsorted(index[order], np.arange(bags.n_bags))]])


def _draw(
    sums: SealedSums,
    labelling: Labelling,
    bags: PartBags,
    schema: pa.Schema,
    scratch: SpillDirectory,
) -> WrittenTable:
    """Draw the noise of all bags, those of one part at a time, and write their table.

    What it holds cannot be drawn a second time.
    """
    path, counted = create_private(scratch.new_file("bags")), Counter[int]()

    def batches() -> Iterator[pa.RecordBatch]:
        first = 0
        for told, sizes in sums.chunks():
            counted.update(sizes.tolist())
            if any(times > bags.sizes.get(size, 0) for size, times in counted.items()):
                raise AssertionError("noise was set for bags of other sizes")
            values = labelling.hide(told, sizes)
            columns = [values] if values.ndim == 1 else list(values.T.copy())
            numbers = np.arange(first, first + sizes.size)
            noise = noise_per_bag(labelling.events, sizes)
            yield pa.record_batch([numbers, sizes, *columns, noise], schema=schema)
            first += sizes.size

    write_plain(pa.RecordBatchReader.from_batches(schema, batches()), path)
    for told in sums.paths:
        Path(told).unlink(missing_ok=True)
    if counted != bags.sizes:
        raise AssertionError("every row is counted in one bag")
    return WrittenTable(path, bags.n_bags, sha256_of(path, error=ReleaseError))
