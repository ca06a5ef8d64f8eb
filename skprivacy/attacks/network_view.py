"""View into a network: inputs of each linear layer, and gradients at its outputs and inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, softmax
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline

from .._clones import train_clone
from .._environment import threads_for
from .._input_data import check_numbers

Float64Array = NDArray[np.float64]
Labels = NDArray[np.intp]
UNSEEN = -20.0  # log-odds of a class that a retrained network has never seen
BATCH = 64


class Activation(NamedTuple):
    """An activation, its derivative as a function of its output, and its class in torch.nn."""

    value: Callable[[Float64Array], Float64Array]
    slope: Callable[[Float64Array], Float64Array]
    module: str


ACTIVATIONS = {
    "identity": Activation(lambda z: z, np.ones_like, "Identity"),
    "logistic": Activation(expit, lambda a: a * (1 - a), "Sigmoid"),
    "tanh": Activation(np.tanh, lambda a: 1 - a**2, "Tanh"),
    "relu": Activation(lambda z: np.maximum(z, 0), lambda a: (a > 0).astype(float), "ReLU"),
}


class Layer(NamedTuple):
    """Inputs of a linear layer, and the gradients of a quantity at its outputs and its inputs."""

    inputs: Float64Array
    at_output: Float64Array
    at_inputs: Float64Array


class _Weights:
    """Weights of a network as one vector."""

    shapes: list[tuple[int, ...]]

    def _split(self, vector: NDArray[Any]) -> list[NDArray[Any]]:
        """Split a vector into arrays of the weights' shapes."""
        sizes = [int(np.prod(shape)) for shape in self.shapes]
        if vector.shape != (sum(sizes),):
            raise ValueError(
                f"weights have shape {vector.shape}; expected ({sum(sizes)},), as the network has. "
                "Pass the weights of the same network."
            )
        parts = np.split(vector, np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _positions(self) -> list[NDArray[np.intp]]:
        return self._split(np.arange(sum(int(np.prod(shape)) for shape in self.shapes)))


def weights_of(model: Any) -> Float64Array:
    """Return all weights of a network as one vector, in the order of :meth:`Updates.weights_of`."""
    return open_network(model)[0].weights()


def open_network(target: Any, *, epochs: int = 100) -> tuple[Network, Callable[[Any], Any]]:
    """Return the network of a target, and the function from records to the network's inputs."""
    if isinstance(target, Pipeline) and len(target.steps) > 1:
        steps = target[:-1]
        return _open(target.steps[-1][1], epochs), lambda X: _dense(steps.transform(X))
    return _open(target.steps[0][1] if isinstance(target, Pipeline) else target, epochs), _dense


def _open(net: Any, epochs: int) -> Network:
    if _is_module(net):
        return ModuleNetwork(net, epochs=epochs)
    if hasattr(net, "module_"):
        # skorch's default criterion, which takes the logarithm of the module's probabilities
        probabilities = type(getattr(net, "criterion_", None)).__name__ == "NLLLoss"
        return ModuleNetwork(net.module_, epochs=epochs, probabilities=probabilities)
    if (layers := layers_of(net)) is not None:
        return PlainNetwork(*layers, net)
    raise TypeError(
        f"target={type(net).__name__} must be a torch module, have one as module_, or be an "
        "MLPClassifier or a linear model (coef_), whose layers white-box attacks read. For other "
        "models, use LiRA."
    )


def layers_of(model: Any) -> tuple[list[Float64Array], list[Float64Array], str] | None:
    """Return the matrices, biases and activation of an MLPClassifier or linear classifier."""
    if isinstance(model, MLPClassifier) and hasattr(model, "coefs_"):
        return list(model.coefs_), list(model.intercepts_), model.activation
    if hasattr(model, "coef_") and hasattr(model, "classes_"):
        matrix = np.atleast_2d(np.asarray(_dense(model.coef_), dtype=float)).T
        return [matrix], [np.broadcast_to(np.ravel(model.intercept_), matrix.shape[1])], "identity"
    return None


@dataclass
class PlainNetwork(_Weights):
    """A linear model or multi-layer perceptron of scikit-learn."""

    matrices: list[Float64Array]
    biases: list[Float64Array]
    activation: str
    recipe: Any

    def __post_init__(self) -> None:
        self.n_layers = len(self.matrices)
        self.shapes = [np.shape(part) for part in self._arrays]

    @property
    def _arrays(self) -> list[Float64Array]:
        return [w for pair in zip(self.matrices, self.biases, strict=True) for w in pair]

    def weights(self) -> Float64Array:
        return np.concatenate([np.ravel(part) for part in self._arrays]).astype(float)

    def with_weights(self, weights: Float64Array) -> PlainNetwork:
        parts = self._split(weights)
        return PlainNetwork(parts[::2], parts[1::2], self.activation, self.recipe)

    def weight_positions(self, X: Any) -> list[NDArray[np.intp]]:
        parts = self._positions()
        return [np.c_[w.T, b] for w, b in zip(parts[::2], parts[1::2], strict=True)]

    def trace(self, X: Any, label: Labels, of: str) -> tuple[list[Layer], Float64Array]:
        inputs = self._inputs(X, self.n_layers - 1)
        logits = inputs[-1] @ self.matrices[-1] + self.biases[-1]
        value, gradient = (_loss if of == "loss" else _odds)(logits, label)
        layers = []
        for layer_inputs, weight in zip(inputs[::-1], self.matrices[::-1], strict=True):
            below = gradient @ weight.T
            layers.append(Layer(layer_inputs, gradient, below))
            gradient = below * ACTIVATIONS[self.activation].slope(layer_inputs)
        return layers[::-1], value

    def retrained(self, X: Any, label: Labels, first: int, seed: int) -> PlainNetwork:
        recipe = clone(self.recipe)
        if isinstance(recipe, MLPClassifier):
            sizes = [weight.shape[1] for weight in self.matrices[:-1]]
            recipe.set_params(hidden_layer_sizes=tuple(sizes[first:]))
        rows = np.arange(len(label))
        fitted = train_clone(recipe, self._inputs(X, first)[first], label, rows, seed)
        top, _ = open_network(fitted)
        assert isinstance(top, PlainNetwork)
        seen = fitted.classes_.astype(int)
        n_outputs = self.matrices[-1].shape[1]
        weight, bias = _extend_to_classes(top.matrices[-1], top.biases[-1], seen, n_outputs)
        return PlainNetwork(
            [*self.matrices[:first], *top.matrices[:-1], weight],
            [*self.biases[:first], *top.biases[:-1], bias],
            self.activation,
            self.recipe,
        )

    def _inputs(self, X: Any, upto: int) -> list[Float64Array]:
        check_numbers(X)
        inputs = [np.asarray(X, dtype=float)]
        expected = len(self.matrices[0])
        if inputs[0].shape[1:] != (expected,):
            raise ValueError(
                f"X has shape {inputs[0].shape}; expected {expected} features. Pass the columns "
                "that the target was fitted on, in the same order."
            )
        for weight, bias in zip(self.matrices[:upto], self.biases[:upto], strict=True):
            inputs.append(ACTIVATIONS[self.activation].value(inputs[-1] @ weight + bias))
        return inputs


class ModuleNetwork(_Weights):
    """A torch module that returns logits, or probabilities if ``probabilities`` is set."""

    def __init__(self, module: Any, *, epochs: int, probabilities: bool = False) -> None:
        import torch

        self.module = module
        self.epochs = epochs
        self.probabilities = probabilities
        self.n_layers = sum(isinstance(m, torch.nn.Linear) for m in module.modules())
        if not self.n_layers:
            raise TypeError(
                f"target={type(module).__name__} has no torch.nn.Linear layer; expected at least "
                "one. For other models, use LiRA."
            )
        self.shapes = [tuple(p.shape) for p in module.parameters()]

    def weights(self) -> Float64Array:
        return np.concatenate([_numbers(p).ravel() for p in self.module.parameters()])

    def with_weights(self, weights: Float64Array) -> ModuleNetwork:
        import torch

        module = copy.deepcopy(self.module)
        with torch.no_grad():
            for value, part in zip(module.parameters(), self._split(weights), strict=True):
                value.copy_(torch.as_tensor(part))
        return self._with_module(module)

    def weight_positions(self, X: Any) -> list[NDArray[np.intp]] | None:
        import torch

        holders = _weight_holders(self.module)
        if not all(type(m) is torch.nn.Linear for m in holders):
            return None
        used: list[Any] = []
        flat: list[bool] = []

        def note(layer: Any, inputs: tuple[Any, ...], _: Any) -> None:
            used.append(layer)
            flat.append(inputs[0].ndim == 2)

        with _HookedLayers(self.module, note), torch.no_grad():
            self._logits(self._tensor(X[:2]))
        if set(used) != set(holders) or len(used) != len(holders) or not all(flat):
            return None
        values = list(self.module.parameters())
        if len(values) != sum(1 for layer in used for _ in layer.parameters()):
            return None  # shared weights
        at = dict(zip(map(id, values), self._positions(), strict=True))
        return [np.column_stack([at[id(p)] for p in layer.parameters()]) for layer in used]

    def trace(self, X: Any, label: Labels, of: str) -> tuple[list[Layer], Float64Array]:
        import torch

        seen: list[tuple[Any, Any]] = []

        def record(layer: Any, inputs: tuple[Any, ...], output: Any) -> None:
            if isinstance(layer, torch.nn.Linear):
                seen.append((inputs[0], output))

        before = [weight.requires_grad for weight in self.module.parameters()]
        try:
            self.module.requires_grad_(True)
            with _HookedLayers(self.module, record):
                logits = self._logits(self._tensor(X).requires_grad_())
            labels = torch.as_tensor(label, device=logits.device)
            if of == "loss":
                value = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
            else:
                chosen = torch.nn.functional.one_hot(labels, logits.shape[1]).bool()
                rest = logits.masked_fill(chosen, -torch.inf).logsumexp(1)
                value = logits[chosen] - rest
            wanted = [output for _, output in seen] + [inputs for inputs, _ in seen]
            gradients = [_numbers(g) for g in torch.autograd.grad(value.sum(), wanted)]
        finally:
            for weight, flag in zip(self.module.parameters(), before, strict=True):
                weight.requires_grad_(flag)
        inputs = [_numbers(layer_inputs) for layer_inputs, _ in seen]
        count = len(seen)
        return list(map(Layer, inputs, gradients[:count], gradients[count:])), _numbers(value)

    def retrained(self, X: Any, label: Labels, first: int, seed: int) -> ModuleNetwork:
        import torch

        module = copy.deepcopy(self.module).requires_grad_(False)
        network = self._with_module(module)
        inputs = self._tensor(X)
        labels = torch.as_tensor(label, device=inputs.device)
        with torch.random.fork_rng(devices=[]), threads_for(module, BATCH):
            torch.manual_seed(seed)
            layers = network._layers_from(first, inputs[:2])
            weights = [p for layer in layers for p in _reset_weights(layer)]
            optimizer = torch.optim.Adam(weights)
            for _ in range(self.epochs):
                for rows in torch.randperm(len(inputs)).split(BATCH):
                    rows = rows.to(inputs.device)
                    logits = network._logits(inputs[rows])
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(logits, labels[rows]).backward()
                    optimizer.step()
        module.requires_grad_(False)
        return network

    def _with_module(self, module: Any) -> ModuleNetwork:
        return ModuleNetwork(module, epochs=self.epochs, probabilities=self.probabilities)

    def _layers_from(self, first: int, sample: Any) -> list[Any]:
        """Return the layers with weights, in order of use, from linear layer ``first`` on."""
        import torch

        used: list[Any] = []
        with _HookedLayers(self.module, lambda layer, *_: used.append(layer)), torch.no_grad():
            self.module(sample)
        used = list(dict.fromkeys(used))
        start = [m for m in used if isinstance(m, torch.nn.Linear)][first]
        return used[used.index(start) :]

    def _logits(self, inputs: Any) -> Any:
        """Return logits with one column per class, computed in evaluation mode (no dropout)."""
        with self._evaluating():
            return self._as_logits(self.module(inputs), len(inputs))

    def _as_logits(self, output: Any, n_records: int) -> Any:
        import torch

        output = output.reshape(n_records, -1)
        if self.probabilities:
            output = output.clamp_min(1e-12).log()
        return torch.cat([torch.zeros_like(output), output], 1) if output.shape[1] == 1 else output

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Run the module in evaluation mode, and restore its mode."""
        was_training = self.module.training
        self.module.eval()
        try:
            yield
        finally:
            self.module.train(was_training)

    def _tensor(self, X: Any) -> Any:
        import torch

        like = next(self.module.parameters())
        return torch.as_tensor(np.asarray(X), dtype=like.dtype, device=like.device)


# A trained classifier made of linear layers and activations. ``trace(X, label, of)`` returns the
# layers in order, and each record's "loss" or the "odds" of its class. ``retrained`` shares the
# layers below ``first`` and trains the others from scratch. ``weight_positions`` returns each
# layer's positions in ``weights()``, biases last; None for modules with weights in other layers.
Network = PlainNetwork | ModuleNetwork


class _HookedLayers:
    """Call ``hook(layer, inputs, output)`` whenever a layer with weights is used."""

    def __init__(self, module: Any, hook: Callable[..., None]) -> None:
        self.module = module
        self.hook = hook

    def __enter__(self) -> None:
        layers = _weight_holders(self.module)
        self.handles = [layer.register_forward_hook(self.hook) for layer in layers]

    def __exit__(self, *_: Any) -> None:
        for handle in self.handles:
            handle.remove()


def _weight_holders(module: Any) -> list[Any]:
    """Return the parts of a module that hold weights."""
    return [m for m in module.modules() if any(True for _ in m.parameters(recurse=False))]


def _reset_weights(layer: Any) -> list[Any]:
    """Reset a layer to random weights and return them."""
    import torch

    if hasattr(layer, "reset_parameters"):
        layer.reset_parameters()
    else:  # a permutation keeps the weights' scale but destroys what they have learned
        for weight in layer.parameters(recurse=False):
            order = torch.randperm(weight.numel(), device=weight.device)
            weight.copy_(weight.flatten()[order].reshape(weight.shape))
    return [weight.requires_grad_() for weight in layer.parameters(recurse=False)]


def _loss(logits: Float64Array, label: Labels) -> tuple[Float64Array, Float64Array]:
    if logits.shape[1] == 1:
        sign = 1.0 - 2.0 * label[:, None]
        return np.logaddexp(0, sign * logits)[:, 0], expit(logits) - label[:, None]
    chosen = np.eye(logits.shape[1])[label]
    log_total: Float64Array = logsumexp(logits, axis=1)
    gradient: Float64Array = softmax(logits, axis=1) - chosen
    value: Float64Array = log_total - np.sum(logits * chosen, axis=1)
    return value, gradient


def _odds(logits: Float64Array, label: Labels) -> tuple[Float64Array, Float64Array]:
    if logits.shape[1] == 1:
        sign = np.where(label[:, None] == 1, 1.0, -1.0)
        return (sign * logits)[:, 0], sign
    chosen = np.eye(logits.shape[1])[label]
    rest = np.where(chosen == 1, -np.inf, logits)
    log_rest: Float64Array = logsumexp(rest, axis=1)
    gradient: Float64Array = chosen - softmax(rest, axis=1)
    return np.sum(logits * chosen, axis=1) - log_rest, gradient


def _extend_to_classes(
    weight: Float64Array, bias: Float64Array, seen: Labels, n_outputs: int
) -> tuple[Float64Array, Float64Array]:
    """Extend the last layer to an output for every class, including classes it never saw."""
    if len(seen) == max(2, n_outputs):
        return weight, bias
    if n_outputs == 1:
        raise ValueError(
            "y has a class that is too rare: some folds do not contain it, but each needs both "
            "classes. Pass more records of that class."
        )
    if len(seen) == 2:
        weight, bias = np.c_[np.zeros_like(weight), weight], np.r_[0.0, bias]
    whole, offset = np.zeros((len(weight), n_outputs)), np.full(n_outputs, UNSEEN)
    whole[:, seen], offset[seen] = weight, bias
    return whole, offset


def _is_module(thing: Any) -> bool:
    """Return whether an object is a torch module, without importing torch."""
    return any(c.__module__.startswith("torch.nn") for c in type(thing).__mro__)


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else np.asarray(X)


def _numbers(tensor: Any) -> Float64Array:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=float)
