"""Planted bugs in what protects people: the contracts catch each."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from skprivacy import _groups, _input_data
from skprivacy._groups import Groups
from skprivacy.base import PrivateFit
from skprivacy.ensemble import PATEClassifier, pate
from skprivacy.ensemble.teachers import partition_by_hash
from skprivacy.fine_tuning.head import HeadInput
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.preprocessing.bounded_moments import BoundedColumns

from ..contracts import groups as contracts_people
from ..contracts.cases import CASES, LABELS

REPLAY, UNIT = contracts_people.check_people_replay, contracts_people.check_unit
LABEL_REPLAY, BAD = contracts_people.check_people_label_replay, contracts_people.check_bad_groups
DELTA = contracts_people.check_delta_counts_people


def all_count_whole(original):
    return lambda self: np.ones(len(self.codes))


def shares_of_the_average(original):
    """Share by how many records there are of anybody, not of each group."""
    return lambda self: np.full(len(self.codes), self.n / len(self.codes))


class Unbounded(Groups):
    def at_most(self, k, random):
        return np.arange(len(self.codes))


def any_number_drawn(original):
    def protected(groups, X):
        found = original(groups, X)
        return Unbounded(found.codes, found.n, found.unit)

    return protected


def counts_records(original):
    """Take the number of records for that of groups."""

    def protected(groups, X):
        found = original(groups, X)
        return Groups(found.codes, len(found.codes), found.unit)

    return protected


def all_records_in_an_objective(original):
    return lambda self, who: np.ones(len(who.codes))


def says_record(original):
    return lambda self, *args, unit, **kwargs: original(self, *args, **kwargs)


def cut_by_record(original):
    def parts(self, X, y, who, random):
        return partition_by_hash(X, y, self.n_teachers, random)

    return parts


def dealt_by_record(original):
    """Send each record of a group to a teacher of its own."""

    def protected(groups, X):
        found = original(groups, X)
        return Groups(np.arange(len(found.codes)), len(found.codes), found.unit)

    return protected


def hashed_by_number(original):
    """Deal groups by their number, which depends on who came before."""

    def parts(groups, n_teachers, random):
        return groups.codes // 2 % n_teachers  # a mere shift would only rename the teachers

    return parts


def missing_accepted(original):
    def check(groups, X):
        values = [0 if v is None or v != v else v for v in np.ravel(np.asarray(groups, object))]
        return original(np.resize(np.array(values, object), len(X)), X)

    return check


def rows_counted(original):
    def init(self, rows, bounds, who):
        original(self, rows, bounds, who)
        self.n = len(self._rows)

    return init


def unweighted(original):
    return property(lambda self: self.rows)


MUTANTS = {
    **{
        f"every record of {name} counts whole": (
            Groups, "exact_shares", all_count_whole, REPLAY, name,
        )
        for name in (
            "AdaSSPRegressor", "FunctionalMechanismRegressor",
            "FunctionalMechanismClassifier-delta", "PrivateStandardScaler",
            "ALMFineTuner-softmax", "ALMFineTuner-gradient", "ALMFineTuner-prototypes",
            "ALMFineTuner-least-squares", "PATEClassifier-marginals",
            "MarginalSynthesizer-independent", "MarginalSynthesizer-tree",
        )
    },
    "shares of the average": (
        Groups, "exact_shares", shares_of_the_average, REPLAY, "AdaSSPRegressor",
    ),
    "rows that are not weighted": (
        HeadInput, "weighted", unweighted, REPLAY, "ALMFineTuner-least-squares",
    ),
    "all records in an objective": (
        ObjectivePerturbationClassifier, "_record_shares", all_records_in_an_objective, REPLAY,
        "ObjectivePerturbationClassifier",
    ),
    "all records vote": (
        _input_data, "resolve_groups", any_number_drawn, REPLAY, "PrivateKNNClassifier",
    ),
    "a person with several teachers": (
        PATEClassifier, "_partition", cut_by_record, REPLAY, "PATEClassifier",
    ),
    "teachers by the number of a group": (
        pate, "partition_by_group", hashed_by_number, REPLAY, "PATEClassifier",
    ),
    "records counted for people": (
        BoundedColumns, "__init__", rows_counted, REPLAY, "PrivateStandardScaler",
    ),
    "unit not said": (PrivateFit, "charged", says_record, UNIT, "AdaSSPRegressor"),
    "unit of tables not said": (
        PrivateFit, "charged", says_record, UNIT, "MarginalSynthesizer-independent",
    ),
    "nobody's records accepted": (
        _groups, "check_groups", missing_accepted, BAD, "ObjectivePerturbationClassifier",
    ),
    "delta against records": (
        _input_data, "resolve_groups", counts_records, DELTA, "AdaSSPRegressor",
    ),
    "delta of votes against records": (
        _input_data, "resolve_groups", counts_records, DELTA, "PrivateKNNClassifier",
    ),
    "delta of heads against records": (
        _input_data, "resolve_groups", counts_records, DELTA, "ALMFineTuner-gradient",
    ),
    "delta of tables against records": (
        _input_data, "resolve_groups", counts_records, DELTA, "MarginalSynthesizer-independent",
    ),
    "all labels reported": (
        _input_data, "resolve_groups", any_number_drawn, LABEL_REPLAY,
        "RandomizedResponseClassifier",
    ),
    "all labels noised": (
        _input_data, "resolve_groups", any_number_drawn, LABEL_REPLAY, "ALIBIClassifier",
    ),
    "labels of a person with several teachers": (
        _input_data, "resolve_groups", dealt_by_record, LABEL_REPLAY, "LabelPATEClassifier-turning",
    ),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the mutants compute with NaN
def test_planted_bug_is_caught(name):
    owner, attribute, make, check, case = MUTANTS[name]
    # A delta that is held against too many is refused by the fit itself.
    caught = (AssertionError, pytest.fail.Exception, *([ValueError] if check is DELTA else []))
    with (
        mock.patch.object(owner, attribute, make(getattr(owner, attribute))),
        pytest.raises(caught),
    ):
        check({**CASES, **LABELS}[case])
