"""Attack what was published: recompute it, redraw its noise, and guess labels from it."""

from bagwise.audit.label_inference import Attack, LabelInference, infer_labels
from bagwise.audit.mechanism import MechanismAudit, audit_events
from bagwise.audit.report import AuditReport, audit_file

__all__ = [
    "Attack",
    "AuditReport",
    "LabelInference",
    "MechanismAudit",
    "audit_events",
    "audit_file",
    "infer_labels",
]
