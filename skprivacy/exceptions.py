"""Warnings and errors of skprivacy."""

__all__ = ["BudgetExceededError", "DatasetNotFoundError", "PrivacyLeakWarning", "PrivacyWarning"]


class PrivacyWarning(UserWarning):
    """A guarantee is weaker than a reader may assume."""


class PrivacyLeakWarning(PrivacyWarning):
    """Something was read off the private data outside any mechanism.

    The guarantee then holds only if what was read is public, and its assumptions say so. Under
    ``skprivacy.set_config(strict=True)``, an error is raised instead.
    """


class BudgetExceededError(ValueError):
    """A release was refused because it would overspend a privacy budget."""


class DatasetNotFoundError(OSError):
    """A data set is missing and cannot be downloaded, or is not the published one."""
