"""Audits of trained models: the privacy they claim against what attacks measure."""

from .claims import Claim, claim_of
from .labels import LabelAuditReport
from .one_run import OneRunReport, audit_one_run
from .report import AttackFinding, AuditReport
from .runner import audit
from .verification import PrivacyVerification, verify_privacy, verify_release

__all__ = [
    "AttackFinding",
    "AuditReport",
    "Claim",
    "LabelAuditReport",
    "OneRunReport",
    "PrivacyVerification",
    "audit",
    "audit_one_run",
    "claim_of",
    "verify_privacy",
    "verify_release",
]
