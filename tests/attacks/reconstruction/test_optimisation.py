"""Records reconstructed from gradients: what is found, what is refused, and what nulls achieve."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.utils import check_random_state

from skprivacy.attacks import BayesInversion, FirstLayerInversion, GradientInversion, party_gradient
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

torch = pytest.importorskip("torch")
from skprivacy.attacks.reconstruction.column_layout import ColumnLayout  # noqa: E402
from skprivacy.attacks.reconstruction.inversion_attack import (  # noqa: E402
    InversionAttack,
    Reconstruction,
    label_counts,
)
from skprivacy.attacks.reconstruction.optimization import combine_starts  # noqa: E402
from skprivacy.attacks.torch_gradients import LossGradients  # noqa: E402

ATTACKS = (FirstLayerInversion, GradientInversion, BayesInversion)
SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100, bins=3),
        "work": CategoricalColumn(["none", "some", "full"], missing=True),
        "income": BoundedColumn(0, 10),
        "region": CategoricalColumn(list("abcde")),
    }
)


@pytest.fixture(scope="module")
def table():
    """Rows of two numbers and two categories with labels; the first 400 are the attacker's."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, 600),
            "work": rng.choice(["none", "some", "full", "?"], p=[0.2, 0.3, 0.4, 0.1], size=600),
            "income": rng.uniform(0, 10, 600),
            "region": rng.choice(list("abcde"), size=600),
        }
    )
    X = SchemaTransformer(SCHEMA).fit_transform(frame)
    y = (frame["age"] / 100 + rng.normal(size=600) / 4 > 0.5).astype(int).to_numpy()
    return SimpleNamespace(X=X, y=y, own=(X[:400], y[:400]), others=(X[400:], y[400:]))


def network(n_features, hidden=96, outputs=2, seed=0, activation=torch.nn.ReLU):
    torch.manual_seed(seed)
    first, last = torch.nn.Linear(n_features, hidden), torch.nn.Linear(hidden, outputs)
    return torch.nn.Sequential(first, activation(), last)


def batches_of(table, n, count):
    X, y = table.others
    return [(X[b * n : (b + 1) * n], y[b * n : (b + 1) * n]) for b in range(count)]


def inverted(make, model, table, n, count, norm=None, **settings):
    """Attack batches of n records; return the attack, their gradients, the batches, the result."""
    attack = make(model, columns=SCHEMA, max_grad_norm=norm, **settings).fit(*table.own)
    pairs = batches_of(table, n, count)
    sent = [party_gradient(model, *pair, max_grad_norm=norm) for pair in pairs]
    return attack, sent, pairs, attack.evaluate(sent, pairs)


# Gradients


def by_autograd(module, x, label):
    loss = torch.nn.functional.cross_entropy(module(x[None]), label[None])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])


class Twice(torch.nn.Module):
    """Uses one layer twice, which only gradients record by record get right."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = torch.nn.Linear(6, 6), torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.layer(torch.tanh(self.layer(x)))))


def normed():
    layers = torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.Tanh(), torch.nn.Linear(5, 2)
    return torch.nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("make", "of_layers"), [(lambda: network(6), True), (Twice, False), (normed, False)]
)
@pytest.mark.parametrize("norm", [None, 0.3])
def test_gradients_are_those_of_autograd_clipped(make, of_layers, norm):
    torch.manual_seed(1)
    module = make()
    X, y = torch.randn(4, 6), torch.tensor([0, 1, 1, 0])
    gradients = LossGradients(module, None, norm)
    assert (gradients._trace is not None) == of_layers
    expected = torch.stack([by_autograd(module, x, label) for x, label in zip(X, y, strict=True)])
    if norm is not None:
        assert (expected.norm(dim=1) > norm).any()
        expected = expected * (norm / expected.norm(dim=1, keepdim=True)).clip(max=1)
    assert torch.allclose(gradients.per_record(X, y), expected, atol=1e-5)
    mean = gradients.mean(X.reshape(2, 2, 6), y.reshape(2, 2))
    assert torch.allclose(mean, expected.reshape(2, 2, -1).mean(1), atol=1e-5)


def test_models_of_all_kinds_send_the_gradient_of_their_own_loss(table):
    """Of scikit-learn's models at their optimum, the mean gradient is that of the penalty alone."""
    X, y = table.own
    linear = LogisticRegression(C=1e6, tol=1e-10, max_iter=10_000).fit(X[:, [0, 6]], y)
    sent = party_gradient(linear, X[:, [0, 6]], y)
    assert max(np.abs(part).max() for part in sent.values()) < 1e-4
    # Smooth, and held by its penalty: lbfgs comes within 1e-5 of the optimum on every processor.
    net = MLPClassifier((8,), "tanh", alpha=4.0, solver="lbfgs", tol=1e-9, random_state=0)
    net.fit(X, np.where(y, "yes", "no"))
    trained = party_gradient(net, X, np.where(y, "yes", "no"))
    assert list(trained) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    for layer, weights in zip((0, 2), net.coefs_, strict=True):
        of_penalty = net.alpha / len(X) * weights.T
        assert np.abs(of_penalty).max() > 1e-3
        np.testing.assert_allclose(trained[f"{layer}.weight"], -of_penalty, atol=1e-4)
        np.testing.assert_allclose(trained[f"{layer}.bias"], 0, atol=1e-4)


