"""audit(): the planted liar is caught, the honest model is not, nothing is trained twice."""

import json
import math
import pickle
import re
import warnings
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import DBSCAN
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skprivacy._report_facts import format_share
from skprivacy.accounting import ApproxDPEvent, LaplaceEvent, PrivacyGuarantee
from skprivacy.accounting.events import NonPrivateEvent
from skprivacy.accounting.guarantee import auc_ceiling
from skprivacy.attacks import AttackResult, LabeledRecords, LiRA, LossThreshold, SignalThreshold
from skprivacy.audit import audit
from skprivacy.audit.report import html_report as _html
from skprivacy.audit.report.findings import AttackFinding, GroupExposure
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.metrics import epsilon_lower_bound
from skprivacy.preprocessing import BoundedColumn, Schema, SchemaTransformer

X, y = make_classification(2000, n_features=8, flip_y=0.2, random_state=0)
PARTS = (X[:1000], y[:1000], X[1000:], y[1000:])
CLAIM = PrivacyGuarantee(ApproxDPEvent(0.1, 1e-6), at_delta=1e-6, relation="zero_out")
FITS = []


class Claiming(ClassifierMixin, BaseEstimator):
    """A tree that claims epsilon = 0.1: of full depth it memorises, at depth 0 it is a constant."""

    def __init__(self, max_depth=None, claim=CLAIM):
        self.max_depth = max_depth
        self.claim = claim

    def fit(self, X, y):
        FITS.append(len(y))
        self.classes_ = np.unique(y)
        self.privacy_ = self.claim
        self.tree_ = DecisionTreeClassifier(max_depth=self.max_depth, random_state=0).fit(X, y)
        return self

    def predict_proba(self, X):
        proba = self.tree_.predict_proba(X)
        # A tree of two leaves on 1,000 rows leaks next to nothing.
        return proba.round(1) if self.max_depth == 1 else proba

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.fixture(scope="module")
def liar():
    return audit(Claiming().fit(*PARTS[:2]), *PARTS, n_shadows=4, random_state=0)


@pytest.fixture(scope="module")
def honest():
    return audit(Claiming(max_depth=1).fit(*PARTS[:2]), *PARTS, n_shadows=4, random_state=0)


@pytest.mark.heavy
def test_a_memorising_model_that_claims_privacy_is_caught_and_an_honest_one_is_not(liar, honest):
    assert (liar.verdict, honest.verdict) == ("violated", "consistent")
    assert liar.epsilon_lower_bound > 1 > liar.claimed_epsilon
    assert [report.to_frame()["violated"].any() for report in (liar, honest)] == [True, False]


@pytest.mark.parametrize("n", [28, 179, 489])
def test_a_constant_model_is_never_accused(n):
    """All scores are tied; at these sizes a fixed coin for ties refuted every claim of 0."""

    class Constant(Claiming):
        def predict_proba(self, X):
            return np.full((len(X), 2), 0.5)

    nothing = PrivacyGuarantee(ApproxDPEvent(0.0, 1e-9), at_delta=1e-9)
    model = Constant(1, nothing).fit(*PARTS[:2])
    report = audit(model, *(part[:n] for part in PARTS), attacks=LossThreshold())
    assert report.verdict == "consistent"
    assert report.epsilon_lower_bound == 0


@pytest.mark.heavy
def test_the_target_is_never_trained_and_shadows_once():
    model = Claiming().fit(*PARTS[:2])
    tree = model.tree_
    FITS.clear()
    attacks = [LiRA(pool=2), LiRA(online=True, pool=4), LossThreshold()]
    report = audit(model, *PARTS, attacks=attacks, n_shadows=4)
    assert FITS == [1000] * 4  # halves of all 2,000 records, one pool for both attacks
    assert model.tree_ is tree
    assert report.n_shadows == 4
    FITS.clear()
    assert audit(model, *PARTS, attacks=LossThreshold()).n_shadows == 0
    assert FITS == []


