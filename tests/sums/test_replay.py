"""The replay contract on two engines: a record or a patient moves a release by its sensitivity."""

import numpy as np
import pandas as pd
import pytest

from skprivacy.mechanisms import Mechanism
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    Schema,
    private_group_size,
    private_summary,
)
from tests.contracts.replay import Pair, compare

from .engines import ALL, COLUMNS, ENGINES, arguments, columns_of, patients

N = 40
UNUSUAL = {
    "typical": [50.0, 20.0, 3.0, 40.0, "home"],
    "outlier": [1e3, 1e3, 1e3, 1e3, "died"],
    "huge": [1e300, -1e300, 1e308, 1e300, "ward"],
    "infinite": [np.inf, 20.0, -np.inf, np.inf, "home"],
    "corner": [100.0, 100.0, 100.0, 90.0, "died"],
    "missing target": [50.0, 20.0, 3.0, np.nan, None],
    "unknown label": [50.0, 20.0, 3.0, 4.0, "x" * 5_000],
}
FIELDS = [*COLUMNS, "cost", "outcome"]


def with_records(table, kind, n_records):
    """Return the table with more records of one new patient, spread over it."""
    more = pd.DataFrame([UNUSUAL[kind]] * n_records, columns=FIELDS).assign(patient=10**6)
    pieces = [table[:7], more[:1], table[7:], more[1:]]
    return pd.concat([piece for piece in pieces if len(piece)], ignore_index=True)


def make_pair(name, engine, kind, grouped, folder):
    table = patients(N)
    table["visits"] = table["visits"].astype(float)
    neighbour = with_records(table, kind, 3 if grouped else 1)
    names = arguments(name, grouped)
    data = []
    for i, rows in enumerate((table, neighbour)):
        (folder / f"{kind}{i}").mkdir()
        held = ENGINES[engine](rows[columns_of(name, grouped)], folder / f"{kind}{i}")
        data.append((held, names.get("y"), *([names["groups"]] if grouped else [])))
    return Pair(f"{engine}, {kind}", *data)


@pytest.mark.parametrize("grouped", [False, True], ids=["records", "patients"])
@pytest.mark.parametrize("engine", ["polars-lazy", "duckdb"])
@pytest.mark.parametrize("name", ALL)
def test_a_unit_changes_the_releases_by_their_sensitivity_at_most(name, engine, grouped, tmp_path):
    make = ALL[name][0]
    reached = []
    for kind in UNUSUAL:
        reached += compare(make(), make_pair(name, engine, kind, grouped, tmp_path))
    assert 0.5 < max(reached) <= 1.0 + 1e-9


SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100, bins=4),
        "dose": BoundedColumn(0, 50),
        "outcome": CategoricalColumn(["home", "died"]),
    }
)
STATISTICS = {
    "summary": lambda table: private_summary(
        table, SCHEMA, means=["age", "dose"], marginals=["outcome", ("age", "outcome")],
        groups="patient", epsilon=1.0,
    ),
    "group size": lambda table: private_group_size(
        table.select(["patient"]), max_group_size=5, quantile=0.3, epsilon=1.0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATISTICS)
def test_a_patient_changes_a_statistic_of_a_table_by_its_sensitivity(name, tmp_path, monkeypatch):
    """In the L1 norm for Laplace noise, in each score for a choice."""
    inputs = []
    release = Mechanism.release

    def noted(mechanism, value, random):
        inputs.append((np.array(value), mechanism.sensitivity))
        return release(mechanism, value, random)

    monkeypatch.setattr(Mechanism, "release", noted)
    reached = []
    for kind in UNUSUAL:
        for n_records in (1, 3, 7):
            inputs.clear()
            for rows in (patients(N), with_records(patients(N), kind, n_records)):
                STATISTICS[name](ENGINES["pyarrow"](rows, tmp_path))
            (one, sensitivity), (other, _) = inputs
            moved = np.abs(one - other)
            reached.append((moved.max() if name == "group size" else moved.sum()) / sensitivity)
    assert 0.9 < max(reached) <= 1.0 + 1e-9
