"""The likelihood ratio attack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._sklearn import StrOptions
from . import scores
from ._shadowed import ShadowedAttack

__all__ = ["LiRA"]

# With fewer models, one standard deviation for all records is better than one for each
# (Carlini et al.).
PER_EXAMPLE_FROM = 64


class LiRA(ShadowedAttack):
    """Likelihood ratio attack (Carlini et al. 2022).

    Compares the target's log-odds for a record with those of shadow models that were not trained
    on it (offline), or of models that were and models that were not (online).

    Parameters
    ----------
    target : fitted classifier with ``predict_proba``, default=None
        The target model. None makes a template for ``clone`` and ``set_params``.
    n_shadows : int, default=16
        Number of shadow models to train if ``pool`` is None; even.
    online : bool, default=False
        Whether to compare also with models trained on the record. Every scored record must then be
        among those that the pool was trained on.
    variance : {"auto", "global", "per_example"}, default="auto"
        One standard deviation for all records or one for each. "auto" takes one for each record
        from 64 shadow models on.
    augment : callable, default=None
        ``augment(X)`` returns a list of variants of the records, row by row (shifted images,
        records with a little noise; seed the noise). Scores are summed over the records and
        their variants, since members stand out on variants as well.
    pool : ShadowPool, default=None
        Shadow models to use. A fitted pool is used as it is, an unfitted one is cloned and
        trained on the records given to ``fit``. None clones the target.
    n_jobs : int, default=None
        Number of shadow models trained in parallel, if ``pool`` is None.
    random_state : int, RandomState instance or None, default=None
        Seed of the shadow pool, if ``pool`` is None.
    fpr : float, default=0.05
        False positive rate that ``predict`` aims at if ``fit`` is given no ``member``.

    Attributes
    ----------
    pool_ : ShadowPool
        The fitted pool.

    References
    ----------
    N. Carlini, S. Chien, M. Nasr, S. Song, A. Terzis, F. Tramer. Membership inference attacks
    from first principles. IEEE S&P 2022.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from skprivacy.attacks import LiRA
    >>> X, y = make_classification(400, flip_y=0.3, random_state=0)
    >>> target = RandomForestClassifier(10, random_state=0).fit(X[:200], y[:200])
    >>> attack = LiRA(target, n_shadows=4, random_state=0).fit(X, y)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.7
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **ShadowedAttack._parameter_constraints,
        "online": ["boolean"],
        "augment": [callable, None],
        "variance": [StrOptions({"auto", "global", "per_example"})],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        n_shadows: int = 16,
        online: bool = False,
        variance: str = "auto",
        augment: Callable[[Any], list[Any]] | None = None,
        pool: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        self.target = target
        self.n_shadows = n_shadows
        self.online = online
        self.variance = variance
        self.augment = augment
        self.pool = pool
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.fpr = fpr

    def _score(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        out = self.pool_.left_out(X)
        per_example = self.variance == "per_example" or (
            self.variance == "auto" and self.pool_.n_shadows >= PER_EXAMPLE_FROM
        )
        compare = scores.lira_offline
        if self.online:
            self._check_known(X)
            compare = scores.lira_online
        total = np.zeros(len(y))
        for query in [X, *(self.augment(X) if self.augment else [])]:
            target, shadow = self._target_logit(query, y), self.pool_.logits(query, y)
            total += compare(target, shadow, out, per_example=per_example)
        return total
