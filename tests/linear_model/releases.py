"""Capture of the values that an estimator passes to its mechanisms."""

from unittest import mock

import numpy as np

from skprivacy.mechanisms import Laplace, Mechanism


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


def distances(make, data_sets):
    """Return ||f(D) - f(D')|| / sensitivity of each release, over all data sets.

    All but the last hold a record, or the records of a person, that the last does not.
    """
    values = []
    for data in data_sets:
        estimator = make()
        caught = releases(estimator, *data)
        values.append([value for _, value in caught])
    null, result = values.pop(), []
    for i, (mechanism, _) in enumerate(caught):
        stack = np.array([v[i].ravel() for v in values])
        order = 1 if isinstance(mechanism, Laplace) else 2
        others = stack if estimator.relation == "replace_one" else [null[i].ravel()]
        gaps = [np.linalg.norm(stack - row, ord=order, axis=1).max() for row in others]
        result.append(max(gaps) / mechanism.sensitivity)
    return result
