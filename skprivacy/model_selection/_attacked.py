"""One model of a sweep: fitted, scored and attacked."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from sklearn.base import clone

from .._sklearn import safe_indexing
from ..attacks import AttackResult, LabelInferenceAttack, LossThreshold, MembershipAttack
from ..audit import claim_of
from ..audit._ceiling import auc_ceiling
from ..audit.labels import NOT_MEMBERSHIP, guessed_labels, label_attack, protects_labels

__all__ = ["checked_attack", "fit_and_attack"]

FPR = 0.01


def checked_attack(attack: Any, of_labels: bool) -> MembershipAttack | LabelInferenceAttack:
    if of_labels or isinstance(attack, LabelInferenceAttack):
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


def fit_and_attack(
    model: Any, X: Any, y: Any, train: Any, test: Any, scorer: Any, attack: Any, pool: Any
) -> dict[str, Any]:
    X_in, y_in = safe_indexing(X, train), safe_indexing(y, train)
    X_out, y_out = safe_indexing(X, test), safe_indexing(y, test)
    known = np.concatenate([train, test])
    start = time.perf_counter()
    model.fit(X_in, y_in)
    fitted = time.perf_counter()
    test_score = scorer(model, X_out, y_out)
    scored = time.perf_counter()
    claim = claim_of(model, X_in)
    if protects_labels(claim) != isinstance(attack, LabelInferenceAttack):
        raise ValueError(
            f"attack={attack!r} does not fit the claim {claim.guarantee!r}: {NOT_MEMBERSHIP}. Pass "
            "a LabelInferenceAttack for it, and an attack on membership for any other."
        )
    if isinstance(attack, LabelInferenceAttack):
        result: AttackResult = guessed_labels(model, attack, X_in, y_in, X_out, y_out)
    else:
        attack = clone(attack).set_params(target=model)
        if pool is not None:
            attack.set_params(pool=pool)
        attack.fit(safe_indexing(X, known), safe_indexing(y, known))
        result = attack.evaluate(X_in, y_in, X_out, y_out)
    proved = claim.guarantee if claim.proved else None
    return {
        "fit_time": fitted - start,
        "score_time": scored - fitted,
        "test_score": test_score,
        "train_score": scorer(model, X_in, y_in),
        "attack_auc": result.auc,
        f"attack_tpr_at_{FPR}": result.tpr_at_fpr(FPR).tpr,
        "claimed_epsilon": math.nan if proved is None else proved.epsilon(),
        "attack_auc_bound": math.nan if proved is None else auc_ceiling(proved),
        "claim": claim,
    }
