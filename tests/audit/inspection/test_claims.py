"""A claim holds for the whole model, however it is wrapped, wherever it is printed.

A ledger holds the truth: every private part of a case charges one budget for each of its fits.
"""

import json
import re
from functools import partial
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import (
    ColumnTransformer,
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, RandomizedSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import SVR

from skprivacy._report_facts import format_guarantee
from skprivacy.accounting import (
    ApproxDPEvent,
    GaussianEvent,
    LaplaceEvent,
    PrivacyBudget,
    PrivacyGuarantee,
)
from skprivacy.attacks import LossThreshold
from skprivacy.audit import audit, claim_of
from skprivacy.audit.inspection import claims
from skprivacy.audit.inspection.guarantees import compose_guarantees
from skprivacy.audit.report import html_report as _html
from skprivacy.defenses import SmoothedClassifier
from skprivacy.federated import DPFederatedClassifier
from skprivacy.linear_model import AdaSSPRegressor, OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.model_selection import sweep as sweep_module
from skprivacy.neural_network import SCARFEncoder, SimCLREncoder
from skprivacy.preprocessing import BoundedColumn, PrivateStandardScaler, Schema, SchemaTransformer

X, y = make_classification(240, n_features=4, random_state=0)
Y3 = np.arange(240) % 3
TRAIN, TEST = slice(0, 120), slice(120, None)


def scale(budget, epsilon=20.0, **more):
    return PrivateStandardScaler(epsilon=epsilon, bounds=(-4, 4), budget=budget, **more)


def learn(budget, epsilon=0.05, classes=(0, 1), **more):
    return OutputPerturbationClassifier(
        epsilon=epsilon, bounds=(-3, 3), classes=list(classes), budget=budget, **more
    )


def both(budget):
    return make_pipeline(scale(budget), learn(budget))


def frozen(budget):
    return FrozenEstimator(both(budget).fit(X[TRAIN], y[TRAIN]))


def encoder():
    return SCARFEncoder(2, hidden_layer_sizes=(8,), epochs=1, random_state=0)


def searched(budget):
    return GridSearchCV(learn(budget), {"epsilon": [0.5, 1.0, 2.0]}, cv=5)


def centred(Z):
    return Z - Z.mean(axis=0)


class NeedsNoFit(TransformerMixin, BaseEstimator):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class Stateless(NeedsNoFit):
    """Declares that it needs no fit, and stores the mean of the data it was fitted on."""

    def fit(self, X, y=None):
        self.mean_ = X.mean(0)
        return self

    def transform(self, X):
        return X - self.mean_


class Right(LossThreshold):
    """Whether a record is classified rightly: for models without probabilities."""

    def _score(self, X, y):
        return (self.target.predict(X) == y).astype(float)


# Allowed claim of each wrapper of private parts, all of which charge the given budget.
PROVED = {
    "bare": learn,
    "pipeline": both,
    "nested pipeline": lambda b: make_pipeline(make_pipeline(Normalizer(), scale(b, 3.0)), both(b)),
    "column transformer": lambda b: make_pipeline(
        make_column_transformer((scale(b), [0, 1]), (scale(b, 3.0), [2]), remainder="passthrough"),
        learn(b),
    ),
    "private remainder": lambda b: make_pipeline(
        make_column_transformer((Normalizer(), [0, 1]), remainder=scale(b)), learn(b)
    ),
    "union": lambda b: make_pipeline(make_union(scale(b), Normalizer(), scale(b, 3.0)), learn(b)),
    "polynomials": lambda b: make_pipeline(PolynomialFeatures(), "passthrough", both(b)),
    "voting": lambda b: VotingClassifier(
        [("a", both(b)), ("b", learn(b, 2.0)), ("c", "drop")], voting="soft"
    ),
    "one against the rest": lambda b: OneVsRestClassifier(both(b)),
    "frozen": frozen,
    "frozen step": lambda b: make_pipeline(
        FrozenEstimator(scale(b).fit(X[TRAIN])), FrozenEstimator(Normalizer()), learn(b)
    ),
    "smoothed": lambda b: SmoothedClassifier(both(b), n_samples=20),
    "a function tried row by row": lambda b: make_pipeline(
        scale(b), FunctionTransformer(np.tanh), learn(b)
    ),
    "approximate": lambda b: make_pipeline(scale(b, 1.0, delta=1e-6), learn(b, 1.0, delta=3e-6)),
    "a frozen encoder": lambda b: make_pipeline(FrozenEstimator(encoder().fit(X[TEST])), learn(b)),
    "a frozen encoder, deep": lambda b: make_pipeline(
        make_union(
            FrozenEstimator(make_pipeline(Normalizer(), encoder()).fit(X[TEST])), scale(b)
        ), learn(b),
    ),
}  # fmt: skip
ESTIMATE = {
    "an encoder of private records": lambda b: make_pipeline(encoder(), learn(b)),
    "an encoder of images": lambda b: make_pipeline(
        SimCLREncoder(2, epochs=1, batch_size=60), learn(b)
    ),
    "an encoder frozen with what it was fitted for": lambda b: FrozenEstimator(
        make_pipeline(encoder(), learn(b)).fit(X[TRAIN], y[TRAIN])
    ),
    "a frozen scaler": lambda b: make_pipeline(
        FrozenEstimator(StandardScaler().fit(X[TEST])), learn(b)
    ),
    "scaled outside": lambda b: make_pipeline(StandardScaler(), learn(b)),
    "scaled outside, deep": lambda b: VotingClassifier(
        [("a", make_pipeline(make_union(StandardScaler(), scale(b)), learn(b)))], voting="soft"
    ),
    "categories read off the records": lambda b: make_pipeline(
        make_union(Normalizer(), OneHotEncoder(handle_unknown="ignore", sparse_output=False)),
        learn(b),
    ),
    "a function that mixes records": lambda b: make_pipeline(
        scale(b), FunctionTransformer(centred), learn(b)
    ),
    "a step that says it needs no fit": lambda b: make_pipeline(Stateless(), both(b)),
    "columns chosen by their values": lambda b: make_pipeline(
        make_column_transformer((scale(b), lambda Z: [int(np.argmax(np.var(Z, axis=0)))])), learn(b)
    ),
}
NOTHING = {
    "bagging": lambda b: BaggingClassifier(both(b), n_estimators=2),
    "calibration": lambda b: CalibratedClassifierCV(both(b), cv=2),
    "stacking": lambda b: StackingClassifier([("a", both(b))], cv=2),
    "one against one": lambda b: OneVsOneClassifier(both(b)),
    "a private choice of features": lambda b: make_pipeline(
        SelectFromModel(learn(b), max_features=2, threshold=-np.inf), both(b)
    ),
    "a bare model at the end": lambda b: make_pipeline(scale(b), LogisticRegression()),
    "a bare voice": lambda b: VotingClassifier(
        [("a", both(b)), ("b", LogisticRegression())], voting="soft"
    ),
}
CHOSEN = {
    "grid search": searched,
    "randomised search": lambda b: RandomizedSearchCV(
        learn(b), {"epsilon": [0.5, 1.0, 2.0]}, n_iter=2, cv=3, random_state=0
    ),
    "halving search": lambda b: HalvingGridSearchCV(
        learn(b), {"epsilon": [0.5, 1.0, 2.0]}, cv=3, min_resources=30, random_state=0
    ),
    "pipeline in a search": lambda b: GridSearchCV(
        both(b), {"privatestandardscaler__epsilon": [1.0, 5.0]}, cv=2
    ),
    "search in a pipeline": lambda b: make_pipeline(scale(b), searched(b)),
    "search in a vote": lambda b: VotingClassifier(
        [("a", searched(b)), ("b", both(b))], voting="soft"
    ),
    "sweep": lambda b: PrivacySweepCV(
        both(b), epsilons=[0.05, 2.0], cv=2, refit=0.05,
        param_name="outputperturbationclassifier__epsilon",
    ),
}  # fmt: skip
CASES = PROVED | ESTIMATE | NOTHING | CHOSEN


def fitted(name, budget):
    model = CASES[name](budget)
    return model if type(model) is FrozenEstimator else model.fit(X[TRAIN], y[TRAIN])


def proved_epsilons(text):
    """Return every epsilon that a text or a page calls proved."""
    plain = re.sub(r"<[^>]*>", " ", text)
    found = re.findall(r"\(?([\d.]+)(?:, [\de.-]+\))?-DP, [a-z-]+, [a-z-]+ noise, proved", plain)
    if "proved" in plain.replace("is not proved", ""):
        assert found, "something is called proved, and no epsilon stands beside it"
    return [float(epsilon) for epsilon in found]


def plain_claim(report):
    """Return the epsilon that the JSON of a report calls proved."""
    stated = json.loads(json.dumps(report.to_dict()))["claim"]
    if stated is None or stated["kind"] != "proved":
        return []
    return [PrivacyGuarantee.from_dict(stated).epsilon()]


def table_claim(report):
    row = report.to_frame().iloc[0]
    return [row["claimed_epsilon"]] if row["claim_kind"] == "proved" else []


def check_claims(name):
    """Hold all that is printed about a case against its ledger."""
    budget = PrivacyBudget(epsilon=1e4, delta=1e-5, filter="pld")
    model = fitted(name, budget)
    claim = claim_of(model, X[TRAIN])
    truth = budget.spent(0.0 if claim.charged is None else claim.charged.at_delta or 0.0)
    attack = LossThreshold() if hasattr(model, "predict_proba") else Right(fpr=0.05)
    report = audit(model, X[TRAIN], y[TRAIN], X[TEST], y[TEST], attacks=attack)
    with mock.patch.object(_html, "roc_figure", return_value=""):  # a quarter of a second each
        texts = repr(report), report.to_html(), report._repr_html_()
    charged = format_guarantee(report.charged)
    claimed = texts if report.guarantee else [text.replace(charged, "") for text in texts]
    stated = [plain_claim(report), table_claim(report), *map(proved_epsilons, claimed)]
    stated.append([claim.guarantee.epsilon()] if claim.proved else [])
    for epsilons in stated:
        assert all(epsilon >= truth * (1 - 1e-9) for epsilon in epsilons)
        assert bool(epsilons) is (name in PROVED)
    if name in PROVED:
        assert report.claimed_epsilon == pytest.approx(truth, rel=1e-6)  # nor is it exaggerated
        assert report.charged == report.guarantee
        for assumption in report.guarantee.assumptions:
            assert all(assumption in text.replace("&#39;", "'") for text in texts)
    if name in ESTIMATE:
        assert report.uncovered
        assert report.guarantee.kind == "estimate"
        assert all("no guarantee covers" in text for text in texts)
    if name in NOTHING:
        assert report.reason.startswith("no claim: ")
        assert report.charged is None
    if name in CHOSEN:
        assert report.reason == "no claim: chosen by unprotected scores"
        assert report.charged.epsilon() >= truth * (1 - 1e-9)
        shown = re.sub(r"^.*?charged|^.*?Charged", "", texts[1], flags=re.DOTALL)
        assert charged in shown
        assert all(charged in text for text in texts)
    return report


@pytest.mark.everyday(8)
@pytest.mark.heavy
@pytest.mark.parametrize("name", CASES)
def test_the_claim_equals_the_spent_budget(name):
    check_claims(name)


def check_sweep():
    """Compare a sweep's claims about its fits, joint and single, with its ledger."""
    budget = PrivacyBudget(epsilon=1e4)
    sweep = CHOSEN["sweep"](budget).fit(X, y)
    assert sweep.charged_.epsilon() >= budget.spent() * (1 - 1e-9)
    assert sweep.charged_.epsilon() == pytest.approx(5 * 20 + 2 * (0.05 + 2.0) + 0.05)
    assert sweep.cv_results_["mean_claimed_epsilon"] == pytest.approx([20.05, 22.0])
    assert [g.epsilon() for g in sweep.guarantees_] == pytest.approx([40.1, 44.0])
    assert claim_of(sweep.estimator_, X).guarantee.epsilon() == pytest.approx(20.05)


@pytest.mark.heavy
def test_a_sweep_says_what_all_of_its_fits_have_cost():
    check_sweep()


def last_step_alone(model, name, rows, last):
    yield from claims._iter_claim_parts(model.steps[-1][1], name, rows, last)


def first_part_alone(model, name, rows, last):
    yield from claims._iter_claim_parts(model.estimators_[0], name, rows, last)


def opened(kind, how):
    return mock.patch.dict(claims._OPENED, {kind: how})


def best_model_alone():
    original = claims._iter_claim_parts

    def parts(model, name, rows, last):
        yield from original(getattr(model, "best_estimator_", model), name, rows, last)

    return mock.patch.object(claims, "_iter_claim_parts", parts)


def covered_without_fit():
    original = claims.is_covered
    return mock.patch.object(
        claims, "is_covered", lambda step: original(step) or claims.is_stateless(step)
    )


def gaps_forgotten():
    original = claims._with_assumptions
    return mock.patch.object(
        claims,
        "_with_assumptions",
        lambda guarantee, assumptions, gaps: original(guarantee, (), False),
    )


def frozen_is_public():
    return mock.patch.object(claims, "holds_private", return_value=False)


def encoders_covered():
    original = claims.is_covered
    return mock.patch.object(
        claims, "is_covered", lambda step: original(step) or claims.needs_public_records(step)
    )


MUTANTS = {
    "an encoder is covered wherever it is": (encoders_covered, "an encoder of private records"),
    "all that is frozen is public": (
        frozen_is_public, "an encoder frozen with what it was fitted for",
    ),
    "the last step of a pipeline": (lambda: opened(Pipeline, last_step_alone), "pipeline"),
    "the last step of a vote's pipeline": (lambda: opened(Pipeline, last_step_alone), "voting"),
    "nothing of a column transformer": (
        lambda: opened(ColumnTransformer, lambda *_: iter(())), "column transformer",
    ),
    "nothing of a union": (lambda: opened(FeatureUnion, lambda *_: iter(())), "union"),
    "the first of all classes": (
        lambda: opened(VotingClassifier, first_part_alone), "voting",
    ),
    "one of the bags": (lambda: opened(BaggingClassifier, first_part_alone), "bagging"),
    "the best of a search": (best_model_alone, "grid search"),
    "the best of a search in a pipeline": (best_model_alone, "search in a pipeline"),
    "the refit of a search": (
        lambda: mock.patch.object(claims, "cost_of_search", lambda search, refitted: refitted),
        "grid search",
    ),
    "what needs no fit is covered": (covered_without_fit, "a function that mixes records"),
    "what says it needs no fit is covered": (
        covered_without_fit, "a step that says it needs no fit",
    ),
    "gaps forgotten": (gaps_forgotten, "scaled outside"),
    "nothing of what is smoothed": (
        lambda: opened(SmoothedClassifier, lambda *_: iter(())), "smoothed",
    ),
}  # fmt: skip


@pytest.mark.everyday(3)
@pytest.mark.heavy
@pytest.mark.parametrize("mutant", MUTANTS)
def test_planted_bug_is_caught(mutant):
    plant, case = MUTANTS[mutant]
    with plant(), pytest.raises(AssertionError):
        check_claims(case)


@pytest.mark.slow
def test_planted_bug_in_a_sweep_is_caught():
    with opened(Pipeline, last_step_alone), pytest.raises(AssertionError):
        check_sweep()
    first = mock.patch.object(sweep_module, "joint_claim", lambda found: found[0])
    with first, pytest.raises(AssertionError):
        check_sweep()


@pytest.mark.heavy
def test_the_ledger_counts_what_a_search_has_fitted():
    """The harness itself: 15 fits of candidates and the refit, sixteen charges."""
    budget = PrivacyBudget(epsilon=1e4)
    fitted("grid search", budget)
    assert len(budget.entries()) == 16
    report = check_claims("grid search")
    assert report.charged.kind == "estimate"  # the choice leaks besides
    assert 17.5 + 0.5 <= report.charged.epsilon() <= 17.5 + 2.0 + 1e-9


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (learn(None), {"relation": ["add_remove", "replace_one"]}),
        (OneVsRestClassifier(learn(None)), {"estimator__epsilon": [1.0, 2.0]}),
        (Pipeline([("a", learn(None))]), {"a": [learn(None), LogisticRegression()]}),
    ],
    ids=["relations differ", "wrapped", "not private"],
)
def test_the_cost_of_a_search_is_unknown_if_its_parameters_do_not_show_it(model, grid):
    claim = claim_of(GridSearchCV(model, grid, cv=2).fit(X, y))
    assert claim.charged is None
    # without a refit nothing is known of the relation either
    assert claim_of(GridSearchCV(learn(None), {}, cv=2, refit=False).fit(X, y)).charged is None


