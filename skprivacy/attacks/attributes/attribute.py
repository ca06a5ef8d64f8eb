"""Attribute inference from a model or from updates, compared with imputation (Yeom et al. 2018)."""

from __future__ import annotations

from collections.abc import Hashable
from functools import reduce
from math import sqrt
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import erfc, softmax
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils.validation import check_is_fitted

from ..._clones import name_failing_model
from ..._docs import fill_docs
from ..._input_data import check_consistent_length, column_or_1d, label_columns
from ..._sklearn import HasMethods, StrOptions
from ..._validation import Interval, open_unit
from ...base import roll_back_on_error
from ...metrics.rates import as_numbers
from ..membership.labeled_records import LabeledRecords
from ..membership.update_membership import UpdatesMembership
from ..model_answers import (
    FLOOR,
    RESIDUALS,
    TargetAttack,
    check_known,
    class_list,
    loss,
    predict_aligned,
    predicts_numbers,
)
from ..record_tables import as_records, as_table, concat
from ..updates import Updates
from .attribute_result import AttributeResult, Guesses, compare_guesses, subtract_intervals

_MAX_CATEGORIES = 20  # numbers with more distinct values are a quantity
_N_QUANTILES = 25  # of the values, and of the distinct values, that are tried of a quantity
_CLOSE = 0.1  # default of within, in standard deviations of the attribute
_SMALLEST_SCALE = 1e-3  # of residuals on members, relative to those on other records
_BASELINES = ("the other attributes and y", "the attribute's frequencies alone")


_DOCS = {
    "predict_sections": """\
Parameters
----------
X : {array-like, DataFrame} of shape (n_records, n_features)
    Records with the attribute's column, which may hold any values.
y : array-like of shape (n_records,)
    Their classes, or the targets of a regressor.

Returns
-------
ndarray of shape (n_records,)
    Values of the attribute."""
}


