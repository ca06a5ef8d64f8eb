"""One table in every engine, and estimators that fit to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator

from skprivacy.accounting import PrivacyBudget, PrivacyGuarantee
from skprivacy.additive_model import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.fine_tuning.heads import GradientHead
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
)
from skprivacy.preprocessing import BoundedColumn, PrivateStandardScaler, Schema
from skprivacy.sums import SumTotal
from skprivacy.sums.sources import open_table

# What the guarantee of a fit to a total assumes of it.
OF_TOTALS = (
    "each record is in one part of the total, summed by the plan",
    "skprivacy_group_size holds the size of each group",
)
COLUMNS = ["age", "dose", "visits"]
SECRET = "Frau Kolumbus-73"


def patients(n: int = 2_000, seed: int = 0) -> pd.DataFrame:
    """Return a table with missing, infinite and clipped numbers, and patients of several rows."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": random.normal(50, 30, n),
            "dose": random.exponential(20, n),
            "visits": random.integers(0, 9, n),
            "cost": random.normal(40, 25, n),
            "outcome": random.choice(["home", "ward", "died"], n),
            "patient": random.integers(0, n // 4, n),
        }
    )
    table.loc[::7, "age"] = np.nan
    table.loc[::31, "dose"] = np.inf
    return table


def _duckdb(table: pd.DataFrame, folder: Path) -> Any:
    duckdb = pytest.importorskip("duckdb", reason="relations of DuckDB")
    table.to_parquet(folder / "duckdb.parquet", index=False)
    return duckdb.sql(f"FROM read_parquet('{folder}/duckdb.parquet')")


def _polars(table: pd.DataFrame, folder: Path, lazy: bool = False) -> Any:
    polars = pytest.importorskip("polars", reason="frames of polars")
    frame = polars.from_arrow(pa.Table.from_pandas(table, preserve_index=False))
    return frame.lazy() if lazy else frame


def _dataset(table: pd.DataFrame, folder: Path) -> Any:
    whole = pa.Table.from_pandas(table, preserve_index=False)
    for number, start in enumerate(range(0, len(table), 700)):
        name = folder / f"part-{number}.parquet"
        pq.write_table(whole.slice(start, 700), name, row_group_size=300)
    return ds.dataset(sorted(map(str, folder.glob("part-*.parquet"))))


def _dask(table: pd.DataFrame, folder: Path) -> Any:
    dask = pytest.importorskip("dask.dataframe", reason="frames of Dask")
    return dask.from_pandas(table, npartitions=5, sort=False)


ENGINES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "pandas": lambda table, _: table,
    "pyarrow": lambda table, _: pa.Table.from_pandas(table, preserve_index=False),
    "dataset": _dataset,
    "polars": _polars,
    "polars-lazy": partial(_polars, lazy=True),
    "duckdb": _duckdb,
    "dask": _dask,
}

MODELS: dict[str, tuple[Callable[..., Any], str | None]] = {
    "AdaSSPRegressor": (
        partial(AdaSSPRegressor, bounds=(0, 100), target_bounds=(0, 90)),
        "cost",
    ),
    "FunctionalMechanismRegressor": (
        partial(FunctionalMechanismRegressor, bounds=(0, 100), target_bounds=(0, 90)),
        "cost",
    ),
    "FunctionalMechanismClassifier": (
        partial(FunctionalMechanismClassifier, bounds=(0, 100), classes=["home", "ward", "died"]),
        "outcome",
    ),
    "PrivateStandardScaler": (partial(PrivateStandardScaler, bounds=(0, 100)), None),
}

