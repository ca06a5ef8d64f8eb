"""
Jayaraman and Evans: a loose accountant costs accuracy
======================================================

Different accountants prove the same epsilon with different amounts of noise. Jayaraman and Evans
(2019) compared their accuracy, and the success of attacks. This is a small version with one model;
``python benchmarks/run.py papers/jayaraman_evans`` makes the whole figure.

B. Jayaraman and D. Evans, "Evaluating differentially private machine learning in practice", USENIX
Security 2019.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import log_loss

from skprivacy import DPSGDClassifier
from skprivacy.accounting import (
    GaussianEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    calibrate_noise_multiplier,
)
from skprivacy.attacks import LabeledRecords, LossThreshold
from skprivacy.datasets import make_membership_benchmark

X, y = make_membership_benchmark(
    "location30", 1600, n_features=150, n_classes=10, random_state=0, return_X_y=True
)
X = np.asarray(X, dtype=np.float32)
records = LabeledRecords(X, y)
inside, outside = records[:800], records[800:]
accountants = {
    "naive": ("adding up", "#7e5109"), "advanced": ("advanced composition", "#6c3483"),
    "zcdp": ("zCDP", "#117a65"), "rdp": ("Rényi", "#c0392b"),
    "pld": ("loss distributions", "#1b6ca8"),
}  # fmt: skip
epsilons = (0.1, 1, 10, 100, 1000)


def trained(**privacy):
    model = DPSGDClassifier(
        batch_size=200, epochs=30, classes=np.unique(y), random_state=0, **privacy
    )
    return model.fit(inside.X, inside.y)


def leakage(model):
    """Yeom's attack: a loss below the mean training loss is called a member's. TPR minus FPR."""
    mean = log_loss(inside.y, model.predict_proba(inside.X), labels=model.classes_)
    attack = LossThreshold(model, training_loss=mean).fit(records)
    return np.mean(attack.predict(inside)) - np.mean(attack.predict(outside))


# %%
# Train 120 steps on batches of a quarter, with the least noise with which each accountant proves
# epsilon.
free = trained(epsilon=np.inf)
found = {}
for name in accountants:
    for epsilon in epsilons:
        noise = calibrate_noise_multiplier(
            lambda z: RepeatedEvent(PoissonSampledEvent(0.25, GaussianEvent(z)), 120),
            epsilon, 1e-5, "zero_out", name,
        )  # fmt: skip
        model = trained(epsilon=None, noise_multiplier=noise)
        accuracy, best = (m.score(outside.X, outside.y) for m in (model, free))
        found[name, epsilon] = 1 - accuracy / best, leakage(model)

# %%
_, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
for name, (label, colour) in accountants.items():
    lines = np.array([found[name, e] for e in epsilons]).T
    for ax, line in zip(axes, lines, strict=True):
        ax.plot(epsilons, line, "o-", color=colour, label=label)
axes[1].axhline(leakage(free), linestyle=":", color="#5f6b76", label="without noise")
for ax, title in zip(axes, ("Loss of accuracy", "Leakage: TPR − FPR"), strict=True):
    ax.set(xscale="log", xlabel="ε that is proved", title=title)
axes[1].legend(fontsize=8)
plt.show()

# %%
# At one epsilon all five models have the same guarantee, which is the best of the five proofs of
# each noise. Models with loose proofs are far more private than their claims, and less accurate.
