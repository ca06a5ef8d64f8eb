"""Identifiers are recognised by the structure of their values, and measurements are not."""

import numpy as np
import pandas as pd
import pytest

from skprivacy.preprocessing.inferred_facts import identifier_evidence

N = 3000
RNG = np.random.default_rng(0)
PEOPLE = RNG.choice(np.arange(10**6, 10**7), 700, replace=False)
WHO = RNG.integers(0, 700, N)
STRONG = {
    "serial numbers": np.arange(N),
    "random numbers": RNG.choice(900_000, N, replace=False) + 100_000,
    "numbers with gaps in a float column": np.append(np.arange(N - 1.0), np.nan),
    "long numbers of people": PEOPLE[WHO],
    "numbers by year": RNG.integers(2015, 2021, N) * 10**6 + RNG.integers(0, 900, N),
    "blocks of rows": np.repeat(PEOPLE[:600], 5),
    "codes": [f"{value:x}" for value in RNG.integers(0, 2**60, N)],
    "social security numbers": [
        f"{n // 10**6}-{n // 10**4 % 100:02}-{n % 10**4:04}" for n in RNG.integers(10**8, 10**9, N)
    ],
    "numbers beyond the floats": [10**400 + i for i in range(60)],
    "blocks of codes": np.repeat([f"P{value}" for value in PEOPLE[:600]], 5),
}
WEAK = {
    "codes of people or places": [f"P{value:05}" for value in WHO],
    "numbers of a few people": np.repeat(np.arange(1, 61), 50),
    "whole incomes": np.exp(RNG.normal(10, 1, N)).round(),
    "sorted ages": np.sort(RNG.integers(18, 90, N)),
    "minutes of a day": RNG.integers(0, 1440, N),
}
for kind in ("Int64", "int64[pyarrow]", "category", object, pd.SparseDtype(np.int64)):
    STRONG[f"numbers of people as {kind}"] = pd.Series(PEOPLE[np.sort(WHO)], dtype=kind)
STRONG["nullable numbers with a gap"] = pd.Series([*PEOPLE[WHO], None], dtype="Int64")
STRONG["codes as category"] = pd.Series(STRONG["codes"], dtype="category")
STRONG["codes in Arrow"] = pd.Series(STRONG["codes"], dtype="string[pyarrow]")
NONE = {
    "ages": RNG.integers(18, 90, N),
    "ages of few people": RNG.permutation(np.arange(18, 63)),
    "pressures": RNG.normal(120, 15, N).round(),
    "rounded incomes": np.exp(RNG.normal(10, 1, N)).round(-3),
    "counts": RNG.poisson(3, N),
    "mostly zero": np.where(RNG.random(N) < 0.9, 0, RNG.integers(0, 99_999, N)),
    "years": RNG.integers(1950, 2020, N),
    "fractions": RNG.random(N),
    "fractions as text": [f"{value:.3f}" for value in RNG.random(N)],
    "truth values": RNG.random(N) > 0.5,
    "words": RNG.choice(["A", "B", "C"], N),
    "dates": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(N), "D"),
    "dates as text": [f"{day}.{month}.2020" for day in range(1, 29) for month in range(1, 13)],
    "times as text": [
        f"2020-01-{day:02}T{hour:02}:00" for day in range(1, 29) for hour in range(24)
    ],
    "nothing": [None] * 30,
    "lists": [[1], [2]] * 30,
    "durations": pd.to_timedelta(np.arange(N), "D"),
    "complex numbers": np.arange(N) * 1j,
    "infinities": [np.inf, -np.inf, np.nan] * 30,
    "objects": [object() for _ in range(60)],
}


@pytest.mark.parametrize("values", STRONG.values(), ids=STRONG)
def test_identifiers(values):
    assert identifier_evidence(pd.Series(values)).is_strong


@pytest.mark.parametrize("values", WEAK.values(), ids=WEAK)
def test_columns_that_may_be_identifiers_are_asked_about(values):
    assert not identifier_evidence(pd.Series(values)).is_strong


@pytest.mark.parametrize("values", NONE.values(), ids=NONE)
def test_other_columns(values):
    assert identifier_evidence(pd.Series(values)) is None


def test_the_words_name_no_value():
    evidence = identifier_evidence(pd.Series(PEOPLE[WHO]))
    n = len(set(WHO))
    assert evidence.words == f"{n} different values with {N / n:.1f} rows each on average"
    assert evidence.has_several_rows
    assert not identifier_evidence(pd.Series(np.arange(N))).has_several_rows
