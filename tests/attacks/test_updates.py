"""Updates: the ratio by hand, members found, no leak on the null, and planted bugs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skprivacy.accounting import GaussianEvent, PrivacyGuarantee, RepeatedEvent
from skprivacy.attacks import (
    AttributeInference,
    LabeledRecords,
    PropertyInference,
    Updates,
    UpdatesMembership,
)
from skprivacy.attacks.network_view import open_network, weights_of
from skprivacy.attacks.record_gradients import record_gradients
from skprivacy.attacks.record_tables import fingerprints

from .conftest import attack_halves

N, D = 40, 12


def people(seed=0, n=600, d=D):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + rng.normal(size=n) > 0).astype(int)


def network(seed=0, d=D, units=64):
    net = MLPClassifier((units,), activation="tanh", solver="sgd", max_iter=1, random_state=seed)
    return net.partial_fit(np.zeros((2, d)), [0, 1], classes=[0, 1])


def descended(model, weights, X, y, rate=0.5):
    """Return the weights after one step on the mean gradient."""
    network, as_inputs = open_network(model)
    slopes = record_gradients(network.with_weights(weights), as_inputs(X), y)
    return weights - rate * slopes.mean(len(weights))


def trained(X, y, n_rounds=3, rate=0.5, model=None):
    model = network() if model is None else model
    weights = [weights_of(model)]
    for _ in range(n_rounds):
        weights.append(descended(model, weights[-1], X, y, rate))
    return Updates(model, weights[:-1], weights[1:], step=rate, n_records=len(y))


def attacked(seen, X, y, n=N, **params):
    attack = UpdatesMembership(seen, **params)
    return attack_halves(attack, X, y, known=slice(200, None), n=n, last=200)


def log_loss(model, weights, X, y):
    net = open_network(model)[0]
    return net.with_weights(weights).trace(X, y, "loss")[1]


@pytest.mark.parametrize("kind", ["perceptron", "linear"])
def test_gradients_are_slopes_of_the_loss(kind):
    X, y = people(n=6)
    model = network() if kind == "perceptron" else LogisticRegression().fit(X, [0, 1] * 3)
    weights, step = weights_of(model), 1e-5
    direction = np.random.default_rng(1).normal(size=len(weights))
    found = record_gradients(open_network(model)[0], X, y)
    up = log_loss(model, weights + step * direction, X, y)
    down = log_loss(model, weights - step * direction, X, y)
    assert found.project_on(direction) == pytest.approx((up - down) / (2 * step), abs=1e-6)
    rows = np.array([found.project_on(unit) for unit in np.eye(len(weights))]).T
    assert found.products(found) == pytest.approx(rows @ rows.T)
    assert found.squared_norms() == pytest.approx(np.sum(rows**2, axis=1))
    assert found.mean(len(weights)) == pytest.approx(rows.mean(axis=0))
    assert np.sqrt(found.clip_to(0.3).squared_norms()).max() <= 0.3 + 1e-12


def modules():
    torch = pytest.importorskip("torch")

    class Bare(torch.nn.Module):
        """The perceptron with its weights outside of layers, which are one long row."""

        def __init__(self, layers):
            super().__init__()
            self.first, self.second = layers[2], layers[0]  # not in the order of use
            self.shift = torch.nn.Parameter(torch.zeros(1, dtype=torch.double))

        def forward(self, x):
            return self.first(torch.tanh(self.second(x + self.shift)))

    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(D, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2, bias=False)
    ).double()
    reverse = torch.nn.ModuleDict({"last": layers[2], "first": layers[0]})
    reverse.forward = lambda x: reverse["last"](torch.tanh(reverse["first"](x)))
    convolution = torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, D)), torch.nn.Conv1d(1, 3, 3), torch.nn.Flatten(),
        torch.nn.Dropout(0.5), torch.nn.Linear(30, 2),
    ).double()  # fmt: skip
    return torch, {"layers": layers, "reverse": reverse, "bare": Bare(layers), "conv": convolution}


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["layers", "reverse", "bare", "conv"])
def test_gradients_of_modules_are_those_of_autograd(name):
    torch, known = modules()
    module = known[name].train()
    X, y = people(n=5)
    found = record_gradients(open_network(module)[0], X, y)
    assert module.training  # dropout is off meanwhile, and on again
    module.eval()
    rows = []
    for x, label in zip(torch.as_tensor(X), torch.as_tensor(y), strict=True):
        loss = torch.nn.functional.cross_entropy(module(x[None]), label[None])
        rows.append(torch.cat([g.ravel() for g in torch.autograd.grad(loss, module.parameters())]))
    rows = torch.stack(rows).numpy()
    assert found.products(found) == pytest.approx(rows @ rows.T)
    assert found.project_on(rows[0]) == pytest.approx(rows @ rows[0])
    assert found.mean(rows.shape[1]) == pytest.approx(rows.mean(axis=0))


@pytest.mark.heavy
def test_modules_are_attacked_and_left_as_they_were():
    _, known = modules()
    X, y = people()
    module = known["conv"].train()
    before = weights_of(module)
    result = attacked(trained(X[:N], y[:N], model=module), X, y)
    assert result.auc > 0.65
    assert module.training
    assert (weights_of(module) == before).all()


def test_the_ratio_by_hand():
    """The formula of the notes, with matrices of gradients and their covariance."""
    X, y = people(n=60, d=4)
    model, n, rate, noise, m = network(d=4, units=3), 10, 0.5, 0.02, 48
    start = weights_of(model)
    random = np.random.default_rng(0)
    after = descended(model, start, X[:n], y[:n], rate) + noise * random.normal(size=len(start))
    seen = Updates(model, [start], [after], rate, n, noise_std=noise)
    attack = UpdatesMembership(seen).fit(LabeledRecords(X, y)[n:])
    fold = np.flatnonzero(attack._fold != 0)
    m = len(fold)
    rows = np.eye(len(start))
    slopes = record_gradients(open_network(model)[0], X, y)
    every = np.array([slopes.project_on(unit) for unit in rows]).T
    again = record_gradients(open_network(model)[0], attack._reference[fold],
                             attack._reference_labels[fold])  # fmt: skip
    known = np.array([again.project_on(unit) for unit in rows]).T
    mean, covariance = known.mean(axis=0), np.cov(known.T)
    spread = covariance * (1 + n / m)
    spread += (n * (noise / rate) ** 2 + 1e-4 * np.trace(covariance)) * np.eye(len(start))
    off, descent = every - mean, (start - after) / rate - mean
    precise = np.linalg.inv(spread)
    expected = off @ precise @ descent - np.einsum("ij,jk,ik->i", off, precise, off) / (2 * n)
    mine = fingerprints(X) % 5 == 0
    assert mine.any()
    assert attack._rounds(X, y)[0][mine, 0] == pytest.approx(expected[mine])


@pytest.mark.heavy
def test_members_of_a_party_are_found_and_those_of_another_are_not():
    X, y = people()
    result = attacked(trained(X[:N], y[:N]), X, y)
    assert result.auc > 0.85
    assert result.attack == "UpdatesMembership"
    X_other, y_other = people(seed=9)
    nothing = attacked(trained(X_other[:N], y_other[:N]), X, y)
    assert nothing.auc_interval[0] < 0.5 < nothing.auc_interval[1]


@pytest.mark.heavy
def test_rounds_out_of_order_do_not_go_unnoticed():
    """An update belongs to the weights that its round began with."""
    X, y = people()
    model = network()
    weights = [weights_of(network(seed)) for seed in range(3)]
    sent = [descended(model, w, X[:N], y[:N]) - w for w in weights]
    before = np.array(weights)
    right = Updates(model, before, before + sent, 0.5, N)
    wrong = Updates(model, before, before + np.roll(sent, 1, axis=0), 0.5, N)
    assert attacked(right, X, y).auc > 0.85
    assert attacked(wrong, X, y).auc < 0.7


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("supervised", [False, True])
def test_nothing_is_found_where_nothing_is(supervised):
    """Updates of others, whichever records are called members: planted labels do not leak."""
    aucs = []
    for seed in range(8):
        X, y = people(seed, n=300)
        X_other, y_other = people(seed + 100, n=N)
        seen = trained(X_other, y_other, n_rounds=2)
        known = {"member": np.arange(300) < 100} if supervised else {"known": slice(100, None)}
        aucs.append(attack_halves(UpdatesMembership(seen), X, y, n=100, **known).auc)
    assert np.mean(aucs) == pytest.approx(0.5, abs=0.06)  # 5 standard errors


@pytest.mark.heavy
def test_known_members_teach_the_attack():
    X, y = people()
    seen = trained(X[:N], y[:N])
    rows = np.r_[: N // 2, 200:600]
    records = LabeledRecords(X, y)
    attack = UpdatesMembership(seen).fit(records[rows], rows < N)
    rest = slice(N // 2, N)
    assert attack.evaluate(records[rest], records[N:200]).auc > 0.8
    with pytest.raises(ValueError, match="too few to hold out"):
        UpdatesMembership(seen).fit(records[[0, *range(200, 230)]], np.arange(31) == 0)


def test_a_score_does_not_depend_on_the_others_in_the_call():
    X, y = people(n=300)
    records = LabeledRecords(X, y)
    attack = UpdatesMembership(trained(X[:N], y[:N], n_rounds=1)).fit(records[N:])
    scores = attack.decision_function(records)
    assert attack.decision_function(records[50:20:-1]) == pytest.approx(scores[50:20:-1])
    again = pickle.loads(pickle.dumps(attack))
    assert again.decision_function(records) == pytest.approx(scores)
    assert clone(attack).target is attack.target


@pytest.mark.slow
def test_clipping_alone_defends_nothing_and_noise_keeps_to_its_guarantee():
    """One run of each; by chance it leaves the bound in at most one run of a million."""
    X, y = people(n=800)
    model, norm, rounds = network(), 0.2, 4
    found = {}
    for multiplier in (0.0, 4.0):
        random, weights, before, after = np.random.default_rng(0), weights_of(model), [], []
        for _ in range(rounds):
            slopes = record_gradients(open_network(model)[0].with_weights(weights), X[:N], y[:N])
            slope = slopes.clip_to(norm).mean(len(weights))
            before.append(weights)
            noisy = multiplier * norm / N * random.normal(size=len(weights))
            weights = weights - slope + noisy
            after.append(weights)
        seen = Updates(model, before, after, 1.0, N, norm, multiplier * norm / N)
        found[multiplier] = attacked(seen, X, y)
    bound = PrivacyGuarantee(RepeatedEvent(GaussianEvent(4.0), rounds)).tpr_bound
    assert found[0.0].auc > 0.85
    noisy = found[4.0]
    assert noisy.auc < 0.75
    up, right = np.sqrt(np.log(4e6) / (2 * np.array([N, 200 - N])))
    tpr = np.mean(noisy.scores_in[:, None] > noisy.scores_out, axis=0)
    fpr = np.mean(noisy.scores_out[:, None] > noisy.scores_out, axis=0)
    assert (tpr - up <= bound(np.minimum(fpr + right, 1))).all()


def test_the_mean_of_parties_is_one_large_party():
    X, y = people()
    model, start = network(), weights_of(network())
    parties = [
        Updates(model, [start], [descended(model, start, X[a:b], y[a:b])], 0.5, b - a)
        for a, b in ((0, 30), (30, 90))
    ]
    together = Updates.averaged(parties)
    assert together.after[0] == pytest.approx(descended(model, start, X[:90], y[:90]))
    assert (together.n_records, together.n_rounds) == (90, 1)
    assert attacked(parties[0], X, y, 30).auc > attacked(together, X, y, 90).auc + 0.05
    noisy = [Updates(model, u.before, u.after, 0.5, 30, noise_std=0.3) for u in parties]
    assert Updates.averaged(noisy).noise_std == pytest.approx(0.3 / np.sqrt(2))


def test_averaging_refuses_other_rounds():
    X, y = people()
    seen = trained(X[:N], y[:N], 2)
    swapped = Updates(seen.model, seen.before[::-1], seen.after[::-1], 0.5, N)
    with pytest.raises(ValueError, match="equal weights before each round"):
        Updates.averaged([seen, swapped])
    clipped = Updates(seen.model, seen.before, seen.after, 0.5, N, max_grad_norm=1.0)
    with pytest.raises(ValueError, match="max_grad_norm"):
        Updates.averaged([seen, clipped])
    with pytest.raises(ValueError, match="non-empty"):
        Updates.averaged([])


def test_ascent_raises_the_loss_before_each_round():
    X, y = people()
    model = network()
    sent = []

    def train(weights):
        sent.append(weights.copy())
        return descended(model, weights, X[:N], y[:N])

    targets, labels = X[:3], y[:3]
    seen = Updates.from_gradient_ascent(
        model, train, targets, labels, ascent=0.5, n_rounds=3, step=0.5, n_records=N
    )
    assert len(sent) == 3
    assert (np.array(sent) == seen.before).all()
    start = weights_of(model)
    assert (
        log_loss(model, seen.before[0], targets, labels).mean()
        > log_loss(model, start, targets, labels).mean()
    )
    slope = record_gradients(open_network(model)[0], targets, labels).mean(len(start))
    assert seen.before[0] == pytest.approx(start + 0.5 * 3 * slope)
    idle = Updates.from_gradient_ascent(
        model, train, X, y, ascent=0, n_rounds=2, step=0.5, n_records=N
    )
    assert (idle.before[0] == start).all()
    assert (idle.before[1] == idle.after[0]).all()


def sent_by(model, start, rows, X, y):
    return Updates(model, [start], [descended(model, start, X[rows], y[rows])], 0.5, len(rows))


def test_the_share_of_a_group_is_inferred_and_chance_is_not():
    X, y = people(n=1600)
    group = X[:, 1] > 0
    model, start = network(units=16), weights_of(network(units=16))
    rng = np.random.default_rng(0)

    def party(share):
        picks = [(group, round(share * N)), (~group, N - round(share * N))]
        rows = [800 + rng.permutation(np.flatnonzero(g[800:]))[:k] for g, k in picks]
        return sent_by(model, start, np.concatenate(rows), X, y)

    target = party(0.5)
    attack = PropertyInference(target, n_shadows=60, random_state=0)
    attack.fit(X[:800], y[:800], group[:800], shares=(0.1, 0.9))
    few, many, half, other = ([party(s) for _ in range(15)] for s in (0.1, 0.9, 0.5, 0.5))
    assert attack.evaluate(many, few).auc > 0.9
    low, high = attack.evaluate(half, other).auc_interval
    assert low < 0.5 < high
    assert attack.predict(many[0]).has_property == (attack.decision_function(many[0]) > 0)


def test_a_property_attack_refuses_rounds_in_another_order():
    X, y = people()
    seen = trained(X[:N], y[:N], 2)
    attack = PropertyInference(seen, n_shadows=4, random_state=0)
    attack.fit(X[200:], y[200:], X[200:, 1] > 0)
    assert np.isfinite(attack.decision_function(seen))
    swapped = Updates(seen.model, seen.before[::-1], seen.after[::-1], 0.5, N)
    with pytest.raises(ValueError, match="same order"):
        attack.decision_function(swapped)


def test_a_property_attack_rehearses_what_parties_do():
    X, y = people()
    model = network()
    seen = trained(X[:N], y[:N], 2)

    def train(weights, records, classes, seed):
        return weights + np.sign(descended(model, weights, records, classes) - weights)

    attack = PropertyInference(seen, train=train, n_shadows=4, n_train=20, random_state=0)
    attack.fit(X[200:], y[200:], X[200:, 1] > 0)
    assert len(attack.attack_models_) == 2
    view = attack._shadow_view(X[:20], y[:20], 0)
    assert set(np.unique(view.round(9))) <= {-1.0, 0.0, 1.0}
    assert attack._choose_set_size(400) == 20


@pytest.mark.heavy
def test_an_attribute_is_inferred_of_members_without_reading_it():
    X, y = people(n=900)
    X[:, 3] = X[:, 3] > 0
    seen = trained(X[:25], y[:25], n_rounds=2)
    attack = AttributeInference(seen, attribute=3).fit(X[200:], y[200:])
    result = attack.evaluate(X[:25], y[:25], X[25:200], y[25:200])
    assert result.advantage_interval[0] > 0
    assert result.members.accuracy > result.members.baseline + 0.15
    assert result.others.accuracy == pytest.approx(result.others.baseline, abs=0.15)
    hidden = X[:25].copy()
    hidden[:, 3] = 1 - hidden[:, 3]
    assert (attack.predict(hidden, y[:25]) == attack.predict(X[:25], y[:25])).all()


def test_updates_say_what_they_are():
    X, y = people()
    seen = trained(X[:N], y[:N], 2)
    assert repr(seen) == f"Updates(2 rounds of {64 * 14 + 1} weights, each a mean over 40 records)"
    assert (Updates.weights_of(seen.model) == seen.before[0]).all()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": object()}, TypeError, "must be a torch module"),
        ({"before": [[0.0]]}, ValueError, "before has shape"),
        ({"before": 3}, ValueError, "before has shape"),
        (
            {"after": [np.zeros(14)] * 2},
            ValueError,
            "before has 1 rounds and after 2; expected equally many",
        ),
        ({"after": [np.full(14, np.nan)]}, ValueError, "after holds NaN"),
        ({"step": [0.1, 0.1]}, ValueError, "step="),
    ],
)
def test_bad_updates_are_named(changes, error, message):
    model = network(d=11, units=1)
    good = {"model": model, "before": [np.zeros(14)], "after": [np.ones(14)], "step": 1.0}
    good |= {"n_records": 5}
    with pytest.raises(error, match=message):
        Updates(**{**good, **changes})


X, Y = people()
RECORDS, SEEN = LabeledRecords(X, Y), trained(X[:N], Y[:N], 1)


@pytest.mark.parametrize(
    ("fit", "error", "words"),
    [
        (lambda: UpdatesMembership().fit(RECORDS), ValueError, "target=None"),
        (lambda: UpdatesMembership(network()).fit(RECORDS), TypeError, "must be Updates"),
        (lambda: UpdatesMembership(SEEN).fit(RECORDS[:2]), ValueError, "expected 10 or more"),
        (
            lambda: UpdatesMembership(SEEN).fit(LabeledRecords(X, X[:, :2])),
            TypeError,
            "class of each record",
        ),
        (lambda: PropertyInference(object()).fit(X, Y, Y == 1), TypeError, "or Updates"),
        (
            lambda: PropertyInference(SEEN, n_shadows=4).fit(X, Y, Y == 1).predict(network()),
            TypeError,
            "of one party",
        ),
    ],
)
def test_bad_attacks_are_named(fit, error, words):
    with pytest.raises(error, match=words):
        fit()
