"""make_private_pipeline: public facts reach the model, no record exceeds them, claims stay true."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skprivacy import PrivacyBudget, PrivacySweepCV
from skprivacy._config import config_context
from skprivacy.additive_model import PrivateAdditiveClassifier
from skprivacy.audit import claim_of
from skprivacy.base import rehearse_fit
from skprivacy.ensemble import PATEClassifier
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.label_privacy import LP2STClassifier
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    DateColumn,
    HashedColumn,
    PrivateStandardScaler,
    Schema,
    SchemaTransformer,
    make_private_pipeline,
    pipeline,
)
from skprivacy.synthesis import MarginalSynthesizer

COLUMNS = {
    "age": BoundedColumn(0, 100),
    "gain": BoundedColumn(0, 99_999, scale="log", knee=5_000, bins=16),
    "rank": BoundedColumn(-3, 5, bins=2),
    "sex": CategoricalColumn(["Female", "Male"]),
    "code": CategoricalColumn([1, 2, "x"]),
}
SCHEMA = Schema(COLUMNS, target_column="y", classes=["no", "yes"], target_bounds=(-10, 30))
# By hand: 1, 1 + 15 / 4, 1 + 1 / 4, 1 and 1.
RADIUS = math.sqrt(1 + 4.75 + 1.25 + 1 + 1)
ODD = [
    0, 1, 2, -3, 5, 100, 99_999, 1e300, -1e300, 10**400, np.inf, -np.inf, np.nan, None, pd.NA, "x",
    "Male", "?", True, 2j, b"x", 5e-324,
]  # fmt: skip


def table(n=400):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, n),
            "gain": rng.integers(0, 10**5, n),
            "rank": rng.uniform(-3, 5, n),
            "sex": rng.choice(["Female", "Male"], n),
            "code": rng.choice(np.array([1, 2, "x"], dtype=object), n),
        }
    )
    return X, np.where(X["age"] > 50, "yes", "no"), X["age"].to_numpy() / 5


def adversarial(columns):
    """Return rows of odd values, and rows whose columns are all at one end."""
    rng = np.random.default_rng(1)
    drawn = np.array(ODD, dtype=object)[rng.integers(0, len(ODD), (200, len(columns)))]
    rows = [list(row) for row in drawn]
    for end in (np.inf, -np.inf, np.nan):
        rows += [
            [end if isinstance(fact, BoundedColumn) else value for fact in columns.values()]
            for value in ("Male", "Female", "x", 1, "?")
        ]
    # Every category known: the longest rows of all.
    for end in (np.inf, -np.inf):
        known = {BoundedColumn: end, DateColumn: "2030-01-01T23:00", HashedColumn: "x"}
        rows.append(
            [f.values[0] if isinstance(f, CategoricalColumn) else known[type(f)]
             for f in columns.values()]
        )  # fmt: skip
    return pd.DataFrame(rows, columns=list(columns), dtype=object)


def check_norms(columns, crosses=()):
    """No row exceeds the radius, and a longest one reaches it: the contract of the radius."""
    schema = Schema(columns, classes=[0, 1], crosses=crosses)
    model = make_private_pipeline(schema, ObjectivePerturbationClassifier())
    rows = model[0].fit_transform(adversarial(columns))
    assert model[-1].bounds == (-1.0, 1.0)
    assert np.abs(rows).max() <= 1.0
    longest = np.linalg.norm(rows, axis=1).max()
    assert longest <= model[-1].radius * (1 + 1e-12)  # the rounding of a sum of squares
    return longest, model[-1].radius


@pytest.mark.parametrize(
    ("columns", "crosses"),
    [
        (COLUMNS, []),
        (COLUMNS, [("gain", "sex"), ("sex", "code"), ("rank", "code")]),
        ({"a": BoundedColumn(0, 1)}, []),
        ({"a": BoundedColumn(2, 2, bins=8), "b": BoundedColumn(0, 1)}, []),
        ({"a": BoundedColumn(0, 1, bins=64)}, []),
        ({"a": CategoricalColumn([1]), "b": CategoricalColumn(["x", "y"])}, []),
    ],
    ids=["mixed", "crossed", "one", "constant", "bins", "categories"],
)
def test_no_row_exceeds_the_radius(columns, crosses):
    longest, radius = check_norms(columns, crosses)
    if "b" not in columns:  # all columns can be longest together
        assert longest == pytest.approx(radius, rel=1e-12)


facts = st.one_of(
    st.builds(
        BoundedColumn,
        st.floats(-100, 0),
        st.floats(0, 100),
        st.sampled_from(["linear", "log"]),
        st.floats(0.01, 100),
        st.integers(1, 20),
    ),
    st.sampled_from(
        [
            CategoricalColumn([1]),
            CategoricalColumn(["Male", "x"]),
            CategoricalColumn([0, 1, 2, 5]),
            HashedColumn(4, missing=True),
            DateColumn("2020-01-01", "2021-01-01", ["month", "hour"]),
        ]
    ),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(facts, min_size=1, max_size=6))
def test_no_row_exceeds_the_radius_of_any_schema(columns):
    check_norms({f"c{i}": fact for i, fact in enumerate(columns)})


def test_a_radius_too_small_by_one_column_is_caught(monkeypatch):
    original = pipeline._row_facts

    def one_column_less(schema):
        return original(Schema({name: schema[name] for name in list(schema)[:-1]}))

    monkeypatch.setattr(pipeline, "_row_facts", one_column_less)
    with pytest.raises(AssertionError):
        check_norms(COLUMNS)


def test_no_record_is_weighted_down():
    """Purpose of the radius: a fit counts every record fully, and with no more noise."""
    X, y, _ = table()
    X = pd.concat([X, adversarial(COLUMNS)], ignore_index=True)
    y = np.resize(y, len(X))
    model = make_private_pipeline(SCHEMA, FunctionalMechanismClassifier(delta=1e-6)).fit(X, y)
    _, weights = model[-1]._ball_.transform(model[0].transform(X))
    assert weights.min() > 1 - 1e-9
    assert model[-1]._ball_.radius == min(RADIUS, math.sqrt(SCHEMA.n_features_out))


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (ObjectivePerturbationClassifier(), {"bounds", "radius", "classes"}),
        (OutputPerturbationClassifier(), {"bounds", "radius", "classes"}),
        (FunctionalMechanismClassifier(), {"bounds", "radius", "classes"}),
        (FunctionalMechanismRegressor(), {"bounds", "radius", "target_bounds"}),
        (AdaSSPRegressor(), {"bounds", "radius", "target_bounds"}),
        (DPSGDClassifier(relation="add_remove"), {"classes", "n_records"}),
        (DPSGDRegressor(relation="add_remove"), {"target_bounds", "n_records"}),
        (PrivateStandardScaler(), {"bounds"}),
        (PATEClassifier(), {"classes"}),
        (LP2STClassifier(LogisticRegression()), {"classes"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_model_is_told_what_it_asks_for(model, told):
    expected = {
        "bounds": (-1.0, 1.0),
        "radius": pytest.approx(RADIUS, rel=1e-12),
        "classes": ("no", "yes"),
        "target_bounds": (-10.0, 30.0),
        "n_records": 300,
    }
    before = {k: repr(v) for k, v in model.get_params().items()}
    known = make_private_pipeline(SCHEMA, model, n_records=300)[-1].get_params()
    assert {k for k in before if repr(known[k]) != before[k]} == told
    assert {k: known[k] for k in told} == {k: expected[k] for k in told}
    assert {k: repr(v) for k, v in model.get_params().items()} == before  # a clone was told


def test_what_the_user_set_is_kept():
    mine = ObjectivePerturbationClassifier(bounds=(0, 1), classes=["no", "yes", "maybe"])
    kept = make_private_pipeline(SCHEMA, mine)[-1]
    assert (kept.bounds, kept.radius, kept.classes) == ((0, 1), None, ["no", "yes", "maybe"])
    kept = make_private_pipeline(SCHEMA, ObjectivePerturbationClassifier(radius=1.5))[-1]
    assert (kept.bounds, kept.radius) == ((-1.0, 1.0), 1.5)
    kept = make_private_pipeline(
        SCHEMA, DPSGDClassifier(relation="add_remove", n_records=50), n_records=300
    )[-1]
    assert kept.n_records == 50


@pytest.mark.parametrize("kind", [ObjectivePerturbationClassifier, FunctionalMechanismRegressor])
def test_the_claim_no_longer_assumes_facts_read_off_the_data(kind):
    X, labels, numbers = table()
    y = numbers if kind is FunctionalMechanismRegressor else labels
    with pytest.warns(PrivacyLeakWarning):
        bare = make_pipeline(SchemaTransformer(SCHEMA), kind()).fit(X, y)
    with config_context(strict=True):
        told = make_private_pipeline(SCHEMA, kind()).fit(X, y)
    before, after = claim_of(bare, X).guarantee, claim_of(told, X).guarantee
    assert any("read off" in text for text in before.assumptions)
    assert after.assumptions == ()
    assert (after.kind, after.relation, after.event) == ("proved", before.relation, before.event)


def test_a_public_figure_of_records_hides_how_many_there_are():
    X, y, _ = table(200)
    for relation, n in (("zero_out", None), ("add_remove", 250)):
        model = DPSGDClassifier(epsilon=None, noise_multiplier=1.0, relation=relation)
        made = make_private_pipeline(SCHEMA, model, n_records=n)
        assert rehearse_fit(lambda made=made: made.fit(X, y)).relation == relation
    with pytest.raises(ValueError, match="n_records=250 does not fit relation='zero_out'"):
        make_private_pipeline(SCHEMA, DPSGDClassifier(), n_records=250).fit(X, y)


@pytest.mark.heavy
def test_clone_pickle_search_sweep():
    X, y, _ = table()
    budget = PrivacyBudget(epsilon=100.0, delta=0.1)
    model = make_private_pipeline(SCHEMA, ObjectivePerturbationClassifier(epsilon=5.0))
    for again in (clone(model), pickle.loads(pickle.dumps(model)), clone(clone(model).fit(X, y))):
        assert again[-1].get_params() == model[-1].get_params()
        assert again[0].schema == SCHEMA
    fitted = pickle.loads(pickle.dumps(model.fit(X, y)))
    assert (fitted.predict(X) == model.predict(X)).all()
    grid = {"objectiveperturbationclassifier__alpha": [0.5, 1.0]}
    with config_context(strict=True):
        search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(X, y)
        assert search.best_estimator_[-1].radius == model[-1].radius
        sweep = PrivacySweepCV(model, epsilons=[1.0, 5.0], cv=2, baseline=None, refit=5.0).fit(X, y)
        charged = make_private_pipeline(
            SCHEMA, ObjectivePerturbationClassifier(epsilon=5.0, budget=budget)
        ).fit(X, y)
    assert np.isfinite(sweep.cv_results_["mean_test_score"]).all()
    assert sweep.estimator_[-1].radius == model[-1].radius
    assert charged[-1].budget is budget
    assert len(budget.entries()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"schema": COLUMNS}, "schema=.* must be a Schema"),
        ({"model": LogisticRegression()}, "LogisticRegression.* must be a private estimator"),
        ({"model": DPSGDClassifier}, "must be a private estimator"),
        ({"model": make_pipeline(DPSGDClassifier())}, "around the pipeline instead"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make_private_pipeline(**{"schema": SCHEMA, "model": DPSGDClassifier(), **arguments})


@pytest.mark.parametrize("kind", [PrivateAdditiveClassifier, MarginalSynthesizer])
def test_a_model_that_takes_the_table_itself_is_refused(kind):
    with pytest.raises(TypeError, match=rf"Pass {kind.__name__}\(schema=schema\) without"):
        make_private_pipeline(SCHEMA, kind())


def test_a_schema_of_another_kind_of_target_is_refused():
    with pytest.raises(ValueError, match="predicts numbers, but the schema has classes"):
        make_private_pipeline(Schema(COLUMNS, classes=["no", "yes"]), AdaSSPRegressor())
    with pytest.raises(ValueError, match="predicts classes, but the schema has target_bounds"):
        make_private_pipeline(
            Schema(COLUMNS, target_bounds=(0, 1)), ObjectivePerturbationClassifier()
        )
