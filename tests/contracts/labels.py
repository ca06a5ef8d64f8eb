"""Contract of estimators that protect labels: each is released once, the rest is public.

Neighbours differ in one label and in no feature.
"""

import pickle
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from skprivacy.mechanisms import RandomizedResponse

from . import neighbors as neighbours
from .cases import Case
from .neighbors import N
from .noise_laws import check_standard_normal, standardised
from .replay import replay
from .tape import Tape, recording

MANY = 1000
PLENTY = 12_000  # so that what is planted shows by far more than chance


def check_label_replay(case: Case) -> None:
    """Another label changes only mechanism inputs, at the claimed cost."""
    replay(case, neighbours.LABEL)


def check_law(case: Case) -> None:
    """The release has the declared distribution, given the input."""
    tape = Tape()
    with recording(tape):
        case.make().fit(*case.data(PLENTY))
    assert tape.mechanisms, "nothing passed through a mechanism"
    for mechanism, value, output in zip(tape.mechanisms, tape.inputs, tape.outputs, strict=True):
        if isinstance(mechanism, RandomizedResponse):
            _check_responses(mechanism.epsilon, mechanism.n_categories, value, output)
        else:
            noise = (output - value).reshape(1, -1) / mechanism.sensitivity
            check_standard_normal(standardised(mechanism.event, noise))


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
