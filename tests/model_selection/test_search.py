"""PrivateSearchCV: the best of a random number of trials, at one honest cost."""

import pickle
import random
import warnings
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from skprivacy import config_context, get_config
from skprivacy.accounting import (
    ApproxDPEvent,
    GaussianEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    RepeatedEvent,
    calibrate_noise_multiplier,
    epsilon_of,
)
from skprivacy.accounting.accountants import rdp_epsilon
from skprivacy.accounting.events import PrivateSelectionEvent
from skprivacy.audit import claim_of
from skprivacy.ensemble import PATEClassifier, PublicRecords
from skprivacy.exceptions import BudgetExceededError, PrivacyLeakWarning, PrivacyWarning
from skprivacy.federated import DPFederatedClassifier
from skprivacy.label_privacy import RandomizedResponseClassifier
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.mechanisms import Gaussian, Mechanism, SecureRandom
from skprivacy.model_selection import PrivateSearchCV
from skprivacy.model_selection.search_plan import NumberOfTrials, PreparedSearch, Trial
from skprivacy.model_selection.search_trials import HeldOut, RecordScore, record_score
from skprivacy.neural_network import Distributed, DPSGDClassifier
from skprivacy.preprocessing import PrivateStandardScaler

from ..contracts.cases import SEARCH
from ..contracts.neighbors import N
from ..contracts.replay import Pair, compare
from ..contracts.tape import Tape, recording
from .test_groups import Majority as MajorityOfGroups

SEEDED = "ignore:noise_seed:skprivacy.exceptions.PrivacyWarning"
X, y = make_classification(3000, n_features=5, random_state=0)
BOUNDS = (-4.0, 4.0)
CHANCE = 1e-8


def linear(**params):
    return OutputPerturbationClassifier(
        **{"bounds": BOUNDS, "classes": [0, 1], "relation": "zero_out", **params}
    )


def searched(**params):
    grid = {"alpha": [1e-3, 1e-1, 10.0]}
    return PrivateSearchCV(**{"estimator": linear(), "param_grid": grid, **params})


class Majority(MajorityOfGroups):
    """The majority of binary labels by randomised response, turned round on request."""

    relation = "replace_one"

    def fit(self, X, y):
        return super().fit(X, y)


@contextmanager
def planned_once():
    """Plan the first search, and let later ones of the same kind have its plan and its split."""
    within, plans = PreparedSearch.calibrate_to, []

    def cached(*args):
        if not plans:
            plans.append(within(*args))
        return plans[0]

    with mock.patch.object(PreparedSearch, "calibrate_to", cached):
        yield


# What it costs ------------------------------------------------------------------------------


@pytest.mark.heavy
def test_the_best_of_ten_trials_costs_half_an_epsilon():
    """Base epsilon 1, ten trials in the mean: by loss distributions, by Renyi, composed."""

    def training(noise):
        return RepeatedEvent(PoissonSampledEvent(0.01, GaussianEvent(noise)), 1000)

    run = training(calibrate_noise_multiplier(training, 1.0, 1e-6))
    best = PrivateSelectionEvent(run, eta=1.0, gamma=0.1)
    assert epsilon_of(best, 1e-6) == pytest.approx(1.53, abs=0.005)
    assert rdp_epsilon(best, 1e-6) == pytest.approx(2.14, abs=0.005)
    assert epsilon_of(RepeatedEvent(run, 10), 1e-6) == pytest.approx(3.38, abs=0.005)


@pytest.mark.heavy
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_whole_search_costs_the_epsilon_that_was_asked_for(delta):
    search = searched(epsilon=3.0, delta=delta, n_trials=5).fit(X, y)
    assert 3.0 * 0.99 < search.epsilon_ <= 3.0
    assert (search.delta_, search.privacy_.kind) == (delta, "proved")
    assert search.privacy_.relation == "zero_out"
    assert search.privacy_ == search.plan_.guarantee == search.plan(X, y).guarantee
    # from what the trials were fitted with, by hand
    own = search.plan_.trial_epsilon, search.plan_.trial_delta
    fit = Gaussian.calibrated(*own, sensitivity=1.0).event if delta else ApproxDPEvent(*own)
    best = PrivateSelectionEvent(fit, eta=1.0, gamma=0.2)
    assert search.privacy_event_.events[0] == best
    assert search.privacy_event_.p == (0.8, 0.2)
    assert epsilon_of(best, delta, "zero_out") <= 3.0


