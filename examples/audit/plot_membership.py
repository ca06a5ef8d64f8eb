"""
The same attack, with privacy and without
=========================================

Two models are trained on the same records, and attacked. One has memorised them. The other was
trained with noise, and its guarantee limits *every* attack, known or not.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from skprivacy import DPSGDClassifier
from skprivacy.attacks import LabeledRecords, LiRA
from skprivacy.display import MembershipRocDisplay

X, y = load_digits(return_X_y=True)
X = X / 16
rng = np.random.default_rng(0)
y = np.where(rng.random(len(y)) < 0.2, rng.integers(0, 10, len(y)), y)  # some labels are wrong
half = len(y) // 2
inside, outside = (X[:half], y[:half]), (X[half:], y[half:])
records = LabeledRecords(X, y)  # what attacks classify as members and others
models = {
    "without privacy": RandomForestClassifier(100, random_state=0),
    "with privacy, ε = 1": DPSGDClassifier(epsilon=1, delta=1e-5, classes=range(10)),
}

# %%
# The attacker trains sixteen shadow models of the same kind, on halves of similar records.
_, ax = plt.subplots(figsize=(6.5, 5.5), layout="constrained")
for (name, model), colour in zip(models.items(), ("#c0392b", "#1b6ca8"), strict=True):
    target = model.fit(*inside)
    attack = LiRA(target, pool=16, online=True, random_state=0).fit(records)
    result = attack.evaluate(records[:half], records[half:])
    print(f"{name}: {100 * result.tpr_at_fpr(0.01).tpr:.0f}% of members found at 1% false alarms")
    MembershipRocDisplay.from_predictions(
        result.scores_in, result.scores_out, ax=ax, color=colour, name=name,
        bound=getattr(target, "privacy_", None),
    )  # fmt: skip
ax.set(xlabel="others accused by mistake", ylabel="members found")
handles, names = ax.get_legend_handles_labels()
once = dict(zip(names, handles, strict=True))  # each display has drawn the line of chance
ax.legend(once.values(), once.keys(), loc="lower right", fontsize=8)
plt.show()
