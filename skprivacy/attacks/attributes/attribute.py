"""Attribute inference from a model or from updates, compared with imputation (Yeom et al. 2018)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import binomtest
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils.validation import check_is_fitted

from ... import metrics
from ..._clones import name_failing_model
from ..._docs import fill_docs
from ..._input_data import check_consistent_length, column_or_1d, label_columns
from ...base import roll_back_on_error
from .. import scores
from ..membership.labeled_records import LabeledRecords
from ..membership.update_membership import UpdatesMembership
from ..model_answers import TargetAttack, check_known, class_list, predict_aligned
from ..record_tables import as_records, as_table, concat
from ..updates import Updates

__all__ = ["AttributeInference", "AttributeResult"]


@dataclass(frozen=True, repr=False)
class AttributeResult:
    """Accuracy of attribute inference, compared with imputation without the model.

    Attributes
    ----------
    accuracy_in, accuracy_out : float
        Share of members, and of non-members, whose attribute the attack inferred.
    baseline_in, baseline_out : float
        The same for imputation from the other attributes and the class, without the model.
    advantage : float
        ``accuracy_in - accuracy_out``: the effect of membership. A correlation that the model has
        learned helps equally for members and non-members, and does not leak any record.
    advantage_interval : (float, float)
        Confidence interval of ``advantage``.
    gain : float
        ``accuracy_in - baseline_in``: the improvement over imputation.
    gain_p_value : float
        P-value of the exact one-sided McNemar test that the attack is right on members more often
        than imputation.
    """

    accuracy_in: float
    accuracy_out: float
    baseline_in: float
    baseline_out: float
    advantage: float
    advantage_interval: tuple[float, float]
    gain: float
    gain_p_value: float

    def __repr__(self) -> str:
        low, high = self.advantage_interval
        return (
            f"inferred {self.accuracy_in:.3f} of members, {self.accuracy_out:.3f} of others "
            f"(advantage {self.advantage:.3f} [{low:.3f}, {high:.3f}]); without the model "
            f"{self.baseline_in:.3f} and {self.baseline_out:.3f} "
            f"(gain {self.gain:.3f}, p = {self.gain_p_value:.2g})"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row of figures.

        Returns
        -------
        DataFrame
            The attributes as columns; the interval takes two columns.
        """
        row = dict(self.__dict__)
        row["advantage_low"], row["advantage_high"] = row.pop("advantage_interval")
        return pd.DataFrame([row])


_DOCS = {
    "predict_sections": """\
Parameters
----------
X : {array-like, DataFrame} of shape (n_records, n_features)
    Records with the attribute's column, which may hold any values.
y : array-like of shape (n_records,)
    Their classes.

Returns
-------
ndarray of shape (n_records,)
    Values of the attribute."""
}


