"""Differentially private federated learning (DP-FedSGD and DP-FedAvg) of a linear classifier.

Files, in reading order:

- ``classifier``: DPFederatedClassifier, and its "auto" settings
- ``plan``: FederatedPlan: the arithmetic of a round; the rounds, simulated
"""

from .classifier import DPFederatedClassifier
from .plan import FederatedPlan

__all__ = ["DPFederatedClassifier", "FederatedPlan"]
