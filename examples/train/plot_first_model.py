"""
A first private model
=====================

Three steps: write down what is public, train, and read what the guarantee rules out.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from skprivacy import DPSGDClassifier, make_private_pipeline
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

# %%
# Make up a table of patients, in place of yours.
rng = np.random.default_rng(0)
n = 6000
table = pd.DataFrame(
    {
        "age": rng.integers(18, 95, n),
        "sex": rng.choice(["f", "m"], n),
        "income": rng.lognormal(10, 0.7, n).round(),
    }
)
odds = np.exp(0.08 * (table["age"] - 60) + (table["sex"] == "m"))
readmitted = np.where(rng.random(n) < odds / (1 + odds), "yes", "no")

# %%
# Ranges, categories and classes are public. They come from a codebook, not from the table.
schema = Schema(
    {
        "age": BoundedColumn(0, 120),
        "sex": CategoricalColumn(["f", "m"]),
        "income": BoundedColumn(0, 1_000_000, scale="log", knee=10_000),
    },
    target_column="readmitted",
    classes=["no", "yes"],
)
X, X_new, y, y_new = train_test_split(table, readmitted, test_size=0.5, random_state=0)

# %%
# Train. ``privacy_`` is the guarantee with its assumptions.
model = make_private_pipeline(schema, DPSGDClassifier(epsilon=1.0, delta=1e-6)).fit(X, y)
print(f"accuracy on new patients: {model.score(X_new, y_new):.2f}")
guarantee = model[-1].privacy_
print(guarantee)

# %%
# The guarantee limits every attacker. An attacker who wrongly accuses 1% of the people outside the
# data finds at most this share of the people in the data.
fpr = np.geomspace(1e-3, 1, 200)
fig, ax = plt.subplots(figsize=(6, 4.5), layout="constrained")
ax.plot(fpr, guarantee.tpr_bound(fpr), color="#1b6ca8", label="any attack on this model, at most")
ax.plot(fpr, fpr, ":", color="#5f6b76", label="guessing")
ax.plot(0.01, guarantee.tpr_bound(0.01), "D", color="#c0392b")
ax.annotate(
    f"1% accused by mistake:\nat most {100 * float(guarantee.tpr_bound(0.01)):.1f}% found",
    (0.01, float(guarantee.tpr_bound(0.01))), xytext=(0.0015, 0.12),
    arrowprops={"arrowstyle": "-", "color": "#c0392b"},
)  # fmt: skip
ax.set(xscale="log", yscale="log", xlabel="others accused", ylabel="members found")
ax.legend()
plt.show()
