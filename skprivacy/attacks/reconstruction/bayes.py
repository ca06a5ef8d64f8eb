"""Bayesian reconstruction from a noisy gradient: the posterior over candidate records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from ..._docs import fill_docs
from ..._validation import check_random_state
from ...metrics.rates import as_numbers
from .inversion_attack import INVERSION_DOCS, InversionAttack, Reconstruction, check_labelled_rows

if TYPE_CHECKING:
    from torch import Tensor

    from ..torch_gradients import LossGradients

Float64Array = NDArray[np.float64]
_AT_ONCE = 2**24  # numbers in gradients that are in memory at once
_MOST = 10_000  # candidates for batches of several records
_SWEEPS = 40
_BURN_IN = 0.5  # share of sweeps that are discarded


@fill_docs(INVERSION_DOCS)
class BayesInversion(InversionAttack):
    """Reconstruct records from a noisy gradient by the posterior over candidate records.

    Even if noise hides records from a search, some candidates are more probable than others. For
    one record the posterior is proportional to ``prior * exp(-|g - h|^2 / (2 s^2))``. Here ``g`` is
    the gradient that was sent, ``h`` is the candidate's gradient, clipped as the party clips, and
    ``s`` is the standard deviation of the noise. The candidates then vote on each column. No attack
    with this prior is right more often. For a larger batch, Gibbs sampling draws each record in
    turn given the others.

    Parameters
    ----------
    %(inversion_parameters)s
    random_state : int, RandomState instance or None, default=None
        Seed of the draws for larger batches and of the null model "random rows".

    Attributes
    ----------
    %(inversion_attributes)s

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


class CandidateRows:
    """Candidates for the records of a batch, with their prior (up to a factor) and posterior."""

    def __init__(self, gradients: LossGradients, X: Tensor, y: Tensor, prior: Float64Array) -> None:
        self.gradients, self.X, self.y = gradients, X, y
        with np.errstate(divide="ignore"):
            self.log_prior = np.log(prior / prior.sum())
        self._squares: Any = None  # squared norms of gradients, once products were computed

    def posteriors(
        self,
        observed: Tensor,
        n_records: int,
        labels: NDArray[np.intp] | None,
        noise: float,
        rng: np.random.Generator,
    ) -> Float64Array:
        """Return the posterior of each candidate, (batches, n_records, n_candidates)."""
        products = self._products(observed) / n_records
        prior = np.broadcast_to(self.log_prior, (len(observed), n_records, len(self.X))).copy()
        if labels is not None:
            prior[labels[:, :, None] != self.y.numpy()] = -np.inf
            if np.isneginf(prior).all(axis=2).any():
                raise ValueError(
                    "labels holds a label that no candidate has. Fit candidates of every label."
                )
        # without noise, rounding keeps every candidate from an exact match: take the nearest
        least = 1e-4 * observed.double().square().mean(dim=1).numpy()
        variance = np.maximum(noise**2, np.maximum(least, 1e-30))
        if n_records == 1:
            fit = (products - 0.5 * self._squares) / variance[:, None]
            return np.asarray(softmax(prior + fit[:, None], axis=2))
        if len(self.X) > _MOST:
            raise ValueError(
                f"X of fit has {len(self.X)} candidates; expected at most {_MOST} for batches of "
                "several records. Fit fewer candidates."
            )
        gram = self.gram() / n_records**2
        return np.stack(
            [
                _gibbs_posterior(prior[b], products[b], gram, float(variance[b]), rng)
                for b in range(len(observed))
            ]
        )

    def log_ratio(
        self, observed: Tensor, n_records: int, noise: float, others: Tensor | None
    ) -> Float64Array:
        """Return log-likelihood ratios of contributing or not, (batches, n_candidates)."""
        rest = observed if others is None else observed - others * ((n_records - 1) / n_records)
        products = self._products(rest) / n_records
        ratio = products - 0.5 * self._squares / n_records**2
        return np.asarray(ratio / noise**2 if noise else ratio)

    def mean(self) -> Tensor:
        """Return the mean gradient of the candidates, by their prior."""
        import torch

        shares = torch.as_tensor(np.exp(self.log_prior)).to(self.gradients.dtype).split(self._step)
        parts = [w @ g for w, g in zip(shares, self._iter_gradients(), strict=True)]
        return torch.stack(parts).sum(0)

    @property
    def _step(self) -> int:
        return max(1, _AT_ONCE // self.gradients.size)

    def _iter_gradients(self) -> Iterator[Tensor]:
        """Yield the candidates' gradients in parts that fit into memory."""
        for x, y in zip(self.X.split(self._step), self.y.split(self._step), strict=True):
            yield self.gradients.per_record(x, y)

    def _products(self, observed: Tensor) -> Float64Array:
        """Return inner products of observed and candidates' gradients; store the latter's norms."""
        squares, found = [], []
        for part in self._iter_gradients():
            squares.append(part.double().square().sum(1).numpy())
            found.append((observed @ part.T).double().numpy())
        self._squares = np.concatenate(squares)
        return np.concatenate(found, axis=1)

    def gram(self) -> Float64Array:
        """Return the inner products of all pairs of candidates' gradients."""
        return np.concatenate([self._products(part) for part in self._iter_gradients()])


def _gibbs_posterior(
    prior: Float64Array,
    products: Float64Array,
    gram: Float64Array,
    variance: float,
    rng: np.random.Generator,
) -> Float64Array:
    """Return the mean posterior of each record over the sweeps after burn-in (Gibbs sampling)."""
    n, m = prior.shape
    own = 0.5 * np.diag(gram)
    # annealing: the first noise is as large as the differences between candidates' gradients
    wide = max(variance, float(np.ptp(products - own)) / 4)
    chosen = np.array([rng.choice(m, p=softmax(p)) for p in prior])
    total = np.zeros((n, m))
    warm = round(_SWEEPS * _BURN_IN)
    for sweep in range(_SWEEPS):
        now = variance * (wide / variance) ** max(0.0, 1 - sweep / warm)
        for i in range(n):
            others = gram[:, np.delete(chosen, i)].sum(axis=1)
            p = softmax(prior[i] + (products - others - own) / now)
            chosen[i] = rng.choice(m, p=p)
            if sweep >= warm:
                total[i] += p
    return total / (_SWEEPS - warm)


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
