"""A fitted model with its encoder: the part that all kinds of models share.

Each kind of model defines how it predicts encoded rows and which fields its file has; reading
tables, clipping, blocks of rows, files and digests are the same for all.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

import numpy as np
import pyarrow as pa
import scipy
from msgspec import Meta
from numpy.typing import NDArray

from bagwise._types import FloatArray
from bagwise._version import SOFTWARE, SOFTWARE_PATTERN
from bagwise.errors import (
    ColumnError,
    ModelFileError,
    StrategyError,
    TableError,
    did_you_mean,
    shielded,
)
from bagwise.families import find_family
from bagwise.files.atomic import new_file
from bagwise.files.json_files import canonical, write_json
from bagwise.files.records import Record, read_file, to_plain
from bagwise.privacy import Certificate
from bagwise.privacy.certificate import HEADLINE_PATTERN, NOT_PRIVATE
from bagwise.rows.columns import exposure_vector, find_column
from bagwise.rows.labels import Bounds
from bagwise.rows.opening import Memory, open_rows
from bagwise.rows.sources import ScannedSource, open_source
from bagwise.rows.spark.session import is_frame
from bagwise.rows.spark.tasks import guarded
from bagwise.rows.table import Rows, read_table

AT_ONCE = 2**18  # rows that are encoded together
_READ_IN_PARTS = "1GB"  # from which on predictions go over parts of a file without a limit
LARGEST = 512 * 2**20  # bytes of a model file: a thousand trees take about a megabyte

Software = Annotated[str, Meta(pattern=rf"^{SOFTWARE_PATTERN}\Z")]

FEWEST_BAGS = 20
"""Fewer bags do not tell how much single labels vary."""


class TrainedOn(Record, frozen=True, omit_defaults=True):
    """The data that a model was fitted to.

    Attributes
    ----------
    n_rows : int
    privacy : str or None
        The headline of the release's certificate; None for a model with its own certificate.
    n_bags, n_labelled_rows : int or None
        Bags, and the learner's own labelled rows.
    label_kind, strategy : str or None
    dispersion : float or None
        Variance of single labels around the model, relative to the family's.
    row_variance : float or None
        Variance of single labels around predictions, from residuals of bags.
    converged : bool
        Whether the fit converged.
    threshold : float or None
        The probability above which a row counts as 1, if not a half.
    """

    n_rows: Annotated[int, Meta(ge=1, le=2**48)]
    privacy: Annotated[str, Meta(pattern=HEADLINE_PATTERN)] | None = None
    n_bags: int | None = None
    n_labelled_rows: int | None = None
    label_kind: Literal["mean", "pick"] | None = None
    strategy: str | None = None
    dispersion: float | None = None
    row_variance: Annotated[float, Meta(gt=0)] | None = None
    converged: bool = True
    threshold: Annotated[float, Meta(ge=0, le=1)] | None = None


class TableEncoder(Protocol):
    """A recipe from a table's columns to X, such as `Encoder`."""

    @property
    def inputs(self) -> list[str]:
        """Names of the table columns that the recipe reads."""

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of X."""

    def transform(self, table: Any) -> Any:
        """Return X, dense or sparse."""

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as plain values."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Model(ABC):
    """A row-level model that predicts on tables with its feature columns.

    Attributes
    ----------
    family, link, loss : str
    label : str
        Name of the label it predicts.
    encoder : TableEncoder
    trained_on : TrainedOn
        The release it was fitted to: number of rows and bags, and its privacy.
    target : str or None
        For a label with classes: the class whose share it predicts.
    classes : tuple of str or None
        The classes of the label.
    exposure : str or None
        The exposure column; the model then predicts a rate.
    bounds : (low, high) or None
        The custodian's bounds of the label; predictions are clipped to them.
    certificate : Certificate or None
        The guarantee of a directly released model.
    """

    family: str
    link: str = "canonical"
    loss: str = "bag"
    label: str
    encoder: TableEncoder
    trained_on: TrainedOn
    target: str | None = None
    classes: tuple[str, ...] | None = None
    exposure: str | None = None
    bounds: Bounds | None = None
    certificate: Certificate | None = None

    SCHEMA: ClassVar[str]
    FILE: ClassVar[Any]  # the record of a file
    WHAT: ClassVar[str]

    @property
    def promise(self) -> str:
        """The promise about labels, in one line."""
        return (
            self.certificate.headline
            if self.certificate
            else (self.trained_on.privacy or NOT_PRIVATE)
        )

    @abstractmethod
    def predict_encoded(self, X: FloatArray) -> FloatArray:
        """Return the expected label of each row of X, already encoded, and never clipped.

        It is that of an exposure of one.
        """

    @abstractmethod
    def _own_fields(self) -> dict[str, Any]:
        """Return the file's fields that only this kind of model has, as plain values."""

    @classmethod
    @abstractmethod
    def _from_file(cls, file: Any, common: dict[str, Any]) -> Self:
        """Return the model in a file, given the fields that every kind has, or refuse it."""

    def predict(
        self,
        table: Any,
        *,
        rate: bool = False,
        clip: bool = True,
        interval: float | None = None,
        mae: float | None = None,
    ) -> FloatArray:
        """Return the expected label of each row of a table or file; for classes, probabilities.

        A model of a rate multiplies it by the exposure in the table, unless `rate` is true.
        Predictions are clipped to the stated `bounds` of a label, unless `clip` is False; a rate
        has no bounds.

        With an `interval`, such as 0.9, there are three numbers per row, (n, 3): the prediction,
        and the ends of a range that contains the label for this share of the rows. It accounts for
        the variation of single labels and for what the model has not learned, estimated from
        residuals of bags. If rows of a bag are not independent, such as several of one person, it
        is too wide, and where noise hides how single labels vary it is only roughly right. For
        numbers, `mae` is the mean absolute error of rows like these, if it was measured, such as
        by a custodian's private evaluation: intervals then follow it and not the bags.
        """
        rows = read_table(table)
        return self.predict_rows(rows, rate=rate, clip=clip, interval=interval, mae=mae)

    def predict_rows(
        self,
        table: pa.Table,
        *,
        rate: bool = False,
        clip: bool = True,
        interval: float | None = None,
        mae: float | None = None,
    ) -> FloatArray:
        """Do the same as `predict` for a table already read; some rows are encoded at a time."""
        if rate and self.exposure is None:
            raise StrategyError("this model has no exposure, and so no rate: leave out rate.")
        starts = range(0, max(1, table.num_rows), AT_ONCE)
        parts = (self.encoder.transform(table.slice(start, AT_ONCE)) for start in starts)
        predicted = np.concatenate([self.predict_encoded(X) for X in parts])
        if self.exposure is not None and not rate:
            predicted = predicted * exposure_vector(table, self.exposure)
        if interval is not None:
            if rate:
                raise StrategyError("an interval is that of a label: leave out rate.")
            predicted = np.column_stack([predicted, self._interval(predicted, interval, mae)])
        return np.clip(predicted, *self.bounds) if clip and self.bounds and not rate else predicted

    def _interval(self, mean: FloatArray, level: float, mae: float | None) -> FloatArray:
        """Return the ends, (n, 2), of a range with a share `level` of labels of this mean."""
        if not 0 < level < 1:
            raise StrategyError(f"interval must lie between 0 and 1, got {level!r}.")
        family, made = find_family(self.family), self.trained_on
        low, high = family.label_range
        if np.isfinite(high) or self.classes is not None:
            raise StrategyError("an interval is for labels that are numbers: use predict_proba.")
        relative = made.row_variance
        if relative is None and (made.n_bags is None or made.n_bags >= FEWEST_BAGS):
            relative = made.dispersion
        if mae is not None:
            if self.family != "gaussian" or not mae > 0:
                raise StrategyError("mae must be above 0, and is for models of family gaussian.")
            relative = (math.pi * mae / (math.sqrt(12) * math.log(2))) ** 2  # of a logistic law
        if not relative:
            raise StrategyError(
                "this model has no intervals: the variation of single labels is unknown or hidden "
                "by the noise. Fit a release with a larger epsilon, or pass the mean absolute "
                "error that an evaluation measured, as mae."
            )
        variance = relative * family.variance(family.predictor(mean))
        tails = np.array([(1 - level) / 2, (1 + level) / 2])
        if np.isinf(low):
            # Labels vary more around some predictions than around others. So all together have
            # longer tails than normal ones have: a logistic distribution.
            scale = np.sqrt(3 * variance)[:, None] / math.pi
            return np.asarray(mean[:, None] + scale * scipy.stats.logistic.ppf(tails))
        if self.family == "poisson":
            # Counts that vary more than Poisson's: negative binomial ones. Most of a lower tail is
            # often at zero, and what it leaves over belongs to the upper one.
            relative = max(relative, 1.0 + 1e-6)
            counts = scipy.stats.nbinom(mean / (relative - 1.0), 1.0 / relative)
            low_end = counts.ppf(tails[0])
            return np.column_stack([low_end, counts.ppf(counts.cdf(low_end - 1) + level)])
        # Labels above zero: a gamma distribution of that mean and variance.
        scale = (variance / mean)[:, None]
        ends = scipy.stats.gamma.ppf(tails, mean[:, None] / scale, scale=scale)
        return np.asarray(ends)

    def predict_table(
        self,
        table: pa.Table,
        *,
        id: str | None = None,
        rate: bool = False,
        clip: bool = True,
        interval: float | None = None,
        mae: float | None = None,
    ) -> pa.Table:
        """Return a column `prediction`, beside the column `id` if one is named.

        For classes there is a column ``prediction=NAME`` with the chance of each; an `interval` has
        columns `lower` and `upper`.
        """
        key = {} if id is None else {id: find_column(table, id, role="id")}
        predicted = self.predict_rows(table, rate=rate, clip=clip, interval=interval, mae=mae)
        names = self.outputs if interval is None else [*self.outputs, "lower", "upper"]
        values = predicted.reshape(len(predicted), -1).T
        return pa.table({**key, **dict(zip(names, values, strict=True))})

    def predict_parts(
        self, rows: Rows, *, id: str | None = None, rate: bool = False, **options: Any
    ) -> Iterator[pa.Table]:
        """Yield what `predict_table` returns, for one part of the rows after the other."""
        for part in rows.scan(self.columns_needed(rows.column_names, id=id, rate=rate)):
            for start in range(0, max(1, part.num_rows), AT_ONCE):
                yield self.predict_table(part.slice(start, AT_ONCE), id=id, rate=rate, **options)

    def columns_needed(self, names: Sequence[str], *, id: str | None, rate: bool) -> list[str]:
        """Return the columns that predictions need; raise an error if one is missing."""
        roles = dict.fromkeys(self.encoder.inputs, "feature")
        named = ((None if rate else self.exposure, "exposure"), (id, "id"))
        roles |= {name: role for name, role in named if name is not None}
        for name, role in roles.items():
            if name not in names:
                raise ColumnError(
                    f"{role} {name!r} is not a column of the table.{did_you_mean(name, names)}"
                )
        return list(roles)

    def predict_proba(self, table: Any) -> FloatArray:
        """Return the chance of each class, (n, classes); for a yes-or-no label, of no and of yes.

        For the share of one class (`target`) they are those of all others, and of that class.
        """
        chances = self.predict(table)
        if self.classes is not None:
            return chances
        if self.target is None and self.family != "bernoulli":
            raise StrategyError(
                "this model predicts numbers and no probabilities: use predict. For labels of 0 "
                "and 1, fit with family='bernoulli' (--family bernoulli)."
            )
        return np.column_stack([1 - chances, chances])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:  # noqa: ARG002
        """Return the names of the columns of X, in scikit-learn's form."""
        return np.array(self.encoder.feature_names, dtype=object)

    def __repr__(self) -> str:
        trained = self.trained_on
        bags = "" if trained.n_bags is None else f", {trained.n_bags} bags"
        return (
            f"{type(self).__name__}({self.family} model of {self.label!r} by "
            f"{len(self.encoder.feature_names)} features, from {trained.n_rows} rows{bags})"
        )

    @property
    def outputs(self) -> list[str]:
        """The columns of predictions."""
        if self.classes is None:
            return ["prediction"]
        return [f"prediction={name}" for name in self.classes]

    @property
    def digest(self) -> str:
        """SHA-256 of the model without its certificate."""
        content = self._to_json()
        if "certificate" in content:
            content["certificate"] = None
        del content["software"]  # another version may write the same model
        return digest_of(content)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the model as one JSON file; `force` replaces an existing one.

        A fit that did not converge is written only with `force`.
        """
        if not self.trained_on.converged and not force:
            raise ModelFileError(
                f"the fit did not converge, so {path} was not written. Choose another family or "
                "loss, or a larger epsilon; force=True (--force) writes it anyway."
            )
        content = self._to_json()
        with new_file(Path(path), force=force) as draft:
            write_json({**content, "sha256": digest_of(content)}, draft)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model file; raise an error if it is damaged, edited or of another version."""
        refuse_directory(path)
        file = read_file(
            cls.FILE,
            Path(path),
            schema=cls.SCHEMA,
            error=ModelFileError,
            what=cls.WHAT,
            limit=LARGEST,
        )
        content = to_plain(file)
        del content["sha256"]
        if file.sha256 != digest_of(content):
            raise ModelFileError(f"{path} was changed after it was written. Fit the model again.")
        bounds = file.bounds
        if bounds is not None and not (bounds[0] < bounds[1] and np.isfinite(bounds).all()):
            raise ModelFileError("the bounds of the model are impossible.")
        shared = ("family", "link", "label", "encoder", "trained_on", "target", "classes")
        common = {"bounds": bounds, **{name: getattr(file, name) for name in shared}}
        model = shielded(
            lambda: cls._from_file(file, common),
            ModelFileError(f"{path} is damaged: a field is malformed."),
        )
        # A certificate was compared when it was read, to digits that every machine agrees on.
        kept = {name: content[name] for name in ("software", "certificate") if name in content}
        if canonical({**model._to_json(), **kept}) != canonical(content):
            raise ModelFileError(f"{path} is damaged: its fields contradict each other.")
        return model

    def _to_json(self) -> dict[str, Any]:
        values = {
            "schema": self.SCHEMA,
            "software": SOFTWARE,
            "family": self.family,
            "link": self.link,
            "loss": self.loss,
            "label": self.label,
            "bounds": None if self.bounds is None else list(self.bounds),
            "target": self.target,
            "classes": None if self.classes is None else list(self.classes),
            "exposure": self.exposure,
            "encoder": self.encoder.to_json(),
            "trained_on": to_plain(self.trained_on),
            "certificate": None if self.certificate is None else self.certificate.to_json(),
            **self._own_fields(),
        }
        return {name: values[name] for name in self.FILE.__struct_fields__ if name != "sha256"}


