"""
Shokri's table: more classes, more leakage
==========================================

Shokri et al. (2017) trained an attack model on the predictions of networks for members and
non-members. Models with more classes leak more. This is a small version on
generated records; ``python benchmarks/run.py papers/shokri`` makes the whole table, with Adult,
MNIST and Location.

R. Shokri, M. Stronati, C. Song and V. Shmatikov, "Membership inference attacks against machine
learning models", IEEE S&P 2017.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from skprivacy.attacks import LabeledRecords, ShokriAttack
from skprivacy.datasets import make_membership_benchmark

warnings.simplefilter("ignore", ConvergenceWarning)
net = MLPClassifier((64,), activation="tanh", alpha=0, max_iter=40, random_state=0)
rows = {}
for n_classes in (2, 5, 10, 20, 50):
    X, y = make_membership_benchmark(
        "purchase100", 2400, n_features=200, n_classes=n_classes, random_state=0, return_X_y=True
    )
    X = np.asarray(X, dtype=np.float32)
    inside, outside = (X[:1200], y[:1200]), (X[1200:], y[1200:])
    target = net.fit(*inside)
    records = LabeledRecords(X, y)
    attack = ShokriAttack(target, pool=4, random_state=0).fit(records)
    precision, _ = attack.evaluate(records[:1200], records[1200:]).precision_recall(0.5)
    rows[n_classes] = target.score(*inside), target.score(*outside), precision
    print(f"{n_classes:3} classes: training %.2f, test %.2f, precision %.2f" % rows[n_classes])

# %%
# Precision is over equally many members and others, so guessing is right in half of the cases.
classes, table = list(rows), np.array(list(rows.values()))
_, ax = plt.subplots(figsize=(6.5, 4.3), layout="constrained")
ax.plot(classes, table[:, 0], "o-", color="#117a65", label="training accuracy")
ax.plot(classes, table[:, 1], "o-", color="#1b6ca8", label="test accuracy")
ax.plot(classes, table[:, 2], "D-", color="#c0392b", label="precision of the attack")
ax.axhline(0.5, linestyle=":", color="#5f6b76", label="guessing")
ax.set(xscale="log", xlabel="classes", ylim=(0, 1.05))
ax.set_xticks(classes, [str(c) for c in classes])
ax.minorticks_off()
ax.legend(loc="lower left")
plt.show()
