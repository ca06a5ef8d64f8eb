"""Private additive models: PrivateAdditiveClassifier and PrivateAdditiveRegressor.

Start reading at :meth:`PrivateAdditiveModel.fit`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils.validation import check_is_fitted

from .._docs import fill_docs
from .._groups import Groups
from .._input_data import RegressorMixin, read_records, validate_data
from .._sklearn import StrOptions
from .._validation import Interval
from ..accounting import PrivacyBudget
from ..base import PrivateFit, public_classes, public_target_bounds
from ..linear_model.logistic_regression import LinearScores
from ..mechanisms import SecureRandom
from ..preprocessing import BoundedColumn, Schema
from ..preprocessing.transformer import described_columns
from ..sums import SumTotal
from ..sums.sources import ArraySource, ScanReleases, Scans, SumSource
from ..sums.sum_estimator import SUM_DOCS
from ..sums.sum_plan import Labels, TargetRange
from ..synthesis.base import SchemaSumEstimator, public_schema
from ..synthesis.domain import Domain
from ..synthesis.marginal_tables import Plan
from ..synthesis.scanned_tables import encode_cells
from ..synthesis.synthetic_training import check_target_values
from .effects import AdditiveEffect, bin_codes
from .gradient_plan import GradientPlan, RegressionPlan
from .losses import LogisticLoss, Loss, SoftmaxLoss, SquaredLoss
from .regression import fit_regression, plan_totals
from .rounds import FittedEffects, PairOffer, fit_effects
from .row_plan import RowPlan

# Rounds for each column: more if there is little noise, or none.
_ROUNDS, _MORE_ROUNDS, _PLAIN_ROUNDS = 1, 2, 4
_LEAST_COLUMNS = 6  # fewer columns get as many rounds
_LITTLE_NOISE = 5.0  # epsilon

# Paragraphs of docstrings that both models share, see skprivacy/_docs.py.
_DOCS = {
    "additive_parameters": """\
epsilon : float, default=1.0
    Privacy loss of the fit, in nats; at least 0.001. ``numpy.inf`` fits without noise **and without
    any guarantee**, for comparison.
delta : float, default=1e-5
    In (0, 1), far below 1 / number of records.
schema : Schema, default=None
    Public ranges and categories of the columns, and the classes or bounds of the target. ``None``
    reads them off the data, and the guarantee then names this as an assumption.
n_rounds : int, default=None
    Number of tables that are chosen and measured after the first ones. ``None`` means the number of
    columns, at least 6, twice as many from ``epsilon=5`` on, and four times as many without noise.
max_pairs : int, default=300
    Largest number of pairs of columns among which tables are chosen, which determines the time.
    Beyond it, columns with large first effects are paired. 0 leaves single columns only. The
    schema's ``crosses`` are added to them.
relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
    Neighbouring relation. Under "add_remove" the number of records is private. "replace_one" needs
    about twice the noise.""",
    "additive_attributes": """\
intercept_ : ndarray of shape (n_outputs,)
    The score of an average record.
effects_ : list of AdditiveEffect
    The effect of each column, then of each chosen pair, the largest first. The score of a record is
    the intercept plus its effects. An effect has ``columns``, ``scores`` by bin and output, in
    log-odds or units of the target and 0 on average, and ``noise_std``, the noise in them.
n_records_ : int
    The number of records, or of groups, estimated from noisy tables.
domain_ : Domain
    The public cells of each column.
integer_columns_ : tuple of str
    The columns whose type holds integers only. A cell of these is one or more integers.
bins_ : list of ndarray of shape (n_cells,)
    The bin of each cell, by column.
schema_ : Schema
    The schema used.""",
    "additive_guarantees": """\
**Guarantees.** (``epsilon``, ``delta``)-differential privacy of all fitted attributes. The unit is
a record or, with ``groups``, a group. A record enters each release as one row of norm at most 1:
its class, or its clipped distance to the released mean, in a table of each column, released
together; and in each round the first two derivatives of its loss. One table per round is chosen by
the exponential mechanism and released with discrete Gaussian noise. Bounds and proofs are in
``losses``, ``regression`` and ``gradient_plan``. Bins, steps and their shrinkage are computed from
noisy tables only. The releases are composed by their privacy loss distributions.""",
    "regression_guarantees": """\
The first release is of three totals: a record adds its target and the square. The last one is of
the derivatives by a common factor of all effects, and of the mean residual: where the factor is
within two standard deviations of its noise, the effects are 0, and the mean is predicted.""",
    "additive_edge_cases": """\
