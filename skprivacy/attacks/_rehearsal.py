"""Attacks on shadow models with the other shadow models: what works is known before the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import metrics

__all__ = ["N_RECORDS", "Variant", "best_setting", "found_members", "powers", "trials"]

Float64Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Setting = TypeVar("Setting")

N_ATTACKED = 8
N_RECORDS = 4000
# False positive rates at which found members count: low ones as much as high ones.
RATES = np.geomspace(0.01, 1, 25)


class Variant(NamedTuple):
    """One way to attack: ``compare(view(target), view(shadow), out)`` of log-odds is the score."""

    view: Callable[[Float64Array], Float64Array]
    compare: Callable[[Float64Array, Float64Array, Mask], Float64Array]


def best_setting(
    shadow: Float64Array, trained: Mask, variants: Sequence[tuple[Setting, Variant]]
) -> tuple[Setting, float]:
    """Return the setting with which shadow models are attacked best, and its power.

    **Edge cases.** The first one and 0 if no shadow model can be attacked: a pool of two, or one
    that does not know these records.
    """
    found = powers(shadow, trained, [variant for _, variant in variants])
    best = int(np.argmax(found))
    return variants[best][0], float(found[best])


def powers(shadow: Float64Array, trained: Mask, variants: Sequence[Variant]) -> Float64Array:
    """Return what share of the members of shadow models each variant finds.

    The mean over attacked models and over false positive rates from 1% to 100% on a logarithmic
    scale.

    Parameters
    ----------
    shadow : ndarray of shape (n_shadows, n_records)
        Log-odds of the true class, of records that the pool knows.
    trained : bool ndarray of shape (n_shadows, n_records)
    variants : sequence of Variant

    Returns
    -------
    power : ndarray of shape (n_variants,)
        All 0 if no model can be attacked.

    Notes
    -----
    **Guarantees.** Nothing but the shadow models' predictions for their own training records is
    used. The order of the records is not: members may come first in it.
    """
    order = np.lexsort((*trained, *shadow))
    rows = order[np.random.default_rng(0).permutation(len(order))[:N_RECORDS]]
    shadow, trained = shadow[:, rows], trained[:, rows]
    tried = list(trials(trained))
    found = np.zeros(len(variants))
    for i, (view, compare) in enumerate(variants):
        values = view(shadow)
        for attacked, others in tried:
            score = compare(values[attacked], values[others], ~trained[others])
            found[i] += found_members(score, trained[attacked]) / len(tried)
    return found


def trials(trained: Mask) -> Iterator[tuple[int, list[int]]]:
    """Yield models to attack, each with the models to attack it with.

    The one trained on the other half of the records is left out: its members are exactly those
    that are no members of the attacked one, which no target has beside it.
    """
    for k in range(min(N_ATTACKED, len(trained))):
        others = [j for j in range(len(trained)) if j != k and (trained[j] == trained[k]).any()]
        usable = len(others) > 1 and trained[others].any(axis=0).all()
        if usable and not trained[others].all(axis=0).any() and 0 < trained[k].mean() < 1:
            yield k, others


def found_members(score: Float64Array, member: Mask) -> float:
    """Return the share of members found, the mean over rates from 1% on a logarithmic scale."""
    fpr, tpr, _ = metrics.roc(score[member], score[~member])
    return float(np.interp(RATES, fpr, tpr).mean())
