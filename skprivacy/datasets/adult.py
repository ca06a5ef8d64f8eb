"""Adult data set: the 1994 census extract of the UCI repository, from its original files."""

from __future__ import annotations

from os import PathLike
from typing import Any

import pandas as pd
from sklearn.utils import Bunch

from .._docs import fill_docs
from ..preprocessing import BoundedColumn, CategoricalColumn, Schema
from .files import DATASET_DOCS, PublishedFile, as_bunch

_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
_FILES = {
    "train": PublishedFile(
        "adult",
        "adult.data",
        "sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        _URL + "adult.data",
    ),
    "test": PublishedFile(
        "adult",
        "adult.test",
        "sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        _URL + "adult.test",
    ),
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
    as_frame: bool = False,
    return_X_y: bool = False,
    download_if_missing: bool = True,
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
    data_home : path-like, default=None
        The data folder; the files are in ``<data_home>/adult``. ``None`` means the environment
        variable ``SKPRIVACY_DATA`` or, without it, ``~/skprivacy_data``.
    %(bunch_options)s
    download_if_missing : bool, default=True
        Whether to download missing files from the UCI repository.

    Returns
    -------
    Bunch
        ``data`` (n_samples, 14), ``target`` ("<=50K" or ">50K"), ``frame``, ``feature_names``,
        ``target_names``, ``classes``, ``schema`` (public bounds and categories), ``DESCR``.
        Unknown values are ``"?"``.

    Raises
    ------
    %(dataset_not_found)s

    References
    ----------
    .. [1] B. Becker, R. Kohavi (1996). Adult. UCI Machine Learning Repository.
           https://doi.org/10.24432/C5XW20
    """
    parts = {"train": ["train"], "test": ["test"], "all": ["train", "test"]}
    if not isinstance(subset, str) or subset not in parts:
        raise ValueError(f"subset={subset!r} must be one of {sorted(parts)}.")
    frames = [_read_part(part, data_home, download_if_missing) for part in parts[subset]]
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
