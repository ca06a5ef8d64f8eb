"""Constraints of a schema: every synthetic record satisfies them, at no cost, whatever the data."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skprivacy import load_model, save_model
from skprivacy.accounting import PrivacyBudget
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    EqualColumns,
    ImpossibleValues,
    MappedColumn,
    OrderedColumns,
    Schema,
    SummedColumns,
)
from skprivacy.synthesis import (
    DPGANSynthesizer,
    MarginalSynthesizer,
    SyntheticDataClassifier,
    constrained_records,
)
from skprivacy.synthesis.constrained_records import Constraints

METHODS = ["tree", "adaptive", "independent"]


def breaks(rule, row, tolerance):
    """Whether a record breaks a constraint, written once more and differently."""
    values = [row[name] for name in rule.names]
    if any(pd.isna(value) for value in values):
        return False
    if isinstance(rule, EqualColumns):
        return any(
            not math.isclose(value, values[0], rel_tol=tolerance)
            if isinstance(value, float | int)
            else str(value) != str(values[0])
            for value in values[1:]
        )
    if isinstance(rule, OrderedColumns):
        return any(a >= b if rule.strict else a > b for a, b in pairwise(values))
    if isinstance(rule, SummedColumns):
        error = abs(math.fsum(values[:-1]) - values[-1])
        return error > max(tolerance, 1e-11) * max(map(abs, values))
    if isinstance(rule, MappedColumn):
        return dict(rule.values)[values[0]] != values[1]
    for name, of in rule.values:
        if isinstance(row[name], str):
            inside = row[name] in of
        else:
            low, high = of
            inside = (low is None or low <= row[name]) and (high is None or row[name] <= high)
        if not inside:
            return False
    return True


def count_broken(rules, frame, tolerance=1e-6):
    rows = frame.astype(object).to_dict("records")
    return sum(breaks(rule, row, tolerance) for rule in rules for row in rows)


def random_columns(rng):
    """Return numbers and categories, and the types of their columns."""
    columns, types = {}, {}
    for i in range(rng.integers(3, 6)):
        low = float(rng.integers(-20, 20))
        columns[f"n{i}"] = BoundedColumn(low, low + float(rng.integers(5, 60)))
        types[f"n{i}"] = rng.choice(["int64", "float64", "float32", "int8"])
    for i in range(rng.integers(2, 4)):
        columns[f"c{i}"] = CategoricalColumn([f"v{k}" for k in range(rng.integers(2, 6))])
        types[f"c{i}"] = rng.choice(["object", "category"])
    return columns, types


def random_constraint(rng, columns):
    numbers = [n for n in columns if n.startswith("n")]
    words = [n for n in columns if n.startswith("c")]

    def some(names, k):
        return [str(n) for n in rng.choice(names, k, replace=False)]

    kind = rng.integers(6)
    if kind == 0:
        return EqualColumns(some(numbers, 2))
    if kind == 1:
        return EqualColumns(some(words, 2))
    if kind == 2:
        return OrderedColumns(some(numbers, rng.integers(2, 4)), bool(rng.integers(2)))
    if kind == 3:
        *parts, total = some(numbers, 3)
        return SummedColumns(parts, total)
    if kind == 4:
        source, *_ = some(words, 1)
        target, *_ = some([name for name in columns if name != source], 1)
        fact, size = columns[target], len(columns[source].values)
        if isinstance(fact, CategoricalColumn):
            values = rng.choice(fact.values, size)
        else:
            values = rng.integers(fact.lower, fact.upper + 1, size)
        return MappedColumn(source, target, dict(zip(columns[source].values, values, strict=True)))
    chosen = {}
    for name in some(list(columns), rng.integers(1, 4)):
        fact = columns[name]
        if isinstance(fact, CategoricalColumn):
            chosen[name] = some(list(fact.values), rng.integers(1, len(fact.values)))
        else:
            low = float(rng.integers(fact.lower, fact.upper))
            chosen[name] = [(low, low + 5), (None, low), (low, None)][rng.integers(3)]
    return ImpossibleValues(chosen)


def random_table(rng, columns, types, n=150):
    """Return records that break most constraints."""
    drawn = {}
    for name, fact in columns.items():
        if isinstance(fact, CategoricalColumn):
            drawn[name] = pd.Series(rng.choice(fact.values, n)).astype(types[name])
        else:
            drawn[name] = pd.Series(rng.uniform(fact.lower, fact.upper, n).round()).astype(
                types[name]
            )
    return pd.DataFrame(drawn)


@pytest.mark.parametrize("seed", range(24))
def test_every_record_satisfies_random_constraints(seed):
    """Or the constraints are refused before anything is charged."""
    rng = np.random.default_rng(seed)
    columns, types = random_columns(rng)
    rules = [random_constraint(rng, columns) for _ in range(rng.integers(1, 5))]
    schema = Schema(columns, constraints=rules)
    X = random_table(rng, columns, types)
    missing = [name for name in columns if types[name] in ("float64", "object") and rng.integers(2)]
    for name in missing:
        X.loc[rng.integers(0, len(X), 30), name] = None
    budget = PrivacyBudget(1e9, 0.1)
    label = "c0" if rng.integers(2) else None
    model = MarginalSynthesizer(
        rng.choice([0.1, 3.0, 500.0]), 1e-6, schema=schema, label=label, budget=budget, n_rounds=2,
        method=METHODS[seed % 3], columns_with_missing=missing, noise_seed=None, max_bins=6,
    )  # fmt: skip
    refusal = None
    try:
        model.fit(X)
    except ValueError as error:
        refusal = str(error)
    if refusal is not None:
        assert "no record was found that satisfies all" in refusal
        assert not len(budget.entries())
        return
    drawn = model.sample(400, random_state=seed)
    assert count_broken(rules, drawn) == 0
    assert (drawn.dtypes == X.dtypes).all()
    for name, fact in columns.items():
        assert name in missing or not drawn[name].isna().any()
        if isinstance(fact, BoundedColumn):
            assert drawn[name].dropna().between(fact.lower, fact.upper).all()


# A loan, of which every third real record breaks each rule.
LOANS = Schema(
    {
        "amount": BoundedColumn(0, 1000),
        "price": BoundedColumn(0, 1000),
        "paid": BoundedColumn(0, 1000),
        "left": BoundedColumn(0, 1000),
        "age": BoundedColumn(0, 90),
        "state": CategoricalColumn(["child", "single", "married"]),
        "level": BoundedColumn(0, 9),
    },
    target_column="bad",
    classes=["no", "yes"],
)
RULES = [
    OrderedColumns(["amount", "price"]),
    SummedColumns(["paid", "left"], "amount"),
    ImpossibleValues({"age": (None, 15), "state": ["married"]}),
    ImpossibleValues({"age": (16, None), "state": ["child"]}),
    MappedColumn("state", "level", {"child": 0, "single": 1, "married": 2}),
    ImpossibleValues({"state": ["child"], "bad": ["yes"]}),
]


def loans(n=600, seed=0):
    rng = np.random.default_rng(seed)
    price = rng.uniform(10, 990, n)
    amount = np.where(np.arange(n) % 3, price * rng.uniform(size=n), rng.uniform(0, 1000, n))
    paid = amount * rng.uniform(size=n)
    age = rng.integers(0, 91, n)
    state = np.where(age < 16, "child", rng.choice(["single", "married"], n))
    X = pd.DataFrame(
        {
            "amount": amount, "price": price, "paid": paid, "left": amount - paid, "age": age,
            "state": np.where(np.arange(n) % 3, state, "married"), "level": rng.integers(0, 3, n),
        }
    )  # fmt: skip
    return X, pd.Series(np.where(age % 2, "yes", "no"), name="bad")


def loan_synthesizer(constraints=(), **params):
    schema = LOANS.with_constraints(constraints)
    return MarginalSynthesizer(
        **{"epsilon": 2.0, "delta": 1e-6, "noise_seed": 0, **params}, schema=schema
    )


pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")


@pytest.mark.parametrize("method", METHODS)
def test_constraints_change_no_release_and_no_claim(method):
    """Real records that break them are counted as all others."""
    X, y = loans()
    one = loan_synthesizer(method=method, n_rounds=1).fit(X, y)
    other = loan_synthesizer(RULES, method=method, n_rounds=1).fit(X, y)
    assert other.privacy_ == one.privacy_
    assert other.privacy_event_ == one.privacy_event_
    assert other.n_records_ == one.n_records_
    for name, table in one.tables_.items():
        assert np.array_equal(other.tables_[name], table)
    assert count_broken(RULES, one.sample(300, random_state=0)) > 100
    assert count_broken(RULES, other.sample(300, random_state=0)) == 0


@pytest.mark.parametrize("max_cells", [60_000, 1_000])
def test_constraints_hold_with_groups_and_after_saving(max_cells, tmp_path):
    X, y = loans()
    model = loan_synthesizer(RULES, max_cells=max_cells).fit(X, y, groups=np.arange(len(X)) // 2)
    drawn = model.sample(300, random_state=0)
    assert count_broken(RULES, drawn) == 0
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.schema == model.schema
    pd.testing.assert_frame_equal(again.sample(300, random_state=0), drawn)


def test_constraints_hold_for_a_table_in_an_engine():
    polars = pytest.importorskip("polars")
    X, y = loans()
    schema = Schema({**LOANS, "bad": CategoricalColumn(["no", "yes"])}, constraints=RULES)
    table = polars.from_pandas(X.assign(bad=y)).lazy()
    model = MarginalSynthesizer(2.0, 1e-6, schema=schema, label="bad", noise_seed=0).fit(table)
    assert count_broken(RULES, model.sample(300, random_state=0)) == 0


def test_constraints_hold_for_the_records_that_a_classifier_learns_from():
    X, y = loans()
    seen = []

    class Spy(GaussianNB):
        def fit(self, X, y):
            seen.append(X)
            return super().fit(X, y)

    schema = LOANS.with_constraints(RULES)
    numbers = [name for name in LOANS if name != "state"]
    model = SyntheticDataClassifier(
        make_pipeline(FunctionTransformer(lambda rows: rows[numbers]), Spy()),
        MarginalSynthesizer(2.0, 1e-6, schema=schema, noise_seed=0), random_state=0,
    ).fit(X, y)  # fmt: skip
    assert count_broken(RULES[:2], seen[-1]) == 0
    assert count_broken(RULES, model.synthesizer_.sample(300, random_state=0)) == 0


@pytest.mark.heavy
def test_constraints_hold_for_a_generator():
    pytest.importorskip("torch")
    X, y = loans(300)
    model = DPGANSynthesizer(
        2.0, 1e-5, schema=LOANS.with_constraints(RULES), hidden_layer_sizes=(4,), noise_seed=0,
        generator_layer_sizes=(4,), batch_size=20, epochs=1, random_state=0,
    ).fit(X, y)  # fmt: skip
    assert count_broken(RULES, model.sample(300, random_state=0)) == 0


def test_the_model_gives_impossible_bins_no_weight():
    X, y = loans(4000)
    rules = [OrderedColumns(["amount", "price"])]
    model = loan_synthesizer(rules, epsilon=50.0).fit(X, y)
    constraints = Constraints.from_schema(tuple(rules), model.domain_)
    (zeros,) = constraints.structural_zeros(model.bins_)
    weights = model.model_.marginal(zeros.columns, model.model_.beliefs())
    assert zeros.possible.mean() < 0.7
    assert weights[~zeros.possible].sum() == 0
    assert math.isclose(weights.sum(), 1.0)
    small = loan_synthesizer(rules, max_cells=20).fit(X, y)
    assert not small.model_.zeros
    assert count_broken(rules, small.sample(300, random_state=0)) == 0


def test_columns_keep_their_distributions():
    """Dropping the records that break a rule would change them."""
    X, y = loans(6000)
    X["amount"] = X["amount"].where(X["amount"] <= X["price"], X["price"])
    rules = RULES[:1]
    for name in ("amount", "price"):
        drawn = loan_synthesizer(rules, epsilon=50.0).fit(X, y).sample(6000, random_state=0)[name]
        assert ks_2samp(drawn, X[name]).statistic < 0.04


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([EqualColumns(["amount", "rent"])], "names 'rent', which is not a column"),
        ([OrderedColumns(["amount", "state"])], "column 'state' is CategoricalColumn"),
        ([EqualColumns(["amount", "state"])], "column 'state' is CategoricalColumn"),
        ([ImpossibleValues({"state": ["dead"]})], "'dead' is not a category of 'state'"),
        ([ImpossibleValues({"age": [1, 2, 3]})], "Expected a pair"),
        ([MappedColumn("state", "level", {"child": 0})], "'single' has no value"),
        ([MappedColumn("state", "level", {"child": 0, "single": 1, "married": 99})], "value 99"),
        ([SummedColumns(["paid", "left"], "bad")], "column 'bad' is CategoricalColumn"),
        (
            [OrderedColumns(["age", "level"]), ImpossibleValues({"age": (None, 50)})],
            "no record was found that satisfies all",
        ),
        (
            [OrderedColumns(["amount", "price"], True), OrderedColumns(["price", "amount"])],
            "no record was found that satisfies all",
        ),
        ([ImpossibleValues({"state": ["child", "single", "married"]})], "no record was found"),
    ],
)
def test_a_wrong_constraint_is_named_and_nothing_is_charged(rules, said):
    budget = PrivacyBudget(3.0, 1e-5)
    with pytest.raises(ValueError, match=said):
        loan_synthesizer(rules, budget=budget).fit(*loans())
    assert not len(budget.entries())


def test_a_constraint_on_a_target_needs_the_target():
    with pytest.raises(ValueError, match="names 'bad', which is not a column of the records"):
        loan_synthesizer(RULES[-1:]).fit(loans()[0])


def test_balances_and_chains_are_solved():
    """Several equations determine several columns, whichever are named first."""
    names = ["a", "b", "c", "d", "total", "same"]
    columns = {name: BoundedColumn(0, 100) for name in names}
    rules = [
        SummedColumns(["a", "b"], "total"),
        EqualColumns(["total", "same"]),
        SummedColumns(["c", "d"], "same"),
        OrderedColumns(["a", "b", "d"]),
    ]
    X = pd.DataFrame(np.random.default_rng(0).integers(0, 50, (500, 6)), columns=names)
    for kind in ("int64", "float64"):
        model = MarginalSynthesizer(
            5.0, 1e-6, schema=Schema(columns, constraints=rules), noise_seed=0
        ).fit(X.astype(kind))
        drawn = model.sample(500, random_state=0)
        assert count_broken(rules, drawn) == 0
        assert len(drawn.drop_duplicates()) > 200


def test_records_that_cannot_be_repaired_become_a_possible_one(monkeypatch):
    """If no drawn record satisfies the constraints, the possible record of the check is left."""
    monkeypatch.setattr(constrained_records, "_REDRAWS", 0)
    columns = {"a": BoundedColumn(0, 1e6), "b": BoundedColumn(0, 1e6)}
    rules = [ImpossibleValues({"a": (0, 999_999)}), ImpossibleValues({"b": (1, None)})]
    X = pd.DataFrame({"a": np.arange(90.0), "b": np.arange(90.0) + 5})
    model = MarginalSynthesizer(
        1.0, 1e-6, schema=Schema(columns, constraints=rules), max_cells=1, noise_seed=0
    ).fit(X)
    drawn = model.sample(50, random_state=0)
    assert len(drawn) == 50
    assert count_broken(rules, drawn) == 0
