"""What estimators owe that protect labels: each is released once, and the rest is public.

Neighbours differ in one label and in no feature. As in ``contracts.py``, a fit on D records what
every release was given and what it gave; a fit on the neighbour is given the same answers.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from skprivacy.accounting import Composed, Event, VoteBlock, epsilon_of
from skprivacy.mechanisms import Gaussian, Laplace, Mechanism, RandomizedResponse

from .contracts import N, Tape, fingerprint, fitted, recording, replaying
from .private_estimators import Case

CHANCE = 1e-9
MANY = 1000
PLENTY = 12_000  # so that what is planted shows by far more than chance


def check_label_replay(case: Case) -> None:
    """Another label changes mechanism inputs alone, and what it changes costs what is claimed."""
    X, y = case.data(N)
    changed = 0
    for place in (0, 1, N // 2, N - 1):
        for label in np.unique(y):
            if label != y[place]:
                changed += compare(case, X, y, place, label)
    assert changed, "no label reached a mechanism: proves nothing"


def compare(case: Case, X: NDArray, y: NDArray, place: Any, label: Any, groups: Any = None) -> int:
    """Return how many releases the label of one record, or of one group, takes part in."""
    other_y = y.copy()
    other_y[place] = label
    blob = pickle.dumps(case.make())
    model, other = pickle.loads(blob), pickle.loads(blob)
    tape, again = Tape(), Tape()
    with recording(tape):
        fitted(model, X, y, groups)
    with replaying(tape, again):
        fitted(other, X, other_y, groups)
    assert tape.mechanisms == again.mechanisms, "which releases are made depends on a label"
    assert fingerprint(model) == fingerprint(other), "the result depends on a label"
    touched = []
    for mechanism, a, b in zip(tape.mechanisms, tape.inputs, again.inputs, strict=True):
        if not np.array_equal(a, b):
            _check_distance(mechanism, a, b)
            touched.append(_event(mechanism, a))
    if touched:
        cost = epsilon_of(Composed(tuple(touched)), model.delta_, "label")
        assert cost <= model.epsilon_ * (1 + 2e-3), f"a label costs {cost}"
    return len(touched)


def _check_distance(mechanism: Mechanism, a: NDArray, b: NDArray) -> None:
    if isinstance(mechanism, RandomizedResponse):
        assert np.count_nonzero(a != b) == 1, "one label is in several responses"
        return
    norm = 1 if isinstance(mechanism, Laplace) else 2
    distance = np.linalg.norm((a.astype(float) - b.astype(float)).ravel(), norm)
    assert distance <= mechanism.sensitivity * (1 + 1e-6), "beyond the sensitivity"


def _event(mechanism: Mechanism, counts: NDArray) -> Event:
    """Return what is released: of noisy votes, the winners."""
    if isinstance(mechanism, Gaussian):
        kind = "gnmax" if np.ndim(counts) == 2 else "threshold"
        noise = mechanism.noise_multiplier * mechanism.sensitivity
        return VoteBlock(kind, noise, len(counts))
    return mechanism.event


def check_law(case: Case) -> None:
    """What is released has the declared law, given what went in."""
    tape = Tape()
    with recording(tape):
        case.make().fit(*case.data(PLENTY))
    assert tape.mechanisms, "nothing passed through a mechanism"
    for mechanism, value, output in zip(tape.mechanisms, tape.inputs, tape.outputs, strict=True):
        if isinstance(mechanism, RandomizedResponse):
            _check_responses(mechanism.epsilon, mechanism.n_categories, value, output)
        else:
            scale = mechanism.noise_multiplier * mechanism.sensitivity
            law = stats.laplace if isinstance(mechanism, Laplace) else stats.norm
            noise = (output - value).ravel() / scale
            assert stats.kstest(noise, law.cdf).pvalue > CHANCE, "noise of another law"


def _check_responses(epsilon: float, k: int, value: NDArray, output: NDArray) -> None:
    """Compare how often each category is reported for each that is held, with the definition."""
    for held in np.unique(value):
        law = np.full(k, 1.0)
        if held >= 0:
            law[held] = np.exp(epsilon)
        reported = np.bincount(output[value == held], minlength=k)
        expected = law / law.sum() * reported.sum()
        statistic = ((reported - expected) ** 2 / expected).sum()
        # A rough statistic where reports are few: this is beyond chance for any number of them.
        assert statistic < (k - 1) + 10 * np.sqrt(2 * (k - 1)) + 30, "responses of another law"


def check_fresh_labels(case: Case) -> None:
    """Equal seeds and equal data never meet equal noise."""
    tapes = [Tape(), Tape()]
    for tape in tapes:
        with recording(tape):
            case.make(random_state=3).fit(*case.data(MANY))
    assert not np.array_equal(tapes[0].outputs[0], tapes[1].outputs[0]), "the noise is repeated"


def check_label_claim(case: Case) -> None:
    """The claim is one of labels, at the epsilon that was asked for."""
    model = case.make().fit(*case.data(N))
    assert model.privacy_.relation == "label"
    assert model.privacy_.kind == "proved"
    assert 0.99 * model.epsilon < model.epsilon_ <= model.epsilon
    assert any("features of all records are public" in a for a in model.privacy_.assumptions)
    assert not any("number of records" in a for a in model.privacy_.assumptions)


def check_labels_leave_no_trace(case: Case) -> None:
    """Neither true labels nor noisy ones are in a fitted model that was not asked to keep them."""
    X, y = case.data(MANY)
    tape = Tape()
    with recording(tape):
        model = case.make().fit(X, y)
    blob = pickle.dumps(model)
    secrets = [y, *tape.inputs, *tape.outputs]
    for secret in secrets:
        if np.size(secret) > 20:
            for form in (np.float64, np.int64, np.int32, np.int8):
                kept = np.asarray(secret).astype(form).tobytes()
                assert kept not in blob, "labels are kept"
    assert not hasattr(model, "labels_")


LABEL_CONTRACTS: list[Callable[[Case], None]] = [
    check_label_replay,
    check_law,
    check_fresh_labels,
    check_label_claim,
    check_labels_leave_no_trace,
]