def test_every_class_against_the_rest_is_a_fit():
    budget = PrivacyBudget(epsilon=1e4)
    claim = claim_of(OneVsRestClassifier(both(budget)).fit(X, Y3))
    assert claim.guarantee.epsilon() == pytest.approx(3 * 20.05)
    assert claim.guarantee.epsilon() >= budget.spent() * (1 - 1e-9)
    assert "OneVsRestClassifier reads it from y" in " ".join(claim.guarantee.assumptions)


def test_every_target_is_a_fit():
    budget = PrivacyBudget(epsilon=1e4)
    many = MultiOutputClassifier(both(budget)).fit(X, np.c_[y, 1 - y, y])
    assert claim_of(many).guarantee.epsilon() == pytest.approx(budget.spent())
    assert budget.spent() == pytest.approx(3 * 20.05)


def test_regressors_compose_too():
    line = AdaSSPRegressor(epsilon=1.0, bounds=(-3, 3), target_bounds=(0, 1))
    together = VotingRegressor([("a", line), ("b", make_pipeline(scale(None), line))]).fit(X, y)
    alone = line.fit(X, y).privacy_.epsilon()
    assert claim_of(together, X).guarantee.epsilon(1e-5) > 20 + alone
    both_targets = MultiOutputRegressor(line).fit(X, np.c_[y, y])
    assert claim_of(both_targets).guarantee.kind == "proved"
    wrapped = TransformedTargetRegressor(line, transformer=StandardScaler()).fit(X, y)
    assert "TransformedTargetRegressor" in claim_of(wrapped).reason