@fill_docs(_DOCS)
class AttributeInference(TargetAttack):
    """Infer one attribute of a record from its other attributes, its target and a model or updates.

    Each value of the attribute is tried in turn. The classic attack (Fredrikson et al. 2014,
    Yeom et al. 2018) takes the value that fits the target best, weighted by its frequency.
    ``prior="imputation"`` weights each value by its probability given the other attributes (after
    Mehnaz et al. 2022; Jayaraman & Evans 2022), so the model must improve on imputation. From the
    updates of federated training (Melis et al. 2019), the attack takes the value with which the
    record's gradient agrees best.

    Parameters
    ----------
    target : fitted classifier with ``predict_proba``, fitted regressor, or Updates, default=None
        The target model, or the updates that the attacker has seen.
    attribute : int or str, default=0
        Column of the attribute; a name if records are DataFrames.
    prior : {"imputation", "marginal", "uniform"}, default="imputation"
        Prior probabilities of the attribute, before querying the model.
    imputer : classifier with ``predict_proba``, default=None
        Learns the index of the attribute's value in ``values_`` from the other columns and the
        target. None: a random forest.
    within : float, default=None
        Largest absolute error, in the attribute's unit, that counts as inferred. Above 0, the
        attribute must be a number, and is treated as a quantity. 0: the value must be equal. None:
        a tenth of the standard deviation among the attacker's records for numbers with more than 20
        distinct values there, otherwise 0.

    Attributes
    ----------
    values_ : ndarray of shape (n_values,)
        Values that are tried: those among the records given to ``fit``, or at most 50 quantiles of
        a quantity.
    within_ : float
        Largest absolute error that counts as inferred.
    attack_ : UpdatesMembership
        Scores a record with each value, if the target is Updates.

    Notes
    -----
    Given its scale, the residual of a regressor is treated as normal. The scale on members is
    unknown. It is assumed to be log-uniform between .001 and 1 times the root mean square on the
    attacker's own records.

    For a quantity, ``predict`` returns the value with the highest probability within ``within_``.
    Codes of categories are not quantities: set ``within=0``, or make them text or categorical.

    **Edge cases.** The attribute must have at least two values among the attacker's records.
    ``fit`` and ``evaluate`` need the true value and refuse records in which it is missing, which
    would count as inferred wrongly.

    References
    ----------
    B. Jayaraman, D. Evans. Are attribute inference attacks just imputation? CCS 2022.
    L. Melis, C. Song, E. De Cristofaro, V. Shmatikov. Exploiting unintended feature leakage in
    collaborative learning. IEEE S&P 2019.
    S. Mehnaz et al. Are your sensitive attributes private? USENIX Security 2022.
    S. Yeom et al. Privacy risk in machine learning. CSF 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy.attacks import AttributeInference
    >>> rng = np.random.default_rng(0)
    >>> X = np.c_[rng.integers(0, 2, 600), rng.normal(size=(600, 3))]
    >>> y = rng.integers(0, 2, 600)
    >>> target = DecisionTreeClassifier(random_state=0).fit(X[:200], y[:200])
    >>> attack = AttributeInference(target, attribute=0).fit(X[400:], y[400:])
    >>> result = attack.evaluate(X[:200], y[:200], X[200:400], y[200:400])
    >>> result.members.baseline < 0.6
    True
    """

    _parameter_constraints: dict[str, Any] = {
        "target": "no_validation",
        "attribute": "no_validation",
        "prior": [StrOptions({"imputation", "marginal", "uniform"})],
        "imputer": [HasMethods(["fit", "predict_proba"]), None],
        "within": [Interval(Real, 0, None, closed="left"), None],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        attribute: int | str = 0,
        prior: str = "imputation",
        imputer: Any = None,
        within: float | None = None,
    ) -> None:
        self.target = target
        self.attribute = attribute
        self.prior = prior
        self.imputer = imputer
        self.within = within

    def fit(self, X: Any, y: Any) -> AttributeInference:
        """Learn the attribute's values and their probabilities from the attacker's records.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_records, n_features)
            Records like the members, but not among those that will be attacked.
        y : array-like of shape (n_records,)
            Their classes, or the targets of a regressor.

        Returns
        -------
        AttributeInference
            Itself, fitted.
        """
        self._validate_params()
        classes = self._target_classes(X)
        frame, column = self._split_complete(X)
        if not predicts_numbers(self.target):
            y = column_or_1d(y)
        check_consistent_length(frame, y)
        within, tried, codes = self._choose_values(column)
        if len(tried) < 2:
            raise ValueError(
                f"attribute={self.attribute!r} must have at least two values among the attacker's "
                "records, but has one. Pass other records or another attribute."
            )
        with roll_back_on_error(self):
            self.within_, self.values_ = within, tried
            if predicts_numbers(self.target):
                residuals = RESIDUALS.minus_losses(self.target, X, self._encode_target(y), None)
                self.scale_ = max(float(np.sqrt(np.mean(residuals**2))), FLOOR)
            else:
                self.classes_ = class_list(classes, y)
                check_known(np.asarray(y), classes)
            if isinstance(self.target, Updates):
                attack = UpdatesMembership(self.target)
                self.attack_ = attack.fit(LabeledRecords(X, y))
            self.marginal_ = np.bincount(codes, minlength=len(tried)) / len(codes)
            self.imputer_ = self._make_imputer().fit(self._append_target(frame, y), codes)
        return self

    def predict(self, X: Any, y: Any) -> NDArray[Any]:
        """Infer the attribute of each record, without reading its value in ``X``.

        %(predict_sections)s
        """
        check_is_fitted(self)
        return self._guess(self._posterior(X, self._other_columns(X, y), y))

    def evaluate(
        self, X_in: Any, y_in: Any, X_out: Any, y_out: Any, *, alpha: float = 0.05
    ) -> AttributeResult:
        """Attack members and non-members, and impute both.

        Parameters
        ----------
        X_in, y_in : array-like
            Members: records of the target's training set and their targets, as in ``fit``.
        X_out, y_out : array-like
            Non-members from the same population.
        alpha : float, default=0.05
            Error probability of each interval.

        Returns
        -------
        AttributeResult
            Results of the attack and of the better imputation: from the other attributes and the
            target, or from the attribute's frequencies. ``members`` and ``others`` have
            ``accuracy``, ``baseline``, ``gain`` and, for numbers, ``error``. ``advantage`` is the
            difference of the gains. Figures have intervals, such as ``advantage_interval``.
        """
        check_is_fitted(self)
        open_unit("alpha", alpha)
        sides = [self._attack_and_impute(X_in, y_in, "X_in")]
        sides.append(self._attack_and_impute(X_out, y_out, "X_out"))
        hits = [sum(imputed[k].right.sum() for _, imputed in sides) for k in range(2)]
        errors = [sum(imputed[k].error.sum() for _, imputed in sides) for k in range(2)]
        best, nearest = int(np.argmax(hits)), int(np.argmin(errors))
        members, others = (
            compare_guesses(attack, Guesses(imputed[best].right, imputed[nearest].error), alpha)
            for attack, imputed in sides
        )
        return AttributeResult(
            members=members,
            others=others,
            advantage=members.gain - others.gain,
            advantage_interval=subtract_intervals(
                members.gain, members.gain_interval, others.gain, others.gain_interval
            ),
            within=self.within_,
            baseline=_BASELINES[best],
            alpha=float(alpha),
        )

    def _choose_values(self, column: pd.Series[Any]) -> tuple[float, NDArray[Any], NDArray[Any]]:
        """Return the accepted error, the values to try, and the index of each record's value."""
        is_number_column = pd.api.types.is_any_real_numeric_dtype(column.dtype)
        if self.within and not is_number_column:
            raise ValueError(
                f"within={self.within!r} needs a number as attribute, but "
                f"attribute={self.attribute!r} holds other values. Set within=0 or None."
            )
        many = is_number_column and self.within is None and column.nunique() > _MAX_CATEGORIES
        if not (self.within or many):
            return 0.0, *self._list_values(column)
        numbers = self._read_truth(column, "X")
        shares = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
        # quantiles of the distinct values, too, since nearly all records may share one
        tried = np.unique(
            [np.quantile(v, shares, method="inverted_cdf") for v in (numbers, np.unique(numbers))]
        )
        codes = np.searchsorted(tried[:-1] / 2 + tried[1:] / 2, numbers)
        return float(self.within or _CLOSE * numbers.std()), tried, codes

    def _list_values(self, column: pd.Series[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the distinct values and the index of each record's; TypeError for mixed types."""
        try:
            known, codes = np.unique(column.to_numpy(), return_inverse=True)
        except (TypeError, ValueError):
            raise TypeError(
                f"attribute={self.attribute!r} has values that cannot be sorted, such as text and "
                "numbers. Give them one type."
            ) from None
        return known, codes

    def _read_truth(self, column: pd.Series[Any], name: str) -> NDArray[np.float64]:
        """Return a quantity as floats; ValueError if some value is not a finite number."""
        name = f"attribute={self.attribute!r} of {name}"
        found = as_numbers(name, column, "one finite number for each record")
        if not np.isfinite(found).all():
            raise ValueError(f"{name} holds infinite values; expected finite numbers.")
        return found

    def _other_columns(self, X: Any, y: Any) -> pd.DataFrame:
        """Return the columns without the attribute, after checking the targets."""
        frame, _ = self._split_attribute(X)
        check_consistent_length(frame, self._encode_target(y))
        return frame

    def _encode_target(self, y: Any, name: str = "y") -> NDArray[np.float64]:
        """Return the targets as numbers: a column for each class, or the targets of a regressor."""
        if not predicts_numbers(self.target):
            return np.eye(len(self.classes_))[label_columns(y, self.classes_, name)]
        found = as_numbers(name, y, "one target of the regressor for each record")
        if found.ndim not in (1, 2) or not np.isfinite(found).all():
            raise ValueError(
                f"{name} has shape {found.shape}; expected one finite target for each record."
            )
        return found.reshape(len(found), -1)

    def _target_classes(self, X: Any) -> Any:
        """Return the target's classes, None for a regressor; refuse objects that are neither."""
        self._require_target()
        if predicts_numbers(self.target):
            check_is_fitted(self.target)
            return None
        if isinstance(self.target, Updates):
            attack = UpdatesMembership(self.target)
            attack._check_target(X, np.empty(0))
            return attack._target_classes(X)
        if not hasattr(self.target, "classes_"):
            raise TypeError(
                f"target={self.target!r} must be a fitted classifier or regressor, or Updates."
            )
        return self.target.classes_

    def _likelihoods(self, filled: list[Any], y: Any) -> NDArray[np.float64]:
        """Return the log-likelihood of each value of the attribute, one column per value."""
        if isinstance(self.target, Updates):
            # one call scores every record with every value, and factorises each round once
            records = LabeledRecords(reduce(concat, filled), np.tile(y, len(filled)))
            found = self.attack_.decision_function(records)
            return found.reshape(len(filled), -1).T
        if predicts_numbers(self.target):
            y = self._encode_target(y)
            scores_of = (RESIDUALS.minus_losses(self.target, X, y, None) for X in filled)
            return np.column_stack([_residual_likelihood(-s, self.scale_) for s in scores_of])
        label = label_columns(y, self.classes_)
        probas = (predict_aligned(self.target, X, self.classes_) for X in filled)
        return np.column_stack([loss(proba, label) for proba in probas])

    def _attack_and_impute(self, X: Any, y: Any, name: str) -> tuple[Guesses, list[Guesses]]:
        """Return the guesses of the attack, and of each imputation."""
        frame, column = self._split_complete(X, name)
        check_consistent_length(frame, self._encode_target(y, name.replace("X", "y")))
        truth = self._read_truth(column, name) if self.within_ else column.to_numpy()
        by_frequency = np.tile(self.marginal_, (len(frame), 1))
        attack = self._judge(self._posterior(X, frame, y), truth)
        return attack, [self._judge(p, truth) for p in (self._impute(frame, y), by_frequency)]

    def _judge(self, proba: NDArray[np.float64], truth: NDArray[Any]) -> Guesses:
        """Compare the guesses of a distribution over values with the truth."""
        guess = self._guess(proba)
        if not self.within_:
            return Guesses(np.asarray(guess == truth), np.full(len(truth), np.nan))
        at_median = (proba.cumsum(axis=1) >= proba.sum(axis=1, keepdims=True) / 2).argmax(axis=1)
        close = np.abs(guess - truth) <= self.within_ * (1 + 1e-9)  # a rounding error is no error
        return Guesses(close, np.abs(self.values_[at_median] - truth))

    def _guess(self, proba: NDArray[np.float64]) -> NDArray[Any]:
        """Return the values that are most probably within the accepted error."""
        if self.within_:
            distance = np.abs(self.values_[:, None] - self.values_)
            proba = proba @ (distance <= self.within_ * (1 + 1e-9))
        return self.values_[proba.argmax(axis=1)]

    def _posterior(self, X: Any, frame: pd.DataFrame, y: Any) -> NDArray[np.float64]:
        """Return the probability of each value, (n_records, n_values)."""
        # log of prior times likelihood of the target, for each value of the attribute
        total = np.log(np.maximum(self._prior(frame, y), FLOOR))
        total += self._likelihoods([self._set_attribute(X, value) for value in self.values_], y)
        return softmax(total, axis=1)

    def _prior(self, frame: pd.DataFrame, y: Any) -> NDArray[np.float64]:
        if self.prior == "imputation":
            return self._impute(frame, y)
        known = self.marginal_ if self.prior == "marginal" else np.ones(len(self.values_))
        return np.tile(known, (len(frame), 1))

    def _impute(self, frame: pd.DataFrame, y: Any) -> NDArray[np.float64]:
        with name_failing_model(self.imputer_, "asked about X"):
            return np.asarray(self.imputer_.predict_proba(self._append_target(frame, y)))

    def _make_imputer(self) -> Any:
        if self.imputer is not None:
            return clone(self.imputer)
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        texts = make_column_selector(dtype_exclude="number")
        encode = make_column_transformer((codes, texts), remainder="passthrough")
        return make_pipeline(
            encode, RandomForestClassifier(100, min_samples_leaf=5, random_state=0)
        )

    def _split_complete(self, X: Any, name: str = "X") -> tuple[pd.DataFrame, pd.Series[Any]]:
        """Return the other columns and the attribute; ValueError if a value is missing."""
        frame, values = self._split_attribute(X, name)
        missing = int(pd.isna(values).sum())
        if missing:
            raise ValueError(
                f"attribute={self.attribute!r} is missing in {missing} of {len(values)} records. "
                "Leave these records out, or replace a missing value by a text, for example by "
                f"X[{self.attribute!r}].fillna('unknown')."
            )
        return frame, values

    def _split_attribute(self, X: Any, name: str = "X") -> tuple[pd.DataFrame, pd.Series[Any]]:
        """Return the other columns, named by position, and the attribute."""
        X = as_records(X, name)
        if sparse.issparse(X):
            raise TypeError(f"{name} must be dense, not sparse. Pass {name}.toarray().")
        frame = as_table(X)
        if not isinstance(self.attribute, Hashable) or self.attribute not in frame.columns:
            raise ValueError(
                f"attribute={self.attribute!r} must be a column of {name}, one of "
                f"{frame.columns.tolist()[:20]}."
            )
        others = frame.drop(columns=self.attribute)
        others.columns = [f"x{i}" for i in range(others.shape[1])]
        column = frame[self.attribute]
        return others, column.infer_objects() if column.dtype == object else column

    def _append_target(self, frame: pd.DataFrame, y: Any) -> pd.DataFrame:
        columns = self._encode_target(y).T
        return frame.assign(**{f"target{i}": column for i, column in enumerate(columns)})

    def _set_attribute(self, X: Any, value: Any) -> Any:
        """Return the records with the attribute set to ``value``, in the same container."""
        if isinstance(X, pd.DataFrame):
            frame = X.copy()
            # object, since pandas' own text type cannot represent all Python strings
            dtype = object if isinstance(value, str) else None
            column = pd.Series(value, index=X.index, dtype=dtype)
            frame[self.attribute] = column.astype(X[self.attribute].dtype)
            return frame
        filled = np.array(X)
        filled[:, int(self.attribute)] = value
        return filled


def _residual_likelihood(distance: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return the log-density of residuals with a log-uniform scale up to ``scale``.

    The integral of the normal density of scale s over ds / s, from a to b, is
    (erfc(r / (b sqrt 2)) - erfc(r / (a sqrt 2))) / (2 r), here without its constant factors.
    """
    r = np.maximum(distance, 1e-3 * _SMALLEST_SCALE * scale)  # the density is flat below
    tails = [erfc(r / (sqrt(2) * b)) for b in (scale, _SMALLEST_SCALE * scale)]
    density = (tails[0] - tails[1]) * (scale / r)
    return np.log(np.maximum(density, FLOOR))
