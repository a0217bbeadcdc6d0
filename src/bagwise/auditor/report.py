"""The result of an audit: what was recomputed, redrawn and guessed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from bagwise.auditor.guessing import Advantage
from bagwise.auditor.label_inference import Colour, LabelInference, infer_labels
from bagwise.auditor.mechanism import USUAL_DELTA, MechanismAudit, audit_events
from bagwise.errors import ReleaseError
from bagwise.files.json_files import LARGEST_STATEMENT, read_json
from bagwise.files.records import Record, read_record, to_plain
from bagwise.release.release import Release
from bagwise.verifier import verify

_WORDS: dict[Colour, str] = {
    "red": "labels of single rows can be read from this release.",
    "green": "no attack got beyond what is claimed. That proves nothing; it failed to refute.",
    "amber": "not everything could be tested, or too little of it to tell.",
}


class MechanismAudits(Record, frozen=True):
    """The audits of all mechanisms, and the confidence with which their bounds hold together."""

    confidence: float
    audits: tuple[MechanismAudit, ...]


class AuditReport(Record, frozen=True):
    """The complete result of an audit, as ``bagwise audit --json`` prints it.

    Attributes
    ----------
    colour : {"green", "amber", "red"}
        Red if a claim was refuted or labels can be read; the worst of all parts.
    verdict : str
        The colour in words.
    recomputed : dict or None
        What could be recomputed was, and was in order; None for a mechanism on its own.
    mechanisms : MechanismAudits
    label_inference : LabelInference or None
        None without a table of labels.
    """

    colour: Colour
    verdict: str
    recomputed: dict[str, Any] | None
    mechanisms: MechanismAudits
    label_inference: LabelInference | None

    @classmethod
    def load(cls, path: str | Path, *, digest: str | None) -> Self:
        """Load a printed report; refuse the audit of a release other than the one with `digest`."""
        plain = read_json(Path(path), error=ReleaseError, what="an audit", limit=LARGEST_STATEMENT)
        report = read_record(cls, plain, error=ReleaseError, what=str(path))
        if (report.recomputed or {}).get("digest") != digest:
            raise ReleaseError(
                f"{path} is the audit of another release. Make one of this: bagwise audit DIR "
                "--json"
            )
        return report

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values: one section for each part, for machines and for pages."""
        return to_plain(self)

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        if self.recomputed is not None:
            yield from (f"ok: {check}" for check in self.recomputed["checks"])
            yield self.recomputed["headline"]
        for one in self.mechanisms.audits:
            claimed = "any epsilon" if one.claimed is None else f"epsilon {one.claimed:.3g}"
            shown = f"{claimed}; not tested"
            if one.shown is not None:
                shown = (
                    f"{claimed} at delta {one.delta:g}; at least {one.shown:.3g} was shown in "
                    f"{one.draws} draws (confidence {self.mechanisms.confidence:g}): {one.verdict}"
                )
            yield f"{one.kind}: claims {shown}."
        if (inference := self.label_inference) is None:
            return
        yield (
            f"guesses about single labels, one in each of {inference.bags_used} bags (of "
            f"{inference.bags}); intervals hold together with confidence "
            f"{inference.confidence:g}:"
        )
        for attack in inference.attacks:
            shown = _with_guesses(attack.advantage)
            sure = f"; when sure {_with_guesses(attack.when_sure)}" if attack.when_sure else ""
            limit = f"limit {attack.limit:.2f}"
            yield f"  {attack.colour:5} {attack.name}: advantage {shown}{sure}; {limit}"
        yield inference.note


def _with_guesses(of: Advantage | None) -> str:
    return f"{of}, {of.guesses} guesses" if of else "none (nothing to guess)"


def audit(
    path: str | Path,
    *,
    labels: Any = None,
    draws: int = 200_000,
    trials: int = 100_000,
    confidence: float = 0.95,
    alpha: float = 1e-3,
    seed: int | None = None,
) -> AuditReport:
    """Audit a release directory, or a model or evaluation file.

    Parameters
    ----------
    labels : path or frame, optional
        The table that was released, with its labels: adds the guesses about single labels. For
        releases only.
    draws : int
        From each mechanism.
    trials, confidence, seed
        See `infer_labels`.
    alpha : float
        Chance that any of the bounds on mechanisms is wrong.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> from bagwise import make_release
    >>> table = pa.table({"x": [1.0, 2.0, 3.0, 3.0] * 25, "y": [0.0, 1.0] * 50})
    >>> release = make_release(table, label="y", bounds=(0, 1), epsilon=1.0, bag_size=10)
    >>> with TemporaryDirectory() as folder:
    ...     _ = release.save(Path(folder) / "out")
    ...     audit(Path(folder) / "out", draws=2000).colour
    'green'
    """
    # 1. Recompute, redraw and guess.
    verification, certificate = verify(path)
    promised = None if certificate is None else certificate.delta
    inference = None
    if labels is not None:
        if not Path(path).is_dir():
            raise ReleaseError(f"{path} is not a release: labels are guessed from bags only.")
        inference = infer_labels(
            Release.load(path), labels, trials=trials, confidence=confidence, seed=seed
        )
    audits = audit_events(
        () if certificate is None else certificate.events,
        delta=USUAL_DELTA if promised is None else promised,
        draws=draws,
        alpha=alpha,
    )
    # 2. Say what came of it: the worst of all parts.
    verdicts = {one.verdict for one in audits}
    tested = verification.epsilon is not None and "not tested" not in verdicts
    colour: Colour = "green" if tested else "amber"
    if inference is not None:
        colour = inference.colour
    verdict = _WORDS[colour]
    if "refuted" in verdicts:
        colour, verdict = "red", "a mechanism spends more than it claims."
    return AuditReport(
        colour=colour,
        verdict=verdict,
        recomputed=verification.to_json(),
        mechanisms=MechanismAudits(confidence=1 - alpha, audits=tuple(audits)),
        label_inference=inference,
    )
