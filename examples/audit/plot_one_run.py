"""
An audit in one training run
============================

Canaries go into the training data by the toss of a coin. Whoever can tell from the trained model
how the coins fell has shown what the model gives away, and the share of right guesses bounds
epsilon from below.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from skprivacy import DPSGDClassifier, audit_one_run

X, y = load_digits(return_X_y=True)
X = X / 16

# %%
# Gradient canaries are looked for in the noisy sum of each step, which is all that training
# releases. Nothing that follows from the sums, such as the final weights, can tell more.
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
# The first bound assumes nothing; each of the others is larger and needs more to be true. All must
# stay below the claim, and do.
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
ax.minorticks_off()
ax.legend()
plt.show()
