"""A synthesizer of a table in an engine: the bits of a fit in memory, two scans, one charge."""

import numpy as np
import pytest

from skprivacy.accounting import PrivacyBudget
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
from skprivacy.synthesis import MarginalSynthesizer
from tests.contracts.replay import Pair, compare

from .engines import ENGINES, patients, refused, watch_scans

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
TABLE = patients(1_500)
TABLE["outcome"] = TABLE["outcome"].where(TABLE.index % 11 > 0, None)
SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100, missing=True),
        "dose": BoundedColumn(0, 80),
        "visits": BoundedColumn(0, 9),
        "cost": BoundedColumn(0, 90),
        "outcome": CategoricalColumn(["home", "ward", "died"], missing=True),
    }
)
METHODS = {
    "tree": {},
    "label": {"label": "outcome"},
    "adaptive": {"method": "adaptive", "n_rounds": 2},
    "independent": {"method": "independent"},
}


def make(method, **params):
    return MarginalSynthesizer(2.0, 1e-6, schema=SCHEMA, **METHODS[method], **params)


@pytest.mark.parametrize("grouped", [False, True], ids=["records", "patients"])
@pytest.mark.parametrize("engine", [e for e in ENGINES if e != "pandas"])
@pytest.mark.parametrize("method", METHODS)
def test_every_engine_gives_the_tables_of_a_fit_in_memory(method, engine, grouped, tmp_path):
    groups = {"groups": "patient"} if grouped else {}
    held = TABLE if grouped else TABLE.drop(columns="patient")
    if engine in ("pyarrow", "polars") and not grouped:
        pytest.skip("a table in memory without names of columns is read as an array")
    expected = make(method, noise_seed=1).fit(
        TABLE[list(SCHEMA)], **({"groups": TABLE["patient"]} if grouped else {})
    )
    found = make(method, noise_seed=1).fit(ENGINES[engine](held, tmp_path), **groups)
    assert found.privacy_ == expected.privacy_
    assert found.cliques_ == expected.cliques_
    for one, other in zip(found.measurements_, expected.measurements_, strict=True):
        assert np.array_equal(one.table, other.table)
    one, other = (m.sample(50, random_state=0) for m in (found, expected))
    assert list(one) == [*SCHEMA]
    for name in SCHEMA:
        assert one[name].astype(str).tolist() == other[name].astype(str).tolist()


@pytest.mark.parametrize(("method", "n_scans"), [("tree", 2), ("adaptive", 2), ("independent", 1)])
def test_the_scans_of_a_fit_are_charged_once(method, n_scans, tmp_path, monkeypatch):
    table = ENGINES["dataset"](TABLE.drop(columns="patient"), tmp_path)
    budget = PrivacyBudget(3.0, 1e-4)
    scans = []
    watch_scans(table, monkeypatch, lambda: scans.append(len(budget.entries())))
    make(method, budget=budget).fit(table)
    assert scans == [1] * n_scans


def test_a_schema_is_demanded(tmp_path):
    table = ENGINES["dataset"](TABLE.drop(columns="patient"), tmp_path)
    with pytest.raises(ValueError, match="schema=None"):
        MarginalSynthesizer(2.0, 1e-6).fit(table)


def test_text_in_a_column_of_numbers_is_refused_before_the_charge(tmp_path):
    rows = TABLE.drop(columns="patient").assign(dose=TABLE["outcome"])
    with refused(TypeError, "'dose' holds text; expected numbers") as budget:
        make("tree", budget=budget).fit(ENGINES["dataset"](rows, tmp_path))


@pytest.mark.parametrize("grouped", [False, True], ids=["records", "patients"])
@pytest.mark.parametrize("engine", ["polars-lazy", "duckdb"])
@pytest.mark.parametrize("method", ["tree", "label"])
def test_a_unit_changes_the_releases_by_their_sensitivity_at_most(
    method, engine, grouped, tmp_path
):
    table = TABLE[:60].assign(visits=TABLE["visits"][:60].astype(float))
    row = {"age": np.inf, "dose": 1e300, "visits": 0.0, "cost": 3.0, "outcome": "died"}
    neighbour = table.copy()
    for i in range(3 if grouped else 1):
        neighbour.loc[1_000 + i] = {**row, "patient": 10**6}
    data = []
    for i, rows in enumerate((table, neighbour)):
        (tmp_path / str(i)).mkdir()
        held = rows if grouped else rows.drop(columns="patient")
        groups = ["patient"] if grouped else []
        data.append((ENGINES[engine](held, tmp_path / str(i)), None, *groups))
    reached = compare(make(method), Pair(engine, *data))
    assert 0.3 < max(reached) <= 1.0 + 1e-9
