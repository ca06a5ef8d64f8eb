"""Training of several networks on a torch device, equal to the numpy stacks up to rounding.

:func:`train_mlps` and :func:`train_private` train shadow models: the largest network decides the
number of steps and the length of batches of all, and the noise is drawn on the device.
:func:`train_isolated` trains the teachers of a vote, which must not influence each other: every
network takes its own steps, in its own slot of arrays of public shapes. Its weights are a function
of its records and of public facts. No step synchronises with the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from ..mechanisms.chacha import copy_to_device
from . import stacked_mlp
from .perceptrons import Float32Array, Layers, count_numbers, flatten_layers, layer_views
from .stacked_dpsgd import Draws, PrivateTask, append_step_columns, make_optimizer, step_sizes
from .stacked_mlp import (
    MLPTask,
    Patience,
    batches_of_epoch,
    cuts_of_epoch,
    hidden_sizes,
    initial_layers,
    make_adam,
)

if TYPE_CHECKING:
    from ..neural_network._gradients.clipped_sum import Clip

_MAX_NUMBERS = 1 << 30  # numbers on a device at once: a public constant, not the free memory
_STEPS = 16  # steps whose rows are sent to the device at once
_NORMALS = 1 << 26  # numbers of noise in memory, over all networks
_ATEN = torch.ops.aten
# Each activation in place, and the product of a gradient with its slope, given the activation.
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "identity": (lambda z: z, lambda g, value: g),
    "logistic": (torch.sigmoid_, _ATEN.sigmoid_backward),
    "tanh": (torch.tanh_, _ATEN.tanh_backward),
    "relu": (torch.relu_, lambda g, value: _ATEN.threshold_backward(g, value, 0)),
}


class TensorStack:
    """Networks of one shape, with all their weights in one matrix on a device."""

    def __init__(self, start: Sequence[Layers], activation: str, device: str) -> None:
        self.activation = activation
        self.sizes, flat = flatten_layers(start)
        self.weights = torch.from_numpy(flat).to(device)
        self.gradient = torch.zeros_like(self.weights)
        self.layers = layer_views(self.weights, self.sizes)
        self.gradients = layer_views(self.gradient, self.sizes)

    def forward(self, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return each layer's input, shape (n_networks, batch, n_in), and the logits."""
        seen, (activate, _) = [inputs], _ACTIVATIONS[self.activation]
        for both in self.layers[:-1]:
            seen.append(activate(torch.baddbmm(both[:, -1:], seen[-1], both[:, :-1])))
        last = self.layers[-1]
        return seen, torch.baddbmm(last[:, -1:], seen[-1], last[:, :-1])

    def backward(self, seen: list[Tensor], error: Tensor) -> list[Tensor]:
        """Return the loss gradient at the output of each layer, given the last one."""
        errors, (_, times_slope) = [error], _ACTIVATIONS[self.activation]
        for both, value in zip(self.layers[:0:-1], seen[:0:-1], strict=True):
            errors.insert(0, times_slope(torch.bmm(errors[0], both[:, :-1].mT), value))
        return errors

    def sum_gradients(self, seen: list[Tensor], errors: list[Tensor]) -> None:
        """Fill ``gradient`` with the sum over the batch."""
        for value, error, both in zip(seen, errors, self.gradients, strict=True):
            both[:, :-1] = torch.bmm(value.mT, error)
            both[:, -1] = error.sum(1)

    def networks(self, flat: Tensor | None = None) -> list[Layers]:
        """Return a copy of each network's layers, with weights from ``flat`` if given."""
        here = (self.weights if flat is None else flat).cpu()
        views = [view.numpy() for view in layer_views(here, self.sizes)]
        return [
            [(both[i, :-1].copy(), both[i, -1].copy()) for both in views] for i in range(len(here))
        ]


def gather_records(records: Sequence[Float32Array], device: str) -> tuple[Tensor, list[int]]:
    """Return records on a device after a blank row 0, and the first row of each network's."""
    first: dict[int, int] = {}
    parts, size = [np.zeros((1, records[0].shape[1]), np.float32)], 1
    for rows in records:
        if id(rows) not in first:
            first[id(rows)] = size
            parts.append(rows)
            size += len(rows)
    table = torch.empty((size, records[0].shape[1]), device=device)
    for part, end in zip(parts, np.cumsum([len(part) for part in parts]), strict=True):
        table[end - len(part) : end] = torch.from_numpy(part)
    return table, [first[id(rows)] for rows in records]