OUTCOMES = ["home", "ward", "died"]
_FACTS = {
    "age": BoundedColumn(0, 100, missing=True),
    "dose": BoundedColumn(0, 80),
    "visits": BoundedColumn(0, 9),
}
_ENCODER = FrozenEstimator(PCA(2).fit(np.random.default_rng(0).normal(40, 20, (50, 3))))
_tuner = partial(ALMFineTuner, _ENCODER, classes=OUTCOMES)
# Models whose sums depend on earlier releases, or on an encoder; all but two need several scans.
SCANS: dict[str, tuple[Callable[..., Any], str | None]] = {
    "PrivateAdditiveClassifier": (
        partial(
            PrivateAdditiveClassifier, 2.0, schema=Schema(_FACTS, classes=OUTCOMES), n_rounds=3
        ),
        "outcome",
    ),
    "PrivateAdditiveRegressor": (
        partial(
            PrivateAdditiveRegressor, 2.0, schema=Schema(_FACTS, target_bounds=(0, 90)), n_rounds=3
        ),
        "cost",
    ),
    "ALMFineTuner-least-squares": (partial(_tuner, "least_squares"), "outcome"),
    "ALMFineTuner-prototypes": (partial(_tuner, "prototypes"), "outcome"),
    "ALMFineTuner-gradient": (partial(_tuner, GradientHead(n_steps=3)), "outcome"),
}
ALL = MODELS | SCANS


def fit_by_scans(model: Any, plan: Any, parts: dict[str, Any], **public: Any) -> Any:
    """Return the model, fitted to the totals of all its scans of named parts."""
    while plan is not model:
        total = SumTotal(plan)
        for name, rows in parts.items():
            total.add(name, plan.partial(rows))
        plan = model.fit_sums(total, **public)
    return model


def arguments(name: str, grouped: bool) -> dict[str, Any]:
    """Return the names of the target and the groups for ``fit`` on a table."""
    target = ALL[name][1]
    return {
        **({} if target is None else {"y": target}),
        **({"groups": "patient"} if grouped else {}),
    }


def columns_of(name: str, grouped: bool) -> list[str]:
    """Return the columns of the table that a model is fitted to."""
    return [*COLUMNS, *arguments(name, grouped).values()]


def fit_in_memory(model: Any, table: pd.DataFrame, name: str, grouped: bool) -> Any:
    """Fit to arrays, as ever."""
    target = ALL[name][1]
    groups = {"groups": table["patient"]} if grouped else {}
    return model.fit(table[COLUMNS], *([] if target is None else [table[target]]), **groups)


@contextmanager
def refused(error: type[Exception], match: str, charges: int = 0) -> Iterator[PrivacyBudget]:
    """Demand an error that names no value, after as many charges to the budget."""
    budget = PrivacyBudget(5.0, 1e-4)
    with pytest.raises(error, match=match) as refusal:
        yield budget
    assert SECRET not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert len(budget.entries()) == charges


def watch_scans(table: Any, monkeypatch: pytest.MonkeyPatch, before: Callable[[], Any]) -> None:
    """Call ``before`` at the start of each scan of a table."""
    kind = type(open_table(table))
    original = kind.sum_parts

    def sum_parts(self: Any, plan: Any, groups: Any) -> Any:
        before()
        return original(self, plan, groups)

    monkeypatch.setattr(kind, "sum_parts", sum_parts)


def same_fits(one: Any, other: Any) -> bool:
    """Return whether two fits agree to the last bit."""
    names = ("coef_", "intercept_", "mean_", "var_", "weights_", "effects_")
    held = [name for name in names if name in vars(one)]
    assert held
    return claim_of_sums(one) == claim_of_sums(other) and all(
        np.array_equal(a, b)
        for name in held
        for a, b in zip(_numbers(one, name), _numbers(other, name), strict=True)
    )


def claim_of_sums(model: Any) -> PrivacyGuarantee:
    """Return the guarantee of a fit, without what only a fit to a total has to assume."""
    privacy = model.privacy_
    kept = tuple(a for a in privacy.assumptions if a not in OF_TOTALS)
    return replace(privacy, assumptions=kept)


def _numbers(model: Any, name: str) -> list[Any]:
    found = getattr(model, name)
    if name != "effects_":
        return [found]
    return [part for e in found for part in ([*e.columns], e.scores, e.noise_std)]
