"""Sweeps and searches with groups: sides of a split, and units of guarantees."""

from contextlib import suppress
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupShuffleSplit, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.tree import DecisionTreeClassifier

from skprivacy._groups import check_groups
from skprivacy.accounting import PrivacyBudget
from skprivacy.attacks import AttackResult, LabelInferenceAttack, LiRA, LossThreshold, ShadowPool
from skprivacy.base import PrivateEstimatorMixin
from skprivacy.ensemble import PATEClassifier
from skprivacy.exceptions import PrivacyWarning
from skprivacy.label_privacy import RandomizedResponseClassifier
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.mechanisms import RandomizedResponse, SecureRandom
from skprivacy.model_selection import PrivacySweepCV, PrivateSearchCV, sweep_plan, sweep_records
from skprivacy.model_selection import sweep_runner as attacked
from skprivacy.model_selection.search_trials import HeldOut, RecordScore

RNG = np.random.default_rng(0)
PATIENT = pd.Series(np.repeat(np.arange(60), RNG.integers(1, 8, 60)), name="patient")
X = RNG.normal(size=(len(PATIENT), 3))
y = (X[:, 0] > 0).astype(int)
GIVEN: list = []


class Majority(PrivateEstimatorMixin, ClassifierMixin, BaseEstimator):
    """The majority of binary labels by randomised response, for people if it is given groups."""

    relation = "zero_out"

    def __init__(self, *, epsilon=1.0, turned=False, budget=None, noise_seed=None):
        self.epsilon = epsilon
        self.turned = turned
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X, y, groups=None):
        with self._private_fit() as fit:
            unit = "record" if groups is None else check_groups(groups, X).unit
            if not np.isfinite(self.epsilon):
                raise ValueError("epsilon must be finite")
            mechanism = RandomizedResponse(self.epsilon, 2)
            self.classes_ = np.array([0, 1])
            with fit.charged(mechanism.event, relation=self.relation, at_delta=0.0, unit=unit):
                bit = mechanism.release(
                    np.array([int(2 * y.sum() >= len(y))]), SecureRandom(self.noise_seed)
                )
            self.bit_ = int(bit[0]) ^ self.turned
        GIVEN.append(groups)  # a rehearsal ends at the charge
        return self

    def predict(self, X):
        return np.full(len(X), self.bit_)

    def predict_proba(self, X):
        return np.where(self.predict(X)[:, None], [[0.4, 0.6]], [[0.6, 0.4]])


@pytest.fixture(autouse=True)
def given():
    with mock.patch.object(__import__(__name__, fromlist=["GIVEN"]), "GIVEN", []):
        yield GIVEN


def swept(estimator=None, **params):
    settings = {"epsilons": [1.0, 3.0], "cv": 3, "baseline": None} | params
    return PrivacySweepCV(estimator or Majority(), **settings)


def sides():
    """Watch whose records each split has."""
    seen = []
    of = sweep_records.Split.from_indices.__func__

    def watched(cls, records, train, test):
        seen.append((set(PATIENT[train]), set(PATIENT[test])))
        return of(cls, records, train, test)

    return seen, mock.patch.object(sweep_records.Split, "from_indices", classmethod(watched))


def test_a_number_of_folds_divides_people_and_guarantees_are_for_them():
    seen, watching = sides()
    with watching:
        sweep = swept().fit(X, y, groups=PATIENT)
    assert len(seen) == 9  # two epsilons and the constant predictor, on three splits
    assert not any(train & test for train, test in seen)
    assert set().union(*(test for _, test in seen)) == set(PATIENT)
    assert [g.unit for g in sweep.guarantees_] == ["patient", "patient"]
    assert sweep.charged_.unit == "patient"
    assert not np.isnan(sweep.cv_results_["mean_attack_auc_bound"]).any()


def test_fits_are_given_the_groups_of_their_own_records(given):
    swept(make_pipeline(Normalizer(), Majority())).fit(X, y, groups=PATIENT)
    assert len(GIVEN) == 6
    for groups in GIVEN:
        assert groups.name == "patient"
        assert (PATIENT[groups.index] == groups).all()
        assert len(groups) < len(PATIENT)
    GIVEN.clear()
    swept(refit=1.0, epsilons=[1.0]).fit(X, y, groups=PATIENT)
    assert len(GIVEN[-1]) == len(PATIENT)


