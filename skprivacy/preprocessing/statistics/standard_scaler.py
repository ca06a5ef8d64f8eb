"""Standard scaler with differentially private means and variances."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..._docs import fill_docs
from ..._groups import Groups
from ..._input_data import read_records, validate_data
from ..._sklearn import StrOptions
from ..._validation import Interval
from ...accounting import PrivacyBudget
from ...base import PrivateFit, public_bounds
from ...sums.sources import SumRelease, SumSource
from ...sums.sum_estimator import SUM_DOCS, SumEstimator
from .moments import BoundedColumns
from .release import RELATIONS, RELEASE_DOCS


@fill_docs({**RELEASE_DOCS, **SUM_DOCS})
class PrivateStandardScaler(SumEstimator, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Centre and scale columns by private means and variances.

    If public bounds already give well-scaled features, use a
    :class:`~skprivacy.preprocessing.SchemaTransformer`, which costs no privacy.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the fit for all columns together, in nats. At least 1e-6. ``numpy.inf`` fits
        without noise **and without any guarantee**, for comparison.
    delta : float, default=0.0
        0 for Laplace noise, above 0 for Gaussian noise.
    bounds : tuple (lower, upper), default=None
        Public bounds: two numbers, or two sequences of length n_features. With two features, pass
        two arrays, because a list of two pairs is ambiguous. Values outside are clipped, also by
        ``transform``.
    %(mean_relation)s
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    mean_, var_, scale_ : ndarray of shape (n_features,)
        Private means, variances, and their roots, which are at least 1% of the bounds' width.
    bounds_ : tuple of two ndarrays of shape (n_features,)
        The bounds used.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** ``mean_``, ``var_`` and ``scale_`` are (``epsilon``, ``delta``)-differentially
    private. The unit is a row or, with ``groups``, a group. A private model trained on the scaled
    data spends its own budget **in addition**.

    **Edge cases.** NaN counts as the middle of the bounds in ``fit`` and stays NaN in
    ``transform``. Infinity is clipped.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.preprocessing import PrivateStandardScaler
    >>> X = np.random.default_rng(0).normal([40, 70], [10, 15], size=(10_000, 2))
    >>> scaler = PrivateStandardScaler(bounds=([0, 0], [120, 200])).fit(X)
    >>> bool(abs(scaler.transform(X).std() - 1) < 0.3)
    True
    """

    # The attributes that save_model writes, in the notation of persistence.attribute_states.
    _saved_state = {
        "bounds_": "bounds",
        "mean_": "array features",
        "var_": "array features",
        "scale_": "positive features",
        "privacy_": "guarantee",
    }
    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 1e-6, None, closed="both")],
        "delta": [Interval(Real, 0, 1, closed="left")],
        "bounds": ["array-like", None],
        "relation": [StrOptions(set(RELATIONS))],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        bounds: Any = None,
        relation: str = "add_remove",
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.relation = relation
        self.budget = budget
        self.noise_seed = noise_seed

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None, *, groups: ArrayLike | str | None = None) -> Any:
        """Release means and variances.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or table
            Private records. A table of polars, DuckDB, Dask, Ray or Spark, or a pyarrow data set
            stays in its engine, which computes sums.
        y : None
            Ignored.
        %(table_groups)s
            Each of the m records of a group counts 1 / m.

        Returns
        -------
        PrivateStandardScaler
            The fitted scaler.

        Raises
        ------
        %(table_raises)s
        """
        return self._fit_table(X, None, groups)

    def _read_arrays(self, X: Any, y: Any, groups: Any) -> tuple[NDArray, None, Groups]:
        return read_records(self, X, groups=groups, dtype=np.float64)

    def _make_release(self, fit: PrivateFit, source: SumSource) -> SumRelease:
        self.bounds_ = public_bounds(fit, source.rows, self.bounds)
        columns = BoundedColumns(source, self._feature_names(source), self.bounds_)

        def read_moments(moments: NDArray[np.float64]) -> None:
            self.mean_, self.var_ = columns.means(moments), columns.variances(moments)
            floor = np.where(columns.half > 0, 0.02 * columns.half, 1.0)
            self.scale_ = np.maximum(np.sqrt(self.var_), floor)

        statistic = columns.moments(2, self.relation, read_moments)
        return statistic.calibrated(self.epsilon, self.delta)

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return columns clipped to their bounds, centred and scaled.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            In double precision.
        """
        check_is_fitted(self, "mean_")
        X = validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite=False)
        return (np.clip(X, *self.bounds_) - self.mean_) / self.scale_
