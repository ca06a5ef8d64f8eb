"""What an estimator passes to its mechanisms, caught at the door."""

from __future__ import annotations

from unittest import mock

import numpy as np

from skprivacy.mechanisms import Mechanism


def releases(estimator, X, y):
    """Fit, and return the mechanisms and the values that they were given; no noise is added."""
    caught = []

    def release(self, value, random):
        caught.append((self, np.array(value, float)))
        return np.array(value, float)

    with mock.patch.object(Mechanism, "release", release):
        estimator.fit(X, y)
    return caught
