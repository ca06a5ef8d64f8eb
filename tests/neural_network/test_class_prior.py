"""class_prior: a public guess of the shares of the classes, and the weights that follow from it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from skprivacy import load_model, save_model
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
