"""Differentially private linear and logistic regression.

Files, in reading order:

- ``functional_mechanism``: FunctionalMechanismRegressor and FunctionalMechanismClassifier
- ``polynomial_objective``: polynomial losses, their sensitivity and their release
- ``perturbation``: objective and output perturbation of logistic regression
- ``logistic_solver``: Newton solver to the tolerance of the privacy proof
- ``adassp``: AdaSSPRegressor
- ``base``: public bounds, exact second moments and their fit, prediction
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
