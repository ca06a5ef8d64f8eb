"""Signal of a record under any kind of model: one number for how well the model's answer fits it.

Attacks compare these numbers between the target and shadow models, so an attack that works on one
kind of model works on all. A higher signal always means member. ``SIGNALS`` are functions of
``proba``, of shape (n_records, n_classes), whose rows sum to one, and of ``label``, the column of
each record's true class. :func:`as_classifier` adds ``predict_proba`` to bare torch modules, and
:func:`predict_aligned` returns probabilities over one common list of classes. Start reading at
:func:`choose_answers`, which chooses the model's method.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from .._clones import SHARED_BY_CLONES, call_model, name_failing_model
from .._config import warn_caller
from .._input_data import check_one_type, distinct_labels, label_columns
from .._validation import as_array
from .module_classifier import ModuleClassifier
from .record_tables import apply_in_parts

Float64Array = NDArray[np.float64]
Labels = NDArray[np.intp]
# Gives probabilities of exactly 0 (trees, nearest neighbours, saturated softmax) a finite
# logarithm, about -27.6. With a smaller floor, one such prediction would dwarf all others.
FLOOR = 1e-12
Classes = Any  # an array, or None
_LOWEST = -1e9  # replaces the logarithm of a density of zero


Signal = Callable[[Float64Array, Labels], Float64Array]
SIGNALS: dict[str, Signal] = {}  # scores of one model, by name


def _signal(formula: Signal) -> Signal:
    """List a score of one model in ``SIGNALS``."""
    SIGNALS[formula.__name__] = formula
    return formula


@_signal
def loss(proba: Float64Array, label: Labels) -> Float64Array:
    """Return minus the cross-entropy loss (Yeom et al. 2018)."""
    return np.log(np.maximum(_label_probability(proba, label), FLOOR))


@_signal
def correctness(proba: Float64Array, label: Labels) -> Float64Array:
    """Return 1 if the model predicts the true class, else 0: gap attack (Yeom et al. 2018)."""
    return (proba.argmax(axis=1) == label).astype(float)


@_signal
def confidence(proba: Float64Array, label: Labels) -> Float64Array:
    """Return the probability of the true class."""
    return _label_probability(proba, label)


@_signal
def max_confidence(proba: Float64Array, label: Labels) -> Float64Array:
    """Return the highest probability, ignoring the label: ML-Leaks adversary 3 (Salem 2019)."""
    return proba.max(axis=1)


@_signal
def entropy(proba: Float64Array, label: Labels) -> Float64Array:
    """Return minus the entropy of the prediction, ignoring the label."""
    return np.sum(proba * np.log(np.maximum(proba, FLOOR)), axis=1)


@_signal
def modified_entropy(proba: Float64Array, label: Labels) -> Float64Array:
    """Return minus the modified entropy, which uses the true class (Song & Mittal 2021).

    The modified entropy is ``-(1 - p_y) ln p_y - sum over i != y of p_i ln(1 - p_i)``. It is small
    for a confident correct prediction and large for a confident wrong one."""
    p = _label_probability(proba, label)
    rest = _without_label(proba, label)
    # Song & Mittal 2021: modified prediction entropy Mentr
    wrong = np.sum(rest * np.log(np.maximum(1 - rest, FLOOR)), axis=1)
    return (1 - p) * np.log(np.maximum(p, FLOOR)) + wrong


@_signal
def logit(proba: Float64Array, label: Labels) -> Float64Array:
    """Return the log-odds of the true class, ``ln p_y - ln(1 - p_y)`` (Carlini et al. 2022).

    ``1 - p_y`` is computed as the sum over the other classes, because the subtraction loses
    precision near ``p_y = 1``."""
    # Carlini et al. 2022, Section IV-C: logit scaling phi
    p = np.maximum(_label_probability(proba, label), FLOOR)
    return np.log(p) - np.log(np.maximum(_without_label(proba, label).sum(axis=1), FLOOR))


@_signal
def margin(proba: Float64Array, label: Labels) -> Float64Array:
    """Return the probability of the true class minus the highest other probability, in [-1, 1]."""
    return _label_probability(proba, label) - _without_label(proba, label).max(axis=1)


def _label_probability(proba: Float64Array, label: Labels) -> Float64Array:
    return np.take_along_axis(proba, label[:, None], axis=1)[:, 0]


def _without_label(proba: Float64Array, label: Labels) -> Float64Array:
    rest = proba.copy()
    np.put_along_axis(rest, label[:, None], 0.0, axis=1)
    return rest


class TargetAttack(BaseEstimator):
    """Base of attacks on a fitted ``target``; a clone keeps the same target."""

    target: Any
    _shared: ClassVar[tuple[str, ...]] = SHARED_BY_CLONES  # parameters that are not cloned

    def _require_target(self) -> None:
        if self.target is None:
            raise ValueError(
                "target=None must be the model to attack. Pass it as "
                f"{type(self).__name__}(target) or by set_params(target=model)."
            )

    def __sklearn_clone__(self) -> Any:
        params = self.get_params(deep=False)
        return type(self)(
            **{k: v if k in self._shared else clone(v, safe=False) for k, v in params.items()}
        )


class Answers(NamedTuple):
    """A kind of answer: the model's method, and how its output becomes one number per record."""

    name: str
    method: str
    # (answer, y, model, classes) -> minus the loss of each record, higher for members
    minus_loss: Callable[[Any, NDArray[Any], Any, Classes], Float64Array]
    # The same on the scale of log-odds; None for models without probabilities, whose scale is only
    # known from other models' answers.
    log_odds: Callable[[Any, NDArray[Any], Any, Classes], Float64Array] | None = None
    needs_y: bool = True  # False for models that are fitted without y
    by_class: bool = False  # whether the answer has one column for each of ``classes``

    def ask(self, model: Any, X: Any, classes: Classes) -> Any:
        """Return the model's answers about records; probabilities have a column for each class."""
        if self.by_class:
            return predict_aligned(model, X, classes)
        return call_model(model, self.method, X)

    def signal(self, model: Any, X: Any, y: NDArray[Any], classes: Classes) -> Float64Array:
        """Return the log-odds of records, or minus the loss of models without probabilities."""
        score = self.minus_loss if self.log_odds is None else self.log_odds
        return score(self.ask(model, X, classes), y, model, classes)

    def minus_losses(self, model: Any, X: Any, y: NDArray[Any], classes: Classes) -> Float64Array:
        return self.minus_loss(self.ask(model, X, classes), y, model, classes)