@pytest.mark.heavy
def test_more_trials_leave_less_for_each():
    plans = [searched(epsilon=3.0, n_trials=n).plan(X, y) for n in (1.5, 4, 20)]
    each = [plan.trial_epsilon for plan in plans]
    assert 3.0 > each[0] > each[1] > each[2] > 0.5
    assert [plan.n_trials for plan in plans] == pytest.approx([1.5, 4, 20])
    text = repr(plans[1])
    assert f"epsilon={each[1]:.3g}" in text
    assert "a single fit could spend epsilon=" in text


@pytest.mark.heavy
def test_the_budget_is_charged_once_and_before_the_first_trial():
    budget = PrivacyBudget(3.0, 1e-5)
    seen = []

    def spying(self, numbers, random):
        seen.append(budget.entries()["status"].tolist())
        return best_of(self, numbers, random)

    best_of = PreparedSearch.best_of
    with mock.patch.object(PreparedSearch, "best_of", spying):
        search = searched(epsilon=2.0, budget=budget).fit(X, y)
    assert [len(charges) for charges in seen] == [1]
    assert budget.spent() == pytest.approx(search.epsilon_)
    with pytest.raises(BudgetExceededError):
        searched(epsilon=2.0, budget=budget).fit(X, y)
    with pytest.raises(BudgetExceededError):  # a later fit of the best is charged, too
        search.best_estimator_.fit(X, y)


# The law of what is released, enumerated ------------------------------------------------------


def best_law(outcomes, rate, scale, grid):
    """Return the joint density of outcome and noisy score of the best trial, K geometric.

    ``outcomes`` has the probability of each outcome of a trial, and its score without noise.
    """
    density = np.array([p * stats.laplace.pdf(grid, s, scale) for p, s in outcomes])
    below = sum(p * stats.laplace.cdf(grid, s, scale) for p, s in outcomes)
    return density * rate / (1 - (1 - rate) * below) ** 2


def outcomes(bit, ones, n_out, epsilon):
    """Return probability and score of each outcome (turned, bit) of a trial of Majority."""
    keep = np.exp(epsilon) / (1 + np.exp(epsilon))
    return [
        (0.5 * (keep if released == bit else 1 - keep), ones if released ^ turned else n_out - ones)
        for turned in (0, 1)
        for released in (0, 1)
    ]


