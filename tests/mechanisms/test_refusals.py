"""Refusals of mechanisms, by the parameter that the refusal names."""

from functools import partial

import numpy as np
import pytest

from skprivacy.accounting import GaussianEvent
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.accounting.events import TreeAggregationEvent
from skprivacy.mechanisms import (
    Exponential,
    FloatGaussian,
    Gaussian,
    KNorm,
    Laplace,
    PoissonSampler,
    RandomizedResponse,
    ReportNoisyMax,
    SecureRandom,
)
from skprivacy.mechanisms.distributed_gaussian import DistributedGaussian
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.matrix_gaussian import MatrixGaussian
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.mechanisms.selection import RandomizedResponseWithPrior
from skprivacy.mechanisms.special_noise import Logistic

INF, NAN = np.inf, np.nan
NUMBERS = [Laplace, Gaussian, Logistic, KNorm]
VECTORS = [FloatGaussian, FloatLogistic, RoundedGaussian]
CHOICES = [Exponential, ReportNoisyMax]
RESPONSES = RandomizedResponse(1.0, 3), RandomizedResponseWithPrior(1.5, 4)
TREE = TreeAggregationEvent(1.0, 2, 1)
OF_FOUR = DistributedGaussian(1.0, n_parties=4, n_untrusted=1)


def of_kinds(kinds, *arguments):
    return [partial(kind, *each) for kind in kinds for each in arguments]


def released(mechanism, *values):
    return [partial(mechanism.release, value, SecureRandom()) for value in values]


def of_parties(**wrong):
    return [partial(DistributedGaussian, **{"noise_multiplier": 1.0, "n_parties": 3, **wrong})]


REFUSED = {
    "noise_multiplier=-1.0": of_kinds([*NUMBERS, *VECTORS], (-1.0, 1.0)),
    "noise_multiplier=nan": of_kinds(NUMBERS, (NAN, 1.0)),
    "noise_multiplier=inf": of_kinds(NUMBERS, (INF, 1.0)),
    "noise_multiplier='1'": of_kinds(VECTORS, ("1", 1.0)),
    r"sensitivity=0\.0": of_kinds([*NUMBERS, *VECTORS], (1.0, 0.0)),
    "sensitivity=nan": of_kinds(NUMBERS, (1.0, NAN)),
    "sensitivity=inf": of_kinds(CHOICES, (1.0, INF)),
    "sensitivity": [partial(MatrixGaussian, TREE, 0.0)],
    r"lower=2\.0": of_kinds(NUMBERS, (1.0, 1.0, 2.0, 2.0)),
    "norm='l3'": [partial(Logistic, 1.0, 1.0, norm="l3")],
    "epsilon": of_kinds(CHOICES, (0.0, 1.0)) + of_kinds([RandomizedResponse], (0.0, 3)),
    "n_categories": of_kinds([RandomizedResponse], (1.0, 1)),
    r"monotonic=.* must be True or False": of_kinds(
        CHOICES, *((1.0, 1.0, value) for value in ("no", 1, None, [False]))
    ),
    "rate=": of_kinds([PoissonSampler], (0.0,), (-0.1,), (1.1,), (NAN,)),
    "high=": [partial(SecureRandom().integers, high, 1) for high in (0, -1, (1 << 63) + 1)],
    "epsilon=-1": [partial(analytic_noise_multiplier, -1, 1e-6)],
    "delta=0": [partial(analytic_noise_multiplier, 1, 0)],
    "delta=1": [partial(analytic_noise_multiplier, 1, 1)],
    "BandedFactorizationEvent or TreeAggregationEvent": [
        partial(MatrixGaussian, GaussianEvent(1.0), 1.0)
    ],
    "n_untrusted": of_parties(n_untrusted=3) + of_parties(n_untrusted=-1),
    "n_parties": of_parties(n_parties=0) + of_parties(n_parties=10**400),
    "noise_multiplier": of_parties(noise_multiplier=-1.0) + of_parties(noise_multiplier=INF),
    "n_contributions": of_parties(n_contributions=0),
    "could overflow 64 bits": of_parties(n_contributions=2**27) + of_parties(noise_multiplier=1e7),
    # what is released
    "64-bit": released(Laplace(1e15, 1.0), np.zeros(100)),
    "flat array": [
        *(call for kind in VECTORS for call in released(
            kind(1.0, 1.0), np.zeros(3, int), np.zeros((2, 2)), np.zeros(3, np.float16))),
        *released(MatrixGaussian(TREE, 1.0), np.zeros((2, 2))),
    ],
    "value (has|holds)": [
        call for kind in CHOICES
        for call in released(kind(1.0, 1.0), [], [[1.0, 2.0]], 3.0, [1.0, NAN])
    ],
    "codes outside|value has dtype": [
        *released(RESPONSES[0], [3], [-1], [0.5], ["a"], [NAN]),
        *released(RESPONSES[1], [4], [-2], [0.5]),
    ],
    "has type float64": released(OF_FOUR, np.zeros((3, 2))),
    "value has 2 rows.*expected 3 to 4": released(OF_FOUR, np.zeros((2, 2), np.int64)),
    "5 rows.*expected 3 to 4": released(OF_FOUR, np.zeros((5, 2), np.int64)),
    "value has shape": released(OF_FOUR, np.zeros(4, np.int64)),
    "0 rows": released(OF_FOUR, np.zeros((0, 4), np.int64)),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_it_is_refused_by_name(message):
    for call in REFUSED[message]:
        with pytest.raises((ValueError, TypeError), match=message):
            call()
