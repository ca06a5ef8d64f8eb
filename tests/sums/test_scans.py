"""Fits of several scans: one charge, before the first total; each total fits the next plan only."""

import copy
import pickle
from functools import partial
from unittest import mock

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA

from skprivacy.accounting import PrivacyBudget
from skprivacy.additive_model import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from skprivacy.ensemble import PublicRecords
from skprivacy.exceptions import BudgetExceededError
from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
from skprivacy.sums import SumTotal
from skprivacy.sums.sum_plan import GROUP_SIZE
from skprivacy.synthesis import Grid, MarginalSynthesizer

from .engines import (
    ALL,
    COLUMNS,
    ENGINES,
    OUTCOMES,
    SCANS,
    SECRET,
    claim_of_sums,
    columns_of,
    fit_by_scans,
    fit_in_memory,
    patients,
    same_fits,
    watch_scans,
)

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
TABLE = patients(1_000)
TYPES = dict(TABLE[COLUMNS].dtypes)
SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100, missing=True),
        "dose": BoundedColumn(0, 80),
        "visits": BoundedColumn(0, 9),
        "outcome": CategoricalColumn(OUTCOMES),
    }
)
N_SCANS = {
    "PrivateAdditiveClassifier": 4, "PrivateAdditiveRegressor": 6, "ALMFineTuner-gradient": 3,
    "ALMFineTuner-prototypes": 1, "ALMFineTuner-least-squares": 1,
}  # fmt: skip
SEVERAL = [name for name, n in N_SCANS.items() if n > 1]
synthesizer = partial(MarginalSynthesizer, 2.0, 1e-6, schema=SCHEMA)


@pytest.fixture
def budget(tmp_path):
    return PrivacyBudget(3.0, 1e-4, path=tmp_path / "ledger")


def first_plan(name, model):
    return model.plan(TYPES, y=ALL[name][1])


def total_of(plan, rows=TABLE):
    total = SumTotal(plan)
    total.add("rows", plan.partial(rows))
    return total


@pytest.mark.parametrize("name", SCANS)
def test_the_first_total_is_charged_and_no_other(name, budget):
    model = SCANS[name][0](budget=budget)
    plan, n_scans = first_plan(name, model), 0
    assert len(budget.entries()) == 0
    while plan is not model:
        total = total_of(plan)
        assert len(budget.entries()) == bool(n_scans)
        plan, n_scans = model.fit_sums(total), n_scans + 1
    assert n_scans == N_SCANS[name]
    assert len(budget.entries()) == 1
    assert set(budget.entries()["status"]) == {"commit"}


@pytest.mark.parametrize("name", SCANS)
def test_the_scans_of_an_engine_are_charged_once(name, budget, tmp_path, monkeypatch):
    table = ENGINES["dataset"](TABLE[columns_of(name, False)], tmp_path)
    scans = []
    watch_scans(table, monkeypatch, lambda: scans.append(len(budget.entries())))
    SCANS[name][0](budget=budget).fit(table, ALL[name][1])
    assert scans == [1] * N_SCANS[name]
    assert len(budget.entries()) == 1


@pytest.mark.parametrize("engine", ["dataset", "polars-lazy", "duckdb"])
@pytest.mark.parametrize("name", SEVERAL)
def test_a_later_scan_that_fails_stays_charged(name, engine, budget, tmp_path, monkeypatch):
    table = ENGINES[engine](TABLE[columns_of(name, False)], tmp_path)
    third = mock.Mock(side_effect=[None, None, OSError(SECRET)])
    model = SCANS[name][0]().fit(table, ALL[name][1])
    before = dict(vars(model))
    model.set_params(budget=budget)
    watch_scans(table, monkeypatch, third)
    with pytest.raises(RuntimeError, match="failed") as failure:
        model.fit(table, ALL[name][1])
    assert SECRET not in str(failure.value)
    assert len(budget.entries()) == 1
    assert vars(model) == {**before, "budget": budget}


@pytest.mark.parametrize("name", SEVERAL)
def test_totals_of_another_scan_are_refused_and_the_fit_still_waits(name):
    model = SCANS[name][0](noise_seed=1)
    first = first_plan(name, model)
    old = total_of(first)
    second = model.fit_sums(old)
    another = SCANS[name][0](noise_seed=2)
    strange = another.fit_sums(total_of(first_plan(name, another)))
    assert len({first.digest, second.digest, strange.digest}) == 3
    for total in (old, total_of(strange)):
        with pytest.raises(ValueError, match="not of the plan that fit_sums returned last"):
            model.fit_sums(total)
    with pytest.raises(ValueError, match="other rows than the scan before"):
        model.fit_sums(total_of(second, TABLE[:-1]))
    plan, digests = second, {first.digest, second.digest}
    while plan is not model:
        total = total_of(plan)
        plan = model.fit_sums(total)
        if plan is not model:
            with pytest.raises(ValueError, match="not of the plan that fit_sums returned last"):
                model.fit_sums(total)
            digests.add(plan.digest)
    assert len(digests) == N_SCANS[name]
    expected = fit_in_memory(SCANS[name][0](noise_seed=1), TABLE, name, False)
    assert same_fits(model, expected)


