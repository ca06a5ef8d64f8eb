"""DPSGDClassifier as a user of scikit-learn meets it."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import cross_validate
from torch import nn

from skprivacy import config_context
from skprivacy.accounting import ComposedEvent, PrivacyBudget
from skprivacy.exceptions import BudgetExceededError, PrivacyLeakWarning
from skprivacy.mechanisms import FloatGaussian, SecureRandom
from skprivacy.neural_network import DPSGDClassifier, Optimizer, RandomShift
from skprivacy.neural_network._gradients.contributions import OuterProduct
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.torch_modes import private_randomness


def private(**params):
    return DPSGDClassifier(**{"classes": [0, 1], "epsilon": 3.0, "epochs": 10, **params})


def test_learns(blobs):
    model = private().fit(*blobs)
    assert model.score(*blobs) > 0.87  # 0.959 +- 0.010
    assert model.predict_proba(blobs[0]).sum(1) == pytest.approx(1.0)


@pytest.mark.heavy
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0, 50.0])
@pytest.mark.parametrize("batch_size", ["auto", 1, 10, 10**9])
def test_epsilon_is_kept_and_used_up(blobs, epsilon, batch_size):
    model = private(epsilon=epsilon, batch_size=batch_size, epochs=1).fit(*blobs)
    assert 0.99 * epsilon < model.epsilon_ <= epsilon
    assert model.privacy_.epsilon() == model.epsilon_
    assert repr(model.privacy_).startswith("(")


@pytest.mark.heavy
def test_the_update_is_noise_over_divisor(blobs):
    """With nothing to learn from, one step of rate 1 moves the weights by noise alone."""
    X, y = blobs
    starts, ends = [], []
    for seed in range(40):
        params = {
            "hidden_layer_sizes": (20,), "epochs": 1, "batch_size": 10**6, "learning_rate": 1.0,
            "optimizer": Optimizer(momentum=0.0, averaging=0.0), "max_grad_norm": 0.5,
            "random_state": seed,
        }  # fmt: skip
        noisy = private(**params).fit(np.full_like(X, np.nan), y)
        ends.append(_weights(noisy))
        starts.append(_weights(private(epsilon=np.inf, **params).fit(np.full_like(X, np.nan), y)))
    moves = (np.array(ends) - np.array(starts)).ravel()
    expected = noisy.noise_multiplier_ * 0.5 / len(X)
    # 40 fits of 122 weights: the standard deviation is known to 1.01% (one sigma).
    assert moves.std() == pytest.approx(expected, rel=0.065)


def _weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.module_.parameters()])


def test_a_class_without_records_is_still_a_class(blobs):
    model = private(classes=[0, 1, 2]).fit(*blobs)
    assert model.predict_proba(blobs[0]).shape == (400, 3)
    assert private().fit(blobs[0], np.zeros(400, int)).classes_.tolist() == [0, 1]


def test_classes_read_off_y_are_an_assumption(blobs):
    with pytest.warns(PrivacyLeakWarning, match=r"classes=\[\.\.\.\]"):
        model = DPSGDClassifier(epochs=1).fit(*blobs)
    assert any("labels is public" in a for a in model.privacy_.assumptions)
    with config_context(strict=True), pytest.raises(ValueError, match="classes"):
        DPSGDClassifier(epochs=1).fit(*blobs)


def test_relation_follows_from_what_is_public(blobs):
    zero_out = private().fit(*blobs).privacy_
    assert zero_out.relation == "zero_out"
    assert "the number of records is public" in zero_out.assumptions
    add_remove = private(relation="add_remove", n_records=500).fit(*blobs).privacy_
    assert add_remove.relation == "add_remove"
    assert not add_remove.assumptions


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"module": nn.Linear(3, 2)}, ["the module treats", "the weights that training starts"]),
        ({"module": lambda: nn.Linear(3, 2)}, ["the module treats"]),
        ({"augment": lambda rows: rows}, ["augmentations treat"]),
        ({"augment": RandomShift((1, 1, 3))}, []),
    ],
)
def test_code_that_is_taken_on_trust_is_an_assumption(blobs, params, named):
    found = private(relation="add_remove", n_records=500, **params).fit(*blobs).privacy_.assumptions
    assert [a[: len(n)] for a, n in zip(found, named, strict=True)] == named


BAD_PARAMETERS = [
    ({"epsilon": 0.0}, "epsilon"),
    ({"epsilon": np.nan}, "epsilon"),
    ({"delta": 0.0}, "delta"),
    ({"delta": 1 / 400}, "delta=0.0025 must be below 1 / number of records"),
    ({"max_grad_norm": 0.0}, "max_grad_norm"),
    ({"max_grad_norm": 1e30}, "max_grad_norm"),
    # At 1e-28 rounding took clipped gradients up to 1.4 times the norm.
    ({"max_grad_norm": 1e-30}, "max_grad_norm"),
    ({"learning_rate": np.inf}, "learning_rate"),
    ({"batch_size": 0}, "batch_size"),
    ({"epochs": 0}, "epochs"),
    ({"optimizer": Optimizer(momentum=1.0)}, "momentum"),
    ({"noise": "laplace"}, "noise"),
    ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes"),
    ({"device": "abacus"}, "device='abacus'"),
    ({"n_records": 0}, "n_records"),
    ({"n_records": 9}, "n_records=9 does not fit relation='zero_out'"),
    ({"relation": "add_remove"}, "n_records=None does not fit relation='add_remove'"),
    ({"relation": "replace_one"}, "relation"),
    ({"classes": [0]}, "at least two classes"),
    ({"classes": [1, 2]}, r"not in classes=\[1, 2\]"),
    ({"classes": ["0", "1"]}, "not in classes"),
]


@pytest.mark.parametrize(("params", "match"), BAD_PARAMETERS, ids=lambda v: str(v)[:40])
def test_bad_parameters_are_named_before_anything_is_released(blobs, params, match, monkeypatch):
    monkeypatch.setattr(FloatGaussian, "release", _never)
    with pytest.raises(ValueError, match=match):
        private(**params).fit(*blobs)


def _never(*args):
    raise AssertionError("private data was released")


def test_one_row():
    model = private(delta=0.01).fit([[0.5, 1.0]], [1])
    assert model.predict_proba([[0.5, 1.0]]).shape == (1, 2)


def test_prediction_refuses_what_is_not_finite(blobs):
    model = private().fit(*blobs)
    with pytest.raises(ValueError, match="NaN"):
        model.predict([[np.nan, 0.0, 0.0]])
    with pytest.raises(ValueError, match="3 features"):
        model.predict([[0.0, 0.0]])


@pytest.mark.heavy
def test_workers_and_threads_never_share_noise(blobs):
    for backend in ("multiprocessing", "threading"):  # a fork starts from the same state
        run = Parallel(n_jobs=2, backend=backend)
        first, second = run(delayed(_noise_alone)(blobs[1]) for _ in range(2))
        assert np.isclose(first, second).mean() < 0.1  # of 386, about 1 in 200,000 are by chance


def _noise_alone(y):
    return _weights(private(random_state=0).fit(np.full((len(y), 3), np.nan), y))


@pytest.fixture
def seen_in_steps(blobs, monkeypatch):
    """Fit a model; return what ``read`` gives in its steps."""

    def fit(read):
        seen, step = set(), Training.step

        def watched(self, *args):
            seen.add(read())
            step(self, *args)

        with monkeypatch.context() as patch:
            patch.setattr(Training, "step", watched)
            private().fit(*blobs)
        return seen

    return fit


def test_matrix_products_keep_single_precision(seen_in_steps):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert seen_in_steps(torch.get_float32_matmul_precision) == {"highest"}
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "matmul"), reason="an older torch")
@pytest.mark.parametrize(
    "where", [torch.backends, torch.backends.mkldnn, getattr(torch.backends.mkldnn, "matmul", None)]
)
def test_precision_that_is_set_for_each_product_is_kept_out_and_put_back(where, seen_in_steps):
    product = torch.backends.mkldnn.matmul
    before = product.fp32_precision, where.fp32_precision
    try:
        product.fp32_precision = "none"
        where.fp32_precision = "bf16"
        assert product.fp32_precision == "bf16"
        assert seen_in_steps(lambda: product.fp32_precision) == {"ieee"}
        assert product.fp32_precision == "bf16"
        where.fp32_precision = "tf32"
        assert product.fp32_precision == "tf32"  # still follows what it followed
    finally:
        product.fp32_precision, where.fp32_precision = before


@pytest.mark.skipif(
    not hasattr(torch.backends.cudnn, "conv"), reason="torch before 2.9 has one setting for both"
)
@pytest.mark.parametrize(("apart", "inside"), [(False, "none"), (True, "ieee")])
def test_convolutions_keep_single_precision(apart, inside, seen_in_steps):
    """On a GPU they have TF32 if nobody says otherwise; ``none`` is what torch makes of a no."""
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32
    try:
        cudnn.allow_tf32 = not apart
        if apart:
            cudnn.conv.fp32_precision = "tf32"
        assert seen_in_steps(lambda: cudnn.conv.fp32_precision) == {inside}
        assert cudnn.conv.fp32_precision == "tf32"
    finally:
        cudnn.allow_tf32 = before


def test_progress_is_shown_when_asked_for(blobs, capfd):
    with config_context(progress=True):
        model = private().fit(*blobs)
    shown = capfd.readouterr().err
    assert "step" in shown
    assert f" 0/{model.n_steps_} " in shown  # of all epochs, in one bar
    assert shown.count("  0%|") == 1
    private().fit(*blobs)
    assert capfd.readouterr().err == ""


@pytest.mark.heavy
def test_threads_train_at_the_same_time(blobs):
    models = [private() for _ in range(4)]
    threads = [threading.Thread(target=m.fit, args=blobs) for m in models]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(m.score(*blobs) > 0.8 for m in models)


def test_the_chance_of_training_stays_hidden_until_the_last_thread_is_done():
    """One that ends first must not let another go on with what the caller has seeded."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    public = torch.rand(4)
    torch.set_rng_state(before)
    first, second = (private_randomness(SecureRandom(), "cpu") for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not torch.equal(torch.rand(4), public)
    second.__exit__(None, None, None)
    assert torch.equal(torch.rand(4), public)


def budget_of(epsilon, **params):
    return PrivacyBudget(epsilon, 1e-4, relation="zero_out", **params)


@pytest.mark.heavy
def test_clones_and_copies_charge_one_budget(blobs):
    budget = budget_of(10.0)
    model = private(epsilon=0.5, budget=budget, epochs=2)
    cross_validate(clone(model), *blobs, cv=4)
    assert len(budget.entries()) == 4
    pickle.loads(pickle.dumps(model)).fit(*blobs)
    assert len(budget.entries()) == 5
    assert set(budget.entries()["source"]) == {"DPSGDClassifier"}


class Perceptron(nn.Module):
    def __init__(self, n_inputs=3, width=8, batch_norm=False):
        super().__init__()
        middle = nn.BatchNorm1d(width) if batch_norm else nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(n_inputs, width), middle, nn.ReLU())
        self.last = nn.Linear(width, 2)

    def forward(self, x):
        return self.last(self.layers(x))