def test_relations_and_deltas_are_never_mixed():
    mixed = make_pipeline(scale(None, relation="replace_one"), learn(None)).fit(X, y)
    claim = claim_of(mixed)
    assert claim.guarantee is claim.charged is None
    assert "add-remove and replace-one, which are never added up" in claim.reason
    half = PrivacyGuarantee(ApproxDPEvent(1.0, 0.6), at_delta=0.6)
    with pytest.raises(ValueError, match="add up to 1 or more"):
        compose_guarantees([half, half])


def test_units_are_never_mixed():
    record = PrivacyGuarantee(LaplaceEvent(1.0))
    patient = PrivacyGuarantee(LaplaceEvent(1.0), unit="patient_id")
    with pytest.raises(ValueError, match="units patient_id and record, which are never added up"):
        compose_guarantees([record, patient])
    assert compose_guarantees([patient, patient]).unit == "patient_id"


def test_deltas_add_up_so_that_approximate_events_stay_finite():
    part = PrivacyGuarantee(ApproxDPEvent(1.0, 1e-6), at_delta=1e-6, assumptions=("a", "b"))
    other = PrivacyGuarantee(LaplaceEvent(1.0), assumptions=("c", "a"))
    both_parts = compose_guarantees([part, other, part])
    assert both_parts.at_delta == pytest.approx(2e-6)
    assert 0 < both_parts.epsilon() <= 3.0 + 1e-6
    assert both_parts.assumptions == ("a", "b", "c")
    assert both_parts.kind == "proved"
    weak = PrivacyGuarantee(GaussianEvent(4.0), at_delta=1e-6, kind="random_dp")
    assert compose_guarantees([weak]) is weak
    assert compose_guarantees([weak, other]).kind == "estimate"


