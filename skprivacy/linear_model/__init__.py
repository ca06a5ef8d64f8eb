"""Differentially private linear and logistic regression.

Start with ``functional.py`` (the functional mechanism), whose polynomials stand in
``polynomial.py``. ``perturbation.py`` adds noise to the objective or to its minimiser,
``objective.py`` proves the cost of the former, and ``sufficient.py`` is AdaSSP.

Files, in reading order:

- ``base``: bounds, unit ball, scores
- ``functional_mechanism``: FunctionalMechanismRegressor, -Classifier
- ``polynomial_objective``: PolynomialObjective, its release and its minimiser
- ``perturbation``: objective and output perturbation: mechanism and classifiers
- ``logistic_solver``: regularised logistic loss to a proved gradient norm
- ``adassp``: AdaSSPRegressor
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
