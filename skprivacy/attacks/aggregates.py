"""Membership inference from published means, frequencies and marginals."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import inv
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator
from sklearn.covariance import ledoit_wolf
from sklearn.utils.validation import check_is_fitted

from .._input_data import check_array
from .._sklearn import StrOptions
from .._validation import Interval, whole
from ..base import rolls_back_on_error
from ..metrics.rates import as_numbers
from .attack_result import AttackResult

Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class ExpectedPower:
    """Expected power of the best linear membership test on published means.

    Parameters
    ----------
    mu : float
        Difference of the mean scores of members and non-members, in standard deviations.

    Attributes
    ----------
    auc : float
        Expected area under the ROC curve.
    """

    mu: float

    @property
    def auc(self) -> float:
        return float(ndtr(self.mu / np.sqrt(2)))

    def tpr(self, fpr: ArrayLike) -> Float64Array:
        """Return the expected true positive rate at false positive rates."""
        rates = as_numbers("fpr", fpr, "one rate or an array of rates")
        if not ((rates >= 0) & (rates <= 1)).all():
            raise ValueError(f"fpr={fpr!r} must be in [0, 1].")
        return np.asarray(ndtr(self.mu + ndtri(rates)), dtype=float)


class AggregateAttack(BaseEstimator):
    """Infer membership from published means, by the best linear test or Homer's test.

    On average, the published means of a sample lie slightly closer to its members than the
    population means do, in every column. An attacker who knows a record, the published means and
    the population can therefore infer whether the record is in the sample. Frequencies, histograms
    and marginals are means of columns of zeros and ones.

    Parameters
    ----------
    n_records : int
        Number of records in each mean.
    statistic : {"linear", "homer"}, default="linear"
        "linear" is the most powerful test among sums over columns (Sankararaman et al. 2009).
        "homer" compares distances from the published means with distances from the population
        means (Homer et al. 2008).
    noise_std : float or array-like of shape (n_columns,), default=0.0
        Standard deviation of the noise that was added to each mean. None estimates one value for
        all columns, from the distance between published and population means.
    correlated : bool, default=False
        Whether to use the shrunk covariance of ``reference``, for correlated columns such as the
        cells of a histogram. Needs "linear" and a reference.
    fpr : float, default=0.05
        False positive rate that ``predict`` aims at.

    Attributes
    ----------
    means_, variances_ : ndarray of shape (n_columns,)
        Means and variances of the population, as given or estimated.
    noise_std_ : ndarray of shape (n_columns,)
        Standard deviation of the noise, as given or estimated.
    threshold_ : float
        Records that score higher are called members.

    Notes
    -----
    The score is T(x) = sum_j (x_j - p_j) (q_j - p_j) / (v_j (1 + n / m) + n s_j^2). Here p and v
    are the population means and variances, q the published means, s the noise, n the number of
    records in each mean and m the number of reference records. Without noise, it is the
    log-likelihood ratio of normal means, up to a constant. Constant columns are left out.

    **Edge cases.** The threshold is a quantile of the scores of the reference records, each scored
    with the other reference records. Without a reference it is a quantile of a normal law, which
    assumes independent columns.

    References
    ----------
    N. Homer et al. Resolving individuals contributing trace amounts of DNA to highly complex
    mixtures using high-density SNP genotyping microarrays. PLoS Genetics 2008.

    S. Sankararaman, G. Obozinski, M. I. Jordan, E. Halperin. Genomic privacy and limits of
    individual detection in a pool. Nature Genetics 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import AggregateAttack
    >>> rng = np.random.default_rng(0)
    >>> genotypes = rng.binomial(2, rng.uniform(0.05, 0.95, 2000), size=(1100, 2000)) / 2
    >>> patients, strangers, reference = genotypes[:100], genotypes[100:200], genotypes[200:]
    >>> attack = AggregateAttack(n_records=100).fit(patients.mean(axis=0), reference)
    >>> attack.evaluate(patients, strangers).auc > 0.99
    True
    """

    _parameter_constraints: dict[str, Any] = {
        "n_records": [Interval(Integral, 1, None, closed="left")],
        "statistic": [StrOptions({"linear", "homer"})],
        "noise_std": ["array-like", Interval(Real, 0, None, closed="left"), None],
        "correlated": ["boolean"],
        "fpr": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        n_records: int,
        *,
        statistic: str = "linear",
        noise_std: Any = 0.0,
        correlated: bool = False,
        fpr: float = 0.05,
    ) -> None:
        self.n_records = n_records
        self.statistic = statistic
        self.noise_std = noise_std
        self.correlated = correlated
        self.fpr = fpr

    @rolls_back_on_error
    def fit(
        self,
        released: ArrayLike,
        reference: ArrayLike | None = None,
        *,
        means: ArrayLike | None = None,
        variances: ArrayLike | None = None,
    ) -> AggregateAttack:
        """Learn the means and variances of the population.

        Parameters
        ----------
        released : array-like of shape (n_columns,)
            The published means.
        reference : array-like of shape (n_reference, n_columns), default=None
            Records of the population outside the published means.
        means, variances : array-like of shape (n_columns,), default=None
            Population means and variances, if known exactly, instead of ``reference``.
            ``variances=None`` takes p(1 - p), for columns of zeros and ones.

        Returns
        -------
        AggregateAttack
            This attack.

        Raises
        ------
        ValueError
            If lengths differ, or neither or both of ``reference`` and ``means`` are given.
        """
        self._validate_params()
        self.released_ = _check_row("released", released, None)
        self.n_features_in_ = len(self.released_)
        if (reference is None) == (means is None):
            raise ValueError(
                "Expected either reference= (records of the population) or means= (its means); got "
                f"{'neither' if means is None else 'both'}. Pass one of them."
            )
        if self.correlated and (reference is None or self.statistic == "homer"):
            raise ValueError(
                "correlated=True needs statistic='linear' and a reference, to estimate the "
                "covariance. Pass records of the population, or use correlated=False."
            )
        if means is not None:
            self._set_population(means, variances)
            return self
        if variances is not None:
            raise ValueError("variances= goes with means=, not with reference=. Pass one of them.")
        self._estimate_population(self._records("reference", reference))
        return self

    def score_samples(self, X: Any) -> Float64Array:
        """Return the membership score of each record; higher means member.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_columns)
            Records, with the columns whose means were published.

        Returns
        -------
        ndarray of shape (n_samples,)
            The scores.
        """
        check_is_fitted(self, "threshold_")
        records = self._records("X", X)
        if self.statistic == "homer":
            return self._homer(records, self.means_)
        # T(x) of the docstring (Sankararaman et al. 2009, without noise)
        return np.asarray((records - self.means_) @ self._test_direction(), dtype=float)

    def predict(self, X: Any) -> NDArray[np.bool_]:
        """Return which records are called members, at a false positive rate of about ``fpr``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_columns)
            Records, with the columns whose means were published.

        Returns
        -------
        ndarray of bool of shape (n_samples,)
            True for those called members.
        """
        return self.score_samples(X) > self.threshold_

    def evaluate(self, X_in: Any, X_out: Any) -> AttackResult:
        """Attack members and non-members of the published means.

        Parameters
        ----------
        X_in : array-like of shape (n_in, n_columns)
            Members: records in the published means.
        X_out : array-like of shape (n_out, n_columns)
            Non-members from the same population.

        Returns
        -------
        AttackResult
            Its interval and bounds treat records as independent given the published means.
        """
        return AttackResult(
            self.score_samples(X_in), self.score_samples(X_out), type(self).__name__
        )

    @staticmethod
    def expected_power(
        n_records: int,
        variances: ArrayLike,
        *,
        noise_std: ArrayLike = 0.0,
        n_reference: int | None = None,
    ) -> ExpectedPower:
        """Return the expected power of membership inference from means, before publishing them.

        Parameters
        ----------
        n_records : int
            Number of records in each mean.
        variances : array-like of shape (n_columns,)
            Variance of each column in the population; p(1 - p) for a frequency.
        noise_std : float or array-like of shape (n_columns,), default=0.0
            Standard deviation of the noise that was added to each mean.
        n_reference : int, default=None
            Number of other records from which the attacker estimates the population. None: the
            attacker knows the population exactly.

        Returns
        -------
        ExpectedPower
            With ``mu``, ``auc`` and ``tpr(fpr)``.

        Raises
        ------
        ValueError
            If a number is out of its range.

        Notes
        -----
        In the limit of many independent columns, the score is normal with
        mu^2 = sum_j 1 / (n (1 + n / m + n s_j^2 / v_j)). Here n is the number of records, m the
        number of reference records, s_j the noise and v_j the variance. Without noise and with a
        large reference, this is the number of columns divided by the number of records. Constant
        columns do not count.

        References
        ----------
        S. Sankararaman, G. Obozinski, M. I. Jordan, E. Halperin. Genomic privacy and limits of
        individual detection in a pool. Nature Genetics 2009.

        C. Dwork, A. Smith, T. Steinke, J. Ullman, S. Vadhan. Robust traceability from trace
        amounts. FOCS 2015.

        Examples
        --------
        >>> from skprivacy.attacks import AggregateAttack
        >>> frequencies = [0.3] * 5000
        >>> power = AggregateAttack.expected_power(1000, [p * (1 - p) for p in frequencies])
        >>> round(power.auc, 3)
        0.943
        >>> print(power.tpr(0.01).round(2))
        0.46
        """
        whole("n_records", n_records)
        if n_reference is not None:
            whole("n_reference", n_reference)
        v = as_numbers("variances", variances, "one variance per column")
        if v.ndim != 1 or not v.size or not np.isfinite(v).all() or (v < 0).any():
            raise ValueError(
                "variances must be a non-empty sequence of finite numbers from 0; got an array of "
                f"shape {v.shape}. Pass one variance per column."
            )
        s = _check_noise(noise_std, len(v))
        v, s = v[v > 0], s[v > 0]
        panel = 0.0 if n_reference is None else n_records / n_reference
        # mu^2 of the docstring; panel is n / m
        terms = 1 / (n_records * (1 + panel + n_records * s**2 / v))
        return ExpectedPower(float(np.sqrt(terms.sum())))

    def _set_population(self, means: ArrayLike, variances: ArrayLike | None) -> None:
        d = self.n_features_in_
        self.means_ = p = _check_row("means", means, d)
        if variances is None and not ((p >= 0) & (p <= 1)).all():
            raise ValueError(
                "means= must lie in [0, 1] (frequencies) if variances= is None. Pass the variance "
                "of each column."
            )
        v = p * (1 - p) if variances is None else _check_row("variances", variances, d)
        if (v < 0).any():
            raise ValueError("variances= must be non-negative. Pass the variance of each column.")
        self.variances_ = v
        self._precision = self._weights(v)
        scale = (
            1.0 if self.statistic == "homer" else float(np.sqrt(v @ self._test_direction() ** 2))
        )
        self.threshold_ = float(-ndtri(self.fpr)) * scale

    def _estimate_population(self, records: Float64Array) -> None:
        m = len(records)
        if m < 2:
            raise ValueError(
                f"reference has {m} record; expected 2 or more. Pass more records of the "
                "population."
            )
        self.means_, self.variances_ = records.mean(axis=0), records.var(axis=0, ddof=1)
        uncertain = 1 + self.n_records / m
        self._precision = self._weights(self.variances_ * uncertain)
        if self.correlated:
            self._precision = self._invert_covariance(ledoit_wolf(records)[0] * uncertain)
        self.threshold_ = float(np.quantile(self._leave_one_out_scores(records), 1 - self.fpr))

    def _weights(self, spread: Float64Array) -> Float64Array:
        """Return 1 / (n times the variance of each published mean); 0 for constant columns."""
        varies = self.variances_ > 0
        if self.noise_std is None:
            off = (self.released_ - self.means_)[varies] ** 2 - spread[varies] / self.n_records
            estimate = max(off.mean(), 0.0) if varies.any() else 0.0
            self.noise_std_ = np.full(len(spread), np.sqrt(estimate))
        else:
            self.noise_std_ = _check_noise(self.noise_std, len(spread))
        total = spread + self.n_records * self.noise_std_**2
        return np.divide(1.0, total, out=np.zeros_like(total), where=varies)

    def _invert_covariance(self, covariance: Float64Array) -> Float64Array:
        """Return the inverse of n times the covariance of the published means."""
        varies = self.variances_ > 0
        noisy = covariance + np.diag(self.n_records * self.noise_std_**2)
        inverse = np.zeros_like(noisy)
        inverse[np.ix_(varies, varies)] = inv(noisy[np.ix_(varies, varies)])
        return inverse

    def _apply_precision(self, differences: Float64Array) -> Float64Array:
        matrix = self._precision.ndim == 2
        return differences @ self._precision if matrix else differences * self._precision

    def _test_direction(self) -> Float64Array:
        return self._apply_precision(self.released_ - self.means_)

    def _leave_one_out_scores(self, records: Float64Array) -> Float64Array:
        """Score each reference record with the population estimated from the others."""
        m = len(records)
        off = records - self.means_
        if self.statistic == "homer":
            return self._homer(records, self.means_ - off / (m - 1))
        own = np.einsum("ij,ij->i", off, self._apply_precision(off)) / (m - 1)
        return np.asarray((off @ self._test_direction() + own) * m / (m - 1), dtype=float)

    def _homer(self, X: Float64Array, means: Float64Array) -> Float64Array:
        varies = self.variances_ > 0
        # Homer et al. 2008: D = |Y - Pop| - |Y - M| in each column, and its t-statistic
        nearer = (np.abs(X - means) - np.abs(X - self.released_))[:, varies]
        if not varies.any():
            return np.zeros(len(X))
        spread = nearer.std(axis=1)
        score = nearer.mean(axis=1) * np.sqrt(nearer.shape[1])
        return np.divide(score, spread, out=np.zeros(len(X)), where=spread > 0)

    def _records(self, name: str, X: Any) -> Float64Array:
        records = check_array(X, dtype=float, order="C", input_name=name, estimator=self)
        if records.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{name} has {records.shape[1]} columns; expected {self.n_features_in_}, one for "
                "each published mean."
            )
        return np.asarray(records)


def _check_row(name: str, values: ArrayLike, length: int | None) -> Float64Array:
    row = as_numbers(name, values, "one per column")
    if row.ndim != 1 or not row.size or length not in (None, len(row)):
        expected = "one number per column" if length is None else f"{length} numbers"
        raise ValueError(f"{name} has shape {row.shape}; expected {expected}.")
    if not np.isfinite(row).all():
        raise ValueError(f"{name} holds NaN or infinity. Leave these columns out.")
    return row


def _check_noise(noise_std: ArrayLike, length: int) -> Float64Array:
    s = as_numbers("noise_std", noise_std, "a standard deviation of 0 or more")
    if s.shape not in ((), (length,)) or not np.isfinite(s).all() or (s < 0).any():
        raise ValueError(
            f"noise_std={noise_std!r} must be a standard deviation (0 or more), or one for each of "
            f"the {length} columns."
        )
    return np.broadcast_to(s, (length,))
