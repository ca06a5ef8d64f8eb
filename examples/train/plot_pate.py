"""
PATE: teachers vote, a student learns
=====================================

Many classifiers, each trained on one partition of the private records, vote on the labels of public
records. Only the noisy winners are released, and a student learns from them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier

from skprivacy import PATEClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
X_private, y_private = X[:1000], y[:1000]
X_public, X_new, y_new = X[1000:1400], X[1400:], y[1400:]  # public records have no labels

# %%
# Single fits. With more teachers, the noise matters less, but each teacher has fewer records: six
# with 160 teachers.
teachers = (10, 20, 40, 80, 160)
scores = {}
for epsilon in (1.0, 4.0):
    for n in teachers:
        model = PATEClassifier(
            RidgeClassifier(), n_teachers=n, n_queries=40, classes=range(10), epsilon=epsilon,
            delta=1e-5, random_state=0,
        )  # fmt: skip
        scores[epsilon, n] = model.fit(X_private, y_private, X_public=X_public).score(X_new, y_new)
print(model.privacy_)

# %%
_, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for epsilon, colour in ((4.0, "#1b6ca8"), (1.0, "#c0392b")):
    line = [scores[epsilon, n] for n in teachers]
    ax.plot(teachers, line, "o-", color=colour, label=f"ε = {epsilon:g}")
alone = RidgeClassifier().fit(X_private, y_private).score(X_new, y_new)
ax.axhline(alone, color="#2e7d32", linestyle="--", label="one model, not private")
ax.axhline(np.bincount(y_new).max() / len(y_new), color="#5f6b76", linestyle=":", label="majority")
ax.set(xscale="log", xlabel="teachers", ylabel="accuracy of the student", ylim=(0, 1))
ax.set_xticks(teachers, [str(n) for n in teachers])
ax.minorticks_off()
ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %%
# Forty labels cost all of epsilon. The student also learns from the 360 public records without
# labels, by spreading labels among neighbours, which costs nothing.
