"""What estimators owe that release everything at once, beside what every private estimator owes."""

from __future__ import annotations

import numpy as np
from scipy import stats

from skprivacy.accounting import Composed, PrivacyGuarantee
from skprivacy.linear_model.objective import ObjectivePerturbation
from skprivacy.mechanisms import Exponential, Gaussian, KNorm, Laplace, Logistic, Mechanism

from .contracts import N, Tape, check_normal, noise_of, recording
from .private_estimators import Case

FITS = 150


def check_noise(case: Case) -> None:
    """Noise has the declared law and size, at every number, and is new in every fit."""
    tapes = [Tape() for _ in range(FITS)]
    for tape in tapes:
        with recording(tape):
            case.make().fit(*case.data(N))
    for release in zip(*(t.mechanisms for t in tapes), strict=True):
        assert len(set(release)) == 1, "the mechanism changes from fit to fit"
    for i, mechanism in enumerate(tapes[0].mechanisms):
        made = [noise_of(mechanism, t.inputs[i], t.outputs[i]).ravel() for t in tapes]
        least = min(map(len, made))  # earlier noise may decide how much is released
        noise = np.array([numbers[:least] for numbers in made])
        noise /= _scale(mechanism, tapes[0].inputs[i])
        check_normal(_as_normal(mechanism, noise))


def _scale(mechanism: Mechanism, value) -> float:
    if isinstance(mechanism, ObjectivePerturbation):
        return mechanism.scale(value[0].shape[1])
    if isinstance(mechanism, Exponential):
        return 1.0
    return mechanism.noise_multiplier * mechanism.sensitivity


def _as_normal(mechanism: Mechanism, noise: np.ndarray) -> np.ndarray:
    """Turn noise, shape (fits, size), into what is independent and normal if it is as claimed."""
    if isinstance(mechanism, ObjectivePerturbation) and mechanism.delta == 0:
        size = noise.shape[1]  # a uniform direction and a norm of Gamma(size)
        norms = np.linalg.norm(noise, axis=1, keepdims=True)
        return noise / norms * stats.chi(size).isf(stats.gamma(size).sf(norms))
    if isinstance(mechanism, KNorm):
        size = noise.shape[1]
        norms = np.linalg.norm(noise, axis=1, keepdims=True)
        return noise / norms * stats.chi(size).isf(stats.gamma(size).sf(norms))
    if isinstance(mechanism, Logistic):
        return np.sign(noise) * stats.norm.isf(stats.logistic.sf(np.abs(noise)))
    if isinstance(mechanism, Laplace):
        return np.sign(noise) * stats.norm.isf(stats.laplace.sf(np.abs(noise)))
    assert isinstance(mechanism, (Exponential, Gaussian, ObjectivePerturbation))
    return noise


def check_accounting(case: Case) -> None:
    """All that was released costs, composed, what is claimed, and no more."""
    for params in ({}, {"n_records": N}) if case.add_remove else ({},):
        tape = Tape()
        with recording(tape):
            model = case.make(**params).fit(*case.data(N))
        everything = Composed(tuple(m.event for m in tape.mechanisms))
        released = everything if case.released is None else case.released(tape)
        spent = PrivacyGuarantee(released, at_delta=model.delta, relation=model.relation)
        # The accountant rounds losses up to its grid, which is up to a thousandth of them.
        assert 0.98 * model.epsilon < spent.epsilon() <= model.epsilon * (1 + 2e-3)
        assert 0.99 * model.epsilon < model.epsilon_ <= model.epsilon
        assert model.delta_ == model.delta
        assert model.privacy_.kind == "proved"
        assert model.privacy_.relation == model.relation
        public = "the number of records is public" in model.privacy_.assumptions
        assert public == (model.relation == "zero_out")