@pytest.mark.parametrize(
    ("function", "covered"),
    [
        (np.log1p, True),
        (None, True),
        (lambda Z: Z @ np.ones((4, 2)), True),
        (lambda Z: np.where(Z > 0, "high", "low"), True),
        (lambda Z: np.where(Z > 0, np.nan, Z), True),
        (centred, False),
        (lambda Z: Z / Z.max(), False),
        (lambda Z: Z.clip(max=np.quantile(Z, 0.9, axis=0)), False),
        (lambda Z: np.roll(Z, 1, axis=0), False),
        (lambda Z: Z[Z[:, 0] > 0], False),
        (lambda Z: Z[::-1], False),
        (lambda Z: Z + np.random.default_rng().normal(size=Z.shape), False),
        (lambda Z: np.argsort(Z, axis=0), False),
        (lambda Z: Z[[0] * len(Z)], False),
        (lambda Z: Z if len(Z) > 1 else 1 / 0, False),
    ],
)
def test_functions_are_tried_row_by_row(function, covered):
    step = FunctionTransformer(function).fit(X)
    model = Pipeline([("first", step), ("last", learn(None).fit(X, y))])
    tried = np.abs(X) if function is np.log1p else X
    assert (claim_of(model, tried).uncovered == {}) is covered
    told = [a for a in claim_of(model).guarantee.assumptions if "treats each record" in a]
    step = "step 'first' treats each record by itself (not tried)"
    words = f"{step}, and holds nothing learned from others"
    assert told == ([] if function is None else [words])


