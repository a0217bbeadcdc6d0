"""Attack a release: recompute its certificate, redraw its noise, and guess its labels."""

from bagwise.auditor.label_inference import Attack, LabelInference, infer_labels
from bagwise.auditor.mechanism import MechanismAudit, audit_events
from bagwise.auditor.report import AuditReport, audit

__all__ = [
    "Attack",
    "AuditReport",
    "LabelInference",
    "MechanismAudit",
    "audit",
    "audit_events",
    "infer_labels",
]
