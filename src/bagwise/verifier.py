"""Verification of everything that bagwise writes: releases, models and evaluations."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bagwise.errors import ModelFileError, ReleaseError, SignatureError
from bagwise.files.json_files import read_json
from bagwise.glm.statistic import RELEASED_NOTE
from bagwise.ledger import Ledger
from bagwise.ledger.filters import Cost, PrivacyFilter
from bagwise.models.cells import TablesModel
from bagwise.models.model import LARGEST, TrainedOn
from bagwise.models.row_model import RELEASED_DIRECTLY, RowModel
from bagwise.models.trees import TreeModel
from bagwise.privacy import Certificate
from bagwise.privacy.accounting import epsilon_of_releases
from bagwise.privacy.certificate import NOT_PRIVATE
from bagwise.privacy.curves import MEANINGLESS_EPSILON
from bagwise.privacy.mechanisms import Mechanism
from bagwise.release.files import MANIFEST, SIGNATURE
from bagwise.release.release import Release
from bagwise.release.verify import Verification
from bagwise.scoring.privately import PrivateScores

_NOISE_AND_BOUNDS = ("whether the noise was drawn as claimed", "whether the bounds were public")


def verify(
    path: str | Path, *, strict: bool = False, key: str | Path | None = None
) -> tuple[Verification, Certificate | None]:
    """Verify the release, model or evaluation at `path`; return the result and the certificate.

    Raises a `BagwiseError` at the first fault. `strict` is for releases (see `Release.verify`).
    With `key`, the file of a public key (Ed25519), a release must be signed with that key (extra
    ``sign``).
    """
    path = Path(path)
    if path.is_dir():
        release = Release.load(path, key=key)
        verification = release.verify(strict=strict)
        if key is not None:
            said = "the owner of the key has signed the manifest, which has the hash of every file"
            checks = (said, *verification.checks)
            verification = dataclasses.replace(verification, checks=checks, signed=True)
        elif (path / SIGNATURE).exists():
            whose = f"whose signature {SIGNATURE} is, without a key (--key)"
            unchecked = (*verification.unchecked, whose)
            verification = dataclasses.replace(verification, unchecked=unchecked)
        return verification, release.certificate
    if key is not None:
        raise SignatureError(f"{path} is not a release directory; only those are signed.")
    plain = read_json(path, error=ReleaseError, what="a file of bagwise", limit=LARGEST)
    kind = str(plain.get("schema", "")).partition("/")[0]
    if kind not in _CHECKS:
        raise ReleaseError(f"{path} is neither a release directory nor a model or evaluation file.")
    return _CHECKS[kind](path)


def _verify_model(path: Path) -> tuple[Verification, Certificate | None]:
    model = RowModel.load(path)
    if model.certificate is None:
        return _verify_fitted(model)
    certificate = model.certificate
    certificate.check()
    hidden = [event.hides for event in certificate.events]
    if hidden.count("model") != 1 or set(hidden) - {"model", "bounds", "range"}:
        raise ModelFileError("the certificate does not account for a released model.")
    made = model.trained_on
    allowed = TrainedOn(n_rows=made.n_rows, dispersion=made.dispersion, converged=made.converged)
    spoken = (model.loss, model.note, model.freedom, model.target, made)
    if spoken != (RELEASED_DIRECTLY, RELEASED_NOTE, math.inf, None, allowed):
        raise ModelFileError("the model contains more than a directly released model can.")
    checks = (
        "the file has the hash that it names, and its fields agree",
        "the certificate belongs to these coefficients",
        "the certificate's totals follow from its events",
    )
    certificate.check_rows(made.n_rows)
    unchecked = (
        *_NOISE_AND_BOUNDS,
        "whether a feature was computed from the label",
        "whether coefficients and standard errors follow from the statistics that were released",
    )
    return _verified(model.digest, made.n_rows, checks, unchecked, certificate)


def _verify_fitted(
    model: RowModel | TreeModel | TablesModel,
) -> tuple[Verification, Certificate | None]:
    made, note = model.trained_on, ["what its note says"] if isinstance(model, RowModel) else []
    checks = ("the file has the hash that it names, and its fields agree",)
    made_from = "which release the model was fitted to: verify that one"
    if isinstance(model, TablesModel):
        made_from = "how the label sums were made"
    unchecked = (made_from, *note)
    return _verified(model.digest, made.n_rows, checks, unchecked, headline=model.promise)


def _verified(
    digest: str,
    n_rows: int,
    checks: tuple[str, ...],
    unchecked: tuple[str, ...],
    certificate: Certificate | None = None,
    *,
    headline: str = NOT_PRIVATE,
) -> tuple[Verification, Certificate | None]:
    verification = Verification(
        headline=certificate.headline if certificate else headline,
        epsilon=certificate.epsilon if certificate else None,
        delta=certificate.delta if certificate else None,
        checks=checks,
        unchecked=unchecked,
        digest=digest,
        n_rows=n_rows,
    )
    return verification, certificate


def _verify_evaluation(path: Path) -> tuple[Verification, Certificate | None]:
    scores = PrivateScores.load(path)
    scores.certificate.check_rows(scores.n_rows)
    checks = (
        "the certificate belongs to these scores, and its totals follow from its events",
        "the interval and the noise follow from the certificate",
        "the noise allows for the least that the rows of a unit can lose",
    )
    unchecked = (
        *_NOISE_AND_BOUNDS,
        "which model and which rows the loss is of, and so whether the noise allows for all that a "
        "unit can lose",
        *([] if scores.certificate.unit is None else ["how many rows a unit has"]),
    )
    return _verified(scores.digest, scores.n_rows, checks, unchecked, scores.certificate)


_CHECKS: dict[str, Callable[[Path], tuple[Verification, Certificate | None]]] = {
    "bagwise-model": _verify_model,
    "bagwise-trees": lambda path: _verify_fitted(TreeModel.load(path)),
    "bagwise-tables": lambda path: _verify_fitted(TablesModel.load(path)),
    "bagwise-evaluation": _verify_evaluation,
}


@dataclass(frozen=True)
class Certified:
    """A verified file and its certificate."""

    path: Path
    digest: str | None
    certificate: Certificate


@dataclass(frozen=True)
class Spending:
    """The total that files about one data set have spent.

    Attributes
    ----------
    dataset : str or None
        The name in their certificates, if any.
    paths : tuple of Path
        The files, without copies.
    epsilon : float
        At `delta`, if all parameters were fixed in advance; infinite if one file is NOT PRIVATE.
    filtered : float
        At `delta`, no matter how later requests were chosen.
    """

    dataset: str | None
    paths: tuple[Path, ...]
    delta: float
    epsilon: float
    filtered: float

    def summary(self) -> dict[str, str]:
        """Return the facts in words."""
        files = f"{len(self.paths)}, each verified"
        if math.isinf(self.filtered):
            return {"spent": "without limit: something is NOT PRIVATE", "files": files}
        return {
            "spent": f"epsilon {self.filtered:.4g} at delta {self.delta:g}",
            "if fixed in advance": f"epsilon {self.epsilon:.4g}",
            "files": files,
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values; infinity becomes null."""
        known = math.isfinite(self.filtered)
        return {
            "dataset": self.dataset,
            "paths": [str(path) for path in self.paths],
            "delta": self.delta,
            "epsilon": self.epsilon if known else None,
            "filtered": self.filtered if known else None,
        }


