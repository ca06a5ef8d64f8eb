"""Warnings and errors that are skprivacy's own."""

__all__ = ["BudgetExceededError", "DatasetNotFoundError", "PrivacyLeakWarning", "PrivacyWarning"]


class PrivacyWarning(UserWarning):
    """A guarantee is weaker than a reader may assume."""


class PrivacyLeakWarning(PrivacyWarning):
    """Something was read off the private data outside any mechanism.

    The guarantee then holds only if that something is public, and says so in its assumptions.
    Under ``skprivacy.set_config(strict=True)`` the same situation is an error.
    """


class BudgetExceededError(ValueError):
    """A release was refused because it would overspend a privacy budget."""


class DatasetNotFoundError(OSError):
    """A data set is neither in the data folder nor can it be downloaded."""