# The first layer


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("norm", [None, 0.5])
def test_the_first_layer_gives_most_records_away_exactly(table, norm):
    model = network(table.X.shape[1], hidden=256)
    attack, sent, pairs, result = inverted(FirstLayerInversion, model, table, 8, 10, norm)
    assert result.exact_share > 0.9
    # Every row reported as found is a record of the batch.
    for gradient, (X, _) in zip(sent[:4], pairs, strict=False):
        rows, confidence = attack.reconstruct(gradient, 8)
        assert np.isnan(rows[confidence == 0]).all()
        true = ColumnLayout.from_columns(table.own[0], SCHEMA).exact(X, rows[confidence == 1])
        assert true.mean() > 0.8


@pytest.mark.heavy
def test_records_stand_alone_once_others_are_subtracted(table, monkeypatch):
    """Without subtracting, only those who had a neuron for themselves at once are found."""
    model = network(table.X.shape[1], hidden=256)
    attack, sent, pairs, together = inverted(FirstLayerInversion, model, table, 16, 4)
    seen = []
    alone = attack._single_record_quotients

    def once(*given):
        repeated, seen[:] = bool(seen), [*seen, 1]
        rows, label = alone(*given)
        return (rows[:0], label[:0]) if repeated else (rows, label)

    monkeypatch.setattr(attack, "_single_record_quotients", once)
    at_once = []
    for pair, gradient in zip(pairs, sent, strict=True):
        seen.clear()
        at_once.append(attack.evaluate([gradient], [pair]).exact_share)
    assert 0 < np.mean(at_once) < together.exact_share


def test_an_attacker_who_ignores_clipping_finds_nothing_in_the_first_layer(table):
    model = network(table.X.shape[1])
    _, sent, pairs, aware = inverted(FirstLayerInversion, model, table, 4, 5, 0.2)
    ignorant = FirstLayerInversion(model).fit(*table.own)
    assert aware.exact_share > 0.9
    assert ignorant.evaluate(sent, pairs).exact_share == 0


def test_without_zeros_or_with_noise_no_mixture_is_called_a_record(table):
    smooth = network(table.X.shape[1], activation=torch.nn.Tanh)
    X, y = (part[:4] for part in table.others)
    attack = FirstLayerInversion(smooth).fit(*table.own)
    assert np.isnan(attack.reconstruct(party_gradient(smooth, X, y), 4)[0]).all()
    one, _ = attack.reconstruct(party_gradient(smooth, X[:1], y[:1]), 1)
    assert np.allclose(one, X[:1], atol=1e-4)
    noisy = {"max_grad_norm": 1.0, "noise_multiplier": 0.5}
    model = network(table.X.shape[1])
    sent = party_gradient(model, X, y, random_state=0, **noisy)
    found, _ = FirstLayerInversion(model, **noisy).fit(*table.own).reconstruct(sent, 4)
    layout = ColumnLayout.from_columns(table.own[0], SCHEMA)
    assert not layout.exact(found, X).any()


# Labels


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_the_label_of_one_record_is_exact(outputs):
    rng = np.random.default_rng(0)
    model = network(6, outputs=outputs)
    X, y = rng.normal(size=(40, 6)), rng.integers(0, max(2, outputs), 40)
    gradients = LossGradients(model, None, None)
    own, labels = gradients.records(X), gradients.targets(y)
    each = gradients.per_record(own, labels)
    counts = [label_counts(gradients, g, 1, own, max(2, outputs)) for g in each]
    assert [c.argmax() for c in counts] == y.tolist()


