"""White-box attacks: right gradients, real leakage, nothing on the null."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import LabeledRecords, LossThreshold, WhiteBoxAttack
from skprivacy.attacks.membership.white_box import gradient_alignments
from skprivacy.attacks.network_view import open_network

from ..conftest import attack_halves

pytestmark = pytest.mark.heavy


def problem(seed=0, n=600, n_classes=2):
    return make_classification(
        n, 10, n_informative=6, n_classes=n_classes, flip_y=0.4, random_state=seed
    )


def network(X, y, activation="relu", max_iter=30):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        net = MLPClassifier((40, 20), activation=activation, max_iter=max_iter, random_state=0)
        return net.set_params(learning_rate_init=0.01).fit(X, y)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_gradients_against_finite_differences(activation, n_classes):
    X, y = problem(n_classes=n_classes)
    net = network(X, y, activation, max_iter=3)
    layers = open_network(net)[0].trace(X[:1], y[:1], "loss")[0]

    def loss():
        return -np.log(net.predict_proba(X[:1])[0, y[0]])

    for place, (inputs, gradient, _) in enumerate(layers):
        weight = net.coefs_[place]
        i, j = 1, weight.shape[1] - 1
        middle, step = weight[i, j], 1e-5
        weight[i, j] = middle + step
        up = loss()
        weight[i, j] = middle - step
        slope = (up - loss()) / (2 * step)
        weight[i, j] = middle
        assert inputs[0, i] * gradient[0, j] == pytest.approx(slope, abs=1e-6)


def as_module(net):
    torch = pytest.importorskip("torch")
    layers = []
    for weight, bias in zip(net.coefs_, net.intercepts_, strict=True):
        layer = torch.nn.Linear(*weight.shape)
        layer.weight.data = torch.tensor(weight.T.copy())
        layer.bias.data = torch.tensor(bias)
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).double()


@pytest.mark.everyday(1)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_torch_layers_equal_numpy_layers(n_classes):
    X, y = problem(n_classes=n_classes)
    net = network(X, y)
    holder = type("Holder", (), {"module_": as_module(net)})()
    holder.module_.requires_grad_(False)
    for of in ("loss", "odds"):
        plain, value = open_network(net)[0].trace(X, y, of)
        torch, same = open_network(holder)[0].trace(X, y, of)
        assert value == pytest.approx(same)
        for ours, theirs in zip(plain, torch, strict=True):
            assert ours.inputs == pytest.approx(theirs.inputs)
            assert ours.at_output == pytest.approx(theirs.at_output, abs=1e-12)
            assert ours.at_inputs == pytest.approx(theirs.at_inputs, abs=1e-12)
    first = next(holder.module_.parameters())
    assert not first.requires_grad
    assert first.grad is None
    assert holder.module_.training


ATTACKS = [WhiteBoxAttack(attack_model="linear"), WhiteBoxAttack(epochs=1, random_state=0)]
on_networks = pytest.mark.parametrize("template", ATTACKS, ids=lambda a: a.attack_model)


@pytest.mark.everyday(1)
@on_networks
def test_finds_leakage_of_records_the_attack_model_did_not_see(template):
    X, y = problem()
    scaler = StandardScaler().fit(X)
    target = make_pipeline(scaler, network(scaler.transform(X[:300]), y[:300], max_iter=60))
    known, records = np.arange(600) % 2 == 0, LabeledRecords(X, y)
    attack = clone(template).set_params(target=target)
    attack.fit(records[known], (np.arange(600) < 300)[known])
    result = attack.evaluate(records[:300][~known[:300]], records[300:][~known[300:]])
    assert result.auc_interval[0] > 0.55  # AUC is .67 and .70, within .08 on 300 records


@pytest.mark.everyday(1)
@on_networks
def test_null_although_the_attack_model_is_fitted_on_the_same_records(template, assert_chance):
    results = []
    for seed in range(8):
        X, y = problem(seed, 500)
        attack = clone(template).set_params(target=network(X[:100], y[:100], max_iter=10))
        results.append(attack_halves(attack, X[100:], y[100:], member=np.arange(400) < 200))
        assert results[-1].epsilon_lower_bound() == 0
    assert_chance(results)


def test_white_box_mistakes():
    X, y = problem()
    records = LabeledRecords(X, y)
    with pytest.raises(ValueError, match="y is None"):
        WhiteBoxAttack(network(X, y, max_iter=2), attack_model="linear").fit(records)
    with pytest.raises(TypeError, match="must be a torch module"):
        WhiteBoxAttack(DecisionTreeClassifier().fit(X, y)).fit(records, np.arange(600) < 300)
    with pytest.raises(ValueError, match="too few to hold out"):
        WhiteBoxAttack(network(X, y, max_iter=2)).fit(records[:2], np.array([True, False]))


def test_without_members_every_record_has_a_score():
    X, y = problem()
    attack = WhiteBoxAttack(network(X, y, max_iter=2), epochs=1).fit(LabeledRecords(X, y))
    assert np.isfinite(attack.decision_function(LabeledRecords(X[:9], y[:9]))).all()


@pytest.mark.slow
def test_without_members_the_network_is_told_apart_by_what_it_computes():
    X, y = problem(n=1000)
    target = network(X[:500], y[:500], max_iter=100)
    result = attack_halves(WhiteBoxAttack(target, random_state=0), X, y)
    loss = attack_halves(LossThreshold(target), X, y)
    assert result.auc > loss.auc - 0.05
    assert result.auc_interval[0] > 0.55


@pytest.mark.slow
def test_without_members_on_the_null(assert_chance):
    results = []
    for seed in range(12):
        X, y = problem(seed, 300)
        attack = WhiteBoxAttack(network(X[:100], y[:100], max_iter=10), epochs=2)
        records = LabeledRecords(X, y)
        results.append(attack.fit(records).evaluate(records[100:200], records[200:]))
    assert_chance(results, epsilon=False)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_alignments_are_products_of_gradients_and_weights(activation):
    X, y = problem(n_classes=3)
    net = network(X, y, activation, max_iter=3)
    layers = open_network(net)[0].trace(X[:5], y[:5], "loss")[0]
    found = gradient_alignments(layers)
    for place, ((inputs, gradient, _), weight) in enumerate(zip(layers, net.coefs_, strict=True)):
        for record in range(5):
            matrix = np.outer(inputs[record], gradient[record])
            expected = np.sum(matrix * weight) / np.linalg.norm(matrix)
            assert found[record, place] == pytest.approx(expected)


def test_kernels_slide_over_the_rows_of_the_gradient_matrix():
    torch = pytest.importorskip("torch")
    from skprivacy.attacks.membership.white_box_encoder import _convolve

    inputs, gradient, kernels = torch.randn(7, 5), torch.randn(7, 3), torch.randn(4, 5)
    matrix = gradient[:, :, None] * inputs[:, None, :]  # that of the weights, (out, in)
    slid = torch.nn.functional.conv2d(matrix[:, None], kernels[:, None, None])[..., 0]
    assert torch.allclose(_convolve(kernels, inputs, gradient), slid, atol=1e-5)


@pytest.mark.everyday(1)
@pytest.mark.filterwarnings("ignore:y holds .* labels that are not among the target's classes")
@on_networks
def test_white_box_edges(template):
    # a class the target does not know, one member, and a target that says 0 and 1 exactly
    X, y = problem(n_classes=3)
    net = network(X[:300][y[:300] < 2], y[:300][y[:300] < 2])
    member = np.arange(600) < 300
    attack = clone(template).set_params(target=net)
    result = attack_halves(attack, X, y, member=member, n=1)
    assert result.epsilon_lower_bound() == 0
    for weight in net.coefs_:
        weight[:] = 0
    net.intercepts_[-1][:] = 800.0
    result = attack_halves(attack, X, y, member=member)
    low, high = result.auc_interval
    assert low <= 0.5 <= high
    assert result.epsilon_lower_bound() == 0
