"""The built-in perceptron: its module, backpropagation and clipped gradient sum.

Backpropagation by hand avoids autograd's overhead. On a small batch, torch's overhead per operation
exceeds the arithmetic, and numpy's is smaller. On large matrices torch is faster. Start reading at
:class:`PerceptronGradients`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import skip_init

from ..._environment import MUCH_WORK
from ..._validation import as_array
from .._training.torch_modes import numpy_sees
from .contributions import ACCUMULATOR, LOST, SUMMED, Contribution, OuterProduct, _is_small

_SMALL_ARRAY = 1 << 16  # numbers of an elementwise operation below which numpy is faster
_ATEN = torch.ops.aten
Loss = Callable[[Tensor, Tensor], Tensor]
Array = NDArray[np.float32]
# Multiplications by weights from which on torch's threads are worth starting.
_MUCH_WORK = MUCH_WORK // 2
# Rows that one product adds up: over more, products of few columns round more than torch's.
_ROWS = 512

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "logistic": nn.Sigmoid}


@dataclass(frozen=True)
class _Activation:
    """Functions of an activation; all but ``slope`` work in place."""

    of_tensor: Callable[[Tensor], Tensor]
    of_array: Callable[[Array], Any]
    times_slope: Callable[[Tensor, Tensor], Any]
    slope: Callable[[Array], NDArray[Any]]


def _slope_of_tanh(value: Array) -> Array:
    slope = value * value
    return np.subtract(1.0, slope, out=slope)


_FUNCTIONS: dict[type[nn.Module], _Activation] = {
    nn.Tanh: _Activation(
        torch.tanh_,
        lambda z: np.tanh(z, out=z),
        lambda g, value: _ATEN.tanh_backward.grad_input(g, value, grad_input=g),
        _slope_of_tanh,
    ),
    nn.ReLU: _Activation(
        torch.relu_,
        lambda z: torch.relu_(torch.from_numpy(z)),
        lambda g, value: _ATEN.threshold_backward.grad_input(g, value, 0, grad_input=g),
        lambda value: value > 0,
    ),
    nn.Sigmoid: _Activation(
        torch.sigmoid_,
        lambda z: torch.sigmoid_(torch.from_numpy(z)),
        lambda g, value: _ATEN.sigmoid_backward.grad_input(g, value, grad_input=g),
        lambda value: value - value * value,
    ),
}


def affine(bias: Tensor, a: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Compute ``a @ weight.T + bias`` into ``out``."""
    if _is_small(a, weight.shape[0]):
        values = out.numpy()
        np.matmul(a.numpy(), weight.detach().numpy().T, out=values)
        values += bias.detach().numpy()
        return out
    return torch.addmm(bias, a, weight.T, out=out)


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Compute ``a @ b`` into ``out``."""
    if _is_small(a, b.shape[1]):
        np.matmul(a.numpy(), b.detach().numpy(), out=out.numpy())
        return out
    return torch.mm(a, b, out=out)


def activate(kind: type[nn.Module], values: Tensor) -> Tensor:
    """Apply an activation in place."""
    if kind is nn.Tanh and numpy_sees(values):
        # numpy's tanh takes a sixth of the time of torch's.
        array = values.numpy()
        np.tanh(array, out=array)
        return values
    return _FUNCTIONS[kind].of_tensor(values)


def multiply_by_slope(kind: type[nn.Module], grad: Tensor, value: Tensor) -> None:
    """Multiply a gradient in place by the slope of an activation with output ``value``."""
    if _is_few(grad):
        d, v = grad.numpy(), value.numpy()
        d *= _FUNCTIONS[kind].slope(v)
    else:
        _FUNCTIONS[kind].times_slope(grad, value)


def softmax_gradient(outputs: Tensor, targets: Tensor, out: Tensor) -> Tensor:
    """Compute gradients of the cross-entropy into ``out``; negative targets have none."""
    grad = torch.softmax(outputs, 1, out=out)
    if numpy_sees(grad) and targets.numpy().min(initial=0) >= 0:
        if _is_few(grad):
            grad.numpy()[np.arange(len(grad)), targets.numpy()] -= 1.0
            return grad
        return grad.scatter_add_(1, targets[:, None], grad.new_full((len(grad), 1), -1.0))
    counted = (targets >= 0)[:, None].to(grad.dtype)
    return grad.scatter_add_(1, targets.clamp(min=0)[:, None], -counted).mul_(counted)


class PerceptronGradients:
    """Backpropagation of the cross-entropy through alternating linear layers and activations."""

    name = "book-keeping"

    @staticmethod
    def fits(module: nn.Module, per_example_loss: Loss) -> bool:
        """Return True if this is the backpropagation of that module and loss."""
        return _is_perceptron(module) and _is_plain_cross_entropy(per_example_loss)

    def __init__(self, module: nn.Module, per_example_loss: Loss) -> None:
        if not self.fits(module, per_example_loss):
            raise ValueError("A probe is needed for a module that is not a plain perceptron.")
        assert isinstance(module, nn.Sequential)
        linear = [layer for layer in module if isinstance(layer, nn.Linear)]
        self.layers = [(layer.weight, layer.bias) for layer in linear]
        self.activations = [type(m) for m in list(module)[1::2]]
        self.numbers_an_example = sum(sum(weight.shape) for weight, _ in self.layers)
        self._work = sum(weight.numel() for weight, _ in self.layers)
        self._widest = max(size for weight, _ in self.layers for size in weight.shape)
        self._workspace = Workspace()
        self._kept: dict[Any, Array] = {}

    def __call__(self, inputs: Tensor, targets: Tensor, first: bool = False) -> list[Contribution]:
        """Return contributions; with ``first``, they overwrite the accumulators."""
        with torch.no_grad(), np.errstate(all="ignore"):
            seen = [inputs]
            for i, activation in enumerate(self.activations):
                seen.append(activate(activation, self._outputs(i, seen[-1])))
            outputs = self._outputs(-1, seen[-1])
            buffer = self._workspace("softmax", outputs.shape, outputs)
            grad = softmax_gradient(outputs, targets, buffer)
            found: list[Contribution] = [
                OuterProduct(*self.layers[-1], seen[-1], grad, True, first)
            ]
            for i in range(len(self.activations) - 1, -1, -1):
                value = seen[i + 1]
                buffer = self._workspace(("grad", i), value.shape, value)
                grad = product(grad, self.layers[i + 1][0], buffer)
                multiply_by_slope(self.activations[i], grad, value)
                found.append(OuterProduct(*self.layers[i], seen[i], grad, True, first))
        return found

    def _outputs(self, i: int, inputs: Tensor) -> Tensor:
        weight, bias = self.layers[i]
        buffer = self._workspace(("output", i), (inputs.shape[0], weight.shape[0]), inputs)
        return affine(bias, inputs, weight, buffer)

    def takes(self, inputs: Tensor) -> bool:
        """Return True if :meth:`add_clipped` sums these rows."""
        total = getattr(self.layers[0][0], ACCUMULATOR)
        single = inputs.dtype == torch.float32 and total.dtype == torch.float32
        # The number of rows decides the rounding of gradients, as shapes of products always do.
        # Zero-out keeps it; under add-remove no margin is proved for it (SECURITY.md).
        short = len(inputs) * self._work < _MUCH_WORK and self._widest <= SUMMED
        return single and short and numpy_sees(inputs)

    def add_clipped(
        self,
        inputs: Tensor,
        targets: Tensor,
        clip: Callable[[Any, Any, float], Any],
        norm: float,
        first: bool,
    ) -> None:
        """Add the clipped sum to the accumulators, or overwrite them if it is the ``first``.

        **Guarantees.** As for ``ClippedGradientSum``, for examples that are records.
        """
        # Abadi et al. 2016, Algorithm 1, "Compute gradient", by book-keeping (Bu et al. 2023)
        terms = self._terms(inputs.numpy(), targets.numpy())
        squared = np.stack([_squared_norms(a, d) for a, d in terms])
        total = squared.sum(0)
        # Algorithm 1, "Clip gradient"
        factors = clip(squared, total, norm).astype(np.float32, copy=False)
        if not math.isfinite(float(total.sum())):
            bad = ~np.isfinite(total)
            factors[..., bad] = 0.0
            terms = [(_zero_rows(a, bad), _zero_rows(d, bad)) for a, d in terms]
        each = factors if factors.ndim == 2 else [factors] * len(terms)
        for (a, d), scale, (weight, bias) in zip(terms, each, reversed(self.layers), strict=True):
            _add_product(bias, scale, d, first)
            torch.from_numpy(d).mul_(torch.from_numpy(scale)[:, None])
            _add_product(weight, d.T, a, first)

    def _terms(self, inputs: Array, targets: NDArray[np.int64]) -> list[tuple[Array, Array]]:
        """Return each layer's input and the gradient at its output, from the last one down."""
        weights = [(w.detach().numpy(), b.detach().numpy()) for w, b in self.layers]
        seen, n = [inputs], len(inputs)
        for i, (weight, bias) in enumerate(weights):
            out = np.matmul(seen[-1], weight.T, out=self._buffer("out", i, n, len(weight)))
            torch.from_numpy(out).add_(torch.from_numpy(bias))
            seen.append(out)
            if i < len(self.activations):
                _FUNCTIONS[self.activations[i]].of_array(out)
        errors = [seen.pop()]
        _subtract_targets(_softmax(errors[0]), targets)
        for i in range(len(self.activations) - 1, -1, -1):
            below = np.matmul(
                errors[-1], weights[i + 1][0], out=self._buffer("error", i, n, len(weights[i][0]))
            )
            grad, value = torch.from_numpy(below), torch.from_numpy(seen[i + 1])
            _FUNCTIONS[self.activations[i]].times_slope(grad, value)
            errors.append(below)
        return list(zip(reversed(seen), errors, strict=True))

    def _buffer(self, name: str, layer: int, rows: int, columns: int) -> Array:
        """Return a reused array to compute into."""
        kept = self._kept.get((name, layer))
        if kept is None or len(kept) < rows:
            kept = self._kept[name, layer] = np.empty((rows + rows // 8, columns), np.float32)
        return kept[:rows]


class Workspace:
    """Reusable buffers by name; mapping new memory in every step would outweigh the arithmetic."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Tensor] = {}

    def __call__(self, name: Hashable, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return an uninitialised tensor; of a name, only the number of rows may differ."""
        rows = shape[0]
        kept = self._kept.get(name)
        if kept is None or kept.shape[0] < rows:
            kept = self._kept[name] = like.new_empty((rows + rows // 8, *shape[1:]))
        return kept.narrow(0, 0, rows)


def layer_sizes(sizes: Any) -> tuple[int, ...]:
    """Return the sizes of hidden layers as integers of Python's."""
    values = tuple(np.atleast_1d(as_array("hidden_layer_sizes", sizes)).tolist())
    if not all(type(v) is int and 0 < v < 1 << 31 for v in values):  # True is no size
        raise ValueError(
            f"hidden_layer_sizes={sizes!r} must be positive whole numbers, such as (64,) or (), "
            "one for each hidden layer."
        )
    return values


def make_mlp(
    n_features: int,
    hidden_layer_sizes: Sequence[int],
    n_outputs: int,
    activation: str,
    random_state: np.random.RandomState,
) -> nn.Sequential:
    """Build a perceptron whose initial weights depend on ``random_state`` only."""
    sizes = [n_features, *hidden_layer_sizes, n_outputs]
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        linear = skip_init(nn.Linear, fan_in, fan_out)  # its own init would use torch's generator
        bound = 1.0 / np.sqrt(fan_in)
        for p in linear.parameters():
            start = random_state.uniform(-bound, bound, size=tuple(p.shape))
            p.data = torch.from_numpy(start.astype(np.float32))
        layers += [linear, ACTIVATIONS[activation]()]
    layers.pop()
    for p in layers[-1].parameters():  # start at equal class probabilities
        p.data.zero_()
    return nn.Sequential(*layers)


def mlp_to_arrays(module: Any) -> dict[str, Any] | None:
    """Return the state for :func:`mlp_from_arrays`; None for other modules than perceptrons."""
    layers = list(module) if type(module) is nn.Sequential else []
    kinds = {type(layer) for layer in layers[1::2]}
    linear = all(type(layer) is nn.Linear and layer.bias is not None for layer in layers[::2])
    if not (len(layers) % 2 and linear and len(kinds) < 2 and kinds <= {*ACTIVATIONS.values()}):
        return None
    weights = {name: tensor.cpu().numpy().copy() for name, tensor in module.state_dict().items()}
    if any(array.dtype != np.float32 for array in weights.values()):
        return None
    activation = next((name for name, kind in ACTIVATIONS.items() if kind in kinds), "tanh")
    return {"activation": activation, "weights": weights}


def mlp_from_arrays(saved: dict[str, Any]) -> nn.Sequential:
    """Return the perceptron with the state of :func:`mlp_to_arrays`."""
    weights = {name: torch.from_numpy(array.copy()) for name, array in saved["weights"].items()}
    shapes = [w.shape for name, w in weights.items() if name.endswith("weight")]
    sizes = [shapes[0][1], *(shape[0] for shape in shapes)]
    made = make_mlp(sizes[0], sizes[1:-1], sizes[-1], saved["activation"], np.random.RandomState(0))
    made.load_state_dict(weights)
    return made.eval()


def _is_few(values: Tensor) -> bool:
    return values.numel() <= _SMALL_ARRAY and values.dtype == torch.float32 and numpy_sees(values)


def _softmax(logits: Array) -> Array:
    """Turn logits into probabilities in place: on short rows faster than torch's softmax."""
    logits -= torch.amax(torch.from_numpy(logits), 1, keepdim=True).numpy()
    np.exp(logits, out=logits)
    logits /= logits @ np.ones((logits.shape[1], 1), np.float32)
    return logits


def _subtract_targets(probabilities: Array, targets: NDArray[np.int64]) -> None:
    """Subtract 1 at each row's target; rows with a negative target become zero."""
    probabilities[np.arange(len(probabilities)), np.maximum(targets, 0)] -= np.float32(1.0)
    if targets.min(initial=0) < 0:
        probabilities[targets < 0] = 0.0


def _squared_norms(a: Array, d: Array) -> Array:
    """Return squared norms of outer products with a bias, plus the possible loss in squares."""
    inputs, errors = _row_products(a, a), _row_products(d, d)
    inputs += 1.0
    errors += np.float32(LOST * d.shape[1])
    inputs *= errors
    return inputs


def _row_products(a: Array, b: Array) -> Array:
    """Return the product of each row of one array with the same row of another."""
    found: Array = np.vecdot(a, b) if hasattr(np, "vecdot") else np.einsum("ij,ij->i", a, b)
    return found


def _zero_rows(values: Array, bad: NDArray[np.bool_]) -> Array:
    return np.where(bad[:, None], np.float32(0.0), values)


def _add_product(parameter: Tensor, left: Array, rows: Array, first: bool) -> None:
    total = getattr(parameter, ACCUMULATOR).numpy()
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        if first and start == 0:
            np.matmul(left[..., part], rows[part], out=total)
        else:
            total += left[..., part] @ rows[part]


def _is_perceptron(module: nn.Module) -> bool:
    """Return True for linear, activation, ..., linear layers with biases and without hooks."""
    if type(module) is not nn.Sequential or len(module) % 2 == 0:
        return False
    layers = list(module)
    linear, activations = layers[::2], layers[1::2]
    return (
        all(type(m) is nn.Linear and _trained(m) == {"weight", "bias"} for m in linear)
        and all(type(m) in _FUNCTIONS for m in activations)
        and len({id(m.weight) for m in linear} | {id(m.bias) for m in linear}) == 2 * len(linear)
        and not any(m._forward_hooks or m._forward_pre_hooks for m in [module, *layers])
    )


def _trained(layer: nn.Linear) -> set[str]:
    """Return the names of a layer's parameters, or none if some of them stay fixed."""
    own = dict(layer.named_parameters(recurse=False))
    return set(own) if all(p.requires_grad for p in own.values()) else set()


def _is_plain_cross_entropy(loss: Loss) -> bool:
    return (
        type(loss) is nn.CrossEntropyLoss
        and loss.reduction == "none"
        and loss.weight is None
        and loss.label_smoothing == 0
        and loss.ignore_index < 0
    )


np.finfo(np.float64)  # cached here: computed later, with denormals flushed, it would warn