@pytest.mark.heavy
def test_a_module_of_ones_own(blobs):
    model = private(module=Perceptron, module__width=5).fit(*blobs)
    assert model.module_.last.in_features == 5
    assert model.gradients_ == "book-keeping"
    assert model.score(*blobs) > 0.85
    copied = clone(model).set_params(module__width=7, epochs=1)
    assert copied.get_params()["module__width"] == 7
    assert copied.fit(*blobs).module_.last.in_features == 7
    assert pickle.loads(pickle.dumps(model)).score(*blobs) == model.score(*blobs)


def test_a_ready_made_module_is_where_training_starts(blobs):
    public = Perceptron()
    before = {k: v.clone() for k, v in public.state_dict().items()}
    model = private(module=public, learning_rate=1e-12, optimizer=Optimizer(momentum=0.0)).fit(
        *blobs
    )
    for name, value in model.module_.state_dict().items():
        assert torch.allclose(value, before[name], atol=1e-6)
        assert torch.equal(public.state_dict()[name], before[name])


@pytest.mark.parametrize("module", [None, Perceptron])
def test_random_state_drives_the_initial_weights(blobs, module):
    params = {"module": module, "epsilon": np.inf, "batch_size": 10**6, "epochs": 1}
    before = torch.get_rng_state()
    a, b, c = (_weights(private(random_state=s, **params).fit(*blobs)) for s in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.allclose(a, c)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"module": Perceptron, "module__batch_norm": True}, "LayerNorm or GroupNorm"),
        ({"module": Perceptron, "module__n_inputs": 4}, "cannot be trained on inputs of shape"),
        ({"module": nn.Linear(3, 3)}, r"shape \(5, 3\), expected \(5, 2\)"),
        ({"module": nn.Flatten}, "no parameters"),
        ({"module": lambda: 3}, "not a torch module"),
        ({"module": Perceptron(), "module__width": 5}, "is an instance"),
        ({"module__width": 5}, "module=None"),
        ({"optimizer": "lbfgs"}, "optimizer"),
        ({"class_weight": "balanced"}, "class_weight='balanced' would count the private labels"),
        ({"class_weight": {5: 1.0}}, "class_weight"),
        ({"class_weight": {0: -1.0}}, "class_weight"),
        ({"class_weight": {0: np.nan}}, "class_weight"),
        ({"class_weight": "even", "class_prior": [0.5, 0.5]}, "class_weight"),
        ({"class_prior": {0: 1.0}}, "class_prior"),
        ({"class_prior": {0: 0.5, 5: 0.5}}, "class_prior"),
        ({"class_prior": {0: 0.5, 1: 0.4, 5: 0.1}}, "class_prior"),
        ({"class_prior": [0.9, 0.2]}, "class_prior"),
        ({"class_prior": [1.0, 0.0]}, "class_prior"),
        ({"class_prior": ["a", "b"]}, "class_prior"),
        ({"class_prior": 0.1}, "class_prior"),
    ],
    ids=lambda v: str(v).partition(" at 0x")[0][:40],
)
def test_bad_modules_and_training_are_refused_and_not_charged(blobs, params, match, monkeypatch):
    monkeypatch.setattr(FloatGaussian, "release", _never)
    budget = budget_of(10.0)
    with pytest.raises(ValueError, match=match):
        private(budget=budget, **params).fit(*blobs)
    assert len(budget.entries()) == 0


