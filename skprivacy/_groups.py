"""Groups of records, such as a patient's visits, and recognition of identifier columns by name.

A fit with ``groups`` protects all records of a group together: see :class:`Groups` for the weights
that bound a group's contribution. :func:`find_identifiers` recognises columns such as
``patient_id`` from their names, which are public; it reads no value.
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
from ._validation import as_array, check_unmasked, num_samples, raise_alone
from .exceptions import PrivacyWarning
from .mechanisms import SecureRandom

_DEFAULT_UNITS = {"groups": "group", "parties": "party"}
SHARES_PER_GROUP = 1 << 20  # a group's weight has 2**20 equal shares, whose sums are exact
SHARE_GRID = 2.0**-24  # of a record's share of a number in [-1, 1]: sums of 2**29 groups are exact


@dataclass(frozen=True)
class Groups:
    """The group of each record, such as the patient of each visit."""

    codes: NDArray[np.int64]  # of each record's group, from 0 in order of appearance
    n: int  # number of groups
    unit: str  # of the guarantee: the name of a group, such as "patient"
    names: Any = ()  # original values of the groups, in the order of their codes

    def sizes(self) -> NDArray[np.int64]:
        """Return the number of records in each group, of shape (n,)."""
        return np.bincount(self.codes, minlength=self.n)

    def shares(self) -> NDArray[np.float64]:
        """Return 1 / size of its group for each record; the shares of a group add up to 1.

        **Guarantees.** With these weights, a group adds a convex combination of its records'
        contributions to a sum. It lies in every convex set, such as a ball, that contains them, so
        a sensitivity proved for one record holds for a group. Floating-point sums may exceed it by
        their rounding.
        """
        return 1.0 / self.sizes()[self.codes]

    def exact_shares(self) -> NDArray[np.float64]:
        """Return the shares as multiples of 2**-20, rounded down.

        **Guarantees.** As for :meth:`shares`, with 0 added to the convex combination: the shares of
        a group add up to at most 1, and sums below 2**33 are exact in any order. A group of one
        record has share 1.

        **Edge cases.** In a group of more than 2**20 records, every share is 0.
        """
        return self.exact_shares_of(self.sizes()[self.codes])

    @staticmethod
    def exact_shares_of(sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the exact shares of records by the sizes of their groups; 0 without a group."""
        parts = np.where(sizes > 0, SHARES_PER_GROUP // np.maximum(sizes, 1), 0)
        return np.asarray(parts / SHARES_PER_GROUP)

    def at_most(self, k: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return the positions of at most ``k`` records of each group, drawn once, in order.

        **Guarantees.** The draw depends only on the group's size and on random numbers.
        """
        sizes = self.sizes()
        if sizes.max(initial=0) <= k:  # all are drawn
            return np.arange(len(self.codes))
        keys = np.frombuffer(random.random_bytes(8 * len(self.codes)), np.uint64)
        order = np.lexsort((keys, self.codes))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[rank < k])

    def to_series(self, rows: NDArray[np.intp]) -> pd.Series[Any]:
        """Return the groups of some rows as a named Series, as ``fit`` takes them."""
        return pd.Series(self.codes[rows], name=None if self.unit == "group" else self.unit)


def check_groups(groups: Any, X: Any, name: str = "groups") -> Groups:
    """Return the group of each record; ValueError if a record would not be protected."""
    check_unmasked(groups, name)
    check_order(groups, X, name)
    unit = group_unit(groups, name)
    values = (
        groups if isinstance(groups, pd.Series) else _as_group_array(groups, name, num_samples(X))
    )
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
            "without a group would not be protected. Drop such records, or number them as "
            "separate groups."
        )
    if np.asarray(names).dtype == object and len(set(group_labels(names))) < len(names):
        raise ValueError(
            f"{name} has a value both as a number and as text, such as 1 and '1': one group "
            "would be protected as two. Files read in chunks may give both; read the column as "
            "text, for instance by pandas.read_csv(path, dtype={'patient': str})."
        )
    return Groups(codes.astype(np.int64), len(names), unit, names)


def check_order(groups: Any, X: Any, name: str = "groups") -> None:
    """Refuse groups with the index of ``X`` in another order, as rows are matched by position."""
    if not (isinstance(groups, pd.Series) and isinstance(X, (pd.DataFrame, pd.Series))):
        return
    rows, own = X.index, groups.index
    if len(rows) == len(own) and not rows.equals(own) and rows.isin(own).all():
        raise ValueError(
            f"{name} has the index of X in another order, and rows go together by position. Pass "
            f"{name}.loc[X.index], or {name}.to_numpy() if their order is right."
        )


def group_labels(names: Any) -> list[str]:
    """Return the names of groups as text, equal for integers read as floats or as integers."""
    values = np.asarray(names).tolist()
    whole = (int(v) if isinstance(v, float) and v.is_integer() else v for v in values)
    return [str(name) for name in whole]


def group_unit(groups: Any, name: str = "groups") -> str:
    """Return the unit of a guarantee: the name of a Series, or else "group" or "party"."""
    own = getattr(groups, "name", None)
    if own == "record":
        raise ValueError(
            f"{name} is named 'record', which is the unit of guarantees for single records. Give "
            "it the name of its values, such as 'patient'."
        )
    return own if isinstance(own, str) and own else _DEFAULT_UNITS[name]


def _check_length(values: Any, name: str, n: int) -> None:
    if len(values) != n:
        raise ValueError(f"{name} has {len(values)} values for {n} records. Pass one for each.")


def _as_group_array(groups: Any, name: str, n: int) -> NDArray[Any]:
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


# Words without accents, blanks and capitals. A column is recognised if its name is a whole name, or
# ends with a person word and a number word ("patient" + "nr"), or the reverse ("id" + "patient").
_WHOLE_NAMES = {
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
_PERSON_WORDS = {
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
_NUMBER_WORDS = (
    "id ids identifier identification uid uuid guid number num no nr key code "
    "identifikator kennung kennzeichen nummer nro schlussel schluessel"
)
_ID_WORDS = (
    "id identifiant identificador identificativo identifikator codice codigo "
    "numero numerode numerodel numerodela"
)
_IGNORED_ENDINGS = "anon anonymised anonymized encrypted hash hashed pseudonymised pseudonymized"


def _alternatives(words: str | dict[str, str]) -> str:
    text = words if isinstance(words, str) else " ".join(words.values())
    return "|".join(text.split())


_IS_WHOLE = re.compile(_alternatives(_WHOLE_NAMES))
_WHO_ALTERNATIVES = _alternatives(_PERSON_WORDS)
_IS_PAIR = re.compile(
    f"({_WHO_ALTERNATIVES})s?({_alternatives(_NUMBER_WORDS)})|({_alternatives(_ID_WORDS)})({_WHO_ALTERNATIVES})"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_warned_names: set[str] = set()


def find_identifiers(columns: Iterable[Any]) -> list[str]:
    """Return the column names that look like identifiers; non-string names are ignored.

    >>> from skprivacy._groups import find_identifiers
    >>> find_identifiers(["age", "Patient ID", "Fallnummer", "num\u00e9ro de patient", "paid", 7])
    ['Patient ID', 'Fallnummer', 'num\u00e9ro de patient']
    """
    return [name for name in columns if isinstance(name, str) and _is_identifier(name)]


def _is_identifier(name: str) -> bool:
    """Return True if the name is known, or ends with a known pair of words."""
    letters = unicodedata.normalize("NFKD", name)
    plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
    words = [word.lower() for word in _WORD.findall(plain)]
    while len(words) > 1 and words[-1] in _IGNORED_ENDINGS.split():
        words.pop()
    if _IS_WHOLE.fullmatch("".join(words)):
        return True
    return any(_IS_PAIR.fullmatch("".join(words[i:])) for i in range(len(words)))


def warn_of_identifiers(columns: Iterable[Any], what: str = "The guarantee") -> None:
    """Warn once per process about an identifier column where no groups were given."""
    found = [name for name in find_identifiers(columns) if name not in _warned_names]
    if found:
        _warned_names.update(found)
        warn_caller(
            f"X has the column {found[0]!r}, and no groups were given. {what} is about single "
            "records. If a person can have several, pass that column as groups= instead of among "
            "the features: the guarantee then covers all records of a person. Otherwise drop or "
            "rename it.",
            PrivacyWarning,
        )