@fill_docs(_DOCS)
class AttributeInference(TargetAttack):
    """Infer one attribute of a record from its other attributes, its class and a model or updates.

    Each value of the attribute is tried in turn. The classic attack (Fredrikson et al. 2014,
    Yeom et al. 2018) takes the value that fits the class best, weighted by its frequency.
    ``prior="imputation"`` weights each value by its probability given the other attributes (after
    Mehnaz et al. 2022; Jayaraman & Evans 2022), so the model must improve on imputation. From the
    updates of federated training (Melis et al. 2019), the attack takes the value with which the
    record's gradient agrees best.

    Parameters
    ----------
    target : fitted classifier with ``predict_proba``, or Updates, default=None
        The target model, or the updates that the attacker has seen.
    attribute : int or str, default=0
        Column of the attribute; a name if records are DataFrames.
    prior : {"imputation", "marginal", "uniform"}, default="imputation"
        Prior probabilities of the attribute, before querying the model.
    imputer : classifier with ``predict_proba``, default=None
        Learns the attribute from the other columns and the class. None: a random forest.
    n_reference : int, default=1000
        Maximum number of the attacker's records that estimate the distribution of gradients, for
        Updates.

    Attributes
    ----------
    values_ : ndarray of shape (n_values,)
        Values of the attribute among the records given to ``fit``.
    attack_ : UpdatesMembership
        Scores a record with each value, if the target is Updates.

    Notes
    -----
    **Edge cases.** The attribute must have at least two values among the attacker's records. Bin a
    continuous attribute first. ``fit`` and ``evaluate`` need the true value and refuse records in
    which it is missing, which would count as inferred wrongly.

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
    >>> result.baseline_in < 0.6
    True
    """

    def __init__(
        self,
        target: Any = None,
        *,
        attribute: int | str = 0,
        prior: str = "imputation",
        imputer: Any = None,
        n_reference: int = 1000,
    ) -> None:
        self.target = target
        self.attribute = attribute
        self.prior = prior
        self.imputer = imputer
        self.n_reference = n_reference

    def fit(self, X: Any, y: Any) -> AttributeInference:
        """Learn the attribute's values and their probabilities from the attacker's records.

        Parameters
        ----------
        X : {array-like, DataFrame} of shape (n_records, n_features)
            Records like the members, but not among those that will be attacked.
        y : array-like of shape (n_records,)
            Their classes.

        Returns
        -------
        AttributeInference
            Itself, fitted.
        """
        classes = self._target_classes(X)
        if not isinstance(self.prior, str) or self.prior not in (
            "imputation",
            "marginal",
            "uniform",
        ):
            raise ValueError(f"prior={self.prior!r} must be 'imputation', 'marginal' or 'uniform'.")
        frame, values = self._split_complete(X)
        y = column_or_1d(y)
        check_consistent_length(frame, y)
        try:
            known, counts = np.unique(values, return_counts=True)
        except (TypeError, ValueError):
            raise TypeError(
                f"attribute={self.attribute!r} has values that cannot be sorted, such as text and "
                "numbers. Give them one type."
            ) from None
        if len(known) < 2:
            raise ValueError(
                f"attribute={self.attribute!r} must have at least two values among the attacker's "
                "records, but has one. Pass other records or another attribute."
            )
        with roll_back_on_error(self):
            self.values_ = known
            self.classes_ = class_list(classes, y)
            check_known(np.asarray(y), classes)
            if isinstance(self.target, Updates):
                self.attack_ = UpdatesMembership(self.target, n_reference=self.n_reference).fit(
                    LabeledRecords(X, y)
                )
            self.marginal_ = counts / counts.sum()
            self.imputer_ = self._make_imputer().fit(self._with_class(frame, y), values.astype(str))
        return self

    def predict(self, X: Any, y: Any) -> NDArray[Any]:
        """Infer the attribute of each record, without reading its value in ``X``.

        %(predict_sections)s
        """
        check_is_fitted(self)
        frame = self._other_columns(X, y)
        # log of prior times likelihood of the class, for each value of the attribute
        total = np.log(np.maximum(self._prior(frame, y), scores.FLOOR))
        total += self._likelihoods([self._fill(X, value) for value in self.values_], y)
        return self.values_[total.argmax(axis=1)]

    def impute(self, X: Any, y: Any) -> NDArray[Any]:
        """Infer the attribute from the other attributes and the class, without the model: baseline.

        %(predict_sections)s
        """
        check_is_fitted(self)
        frame = self._other_columns(X, y)
        return self.values_[self._imputed(frame, y).argmax(axis=1)]

    def evaluate(
        self, X_in: Any, y_in: Any, X_out: Any, y_out: Any, *, alpha: float = 0.05
    ) -> AttributeResult:
        """Attack members and non-members, and impute both.

        Parameters
        ----------
        X_in, y_in : array-like
            Members: records of the target's training set and their classes, as in ``fit``.
        X_out, y_out : array-like
            Non-members from the same population.
        alpha : float, default=0.05
            Error probability of the interval.

        Returns
        -------
        AttributeResult
            The shares that were inferred and imputed, and their differences.
        """
        check_is_fitted(self)
        right_in, imputed_in = self._correct(X_in, y_in, "X_in")
        right_out, imputed_out = self._correct(X_out, y_out, "X_out")
        difference = right_in.mean() - right_out.mean()
        # Newcombe's interval for a difference, from exact intervals for the two rates
        low_in, high_in = metrics.clopper_pearson(int(right_in.sum()), len(right_in), alpha)
        low_out, high_out = metrics.clopper_pearson(int(right_out.sum()), len(right_out), alpha)
        down = np.hypot(right_in.mean() - low_in, high_out - right_out.mean())
        up = np.hypot(high_in - right_in.mean(), right_out.mean() - low_out)
        won, lost = int(np.sum(right_in & ~imputed_in)), int(np.sum(~right_in & imputed_in))
        p_value = binomtest(won, won + lost, alternative="greater").pvalue if won + lost else 1.0
        return AttributeResult(
            accuracy_in=float(right_in.mean()),
            accuracy_out=float(right_out.mean()),
            baseline_in=float(imputed_in.mean()),
            baseline_out=float(imputed_out.mean()),
            advantage=float(difference),
            advantage_interval=(float(difference - down), float(difference + up)),
            gain=float(right_in.mean() - imputed_in.mean()),
            gain_p_value=float(p_value),
        )

    def _other_columns(self, X: Any, y: Any) -> pd.DataFrame:
        """Return the columns without the attribute, after checking the classes."""
        frame, _ = self._split(X)
        check_consistent_length(frame, label_columns(y, self.classes_))
        return frame

    def _target_classes(self, X: Any) -> Any:
        """Return the target's classes; refuse objects that are not fitted classifiers."""
        self._require_target()
        if isinstance(self.target, Updates):
            attack = UpdatesMembership(self.target)
            attack._check_target(X, np.empty(0))
            return attack._target_classes(X)
        if not hasattr(self.target, "classes_"):
            raise TypeError(f"target={self.target!r} must be a fitted classifier, or Updates.")
        return self.target.classes_

    def _likelihoods(self, filled: list[Any], y: Any) -> NDArray[np.float64]:
        """Return the log-likelihood of each value of the attribute, one column per value."""
        if isinstance(self.target, Updates):
            # one call scores every record with every value, and factorises each round once
            records = LabeledRecords(reduce(concat, filled), np.tile(y, len(filled)))
            found = self.attack_.decision_function(records)
            return found.reshape(len(filled), -1).T
        label = label_columns(y, self.classes_)
        probas = (predict_aligned(self.target, X, self.classes_) for X in filled)
        return np.column_stack([scores.loss(proba, label) for proba in probas])

    def _correct(self, X: Any, y: Any, name: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        values = self._split_complete(X, name)[1]
        label_columns(y, self.classes_, name.replace("X", "y"))
        return self.predict(X, y) == values, self.impute(X, y) == values

    def _prior(self, frame: pd.DataFrame, y: Any) -> NDArray[np.float64]:
        if self.prior == "imputation":
            return self._imputed(frame, y)
        known = self.marginal_ if self.prior == "marginal" else np.ones(len(self.values_))
        return np.tile(known, (len(frame), 1))

    def _imputed(self, frame: pd.DataFrame, y: Any) -> NDArray[np.float64]:
        with name_failing_model(self.imputer_, "asked about X"):
            proba = self.imputer_.predict_proba(self._with_class(frame, y))
        columns = [list(self.imputer_.classes_).index(str(value)) for value in self.values_]
        return proba[:, columns]

    def _make_imputer(self) -> Any:
        if self.imputer is not None:
            if not hasattr(self.imputer, "fit"):
                raise TypeError(f"imputer={self.imputer!r} must be a classifier, or None.")
            return clone(self.imputer)
        encode = make_column_transformer(
            (
                OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
                make_column_selector(dtype_exclude="number"),
            ),
            remainder="passthrough",
        )
        forest = RandomForestClassifier(100, min_samples_leaf=5, random_state=0)
        return make_pipeline(encode, forest)

    def _split_complete(self, X: Any, name: str = "X") -> tuple[pd.DataFrame, NDArray[Any]]:
        """Return the other columns and the attribute; ValueError if a value is missing."""
        frame, values = self._split(X, name)
        missing = int(pd.isna(values).sum())
        if missing:
            raise ValueError(
                f"attribute={self.attribute!r} is missing in {missing} of {len(values)} records. "
                "Leave these records out, or replace a missing value by a text, for example by "
                f"X[{self.attribute!r}].fillna('unknown')."
            )
        return frame, values

    def _split(self, X: Any, name: str = "X") -> tuple[pd.DataFrame, NDArray[Any]]:
        """Return the other columns, named by position, and the attribute."""
        X = as_records(X, name)
        if sparse.issparse(X):
            raise TypeError(f"{name} must be dense, not sparse. Pass {name}.toarray().")
        if X.ndim != 2:
            raise ValueError(f"{name} has shape {X.shape}; expected (n_records, n_features).")
        frame = as_table(X)
        if not isinstance(self.attribute, Hashable) or self.attribute not in frame.columns:
            raise ValueError(
                f"attribute={self.attribute!r} must be a column of {name}, one of "
                f"{frame.columns.tolist()[:20]}."
            )
        others = frame.drop(columns=self.attribute)
        others.columns = [f"x{i}" for i in range(others.shape[1])]
        return others, frame[self.attribute].to_numpy()

    def _with_class(self, frame: pd.DataFrame, y: Any) -> pd.DataFrame:
        label = label_columns(y, self.classes_)
        one_hot = np.eye(len(self.classes_))[label]
        names = [f"class{i}" for i in range(len(self.classes_))]
        return frame.assign(**dict(zip(names, one_hot.T, strict=True)))

    def _fill(self, X: Any, value: Any) -> Any:
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
