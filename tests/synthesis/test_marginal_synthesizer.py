"""MarginalSynthesizer from a user's view."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from skprivacy.accounting import PrivacyBudget
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.preprocessing import BoundedColumn, Schema, SchemaTransformer
from skprivacy.synthesis import (
    DPGANSynthesizer,
    Grid,
    MarginalSynthesizer,
    SyntheticDataClassifier,
    marginal_selection,
    synthetic_quality,
)
from skprivacy.synthesis.domain import make_number_cells

from ..contracts.replay import Pair, compare
from .tables import SCHEMA, people

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
METHODS = ["independent", "tree", "adaptive"]
GRIDS = {"gain": Grid(step=20, atoms=[0])}


def fitted(X, method="tree", epsilon=50.0, schema=SCHEMA, **params):
    params = {"grids": GRIDS, "noise_seed": 0, **params}
    return MarginalSynthesizer(epsilon, 1e-6, schema=schema, method=method, **params).fit(X)


FEATURES = Schema({"age": SCHEMA["age"]}, classes=["no", "yes"])


def test_arrays_of_integers_give_integers():
    X = people(300)
    schema = Schema({"age": SCHEMA["age"], "gain": SCHEMA["gain"]}, target_bounds=(0, 5))
    numbers = X[["age", "gain"]].to_numpy()
    whole = MarginalSynthesizer(50.0, 1e-6, schema=schema).fit(
        numbers.astype(np.int16), X["age"].to_numpy() % 5
    )
    drawn = whole.sample(50)
    assert (drawn.dtypes == [np.int16, np.int16, X["age"].dtype]).all()
    assert whole.privacy_.assumptions == ("the types of the columns are public",)
    plain = MarginalSynthesizer(50.0, 1e-6, schema=schema).fit(numbers, numbers[:, 0] % 5)
    assert (plain.sample(50).dtypes == np.float64).all()
    assert plain.privacy_.assumptions == ()


@pytest.mark.parametrize("kind", ["int8", "uint8", "Int8"])
def test_a_schema_may_be_wider_than_a_type(kind):
    X = people(300).assign(gain=(people(300)["gain"] // 20).astype(kind))  # 0 to 50
    drawn = fitted(X, "independent", epsilon=0.5).sample(2000, random_state=0)["gain"]
    assert drawn.dtype == kind
    assert drawn.min() >= 0


def test_a_target_may_be_a_table_of_one_column():
    X = people(300)
    for y in (X[["rich"]], X[["rich"]].to_numpy(), X["rich"].tolist()):
        drawn = MarginalSynthesizer(50.0, 1e-6, schema=FEATURES).fit(X[["age"]], y).sample(9)
        assert list(drawn) == ["age", "rich" if isinstance(y, pd.DataFrame) else "target"]
    with pytest.raises(ValueError, match="1d array"):
        MarginalSynthesizer(50.0, 1e-6, schema=FEATURES).fit(X[["age"]], X[["rich", "job"]])


@pytest.mark.parametrize("place", ["X", "y"])
def test_text_that_cannot_be_written_is_left_out_in_silence(place):
    """An error would print it."""
    X = people(300)
    text = X["rich"].to_numpy(dtype=object)
    text[0] = "\ud800"
    if place == "y":
        synthesizer = MarginalSynthesizer(50.0, 1e-6, schema=FEATURES).fit(X[["age"]], text)
    else:
        schema = Schema({"rich": SCHEMA["rich"], "age": SCHEMA["age"]})
        table = np.array([text, X["age"]], dtype=object).T
        synthesizer = MarginalSynthesizer(50.0, 1e-6, schema=schema).fit(table)
    assert len(synthesizer.sample(10)) == 10


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("method", METHODS)
def test_samples_have_the_columns_types_and_categories_of_the_table(method):
    X = people()
    X["job"] = X["job"].astype("category")
    X["city"] = X["city"].astype("string")
    X["age"] = X["age"].astype(np.int16)
    drawn = fitted(X[["rich", "age", "city", "gain", "job"]], method).sample(500, random_state=0)
    assert list(drawn) == ["rich", "age", "city", "gain", "job"]
    for name in ("rich", "age", "city", "gain"):
        assert drawn[name].dtype == X[name].dtype
    assert list(drawn["job"].cat.categories) == list(SCHEMA["job"].values)
    assert drawn["age"].between(18, 90).all()
    assert drawn["gain"].between(0, 1000).all()
    assert not drawn.isna().any().any()
    assert len(drawn) == 500


@pytest.mark.slow
def test_columns_that_go_together_do_so_in_the_sample():
    X = people()
    found = {}
    for method in METHODS:
        drawn = fitted(X, method).sample(20_000, random_state=0)
        pairs = synthetic_quality(X, drawn, SCHEMA, grids={"age": Grid(cells=5)}).pairs
        pairs = pairs.set_index(["first", "second"])["total_variation"]
        found[method] = pairs["age", "job"], pairs.mean()
    assert found["tree"][0] < 0.1 < 0.15 < found["independent"][0]
    assert found["adaptive"][0] < 0.1
    assert found["adaptive"][1] < found["tree"][1] < found["independent"][1]


@pytest.mark.slow
def test_every_column_is_counted_with_the_label():
    X = people()
    for method in METHODS:
        synthesizer = fitted(X, method, label="rich")
        joint = [clique for clique in synthesizer.cliques_ if len(clique) > 1]
        assert all("rich" in clique for clique in joint)
        assert {name for clique in joint for name in clique} == {*X}
        y = synthesizer.sample(5000, return_X_y=True, random_state=0)[1]
        assert abs((y == "yes").mean() - (X["rich"] == "yes").mean()) < 0.02
    assert synthesizer.label_ == "rich"


def test_few_records_are_counted_by_single_columns_and_the_label():
    """The rule compares the released number of records, times mu, with 1,000."""
    X = people()
    for epsilon, size in ((0.5, 2), (5.0, 3)):
        cliques = fitted(X, epsilon=epsilon, label="rich").cliques_
        assert {len(clique) for clique in cliques if len(clique) > 1} == {size}


@pytest.mark.heavy
def test_a_target_is_one_more_column_and_the_label():
    X, y = people().drop(columns="rich"), people()["rich"]
    columns = {name: SCHEMA[name] for name in X}
    schema = Schema(columns, target_column="rich", classes=["no", "yes"])
    synthesizer = MarginalSynthesizer(50.0, 1e-6, schema=schema).fit(X, y)
    assert synthesizer.label_ == "rich"
    assert list(synthesizer.sample(10)) == [*X, "rich"]
    features, labels = synthesizer.sample(10, return_X_y=True)
    assert list(features) == list(X)
    assert labels.name == "rich"
    numeric = Schema(columns, target_column="size", target_bounds=(0, 2))
    synthesizer = MarginalSynthesizer(50.0, 1e-6, schema=numeric).fit(X, pd.Series(np.ones(4000)))
    assert synthesizer.label_ is None
    features, sizes = synthesizer.sample(10, return_X_y=True)
    assert list(features) == list(X)
    assert sizes.between(0, 2).all()
    assert sizes.name == "size"
    with pytest.raises(ValueError, match="return_X_y=True needs a target"):
        MarginalSynthesizer(50.0, 1e-6, schema=Schema(columns)).fit(X).sample(10, return_X_y=True)


@pytest.mark.heavy
def test_missing_values_stay_missing_where_they_are_declared():
    X = people()
    X.loc[:999, "job"] = "?"
    X["gain"] = X["gain"].mask(X["city"] == "a")
    synthesizer = fitted(X, "adaptive", columns_with_missing=["job", "gain"])
    drawn = synthesizer.sample(4000, random_state=0)
    assert abs(drawn["job"].isna().mean() - 0.25) < 0.02
    assert (drawn["gain"].isna() == (drawn["city"] == "a")).mean() > 0.95
    kept = (X["job"] != "?") & X["gain"].notna()
    alone = fitted(X)
    assert abs(alone.n_records_ - kept.sum()) < 50
    assert not alone.sample(100).isna().any().any()


def test_a_table_without_any_record_that_counts_is_still_a_table():
    X = people(50)
    X["age"] = np.nan
    for method in METHODS:
        drawn = fitted(X, method, epsilon=1.0).sample(10)
        assert len(drawn) == 10


def test_groups_count_as_one_record_each():
    X = people()
    groups = pd.Series(np.arange(len(X)) // 4, name="family")
    synthesizer = MarginalSynthesizer(10.0, 1e-6, schema=SCHEMA).fit(X, groups=groups)
    assert synthesizer.privacy_.unit == "family"
    assert abs(synthesizer.n_records_ - 1000) < 50


@pytest.mark.heavy
def test_a_workload_decides_which_pairs_are_measured():
    X = people()
    synthesizer = fitted(X, "adaptive", workload={("age", "city"): 1.0, ("job", "rich"): 0.0})
    assert [c for c in synthesizer.cliques_ if len(c) == 2] == [("age", "city")]
    forest = {("city", "job"), ("age", "gain")}
    noise = []
    for workload in (None, {("job", "city"): 1.0, ("age", "gain"): 0.1, ("age", "job"): 0.0}):
        tree = fitted(X, workload=workload)
        pairs = {tuple(sorted(c)) for c in tree.cliques_ if len(c) == 2}
        assert pairs == forest if workload else len(pairs) == 4
        noise.append(tree.measurements_[-1].std)
    assert noise[1] < 0.8 * noise[0]  # two tables are counted for the price of four
    triangle = {("age", "job"): 1.0, ("job", "gain"): 1.0, ("age", "gain"): 1.0}
    assert len([c for c in fitted(X, workload=triangle).cliques_ if len(c) == 2]) == 2
    with_label = fitted(X, label="rich", workload={("age", "rich"): 1.0})
    pairs = {clique for clique in with_label.cliques_ if len(clique) == 2}
    assert pairs == {(name, "rich") for name in ("age", "job", "gain", "city")}


@pytest.mark.slow
def test_the_model_stays_within_its_cells():
    small = fitted(people(), "adaptive", max_cells=400)
    assert sum(belief.size for belief in small.model_.beliefs()) <= 400
    large = fitted(people(), "adaptive")
    assert sum(belief.size for belief in large.model_.beliefs()) > 400


def test_samples_are_as_many_as_records_were_counted_and_repeat_by_seed():
    synthesizer = fitted(people())
    assert len(synthesizer.sample()) == synthesizer.n_records_
    assert abs(synthesizer.n_records_ - 4000) < 40
    one, two = (synthesizer.sample(50, random_state=3) for _ in range(2))
    pd.testing.assert_frame_equal(one, two)
    assert not synthesizer.sample(50, random_state=4).equals(one)


def test_arrays_and_a_single_column_work():
    X = people()[["age", "gain"]].to_numpy()
    schema = Schema({"age": SCHEMA["age"], "gain": SCHEMA["gain"]})
    drawn = MarginalSynthesizer(5.0, 1e-6, schema=schema).fit(X).sample(20)
    assert list(drawn) == ["age", "gain"]
    assert (drawn.dtypes == np.float64).all()
    schema = Schema({"city": SCHEMA["city"]})
    for label in (None, "city"):
        synthesizer = MarginalSynthesizer(5.0, 1e-6, schema=schema, label=label)
        assert set(synthesizer.fit(people()[["city"]]).sample(500)["city"]) == {"a", "b"}


def test_without_a_schema_the_leak_is_stated():
    X = people()[["age", "city"]]
    with pytest.warns(PrivacyLeakWarning):
        synthesizer = MarginalSynthesizer(5.0, 1e-6).fit(X)
    assert any("were read off the data" in text for text in synthesizer.privacy_.assumptions)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"label": "age"}, "label='age' must be a column with categories"),
        ({"label": "name"}, "label='name' must be a column with categories"),
        ({"columns_with_missing": ["name"]}, "names 'name', which is not a column"),
        ({"grids": {"job": Grid()}}, "'job' is given Grid"),
        ({"grids": {"age": 5}}, "'age' is given 5"),
        ({"grids": {"gain": Grid(step=1e-3)}}, "expected at most 10000"),
        ({"workload": {("age",): 1.0}}, "not a pair of two columns"),
        ({"workload": {("age", "name"): 1.0}}, "not a pair of two columns"),
        ({"workload": {("age", "job"): -1.0}}, "has the weight -1.0"),
        ({"delta": 0.5}, "delta=0.5"),
        ({"epsilon": 1e-9}, "epsilon"),
        ({"method": "gan"}, "'method' parameter of MarginalSynthesizer"),
    ],
)
def test_a_wrong_parameter_is_named_and_nothing_is_charged(params, said):
    budget = PrivacyBudget(1.0, 1e-6)
    model = MarginalSynthesizer(1.0, 1e-6, schema=SCHEMA, budget=budget).set_params(**params)
    with pytest.raises(ValueError, match=said):
        model.fit(people(50))
    assert budget.spent() == 0


def test_a_wrong_call_is_named():
    X = people(100)
    with pytest.raises(ValueError, match="y is named 'city'"):
        MarginalSynthesizer(schema=SCHEMA).fit(X, X["city"])
    with pytest.raises(ValueError, match="lacks the schema's columns"):
        MarginalSynthesizer(schema=SCHEMA).fit(X.drop(columns="age"))
    model = fitted(X)
    for n in (0, 2.5, True):
        with pytest.raises(ValueError, match="must be an integer of at least 1"):
            model.sample(n)


@pytest.mark.parametrize(
    ("fact", "grid", "whole", "cells"),
    [
        (BoundedColumn(0, 10), Grid(step=5), False, [(0, 5), (5, 10)]),
        (BoundedColumn(0, 10), Grid(step=5, atoms=[0, 7]), False, None),
        (BoundedColumn(0, 10), Grid(step=5), True, [(0, 5), (5, 11)]),
        (BoundedColumn(0, 3), Grid(), True, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (BoundedColumn(0, 9), Grid(step=5, atoms=[0]), True, [(0, 1), (1, 5), (5, 10)]),
        (BoundedColumn(2, 2), Grid(), False, [(2, 2)]),
        (BoundedColumn(0.2, 0.8), Grid(cells=1), True, [(0.2, 0.8)]),
    ],
)
def test_cells_are_those_of_the_grid(fact, grid, whole, cells):
    found = make_number_cells(fact, grid, whole)
    if cells is not None:
        assert list(zip(found.left, found.right, strict=True)) == cells
    values = np.random.default_rng(0).uniform(fact.lower, fact.upper, 500)
    values = np.concatenate([values, [fact.lower, fact.upper], grid.atoms])
    values = np.floor(values) if found.whole else values
    codes = found.codes(pd.Series(values))
    assert codes.min() >= 0
    assert codes.max() < found.size
    for share in (0.0, 0.5, 1 - 2**-53):
        again = found.values(codes, np.full(len(codes), share))
        assert (found.codes(pd.Series(again)) == codes).all()
        assert again.min() >= fact.lower
        assert again.max() <= fact.upper
    for atom in grid.atoms:
        code = found.codes(pd.Series([atom]))
        assert found.values(code, np.array([0.9]))[0] == atom
        assert found.codes(pd.Series([atom + 0.5]))[0] != code[0] or found.whole
    assert found.codes(pd.Series([np.nan, np.inf, -np.inf])).tolist() == [-1, found.size - 1, 0]


@pytest.mark.parametrize(
    "wrong", [{"step": 0}, {"step": np.inf}, {"step": "wide"}, {"cells": 0}, {"atoms": [np.nan]}]
)
def test_a_wrong_grid_is_refused(wrong):
    with pytest.raises(ValueError, match="Grid"):
        Grid(**wrong)


def test_categories_stored_by_pandas_are_dropped():
    X = people()
    X["age"] = X["age"].astype("category")
    X["job"] = X["job"].astype(pd.CategoricalDtype([*SCHEMA["job"].values, "Alice Liddell"]))
    synthesizer = fitted(X)
    assert b"Alice" not in pickle.dumps(synthesizer)
    drawn = synthesizer.sample(500, random_state=0)
    assert list(drawn["job"].cat.categories) == list(SCHEMA["job"].values)
    assert drawn["age"].dtype == np.float64
    assert drawn["age"].between(18, 90).all()


@pytest.mark.parametrize("column", ["age", "job"])
@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, 1j, pd.NaT])
def test_a_record_with_what_is_no_value_is_left_out(column, value):
    """An error would reveal such a record."""
    X = people(200).astype({column: object})
    X.at[0, column] = value
    assert len(fitted(X, "independent").sample(5, random_state=0)) == 5


@pytest.mark.heavy
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("label", "relation"), [("rich", "add_remove"), ("job", "replace_one"), (None, "add_remove")]
)
def test_measurements_are_the_noisy_counts_of_their_columns_with_the_noise_they_state(
    method, label, relation
):
    X = people()
    synthesizer = fitted(
        X,
        method,
        5.0,
        label=label,
        relation=relation,
        columns_with_missing=["job"],
        n_rounds=3,
        noise_seed=None,
    )
    domain, bins = synthesizer.domain_, synthesizer.bins_
    codes, _ = domain.encode([X[name] for name in domain.names])
    n_fine = len(synthesizer.tables_)
    assert len(synthesizer.measurements_) > n_fine or method == "independent"
    for k, measurement in enumerate(synthesizer.measurements_):
        axes = [codes[:, c] if k < n_fine else bins[c][codes[:, c]] for c in measurement.columns]
        counts = np.zeros(measurement.table.shape)
        assert counts.ndim == len(measurement.columns)
        np.add.at(counts, tuple(axes), 1.0)
        noise = (measurement.table - counts).ravel() / measurement.std
        # all of them fail by chance less than once in ten million
        assert chi2.ppf(1e-9, noise.size) < noise @ noise < chi2.isf(1e-9, noise.size)


TABLE = Schema(
    {name: SCHEMA[name] for name in SCHEMA if name != "rich"},
    target_column="rich",
    classes=["no", "yes"],
)
COUNTING = MarginalSynthesizer(
    50.0, 1e-5, schema=TABLE, columns_with_missing=["gain"], relation="zero_out"
)
MODELS = {
    "few": COUNTING,
    "tree": COUNTING,
    "generator": DPGANSynthesizer(
        50.0, 1e-5, schema=TABLE, columns_with_missing=["gain"], hidden_layer_sizes=(4,),
        generator_layer_sizes=(4,), batch_size=20, epochs=1, discriminator_steps=1, random_state=0,
    ),
    "classifier": SyntheticDataClassifier(
        make_pipeline(SchemaTransformer(TABLE), GaussianNB()), COUNTING, random_state=0
    ),
}  # fmt: skip
ODD = ["no such", "12", 10**400, [1, 2], "\ud800", object()]


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("name", MODELS)
def test_a_record_with_an_odd_value_is_one_record(name, monkeypatch):
    X, y = people(60).drop(columns="rich").astype(object), people(60)["rich"]
    null = X.copy()
    null.iloc[0] = None
    if name == "tree":  # as with many records: pairs are chosen, and counted with the label
        monkeypatch.setattr(marginal_selection, "_LEAST_FOR_TRIPLES", 0.0)
    reached = []
    for place, value in enumerate(ODD):
        odd = X.copy()
        column = odd.columns[place % 3]
        values = odd[column].tolist()
        values[0] = value
        odd[column] = pd.Series(values, dtype=object)  # types are public
        always = 0 if name == "generator" else None
        pair = Pair(f"{column}: {value!r}", (odd, y), (null, y), always=always)
        reached += compare(MODELS[name], pair)
    assert max(reached) > 0.5
