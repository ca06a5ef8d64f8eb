"""verify_privacy shows the bugs that are visible outside, and holds without: slow proofs."""

from dataclasses import replace
from itertools import islice, product
from unittest import mock

import numpy as np
import pytest
from scipy.stats import binom

from skprivacy.accounting import PrivacyGuarantee
from skprivacy.audit import verify_privacy, verify_release
from skprivacy.audit.verification import verify_privacy as verification
from skprivacy.audit.verification.releases import released_numbers
from skprivacy.mechanisms import (
    FloatGaussian,
    Gaussian,
    KNorm,
    Laplace,
    RandomizedResponse,
    SecureRandom,
)
from skprivacy.mechanisms.base import record_releases
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.special_noise import Logistic

from .bug import Bug, patched
from .mechanism_bugs import scaled
from .verified import (
    BUGS,
    FAINT,
    FIT_PARAMS,
    REASONS,
    ROWS,
    VERIFIED,
    epsilon_of_bug,
    mechanism_of,
    planted,
    runs_for,
    why_not,
)

# The slowest cases; the benchmark audits/verification has them. Two releases of K-norm noise on
# seven numbers take 40,000 runs, by theory.
LEFT_OUT = {"ALMFineTuner-gradient"}
SEED = 3  # of noise: the first randomized response is a lie


def tried(bug, name):
    if why_not(bug, name):
        return False
    if mechanism_of(name) is KNorm and bug == "two releases for the price of one":
        return False
    faint = bug in FAINT or bug == "one number bare"
    return name not in LEFT_OUT and not (name == "LP2STClassifier" and faint)


# One estimator for each mechanism.
CASES = [
    pytest.param(bug, name, id=f"{bug}-{name}")
    for bug in BUGS
    for name in {
        mechanism_of(name): name for name in reversed(VERIFIED) if tried(bug, name)
    }.values()
]


def verified(name, epsilon, n_runs):
    return verify_privacy(
        VERIFIED[name](), n_runs=n_runs, epsilon=epsilon, fit_params=FIT_PARAMS.get(name)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "name"), CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the bugs compute with NaN
def test_planted_bug_is_shown(bug, name):
    with planted(bug, name):
        assert verified(name, epsilon_of_bug(name), runs_for(bug, name)).broken


def released(name):
    """Return all numbers that a fit with seeded noise releases and keeps."""
    random = np.random.default_rng(0)
    X = random.uniform(-3, 3, (24, 1))  # beyond the bounds, as y of regressors
    model = VERIFIED[name]().set_params(epsilon=epsilon_of_bug(name), noise_seed=SEED)
    y = random.integers(0, 2, 24) if hasattr(model, "classes") else random.uniform(-3, 3, 24)
    if mechanism_of(name) is not RandomizedResponse:
        X[3] = np.nan
    np.random.seed(0)  # noqa: NPY002 - a bug draws from it
    with record_releases() as recorded:
        model.fit(X, y, **FIT_PARAMS.get(name, {}))
    learned = released_numbers(model, X[:1], {})
    return np.concatenate([*(np.ravel(one) for _, one in recorded), learned])


@pytest.mark.parametrize(("bug", "name"), CASES)
@pytest.mark.filterwarnings("ignore")  # of ranges, of missing values, of what bugs compute
def test_a_planted_bug_changes_what_is_released(bug, name):
    """Every day: a bug that code has moved away from would do nothing."""
    honest = released(name)
    np.testing.assert_array_equal(released(name), honest)
    with planted(bug, name):
        assert not np.array_equal(released(name), honest, equal_nan=True)


def test_there_are_twenty_bugs_and_each_fits_some_estimator():
    assert len(BUGS) == 20
    assert set(REASONS) <= set(BUGS)
    for bug in BUGS:
        assert any(not why_not(bug, name) for name in VERIFIED)


def test_every_row_fits_some_estimator():
    shown = []
    for bug, name in product(BUGS, VERIFIED):
        if not why_not(bug, name):
            with mock.patch.object(Bug, "planted", lambda row, _: shown.append(row)):
                planted(bug, name)
    assert {id(row) for row in shown} == {id(row) for row in ROWS}