@pytest.mark.parametrize(
    ("function", "exact"), [(np.sqrt, True), (lambda Z: Z * (1 + 1e-15 * len(Z)), False)]
)
def test_rounding_that_depends_on_other_records_is_an_assumption(function, exact):
    """The factor stands for a matrix product, whose rounding differs between processors."""
    model = Pipeline([("first", FunctionTransformer(function).fit(X)), ("last", learn(None))])
    claim = claim_of(model.fit(np.abs(X), y), np.abs(X))
    assert not claim.uncovered
    told = [a for a in claim.guarantee.assumptions if "rounding" in a]
    assert told == [] if exact else "its rounding, which depends on others" in told[0]


class Held(NeedsNoFit):
    """Needs no fit, as it was handed what it needs."""

    def __init__(self, scaler):
        self.scaler = scaler

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return self.scaler.transform(X)


@pytest.mark.parametrize(
    "step",
    [
        FunctionTransformer(StandardScaler().fit(X).transform),
        FunctionTransformer(partial(StandardScaler().fit(X).transform, copy=True)),
        FunctionTransformer(lambda Z, by: by(Z), kw_args={"by": StandardScaler().fit(X).transform}),
        Held(FrozenEstimator(StandardScaler().fit(X))),
    ],
)
def test_a_step_that_was_handed_what_others_have_learned_is_not_covered(step):
    """It treats each record by itself, and reveals records that the scaler has seen."""
    claim = claim_of(Pipeline([("first", step), ("last", learn(None).fit(X, y))]), X)
    kind = type(step).__name__
    assert claim.uncovered == {"first": f"{kind} holds parts fitted outside the guarantee"}
    assert claim.guarantee.kind == "estimate"