def logistic_error(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the cross-entropy at logits of shape (..., 1), and the losses."""
    z = logits[..., 0]
    losses = (-z.abs()).exp().log1p() + z.clamp(min=0.0) - z * label
    return (z.sigmoid() - label)[..., None], losses


def softmax_error(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the cross-entropy at logits (..., n_classes), and the losses."""
    error = torch.softmax(logits, -1)
    place = label.long()[..., None]
    chosen = error.gather(-1, place)
    losses = -chosen[..., 0].clamp(min=torch.finfo(torch.float32).tiny).log()
    return error.scatter_(-1, place, chosen - 1.0), losses


def train_isolated(
    net: MLPClassifier,
    records: Sequence[Float32Array | None],
    n_features: int,
    classes: NDArray[Any],
    seeds: Sequence[int] | NDArray[np.int64],
    device: str,
) -> list[Layers | None]:
    """Train a network like ``net`` on each of ``records``; None stands for no network.

    Each array of records has a one and the class column after its features.

    **Guarantees.** A network depends only on its records and on public facts, to the last bit of a
    matrix product that ignores other matrices. Shapes follow from ``net``, ``classes`` and the
    number of networks. A network without further steps stays as it is, whatever is computed in its
    slot. It equals the network of ``train_alone`` up to rounding.
    """
    sizes = [n_features, *hidden_sizes(net), 1 if len(classes) == 2 else len(classes)]
    length = 200 if net.batch_size == "auto" else int(net.batch_size)
    n_slots = max(1, _MAX_NUMBERS // count_numbers(sizes, length))
    trained: list[Layers | None] = []
    for start in range(0, len(records), n_slots):
        some = range(start, min(start + n_slots, len(records)))
        given = [(records[i], int(seeds[i])) for i in some]
        tasks = [
            None if own is None else MLPTask(net, own, np.arange(len(own)), classes, seed)
            for own, seed in given
        ]
        trained += _train(net, tasks, sizes, length, device)
    return trained


def train_mlps(tasks: list[MLPTask], device: str) -> list[Layers]:
    """Train several networks of one kind."""
    return stacked_mlp.train_mlps(tasks, partial(_DeviceEpochs, device=device))


class _DeviceEpochs:
    """Epochs of several networks, all of equally many steps, as in ``stacked_mlp``."""

    def __init__(self, tasks: list[MLPTask], start: list[Layers], device: str) -> None:
        self.net, self.device = tasks[0].net, device
        self.stack = TensorStack(start, self.net.activation, device)
        self.adam = make_adam(self.stack, self.net)
        self.table, self.first = gather_records([task.records for task in tasks], device)
        counts = np.array([len(task.rows) for task in tasks])
        cuts = cuts_of_epoch(counts, min(task.batch for task in tasks))
        sizes = np.diff(cuts, axis=0)
        self._longest = int(counts.max())
        self._starts = torch.from_numpy(cuts[:-1]).to(device)
        self._sizes = torch.from_numpy(sizes).to(device)
        self._places = torch.arange(int(sizes.max()), device=device)

    def train(self, orders: list[NDArray[np.intp]], needs_loss: bool) -> NDArray[Any]:
        filled = np.zeros((len(orders), self._longest), np.int64)  # padded with the blank row
        for row, order, first in zip(filled, orders, self.first, strict=True):
            row[: len(order)] = order + first
        there = copy_to_device(filled, self.device)
        total = torch.zeros(len(orders), dtype=torch.float64, device=self.device)
        for starts, sizes in zip(self._starts, self._sizes, strict=True):
            places = starts[:, None] + self._places
            rows = there.gather(1, places.clamp(max=self._longest - 1))
            rows.masked_fill_(self._places >= sizes[:, None], 0)
            total += _mean_gradient(self.stack, self.net, self.table[rows], sizes, needs_loss)
            self.adam.step(float(self.net.learning_rate_init))
        return total.cpu().numpy() if needs_loss else np.zeros(len(orders))

    def networks(self, which: list[int]) -> list[Layers]:
        every = self.stack.networks()
        return [every[i] for i in which]


def _mean_gradient(
    stack: TensorStack, net: MLPClassifier, records: Tensor, sizes: Tensor, needs_loss: bool
) -> Tensor:
    """Fill in the gradient of each network's mean loss; return sums of losses, or zeros."""
    n_in, in_batch = stack.sizes[0], sizes.clamp(min=1).float()
    share, penalty = records[..., n_in] / in_batch[:, None], net.alpha / in_batch
    seen, logits = stack.forward(records[..., :n_in])
    error_of = logistic_error if stack.sizes[-1] == 1 else softmax_error
    error, losses = error_of(logits, records[..., n_in + 1])
    total = torch.zeros_like(in_batch)
    if needs_loss:
        squares = sum(layer[:, :-1].square().sum((1, 2)) for layer in stack.layers)  # no biases
        total = in_batch * ((losses * share).sum(1) + penalty / 2 * squares)
    error *= share[..., None]
    stack.sum_gradients(seen, stack.backward(seen, error))
    if net.alpha:
        for layer, gradient in zip(stack.layers, stack.gradients, strict=True):
            gradient[:, :-1].addcmul_(penalty[:, None, None], layer[:, :-1])
    return total


@dataclass
class _NetworkSlot:
    """Slot for one network and its records; a slot may stay empty."""

    net: MLPClassifier
    task: MLPTask | None
    first: int  # its first row of the table

    def start(self, sizes: list[int]) -> Layers:
        """Return the network's initial layers, drawn first from its generator."""
        self.rng = np.random.default_rng(0 if self.task is None else self.task.seed)
        return initial_layers(self.net, sizes, self.rng)

    def steps(self) -> Iterator[tuple[NDArray[np.intp], bool]]:
        """Yield the rows of each step, and whether the step ends an epoch."""
        if self.task is None:
            return
        rows, batch = self.task.rows + self.first, self.task.batch
        last = -(-len(rows) // batch) - 1
        for _ in range(self.net.max_iter):
            order = self.rng.permutation(rows) if self.net.shuffle else rows
            for step, (chosen,) in enumerate(batches_of_epoch([order], batch)):
                yield chosen, step == last


def _train(
    net: MLPClassifier, tasks: list[MLPTask | None], sizes: list[int], length: int, device: str
) -> list[Layers | None]:
    nothing = np.zeros((0, sizes[0] + 2), np.float32)
    table, first = gather_records([nothing if t is None else t.records for t in tasks], device)
    places = [_NetworkSlot(net, task, at) for task, at in zip(tasks, first, strict=True)]
    stack = TensorStack([place.start(sizes) for place in places], net.activation, device)
    adam = make_adam(stack, net)
    patience = [Patience(1, net.tol, net.n_iter_no_change) for _ in places]
    may_stop = net.n_iter_no_change < net.max_iter
    losses = torch.zeros(len(places), dtype=torch.float64, device=device)
    steps = [place.steps() for place in places]
    lengths = [0 if task is None else len(task.rows) for task in tasks]
    active = {i for i, task in enumerate(tasks) if task is not None}
    while active:
        rows, sizes_of, ended = _next(steps, active, length)
        records, sizes_there = table[copy_to_device(rows, device)], copy_to_device(sizes_of, device)
        found = _mean_gradient(stack, net, records, sizes_there, may_stop)
        ended_before = sizes_there == 0
        losses += found.masked_fill_(ended_before, 0.0)
        for values in (stack.gradient, adam.mean):  # without these, Adam adds zero to the weights
            values.masked_fill_(ended_before[:, None], 0.0)
        adam.step(float(net.learning_rate_init))
        if may_stop and ended:
            sums = np.array(losses.tolist())
            losses.masked_fill_(copy_to_device(np.isin(np.arange(len(places)), ended), device), 0.0)
            for i in ended:
                if patience[i].run_out(sums[i : i + 1] / lengths[i]):
                    active.discard(i)
    trained = stack.networks()
    return [None if t is None else layers for t, layers in zip(tasks, trained, strict=True)]


def _next(
    steps: list[Iterator[tuple[NDArray[np.intp], bool]]], active: set[int], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Return each network's rows of the next step, their number, and networks whose epoch ends."""
    rows, sizes = np.zeros((len(steps), length), np.int64), np.zeros(len(steps), np.int64)
    ended = []
    for i in sorted(active):
        chosen, ends = next(steps[i], (None, False))
        if chosen is None:
            active.discard(i)
            continue
        rows[i, : len(chosen)], sizes[i] = chosen, len(chosen)
        if ends:
            ended.append(i)
    return rows, sizes, ended


def train_private(tasks: list[PrivateTask], device: str) -> list[Layers]:
    """Train several networks of one kind."""
    configs = [task.config for task in tasks]
    first = configs[0]
    stack = TensorStack([task.layers for task in tasks], tasks[0].activation, device)
    table, begin = gather_records([append_step_columns(task) for task in tasks], device)
    size = stack.weights.shape[1]
    draws = [DeviceDraws(task, size) for task in tasks]
    optimizer = make_optimizer(stack, configs)
    divisor = torch.tensor([[float(config.batch_size)] for config in configs], device=device)
    rates = torch.tensor([step_sizes(config, size) for config in configs], device=device)
    average = torch.zeros_like(stack.weights)
    noise = _noise(draws, first.n_steps, stack.gradient)
    for step, rows in enumerate(_rows(draws, begin, first.n_steps, device)):
        _average_clipped(stack, table[rows], rows > 0, first.clip(), first.max_grad_norm, divisor)
        stack.gradient += next(noise)
        optimizer.step(rates[:, step, None])
        if step >= first.first_averaged:
            average += stack.weights
    averaged = first.n_steps - first.first_averaged
    return stack.networks(average / averaged if averaged else None)


def _rows(
    draws: list[DeviceDraws], begin: list[int], n_steps: int, device: str
) -> Iterator[Tensor]:
    """Yield each network's rows of a step, padded with the blank row, number 0."""
    for start in range(0, n_steps, _STEPS):
        steps = min(_STEPS, n_steps - start)
        drawn = [list(islice(network.batches, steps)) for network in draws]
        longest = max(len(rows) for network in drawn for rows in network)
        table = np.zeros((steps, len(draws), longest), np.int64)
        for i, (network, first) in enumerate(zip(drawn, begin, strict=True)):
            for step, rows in enumerate(network):
                table[step, i, : len(rows)] = rows + first
        yield from copy_to_device(table, device)


def _noise(draws: list[DeviceDraws], n_steps: int, like: Tensor) -> Iterator[Tensor]:
    """Yield the noise of a step's mean gradients, shape (n_networks, n_parameters)."""
    n_drawn = min(n_steps, max(1, _NORMALS // max(1, like.numel())))
    drawn = like.new_empty((n_drawn, *like.shape))
    while True:
        for i, network in enumerate(draws):
            drawn[:, i] = network.draw_noise(n_drawn, like)
        yield from drawn


class DeviceDraws(Draws):
    """Batches and noise of one network; its mechanism draws the noise on the device."""

    def __init__(self, task: PrivateTask, n_parameters: int) -> None:
        self._config = task.config
        super().__init__(task, n_parameters)

    def draw_noise(self, steps: int, like: Tensor) -> Tensor:
        """Return the noise of several steps, shape (steps, n_parameters)."""
        config = self._config
        noise = like.new_zeros(steps * like.shape[1])
        mechanism = config.noise_kind.mechanism(
            config.noise_multiplier, config.max_grad_norm, config
        )
        released = mechanism.release(noise, self.random)
        return released.view(steps, -1) / config.batch_size


def _average_clipped(
    stack: TensorStack, records: Tensor, real: Tensor, clip: Clip, norm: float, divisor: Tensor
) -> None:
    """Sum the batch's clipped gradients by book-keeping, and divide by the expected size."""
    n_in = stack.sizes[0]
    label, weight, square = records[..., n_in + 1 :].unbind(-1)  # padding has weight zero
    seen, logits = stack.forward(records[..., :n_in])
    error, _ = softmax_error(logits, label)
    errors = stack.backward(seen, error)
    norms = [square, *(value.square().sum(-1) + 1.0 for value in seen[1:])]
    pairs = list(zip(norms, errors, strict=True))[::-1]  # from the output, as the estimator has it
    squared = torch.stack([n * error.square().sum(-1) for n, error in pairs]) * weight.square()
    total = squared.sum(0)
    lost = ~torch.isfinite(total) | ~real
    factors = clip(squared, total, norm) * (weight / divisor)
    per_layer = factors if factors.dim() == squared.dim() else [factors] * len(pairs)
    for value, error, factor in zip(seen[::-1], errors[::-1], per_layer, strict=True):
        error *= factor[..., None]
        for values in (value, error):
            values.masked_fill_(lost[..., None], 0.0)
    stack.sum_gradients(seen, errors)
