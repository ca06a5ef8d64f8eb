"""Leave-one-out training of heads, a thousand for little more than the cost of one.

Without one record the minimiser moves little. One Newton step from the minimiser with all records
(the influence of the record) almost reaches it, and the same factorised Hessian serves every
record. A few more steps make it exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ..linear_model.logistic_regression import LogisticLoss, minimize
from .head import HeadInput, OneRelease, Task
from .heads import SoftmaxHead

Float64Array = NDArray[np.float64]
_RECORDS_PER_PART = 16  # records left out in parallel, by one matrix product
_STEPS = 25
_MAX_HESSIAN_SIZE = 5_000  # numbers of a head up to which the Hessian is factorised: 200 MB
MINIMIZER_TOLERANCE = 1e-7  # distance to the exact minimiser


def leave_one_out(head: OneRelease, task: Task, records: HeadInput, which: NDArray) -> Float64Array:
    """Return the head's private statistic without each of some records, (m, length)."""
    if isinstance(head, SoftmaxHead):
        loss = head.loss(task, records)
        if loss.tilt.size <= _MAX_HESSIAN_SIZE:
            found = leave_one_out_minimizers(loss, which, MINIMIZER_TOLERANCE * loss.ridge)
            return np.stack([head.flatten_minimizer(task, W) for W in found])
    return np.stack([head.statistic(task, _drop_record(records, i)) for i in which])


def leave_one_out_minimizers(loss: LogisticLoss, which: NDArray, tolerance: float) -> Float64Array:
    """Return the minimisers of a loss without each of some records, (m, size, n_outputs)."""
    W = minimize(loss, tolerance)
    probabilities = loss.probabilities(W)
    factor = cho_factor(_compute_hessian(loss, probabilities))
    rows, places = np.unique(which, return_inverse=True)
    parts = np.array_split(rows, max(1, -(-len(rows) // _RECORDS_PER_PART)))
    found = [_solve_part(loss, W, probabilities, factor, part, tolerance) for part in parts]
    return np.concatenate(found)[places.reshape(-1)]


def _solve_part(
    loss: LogisticLoss,
    W: Float64Array,
    probabilities: Float64Array,
    factor: tuple,
    part: NDArray,
    tolerance: float,
) -> Float64Array:
    """Return the minimisers without each record of ``part``, by Newton steps of fixed Hessians."""
    step = _NewtonStep(loss.rows[part], probabilities[part], factor)
    residuals = (probabilities - loss.targets)[part] * loss.weights[part, None]
    own = loss.rows[part][:, :, None] * residuals[:, None, :]
    found = W - step(loss.gradient(W, probabilities) - own)
    largest = (loss.rows @ W).max(axis=1)  # close to the largest margins; only avoids overflow
    for _ in range(_STEPS):
        with np.errstate(over="ignore", invalid="ignore"):  # divergence is detected below
            gradients = _gradients_without(loss, found, part, largest)
        far = ~(np.linalg.norm(gradients, axis=(1, 2)) <= tolerance)  # NaN is far
        if not far.any():
            return found
        found = found - step(gradients)
    return np.stack(  # with few records and a small ridge the fixed Hessian may not converge
        [
            minimize(_drop_from_loss(loss, i), tolerance) if bad else one
            for i, one, bad in zip(part, found, far, strict=True)
        ]
    )


class _NewtonStep:
    """Newton steps with the Hessian less the contribution of one record (Woodbury identity)."""

    def __init__(self, rows: Float64Array, probabilities: Float64Array, factor: tuple) -> None:
        values, vectors = np.linalg.eigh(_compute_curvatures(probabilities))
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        m, _, n_outputs = roots.shape
        parts = np.einsum("md,mkj->mdkj", rows, roots).reshape(m, -1, n_outputs)
        solved = cho_solve(factor, np.concatenate(parts, axis=1))
        self._factor, self._parts = factor, parts
        self._solved = solved.reshape(-1, m, n_outputs).swapaxes(0, 1)
        left = np.eye(n_outputs) - parts.swapaxes(1, 2) @ self._solved
        self._left = np.linalg.inv(left)

    def __call__(self, gradients: Float64Array) -> Float64Array:
        flat = gradients.reshape(len(gradients), -1)
        straight = cho_solve(self._factor, flat.T).T[:, :, None]
        back = self._solved @ (self._left @ (self._parts.swapaxes(1, 2) @ straight))
        return np.asarray((straight + back).reshape(gradients.shape))


def _gradients_without(
    loss: LogisticLoss, points: Float64Array, part: NDArray, largest: Float64Array
) -> Float64Array:
    """Return the gradient of the loss without one record, at each point, (m, size, n_outputs)."""
    # Exponents are relative to the largest margins, so that they do not overflow.
    m, size, n_outputs = points.shape
    margins = (loss.rows @ points.swapaxes(0, 1).reshape(size, -1)).reshape(-1, m, n_outputs)
    if n_outputs == 1:
        shares = 1.0 / (1.0 + np.exp(-margins))
    else:
        margins -= largest[:, None, None]
        shares = np.exp(margins, out=margins)
        shares /= (shares @ np.ones(n_outputs))[:, :, None]
    shares -= loss.targets[:, None]
    shares *= loss.weights[:, None, None]
    shares[part, np.arange(m)] = 0.0
    summed = (loss.rows.T @ shares.reshape(len(shares), -1)).reshape(size, m, n_outputs)
    return np.asarray(summed.swapaxes(0, 1) + loss.ridge * points + loss.tilt)


def _compute_curvatures(probabilities: Float64Array) -> Float64Array:
    """Return each record's second derivatives in its margins, (n, n_outputs, n_outputs)."""
    if probabilities.shape[1] == 1:
        return (probabilities * (1.0 - probabilities))[:, :, None]
    outer = probabilities[:, :, None] * probabilities[:, None, :]
    return np.eye(probabilities.shape[1]) * probabilities[:, :, None] - outer


def _compute_hessian(loss: LogisticLoss, probabilities: Float64Array) -> Float64Array:
    """Return the Hessian in the flattened weights."""
    size, n_outputs = loss.tilt.shape
    curvatures = _compute_curvatures(probabilities)
    hessian = np.empty((size, n_outputs, size, n_outputs))
    for k in range(n_outputs):
        for j in range(k + 1):
            block = loss.rows.T @ (loss.rows * curvatures[:, k, j, None])
            hessian[:, k, :, j] = hessian[:, j, :, k] = block
    flat = hessian.reshape(size * n_outputs, -1)
    flat[np.diag_indices_from(flat)] += loss.ridge
    return flat


def _drop_from_loss(loss: LogisticLoss, i: int) -> LogisticLoss:
    weights, rows = loss.weights.copy(), loss.rows.copy()
    weights[i], rows[i] = 0.0, 0.0
    return replace(loss, rows=rows, weights=weights)


def _drop_record(records: HeadInput, i: int) -> HeadInput:
    counts, rows = records.counts.copy(), records.rows.copy()
    counts[i], rows[i] = 0.0, 0.0
    return replace(records, rows=rows, counts=counts)
