"""Differentially private federated learning (DP-FedSGD and DP-FedAvg) of a linear classifier.

Start with ``classifier.py``. ``plan.py`` holds the arithmetic of a round, ``_parties.py`` runs it.

Files, in reading order:

- ``classifier``: DPFederatedClassifier; "auto" settings
- ``plan``: FederatedPlan; gradients that depend on one record alone
- ``parties``: whose records are whose; the rounds
"""

from .classifier import DPFederatedClassifier
from .plan import FederatedPlan

__all__ = ["DPFederatedClassifier", "FederatedPlan"]
