"""Fit a model to a release on Spark, by sums over bags in chunks.

Rows are read once, and put together into chunks of whole bags; from then on a step of the fit is a
pass over the chunks, where they are, and sums come back. For the Gaussian family a bag's label has
the mean of its rows as its only feature, so that chunks have one row for each bag. Estimates and
standard errors are those of `fit_release`: the same equations are solved, by the same code.

Rows of a bag may be in any file. Tasks read files, encode rows and send them to whoever has their
bag; for a linear mean they send sums, one for each bag that they see. Spark keeps the chunks, in
memory as far as there is some, so that a step of a fit reads them where they are.
"""

import functools
import hashlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bagwise._types import FloatArray, IntArray
from bagwise.bagging.bags import Bags
from bagwise.errors import ReleaseError, StrategyError, shielded
from bagwise.families import Family, find_family
from bagwise.files.parquet_layout import read_layout
from bagwise.files.regular_files import open_regular
from bagwise.files.spill import SpillDirectory
from bagwise.glm.data import BagData, OverParts, held_here
from bagwise.glm.design import read_offset
from bagwise.glm.linear import all_added
from bagwise.learn.from_release import estimator_of, fit_to
from bagwise.models.row_model import RowModel
from bagwise.privacy import Certificate
from bagwise.privacy.laws import Law
from bagwise.privacy.noise_laws import LAWS
from bagwise.release.files import BAGS, ReleaseFiles, instance_files, read_without_rows
from bagwise.release.manifest import BAG_ID, Manifest
from bagwise.release.release import bag_schema, read_certificate
from bagwise.release.verify import noise_per_bag
from bagwise.rows.encode import Encoder
from bagwise.rows.matrix import blocks_of
from bagwise.rows.parts import Split
from bagwise.rows.spark.session import open_session
from bagwise.rows.spark.tasks import Cluster, split_rows
from bagwise.rows.whitening import Axes, Moments

T = TypeVar("T")

FOLLOWED = 10_000
"""Bags up to which the very law of the noise is followed, as in memory: it takes the driver minutes
for ten times as many. Beyond, noise counts as normal noise of the same size: estimates are without
bias, and standard errors hold, and are a little larger than they could be."""

BAGS_AT_ONCE = 2**16
NUMBERS_AT_ONCE = 2**20
"""Numbers of X in a chunk: 8 MB, of which a task has a few at a time."""

_ALL_ROWS = -1  # where the moments go
_AS_NORMAL = " Privacy noise counts as normal noise of its size."


def fit_on_spark(
    path: str | Path,
    *,
    family: str = "auto",
    loss: str = "auto",
    target: str | None = None,
    ridge: float | Literal["auto"] = "auto",
    fit_intercept: bool = True,
    spark: Mapping[str, str] | None = None,
) -> RowModel:
    """Fit a row-level model to a release directory, on Spark.

    Parameters
    ----------
    family : str
        Distribution of a row's label, as in `fit_release`.
    target : str, optional
        As in `fit_release`.
    loss : {"auto", "bag", "instance"}
        As in `fit_release`; instance loss where rows were sorted by scores.
    ridge, fit_intercept
        As in `fit_release`.
    spark : mapping, optional
        Settings of Spark, for a session that is opened here.

    Notes
    -----
    The driver holds the table of bags, and d x d matrices. Rows are read once; Spark keeps them, or
    for the gaussian family the mean of each bag, while the fit goes over them. Every file of the
    release is checked against the hashes of its manifest by the tasks that read it. Up to 10,000
    bags the fit is that of `fit_release`, and where noise is not normal their derivatives, m x d
    numbers, come to the driver. With more, such noise is taken for normal noise of the same size,
    and the note of the model says so.
    """
    # 1. Read all but the rows, and settle what is to be learnt.
    files = read_without_rows(Path(path))
    manifest, certificate = files.manifest, read_certificate(files)
    made = manifest.provenance
    columns = label_columns(made.classes, target)
    sizes, labels, noise_sd = _read_bags(files, certificate, columns)
    law, note = _law_to_follow(certificate, sizes.size)
    glm = estimator_of(
        manifest, certificate, law=law, family=family, loss=loss, target=target, ridge=ridge,
        fit_intercept=fit_intercept,
    )  # fmt: skip
    kind = find_family(glm.family)
    _check(manifest, glm.loss)
    # An exposure asks for a logarithm as link.
    read_offset(1, kind, exposure=None if made.exposure is None else 1.0)

    # 2. Put bags into chunks, and fit.
    centroids = kind.name == "gaussian" and glm.loss == "bag"
    cluster = Cluster(open_session(spark), SpillDirectory(Path(gettempdir())))
    chunked = bags_in_parts(
        cluster, Path(path), manifest, centroids=centroids, family=kind, labels=columns
    )
    try:
        with chunked as in_chunks:
            # Of few bags, one row each is held: many steps go over them.
            held = centroids and not law.is_normal
            over, moments, axes = in_chunks
            over = held_here(over) if held else over
            bags: Any = SimpleNamespace(sizes=sizes, n_bags=sizes.size, n_rows=int(sizes.sum()))
            rows, ones = np.zeros((0, moments.mean.size)), np.ones(sizes.size)
            data = BagData(
                rows, bags, labels, noise_sd, ones, axes=axes, parts=over, moments=moments
            )
            return fit_to(manifest, certificate, glm, data, target=target, note=note)
    finally:
        cluster.scratch.close()


