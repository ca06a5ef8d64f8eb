"""
Defences that prove nothing
===========================

Rounding probabilities or showing only the best few looks like protection. An attacker who knows the
defence trains shadow models with the same defence. The records are digits, one in five of which has
a wrong label that the network has memorised.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from skprivacy import DPSGDClassifier
from skprivacy.attacks import LabeledRecords, LiRA, ShadowPool
from skprivacy.defenses import CoarsenedClassifier

warnings.simplefilter("ignore", ConvergenceWarning)
X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
rng = np.random.default_rng(0)
y = np.where(rng.random(len(y)) < 0.2, rng.integers(0, 10, len(y)), y)
half = len(y) // 2
inside, outside = (X[:half], y[:half]), (X[half:], y[half:])
records = LabeledRecords(X, y)  # what attacks classify as members and others
net = MLPClassifier((64,), activation="tanh", alpha=0, max_iter=100, random_state=0)
models = {
    "none": net,
    "temperature 20": CoarsenedClassifier(net, temperature=20),
    "top 3 only": CoarsenedClassifier(net, top_k=3),
    "one decimal": CoarsenedClassifier(net, decimals=1),
    "the label only": CoarsenedClassifier(net, top_k=1),
    "DP-SGD, ε = 8": DPSGDClassifier(epsilon=8, delta=1e-5, classes=np.unique(y), random_state=0),
}

# %%
# An attacker who does not know the defence trains plain shadow models. An attacker who knows it
# trains defended ones.
plain = ShadowPool(net, n_shadows=8, random_state=0).fit(X, y)
rows = {}
for name, model in models.items():
    target = model.fit(*inside)
    alike = ShadowPool(model, n_shadows=8, random_state=0).fit(X, y)
    rows[name] = [target.score(*outside)]
    for pool in (plain, alike):
        attack = LiRA(target, pool=pool, online=True).fit(records)
        rows[name].append(attack.evaluate(records[:half], records[half:]).auc)
    print(f"{name:16} accuracy %.2f, AUC %.2f, shadows alike %.2f" % tuple(rows[name]))

# %%
places = np.arange(len(rows))[::-1]
table = np.array(list(rows.values()))
_, ax = plt.subplots(figsize=(9.5, 4.2), layout="constrained")
ax.hlines(places, table[:, 1], table[:, 2], color="#d5dde3", lw=3)
ax.plot(table[:, 1], places, "o", color="#1b6ca8", label="attacker does not know the defence")
ax.plot(table[:, 2], places, "D", color="#c0392b", label="attacker knows it")
ax.axvline(0.5, linestyle=":", color="#5f6b76", label="guessing")
ax.set_yticks(places, list(rows))
ax.set(xlabel="AUC of the attack")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
plt.show()
