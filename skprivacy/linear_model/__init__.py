"""Linear models with proved privacy: the functional mechanism and its alternatives."""

from .functional import FunctionalMechanismClassifier, FunctionalMechanismRegressor
from .perturbation import ObjectivePerturbationClassifier, OutputPerturbationClassifier
from .polynomial import PolynomialObjective
from .sufficient import AdaSSPRegressor

__all__ = [
    "AdaSSPRegressor",
    "FunctionalMechanismClassifier",
    "FunctionalMechanismRegressor",
    "ObjectivePerturbationClassifier",
    "OutputPerturbationClassifier",
    "PolynomialObjective",
]
