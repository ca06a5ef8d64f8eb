"""
Searching for settings, with a guarantee
========================================

Trying five settings and keeping the best releases five models. ``GridSearchCV`` works, but its
choice has no guarantee. ``PrivateSearchCV`` has a guarantee for the whole search, which costs
little more than one fit: the number of trials is drawn at random and stays secret.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skprivacy import (
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
    PrivateSearchCV,
    SchemaTransformer,
)
from skprivacy.audit import claim_of
from skprivacy.datasets import make_adult_like

table = make_adult_like(8000, random_state=0, as_frame=True)
X, y, X_new, y_new = (
    table.data[:5000], table.target[:5000], table.data[5000:], table.target[5000:],
)  # fmt: skip


def pipeline(**settings):
    head = OutputPerturbationClassifier(
        bounds=(-1, 1), radius=3.7, classes=table.classes, relation="zero_out", **settings
    )
    return make_pipeline(SchemaTransformer(table.schema), head)


grid = {"outputperturbationclassifier__alpha": [0.001, 0.01, 0.1, 1.0, 10.0]}

# %%
# The claim of the usual search, and the joint cost of all its fits:
usual = GridSearchCV(pipeline(epsilon=1.0, delta=1e-6), grid, cv=3).fit(X, y)
claim = claim_of(usual)
print(claim.reason)
print("all of its fits together:", claim.charged)

# %%
# The plan of the private search, before anything is spent, and then the search:
search = PrivateSearchCV(pipeline(), grid, epsilon=2.0, delta=1e-6, n_trials=8)
print(search.plan(X, y))
runs = [search.fit(X, y) and (search.best_params_, search.score(X_new, y_new)) for _ in range(10)]
print(search.privacy_)

# %%
# A search pays only if the default is bad: each trial has less epsilon than a single fit, and fewer
# records. Compare ten searches with single fits at the same total cost:
strengths = grid["outputperturbationclassifier__alpha"]
single = [
    [pipeline(epsilon=2.0, delta=1e-6, alpha=a).fit(X, y).score(X_new, y_new) for _ in range(5)]
    for a in strengths
]
_, ax = plt.subplots(figsize=(7, 4.3), layout="constrained")
ax.errorbar(
    strengths, np.mean(single, 1), np.std(single, 1),
    marker="o", color="#1b6ca8", label="one fit with this setting",
)  # fmt: skip
chosen = [next(iter(best.values())) for best, _ in runs]
ax.plot(
    np.array(chosen) * np.geomspace(0.85, 1.18, 10), [score for _, score in runs],
    "D", color="#c0392b", label="a private search, where it ended",
)  # fmt: skip
other = ObjectivePerturbationClassifier(epsilon=2.0, delta=1e-6, bounds=(-1, 1), radius=3.7,
                                        classes=table.classes, relation="zero_out")  # fmt: skip
better = make_pipeline(SchemaTransformer(table.schema), other).fit(X, y).score(X_new, y_new)
ax.axhline(better, ls="--", color="#2e7d32", label="objective perturbation as it comes, one fit")
ax.set(xscale="log", xlabel="alpha", ylabel="accuracy on new records")
ax.legend()
plt.show()