@pytest.mark.heavy
@pytest.mark.parametrize("n_trials", [2, 10])
def test_the_claim_bounds_the_exact_law_of_a_small_search(n_trials):
    """All outcomes of a search over two settings of a model of one bit, on both kinds of neighbour.

    A neighbour may turn the majority of the records that are fitted on, or one answer on those
    held out.
    """
    labels = np.tile([0, 1], 25)
    search = PrivateSearchCV(
        Majority(), {"turned": [False, True]}, epsilon=2.0, delta=0.0, n_trials=n_trials,
        test_size=0.4,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        plan = search.plan(np.zeros((50, 1)), labels)
    trial, claimed = plan.trial_epsilon, plan.guarantee.epsilon()
    grid = np.linspace(-60, 80, 14_001)
    step, worst = grid[1] - grid[0], 0.0
    for ones in (0, 10, 20):
        here = best_law(outcomes(1, ones, 20, trial), 1 / n_trials, 1 / trial, grid)
        assert here.sum() * step == pytest.approx(1, abs=1e-2)
        there = [outcomes(0, ones, 20, trial)]
        there += [outcomes(1, n, 20, trial) for n in (ones - 1, ones + 1) if 0 <= n <= 20]
        for neighbour in there:
            other = best_law(neighbour, 1 / n_trials, 1 / trial, grid)
            both = (here > 1e-200) & (other > 1e-200)
            worst = max(worst, np.abs(np.log(here[both] / other[both])).max())
    assert trial < worst <= claimed <= 2.0
    assert worst > 0.55 * claimed  # the bound is not far off


@pytest.mark.slow
@pytest.mark.filterwarnings(SEEDED)
@pytest.mark.filterwarnings("ignore:The scores")
def test_a_real_search_follows_that_law():
    """Labels of one kind: whoever is held out, the majority and the scores are known."""
    labels, n_fits = np.ones(10, int), 800
    search = PrivateSearchCV(
        Majority(), {"turned": [False, True]}, epsilon=2.0, delta=0.0, n_trials=3
    )
    found, noisy = [], []
    with planned_once():
        for seed in range(n_fits):
            search.set_params(noise_seed=seed).fit(np.zeros((10, 1)), labels)
            turned, predicted = search.best_params_["turned"], search.best_estimator_.bit_
            found.append(2 * turned + (predicted ^ turned))
            noisy.append(search.best_score_ * 2)
    trial = search.plan_.trial_epsilon
    grid = np.linspace(-40, 40, 40_001)
    law = best_law(outcomes(1, 2, 2, trial), 1 / 3, 1 / trial, grid)
    expected = law.sum(axis=1) * (grid[1] - grid[0])
    counts = np.bincount(found, minlength=4)
    assert stats.chisquare(counts, expected / expected.sum() * n_fits).pvalue > CHANCE
    cdf = law.sum(axis=0).cumsum() / law.sum()
    assert stats.kstest(noisy, lambda x: np.interp(x, grid, cdf)).pvalue > CHANCE


@pytest.mark.parametrize("mean", [1.5, 10.0])
def test_the_number_of_trials_is_geometric(mean):
    law, random = NumberOfTrials(mean), SecureRandom(1)
    drawn = np.array([law.draw(random) for _ in range(20_000)])
    shares = stats.geom.pmf(np.arange(1, 6), 1 / mean)
    expected = np.append(shares, 1 - shares.sum()) * len(drawn)
    counts = np.bincount(np.minimum(drawn, 6), minlength=7)[1:]
    assert stats.chisquare(counts, expected).pvalue > CHANCE
    assert law.best_of(ApproxDPEvent(1.0)).expected_trials == pytest.approx(mean)


# Contracts of a search, and planted bugs ------------------------------------------------------


def check_number(n_fits=300):
    """How many trials there are follows the law that is accounted for, and so do their settings."""
    tried = []

    def spying(self, numbers, random):
        tried.append(np.array(numbers))
        return Trial(clone(linear()).fit(X[:50], y[:50]), {}, 0.0)

    search = searched(n_trials=3, epsilon=5.0)
    with planned_once(), mock.patch.object(PreparedSearch, "best_of", spying):
        for _ in range(n_fits):
            search.fit(X, y)
    lengths = np.minimum([len(t) for t in tried], 6)
    law = stats.geom.pmf(np.arange(1, 6), 1 / 3)
    expected = np.r_[law, 1 - law.sum()] * n_fits
    assert stats.chisquare(np.bincount(lengths, minlength=7)[1:], expected).pvalue > CHANCE
    settings = np.bincount(np.concatenate(tried), minlength=3)
    assert stats.chisquare(settings).pvalue > CHANCE


def check_winner():
    """The winner is the trial whose *noisy* score is highest, and its score is the noisy one."""
    original = PreparedSearch._tried
    for best in range(4):
        given, models = [], []

        def release(self, value, random, best=best, given=given):
            if np.ndim(value):  # a fit
                return Mechanism.release(self, value, random)
            given.append(float(value))
            return 100.0 + 10.0 * (len(given) - 1 == best)

        def tried(self, number, random, models=models):
            trial = original(self, number, random)
            models.append(trial.model)
            return trial

        search = searched(n_trials=4, epsilon=20.0)
        numbers = np.array([0, 1, 2, 0])
        prepared = search._prepare(
            search._checked(), search._candidates(), X, y, {}, SecureRandom()
        )
        with mock.patch.object(PreparedSearch, "_tried", tried):
            kind = type(prepared.mechanism)
            with mock.patch.object(kind, "release", release):
                winner = prepared.best_of(numbers, SecureRandom())
        assert len(given) == 4
        assert winner.model is models[best], "chosen by other scores than the noisy ones"
        assert winner.noisy_sum == 110.0, "another score than the noisy one"
        assert winner.params == {"alpha": [1e-3, 1e-1, 10.0][numbers[best]]}


KEPT = {
    "best_estimator_", "best_params_", "best_score_", "candidates_", "delta_", "epsilon_",
    "n_features_in_", "plan_", "privacy_", "privacy_event_",
}  # fmt: skip


def check_only_the_best_is_kept():
    """Nothing reveals the number of trials, or the losing ones."""
    tape = Tape()
    with recording(tape):
        search = SEARCH.make().fit(*SEARCH.data(N))
    scores = [float(out) for out in tape.outputs[1::2]]
    assert len(scores) > 1
    assert set(vars(search)) - set(search.get_params(deep=False)) == KEPT
    assert search.best_score_ == max(scores) / 6
    blob = pickle.dumps(search)
    for score in sorted(scores)[:-1]:
        for shown in (score, score / 6):
            assert np.float64(shown).tobytes() not in blob, "a score that lost is kept"
            assert np.array(shown, ">f8").tobytes() not in blob, "a score that lost is kept"


def check_neighbours():
    """A neighbour changes what is fitted or what is scored, within the sensitivity, not both."""
    rows, labels = SEARCH.data(N)
    met = set()
    for place in range(N):
        other, other_labels = rows.copy(), labels.copy()
        other[place], other_labels[place] = np.nan, 0
        pair = Pair(f"record {place}", (rows, labels), (other, other_labels))
        distances = compare(SEARCH.make(), pair)
        fits, scores = any(distances[::2]), any(distances[1::2])
        assert not (fits and scores), "a record is fitted on and scored on"
        met.add((fits, scores))
    assert {(False, True), (True, False)} <= met


def as_many_as_the_data_has(original):
    def best_of(self, numbers, random):
        return original(self, numbers[: 1 + int(np.sum(self.data.y_out)) % 3], random)

    return best_of


def by_true_scores(original):
    def tried(self, number, random):
        trial = original(self, number, random)
        with mock.patch.object(Mechanism, "release", lambda m, value, random: value):
            total = self.score.sum(trial.model, self.data.X_out, self.data.y_out)
        return Trial(trial.model, trial.params, float(total))

    return tried


def by_true_scores_with_noisy_ones_shown(original):
    def best_of(self, numbers, random):
        trials = [self._tried(int(n), random) for n in numbers]
        data = self.data
        true = [self.score.sum(t.model, data.X_out, data.y_out) for t in trials]
        return trials[int(np.argmax(true))]

    return best_of


def always_the_mean(original):
    return lambda self, random: round(self.mean)


def scores_kept(original):
    def best_of(self, numbers, random):
        trials = [self._tried(int(n), random) for n in numbers]
        best = max(trials, key=lambda t: t.noisy_sum)
        best.params["scores"] = [t.noisy_sum for t in trials]
        return best

    return best_of


def results_kept(original):
    def fit(self, X, y):
        original(self, X, y)
        self.cv_results_ = {"params": self.candidates_}
        return self

    return fit


def fitted_on_everything(original):
    def drawn(*args):
        data = original(*args)
        return type(data)(
            np.vstack([data.X_fit, data.X_out]), np.r_[data.y_fit, data.y_out],
            data.X_out, data.y_out, data.share, data.expected,
        )  # fmt: skip

    return drawn


def held_out_by_label(original):
    def drawn(X, y, share, n_records, random, groups=None):
        return original(X[np.argsort(y)], np.sort(y), share, n_records, random)

    return drawn


def weighted(original):
    return lambda self, *of_records: 3.0 * original(self, *of_records)


MUTANTS = {
    "as many trials as the data has": (
        PreparedSearch, "best_of", as_many_as_the_data_has, check_neighbours,
    ),
    "best by true scores, which are shown": (
        PreparedSearch, "_tried", by_true_scores, check_neighbours,
    ),
    "best by true scores": (
        PreparedSearch, "best_of", by_true_scores_with_noisy_ones_shown, check_winner,
    ),
    "a fixed number of trials": (NumberOfTrials, "draw", always_the_mean, check_number),
    "scores are kept": (PreparedSearch, "best_of", scores_kept, check_only_the_best_is_kept),
    "results are kept": (PrivateSearchCV, "fit", results_kept, check_only_the_best_is_kept),
    "scored on what was fitted on": (HeldOut, "draw", fitted_on_everything, check_neighbours),
    "held out by label": (HeldOut, "draw", held_out_by_label, check_neighbours),
    "scores beyond their sensitivity": (RecordScore, "sum", weighted, check_neighbours),
}  # fmt: skip


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "check", [check_number, check_winner, check_only_the_best_is_kept, check_neighbours]
)
def test_contract(check):
    check()


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name):
    where, attribute, plant, check = MUTANTS[name]
    bug = plant(getattr(where, attribute))
    with mock.patch.object(where, attribute, bug), pytest.raises(AssertionError):
        check()


