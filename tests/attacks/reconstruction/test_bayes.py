"""Posteriors against their definition, and every attack against what the guarantee allows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm

from skprivacy.accounting import GaussianEvent, PrivacyGuarantee
from skprivacy.attacks import BayesInversion, InversionResult, party_gradient
from skprivacy.attacks.reconstruction.column_layout import ColumnLayout, null_model_ceiling
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    DateColumn,
    HashedColumn,
    Schema,
)

torch = pytest.importorskip("torch")
from skprivacy.attacks.torch_gradients import LossGradients  # noqa: E402

DEFENCE = {"max_grad_norm": 1.0, "noise_multiplier": 1.0}


def linear(d=6, outputs=2, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(d, outputs))


def corners(n, scale=3.0, d=6):
    """Return candidates as far apart as clipped gradients can be, with labels in turn."""
    rng = np.random.default_rng(0)
    return scale * rng.choice([-1.0, 1.0], size=(n, d)), np.arange(n) % 2


def guarantee_of(noise):
    return PrivacyGuarantee(GaussianEvent(noise), relation="zero_out")


# The posterior


def gradients_of(model, X, y):
    own = LossGradients(model, None, DEFENCE["max_grad_norm"])
    return own.per_record(own.records(X), own.targets(y)).double().numpy()


def flat(gradient):
    return np.concatenate([np.ravel(part) for part in gradient.values()]).astype(float)


@pytest.mark.parametrize("known", [False, True])
def test_the_posterior_of_one_record_is_bayes_rule(known):
    model, (X, y) = linear(), corners(12)
    prior = np.arange(1.0, 13.0)
    attack = BayesInversion(model, **DEFENCE).fit(X, y, prior=prior)
    sent = party_gradient(model, X[[3]], y[[3]], random_state=0, **DEFENCE)
    off = ((flat(sent) - gradients_of(model, X, y)) ** 2).sum(axis=1)
    log = np.log(prior) - off / 2
    if known:
        log = np.where(y == y[3], log, -np.inf)
    found = attack.posterior(sent, labels=y[[3]] if known else None)
    assert found[0] == pytest.approx(softmax(log), abs=1e-5)


def test_the_posterior_of_a_batch_is_that_of_all_pairs():
    """Sampling errs by chance: the mean over both records of sharp and of flat posteriors."""
    model, (X, y) = linear(), corners(6)
    each = gradients_of(model, X, y) / 2
    for noise, seed in product((0.3, 1.0), range(4)):
        defence = {**DEFENCE, "noise_multiplier": noise}
        attack = BayesInversion(model, random_state=0, **defence).fit(X, y)
        sent = party_gradient(model, X[[1, 4]], y[[1, 4]], random_state=seed, **defence)
        pairs = np.array(list(product(range(6), repeat=2)))
        off = ((flat(sent) - each[pairs].sum(axis=1)) ** 2).sum(axis=1)
        weights = softmax(-off / (2 * (noise / 2) ** 2))
        expected = np.bincount(pairs.ravel(), np.repeat(weights, 2), minlength=6) / 2
        found = attack.posterior(sent, n_records=2).mean(axis=0)
        assert found == pytest.approx(expected, abs=0.2)


def test_without_noise_the_nearest_candidate_gets_all_votes():
    model, (X, y) = linear(), corners(12)
    attack = BayesInversion(model, max_grad_norm=1.0, random_state=0).fit(X, y)
    sent = party_gradient(model, X[:1], y[:1], max_grad_norm=1.0)
    assert attack.posterior(sent)[0, 0] > 0.99
    rows, certain = attack.reconstruct(sent, 1)
    assert np.allclose(rows, X[:1], atol=0.5)
    assert certain > 0.99


def test_evidence_of_membership_is_the_log_likelihood_ratio():
    model, (X, y) = linear(), corners(12)
    attack = BayesInversion(model, **DEFENCE).fit(X, y)
    sent = party_gradient(model, X[:1], y[:1], random_state=0, **DEFENCE)
    own, seen = gradients_of(model, X, y), flat(sent)
    expected = norm.logpdf(seen, own).sum(axis=1) - norm.logpdf(seen).sum()
    assert attack.score_samples(sent, X, y) == pytest.approx(expected, abs=1e-4)
    # In a batch of two, beside a record with the mean gradient of the candidates.
    half = party_gradient(model, X[:2], y[:2], random_state=0, **DEFENCE)
    seen, rest = flat(half), own.mean(axis=0) / 2
    expected = norm.logpdf(seen, own / 2 + rest, 0.5) - norm.logpdf(seen, rest, 0.5)
    found = attack.score_samples(half, X, y, n_records=2)
    assert found == pytest.approx(expected.sum(axis=1), abs=1e-3)


def test_candidates_must_have_a_prior_and_the_labels():
    X, y = corners(12)
    for prior in (np.ones(5), -np.ones(12), np.zeros(12), np.full(12, np.nan)):
        with pytest.raises(ValueError, match="prior"):
            BayesInversion(linear(), **DEFENCE).fit(X, y, prior=prior)
    attack = BayesInversion(linear(), **DEFENCE).fit(X[::2], y[::2])
    sent = party_gradient(linear(), X[1:2], y[1:2])
    with pytest.raises(ValueError, match="labels holds a label that no candidate has"):
        attack.posterior(sent, labels=[1])


def test_more_candidates_than_fit_the_memory_are_refused_for_batches_alone():
    X, y = np.zeros((10_001, 6)), np.zeros(10_001, dtype=int)
    attack = BayesInversion(linear(), **DEFENCE).fit(X, y)
    sent = party_gradient(linear(), X[:1], y[:1])
    with pytest.raises(ValueError, match="at most 10000"):
        attack.posterior(sent, n_records=2)
    assert attack.posterior(sent).shape == (1, 10_001)


# The guarantee


def sent_by(model, X, y, noise, seed=0):
    """Return what parties of one record each send: as party_gradient, but all at once."""
    gradients = LossGradients(model, None, 1.0)
    own = gradients.per_record(gradients.records(X), gradients.targets(y))
    drawn = np.random.default_rng(seed).normal(scale=noise, size=own.shape)
    return [gradients.split_weights(row) for row in own + own.new_tensor(drawn)]


def successes(claimed, true, trials=600):
    """Return how often attacks are right that believe the claimed noise, where it is another."""
    model, (X, y) = linear(), corners(8)
    defence = {"max_grad_norm": 1.0, "noise_multiplier": claimed}
    one_of = BayesInversion(model, **defence).fit(X, y)
    label_of = BayesInversion(model, **defence).fit(X[[0, 0]], [0, 1])
    rng = np.random.default_rng(1)
    rows, labels = rng.integers(8, size=trials), rng.integers(2, size=trials)
    right, right_label, inside, outside = [], [], [], []
    sent = sent_by(model, X[rows], y[rows], true)
    told = sent_by(model, np.repeat(X[:1], trials, axis=0), labels, true, seed=2)
    for i, gradient in zip(rows, sent, strict=True):
        right.append(one_of.posterior(gradient).argmax() == i)
        inside.append(one_of.score_samples(gradient, X[[i]], y[[i]])[0])
        blank = {k: rng.normal(scale=true, size=part.shape) for k, part in gradient.items()}
        outside.append(one_of.score_samples(blank, X[[i]], y[[i]])[0])
    for label, gradient in zip(labels, told, strict=True):
        right_label.append(label_of.posterior(gradient).argmax() == label)
    tpr = np.mean(np.array(inside) > np.quantile(outside, 0.8))
    return {1 / 8: np.mean(right), 1 / 2: np.mean(right_label), 0.2: tpr}


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("true", [1.0, 0.3])
def test_no_attack_beats_the_guarantee_unless_the_noise_is_less_than_claimed(true):
    """One of m, a label and membership: at most T of what guesses achieve, and not far below.

    The margin of four standard errors of 600 trials, .08 at most, is passed by chance less than
    once in 30,000; the seeds are fixed.
    """
    allowed = guarantee_of(1.0)
    found = successes(claimed=1.0, true=true)
    above = [s - float(allowed.tpr_bound(blind)) for blind, s in found.items()]
    if true == 1.0:
        assert max(above) < 0.08
        assert max(above) > -0.1  # an attack so weak would prove nothing
    else:
        assert max(above) > 0.08


@pytest.mark.heavy
def test_a_result_refutes_a_false_claim_alone():
    rng = np.random.default_rng(0)
    X, y = 3 * rng.choice([-1.0, 1.0], size=(700, 6)), rng.integers(0, 2, 700)
    model, defence = linear(), {"max_grad_norm": 1.0, "noise_multiplier": 0.2}
    attack = BayesInversion(model, **defence).fit(X[:400], y[:400])
    sent = sent_by(model, X[400:], y[400:], 0.2)
    result = attack.evaluate(sent, [(X[[i]], y[[i]]) for i in range(400, 700)])
    assert result.refutes(guarantee_of(10.0))
    assert not result.refutes(guarantee_of(0.2))


# Results


def made(recovered, **changes):
    right = np.asarray(recovered, dtype=bool)
    n = len(right)
    facts = {
        "nulls": {"mode": np.zeros_like(right)},
        "exact": right.all(axis=1),
        "confidence": np.linspace(1, 0, n),
        "batch": np.arange(n) // 2,
        "blind": np.full(right.shape[1], 0.5),
        "names": tuple("abcdefgh"[: right.shape[1]]),
    }
    return InversionResult(recovered=right, **{**facts, **changes})


def test_figures_by_hand():
    right = np.repeat([[1, 1, 1, 1], [1, 1, 0, 0]], [4, 12], axis=0)
    null = np.repeat([[0, 0, 0, 0], [1, 1, 1, 1]], [4, 12], axis=0).astype(bool)
    result = made(right, nulls={"mode": null, "middle": np.zeros_like(null)})
    assert result.share == pytest.approx(10 / 16)
    assert result.null_shares == {"mode": 0.75, "middle": 0.0}
    assert (result.best_null, result.gain) == ("mode", pytest.approx(-1 / 8))
    best = result.best_rows()
    assert best.loc["inversion"].tolist() == [1.0, 1.0]
    assert best.loc["mode"].tolist() == [0.0, 1.0]  # beaten by choosing rows alone
    assert result.exact_share == 0.25
    low, high = result.interval
    assert low < 10 / 16 < high
    assert result.columns().loc["a", "recovered"] == 1.0
    assert result.to_frame()["null_there"][0] == 0.0
    bound = result.bound(guarantee_of(1.0))
    assert bound == pytest.approx(norm.cdf(1.0), abs=1e-3)  # of Gaussian noise, from one half


def test_results_without_sense_are_refused():
    right = np.ones((4, 2), dtype=bool)
    with pytest.raises(ValueError, match="the rows of the attack"):
        made(right, nulls={"mode": right[:2]})
    with pytest.raises(ValueError, match="alpha"):
        made(right, alpha=2.0)
    with pytest.raises(ValueError, match="by="):
        made(right).best_rows(by="luck")
    with pytest.raises(ValueError, match="relation"):
        made(right).bound(PrivacyGuarantee(GaussianEvent(1.0), relation="replace_one"))
    assert made(right[:2]).interval == (0.0, 1.0)  # one batch says nothing of others
    assert made(right[:2]).gain_interval == (-1.0, 1.0)


def test_intervals_cover():
    """Of 400 intervals of 20 batches of two dependent rows, 95% cover, and 5 errors of that."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        p = np.repeat(rng.uniform(0.2, 1.0, size=20), 2)
        result = made(rng.random((40, 3)) < p[:, None])
        low, high = result.interval
        hits += low <= 0.6 <= high
    assert hits / 400 > 0.95 - 5 * np.sqrt(0.05 * 0.95 / 400)