@pytest.mark.parametrize("norm", [None, 0.1])
def test_the_counts_of_labels_in_a_batch(norm):
    rng = np.random.default_rng(0)
    model = network(6, outputs=4)
    X = rng.normal(size=(532, 6))
    y = rng.choice(4, size=532, p=[0.1, 0.2, 0.3, 0.4])
    gradients = LossGradients(model, None, norm)
    own, labels = gradients.records(X), gradients.targets(y)
    for begin in range(500, 532, 16):
        rows = slice(begin, begin + 16)
        observed = gradients.per_record(own[rows], labels[rows]).mean(0)
        counts = label_counts(gradients, observed, 16, own[:500], 4)
        assert counts.sum() == 16
        assert np.abs(counts - np.bincount(y[rows], minlength=4)).max() <= 1


# The search


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("distance", ["cosine", "squared"])
def test_the_search_finds_numbers_and_categories(table, distance):
    model = network(table.X.shape[1])
    settings = {"distance": distance, "max_iter": 300, "n_init": 2, "random_state": 0}
    *_, result = inverted(GradientInversion, model, table, 4, 8, **settings)
    assert result.names == ("age", "work", "income", "region")
    assert result.share > 0.7
    assert result.gain_interval[0] > 0.15
    assert result.share > result.null_shares["random rows"] > 0.3
    # The quarter that the attack is surest of is better than the rest.
    assert result.best_rows(by="confidence")["same_rows"].iloc[0] >= result.share


def test_a_distance_that_rounding_makes_negative_is_the_best():
    shares = torch.tensor([[[0.2, 1.0]], [[0.9, 0.0]], [[0.3, 1.0]]])
    kinds = torch.tensor([False, True])
    middle, _ = combine_starts(shares, torch.tensor([-1e-7, 0.5, 1e-7]), kinds)
    assert middle[0].tolist() == pytest.approx([0.2, 1.0])
    alone, apart = combine_starts(shares, torch.tensor([-2e-3, 0.5, 1e-3]), kinds)
    assert alone[0].tolist() == pytest.approx([0.2, 1.0])
    assert not apart.any()


@pytest.mark.heavy
def test_a_loss_of_ones_own(table):
    """A regression: targets are numbers, known to the attacker."""
    X = table.X
    worth = X @ np.linspace(-1, 1, X.shape[1])
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
    )

    def squared(outputs, targets):
        return (outputs.flatten() - targets).square()

    attack = GradientInversion(
        model, columns=SCHEMA, loss=squared, max_iter=200, n_init=2, random_state=0
    ).fit(X[:400], worth[:400])
    pairs = [(X[[i]], worth[[i]]) for i in range(400, 410)]
    sent = [party_gradient(model, *pair, loss=squared) for pair in pairs]
    assert attack.evaluate(sent, pairs, labels_known=True).share > 0.9


# Judged alike


class RandomRows(InversionAttack):
    """Guesses what the null model of random rows guesses: rows drawn with the same seed."""

    def _reconstruct_batches(self, observed, n_records, labels):
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        drawn = np.random.default_rng(seed).integers(
            len(self.reference_), size=len(observed) * n_records
        )
        rows = self.reference_[drawn].reshape(len(observed), n_records, -1)
        # In another order: guesses have none.
        return [Reconstruction(r[::-1], np.zeros(n_records)) for r in rows]


def test_null_models_are_matched_as_the_attack_is(table):
    """The same guesses count alike, whoever makes them, and matching is worth a lot to both."""
    model = network(table.X.shape[1], hidden=4)
    *_, result = inverted(RandomRows, model, table, 16, 5, random_state=0)
    assert np.array_equal(result.recovered, result.nulls["random rows"])
    unmatched = ColumnLayout.from_columns(table.own[0], SCHEMA).equal(
        table.X[:80], table.X[400:480]
    )
    assert result.share > np.einsum("iij->ij", unmatched).mean() + 0.15


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("make", ATTACKS)
def test_the_attack_sees_the_gradient_alone(table, make):
    """Given gradients of other records, it recovers what guesses do: it cannot peek at the rows."""
    model = network(table.X.shape[1], hidden=32)
    settings = {"max_iter": 50, "n_init": 1} if make is GradientInversion else {}
    attack, sent, pairs, _ = inverted(make, model, table, 2, 40, random_state=0, **settings)
    of_others = attack.evaluate(sent[:20], pairs[20:])
    assert of_others.gain < 0.1
    assert of_others.exact_share == 0


# Refused


