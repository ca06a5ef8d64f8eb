"""Many small neural networks trained at once, as one batched network.

A shadow model alone is too small to keep the processor busy: most of its time goes into the
overhead of each step. Stacked, one batched matrix product steps all of them. The recipe is that
of :class:`sklearn.neural_network.MLPClassifier` with ``solver="adam"``: initialisation, batches,
penalty, learning rate and stopping rule, in single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline

from .._sklearn import safe_indexing

__all__ = ["StackedMember", "check_stackable", "chunk_size", "train_stacked"]

# Below this many weights a model, many models fit the processor's cache together.
SMALL = 200_000
ACTIVATIONS = {
    "identity": lambda z: z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
}


@dataclass(frozen=True)
class StackedMember:
    """One trained network of the stack, with its own preprocessing; numpy alone predicts."""

    classes_: NDArray[Any]
    layers: list[tuple[NDArray[np.float32], NDArray[np.float32]]]
    activation: str
    preprocessing: Any = None

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return class probabilities of shape (n_records, n_classes)."""
        hidden = _dense(X if self.preprocessing is None else self.preprocessing.transform(X))
        for weight, bias in self.layers[:-1]:
            hidden = ACTIVATIONS[self.activation](hidden @ weight + bias)
        weight, bias = self.layers[-1]
        logits = (hidden @ weight + bias).astype(float)
        if len(self.classes_) == 2:
            return np.hstack([expit(-logits), expit(logits)])
        return softmax(logits, axis=1)


def check_stackable(estimator: Any) -> MLPClassifier:
    """Return the network at the end of ``estimator``, or say why it cannot be stacked."""
    net = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    if not isinstance(net, MLPClassifier) or net.solver != "adam" or net.early_stopping:
        raise ValueError(
            f"stacked=True trains MLPClassifier(solver='adam', early_stopping=False), alone or at "
            f"the end of a pipeline; got {net!r}. Use stacked=False."
        )
    return net


def chunk_size(estimator: Any, n_features: int, n_classes: int) -> int:
    """Return how many models to train at once."""
    sizes = _sizes(check_stackable(estimator), n_features, n_classes)
    weights = sum(a * b for a, b in pairwise(sizes))
    return 64 if weights < SMALL else 16


def train_stacked(
    estimator: Any,
    X: Any,
    label: NDArray[np.intp],
    classes: NDArray[Any],
    rows: list[NDArray[np.intp]],
    seeds: list[int],
    *,
    reduced: bool = False,
) -> list[StackedMember]:
    """Train one network for each of ``rows`` on these rows of ``X``.

    Parameters
    ----------
    estimator : MLPClassifier or Pipeline ending in one
        Never changed. The steps before the network are fitted for each model apart.
    X : records of shape (n_records, n_features)
    label : ndarray of shape (n_records,)
        Column of each record's class in ``classes``.
    classes : ndarray of shape (n_classes,)
    rows : list of index arrays, one for each model
    seeds : list of int, one for each model
    reduced : bool, default=False
        Take matrix products in bfloat16; weights and their updates stay in single precision.

    Notes
    -----
    Every network has an output for every class, also for those missing among its rows.
    """
    net = check_stackable(estimator)
    steps = Pipeline(estimator.steps[:-1]) if isinstance(estimator, Pipeline) else None
    prepared, data = [], []
    for chosen in rows:
        part = safe_indexing(X, chosen)
        step = None
        if steps is not None and len(steps.steps):
            step = clone(steps)
            part = step.fit_transform(part, classes[label[chosen]])
        prepared.append(step)
        data.append(_dense(part))
    if len({part.shape[1] for part in data}) > 1:
        raise ValueError(
            "stacked=True needs the same number of features after the preprocessing of each "
            "shadow model. Fix the categories of the encoder, or use stacked=False."
        )
    layers = _train(net, data, [label[chosen] for chosen in rows], len(classes), seeds, reduced)
    return [
        StackedMember(classes, layer, net.activation, step)
        for layer, step in zip(layers, prepared, strict=True)
    ]


def _sizes(net: MLPClassifier, n_features: int, n_classes: int) -> list[int]:
    outputs = 1 if n_classes == 2 else n_classes
    return [n_features, *np.atleast_1d(net.hidden_layer_sizes).astype(int).tolist(), outputs]


def _dense(X: Any) -> NDArray[np.float32]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float32)


