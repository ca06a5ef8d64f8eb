"""Posterior of candidate records given a noisy gradient, by Gibbs sampling for batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from ..torch_gradients import LossGradients

__all__ = ["CandidateRows"]

Float64Array = NDArray[np.float64]
_AT_ONCE = 2**24  # numbers in gradients that are in memory at once
_MOST = 10_000  # candidates for batches of several records
_SWEEPS = 40
_BURN_IN = 0.5  # share of sweeps that are discarded


class CandidateRows:
    """Candidates for the records of a batch, with their prior (up to a factor) and posterior.

    With normal noise, the posterior of one record is the prior times exp(-|g - g(row)|^2 / 2 s^2),
    so only inner products of gradients matter. For a batch, Gibbs sampling draws each record given
    the others, with a noise that decreases to the true one.

    **Guarantees.** With one record, the true noise and a true prior, no attack is right more often.
    """

    def __init__(self, gradients: LossGradients, X: Tensor, y: Tensor, prior: Float64Array) -> None:
        self.gradients, self.X, self.y = gradients, X, y
        with np.errstate(divide="ignore"):
            self.log_prior = np.log(prior / prior.sum())
        self._squares: Float64Array | None = None

    def posteriors(
        self,
        observed: Tensor,
        n_records: int,
        labels: NDArray[np.intp] | None,
        noise: float,
        rng: np.random.Generator,
    ) -> Float64Array:
        """Return the posterior of each candidate, (batches, n_records, n_candidates).

        ``noise`` is the standard deviation in each number of a gradient.
        """
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
            fit = (products - 0.5 * self._squared_norms()) / variance[:, None]
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
        """Return the log-likelihood ratio of each candidate contributing, (batches, n_candidates).

        ``others`` is the mean gradient of the other records. Without noise, returns a multiple of
        the ratio.
        """
        rest = observed if others is None else observed - others * ((n_records - 1) / n_records)
        products = self._products(rest) / n_records
        ratio = products - 0.5 * self._squared_norms() / n_records**2
        return np.asarray(ratio / noise**2 if noise else ratio)

    def mean(self) -> Tensor:
        """Return the mean gradient of the candidates, by their prior."""
        weights = torch.as_tensor(np.exp(self.log_prior)).to(self.gradients.dtype)
        shares = weights.split(self._step)
        return torch.stack(
            [w @ g for w, g in zip(shares, self._iter_gradients(), strict=True)]
        ).sum(0)

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

    def _squared_norms(self) -> Float64Array:
        assert self._squares is not None
        return self._squares

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