class Centred(SchemaTransformer):
    """It inherits its parent's declaration, but learns the mean."""

    def fit(self, X, y=None):
        self.mean_ = X["a"].mean()
        return super().fit(X, y)

    def transform(self, X):
        return super().transform(X) - self.mean_


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (SchemaTransformer, ()),
        (Centred, ("step 'first' (Centred) is independent of the records, as it declares",)),
    ],
)
def test_declarations_of_third_party_classes_are_assumptions(kind, told):
    frame = pd.DataFrame({"a": X[:, 0]})
    first = kind(Schema({"a": BoundedColumn(-4, 4)}))
    for step in (first, FrozenEstimator(clone(first).fit(frame))):
        claim = claim_of(Pipeline([("first", step), ("last", learn(None))]).fit(frame, y), frame)
        assert claim.guarantee.assumptions == told


def test_a_function_of_an_analyzer_is_tried_like_any_other():
    """It may have learned its words from the records."""
    texts = np.array(["a b", "b c"] * 20)
    dense = FunctionTransformer(lambda Z: Z.toarray())
    for analyzer, told in (("word", 1), (str.split, 2)):
        hashed = HashingVectorizer(n_features=4, analyzer=analyzer)
        model = make_pipeline(hashed, dense, learn(None)).fit(texts, np.arange(40) % 2)
        claim = claim_of(model, texts)
        assert claim.proved
        steps = [a for a in claim.guarantee.assumptions if "holds nothing learned" in a]
        assert len(steps) == told


