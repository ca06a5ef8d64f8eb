"""Base of membership attacks that compare the target with shadow models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from .._jobs import N_JOBS
from .._sklearn import safe_indexing
from .._validation import Interval, label_columns
from ._answers import choose_answers
from ._modules import as_classifier
from ._predictions import class_list
from ._rehearsal import SelfAttack
from .membership import MembershipAttack
from .shadow import MODELS_DO_NOT_LEARN, PoolLogits, ShadowPool

__all__ = ["PoolRecords", "ShadowAttack"]

View = Callable[[NDArray[np.float64], NDArray[np.intp]], NDArray[np.float64]]


@dataclass(frozen=True)
class PoolRecords:
    """The attacker's records that are in the pool, with their log-odds and membership."""

    X: Any
    y: NDArray[Any]
    rows: NDArray[np.bool_]  # which of the attacker's records, (n_records_of_attacker,)
    prints: NDArray[np.uint64]  # fingerprints, (n_known,)
    shadow: NDArray[np.float64]  # log-odds of the true class, (n_shadows, n_known)
    trained: NDArray[np.bool_]  # (n_shadows, n_known)

    @cached_property
    def self_attack(self) -> SelfAttack:
        """The self-attack of the shadow models on a sample of these records."""
        return SelfAttack.from_pool(self.shadow, self.trained)


class ShadowAttack(MembershipAttack):
    """Base of attacks with parameters ``n_shadows``, ``pool``, ``n_jobs`` and ``random_state``."""

    _needs_classes = False
    # Whether the attack asks the pool only about records given to ``fit`` or scored.
    _asks_given_records_only: ClassVar[bool] = False

    n_shadows: int
    pool: Any
    n_jobs: int | None
    random_state: Any

    _parameter_constraints: dict[str, Any] = {
        **MembershipAttack._parameter_constraints,
        "n_shadows": [Interval(Integral, 2, None, closed="left")],
        "pool": [ShadowPool, None],
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
    }

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        self._fit_pool(X, y)
        if self.classes_ is not None and self.pool_.classes_ is not None:
            self.classes_ = class_list(self.classes_, self.pool_.classes_)

    @property
    def _needs_models(self) -> bool:
        """Whether the attack needs the models, not only their answers about the pool's records."""
        # Read from the class itself: a subclass may ask about other records than its parent.
        sure = vars(type(self)).get("_asks_of_given_records", False)
        return not sure or getattr(self, "augment", None) is not None

    def _fit_pool(self, X: Any, y: NDArray[Any]) -> None:
        if self.pool is None:
            pool = ShadowPool(
                self.target,
                n_shadows=self.n_shadows,
                n_jobs=self.n_jobs,
                random_state=self.random_state,
            )
            self.pool_ = pool.fit(X, y)
        elif hasattr(self.pool, "estimators_"):
            self.pool_ = self.pool
        else:
            self.pool_ = clone(self.pool).fit(X, y)
        if not self.pool_.answers_vary(X):
            raise ValueError(
                f"{type(self).__name__} cannot measure anything. {MODELS_DO_NOT_LEARN}"
            )

    def _learn_population(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> None:
        """Learn from the attacker's records once the settings are chosen; nothing by default."""

    def _select_pool_records(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> PoolRecords:
        rows = shadows.known
        records = X if rows.all() else safe_indexing(X, rows)  # avoids a copy
        logits, trained = shadows.logits[:, rows], shadows.trained[:, rows]
        return PoolRecords(records, y[rows], rows, shadows.prints[rows], logits, trained)

    def _view_shadows(
        self, X: Any, y: NDArray[Any], classes: NDArray[Any], view: View
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.intp]]:
        """Return views of predictions, membership and class, by pair of shadow model and record."""
        trained, known = self.pool_.membership(X)
        if not known.any():
            raise ValueError(
                "X holds no record that the pool was trained on, so no membership in the shadow "
                "models is known. Pass the pool's records to fit."
            )
        label = label_columns(y[known], classes)
        probas = self.pool_.iter_proba(safe_indexing(X, known), classes)
        views = np.concatenate([view(proba, label) for proba in probas])
        return views, trained[:, known].ravel(), np.tile(label, len(trained))

    def _target_logit(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the target's signal on the scale of the pool's log-odds."""
        # Carlini et al. 2022, Algorithm 1, line 14: query the target model
        model = as_classifier(self.target, X)
        signal = choose_answers(model, y).signal(model, X, y, self.classes_)
        return self.pool_.as_log_odds(signal)

    def _check_in_models(self, trained: NDArray[np.bool_], known: NDArray[np.bool_]) -> None:
        """Refuse records without IN models, which online attacks need."""
        if unknown := int(np.sum(~known)):
            raise ValueError(
                f"online=True needs shadow models trained on every scored record, but {unknown} "
                "records are not in the pool. Train the pool on all records to be scored, or use "
                "online=False."
            )
        if unseen := int(np.sum(~trained.any(axis=0))):
            raise ValueError(
                f"online=True needs shadow models trained on every scored record, but no model "
                f"was trained on {unseen} of them. Use online=False."
            )