A value beyond its range counts as the nearer end. A column of an integer type has cells of whole
numbers, and the guarantee then names the types as an assumption. A record is left out of the fit if
a value is missing or unknown, unless its column has ``missing=True`` in the schema. In predictions
such a value has no effect. Sums are on a grid of 2**-16, so a group of more than 65,536 records
adds nothing.""",
}


def build_domain(facts: Mapping[str, Any], integers: Collection[str]) -> Domain:
    """Return the public cells of the columns that a schema describes."""
    missing = [name for name, fact in facts.items() if fact.missing]
    return Domain.from_facts(facts, {}, missing, dict.fromkeys(integers, np.dtype(np.int64)))


def _find_integers(facts: Mapping[str, Any], X: Any) -> list[str]:
    """Return the numeric columns whose type holds integers only."""
    types = dict(X.dtypes) if isinstance(X, pd.DataFrame) else dict.fromkeys(facts, X.dtype)
    return [
        name
        for name, fact in facts.items()
        if isinstance(fact, BoundedColumn) and pd.api.types.is_integer_dtype(types[name])
    ]


@fill_docs(SUM_DOCS)
class PrivateAdditiveModel(SchemaSumEstimator, BaseEstimator):
    """Base class: sums of effects of one and two columns, fitted in private rounds."""

    schema_: Schema
    domain_: Domain
    effects_: list[AdditiveEffect]

    # attributes that save_model writes; persistence.attribute_states explains the words
    _saved_state = {
        "schema_": "schema",
        "integer_columns_": "values",
        "bins_": "bins",
        "effects_": "effects",
        "intercept_": "array outputs",
        "n_records_": "count",
        "privacy_": "guarantee",
    }
    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 1e-3, None, closed="both")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "schema": [Schema, None],
        "n_rounds": [Interval(Integral, 1, 1000, closed="both"), None],
        "max_pairs": [Interval(Integral, 0, None, closed="left")],
        "relation": [StrOptions({"add_remove", "zero_out", "replace_one"})],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        schema: Schema | None = None,
        n_rounds: int | None = None,
        max_pairs: int = 300,
        relation: str = "add_remove",
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.n_rounds = n_rounds
        self.max_pairs = max_pairs
        self.relation = relation
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: ArrayLike | str, *, groups: ArrayLike | str | None = None) -> Any:
        """Fit to private records in memory, or to a table where it lies.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features), or table
            Private records, with the schema's columns. A table of pandas, polars, pyarrow, DuckDB,
            Dask, Ray or Spark stays in its engine, which computes sums. There is one scan for the
            start and one for each round; a regression has two more.
        y : array-like of shape (n_samples,) or str
            Targets, or the column of a table that holds them.
        %(table_groups)s

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        %(table_raises)s

        Notes
        -----
        %(table_edge_cases)s
        """
        return self._fit_table(X, y, groups)

    def _read_arrays(self, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Groups]:
        y = check_target_values(self, X, y)
        return read_records(
            self, X, y, groups, y_numeric=is_regressor(self), **self._input_checks()
        )

    def _make_release(self, fit: PrivateFit, source: SumSource) -> ScanReleases:
        schema, X = public_schema(fit, source.rows, self.schema)
        if not isinstance(source, ArraySource):
            self._check_target_facts(source.target, schema)
        facts = schema._check_kinds(fit.source, missing=True)
        integers = _find_integers(facts, X)
        if integers:
            fit.assume("the types of the columns are public")
        domain = build_domain(facts, integers)
        loss, encoding = self._public_target(fit, np.asarray(source.y), schema)
        singles = tuple((c,) for c in range(len(schema)))
        start_plan = RowPlan(domain, source.target, encoding, loss, singles, unit=source.unit)
        if isinstance(source, ArraySource):
            series = [column for column, _ in described_columns(schema, X)]
            target = encoding.encode(np.asarray(source.y))
            source.read = lambda: (encode_cells(domain, series), target)
        names = list(schema)
        crosses = [sorted(map(names.index, pair)) for pair in schema.crosses]
        offer = PairOffer([(a, b) for a, b in crosses], self.max_pairs)
        first_plan, plan, scan = self._plan_scans(start_plan, offer)

        def store(fitted: FittedEffects, _: int) -> None:
            self.schema_, self.domain_, self.integer_columns_ = schema, domain, tuple(integers)
            self._store(fitted)

        return ScanReleases(first_plan, plan.event, plan.arithmetic, scan, store)

    def _check_target_facts(self, target: str, schema: Schema) -> None:
        """Refuse a fit by sums without a target, or without the public facts of the target."""
        if not target:
            raise ValueError("y=None: the model needs a target. Pass y, the name of its column.")
        fact = "target_bounds" if is_regressor(self) else "classes"
        if getattr(schema, fact) is None:
            raise ValueError(
                f"The schema has {fact}=None: a fit by sums reads no public fact off the table. "
                f"Pass Schema(..., {fact}=...) from public knowledge."
            )

    def _count_rounds(self, n_columns: int) -> int:
        """Return the number of rounds, from public facts."""
        if self.n_rounds is not None:
            return int(self.n_rounds)
        for_each = _ROUNDS if self.epsilon < _LITTLE_NOISE else _MORE_ROUNDS
        for_each = _PLAIN_ROUNDS if math.isinf(self.epsilon) else for_each
        return for_each * max(n_columns, _LEAST_COLUMNS)

    @abstractmethod
    def _public_target(
        self, fit: PrivateFit, y: NDArray, schema: Schema
    ) -> tuple[Loss, Labels | TargetRange]:
        """Return the loss and the form of its targets, from public facts."""

    @abstractmethod
    def _plan_scans(
        self, start_plan: RowPlan, offer: PairOffer
    ) -> tuple[RowPlan, GradientPlan, Callable[[SumTotal, SecureRandom], Scans]]:
        """Return the plan of the first scan, the mechanisms, and the releases of all scans."""

    def _calibrate(self, kind: Callable[[int, int, bool, str], Plan], n_columns: int) -> Plan:
        """Return the mechanisms that spend epsilon and delta."""
        plan = kind(n_columns, self._count_rounds(n_columns), False, self.relation)
        return plan.calibrated(float(self.epsilon), float(self.delta))

    def _score_unit(self) -> float:
        """Return the unit of the effects in units of the loss."""
        return 1.0

    def _store(self, fitted: FittedEffects) -> None:
        """Store effects of average 0, and move their averages to the intercept."""
        unit, names = self._score_unit(), self.domain_.names
        constant, effects = fitted.constant.copy(), []
        for columns, effect in fitted.effects.items():
            average = fitted.average(columns, effect.scores)
            constant += average
            scores, std = effect.scores - average, np.sqrt(effect.variance)
            named = tuple(names[c] for c in columns)
            effects.append(AdditiveEffect(named, unit * scores, unit * std))
        self.effects_ = sorted(effects, key=lambda effect: (len(effect.columns), -effect.size))
        self.intercept_ = unit * constant
        self.bins_ = [bins.cells for bins in fitted.bins]
        self.n_records_ = round(fitted.n_records)

    def _finish_loading(self) -> None:
        """Rebuild the public cells of a model from a file."""
        if self.n_features_in_ != len(self.schema_):
            raise ValueError(
                f"the schema has {len(self.schema_)} columns, and the model another number"
            )
        self.domain_ = build_domain(self.schema_, self.integer_columns_)

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "effects_")
        X = validate_data(self, X, reset=False, **self._input_checks())
        if not set(self.schema_) <= set(getattr(X, "columns", self.schema_)):
            X = X.set_axis(list(self.schema_), axis=1)  # names that were numbers
        series = [column for column, _ in described_columns(self.schema_, X)]
        cells = self.domain_.cell_codes(series)
        bins = [bin_codes(cells[:, c], own) for c, own in enumerate(self.bins_)]
        of = dict(zip(self.domain_.names, bins, strict=True))
        total = np.tile(self.intercept_, (len(cells), 1))
        for effect in self.effects_:
            total += effect.lookup(tuple(of[name] for name in effect.columns))
        return total


@fill_docs(_DOCS)
class PrivateAdditiveClassifier(LinearScores, PrivateAdditiveModel):
    """Classify tables by a private additive model of single columns and pairs of columns.

    The log-odds are a sum of effects: tables over the bins of a column, or of two. In each round,
    the exponential mechanism chooses the table in which the model fits worst, and the Gaussian
    mechanism measures the derivatives of the loss in its cells. A Newton step follows, shrunk and
    smoothed by empirical Bayes. Without the pairs it is a generalised additive model with boosted
    histograms, as in explainable boosting machines.

    Parameters
    ----------
    %(additive_parameters)s
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    %(additive_attributes)s
    %(guarantee_attributes)s
    %(feature_attributes)s

    See Also
    --------
    PrivateAdditiveRegressor : The same for numeric targets.
    skprivacy.display.PrivateAdditiveDisplay : Draw the effects with their noise.
    skprivacy.neural_network.DPSGDClassifier : For small tables and for images.

    Notes
    -----
    %(additive_guarantees)s

    **Edge cases.** %(additive_edge_cases)s

    References
    ----------
    H. Nori, R. Caruana, Z. Bu, J. H. Shen and J. Kulkarni, "Accuracy, interpretability, and
    differential privacy via explainable boosting", ICML 2021.
    R. McKenna, B. Mullins, D. Sheldon and G. Miklau, "AIM: an adaptive and iterative mechanism for
    differentially private synthetic data", VLDB 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.additive_model import PrivateAdditiveClassifier
    >>> from skprivacy.preprocessing import BoundedColumn, Schema
    >>> X = np.random.default_rng(0).uniform(-1, 1, (10_000, 2))
    >>> y = X[:, 0] * X[:, 1] > 0  # neither column tells anything by itself
    >>> schema = Schema(
    ...     {"a": BoundedColumn(-1, 1), "b": BoundedColumn(-1, 1)}, classes=[False, True]
    ... )
    >>> model = PrivateAdditiveClassifier(1.0, 1e-6, schema=schema).fit(X, y)
    >>> model.privacy_
    (1.00, 1e-06)-DP, add-remove, exact noise, proved
    >>> model.score(X, y) > 0.9
    True
    """

    _saved_state = {"classes_": "labels", **PrivateAdditiveModel._saved_state}

    def _public_target(
        self, fit: PrivateFit, y: NDArray, schema: Schema
    ) -> tuple[Loss, Labels | TargetRange]:
        self.classes_, _ = public_classes(fit, y, schema.classes)
        n_classes = len(self.classes_)
        loss = LogisticLoss() if n_classes == 2 else SoftmaxLoss(n_classes)
        return loss, Labels(tuple(self.classes_))

    def _plan_scans(
        self, start_plan: RowPlan, offer: PairOffer
    ) -> tuple[RowPlan, GradientPlan, Callable[[SumTotal, SecureRandom], Scans]]:
        plan = self._calibrate(GradientPlan, len(start_plan.domain.columns))
        return start_plan, plan, partial(fit_effects, start_plan, plan, offer)


@fill_docs(_DOCS)
class PrivateAdditiveRegressor(RegressorMixin, PrivateAdditiveModel):
    """Predict numbers by a private additive model of single columns and pairs of columns.

    Like :class:`PrivateAdditiveClassifier`, with clipped residuals in place of log-odds.

    Parameters
    ----------
    %(additive_parameters)s
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    target_bounds_ : tuple of float
        Bounds to which targets and predictions are clipped.
    %(additive_attributes)s
    %(guarantee_attributes)s
    %(feature_attributes)s

    See Also
    --------
    PrivateAdditiveClassifier : The same for classes.
    skprivacy.display.PrivateAdditiveDisplay : Draw the effects with their noise.

    Notes
    -----
    %(additive_guarantees)s
    %(regression_guarantees)s

    **Edge cases.** %(additive_edge_cases)s

    References
    ----------
    H. Nori, R. Caruana, Z. Bu, J. H. Shen and J. Kulkarni, "Accuracy, interpretability, and
    differential privacy via explainable boosting", ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.additive_model import PrivateAdditiveRegressor
    >>> from skprivacy.preprocessing import BoundedColumn, Schema
    >>> X = np.random.default_rng(0).uniform(-1, 1, (10_000, 2))
    >>> y = X[:, 0] * X[:, 1]
    >>> schema = Schema(
    ...     {"a": BoundedColumn(-1, 1), "b": BoundedColumn(-1, 1)}, target_bounds=(-1, 1)
    ... )
    >>> model = PrivateAdditiveRegressor(1.0, 1e-6, schema=schema).fit(X, y)
    >>> model.score(X, y) > 0.8
    True
    """

    _saved_state = {"target_bounds_": "interval", **PrivateAdditiveModel._saved_state}

    target_bounds_: tuple[float, float]

    def _public_target(
        self, fit: PrivateFit, y: NDArray, schema: Schema
    ) -> tuple[Loss, Labels | TargetRange]:
        y = y.astype(np.float64)
        self.target_bounds_ = public_target_bounds(fit, y, schema.target_bounds)
        return SquaredLoss(), TargetRange(*self.target_bounds_)

    def _plan_scans(
        self, start_plan: RowPlan, offer: PairOffer
    ) -> tuple[RowPlan, GradientPlan, Callable[[SumTotal, SecureRandom], Scans]]:
        plan = self._calibrate(RegressionPlan, len(start_plan.domain.columns))
        totals = plan_totals(start_plan, SquaredLoss())
        return totals, plan, partial(fit_regression, totals, start_plan, plan, offer)

    def _score_unit(self) -> float:
        return (self.target_bounds_[1] - self.target_bounds_[0]) / 2

    def _store(self, fitted: FittedEffects) -> None:
        super()._store(fitted)
        self.intercept_ = self.intercept_ + sum(self.target_bounds_) / 2

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict the target, clipped to its public bounds.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictions in the units of the target.
        """
        return np.clip(self._scores(X)[:, 0], *self.target_bounds_)