def test_the_error_of_a_function_is_told_without_its_words():
    def fails(Z):
        raise ValueError("the record of Jo Bloggs")

    step = FunctionTransformer(np.abs).fit(X).set_params(func=fails)
    claim = claim_of(Pipeline([("a", step), ("b", learn(None).fit(X, y))]), X)
    assert claim.uncovered == {
        "a": "FunctionTransformer could not be tried on single records (ValueError)"
    }


def test_a_step_is_tried_on_what_the_steps_before_it_hand_on():
    """The logarithm has only seen what is positive; the records themselves are not."""
    model = make_pipeline(FunctionTransformer(np.abs), FunctionTransformer(np.log1p), learn(None))
    assumptions = claim_of(model.fit(X, y), X).guarantee.assumptions
    assert len(assumptions) == 2
    assert all("tried on 20 records" in assumption for assumption in assumptions)


def test_the_types_of_columns_are_taken_to_be_public():
    frame = pd.DataFrame(X).add_prefix("x")
    columns = make_column_transformer((scale(None), make_column_selector(dtype_include=float)))
    claim = claim_of(make_pipeline(columns, learn(None)).fit(frame, y), frame)
    assert claim.proved
    assert claim.guarantee.assumptions == (
        "the types and names of the columns that 'columntransformer' selects by are public",
    )


@pytest.mark.parametrize(
    "grid", [{"unit": ["record", "party"]}, {"server": ["curious", "trusted"]}], ids=str
)
def test_a_search_of_federations_speaks_for_no_candidate_that_protects_others(grid):
    """A fit that protects records says nothing of the hospitals that the best one protects."""
    federation = DPFederatedClassifier(classes=[0, 1], n_rounds=2, unit="party", delta=1e-3)
    search = GridSearchCV(federation, grid, cv=2)
    search.fit(X, y, parties=np.arange(len(X)) % 10)
    assert claim_of(search).charged is None
    search = GridSearchCV(federation, {"momentum": [0.0, 0.9]}, cv=2)
    search.fit(X, y, parties=np.arange(len(X)) % 10)
    assert claim_of(search).charged.unit == "party"


def test_a_search_says_that_losing_candidates_may_rest_on_assumptions_of_their_own():
    grid = {"classes": [[0, 1], None]}  # scores are equal: the first wins, the second reads y
    search = GridSearchCV(learn(None), grid, cv=2, scoring=lambda *_: 0.0)
    with pytest.warns(UserWarning, match="classes"):
        claim = claim_of(search.fit(X, y))
    assert not any("class labels" in text for text in claim.charged.assumptions)
    assert any("no assumptions but those listed" in text for text in claim.charged.assumptions)


