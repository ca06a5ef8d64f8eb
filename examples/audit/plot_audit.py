"""
A claim held against attacks
============================

Two models claim an epsilon of 1. One keeps its claim. The other adds no noise.
"""

from unittest import mock

import matplotlib.pyplot as plt
import numpy as np

from skprivacy import DPSGDClassifier, audit
from skprivacy.attacks import LossThreshold
from skprivacy.display import MembershipRocDisplay
from skprivacy.mechanisms import FloatGaussian

rng = np.random.default_rng(0)
X, y = rng.normal(size=(2000, 60)), rng.integers(0, 2, 2000)
members, others = slice(0, 1000), slice(1000, 2000)


def train() -> DPSGDClassifier:
    model = DPSGDClassifier(
        epsilon=1.0, delta=1e-5, classes=[0, 1], epochs=200, learning_rate=0.5, random_state=0
    )
    return model.fit(X[members], y[members])


honest = train()
with mock.patch.object(FloatGaussian, "_release", lambda self, value, random: value):
    careless = train()

# %%
# Both make the same claim. The labels are coin tosses, so a model can predict them only by
# memorising them.
_, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
for ax, name, model in zip(axes, ("honest", "careless"), (honest, careless), strict=True):
    report = audit(model, X[members], y[members], X[others], y[others], attacks=[LossThreshold()])
    print(
        f"{name}: claims {model.privacy_}, measured epsilon of at least "
        f"{report.epsilon_lower_bound:.2f}: {report.verdict}"
    )
    MembershipRocDisplay.from_result(report.findings[0].result, ax=ax, bound=report.guarantee)
    ax.set_title(f"{name}: {report.verdict}")
plt.show()

# %%
# ``report.to_html("audit.html")`` writes a report for the data protection officer.