def label_columns(classes: Sequence[str] | None, target: str | None) -> list[str]:
    """Return the columns of the table of bags that hold labels to learn from."""
    columns: list[str] = bag_schema(classes).names[2:-1]
    if target is None:
        return columns
    if classes is None:
        raise ReleaseError("target names a class, and this label has none.")
    if target not in classes:
        raise ReleaseError(
            f"target must be one of the classes {', '.join(classes)}, got {target!r}."
        )
    return [columns[classes.index(target)]]


def _law_to_follow(certificate: Certificate, n_bags: int) -> tuple[Law, str]:
    """Return the law of the noise, if a fit follows it, and the remark about it for the note."""
    means = ("bag means", "class shares")
    laws = [event.law for event in certificate.events if event.hides in means]
    law = laws[0] if laws else LAWS["gaussian"]
    if n_bags > FOLLOWED and not law.is_normal:
        return LAWS["gaussian"], _AS_NORMAL
    return law, ""


def _check(manifest: Manifest, loss: str) -> None:
    """Refuse what cannot be fitted on Spark, and suggest what to do instead."""
    made = manifest.provenance
    missing = {
        "instance loss of labels with classes (bag loss is)": (
            loss == "instance" and made.classes is not None
        ),
        "picked labels": manifest.label_kind != "mean",
        "instance loss of bags that were not sorted, which it shrinks (bag loss is)": (
            loss == "instance" and not made.is_sorted
        ),
        f"loss {loss!r} (bag loss is)": loss not in ("instance", "bag"),
    }
    if refused := [what for what, asked in missing.items() if asked]:
        raise StrategyError(f"not on Spark yet: {refused[0]}. Or fit without Spark (fit_release).")


