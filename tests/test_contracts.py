"""Every private estimator keeps every contract."""

from __future__ import annotations

import importlib
from unittest import mock

import pytest

from skprivacy.base import PrivateEstimatorMixin
from skprivacy.mechanisms import chacha
from skprivacy.neural_network import DPNeuralNet
from skprivacy.neural_network._training import engine
from skprivacy.preprocessing import LocalPerturbation

from . import contracts, contracts_labels, contracts_once, contracts_refused
from .private_estimators import CASES, LABELS, OVERFLOWING, SCIKIT_LEARN

PRIVATE = [
    "ensemble", "federated", "fine_tuning", "label_privacy", "linear_model", "model_selection",
    "neural_network", "preprocessing", "synthesis",
]  # fmt: skip
EVERYBODY = [
    contracts.check_replay,
    contracts.check_fresh_noise,
    contracts.check_no_traces,
    contracts_refused.check_refused_fit,
    contracts_refused.check_failed_fit,
]
ONCE = [
    contracts_once.check_noise,
    contracts_once.check_accounting,
]
TRAINED = [
    contracts.check_noise,
    contracts.check_accounting,
]
SAMPLERS = [
    contracts.check_inclusion,
    contracts.check_empty_batches,
    contracts.check_public_size,
]
STREAMS = [contracts.check_turns]


@pytest.mark.parametrize("check", EVERYBODY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", CASES)
def test_contract(name, check):
    check(CASES[name])


@pytest.mark.parametrize("check", TRAINED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", [k for k, v in CASES.items() if not v.once])
def test_contract_of_training(name, check):
    check(CASES[name])


@pytest.mark.parametrize("check", SAMPLERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", [k for k, v in CASES.items() if v.samples])
def test_sampling_contract(name, check):
    if name.endswith("full-batch") and check is not contracts.check_public_size:
        pytest.skip("a full batch has no sampling to look at")
    check(CASES[name])


ON_DEVICE = ["DPSGDClassifier", "DPSGDClassifier-logistic-ema", "DPSGDClassifier-banded"]


@pytest.mark.parametrize(
    "check",
    [
        contracts.check_replay,
        contracts.check_noise,
        contracts.check_fresh_noise,
        contracts.check_no_traces,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("name", ON_DEVICE)
def test_contract_of_noise_made_on_the_device(name, check, monkeypatch):
    """As on a GPU, but that the device is the processor."""
    monkeypatch.setattr(engine, "NOISE_ON", {"cpu"})
    made = mock.Mock(side_effect=chacha.chacha20)
    monkeypatch.setattr(chacha, "chacha20", made)
    check(CASES[name])
    assert made.called


@pytest.mark.parametrize("check", STREAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", [k for k, v in CASES.items() if not v.samples and not v.once])
def test_stream_contract(name, check):
    check(CASES[name])


@pytest.mark.parametrize("check", ONCE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", [k for k, v in CASES.items() if v.once])
def test_contract_of_one_release(name, check):
    check(CASES[name])


# Those of labels, and those of all estimators that do not take features for private.
OF_LABELS = [
    *contracts_labels.LABEL_CONTRACTS,
    contracts_refused.check_refused_fit,
    contracts_refused.check_failed_fit,
]


@pytest.mark.parametrize("check", OF_LABELS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", LABELS)
def test_contract_of_labels(name, check):
    check(LABELS[name])


def test_a_record_does_not_decide_whether_others_overflow():
    """With one record more, sums are taken in another order: others had a gradient or had none."""
    contracts.check_replay(OVERFLOWING)


def test_no_private_estimator_escapes_the_contracts():
    packages = [importlib.import_module(f"skprivacy.{name}") for name in PRIVATE]
    public = {getattr(package, name) for package in packages for name in package.__all__}
    private = {c for c in public if isinstance(c, type) and issubclass(c, PrivateEstimatorMixin)}
    assert private
    cased = {type(case.make()) for case in (*CASES.values(), *LABELS.values())}
    # LocalPerturbation releases in transform, record by record: tests/preprocessing/test_local.py.
    missing = {c for c in private - {LocalPerturbation} if not any(issubclass(d, c) for d in cased)}
    assert not missing, "add a Case to tests/private_estimators.py"
    checked = {type(estimator) for estimator in SCIKIT_LEARN} | {DPNeuralNet}  # skorch's own checks
    assert not private - checked, "add an instance to SCIKIT_LEARN"
