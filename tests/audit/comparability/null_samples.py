"""Samples that differ by membership alone, and contracts of the blind baseline on them."""

import numpy as np
import pandas as pd
from scipy.stats import chi2, norm

from skprivacy.audit.comparability import blind_baseline, matched_pairs
from skprivacy.audit.comparability.blind_baseline import SampleUnits
from skprivacy.audit.inspection.member_groups import MemberGroups

RARE = 1e-5  # probability of a false alarm of each check
ROWS_PER_GROUP = 4


def numbers(rng, n):
    return rng.normal(size=(2 * n, 2)), None, None


def few_values(rng, n):
    return rng.integers(0, 2, size=(2 * n, 1)).astype(float), rng.integers(0, 3, 2 * n), None


def one_bit(rng, n):
    return rng.integers(0, 2, size=(2 * n, 1)).astype(float), None, None


def texts(rng, n):
    """Names of records, which differ, and a number to predict."""
    names = np.array([f"name {i}" for i in rng.permutation(2 * n)])
    return pd.DataFrame({"name": names}), rng.normal(size=2 * n), None


def missing_values(rng, n):
    X = rng.normal(size=(2 * n, 2))
    X[rng.random(2 * n) < 0.2, 0] = np.nan
    return pd.DataFrame(X).assign(day=pd.Timestamp("2026-01-01")), rng.normal(size=2 * n), None


def people(rng, n):
    """Groups of equal records: a classifier of records would know half of each group."""
    X = np.repeat(rng.normal(size=(2 * n, 3)), ROWS_PER_GROUP, axis=0)
    codes = np.repeat(np.arange(2 * n), ROWS_PER_GROUP)
    rows = n * ROWS_PER_GROUP
    groups = pd.Series(codes[:rows], name="patient"), pd.Series(codes[rows:], name="patient")
    return X, rng.integers(0, 2, len(X)), groups


KINDS = {f.__name__: f for f in (numbers, few_values, one_bit, texts, missing_values, people)}


def draw_units(kind, rng, n):
    """Return members and non-members that one random draw decides about."""
    X, y, groups = KINDS[kind](rng, n)
    half = len(X) // 2
    pair = (X.iloc[:half], X.iloc[half:]) if hasattr(X, "iloc") else (X[:half], X[half:])
    targets = (None, None) if y is None else (y[:half], y[half:])
    whose = None if groups is None else MemberGroups.from_pair(groups, half, half)
    return SampleUnits.from_records(pair[0], targets[0], pair[1], targets[1], whose)


def check_null_law(kind, runs=40, n=40):
    """The statistic has mean 0 and variance 1 at most, if only membership differs."""
    drawn = [draw_units(kind, np.random.default_rng(seed), n) for seed in range(runs)]
    z = norm.isf([blind_baseline.rank_blindly(units)[1] for units in drawn])
    assert abs(z.mean()) < norm.isf(RARE / 2) / np.sqrt(runs), "the mean is not 0"
    assert (z**2).sum() < chi2.isf(RARE, runs), "the variance is above 1"


def check_numbers():
    check_null_law("numbers")


def check_few_values():
    check_null_law("few_values")


def check_one_bit():
    check_null_law("one_bit", runs=200)


def check_texts():
    check_null_law("texts", runs=15)


def check_people():
    check_null_law("people", runs=15)


def check_labels():
    """Labels of one law give p-values whose mean is that of a uniform law."""
    drawn = [draw_units("few_values", np.random.default_rng(seed), 60) for seed in range(200)]
    p = np.array([blind_baseline.compare_labels(units) for units in drawn])
    # Of 200 uniform numbers, the mean deviates by .092 with probability 1e-5.
    assert abs(p.mean() - 0.5) < 0.092 + 0.02  # 0.02: the three counts take few values


def check_pairs():
    """Pairs have equal labels and similar log odds, and no unit has two partners."""
    units = draw_units("few_values", np.random.default_rng(0), 300)
    odds = np.random.default_rng(1).normal(size=600) + units.is_member
    inside, outside = np.arange(300), np.arange(300)
    first, second = matched_pairs.pair_units(units, odds, inside, outside)
    assert len(first) > 100
    assert len(set(first)) == len(set(second)) == len(first)
    assert (units.labels[first] == units.labels[300 + second]).all()
    assert (np.abs(odds[first] - odds[300 + second]) <= 0.2 * odds.std()).all()
