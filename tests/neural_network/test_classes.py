"""Classes of a network: public shares, weights that follow from them, several labels a record."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.utils import get_tags

from skprivacy import config_context, load_model, save_model
from skprivacy.accounting import PrivacyBudget
from skprivacy.exceptions import PrivacyWarning
from skprivacy.neural_network import DPSGDClassifier

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed:skprivacy.exceptions.PrivacyWarning")
PRIOR = {"no": 0.97, "yes": 0.03}
STILL = {"learning_rate": 1e-30, "epochs": 1}  # training that changes nothing


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = np.where(rng.uniform(size=2000) < 0.03, "yes", "no")
    return rng.uniform(-1, 1, size=(2000, 3)) + 0.4 * (y == "yes")[:, None], y


def classifier(**params):
    defaults = {"epsilon": 8.0, "classes": ["no", "yes"], "random_state": 0, "noise_seed": 0}
    return DPSGDClassifier(**{**defaults, **params})


WEIGHTS = [None, "balanced", {"yes": 7.0}, {"no": 0.1, "yes": 2.0}]


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
@pytest.mark.parametrize("hidden", [(), (4,)])
def test_training_starts_from_the_prior(rows, weight, hidden):
    model = classifier(class_prior=PRIOR, class_weight=weight, hidden_layer_sizes=hidden, **STILL)
    proba = model.fit(*rows).predict_proba(rows[0])
    assert proba == pytest.approx(np.tile([0.97, 0.03], (2000, 1)), rel=1e-5)


@pytest.mark.heavy
@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_probabilities_are_on_the_scale_of_the_classes_after_weights(weight):
    """Whatever the weights: with nothing to learn from the inputs, the rate is predicted."""
    rng = np.random.default_rng(1)
    X, y = rng.uniform(-1, 1, size=(4000, 2)), np.repeat(["no", "yes"], [3800, 200])
    model = classifier(
        epsilon=50.0, class_prior=[0.9, 0.1], class_weight=weight, hidden_layer_sizes=(),
        max_grad_norm=50.0, learning_rate=2.0, epochs=100, batch_size=1000,
    )  # fmt: skip
    assert model.fit(X, y).predict_proba(X)[:, 1].mean() == pytest.approx(0.05, abs=0.01)


def test_balanced_weights_are_those_of_the_prior_and_at_most_1(rows):
    model = classifier(class_prior=PRIOR, class_weight="balanced", **STILL).fit(*rows)
    assert model.class_weight_ == pytest.approx([0.03 / 0.97, 1.0])
    assert classifier(class_prior=PRIOR, **STILL).fit(*rows).class_weight_.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("prior", [PRIOR, [0.03, 0.97], np.array([0.03, 0.97])], ids=str)
def test_shares_are_by_label_or_in_the_order_of_the_given_classes(rows, prior):
    model = classifier(classes=["yes", "no"], class_prior=prior, **STILL).fit(*rows)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.class_prior_.tolist() == [0.97, 0.03]


def test_shares_are_in_the_order_of_sorted_labels_if_no_classes_are_given(rows):
    with pytest.warns(PrivacyWarning, match="classes"):
        model = classifier(classes=None, class_prior=[0.97, 0.03], **STILL).fit(*rows)
    assert model.class_prior_.tolist() == [0.97, 0.03]


@pytest.mark.heavy
@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_the_guarantee_is_that_without_a_prior(rows, weight):
    fixed = {"hidden_layer_sizes": (), "epochs": 3, "batch_size": 100}
    with_prior = classifier(class_prior=PRIOR, class_weight=weight, **fixed).fit(*rows)
    assert with_prior.privacy_ == classifier(**fixed).fit(*rows).privacy_


@pytest.mark.parametrize("weight", WEIGHTS, ids=str)
def test_a_prior_that_is_set_after_the_fit_changes_no_prediction(rows, weight, tmp_path):
    model = classifier(class_prior=PRIOR, class_weight=weight, epochs=2).fit(*rows)
    expected = model.predict_proba(rows[0])
    save_model(model, tmp_path / "m")
    assert load_model(tmp_path / "m").class_prior == pytest.approx([0.97, 0.03])
    model.set_params(class_prior=None, class_weight=None)
    assert np.array_equal(model.predict_proba(rows[0]), expected)
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert np.array_equal(again.predict_proba(rows[0]), expected)
    assert again.class_prior is None
    assert again.class_prior_ == pytest.approx([0.97, 0.03])
    clone(again).fit(*rows)


@pytest.mark.heavy
def test_more_training_keeps_the_prior(rows):
    model = classifier(class_prior=PRIOR, **STILL).partial_fit(*rows)
    model.set_params(class_prior={"no": 0.5, "yes": 0.5}, class_weight="balanced")
    model.partial_fit(*rows)
    assert model.class_prior_.tolist() == [0.97, 0.03]
    assert model.class_weight_ == pytest.approx([0.03 / 0.97, 1.0])


def test_more_training_cannot_add_a_prior(rows):
    budget = PrivacyBudget(20.0, 1e-4)
    model = classifier(budget=budget, noise_seed=None, **STILL).partial_fit(*rows)
    model.set_params(class_prior=PRIOR, class_weight="balanced")
    with pytest.raises(ValueError, match="Call fit to start again"):
        model.partial_fit(*rows)
    assert len(budget.entries()) == 1


def test_several_labels_have_no_prior(rows):
    budget = PrivacyBudget(10.0, 1e-4)
    y = np.column_stack([rows[1] == "yes", rows[0][:, 0] > 0]).astype(int)
    with pytest.raises(ValueError, match="class_prior"):
        classifier(class_prior=PRIOR, budget=budget, noise_seed=None).fit(rows[0], y)
    assert len(budget.entries()) == 0


@pytest.mark.heavy
def test_few_records_of_a_class_train_no_hidden_layer(rows):
    hidden = [
        classifier(class_prior=prior, epsilon=3.0, epochs=1)
        .fit(*rows)
        .settings_["hidden_layer_sizes"]
        for prior in (None, [0.5, 0.5], PRIOR)
    ]
    assert hidden == [(64,), (64,), ()]


@pytest.fixture
def labelled():
    X = np.random.RandomState(0).normal(size=(600, 4))
    y = np.column_stack([X[:, 0] > 0, X[:, 1] > 0.5, X[:, 0] + X[:, 1] > 0]).astype(int)
    return X, y


def multilabel(**params):
    return DPSGDClassifier(**{"epsilon": 8.0, "random_state": 0, **params})


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, {"hidden_layer_sizes": ()}, {"optimizer": "adam"}])
def test_every_label_is_learned(labelled, params):
    X, y = labelled
    model = multilabel(**params).fit(X, y)
    assert roc_auc_score(y, model.predict_proba(X), average=None).min() > 0.9
    assert model.score(X, y) > 0.6


def test_answers_have_the_form_of_scikit_learns_own(labelled):
    X, y = labelled
    model, other = multilabel(epochs=1).fit(X, y), MLPClassifier(max_iter=300, tol=1.0).fit(X, y)
    for method in ("predict", "predict_proba"):
        found, expected = getattr(model, method)(X), getattr(other, method)(X)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
    assert np.array_equal(model.classes_, other.classes_)
    assert get_tags(model).classifier_tags == get_tags(other).classifier_tags
    probabilities = model.predict_proba(X)
    assert np.array_equal(model.predict(X), probabilities > 0.5)
    assert not np.allclose(probabilities.sum(1), 1.0)


def test_labels_from_columns_are_no_leak(labelled):
    with config_context(strict=True):
        model = multilabel(epochs=1).fit(*labelled)
    assert model.privacy_.assumptions == ("the number of records is public",)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_all_forms_of_zeros_and_ones_are_the_same(labelled):
    X, y = labelled
    expected = multilabel(epochs=1, noise_seed=0).fit(X, y).predict_proba(X)
    for form in (y.astype(bool), y.astype(float), y.tolist(), sparse.csr_array(y)):
        found = multilabel(epochs=1, noise_seed=0).fit(X, form).predict_proba(X)
        assert np.array_equal(found, expected)


@pytest.mark.heavy
def test_columns_keep_their_order_and_names(labelled):
    X, y = labelled
    model = multilabel(classes=["z", "a", "m"]).fit(X, y)
    assert model.classes_.tolist() == ["z", "a", "m"]
    assert roc_auc_score(y[:, 0], model.predict_proba(X)[:, 0]) > 0.9


def test_weight_of_a_label_moves_its_probability():
    X, y = np.zeros((3000, 1)), np.zeros((3000, 2), int)
    y[::3] = 1
    model = multilabel(
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
def test_what_does_not_fit_is_refused(labelled, labels, params, match):
    X, y = labelled
    with pytest.raises(ValueError, match=match):
        multilabel(**params).fit(X, labels(y))


def test_further_training_keeps_the_form(labelled):
    X, y = labelled
    model = multilabel(epochs=1).fit(X, y)
    assert model.partial_fit(X, y).epsilon_ > 8.0
    with pytest.raises(ValueError, match="dimensions"):
        model.partial_fit(X, y[:, 0])
