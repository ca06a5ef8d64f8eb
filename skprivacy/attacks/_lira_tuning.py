"""The floor and the variance of the likelihood ratio attack, chosen by attacking shadow models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from .. import metrics
from . import scores

__all__ = ["FLOORS", "PRIORS", "Setting", "best_setting"]

Float64Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Setting = tuple[float, float]

FLOORS = (1e-12, 1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
PRIORS = (0.0, 4.0, 16.0, math.inf)
USUAL = (0.01, 16.0)
N_ATTACKED = 8
N_RECORDS = 4000
# False positive rates at which found members count: low ones as much as high ones.
RATES = np.geomspace(0.01, 1, 25)


def best_setting(
    shadow: Float64Array,
    trained: Mask,
    floors: Sequence[float],
    priors: Sequence[float],
    compare: Callable[..., Float64Array],
) -> Setting:
    """Return the floor and the prior with which shadow models are attacked best.

    Parameters
    ----------
    shadow : ndarray of shape (n_shadows, n_records)
        Log-odds of the true class, of records that the pool knows.
    trained : bool ndarray of shape (n_shadows, n_records)
    floors, priors : sequence of float
    compare : callable
        ``scores.lira_offline`` or ``scores.lira_online``.

    Notes
    -----
    **Guarantees.** Nothing but the shadow models' predictions for their own training records is
    used.

    **Edge cases.** If no model can be attacked, what is nearest to the usual setting is returned.
    """
    settings = sorted(product(floors, priors), key=_unusual)
    if len(settings) == 1:
        return settings[0]
    rng = np.random.default_rng(0)
    rows = rng.permutation(shadow.shape[1])[:N_RECORDS]
    shadow, trained = shadow[:, rows], trained[:, rows]
    trials = list(_trials(trained))
    found = np.zeros(len(settings))
    for i, (floor, prior) in enumerate(settings):
        values = scores.smoothed(shadow, floor)
        for attacked, others in trials:
            score = compare(values[attacked], values[others], ~trained[others], prior=prior)
            found[i] += _found(score, trained[attacked])
    return settings[int(np.argmax(found))]


def _unusual(setting: Setting) -> float:
    """Return a distance from the usual setting."""
    floor, prior = setting
    return abs(math.log(max(floor, 1e-12) / USUAL[0])) + abs(
        math.atan(prior / USUAL[1]) - math.pi / 4
    )


def _trials(trained: Mask) -> Iterator[tuple[int, list[int]]]:
    """Yield models to attack, each with the models to attack it with.

    The one trained on the other half of the records is left out: its members are exactly those
    that are no members of the attacked one, which no target has beside it.
    """
    for k in range(min(N_ATTACKED, len(trained))):
        others = [j for j in range(len(trained)) if j != k and (trained[j] == trained[k]).any()]
        usable = len(others) > 1 and trained[others].any(axis=0).all()
        if usable and not trained[others].all(axis=0).any() and 0 < trained[k].mean() < 1:
            yield k, others


def _found(score: Float64Array, member: Mask) -> float:
    fpr, tpr, _ = metrics.roc(score[member], score[~member])
    return float(np.interp(RATES, fpr, tpr).mean())
