"""Signals of one prediction: their direction, formulas, and probabilities of exactly 0 and 1."""

import numpy as np
import pytest

from skprivacy.attacks.model_answers import SIGNALS, logit, modified_entropy

SURE_RIGHT = np.array([[0.98, 0.01, 0.01]])
UNSURE = np.array([[0.4, 0.3, 0.3]])
SURE_WRONG = np.array([[0.01, 0.98, 0.01]])
FIRST = np.array([0])
KNOW_LABEL = ["loss", "correctness", "confidence", "modified_entropy", "logit", "margin"]


@pytest.mark.parametrize("name", SIGNALS)
def test_higher_is_member(name):
    signal = SIGNALS[name]
    assert signal(SURE_RIGHT, FIRST) >= signal(UNSURE, FIRST)
    if name != "correctness":
        assert signal(SURE_RIGHT, FIRST) > signal(UNSURE, FIRST)
    if name in KNOW_LABEL:
        assert signal(UNSURE, FIRST) > signal(SURE_WRONG, FIRST)


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("proba", [[[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]], [[1.0]]])
def test_extreme_probabilities_are_finite(name, proba):
    if len(proba[0]) == 1 and name == "margin":
        proba = [[1.0, 0.0]]
    assert np.isfinite(SIGNALS[name](np.array(proba), FIRST)).all()


def test_modified_entropy_formula():
    p = np.array([[0.5, 0.3, 0.2]])
    expected = -(1 - 0.5) * np.log(0.5) - 0.3 * np.log(0.7) - 0.2 * np.log(0.8)
    assert modified_entropy(p, FIRST) == pytest.approx(-expected)


def test_logit_keeps_what_subtraction_loses():
    tiny = 1e-11
    wide = logit(np.array([[1 - tiny, tiny]]), FIRST)
    assert wide == pytest.approx(-np.log(tiny), rel=1e-6)
    single = np.float32(1e-10)  # 1 - 1e-10 is 1 in single precision
    low = logit(np.array([[np.float32(1) - single, single]], dtype=np.float64), FIRST)
    assert low == pytest.approx(-np.log(1e-10), rel=1e-6)