def test_routing_hands_groups_to_folds_and_fits(given):
    with sklearn.config_context(enable_metadata_routing=True):
        model = Majority().set_fit_request(groups=True)
        sweep = swept(model, epsilons=[1.0]).fit(X, y, groups=PATIENT)
        plain = swept(epsilons=[1.0], scoring="accuracy")
        with pytest.raises(ValueError, match="not explicitly set as requested"):
            plain.fit(X, y, groups=PATIENT)
    assert sweep.charged_.unit == "patient"
    assert all(groups is not None for groups in GIVEN)


@pytest.mark.filterwarnings("ignore:The groups parameter is ignored by KFold")
def test_nobody_is_on_both_sides_of_a_split():
    for cv in (KFold(3), KFold(3, shuffle=True, random_state=0)):
        with pytest.raises(ValueError, match="values of patient among the training and the test"):
            swept(cv=cv).fit(X, y, groups=PATIENT)
    assert not GIVEN
    sweep = swept(cv=GroupShuffleSplit(2, random_state=0), epsilons=[1.0])
    assert sweep.fit(X, y, groups=PATIENT).n_splits_ == 2


def test_an_estimator_that_knows_no_people_is_told_of_once():
    with pytest.warns(PrivacyWarning, match="Old takes no groups in fit") as told:
        sweep = swept(old()).fit(X, y, groups=PATIENT)
    assert sum("takes no groups" in str(w.message) for w in told) == 1
    assert sweep.charged_.unit == "record"
    # a ceiling for single records is none for attacks on people
    assert np.isnan(sweep.cv_results_["mean_attack_auc_bound"]).all()


def old():
    def fit(self, X, y):
        return OutputPerturbationClassifier.fit(self, X, y)

    kind = type("Old", (OutputPerturbationClassifier,), {"fit": fit})
    linear = OutputPerturbationClassifier(bounds=(-4, 4), classes=[0, 1], relation="zero_out")
    linear.__class__ = kind
    return linear


def test_shadow_models_of_a_sweep_are_halved_by_people():
    halved = []
    whole = ShadowPool.fit

    def noting(self, *args, groups):
        halved.append((whole(self, *args, groups=groups), groups))
        return halved[-1][0]

    with mock.patch.object(ShadowPool, "fit", noting), suppress(ValueError):
        # the majority is no member's secret: the attack may refuse to measure it
        swept(epsilons=[1.0], attack=LiRA(pool=2)).fit(X, y, groups=PATIENT)
    ((pool, groups),) = halved
    assert groups.name == "patient"
    inside = pool.membership(X)[0][0]
    assert not set(PATIENT[inside]) & set(PATIENT[~inside])


def test_attacks_of_a_sweep_count_people():
    joined = []
    whole = AttackResult.join_groups

    def noting(self, *args, **kwargs):
        joined.append(whole(self, *args, **kwargs))
        return joined[-1]

    with mock.patch.object(AttackResult, "join_groups", noting):
        swept(epsilons=[1.0], attack=LossThreshold()).fit(X, y, groups=PATIENT)
    assert [len(r.scores_in) + len(r.scores_out) for r in joined] == [60, 60, 60]


@pytest.mark.heavy
def test_labels_of_people_are_attacked_by_people_in_a_sweep():
    patient = pd.Series(np.repeat(np.arange(450), 2), name="patient")
    rows = np.random.default_rng(1).normal(size=(900, 3))
    labels = (rows[:, 0] > 0).astype(int)
    model = RandomizedResponseClassifier(epsilon=1.0, n_rounds=1, classes=[0, 1])
    sweep = swept(model, attack=LabelInferenceAttack(prior=LogisticRegression()), cv=2)
    with mock.patch.object(attacked, "guess_labels", wraps=attacked.guess_labels) as guessed:
        sweep.fit(rows, labels, groups=patient)
    assert {call.args[-1].n for call in guessed.call_args_list} == {225}
    assert np.isfinite(sweep.cv_results_["mean_attack_auc"]).all()