# How an attacker might learn more ----------------------------------------------------------------


def test_a_step_that_was_fitted_privately_beforehand_is_refused():
    """Its own release costs (2, 1e-6); weighted by who is held out, a search would claim less."""
    scaler = PrivateStandardScaler(epsilon=2.0, delta=1e-6, bounds=BOUNDS, relation="zero_out")
    model = make_pipeline(FrozenEstimator(scaler.fit(X)), linear())
    grid = {"outputperturbationclassifier__alpha": [0.1, 1.0]}
    search = PrivateSearchCV(model, grid, epsilon=1.99, n_trials=1.01, test_size=0.99)
    with pytest.raises(ValueError, match="a step that was fitted privately beforehand"):
        search.plan(X, y)


def test_facts_that_trials_read_off_their_records_must_not_depend_on_who_is_held_out():
    """Of a class with two records, a trial may meet none, one or both."""
    rare = y.copy()
    rare[:2] = 2
    with pytest.warns(PrivacyLeakWarning):
        plan = searched(estimator=linear(classes=None), epsilon=40.0).plan(X, rare)
    assert any("is the same whoever is held out" in a for a in plan.guarantee.assumptions)
    plan = searched(epsilon=40.0).plan(X, y)
    assert not any("held out" in a for a in plan.guarantee.assumptions)


