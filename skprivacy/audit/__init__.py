"""Audits of trained models: the privacy they claim against what attacks measure."""

from ._exposure import GroupExposure
from .claims import Claim, claim_of
from .disclosure import DisclosureCheck, DisclosureReport, check_disclosure
from .finding import AttackFinding
from .labels import LabelAuditReport
from .one_run import OneRunReport, audit_one_run
from .report import AuditReport
from .runner import audit

__all__ = [
    "AttackFinding",
    "AuditReport",
    "Claim",
    "DisclosureCheck",
    "DisclosureReport",
    "GroupExposure",
    "LabelAuditReport",
    "OneRunReport",
    "audit",
    "audit_one_run",
    "check_disclosure",
    "claim_of",
]
