"""Blind baseline: no more false doubt than promised, and every kind of shift is found."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit
from scipy.stats import binom
from sklearn.tree import DecisionTreeClassifier

from skprivacy.audit import audit, audit_predictions, audit_synthetic
from skprivacy.audit.comparability.blind_baseline import (
    SampleUnits,
    compare_labels,
    compare_samples,
)

from . import null_samples
from .null_samples import KINDS, check_null_law, draw_units

pytestmark = pytest.mark.heavy

TREE = DecisionTreeClassifier(max_depth=3, random_state=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_statistic_has_its_law_if_only_membership_differs(kind):
    check_null_law(kind, runs=12)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("n", "runs"), [(30, 200), (40, 200), (200, 100), (2000, 12)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_statistic_has_its_law_at_every_size(kind, n, runs):
    check_null_law(kind, runs=runs, n=n)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_at_most_one_random_split_in_a_hundred_is_doubted():
    """The same table, split 300 times: the seed of the baseline is the same in all splits."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 4)).round(1), rng.integers(0, 3, 300)
    X[:, 0] = y + rng.integers(0, 2, 300)
    doubted = 0
    for _ in range(300):
        rows = rng.permutation(300)
        inside, outside = rows[:150], rows[150:]
        units = SampleUnits.from_records(X[inside], y[inside], X[outside], y[outside])
        doubted += compare_samples(units).differs
    assert doubted <= binom.isf(1e-4, 300, 0.01)


def test_labels_of_one_law_have_uniform_p_values():
    null_samples.check_labels()


def samples(kind, n, seed=0):
    """Return members and non-members that differ in a column, in labels, or in two columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2 * n, 5))
    share = np.full(2 * n, 0.4)
    if kind == "columns":
        X[n:, 1] += 0.6
        X[n:, 2] *= 1.5
    elif kind == "labels":
        share[:n] = 0.75
    elif kind == "age":
        X[:n, 0] += 1.0
        share = expit(2 * X[:, 0])
    y = (rng.random(2 * n) < share).astype(int)
    return X[:n], y[:n], X[n:], y[n:]


@pytest.mark.parametrize("kind", ["columns", "labels", "age"])
def test_a_shift_is_found_from_200_records_on(kind):
    baseline = compare_samples(SampleUnits.from_records(*samples(kind, 200)))
    assert baseline.differs
    assert baseline.auc > 0.55


@pytest.mark.everyday(2)
@pytest.mark.parametrize("kind", ["columns", "labels", "age"])
def test_a_model_that_saw_neither_sample_is_doubted_and_not_refuted(kind):
    """Without the baseline, its verdict is a violated claim in at least one of three draws."""
    without = []
    for seed in range(3):
        records, third = samples(kind, 400, seed), samples(kind, 400, 100 + seed)[:2]
        fitted = TREE.fit(*third)
        probas = [fitted.predict_proba(rows) for rows in records[::2]]
        tables = probas[0], records[1], probas[1], records[3]
        report = audit_predictions(*tables, claim=0.01, records=records[::2])
        assert report.verdict == "doubtful"
        assert not report.refutations
        assert not report.to_frame()["violated"].any()
        without.append(any(f.epsilon_lower_bound > 0.01 for f in report.findings))
    assert any(without) or kind == "columns"  # which the labels do not depend on


def test_a_claim_that_withstands_is_doubted_too():
    records = samples("columns", 200)
    fitted = TREE.fit(*records[:2])
    report = audit(fitted, *records, claim=9.0, n_shadows=2, random_state=0)
    assert report.verdict == "doubtful"
    assert "distinguish them (AUC" in report.doubt
    assert report.caveats[0] == report.doubt
    assert report.baseline.finding.startswith("a difference found by")
    assert report.to_dict()["blind_baseline"]["differs"]
    fair = samples("none", 200)
    report = audit(TREE.fit(*fair[:2]), *fair, claim=9.0, n_shadows=2, random_state=0)
    assert report.verdict == "consistent"
    assert report.pairs is None
    assert report.baseline.finding in report.to_html()
    assert report.baseline.finding.startswith("no difference found by")


def test_a_group_is_one_unit_of_the_comparison():
    shifted = draw_units("people", np.random.default_rng(0), 100)
    assert (shifted.n_in, shifted.n_out) == (100, 100)
    codes = np.repeat(np.arange(100), 4)
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(200, 2)), 4, axis=0) + 0.1 * rng.normal(size=(800, 2))
    X[400:, 1] += 1.0
    y = rng.integers(0, 2, 800)
    groups = pd.Series(codes, name="patient"), pd.Series(codes + 100, name="patient")
    report = audit(
        TREE.fit(X[:400], y[:400]), X[:400], y[:400], X[400:], y[400:],
        claim=9.0, n_shadows=2, groups=groups, random_state=0,
    )  # fmt: skip
    assert report.baseline.differs
    assert report.verdict == "doubtful"


def test_predictions_alone_are_compared_by_their_labels():
    X_in, y_in, X_out, y_out = samples("labels", 200)
    proba = np.full((200, 2), 0.5)
    report = audit_predictions(proba, y_in, proba, y_out, claim=0.1)
    assert report.baseline.auc is None
    assert report.verdict == "doubtful"
    assert report.pairs is None
    assert "their labels differ" in report.doubt
    assert any("by their labels alone" in caveat for caveat in report.caveats)
    whole = audit_predictions(proba, y_in, proba, y_out, claim=0.1, records=(X_in, X_out))
    assert whole.baseline.compared == "records"
    assert not whole.baseline.caveat


def test_predictions_of_shadow_models_stand_in_for_the_records():
    """A shift of the records shows in the answers of models that saw them or others."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([1.0, 1.0], 600)
    shadows = np.stack([proba, proba]) + 0.0
    shadows[:, :300] = rng.dirichlet([3.0, 1.0], (2, 300))
    half = rng.random(600) < 0.5
    label = rng.integers(0, 2, 600)
    report = audit_predictions(
        proba[:300], label[:300], proba[300:], label[300:], claim=9.0,
        shadow_probas=shadows, shadow_trained=np.stack([half, ~half]),
    )  # fmt: skip
    assert report.baseline.compared == "shadow predictions"
    assert report.verdict == "doubtful"
    assert any("predictions of shadow models alone" in caveat for caveat in report.caveats)


