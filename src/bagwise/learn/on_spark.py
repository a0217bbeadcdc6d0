"""A model of a release whose rows are on many machines, by sums over bags in chunks.

Rows are read once, and put together by bag (`spark_chunks`); from then on a step of the fit is a
pass over the chunks, where they are, and sums come back. For the Gaussian family a bag's
label has the mean of its rows as its only feature, so that chunks have one row for each bag.
Estimates and standard errors are those of `fit_release`: the same equations are solved, by the same
code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np

from bagwise._types import FloatArray, IntArray
from bagwise.errors import ReleaseError, StrategyError
from bagwise.files.spill import SpillDirectory
from bagwise.glm.design import read_offset
from bagwise.glm.parts import held_here
from bagwise.learn.bag_data import BagData
from bagwise.learn.fitting import fit_equations
from bagwise.learn.from_release import ReleaseTask, at_level
from bagwise.learn.spark_chunks import bags_in_parts
from bagwise.models.row_model import RowModel
from bagwise.privacy import Certificate
from bagwise.privacy.noise_laws import GaussianLaw, NoiseLaw
from bagwise.release.files import ReleaseFiles, read_without_rows
from bagwise.release.manifest import Manifest
from bagwise.release.release import bag_columns, read_certificate, sorted_by_scores
from bagwise.release.verify import noise_per_bag
from bagwise.rows.spark.session import open_session
from bagwise.rows.spark.tasks import Cluster

FOLLOWED = 10_000
"""Bags up to which the very law of the noise is followed, as in memory: it takes the driver minutes
for ten times as many. Beyond, noise counts as normal noise of the same size: estimates are without
bias, and standard errors hold, and are a little larger than they could be."""

_AS_NORMAL = " Privacy noise counts as normal noise of its size."


def fit_on_spark(
    path: str | Path,
    *,
    family: str = "auto",
    link: str = "canonical",
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
    link, target
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
    task = ReleaseTask.of(
        manifest, certificate, sizes, family=family, link=link, loss=loss, target=target
    )
    kind, by_row = task.family, task.loss == "instance"
    _check(manifest, task.loss)
    read_offset(1, kind, exposure=None if made.exposure is None else 1.0)  # refuses other links
    distorted = task.why_no_intervals()
    if not noise_sd.any():
        kind.check_labels(labels)
    law, note = _law_to_follow(certificate, sizes.size)

    # 2. Put bags into chunks, and fit.
    centroids = kind.name == "gaussian" and not by_row
    cluster = Cluster(open_session(spark), SpillDirectory(Path(gettempdir())))
    chunked = bags_in_parts(
        cluster, Path(path), manifest, centroids=centroids, family=kind, labels=columns
    )
    try:
        with chunked as in_chunks:
            # Of few bags, one row each is held: many steps go over them.
            held = centroids and law.name != GaussianLaw().name
            over = held_here(in_chunks.over) if held else in_chunks.over
            parts, names = replace(in_chunks, over=over), tuple(manifest.encoder.feature_names)
            bags: Any = SimpleNamespace(sizes=sizes, n_bags=sizes.size, n_rows=int(sizes.sum()))
            rows, ones = np.zeros((0, len(names))), np.ones(sizes.size)
            data = BagData(rows, bags, labels, noise_sd, ones, axes=parts.axes, parts=parts)
            setting = task.setting(data, ridge, law, fit_intercept=fit_intercept)
            fitted = fit_equations(setting, task.loss)
            kept = replace(fitted, note=fitted.note + note).kept(classes=kind.has_classes)
            if not by_row:
                kept = at_level(kept, setting, certificate.clipped_to)
    finally:
        cluster.scratch.close()

    # 3. Say what a fit in memory says.
    fitted.warn(len(names), manifest.n_bags)
    return task.model(kept, distorted, manifest.n_rows)


def label_columns(classes: Sequence[str] | None, target: str | None) -> list[str]:
    """Return the columns of the table of bags that are learnt from."""
    columns = bag_columns(classes)[2:-1]
    if target is None:
        return columns
    if classes is None:
        raise ReleaseError("target names a class, and this label has none.")
    if target not in classes:
        raise ReleaseError(
            f"target must be one of the classes {', '.join(classes)}, got {target!r}."
        )
    return [columns[classes.index(target)]]


def _law_to_follow(certificate: Certificate, n_bags: int) -> tuple[NoiseLaw, str]:
    """Return the law of the noise, as far as a fit follows it, and what the note says of that."""
    means = ("bag means", "class shares")
    laws = [event.law.density for event in certificate.events if event.hides in means]
    law = laws[0] if laws else GaussianLaw()
    if n_bags > FOLLOWED and law.name != GaussianLaw().name:
        return GaussianLaw(), _AS_NORMAL
    return law, ""


def _check(manifest: Manifest, loss: str) -> None:
    """Refuse what is not fitted on Spark, with what to do."""
    made = manifest.provenance
    missing = {
        "instance loss of labels with classes (bag loss is)": (
            loss == "instance" and made.classes is not None
        ),
        "picked labels": manifest.label_kind != "mean",
        "instance loss of bags that were not sorted, which it shrinks (bag loss is)": (
            loss == "instance" and not sorted_by_scores(made)
        ),
        f"loss {loss!r} (bag loss is)": loss not in ("instance", "bag"),
    }
    if refused := [what for what, asked in missing.items() if asked]:
        raise StrategyError(f"not on Spark yet: {refused[0]}. Or fit without Spark (fit_release).")


def _read_bags(
    files: ReleaseFiles, certificate: Certificate, columns: Sequence[str]
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return sizes, labels and noise of all bags, as far as they agree with the certificate."""
    sizes, noise_sd = (files.bags[name].to_numpy() for name in ("size", "noise_sd"))
    described = noise_per_bag(certificate.events, sizes)
    if not np.allclose(noise_sd, described, rtol=1e-9, atol=0.0):
        raise ReleaseError("the noise of the bags is not the one the certificate describes.")
    labels = np.column_stack([files.bags[name].to_numpy() for name in columns])
    if not np.isfinite(labels).all():
        raise ReleaseError("bag labels are missing or not finite.")
    return sizes, labels if labels.shape[1] > 1 else labels[:, 0], noise_sd
