"""Epsilons that are read off a sweep, and how sure they are."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RepeatedStratifiedKFold

from skprivacy.model_selection import PrivacySweepCV
from skprivacy.model_selection.sweep_intervals import (
    EpsilonInterval,
    Splits,
    knee,
    smallest_epsilon,
)

from .test_sweep import Noisy, X, sweep_of, y

EPSILONS = np.array([0.1, 0.3, 1.0, 3.0, 10.0])
TRUE = np.array([0.70, 0.80, 0.845, 0.855, 0.858])


def read(scores, reference, loss=0.02, ratio=0.0, alpha=0.05):
    splits = Splits(len(reference), ratio)
    return smallest_epsilon(EPSILONS, scores, reference, loss, splits, alpha, "it")


def test_without_noise_it_is_the_level_itself():
    scores = np.repeat(TRUE[:, None], 4, axis=1)
    reference = np.full(4, 0.86)
    for loss, epsilon in [(0.2, 0.1), (0.1, 0.3), (0.02, 1.0), (0.01, 3.0), (0.0, math.inf)]:
        found = read(scores, reference, loss)
        assert (found.epsilon, found.low, found.high) == (epsilon, epsilon, epsilon)
    assert repr(read(scores, reference)) == (
        "smallest epsilon that loses at most 0.02 against it: 1 (from 1 to 1)"
    )
    assert repr(read(scores, reference, 0.0)).endswith(": none of those swept")


@pytest.mark.parametrize(
    ("levels", "shown"),
    [
        ((1.0, 0.3, 3.0), "1 (from 0.3 to 3)"),
        ((3.0, 1.0, math.inf), "3 (at least 1)"),
        ((math.inf, 3.0, math.inf), "none of those swept (at least 3)"),
        ((math.inf, math.inf, math.inf), "none of those swept"),
    ],
)
def test_an_end_without_a_swept_level_is_not_named_twice(levels, shown):
    assert repr(EpsilonInterval(*levels, "knee")) == f"knee: {shown}"


def test_a_dip_at_a_larger_epsilon_is_not_overlooked():
    scores = np.repeat(np.array([0.7, 0.85, 0.80, 0.85, 0.86])[:, None], 3, axis=1)
    assert read(scores, np.full(3, 0.86)).epsilon == 3.0


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_the_interval_covers_as_often_as_it_says(confidence):
    """Independent splits, paired by a common effect; the true answer is 1."""
    rng, covered, one_level, n = np.random.default_rng(0), 0, 0, 4000
    for _ in range(n):
        common = rng.normal(0, 0.05, 5)
        reference = 0.86 + common + rng.normal(0, 0.01, 5)
        scores = TRUE[:, None] + common + rng.normal(0, 0.01, (5, 5))
        found = read(scores, reference, alpha=1 - confidence)
        assert found.low <= found.high
        covered += found.low <= 1.0 <= found.high
        one_level += found.low == found.high
    assert covered / n >= confidence - 4 * math.sqrt(confidence * (1 - confidence) / n)
    assert one_level / n > 0.05  # it is not wide enough to say nothing
    assert read(scores, reference, ratio=0.25).high >= read(scores, reference).high


def test_the_knee_is_where_the_curve_bends():
    curve = np.array([0.5, 0.7, 0.85, 0.86, 0.87])
    scores = np.stack([curve, curve + 0.01, np.array([0.5, 0.8, 0.85, 0.86, 0.87])], axis=1)
    found = knee(EPSILONS, scores)
    assert (found.epsilon, found.low, found.high) == (1.0, 0.3, 1.0)


@pytest.mark.heavy
def test_a_sweep_reads_its_own_results():
    cv = RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0)
    sweep = PrivacySweepCV(
        Noisy(), epsilons=[8, 1, 3, np.inf], cv=cv, baseline={"line": LogisticRegression()}
    ).fit(X, y)
    assert sweep.n_splits_ == 6
    assert sweep.test_per_train_ == pytest.approx(0.5, abs=0.01)
    epsilons, scores = sweep._curve()
    assert epsilons.tolist() == [1, 3, 8, math.inf]
    np.testing.assert_allclose(scores.mean(axis=1)[2], sweep.cv_results_["mean_test_score"][0])
    everything = sweep.smallest_epsilon(1.0)
    assert (everything.epsilon, everything.low, everything.high) == (1.0, 1.0, 1.0)
    assert "against line" in repr(everything)
    levels = [f"split{i}_test_score" for i in range(6)]
    line = np.array([sweep.baseline_results_[key][0] for key in levels])
    expected = smallest_epsilon(epsilons[:3], scores[:3], line, 0.01, Splits(6, 0.5), 0.95, "line")
    assert sweep.smallest_epsilon(0.01, compared_with="line").epsilon == expected.epsilon
    assert sweep.knee().epsilon in (1, 3, 8)
    alone = sweep_of(Noisy(), epsilons=[1, 3], cv=2).fit(X, y)
    assert "against epsilon=3" in repr(alone.smallest_epsilon(0.5))
    for arguments, words in [
        ({"loss": -1}, "loss=-1 must be"),
        ({"loss": 0.1, "alpha": 5}, "alpha=5 must be .* for example 0.05"),
        ({"loss": 0.1, "compared_with": "nothing"}, r"must be one of the baselines, \['line'\]"),
    ]:
        with pytest.raises(ValueError, match=words):
            sweep.smallest_epsilon(**arguments)
    with pytest.raises(ValueError, match="needs at least three"):
        alone.knee()
    free = sweep_of(Noisy(), epsilons=[np.inf], cv=2).fit(X, y)
    with pytest.raises(ValueError, match="has no finite level"):
        free.smallest_epsilon(0.1)


class Speechless(LogisticRegression):
    """Cannot be asked for words."""


def in_words(model, X, y):
    if isinstance(model, Speechless):
        raise ValueError("no words")
    return model.predict_proba(X)[:, 0].var()


@pytest.mark.heavy
def test_nothing_is_read_off_a_score_that_failed():
    """NaN is neither the smallest epsilon's knee nor a loss that no epsilon keeps to."""
    scoring = {"accuracy": "accuracy", "words": in_words}
    given = {"speechless": Speechless(), "line": LogisticRegression()}
    sweep = PrivacySweepCV(Noisy(), epsilons=[1, 3, 8], cv=2, baseline=given, scoring=scoring)
    with pytest.warns(UserWarning, match="The scorer 'words' failed, and its score is NaN"):
        sweep.fit(X, y)
    assert sweep.smallest_epsilon(1.0).epsilon == 1.0
    assert "against line" in repr(sweep.smallest_epsilon(99.0, score="words"))
    with pytest.raises(ValueError, match="compared_with='speechless' is NaN in 2 of 2 fits"):
        sweep.smallest_epsilon(1.0, score="words", compared_with="speechless")
    sweep.cv_results_["split1_test_words"][2] = math.nan
    for read_off in (sweep.knee, lambda score: sweep.smallest_epsilon(1.0, score=score)):
        with pytest.raises(ValueError, match="score='words' is NaN in 1 of 6 fits"):
            read_off(score="words")
    sweep.scores_ = ["words"]
    page = sweep.to_html()
    assert "is NaN in 1 of 6 fits" in page
    assert "knee:" not in page
