"""Bare torch modules as classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax

from .._sklearn import safe_indexing
from .._validation import num_samples

_BATCH = 1024  # records given to the module at once


class ModuleClassifier:
    """A trained module whose outputs are logits of the classes 0, 1, ..., or probabilities.

    **Guarantees.** The module runs in evaluation mode and is left in the modes it was in.
    """

    def __init__(self, module: Any, X: Any) -> None:
        self.module = module
        outputs = self._outputs(safe_indexing(X, np.arange(min(num_samples(X), _BATCH))))
        self._probabilities = bool(
            outputs.shape[1] > 1
            and outputs.min() >= 0
            and np.abs(outputs.sum(axis=1) - 1).max() < 1e-3
        )
        self.classes_ = np.arange(max(2, outputs.shape[1]))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        outputs = self._outputs(X)
        if outputs.shape[1] == 1:
            return np.hstack([expit(-outputs), expit(outputs)])
        return outputs if self._probabilities else softmax(outputs, axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _outputs(self, X: Any) -> NDArray[np.float64]:
        import torch

        like = next((p for p in self.module.parameters() if p.is_floating_point()), torch.empty(0))
        layers = (m for m in self.module.modules() if any(True for _ in m.parameters(False)))
        embeds = isinstance(next(layers, None), torch.nn.Embedding | torch.nn.EmbeddingBag)
        dtype = torch.long if embeds else like.dtype  # embeddings take indices of words
        modes = [(part, part.training) for part in self.module.modules()]  # parts may differ
        self.module.eval()
        try:
            with torch.no_grad():
                parts = [
                    self.module(torch.as_tensor(rows, dtype=dtype, device=like.device))
                    for rows in _batches(X)
                ]
        finally:
            for part, mode in modes:
                part.training = mode
        outputs = np.concatenate([part.double().cpu().numpy() for part in parts])
        outputs = outputs[:, None] if outputs.ndim == 1 else outputs
        if outputs.ndim != 2 or len(outputs) != num_samples(X) or not np.isfinite(outputs).all():
            raise ValueError(
                f"{type(self.module).__name__} returned outputs of shape {outputs.shape}; expected "
                "one finite logit for each record and class. Wrap it in a module that returns them."
            )
        return outputs

    def __repr__(self) -> str:
        return f"{type(self.module).__name__} (a torch module of {len(self.classes_)} classes)"


def _batches(X: Any) -> list[NDArray[Any]]:
    parts = np.arange(0, num_samples(X), _BATCH)
    rows = [safe_indexing(X, np.arange(at, min(at + _BATCH, num_samples(X)))) for at in parts]
    return [part.toarray() if sparse.issparse(part) else np.asarray(part) for part in rows]