def drawn_globally():
    return check_random_state(None).random_sample(), random.random(), float(torch.rand(1))


class Drawing(Majority):
    """Keeps a number of each global generator, as a network keeps its first weights."""

    def fit(self, X, y):
        super().fit(X, y)
        self.drawn_ = drawn_globally()
        return self


def test_global_generators_do_not_tell_how_many_trials_there_were():
    search = PrivateSearchCV(Drawing(), {"turned": [False, True]}, epsilon=20.0, delta=0.0)
    afterwards, drawn = set(), set()
    for k in (1, 1, 4):
        check_random_state(None).seed(0)
        random.seed(0)
        torch.manual_seed(0)
        with mock.patch.object(NumberOfTrials, "draw", lambda self, chance, k=k: k):
            search.fit(np.zeros((50, 1)), np.tile([0, 1], 25))
        afterwards.add(drawn_globally())
        drawn.add(search.best_estimator_.drawn_)
    assert len(afterwards) == 1
    assert all(len(set(numbers)) == 3 for numbers in zip(*drawn, strict=True))


def test_each_trial_has_a_secret_seed_of_its_own():
    """One seed of 32 bits for all could be found by trying, and would reveal the winning trial."""
    seeds = []

    class Seeded(Majority):
        def fit(self, X, y):
            seeds.append(torch.initial_seed())
            return super().fit(X, y)

    search = PrivateSearchCV(Seeded(), {"turned": [False, True]}, epsilon=20.0, delta=0.0)
    with mock.patch.object(NumberOfTrials, "draw", return_value=4):
        torch.manual_seed(0)
        search.fit(np.zeros((50, 1)), np.tile([0, 1], 25))
    trials = seeds[-4:]
    assert len(set(trials)) == 4
    assert 0 not in trials
    assert torch.initial_seed() == 0


def test_no_kind_of_error_tells_that_a_record_was_held_out():
    class Odd:
        def predict(self, X):
            if np.isinf(X).any():
                raise RuntimeError("as of torch")
            return np.ones(len(X))

    rows = np.zeros((10, 1))
    rows[3] = np.inf
    assert record_score("accuracy", Odd(), None).sum(Odd(), rows, np.ones(10)) == 9