def test_figures_are_those_of_the_attack(liar):
    target, records = Claiming().fit(*PARTS[:2]), LabeledRecords(X, y)
    result = LossThreshold(target).fit(records).evaluate(records[:1000], records[1000:])
    row = liar.to_frame().iloc[0]
    assert row["attack"] == "LossThreshold"
    assert row["auc"] == pytest.approx(result.auc)
    assert (row["auc_low"], row["auc_high"]) == pytest.approx(result.auc_interval)
    assert row["tpr_at_0.01"] == pytest.approx(result.tpr_at_fpr(0.01).tpr)
    assert row["tpr_at_0.01_bound"] == pytest.approx(CLAIM.tpr_bound(0.01))
    # two attacks share the error probability
    assert row["epsilon_lower_bound"] == pytest.approx(result.epsilon_lower_bound(1e-6, 0.025))
    assert liar.train_accuracy == 1
    assert liar.test_accuracy == pytest.approx(np.mean(target.predict(X[1000:]) == y[1000:]))


@pytest.mark.heavy
def test_without_a_claim_there_is_nothing_to_violate():
    tree = DecisionTreeClassifier(random_state=0).fit(*PARTS[:2])
    report = audit(tree, *PARTS, attacks=[LossThreshold()])
    assert report.verdict == "no claim"
    assert report.epsilon_lower_bound > 1
    assert math.isinf(report.claimed_epsilon)
    assert "no privacy claim" in report.to_html()
    assert not report.to_frame()["violated"].any()


@pytest.mark.heavy
def test_a_pure_claim_has_delta_zero():
    pure = PrivacyGuarantee(LaplaceEvent(10.0))
    liar = audit(Claiming(None, pure).fit(*PARTS[:2]), *PARTS, attacks=[LossThreshold()])
    honest = audit(Claiming(1, pure).fit(*PARTS[:2]), *PARTS, attacks=[LossThreshold()])
    assert (liar.verdict, honest.verdict) == ("violated", "consistent")
    assert liar.claimed_epsilon == pytest.approx(0.1)
    assert liar.to_frame()["claimed_delta"][0] == 0
    assert "at delta 0" in liar.to_html()


@pytest.mark.heavy
def test_too_few_records_are_told_and_not_guessed():
    parts = X[:50], y[:50], X[50:100], y[50:100]
    report = audit(Claiming().fit(*parts[:2]), *parts, attacks=[LossThreshold()])
    assert np.isnan(report.to_frame()["tpr_at_0.001"][0])
    assert any("at least 1000 are needed" in text for text in report.caveats)
    assert "too few records" in report.to_html()


SCHEMA = Schema({f"x{i}": BoundedColumn(-5, 5) for i in range(8)})


