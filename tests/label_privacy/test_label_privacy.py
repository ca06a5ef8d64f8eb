"""Classifiers of private labels: learning, stored state and refusals."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skprivacy.accounting import ApproxDPEvent, LaplaceEvent, PrivacyBudget, epsilon_of
from skprivacy.accounting.events import NonPrivateEvent, RandomizedResponseEvent
from skprivacy.ensemble import GNMax, PATEClassifier
from skprivacy.exceptions import BudgetExceededError, PrivacyLeakWarning, PrivacyWarning
from skprivacy.label_privacy import (
    ALIBIClassifier,
    LabelPATEClassifier,
    LP2STClassifier,
    RandomizedResponseClassifier,
)
from skprivacy.label_privacy.noisy_labels import (
    _best_candidate_counts,
    _respond_with_prior,
    _truth_probability,
)
from skprivacy.label_privacy.posterior import (
    fit_inverse_temperature,
    fit_on_weights,
    posterior,
    scores_to_probabilities,
)
from skprivacy.mechanisms import SecureRandom

pytestmark = pytest.mark.heavy

NOISY = [RandomizedResponseClassifier, ALIBIClassifier, LP2STClassifier]
ALL = [*NOISY, LabelPATEClassifier]
DIGITS, DIGIT = load_digits(return_X_y=True)
DIGITS = DIGITS / 16


def two_classes(n, seed=0):
    """Classes that a line parts, 90 % of them right."""
    random = np.random.RandomState(seed)
    X = random.normal(size=(n, 4))
    return X, ((X[:, 0] > 0) ^ (random.random_sample(n) < 0.1)).astype(int)


@pytest.mark.slow
@pytest.mark.everyday(1)
@pytest.mark.parametrize("kind", NOISY)
@pytest.mark.parametrize(
    ("base", "least"),
    # 0.9 is best possible; 50 neighbours leave some of the noise, and of features that say nothing
    [(None, 0.84), (RidgeClassifier(), 0.84), (KNeighborsClassifier(50), 0.79)],
)
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_noise_of_labels_is_averaged_out(kind, base, least):
    """At epsilon 1 three reports in four are true, and the labels themselves nine in ten."""
    X, y = two_classes(4000)
    model = kind(base, epsilon=1.0, classes=[0, 1], random_state=0, noise_seed=0)
    assert model.fit(X[:3000], y[:3000]).score(X[3000:], y[3000:]) > least


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_rounds_and_folds_beat_reports_as_they_are():
    """Ten classes at epsilon 2: nearest neighbours of the reports, and of what was inferred."""
    X, X_test, y, y_test = DIGITS[:1300], DIGITS[1300:], DIGIT[:1300], DIGIT[1300:]
    accuracy = []
    for seed in range(3):
        model = RandomizedResponseClassifier(
            KNeighborsClassifier(10), epsilon=2.0, classes=range(10), store_labels=True,
            random_state=seed, noise_seed=seed,
        ).fit(X, y)  # fmt: skip
        plain = KNeighborsClassifier(10).fit(X, model.labels_)
        accuracy.append([model.score(X_test, y_test), plain.score(X_test, y_test)])
    assert np.mean(accuracy, axis=0) @ [1, -1] > 0.02


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_probabilities_are_those_of_true_labels():
    """Reports are wrong in 38 of 100 cases; a sure record must not be called a doubtful one."""
    X, y = two_classes(20_000)
    model = RandomizedResponseClassifier(epsilon=0.5, classes=[0, 1], noise_seed=0).fit(X, y)
    sure = np.abs(X[:, 0]) > 1.5
    assert model.predict_proba(X[sure]).max(axis=1).mean() > 0.85
    of_reports = LogisticRegression().fit(X, np.where(np.arange(len(y)) % 8 < 3, 1 - y, y))
    assert of_reports.predict_proba(X[sure]).max(axis=1).mean() < 0.75


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (RandomizedResponseClassifier, RandomizedResponseEvent(1.5, 3)),
        (ALIBIClassifier, LaplaceEvent(1 / 1.5)),
        (LP2STClassifier, ApproxDPEvent(1.5)),
    ],
)
def test_the_claim_is_one_release_of_a_label(kind, event):
    X, y = np.random.RandomState(0).normal(size=(60, 2)), np.arange(60) % 3
    model = kind(epsilon=1.5, classes=[0, 1, 2]).fit(X, y)
    assert model.privacy_event_ == event
    assert model.epsilon_ == pytest.approx(1.5)
    assert model.delta_ == 0
    assert model.privacy_.unit == "record"


def _few_queries(**params):
    return LabelPATEClassifier(n_teachers=10, n_queries=5, **params)


@pytest.mark.everyday(2)
@pytest.mark.parametrize("kind", [*NOISY, _few_queries])
def test_budget_seed_classes_and_infinity(kind):
    X, y = two_classes(300)
    budget = PrivacyBudget(epsilon=1.5, delta=1e-5)
    model = kind(epsilon=1.0, classes=[0, 1], budget=budget).fit(X, y)
    assert budget.relation == "label"
    assert 0.9 < budget.spent() <= 1.0 + 1e-9
    with pytest.raises(BudgetExceededError):
        model.fit(X, y)
    with pytest.warns(PrivacyLeakWarning, match="classes=None"):
        guessed = kind().fit(X, y)
    assert any("read off y" in a for a in guessed.privacy_.assumptions)
    with pytest.warns(PrivacyWarning, match="predictable"):
        seeded = kind(classes=[0, 1], noise_seed=0).fit(X, y)
    assert seeded.privacy_.kind == "estimate"
    bare = kind(epsilon=np.inf, classes=[0, 1]).fit(X, y)
    assert bare.privacy_event_ == NonPrivateEvent()
    assert math.isinf(bare.epsilon_)


@pytest.mark.parametrize("kind", NOISY)
def test_without_noise_the_labels_are_true(kind):
    X, y = two_classes(200)
    model = kind(epsilon=np.inf, classes=[0, 1], store_labels=True, n_rounds=1).fit(X, y)
    labels = model.labels_ if model.labels_.ndim == 1 else model.labels_.argmax(axis=1)
    np.testing.assert_array_equal(labels, y)


@pytest.mark.everyday(2)
@pytest.mark.parametrize("kind", ALL)
def test_words_and_frames(kind):
    X, y = two_classes(400)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(word=np.where(X[:, 1] > 0, "up", "down"))
    base = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["word"]), remainder=StandardScaler()),
        LogisticRegression(),
    )
    params = {}
    if kind is LabelPATEClassifier:
        params = {"n_teachers": 5, "n_queries": 5, "student": base}
    model = kind(base, classes=["no", "yes"], epsilon=8.0, **params)
    labels = np.where(y == 1, "yes", "no")
    model.fit(frame, labels)
    assert set(model.predict(frame)) <= {"no", "yes"}
    assert model.predict_proba(frame).shape == (400, 2)
    np.testing.assert_array_equal(model.feature_names_in_, frame.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


class Picky(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        raise RuntimeError("not these features")

    def predict(self, X):
        return np.zeros(len(X), int)


@pytest.mark.parametrize("kind", NOISY)
def test_faults_show_before_labels_are_charged(kind):
    X, y = two_classes(100)
    budget = PrivacyBudget(epsilon=5.0)
    with pytest.raises(ValueError, match="RuntimeError in test_label_privacy"):
        kind(Picky(), classes=[0, 1], budget=budget).fit(X, y)
    with pytest.raises(ValueError, match="not in classes"):
        kind(classes=[1, 2], budget=budget).fit(X, y)
    assert budget.spent() == 0


@pytest.mark.parametrize("kind", [RandomizedResponseClassifier, LP2STClassifier])
def test_an_epsilon_that_no_response_has_is_refused_before_it_is_charged(kind):
    X, y = two_classes(100)
    budget = PrivacyBudget(epsilon=5.0)
    with pytest.raises(ValueError, match="epsilon=1e-09"):
        kind(classes=[0, 1], epsilon=1e-9, budget=budget).fit(X, y)
    assert budget.spent() == 0


def test_classes_that_never_occur_keep_their_column():
    X, y = two_classes(300)
    model = ALIBIClassifier(GaussianNB(), epsilon=np.inf, classes=[0, 1, 2]).fit(X, y)
    assert model.predict_proba(X).shape == (300, 3)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_one_class_of_noisy_labels_is_always_predicted():
    X = np.random.RandomState(0).normal(size=(50, 2))
    model = RandomizedResponseClassifier(epsilon=np.inf, classes=[3, 5]).fit(X, np.full(50, 5))
    assert set(model.predict(X)) == {5}


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_candidates_are_as_many_as_make_truth_most_probable(epsilon):
    random = np.random.RandomState(0)
    prior = random.dirichlet(np.full(6, 0.3), size=200)
    ranked = -np.sort(-prior, axis=1)
    sizes = _best_candidate_counts(ranked, epsilon)
    for row, size in zip(ranked, sizes, strict=True):
        odds = [
            row[:k].sum() * math.exp(epsilon) / (math.exp(epsilon) + k - 1) for k in range(1, 7)
        ]
        assert odds[size - 1] == pytest.approx(max(odds))


def test_likelihoods_of_the_second_stage_are_those_of_its_channel():
    """For every label the reports occur as often as their likelihoods say."""
    epsilon, n = 1.0, 60_000
    prior = np.tile([0.45, 0.3, 0.2, 0.05], (n, 1))
    size = int(_best_candidate_counts(prior[:1], epsilon)[0])
    assert 1 < size < 4
    for label in range(4):
        reports, likelihood = _respond_with_prior(
            np.full(n, label), prior, epsilon, SecureRandom(seed=label)
        )
        for report in range(4):
            told = reports == report
            share = told.mean()
            if not told.any():
                assert report >= size
                continue
            assert np.ptp(likelihood[told, label]) == 0
            expected = likelihood[told, label][0]
            assert stats.binomtest(int(told.sum()), n, expected).pvalue > 1e-6, share


@pytest.mark.parametrize("k", [2, 3, 10])
def test_how_often_the_true_indicator_is_the_largest(k):
    noise = np.random.RandomState(0).laplace(scale=2.0, size=(400_000, k))
    noise[:, 0] += 1
    assert _truth_probability(k, 2.0) == pytest.approx((noise.argmax(axis=1) == 0).mean(), abs=4e-3)


def test_scores_become_probabilities_by_what_was_released():
    """Scores of half the true log odds are doubled, whatever the noise of labels."""
    random = np.random.RandomState(0)
    log_odds = random.normal(scale=2.0, size=40_000)
    y = random.random_sample(40_000) < 1 / (1 + np.exp(-log_odds))
    flipped = y ^ (random.random_sample(40_000) < 0.25)
    likelihood = np.where(np.eye(2, dtype=bool)[flipped.astype(int)], 0.75, 0.25)
    scores = np.column_stack([-log_odds, log_odds]) / 4
    assert fit_inverse_temperature(RidgeClassifier(), scores, likelihood) == 2.0
    assert fit_inverse_temperature(LogisticRegression(), scores, likelihood) == 1.0
    np.testing.assert_allclose(
        scores_to_probabilities(scores, 2.0)[:5, 1], 1 / (1 + np.exp(-log_odds[:5])), atol=1e-3
    )


def test_posteriors_are_weights_and_never_negative():
    likelihood = np.array([[0.7, 0.15, 0.15], [0.1, 0.1, 0.8]])
    weights = posterior(likelihood, np.array([[0.2, 0.3, 0.5], [1 / 3, 1 / 3, 1 / 3]]))
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert (weights >= 0).all()
    np.testing.assert_allclose(weights[1], [0.1, 0.1, 0.8])


def test_weighted_copies_are_soft_targets():
    """A logistic regression of weighted copies ends where the gradient of soft targets does."""
    random = np.random.RandomState(0)
    X, weights = random.normal(size=(300, 3)), random.dirichlet([2, 2, 2], size=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit_on_weights(
            LogisticRegression(C=1e6, tol=1e-8, max_iter=5000), X, weights, random
        )
    kept = np.where(weights > 0.05 * weights.max(axis=1, keepdims=True), weights, 0.0)
    residuals = kept - kept.sum(axis=1, keepdims=True) * model.predict_proba(X)
    np.testing.assert_allclose(residuals.T @ X / 300, 0, atol=1e-3)


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_label_pate_needs_no_public_records():
    X, y = two_classes(6000)
    model = LabelPATEClassifier(
        GaussianNB(), GaussianNB(), n_queries=20, epsilon=2.0, classes=[0, 1], store_labels=True,
        random_state=0, noise_seed=0,
    ).fit(X[:5000], y[:5000])  # fmt: skip
    assert model.score(X[5000:], y[5000:]) > 0.75
    assert (model.labels_ >= 0).sum() == 20
    assert epsilon_of(model.privacy_event_, 1e-5, "label") <= 2.0


def test_an_aggregator_that_costs_more_than_epsilon_is_refused():
    X, y = two_classes(300)
    with pytest.raises(ValueError, match=r"above epsilon=0\.5"):
        LabelPATEClassifier(
            aggregator=GNMax(noise=2.0), n_queries=5, epsilon=0.5, classes=[0, 1]
        ).fit(X, y)


@pytest.mark.parametrize("kind", NOISY)
def test_without_an_estimator_units_make_no_difference(kind):
    X, y = two_classes(400)
    model = kind(epsilon=2.0, classes=[0, 1], noise_seed=0, random_state=0)
    with pytest.warns(PrivacyWarning, match="noise_seed"):
        scores = [model.fit(Z, y).predict_proba(Z) for Z in (X, 2000.0 + 1e4 * X)]
    np.testing.assert_allclose(*scores, atol=1e-6)


def test_a_missing_value_anywhere_is_found_before_the_charge():
    X, y = two_classes(400)
    table = pd.DataFrame(X, columns=list("abcd"))
    table.loc[399, "c"] = np.nan
    for kind in NOISY:
        budget = PrivacyBudget(10.0, 1e-5)
        with pytest.raises(ValueError, match="Nothing was charged"):
            kind(epsilon=2.0, classes=[0, 1], budget=budget).fit(table, y)
        assert budget.entries().empty
    takes_nan = HistGradientBoostingClassifier(max_iter=2)
    RandomizedResponseClassifier(takes_nan, classes=[0, 1]).fit(table, y)


@pytest.mark.parametrize("kind", [PATEClassifier, LabelPATEClassifier])
def test_no_more_teachers_than_the_cost_of_votes_is_proved_for(kind):
    """Counts beyond this lose digits, and ties become likelier than the proof allows for."""
    model = kind(n_teachers=(1 << 18) + 1, classes=[0, 1], random_state=0)
    with pytest.raises(ValueError, match="n_teachers"):
        model.fit(np.zeros((4, 1)), [0, 1, 0, 1])