def choose_answers(model: Any, y: NDArray[Any]) -> Answers:
    """Choose the kind of answer of a fitted model; TypeError if it cannot score single records."""
    if hasattr(model, "classes_"):
        if hasattr(model, "predict_proba"):
            several = y.ndim > 1 or isinstance(model.classes_, list)
            return LABEL_SETS if several else PROBABILITIES
        if hasattr(model, "decision_function"):
            return MARGINS
        raise TypeError(
            f"{type(model).__name__} must have predict_proba or decision_function for this attack. "
            "Use LabelOnlyAttack, which needs only predicted labels."
        )
    if learns_classes(model):
        raise NotFittedError(
            f"target={type(model).__name__} must be a fitted model; it has no classes_ and no "
            "score_samples, and is not a regressor. Call target.fit first."
        )
    if hasattr(model, "score_samples"):
        return DENSITIES
    if predicts_numbers(model):
        return RESIDUALS
    last = model[-1] if isinstance(model, Pipeline) else model
    centres = hasattr(last, "cluster_centers_") or hasattr(last, "subcluster_centers_")
    if centres and hasattr(model, "transform"):
        return DISTANCES
    raise TypeError(
        f"target={type(last).__name__} must score single records. Expected a classifier with "
        "predict_proba or decision_function, a regressor, a model with score_samples, or clusters "
        "with centres."
    )


