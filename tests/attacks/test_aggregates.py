"""Membership in published means: power as in theory, bounded by a guarantee."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from skprivacy.accounting import GaussianEvent, PrivacyGuarantee
from skprivacy.attacks import AggregateAttack
from skprivacy.preprocessing import private_mean

N = 200
expected_power = AggregateAttack.expected_power


def people(d, n_reference=0, seed=0):
    """Return members, others, a reference and frequencies, for columns of zeros and ones."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, d)
    X = (rng.random((2 * N + n_reference, d)) < p).astype(float)
    return X[:N], X[N : 2 * N], X[2 * N :], p


def mean_auc(attack, d=600, noise=0.0, n_reference=0, repeats=10):
    aucs = []
    for seed in range(repeats):
        X_in, X_out, reference, p = people(d, n_reference, seed)
        released = X_in.mean(axis=0) + noise * np.random.default_rng(1000 + seed).normal(size=d)
        known = {"reference": reference} if n_reference else {"means": p}
        aucs.append(clone(attack).fit(released, **known).evaluate(X_in, X_out).auc)
    return np.mean(aucs)


@pytest.mark.parametrize(("noise", "n_reference"), [(0.0, 0), (0.05, 0), (0.0, 200), (0.05, 200)])
def test_the_power_is_that_of_theory(noise, n_reference):
    """A mean of 10 repeats has a standard error below .008: each has 200 and 200 scores."""
    p = np.concatenate([people(600, seed=seed)[3] for seed in range(10)])
    expected = expected_power(N, p * (1 - p), noise_std=noise, n_reference=n_reference or None)
    of_one = np.sqrt(expected.mu**2 / 10)
    measured = mean_auc(AggregateAttack(N, noise_std=noise), noise=noise, n_reference=n_reference)
    assert measured == pytest.approx(type(expected)(of_one).auc, abs=0.03)


