"""
Attacks compared
================

A network has memorised its training digits, one in five of which has a wrong label. How many
members does an attack find, and how many others does it accuse by mistake? Logarithmic axes show
the range that matters: few false accusations.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from skprivacy.attacks import (
    RMIA,
    LabeledRecords,
    LiRA,
    LossThreshold,
    ShadowPool,
    ShokriAttack,
    SignalThreshold,
)
from skprivacy.display import MembershipRocDisplay

warnings.simplefilter("ignore", ConvergenceWarning)
X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
rng = np.random.default_rng(0)
y = np.where(rng.random(len(y)) < 0.2, rng.integers(0, 10, len(y)), y)
half = len(y) // 2
inside, outside = (X[:half], y[:half]), (X[half:], y[half:])
records = LabeledRecords(X, y)  # what attacks classify as members and others
net = MLPClassifier((64,), activation="tanh", alpha=0, max_iter=100, random_state=0)
target = net.fit(*inside)
print(f"accuracy {target.score(*inside):.2f} on members, {target.score(*outside):.2f} on others")

# %%
# Training shadow models is most of the work, so one pool serves all attacks.
pool = ShadowPool(target, n_shadows=16, random_state=0).fit(X, y)
attacks = {
    "correct or not": SignalThreshold(target, signal="correctness"),
    "loss (Yeom)": LossThreshold(target),
    "attack model (Shokri)": ShokriAttack(target, pool=pool),
    "RMIA": RMIA(target, pool=pool, online=True),
    "LiRA": LiRA(target, pool=pool, online=True),
}
_, ax = plt.subplots(figsize=(6.5, 6), layout="constrained")
colours = ("#5f6b76", "#b9770e", "#6c3483", "#1b6ca8", "#c0392b")
for (name, attack), colour in zip(attacks.items(), colours, strict=True):
    result = attack.fit(records).evaluate(records[:half], records[half:])
    MembershipRocDisplay.from_predictions(
        result.scores_in, result.scores_out, ax=ax, color=colour,
        name=f"{name}, AUC {result.auc:.2f}",
    )  # fmt: skip
    print(f"{name:22} {result}")
handles, names = ax.get_legend_handles_labels()
once = dict(zip(names, handles, strict=True))  # each display has drawn the line of chance
ax.legend(once.values(), once.keys(), loc="lower right", fontsize=8)
plt.show()