def test_an_inferred_schema_is_flagged():
    model = make_pipeline(SchemaTransformer(), Claiming(max_depth=1))
    with pytest.warns(PrivacyLeakWarning):
        model.fit(*PARTS[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        report = audit(model, *PARTS, n_shadows=2)
    assert "read off the data" in report.uncovered["schematransformer"]


@pytest.mark.heavy
def test_a_search_claims_nothing():
    """Its choice by unprotected scores has no guarantee, whatever the chosen model claims."""
    search = GridSearchCV(
        make_pipeline(StandardScaler(), Claiming(max_depth=1)), {"claiming__max_depth": [1]}, cv=2
    ).fit(*PARTS[:2])
    report = audit(search, *PARTS, attacks=[LossThreshold()])
    assert report.verdict == "no claim"
    assert report.reason == "no claim: chosen by unprotected scores"
    assert math.isinf(report.claimed_epsilon)
    assert report.to_dict()["claim"] is None
    assert not report.to_frame()["violated"].any()
    for text in (repr(report), report.to_html(), report._repr_html_()):
        assert "chosen by unprotected scores" in text
        assert "proved" not in text
        assert "unknown" in text  # a third-party model: the cost of its fits is unknown


@pytest.mark.heavy
def test_whose_data_the_claim_protects_is_shown():
    patients = replace(CLAIM, unit="<i>patient")
    report = audit(Claiming(1, patients).fit(*PARTS[:2]), *PARTS, attacks=[LossThreshold()])
    assert "per <i>patient" in repr(report)
    assert "the group of all records with one &lt;i&gt;patient" in report.to_html()
    assert report.to_dict()["claim"]["unit"] == "<i>patient"
    alone = replace(report, guarantee=CLAIM)
    assert "<dd>one record</dd>" in alone.to_html()


@pytest.mark.heavy
def test_the_report_escapes_every_name(tmp_path):
    evil = "<script>alert('x')</script>"

    class Evil(Claiming):
        def __repr__(self):
            return f"Evil(label={evil!r})"

    claim = PrivacyGuarantee(ApproxDPEvent(1.0, 1e-6), at_delta=1e-6, assumptions=(evil,))
    model = make_pipeline(StandardScaler(), Evil(1, claim)).fit(
        X[:1000], np.where(y, evil, "b")[:1000]
    )
    model.steps[0] = (f"<b>{evil}", model.steps[0][1])
    labels = np.where(y, evil, "b")
    report = audit(
        model, X[:1000], labels[:1000], X[1000:], labels[1000:], attacks=[LossThreshold()]
    )
    for page in (report.to_html(tmp_path / "audit.html"), report._repr_html_()):
        assert "<script" not in page
        assert "<b><" not in page
        assert "&lt;script&gt;" in page
    assert (tmp_path / "audit.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.heavy
def test_the_page_stands_alone_and_says_what_it_cannot_know(liar, honest):
    pages = [re.sub('base64,[^"]*', "base64,", report.to_html()) for report in (liar, honest)]
    for page in pages:
        assert not re.search(r"(src|href)=\"(?!data:image/png;base64,)", page)
        assert "http" not in page
        assert "lower bound" in page
        assert "no privacy guarantee covers the page" in page
    assert ["violated" in page for page in pages] == [True, False]
    assert "proves no privacy" in repr(honest)


@pytest.mark.slow
def test_auc_ceiling_by_brute_force():
    guarantee = PrivacyGuarantee(ApproxDPEvent(1.0, 0.0))
    area = guarantee.tpr_bound((np.arange(20_000) + 0.5) / 20_000).mean()
    assert area <= auc_ceiling(guarantee) < area + 0.02
    # pure 1-DP, by hand: the corner lies at fpr = 1/(1+e)
    corner = 1 / (1 + math.e)
    assert area == pytest.approx(1 - corner, abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": Claiming()}, "not fitted"),
        ({"X_train": X[:1]}, "X_train must have at least 2 records; got 1"),
        ({"y_test": y[:10]}, "X_test and y_test differ"),
        ({"y_test": np.full(1000, 7)}, "1 labels that are not classes of the model"),
        ({"X_test": X[1000:, :3]}, "expected equal shapes"),
        ({"alpha": 0}, "alpha=0 must be"),
        ({"alpha": "5%"}, "alpha='5%' must be"),
        ({"alpha": 1e-99}, "alpha=1e-99 must be .* at least 1e-80"),
        ({"attacks": []}, "attacks is empty"),
        ({"attacks": [LiRA]}, "membership attacks"),
        ({"attacks": ["lira"]}, "Pass objects"),
        ({"attacks": "lira"}, r"attacks='lira' must be .* such as \[LiRA"),
        ({"attacks": 3}, "attacks=3 must be a list"),
        ({"X_test": X[:1000]}, "share 1000 of 1000 rows; non-members must be"),
        ({"X_test": y[:1000], "y_train": X[1000:]}, r"in the order audit\(model, X_train"),
        ({"y_test": y[1000:, None]}, "one label for each record"),
        ({"model": DBSCAN().fit(X)}, "DBSCAN must score single records"),
        (
            {"model": make_pipeline(Normalizer(), DBSCAN()).fit(X)},
            "Expected a classifier with predict_proba",
        ),
        (
            {"model": LinearRegression().fit(X, y), "attacks": SignalThreshold()},
            "LinearRegression returns residuals",
        ),
        ({"y_train": None, "y_test": None}, "X must have labels"),
        ({"y_test": None}, "both be None, or neither"),
        ({"sample_weight": np.ones(3)}, "one weight for each of the 2000 records"),
        ({"sample_weight": np.ones(2000)}, "Claiming.fit takes none"),
        ({"n_shadows": 3}, "even"),
    ],
)
def test_wrong_input_is_told_before_any_training(changes, words):
    model = Claiming().fit(*PARTS[:2])
    names = ("X_train", "y_train", "X_test", "y_test")
    arguments = {"model": model, **dict(zip(names, PARTS, strict=True)), **changes}
    FITS.clear()
    with pytest.raises((TypeError, ValueError), match=words):
        audit(**arguments)
    assert FITS == []


def test_labels_in_messages_are_plain():
    labels = np.where(y, "yes", "no")
    model = Claiming().fit(X[:1000], labels[:1000])
    with pytest.raises(ValueError, match=r"which are \['no', 'yes'\]"):
        audit(model, X[:1000], labels[:1000], X[1000:], np.full(1000, "maybe"))


@pytest.mark.heavy
def test_members_among_the_non_members_are_counted():
    model = Claiming().fit(*PARTS[:2])
    mixed, labels = X[990:1990].copy(), y[990:1990]
    report = audit(model, *PARTS[:2], mixed, labels, attacks=LossThreshold())
    assert report.to_dict()["n_shared"] == 10
    for text in (report.to_html(), repr(report), " ".join(report.to_dict()["caveats"])):
        assert "10 of the 1,000 non-members have the features of a member" in text
    assert "have the features" not in repr(audit(model, *PARTS, attacks=LossThreshold()))


def test_a_table_of_few_categories_may_share_all_rows():
    few = np.random.default_rng(0).integers(0, 2, (400, 3)).astype(float)
    model = Claiming().fit(few[:200], y[:200])
    parts = few[:200], y[:200], few[200:], y[200:400]
    report = audit(model, *parts, attacks=LossThreshold())
    assert report.n_shared == 200


@pytest.mark.heavy
def test_an_infinite_epsilon_is_no_guarantee():
    nothing = PrivacyGuarantee(NonPrivateEvent(), at_delta=1e-6, assumptions=("n is public",))
    model = Claiming(claim=nothing).fit(*PARTS[:2])
    report = audit(model, *PARTS, attacks=LossThreshold())
    page = report.to_html()
    assert report.verdict == "no claim"
    for text in (page, repr(report)):
        assert "no guarantee (epsilon=inf)" in text
    assert "What the claim assumes" not in page
    assert "n is public" not in page


@pytest.mark.parametrize(
    ("n", "claimed", "words"),
    [
        (10, 1.0, "no leak could have refuted the claim"),
        (50, 1.0, "only a gross leak could have been detected"),
        (1000, 8.0, "no leak could have refuted the claim"),
        (1000, 1.0, None),
    ],
)
def test_undetectable_leaks_are_reported(n, claimed, words):
    claim = PrivacyGuarantee(ApproxDPEvent(claimed, 1e-6), at_delta=1e-6)
    parts = X[:n], y[:n], X[1000 : 1000 + n], y[1000 : 1000 + n]
    model = Claiming(1, claim).fit(X[:1000], y[:1000])
    report = audit(model, *parts, attacks=LossThreshold())
    told = [caveat for caveat in report.caveats if "even a perfect attack" in caveat]
    assert told == [] if words is None else words in told[0]
    # a perfect attack reaches just that, and no more
    scores = np.ones(n), np.zeros(n)
    perfect = epsilon_lower_bound(*scores, delta=1e-6, alpha=0.05)
    assert report.epsilon_within_reach == pytest.approx(perfect)


def test_accuracy_stands_beside_that_of_a_constant_model_which_is_called_useless():
    parts = X[:300], y[:300], X[1000:1300], y[1000:1300]
    share = max(np.mean(parts[3]), 1 - np.mean(parts[3]))
    for model, useless in ((DummyClassifier(), True), (Claiming(), False)):
        report = audit(model.fit(*parts[:2]), *parts, attacks=LossThreshold())
        assert ("; the model is useless)" in repr(report)) == useless
        assert report.to_dict()["majority_share"] == pytest.approx(share)
        assert (report.to_frame()["majority_share"] == report.majority_share).all()
        assert (report.to_frame()["test_accuracy"] == report.test_accuracy).all()
        for text in (repr(report), report.to_html()):
            assert f"{100 * report.test_accuracy:.1f} % on new records" in text
            assert f"(most frequent class: {100 * share:.1f} %" in text


@pytest.mark.heavy
def test_no_record_is_kept():
    """A canary in the data is in no form of the report; scores say nothing of features."""
    canary = 0.1234567890123456
    data = X.copy()
    data[17] = canary
    model = make_pipeline(SchemaTransformer(SCHEMA), Claiming().fit(data, y))
    parts = data[:1000], y[:1000], data[1000:], y[1000:]
    report = audit(model.fit(*parts[:2]), *parts, n_shadows=2, random_state=0)
    assert np.float64(canary).tobytes() not in pickle.dumps(report)
    stated = json.dumps(report.to_dict(), allow_nan=False)
    assert "scores_in" not in stated
    for text in (report.to_html(), stated, repr(report)):
        assert str(canary) not in text


def test_a_leak_of_a_little_of_everybody_refutes_a_small_claim():
    """Where the AUC interval lies above the ceiling, the verdict must not be "consistent"."""

    class Telling(LossThreshold):
        def _score(self, X, y):
            rng = np.random.default_rng(0)
            return rng.normal(size=len(X)) + 0.4 * np.isin(X[:, 0], PARTS[0][:, 0])

    small = PrivacyGuarantee(ApproxDPEvent(0.1, 1e-6), at_delta=1e-6)
    report = audit(Claiming(1, small).fit(*PARTS[:2]), *PARTS, attacks=Telling())
    assert report.findings[0].result.auc < 0.65
    assert report.verdict == "violated"


def test_an_attack_above_a_ceiling_is_pointed_out_where_it_refutes_nothing():
    scores = np.linspace(0, 1, 1000)
    tail = scores.copy()
    tail[::40] = 2  # 2.5 % of the members stand out: too few to refute, too many to be at ease
    barely = PrivacyGuarantee(ApproxDPEvent(0.1, 1e-6), at_delta=1e-6)
    found = AttackFinding.from_result(AttackResult(tail, scores, "made up"), barely, 0.05, 1e-6)
    report = audit(Claiming(1, barely).fit(*PARTS[:2]), *PARTS, attacks=LossThreshold())
    assert not any("more members than the ceiling allows" in text for text in report.caveats)
    report = replace(report, findings=(found,))
    assert report.verdict == "consistent"
    assert any("made up found more members than the ceiling allows" in t for t in report.caveats)
    none = replace(report, guarantee=None)
    assert not any("ceiling" in text for text in none.caveats)


def test_small_shares_keep_two_digits():
    shown = [format_share(value) for value in (0.0, 0.00014, 0.001, 0.0123, 0.5, 1.0, None)]
    assert shown == ["0 %", "0.01 %", "0.1 %", "1.23 %", "50 %", "100 %", "–"]


@pytest.mark.heavy
def test_forgotten_noise_is_caught():
    """The whole chain: DP-SGD that claims epsilon = 0.1 and adds no noise is found out."""
    pytest.importorskip("torch")
    from skprivacy.mechanisms import FloatGaussian
    from skprivacy.neural_network import DPSGDClassifier, Optimizer

    rng = np.random.default_rng(0)
    data, labels = rng.normal(size=(1200, 200)), rng.integers(0, 2, 1200)
    parts = data[:600], labels[:600], data[600:], labels[600:]

    def report():
        model = DPSGDClassifier(
            epsilon=0.1, delta=1e-5, classes=[0, 1], epochs=100, learning_rate=1.0, random_state=0,
            hidden_layer_sizes=(64,), optimizer=Optimizer(schedule="constant"),
        ).fit(*parts[:2])  # fmt: skip
        assert model.epsilon_ <= 0.1
        # sampling and noise are never seeded, so this alpha is how often the test errs
        return audit(model, *parts, attacks=[LossThreshold()], alpha=1e-7)

    assert report().verdict == "consistent"
    with mock.patch.object(FloatGaussian, "_release", lambda self, value, random: value):
        liar = report()
    assert liar.verdict == "violated"
    assert liar.epsilon_lower_bound > 1


def test_nothing_is_cut_off_the_figure_of_groups(monkeypatch):
    """Long names of groups pushed the words below the axis over the edge."""
    drawn = []
    monkeypatch.setattr(_html, "embed_figure", lambda figure, text: drawn.append(figure))
    names = ("nein", "ja", "Mecklenburg-Vorpommern und Berlin")
    rest = (50, 50, 0.5, 0.4, 0.6, 1.0, False)
    _html.groups_figure([GroupExposure("state", name, "LossThreshold", *rest) for name in names])
    (figure,) = drawn
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    words = [t for t in figure.findobj(Text) if any(map(str.isalpha, t.get_text()))]
    assert any("AUC of the attack" in text.get_text() for text in words)
    for text in words:
        extent = text.get_window_extent(canvas.get_renderer())
        assert extent.x0 >= 0, text
        assert extent.x1 <= figure.bbox.x1, text
