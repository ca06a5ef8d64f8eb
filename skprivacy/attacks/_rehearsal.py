"""Self-attack of shadow models: attack each with the others, to choose settings without the target.

Start with :meth:`Rehearsal.powers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import metrics

__all__ = ["N_RECORDS", "Rehearsal", "Variant", "found_members", "iter_self_attacks"]

Float64Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Setting = Any  # hashable

N_ATTACKED = 8
N_RECORDS = 4000
# False positive rates over which the share of found members is averaged. The logarithmic scale
# gives low rates, which matter most in an audit, as much weight as high ones.
RATES = np.geomspace(0.01, 1, 25)


class Variant(NamedTuple):
    """Settings of an attack that share one view of the log-odds.

    ``compare(view(target), view(shadow), out)`` yields the scores of each setting.
    """

    settings: Sequence[Setting]
    view: Callable[[Float64Array], Float64Array]
    compare: Callable[[Float64Array, Float64Array, Mask], Iterable[Float64Array]]


@dataclass(frozen=True)
class Rehearsal:
    """Self-attack of shadow models on records of the pool.

    **Guarantees.** It uses only the shadow models' predictions for the pool's records, and not the
    order of the records, which may begin with the members.
    """

    shadow: Float64Array  # log-odds of the true class, (n_shadows, n_records)
    trained: Mask  # (n_shadows, n_records)
    trials: tuple[tuple[int, list[int]], ...]  # attacked model, and the models that attack it

    @classmethod
    def from_pool(cls, shadow: Float64Array, trained: Mask) -> Rehearsal:
        """Draw a sample of the pool's records."""
        # sorted by content first, so that the sample does not depend on the order of the records
        order = np.lexsort((*trained, *shadow))
        rows = order[np.random.default_rng(0).permutation(len(order))[:N_RECORDS]]
        return cls(shadow[:, rows], trained[:, rows], tuple(iter_self_attacks(trained[:, rows])))

    def powers(self, variants: Iterable[Variant]) -> dict[Setting, float]:
        """Return the mean share of shadow models' members that each setting finds.

        **Edge cases.** All 0 if no shadow model can be attacked: in a pool of two, or for records
        outside the pool.
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


def iter_self_attacks(trained: Mask) -> Iterator[tuple[int, list[int]]]:
    """Yield each model to attack, with the models that attack it.

    The model trained on the complementary half is left out, because its members are exactly the
    non-members of the attacked model. No such model exists for a real target.
    """
    for k in range(min(N_ATTACKED, len(trained))):
        others = [j for j in range(len(trained)) if j != k and (trained[j] == trained[k]).any()]
        usable = len(others) > 1 and trained[others].any(axis=0).all()
        if usable and not trained[others].all(axis=0).any() and 0 < trained[k].mean() < 1:
            yield k, others


def found_members(score: Float64Array, member: Mask) -> float:
    """Return the mean true positive rate over the false positive rates ``RATES``."""
    fpr, tpr, _ = metrics.roc(score[member], score[~member])
    return float(np.interp(RATES, fpr, tpr).mean())
