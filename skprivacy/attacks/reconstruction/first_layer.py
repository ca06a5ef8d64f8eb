"""Analytic reconstruction from the gradient of a first linear layer (Boenisch et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..._docs import fill_docs
from .inversion_attack import INVERSION_DOCS, InversionAttack, Reconstruction

if TYPE_CHECKING:
    from torch import Tensor

_TOLERANCE = 1e-3  # relative error in single precision, where gradients nearly cancel
_SAME = 1e-3  # relative distance below which two rows are the same record
_ZERO = 1e-5  # relative to the largest gradient; smaller ones are rounding errors


@fill_docs(INVERSION_DOCS)
class FirstLayerInversion(InversionAttack):
    """Compute records from the gradient of a first linear layer (Boenisch et al. 2023).

    The gradient of a neuron's weights divided by the gradient of its bias is a weighted mean of the
    records that activate the neuron. If only one record does, the mean is the record itself,
    exactly. Candidates are checked with the network. The whole gradient of a confirmed record is
    subtracted, after which other records may be alone on a neuron.

    Parameters
    ----------
    %(inversion_parameters)s
    random_state : int, RandomState instance or None, default=None
        Seed of the null model "random rows".

    Attributes
    ----------
    %(inversion_attributes)s

    Notes
    -----
    The first layer must be linear, with a bias. Clipping hinders this attack little.

    **Edge cases.** With noise, the attack finds nothing. With activations that are never zero
    (tanh), or without a neuron that a single record activates, only a batch of one record is found.

    References
    ----------
    L. T. Phong, Y. Aono, T. Hayashi, L. Wang, S. Moriai. Privacy-preserving deep learning via
    additively homomorphic encryption. IEEE TIFS 2018.
    F. Boenisch et al. When the curious abandon honesty: federated learning is not private.
    EuroS&P 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skprivacy.attacks import FirstLayerInversion, party_gradient
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(300, 5)), rng.integers(0, 2, 300)
    >>> net = MLPClassifier((64,), max_iter=5, random_state=0)
    >>> _ = net.partial_fit(X[:100], y[:100], classes=[0, 1])
    >>> attack = FirstLayerInversion(net).fit(X[:100], y[:100])
    >>> sent = party_gradient(net, X[200:202], y[200:202])
    >>> rows, _ = attack.reconstruct(sent, n_records=2)
    >>> bool(np.allclose(np.sort(rows, axis=0), np.sort(X[200:202], axis=0)))
    True
    """

    def _learn(self) -> None:
        weight, _ = self._gradients.linear_layer(0)
        width = self._gradients.shapes[weight][1]
        if width != self.n_features_in_:
            raise ValueError(
                f"The target's first layer takes {width} features; X has {self.n_features_in_}. "
                "Pass records in the target's input format."
            )

    def _reconstruct_batches(
        self, observed: Tensor, n_records: int, labels: Tensor | None
    ) -> list[Reconstruction]:
        known_labels = self._encoded.expand(len(observed), -1) if labels is None else labels
        found = []
        for one, own in zip(observed, known_labels, strict=True):
            known = self._rows_alone_on_neurons(one, n_records, own.unique())
            rows = np.full((n_records, self.n_features_in_), np.nan)
            rows[: len(known)] = known.double().numpy()
            found.append(Reconstruction(rows, (np.arange(n_records) < len(known)).astype(float)))
        return found

    def _rows_alone_on_neurons(self, observed: Tensor, n_records: int, labels: Tensor) -> Tensor:
        """Return the distinct records that alone activate some neuron, (n_found, n_features)."""
        import torch

        gradients = self._gradients
        rest, found = observed.clone(), observed.new_empty((0, self.n_features_in_))
        floor = _ZERO * self._first_layer_gradients(observed)[1].abs().max()
        while len(found) < n_records:
            rows, label = self._single_record_quotients(rest, float(floor), n_records, labels)
            new = _select_new_rows(rows, found, n_records)
            if not new:
                break
            found = torch.cat([found, rows[new]])
            rest = rest - gradients.per_record(rows[new], label[new]).sum(0) / n_records
        return found

    def _first_layer_gradients(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        weight, bias = self._gradients.linear_layer(0)
        parts = self._gradients.split_weights(vector)
        return parts[weight], parts[bias]

    def _single_record_quotients(
        self, rest: Tensor, floor: float, n_records: int, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the quotients that reproduce their neuron's gradient, best first, and labels."""
        weight, bias = self._first_layer_gradients(rest)
        neurons = (bias.abs() > floor).nonzero()[:, 0]
        # Phong et al. 2018; Boenisch et al. 2023: weight gradient divided by bias gradient
        rows = weight[neurons] / bias[neurons][:, None]
        error = rows.new_full((len(rows),), float("inf"))
        which = labels[0].repeat(len(rows))
        for label in labels:
            tried = self._gradients_at_neurons(rows, label, neurons) / n_records
            off = (tried / bias[neurons] - 1).abs()
            which = label.where(off < error, which)
            error = error.minimum(off)
        sure = error.argsort()[: int((error < _TOLERANCE).sum())]
        return rows[sure], which[sure]

    def _gradients_at_neurons(self, rows: Tensor, label: Tensor, neurons: Tensor) -> Tensor:
        """Return the gradient of each row at the bias of its neuron."""
        found = rows.new_empty(len(rows))
        for start in range(0, len(rows), 64):
            part = slice(start, start + 64)
            labels = label.expand(len(rows[part]))
            _, each = self._first_layer_gradients(self._gradients.per_record(rows[part], labels))
            found[part] = each.gather(1, neurons[part, None])[:, 0]
        return found


def _select_new_rows(rows: Tensor, found: Tensor, most: int) -> list[int]:
    """Return the indices of distinct rows that were not found before, up to ``most`` in total."""
    import torch

    new: list[int] = []
    for i, row in enumerate(rows):
        known = torch.cat([found, rows[new]])
        near = _SAME * row.abs().max().clamp(min=1e-12)
        if len(known) < most and not ((known - row).abs().amax(1) < near).any():
            new.append(i)
    return new
