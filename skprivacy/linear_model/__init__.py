"""Linear models with proved privacy: the functional mechanism and its rivals."""

from .functional import FunctionalMechanismClassifier, FunctionalMechanismRegressor
from .polynomial import PolynomialObjective

__all__ = [
    "FunctionalMechanismClassifier",
    "FunctionalMechanismRegressor",
    "PolynomialObjective",
]