def test_private_records_are_not_public_ones():
    """The estimator cannot tell: it is given a part of the records, hence another array."""
    model = PATEClassifier(classes=[0, 1], n_teachers=20, delta=1e-6, relation="zero_out")
    search = PrivateSearchCV(model, {"n_queries": [5, 10]}, epsilon=50.0, n_trials=1.5)
    for public in (X, PublicRecords(X)):
        with pytest.raises(ValueError, match="X_public holds the records that the search protects"):
            search.plan(X, y, X_public=public)


# What it holds and what it refuses ------------------------------------------------------------


def test_the_best_model_predicts_and_claims_what_the_search_has_cost():
    with pytest.raises(NotFittedError):
        searched().predict(X)
    search = searched(epsilon=6.0).fit(X, y)
    np.testing.assert_array_equal(search.predict(X), search.best_estimator_.predict(X))
    assert search.predict_proba(X).shape == (3000, 2)
    assert search.decision_function(X).shape == (3000,)
    assert search.score(X, y) == np.mean(search.predict(X) == y)
    assert list(search.classes_) == [0, 1]
    assert search.best_params_ in search.candidates_
    assert search.best_estimator_.alpha == search.best_params_["alpha"]
    for model in (search, search.best_estimator_, make_pipeline("passthrough", search)):
        assert claim_of(model, X).guarantee == search.privacy_
        assert claim_of(model, X).charged == search.privacy_
    assert search.best_estimator_.epsilon_ == search.epsilon_
    assert not hasattr(search, "cv_results_")
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(X), search.predict(X))


@pytest.mark.heavy
def test_a_search_over_private_searches_adds_them_up():
    grid = GridSearchCV(searched(epsilon=3.0), {"n_trials": [2, 4]}, cv=2).fit(X, y)
    claim = claim_of(grid, X)
    assert claim.reason.startswith("no claim: chosen by")
    assert claim.charged.epsilon() == pytest.approx(15, rel=0.05)


@pytest.mark.heavy
def test_under_add_remove_the_number_of_records_is_not_used():
    model = linear(relation="add_remove")
    search = PrivateSearchCV(model, {"alpha": [0.1, 1.0]}, epsilon=5.0, n_records=3000)
    plans = [search.plan(X[:n], y[:n]) for n in (2900, 3000)]
    assert plans[0] == plans[1]
    assert search.fit(X, y).privacy_.relation == "add_remove"
    assert 0.6 < search.best_score_ < 1.1
    with pytest.raises(ValueError, match="n_records=None does not fit relation='add_remove'"):
        search.set_params(n_records=None).fit(X, y)
    with pytest.raises(ValueError, match="n_records=3000 does not fit relation='zero_out'"):
        searched(n_records=3000).fit(X, y)


@pytest.mark.slow
def test_networks_are_given_their_share_of_the_records():
    model = DPSGDClassifier(classes=[0, 1], epochs=2, relation="add_remove")
    grid = {"learning_rate": [0.1, 0.5], "batch_size": [100, 200]}
    search = PrivateSearchCV(model, grid, n_records=3000, epsilon=5.0, n_trials=2).fit(X, y)
    assert search.best_estimator_.n_records == 2400
    assert search.privacy_.relation == "add_remove"
    assert len(search.privacy_event_.events[0].event.events) == 2  # of two batch sizes
    model = DPSGDClassifier(classes=[0, 1], epochs=2)
    search = searched(estimator=model, param_grid=grid, n_trials=2, epsilon=5.0)
    assert search.plan(X, y).guarantee.relation == "zero_out"


@pytest.mark.heavy
def test_targets_and_frames():
    rows, numbers = make_regression(2000, 3, noise=5.0, random_state=0)
    numbers /= np.abs(numbers).max()
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    model = AdaSSPRegressor(delta=1e-6, bounds=BOUNDS, target_bounds=(-1, 1), relation="zero_out")
    space = {"radius": [0.5, 0.8, 1.2]}
    search = PrivateSearchCV(model, space, epsilon=5.0).fit(frame, numbers)
    assert len(search.candidates_) == 3
    assert -4.0 <= search.best_score_ < 0.3
    assert list(search.feature_names_in_) == ["a", "b", "c"]
    absolute = clone(search).set_params(scoring="neg_mean_absolute_error").fit(frame, numbers)
    assert absolute.best_score_ < 0.3
    with pytest.raises(ValueError, match="target_bounds=None"):
        PrivateSearchCV(AdaSSPRegressor(), space).fit(rows, numbers)