def test_a_kept_sweep_is_not_that_of_other_people(tmp_path):
    swept(path=tmp_path / "kept").fit(X, y, groups=PATIENT)
    assert len(GIVEN) == 6
    swept(path=tmp_path / "kept").fit(X, y, groups=PATIENT)
    assert len(GIVEN) == 6
    with pytest.raises(ValueError, match="differ"):
        swept(path=tmp_path / "kept").fit(X, y, groups=PATIENT // 2)


# ---- the private search


def searched(**params):
    settings = {"epsilon": 8.0, "delta": 1e-6, "n_trials": 2} | params
    return PrivateSearchCV(Majority(), {"turned": [False, True]}, **settings)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:The scores")
def test_a_search_by_people_holds_groups_out_and_protects_them(given):
    budget = PrivacyBudget(epsilon=9.0, delta=1e-6, unit="patient", relation="zero_out")
    drawn = []
    whole = HeldOut.draw.__func__

    def noting(cls, *args):
        drawn.append(whole(cls, *args))
        return drawn[-1]

    with mock.patch.object(HeldOut, "draw", classmethod(noting)):
        search = searched(budget=budget).fit(X, y, groups=PATIENT)
    assert search.privacy_.unit == search.best_estimator_.privacy_.unit == "patient"
    assert search.plan_.guarantee.unit == "patient"
    assert 7.9 < budget.spent() <= 8.0
    (data,) = drawn
    assert data.groups_out.n == data.expected == 12  # a fifth of the people
    inside = {tuple(row) for row in data.X_fit}
    whose = [set(PATIENT[[tuple(row) in inside for row in X] == np.array(k)]) for k in (1, 0)]
    assert not whose[0] & whose[1]
    assert all(len(groups) == len(data.X_fit) for groups in GIVEN)


@pytest.mark.filterwarnings("ignore:The scores")
def test_a_search_refuses_what_would_protect_something_else():
    search = PrivateSearchCV(old(), {"alpha": [0.1, 1.0]}, epsilon=8.0)
    with pytest.raises(ValueError, match="whose fit takes groups"):
        search.fit(X, y, groups=PATIENT)
    with pytest.raises(ValueError, match="groups has missing values"):
        searched().fit(X, y, groups=PATIENT.where(PATIENT > 0))


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:The scores")
def test_a_search_over_ensembles_of_people():
    pate = PATEClassifier(
        DecisionTreeClassifier(max_depth=1), LogisticRegression(), n_teachers=4, n_queries=5,
        classes=[0, 1], relation="zero_out",
    )  # fmt: skip
    search = PrivateSearchCV(pate, {"n_queries": [5, 8]}, epsilon=30.0, n_trials=1.5, delta=1e-3)
    search.fit(X, y, groups=PATIENT, X_public=X[:50] + 0.01)
    assert search.privacy_.unit == "patient"


def test_one_person_adds_at_most_one_to_a_score():
    """For any records of a person, the sum moves by at most 1: brute force over people."""
    score = RecordScore("accuracy", lambda y, p: y == p)

    class Right:
        def predict(self, X):
            return np.asarray(X)[:, 0] > 0

    people = check_groups(PATIENT, X)
    whole = score.sum(Right(), X, X[:, 0] > 0, people)
    assert 60.0 - 1e-3 < whole <= 60.0
    for person in range(60):
        wrong = np.where(people.codes == person, X[:, 0] <= 0, X[:, 0] > 0)
        assert 1.0 - 1e-4 < whole - score.sum(Right(), X, wrong, people) <= 1.0
        kept = np.flatnonzero(people.codes != person)
        others = check_groups(PATIENT[kept], X[kept])
        assert 1.0 - 1e-4 < whole - score.sum(Right(), X[kept], X[kept, 0] > 0, others) <= 1.0


def test_records_that_cannot_be_predicted_cost_their_own_person_alone():
    score = RecordScore("accuracy", lambda y, p: y == p)

    class Fragile:
        def predict(self, X):
            if np.isnan(np.asarray(X)).any():
                raise ValueError
            return np.asarray(X)[:, 0] > 0

    people = check_groups(PATIENT, X)
    broken = X.copy()
    first = np.flatnonzero(people.codes == 5)
    broken[first[0]] = np.nan
    lost = 1 / len(first)
    assert score.sum(Fragile(), broken, X[:, 0] > 0, people) == pytest.approx(60 - lost, abs=1e-3)


@pytest.mark.filterwarnings("ignore:The groups parameter is ignored by KFold")
@pytest.mark.filterwarnings("ignore:The estimator Majority takes no groups in fit")
def test_planted_bugs_are_caught():
    folds = mock.patch.object(sweep_plan, "GroupKFold", KFold)
    with folds, pytest.raises(ValueError, match="among"):
        swept(cv=3).fit(X, y, groups=PATIENT)
    with (
        mock.patch.object(sweep_plan, "group_names", return_value=[]),
        pytest.raises(AssertionError),
    ):
        test_a_number_of_folds_divides_people_and_guarantees_are_for_them()