def find_certified(places: Iterable[str | Path]) -> list[Certified]:
    """Verify files and everything in directories; return those with a certificate.

    Models fitted to a release have no certificate and cost nothing.
    """
    paths: list[Path] = []
    for place in map(Path, places):
        if not place.is_dir() or (place / MANIFEST).exists():
            paths.append(place)
            continue
        inside = sorted(path for path in place.rglob("*") if not path.name.startswith("."))
        releases = {path.parent for path in inside if path.name == MANIFEST}
        files = [path for path in inside if path.suffix == ".json" and _is_ours(path)]
        paths += [*sorted(releases), *(path for path in files if path.parent not in releases)]
    checked = [(path, *verify(path)) for path in paths]
    return [
        Certified(path, verification.digest, certificate)
        for path, verification, certificate in checked
        if certificate is not None
    ]


def _is_ours(path: Path) -> bool:
    try:
        plain = read_json(path, error=ReleaseError, what="a file of bagwise")
    except (ReleaseError, OSError):
        return False
    return str(plain.get("schema", "")).partition("/")[0] in _CHECKS


@dataclass(frozen=True)
class _Act:
    """One charge: its delta, its events, and its file with copies."""

    delta: float | None
    events: tuple[Mechanism, ...]
    files: list[Certified] = field(default_factory=list)


