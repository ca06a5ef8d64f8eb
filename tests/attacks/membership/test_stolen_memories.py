"""Stolen memories: real leakage on every kind of network, and nothing on the null."""

import copy
import warnings

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import LabeledRecords, StolenMemoriesAttack
from skprivacy.attacks.network_view import open_network

from ..conftest import attack_halves

pytestmark = pytest.mark.heavy

torch = pytest.importorskip("torch")
N = 300


def problem(seed=0, n_classes=3, n=4 * N):
    X, y = make_classification(
        n, 60, n_informative=8, n_classes=n_classes, flip_y=0.3, random_state=seed
    )
    return X, np.array(["ash", "beech", "cedar"])[y]


def noisy_labels(n_classes=2):
    """Return records whose labels can only be memorised, for leakage that is beyond doubt.

    The folds of the attack follow the records' fingerprints. The last bit of X, which depends on
    the processor, therefore draws them anew, and the leakage that is found varies.
    """
    X, y = make_classification(
        6 * N, 150, n_informative=4, n_redundant=0, n_classes=n_classes, flip_y=0.9, random_state=0
    )
    return X, np.array(["ash", "beech", "cedar"])[y]


def perceptron(**params):
    params = {"hidden_layer_sizes": (30,), "solver": "lbfgs", "max_iter": 60} | params
    return MLPClassifier(**params, random_state=0)


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def module(X, label, epochs=60):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(60, 40), torch.nn.LayerNorm(40), torch.nn.ReLU(), torch.nn.Dropout(0.1),
        torch.nn.Linear(40, 3),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    inputs, truth = torch.tensor(X, dtype=torch.float32), torch.tensor(label)
    for _ in range(epochs):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(inputs), truth).backward()
        optimizer.step()
    return net


def attacked(target, X, y, **params):
    attack = StolenMemoriesAttack(target, **params)
    return attack, attack_halves(attack, X, y, known=slice(2 * N, None), n=N, last=2 * N)


@pytest.mark.everyday(2)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "model",
    [
        perceptron(),
        make_pipeline(StandardScaler(), perceptron(hidden_layer_sizes=(30, 10))),
        make_pipeline(LogisticRegression(C=10, max_iter=1000)),
        RidgeClassifier(),  # no probabilities: the weights are enough
    ],
    ids=["mlp", "pipeline", "logistic", "ridge"],
)
def test_finds_leakage_without_a_known_member(model, n_classes):
    X, y = noisy_labels(n_classes)
    _, result = attacked(fitted(model, X[:N], y[:N]), X, y)
    assert result.auc_interval[0] > 0.5
    assert result.attack == "StolenMemoriesAttack"


def test_finds_leakage_of_a_torch_module():
    X, y = problem()
    label = np.unique(y, return_inverse=True)[1]
    net = module(X[:N], label[:N])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    _, result = attacked(net, X, label, epochs=8)
    assert result.auc_interval[0] > 0.6
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
    assert net.training
    assert all(weight.requires_grad for weight in net.parameters())


def test_skorch_probabilities_become_log_odds():
    skorch = pytest.importorskip("skorch")
    X, y = problem()
    label = np.unique(y, return_inverse=True)[1]
    logits = module(X[:N], label[:N])
    proba = torch.nn.Sequential(logits, torch.nn.Softmax(1))
    target = skorch.NeuralNetClassifier(proba, classes=[0, 1, 2]).initialize()
    holder = skorch.NeuralNetClassifier(
        logits, criterion=torch.nn.CrossEntropyLoss, classes=[0, 1, 2]
    ).initialize()
    for of in ("loss", "odds"):
        one, other = (open_network(t)[0].trace(X, label, of) for t in (target, holder))
        assert one[1] == pytest.approx(other[1], rel=1e-3, abs=1e-3)
    _, result = attacked(holder, X.astype(np.float32), label, epochs=8)
    assert result.auc_interval[0] > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
def test_proxies_share_the_layers_below_and_forget_the_others(first):
    X, y = problem()
    label = np.unique(y, return_inverse=True)[1]
    plain = open_network(fitted(perceptron(), X[:N], y[:N]))[0]
    deep = open_network(module(X[:N], label[:N]), epochs=1)[0]
    for network in (plain, deep):
        proxy = network.retrained(X[N:], label[N:], first, 0)
        own, others = (n.trace(X, label, "odds")[0] for n in (network, proxy))
        assert others[first].inputs == pytest.approx(own[first].inputs)
        assert np.abs(others[-1].at_inputs - own[-1].at_inputs).max() > 0.01
        again = network.retrained(X[N:], label[N:], first, 0)
        assert again.trace(X, label, "odds")[1] == pytest.approx(proxy.trace(X, label, "odds")[1])


