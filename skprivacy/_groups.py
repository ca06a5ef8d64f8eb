"""Whose record is whose: the ``groups`` of a private fit, which then protects groups.

Recognition of identifier columns, such as ``patient_id``, by their names alone.

Nothing here reads a value. ``preprocessing/inferred_facts.py`` looks at values, for the
holder of the data.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ._config import warn_caller
from ._sklearn import num_samples
from ._validation import as_array, check_unmasked, raise_alone
from .exceptions import PrivacyWarning
from .mechanisms import SecureRandom

__all__ = [
    "PARTS",
    "Groups",
    "as_text",
    "ask_whose",
    "check_groups",
    "check_order",
    "identifiers",
    "protected",
    "unit_of",
]

_ONE_OF = {"groups": "group", "parties": "party"}
PARTS = 1 << 20  # into which a group is divided among its records: sums of such shares are exact


@dataclass(frozen=True)
class Groups:
    """The group of each record, such as the patient whose visit it is.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        Number of each record's group, from 0 in order of appearance.
    n : int
        Number of groups.
    unit : str
        What a group is called: the unit of the guarantee.
    names : sequence of shape (n,)
        The values that groups are known by, in the order of their numbers.
    """

    codes: NDArray[np.int64]
    n: int
    unit: str
    names: Any = ()

    def sizes(self) -> NDArray[np.int64]:
        """Return how many records each group has, of shape (n,)."""
        return np.bincount(self.codes, minlength=self.n)

    def shares(self) -> NDArray[np.float64]:
        """Return 1 / size of its group for each record: those of a group add up to 1.

        **Guarantees.** A sum of records' contributions with these weights is a sum over groups, to
        which a group adds a convex combination of its records' contributions: it lies in every
        convex set that they lie in, such as a ball, so a sensitivity that holds for one record
        holds for a group. Sums of floats may exceed it by their rounding.
        """
        return 1.0 / self.sizes()[self.codes]

    def exact_shares(self) -> NDArray[np.float64]:
        """Return the shares as multiples of 2**-20, rounded down.

        **Guarantees.** As for :meth:`shares`, with 0 among what is combined: those of a group add
        up to 1 at most, and sums below 2**33 are exact in any order. That of a record which is a
        group by itself is 1.

        **Edge cases.** The records of a group of more than 2**20 count for nothing.
        """
        parts: NDArray[np.float64] = (PARTS // self.sizes())[self.codes] / PARTS
        return parts

    def at_most(self, k: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return the positions of at most ``k`` records of each group, drawn once, in order.

        **Guarantees.** Which records of a group are drawn depends on the number of its records and
        on chance alone.
        """
        sizes = self.sizes()
        if sizes.max(initial=0) <= k:  # all are drawn, whatever chance says
            return np.arange(len(self.codes))
        keys = np.frombuffer(random.random_bytes(8 * len(self.codes)), np.uint64)
        order = np.lexsort((keys, self.codes))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[rank < k])

    def named(self, rows: NDArray[np.intp]) -> pd.Series[Any]:
        """Return the groups of some records in the form that ``fit`` takes, with their name."""
        return pd.Series(self.codes[rows], name=None if self.unit == "group" else self.unit)

    def of(self, rows: NDArray[np.int64]) -> Groups:
        """Return the groups of some records, all of which have one at least."""
        return Groups(self.codes[rows], self.n, self.unit, self.names)


