"""How private is a trained model: what it claims against what attacks measure."""

from .report import AttackFinding, AuditReport
from .runner import audit

__all__ = ["AttackFinding", "AuditReport", "audit"]