def test_local_linear_approximation_is_exact_where_it_is_taken():
    # of a linear model it is the model: displaced weights and bias are differences of coefs_
    X, y = problem(n_classes=2)
    target = LogisticRegression(max_iter=1000).fit(X[:N], y[:N])
    label = (y == target.classes_[1]).astype(int)
    network = open_network(target)[0]
    layers, odds = network.trace(X, np.ones(len(X), int), "odds")
    assert layers[0].at_inputs == pytest.approx(np.tile(target.coef_, (len(X), 1)))
    assert odds == pytest.approx(target.decision_function(X))
    proxy = network.retrained(X[N:], label[N:], 0, 0)
    same = LogisticRegression(max_iter=1000).fit(X[N:], label[N:])
    weights = proxy.matrices[0].T
    assert weights == pytest.approx(same.coef_)


def on_nulls(model, runs, known):
    for seed in range(runs):
        X, y = problem(seed, n=600)
        target = fitted(model, X[:100], y[:100])  # neither "members" nor the others
        yield attack_halves(StolenMemoriesAttack(target), X[100:], y[100:], known, n=250)


LINEAR, SMALL = LogisticRegression(max_iter=500), perceptron(hidden_layer_sizes=(10,))
ALL, OTHERS = slice(None), slice(250, None)  # records that the attacker knows


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("known", [ALL, OTHERS], ids=["all", "others"])
@pytest.mark.parametrize("model", [LINEAR, SMALL])
def test_null_in_100_runs(model, known, assert_chance):
    assert_chance(on_nulls(model, 100, known), limit=5)


@pytest.mark.slow
def test_threshold_keeps_its_precision():
    X, y = noisy_labels()
    target = MLPClassifier((100,), max_iter=40, learning_rate_init=0.005, random_state=0)
    fitted(target, X[:N], y[:N])
    records = LabeledRecords(X, y)
    attack = StolenMemoriesAttack(target, precision=0.65).fit(records[2 * N :])
    called = attack.predict(records[: 2 * N])
    assert attack.shadow_precision_ >= 0.65
    assert called.sum() > 300
    # The promise is about the shadow network. The target's share of 0.65 of 300 calls or more has
    # a standard deviation below 0.028: within 2.5 of them.
    assert called[:N].sum() / called.sum() > 0.58
    strict = attack.set_params(precision=0.999).fit(records[2 * N :])
    assert not strict.predict(records[: 2 * N]).any()
    assert np.isnan(strict.shadow_precision_)


@pytest.mark.filterwarnings(
    "ignore:y holds 20 records with labels that are not among the target's classes"
)
def test_class_that_the_target_does_not_know_scores_lowest():
    X, y = problem()
    y = y.astype(object)
    y[-20:] = "yew"
    target = fitted(perceptron(), X[:N], y[:N])
    records = LabeledRecords(X, y)
    attack = StolenMemoriesAttack(target).fit(records[N:])
    values = attack.decision_function(records)
    assert (values[-20:] == values.min()).all()


@pytest.mark.slow
def test_rare_class_missing_in_a_fold():
    X, y = problem()
    y[y == "cedar"] = "ash"
    y[:5] = y[2 * N] = "cedar"  # one record of it for the attacker
    for model in (perceptron(), LogisticRegression(max_iter=1000)):
        _, result = attacked(fitted(model, X[:N], y[:N]), X, y)
        assert np.isfinite(result.auc)


def test_mistakes_are_named():
    X, y = problem()
    records = LabeledRecords(X, y)
    with pytest.raises(TypeError, match="or a linear model"):
        StolenMemoriesAttack(DecisionTreeClassifier().fit(X, y)).fit(records)
    with pytest.raises(TypeError, match=r"no torch\.nn\.Linear"):
        StolenMemoriesAttack(Holder(torch.nn.Conv1d(1, 1, 1))).fit(records)
    target = LogisticRegression(max_iter=1000).fit(X, y)
    with pytest.raises(ValueError, match="expected dozens"):
        StolenMemoriesAttack(target).fit(records[:9])


class Holder:
    classes_ = np.array(["ash", "beech", "cedar"])

    def __init__(self, module):
        self.module_ = module


def test_constant_target_and_one_member():
    X, y = problem()
    target = fitted(perceptron(), X[:N], y[:N])
    records = LabeledRecords(X, y)
    result = attacked(target, X, y)[0].evaluate(records[:1], records[N : 2 * N])
    assert result.epsilon_lower_bound() == 0
    assert result.auc_interval[0] < 0.5 or result.auc == 1
    constant = copy.deepcopy(target)
    for weight, bias in zip(constant.coefs_, constant.intercepts_, strict=True):
        weight[:] = 0
        bias[:] = 0
    constant.intercepts_[-1][0] = 800.0  # probabilities of exactly 0 and 1
    _, result = attacked(constant, X, y)
    assert result.auc_interval[0] <= 0.5 <= result.auc_interval[1]
    assert result.epsilon_lower_bound() == 0


@pytest.mark.parametrize("model", [perceptron(), LogisticRegression()])
def test_records_of_another_shape_or_other_labels_are_told(model):
    X, y = problem()
    target = fitted(model, X[:N], y[:N])
    with pytest.raises(ValueError, match="expected 60 features"):
        StolenMemoriesAttack(target).fit(LabeledRecords(X[:, :5], y))
    with pytest.raises(ValueError, match="y holds none of the target's classes"):
        StolenMemoriesAttack(target).fit(LabeledRecords(X, np.full(len(y), "oak")))