@pytest.mark.heavy
def test_genotypes_vary_half_as_much_as_single_copies():
    """With noise, a variance of p(1 - p) would promise an area .05 larger than there is."""
    aucs, expected, too_much = [], [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        p = rng.uniform(0.05, 0.95, 600)
        X_in, X_out = np.split(rng.binomial(2, p, size=(2 * N, 600)) / 2, 2)
        v, released = p * (1 - p) / 2, X_in.mean(axis=0) + 0.05 * rng.normal(size=600)
        attack = AggregateAttack(N, noise_std=0.05).fit(released, means=p, variances=v)
        aucs.append(attack.evaluate(X_in, X_out).auc)
        expected.append(expected_power(N, v, noise_std=0.05).auc)
        too_much.append(expected_power(N, 2 * v, noise_std=0.05).auc)
    assert np.mean(aucs) == pytest.approx(np.mean(expected), abs=0.03)
    assert np.mean(aucs) < np.mean(too_much) - 0.03


def blind_and_aware(X):
    """Return the areas without and with the correlations of the columns."""
    X_in, X_out, reference = X[:N], X[N : 2 * N], X[2 * N :]
    attacks = (AggregateAttack(N, correlated=correlated) for correlated in (False, True))
    return [a.fit(X_in.mean(axis=0), reference).evaluate(X_in, X_out).auc for a in attacks]


def pairs_of(values):
    """Return the cells of all two-way tables of columns of four values, as columns of 0 and 1."""
    d = values.shape[1]
    cells = [values[:, i] * 4 + values[:, j] for i in range(d) for j in range(i)]
    return np.hstack([np.eye(16)[cell] for cell in cells])


@pytest.mark.heavy
def test_a_set_of_marginals_tells_and_noise_keeps_it_to_its_guarantee():
    """10 sets of 15 tables, each refuted by chance in at most 1e-8."""
    areas = []
    guarantee = PrivacyGuarantee(GaussianEvent(4.0), at_delta=1e-6, relation="zero_out")
    for seed in range(10):
        rng = np.random.default_rng(seed)
        common = rng.normal(size=(2 * N + 800, 1))
        values = np.digitize(0.6 * common + rng.normal(size=(len(common), 6)), [-0.7, 0.0, 0.7])
        X = pairs_of(values)
        X_in, X_out, reference = X[:N], X[N : 2 * N], X[2 * N :]
        areas.append(blind_and_aware(X))
        scale = 4.0 * np.sqrt(15) / N  # a record is in one cell of each table
        noisy = X_in.mean(axis=0) + scale * rng.normal(size=X.shape[1])
        attack = AggregateAttack(N, noise_std=scale, correlated=True).fit(noisy, reference)
        assert not above_the_bound(attack.evaluate(X_in, X_out), guarantee, 1e-8)
    plain, aware = np.mean(areas, axis=0)
    assert aware > plain + 0.01 > 0.65


def test_expected_power_by_hand():
    power = expected_power(100, [0.25, 0.25, 0.0])
    assert power.mu == pytest.approx(np.sqrt(2 / 100))
    assert expected_power(100, [0.25], noise_std=0.05).mu == pytest.approx(np.sqrt(1 / 200))
    assert expected_power(100, [0.25], n_reference=100).mu == pytest.approx(np.sqrt(1 / 200))
    assert power.tpr([0.0, 1.0]) == pytest.approx([0.0, 1.0])
    assert expected_power(1000, [0.2] * 1000).auc == pytest.approx(0.760, abs=5e-4)


def test_homers_statistic_is_a_little_weaker():
    homer = mean_auc(AggregateAttack(N, statistic="homer"))
    assert 0.7 < homer < mean_auc(AggregateAttack(N))


def test_unknown_noise_is_estimated():
    X_in, X_out, _, p = people(2000)
    released = X_in.mean(axis=0) + 0.1 * np.random.default_rng(1).normal(size=2000)
    attack = AggregateAttack(N, noise_std=None).fit(released, means=p)
    assert attack.noise_std_ == pytest.approx(np.full(2000, 0.1), rel=0.1)
    known = AggregateAttack(N, noise_std=0.1).fit(released, means=p).evaluate(X_in, X_out)
    assert attack.evaluate(X_in, X_out).auc == pytest.approx(known.auc, abs=0.01)


@pytest.mark.parametrize(
    ("statistic", "correlated"), [("linear", False), ("linear", True), ("homer", False)]
)
def test_false_positives_are_as_many_as_asked(statistic, correlated):
    """The reference calibrates the threshold, each of its records scored without itself."""
    rates = []
    for seed in range(10):
        X_in, X_out, reference, _ = people(100, 500, seed=seed)
        attack = AggregateAttack(N, statistic=statistic, correlated=correlated, fpr=0.1)
        rates.append(attack.fit(X_in.mean(axis=0), reference).predict(X_out).mean())
    assert np.mean(rates) == pytest.approx(0.1, abs=0.03)


def above_the_bound(result, guarantee, alpha):
    """Return whether the whole ROC curve's confidence band lies above the guarantee somewhere."""
    grid = np.unique(np.concatenate([result.scores_in, result.scores_out]))
    tpr = 1 - np.searchsorted(np.sort(result.scores_in), grid) / len(result.scores_in)
    fpr = 1 - np.searchsorted(np.sort(result.scores_out), grid) / len(result.scores_out)
    # Dvoretzky, Kiefer and Wolfowitz with Massart's constant, for both curves at once.
    width = np.sqrt(np.log(4 / alpha) / (2 * N))
    return bool((tpr - width > guarantee.tpr_bound(np.minimum(fpr + width, 1.0))).any())


@pytest.mark.heavy
@pytest.mark.parametrize("d", [20, 2000])
def test_the_leakage_of_a_private_mean_stays_within_its_guarantee(d):
    """20 runs, each refuted by chance in at most 1e-9; a release without noise is refuted."""
    refuted = []
    for seed in range(20):
        X_in, X_out, _, p = people(d, seed=seed)
        release = private_mean(X_in, bounds=(0, 1), epsilon=1.0, delta=1e-5, relation="zero_out")
        attack = AggregateAttack(N, noise_std=None).fit(release.value, means=p)
        result = attack.evaluate(X_in, X_out)
        refuted.append(above_the_bound(result, release.privacy, 1e-9))
    assert not any(refuted)
    if d == 2000:
        plain = AggregateAttack(N).fit(X_in.mean(axis=0), means=p).evaluate(X_in, X_out)
        assert above_the_bound(plain, release.privacy, 1e-9)


def test_a_constant_column_tells_nothing():
    X_in, X_out, reference, _ = people(50, 100)
    attack = AggregateAttack(N).fit(X_in.mean(axis=0), reference)

    def with_constant(X):
        return np.hstack([X, np.ones((len(X), 1))])

    more = AggregateAttack(N, correlated=False).fit(
        with_constant(X_in).mean(axis=0), with_constant(reference)
    )
    assert more.score_samples(with_constant(X_out)) == pytest.approx(attack.score_samples(X_out))
    nothing = AggregateAttack(N).fit([1.0], means=[1.0])
    assert nothing.score_samples([[1.0], [0.0]]).tolist() == [0.0, 0.0]
    homer = AggregateAttack(N, statistic="homer").fit([1.0], means=[1.0])
    assert homer.score_samples([[1.0], [0.0]]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"noise_std": [0.1, 0.1]}, {"means": [0.5]}, "noise_std="),
        ({}, {}, "got neither"),
        ({}, {"means": [0.5], "reference": [[0.5], [1.0]]}, "got both"),
        ({}, {"means": [0.5, 0.5]}, "means has shape"),
        ({}, {"means": [1.5]}, "must lie in"),
        ({}, {"means": [1.5], "variances": [-1.0]}, "variances= must be"),
        ({}, {"means": [np.nan]}, "means holds NaN"),
        ({}, {"reference": [[0.5, 1.0]]}, "reference has 2 columns"),
        ({}, {"reference": [[0.5]]}, "reference has 1 record"),
        ({}, {"reference": [[0.5], [1.0]], "variances": [1.0]}, "variances= goes with"),
        ({"correlated": True}, {"means": [0.5]}, "correlated=True needs"),
        ({"correlated": True, "statistic": "homer"}, {"reference": [[0], [1]]}, "correlated=True"),
    ],
)
def test_bad_input_is_named(changes, arguments, message):
    with pytest.raises(ValueError, match=message):
        AggregateAttack(**{"n_records": 10, **changes}).fit([0.4], **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variances": [-1.0]}, "variances"),
        ({"variances": 0.5}, "variances"),
        ({"noise_std": np.nan}, "noise_std="),
    ],
)
def test_bad_numbers_of_the_power_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        expected_power(**{"n_records": 10, "variances": [0.2], **arguments})
    with pytest.raises(ValueError, match="fpr="):
        expected_power(10, [0.2]).tpr(2.0)
