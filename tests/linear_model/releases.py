"""What an estimator passes to its mechanisms, caught at the door."""

from __future__ import annotations

from unittest import mock

import numpy as np

from skprivacy.mechanisms import Mechanism


def releases(estimator, X, y, groups=None, as_given=False):
    """Fit, and return the mechanisms and the values that they were given; no noise is added.

    With ``as_given`` the mechanism works, and the value is as it came, if it is a tuple of arrays.
    """
    caught = []

    def release(self, value, random):
        caught.append((self, value if as_given else np.array(value, float)))
        return release_(self, value, random) if as_given else np.array(value, float)

    release_ = Mechanism.release

    with mock.patch.object(Mechanism, "release", release):
        estimator.fit(X, y, groups=groups)
    return caught
