"""Analytic reconstruction from the gradient of a first linear layer (Boenisch et al. 2023)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .inversion_attack import InversionAttack, Reconstruction

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FirstLayerInversion"]


class FirstLayerInversion(InversionAttack):
    """Compute records from the gradient of a first linear layer (Boenisch et al. 2023).

    The gradient of a neuron's weights divided by that of its bias is a weighted mean of the records
    that activate the neuron. If only one record does, it is the record itself, exactly. Candidates
    are checked with the network. The whole gradient of a confirmed record is subtracted, after
    which other records may be alone on a neuron.

    Parameters
    ----------
    target : torch module or fitted estimator, default=None
        See :class:`GradientInversion`. Its first layer must be linear, with a bias.
    columns : Schema, list of lists of int or None, default=None
        See :class:`GradientInversion`; used only for the evaluation.
    loss : callable, default=None
        See :class:`GradientInversion`.
    max_grad_norm : float, default=None
        Norm to which the party clips each record's gradient, which hinders this attack little.
    noise_multiplier : float, default=0.0
        See :class:`GradientInversion`. With noise, this attack finds nothing.
    random_state : int, RandomState instance or None, default=None
        Seed of the null model "random rows".

    Notes
    -----
    **Edge cases.** With activations that are never zero (tanh), or without a neuron that a single
    record activates, only a batch of one record is found.

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

    def _learn(self) -> None:
        from .first_layer_rows import name_first_layer

        name_first_layer(self._gradients, self.n_features_in_)

    def _reconstruct_batches(
        self, observed: Tensor, n_records: int, labels: Tensor | None
    ) -> list[Reconstruction]:
        import torch

        from .first_layer_rows import reconstruct_from_neurons

        known_labels = self._encoded.expand(len(observed), -1) if labels is None else labels
        found = []
        for one, own in zip(observed, known_labels, strict=True):
            tried = torch.unique(own)
            known = reconstruct_from_neurons(
                self._gradients, one, n_records, self.n_features_in_, tried
            )
            rows = np.full((n_records, self.n_features_in_), np.nan)
            rows[: len(known)] = known.double().numpy()
            found.append(Reconstruction(rows, (np.arange(n_records) < len(known)).astype(float)))
        return found
