"""
The same noise, five accountants
================================

An accountant computes epsilon from the description of a release. All five bounds are proved, but
they differ by orders of magnitude. A loose bound asks for more noise than the guarantee needs.
"""

import matplotlib.pyplot as plt
import numpy as np

from skprivacy.accounting import (
    GaussianEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    calibrate_noise_multiplier,
    compare_accountants,
)

steps = np.unique(np.geomspace(1, 10_000, 13).astype(int))
names = {
    "naive": ("adding up", "#7e5109"), "advanced": ("advanced composition", "#6c3483"),
    "zcdp": ("zCDP, without sampling", "#117a65"), "rdp": ("Rényi", "#c0392b"),
    "pld": ("loss distributions", "#1b6ca8"),
}  # fmt: skip
step = PoissonSampledEvent(0.01, GaussianEvent(1.0))
tables = [compare_accountants(RepeatedEvent(step, int(n)), 1e-5) for n in steps]
for name, (label, _) in names.items():
    print(f"{label:25} epsilon {tables[-1][name]['epsilon']:10.2f} after {steps[-1]:,} steps")

# %%
# Batches have one record in a hundred, the noise is one clipping norm, and delta is 1e-5.
_, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
for name, (label, colour) in names.items():
    values = [t[name]["epsilon"] for t in tables]
    ax.plot(steps, values, "o-", markersize=4, color=colour, label=label)
ax.set(xscale="log", yscale="log", xlabel="training steps", ylabel="epsilon")
ax.legend()
plt.show()

# %%
# Conversely, each accountant needs this noise to prove epsilon 1 for 1,000 steps.
for name, (label, _) in names.items():
    noise = calibrate_noise_multiplier(
        lambda z: RepeatedEvent(PoissonSampledEvent(0.01, GaussianEvent(z)), 1000),
        1.0,
        1e-5,
        accountant=name,
    )
    print(f"{label:25} {noise:8.2f}")
