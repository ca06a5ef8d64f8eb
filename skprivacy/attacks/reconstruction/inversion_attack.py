"""Base of gradient inversion attacks: the party's computation, reconstruction and evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from sklearn.utils.validation import check_is_fitted

from ..._clones import SHARED_BY_CLONES
from ..._extras import name_missing_extra
from ..._input_data import check_array, check_consistent_length, column_or_1d
from ..._validation import Interval, as_array, check_random_state, flag, sequence, whole
from ...base import roll_back_on_error
from ...preprocessing import Schema
from ..model_answers import TargetAttack
from .column_layout import ColumnLayout, null_model_ceiling, null_model_rows
from .inversion_result import InversionResult

if TYPE_CHECKING:
    from torch import Tensor

    from ..torch_gradients import LossGradients

Float64Array = NDArray[np.float64]
_REFERENCE = 512  # records used to infer labels
INVERSION_DOCS = {
    "inversion_parameters": """\
target : torch module or fitted estimator, default=None
    The model whose gradient was sent, with its weights at that time: a module whose outputs are
    logits; a fitted estimator with ``module_``, such as
    :class:`~skprivacy.neural_network.DPSGDClassifier`; a fitted ``MLPClassifier`` or linear
    classifier.
columns : Schema, default=None
    Columns of records that ``SchemaTransformer`` encoded: a number has one feature, a category
    several. None: all features are numbers.
loss : callable, default=None
    The loss of the gradient: maps outputs (n, n_outputs) and targets (n,) to a loss for each
    record. None: the cross-entropy of logits.
max_grad_norm : float, default=None
    Norm to which the party clips the gradient of each record. The attack clips in the same way.
noise_multiplier : float, default=0.0
    Standard deviation of the noise that the party adds to the sum, in units of
    ``max_grad_norm``. Only :class:`BayesInversion` uses it.""",
    "inversion_attributes": """\
layout_ : ColumnLayout
    Features of each column, and their ranges.
reference_ : ndarray of shape (n_reference, n_features)
    The attacker's records.
