"""
Private statistics of a table
=============================

Counts, means and quantiles are releases, each with a guarantee. A budget adds up their cost.
"""

import matplotlib.pyplot as plt
import numpy as np

from skprivacy import PrivacyBudget
from skprivacy.preprocessing import private_histogram, private_mean, private_quantile

rng = np.random.default_rng(0)
age = np.clip(rng.normal(46, 17, 2000), 0, 110)

budget = PrivacyBudget(epsilon=1.0)
mean = private_mean(age, bounds=(0, 120), epsilon=0.1, budget=budget)
median = private_quantile(age, 0.5, bounds=(0, 120), epsilon=0.1, budget=budget)
bins = np.arange(0, 121, 10)
counts = private_histogram(age, bins=bins, epsilon=0.2, budget=budget)
print(f"mean {float(mean.value):.1f}, truly {age.mean():.1f};", mean.privacy)
print(f"median {float(median.value):.1f}, truly {np.median(age):.1f};", median.privacy)

# %%
# Each person is in one bin, so the whole histogram costs as much as a single count. A noisy count
# may be negative; rounding and clipping it costs nothing.
true = np.histogram(age, bins)[0]
middle = (bins[:-1] + bins[1:]) / 2
_, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4), layout="constrained")
left.bar(middle, true, width=9, color="#d5dde3", label="true counts")
left.plot(middle, np.maximum(np.round(counts.value), 0), "o", color="#1b6ca8", label="released")
left.set(xlabel="age", ylabel="people", title=f"A histogram, ε = {counts.privacy.epsilon():g}")
left.legend()
errors = {
    e: [
        abs(float(private_mean(age, bounds=(0, 120), epsilon=e).value) - age.mean())
        for _ in range(99)
    ]
    for e in (0.01, 0.03, 0.1, 0.3, 1)
}
right.plot(list(errors), [np.median(found) for found in errors.values()], "o-", color="#1b6ca8")
right.set(xscale="log", yscale="log", xlabel="ε", ylabel="error of the mean in years, median")
right.set_title("What an epsilon buys")
plt.show()

# %%
# The releases so far, and their joint cost. The trials for the right panel were not charged: do not
# run them on real data.
print(budget.entries()[["source", "status", "cost"]].to_string(index=False))
print("together:", round(budget.spent(), 3))
