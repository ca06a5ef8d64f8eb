"""SemiSupervisedNetwork: the training loop of students that also learn from unlabelled records."""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from .._blas import threads_for
from .._data_validation import ClassifierMixin, validate_data
from .._validation import Interval, check_one_type, check_random_state
from ..base import undone_if_refused
from ._training.net import layer_sizes, make_module

__all__ = ["SemiSupervisedNetwork"]

_NO_LABEL = -1
_LABELED_PER_STEP = 64  # labelled rows in a step, drawn with replacement since they are few
_PREDICT_ROWS_PER_PASS = 4096  # rows of one forward pass


class SemiSupervisedNetwork(ClassifierMixin, BaseEstimator):
    """A network with a loss on labelled rows plus a loss on all rows.

    **Guarantees.** The caller's random generators stay as they were. An integer ``random_state``
    makes two fits equal on one machine.

    **Edge cases.** All columns are centred, and divided by one standard deviation over all of them:
    constant columns become 0. A single class is always predicted.
    """

    semi_supervised = True

    module: Any
    hidden_layer_sizes: Any
    epochs: int
    batch_size: int
    learning_rate: float
    unlabelled_weight: float
    random_state: Any
    classes_: NDArray[Any]
    module_: nn.Module

    _parameter_constraints: dict = {
        "module": [callable, None],
        "hidden_layer_sizes": ["array-like"],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1e30, closed="neither")],  # fits single precision
        "unlabelled_weight": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    @abstractmethod
    def _labeled_view(self, rows: Tensor) -> Tensor:
        """Return labelled rows as the network sees them in training."""

    @abstractmethod
    def _unlabeled_loss(self, network: nn.Module, rows: Tensor) -> Tensor:
        """Return the loss of the network's answers to rows, which needs no labels."""

    @undone_if_refused
    def fit(self, X: ArrayLike, y: ArrayLike) -> SemiSupervisedNetwork:
        """Fit to records of which some are labelled.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public records.
        y : array-like of int, shape (n_samples,)
            -1 marks records without a label.

        Returns
        -------
        object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or a shape is invalid, or no record is labelled.
        """
        self._validate_params()
        rows, labels = validate_data(self, X, y, dtype=np.float32)
        check_one_type("y", labels)
        self.classes_ = np.setdiff1d(labels, [_NO_LABEL])
        if not len(self.classes_):
            raise ValueError(
                f"y marks all {len(rows)} records as without a label (-1). Label at least one."
            )
        random = check_random_state(self.random_state)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random.randint(1 << 31))
            network = make_module(
                self.module, {}, rows.shape[1], len(self.classes_),
                layer_sizes(self.hidden_layer_sizes), "relu", random,
            )  # fmt: skip
            self.module_ = nn.Sequential(_Standardization(rows), network)
            with threads_for(self.module_, self.batch_size):
                self._train(torch.from_numpy(rows), np.asarray(labels))
        return self

    def _train(self, rows: Tensor, labels: NDArray[Any]) -> None:
        known = torch.from_numpy(np.flatnonzero(labels != _NO_LABEL))
        codes = torch.from_numpy(np.searchsorted(self.classes_, labels[known.numpy()]))
        steps = self.epochs * math.ceil(len(rows) / self.batch_size)
        optimizer = torch.optim.Adam(self.module_.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        self.module_.train()
        for _ in range(steps):
            drawn = torch.randint(len(known), (_LABELED_PER_STEP,))
            answers = self.module_(self._labeled_view(rows[known[drawn]]))
            others = rows[torch.randint(len(rows), (self.batch_size,))]
            loss = F.cross_entropy(answers, codes[drawn])
            loss = loss + self.unlabelled_weight * self._unlabeled_loss(self.module_, others)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        self.module_.eval()

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
        check_is_fitted(self, "module_")
        rows = torch.from_numpy(validate_data(self, X, dtype=np.float32, reset=False))
        with torch.inference_mode():
            found = [
                self.module_(part).double().softmax(1)
                for part in rows.split(_PREDICT_ROWS_PER_PASS)
            ]
        return np.asarray(torch.cat(found).numpy())

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels of ``classes_``.
        """
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class _Standardization(nn.Module):
    """Rows minus their mean, divided by one standard deviation over all columns."""

    mean: Tensor

    def __init__(self, rows: NDArray[np.float32]) -> None:
        super().__init__()
        mean = rows.mean(axis=0, dtype=np.float64)
        scale = math.sqrt(max(float(rows.var(axis=0, dtype=np.float64).mean()), 1e-30))
        self.register_buffer("mean", torch.from_numpy(mean.astype(np.float32)))
        self.scale = scale

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.scale