n_features_in_ : int
    Number of features.""",
}


class Reconstruction(NamedTuple):
    """Reconstructed rows of one batch, NaN where nothing was found, and the confidence in each."""

    rows: Float64Array
    confidence: Float64Array


class InversionAttack(ABC, TargetAttack):
    """Base of gradient inversion attacks; a subclass implements ``_reconstruct_batches``."""

    _shared = (*SHARED_BY_CLONES, "columns", "loss")
    _parameter_constraints: dict[str, Any] = {
        "target": "no_validation",
        "columns": [Schema, None],
        "loss": [callable, None],
        "max_grad_norm": [Interval(Real, 0, None, closed="neither"), None],
        "noise_multiplier": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

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

    def fit(self, X: ArrayLike, y: ArrayLike) -> InversionAttack:
        """Fit the attack to the attacker's own records.

        Parameters
        ----------
        X : array-like of shape (n_reference, n_features)
            Records of the population, in the target's input format and not among the attacked.
        y : array-like of shape (n_reference,)
            Their labels; numbers from 0 for a bare module.

        Returns
        -------
        InversionAttack
            This attack.

        Raises
        ------
        TypeError, ValueError
            If the target has no gradients, or the columns do not describe the records.
        """
        self._validate_params()
        self._require_target()
        if self.noise_multiplier and self.max_grad_norm is None:
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} needs max_grad_norm, its unit. Pass "
                "the norm to which gradients are clipped."
            )
        with name_missing_extra():
            from ..torch_gradients import LossGradients
        with roll_back_on_error(self):
            rows, labels = check_labelled_rows(X, y, "X")
            self.n_features_in_ = rows.shape[1]
            self._gradients = LossGradients(self.target, self.loss, self.max_grad_norm)
            self._encoded = self._gradients.targets(labels)
            self.layout_ = ColumnLayout.from_columns(rows, self.columns)
            self.reference_ = rows
            self._learn()
        return self

    def reconstruct(
        self, gradient: Any, n_records: int, labels: ArrayLike | None = None
    ) -> tuple[Float64Array, Float64Array]:
        """Reconstruct the records whose mean gradient was observed.

        Parameters
        ----------
        gradient : list or dict of arrays
            The gradient that the party sent: an array for each weight of the target, in the order
            and of the shapes of its parameters, or a dict by name.
        n_records : int
            Number of records by which the party divided.
        labels : array-like of shape (n_records,), default=None
            Their labels, if known. None infers them from the gradient.

        Returns
        -------
        rows : ndarray of shape (n_records, n_features)
            Reconstructed records in arbitrary order; NaN if not found.
        confidence : ndarray of shape (n_records,)
            Confidence in each row, from 0 to 1.

        Raises
        ------
        ValueError
            If the gradient has wrong shapes, NaN or infinity.
        """
        observed, known = self._check_gradient(gradient, n_records, labels)
        found = self._reconstruct_batches(observed, int(n_records), known)[0]
        return found.rows, found.confidence

    def evaluate(
        self,
        gradients: Sequence[Any],
        batches: Sequence[tuple[ArrayLike, ArrayLike]],
        *,
        labels_known: bool = False,
        alpha: float = 0.05,
    ) -> InversionResult:
        """Attack gradients of known records, and compare with null models that see no gradient.

        Parameters
        ----------
        gradients : list
            Gradient of each batch, as in :meth:`reconstruct`; :func:`party_gradient` computes one.
        batches : list of (X, y)
            The records of each batch; all batches have the same size. The attack does not use them,
            except for ``y`` if ``labels_known``.
        labels_known : bool, default=False
            Whether the attack and the null models get the labels.
        alpha : float, default=0.05
            Error probability of intervals.

        Returns
        -------
        InversionResult
            The results of the attack and of its null models.
        """
        check_is_fitted(self, "layout_")
        flag("labels_known", labels_known)
        truth, labels = self._checked_batches(gradients, batches)
        n = truth.shape[1]
        import torch

        flatten = self._gradients.flatten_gradient
        observed = torch.stack([flatten(g, f"gradients[{b}]") for b, g in enumerate(gradients)])
        found = self._reconstruct_batches(observed, n, labels if labels_known else None)
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        known_labels, layout = labels.numpy() if labels_known else None, self.layout_
        of_reference = self._encoded.numpy()
        blind = null_model_rows(
            layout, self.reference_, of_reference, truth.shape[:2], known_labels, rng
        )
        guessed = [one.rows for one in found]
        judged = list(map(layout.match_rows, guessed, truth))
        confidence = [one.confidence[guess] for one, (_, guess) in zip(found, judged, strict=True)]
        return InversionResult(
            recovered=np.concatenate([equal for equal, _ in judged]),
            nulls={
                name: np.concatenate([equal for equal, _ in map(layout.match_rows, rows, truth)])
                for name, rows in blind.items()
            },
            exact=np.concatenate(list(map(layout.exact, guessed, truth))),
            confidence=np.concatenate(confidence),
            batch=np.repeat(np.arange(len(truth)), n),
            blind=null_model_ceiling(layout, truth, known_labels),
            names=layout.names,
            attack=type(self).__name__,
            alpha=alpha,
        )

    @abstractmethod
    def _reconstruct_batches(
        self, observed: Tensor, n_records: int, labels: Tensor | None
    ) -> list[Reconstruction]:
        """Reconstruct the records of each of several gradients, (batches, size)."""

    def _check_gradient(
        self, gradient: Any, n_records: int, labels: ArrayLike | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return one gradient and its labels as a batch of size 1."""
        check_is_fitted(self, "layout_")
        whole("n_records", n_records)
        observed = self._gradients.flatten_gradient(gradient)[None]
        if labels is None:
            return observed, None
        given = as_array("labels", labels)
        if given.shape != (n_records,):
            raise ValueError(
                f"labels has shape {given.shape}; expected ({n_records},), one label for each "
                "of the n_records."
            )
        return observed, self._gradients.targets(given, "labels")[None]

    def _learn(self) -> None:
        """Learn from the attacker's records at the end of ``fit``; nothing by default."""

    def _infer_labels(self, observed: Tensor, n_records: int) -> Tensor:
        """Infer the labels of each gradient's records, (batches, n_records)."""
        import torch

        some = self._gradients.records(self.reference_[:_REFERENCE])
        n_classes = self._gradients.n_classes(some)
        return torch.stack(
            [
                torch.arange(n_classes).repeat_interleave(
                    torch.as_tensor(label_counts(self._gradients, one, n_records, some, n_classes))
                )
                for one in observed
            ]
        )

    def _checked_batches(self, gradients: Any, batches: Any) -> tuple[Float64Array, Tensor]:
        import torch

        gradients, batches = sequence("gradients", gradients), sequence("batches", batches)
        if not len(batches) or len(gradients) != len(batches):
            raise ValueError(
                f"gradients has {len(gradients)} items and batches {len(batches)}; expected "
                "equally many, at least one."
            )
        rows: list[Float64Array] = []
        labels = []
        for b, batch in enumerate(batches):
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise TypeError(f"batches[{b}] must be a pair (X, y) of records and labels.")
            X, y = batch
            checked, label = check_labelled_rows(X, y, f"batches[{b}]")
            expected = len(rows[0] if rows else checked), self.n_features_in_
            if checked.shape != expected:
                raise ValueError(
                    f"batches[{b}] has shape {checked.shape}; expected {expected}, with as many "
                    "rows as the first batch and the features of fit."
                )
            rows.append(checked)
            labels.append(self._gradients.targets(label))
        return np.stack(rows), torch.stack(labels)