def test_an_unknown_parameter_is_refused():
    with pytest.raises(TypeError, match="nonsense"):
        private(nonsense=1)


@pytest.mark.heavy
def test_class_weight_moves_the_probabilities(blobs):
    """With nothing to learn from the inputs, a class is as probable as its weight makes it."""
    X = np.random.RandomState(1).normal(size=(400, 3))
    low, even, high = (
        private(class_weight=w, random_state=0, epsilon=20.0, batch_size=400, epochs=30)
        .fit(X, blobs[1])
        .predict_proba(X)[:, 1]
        .mean()
        for w in ({1: np.float32(0.02)}, None, {np.int64(0): 0.02})
    )
    assert low + 0.2 < even < high - 0.2


@pytest.mark.heavy
def test_partial_fit_composes_and_charges(blobs):
    budget = budget_of(10.0)
    model = private(epsilon=1.0, budget=budget)
    model.partial_fit(*blobs)
    first, start = model.privacy_, _weights(model)
    model.partial_fit(*blobs)
    assert len(budget.entries()) == 2
    assert not np.array_equal(start, _weights(model))
    assert first.epsilon() <= 1.0 < model.epsilon_ < 2.0
    assert model.privacy_.event == ComposedEvent((first.event, first.event))
    assert model.fit(*blobs).epsilon_ <= 1.0
    with pytest.raises(ValueError, match="relation"):
        model.set_params(relation="add_remove", n_records=400).partial_fit(*blobs)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_the_mode_of_the_caller_does_not_matter(blobs, mode):
    with mode():
        assert private(module=Perceptron).fit(*blobs).score(*blobs) > 0.85


