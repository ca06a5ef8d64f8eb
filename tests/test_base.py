"""Messages of a private fit: origin of warnings, assumptions, and values it hides."""

from __future__ import annotations

import warnings
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from skprivacy.accounting import GNMaxEvent, LaplaceEvent, PrivacyBudget, PrivacyGuarantee
from skprivacy.base import PrivateEstimatorMixin, private_release
from skprivacy.ensemble import sanitized_cost
from skprivacy.exceptions import PrivacyWarning
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.mechanisms import Laplace, SecureRandom
from skprivacy.neural_network import DPNeuralNet, DPSGDClassifier, DPSGDRegressor
from skprivacy.preprocessing import (
    BoundedColumn,
    LocalPerturbation,
    PrivateStandardScaler,
    Schema,
    SchemaTransformer,
    private_histogram,
    private_mean,
    private_quantile,
    private_variance,
)

X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
Y = (X[:, 0] > 0).astype(int)
CLASSIFIERS = [
    FunctionalMechanismClassifier,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
]
REGRESSORS = [AdaSSPRegressor, FunctionalMechanismRegressor]
SEED = {"noise_seed": 0}
BOUNDS = {"bounds": (-1, 1)}


def votes(noise_multiplier):
    return GNMaxEvent(noise_multiplier, (30, 5, 5))


def linear_net(**params):
    from torch import nn

    sizes = {"module__in_features": 3, "module__out_features": 2}
    net = DPNeuralNet(nn.Linear, nn.CrossEntropyLoss, max_epochs=1, delta=1e-3, **sizes, **params)
    return net.fit(X.astype(np.float32), Y)


SAYS = {
    **{f"{kind.__name__} without public facts": lambda kind=kind: kind().fit(X, Y)
       for kind in (*CLASSIFIERS, *REGRESSORS)},
    **{f"{kind.__name__} with a seed": lambda kind=kind: kind(**SEED).fit(X, Y)
       for kind in (*CLASSIFIERS, *REGRESSORS, PrivateStandardScaler)},
    "the scaler without bounds": lambda: PrivateStandardScaler().fit(X),
    "the scaler, fit_transform": lambda: PrivateStandardScaler().fit_transform(X),
    "network without classes": lambda: DPSGDClassifier(epochs=1, delta=1e-3).fit(X, Y),
    "network with a seed": lambda: DPSGDClassifier(
        epochs=1, delta=1e-3, classes=[0, 1], **SEED
    ).fit(X, Y),
    "network without target bounds": lambda: DPSGDRegressor(epochs=1, delta=1e-3).fit(X, Y),
    "net for skorch with a seed": lambda: linear_net(**SEED),
    "mean": lambda: private_mean(X, **BOUNDS, epsilon=1, **SEED),
    "variance": lambda: private_variance(X, **BOUNDS, epsilon=1, **SEED),
    "quantile": lambda: private_quantile(X[:, 0], 0.5, **BOUNDS, epsilon=1, **SEED),
    "histogram": lambda: private_histogram(Y, categories=[0, 1], epsilon=1, **SEED),
    "sanitised cost": lambda: sanitized_cost(votes(5.0), order=4.0, **SEED),
    "data-dependent epsilon": lambda: PrivacyGuarantee(votes(5.0), 1e-5).epsilon(),
    "local perturbation": lambda: LocalPerturbation(
        Schema({"a": BoundedColumn(-1, 1)}), **SEED
    ).fit(pd.DataFrame({"a": X[:, 0]})),
    "inferred schema": lambda: Schema.infer(X),
    "transformer without a schema": lambda: SchemaTransformer().fit(X),
    "in a pipeline": lambda: make_pipeline(
        PrivateStandardScaler(), ObjectivePerturbationClassifier()
    ).fit(X, Y),
    "in cross-validation": lambda: cross_val_score(ObjectivePerturbationClassifier(), X, Y, cv=2),
    "in a search": lambda: GridSearchCV(
        ObjectivePerturbationClassifier(), {"alpha": [1.0]}, cv=2
    ).fit(X, Y),
}  # fmt: skip


@pytest.mark.parametrize("name", SAYS)
def test_privacy_warnings_point_at_the_line_of_the_user(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SAYS[name]()
    said = [w for w in caught if issubclass(w.category, PrivacyWarning)]
    assert said
    assert {w.filename for w in said} == {__file__}


def public_facts(kind):
    facts = {"classes": [0, 1]} if kind in CLASSIFIERS else {}
    return BOUNDS | facts | ({"target_bounds": (0, 1)} if kind in REGRESSORS else {})


@pytest.mark.parametrize("relation", ["zero_out", "replace_one", "add_remove"])
@pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS, PrivateStandardScaler])
def test_the_number_of_records_is_assumed_public_wherever_the_relation_keeps_it(kind, relation):
    model = kind(**public_facts(kind), relation=relation).fit(X, Y)
    expected = () if relation == "add_remove" else ("the number of records is public",)
    assert model.privacy_.assumptions == expected


@pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS, PrivateStandardScaler])
def test_an_infinite_epsilon_fits_without_noise_and_claims_nothing(kind):
    for delta in (1e-3,) if kind is AdaSSPRegressor else (0.0, 1e-3):
        models = [kind(**public_facts(kind), epsilon=np.inf, delta=delta) for _ in range(2)]
        first, second = (model.fit(X, Y) for model in models)
        assert np.isinf(first.epsilon_)
        assert "no guarantee" in repr(first.privacy_)
        name = "mean_" if kind is PrivateStandardScaler else "coef_"
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_a_scaler_without_noise_scales_as_plain_statistics_do():
    rows = np.clip(X, -0.9, 0.9)
    scaler = PrivateStandardScaler(bounds=(-0.9, 0.9), epsilon=np.inf).fit(X)
    np.testing.assert_allclose(scaler.mean_, rows.mean(0), atol=1e-4)
    np.testing.assert_allclose(scaler.var_, rows.var(0), atol=1e-4)


@pytest.mark.parametrize(
    "kind",
    [
        *(partial(kind, **BOUNDS) for kind in CLASSIFIERS),
        partial(DPSGDClassifier, epochs=1, delta=1e-3),
    ],
)
def test_nothing_is_told_of_private_labels(kind):
    """How many labels there are, and which are unknown, is private where the classes are given."""
    classes = list(range(1000, 1060))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn would warn that there are many classes
        kind(classes=classes).fit(X, np.array(classes))
    secret = np.where(np.arange(60) == 7, 4711, 1000)
    with pytest.raises(ValueError, match=r"not in classes=\[1000") as refusal:
        kind(classes=classes).fit(X, secret)
    assert "4711" not in str(refusal.value)


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_the_only_label_of_the_data_is_not_quoted():
    model = FunctionalMechanismClassifier(bounds=(0, 1))
    with pytest.raises(ValueError, match=r"classes=None: .* at least two") as refused:
        model.fit(np.zeros((20, 1)), ["positive"] * 20)
    assert "positive" not in str(refused.value)


def test_earlier_releases_of_another_relation_are_never_added():
    earlier = PrivacyGuarantee(LaplaceEvent(1.0), relation="add_remove")
    with (
        pytest.raises(ValueError, match="never added up"),
        private_release(
            LaplaceEvent(1.0), relation="zero_out", at_delta=0.0, source="test", before=earlier
        ),
    ):
        raise AssertionError("the data must not be touched")


class CountsInBlocks(PrivateEstimatorMixin, BaseEstimator):
    """Releases a count in each of two charged blocks, one after the other or one in the other."""

    def __init__(self, nested=False, fails=False, budget=None, noise_seed=None):
        self.nested = nested
        self.fails = fails
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X, y=None):
        terms = {"relation": "add_remove", "at_delta": 0.0, "arithmetic": "exact"}
        with self._private_fit() as fit:
            with suppress(MemoryError), fit.charged(LaplaceEvent(1.0), **terms):
                self.first_ = Laplace(1.0, 1.0).release(len(X), SecureRandom(self.noise_seed))
                if self.nested:
                    with fit.charged(LaplaceEvent(0.5), **terms):
                        pass
                if self.fails:
                    raise MemoryError
            if not self.nested:
                with fit.charged(LaplaceEvent(0.5), **terms):
                    pass
        return self


@pytest.mark.parametrize("params", [{}, {"nested": True}, {"fails": True}])
def test_a_fit_charges_all_its_releases_together(params):
    """A guarantee, and a rehearsal, would cover one of two charges."""
    model = CountsInBlocks(**params, budget=PrivacyBudget(10.0))
    with pytest.raises(RuntimeError, match="CountsInBlocks charges two releases in one fit"):
        model.fit(np.zeros((20, 1)))
    assert not hasattr(model, "privacy_")
    assert model.budget.spent() == pytest.approx(1.0, rel=1e-2)


def test_an_estimate_stays_one_when_more_is_released():
    earlier = PrivacyGuarantee(LaplaceEvent(1.0), kind="estimate", assumptions=("first",))
    terms = {"relation": "add_remove", "at_delta": 0.0, "source": "test"}
    with private_release(
        LaplaceEvent(2.0), before=earlier, assumptions=("second", "first"), **terms
    ) as privacy:
        pass
    assert privacy.kind == "estimate"
    assert privacy.assumptions == ("first", "second")
    assert privacy.epsilon() == pytest.approx(1.5, rel=1e-3)


def test_the_unit_is_stated_charged_and_never_changed_on_the_way():
    terms = {"relation": "add_remove", "at_delta": 0.0, "source": "test", "unit": "patient"}
    budget = PrivacyBudget(5.0)
    with private_release(LaplaceEvent(1.0), budget=budget, **terms) as first:
        pass
    assert repr(first) == "1.00-DP per patient, add-remove, unspecified noise, proved"
    assert budget.entries()["unit"].tolist() == ["patient"]
    with private_release(LaplaceEvent(1.0), budget=budget, before=first, **terms) as second:
        pass
    assert second.unit == "patient"
    for known in ({"before": first}, {"budget": budget}):
        with (
            pytest.raises(ValueError, match="unit"),
            private_release(LaplaceEvent(1.0), **known, **{**terms, "unit": "record"}),
        ):
            raise AssertionError("the data must not be touched")
