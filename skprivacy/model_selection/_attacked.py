"""One model of a sweep: fitted, scored and attacked."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

from sklearn.base import clone, is_regressor

from .._clones import without_values
from .._config import warn_caller
from .._groups import check_groups, unit_of
from .._sklearn import asks_predictions_alone, num_samples
from ..accounting.budget import LedgerError
from ..attacks import AttackResult, LabelInferenceAttack, LossThreshold, MembershipAttack
from ..audit import claim_of
from ..audit._ceiling import auc_ceiling
from ..audit._private import holds_private_labels
from ..audit.labels import NOT_MEMBERSHIP, guess_labels, label_attack, protects_labels
from ..exceptions import BudgetExceededError
from ._groups import of_groups
from ._split import Records, Split

__all__ = ["Fitting", "checked_attack", "fit_and_attack", "measured", "scored"]

FPR = 0.01


def checked_attack(attack: Any, models: Iterable[Any]) -> MembershipAttack | LabelInferenceAttack:
    """Return the attack of a sweep, or refuse it before anything is fitted."""
    swept = list(models)
    protected = {holds_private_labels(model) for model in swept}
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
    if hasattr(getattr(attack, "pool", None), "estimators_"):
        raise ValueError(
            f"attack={attack!r} must not have a fitted pool, as each epsilon needs separate shadow "
            "models. Set pool=None and n_shadows, or pass a pool that is not fitted."
        )
    if attack._needs_members:
        raise ValueError(
            f"attack={attack!r} learns from known members, and a sweep tells it none. Use an "
            "attack that needs none, such as LossThreshold() or LiRA()."
        )
    if attack._needs_classes and any(map(is_regressor, swept)):
        raise ValueError(
            f"attack={attack!r} needs classes, and the estimator is a regressor. Use "
            "LossThreshold(), LiRA(), RMIA() or StrongestAttack()."
        )
    return attack


class Fitting:
    """A model of one split: behind the first step, if that is taken once, or as it is.

    Attributes
    ----------
    split : Split
    """

    def __init__(self, model: Any, split: Split) -> None:
        first = split.own.first
        self.split = split
        self._first = first if first is not None and first.begins(model) else None
        self._fitted = model if self._first is None else model[1:]
        self._name = "" if self._first is None else model.steps[0][0]

    @property
    def model(self) -> Any:
        """The model that takes records as they are."""
        return self._fitted if self._first is None else self._first.before(self._fitted, self._name)

    @property
    def is_behind(self) -> bool:
        """Whether the model is fitted behind the first step."""
        return self._first is not None

    def seen(self, records: Records) -> tuple[Any, Any]:
        """Return a model, and what stands for the records to it: for those who ask no more."""
        if self._first is None or records.first is None:
            return self.model, records.X
        return self._fitted, records.first.features

    def fit(self) -> None:
        """Fit the model to the training records."""
        own = self.split.own
        model, X = self.seen(own)
        model.fit(X, own.y, **own.fit_params)


def scored(fitting: Fitting, scorers: dict[str, Any]) -> dict[str, Any]:
    """Fit a model, and return its times and scores."""
    start, split = time.perf_counter(), fitting.split
    fitting.fit()
    fitted = time.perf_counter()
    test = {f"test_{k}": _score(fitting, split.new, k, scorer) for k, scorer in scorers.items()}
    done = time.perf_counter()
    train = {f"train_{k}": _score(fitting, split.own, k, scorer) for k, scorer in scorers.items()}
    return {"fit_time": fitted - start, "score_time": done - fitted, **test, **train}


def _score(fitting: Fitting, records: Records, name: str, scorer: Any) -> float:
    """Return a score; NaN, with a warning, if the scorer fails: the model has been paid for."""
    model, X = fitting.model, records.X
    if asks_predictions_alone(scorer):  # any other may look at the records
        model, X = fitting.seen(records)
    try:
        found = scorer(model, X, records.y, **records.score_params.get(name, {}))
        return float(found)
    except Exception as error:
        warn_caller(
            f"The scorer {name!r} failed, and its score is NaN: {without_values(error)}.",
            UserWarning,
        )
        return math.nan


def _tried(fitting: Fitting, attack: Any, pool: Any) -> AttackResult | None:
    """Return the result of an attack; None, with a warning, if it fails."""
    try:
        return _attacked(fitting, attack, pool)
    except (BudgetExceededError, LedgerError):
        raise
    except Exception as error:
        warn_caller(
            f"attack={attack!r} failed, and its figures are NaN: {without_values(error)}.",
            UserWarning,
        )
        return None


def _attacked(fitting: Fitting, attack: Any, pool: Any) -> AttackResult:
    """Return the result of an attack on a fitted model."""
    split = fitting.split
    own, new, known = split.own, split.new, split.known
    if isinstance(attack, LabelInferenceAttack):
        people = None if own.people is None else check_groups(own.people, own.X)
        return guess_labels(fitting.model, attack, own.X, own.y, new.X, new.y, people)
    if type(attack) is LossThreshold and fitting.is_behind:  # it asks for predictions alone
        model, X = fitting.seen(known)
        # nobody asks for a threshold, for which the model would have to answer once more
        attack = clone(attack).set_params(target=model, training_loss=0.0, fpr=None)
        attack.fit(X, known.y)
        scores = attack.score_samples(X, known.y)
        n = num_samples(own.X)  # they come first of those that are known
        return AttackResult(scores[:n], scores[n:], type(attack).__name__)
    attack = clone(attack).set_params(target=fitting.model)
    if pool is not None:
        attack.set_params(pool=pool)
    return attack.fit(known.X, known.y).evaluate(own.X, own.y, new.X, new.y)


def measured(
    fitting: Fitting, scorers: dict[str, Any], attack: Any, pool: Any = None
) -> dict[str, Any]:
    """Return how well a fitted model is attacked, and what it is to each subgroup.

    Figures of the attack are NaN without one, and if it fails: the model has been paid for. Of
    people they are those of all their records together.
    """
    split = fitting.split
    result = None if attack is None else _tried(fitting, attack, pool)
    shown = result
    of_people = split.own.people is not None and not isinstance(attack, LabelInferenceAttack)
    if result is not None and of_people:
        shown = result.joined(split.own.people, split.new.people)
    found: dict[str, Any] = {
        "attack_auc": math.nan if shown is None else shown.auc,
        f"attack_tpr_at_{FPR}": math.nan if shown is None else shown.tpr_at_fpr(FPR).tpr,
    }
    if split.new.groups is not None:
        name, scorer = next(iter(scorers.items()))
        found["groups"] = of_groups(split, lambda part: _score(fitting, part, name, scorer), result)
    return found


def fit_and_attack(
    model: Any, split: Split, scorers: dict[str, Any], attack: Any, pool: Any
) -> dict[str, Any]:
    """Return the results of a private model on one split, with its claim."""
    fitting = Fitting(model, split)
    row = scored(fitting, scorers)
    claim = claim_of(fitting.model, split.own.X)
    if protects_labels(claim) != isinstance(attack, LabelInferenceAttack):
        raise ValueError(
            f"attack={attack!r} does not fit the claim {claim.guarantee!r}: {NOT_MEMBERSHIP}. Pass "
            "a LabelInferenceAttack for it, and an attack on membership for any other."
        )
    proved = claim.guarantee if claim.proved else None
    attacked = "record" if split.own.people is None else unit_of(split.own.people)
    about = proved if proved is not None and proved.unit == attacked else None
    return {
        **row,
        **measured(fitting, scorers, attack, pool),
        "claimed_epsilon": math.nan if proved is None else proved.epsilon(),
        "attack_auc_bound": math.nan if about is None else auc_ceiling(about),
        "claim": claim,
    }