def _read_bags(
    files: ReleaseFiles, certificate: Certificate, columns: Sequence[str]
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return sizes, labels and noise of all bags, checked against the certificate."""
    sizes, noise_sd = (files.bags[name].to_numpy() for name in ("size", "noise_sd"))
    described = noise_per_bag(certificate.events, sizes)
    if not np.allclose(noise_sd, described, rtol=1e-9, atol=0.0):
        raise ReleaseError("the noise of the bags is not the one the certificate describes.")
    labels = np.column_stack([files.bags[name].to_numpy() for name in columns])
    if not np.isfinite(labels).all():
        raise ReleaseError("bag labels are missing or not finite.")
    return sizes, labels if labels.shape[1] > 1 else labels[:, 0], noise_sd


# --- the bags in chunks ---------------------------------------------------------------------------


@contextmanager
def bags_in_parts(
    cluster: Cluster,
    path: Path,
    manifest: Manifest,
    *,
    centroids: bool,
    family: Family,
    labels: Sequence[str],
) -> Iterator[tuple[OverParts, Moments, Axes]]:
    """Put the bags of a release into chunks, which Spark keeps until they are not needed.

    Beside them are the moments of the rows that chunks have, and the directions of all rows.
    Every file is checked against the hashes of the manifest by the task that reads it first, and
    the rows of each bag against the number that the table of bags says.
    """
    splits = _splits_of(cluster, path, manifest)
    encoder, exposure = manifest.encoder, manifest.provenance.exposure
    schema = pq.read_schema(splits[0].path)
    width, size = max(1, len(encoder.feature_names)), manifest.n_rows // manifest.n_bags
    at_once = NUMBERS_AT_ONCE // (width if centroids else width * max(1, size))
    at_once = min(BAGS_AT_ONCE, max(1, at_once))
    send: Callable[..., Any] = partial(_send_rows, exposure=exposure)
    take: Callable[..., Any] = partial(_take_rows, exposed=exposure is not None, family=family)
    if centroids:
        send, take = _send_sums, _take_sums
    send = partial(send, schema=schema, encoder=encoder, at_once=at_once)
    take = partial(take, bags=_BagRows(str((path / BAGS).absolute()), tuple(labels), at_once))
    targets = -(-manifest.n_bags // at_once) + 1  # chunks, and the moments of all rows
    kept = cluster.keep(splits, send, take, targets=targets)
    try:

        def over(work: Callable[[BagData], T], merge: Callable[[T, T], T]) -> T:
            return kept.over(lambda p: work(p) if isinstance(p, BagData) else None, merge)

        facts = over(lambda part: (Moments.of(part.X), part.bags.n_bags), all_added)
        moments, n_bags = facts
        if n_bags != manifest.n_bags:
            raise _other_sizes()
        axes = moments.axes
        if centroids:  # then one part of what is kept are the moments of all rows
            axes = kept.over(lambda p: p if isinstance(p, Moments) else None, operator.add).axes
        yield over, moments, axes
    finally:
        kept.close()


def _splits_of(cluster: Cluster, path: Path, manifest: Manifest) -> list[Split]:
    names = instance_files(manifest.files)
    hashed = [(str((path / name).absolute()), manifest.files[name]) for name in names]
    groups = cluster.each(hashed, _check_file)
    splits = [
        Split(file, group, count)
        for (file, _), rows in zip(hashed, groups, strict=True)
        for group, count in enumerate(rows)
    ]
    if sum(split.rows for split in splits) != manifest.n_rows:
        raise ReleaseError(f"{path} has other rows than its manifest says.")
    return splits


def _check_file(hashed: tuple[str, str], _secret: bytes) -> list[int]:
    """Return the rows of each row group of a file, checked to be the one in the manifest."""
    path, expected = Path(hashed[0]), hashed[1]
    with open_regular(path, error=ReleaseError) as handle:
        if hashlib.file_digest(handle, "sha256").hexdigest() != expected:
            raise ReleaseError(
                f"{path} was changed after the release was written (its SHA-256 is not the one in "
                "the manifest). Ask for the release again."
            )
        shielded(lambda: read_layout(handle), lambda strange: ReleaseError(f"{path} {strange}"))
        metadata = pq.read_metadata(path)
    return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def _rows_in_bags(
    split: Split, secret: bytes, schema: pa.Schema, encoder: Encoder, exposure: str | None = None
) -> Iterator[tuple[IntArray, FloatArray, FloatArray | None]]:
    """Yield the rows of a split that are in a bag, with its number, block by block."""
    numbers = split.read(schema, [BAG_ID], secret).column(0)
    bags, start = numbers.fill_null(_ALL_ROWS).to_numpy(), 0
    names = encoder.inputs if exposure is None else [*encoder.inputs, exposure]
    rows = split.read(schema, list(dict.fromkeys(names)), secret)
    for X, times in blocks_of(rows, encoder, exposure):
        here = bags[start : start + len(X)]
        start += len(X)
        kept = here >= 0  # others are left out of all bags
        if kept.all():
            yield here, X, times
        elif kept.any():
            yield here[kept], X[kept], None if times is None else times[kept]


def _send_rows(
    split: Split,
    secret: bytes,
    *,
    schema: pa.Schema,
    encoder: Encoder,
    exposure: str | None,
    at_once: int,
) -> Iterator[tuple[int, pa.Table]]:
    for bags, X, times in _rows_in_bags(split, secret, schema, encoder, exposure):
        known = [] if times is None else [times]
        yield from split_rows(bags // at_once, _table([bags, *known, *X.T]))


def _take_rows(
    target: int, sent: pa.Table, _secret: bytes, *, exposed: bool, family: Family, bags: "_BagRows"
) -> BagData:
    number, *columns = (column.to_numpy() for column in sent.columns)
    order = np.argsort(number, kind="stable")
    first = target * bags.at_once
    offset = read_offset(order.size, family, exposure=columns.pop(0)[order]) if exposed else None
    rows = np.column_stack(columns)[order]
    return replace(_chunk(first, rows, number[order] - first, bags), offset=offset)


def _send_sums(
    split: Split, secret: bytes, *, schema: pa.Schema, encoder: Encoder, at_once: int
) -> Iterator[tuple[int, pa.Table]]:
    """Add up the rows of a split by bag, and all of them."""
    parts, moments = list[pa.Table](), list[Moments]()
    for bags, X, _ in _rows_in_bags(split, secret, schema, encoder):
        parts.append(_by_bag(bags, np.ones(bags.size, dtype=np.int64), X))
        moments.append(Moments.of(X))
    if moments:
        yield _ALL_ROWS, _as_table([functools.reduce(operator.add, moments)])
        added = pa.concat_tables(parts)
        yield from split_rows(added.column(0).to_numpy() // at_once, added)


def _take_sums(
    target: int, sent: pa.Table, _secret: bytes, *, bags: "_BagRows"
) -> BagData | Moments:
    """Add up the tasks' results for each bag."""
    if target == _ALL_ROWS:
        parts = zip(*(column.to_pylist() for column in sent.columns), strict=True)
        return functools.reduce(
            operator.add,
            (Moments(n, np.array(m), np.reshape(s, (len(m), len(m)))) for n, m, s in parts),
        )
    number, counts, *columns = (column.to_numpy() for column in sent.columns)
    added = _by_bag(number, counts, np.column_stack(columns))
    number, counts, *columns = (column.to_numpy() for column in added.columns)
    means = np.column_stack(columns) / counts[:, None]
    first = target * bags.at_once
    return _chunk(first, means, number - first, bags, counts=counts)


def _chunk(
    first: int,
    rows: FloatArray,
    index: IntArray,
    bags: "_BagRows",
    *,
    counts: IntArray | None = None,
) -> BagData:
    """Return a chunk with its bags' entries from the table of bags."""
    sizes, labels, noise_sd = bags.read(first)
    if index.size and (index.min() < 0 or index.max() >= sizes.size):
        raise ReleaseError("instances name bags other than those that there are.")
    seen = np.bincount(index, weights=counts, minlength=sizes.size)
    if not np.array_equal(seen, sizes):
        raise _other_sizes()
    rows_of = None if counts is None else sizes[index].astype(np.float64)
    return BagData(
        rows, Bags(index), labels, noise_sd, np.ones(sizes.size), counts=rows_of, first=first
    )


def _other_sizes() -> ReleaseError:
    return ReleaseError("bag sizes do not match the number of instances in each bag.")


@dataclass(frozen=True)
class _BagRows:
    """The place where a task finds its bags' entries in the table of bags.

    Attributes
    ----------
    path : str
    labels : tuple of str
        Columns with the label: one, or one for each class.
    at_once : int
        Bags of a chunk.
    """

    path: str
    labels: tuple[str, ...]
    at_once: int

    def read(self, first: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return sizes, labels and noise of a chunk, reading only the row groups that hold them."""
        names, parts, start, before = ["size", *self.labels, "noise_sd"], list[int](), 0, 0
        with pq.ParquetFile(self.path, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                if end <= first:
                    before = end
                elif start < first + self.at_once:
                    parts.append(group)
                start = end
            table = file.read_row_groups(parts, columns=names, use_threads=False)
        sizes, *labels, noise_sd = (
            table[name].to_numpy()[first - before :][: self.at_once] for name in names
        )
        return sizes, labels[0] if len(labels) == 1 else np.column_stack(labels), noise_sd


def _by_bag(bags: IntArray, counts: IntArray, sums: FloatArray) -> pa.Table:
    order = np.argsort(bags, kind="stable")
    numbers, starts = np.unique(bags[order], return_index=True)
    columns = np.add.reduceat(sums[order], starts, axis=0).T
    return _table([numbers, np.add.reduceat(counts[order], starts), *columns])


def _table(columns: Sequence[Any]) -> pa.Table:
    return pa.table(list(columns), names=[str(number) for number in range(len(columns))])


def _as_table(moments: Sequence[Moments]) -> pa.Table:
    return pa.table(
        {
            "count": [one.count for one in moments],
            "mean": [one.mean for one in moments],
            "squares": [one.squares.ravel() for one in moments],
        }
    )