def check_groups(groups: Any, X: Any, name: str = "groups") -> Groups:
    """Return the group of each record.

    Parameters
    ----------
    groups : array-like of shape (n_samples,)
        Equal values are one group. A Series' name is the unit of the guarantee.
    X : array-like of shape (n_samples, n_features)
    name : {"groups", "parties"}, default="groups"
        What the argument is called, and a group that has no name of its own.

    Returns
    -------
    Groups

    Raises
    ------
    ValueError
        If the shape is wrong, a record belongs to nobody, a group is written in two types, or
        ``X`` and ``groups`` have the same rows in another order, by their indices.
    """
    check_unmasked(groups, name)
    check_order(groups, X, name)
    unit = unit_of(groups, name)
    values = groups if isinstance(groups, pd.Series) else _array(groups, name, num_samples(X))
    if np.ndim(values) != 1:
        raise ValueError(
            f"{name} has shape {np.shape(values)}; expected one value for each record, such as the "
            "column of the patients' numbers."
        )
    _check_length(values, name, num_samples(X))
    try:
        codes, names = pd.factorize(values)  # pandas' code of a missing value is -1
    except TypeError:
        raise_alone(
            ValueError(
                f"{name} holds values that have no hash. Pass numbers or text, such as the column "
                "of the patients' numbers."
            )
        )
    if (codes < 0).any():
        raise ValueError(
            f"{name} has missing values, first at position {int((codes < 0).argmax())}: a record "
            "that belongs to nobody would not be protected. Drop such records, or give each a "
            "value of its own."
        )
    if np.asarray(names).dtype == object and len(set(as_text(names))) < len(names):
        raise ValueError(
            f"{name} has a value both as a number and as text, such as 1 and '1', which a file "
            "that is read in parts may come to: one group would be protected as two. Read the "
            "column as text, for instance by pandas.read_csv(path, dtype={'patient': str})."
        )
    return Groups(codes.astype(np.int64), len(names), unit, names)


def check_order(groups: Any, X: Any, name: str = "groups") -> None:
    """Refuse groups whose rows are those of ``X``, by their indices, in another order.

    Rows go together by position, as everywhere in scikit-learn: records would be taken for those
    of other groups, and nobody's would be protected.
    """
    if not (isinstance(groups, pd.Series) and isinstance(X, (pd.DataFrame, pd.Series))):
        return
    rows, own = X.index, groups.index
    if len(rows) == len(own) and not rows.equals(own) and rows.isin(own).all():
        raise ValueError(
            f"{name} has the index of X in another order, and rows go together by position. Pass "
            f"{name}.loc[X.index], or {name}.to_numpy() if their order is right."
        )


def as_text(names: Any) -> list[str]:
    """Return what groups are called, whichever type a file has been read as."""
    values = np.asarray(names).tolist()
    whole = (int(v) if isinstance(v, float) and v.is_integer() else v for v in values)
    return [str(name) for name in whole]


def protected(groups: Any, X: Any) -> Groups:
    """Return whom a guarantee protects: the groups, or without these each record by itself.

    Parameters and errors are those of :func:`check_groups`, but that ``groups`` may be None.
    """
    if groups is None:
        n = num_samples(X)
        return Groups(np.arange(n), n, "record")
    return check_groups(groups, X)


def unit_of(groups: Any, name: str = "groups") -> str:
    """Return what one of the groups is called: the name of a Series, or "group" or "party"."""
    own = getattr(groups, "name", None)
    if own == "record":
        raise ValueError(
            f"{name} is named 'record', which stands for guarantees of single records. Rename it "
            "after what its values are, such as 'patient'."
        )
    return own if isinstance(own, str) and own else _ONE_OF[name]


def _check_length(values: Any, name: str, n: int) -> None:
    if len(values) != n:
        raise ValueError(f"{name} has {len(values)} values for {n} records. Pass one for each.")


def _array(groups: Any, name: str, n: int) -> NDArray[Any]:
    """Return an array in which numbers stay numbers and text stays text."""
    if isinstance(groups, np.ndarray):
        return groups
    if isinstance(groups, str) or not hasattr(groups, "__len__"):
        raise ValueError(
            f"{name} must have one value for each record; got one {type(groups).__name__}."
        )
    if not hasattr(groups, "__array__"):  # numpy would turn 1 and "1" into one text
        _check_length(groups, name, n)
        array = np.empty(n, object)
        try:
            array[:] = groups
        except (TypeError, ValueError):  # rows, in place of values
            raise_alone(ValueError(f"{name} must have one value for each record."))
        return array
    return as_array(name, groups)