def as_classifier(model: Any, X: Any) -> Any:
    """Wrap a bare torch module as a classifier; return other models unchanged."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module) or hasattr(model, "classes_"):
        return model
    return ModuleClassifier(model, X)


def class_list(*parts: Any) -> NDArray[Any]:
    """Return the sorted union of several lists of labels."""
    arrays = [np.asarray(part) for part in parts]
    for array in arrays:
        if array.ndim != 1:
            raise ValueError(f"y has shape {array.shape}; expected one label for each record.")
    kinds = {"number" if a.dtype.kind in "biuf" else "text" for a in arrays}
    if len(kinds) > 1:
        raise ValueError(
            "y and the classes of the model have different types: "
            f"{[a.dtype.name for a in arrays]}. Pass y in the form the model was fitted with."
        )
    union = np.concatenate(arrays)
    check_one_type("y", union)
    return distinct_labels(union)


def check_known(y: NDArray[Any], classes: Any) -> None:
    """Warn if some labels are not among the target's classes; ValueError if none is."""
    unknown = ~np.isin(y, classes)
    if not unknown.any():
        return
    known = np.asarray(classes)[:5].tolist()
    if unknown.all():
        raise ValueError(
            f"y holds none of the target's classes; expected labels from {known}. Pass y in the "
            "form the target was fitted with."
        )
    warn_caller(
        f"y holds {int(unknown.sum())} records with labels that are not among the target's "
        f"classes {known}, so their probability is 0 and they score like non-members. Leave them "
        "out, or pass y in the form the target was fitted with.",
        UserWarning,
    )


def predict_aligned(model: Any, X: Any, classes: NDArray[Any]) -> Float64Array:
    """Return probabilities with a column for each of ``classes``; 0 for classes not trained on."""
    if not hasattr(model, "predict_proba"):
        raise TypeError(
            f"{type(model).__name__} has no predict_proba, which this attack needs. Use "
            "LossThreshold, LiRA, RMIA or StrongestAttack, which accept other scores, or "
            "LabelOnlyAttack, which needs only predicted labels."
        )
    with name_failing_model(model, "asked about X"):
        proba = apply_in_parts(model.predict_proba, X).astype(float, copy=False)
    if proba.ndim != 2 or proba.shape[1] != len(model.classes_):
        raise ValueError(
            f"{type(model).__name__}.predict_proba returned shape {proba.shape}; expected one "
            f"column for each of its {len(model.classes_)} classes."
        )
    if not np.isfinite(proba).all() or proba.min(initial=0.0) < 0 or proba.max(initial=1.0) > 1.001:
        raise ValueError(
            f"{type(model).__name__}.predict_proba returned values that are not finite or lie "
            "outside [0, 1], so training probably diverged. Refit it with a smaller learning rate "
            "or scaled inputs."
        )
    columns = np.searchsorted(classes, model.classes_)
    known = columns < len(classes)
    known[known] = classes[columns[known]] == np.asarray(model.classes_)[known]
    aligned = np.zeros((len(proba), len(classes)))
    aligned[:, columns[known]] = proba[:, known]
    return aligned


def learns_classes(estimator: Any) -> bool:
    """Return whether an estimator, fitted or not, is a classifier."""
    kind = _estimator_type(estimator)
    if kind is None:
        return not hasattr(estimator, "score_samples")
    return kind == "classifier"


def predicts_numbers(estimator: Any) -> bool:
    """Return whether an estimator, fitted or not, is a regressor."""
    return _estimator_type(estimator) == "regressor"


def targets_as_array(y: Any, n_records: int) -> NDArray[Any]:
    """Return y as an array; zeros if it is None, for models that are fitted without y."""
    if sparse.issparse(y):
        y = y.toarray()
    values = np.zeros(n_records, dtype=int) if y is None else as_array("y", y)
    if values.ndim == 1:
        check_one_type("y", values)
    return values


def labels_as_text(y: NDArray[Any]) -> NDArray[Any]:
    """Return one label per record: several labels of a record are joined as text."""
    return y if y.ndim == 1 else np.array([" ".join(map(str, row)) for row in y.tolist()])


def _estimator_type(estimator: Any) -> str | None:
    return get_tags(estimator).estimator_type if hasattr(estimator, "__sklearn_tags__") else None


def _loss(proba: Any, y: NDArray[Any], model: Any, classes: Classes) -> Float64Array:
    return loss(proba, label_columns(y, classes))


def _logit(proba: Any, y: NDArray[Any], model: Any, classes: Classes) -> Float64Array:
    return logit(proba, label_columns(y, classes))


