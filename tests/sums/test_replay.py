"""The replay contract on two engines: a record or a patient moves a release by its sensitivity."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

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
