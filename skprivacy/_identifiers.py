"""Recognition of identifier columns, such as ``patient_id``, by their names alone.

Nothing here reads a value. ``preprocessing/_identifier_evidence.py`` looks at values, for the
holder of the data.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from ._config import warn_caller
from .exceptions import PrivacyWarning

__all__ = ["ask_whose", "identifiers"]

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
    >>> from skprivacy._identifiers import identifiers
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