# Names without accents, blanks and capitals. A name is recognised if it is in WHOLE, or if it or
# its last words are WHO + NUMBER ("patient" + "nr") or ID + WHO ("id" + "patient").
_WHOLE = {
    "English": "customer client participant patient person pseudonym respondent subject user "
    "ssn uid pid ptid mrn socialsecuritynumber taxid email emailaddress passport "
    "hospitalnumber hospitalno admissionid encounterid episodeid hadmid stayid visitid",
    "registries": "seqn eid subjid usubjid nhsnumber nino medicareid",
    "German": "patientin proband probandin kunde versicherter kvnr kvnummer matrikel steuerid",
    "French": "nir ipp patiente pseudonyme matricule",
    "Spanish, Portuguese": "paciente dni nie nif nss curp cpf",
    "Italian": "paziente codicefiscale",
    "Dutch, Nordic, Polish": "bsn personnummer personnr fodselsnummer cpr pesel pacjent",
}
_WHO = {
    "English": "account anon applicant beneficiary borrower candidate cardholder case child "
    "citizen client customer device donor driver drivinglicense employee enrollee family guest "
    "household individual insurance insured member medicalrecord mobile national participant "
    "passenger passport pat patient person personal phone policy policyholder pseudo pseudonym "
    "pt pupil record resident respondent student study subj subject subscriber telephone user "
    "visitor voter worker",
    "German": "akten ausweis behandlungs fall haushalts konto krankenversicherten kunden mandanten "
    "matrikel mitarbeiter mitglieds patienten patientinnen personen probanden schuler "
    "sozialversicherungs steuer studenten studien teilnehmer versicherten versicherungs vertrags",
    "French": "adherent assure beneficiaire dossier eleve etudiant foyer individu menage "
    "personne salarie sejour securitesociale",
    "Spanish, Portuguese": "afiliado aluno alumno asegurado cliente empleado estudiante "
    "expediente historiaclinica hogar paciente persona pessoa prontuario segurado usuario",
    "Italian": "assistito cartella cartellaclinica paziente utente",
    "Dutch, Nordic, Polish": "burgerservice klant klienta pacjenta persoons",
}
_NUMBER = (
    "id ids identifier identification uid uuid guid number num no nr key code "
    "identifikator kennung kennzeichen nummer nro schlussel schluessel"
)
_ID = (
    "id identifiant identificador identificativo identifikator codice codigo "
    "numero numerode numerodel numerodela"
)
_AFTER = "anon anonymised anonymized encrypted hash hashed pseudonymised pseudonymized"


def _alternatives(words: str | dict[str, str]) -> str:
    text = words if isinstance(words, str) else " ".join(words.values())
    return "|".join(text.split())


_IS_WHOLE = re.compile(_alternatives(_WHOLE))
_WHO_ALTERNATIVES = _alternatives(_WHO)
_IS_PAIR = re.compile(
    f"({_WHO_ALTERNATIVES})s?({_alternatives(_NUMBER)})|({_alternatives(_ID)})({_WHO_ALTERNATIVES})"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_asked: set[str] = set()


def identifiers(columns: Iterable[Any]) -> list[str]:
    """Return the names of columns that seem to identify people, such as "patient_id".

    Parameters
    ----------
    columns : iterable
        Names; non-string names are ignored.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from skprivacy._groups import identifiers
    >>> identifiers(["age", "Patient ID", "Fallnummer", "num\u00e9ro de patient", "paid", 7])
    ['Patient ID', 'Fallnummer', 'num\u00e9ro de patient']
    """
    return [name for name in columns if isinstance(name, str) and _is_identifier(name)]


def _is_identifier(name: str) -> bool:
    """Return True if the name is known, or ends with a known pair of words."""
    letters = unicodedata.normalize("NFKD", name)
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    words = [word.lower() for word in _WORD.findall(plain)]
    while len(words) > 1 and words[-1] in _AFTER.split():
        words.pop()
    if _IS_WHOLE.fullmatch("".join(words)):
        return True
    return any(_IS_PAIR.fullmatch("".join(words[i:])) for i in range(len(words)))


def ask_whose(columns: Iterable[Any], what: str = "The guarantee") -> None:
    """Warn about identifier columns where no groups were given.

    Warns
    -----
    PrivacyWarning
        If there is one that this process has not asked about. The names of columns are public;
        their values are not looked at.
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