def check_labelled_rows(X: Any, y: Any, name: str) -> tuple[Float64Array, NDArray[Any]]:
    """Check rows (finite numbers) and labels, equally many."""
    rows = check_array(X, dtype=np.float64, order="C", input_name=name)
    labels = column_or_1d(y)
    check_consistent_length(rows, labels)
    return rows, labels


def label_counts(
    gradients: LossGradients, observed: Tensor, n_records: int, reference: Tensor, n_classes: int
) -> NDArray[np.intp]:
    """Return the number of records of each class in a batch, (n_classes,), summing to n.

    **Guarantees.** The label of one record is exact if its gradient has no noise (iDLG).
    """
    _, bias = gradients.linear_layer(-1)
    at_logits = gradients.split_weights(observed)[bias].double().numpy()
    if n_records == 1:
        # Zhao et al. 2020 (iDLG): the true label is the one logit with a negative gradient
        label = int(at_logits[0] < 0) if len(at_logits) == 1 else int(at_logits.argmin())
        return np.bincount([label], minlength=n_classes)
    by_label = [_mean_at(gradients, bias, reference, label) for label in range(n_classes)]
    expected = np.column_stack(by_label)
    # a further equation, that shares sum to one, with the weight of all logits together
    heavy = np.sqrt(len(at_logits)) * max(float(np.abs(expected).max()), 1e-12)
    shares = nnls(np.vstack([expected, np.full(n_classes, heavy)]), np.append(at_logits, heavy))[0]
    return _round_counts(shares, n_records)


def _mean_at(gradients: LossGradients, bias: str, reference: Tensor, label: int) -> Float64Array:
    """Return the mean gradient at a bias of the reference records, all under one label."""
    labels = reference.new_full((len(reference),), label).long()
    found = gradients.split_weights(gradients.per_record(reference, labels))[bias]
    return np.asarray(found.double().mean(0).numpy())


def _round_counts(shares: Float64Array, n: int) -> NDArray[np.intp]:
    """Round n times the shares to whole numbers that sum to n, by largest remainders."""
    known = shares if shares.sum() > 0 else np.ones(len(shares))
    exact = known * (n / known.sum())
    counts = np.floor(exact).astype(np.intp)
    counts[np.argsort(counts - exact)[: n - counts.sum()]] += 1
    return counts
