"""Fits that are made side by side equal single fits in model, guarantee, charge and refusal."""

import subprocess
import sys
import threading
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from skprivacy import config_context
from skprivacy._stacked import MAX_FITS, PlannedFit, can_wait, fit_together
from skprivacy.accounting import PrivacyBudget
from skprivacy.exceptions import BudgetExceededError
from skprivacy.mechanisms import FloatGaussian
from skprivacy.model_selection import PrivacySweepCV, sweep_runner
from skprivacy.neural_network import Clipping, DPSGDClassifier, Optimizer
from skprivacy.neural_network._training import side_by_side
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.side_by_side import _ClippedStack, stack_kind
from skprivacy.preprocessing import PrivateStandardScaler

from . import killed_networks

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:noise_seed")]


def problem(n=300):
    X, y = make_classification(n, 6, n_informative=4, n_classes=3, random_state=0)
    X = (X / 5).astype(np.float32)
    X[3, 2], X[4] = np.nan, 1e30  # a record without gradient, and one that overflows
    return X, y


def finite_problem():
    X, y = problem()
    return np.nan_to_num(X).clip(-1, 1), y


def network(**changes):
    plain = {"hidden_layer_sizes": (7,), "epochs": 4, "classes": range(3), "random_state": 0}
    return DPSGDClassifier(epsilon=5.0, delta=1e-3, noise_seed=1).set_params(**plain | changes)


def weights_of(model):
    layers = model.module_.parameters()
    return np.concatenate([layer.detach().numpy().ravel() for layer in layers])


