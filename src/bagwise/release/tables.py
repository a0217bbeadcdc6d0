"""The checked rows of a request and their vectors, in memory or on disk.

`parts_table.PartsTable` does the same steps for rows that many machines read.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bagwise._types import AnyArray, FloatArray, IntArray
from bagwise.bagging import Given, assign_bags, check_strata
from bagwise.bagging.bags import Bags
from bagwise.errors import (
    BagwiseError,
    ClippingWarning,
    ColumnError,
    DominatedWarning,
    Refusals,
    Shield,
    StrategyError,
)
from bagwise.files.parquet_files import as_parquet_keeps_it
from bagwise.planner.sample import Population
from bagwise.privacy import Certificate
from bagwise.privacy.noise import pick_rows, tell
from bagwise.privacy.units import Units
from bagwise.release.bags_in_parts import assign_by_cells
from bagwise.release.label_bags import Labelling
from bagwise.release.manifest import BAG_ID
from bagwise.release.preview import Preview, preview_columns, refuse_flagged
from bagwise.release.release import Release
from bagwise.release.verify import noise_per_bag
from bagwise.requests.answers import Answers
from bagwise.requests.bag_labels import Reach
from bagwise.requests.budget import Budget
from bagwise.requests.columns import Columns, carried_columns, read_given
from bagwise.requests.provenance import Provenance
from bagwise.requests.verbs import Choice, ReleaseRequest, Request
from bagwise.rng import make_generator
from bagwise.rows.columns import find_column, refuse_lookalikes, repeated, without_dictionary
from bagwise.rows.labels import (
    FEWEST_ROWS,
    Bounds,
    label_codes,
    label_vector,
    note_likely_copies,
    refuse_copies,
)
from bagwise.rows.matrix import EncodedRows
from bagwise.rows.opening import leave_out_missing
from bagwise.rows.row_order import feature_order, inverse_order, secret_order
from bagwise.rows.table import Rows
from bagwise.show.operator_notes import tell_operator

UNWRITABLE = "a column, perhaps the id, has a type that Parquet cannot hold."

_LEAST_USED = 0.01  # of the width of the bounds


@dataclass(frozen=True)
class LocalTable:
    """Rows that this process reads, in the order in which they are processed.

    Attributes
    ----------
    labels : (n,)
        Numbers, or numbers of classes; secret.
    everyone : Population
        What is known of all rows.
    given : Given
        Groups and strata that bags have to follow.
    kept : (n,) or None
        Where each row was in the table, if the order is to be kept.
    """

    rows: Rows
    labels: AnyArray
    everyone: Population
    preview: Preview
    units: Units
    given: Given
    kept: IntArray | None = None

    @classmethod
    def checked(cls, rows: Rows, request: Request, *, is_confirmed: bool = False) -> Self:
        """Read labels and facts about columns; refuse a table and report everything wrong with it.

        Refusals may depend on labels that are missing or not numbers, and on exact copies of
        labels; apart from notes to the operator, no other message here depends on labels.
        """
        columns, budget = request.columns, request.budget
        names, leaving = name_columns(rows, columns)
        facts = rows.summarise(leaving)
        wrong = Refusals()
        with wrong:
            labels = _read_labels(rows, columns, budget)
            with wrong:  # only of labels that can be read
                refuse_copies(rows, leaving, labels, label=columns.label, classes=columns.classes)
        with wrong:
            if wrong.errors:
                _refuse_copies_of_some(rows, leaving, columns, budget)
        with wrong:
            if columns.id is not None:
                key = without_dictionary(rows.column(columns.id))
                if key.null_count or pc.count_distinct(key).as_py() != len(key):
                    raise repeated(columns.id)
        with wrong:
            encoder = columns.encoder_from({name: facts[name] for name in names})
        with wrong:
            if wrong.errors and not is_confirmed:
                refuse_flagged(facts, columns, said=" ".join(map(str, wrong.errors)))
        wrong.raise_all()
        classes = columns.classes is not None
        note_likely_copies(rows, leaving, labels, label=columns.label, classes=classes)
        given, units = read_given(rows, by=columns.by, within=columns.within), budget.units_in(rows)
        everyone = Population(
            encoder, rows.num_rows, budget.unit, units.largest, given.smallest_stratum
        )
        preview = preview_columns(facts, encoder, columns)
        return cls(rows, labels, everyone, preview, units, given)

    @property
    def counted(self) -> AnyArray:
        """The labels, (n,), secret."""
        return self.labels

    @property
    def fits(self) -> bool:
        """Whether all rows may be in memory at once."""
        return self.rows.rows_at_once >= self.rows.num_rows

    def for_a_plan(self) -> Rows:
        """Return all rows: the planner takes a sample by their features."""
        return self.rows

    def check_choice(self, choice: Choice) -> None:
        """Refuse a size that strata do not allow, and a strategy that needs all rows in memory."""
        check_strata(self.everyone.smallest_stratum, choice.bag_size)
        follows = self.given.groups is not None or self.given.strata is not None
        if choice.strategy.needs_features and not self.fits and follows:
            raise StrategyError(
                f"by and within cannot be used with {choice.strategy.name!r} for a table that "
                "does not fit into memory. Raise the limit (--memory-limit), or release the table "
                "in parts."
            )

    def in_secret_order(self, request: ReleaseRequest) -> Self:
        """Put rows into a secret order, or one that features decide if it must be reproducible."""
        source = request.budget.noise_source
        if request.keep_order or request.seed is not None:
            order = feature_order(self.rows, self.everyone.encoder.inputs, source)
        else:
            order = secret_order(self.rows.num_rows, source)
        return dataclasses.replace(self.take(order), kept=order if request.keep_order else None)

    def take(self, order: IntArray) -> Self:
        """Reorder rows."""
        return dataclasses.replace(
            self,
            rows=self.rows.take(order),
            labels=self.labels[order],
            units=self.units.take(order),
            given=self.given.take(order),
        )

    def matrix(self, request: ReleaseRequest) -> Any:
        """Return X: as a whole only if that is needed, and sparse if that saves memory."""
        encoder = self.everyone.encoder
        if isinstance(request, Choice):
            if not request.strategy.needs_features:
                return EncodedRows(self.rows, encoder)
            modelled = request.scores == "model" or request.centre != "none"
            sparse = encoder.is_mostly_zeros and request.strategy.accepts_sparse
            if self.fits and sparse and not modelled:
                return encoder.transform_sparse(self.rows)
        return encoder.transform(self.rows) if self.fits else EncodedRows(self.rows, encoder)

    def form_bags(self, X: Any, answers: Answers, choice: Choice) -> "LocalBags":
        """Put rows into bags: all at once, or in cells that fit into memory."""
        strategy, size, rng = choice.strategy, choice.bag_size, make_generator(choice.seed)
        if not strategy.needs_features or self.fits:
            bags = assign_bags(
                strategy, X, answers.scores, bag_size=size, rng=rng, given=self.given
            )
        else:
            bags = assign_by_cells(
                strategy, X, self.rows, bag_size=size, rng=rng, scores=answers.scores
            )
        return LocalBags(self, bags)


@dataclass(frozen=True)
class LocalBags:
    """Rows that this process reads, in their bags, with a model's expectations if requested.

    `instances` are the columns that leave, as soon as they are taken.
    """

    table: LocalTable
    bags: Bags
    predictions: FloatArray | None = None
    instances: pa.Table | None = None

    @property
    def reach(self) -> Reach:
        """The quantities of the bags that noise depends on."""
        units = self.table.units
        return Reach(self.bags.count_sizes(), units.largest, *units.reach(self.bags))

    def leaving(self, answers: Answers, choice: Choice) -> Self:
        """Put rows into the order in which they are published, and select the published columns.

        They are in a secret order already, but a seed determines it, so another is drawn.
        """
        table, bags, predictions, order = self.table, self.bags, answers.predictions, None
        if table.kept is not None:
            order = inverse_order(table.kept)
        elif choice.seed is not None:
            order = secret_order(table.rows.num_rows, choice.budget.noise_source)
        if order is None:
            bags = bags.renumbered()
        else:
            table, bags = table.take(order), bags.take(order)
            predictions = None if predictions is None else predictions[order]
        leaving = table.rows.hand_over(
            leaving_columns(table.everyone.encoder.inputs, choice.columns)
        )
        with Shield(ColumnError(UNWRITABLE)):
            instances = as_parquet_keeps_it(leaving)
        return dataclasses.replace(
            self, table=table, bags=bags, predictions=predictions, instances=instances
        )

    def release(
        self,
        labelling: Labelling,
        choice: Choice,
        answers: Answers,
        certificate: Certificate,
        provenance: Provenance,
    ) -> Release:
        """Give every bag its label, and tell the operator what bags without noise expose."""
        bags, labels, bounds = self.bags, self.table.labels, choice.budget.bounds
        report = labelling.report
        if report is not None and bounds is not None:
            _warn_of_clipping(labels, bounds)
        pick = partial(pick_rows, source=choice.budget.noise_source)
        told = tell(labelling.measure(labels, self.predictions), labelling.combine, bags, pick)
        shown = labelling.hide(told, bags.sizes)
        if report is not None:
            report(labels, bags, shown)
        return Release(
            certificate=certificate,
            provenance=provenance,
            encoder=self.table.everyone.encoder,
            label_kind=choice.label_kind,
            model=answers.model,
            bags=bags,
            labels=shown,
            noise_sd=noise_per_bag(labelling.events, bags.sizes),
            instances=self.instances,
            stored=self.table.rows.stored,
        )


def name_columns(table: Rows, columns: Columns) -> tuple[list[str], list[str]]:
    """Return the features, and all published columns; refuse names that are not allowed."""
    names = columns.features_in(table)
    leaving = leaving_columns(names, columns)
    refuse_lookalikes(leaving, label=columns.label)
    if BAG_ID in leaving:
        raise ColumnError(f"a column is called {BAG_ID!r}, which a release uses itself. Rename it.")
    return names, leaving


def leaving_columns(names: Sequence[str], columns: Columns) -> list[str]:
    """Return the published columns: the id, the columns that bags follow, and the features."""
    key = [] if columns.id is None else [columns.id]
    return [*key, *carried_columns(columns, names), *names]


def _refuse_copies_of_some(
    rows: Rows, leaving: list[str], columns: Columns, budget: Budget
) -> None:
    """Refuse copies of a label that is missing in some rows but readable in the others."""
    try:
        rows, missing = leave_out_missing(rows, columns.label, columns.classes)
        # All labels have been compared already, and a few would be told one by one.
        if not missing or rows.num_rows < FEWEST_ROWS:
            return
        labels = _read_labels(rows, columns, budget)
    except BagwiseError:
        return  # it has been said already
    refuse_copies(rows, leaving, labels, label=columns.label, classes=columns.classes)


def _read_labels(table: Rows, columns: Columns, budget: Budget) -> AnyArray:
    """Return labels as numbers, or as numbers of classes."""
    if columns.classes is not None:
        return label_codes(table, columns.label, columns.classes)
    column = find_column(table, columns.label, role="label")  # read once: it may be on disk
    kind, labels = column.type, label_vector(pa.table({columns.label: column}), columns.label)
    del column
    if budget.calibration is not None and budget.find_within is None:
        remark_on_wide_bounds(kind, labels, bounds=budget.calibration.bounds)
    return labels


def remark_on_wide_bounds(kind: pa.DataType, labels: FloatArray, *, bounds: Bounds) -> None:
    """Warn of bounds far wider than labels can be: noise grows with them, and nothing else shows.

    The type of the column is public, so a remark based on it is a warning. The labels are
    secret, so a remark based on them goes to the operator alone: a warning would leak information.
    """
    low, high = bounds
    if pa.types.is_boolean(kind):
        if high - low > 1:
            warnings.warn(
                f"the label is true or false (1 or 0), so bounds from {low:g} to {high:g} cause "
                f"{high - low:g} times the necessary noise. Use bounds=(0, 1) (--bounds 0 1).",
                DominatedWarning,
                stacklevel=2,
            )
    elif np.ptp(np.clip(labels, low, high)) < _LEAST_USED * (high - low):
        tell_operator(
            "all labels lie in less than a hundredth of the width of their bounds, so that there "
            "is a hundred times the noise that tight bounds would need. Which bounds are right "
            "should be known without this table (0 and 1 for yes and no), or be found privately: "
            "bounds='auto' (--bounds auto). This note tells about the labels: it is shown here, "
            "and kept nowhere."
        )


def _warn_of_clipping(labels: FloatArray, bounds: Bounds) -> None:
    """Report how many labels are clipped: allowed here only because nothing is promised."""
    if outside := int((np.clip(labels, *bounds) != labels).sum()):
        warnings.warn(
            f"{outside} label(s) lie outside the bounds and were clipped to them.",
            ClippingWarning,
            stacklevel=2,
        )
