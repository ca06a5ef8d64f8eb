"""Columns whose names say that they tell whose record it is. Nothing here looks at a value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ._config import warn_caller
from .exceptions import PrivacyWarning

__all__ = ["ask_whose", "identifiers"]

_WHO = (
    "account", "applicant", "borrower", "cardholder", "child", "citizen", "client", "customer",
    "device", "donor", "driver", "employee", "family", "guest", "household", "individual",
    "insured", "member", "participant", "passenger", "patient", "person", "policyholder", "pupil",
    "resident", "respondent", "student", "subject", "subscriber", "user", "visitor", "worker",
)  # fmt: skip
_WHICH = ("id", "ids", "identifier", "uuid", "guid", "number", "num", "no", "nr", "key", "code")
_IS_ONE = re.compile(f"({'|'.join(_WHO)})s?({'|'.join(_WHICH)})")
_asked: set[str] = set()
_ALONE = ("mrn", "nhsnumber", "nino", "ssn", "socialsecuritynumber", "taxid", "uid")


def identifiers(columns: Iterable[Any]) -> list[str]:
    """Return the names of columns that seem to say whose record it is, such as "patient_id".

    Parameters
    ----------
    columns : iterable
        Names; what is no text is passed over.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from skprivacy._identifiers import identifiers
    >>> identifiers(["age", "Patient ID", "customerNo", "userland", "MRN", 7])
    ['Patient ID', 'customerNo', 'MRN']
    """
    return [name for name in columns if isinstance(name, str) and _is_identifier(name)]


def _is_identifier(name: str) -> bool:
    plain = re.sub("[^a-z0-9]", "", name.lower())
    return plain in _ALONE or _IS_ONE.fullmatch(plain) is not None


def ask_whose(columns: Iterable[Any], what: str = "The guarantee") -> None:
    """Ask about columns that seem to say whose record it is, where no groups were given.

    Warns
    -----
    PrivacyWarning
        If there is one that this process has not asked about. The names of columns are public; their values are not looked at.
    """
    found = [name for name in identifiers(columns) if name not in _asked]
    if found:
        _asked.update(found)
        warn_caller(
            f"X has the column {found[0]!r}, and no groups were given. {what} is about single "
            "records: can anybody have several? Then pass that column as groups= instead of among "
            "the features, and everybody is protected with all their records. If nobody can, drop "
            "or rename it.",
            PrivacyWarning,
        )
