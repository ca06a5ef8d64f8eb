"""Adult: the 1994 census extract of the UCI repository, and a generated table like it."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from .._docs import fill_docs
from .._validation import check_random_state
from ..preprocessing import BoundedColumn, CategoricalColumn, Schema
from .files import DATASET_DOCS, PublishedFile, as_bunch, check_size, parts_of_subset

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
_FILES = {
    part: PublishedFile("adult", name, f"sha256:{digest}", _URL + name)
    for part, name, digest in (
        ("train", "adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        ("test", "adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    )
}


def _split_categories(names: str) -> CategoricalColumn:
    return CategoricalColumn(tuple(names.split("|")))


# CategoricalColumn follow adult.names. Bounds follow the census codebook and the file's
# documentation: age is top-coded at 90, hours at 99 and capital gains at 99,999.
ADULT_SCHEMA = Schema(
    {
        "age": BoundedColumn(17, 90),
        "workclass": _split_categories(
            "Private|Self-emp-not-inc|Self-emp-inc|Federal-gov|Local-gov|State-gov|"
            "Without-pay|Never-worked"
        ),
        "fnlwgt": BoundedColumn(0, 1_500_000, scale="log"),
        "education": _split_categories(
            "Bachelors|Some-college|11th|HS-grad|Prof-school|Assoc-acdm|Assoc-voc|9th|"
            "7th-8th|12th|Masters|1st-4th|10th|Doctorate|5th-6th|Preschool"
        ),
        "education-num": BoundedColumn(1, 16),
        "marital-status": _split_categories(
            "Married-civ-spouse|Divorced|Never-married|Separated|Widowed|"
            "Married-spouse-absent|Married-AF-spouse"
        ),
        "occupation": _split_categories(
            "Tech-support|Craft-repair|Other-service|Sales|Exec-managerial|Prof-specialty|"
            "Handlers-cleaners|Machine-op-inspct|Adm-clerical|Farming-fishing|"
            "Transport-moving|Priv-house-serv|Protective-serv|Armed-Forces"
        ),
        "relationship": _split_categories(
            "Wife|Own-child|Husband|Not-in-family|Other-relative|Unmarried"
        ),
        "race": _split_categories("White|Asian-Pac-Islander|Amer-Indian-Eskimo|Other|Black"),
        "sex": _split_categories("Female|Male"),
        "capital-gain": BoundedColumn(0, 99_999, scale="log", knee=5_000),
        "capital-loss": BoundedColumn(0, 5_000, scale="log", knee=5_000),
        "hours-per-week": BoundedColumn(1, 99),
        "native-country": _split_categories(
            "United-States|Cambodia|England|Puerto-Rico|Canada|Germany|"
            "Outlying-US(Guam-USVI-etc)|India|Japan|Greece|South|China|Cuba|Iran|Honduras|"
            "Philippines|Italy|Poland|Jamaica|Vietnam|Mexico|Portugal|Ireland|France|"
            "Dominican-Republic|Laos|Ecuador|Taiwan|Haiti|Columbia|Hungary|Guatemala|"
            "Nicaragua|Scotland|Thailand|Yugoslavia|El-Salvador|Trinadad&Tobago|Peru|Hong|"
            "Holand-Netherlands"
        ),
    },
    target_column="income",
    classes=("<=50K", ">50K"),
)


@fill_docs(DATASET_DOCS)
def fetch_adult(
    *,
    subset: str = "train",
    data_home: str | PathLike[str] | None = None,
    download_if_missing: bool = True,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load Adult: census records, and whether a person earns more than 50,000 dollars a year.

    =================   =====================
    Classes                                 2
    Samples, training                  32,561
    Samples, test                      16,281
    Columns              6 numeric, 8 textual
    =================   =====================

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        ``adult.data``, ``adult.test``, or both, in this order.
    %(file_options)s
    %(bunch_options)s

    Returns
    -------
    Bunch
        ``data`` (n_samples, 14), ``target`` ("<=50K" or ">50K"), ``frame``, ``feature_names``,
        ``target_names``, ``classes``, ``schema`` (public bounds and categories), ``DESCR``.
        Unknown values are ``"?"``.

    Raises
    ------
    %(file_errors)s

    References
    ----------
    .. [1] B. Becker, R. Kohavi (1996). Adult. UCI Machine Learning Repository.
           https://doi.org/10.24432/C5XW20
    """
    frames = [_read_part(p, data_home, download_if_missing) for p in parts_of_subset(subset)]
    frame = pd.concat(frames, ignore_index=True)
    return as_bunch(
        frame[list(ADULT_SCHEMA)],
        frame["income"],
        ADULT_SCHEMA,
        description=f"Adult ({subset}), UCI Machine Learning Repository, 1996.",
        as_frame=as_frame,
        return_X_y=return_X_y,
    )


def _read_part(part: str, data_home: Any, download: bool) -> pd.DataFrame:
    path = _FILES[part].path(data_home, download)
    names = [*ADULT_SCHEMA, "income"]
    frame = pd.read_csv(
        path,
        names=names,
        skipinitialspace=True,
        keep_default_na=False,
        skiprows=1 if part == "test" else 0,  # adult.test begins with a comment
    )
    frame["income"] = frame["income"].str.rstrip(".")
    return frame


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
        As returned by :func:`fetch_adult`.

    Examples
    --------
    >>> from skprivacy.datasets import make_adult_like
    >>> table = make_adult_like(1000, random_state=0, as_frame=True)
    >>> table.data.shape
    (1000, 14)
    """
    n, rng = check_size("n_samples", n_samples), check_random_state(random_state)
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
