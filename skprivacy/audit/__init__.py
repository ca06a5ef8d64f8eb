"""Audits of trained models: the privacy they claim against what attacks measure."""

from .claims import Claim, claim_of
from .labels import LabelAuditReport
from .report import AttackFinding, AuditReport
from .runner import audit

__all__ = ["AttackFinding", "AuditReport", "Claim", "LabelAuditReport", "audit", "claim_of"]