# A mechanism, neighbours, and runs that are twice what noise 10% smaller takes. With more numbers
# than one, a pure guarantee is reached in a corner alone, where few runs end.
EPSILON = 3.2
ONE, VECTOR = (1.0, 0.0), (np.array([1.0, 0.0, 0.0]), np.zeros(3))
MECHANISMS = {
    "Laplace": (Laplace(1 / EPSILON, 1.0), ONE, 16_000),
    "Laplace, two numbers": (Laplace(0.4, 2.0), (np.ones(2), np.zeros(2)), 64_000),
    "Gaussian": (Gaussian(0.4, 1.0), ONE, 12_000),
    "Logistic": (Logistic(1 / EPSILON, 1.0), ONE, 16_000),
    "KNorm": (KNorm(0.5, 1.0), ONE, 30_000),
    "FloatGaussian": (FloatGaussian(0.4, 1.0), VECTOR, 12_000),
    "FloatLogistic": (FloatLogistic(1 / EPSILON, 1.0), VECTOR, 40_000),
    "RandomizedResponse": (RandomizedResponse(2.0, 2), (np.array([1]), np.array([0])), 30_000),
}


def less_noise(mechanism):
    if isinstance(mechanism, RandomizedResponse):
        lies = 0.9 / (1 + np.exp(mechanism.epsilon))
        return RandomizedResponse(float(np.log(1 / lies - 1)), 2)
    return replace(mechanism, noise_multiplier=0.9 * mechanism.noise_multiplier)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_noise_of_a_mechanism_that_is_10_percent_too_small_is_shown(name):
    honest, pair, n_runs = MECHANISMS[name]
    weaker = less_noise(honest)
    random = SecureRandom()
    pure = isinstance(honest, (Laplace, KNorm, RandomizedResponse))
    claim = PrivacyGuarantee(honest.event, at_delta=None if pure else 1e-5)
    found = verify_release(
        lambda value: weaker.release(np.array(value), random), [pair], claim, n_runs=n_runs
    )
    assert found.broken


ALPHA, TIMES = 0.05, 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["PrivateStandardScaler-delta", "FunctionalMechanismRegressor-delta", "AdaSSPRegressor"]
)
def test_a_true_claim_of_an_estimator_is_broken_in_at_most_alpha(name):
    """On few neighbours, which takes no time: what is chosen by the first runs does not count."""

    def few(*given, **options):
        return islice(original(*given, **options), 3)

    original = verification.neighbours
    with mock.patch.object(verification, "neighbours", few):
        broken = sum(
            verify_privacy(VERIFIED[name](), n_runs=50, epsilon=12.0, alpha=ALPHA).broken
            for _ in range(TIMES)
        )
    # More than this happens less than once in 100 million, were it broken in exactly alpha.
    assert broken <= binom.isf(1e-8, TIMES, ALPHA)


# An estimator, its noise, an epsilon and runs. Laplace noise on two numbers reaches the claim in a
# corner alone: some 15,000 runs at epsilon 2 are what the best score needs, at 4 already 24,000.
LESS = {
    "PrivateStandardScaler-delta": (Gaussian, 14.0, 4_000),
    "FunctionalMechanismRegressor-delta": (Gaussian, 14.0, 4_000),
    "AdaSSPRegressor": (Gaussian, 14.0, 4_000),
    "FunctionalMechanismRegressor": (Laplace, 2.0, 30_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LESS)
def test_noise_that_is_10_percent_too_small_is_shown(name):
    """Where a record reaches the sensitivity; elsewhere the claim is still true, and holds."""
    noise, epsilon, n_runs = LESS[name]
    with patched(noise, "_noise", scaled(0.9)):
        assert verified(name, epsilon, n_runs).broken


@pytest.mark.slow
@pytest.mark.parametrize("name", VERIFIED)
def test_every_estimator_holds(name):
    held = verify_privacy(VERIFIED[name](), n_runs=300, alpha=1e-8, fit_params=FIT_PARAMS.get(name))
    assert not held.broken
