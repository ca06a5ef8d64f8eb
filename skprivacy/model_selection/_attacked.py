"""One model of a sweep: fitted, scored and attacked."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from .._sklearn import safe_indexing
from ..attacks import AttackResult, LabelInferenceAttack, LossThreshold, MembershipAttack
from ..audit import claim_of
from ..audit._ceiling import auc_ceiling
from ..audit._private import holds_private_labels
from ..audit.labels import NOT_MEMBERSHIP, guessed_labels, label_attack, protects_labels

__all__ = ["Split", "attacked", "checked_attack", "fit_and_attack", "scored"]

FPR = 0.01


def checked_attack(attack: Any, models: Iterable[Any]) -> MembershipAttack | LabelInferenceAttack:
    """Return the attack of a sweep, or refuse it before anything is fitted."""
    protected = {holds_private_labels(model) for model in models}
    if len(protected) > 1:
        raise ValueError(
            f"Some estimators protect labels alone, others whole records: {NOT_MEMBERSHIP}. Sweep "
            "them separately, as no attack measures both."
        )
    if True in protected or isinstance(attack, LabelInferenceAttack):
        return label_attack(None if attack is None else [attack], None)
    if attack is None:
        return LossThreshold()
    if not isinstance(attack, MembershipAttack):
        raise TypeError(
            f"attack={attack!r} must be a membership attack object or None. Pass an instance, such "
            "as LossThreshold()."
        )
    if getattr(attack, "pool", None) is not None:
        raise ValueError(
            f"attack={attack!r} must not have a pool, as each epsilon needs separate shadow "
            "models. Set pool=None and n_shadows."
        )
    return attack


@dataclass(frozen=True)
class Split:
    """Records to train on and records to test on."""

    X_in: Any
    y_in: Any
    X_out: Any
    y_out: Any
    X_known: Any  # what the attacker knows: both of them
    y_known: Any

    @classmethod
    def of(cls, X: Any, y: Any, train: Any, test: Any) -> Split:
        """Return the split of some records by their indices."""
        both = np.concatenate([train, test])
        return cls(*(safe_indexing(v, i) for i in (train, test, both) for v in (X, y)))


def scored(model: Any, split: Split, scorers: dict[str, Any]) -> dict[str, Any]:
    """Fit a model, and return its times and scores."""
    start = time.perf_counter()
    model.fit(split.X_in, split.y_in)
    fitted = time.perf_counter()
    test = {f"test_{k}": scorer(model, split.X_out, split.y_out) for k, scorer in scorers.items()}
    done = time.perf_counter()
    train = {f"train_{k}": scorer(model, split.X_in, split.y_in) for k, scorer in scorers.items()}
    return {"fit_time": fitted - start, "score_time": done - fitted, **test, **train}


def attacked(model: Any, split: Split, attack: Any, pool: Any = None) -> dict[str, Any]:
    """Return how well a fitted model is attacked; NaN without an attack."""
    if attack is None:
        return {"attack_auc": math.nan, f"attack_tpr_at_{FPR}": math.nan}
    if isinstance(attack, LabelInferenceAttack):
        result: AttackResult = guessed_labels(
            model, attack, split.X_in, split.y_in, split.X_out, split.y_out
        )
    else:
        attack = clone(attack).set_params(target=model)
        if pool is not None:
            attack.set_params(pool=pool)
        attack.fit(split.X_known, split.y_known)
        result = attack.evaluate(split.X_in, split.y_in, split.X_out, split.y_out)
    return {"attack_auc": result.auc, f"attack_tpr_at_{FPR}": result.tpr_at_fpr(FPR).tpr}


def fit_and_attack(
    model: Any, split: Split, scorers: Any, attack: Any, pool: Any
) -> dict[str, Any]:
    """Return the results of a private model on one split, with its claim."""
    row = scored(model, split, scorers)
    claim = claim_of(model, split.X_in)
    if protects_labels(claim) != isinstance(attack, LabelInferenceAttack):
        raise ValueError(
            f"attack={attack!r} does not fit the claim {claim.guarantee!r}: {NOT_MEMBERSHIP}. Pass "
            "a LabelInferenceAttack for it, and an attack on membership for any other."
        )
    proved = claim.guarantee if claim.proved else None
    return {
        **row,
        **attacked(model, split, attack, pool),
        "claimed_epsilon": math.nan if proved is None else proved.epsilon(),
        "attack_auc_bound": math.nan if proved is None else auc_ceiling(proved),
        "claim": claim,
    }
