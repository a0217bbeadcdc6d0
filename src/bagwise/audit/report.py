"""One audit of a file or a release: what was recomputed, redrawn and guessed, as data."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagwise.audit.guessing import Advantage
from bagwise.audit.label_inference import NOTE, Colour, LabelInference, infer_labels
from bagwise.audit.mechanism import USUAL_DELTA, MechanismAudit, audit_events
from bagwise.errors import ReleaseError
from bagwise.release.release import Release
from bagwise.release.verify import Verification
from bagwise.verifier import verify


@dataclass(frozen=True)
class AuditReport:
    """Everything that an audit found.

    Attributes
    ----------
    verification : Verification or None
        What could be recomputed was, and was in order; None for a mechanism on its own.
    mechanisms : tuple of MechanismAudit
    inference : LabelInference or None
        None without a table of labels.
    alpha : float
        Chance that any of the bounds on mechanisms is wrong.
    """

    verification: Verification | None
    mechanisms: tuple[MechanismAudit, ...]
    inference: LabelInference | None
    alpha: float

    @property
    def colour(self) -> Colour:
        """Red if a claim was refuted or labels can be read; the worst of all parts."""
        if any(audit.verdict == "refuted" for audit in self.mechanisms):
            return "red"
        if self.inference is not None:
            return self.inference.colour
        untested = any(audit.verdict == "not tested" for audit in self.mechanisms)
        private = self.verification is None or self.verification.epsilon is not None
        return "green" if private and not untested else "amber"

    @property
    def verdict(self) -> str:
        """The colour in words."""
        if any(audit.verdict == "refuted" for audit in self.mechanisms):
            return "a mechanism spends more than it claims."
        if self.colour == "red":
            return "labels of single rows can be read from this release."
        if self.colour == "green":
            return "no attack got beyond what is claimed. That proves nothing; it failed to refute."
        return "not everything could be tested, or too little of it to tell."

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values: one section for each part, for machines and for pages."""
        return {
            "colour": self.colour,
            "verdict": self.verdict,
            "recomputed": None if self.verification is None else self.verification.to_json(),
            "mechanisms": {
                "confidence": 1 - self.alpha,
                "audits": [audit.to_json() for audit in self.mechanisms],
            },
            "label_inference": None if self.inference is None else self.inference.to_json(),
        }

    def lines(self) -> Iterator[str]:
        """Yield it as text."""
        if self.verification is not None:
            yield from (f"ok: {check}" for check in self.verification.checks)
            yield self.verification.headline
        yield from (_mechanism_line(audit, 1 - self.alpha) for audit in self.mechanisms)
        if self.inference is not None:
            inference = self.inference
            yield (
                f"guesses about single labels, one in each of {inference.bags_used} bags (of "
                f"{inference.bags}); intervals hold together with confidence "
                f"{inference.confidence:g}:"
            )
            for attack in inference.attacks:
                sure = f"; when sure {_interval(attack.when_sure)}" if attack.when_sure else ""
                yield (
                    f"  {attack.colour:5} {attack.name}: advantage {_interval(attack.advantage)}"
                    f"{sure}; limit {attack.limit:.2f}"
                )
            yield NOTE


def _mechanism_line(audit: MechanismAudit, confidence: float) -> str:
    if audit.shown is None:
        return f"{audit.kind}: claims epsilon {audit.claimed:.3g}; not tested."
    return (
        f"{audit.kind}: claims epsilon {audit.claimed:.3g} at delta {audit.delta:g}; at least "
        f"{audit.shown:.3g} was shown in {audit.draws} draws (confidence {confidence:g}): "
        f"{audit.verdict}."
    )


def _interval(of: Advantage | None) -> str:
    if of is None:
        return "none (nothing to guess)"
    return f"{of.estimate:.2f} ({of.low:.2f} to {of.high:.2f}, {of.guesses} guesses)"


def audit_file(
    path: str | Path,
    *,
    labels: Any = None,
    draws: int = 200_000,
    trials: int = 100_000,
    confidence: float = 0.95,
    alpha: float = 1e-3,
    seed: int | None = None,
) -> AuditReport:
    """Audit a release directory, or a model, bounds or evaluation file.

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
    """
    verification, certificate = verify(path)
    delta = USUAL_DELTA
    if certificate is not None and certificate.is_private:
        delta = certificate.delta or 0.0
    events = () if certificate is None else certificate.events
    inference = None
    if labels is not None:
        if not Path(path).is_dir():
            raise ReleaseError(f"{path} is not a release: labels are guessed from bags only.")
        inference = infer_labels(
            Release.load(path), labels, trials=trials, confidence=confidence, seed=seed
        )
    audits = audit_events(events, delta=delta, draws=draws, alpha=alpha)
    return AuditReport(verification, tuple(audits), inference, alpha)
