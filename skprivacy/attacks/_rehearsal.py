"""Attacks on shadow models with the other shadow models: what works is known before the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import metrics

__all__ = ["N_RECORDS", "Rehearsal", "Variant", "found_members", "trials"]

Float64Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Setting = Any  # hashable

N_ATTACKED = 8
N_RECORDS = 4000
# False positive rates at which found members count: low ones as much as high ones.
RATES = np.geomspace(0.01, 1, 25)


class Variant(NamedTuple):
    """Ways to attack that see log-odds alike, one for each of ``settings``.

    ``compare(view(target), view(shadow), out)`` yields their scores.
    """

    settings: Sequence[Setting]
    view: Callable[[Float64Array], Float64Array]
    compare: Callable[[Float64Array, Float64Array, Mask], Iterable[Float64Array]]


@dataclass(frozen=True)
class Rehearsal:
    """Records on which shadow models are attacked, and who attacks whom.

    Attributes
    ----------
    shadow : ndarray of shape (n_shadows, n_records)
        Log-odds of the true class.
    trained : bool ndarray of shape (n_shadows, n_records)
    trials : tuple
        The models to attack, each with the models to attack it with.

    Notes
    -----
    **Guarantees.** Nothing but the shadow models' predictions for their own training records is
    used. The order of the records is not: members may come first in it.
    """

    shadow: Float64Array
    trained: Mask
    trials: tuple[tuple[int, list[int]], ...]

    @classmethod
    def of(cls, shadow: Float64Array, trained: Mask) -> Rehearsal:
        """Draw some of the records that a pool knows."""
        order = np.lexsort((*trained, *shadow))
        rows = order[np.random.default_rng(0).permutation(len(order))[:N_RECORDS]]
        return cls(shadow[:, rows], trained[:, rows], tuple(trials(trained[:, rows])))

    def powers(self, variants: Iterable[Variant]) -> dict[Setting, float]:
        """Return what share of the members of shadow models each setting finds.

        The mean over attacked models and over false positive rates from 1% to 100% on a logarithmic
        scale.

        **Edge cases.** All 0 if no shadow model can be attacked: a pool of two, or one that does
        not know these records.
        """
        found: dict[Setting, float] = {}
        for settings, view, compare in variants:
            values = view(self.shadow)
            found |= dict.fromkeys(settings, 0.0)
            for attacked, others in self.trials:
                scores = compare(values[attacked], values[others], ~self.trained[others])
                for setting, score in zip(settings, scores, strict=True):
                    found[setting] += found_members(score, self.trained[attacked]) / len(
                        self.trials
                    )
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