@pytest.mark.parametrize("name", SEVERAL)
def test_a_total_without_all_rows_of_a_group_is_refused_in_any_scan(name, budget):
    model = SCANS[name][0](budget=budget)
    plan = model.plan(TYPES, y=ALL[name][1], groups="patient")
    rows = TABLE.assign(**{GROUP_SIZE: TABLE.groupby("patient")["age"].transform("size")})
    with pytest.raises(ValueError, match="a part is missing"):
        model.fit_sums(total_of(plan, rows[:-1]))
    assert len(budget.entries()) == 0
    second = model.fit_sums(total_of(plan, rows))
    with pytest.raises(ValueError, match="a part is missing"):
        model.fit_sums(total_of(second, rows[:-1]))
    assert fit_by_scans(model, second, {"rows": rows}).privacy_.unit == "patient"


def test_a_refused_charge_uses_no_total():
    name = "PrivateAdditiveRegressor"
    model = SCANS[name][0](budget=PrivacyBudget(0.5, 1e-4))
    total = total_of(first_plan(name, model))
    total._read_sums = None  # calling it would raise TypeError
    with pytest.raises(BudgetExceededError):
        model.fit_sums(total)
    assert vars(model) == vars(clone(model))


def test_a_fit_between_scans_stays_in_its_object_and_can_be_given_up(budget):
    name = "PrivateAdditiveRegressor"
    model = SCANS[name][0](budget=budget)
    second = model.fit_sums(total_of(first_plan(name, model)))
    assert not hasattr(model, "privacy_")
    for move in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            move(model)
    afresh = clone(model)
    assert first_plan(name, afresh).digest == first_plan(name, model).digest
    with pytest.raises(ValueError, match="another plan"):
        afresh.fit_sums(total_of(second))
    fit_in_memory(model.set_params(budget=None), TABLE, name, False)
    assert model.privacy_.unit == "record"
    with pytest.raises(ValueError, match="another plan"):
        model.fit_sums(total_of(second))
    assert len(budget.entries()) == 1


def test_parameters_that_change_between_scans_have_no_effect():
    name = "PrivateAdditiveClassifier"
    model = SCANS[name][0](noise_seed=1)
    second = model.fit_sums(total_of(first_plan(name, model)))
    model.set_params(epsilon=100.0, n_rounds=50, noise_seed=None)
    expected = fit_in_memory(SCANS[name][0](noise_seed=1), TABLE, name, False)
    assert same_fits(fit_by_scans(model, second, {"rows": TABLE}), expected)


def test_an_error_between_scans_ends_the_fit(monkeypatch):
    name = "PrivateAdditiveRegressor"
    model = SCANS[name][0]()
    second = model.fit_sums(total_of(first_plan(name, model)))
    total = total_of(second)
    monkeypatch.setattr("skprivacy.additive_model.rounds.shrink_step", None)
    with pytest.raises(TypeError):
        model.fit_sums(total)
    assert vars(model) == vars(clone(model))


@pytest.mark.parametrize("grouped", [False, True], ids=["records", "patients"])
@pytest.mark.parametrize(
    "params",
    [{}, {"label": "outcome"}, {"method": "adaptive", "n_rounds": 2}, {"method": "independent"}],
    ids=["tree", "label", "adaptive", "independent"],
)
def test_a_synthesizer_fits_to_totals(params, grouped, budget):
    """A type of integers makes cells of whole numbers, and the type of sampled columns."""
    table = TABLE[TABLE.index % 11 > 0]
    expected = synthesizer(**params, noise_seed=1).fit(
        table[list(SCHEMA)], **({"groups": table["patient"]} if grouped else {})
    )
    model = synthesizer(**params, noise_seed=1)
    types = dict(table[list(SCHEMA)].dtypes)
    plan = model.plan(types, groups="patient" if grouped else None)
    rows = table.assign(**{GROUP_SIZE: table.groupby("patient")["age"].transform("size")})
    fit_by_scans(model, plan, {"one": rows[:300], "other": rows[300:]})
    assert claim_of_sums(model) == claim_of_sums(expected)
    for one, other in zip(model.measurements_, expected.measurements_, strict=True):
        assert np.array_equal(one.table, other.table)
    one, other = (m.sample(50, random_state=0) for m in (model, expected))
    assert one.equals(other)
    charged = synthesizer(**params, budget=budget)
    fit_by_scans(charged, plan, {"one": rows})
    assert len(budget.entries()) == 1


def test_a_synthesizer_refuses_tables_by_the_bins_of_another():
    fits = [synthesizer(noise_seed=seed) for seed in (1, 2)]
    rows, types = TABLE[TABLE.index % 11 > 0], dict(TABLE[list(SCHEMA)].dtypes)
    plans = [model.fit_sums(total_of(model.plan(types), rows)) for model in fits]
    with pytest.raises(ValueError, match="not of the plan that fit_sums returned last"):
        fits[0].fit_sums(total_of(plans[1], rows))
    assert fits[0].fit_sums(total_of(plans[0], rows)) is fits[0]