def open_in_parts(
    table: Any, *, limit: str | int | None = None, spill: Path, named: Sequence[str] = ()
) -> Rows:
    """Return the rows of a table or file to predict, within a `limit` of memory.

    Without a limit, large Parquet files are read some rows at a time all the same: nothing of them
    has to be written elsewhere.
    """
    source = table if isinstance(table, Rows) else open_source(table)
    if limit is None and isinstance(source, ScannedSource):
        limit = _READ_IN_PARTS
    return open_rows(source, memory=Memory.of(limit, spill), named=named)


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(canonical(content)).hexdigest()


def refuse_directory(path: str | Path) -> None:
    """Raise an error for a directory, which is not a model file."""
    if Path(path).is_dir():
        raise ModelFileError(
            f"{path} is a directory, not a model file. If it is a release, fit it first: "
            f"bagwise fit {path} -o model.json"
        )


def predict_on_spark(
    model: Model, frame: Any, *, id: str | None = None, rate: bool = False, clip: bool = True
) -> Any:
    """Return a DataFrame with a column `prediction`, beside the column `id` if one is named.

    Like every Spark DataFrame, it is evaluated lazily. For classes there is a
    column ``prediction=NAME`` with the chance of each. Predictions are clipped as
    ``model.predict`` does, unless `clip` is False.
    """
    if not is_frame(frame):
        raise TableError("give a DataFrame of Spark; model.predict takes everything else.")
    asked = model.columns_needed(frame.columns, id=id, rate=rate)
    types = dict.fromkeys(model.outputs, "double")
    if id is not None:
        types = {id: frame.schema[id].dataType.simpleString(), **types}
    quoted = {name: f"`{name.replace('`', '``')}`" for name in (*asked, *types)}
    chosen = frame.select(*(quoted[name] for name in asked))
    work = partial(_predict, model=model, id=id, rate=rate, clip=clip)
    return chosen.mapInArrow(work, ", ".join(f"{quoted[n]} {kind}" for n, kind in types.items()))


def _predict(
    batches: Iterable[pa.RecordBatch], *, model: Model, id: str | None, rate: bool, clip: bool
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        predicted: Any = guarded(partial(model.predict_table, rows, id=id, rate=rate, clip=clip))
        if not isinstance(predicted, pa.Table):
            raise RuntimeError(predicted.text)  # of ours: names of columns, and no cells
        yield from predicted.to_batches()
