"""
The cost and the benefit of privacy
===================================

A sweep trains the same network at several epsilons. It measures the accuracy on new records, and
how well an attack finds members of the training data. A smaller epsilon is a stronger promise.

The sweep looks at the data it measures on. Its scores are not private; see
:class:`~skprivacy.model_selection.PrivacySweepCV`.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline

from skprivacy import DPSGDClassifier, PrivacySweepCV, SchemaTransformer
from skprivacy.attacks import LiRA
from skprivacy.datasets import load_demo

digits = load_demo()
model = make_pipeline(
    SchemaTransformer(digits.schema, dtype=np.float32),
    DPSGDClassifier(delta=1e-5, classes=digits.classes, random_state=0),
)

# %%
# The attack is a likelihood ratio against shadow models, trained once for each epsilon and shared
# by all splits. Levels without privacy are drawn beside the curve.
sweep = PrivacySweepCV(
    model,
    epsilons=[0.3, 1, 3, 10],
    attack=LiRA(pool=4, random_state=0),
    cv=StratifiedKFold(3, shuffle=True, random_state=0),
).fit(digits.data, digits.target)
sweep.plot()
plt.show()

# %%
# The ceiling limits *every* attack, known or not. The red curve is one attack. The joint cost of
# all these models is:
print(sweep.charged_)
