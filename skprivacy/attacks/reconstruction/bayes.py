"""Bayesian reconstruction from a noisy gradient: the posterior over candidate records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._validation import check_random_state
from ...metrics.rates import as_numbers
from .inversion_attack import InversionAttack, Reconstruction, check_labelled_rows

if TYPE_CHECKING:
    from torch import Tensor

    from .candidate_rows import CandidateRows

__all__ = ["BayesInversion"]

Float64Array = NDArray[np.float64]


class BayesInversion(InversionAttack):
    """Reconstruct records from a noisy gradient by the posterior over candidate records.

    Even if noise hides records from a search, some candidates are more probable than others. For
    one record the posterior is proportional to ``prior * exp(-|g - h|^2 / (2 s^2))``, where
    ``h``, the row's gradient, is clipped as the party does and ``s`` is its noise. The candidates
    then vote on each column. No attack with this prior is right more often. For a larger batch,
    Gibbs sampling draws each record in turn given the others.

    Parameters
    ----------
    target : torch module or fitted estimator, default=None
        See :class:`GradientInversion`.
    columns : Schema, list of lists of int or None, default=None
        See :class:`GradientInversion`.
    loss : callable, default=None
        See :class:`GradientInversion`.
    max_grad_norm : float, default=None
        Norm to which the party clips the gradient of each record.
    noise_multiplier : float, default=0.0
        Standard deviation of the noise that the party adds to the sum, in units of
        ``max_grad_norm``.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws for larger batches and of the null model "random rows".

    Attributes
    ----------
    layout_ : ColumnLayout
        Features of each column, and their ranges.
    reference_ : ndarray of shape (n_candidates, n_features)
        The candidates.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    **Edge cases.** The records need not be among the candidates, because each column is voted on
    separately. Without noise, the candidates with the nearest gradients get all votes. For batches
    of several records, the inner products of all pairs of candidates' gradients are in memory: 8
    bytes times the square of the number of candidates.

    References
    ----------
    B. Balle, G. Cherubin, J. Hayes. Reconstructing training data with informed adversaries.
    IEEE S&P 2022.
    J. Hayes, S. Mahloujifar, B. Balle. Bounding training data reconstruction in DP-SGD.
    NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.attacks import BayesInversion, party_gradient
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(300, 4)), rng.integers(0, 2, 300)
    >>> model = LogisticRegression().fit(X[:100], y[:100])
    >>> defence = {"max_grad_norm": 1.0, "noise_multiplier": 0.1}
    >>> attack = BayesInversion(model, **defence).fit(X, y)
    >>> sent = party_gradient(model, X[[250]], y[[250]], random_state=0, **defence)
    >>> bool(attack.posterior(sent).argmax() == 250)
    True
    """

    def __init__(
        self,
        target: Any = None,
        *,
        columns: Any = None,
        loss: Any = None,
        max_grad_norm: float | None = None,
        noise_multiplier: float = 0.0,
        random_state: Any = None,
    ) -> None:
        self.target = target
        self.columns = columns
        self.loss = loss
        self.max_grad_norm = max_grad_norm
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, prior: ArrayLike | None = None) -> BayesInversion:
        """Set the candidates and their prior.

        Parameters
        ----------
        X : array-like of shape (n_candidates, n_features)
            Candidates in the target's input format: records of the population, or all possible
            records.
        y : array-like of shape (n_candidates,)
            Their labels.
        prior : array-like of shape (n_candidates,), default=None
            Prior weight of each candidate, up to a constant factor. None: equal weights.

        Returns
        -------
        BayesInversion
            This attack.

        Raises
        ------
        TypeError, ValueError
            If the target has no gradients, or ``y``, ``prior`` or ``columns`` does not match the
            candidates.
        """
        self._prior = prior
        try:
            super().fit(X, y)
        finally:
            del self._prior
        return self

    def _learn(self) -> None:
        self.prior_ = _check_prior(self._prior, len(self.reference_))

    def posterior(
        self, gradient: Any, n_records: int = 1, labels: ArrayLike | None = None
    ) -> Float64Array:
        """Return the posterior probability of each candidate for each record of a batch.

        Parameters
        ----------
        gradient : list or dict of arrays
            See :meth:`reconstruct`.
        n_records : int, default=1
            Number of records by which the party divided.
        labels : array-like of shape (n_records,), default=None
            Their labels, if known.

        Returns
        -------
        ndarray of shape (n_records, n_candidates)
            Rows sum to 1.
        """
        observed, known = self._check_gradient(gradient, n_records, labels)
        return self._posteriors(observed, int(n_records), known)[0]

    def score_samples(
        self, gradient: Any, X: ArrayLike, y: ArrayLike, n_records: int = 1
    ) -> Float64Array:
        """Return a membership score for each record in the batch; higher means member.

        Parameters
        ----------
        gradient : list or dict of arrays
            See :meth:`reconstruct`.
        X : array-like of shape (n_samples, n_features)
            Records.
        y : array-like of shape (n_samples,)
            Their labels.
        n_records : int, default=1
            Number of records by which the party divided.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log-likelihood ratio of the gradient with and without the record's contribution, in both
            cases with ``n_records - 1`` records of the candidates' mean gradient. Without noise, a
            multiple of it.
        """
        observed, _ = self._check_gradient(gradient, n_records, None)
        rows, labels = check_labelled_rows(X, y, "X")
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {rows.shape[1]} features; expected {self.n_features_in_}, as in fit."
            )
        candidates = self._candidates(rows, self._gradients.targets(labels), np.ones(len(rows)))
        others = None
        if n_records > 1:
            others = self._candidates(self.reference_, self._encoded, self.prior_).mean()
        return candidates.log_ratio(observed, int(n_records), self._noise(n_records), others)[0]

    def _noise(self, n_records: int) -> float:
        return self.noise_multiplier * float(self.max_grad_norm or 0.0) / n_records

    def _candidates(self, rows: Any, labels: Tensor, prior: Float64Array) -> CandidateRows:
        from .candidate_rows import CandidateRows

        return CandidateRows(self._gradients, self._gradients.records(rows), labels, prior)

    def _posteriors(self, observed: Tensor, n_records: int, labels: Tensor | None) -> Float64Array:
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        known = None if labels is None else labels.numpy()
        candidates = self._candidates(self.reference_, self._encoded, self.prior_)
        return candidates.posteriors(observed, n_records, known, self._noise(n_records), rng)

    def _reconstruct_batches(
        self, observed: Tensor, n_records: int, labels: Tensor | None
    ) -> list[Reconstruction]:
        posteriors = self._posteriors(observed, n_records, labels)
        votes = posteriors.reshape(-1, posteriors.shape[2])
        rows, certain = self.layout_.most_voted_rows(self.reference_, votes)
        shape = posteriors.shape[:2]
        return [
            Reconstruction(r, c)
            for r, c in zip(rows.reshape(*shape, -1), certain.reshape(shape), strict=True)
        ]


def _check_prior(prior: Any, n: int) -> Float64Array:
    if prior is None:
        return np.full(n, 1.0 / n)
    weights = as_numbers("prior", prior, "one for each candidate")
    usable = weights.shape == (n,) and np.isfinite(weights).all() and (weights >= 0).all()
    if not usable or not weights.sum() > 0:
        raise ValueError(
            f"prior of shape {weights.shape} must hold a number of 0 or more for each of the {n} "
            "candidates, and at least one positive number."
        )
    return np.asarray(weights / weights.sum())
