"""Audits of trained models: the privacy they claim against what attacks measure.

``skprivacy.audit(...)`` calls :func:`audit`: the function and this subpackage share one name.

Files, in reading order:

- ``runner``: audit: check the model, attack it, compare with the claim
- ``predictions``: audit_predictions: tables of probabilities alone
- ``synthetic_records``: audit_synthetic: any generator's records
- ``label_audit``: guarantees that protect labels only
- ``canaries/``: audits of one run by inserted records, tables or gradients
- ``verification/``: verification of a claim by many fits to neighbouring data sets
- ``inspection/``: a fitted model's claim, guarantees and stored records
- ``comparability/``: do members and non-members differ without the model? matched pairs
- ``report/``: findings, and the report as text, JSON and a page
"""

import sys
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import Any

from .canaries.one_run import audit_one_run
from .canaries.synthesizer_audit import audit_synthesizer
from .inspection.claims import claim_of
from .inspection.disclosure import check_disclosure
from .predictions import audit_predictions
from .report.audit_report import AuditReport
from .report.document import About
from .runner import audit
from .synthetic_records import audit_synthetic
from .verification.verify_privacy import verify_privacy, verify_release

__all__ = [
    "About",
    "AuditReport",
    "audit",
    "audit_one_run",
    "audit_predictions",
    "audit_synthesizer",
    "audit_synthetic",
    "check_disclosure",
    "claim_of",
    "verify_privacy",
    "verify_release",
]


class _Callable(ModuleType):
    """A subpackage that has the name of its main function, and can be called as that."""

    def __call__(self, *args: Any, **kwargs: Any) -> AuditReport:
        return audit(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)

    __signature__ = signature(audit)


sys.modules[__name__].__class__ = _Callable