def test_the_cost_of_a_third_party_search_is_unknown():
    class Fitting(GridSearchCV):
        pass

    claim = claim_of(Fitting(learn(None), {"epsilon": [1.0]}, cv=2).fit(X, y))
    assert claim.reason == "no claim: chosen by unprotected scores"
    assert claim.charged is None


def test_a_subclass_may_train_otherwise_and_is_not_taken_for_its_parent():
    class Twice(Pipeline):
        pass

    claim = claim_of(Twice([("a", scale(None)), ("b", learn(None))]).fit(X, y))
    assert claim.guarantee is None
    assert "Twice is not known" in claim.reason


def test_a_step_is_tried_wherever_it_stands():
    """On the columns of a frame that it gets, in a union, in a part of a vote."""
    frame = pd.DataFrame(X).add_prefix("x").assign(city=np.where(y, "Rome", "Oslo"))
    lengths = FunctionTransformer(lambda Z: Z.apply(lambda column: column.str.len()))
    columns = make_column_transformer(
        (lengths, ["city"]), (FunctionTransformer(centred), ["x0", "x1"]), (scale(None), ["x2"])
    )
    model = VotingClassifier([("a", make_pipeline(columns, learn(None)))]).fit(frame, y)
    claim = claim_of(model, frame)
    assert list(claim.uncovered) == ["a.columntransformer.functiontransformer-2"]
    tried = "step 'a.columntransformer.functiontransformer-1' treats each record by itself"
    assert any(told.startswith(tried) for told in claim.guarantee.assumptions)
    union = make_pipeline(make_union(FunctionTransformer(centred), Normalizer()), learn(None))
    assert list(claim_of(union.fit(X, y), X).uncovered) == ["featureunion.functiontransformer"]


def test_records_that_cannot_be_taken_one_by_one_leave_a_step_untried():
    model = make_pipeline(FunctionTransformer(np.abs), learn(None)).fit(X, y)
    assert "(not tried)" in repr(claim_of(model, iter(X)).guarantee)
    assert "(not tried)" in repr(claim_of(model, X[:1]).guarantee)


def test_unfitted_models_claim_nothing():
    with pytest.raises(NotFittedError):
        claim_of(both(None))
    changed = both(None).fit(X, y).set_params(privatestandardscaler=scale(None))
    assert claim_of(changed, X).guarantee is None


def test_claiming_changes_nothing():
    budget = PrivacyBudget(epsilon=1e4)
    model = make_pipeline(FunctionTransformer(np.tanh), both(budget)).fit(X, y)
    before = budget.spent(), model.predict(X).tolist()
    claim_of(model, X)
    assert (budget.spent(), model.predict(X).tolist()) == before
    assert clone(model) is not model


class Theirs(LogisticRegression):
    """As other libraries have them: an epsilon, and nothing that could be held against it."""

    epsilon = 1.0


def test_an_epsilon_without_a_guarantee_is_told():
    """scikit-learn's own epsilons, as of SVR, are about something else."""
    theirs = make_pipeline(StandardScaler(), Theirs()).fit(X, y)
    assert claim_of(theirs).reason == (
        "no claim: Theirs has an epsilon but states no guarantee (privacy_); verify_privacy tests "
        "it"
    )
    assert claim_of(SVR().fit(X, y)).reason == "no claim"


def test_nothing_is_outside_of_no_guarantee():
    """Of a model that claims nothing, a scaler was called outside the guarantee."""
    half = len(y) // 2
    parts = X[:half], y[:half], X[half:], y[half:]
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(*parts[:2])
    report = audit(plain, *parts, attacks=LossThreshold())
    assert not any("guarantee" in caveat for caveat in report.caveats)
