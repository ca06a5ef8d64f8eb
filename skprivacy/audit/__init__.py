"""Audits of trained models: the privacy they claim against what attacks measure."""

from .claims import Claim, claim_of
from .finding import AttackFinding
from .labels import LabelAuditReport
from .one_run import OneRunReport, audit_one_run
from .predictions import audit_predictions
from .report import AuditReport
from .runner import audit

__all__ = [
    "AttackFinding",
    "AuditReport",
    "Claim",
    "LabelAuditReport",
    "OneRunReport",
    "audit",
    "audit_one_run",
    "audit_predictions",
    "claim_of",
]
