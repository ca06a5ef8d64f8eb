"""Every estimator comes back from a file: its answers, its claim and its parameters."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from skprivacy import load_model, save_model
from skprivacy.audit import claim_of
from skprivacy.persistence.state import LEFT_OUT, NET_PARAMS

from ..certificates.test_every_estimator import ALL, PICKLED, fitted

# What neither learns nor releases.
METHODS = (
    "predict", "predict_proba", "decision_function", "transform", "score", "regularization_path",
    "sample", "get_feature_names_out",
)  # fmt: skip
# Not in a file, and taken by their defaults in a new fit: code, and what is a matter of the machine
OF_NETWORKS = {
    "augment", "class_weight", "device", "distributed", "module", "random_state", "verbose",
}  # fmt: skip
# Written as they were used.
PUBLIC_FACTS = {"bounds", "class_prior", "classes", "image_shape", "schema", "target_bounds"}


def answers(model, rows, y):
    """Return the answer of each public method about the records."""
    found = {}
    for name in METHODS:
        if not hasattr(model, name):
            continue
        method = getattr(model, name)
        if name == "score" and np.ndim(y) == 2:  # the labels of a record have no one score
            continue
        if name == "score":
            found[name] = method(rows, y)
        elif name == "regularization_path":
            found[name] = method([0, 2])
        elif name == "sample":
            found[name] = method(20, random_state=0)
        elif name == "get_feature_names_out":
            found[name] = method()
        elif name != "transform" or not hasattr(model, "perturb"):  # which draws noise anew
            found[name] = method(rows)
    return found


def assert_same(one, other):
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other)
    elif isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert np.array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.fixture(scope="module", params=sorted(set(ALL) - set(PICKLED)))
def pair(request, tmp_path_factory):
    """Return a fitted model, what comes back of it, and the case."""
    name = request.param
    path = tmp_path_factory.mktemp("saved") / "m.safetensors"
    model = fitted(name, None)
    module = getattr(model, "module", None)
    if isinstance(module, type):
        module = module()
    save_model(model, path)
    return name, model, load_model(path, module=module)


def records(name):
    rows, y = ALL[name].data(40)
    return rows.astype("float32") if name.startswith("DPNeuralNet") else rows, y


@pytest.mark.everyday(12)
def test_every_public_method_answers_the_same(pair):
    name, model, again = pair
    rows, y = records(name)
    before, after = answers(model, rows, y), answers(again, rows, y)
    assert before or name == "LocalPerturbation"
    assert list(before) == list(after)
    for method, found in before.items():
        assert_same(found, after[method])


@pytest.mark.everyday(12)
def test_the_claim_is_the_same(pair):
    _, model, again = pair
    assert claim_of(again) == claim_of(model)
    assert (again.epsilon_, again.delta_) == (model.epsilon_, model.delta_)


@pytest.mark.everyday(12)
def test_the_parameters_are_the_same(pair):
    name, model, again = pair
    before, after = model.get_params(deep=False), again.get_params(deep=False)
    assert list(before) == list(after)
    kept = set(before) - LEFT_OUT - OF_NETWORKS - PUBLIC_FACTS - {"criterion", "sensitivity"}
    if name.startswith("DPNeuralNet"):
        kept &= set(NET_PARAMS)
    assert "epsilon" in kept or name.startswith("SyntheticData")
    for param in kept:
        if callable(before[param]):
            continue
        one, other = plain(before[param]), plain(after[param])
        assert one == other, param
    for param in (each for each in PUBLIC_FACTS & set(before) if hasattr(model, f"{each}_")):
        assert (before[param] is None) == (after[param] is None)


def plain(value):
    """Return a sequence as a list; a file does not tell one kind from another."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | list | tuple | range):
        return [plain(inner) for inner in value]
    return value


@pytest.mark.everyday(12)
def test_secrets_and_seeds_do_not_come_back(pair):
    _, _, again = pair
    params = again.get_params(deep=True)
    for param, value in params.items():
        if param.split("__")[-1] in ("budget", "noise_seed"):
            assert value is None


@pytest.mark.everyday(12)
def test_restored_models_can_be_fitted_again(pair):
    name, model, again = pair
    if name.startswith(("DPNeuralNet", "DPFederated", "PATE", "PrivateKNN", "ALMFineTuner")):
        pytest.skip("needs its module, parties or public records")
    rows, y = records(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anew = clone(again).fit(rows, y)
    assert anew.privacy_.relation == model.privacy_.relation