@pytest.mark.heavy
def test_models_that_protect_labels_alone():
    model = RandomizedResponseClassifier(GaussianNB(), classes=[0, 1])
    grid = {"estimator__var_smoothing": [1e-9, 1e-3]}
    search = PrivateSearchCV(model, grid, epsilon=4.0, delta=0.0, n_trials=3).fit(X, y)
    assert search.privacy_.relation == "label"
    assert search.privacy_.epsilon() <= 4.0


def test_records_that_cannot_be_predicted_count_as_wrong():
    model = linear(epsilon=1e6).fit(X, y)
    accuracy = record_score(None, model, None)
    rows = X[:100].copy()
    full = accuracy.sum(model, rows, y[:100])
    rows[[3, 50], 0] = np.inf
    right = model.predict(X[[3, 50]]) == y[[3, 50]]
    assert accuracy.sum(model, rows, y[:100]) == full - right.sum()
    assert accuracy.sum(model, rows[:0], y[:0]) == 0.0


def test_a_score_of_ones_own_is_clipped():
    wild = RecordScore("wild", lambda y, p: np.where(y == 1, 1e9, np.nan))
    model = linear(epsilon=1e6).fit(X, y)
    assert wild.sum(model, X[:50], y[:50]) == y[:50].sum()
    search = searched(epsilon=6.0, scoring=lambda y, p: (y == p).astype(float)).fit(X, y)
    assert "the scoring function treats each record by itself" in search.privacy_.assumptions


@pytest.mark.heavy
def test_neither_warnings_nor_progress_tell_how_many_trials_there_are():
    bars = set()

    class Loud(OutputPerturbationClassifier):
        def fit(self, X, y):
            bars.add(get_config()["progress"])
            warnings.warn("a fit", UserWarning, stacklevel=1)
            return super().fit(X, y)

    loud = Loud(bounds=BOUNDS, relation="zero_out")  # without classes: a leak warning each
    said = set()
    for n_trials in (2, 30):
        search = searched(estimator=loud, epsilon=60.0, n_trials=n_trials)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            prepared = search._prepare(
                search._checked(), search._candidates(), X, y, {}, SecureRandom()
            )
            before = len(caught)
            bars.clear()
            with config_context(progress=True):
                prepared.best_of(np.zeros(n_trials, int), SecureRandom())
        said.add(len(caught) - before)
        assert any(issubclass(w.category, PrivacyLeakWarning) for w in caught)
        assert any("read off y" in a for a in prepared.plan.guarantee.assumptions)
    assert said == {0}
    assert bars == {False}


@pytest.mark.heavy
@pytest.mark.filterwarnings(SEEDED)
def test_a_seed_makes_it_reproducible_and_voids_the_guarantee():
    with pytest.warns(PrivacyWarning, match="noise_seed"):
        one = searched(epsilon=6.0, noise_seed=3).fit(X, y)
    two = clone(one).fit(X, y)
    assert one.best_score_ == two.best_score_
    np.testing.assert_array_equal(one.best_estimator_.coef_, two.best_estimator_.coef_)
    assert one.privacy_.kind == "estimate"
    fresh = [searched(epsilon=6.0).fit(X, y).best_score_ for _ in range(2)]
    assert fresh[0] != fresh[1]


def test_it_says_when_searching_does_not_pay():
    with pytest.warns(UserWarning, match="Searching does not pay here: fit the estimator once"):
        plan = searched(epsilon=0.5).plan(X[:300], y[:300])
    assert plan.score_std > 0.05


def test_a_trial_that_claims_something_else_ends_the_search():
    class Fickle(OutputPerturbationClassifier):
        fits = 0

        def fit(self, X, y):
            super().fit(X, y)
            self.privacy_ = claim_of(linear(epsilon=9.0).fit(X, y)).guarantee
            return self

    model = Fickle(bounds=BOUNDS, classes=[0, 1], relation="zero_out")
    search = searched(estimator=model, epsilon=6.0)
    with pytest.raises(ValueError, match="another claim than its rehearsal"):
        search.fit(X, y)
    assert not hasattr(search, "best_estimator_")


