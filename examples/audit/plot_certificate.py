"""
A certificate that a recipient can check
========================================

The recipient of a model has no data to check it with. A certificate is one signed file with
everything that can be checked without data. Tampering with any part of it shows.
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from skprivacy import (
    DPSGDClassifier,
    PrivacyBudget,
    audit,
    make_private_pipeline,
    save_model,
)
from skprivacy.certificates import create_key, issue_certificate, verify_certificate
from skprivacy.preprocessing import BoundedColumn, Schema

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)
data = load_breast_cancer(as_frame=True)
order = np.random.default_rng(0).permutation(len(data.target))
X, X_new = data.data.iloc[order[:400]], data.data.iloc[order[400:]]
names = np.array(["malignant", "benign"])[data.target]
y, y_new = names[order[:400]], names[order[400:]]

# %%
# Train under a budget, audit, save, and sign. The bounds are round numbers.
limits = [40, 45, 260, 2600, 0.2, 0.4, 0.5, 0.25, 0.4, 0.12]  # means
limits += [3, 5, 22, 560, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03]  # standard errors
limits += [45, 55, 300, 4500, 0.3, 1.2, 1.4, 0.3, 0.7, 0.25]  # largest values
schema = Schema(
    {name: BoundedColumn(0, top) for name, top in zip(X.columns, limits, strict=True)},
    target_column="tumour",
    classes=["benign", "malignant"],
)
budget = PrivacyBudget(epsilon=4, delta=1e-4, path=here / "tumours.ledger")
model = make_private_pipeline(schema, DPSGDClassifier(epsilon=2.0, delta=1e-5, budget=budget)).fit(
    X, y
)
report = audit(model, X, y, X_new, y_new, n_shadows=4, random_state=0)
save_model(model, here / "model.safetensors")
create_key(here / "clinic.pem")
issue_certificate(
    model, here / "certificate.json", key=here / "clinic.pem", budget=budget, report=report,
    model_file=here / "model.safetensors", issuer="A clinic",
)  # fmt: skip
print(f"accuracy {model.score(X_new, y_new):.2f}")

# %%
# The recipient has two files and the public key, and no data.
files = {"model_file": here / "model.safetensors", "key": here / "clinic.pem.pub"}
print(verify_certificate(here / "certificate.json", **files))

# %%
# Change the claimed epsilon, the ledger, the audit, the issuer or the model file. The check finds
# and names every change.
signed = json.loads((here / "certificate.json").read_text())


def changed(edit):
    forged = json.loads(json.dumps(signed))
    edit(forged)
    (here / "forged.json").write_text(json.dumps(forged))
    return verify_certificate(here / "forged.json", **files)


def number_in(section, factor):
    """Multiply the first number in a part of a certificate."""
    for name, value in section.items() if isinstance(section, dict) else enumerate(section):
        if isinstance(value, float):
            section[name] = value * factor
            return True
        if isinstance(value, (dict, list)) and number_in(value, factor):
            return True
    return False


found = {
    "untouched": verify_certificate(here / "certificate.json", **files),
    "a smaller epsilon": changed(lambda c: number_in(c["claim"], 0.5)),
    "a number in the ledger": changed(lambda c: number_in(c["ledger"], 0.5)),
    "a better audit": changed(lambda c: number_in(c["audit"], 0.5)),
    "another issuer": changed(lambda c: c["about"].update(issuer="Another clinic")),
}
(here / "model.safetensors").write_bytes((here / "model.safetensors").read_bytes()[:-1] + b"x")
found["another model file"] = verify_certificate(here / "certificate.json", **files)

# %%
checks = list(dict.fromkeys(check.name for result in found.values() for check in result.checks))
checks.remove("the rest")  # shown only after a check that failed
colours = {"holds": "#9fd3b4", "FAILED": "#e08e86", "not checked": "#e6e9ec"}
_, ax = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
for column, result in enumerate(found.values()):
    statuses = {check.name: check.status for check in result.checks}
    for row, name in enumerate(checks):
        status = statuses.get(name, "not checked")
        ax.barh(row, 0.94, left=column - 0.47, height=0.86, color=colours[status])
        ax.text(column, row, status, ha="center", va="center", fontsize=8)
ax.set_yticks(range(len(checks)), checks, fontsize=8)
ax.set_xticks(range(len(found)), [name.replace(" ", "\n", 2) for name in found], fontsize=8)
ax.invert_yaxis()
ax.xaxis.tick_top()
ax.tick_params(length=0)
ax.spines[:].set_visible(False)
plt.show()
assert [result.holds for result in found.values()] == [True] + [False] * 5
folder.cleanup()
