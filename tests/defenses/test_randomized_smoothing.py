"""Randomised smoothing: what its certificates promise, and that it breaks no promise of privacy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from skprivacy.defenses import SmoothedClassifier

from ..contracts import records as contracts
from ..contracts.cases import SMOOTHED
from ..contracts.noise_laws import check_independent, check_standard_normal


class HalfSpace(ClassifierMixin, BaseEstimator):
    """Says 1 beyond a plane, whatever it is fitted to."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X):
        return (X[:, 0] > 0).astype(int)


def smoothed(**params):
    model = SmoothedClassifier(HalfSpace(), random_state=0, **params)
    return model.fit(np.zeros((2, 2)), [0, 1])


def test_certified_radii_are_valid_and_nearly_the_distance_to_the_plane():
    """For a half-space the exact radius is the distance; the bound may fail for alpha of rows."""
    distance = np.linspace(0.02, 1.0, 200)
    rows = np.column_stack([distance, np.zeros(200)])
    labels, radii = smoothed(sigma=0.5, n_samples=4000).certify(rows)
    assert (radii > distance).sum() <= 2
    sure = distance > 0.2
    assert (labels[sure] == 1).all()
    assert (radii[sure & (distance < 0.8)] > 0.75 * distance[sure & (distance < 0.8)]).all()
    # No number of samples certifies more than all of them agreeing.
    assert radii.max() <= 0.5 * stats.norm.ppf(0.001 ** (1 / 4000)) + 1e-9


class Remembering(HalfSpace):
    """Keeps what it was trained on."""

    def fit(self, X, y):
        self.seen_ = X
        return super().fit(X, y)

    def predict(self, X):
        assert not np.isin(X, self.seen_).any()
        return super().predict(X)


def test_certificates_rest_on_noise_that_training_has_not_seen():
    rows = np.zeros((30, 2))
    model = SmoothedClassifier(Remembering(), random_state=0).fit(rows, np.arange(30) % 2)
    model.certify(rows)


def test_the_answer_for_a_row_does_not_depend_on_the_others():
    rows = np.random.default_rng(0).normal(size=(200, 2)) / 5
    whole, alone = smoothed(n_samples=300), smoothed(n_samples=300)
    labels, radii = whole.certify(rows)
    for i in (0, 57, 199):
        label, radius = alone.certify(rows[i : i + 1])
        assert (label[0], radius[0]) == (labels[i], radii[i])


@pytest.mark.everyday(12)
@pytest.mark.heavy
@parametrize_with_checks(
    [SmoothedClassifier(LogisticRegression(), n_samples=40, n_selection=5, random_state=0)]
)
def test_scikit_learn_smoothing(estimator, check):
    check(estimator)


class Recording(HalfSpace):
    """Keeps what it was given, NaN too."""

    def fit(self, X, y):
        self.given_ = X
        return super().fit(X, y)


def given(X, **params):
    model = SmoothedClassifier(Recording(), **{"sigma": 0.5, "random_state": 3, **params})
    return model.fit(X, np.arange(len(X)) % 2).estimator_.given_


def rows_of(n, n_features=20):
    return np.random.default_rng(0).normal(size=(n, n_features))


@pytest.mark.heavy
def test_each_record_is_given_to_the_estimator_changed_by_itself_alone():
    X = rows_of(10_000)
    whole = given(X)
    assert np.array_equal(given(X[1:]), whole[1:]), "a removed record changed others"
    assert np.array_equal(given(np.insert(X, 500, 7.0, axis=0))[501:], whole[500:])
    for strange in (np.nan, np.inf, 1e300, 0.0):
        blank = X.copy()
        blank[0] = strange
        assert np.array_equal(given(blank)[1:], whole[1:]), "a replaced record changed others"
    assert np.array_equal(given(X[::-1]), whole[::-1]), "a place changed a record"


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda X: X.astype(np.float32), list])
def test_how_records_are_stored_changes_nothing(layout):
    X = rows_of(50).astype(np.float32).astype(np.float64)
    assert np.array_equal(given(layout(X)), given(X))


def test_the_noise_of_training_is_normal_and_new_for_each_number_row_and_seed():
    X = rows_of(5000)
    noise = (given(X) - X) / 0.5
    check_standard_normal(noise[:1000])
    check_independent(noise[:1000])
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-6
    noise_of_others = (given(X, random_state=4) - X) / 0.5
    between = np.corrcoef(noise.ravel(), noise_of_others.ravel())[0, 1]
    with_rows = np.corrcoef(noise.ravel(), X.ravel())[0, 1]
    for correlation in (between, with_rows):
        assert abs(correlation) * np.sqrt(X.size) < 6
    assert not np.array_equal(given(X, random_state=None), given(X, random_state=None))
    near = X.copy()
    near[:, 0] = np.nextafter(near[:, 0], 9)  # the next number is another row
    together = np.corrcoef(noise.ravel(), ((given(near) - near) / 0.5).ravel())[0, 1]
    assert abs(together) * np.sqrt(X.size) < 6


def test_nan_and_infinity_are_for_the_estimator_to_refuse():
    X = rows_of(20)
    X[3, 2], X[4, 1] = np.nan, -np.inf
    noisy = given(X)
    assert np.isnan(noisy[3, 2])
    assert noisy[4, 1] == -np.inf
    with pytest.raises(ValueError, match="NaN"):
        SmoothedClassifier(LogisticRegression()).fit(X, np.arange(20) % 2)


@pytest.mark.slow
def test_the_guarantee_of_a_private_estimator_holds_in_the_wrapper():
    """For removed, added and blanked records, by what goes through its mechanisms."""
    contracts.check_replay(SMOOTHED)
