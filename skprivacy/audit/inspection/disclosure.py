"""Structural disclosure checks of a fitted model, in seconds and without attacks.

The signs are leaves of few records, many parameters, and small groups of equal predictions. Start
reading at :func:`check_disclosure`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from ..._clones import call_model
from ..._groups import Groups
from ..._input_data import check_one_type, resolve_groups
from ..._validation import is_number, num_samples, whole
from ...attacks.record_tables import as_records, fingerprints
from ...metrics.rates import clopper_pearson
from .claims import Claim, claim_of
from .disclosure_report import DisclosureCheck, DisclosureReport
from .stored_records import Contents, collect_contents, stored_records

IntArray = NDArray[np.int64]
CERTAIN = 1 - 1e-12  # a probability that prints as 1 in single and double precision
# Attributes that hold the fitted numbers of scikit-learn's predictors.
_FITTED = (
    "coef_", "intercept_", "coefs_", "intercepts_", "dual_coef_", "theta_", "var_",
    "feature_log_prob_", "means_", "covariances_", "cluster_centers_",
)  # fmt: skip


def check_disclosure(
    model: Any,
    X_train: Any,
    y_train: Any = None,
    X_test: Any = None,
    y_test: Any = None,
    *,
    min_records: int = 10,
    min_degrees_of_freedom: int = 10,
    max_gap: float = 0.1,
    groups: Any = None,
) -> DisclosureReport:
    """Check a fitted model for signs that it discloses training records, without attacking it.

    Parameters
    ----------
    model : fitted estimator or torch module
        Any model. Pipelines, searches, ensembles and other wrappers are searched.
    X_train, y_train : array-like of shape (n_train, n_features) and (n_train,)
        All records that the model was trained on. Without ``y_train``, class disclosure and the
        error gap are not checked.
    X_test, y_test : array-like of shape (n_new, n_features) and (n_new,), default=None
        Records of the same population that the model was not trained on, for the error gap. They
        also show whether arrays of the model hold rows of data by chance.
    min_records : int, default=10
        Smallest number of records that may share a leaf or a prediction. A row of features
        identifies nobody if this many training records share it.
    min_degrees_of_freedom : int, default=10
        Smallest number of residual degrees of freedom. With none, the fitted parameters may
        determine the records.
    max_gap : float, default=0.1
        The largest error gap. The gap is the advantage over guessing of an attacker who calls a
        record a member if its error is small.
    groups : array-like of shape (n_train,), default=None
        Group of each record of ``X_train``, if groups, such as patients, have several records.
        k-anonymity and degrees of freedom then count groups.

    Returns
    -------
    DisclosureReport
        ``flagged`` has the names of the checks that found their sign. ``report[name]`` is a check
        with its ``value``, ``threshold`` and result in words (``says``). ``to_frame()`` has a row
        for each check.

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    ValueError
        If records and labels differ in length, or a threshold is out of range.

    Notes
    -----
    **The checks.**

    - *stored records*: rows of ``X_train`` inside the model, as in nearest neighbours, support
      vectors and Gaussian processes. All arrays of the model are searched, so unknown classes are
      covered too. The recipient of such a model receives the records.
    - *smallest leaf*: the fewest records in a leaf of any tree. The value of the leaf depends on
      these records only.
    - *k-anonymity*: the fewest records with the same prediction (Samarati and Sweeney 1998).
    - *class disclosure*: records whose prediction reveals the label for certain: either all records
      with this prediction have one label, or a probability is 1.
    - *degrees of freedom*: records minus fitted parameters. It is not flagged if the model has a
      proved claim of finite epsilon, which limits the leakage of any number of parameters.
    - *error gap*: the share of training records with a small error, minus the share of new records
      with a small error. Small means at most the mean error of training records. For classifiers it
      is the difference in accuracy (Yeom et al. 2018).

    **Guarantees.** None. A flag proves no leak: a user who sees only predictions does not see
    records inside the model. The absence of flags proves no privacy. The report states the model's
    own claim but does not test it; :func:`~skprivacy.audit.audit` does. The checks read private
    data, so their figures are not private.

    **Edge cases.** Predictions that vary from record to record, as in a linear model, form no
    groups: k-anonymity does not apply, and class disclosure counts probabilities of 1 only. Trees
    and parameters are counted in scikit-learn's models and torch modules, not in models of other
    libraries. Records are found as given, and as transformed by steps of the model, but in no other
    form. Leaves of a forest count the distinct records of their bootstrap sample.

    References
    ----------
    P. Samarati, L. Sweeney. Protecting privacy when disclosing information: k-anonymity and its
    enforcement through generalization and suppression. SRI International, 1998.
    S. Yeom, I. Giacomelli, M. Fredrikson, S. Jha. Privacy risk in machine learning: analyzing the
    connection to overfitting. CSF 2018.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from skprivacy import check_disclosure
    >>> X, y = make_classification(200, random_state=0)
    >>> report = check_disclosure(KNeighborsClassifier().fit(X, y), X, y)
    >>> report["stored records"].says
    '200 of 200 training records are stored in KNeighborsClassifier._fit_X'
    >>> report["smallest leaf"].flagged is None
    True
    """
    trainable = hasattr(model, "fit")  # a bare torch module has no fit
    if not (trainable or hasattr(model, "predict") or callable(model)):
        raise TypeError(f"model={model!r} must be a fitted model.")
    if trainable:
        check_is_fitted(model)
    whole("min_records", min_records)
    whole("min_degrees_of_freedom", min_degrees_of_freedom)
    if not (is_number(max_gap) and 0 <= max_gap <= 1):
        raise ValueError(f"max_gap={max_gap!r} must be a number between 0 and 1, such as 0.1.")
    X_train = as_records(X_train, "X_train")
    X_test = None if X_test is None else as_records(X_test, "X_test")
    _check_records(X_train, y_train, X_test, y_test)
    return find_signs(
        model,
        X_train,
        y_train,
        X_test,
        y_test,
        claim=claim_of(model, X_train) if trainable else None,
        groups=resolve_groups(groups, X_train),
        prints=fingerprints(X_train),
        limits=(min_records, min_degrees_of_freedom, max_gap),
    )


def find_signs(
    model: Any, X_train: Any, y_train: Any, X_test: Any, y_test: Any, *,
    claim: Claim | None, groups: Groups, prints: NDArray[np.uint64],
    limits: tuple[int, int, float] = (10, 10, 0.1),
) -> DisclosureReport:  # fmt: skip
    """Check a model for signs of disclosure; records are converted, with ``prints`` of X_train."""
    min_records, min_degrees_of_freedom, max_gap = limits
    contents = collect_contents(model)
    alike = prediction_groups(model, X_train, len(np.unique(prints)))
    leaves = leaf_sizes(contents.parts)
    stated = None if claim is None else claim.guarantee
    private = stated is not None and math.isfinite(stated.epsilon())
    proved = private and stated is not None and stated.kind == "proved"
    hides_records = private and stated is not None and stated.relation != "label"
    return DisclosureReport(
        model=" ".join(repr(model).split()),
        checks=(
            _check_stored_records(contents, X_train, X_test, min_records, hides_records),
            _smallest_leaf(leaves, min_records),
            _k_anonymity(alike, groups, len(leaves) > 0, min_records),
            _class_disclosure(model, alike, y_train, len(leaves) > 0),
            _degrees_of_freedom(
                groups, n_parameters(contents.parts), min_degrees_of_freedom, private, proved
            ),
            _error_gap(model, X_train, y_train, X_test, y_test, max_gap),
        ),
        claim="none" if stated is None else repr(stated),
        n_train=num_samples(X_train),
    )


@dataclass(frozen=True)
class PredictionGroups:
    """Training records grouped by the model's output for them, in single precision."""

    group: IntArray  # of each record, (n,)
    sizes: IntArray  # records in each group
    n_distinct: int  # records
    certain: NDArray[np.bool_]  # whether a class of a record has probability 1, (n,)

    @property
    def shared(self) -> bool:
        """Whether there are at most half as many distinct predictions as distinct records."""
        return 2 * len(self.sizes) <= self.n_distinct

    def count_groups(self, groups: Groups) -> IntArray:
        """Return the number of groups that share each prediction, shape (n_groups,)."""
        pairs = np.unique(self.group.astype(np.int64) * groups.n + groups.codes)
        return np.bincount(pairs // groups.n, minlength=len(self.sizes))

    def find_disclosed(self, y: Any) -> NDArray[np.bool_]:
        """Return the records whose label the prediction reveals: an unmixed group, or 1."""
        labels = np.unique(np.asarray(y), return_inverse=True)[1]
        first = np.full(len(self.sizes), labels.max() + 1)
        last = np.full(len(self.sizes), -1)
        np.minimum.at(first, self.group, labels)
        np.maximum.at(last, self.group, labels)
        alike = (first == last) & (self.sizes > 1)
        return alike[self.group] | self.certain


def prediction_groups(model: Any, X: Any, n_distinct: int) -> PredictionGroups | None:
    """Group records by the model's most detailed output; None for a model without any."""
    output, of_classes = _output(model, X)
    if output is None:
        return None
    table = output.reshape(len(output), -1)
    with np.errstate(over="ignore"):
        alike = fingerprints(table.astype(np.float32) if table.dtype.kind in "biuf" else table)
    _, group, sizes = np.unique(alike, return_inverse=True, return_counts=True)
    certain = np.zeros(len(table), bool)
    if of_classes:
        certain = table.max(axis=1) >= CERTAIN
    return PredictionGroups(group, sizes, n_distinct, certain)


def leaf_sizes(parts: list[Any]) -> IntArray:
    """Return the number of training records in each leaf of all trees inside a model."""
    found = [np.zeros(0, int)]
    for nodes, leaf in _iter_trees(parts):
        counts = nodes["count"] if isinstance(nodes, np.ndarray) else nodes.n_node_samples
        found.append(np.asarray(counts)[leaf].astype(int))
    return np.concatenate(found)


def n_parameters(parts: list[Any]) -> int:
    """Return the number of fitted numbers: weights, and thresholds and values of trees."""
    weights = sum(
        _size(vars(part)[name])
        for part in parts
        if hasattr(part, "predict") and hasattr(part, "__dict__")
        for name in _FITTED
        if name in vars(part)
    )
    networks = {
        id(weight): int(weight.numel())
        for part in parts
        if hasattr(part, "named_parameters")
        for _, weight in part.named_parameters()
    }
    splits = sum(len(leaf) - int(leaf.sum()) for _, leaf in _iter_trees(parts))
    values = sum(int(leaf.sum()) * _values_of_a_leaf(nodes) for nodes, leaf in _iter_trees(parts))
    return weights + sum(networks.values()) + splits + values


def _output(model: Any, X: Any) -> tuple[Any, bool]:
    for name in ("predict_proba", "decision_function", "score_samples", "predict"):
        if hasattr(model, name):
            output = call_model(model, name, X)
            if isinstance(output, list):  # one array per target
                return np.concatenate([np.asarray(part) for part in output], axis=1), False
            return np.asarray(output), name == "predict_proba"
    return None, False


def _iter_trees(parts: list[Any]) -> Iterator[tuple[Any, NDArray[np.bool_]]]:
    """Yield the nodes of each tree, and which of them are leaves."""
    for part in parts:
        tree: Any = getattr(part, "__dict__", {}).get("tree_")
        if hasattr(tree, "n_node_samples") and hasattr(tree, "children_left"):
            yield tree, tree.children_left == -1
        for stage in getattr(part, "_predictors", ()):  # histogram-based boosting
            for predictor in stage:
                yield predictor.nodes, predictor.nodes["is_leaf"].astype(bool)


def _values_of_a_leaf(nodes: Any) -> int:
    """Return the number of free numbers in a leaf: the shares of the classes sum to 1."""
    if isinstance(nodes, np.ndarray):
        return 1
    _, n_outputs, n_values = nodes.value.shape
    return n_outputs * max(n_values - 1, 1)


def _size(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(_size(part) for part in value)
    size = getattr(value, "size", None)
    return int(size) if isinstance(size, (int, np.integer)) else int(np.size(value))


def _check_stored_records(
    contents: Contents, X_train: Any, X_test: Any, min_records: int, hides_records: bool
) -> DisclosureCheck:
    found, n = stored_records(contents, X_train, X_test, min_records), num_samples(X_train)
    where = f" in {', '.join(found.places)}" if found.places else ""
    if found.n_train:
        says = f"{found.n_train:,} of {n:,} training records are stored{where or ' in the model'}"
    elif found.in_context:
        says = f"{found.in_context} predicts from the training records and contains them"
    else:
        says = "no training record was found in the model's arrays"
    if not contents.complete:
        says += "; the model is nested too deeply for a complete search"
    flagged = bool(found.n_train or found.in_context)
    if flagged and hides_records:
        says += ", which a true claim rules out unless they are public or coincidences"
    known = flagged or contents.complete
    return DisclosureCheck("stored records", flagged if known else None, found.n_train, 0, says)


def _smallest_leaf(sizes: Any, min_records: int) -> DisclosureCheck:
    name = "smallest leaf"
    if not len(sizes):
        return _not_applied(name, min_records, "the model has no scikit-learn trees")
    small = int((sizes < min_records).sum())
    return DisclosureCheck(
        name,
        small > 0,
        int(sizes.min()),
        min_records,
        f"fewest records in a leaf: {sizes.min():,}; {small:,} of {len(sizes):,} leaves hold fewer "
        f"than {min_records}",
    )


def _k_anonymity(
    predictions: PredictionGroups | None, groups: Groups, has_leaves: bool, min_records: int
) -> DisclosureCheck:
    name = "k-anonymity"
    if predictions is None:
        return _not_applied(name, min_records, "the model predicts nothing")
    if not (has_leaves or predictions.shared):
        return _not_applied(name, min_records, "predictions vary from record to record")
    sizes = predictions.count_groups(groups)
    # Samarati and Sweeney 1998: k is the size of the smallest group.
    k = int(sizes.min())
    few = int(predictions.sizes[sizes < min_records].sum())
    of = "" if groups.unit == "record" else f" of {groups.unit}"
    says = f"k = {k:,}{of}: {few:,} records share their prediction with fewer than"
    return DisclosureCheck(
        name, k < min_records, k, min_records, f"{says} {min_records - 1} others"
    )


def _class_disclosure(
    model: Any, predictions: PredictionGroups | None, y: Any, has_leaves: bool
) -> DisclosureCheck:
    name = "class disclosure"
    if y is None or predictions is None or np.ndim(y) != 1 or not hasattr(model, "predict_proba"):
        return _not_applied(name, 0, "it needs one label per record and predict_proba")
    # Equal rows have equal predictions: by themselves they form no groups.
    grouped = has_leaves or predictions.shared
    n_disclosed = int((predictions.find_disclosed(y) if grouped else predictions.certain).sum())
    n = len(predictions.group)
    says = f"the prediction of {n_disclosed:,} of {n:,} records reveals their class for certain"
    return DisclosureCheck(name, n_disclosed > 0, n_disclosed, 0, says)


def _degrees_of_freedom(
    groups: Groups, parameters: int, least: int, private: bool, proved: bool
) -> DisclosureCheck:
    name = "degrees of freedom"
    if not parameters:
        return _not_applied(name, least, "the model has no parameters that could be counted")
    n, left = groups.n, groups.n - parameters
    counted = "records" if groups.unit == "record" else f"values of {groups.unit}"
    says = f"{n:,} {counted} minus {parameters:,} fitted numbers leave {left:,}"
    if left < least:
        says += "; so many could hold every record"
        limit = "proved" if proved else "true"
        says += f", but a {limit} claim limits what they reveal" if private else ""
    return DisclosureCheck(name, left < least and not proved, left, least, says)


def _error_gap(
    model: Any, X_train: Any, y_train: Any, X_test: Any, y_test: Any, largest: float
) -> DisclosureCheck:
    name = "error gap"
    if y_train is None or y_test is None or np.ndim(y_train) != 1:
        return _not_applied(name, largest, "it needs labels of training records and of new ones")
    if not (hasattr(model, "classes_") or is_regressor(model)):
        return _not_applied(name, largest, "the model predicts no labels")
    own = _compute_errors("y_train", model, X_train, y_train)
    new = _compute_errors("y_test", model, X_test, y_test)
    # Yeom et al. 2018, attack by a threshold: a record is a member if its error is at most the
    # mean training error. Its advantage is the true minus the false positive rate.
    few, others = own <= own.mean(), new <= own.mean()
    gap = float(few.mean() - others.mean())
    low = clopper_pearson(int(few.sum()), len(few))[0]
    high = clopper_pearson(int(others.sum()), len(others))[1]
    right = "right" if hasattr(model, "classes_") else "off by little"
    says = (
        f"the model is {right} on {100 * few.mean():.1f} % of the training records and on "
        f"{100 * others.mean():.1f} % of the new ones"
    )
    return DisclosureCheck(name, gap > largest and low > high, gap, largest, says)


def _compute_errors(name: str, model: Any, X: Any, y: Any) -> Any:
    predicted, true = np.asarray(call_model(model, "predict", X)), np.asarray(y)
    if predicted.size != true.size:
        raise ValueError(
            f"{name} has shape {true.shape}, but the model predicts {predicted.shape}. Pass one "
            "target in this form for each record."
        )
    true = true.reshape(predicted.shape)  # a column of labels is accepted like a row
    if hasattr(model, "classes_"):
        return (predicted != true).astype(float)
    return (predicted.astype(float) - true) ** 2


def _not_applied(name: str, threshold: float, why: str) -> DisclosureCheck:
    return DisclosureCheck(name, None, None, threshold, f"not checked: {why}")


def _check_records(X_train: Any, y_train: Any, X_test: Any, y_test: Any) -> None:
    if num_samples(X_train) < 1:
        raise ValueError("X_train has no records. Pass the records that the model was trained on.")
    if X_test is None and y_test is not None:
        raise ValueError("y_test was given without X_test. Pass both, or neither.")
    for part, X, y in (("train", X_train, y_train), ("test", X_test, y_test)):
        if X is None or y is None:
            continue
        if as_records(y, f"y_{part}").ndim > 2:
            raise ValueError(f"y_{part} must have a label for each record, or be None.")
        check_one_type(f"y_{part}", y)
        check_lengths(part, X, y)


def check_lengths(part: str, X: Any, y: Any) -> None:
    """Raise ValueError unless there is a label for each record of the "train" or "test" part."""
    if num_samples(X) != num_samples(y, f"y_{part}"):
        raise ValueError(
            f"X_{part} and y_{part} differ in length, inconsistent numbers of samples: "
            f"{num_samples(X)} and {num_samples(y)}. Pass one label for each record."
        )