# Rows


def test_no_blind_guess_exceeds_the_ceiling():
    """The best guesses in hindsight, tried one by one, and n of them for a batch of n."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    layout = ColumnLayout.from_columns(X, None)
    ceiling = null_model_ceiling(layout, X[:, None, :], None)
    best = max(layout.equal(X[[i]] + layout.within(0.319), X).mean() for i in range(60))
    assert ceiling[0] == pytest.approx(best)
    y = (X[:, 0] > 0).astype(int)
    told = null_model_ceiling(layout, X[:, None, :], y[:, None])
    assert told[0] > ceiling[0]  # labels help those who guess, too
    pairs = null_model_ceiling(layout, X.reshape(30, 2, 1), None)
    assert pairs[0] == pytest.approx(2 * ceiling[0] * 60 / 59)


def test_a_schema_says_which_features_are_a_column():
    schema = Schema(
        {
            "age": BoundedColumn(0, 100, bins=3, missing=True),
            "work": CategoricalColumn(["some", "full"], missing=True),
            "place": HashedColumn(4),
            "since": DateColumn("2000-01-01", "2020-12-31", parts=["weekday"]),
            "single": CategoricalColumn(["yes"]),
        }
    )
    layout = ColumnLayout.from_columns(np.zeros((3, schema.n_features_out)), schema)
    assert dict(zip(layout.names, map(list, layout.columns), strict=True)) == {
        "age": [0],
        "work": [4, 5],
        "place": [7, 8, 9, 10],
        "since": [11],
        "single": [19],
    }


def test_guesses_are_matched_for_the_most_columns():
    X = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]])
    layout = ColumnLayout.from_columns(X, None)
    equal, order = layout.match_rows(X[[2, 0, 1]], X)
    assert equal.all()
    assert order.tolist() == [1, 2, 0]
    equal, _ = layout.match_rows(np.full((3, 2), np.nan), X)
    assert not equal.any()


def test_votes_by_hand():
    """A number is voted on by what is near it, a category by itself, or by those without one."""
    X = np.array([[0.0, 1, 0], [0.1, 0, 1], [9.0, 0, 0], [9.1, 0, 0], [20.0, 0, 0]])
    schema = Schema({"age": BoundedColumn(0, 20), "work": CategoricalColumn(["some", "full"])})
    layout = ColumnLayout.from_columns(X, schema)
    assert layout.decode_columns(X)[:, 1].tolist() == [0, 1, -1, -1, -1]
    rows, certain = layout.most_voted_rows(X, np.array([[5, 4, 1, 1, 1], [0, 1, 3, 3, 3.0]]))
    assert layout.decode_columns(rows)[:, 1].tolist() == [0, -1]
    assert rows[:, 0] == pytest.approx([0.05, 9.05])
    assert certain == pytest.approx([(9 / 12 + 5 / 12) / 2, (6 / 10 + 9 / 10) / 2])
