"""
Does an implementation keep its claim?
======================================

``verify_privacy`` needs no data set. It fits an estimator many times on neighbouring data sets,
with a record and without it, and tries to distinguish the results.
"""

import matplotlib.pyplot as plt
import numpy as np

from skprivacy.audit import verify_privacy
from skprivacy.preprocessing import PrivateStandardScaler


# %%
# This scaler adds noise to its mean, but not to its variance.
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
# Each point is one attack: the share of runs in which it says "the record is there", without the
# record and with it. The line is the most that the claim allows. A point significantly above the
# line refutes the claim. A verdict without such a point proves nothing: another attack might do
# better.
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
ax.set(xlabel="said without the record", ylabel="said with the record")
ax.legend(loc="lower right")
plt.show()
