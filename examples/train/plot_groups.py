"""
Protecting groups of rows, such as a person's
=============================================

A patient with twenty visits has twenty records. With ``groups`` a network protects the patient: a
batch is drawn from patients, and the joined gradient of a patient's rows is clipped once. The noise
does not depend on the number of rows that a patient may use. This example compares these numbers.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from skprivacy import DPSGDClassifier, SchemaTransformer
from skprivacy.datasets import make_adult_like

table = make_adult_like(16_000, random_state=0, as_frame=True)
rows = np.asarray(SchemaTransformer(table.schema).fit_transform(table.data))
labels = table.target.to_numpy()
X, y, X_new, y_new = rows[:8000], labels[:8000], rows[8000:], labels[8000:]

# %%
# 2,000 patients have between one and fifty rows, most of them few. In one table a patient's rows
# are any records; in the other they are nearly equal.
rng = np.random.default_rng(0)
sizes = np.arange(1, 51)
own = rng.choice(sizes, size=2000, p=sizes**-1.75 / (sizes**-1.75).sum())
patient = pd.Series(np.repeat(np.arange(2000), own), name="patient")
anything, same = rng.integers(len(X), size=len(patient)), rng.permutation(len(X))[patient]
tables = {
    "rows of a patient differ": (X[anything], y[anything]),
    "rows of a patient are alike": (X[same] + rng.normal(0, 0.1, (len(same), X.shape[1])), y[same]),
}

# %%
# The guarantee names the protected group:
model = DPSGDClassifier(epsilon=1.0, classes=table.classes)
model.fit(*tables["rows of a patient differ"], groups=patient)
print(model.privacy_)

# %%
# The same epsilon, for each number of rows that a patient may use:
most = (1, 2, 5, 10, None)
_, axes = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
for ax, (title, records) in zip(axes, tables.items(), strict=True):
    for how, color in (("mean", "#1b6ca8"), ("sum", "#c0392b")):
        scores = [
            [
                model.set_params(max_group_size=k, max_grad_norm__group_contribution=how)
                .fit(*records, groups=patient)
                .score(X_new, y_new)
                for _ in range(3)
            ]
            for k in most
        ]
        ax.errorbar(
            range(len(most)), np.mean(scores, 1), np.std(scores, 1),
            marker="o", capsize=3, color=color, label=f"{how} of their gradients",
        )  # fmt: skip
    ax.set_xticks(range(len(most)), [str(k or "all") for k in most])
    ax.set(title=title, xlabel="rows that a person may use")
axes[0].set_ylabel("accuracy on new records")
axes[0].legend()
plt.show()
