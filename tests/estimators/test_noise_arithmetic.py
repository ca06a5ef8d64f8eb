"""Every mechanism and every private estimator states the arithmetic of its noise, truly."""

import importlib
import json
import pickle
import pkgutil
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import skprivacy
from skprivacy import audit, load_model, save_model
from skprivacy.accounting import GaussianEvent, PrivacyGuarantee, weakest_arithmetic
from skprivacy.accounting.guarantee import ARITHMETIC_IN_WORDS
from skprivacy.audit import claim_of
from skprivacy.linear_model import ObjectivePerturbationClassifier, OutputPerturbationClassifier
from skprivacy.mechanisms import (
    Exponential,
    Gaussian,
    Laplace,
    Mechanism,
    RandomizedResponse,
    ReportNoisyMax,
    SecureRandom,
)
from skprivacy.mechanisms.base import StatesArithmetic
from skprivacy.mechanisms.distributed_gaussian import DistributedGaussian
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.mechanisms.selection import RandomizedResponseWithPrior
from skprivacy.mechanisms.special_noise import Logistic
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.preprocessing import PrivateStandardScaler, private_mean

from ..certificates.test_every_estimator import ALL, fitted
from ..contracts.cases import in_forms

X = np.random.RandomState(0).uniform(-1, 1, size=(400, 3))
Y = (X[:, 0] > 0).astype(int)
NOT_HARDENED = (
    "noise in floating point: not hardened against reading the lowest bits of what is released"
)


def classes_with_noise():
    """Return all concrete classes of the library that add noise, private ones too."""
    for module in pkgutil.walk_packages(skprivacy.__path__, "skprivacy."):
        if not module.name.endswith(("__main__", "chacha_triton")):
            importlib.import_module(module.name)
    found, left = [], [StatesArithmetic]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        abstract = kind.__name__.startswith("_") or bool(getattr(kind, "__abstractmethods__", ()))
        if kind.__module__.startswith("skprivacy.") and not abstract:
            found.append(kind)
    return [kind for kind in found if kind not in (StatesArithmetic, Mechanism)]


def test_every_class_with_noise_states_its_arithmetic():
    kinds = classes_with_noise()
    assert {"Laplace", "FloatGaussian", "ObjectivePerturbation", "GNMax"} <= {
        kind.__name__ for kind in kinds
    }
    assert [kind.__name__ for kind in kinds if kind.arithmetic == "unspecified"] == []
    exact = [kind for kind in kinds if issubclass(kind, Mechanism) and kind.arithmetic == "exact"]
    assert {kind.__name__ for kind in exact} == set(EXACT)


def test_a_subclass_is_not_exact_because_its_base_is():
    class Mine(Laplace):
        def _release(self, value, random):
            return value + 1.0

    assert (Laplace.arithmetic, Mine.arithmetic) == ("exact", "unspecified")


