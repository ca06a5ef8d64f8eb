"""
Rank groups by exposure
=======================

An average hides exposed groups. In this made-up clinic, one ward treats few patients whose outcome
follows no rule, so a model can only memorise them.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from skprivacy import audit

rng = np.random.default_rng(0)
n = 3000
table = pd.DataFrame({"age": rng.integers(18, 95, n), "pressure": rng.normal(130, 20, n).round()})
table["ward"] = rng.choice(["surgery", "heart", "rare diseases"], n, p=[0.5, 0.4, 0.1])
outcome = np.array(table["age"] + table["pressure"] > 185)
rare = (table["ward"] == "rare diseases").to_numpy()
outcome[rare] = rng.random(rare.sum()) < 0.5
half = n // 2
encode = make_column_transformer((OneHotEncoder(), ["ward"]), remainder="passthrough")
model = make_pipeline(encode, RandomForestClassifier(random_state=0)).fit(
    table[:half], outcome[:half]
)

# %%
# ``subgroups`` names a column. All groups share the error probability, so no group is called
# exposed only because many were tested.
report = audit(
    model, table[:half], outcome[:half], table[half:], outcome[half:],
    subgroups="ward", n_shadows=8, random_state=0,
)  # fmt: skip
best = max((finding.result for finding in report.findings), key=lambda r: r.auc)
groups = best.by_group(table["ward"][:half], table["ward"][half:])
print(groups[["n_in", "auc", "auc_low", "auc_high", "tpr_at_0.01", "exposed"]].round(2))

# %%
_, ax = plt.subplots(figsize=(8.5, 3), layout="constrained")
places = np.arange(len(groups))
gaps = [groups["auc"] - groups["auc_low"], groups["auc_high"] - groups["auc"]]
ax.errorbar(groups["auc"], places, xerr=gaps, fmt="D", color="#c0392b")
ax.axvline(0.5, ls=":", color="#5f6b76", label="guessing")
ax.axvline(best.auc, ls="--", color="#1b6ca8", label="all patients together")
ax.set_yticks(places, groups.index)
ax.set(xlabel=f"AUC of the attack ({best.attack})", ylim=(-0.6, len(groups) - 0.4))
ax.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
plt.show()