def _mean_log(proba: Any, y: NDArray[Any], model: Any, classes: Classes) -> Float64Array:
    """Return the mean log-probability of a record's labels (the log of their geometric mean)."""
    if y.ndim != 2:
        raise ValueError(
            f"y has shape {y.shape}; expected one column for each label that "
            f"{type(model).__name__} predicts. Pass y in the form the model was fitted with."
        )
    if isinstance(proba, list):
        columns = [
            _pick_columns(part, _columns_or_last(y[:, k], np.asarray(model.classes_[k])))
            for k, part in enumerate(proba)
        ]
        own = np.column_stack(columns)
    else:
        proba = np.asarray(proba, dtype=float)
        _check_columns(proba, y, model, "predict_proba")
        own = np.where(y != 0, proba, 1 - proba)
    return np.log(np.clip(own, FLOOR, 1.0)).mean(axis=1)


def _mean_logit(proba: Any, y: NDArray[Any], model: Any, classes: Classes) -> Float64Array:
    mean = _mean_log(proba, y, model, classes)
    return mean - np.log(np.maximum(-np.expm1(mean), FLOOR))


def _check_columns(answer: Float64Array, y: NDArray[Any], model: Any, method: str) -> None:
    if answer.shape != y.shape:
        raise ValueError(
            f"{type(model).__name__}.{method} returned shape {answer.shape}; expected one column "
            f"for each label of y, which has shape {y.shape}."
        )


def _pick_columns(proba: Any, column: NDArray[np.intp]) -> Float64Array:
    padded = np.column_stack([np.asarray(proba, dtype=float), np.zeros(len(proba))])
    return padded[np.arange(len(padded)), column]


def _columns_or_last(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the column of each label; the number of columns for an unknown label."""
    columns = np.searchsorted(classes, y)
    known = classes[np.minimum(columns, len(classes) - 1)] == y
    return np.where(known, columns, len(classes))


def _compute_margin(decision: Any, y: NDArray[Any], model: Any, classes: Classes) -> Float64Array:
    """Return the decision value of the record's class minus the highest of the other classes."""
    decision = np.asarray(decision, dtype=float)
    if y.ndim == 2:
        _check_columns(decision, y, model, "decision_function")
        return np.mean(np.where(y != 0, decision, -decision), axis=1)
    own = np.asarray(model.classes_)
    column = _columns_or_last(y, own)
    if decision.ndim == 1:
        return np.select([column == 0, column == 1], [-decision, decision], -np.abs(decision))
    if decision.shape[1] != len(own):
        raise ValueError(
            f"{type(model).__name__}.decision_function returned shape {decision.shape}; expected "
            f"one column for each of {len(own)} classes. Use decision_function_shape='ovr'."
        )
    padded = np.column_stack([decision, decision.min(axis=1)])
    rest = padded.copy()
    rest[np.arange(len(y)), column] = -np.inf
    return padded[np.arange(len(y)), column] - rest.max(axis=1)


def _log_density(answer: Any, y: NDArray[Any], model: Any, classes: Classes) -> Float64Array:
    return np.maximum(np.asarray(answer, dtype=float), _LOWEST)


def _minus_distance(distance: Any, y: NDArray[Any], model: Any, classes: Classes) -> Float64Array:
    return -np.min(np.asarray(distance, dtype=float), axis=1)


def _compute_residual(answer: Any, y: NDArray[Any], model: Any, classes: Classes) -> Float64Array:
    answer = np.asarray(answer, dtype=float).reshape(len(y), -1)
    truth = np.asarray(y, dtype=float).reshape(len(y), -1)
    if answer.shape != truth.shape:
        raise ValueError(
            f"y has {truth.shape[1]} values for each record; expected {answer.shape[1]}, as "
            f"{type(model).__name__}.predict returns. Pass y in the form the model was fitted with."
        )
    return -np.linalg.norm(answer - truth, axis=1)


PROBABILITIES = Answers("class probabilities", "predict_proba", _loss, _logit, by_class=True)
LABEL_SETS = Answers("label probabilities", "predict_proba", _mean_log, _mean_logit)
MARGINS = Answers("margins", "decision_function", _compute_margin)
DENSITIES = Answers("log-densities", "score_samples", _log_density, needs_y=False)
DISTANCES = Answers("distances", "transform", _minus_distance, needs_y=False)
RESIDUALS = Answers("residuals", "predict", _compute_residual)
KINDS = {
    kind.name: kind
    for kind in (PROBABILITIES, LABEL_SETS, MARGINS, DENSITIES, DISTANCES, RESIDUALS)
}
