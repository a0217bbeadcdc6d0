"""The file that ``bagwise audit --json`` prints, read back for a page."""

from pathlib import Path
from typing import Any, Literal

from bagwise.errors import ReleaseError
from bagwise.files.json_files import LARGEST_STATEMENT, read_json
from bagwise.files.records import Record, read_record

Colour = Literal["green", "amber", "red"]


class AuditedMechanism(Record, frozen=True):
    """What `audit.MechanismAudit` says."""

    kind: str
    hides: str
    claimed: float | None
    delta: float
    shown: float | None
    verdict: Literal["refuted", "not refuted", "not tested"]
    draws: int


class AuditedMechanisms(Record, frozen=True):
    """All of them, and with which confidence their bounds hold together."""

    confidence: float
    audits: tuple[AuditedMechanism, ...]


class Guesses(Record, frozen=True):
    """What `audit.Advantage` says."""

    estimate: float
    low: float
    high: float
    guesses: int


class Attacker(Record, frozen=True):
    """What `audit.Attack` says."""

    name: str
    advantage: Guesses | None
    when_sure: Guesses | None
    limit: float
    colour: Colour


class GuessedLabels(Record, frozen=True):
    """What `audit.LabelInference` says: it depends on the labels."""

    colour: Colour
    confidence: float
    bags: int
    bags_used: int
    note: str
    attacks: tuple[Attacker, ...]


class AuditFile(Record, frozen=True):
    """All that an audit found."""

    colour: Colour
    verdict: str
    recomputed: dict[str, Any] | None
    mechanisms: AuditedMechanisms
    label_inference: GuessedLabels | None


def read_audit(path: str | Path, *, digest: str | None) -> AuditFile:
    """Read an audit; refuse that of another release, which `digest` tells."""
    content = read_json(Path(path), error=ReleaseError, what="an audit", limit=LARGEST_STATEMENT)
    found = read_record(AuditFile, content, error=ReleaseError, what=str(path))
    about = None if found.recomputed is None else found.recomputed.get("digest")
    if about != digest:
        raise ReleaseError(
            f"{path} is the audit of another release. Make one of this: bagwise audit DIR --json"
        )
    return found
