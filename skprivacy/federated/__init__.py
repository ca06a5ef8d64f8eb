"""Private training over parties that keep their records."""

from .classifier import DPFederatedClassifier
from .plan import FederatedPlan

__all__ = ["DPFederatedClassifier", "FederatedPlan"]
