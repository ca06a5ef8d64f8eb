"""Differentially private linear and logistic regression.

Files, in reading order:

- ``base``: public bounds, polynomial losses and their sensitivity, exact second moments
- ``functional_mechanism``: FunctionalMechanismRegressor and FunctionalMechanismClassifier
- ``adassp``: AdaSSPRegressor
- ``perturbation``: objective and output perturbation of logistic regression
- ``logistic_regression``: predictions, and a Newton solver to the tolerance of the privacy proof
"""

from .adassp import AdaSSPRegressor
from .functional_mechanism import FunctionalMechanismClassifier, FunctionalMechanismRegressor
from .perturbation import ObjectivePerturbationClassifier, OutputPerturbationClassifier

__all__ = [
    "AdaSSPRegressor",
    "FunctionalMechanismClassifier",
    "FunctionalMechanismRegressor",
    "ObjectivePerturbationClassifier",
    "OutputPerturbationClassifier",
]
