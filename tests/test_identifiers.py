"""Columns whose names say whose record it is are asked about; values are not looked at."""

import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from skprivacy import _groups as _identifiers
from skprivacy._groups import find_identifiers
from skprivacy.attacks import LossThreshold
from skprivacy.audit import audit
from skprivacy.exceptions import PrivacyWarning
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.uniform(size=(60, 2)), columns=["age", "patient_id"])
Y = RNG.integers(0, 2, 60)


@pytest.fixture(autouse=True)
def nothing_asked():
    with mock.patch.object(_identifiers, "_warned_names", set()):
        yield


def linear():
    return OutputPerturbationClassifier(bounds=(0, 1), classes=[0, 1], relation="zero_out")


@pytest.mark.parametrize(
    "name",
    ["patient_id", "PatientID", "user id", "user-id", "customer.number", "HouseholdKey", "SSN",
     "Member No", "persons_id", "mrn", "subjectid",
     # names that were missed
     "PatientenID", "Patientennummer", "PatNr", "patient", "Fallnummer", "case_id", "id_patient",
     "hospital_number", "medical_record_number", "pseudonym", "SEQN", "eid", "NIR", "person",
     "Patienten-Nr.", "FallNr", "Kundennummer", "Versichertennummer", "Sch\u00fclernummer",
     "num\u00e9ro de patient", "identifiant_patient", "CodicePaziente", "codice fiscale",
     "id_paciente", "klantnummer", "personnummer", "USUBJID", "hadm_id", "NHSNumber",
     "hashed_user_id", "user_id_hash", "study patient id", "insurance_number"],
)  # fmt: skip
def test_names_of_identifiers(name):
    assert find_identifiers(["age", name]) == [name]


@pytest.mark.parametrize(
    "name",
    ["age", "id", "identity", "paid", "number of visits", "members", "user_rating", "patients",
     "children", "device type", "nothing", "code", "education-num", "clientele", 3, None,
     "idea", "humidity", "patience", "valid", "personal_income", "impatient", "outpatient",
     "n_patients", "num_patients", "number_of_children", "case_count", "case type", "Fallzahl",
     "Falldauer", "Personalkosten", "Personenzahl", "customer_age", "person_count", "is_patient",
     "household_size", "family size", "account_balance", "member_since", "patient_no_show",
     "no_insurance", "hospital_id", "zip_code", "visit_number", "accident", "fluid", "residence",
     "president", "price_per_person", "female", "kidney", "piano", "employee", "child"],
)  # fmt: skip
def test_names_of_anything_else(name):
    assert find_identifiers([name]) == []


def test_a_private_fit_asks_once_and_not_where_groups_are_given():
    with pytest.warns(PrivacyWarning, match="X has the column 'patient_id'") as told:
        linear().fit(TABLE, Y)
    assert len(told) == 1
    linear().fit(TABLE, Y)  # a warning would be an error
    _identifiers._warned_names.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        linear().fit(TABLE.rename(columns={"patient_id": "height"}), Y)
        linear().fit(TABLE.to_numpy(), Y)
        linear().fit(TABLE, Y, groups=pd.Series(np.arange(60) // 2, name="patient"))


def test_values_have_no_part_in_it():
    """Records that all are somebody's, under a name that says nothing, pass."""
    table = TABLE.assign(patient_id=0.5).rename(columns={"patient_id": "weight"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        linear().fit(table, Y)


def test_sweeps_and_audits_ask_too():
    sweep = PrivacySweepCV(linear(), epsilons=[1.0], cv=2, baseline=None)
    with pytest.warns(PrivacyWarning, match="What a sweep shows is about single records"):
        sweep.fit(TABLE, Y)
    _identifiers._warned_names.clear()
    tree = DecisionTreeClassifier(max_depth=1).fit(TABLE[:30], Y[:30])
    with pytest.warns(PrivacyWarning, match="What an audit shows is about single records"):
        audit(tree, TABLE[:30], Y[:30], TABLE[30:], Y[30:], attacks=[LossThreshold()])