def digest_of(model, columns=TYPES, **names):
    return model.plan(columns, **names).digest


def test_every_public_fact_changes_the_digest():
    classifier = partial(PrivateAdditiveClassifier, schema=Schema(SCHEMA, classes=[0, 1]))
    regressor = partial(PrivateAdditiveRegressor, schema=Schema(SCHEMA, target_bounds=(0, 1)))
    wide = Schema({**SCHEMA, "dose": BoundedColumn(0, 81)}, classes=[0, 1])
    types = {**TYPES, "outcome": object}
    whole = {**types, "age": np.int64}
    tuner = partial(ALMFineTuner, classes=[0, 1], head="prototypes")
    public = np.random.default_rng(0).normal(size=(30, 3))
    digests = [
        digest_of(synthesizer(), types),
        digest_of(synthesizer(), whole),
        digest_of(synthesizer(), types, groups="patient"),
        digest_of(synthesizer(grids={"age": Grid(7)}), types),
        digest_of(classifier(), types, y="died"),
        digest_of(classifier(), whole, y="died"),
        digest_of(classifier(), types, y="cured"),
        digest_of(classifier(), types, y="died", groups="patient"),
        digest_of(classifier(schema=wide), types, y="died"),
        digest_of(classifier(schema=Schema(SCHEMA, classes=[0, 2])), types, y="died"),
        digest_of(classifier(schema=Schema(SCHEMA, classes=[0, 1, 2])), types, y="died"),
        digest_of(regressor(), types, y="cost"),
        digest_of(
            regressor(schema=Schema(SCHEMA, target_bounds=(0, 2))), types, y="cost"
        ),
        digest_of(tuner(), y="died"),
        digest_of(tuner(head="least_squares"), y="died"),
        digest_of(tuner(head="gradient"), y="died"),
        digest_of(tuner(classes=[0, 2]), y="died"),
        digest_of(tuner(), y="died", X_public=public),
        digest_of(tuner(), y="died", X_public=public * [1, 2, 3]),
        digest_of(tuner(PCA(1)), y="died", X_public=public),
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)
    same = classifier(epsilon=0.5, n_rounds=2, noise_seed=1)
    assert digest_of(same, types, y="died") in digests


def test_an_encoder_is_learned_from_public_records_only():
    public = np.random.default_rng(0).normal(40, 20, (60, 3))
    make = partial(ALMFineTuner, PCA(2), "prototypes", classes=OUTCOMES, noise_seed=1)
    expected = make().fit(TABLE[COLUMNS], TABLE["outcome"], X_public=public)
    table = TABLE[columns_of("ALMFineTuner-prototypes", False)]
    assert same_fits(make().fit(table, "outcome", X_public=public), expected)
    model = make()
    plan = model.plan(COLUMNS, y="outcome", X_public=PublicRecords(public))
    with pytest.raises(ValueError, match="another plan"):
        model.fit_sums(total_of(plan), X_public=public * 2)
    found = fit_by_scans(model, plan, {"rows": TABLE}, X_public=PublicRecords(public))
    assert same_fits(found, expected)
    with pytest.raises(ValueError, match="X_public must not be X"):
        make().fit(table, "outcome", X_public=table)


@pytest.mark.parametrize("head", ["softmax", "dpsgd"])
def test_a_head_that_needs_records_is_refused_before_the_charge(head, budget):
    model = SCANS["ALMFineTuner-gradient"][0](budget=budget).set_params(head=head)
    with pytest.raises(ValueError, match="needs more than sums"):
        model.fit(TABLE[[*COLUMNS, "outcome"]], "outcome")
    assert len(budget.entries()) == 0


@pytest.mark.parametrize("make", [PrivateAdditiveClassifier, PrivateAdditiveRegressor])
def test_an_additive_model_demands_public_facts_and_a_target(make):
    table = TABLE[[*COLUMNS, "cost"]]
    schema = Schema({name: SCHEMA[name] for name in COLUMNS})
    with pytest.raises(ValueError, match="schema=None"):
        make().fit(table, "cost")
    with pytest.raises(ValueError, match=r"classes=None|target_bounds=None"):
        make(schema=schema).fit(table, "cost")
    full = Schema(schema, classes=[0, 1], target_bounds=(0, 1))
    with pytest.raises(ValueError, match="y=None"):
        make(schema=full).plan(COLUMNS)
    with pytest.raises(ValueError, match=r"does not describe: \['outcome'\]"):
        make(schema=full).fit(TABLE[[*COLUMNS, "cost", "outcome"]], "cost")


@pytest.mark.parametrize("name", [name for name in SCANS if SCANS[name][1] == "outcome"])
def test_records_with_unknown_labels_add_nothing(name):
    """In memory they are refused."""
    make, known = SCANS[name][0], TABLE.index % 5 > 0
    odd = np.resize(["x" * 5_000, None], len(TABLE))
    table = TABLE.assign(outcome=TABLE["outcome"].where(known, odd))
    expected = fit_in_memory(make(noise_seed=1), TABLE[known], name, False)
    assert same_fits(make(noise_seed=1).fit(table[[*COLUMNS, "outcome"]], "outcome"), expected)
