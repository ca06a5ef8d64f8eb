"""A sweep goes on where it was interrupted; what it keeps is whole, its own, and no model."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer, recall_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from skprivacy import PrivacyBudget
from skprivacy.attacks import LiRA, ShadowPool
from skprivacy.exceptions import BudgetExceededError
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.model_selection import sweep_store as _kept

from .killed_sweep import EPSILONS, LAST, N_SPLITS, sweep
from .killed_sweep import X as records
from .killed_sweep import y as labels
from .test_sweep import Noisy, X, charged_to, fits, log, sweep_of, y  # noqa: F401

ROOT = Path(__file__).parents[2]
TOTAL = len(EPSILONS) * N_SPLITS


def trained(folder):
    return len((folder / "fits").read_text().splitlines())


def kept(folder):
    return len(list((folder / "results").glob("fit_*.json")))


def charges(folder):
    return len(PrivacyBudget.open(folder / "ledger").entries())


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("signal", "n_jobs"),
    [("SIGKILL", 0), ("SIGINT", 0), pytest.param("SIGKILL", 2, marks=pytest.mark.slow)],
)
def test_a_killed_sweep_goes_on_and_charges_only_what_it_makes(
    tmp_path, monkeypatch, signal, n_jobs
):
    monkeypatch.setenv("SWEEP_FOLDER", "")  # restored afterwards
    command = [sys.executable, "-m", "tests.model_selection.killed_sweep"]
    ended = subprocess.run(
        [*command, str(tmp_path), signal, str(n_jobs)], cwd=ROOT, capture_output=True, check=False
    )
    assert ended.returncode != 0
    before = kept(tmp_path)
    if n_jobs == 0:
        assert before == LAST - 1  # all but the one that was killed once it was charged
        assert charges(tmp_path) == trained(tmp_path) == LAST
    else:
        assert 0 < before < TOTAL
    charged, fitted = charges(tmp_path), trained(tmp_path)
    resumed = sweep(tmp_path).fit(records, labels)
    assert trained(tmp_path) - fitted == charges(tmp_path) - charged == TOTAL - before
    assert kept(tmp_path) == TOTAL
    for epsilon, guarantee in zip(EPSILONS, resumed.guarantees_, strict=True):
        assert guarantee.epsilon() == pytest.approx(N_SPLITS * epsilon, rel=1e-3)
    assert resumed.charged_.kind == "proved"
    # once more: nothing is left to do, and every figure is the same
    again = sweep(tmp_path).fit(records, labels)
    assert charges(tmp_path) == charged + TOTAL - before
    assert again.charged_ == resumed.charged_
    for key, values in resumed.cv_results_.items():
        if key != "params":
            np.testing.assert_array_equal(again.cv_results_[key], values, err_msg=key)


@pytest.mark.heavy
def test_more_epsilons_and_a_refit_cost_only_themselves(tmp_path, monkeypatch):
    """All models of the folder are in the total: also those at an epsilon no longer swept."""
    monkeypatch.setenv("SWEEP_FOLDER", "")
    first = sweep(tmp_path).fit(records, labels)
    assert charges(tmp_path) == TOTAL
    more = sweep(tmp_path, epsilons=[2.0, 4.0], refit=2.0).fit(records, labels)
    assert charges(tmp_path) == TOTAL + N_SPLITS + 1
    assert more.cv_results_["mean_test_score"][0] == first.cv_results_["mean_test_score"][1]
    assert more.charged_.epsilon() == pytest.approx(3 * (1 + 2 + 4) + 2, rel=1e-3)
    # a second final model is trained and charged, and both are counted
    twice = sweep(tmp_path, epsilons=[2.0, 4.0], refit=2.0).fit(records, labels)
    assert charges(tmp_path) == TOTAL + N_SPLITS + 2
    assert twice.charged_.epsilon() == pytest.approx(3 * (1 + 2 + 4) + 2 + 2, rel=1e-3)


def test_stored_results_need_no_budget(tmp_path):
    budget = PrivacyBudget(3.0, path=tmp_path / "ledger")
    model = charged_to(budget)
    for _ in range(2):
        sweep_of(model, epsilons=[1.0], cv=3, path=tmp_path / "kept").fit(X, y)
    assert budget.spent() == pytest.approx(3.0)


def test_a_refused_sweep_keeps_what_was_paid_for(tmp_path, monkeypatch):
    monkeypatch.setattr("skprivacy.model_selection.sweep.check_affordable", lambda fits: None)

    def of(cap, scope):
        budget = PrivacyBudget(100.0, path=tmp_path / "ledger").scope(scope, cap)
        return charged_to(budget)

    with pytest.raises(BudgetExceededError, match=r"results are kept in .*from where fit goes on"):
        sweep_of(of(5.5, "a"), epsilons=[1.0, 2.0], cv=3, path=tmp_path / "kept").fit(X, y)
    assert len(list((tmp_path / "kept").glob("fit_*.json"))) == 4
    with pytest.raises(ValueError, match="another sweep: budgets differ"):
        sweep_of(of(9.0, "b"), epsilons=[1.0, 2.0], cv=3, path=tmp_path / "kept").fit(X, y)


def test_stored_results_are_for_their_owner_and_hold_no_model(tmp_path):
    canary = 0.1234567890123456
    data = X.copy()
    data[17] = canary
    given = {"line": LogisticRegression()}
    folder = tmp_path / "kept"
    PrivacySweepCV(
        Noisy(), epsilons=[1, 2], cv=2, attack=LiRA(pool=2, random_state=0), baseline=given,
        path=folder, refit=1.0,
    ).fit(data, np.where(y == 1, "label-canary-yes", "no"))  # fmt: skip
    files = sorted(folder.iterdir())
    assert len(files) == 1 + 2 * 2 + 2 + 1  # the plan, fits, baseline and refit
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        content = file.read_text()
        json.loads(content)
        assert "label-canary" not in content
        assert str(canary) not in content


@pytest.mark.heavy
def test_shadow_models_are_kept_where_a_pool_asks_for_it(tmp_path, log):  # noqa: F811
    pool = ShadowPool(None, n_shadows=4, random_state=0, path=tmp_path / "shadows")
    model = Noisy(log=str(log))
    with_pool = sweep_of(
        model, epsilons=[1, 8], cv=2, attack=LiRA(pool=pool), path=tmp_path / "kept"
    )
    first = with_pool.fit(X, y)
    assert len(fits(log)) == 2 * (4 + 2)
    assert len(list((tmp_path / "shadows").glob("model_*/shadow_*.joblib"))) == 8
    one = sorted((tmp_path / "kept").glob("fit_*.json"))[0]
    one.unlink()
    again = with_pool.fit(X, y)
    assert len(fits(log)) == 2 * (4 + 2) + 1  # a fit, and no shadow model
    np.testing.assert_allclose(
        again.cv_results_["mean_attack_auc"], first.cv_results_["mean_attack_auc"]
    )
    plain = sweep_of(Noisy(), epsilons=[1, 8], cv=2, attack=LiRA(pool=4, random_state=0))
    np.testing.assert_allclose(
        plain.fit(X, y).cv_results_["mean_attack_auc"], first.cv_results_["mean_attack_auc"]
    )
    assert pool.estimator is None  # a template


@pytest.mark.everyday(3)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"estimator": make_pipeline(FunctionTransformer(np.sin), Noisy())}, "estimators differ"),
        ({"estimator": make_pipeline(FunctionTransformer(np.tanh), Noisy(relation="add_remove"))},
         "estimators differ"),
        ({"cv": 4}, "splits differ"),
        ({"scoring": "recall"}, "scoring differ"),
        ({"scoring": make_scorer(recall_score)}, "scoring differ"),
        ({"attack": LiRA(pool=2, random_state=0)}, "attack differ"),
        ({"X": X + 1}, "records differ"),
        ({"y": np.roll(y, 1)}, "records, splits differ"),
        ({"subgroups": np.arange(400) % 2}, "subgroups differ"),
    ],
)  # fmt: skip
def test_results_of_another_sweep_are_refused(tmp_path, changes, words, log):  # noqa: F811
    model = make_pipeline(FunctionTransformer(np.tanh), Noisy())
    cv = StratifiedKFold(2, shuffle=True, random_state=0)
    given = {"estimator": model, "epsilons": [1.0], "cv": cv, "path": tmp_path / "kept"}
    sweep_of(**given).fit(X, y)
    data = {"X": X, "y": y} | {k: v for k, v in changes.items() if k in ("X", "y", "subgroups")}
    other = given | {k: v for k, v in changes.items() if k not in data}
    with pytest.raises(ValueError, match=f"holds the results of another sweep: {words}"):
        sweep_of(**other).fit(**data)
    again = sweep_of(**given).fit(X, y)  # the refusal has harmed nothing
    assert again.cv_results_["mean_test_score"].shape == (1,)


def test_a_baseline_of_the_same_name_is_fitted_again(tmp_path):
    one, other = (DecisionTreeClassifier(max_depth=d, random_state=0) for d in (1, 8))
    scores = [
        PrivacySweepCV(Noisy(), epsilons=[1.0], cv=2, baseline=tree, path=tmp_path / "kept")
        .fit(X, y).baseline_results_["mean_train_score"][0]
        for tree in (one, other)
    ]  # fmt: skip
    assert scores[0] < scores[1]


def test_unrecognisable_arguments_are_refused_before_any_training(tmp_path, log):  # noqa: F811
    kept = tmp_path / "kept"
    budget = PrivacyBudget(100.0)
    private = charged_to(budget)
    unseeded = KFold(2, shuffle=True)
    mapped = make_pipeline(FunctionTransformer(lambda Z: Z), Noisy(log=str(log)))
    for model, cv, words in [
        (Noisy(log=str(log)), unseeded, "splits differently each time"),
        (private, 2, "budget is a budget in a temporary ledger"),
        (mapped, 2, "that can be pickled"),
    ]:
        with pytest.raises(ValueError, match=words):
            sweep_of(model, epsilons=[1.0], cv=cv, path=kept).fit(X, y)
    (tmp_path / "file").touch()
    for path, error in [(5, TypeError), (tmp_path / "file", ValueError)]:
        with pytest.raises(error, match=r"path=.*(must be a path|is a file\. Pass)"):
            sweep_of(Noisy(log=str(log)), epsilons=[1.0], cv=2, path=path).fit(X, y)
    assert not fits(log)
    assert budget.spent() == 0


def test_a_damaged_folder_is_refused_in_plain_words(tmp_path, log):  # noqa: F811
    kept = tmp_path / "kept"
    whole = sweep_of(Noisy(log=str(log)), epsilons=[1.0], cv=2, path=kept)
    whole.fit(X, y)
    one, plan = next(kept.glob("fit_*.json")), kept / "sweep.json"
    content, known = one.read_text(), plan.read_text()
    for file, damaged, words in [
        (one, content[: len(content) // 2], r"fit_.*\.json is damaged .*Restore it or delete it"),
        (one, "[1]", "is damaged"),
        (one, _kept._add_digest(one, {"claim": {}}), "holds no claim that can be read"),
        (plan, known[:10], "sweep.json is damaged"),
        (plan, _kept._add_digest(plan, {"format": 99}), "not the plan of a sweep that this"),
    ]:
        file.write_text(damaged)
        with pytest.raises(ValueError, match=words):
            whole.fit(X, y)
        one.write_text(content)
        plan.write_text(known)
    plan.unlink()
    with pytest.raises(ValueError, match=r"holds results, but not 'sweep\.json'"):
        whole.fit(X, y)
    plan.write_text(known)
    whole.fit(X, y)
    assert len(fits(log)) == 2