def _train(
    net: MLPClassifier,
    data: list[NDArray[np.float32]],
    labels: list[NDArray[np.intp]],
    n_classes: int,
    seeds: list[int],
    reduced: bool,
) -> list[list[tuple[NDArray[np.float32], NDArray[np.float32]]]]:
    import torch

    counts = np.array([len(part) for part in data])
    longest, n_features = int(counts.max()), data[0].shape[1]
    # columns of zeros up to a multiple of 8: reduced products of odd widths are not optimised
    padding = -n_features % 8
    kind = torch.bfloat16 if reduced else torch.float32
    records = torch.zeros(len(data) * longest, n_features + padding, dtype=kind)
    truth = torch.zeros(len(data) * longest, dtype=torch.long)
    for place, (part, label) in enumerate(zip(data, labels, strict=True)):
        start = place * longest
        records[start : start + len(part), :n_features] = torch.from_numpy(part)
        truth[start : start + len(part)] = torch.from_numpy(label.astype(np.int64))
    rngs = [np.random.default_rng(seed) for seed in seeds]
    weights, biases = _initialise(net, _sizes(net, n_features, n_classes), padding, rngs)
    batch = min(200, int(counts.min())) if net.batch_size == "auto" else int(net.batch_size)
    decay = net.alpha / batch  # the penalty's gradient, without a pass over the weights
    optimizer = torch.optim.Adam(
        [{"params": weights, "weight_decay": decay}, {"params": biases}],
        lr=net.learning_rate_init,
        betas=(net.beta_1, net.beta_2),
        eps=net.epsilon,
        fused=True,
    )
    activation: Any = {
        "identity": torch.nn.Identity(),
        "logistic": torch.sigmoid,
        "tanh": torch.tanh,
        "relu": torch.relu,
    }[net.activation]
    patience = _Patience(len(data), net.tol, net.n_iter_no_change)
    done: dict[int, Any] = {}
    for _ in range(net.max_iter):
        epoch_loss = torch.zeros(len(data))
        for places, share in _batches(counts, longest, batch, rngs if net.shuffle else None):
            hidden = records.index_select(0, places.reshape(-1)).view(*places.shape, -1)
            with torch.autocast("cpu", torch.bfloat16, enabled=reduced):
                for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
                    hidden = activation(torch.baddbmm(bias, hidden, weight))
                logits = torch.baddbmm(biases[-1], hidden, weights[-1])
            losses = (_loss(logits.float(), truth.take(places)) * share).sum(1)
            optimizer.zero_grad()
            (losses / share.sum(1).clamp(min=1)).sum().backward()
            optimizer.step()
            epoch_loss += losses.detach()
        for place in patience.run_out(epoch_loss.numpy() / counts):
            done.setdefault(place, _member(weights, biases, place))
        if len(done) == len(data):
            break
    layers = [done.get(place) or _member(weights, biases, place) for place in range(len(data))]
    return [[(first[:n_features], bias), *rest] for (first, bias), *rest in layers]


def _initialise(
    net: MLPClassifier, sizes: list[int], padding: int, rngs: list[Any]
) -> tuple[list, list]:
    """Draw weights as MLPClassifier does; those of padding are zero and stay so."""
    import torch

    weights: list[Any] = []
    biases: list[Any] = []
    factor = 2.0 if net.activation == "logistic" else 6.0
    for fan_in, fan_out in pairwise(sizes):
        bound = np.sqrt(factor / (fan_in + fan_out))
        draws = [rng.uniform(-bound, bound, (fan_in + 1, fan_out)) for rng in rngs]
        both = torch.from_numpy(np.stack(draws).astype(np.float32))
        unused = 0 if weights else padding
        weight = torch.nn.functional.pad(both[:, :-1], (0, 0, 0, unused))
        weights.append(weight.clone().requires_grad_())
        biases.append(both[:, -1:].clone().requires_grad_())
    return weights, biases


def _batches(
    counts: NDArray[np.intp], longest: int, batch: int, rngs: list[Any] | None
) -> Iterator[tuple[Any, Any]]:
    """Yield the places of each batch's records and a mask of those that are real, not padding.

    Every member takes equally many steps, its records spread evenly over them: a step without
    records would still move its weights, by the moments of Adam.
    """
    import torch

    steps = -(-longest // batch)
    cuts = np.arange(steps + 1)[:, None] * counts // steps
    width = int(np.diff(cuts, axis=0).max())
    order = np.zeros((len(counts), longest + width), dtype=np.int64)
    for place, count in enumerate(counts):
        own = np.arange(count) if rngs is None else rngs[place].permutation(count)
        order[place, :count] = place * longest + own
    for start, stop in pairwise(cuts):
        columns = start[:, None] + np.arange(width)
        real = columns < stop[:, None]
        places = np.take_along_axis(order, columns, axis=1)
        yield torch.from_numpy(places), torch.from_numpy(real.astype(np.float32))


def _loss(logits: Any, truth: Any) -> Any:
    """Cross-entropy of each record, of shape (n_models, batch)."""
    import torch

    if logits.shape[2] == 1:
        return torch.nn.functional.binary_cross_entropy_with_logits(
            logits[:, :, 0], truth.to(logits.dtype), reduction="none"
        )
    flat = logits.reshape(-1, logits.shape[2])
    loss = torch.nn.functional.cross_entropy(flat, truth.reshape(-1), reduction="none")
    return loss.reshape(truth.shape)


def _member(weights: list, biases: list, place: int) -> list[tuple[Any, Any]]:
    return [
        (weight[place].detach().numpy().copy(), bias[place, 0].detach().numpy().copy())
        for weight, bias in zip(weights, biases, strict=True)
    ]


class _Patience:
    """MLPClassifier's stopping rule, for each model apart."""

    def __init__(self, n_models: int, tol: float, n_iter_no_change: int) -> None:
        self.best = np.full(n_models, np.inf)
        self.waited = np.zeros(n_models, dtype=int)
        self.tol = tol
        self.limit = n_iter_no_change

    def run_out(self, loss: NDArray[Any]) -> list[int]:
        """Return the models whose loss has not improved for long enough."""
        self.waited = np.where(loss > self.best - self.tol, self.waited + 1, 0)
        self.best = np.minimum(self.best, loss)
        return np.flatnonzero(self.waited > self.limit).tolist()
