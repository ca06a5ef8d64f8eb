"""
A private regression
====================

Give the schema ``target_bounds`` instead of classes. With only 221 patients, a small epsilon leaves
little of the score.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from skprivacy import FunctionalMechanismRegressor, make_private_pipeline
from skprivacy.preprocessing import BoundedColumn, Schema

data = load_diabetes(as_frame=True, scaled=False)
bounds = {
    "age": (18, 90), "sex": (1, 2), "bmi": (15, 45), "bp": (60, 140), "s1": (90, 320),
    "s2": (40, 250), "s3": (20, 100), "s4": (1, 10), "s5": (3, 7), "s6": (50, 130),
}  # fmt: skip
schema = Schema(
    {name: BoundedColumn(*pair) for name, pair in bounds.items()},
    target_column="progression",
    target_bounds=(0, 350),
)
X, X_new, y, y_new = train_test_split(data.data, data.target, test_size=0.5, random_state=0)

# %%
# Several fits at each epsilon show the spread of the noise. Publishing the best of ten fits would
# cost as much as publishing all ten.
epsilons = (0.3, 1, 3, 10, 30)
scores = {}
for epsilon in epsilons:
    model = make_private_pipeline(schema, FunctionalMechanismRegressor(epsilon=epsilon, delta=1e-5))
    scores[epsilon] = [model.fit(X, y).score(X_new, y_new) for _ in range(20)]
print(model[-1].privacy_)
free = LinearRegression().fit(X, y).score(X_new, y_new)

# %%
# At small epsilons the model predicts the public middle of ``target_bounds``.
_, ax = plt.subplots(figsize=(6.5, 4.2), layout="constrained")
for epsilon, found in scores.items():
    ax.plot(np.full(len(found), epsilon), found, ".", color="#1b6ca8", alpha=0.4)
ax.plot(epsilons, [np.median(s) for s in scores.values()], color="#1b6ca8", label="private, median")
ax.axhline(free, color="#2e7d32", linestyle="--", label="least squares, not private")
ax.axhline(0, color="#5f6b76", linestyle=":", label="the mean of new patients")
ax.set(xscale="log", xlabel="ε (smaller is more private)", ylabel="R² on new patients")
ax.set_xticks(epsilons, [f"{e:g}" for e in epsilons])
ax.legend()
plt.show()
