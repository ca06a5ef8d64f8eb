"""Regressions found by odd input, one test each."""

import datetime
from contextlib import nullcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity
from sklearn.neural_network import MLPClassifier
from torch import nn

from skprivacy import (
    accounting,
    attacks,
    audit,
    certificates,
    config_context,
    datasets,
    defenses,
    ensemble,
    exceptions,
    federated,
    fine_tuning,
    linear_model,
    mechanisms,
    metrics,
    model_selection,
    neural_network,
    persistence,
    preprocessing,
    synthesis,
)
from skprivacy.accounting import GaussianEvent, PrivacyBudget, PrivacyGuarantee
from skprivacy.accounting.events import LogisticEvent, PrivateSelectionEvent
from skprivacy.attacks import LabeledRecords
from skprivacy.attacks.attributes.label import LabelCanaries
from skprivacy.fine_tuning import NetworkHead
from skprivacy.fine_tuning.heads import GradientHead
from skprivacy.fine_tuning.sensitivity import Sensitivity
from skprivacy.linear_model import AdaSSPRegressor, OutputPerturbationClassifier
from skprivacy.mechanisms.distributed_gaussian import DistributedGaussian
from skprivacy.metrics.evidence import multi_split_bound
from skprivacy.metrics.rates import clopper_pearson
from skprivacy.preprocessing import Schema

from . import containers

pytestmark = pytest.mark.heavy

X = np.random.RandomState(0).uniform(size=(24, 3))
y = np.arange(24) % 2
TARGET = LogisticRegression().fit(X, y)
RECORDS = attacks.LabeledRecords(X, y)
ONE = GaussianEvent(2.0)
GUARANTEE = PrivacyGuarantee(ONE, 1e-6)
SCORES = (X[:, 0], X[:, 1])
TABLE = pd.DataFrame({"age": np.arange(24)})
SCHEMA = Schema({"age": preprocessing.BoundedColumn(0, 100)})
DAY = np.timedelta64(1, "D")
VOTES = accounting.GNMaxEvent(40.0, votes=(220, 20, 10))
UNORDERED = np.array([*y[1:], None], dtype=object)
SEQUENCES = np.array([*y[1:], None], dtype=object)
SEQUENCES[-1] = np.zeros(2)
MARKED = np.column_stack([y, X])
ATTRIBUTE = attacks.AttributeInference(LogisticRegression().fit(MARKED, y)).fit(MARKED, y)
HUGE = np.where(np.arange(3) == 0, 1e300, X)
NETWORK = MLPClassifier((4,)).partial_fit(X, y, classes=[0, 1])
INVERSION = attacks.GradientInversion(NETWORK, max_iter=1).fit(X, y)
NORM = attacks.WhiteBoxAttack(TARGET, attack_model="linear").fit(RECORDS, np.arange(24) < 12)
MANY = np.random.RandomState(1).uniform(size=(144, 3))
STOLEN = attacks.StolenMemoriesAttack(NETWORK, epochs=1, random_state=0).fit(
    LabeledRecords(MANY, np.tile(y, 6))
)
LABEL_ONLY = attacks.LabelOnlyAttack(TARGET, n_queries=9).fit(RECORDS)
TEMPERED = defenses.CoarsenedClassifier(LogisticRegression(), temperature=5.0).fit(X, y)
MISSING = np.where(np.arange(24) == 3, np.nan, y)
META = torch.zeros(24, 3, device="meta")
DEEP = [0.5]
for _ in range(5000):
    DEEP = [DEEP]


POOL = attacks.ShadowPool(GaussianNB(), n_shadows=2).fit(X, y)
SENT = attacks.party_gradient(NETWORK, X[:2], y[:2])
RESULT = attacks.AttackResult(*SCORES)
UNIT = preprocessing.BoundedColumn(0, 1)
TENSOR = containers.TABLES["tensor with gradient"](X)
SPANS = containers.with_column(X, containers.COLUMNS["spans of time"](24))
private = partial(OutputPerturbationClassifier, bounds=(0, 1), classes=[0, 1])
regression = partial(AdaSSPRegressor, bounds=(0, 1), target_bounds=(0, 1))
made = partial(synthesis.MarginalSynthesizer, schema=SCHEMA)


def module():
    return neural_network.DPNeuralNet(
        nn.Linear(3, 2), nn.CrossEntropyLoss, batch_size=8, max_epochs=1
    )


