"""
A public encoder and a private head
===================================

An encoder can learn most about images from public records. Then only a small head is trained on
private records, and only its weights need noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from skprivacy import ALMFineTuner, DPSGDClassifier

X, y = load_digits(return_X_y=True)
X = X / 16
X_public = X[:600]  # without labels
X_private, y_private, X_new, y_new = X[600:1500], y[600:1500], X[1500:], y[1500:]

# %%
# The encoder, here 16 principal components, is fitted to public records. Only the head sees private
# records.
epsilons = (0.1, 0.3, 1, 3)
ways = {
    "public encoder, private head": lambda e: ALMFineTuner(
        PCA(16, random_state=0), epsilon=e, delta=1e-5, classes=range(10)
    ),
    "private network on pixels": lambda e: DPSGDClassifier(
        epsilon=e, delta=1e-5, classes=range(10), random_state=0
    ),
}
found = {}
for name, make in ways.items():
    public = {"X_public": X_public} if name.startswith("public") else {}
    for epsilon in epsilons:
        fits = [make(epsilon).fit(X_private, y_private, **public) for _ in range(3)]
        found[name, epsilon] = [model.score(X_new, y_new) for model in fits]
        if public:
            guarantee = fits[0].privacy_
print(guarantee)

# %%
_, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
for name, colour in zip(ways, ("#1b6ca8", "#c0392b"), strict=True):
    runs = np.array([found[name, e] for e in epsilons])
    ax.errorbar(epsilons, runs.mean(1), runs.std(1), marker="o", color=colour, label=name)
ax.set(xscale="log", xlabel="ε (smaller is more private)", ylabel="accuracy on new digits")
ax.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
ax.legend()
plt.show()
