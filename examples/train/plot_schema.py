"""
What a schema does to a table
=============================

A model must know ranges before it sees the data. A schema states them, and every value is scaled by
its range. No record influences how another record is transformed, so this costs no privacy.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

schema = Schema(
    {
        "age": BoundedColumn(0, 120),
        "income": BoundedColumn(0, 1_000_000, scale="log", knee=10_000),
        "ward": CategoricalColumn(["A", "B", "C"]),
    }
)
table = pd.DataFrame(
    {"age": [30, 300, None], "income": [0, 1e9, 10_000], "ward": ["B", "C", "unknown"]}
)
features = SchemaTransformer(schema).set_output(transform="pandas").fit_transform(table)
print(features.round(2))

# %%
# An age of 300 is clipped to 120, a missing age becomes the middle, and an unknown ward is zero
# everywhere. There is no warning, because it would reveal that the record is there.
#
# A few incomes are far larger than the rest. On a linear scale nearly all incomes fall into the
# lowest tenth. A logarithmic scale is about linear up to its knee, and logarithmic beyond.
income = np.linspace(0, 300_000, 400)
scales = {
    "linear": BoundedColumn(0, 1_000_000),
    "log, knee 10,000": BoundedColumn(0, 1_000_000, scale="log", knee=10_000),
    "log, knee 1,000": BoundedColumn(0, 1_000_000, scale="log", knee=1_000),
}
people = np.random.default_rng(0).lognormal(10.3, 0.7, 5000)

_, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for (name, column), colour in zip(scales.items(), ("#5f6b76", "#1b6ca8", "#c0392b"), strict=True):
    one = SchemaTransformer(Schema({"income": column})).fit(pd.DataFrame({"income": [0.0]}))
    left.plot(
        income / 1000, one.transform(pd.DataFrame({"income": income})), color=colour, label=name
    )
    right.hist(
        one.transform(pd.DataFrame({"income": people})).ravel(),
        bins=np.linspace(-1, 1, 60), histtype="step", color=colour, label=name,
    )  # fmt: skip
left.set(xlabel="income in thousands", ylabel="feature", title="How a value is moved")
right.set(xlabel="feature", ylabel="people", title="Where people end up")
left.legend(loc="lower right")
plt.show()

# %%
# The schema is a file that colleagues can review.
print(schema.to_json()[:226], "...")