def of_updates(**params):
    weights = [attacks.Updates.weights_of(TARGET) + step for step in (0.0, 0.1)]
    seen = attacks.Updates(TARGET, weights[:1], weights[1:], step=0.1, n_records=24)
    return attacks.PropertyInference(seen, n_train=6, **params)


def swept(**params):
    given = {"epsilons": [1.0], "cv": 2, "baseline": None, "refit": 1.0, **params}
    return model_selection.PrivacySweepCV(private(), **given)


def raised(records, labels, train=np.copy):
    return attacks.Updates.from_gradient_ascent(
        NETWORK, train, records, labels, ascent=0.1, n_rounds=1, step=0.1, n_records=24
    )


# The parameter that a refusal has to name, and the call: one for each place that refuses.
FOUND = [
    ("norm", lambda: LogisticEvent(2.0, np.array(1.0))),
    ("event", lambda: accounting.accountants.delta_of({}, 1.0)),
    ("delta", lambda: accounting.epsilon_of(ONE, "1")),
    ("accountant", lambda: accounting.calibrate_noise_multiplier(GaussianEvent, 1.0, 1e-6,
        accountant=pd.Series([1]))),
    ("make_event", lambda: accounting.calibrate_to_attack(3, advantage=0.1)),
    ("guess", lambda: accounting.calibrate_noise_multiplier(GaussianEvent, 1.0, 1e-6, guess=-1)),
    ("tpr_at_fpr", lambda: accounting.calibrate_to_attack(GaussianEvent, tpr_at_fpr=(0.2, b"x"))),
    ("kind", lambda: PrivacyGuarantee(ONE, kind=pd.Series([1, 2]))),
    ("source", lambda: PrivacyBudget(1.0).reserve(accounting.LaplaceEvent(9.0), "\ud800")),
    ("alpha", lambda: clopper_pearson(3, 10, None)),
    ("random_state", lambda: multi_split_bound(*SCORES, random_state="abc")),
    ("right", lambda: metrics.bound_from_guesses("a", 40, 100)),
    ("high", lambda: mechanisms.SecureRandom().integers(DAY, 3)),
    ("std", lambda: mechanisms.SecureRandom().add_normal(np.zeros(3), DAY)),
    ("quantile", lambda: preprocessing.private_quantile(X[:, 0], "a", bounds=(0, 1), epsilon=1.0)),
    ("bins", lambda: preprocessing.private_histogram(X[:, 0], bins="abc", epsilon=1.0)),
    ("relation", lambda: preprocessing.private_count(X, epsilon=1.0, relation=np.zeros(2))),
    ("parts", lambda: preprocessing.DateColumn("2020-01-01", "2020-12-31", parts=3)),
    ("target_column", lambda: Schema({"age": UNIT}, target_column={})),
    ("source", lambda: Schema.from_json(3)),
    ("step", lambda: synthesis.Grid(step=DAY)),
    ("schema", lambda: synthesis.synthetic_quality(TABLE, TABLE, 3)),
    ("groups", lambda: made().fit(TABLE, groups=3)),
    ("path", lambda: preprocessing.private_summary(3, SCHEMA, epsilon=1.0)),
    ("subset", lambda: datasets.fetch_mnist(subset=[])),
    ("X_in", lambda: attacks.NearestGenerated().fit(X).evaluate(3, X)),
    ("generated", lambda: attacks.GenerativeAttack().fit(X[:, 0], X)),
    ("discriminator", lambda: attacks.GenerativeAttack(3).fit(X, X + 1.0)),
    ("prior", lambda: attacks.LabelInferenceAttack(TARGET, prior=3).fit(X, y)),
    ("target", lambda: attacks.LabelInferenceAttack(3).fit(X, y)),
    ("imputer", lambda: attacks.AttributeInference(TARGET, imputer=3).fit((X > 0.5) * 1, y)),
    ("variances", lambda: attacks.AggregateAttack.expected_power(10, "abc")),
    ("threshold", lambda: RESULT.precision_recall("a")),
    ("details", lambda: attacks.AttackResult.from_dict({**RESULT.to_dict(), "details": 3})),
    ("X_train", lambda: audit.audit(TARGET, 3, y, X + 1.0, y)),
    ("model", lambda: audit.check_disclosure(3, X, y)),
    ("model", lambda: audit.claim_of(3)),
    ("neighbours", lambda: audit.verify_release(len, [(X,)], GUARANTEE)),
    ("n_jobs", lambda: audit.verify_release(len, [(X, X)], GUARANTEE, n_jobs="a")),
    ("claim", lambda: audit.verify_privacy(OutputPerturbationClassifier(), claim="3")),
    ("path", lambda: certificates.verify_certificate("\ud800")),
    ("model", lambda: persistence.save_model(3, "no")),
    ("strict", lambda: config_context(strict=np.array([])).__enter__()),
    ("cv", lambda: model_selection.make_leakage_scorer(X, y, cv=0)),
    ("noise", lambda: ensemble.GNMax(DAY)),
    ("max_grad_norm", lambda: GradientHead(max_grad_norm="a")),
    ("l2", lambda: Sensitivity("a")),
    ("alpha", lambda: fine_tuning.SampledSensitivity(alpha=len)),
    ("module", lambda: neural_network.freeze_batch_norm(3)),
    ("X", lambda: attacks.WhiteBoxAttack(NETWORK, epochs=1).fit(LabeledRecords(HUGE, y))),
    ("y", lambda: LABEL_ONLY.decision_function(LabeledRecords(X, np.column_stack([y, y])))),
    ("X", lambda: LABEL_ONLY.decision_function(LabeledRecords(X.astype(object), y))),
    ("X", lambda: LABEL_ONLY.decision_function(LabeledRecords(sparse.csr_matrix(X), y))),
    ("y", lambda: ATTRIBUTE.predict(MARKED, 0)),
    ("n_candidates", lambda: preprocessing.private_quantile(X[:, 0], 0.5, bounds=(0, 1),
        epsilon=1.0, n_candidates=1 << 63)),
    ("y", lambda: defenses.SmoothedClassifier(GaussianNB()).fit(X, UNORDERED)),
    ("values", lambda: preprocessing.CategoricalColumn(np.array("a"))),
    ("X_in", lambda: attacks.GenerativeAttack(LogisticRegression()).fit(X, X + 1.0).evaluate(X[:0],
        X)),
    ("y", lambda: regression().fit(X, SEQUENCES)),
    ("y", lambda: swept().fit(X, y).score(X[:2], np.array(["a", None]))),
    ("param_name", lambda: swept(param_name=[]).fit(X, y)),
    ("n_jobs", lambda: attacks.ShadowPool(TARGET, n_shadows=2, n_jobs=DAY).fit(X, y)),
    ("cv", lambda: swept(cv=[]).fit(X, y)),
    ("n_steps", lambda: GradientHead(n_steps=True)),
    ("n_runs", lambda: audit.verify_privacy(OutputPerturbationClassifier(), n_runs=1 << 63)),
    ("y", lambda: LabelCanaries.draw(UNORDERED, 5)),
    ("n", lambda: made().fit(TABLE).sample(DAY)),
    ("moments", lambda: ensemble.analyze_votes([[3, 1]], ensemble.GNMax(5.0), moments=DAY)),
    ("learning_rate", lambda: neural_network.SCARFEncoder(learning_rate=1e173).fit(X)),
    ("learning_rate", lambda: synthesis.DPGANSynthesizer(schema=SCHEMA, learning_rate=1e173).fit(
        TABLE)),
    ("noise_multiplier", lambda: DistributedGaussian(1e300, 3, 1)),
    ("validation_fraction", lambda: defenses.MemGuardClassifier(LogisticRegression()).fit(X[:1],
        y[:1])),
    ("verbose", lambda: audit.audit(TARGET, X, y, X + 1.0, y, attacks=[attacks.LossThreshold()],
        verbose=np.zeros(2))),
    ("n_init", lambda: attacks.GradientInversion(NETWORK, n_init=True).fit(X, y)),
    ("X", lambda: attacks.UpdatesMembership(raised(X, y)).fit(RECORDS).decision_function(
        LabeledRecords(np.where(np.arange(3) == 0, np.nan, X), y))),
    ("labels_known", lambda: INVERSION.evaluate([SENT], [(X[:2], y[:2])], labels_known="no")),
    ("X", lambda: attacks.StolenMemoriesAttack(NETWORK, epochs=1).fit(LabeledRecords(X[:, 0], y))),
    ("batches[0]", lambda: INVERSION.evaluate([SENT], [1])),
    ("groups_in", lambda: RESULT.by_group([[1], [2, 3]], y)),
    ("groups_in", lambda: RESULT.by_group(["a"] * 24, [None] * 24)),
    ("value", lambda: DistributedGaussian(1.0, 3, 1).release(np.zeros((3, 2)),
        mechanisms.SecureRandom())),
    ("hidden_layer_sizes", lambda: NetworkHead(hidden_layer_sizes=(True,))),
    ("hidden_layer_sizes", lambda: neural_network.DPSGDClassifier(hidden_layer_sizes=(True,)).fit(
        X, y)),
    ("reinforce", lambda: ensemble.InteractiveGNMax(threshold=3, max_answers=2,
        reinforce=Fraction(1, 3))),
    ("train", lambda: raised(X, y, train=object)),
    ("reference", lambda: attacks.NearestGenerated().fit(X, X[:, :2])),
    ("labels", lambda: INVERSION.reconstruct(SENT, 2, labels=y[:1])),
    ("y", lambda: raised(X, ["a"] * 24)),
    ("y", lambda: raised(X, MARKED)),
    ("synthetic", lambda: audit.audit_synthetic(X[:0], X, X + 1.0)),
    ("input_features", lambda: preprocessing.SchemaTransformer(SCHEMA).fit(
        TABLE).get_feature_names_out(np.zeros((2, 2)))),
    ("synthetic", lambda: audit.audit_synthetic(X[:, :0], X[:, :0], X[:, :0])),
    ("X_train", lambda: audit.audit(TARGET, X, y, X[:, :2], y)),
    ("X_test", lambda: audit.audit(TARGET, X, y, pd.DataFrame(X), y)),
    ("y_test", lambda: audit.check_disclosure(TARGET, X, y, X, np.column_stack([y, y]))),
    ("y", lambda: NORM.decision_function(LabeledRecords(X, y.astype(str)))),
    ("y", lambda: POOL.logits(X, X)),
    ("y", lambda: attacks.ShadowPool(GaussianNB(), n_shadows=2).fit(X, y.astype("S1"))),
    ("y", lambda: swept().fit(X, y.astype("S1"))),
    ("y", lambda: synthesis.SyntheticDataClassifier(GaussianNB(), synthesis.MarginalSynthesizer(
        epsilon=1.0)).fit(X, UNORDERED)),
    ("attribute", lambda: attacks.AttributeInference(LogisticRegression().fit(MARKED,
        y)).fit(np.column_stack([UNORDERED, X]), y)),
    ("X", lambda: attacks.DensityRatio().fit(X,
        X + 1.0).score_samples(containers.TABLES["structured"](X))),
    ("X_train", lambda: audit.audit(TARGET, TENSOR, y, X, y)),
    ("last", lambda: preprocessing.DateColumn("2020-01-01", pd.NaT)),
    ("max_group_size", lambda: preprocessing.private_group_size(y, max_group_size=10**9,
        epsilon=1.0)),
    ("group", lambda: of_updates().fit(X, y, SEQUENCES)),
    ("shares", lambda: of_updates().fit(X, y, y > 0, np.array([10**400, 0], dtype=object))),
    ("x", lambda: preprocessing.private_count(SEQUENCES, epsilon=1.0)),
    ("value", lambda: mechanisms.FloatGaussian(1.0, 1.0).release(containers.TABLES["read-only"](
        np.zeros(3)), mechanisms.SecureRandom())),
    ("pool", lambda: attacks.LearnedRatio(TARGET, pool=2).fit(RECORDS)),
    ("estimator", lambda: attacks.ShadowPool([], n_shadows=2).fit(X, y)),
    ("X", lambda: attacks.ShadowPool(TARGET, n_shadows=2).fit(X[:, :0], y)),
    ("columns", lambda: attacks.BayesInversion(TARGET, columns=np.array(1.0)).fit(X, y)),
    ("columns_with_missing", lambda: made(columns_with_missing=[[1]]).fit(TABLE)),
    ("X", lambda: neural_network.ScatteringTransformer((8, 8)).fit(SPANS)),
    ("module", lambda: neural_network.VATStudent(module=len).fit(X, y)),
    ("answered", lambda: ensemble.analyze_votes([[3, 1]], ensemble.GNMax(5.0), answered=[[1], [2,
        3]])),
    ("refit", lambda: swept(refit=pd.NA).fit(X, y)),
    ("X", lambda: swept().fit(None, y)),
    ("y_train", lambda: audit.audit_predictions(np.c_[SCORES], sparse.coo_matrix(X), np.c_[SCORES],
        y)),
    ("loss", lambda: attacks.party_gradient(TARGET, X[:2], y[:2], loss=object)),
    ("y", lambda: defenses.CoarsenedClassifier(LogisticRegression()).fit(X, UNORDERED)),
    ("y", lambda: defenses.MemGuardClassifier(LogisticRegression()).fit(X, UNORDERED)),
    ("upper", lambda: Schema.from_json(SCHEMA.to_json().replace("100.0", f"1{0:0400d}"))),
    ("source", lambda: Schema.from_json('{"columns": ' + "[" * 10**5)),
    ("X", lambda: module().partial_fit(META, y)),
    ("attack", lambda: attacks.AttackResult(*SCORES, attack=TABLE)),
    ("groups", lambda: private().fit(X, y, groups=range(10**12))),
    ("bounds", lambda: private(bounds=DEEP).fit(X, y)),
    ("y", lambda: private().fit(X, y).score(X, MISSING)),
    ("y", lambda: regression().fit(X, y).score(X, MISSING)),
    ("y", lambda: TEMPERED.score(X, MISSING)),
    ("classes", lambda: attacks.ShadowPool.from_predictions(X, np.full((2, 24, 2), 0.5),
        np.stack([y, 1 - y]), np.array(1.0))),
    ("y", lambda: STOLEN.decision_function(LabeledRecords(X, np.column_stack([y, y])))),
    ("y", lambda: TEMPERED.score(X, pd.date_range("2020", periods=24))),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", range(len(FOUND)))
def test_it_is_refused_by_name(number):
    name, call = FOUND[number]
    with pytest.raises((ValueError, TypeError)) as refused:
        call()
    assert name in str(refused.value).replace("'", " ").replace("=", " ").split() or (
        f"{name}=" in str(refused.value)
    )


@pytest.mark.parametrize(
    ("estimator", "given"),
    [
        (preprocessing.SchemaTransformer(SCHEMA), (pd.DataFrame({"b": [1.0]}),)),
        (attacks.AggregateAttack(10), (X[0],)),
        (neural_network.SimCLREncoder(device="abc", image_shape=(1, 8, 8)), (np.ones((4, 64)),)),
        (model_selection.PrivacySweepCV(private(), epsilons=[1.0]), (X, np.zeros(24))),
        (attacks.SupervisedAttack(TARGET), (X, y)),
        (attacks.ShadowGenerators(KernelDensity(), n_shadows=2), (X, np.array(["", "", ""]))),
        (attacks.ShadowPool(0, n_shadows=2), (X, y)),
        (defenses.SmoothedClassifier(GaussianNB()), (np.where(X > 0.9, np.nan, X), y)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_refused_fit_leaves_nothing(estimator, given):
    before = sorted(vars(estimator))
    with pytest.raises((ValueError, TypeError)):
        estimator.fit(*given)
    assert sorted(vars(estimator)) == before


@pytest.mark.parametrize("attack", [attacks.LikelihoodRatio(), attacks.DensityRatio()])
def test_records_that_are_far_from_all_have_scores(attack):
    """Squares of distances were infinite, and such a record had no nearest one."""
    found = attack.fit(X, X + 0.1).evaluate(HUGE, -HUGE)
    assert np.isfinite(found.scores_in).all()


@pytest.mark.parametrize(("call", "words"), [
    (lambda: attacks.StolenMemoriesAttack(NETWORK, random_state=None).fit(RECORDS[:12]),
     "expected dozens"),
    (lambda: attacks.PropertyInference(TARGET, n_train=6).fit(X, y, np.arange(24) < 4, (0.5, 1.0)),
     "share=1 of n_train=6"),
    (lambda: of_updates().fit(X, y, np.arange(24) < 4, (0.5, 1.0)), "share=1 of n_train=6"),
    (lambda: defenses.MemGuardClassifier(LogisticRegression()).fit(X, y[:5]), "inconsistent"),
])  # fmt: skip
def test_a_refusal_draws_nothing(call, words):
    """Seeds had been drawn before the records were counted."""
    before = np.random.get_state()[1:3]  # noqa: NPY002
    with pytest.raises(ValueError, match=words):
        call()
    assert str(np.random.get_state()[1:3]) == str(before)  # noqa: NPY002


def test_a_shape_next_to_zero_is_zero():
    """Of 5e-324 nothing was left to divide by."""
    found = [PrivateSelectionEvent(ONE, eta).expected_trials for eta in (0.0, 5e-324)]
    assert found[0] == found[1]


def test_an_attack_that_was_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        attacks.AttributeInference(TARGET).evaluate(X, y, X, y)


def test_a_ledger_with_damaged_text_is_refused_as_one(tmp_path):
    """SQLite's error quotes a damaged name, which is not text."""
    path = tmp_path / "ledger"
    PrivacyBudget(1.0, path=path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"CREATE TABLE log", b"CREATE TABL\xed log"))
    with pytest.raises(accounting.LedgerError):
        PrivacyBudget.open(path)


@pytest.mark.parametrize("given", [["a", None], np.array([1, "a"], dtype=object)])
def test_classes_without_an_order_are_refused_by_name(given):
    for model, whose in (
        (linear_model.OutputPerturbationClassifier(bounds=(-1, 1), classes=given), "groups"),
        (federated.DPFederatedClassifier(epsilon=1.0, classes=given), "parties"),
    ):
        with pytest.raises(TypeError, match="classes must have labels of one type"):
            model.fit([[0.5]] * 90, ["a"] * 90, **{whose: np.arange(90)})


WIDER = Schema({"age": preprocessing.BoundedColumn(0, 100), "other": UNIT})
DATE = pd.ArrowDtype(pa.date32())


@pytest.mark.parametrize("values", [
    pd.array([[1]] * 24, pd.ArrowDtype(pa.list_(pa.int64()))),  # which have no hash
    pd.array([datetime.date(2020, 1, 1)] * 24, DATE),  # no number becomes one
])  # fmt: skip
def test_what_a_synthesizer_was_paid_for_can_be_sampled(values):
    """A value without a hash ended a fit that was charged; a date of Arrow's ended each sample."""
    budget = PrivacyBudget(10.0, 1e-4)
    made = synthesis.MarginalSynthesizer(schema=WIDER, method="independent", budget=budget)
    made.fit(TABLE.assign(other=values))
    assert len(made.sample(5)) == 5
    assert list(budget.entries()["status"]) == ["commit"]


HALF = "\ud800"  # half a character, which neither a file nor a table of Arrow's can hold


@pytest.mark.parametrize(("name", "call"), [
    ("unit", lambda: PrivacyBudget(1.0).reserve(accounting.LaplaceEvent(9.0), unit=HALF)),
    ("values", lambda: preprocessing.CategoricalColumn(["a", HALF])),
    ("columns", lambda: Schema({HALF: UNIT})),
    ("target_column", lambda: Schema({"age": UNIT}, target_column=HALF)),
])  # fmt: skip
def test_half_a_character_names_nothing_that_is_stored(name, call):
    with pytest.raises(ValueError, match=f"^{name}=.* must be text that can be stored"):
        call()


def test_a_ledger_in_a_loop_of_links_is_refused_by_name(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.symlink_to(second)
    second.symlink_to(first)
    for make in (lambda path: PrivacyBudget(1.0, path=path), PrivacyBudget.open):
        with pytest.raises((ValueError, accounting.LedgerError), match=str(first)):
            make(first)


@pytest.mark.parametrize("hidden", [False, True])
def test_sparse_columns_that_leave_out_nan_are_dense_columns(hidden):
    """scikit-learn takes none whose fill value is not zero."""
    rows = pd.DataFrame(np.where(X > 0.5, np.nan, X) if hidden else X)
    left_out = rows.astype(pd.SparseDtype(float, np.nan))
    for model in (private(noise_seed=0), ensemble.PATEClassifier(classes=[0, 1], n_teachers=4)):
        public = {} if isinstance(model, OutputPerturbationClassifier) else {"X_public": X}
        with pytest.warns(exceptions.PrivacyWarning) if not public else nullcontext():
            model.fit(left_out, y, **public)
    attack = attacks.LossThreshold(LogisticRegression().fit(rows.fillna(0), y)).fit(RECORDS)
    if not hidden:
        np.testing.assert_array_equal(
            attack.decision_function(LabeledRecords(left_out, y)),
            attack.decision_function(LabeledRecords(rows, y)),
        )
