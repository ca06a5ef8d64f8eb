"""Warnings and errors of skprivacy."""

from typing import Any

__all__ = ["BudgetExceededError", "PrivacyLeakWarning", "PrivacyWarning", "SyntheticTrainingError"]


class PrivacyWarning(UserWarning):
    """A guarantee is weaker than a reader may assume."""


class PrivacyLeakWarning(PrivacyWarning):
    """Something was read off the private data outside any mechanism.

    The guarantee then holds only if what was read is public, and its assumptions say so. Under
    ``skprivacy.set_config(strict=True)``, an error is raised instead.
    """


class BudgetExceededError(ValueError):
    """A release was refused because it would overspend a privacy budget."""


class SyntheticTrainingError(ValueError):
    """Training on synthetic records failed after their release was charged.

    Attributes
    ----------
    synthesizer : estimator
        Fitted, with its guarantee. It draws further records at no further cost.
    """

    synthesizer: Any