def add_up(
    files: Iterable[Certified], *, delta: float | None = None, ledger: Ledger | None = None
) -> list[Spending]:
    """Add up what files have spent, separately for each data set.

    Parameters
    ----------
    files : iterable of Certified
        Copies count once: the same id and the same digest.
    delta : float, optional
        Default: the largest delta in the certificates.
    ledger : Ledger, optional
        Its charges count as they were charged.

    Guarantee
    ---------
    An upper bound if all files are about the same labels.
    """
    # 1. Who was charged once, by data set.
    groups: dict[str | None, dict[str, _Act]] = {}
    for file in files:
        certificate = file.certificate
        mark, events, promised = certificate.mark, certificate.events, certificate.delta
        acts = groups.setdefault(None if mark is None else mark.dataset, {})
        name = str(file.digest) if mark is None else mark.id
        if ledger is not None and mark is not None and (paid := ledger.act(mark.id, events)):
            acts.setdefault(name, _Act(promised, paid.mechanisms))
        if name in acts and acts[name].files and acts[name].files[0].digest != file.digest:
            name = f"{name} {file.digest}"  # noise was drawn twice under one id
        acts.setdefault(name, _Act(promised, events)).files.append(file)
    # 2. What that comes to.
    spendings = []
    for dataset, named in groups.items():
        charged = list(named.values())
        at = max((act.delta or 0.0) for act in charged) if delta is None else delta
        epsilon = filtered = math.inf
        if all(act.delta is not None for act in charged):
            epsilon = epsilon_of_releases([act.events for act in charged], at)
            # The order of a filter depends on its budget; here the budget is the epsilon spent.
            budget = PrivacyFilter(min(max(epsilon, 1e-3), MEANINGLESS_EPSILON), at)
            filtered = budget.total([Cost.of(act.events, order=budget.order) for act in charged])
        paths = tuple(file.path for act in charged for file in act.files[:1])
        spendings.append(Spending(dataset, paths, at, epsilon, filtered))
    return spendings


def uncharged(files: Iterable[Certified], ledger: Ledger) -> list[Certified]:
    """Return the files that were not charged to a ledger, or for less than they spent.

    One charge covers one file and its copies.
    """
    strangers, paid = list[Certified](), dict[str, str | None]()
    for file in files:
        mark = file.certificate.mark
        charged = mark is not None and ledger.act(mark.id, file.certificate.events) is not None
        if not charged or mark is None or paid.setdefault(mark.id, file.digest) != file.digest:
            strangers.append(file)
    return strangers


def spent_at_worst(strangers: Iterable[Certified], ledger: Ledger) -> float:
    """Return the epsilon of a ledger including files that were not charged to it.

    Files do not show whether they are about the same labels, so all of them count. The result is
    infinite if one has no guarantee.
    """
    certificates = [file.certificate for file in strangers]
    if not all(certificate.is_private for certificate in certificates):
        return math.inf
    return ledger.total_with([certificate.events for certificate in certificates])