SETTINGS = {
    "plain": [{"noise_seed": 1}, {"noise_seed": 2, "random_state": 4}],
    "other epsilons and steps": [{"epsilon": e, "epochs": n} for e, n in [(1, 2), (3, 5), (9, 3)]],
    "automatic": [{"hidden_layer_sizes": "auto", "epochs": "auto", "epsilon": e} for e in (4, 8)],
    "linear": [{"hidden_layer_sizes": (), "noise_seed": i} for i in (5, 6)],
    "deep": [{"hidden_layer_sizes": (8, 5), "epochs": n} for n in (2, 3)],
    "per layer": [{"max_grad_norm": Clipping("per-layer", 0.3), "epochs": n} for n in (2, 3)],
    "automatic clipping": [{"max_grad_norm": Clipping("automatic"), "epochs": n} for n in (2, 3)],
    "adam": [{"optimizer": "adam", "epochs": n, "batch_size": 50} for n in (2, 4)],
    "averages": [{"optimizer": Optimizer(averaging=a)} for a in (0.0, 0.5)],
    "empty batches": [{"batch_size": 1, "epochs": 1, "noise_seed": i} for i in (1, 2)],
    "add and remove": [{"relation": "add_remove", "n_records": n} for n in (250, 350)],
    "without privacy": [{"epsilon": np.inf, "epochs": 5, "random_state": i} for i in (1, 2)],
    "kinds mixed": [{}, {"hidden_layer_sizes": (3,)}, {"max_grad_norm": Clipping("automatic")}, {}],
    "some alone": [{}, {"class_weight": {1: 2.0}}, {"noise": "exact"}, {}],
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("threads", [1, 2])
def test_models_equal_those_of_single_fits(name, threads, monkeypatch):
    # The order of additions differs, by a part in 1e7 of a sum; a run adds up its steps. Tanh and
    # logistic units are smooth, so the models differ by about as much.
    monkeypatch.setattr(side_by_side, "_MIN_THREAD_WORK", 0)
    monkeypatch.setattr(side_by_side, "blas_threads", lambda: threads)
    X, y = problem()
    fits = [PlannedFit(network(**change), X, y, {}) for change in SETTINGS[name]]
    fit_together(fits)
    for fit, change in zip(fits, SETTINGS[name], strict=True):
        assert fit.finish() > 0
        own, alone = fit.model, network(**change).fit(X, y)
        assert weights_of(own) == pytest.approx(weights_of(alone), abs=2e-5, rel=1e-4)
        assert np.abs(weights_of(own)).max() > 0.05
        for fact in ("privacy_", "privacy_event_", "epsilon_", "delta_", "settings_", "n_steps_"):
            assert getattr(own, fact) == getattr(alone, fact)
        assert own.gradients_ == alone.gradients_
        assert own.noise_multiplier_ == alone.noise_multiplier_


def test_a_stack_trains_what_the_settings_above_share():
    # or the test above would compare single fits with single fits
    X, y = problem()
    for change in [*SETTINGS["plain"], *SETTINGS["adam"], *SETTINGS["linear"]]:
        with network(**change)._begin_fit(X, y) as run:
            assert stack_kind(run) is not None
            run.trained = run.training.module


@pytest.mark.parametrize(
    "change",
    [{"class_weight": {1: 2.0}}, {"noise": "exact"}, {"hidden_layer_sizes": (5000,)}],
    ids=str,
)
def test_a_run_that_no_stack_knows_trains_alone(change):
    with network(**change)._begin_fit(*problem()) as run:
        assert stack_kind(run) is None
        run.trained = run.training.module


def test_only_plain_networks_wait():
    assert can_wait(network(), {})
    assert can_wait(make_pipeline(PrivateStandardScaler(), network()), {})
    assert not can_wait(network(), {"groups": [1, 2]})
    with config_context(progress=True):
        assert not can_wait(network(), {})
    assert not can_wait(type("Own", (DPSGDClassifier,), {})(), {})
    assert not can_wait(make_pipeline(LogisticRegression()), {})
    assert not can_wait(make_pipeline(network(), memory="folder"), {})


def record_releases(draws):
    """Return the releases of each stream of fits on records that add nothing: their noise."""
    X = np.full((60, 4), np.nan, np.float32)
    models = [network(noise_seed=None, epochs=3) for _ in range(4)]
    sums: dict[int, list] = {}
    real = FloatGaussian.release

    def released(self, value, random):
        found = real(self, value, draws(random))
        sums.setdefault(id(random), []).append(np.array(found))
        return found

    with mock.patch.object(FloatGaussian, "release", released):
        fit_together([PlannedFit(model, X, np.arange(60) % 3, {}) for model in models])
    return np.array([np.concatenate(own) for own in sums.values()])


def check_independent(found):
    assert len(found) == 4
    assert np.abs(np.corrcoef(found) - np.eye(4)).max() < 0.25  # five deviations of 3 * 59 * 4
    assert len(np.unique(found)) > 0.99 * found.size


def test_each_fit_draws_noise_of_its_own():
    check_independent(record_releases(lambda random: random))


def test_noise_that_two_fits_share_would_be_seen():
    from skprivacy.mechanisms import SecureRandom

    with pytest.raises(AssertionError):
        check_independent(record_releases(lambda random: SecureRandom(0)))


@pytest.mark.parametrize("pipeline", [False, True])
def test_each_fit_is_charged_once_and_before_any_release(pipeline):
    X, y = problem()
    budget, charged = PrivacyBudget(100.0, 0.1), []
    real = Training.release_and_update

    def released(self, *args):
        charged.append(len(budget.entries()))
        return real(self, *args)

    model = network(noise_seed=None, budget=budget)
    if pipeline:
        scaler = PrivateStandardScaler(bounds=(-1.0, 1.0), relation="zero_out", budget=budget)
        model = make_pipeline(scaler, model)
    fits = [PlannedFit(clone(model), X, y, {}) for _ in range(5)]
    with mock.patch.object(Training, "release_and_update", released):
        fit_together(fits)
    assert all(fit.finish() for fit in fits)
    n = 10 if pipeline else 5
    assert set(charged) == {n}
    alone = PrivacyBudget(100.0, 0.1)
    for _ in range(5):
        copy = clone(model)
        copy.set_params(**{k: alone for k in copy.get_params() if k.endswith("budget")}).fit(X, y)
    assert budget.spent() == alone.spent()
    assert len(budget.entries()) == len(alone.entries()) == n


def test_a_fit_that_is_refused_ends_the_beginning_of_others():
    X, y = problem()
    whole = network(noise_seed=None).fit(X, y)
    budget = PrivacyBudget(1.3 * whole.epsilon_, 1e-3)
    fits = [PlannedFit(network(noise_seed=None, budget=budget), X, y, {}) for _ in range(5)]
    fit_together(fits)
    done = [hasattr(fit.model, "privacy_") for fit in fits]
    assert sum(done) == len(budget.entries()) > 0
    assert done == sorted(done, reverse=True)
    refused = fits[sum(done)]
    with pytest.raises(BudgetExceededError):
        refused.finish()
    assert not hasattr(refused.model, "module_")


def test_a_run_that_fails_ends_alone_and_stays_charged():
    X, y = problem()
    budgets = [PrivacyBudget(10.0, 0.1) for _ in range(3)]
    models = [network(noise_seed=None, budget=b, epochs=3 + i) for i, b in enumerate(budgets)]
    real = Training.release_and_update

    def failing(self, *args):
        if self._step == 2 and self.config.epochs == 4:
            raise ValueError("the sum is not finite")
        return real(self, *args)

    fits = [PlannedFit(model, X, y, {}) for model in models]
    with mock.patch.object(Training, "release_and_update", failing):
        fit_together(fits)
    with pytest.raises(ValueError, match="not finite"):
        fits[1].finish()
    assert not hasattr(models[1], "privacy_")
    assert [len(budget.entries()) for budget in budgets] == [1, 1, 1]
    assert [hasattr(model, "module_") for model in models] == [True, False, True]
    assert [model.n_steps_ for model in models[::2]] == [12, 20]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_undoes_all_fits(threads, monkeypatch):
    monkeypatch.setattr(side_by_side, "_MIN_THREAD_WORK", 0)
    monkeypatch.setattr(side_by_side, "blas_threads", lambda: threads)
    X, y = problem()
    budget = PrivacyBudget(100.0, 0.1)
    models = [network(budget=budget, epochs=400, noise_seed=None) for _ in range(4)]
    fits = [PlannedFit(model, X, y, {}) for model in models]
    real, count = _ClippedStack.step, []

    def interrupted(self):
        count.append(None)
        if len(count) == 3:
            raise KeyboardInterrupt
        real(self)

    monkeypatch.setattr(_ClippedStack, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit_together(fits)
    assert not any(hasattr(fit.model, "module_") for fit in fits)
    assert len(budget.entries()) == 4
    assert len(count) < 1600
    assert threading.active_count() < 20


def test_a_sweep_equals_one_that_fits_one_by_one():
    X, y = finite_problem()
    sweep = PrivacySweepCV(
        network(), epsilons=[1.0, 3.0, 9.0], cv=3, baseline={"free": network(epsilon=np.inf)}
    )
    joint = mock.patch.object(_ClippedStack, "step", autospec=True, side_effect=_ClippedStack.step)
    with joint as steps:
        together = clone(sweep).fit(X, y)
    assert steps.called
    with mock.patch.object(sweep_runner, "MAX_FITS", 1), joint as steps:
        alone = clone(sweep).fit(X, y)
    assert not steps.called
    for found in ("cv_results_", "baseline_results_"):
        one, other = getattr(together, found), getattr(alone, found)
        for key in one:
            if "test_score" in key or "attack" in key:
                there = np.asarray(other[key], float)
                assert np.asarray(one[key], float) == pytest.approx(there, abs=5e-3, nan_ok=True)
    assert together.charged_ == alone.charged_
    assert together.guarantees_ == alone.guarantees_


def test_a_sweep_over_other_models_fits_one_by_one():
    with mock.patch.object(sweep_runner, "fit_together") as joint:
        X, y = finite_problem()
        own = type("Own", (DPSGDClassifier,), {})(
            epochs=1, delta=1e-3, classes=range(3), hidden_layer_sizes=()
        )
        PrivacySweepCV(own, epsilons=[1.0], cv=2, baseline=None).fit(X, y)
    assert not joint.called


def test_warnings_of_a_baseline_stay_ignored():
    X, y = finite_problem()
    free = {"free": network(epsilon=np.inf, classes=None, noise_seed=None)}
    sweep = PrivacySweepCV(network(noise_seed=None), epsilons=[1.0], cv=3, baseline=free)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep.fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 20])
def test_a_killed_sweep_has_charged_all_that_it_trained(tmp_path, step):
    command = [sys.executable, "-m", f"{__package__}.killed_networks", str(tmp_path), str(step)]
    root = Path(__file__).parents[2]
    assert subprocess.run(command, check=False, cwd=root).returncode == -9
    sweep = killed_networks.sweep(tmp_path)
    budget = sweep.estimator.budget
    assert len(budget.entries()) == MAX_FITS  # all that were waiting, before the first release
    sweep.fit(killed_networks.X, killed_networks.y)
    assert len(budget.entries()) == MAX_FITS + 12
