"""One check for everything that bagwise writes: releases, models, bounds and evaluations."""

import math
from collections.abc import Callable
from pathlib import Path

from bagwise.errors import ModelFileError, ReleaseError
from bagwise.evaluate.privately import PrivateScores
from bagwise.files.json_files import read_json
from bagwise.models.from_statistics import RELEASED_NOTE
from bagwise.models.row_model import RELEASED_DIRECTLY, RowModel, TrainedOn
from bagwise.privacy import Certificate
from bagwise.privacy.certificate import NOT_PRIVATE
from bagwise.privacy.private_bounds import PrivateBounds
from bagwise.release.release import Release
from bagwise.release.verify import Verification

_NOISE_AND_BOUNDS = ("whether the noise was drawn as claimed", "whether the bounds were public")


def verify(path: str | Path, *, strict: bool = False) -> tuple[Verification, Certificate | None]:
    """Check what lies at `path`, by its kind; return what was found, and its certificate.

    Raises a `BagwiseError` at the first fault. `strict` is for releases: see `Release.verify`.
    """
    path = Path(path)
    if path.is_dir():
        release = Release.load(path)
        return release.verify(strict=strict), release.certificate
    plain = read_json(path, error=ReleaseError, what="a file of bagwise")
    kind = str(plain.get("schema", "")).partition("/")[0]
    if kind not in _CHECKS:
        raise ReleaseError(
            f"{path} is neither a release directory nor a model, bounds or evaluation file."
        )
    return _CHECKS[kind](path)


def _verify_model(path: Path) -> tuple[Verification, Certificate | None]:
    model = RowModel.load(path)
    if model.certificate is None:
        return _verify_fitted(model), None
    certificate = model.certificate
    certificate.check()
    hidden = [event.hides for event in certificate.events]
    if hidden.count("model") != 1 or set(hidden) - {"model", "bounds"}:
        raise ModelFileError("the certificate does not account for a released model.")
    told = model.trained_on
    allowed = TrainedOn(n_rows=told.n_rows, dispersion=told.dispersion, converged=told.converged)
    spoken = (model.loss, model.note, model.freedom, model.target, told)
    if spoken != (RELEASED_DIRECTLY, RELEASED_NOTE, math.inf, None, allowed):
        raise ModelFileError("the model says more than one that was released directly can say.")
    checks = (
        "the file has the hash that it names, and its fields agree",
        "the certificate belongs to these coefficients",
        "the certificate's totals follow from its events",
    )
    unchecked = (
        *_NOISE_AND_BOUNDS,
        "whether a feature was computed from the label",
        "whether coefficients and standard errors follow from the statistics that were released",
    )
    return _certified(certificate, model.digest, checks, unchecked, model.trained_on.n_rows)


def _certified(
    certificate: Certificate,
    digest: str,
    checks: tuple[str, ...],
    unchecked: tuple[str, ...],
    n_rows: int | None = None,
) -> tuple[Verification, Certificate | None]:
    found = Verification(
        headline=certificate.headline,
        epsilon=certificate.epsilon,
        delta=certificate.delta,
        checks=checks,
        unchecked=unchecked,
        digest=digest,
        n_rows=n_rows,
    )
    return found, certificate


def _verify_fitted(model: RowModel) -> Verification:
    return Verification(
        headline=model.trained_on.privacy or NOT_PRIVATE,
        epsilon=None,
        delta=None,
        checks=("the file has the hash that it names, and its fields agree",),
        unchecked=(
            "which release the model was fitted to: verify that one",
            "what its note says",
        ),
        digest=model.digest,
        n_rows=model.trained_on.n_rows,
    )


def _verify_bounds(path: Path) -> tuple[Verification, Certificate | None]:
    found = PrivateBounds.load(path)
    found.certificate.check()
    checks = (
        "the file has the hash that it names",
        "both bounds are from the public candidates",
    )
    unchecked = ("whether the bounds were found as claimed",)
    return _certified(found.certificate, found.digest, checks, unchecked)


def _verify_evaluation(path: Path) -> tuple[Verification, Certificate | None]:
    scores = PrivateScores.load(path)
    checks = (
        "the certificate belongs to these scores, and its totals follow from its events",
        "the interval and the noise follow from the certificate",
    )
    digest, n_rows = scores.digest, scores.n_rows
    return _certified(scores.certificate, digest, checks, _NOISE_AND_BOUNDS, n_rows)


_CHECKS: dict[str, Callable[[Path], tuple[Verification, Certificate | None]]] = {
    "bagwise-model": _verify_model,
    "bagwise-bounds": _verify_bounds,
    "bagwise-evaluation": _verify_evaluation,
}
