"""Generated tables shaped like well-known data sets, for tests and benchmarks without downloads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from .._docs import fill_docs
from .._validation import check_random_state, whole
from ..preprocessing import BoundedColumn, CategoricalColumn, Schema
from .adult import ADULT_SCHEMA
from .files import DATASET_DOCS, as_bunch


@fill_docs(DATASET_DOCS)
def make_adult_like(
    n_samples: int = 32_561,
    *,
    random_state: Any = None,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Generate a synthetic table in Adult's schema that is about as hard to learn.

    Parameters
    ----------
    n_samples : int, default=32561
        Number of rows.
    random_state : int, RandomState instance or None, default=None
        Seed.
    %(bunch_options)s

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_adult`.

    Examples
    --------
    >>> from skprivacy.datasets import make_adult_like
    >>> table = make_adult_like(1000, random_state=0, as_frame=True)
    >>> table.data.shape
    (1000, 14)
    """
    n, rng = _check_size("n_samples", n_samples), check_random_state(random_state)
    columns: dict[str, Any] = {
        "age": np.clip(rng.gamma(7.5, 5.2, n), 17, 90).astype(int),
        "fnlwgt": np.clip(rng.lognormal(12.05, 0.5, n), 12_000, 1_490_000).astype(int),
        "education-num": np.clip(np.rint(rng.normal(10, 2.6, n)), 1, 16).astype(int),
        "capital-gain": np.where(rng.uniform(size=n) < 0.083, rng.lognormal(8.5, 1, n), 0),
        "capital-loss": np.where(rng.uniform(size=n) < 0.047, rng.normal(1870, 370, n), 0),
        "hours-per-week": np.clip(np.rint(rng.normal(40, 12, n)), 1, 99).astype(int),
    }
    for name, most in (("capital-gain", 99_999), ("capital-loss", 4_356)):
        columns[name] = np.clip(columns[name], 0, most).astype(int)
    for name, fact in ADULT_SCHEMA.items():
        if isinstance(fact, CategoricalColumn):
            weights = 0.6 ** np.arange(len(fact.values))
            values = np.array(fact.values, dtype=object)
            columns[name] = rng.choice(values, n, p=weights / weights.sum())
    columns["occupation"][rng.uniform(size=n) < 0.056] = "?"
    data = pd.DataFrame({name: columns[name] for name in ADULT_SCHEMA})
    logit = (
        -7.9
        + 0.035 * data["age"]
        + 0.42 * (data["education-num"] - 4)
        + 0.035 * data["hours-per-week"]
        + 0.30 * np.log1p(data["capital-gain"])
        + 0.12 * np.log1p(data["capital-loss"])
        + 2.6 * (data["marital-status"] == "Married-civ-spouse")
        - 3.0 * (data["age"] < 25)
    )
    rich = rng.uniform(size=n) < 1 / (1 + np.exp(-1.1 * (logit - 0.2)))
    target = pd.Series(np.where(rich, ">50K", "<=50K"), name="income")
    return as_bunch(
        data,
        target,
        ADULT_SCHEMA,
        description="Generated, in Adult's schema.",
        as_frame=as_frame,
        return_X_y=return_X_y,
    )


@fill_docs(DATASET_DOCS)
def make_purchase_like(
    n_samples: int = 20_000,
    *,
    n_features: int = 600,
    n_classes: int = 100,
    random_state: Any = None,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Generate binary rows shaped like Purchase-100: many classes, dense features.

    Parameters
    ----------
    n_samples : int, default=20000
        Number of rows.
    %(generated_shape)s
    %(bunch_options)s

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_purchase100`.

    Examples
    --------
    >>> from skprivacy.datasets import make_purchase_like
    >>> X, y = make_purchase_like(500, random_state=0, return_X_y=True)
    >>> X.shape, sorted(set(X.ravel().tolist()))
    ((500, 600), [0, 1])
    """
    shape = n_samples, n_features, n_classes
    return _make_binary_classes(
        shape, 0.25, 0.03, random_state, as_frame, return_X_y, "Purchase-100"
    )


@fill_docs(DATASET_DOCS)
def make_texas_like(
    n_samples: int = 10_000,
    *,
    n_features: int = 6_169,
    n_classes: int = 100,
    random_state: Any = None,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Generate binary rows shaped like Texas-100: thousands of features, few of them set.

    Parameters
    ----------
    n_samples : int, default=10000
        Number of rows.
    %(generated_shape)s
    %(bunch_options)s

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_texas100`.
    """
    shape = n_samples, n_features, n_classes
    return _make_binary_classes(shape, 0.03, 0.01, random_state, as_frame, return_X_y, "Texas-100")


@fill_docs(DATASET_DOCS)
def make_location_like(
    n_samples: int = 5_010,
    *,
    n_features: int = 446,
    n_classes: int = 30,
    random_state: Any = None,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Generate binary rows shaped like Location-30: few rows, easy to memorise.

    Parameters
    ----------
    n_samples : int, default=5010
        Number of rows.
    %(generated_shape)s
    %(bunch_options)s

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_location30`.
    """
    shape = n_samples, n_features, n_classes
    return _make_binary_classes(
        shape, 0.12, 0.027, random_state, as_frame, return_X_y, "Location-30"
    )


def _make_binary_classes(
    shape: tuple[int, int, int],
    density: float,
    spread: float,
    random_state: Any,
    as_frame: bool,
    return_X_y: bool,
    name: str,
) -> Bunch | tuple[Any, Any]:
    """Draw each bit with a probability that varies by ``spread`` around its column's, by class."""
    names = ("n_samples", "n_features", "n_classes")
    n, d, k = (_check_size(n, v) for n, v in zip(names, shape, strict=True))
    if k < 2:
        raise ValueError(f"n_classes={k} must be at least 2.")
    rng = check_random_state(random_state)
    common = rng.beta(1, 1 / density - 1, size=d)
    concentration = 1 / spread
    rates = rng.beta(common * concentration + 1e-3, (1 - common) * concentration + 1e-3, (k, d))
    y = rng.randint(k, size=n)
    X = np.empty((n, d), dtype=np.uint8)
    for start in range(0, n, 1000):  # limits the memory that the draws take
        block = slice(start, start + 1000)
        X[block] = rng.random_sample((len(y[block]), d)) < rates[y[block]]
    schema = Schema(
        {f"x{i}": BoundedColumn(0, 1) for i in range(d)},
        target_column="label",
        classes=range(1, k + 1),
    )
    return as_bunch(
        pd.DataFrame(X, columns=list(schema), copy=False),
        pd.Series(y + 1, name="label"),
        schema,
        description=f"Generated, of the shape of {name}.",
        as_frame=as_frame,
        return_X_y=return_X_y,
    )


_MAX_SIZE = 10**8


def _check_size(name: str, value: Any) -> int:
    whole(name, value)
    if value > _MAX_SIZE:
        raise ValueError(
            f"{name}={value!r} must be at most {_MAX_SIZE}: the table is held in memory."
        )
    return int(value)
