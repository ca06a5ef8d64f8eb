"""
An audit in one training run
============================

A coin decides for each canary whether it goes into the training data. The audit guesses the coins
from the trained model. The share of right guesses bounds epsilon from below.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from skprivacy import DPSGDClassifier, audit_one_run

X, y = load_digits(return_X_y=True)
X = X / 16

# %%
# Gradient canaries are searched for in the noisy sum of each step, which is all that training
# releases. The final weights follow from these sums, so they reveal no more.
claims = (0.5, 1, 2, 4, 8)
reports = [
    audit_one_run(
        DPSGDClassifier(epsilon=epsilon, delta=1e-5, classes=range(10), epochs=4),
        X, y, canaries="gradient", n_canaries=2000, independent_canaries=True, random_state=0,
    )
    for epsilon in claims
]  # fmt: skip
print(reports[1])

# %%
# The first bound assumes nothing. Each other bound is larger and has more assumptions. All stay
# below the claim.
_, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
ax.plot(claims, claims, "--", color="#2e7d32", label="claimed")
shown = {
    "no assumption": "#1b6ca8",
    "the claimed training but for its noise": "#b9770e",
    "Gaussian, no interference": "#c0392b",
}
for place, (name, colour) in enumerate(shown.items()):
    measured = [report.bounds[place].epsilon for report in reports]
    ax.plot(claims, measured, "o-", color=colour, label=f"measured: {name}")
ax.set(xscale="log", yscale="log", xlabel="claimed epsilon", ylabel="epsilon, at least")
ax.set_xticks(claims, [f"{c:g}" for c in claims])
ax.set_yticks(claims, [f"{c:g}" for c in claims])
ax.minorticks_off()
ax.legend()
plt.show()