def test_reduced_precision_of_the_caller_does_not_reach_the_norms(blobs, monkeypatch):
    kinds = set()
    squared_norms = OuterProduct.squared_norms

    def watched(self):
        found = squared_norms(self)
        kinds.add((self.output_grad.dtype, found.dtype, torch.is_autocast_enabled("cpu")))
        return found

    monkeypatch.setattr(OuterProduct, "squared_norms", watched)
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            for module in (None, Perceptron):
                assert private(module=module).fit(*blobs).score(*blobs) > 0.85
    finally:
        torch.set_default_dtype(default)
    assert kinds == {(torch.float32, torch.float32, False)}


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_a_noise_seed_does_not_leave_with_the_model(blobs):
    model = private(noise_seed=123456789)
    assert pickle.loads(pickle.dumps(model)).noise_seed == 123456789  # on its way to a worker
    assert model.fit(*blobs).privacy_.kind == "estimate"
    assert (123456789).to_bytes(4, "little") not in pickle.dumps(model)
    assert pickle.loads(pickle.dumps(model)).noise_seed is None


def test_further_training_that_fails_leaves_the_earlier_model_its_claim(blobs, monkeypatch):
    model = private(epsilon=9.0).fit(*blobs)
    before = _weights(model)

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(epsilon=0.1).partial_fit(*blobs)
    assert np.array_equal(_weights(model), before)
    assert 8.9 < model.privacy_.epsilon() == model.epsilon_ <= 9.0


@pytest.mark.parametrize("epsilon", [1e-6, 100.0], ids=["refused", "fitted"])
def test_a_fit_leaves_torchs_generator_as_it_was(epsilon):
    X, y = np.random.RandomState(0).normal(size=(30, 3)), np.arange(30) % 2
    model = DPSGDClassifier(
        classes=[0, 1], epochs=1, delta=1e-4, budget=PrivacyBudget(epsilon, 1e-2)
    )
    before = torch.get_rng_state()
    try:
        model.fit(X, y)
    except BudgetExceededError:
        assert epsilon < 1
    assert torch.equal(before, torch.get_rng_state())
