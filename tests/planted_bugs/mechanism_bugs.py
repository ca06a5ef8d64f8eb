"""Planted bugs in mechanisms: another law or size of noise, repeated noise, one charge for two."""

import itertools
from dataclasses import replace

import numpy as np

from skprivacy.ensemble import GNMax, LNMax
from skprivacy.linear_model.perturbation import ObjectivePerturbation
from skprivacy.mechanisms import (
    Exponential,
    FloatGaussian,
    Gaussian,
    KNorm,
    Laplace,
    PoissonSampler,
    RandomizedResponse,
    SecureRandom,
    matrix_gaussian,
    rounded_gaussian,
)
from skprivacy.mechanisms import secure_random as entropy
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.mechanisms.selection import RandomizedResponseWithPrior

from ..contracts import labels as label_contracts
from ..contracts import records as contracts
from ..contracts import single_release as contracts_once
from ..mechanisms.draw_counter import KEY, check_counter
from ..mechanisms.test_noise import check_noise as check_law
from .bug import Bug, calling, instead

NOISE, FRESH, ONCE = contracts.check_noise, contracts.check_fresh_noise, contracts_once.check_noise
LABEL_LAW, FRESH_LABELS = label_contracts.check_law, label_contracts.check_fresh_labels


def halved(original):
    return lambda self, scale, size, random: original(self, scale, size, random) // 2


@calling
def half_tilt(original, self, value, random):
    """Minimise what another epsilon would, with the ridge that is declared."""

    class Half(ObjectivePerturbation):
        def _scale(this, epsilon):
            return self.scale(value[0].shape[1]) / 2

        def ridge(this, size):
            return self.ridge(size)

    return original(Half(self.epsilon, self.delta, self.n_classes, self.alpha), value, random)


def less_noise(share):
    @calling
    def release(original, self, *args):
        return original(replace(self, noise_multiplier=share * self.noise_multiplier), *args)

    return release


@calling
def gaussian_for_logistic(original, self, value, random):
    return FloatGaussian(np.pi / 3**0.5 * self.noise_multiplier, self.sensitivity)._release(
        value, random
    )


@calling
def less_in_votes(original, self, votes, *rest):
    """Draw 80% of the noise that the event of an aggregator claims."""
    return original(self._with_noise(0.8 * self.noise), votes, *rest)


def too_true(original):
    """Lie with half the probability."""
    return property(lambda self: (1.0 + original.fget(self)) / 2)


@calling
def of_the_global_generator(original, self, value, random):
    seed = int(np.random.randint(2**31))  # noqa: NPY002
    return original(self, value, SecureRandom(seed))


@calling
def seeded_sampling(original, self, n, random):
    return np.flatnonzero(np.random.random(n) < self.rate)  # noqa: NPY002


