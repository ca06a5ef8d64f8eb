"""Logistic regression: predictions, and a Newton solver to the tolerance of a privacy proof."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from .._environment import one_blas_thread
from .._input_data import ClassifierMixin
from .base import PrivateLinearModel

_NEWTON_STEPS = 200
_CG_STEPS = 100
_MIN_THREADED_SIZE = 1 << 23  # numbers in the rows from which several threads are faster


class LinearScores(ClassifierMixin):
    """Predictions of a linear classifier from ``classes_`` and ``_scores``, one column for two."""

    classes_: NDArray[Any]

    if TYPE_CHECKING:  # a real method would hide the ones of the subclass's other bases

        def _scores(self, X: ArrayLike) -> NDArray[np.float64]: ...

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the log-odds of the second class, or one score per class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            The scores; one column for two classes.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return softmax(scores, axis=1)
        second = expit(scores)
        return np.column_stack([1.0 - second, second])

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        scores = self.decision_function(X)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
        return self.classes_[chosen]


class PrivateLinearClassifier(LinearScores, PrivateLinearModel):
    """Private linear classifier with a public set of labels."""

    _saved_state = {
        "bounds_": "bounds",
        "classes_": "labels",
        "coef_": "array outputs features",
        "intercept_": "array outputs",
        "privacy_": "guarantee",
    }
    _parameter_constraints: dict = {
        **PrivateLinearModel._parameter_constraints,
        "classes": ["array-like", None],
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # epsilon=1 is too small for the few rows of a check
        return tags


@dataclass(frozen=True)
class LogisticLoss:
    """Loss ``sum_i v_i**2 loss(y_i, x_i @ W / v_i) + ridge / 2 ||W||**2 + <tilt, W>``.

    The rows x include their weights v, as returned by :class:`UnitBall`. In this form a record
    keeps its unweighted margin, and still has a gradient of norm at most ``||x||`` and a curvature
    of at most ``||x||**2``.
    """

    rows: NDArray[np.float64]  # (n_samples, size), in the unit ball
    targets: NDArray[np.float64]  # indicators of all classes; of two, of the second only
    weights: NDArray[np.float64]  # in [0, 1]; 0 for a record that contributes nothing (a row of 0)
    ridge: float  # above 0
    tilt: NDArray[np.float64]  # (size, n_outputs): the random linear term, or zeros

    def probabilities(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predicted probabilities, in the shape of ``targets``."""
        margins = self.rows @ W
        np.divide(margins, self.weights[:, None], out=margins, where=self.weights[:, None] > 0)
        return expit(margins) if margins.shape[1] == 1 else softmax(margins, axis=1)

    def gradient(self, W: NDArray, probabilities: NDArray) -> NDArray[np.float64]:
        """Return the gradient at W."""
        residuals = (probabilities - self.targets) * self.weights[:, None]
        return self.rows.T @ residuals + self.ridge * W + self.tilt

    def hessian_product(self, V: NDArray, probabilities: NDArray) -> NDArray[np.float64]:
        """Return the Hessian times V, at the point with these ``probabilities``."""
        change = self.rows @ V
        if change.shape[1] == 1:
            change *= probabilities * (1.0 - probabilities)
        else:
            change = probabilities * (
                change - np.einsum("ij,ij->i", probabilities, change)[:, None]
            )
        return self.rows.T @ change + self.ridge * V


def minimize(loss: LogisticLoss, tolerance: float) -> NDArray[Any]:
    """Return W with a gradient of norm at most ``tolerance``.

    Newton's method, with its linear systems solved by conjugate gradients. The step is halved until
    the norm of the gradient decreases. Function values are never compared, because they lose half
    the digits of a gradient.
    """
    # The private number of records may choose the number of threads. Threads change the rounding,
    # which moves the result within the tolerance, and the sensitivity counts two tolerances.
    with one_blas_thread() if loss.rows.size < _MIN_THREADED_SIZE else nullcontext():
        return _newton_minimum(loss, tolerance)


def _newton_minimum(loss: LogisticLoss, tolerance: float) -> NDArray[Any]:
    W = np.zeros_like(loss.tilt)
    inverse = _preconditioner(loss)
    probabilities = loss.probabilities(W)
    gradient = loss.gradient(W, probabilities)
    for _ in range(_NEWTON_STEPS):
        norm = np.linalg.norm(gradient)
        if norm <= tolerance:
            return W
        step = _solve_newton_step(loss, probabilities, gradient, inverse)
        size = 1.0
        while size > 1e-10:
            trial = W - size * step
            probabilities = loss.probabilities(trial)
            gradient = loss.gradient(trial, probabilities)
            if np.linalg.norm(gradient) < (1.0 - 0.1 * size) * norm:
                break
            size /= 2.0
        else:
            break
        W = trial
    raise RuntimeError(
        f"The norm of the gradient could not be reduced to {tolerance:.3g}; nothing was released. "
        "Increase alpha, which makes the problem better conditioned."
    )


def _preconditioner(loss: LogisticLoss) -> NDArray[Any]:
    """Return the inverse of the constant matrix that bounds every Hessian (Boehning 1992)."""
    # Boehning 1992: a Hessian is at most 1/4 (two classes) or 1/2 times the rows' second moments
    curvature = 0.25 if loss.tilt.shape[1] == 1 else 0.5
    bound = curvature * (loss.rows.T @ loss.rows)
    bound[np.diag_indices_from(bound)] += loss.ridge
    return np.linalg.inv(bound)


def _solve_newton_step(loss: LogisticLoss, probabilities, gradient, inverse) -> NDArray[Any]:
    """Solve Hessian @ step = gradient by preconditioned conjugate gradients."""
    step = np.zeros_like(gradient)
    residual = gradient.copy()
    scaled = inverse @ residual
    direction = scaled
    energy = np.vdot(residual, scaled)
    start = np.linalg.norm(gradient)
    # Smaller gradients are solved more exactly. The private number of records affects only the path
    # to the minimum, not the tolerance at its end.
    enough = start * min(0.1, math.sqrt(start / len(loss.rows)))
    for _ in range(_CG_STEPS):
        image = loss.hessian_product(direction, probabilities)
        length = energy / np.vdot(direction, image)
        step = step + length * direction
        residual = residual - length * image
        if np.linalg.norm(residual) <= max(enough, 1e-14 * start):
            break
        scaled = inverse @ residual
        energy, before = np.vdot(residual, scaled), energy
        direction = scaled + (energy / before) * direction
    return step
