"""Bins by rule: chosen from public facts in each fit, and the same in sweeps, pools and files."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from skprivacy import PrivacySweepCV, load_model, save_model
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.attacks import ShadowPool
from skprivacy.audit import claim_of
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    Schema,
    SchemaTransformer,
    make_private_pipeline,
)
from skprivacy.preprocessing.pipeline import PrivatePipeline

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")

SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100),
        "gain": BoundedColumn(0, 9, bins=4),
        "same": BoundedColumn(3, 3),
        "sex": CategoricalColumn(["f", "m"]),
    },
    classes=[0, 1],
    target_bounds=(0, 1),
)
LOW, HIGH = 0.01, 20.0  # epsilons at which 400 records are too few, and enough


def table(n=400):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, n),
            "gain": rng.uniform(0, 9, n),
            "same": 3.0,
            "sex": rng.choice(["f", "m"], n),
        }
    )
    return X, (X["age"] > 50).astype(int).to_numpy()


def network(epsilon=HIGH, **params):
    quick = {"epochs": 1, "batch_size": 100, "random_state": 0, "noise_seed": 0, "delta": 1e-5}
    return DPSGDClassifier(epsilon=epsilon, **quick | params)


def bins_of(model, epsilon=None, **fit):
    if epsilon is not None:
        model.set_params(dpsgdclassifier__epsilon=epsilon)
    return model.fit(*table(), **fit)[0].bins


def test_records_times_mu_must_exceed_ten_times_the_root_of_the_bits():
    mu = 1 / analytic_noise_multiplier(1.0, 1e-5)

    def chosen(n, n_numbers):
        columns = {f"x{i}": BoundedColumn(0, 1) for i in range(n_numbers)}
        schema = Schema({**columns, "c": CategoricalColumn([0, 1])})
        return make_private_pipeline(schema, network(1.0)).settle_bins(n)[0].bins

    for n_numbers in (1, 4, 9):
        least = 10 * math.sqrt(15 * n_numbers) / mu
        assert chosen(int(least) + 1, n_numbers) == 16
        assert chosen(int(least) - 1, n_numbers) is None
    assert (chosen(10**6, 0), chosen(10**6, 40), chosen(10**6, 41)) == (None, 16, None)


def test_only_a_column_that_has_a_width_and_no_bins_gets_them():
    made = SchemaTransformer(SCHEMA, bins=16).fit(table()[0])
    assert [fact.bins for fact in made.schema_.values() if isinstance(fact, BoundedColumn)] == [
        16, 4, 1
    ]  # fmt: skip
    assert made.schema == SCHEMA
    assert SchemaTransformer(SCHEMA).fit(table()[0]).schema_ == SCHEMA
    for wrong in (0, 2.5, True):
        with pytest.raises(ValueError, match="bins="):
            SchemaTransformer(SCHEMA, bins=wrong).fit(table()[0])
        with pytest.raises(ValueError, match="bins="):
            make_private_pipeline(SCHEMA, network(), bins=wrong)


def test_each_fit_chooses_anew_by_the_epsilon_of_the_model():
    model = make_private_pipeline(SCHEMA, network())
    assert bins_of(model) == 16
    assert bins_of(model, LOW) is None
    assert bins_of(clone(model), HIGH) == 16
    grid = {"dpsgdclassifier__epsilon": [LOW, HIGH]}
    search = GridSearchCV(model, grid, cv=2, refit=False, scoring=lambda m, X, y: m[0].bins or 1)
    assert search.fit(*table()).cv_results_["mean_test_score"].tolist() == [1, 16]


def test_the_number_of_people_counts_and_a_hidden_number_of_records_does_not():
    people = pd.Series(np.arange(400) // 100, name="person")
    fit = {"dpsgdclassifier__groups": people}
    near = 1.5  # enough for 400 units, too little for 4
    model = make_private_pipeline(SCHEMA, network(delta=1e-3, batch_size=2))
    assert bins_of(model, near) == 16
    assert bins_of(model, near, **fit) is None
    with config_context(enable_metadata_routing=True):
        asking = network(near, delta=1e-3, batch_size=2).set_fit_request(groups=True)
        assert bins_of(make_private_pipeline(SCHEMA, asking), groups=people) is None
    hidden = make_private_pipeline(SCHEMA, network(near, relation="add_remove"), n_records=400)
    for n in (200, 1000):
        assert hidden.fit(*table(n))[0].bins == 16
    few = make_private_pipeline(SCHEMA, network(near, relation="add_remove"), n_records=100)
    assert few.fit(*table(1000))[0].bins is None


@pytest.mark.parametrize(
    "model",
    [
        ObjectivePerturbationClassifier(epsilon=1e6),
        DPSGDRegressor(epsilon=1e6),
        network(epsilon=None, noise_multiplier=1e-3),
    ],
    ids=["linear", "regressor", "given noise"],
)
def test_models_outside_the_study_get_no_bins(model):
    made = make_private_pipeline(SCHEMA, model)
    if isinstance(model, DPSGDClassifier):
        made.fit(*table())
    assert made[0].bins is None
    assert isinstance(made, PrivatePipeline) == isinstance(model, DPSGDClassifier)


@pytest.mark.parametrize(
    ("n", "given"), [(400, {}), (4000, {"hidden_layer_sizes": (8,)}), (4000, {"epochs": 1})]
)
def test_a_network_without_privacy_has_the_bins_of_one_with_little_noise(n, given):
    model = make_private_pipeline(SCHEMA, DPSGDClassifier(classes=["no", "yes"], **given))
    for epsilon in (1e6, math.inf):
        model.set_params(dpsgdclassifier__epsilon=epsilon)
        assert model._steps_for(n)[0][1].bins == 16


def test_a_network_that_finds_quantiles_itself_gets_no_bins():
    network = DPSGDClassifier(epsilon=math.inf, classes=["no", "yes"])
    assert make_private_pipeline(SCHEMA, network)._steps_for(4000)[0][1].bins is None


def test_given_bins_stay_and_change_the_radius():
    plain, binned = (
        make_private_pipeline(SCHEMA, ObjectivePerturbationClassifier(), bins=bins)
        for bins in (None, 16)
    )
    assert type(binned) is Pipeline
    # the bits of "age": 15 of 1/2 each
    assert binned[-1].radius ** 2 == pytest.approx(plain[-1].radius ** 2 + 15 / 4)
    for bins in (None, 8):
        assert make_private_pipeline(SCHEMA, network(), bins=bins).fit(*table())[0].bins == bins


def test_a_sweep_trains_what_a_fit_at_each_epsilon_trains():
    X, y = table()
    halves = [(np.arange(200), np.arange(200, 400)), (np.arange(200, 400), np.arange(200))]
    model = make_private_pipeline(SCHEMA, network())
    sweep = PrivacySweepCV(model, epsilons=[LOW, HIGH], cv=halves, refit=HIGH).fit(X, y)
    expected = [
        [
            model.set_params(dpsgdclassifier__epsilon=epsilon)
            .fit(X.iloc[train], y[train])
            .score(X.iloc[test], y[test])
            for train, test in halves
        ]
        for epsilon in (LOW, HIGH)
    ]
    found = [[sweep.cv_results_[f"split{i}_test_score"][e] for i in (0, 1)] for e in (0, 1)]
    assert found == expected
    assert sweep.estimator_[0].bins == 16


def test_a_sweep_encodes_the_records_once_for_each_number_of_bins(monkeypatch):
    encoded = []
    transform = SchemaTransformer.transform
    monkeypatch.setattr(
        SchemaTransformer, "transform",
        lambda step, X: encoded.append((step.bins, len(X))) or transform(step, X),
    )  # fmt: skip
    model = make_private_pipeline(SCHEMA, network())
    epsilons = [LOW, LOW / 2, HIGH, HIGH * 2]
    PrivacySweepCV(model, epsilons=epsilons, cv=2, baseline=None).fit(*table())
    whole = [bins for bins, n in encoded if n == 400]  # claims encode a few more
    assert sorted(whole, key=str) == [16, None]


def test_shadow_models_have_the_bins_of_their_half_of_the_records():
    X, y = table()
    for epsilon, bins in ((HIGH, 16), (LOW, None)):
        model = make_private_pipeline(SCHEMA, network(epsilon))
        pool = ShadowPool(model, n_shadows=2, random_state=0, stacked=False).fit(X, y)
        assert {shadow[0].bins for shadow in pool.estimators_} == {bins}


def test_the_claim_covers_the_choice_and_a_file_keeps_it(tmp_path):
    X, y = table()
    model = make_private_pipeline(SCHEMA, network(noise_seed=None)).fit(X, y)
    claim = claim_of(model, X)
    assert claim.guarantee.kind == "proved"
    assert not claim.uncovered
    assert any("number of records is public" in text for text in claim.guarantee.assumptions)
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert type(again) is Pipeline
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    model = make_private_pipeline(SCHEMA, network()).fit(X, y)
    settled = clone(model).settle_bins(400)
    assert type(settled) is Pipeline
    np.testing.assert_array_equal(settled.fit(X, y).predict_proba(X), model.predict_proba(X))
