"""
When only labels are private
============================

Sometimes features are public and labels are private, such as answers, clicks or diagnoses. A label
guarantee promises less: it does not hide that a person is in the data. In return, any classifier
can learn from the noisy labels.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from skprivacy import DPSGDClassifier, RandomizedResponseClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
X, y, X_new, y_new = X[:1200], y[:1200], X[1200:], y[1200:]

# %%
# Each label is replaced by a random one with a known probability before anything learns from it.
epsilons = (0.5, 1, 2, 4)
ways = {
    "labels are private": lambda e: RandomizedResponseClassifier(
        LogisticRegression(C=0.3, max_iter=100), epsilon=e, classes=range(10)
    ),
    "whole records are private": lambda e: DPSGDClassifier(
        epsilon=e, delta=1e-5, classes=range(10)
    ),
}
found = {
    (name, e): [make(e).fit(X, y).score(X_new, y_new) for _ in range(2)]
    for name, make in ways.items()
    for e in epsilons
}
print(ways["labels are private"](1.0).fit(X, y).privacy_)

# %%
_, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
for name, colour in zip(ways, ("#1b6ca8", "#c0392b"), strict=True):
    runs = np.array([found[name, e] for e in epsilons])
    ax.errorbar(epsilons, runs.mean(1), runs.std(1), marker="o", color=colour, label=name)
free = LogisticRegression(C=0.3, max_iter=100).fit(X, y).score(X_new, y_new)
ax.axhline(free, color="#2e7d32", linestyle="--", label="nothing is private")
ax.set(xscale="log", xlabel="ε", ylabel="accuracy on new digits")
ax.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
ax.minorticks_off()
ax.legend()
plt.show()

# %%
# At a small epsilon nearly every label is random, and DP-SGD is ahead although it promises more. At
# a large epsilon most labels are true. The two epsilons belong to different promises, so compare
# only the accuracies.