SEVERAL = OneVsRestClassifier(linear())
BEHIND = {"outputperturbationclassifier__alpha": [0.1, 1.0]}


def federated(server):
    model = DPFederatedClassifier(classes=[0, 1], n_rounds=2, server=server)
    return {"estimator": model, "param_grid": {"momentum": [0.0, 0.9]}}


PARALLEL = {
    "estimator": DPSGDClassifier(classes=[0, 1], epochs=2, device=Distributed("replicated")),
    "param_grid": {"learning_rate": [0.1, 0.5]},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"param_grid": {"epsilon": [1, 2]}}, "varies 'epsilon', but all trials"),
        ({"param_grid": {"delta": [1e-6]}}, "varies 'delta'"),
        ({"param_grid": {"relation": ["zero_out"]}}, "varies 'relation'"),
        ({"param_grid": {"budget": [None]}}, "varies 'budget'"),
        ({"param_grid": {}}, "varies nothing"),
        ({"param_grid": {"alpha": []}}, "param_grid=.* must be a dict"),
        ({"param_grid": {"alpha": 0.1}}, "param_grid=.* must be a dict"),
        ({"param_grid": {"alhpa": [0.1]}}, "alhpa"),
        ({"param_grid": {"alpha": [-1.0, 0.1]}}, "alpha"),
        ({"estimator": LogisticRegression()}, "estimator: .* Pass a private model. A sweep also"),
        ({"estimator": SEVERAL, "param_grid": {"n_jobs": [1, 2]}}, "must be a private estimator"),
        ({"estimator": OutputPerturbationClassifier}, "must be a scikit-learn estimator"),
        ({"estimator": linear(noise_seed=1)}, "noise_seed=1, which would give"),
        ({"estimator": linear(budget=PrivacyBudget(1.0))}, "budget=.*which each trial"),
        ({"scoring": "roc_auc"}, "scoring='roc_auc' must be"),
        ({"scoring": "neg_mean_squared_error"}, "target_bounds=None"),
        ({"n_trials": 1}, "n_trials"),
        ({"n_trials": 1e7}, "n_trials"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": np.inf}, "epsilon"),
        ({"delta": 0.5}, "delta"),
        ({"test_size": 1.0}, "test_size"),
        ({"test_size": 1e-5}, "leaves a part without any record"),
        ({"epsilon": 30.0, "delta": 4e-4}, "delta"),  # of the whole search: below one record
        (PARALLEL, "Train it in one process"),
        (federated("curious"), "see the rounds of every trial"),  # also of those that lose
        (federated("trusted"), "see the rounds of every trial"),
        *(
            ({"estimator": make_pipeline(step, linear()), "param_grid": BEHIND}, words)
            for step, words in (
                (StandardScaler(), "standardscaler"),
                (PrivateStandardScaler(bounds=BOUNDS), "2 parameters called epsilon"),
            )
        ),
        *(
            ({"epsilon": 6.0, "scoring": scoring}, words)
            for scoring, words in (
                (make_scorer(accuracy_score), "must take true and predicted values"),
                (lambda model, X, y: model.score(X, y), "must take true and predicted values"),
                (accuracy_score, r"array of shape \(\)"),
                (lambda y, p: 0.5, "expected a number for each record"),
            )
        ),
    ],
)
def test_refused_searches_cost_nothing(changes, words):
    budget = PrivacyBudget(100.0, 1e-3)
    arguments = {"param_grid": {"alpha": [0.1, 1.0]}, "budget": budget, **changes}
    with pytest.raises((TypeError, ValueError), match=words):
        searched(**arguments).fit(X, y)
    assert len(budget.entries()) == 0


def test_one_class_of_candidates_cannot_protect_more_than_another():
    """Steps may be candidates themselves, but never of different relations."""
    steps = [linear(), FunctionalMechanismClassifier(bounds=BOUNDS, classes=[0, 1])]
    model = make_pipeline("passthrough", linear())
    search = PrivateSearchCV(model, {"outputperturbationclassifier": steps}, epsilon=6.0)
    with pytest.raises(ValueError, match="more than one relation"):
        search.fit(X, y)
    steps[1].set_params(relation="zero_out")
    assert search.fit(X, y).privacy_.kind == "proved"