# Every exact mechanism, a value that it takes, and the step of which all its results are multiples.
EXACT = {
    "DistributedGaussian": (DistributedGaussian(1.0, 3), np.zeros((3, 50), np.int64), 1.0),
    "Exponential": (Exponential(1.0, 1.0), [0.0, 1 / 3], 1.0),
    "Gaussian": (Gaussian(1.0, 1.0), np.full(50, 1 / 3), Gaussian(1.0, 1.0).grid),
    "Laplace": (Laplace(1.0, 1.0), np.full(50, 1 / 3), Laplace(1.0, 1.0).grid),
    "Logistic": (Logistic(1.0, 1.0), np.full(50, 1 / 3), Logistic(1.0, 1.0).grid),
    "RandomizedResponse": (RandomizedResponse(1.0, 3), [0, 1, 2], 1.0),
    "RandomizedResponseWithPrior": (RandomizedResponseWithPrior(1.0, 3), [0, -1, 2], 1.0),
    "ReportNoisyMax": (ReportNoisyMax(1.0, 1.0), [0.0, 1 / 3], 1.0),
    "RoundedGaussian": (
        RoundedGaussian(1.0, 1.0), np.full(50, 1 / 3), RoundedGaussian(1.0, 1.0).grid,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_an_exact_mechanism_releases_multiples_of_a_public_step(name):
    mechanism, value, step = EXACT[name]
    released = np.asarray(mechanism.release(value, SecureRandom()), np.float64)
    assert (released % step == 0).all()


def used_by(make):
    """Return the arithmetic of all mechanisms through which ``make`` releases, and its result."""
    used = set()

    def recorded(self, value, random):
        used.add(self.arithmetic)
        return release(self, value, random)

    release = Mechanism.release
    with mock.patch.object(Mechanism, "release", recorded):
        made = make()
        if hasattr(made, "perturb"):  # releases records in transform instead of in fit
            made.transform(ALL["LocalPerturbation"].data(40)[0])
    return used, made


@pytest.mark.everyday(6)
@pytest.mark.parametrize("name", in_forms(ALL))
def test_an_estimator_states_the_arithmetic_of_its_mechanisms(name):
    used, model = used_by(lambda: fitted(name, None))
    assert used, "nothing was released"
    assert model.privacy_.arithmetic == weakest_arithmetic(used) != "unspecified"


def test_a_network_states_the_arithmetic_of_its_kind_of_noise():
    stated = {
        noise: DPSGDClassifier(classes=[0, 1], noise=noise, epochs=1).fit(X, Y).privacy_.arithmetic
        for noise in ("gaussian", "exact", "logistic", "banded", "tree")
    }
    assert stated.pop("exact") == "exact"
    assert set(stated.values()) == {"floating_point"}


def pipeline(last):
    scaler = PrivateStandardScaler(epsilon=0.5, bounds=(-1, 1))
    return make_pipeline(scaler, last(epsilon=0.5, bounds=(-3, 3), classes=[0, 1]))


def test_a_pipeline_has_the_weakest_arithmetic_of_its_steps():
    exact = claim_of(pipeline(OutputPerturbationClassifier).fit(X, Y)).guarantee
    weaker = claim_of(pipeline(ObjectivePerturbationClassifier).fit(X, Y)).guarantee
    assert (exact.arithmetic, weaker.arithmetic) == ("exact", "floating_point")
    assert repr(exact) == "1.00-DP, add-remove, exact noise, proved"
    assert repr(weaker) == "1.00-DP, add-remove, floating-point noise, proved"


def test_a_step_that_does_not_state_it_makes_no_exact_pipeline():
    model = pipeline(OutputPerturbationClassifier).fit(X, Y)
    model[1].privacy_ = replace(model[1].privacy_, arithmetic="unspecified")
    assert claim_of(model).guarantee.arithmetic == "unspecified"


def test_a_search_of_scikit_learn_is_not_exact_by_its_best_candidate_alone():
    model = OutputPerturbationClassifier(bounds=(-1, 1), classes=[0, 1])
    search = GridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=2).fit(X, Y)
    assert search.best_estimator_.privacy_.arithmetic == "exact"
    assert claim_of(search).charged.arithmetic == "unspecified"


def test_continued_training_keeps_the_weakest_arithmetic():
    model = DPSGDClassifier(classes=[0, 1], epochs=1, noise="gaussian")
    model.partial_fit(X, Y)
    first = model.privacy_
    model.partial_fit(X, Y)
    assert first.arithmetic == model.privacy_.arithmetic == "floating_point"


@pytest.mark.parametrize("arithmetic", ARITHMETIC_IN_WORDS)
def test_it_survives_every_form_of_a_guarantee(arithmetic):
    guarantee = PrivacyGuarantee(GaussianEvent(2.0), 1e-6, arithmetic=arithmetic)
    stored = json.loads(json.dumps(guarantee.to_dict()))
    copies = [
        PrivacyGuarantee.from_dict(stored),
        pickle.loads(pickle.dumps(guarantee)),
        guarantee.group(3),
        guarantee.as_replace_one(),
    ]
    assert [copy.arithmetic for copy in copies] == [arithmetic] * 4
    del stored["arithmetic"]
    assert PrivacyGuarantee.from_dict(stored).arithmetic == "unspecified"


def test_it_survives_files_and_clones(tmp_path):
    for last in (OutputPerturbationClassifier, ObjectivePerturbationClassifier):
        model = pipeline(last).fit(X, Y)
        save_model(model, tmp_path / "model.safetensors")
        again = load_model(tmp_path / "model.safetensors")
        assert claim_of(again).guarantee == claim_of(model).guarantee
        assert clone(model).fit(X, Y)[-1].privacy_.arithmetic == model[-1].privacy_.arithmetic


def test_a_statistic_states_it_and_an_unknown_one_is_refused():
    assert private_mean(X[:, 0], bounds=(-1, 1), epsilon=1.0).privacy.arithmetic == "exact"
    with pytest.raises(ValueError, match=r"arithmetic='fixed' must be one of \('exact'"):
        PrivacyGuarantee(GaussianEvent(2.0), arithmetic="fixed")


@pytest.mark.heavy
@pytest.mark.everyday(1)
@pytest.mark.parametrize(
    ("last", "words"),
    [
        (ObjectivePerturbationClassifier, NOT_HARDENED),
        (OutputPerturbationClassifier, ARITHMETIC_IN_WORDS["exact"]),
    ],
)
def test_a_report_has_a_line_about_it(last, words):
    model = last(bounds=(-1, 1), classes=[0, 1]).fit(X[:200], Y[:200])
    report = audit(model, X[:200], Y[:200], X[200:], Y[200:], n_shadows=2)
    assert words in [line.strip() for line in str(report).splitlines()]
    assert words in report.to_html()
    assert words in report._repr_html_()
    assert report.to_dict()["claim"]["arithmetic"] == model.privacy_.arithmetic
