"""Small tables for the tests of synthesis."""

from __future__ import annotations

import numpy as np
import pandas as pd

from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

SCHEMA = Schema(
    {
        "age": BoundedColumn(18, 90),
        "job": CategoricalColumn(["none", "clerk", "nurse", "cook"]),
        "gain": BoundedColumn(0, 1000),
        "city": CategoricalColumn(["a", "b"]),
        "rich": CategoricalColumn(["no", "yes"]),
    }
)


def people(n: int = 4000, seed: int = 0) -> pd.DataFrame:
    """Jobs depend on age, gains on job, and riches on both; cities on nothing."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 91, n)
    job = np.where(age > 65, 0, rng.integers(1, 4, n))
    gain = np.where(rng.uniform(size=n) < 0.7, 0.0, rng.uniform(0, 1000, n) * (job + 1) / 4)
    rich = np.where((gain > 200) | (age > 80), "yes", "no")
    return pd.DataFrame(
        {
            "age": age,
            "job": np.array(SCHEMA["job"].values)[job],
            "gain": gain,
            "city": rng.choice(["a", "b"], n),
            "rich": rich,
        }
    )