def test_records_must_fit_the_tables():
    X_in, y_in, X_out, y_out = samples("none", 40)
    proba = np.full((40, 2), 0.5)
    for wrong in (X_in, (X_in,), (X_in[1:], X_out), (X_in, X_out[:, 1:])):
        with pytest.raises(ValueError, match="records"):
            audit_predictions(proba, y_in, proba, y_out, records=wrong)


def test_synthetic_records_are_audited_with_samples_of_one_kind():
    X_in, _, X_out, _ = samples("age", 200)
    report = audit_synthetic(X_in + 0.01, X_in, X_out, claim=0.1)
    assert report.verdict == "doubtful"
    assert report.pairs.epsilon_lower_bound > 1  # every member has its copy
    X_in, _, X_out, _ = samples("none", 200)
    assert audit_synthetic(X_in + 0.01, X_in, X_out, claim=0.1).verdict == "violated"


def test_few_records_are_not_compared():
    records = samples("age", 29)
    report = audit(TREE.fit(*records[:2]), *records, claim=9.0, n_shadows=2, random_state=0)
    assert report.baseline.p_value is None
    assert report.verdict != "doubtful"
    assert any("fewer than 30" in caveat for caveat in report.caveats)
    assert report.to_dict()["blind_baseline"]["compared"] == "nothing"


def test_the_attacks_see_the_random_numbers_that_they_saw_without_the_baseline():
    """The baseline draws from a separate generator, and repeats its answer."""
    records = samples("none", 100)
    fitted = TREE.fit(*records[:2])
    state = np.random.RandomState(0)
    first = audit(fitted, *records, n_shadows=2, random_state=state)
    after = state.randint(1 << 30)
    state = np.random.RandomState(0)
    second = audit(fitted, *records, n_shadows=2, random_state=state)
    assert first.baseline == second.baseline
    assert state.randint(1 << 30) == after


@pytest.mark.parametrize("as_table", [pd.DataFrame, sparse.csr_matrix, np.asarray])
def test_every_container_of_records_is_compared(as_table):
    X_in, y_in, X_out, y_out = samples("age", 150)
    units = SampleUnits.from_records(as_table(X_in), y_in, as_table(X_out), y_out)
    assert compare_samples(units).differs


@pytest.mark.parametrize("y", ["none", "number", "numbers", "texts", "classes"])
def test_every_kind_of_target_is_compared(y):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    shift = np.arange(200) < 100
    targets = {
        "none": None,
        "number": rng.normal(size=200) + 2 * shift,
        "numbers": rng.normal(size=(200, 2)) + 2 * shift[:, None],
        "texts": np.where(rng.random(200) < 0.2 + 0.6 * shift, "yes", "no"),
        "classes": rng.integers(0, 150, 200) + 50 * shift,
    }[y]
    halves = (None, None) if targets is None else (targets[:100], targets[100:])
    units = SampleUnits.from_records(X[:100], halves[0], X[100:], halves[1])
    assert compare_samples(units).differs == (y != "none")
    assert (units.labels is None) == (y in ("none", "numbers"))
    if units.labels is not None:
        assert compare_labels(units) < 0.01
