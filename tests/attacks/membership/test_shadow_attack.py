"""Scores of the target's signal among shadow models: their formulas, ties and last bits."""

import numpy as np
import pytest
from scipy.stats import norm

from skprivacy.attacks.membership.shadow_attack import Moments, log_ratio, rmia, standard_score


def offline(target, shadow, out, prior=np.inf, pooled=None):
    return standard_score(target, Moments.from_values(shadow, out), prior, pooled)


def online(target, shadow, out, prior=np.inf, pooled=(None, None)):
    moments = (Moments.from_values(shadow, side) for side in (out, ~out))
    return log_ratio(target, *moments, prior, pooled)


@pytest.mark.parametrize("prior", [0, 7.0, np.inf])
def test_lira_against_normal_densities(prior):
    rng = np.random.default_rng(0)
    shadow = rng.normal(size=(12, 5))
    out = np.zeros((12, 5), bool)
    for column in out.T:
        column[rng.permutation(12)[:6]] = True
    target = rng.normal(size=5)
    z, ratios = (score(target, shadow, out, prior) for score in (offline, online))
    deviation = {}
    for side, used in (("out", out), ("in", ~out)):
        own = np.array([shadow[used[:, j], j].std(ddof=1) for j in range(5)])
        pooled = np.full(5, np.mean(own**2))
        shrunk = pooled if np.isinf(prior) else (5 * own**2 + prior * pooled) / (5 + prior)
        deviation[side] = np.sqrt(shrunk)
    for j in range(5):
        mean_out, mean_in = shadow[out[:, j], j].mean(), shadow[~out[:, j], j].mean()
        assert z[j] == pytest.approx((target[j] - mean_out) / deviation["out"][j])
        ratio = norm.logpdf(target[j], mean_in, deviation["in"][j])
        ratio -= norm.logpdf(target[j], mean_out, deviation["out"][j])
        assert ratios[j] == pytest.approx(ratio)


def test_lira_of_models_that_do_not_vary():
    flat = np.zeros((4, 3))
    out = np.array([[True], [True], [False], [False]]).repeat(3, 1)
    assert (offline(np.zeros(3), flat, out) == 0).all()
    assert (online(np.zeros(3), flat, out, prior=0) == 0).all()
    assert np.isfinite(online(np.ones(3), flat, out)).all()


@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_rmia_against_its_definition(gamma):
    rng = np.random.default_rng(0)
    ratio, population = rng.gamma(2, size=20), rng.gamma(2, size=31)
    expected = (ratio[:, None] / population >= gamma).mean(1)
    assert rmia(ratio, population, gamma=gamma) == pytest.approx(expected)


def test_rounding_decides_no_comparison_of_rmia():
    """A record meets itself in the population, where its answer differs in the last bits."""
    population = np.array([1.0, 2.0, 4.0])
    for rounding in (-1e-7, 0.0, 1e-7):
        assert (rmia(population * (1 + rounding), population) == [1 / 3, 2 / 3, 1]).all()


@pytest.mark.heavy
def test_a_score_depends_on_no_other_record_to_the_last_bit():
    """Sums of numpy round by the number of columns and by how these are kept."""
    rng = np.random.default_rng(0)
    target, shadow = rng.normal(size=300), rng.normal(size=(126, 300))
    out = rng.random(shadow.shape) < 0.5
    for compare, pooled in ((offline, 1.5), (online, (1.5, 0.7))):
        given = {"prior": 4.0, "pooled": pooled}
        whole = compare(target, shadow, out, **given)
        turned = compare(target, np.asfortranarray(shadow), np.asfortranarray(out), **given)
        each = [compare(target[[i]], shadow[:, [i]], out[:, [i]], **given)[0] for i in range(300)]
        assert np.array_equal(whole, turned)
        assert np.array_equal(whole, each)


def test_signals_of_models_that_do_not_count_may_be_infinite():
    shadow, out = np.array([[0.0, np.inf], [2.0, 1.0], [1.0, 3.0]]), np.ones((3, 2), dtype=bool)
    out[0] = False
    found = offline(np.array([3.0, 3.0]), shadow, out)
    assert np.array_equal(found, offline(np.array([3.0, 3.0]), shadow[1:], out[1:]))
