"""Records with several labels, as MLPClassifier has them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.utils import get_tags

from skprivacy import config_context
from skprivacy.neural_network import DPSGDClassifier


@pytest.fixture
def rows():
    X = np.random.RandomState(0).normal(size=(600, 4))
    y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0.5, X[:, 0] + X[:, 1] > 0]).astype(int)
    return X, y


def private(**params):
    return DPSGDClassifier(**{"epsilon": 8.0, "random_state": 0, **params})


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, {"hidden_layer_sizes": ()}, {"optimizer": "adam"}])
def test_every_label_is_learned(rows, params):
    X, y = rows
    model = private(**params).fit(X, y)
    assert roc_auc_score(y, model.predict_proba(X), average=None).min() > 0.9
    assert model.score(X, y) > 0.6


def test_answers_have_the_form_of_scikit_learns_own(rows):
    X, y = rows
    model, other = private(epochs=1).fit(X, y), MLPClassifier(max_iter=300, tol=1.0).fit(X, y)
    for method in ("predict", "predict_proba"):
        found, expected = getattr(model, method)(X), getattr(other, method)(X)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
    assert np.array_equal(model.classes_, other.classes_)
    assert get_tags(model).classifier_tags == get_tags(other).classifier_tags
    probabilities = model.predict_proba(X)
    assert np.array_equal(model.predict(X), probabilities > 0.5)
    assert not np.allclose(probabilities.sum(1), 1.0)


def test_labels_from_columns_are_no_leak(rows):
    with config_context(strict=True):
        model = private(epochs=1).fit(*rows)
    assert model.privacy_.assumptions == ("the number of records is public",)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_all_forms_of_zeros_and_ones_are_the_same(rows):
    X, y = rows
    expected = private(epochs=1, noise_seed=0).fit(X, y).predict_proba(X)
    for form in (y.astype(bool), y.astype(float), y.tolist(), sparse.csr_array(y)):
        found = private(epochs=1, noise_seed=0).fit(X, form).predict_proba(X)
        assert np.array_equal(found, expected)


@pytest.mark.heavy
def test_columns_keep_their_order_and_names(rows):
    X, y = rows
    model = private(classes=["z", "a", "m"]).fit(X, y)
    assert model.classes_.tolist() == ["z", "a", "m"]
    assert roc_auc_score(y[:, 0], model.predict_proba(X)[:, 0]) > 0.9


def test_weight_of_a_label_moves_its_probability():
    X, y = np.zeros((3000, 1)), np.zeros((3000, 2), int)
    y[::3] = 1
    model = private(
        epsilon=np.inf, classes=["a", "b"], class_weight={"a": 1e-6}, hidden_layer_sizes=(),
        epochs=20, batch_size=600, learning_rate=1.0,
    ).fit(X, y)  # fmt: skip
    a, b = model.predict_proba(X[:1])[0]
    assert a == pytest.approx(0.5, abs=0.01)  # hardly trained
    assert b == pytest.approx(1 / 3, abs=0.05)


@pytest.mark.parametrize(
    ("labels", "params", "match"),
    [
        (lambda y: 2 * y, {}, "zeros and ones"),
        (lambda y: np.where(y, "yes", "no"), {}, "zeros and ones"),
        (lambda y: y, {"classes": [0, 1]}, "3 columns"),
        (lambda y: y, {"classes": ["a", "a", "b"]}, "3 columns"),
        (lambda y: y, {"class_weight": {7: 1.0}}, "class_weight"),
        (lambda y: np.where(y, np.nan, 0.0), {}, "NaN"),
    ],
)
def test_what_does_not_fit_is_refused(rows, labels, params, match):
    X, y = rows
    with pytest.raises(ValueError, match=match):
        private(**params).fit(X, labels(y))


def test_further_training_keeps_the_form(rows):
    X, y = rows
    model = private(epochs=1).fit(X, y)
    assert model.partial_fit(X, y).epsilon_ > 8.0
    with pytest.raises(ValueError, match="dimensions"):
        model.partial_fit(X, y[:, 0])