def test_what_does_not_fit_is_refused(table):
    X, y = table.own
    model = network(X.shape[1], hidden=8)
    sent = party_gradient(model, X[:1], y[:1])
    attack = GradientInversion(model, columns=SCHEMA, max_iter=1).fit(X, y)
    arrays = list(sent.values())
    cases = [
        (arrays[:3], ValueError, "has 3 arrays; expected 4"),
        ([a.T for a in arrays], ValueError, r"'0.weight' has shape .*; expected"),
        ({**sent, "9.bias": arrays[0]}, ValueError, "has the keys"),
        ([arrays[0] * np.nan, *arrays[1:]], ValueError, "NaN or infinity"),
        (np.concatenate([a.ravel() for a in arrays]), TypeError, "expected a list"),
    ]
    for gradient, error, message in cases:
        with pytest.raises(error, match=message):
            attack.reconstruct(gradient, 1)
    for n in (0, 1.5, True):
        with pytest.raises(ValueError, match="n_records"):
            attack.reconstruct(sent, n)
    with pytest.raises(ValueError, match="labels has shape"):
        attack.reconstruct(sent, 1, labels=[0, 1])
    with pytest.raises(ValueError, match="gradients has 1 items and batches 2"):
        attack.evaluate([sent], [(X[:1], y[:1])] * 2)
    with pytest.raises(ValueError, match=r"batches\[1\] has shape"):
        attack.evaluate([sent] * 2, [(X[:1], y[:1]), (X[:2], y[:2])])
    assert attack.reconstruct(arrays, 1)[0].shape == (1, X.shape[1])


@pytest.mark.parametrize("make", ATTACKS)
def test_targets_and_settings_without_sense_are_refused(table, make):
    X, y = table.own
    with pytest.raises(ValueError, match="target=None"):
        make().fit(X, y)
    with pytest.raises(TypeError, match="must be a torch module"):
        make(object()).fit(X, y)
    with pytest.raises(ValueError, match="needs max_grad_norm, its unit"):
        make(network(X.shape[1]), noise_multiplier=1.0).fit(X, y)
    with pytest.raises(ValueError, match="columns= describes"):
        make(network(X.shape[1] - 1), columns=SCHEMA).fit(X[:, 1:], y)
    with pytest.raises(ValueError, match="NaN"):
        make(network(X.shape[1])).fit(np.where(X > 0.9, np.nan, X), y)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([torch.nn.Linear(13, 4, bias=False), torch.nn.Linear(4, 2)], "must have a trained bias"),
        ([torch.nn.LayerNorm(13), torch.nn.Linear(13, 2)], "is a LayerNorm; expected Linear"),
        ([torch.nn.Linear(9, 2)], "takes 9 features; X has 13"),
    ],
)
def test_a_first_layer_without_quotients_is_refused(table, layers, message):
    X, y = table.own
    with pytest.raises(ValueError, match=message):
        FirstLayerInversion(torch.nn.Sequential(*layers)).fit(X, y)


def test_labels_without_a_last_bias_must_be_given(table):
    X, y = table.own
    model = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 2, bias=False))
    attack = GradientInversion(model, max_iter=1, n_init=1).fit(X, y)
    sent = party_gradient(model, X[:1], y[:1])
    with pytest.raises(ValueError, match="Pass labels"):
        attack.reconstruct(sent, 1)
    attack.reconstruct(sent, 1, labels=y[:1])


def test_models_trained_by_another_loss_must_say_so(table):
    X, y = table.own
    weighted = LogisticRegression(class_weight={0: 1.0, 1: 5.0}).fit(X, y)
    with pytest.raises(ValueError, match="Pass loss="):
        party_gradient(weighted, X[:1], y[:1])
    likely = BaseEstimator()
    likely.module_, likely.criterion_ = network(X.shape[1]), torch.nn.NLLLoss()
    with pytest.raises(ValueError, match="Pass loss="):
        party_gradient(likely, X[:1], y[:1])
    likely.criterion_ = torch.nn.CrossEntropyLoss(reduction="none")
    party_gradient(likely, X[:1], y[:1])
    with pytest.raises(ValueError, match="indices of the outputs"):
        party_gradient(network(X.shape[1]), X[:1], ["yes"])


@pytest.mark.parametrize("make", ATTACKS)
def test_clones_share_the_target_and_fits_are_pickled(table, make):
    model = network(table.X.shape[1], hidden=8)
    settings = {"max_iter": 3, "n_init": 1} if make is GradientInversion else {}
    attack = make(model, columns=SCHEMA, random_state=0, **settings)
    assert clone(attack).target is model
    attack.fit(*table.own)
    sent = party_gradient(model, *batches_of(table, 1, 1)[0])
    again = pickle.loads(pickle.dumps(attack))
    expected, found = (a.reconstruct(sent, 1)[0] for a in (attack, again))
    assert np.array_equal(expected, found)
    assert not [p for p in model.parameters() if p.grad is not None]
