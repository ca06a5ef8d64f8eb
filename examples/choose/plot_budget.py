"""
One budget for everything that is released
==========================================

A ledger on disk records the cost of all fits, in all processes. A fit that would exceed the cap is
refused before the data is read.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score

from skprivacy import DPSGDClassifier, PrivacyBudget
from skprivacy.exceptions import BudgetExceededError

X, y = load_digits(return_X_y=True)
X = X / 16
folder = tempfile.TemporaryDirectory()
budget = PrivacyBudget(epsilon=3, delta=1e-4, path=Path(folder.name) / "digits.ledger")

# %%
# A cross-validation with five folds makes five charges.
model = DPSGDClassifier(
    epsilon=0.5, delta=1e-6, classes=range(10), hidden_layer_sizes=(), epochs=10, budget=budget
)
print(cross_val_score(model, X, y, cv=5).round(2))
print(budget.entries()[["source", "status", "cost"]].to_string(index=False))

# %%
# Fit until a fit is refused. Events are composed, not epsilons, so more than six fits of epsilon
# 0.5 fit under a cap of 3.
spent = [budget.spent()]
try:
    while True:
        model.fit(X, y)
        spent.append(budget.spent())
except BudgetExceededError as error:
    print(str(error)[:300], "...")

# %%
n = np.arange(5, 5 + len(spent))
_, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
ax.step(n, spent, where="post", marker="o", color="#1b6ca8", label="spent, by composing events")
ax.plot(
    np.arange(n[-1] + 1),
    0.5 * np.arange(n[-1] + 1),
    ":",
    color="#5f6b76",
    label="adding up epsilons",
)
ax.axhline(3, color="#c0392b", linestyle="--", label="the cap")
ax.set(xlabel="fits at epsilon 0.5", ylabel="epsilon of all of them", ylim=(0, None))
ax.legend()
plt.show()

# %%
# The last fits were refused although the curve is below the cap. Admission must hold for every
# later decision, so it counts a little more than the cost in the end.
#
# The ledger is a chain of digests. Keep the last digest elsewhere, and a missing line shows.
print(budget.verify())
folder.cleanup()
