"""
Does an implementation keep its word?
=====================================

``verify_privacy`` needs no data set. It fits an estimator many times, with a record and without
it, on the worst neighbours that it can think of, and attacks the difference.
"""

import matplotlib.pyplot as plt
import numpy as np

from skprivacy.audit import verify_privacy
from skprivacy.preprocessing import PrivateStandardScaler


# %%
# Here is a scaler that forgets the noise of its variance. Its author tested that the mean was
# noisy.
class Careless(PrivateStandardScaler):
    def fit(self, X, y=None):
        super().fit(X)
        self.var_ = X.var(axis=0)
        return self


public = {"bounds": ([0.0], [1.0])}
checked = {
    "PrivateStandardScaler": verify_privacy(
        PrivateStandardScaler(**public), epsilon=3.0, n_runs=300
    ),
    "the careless one": verify_privacy(Careless(**public), epsilon=3.0, n_runs=300),
}
for name, found in checked.items():
    print(f"{name}: {found.verdict}")

# %%
# In so many runs each attack told "the record was there": with the record, and without it. The
# line is the most that the claim allows. One point above it, beyond the luck of the draw, and the
# claim is false. "Held" proves nothing: another attack might do better.
rates = np.linspace(0, 1, 200)
_, ax = plt.subplots(figsize=(5.5, 5.2), layout="constrained")
claim = checked["PrivateStandardScaler"].guarantee
ax.plot(rates, claim.tpr_bound(rates), "--", color="#2e7d32", label="allowed by the claim")
ax.plot(rates, rates, ":", color="#5f6b76", label="guessing")
for (name, found), colour in zip(checked.items(), ("#1b6ca8", "#c0392b"), strict=True):
    ax.plot(
        [c.false / c.n_out for c in found.counts], [c.hits / c.n_in for c in found.counts],
        "o", color=colour, label=name,
    )  # fmt: skip
ax.set(xlabel="told without the record", ylabel="told with the record")
ax.legend(loc="lower right")
plt.show()