@calling
def mirrored(original, self, scale, size, random):
    """Give the second half of a vector the first half's noise, turned round."""
    half = original(self, scale, (size + 1) // 2, random)
    return np.r_[half, -half][:size]


@calling
def mirrored_in_place(original, self, value, random):
    before, half = value.copy(), (len(value) + 1) // 2
    noise = original(self, value, random) - before
    value[:] = before + np.r_[noise[:half], -noise[:half]][: len(value)]
    return value


def number_bare(place):
    @calling
    def release(original, self, value, random):
        bare = np.ravel(value)[place]
        noisy = original(self, value, random)
        np.ravel(noisy)[place] = bare  # of a view
        return noisy

    return release


@calling
def released_twice(original, self, value, random):
    """Release the same once more, in a better mean, for the price of one."""
    again = np.array(value, copy=True) if isinstance(value, np.ndarray) else value
    return (original(self, value, random) + original(self, again, random)) / 2


@calling
def reported_twice(original, self, value, random):
    """Report what is true if one of two reports says so, for the price of one."""
    first, second = (original(self, value, random) for _ in range(2))
    return np.where(second == value, second, first)


@calling
def first_candidate(original, self, value, random):
    """Whose label is no candidate responds for the first one, so that likelihoods are wrong."""
    return original(self, np.where(value == -1, 0, value), random)


@calling
def shorter_tree(original, self, size, random):
    """Keep the sums of the lowest level out of the next."""
    noise = original(self, size, random)
    return noise if self.step % 4 else noise - random.normal(size)


@calling
def every_other(original, sigma, size, random):
    steps = original(sigma, size, random)
    steps[::2] = 0.0
    return steps


def shuffled(original):
    """Walk through a permutation in batches of fixed size, as ordinary training does."""
    state = {"order": np.array([], int)}

    def draw(self, n, random):
        size = round(self.rate * n)
        if len(state["order"]) < size:
            state["order"] = np.random.default_rng().permutation(n)
        batch, state["order"] = state["order"][:size], state["order"][size:]
        return np.sort(batch)

    return draw


def restarting(original):
    """Begin again after 4,096 chunks: no estimator of a test takes so many steps."""
    calls = itertools.count(1)

    def drawn(self, *args):
        if next(calls) % 4096 == 0:
            self._streams = {place: entropy.new_stream(KEY) for place in self._streams}
        return original(self, *args)

    return drawn


def scaled(share):
    """Return what makes the noise of a grid smaller."""
    return calling(
        lambda original, self, scale, *rest: original(self, max(1, round(share * scale)), *rest)
    )


DPSGD, LOGISTIC, EXACT = (
    "DPSGDClassifier", "DPSGDClassifier-logistic-ema", "DPSGDClassifier-exact"
)  # fmt: skip
BEST = instead(lambda self, behind, scale, random: int(np.argmin(behind)))
GRID = (Laplace, Gaussian, KNorm)
ALL_BUT_RESPONSES = (*GRID, FloatGaussian, ObjectivePerturbation)
ALL = (*ALL_BUT_RESPONSES, RandomizedResponse)


def shown(name, attribute, make, kinds):
    """Return rows of a bug that audits alone look for, in some mechanisms."""
    return [Bug(kind, attribute, make, name=name, visible_outside=True) for kind in kinds]


def half(owner, attribute, make, caught_by, *cases):
    return Bug(owner, attribute, make, caught_by, cases, "half the noise", True)


def same_seed(owner, *caught):
    make = calling(lambda original, self, value, _: original(self, value, SecureRandom(7)))
    return Bug(owner, "_release", make, *caught, "noise of a fixed seed", True)


def first_number_bare(owner, *caught):
    return Bug(
        owner, "_release", number_bare(0), *caught, name="one number bare", visible_outside=True
    )


BUGS = [
    half(Laplace, "_noise", halved, ONCE, "FunctionalMechanismRegressor"),
    half(Gaussian, "_noise", halved, ONCE, "AdaSSPRegressor"),
    half(KNorm, "_noise", halved, check_law, "KNorm"),
    Bug(KNorm, "_noise", halved, ONCE, "ALMFineTuner-softmax-k-norm", nightly=True),
    half(ObjectivePerturbation, "_release", half_tilt, ONCE, "ObjectivePerturbationClassifier"),
    half(FloatGaussian, "_release", less_noise(0.5), NOISE, DPSGD),
    half(RandomizedResponse, "truth_probability", too_true, LABEL_LAW,
         "RandomizedResponseClassifier"),
    Bug(Laplace, "_noise", halved, LABEL_LAW, "ALIBIClassifier"),
    Bug(FloatLogistic, "_release", less_noise(0.5), NOISE, LOGISTIC, "half logistic noise"),
    Bug(FloatLogistic, "_release", gaussian_for_logistic, NOISE, LOGISTIC),
    Bug(FloatGaussian, "_release", less_noise(0.997), check_law, "FloatGaussian",
        "0.3% less noise"),  # a run has too few numbers to notice so little
    Bug(FloatGaussian, "_release", less_noise(0.97), NOISE, DPSGD, "3% less noise"),
    Bug(LNMax, "release", less_in_votes, check_law, "LNMax"),
    Bug(GNMax, "release", less_in_votes, check_law, "GNMax"),
    Bug(RoundedGaussian, "_scale_steps",
        calling(lambda original, self, size: 0.97 * original(self, size)), NOISE, EXACT,
        "fewer steps"),
    Bug(rounded_gaussian, "rounded_normal", every_other, NOISE, EXACT),
    Bug(matrix_gaussian._BandedNoise, "_next", instead(lambda self, size, r: r.normal(size)), NOISE,
        "DPSGDClassifier-banded", "uncorrelated"),
    Bug(matrix_gaussian._TreeNoise, "_next", shorter_tree, NOISE, "DPSGDRegressor-tree-adaptive"),
    Bug(Exponential, "_select", BEST, check_law, "Exponential", "the best is chosen"),
    Bug(Exponential, "_select", BEST, ONCE, "MarginalSynthesizer-tree", "the best is chosen",
        nightly=True),
    Bug(RandomizedResponseWithPrior, "_release", first_candidate, LABEL_LAW,
        "LP2STClassifier-guesses"),
    *shown("no noise", "_noise", instead(lambda self, scale, size, _: np.zeros(size, np.int64)),
           GRID),
    *shown("no noise", "_release", instead(lambda self, value, random: value), [FloatGaussian]),
    *shown("no noise", "scale", instead(lambda self, size: 0.0), [ObjectivePerturbation]),
    *shown("no noise", "truth_probability", instead(1.0), [RandomizedResponse]),
    same_seed(Laplace, ONCE, "OutputPerturbationClassifier"),
    same_seed(Gaussian, FRESH, "FunctionalMechanismClassifier-delta"),
    same_seed(ObjectivePerturbation, FRESH, "ObjectivePerturbationClassifier-delta"),
    same_seed(RandomizedResponse, FRESH_LABELS, "RandomizedResponseClassifier"),
    same_seed(FloatGaussian, NOISE, DPSGD),
    same_seed(KNorm, None, ()),
    *shown("noise of the global generator", "_release", of_the_global_generator, ALL),
    Bug(PoissonSampler, "draw", seeded_sampling, FRESH, DPSGD),
    Bug(PoissonSampler, "draw", shuffled, contracts.check_inclusion, DPSGD, "shuffled batches",
        ("DPSGDClassifier-sampled",)),
    *[Bug(SecureRandom, method, restarting, check_counter, says="counter")
      for method in ("random_bytes", "_write")],
    *shown("mirrored noise", "_noise", mirrored, GRID),
    Bug(FloatGaussian, "_release", mirrored_in_place, NOISE, DPSGD, "mirrored noise", True),
    first_number_bare(Gaussian, ONCE, "FunctionalMechanismRegressor-delta"),
    first_number_bare(FloatGaussian, NOISE, DPSGD),
    *map(first_number_bare, (Laplace, KNorm, RandomizedResponse)),
    Bug(FloatGaussian, "_release", number_bare(-1), NOISE, DPSGD, "the last number bare"),
    *shown("two releases for the price of one", "_release", released_twice, ALL_BUT_RESPONSES),
    *shown("two releases for the price of one", "_release", reported_twice, [RandomizedResponse]),
]  # fmt: skip
