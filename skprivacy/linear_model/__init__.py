"""Differentially private linear and logistic regression.

Start with ``functional.py`` (the functional mechanism), whose polynomials stand in
``polynomial.py``. ``perturbation.py`` adds noise to the objective or to its minimiser,
``objective.py`` proves the cost of the former, and ``sufficient.py`` is AdaSSP.
"""

from .adassp import AdaSSPRegressor
from .functional_mechanism import FunctionalMechanismClassifier, FunctionalMechanismRegressor
from .perturbation import ObjectivePerturbationClassifier, OutputPerturbationClassifier
from .polynomial_objective import PolynomialObjective

__all__ = [
    "AdaSSPRegressor",
    "FunctionalMechanismClassifier",
    "FunctionalMechanismRegressor",
    "ObjectivePerturbationClassifier",
    "OutputPerturbationClassifier",
    "PolynomialObjective",
]
