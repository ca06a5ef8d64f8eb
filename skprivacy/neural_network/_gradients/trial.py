"""Choice of the per-example gradient method, by a trial on random numbers against a loop.

Book-keeping is the fastest method, for modules whose layers have a rule. ``torch.func`` and the
loop over examples serve any module, with every example's gradient in memory. In return, each
example is alone in its forward pass, so no module can mix examples. Start reading at
:func:`select_gradient_method`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ..._config import warn_caller
from .._training.torch_modes import is_off_cpu
from .bookkeeping import AutogradBackward, has_rule
from .contributions import ACCUMULATOR, Contribution, DenseGradients
from .perceptron import PerceptronGradients

Loss = Callable[[Tensor, Tensor], Tensor]
PROBES = 5
_TRIAL_TOLERANCE = 1e-3  # relative tolerance: wrong methods are far above, rounding is far below


class PerExampleGradients(Protocol):
    """Maps (inputs, targets) to contributions; an example has one row of inputs per view."""

    name: str

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]: ...


@dataclass(frozen=True)
class Probe:
    """Public random inputs and targets of the shape of the data."""

    inputs: Tensor
    targets: Tensor
    n_outputs: int | None  # None: any number that the loss accepts
    views: int = 1  # rows of ``inputs`` per target

    @classmethod
    def for_shape(
        cls,
        shape: tuple[int, ...],
        n_classes: int | None,
        device: str = "cpu",
        views: int = 1,
        labels: bool = False,
    ) -> Probe:
        """Return normal inputs, and targets: classes, numbers if None, or 0/1 ``labels``."""
        generator = torch.Generator().manual_seed(0)
        size = (PROBES * views, *shape)
        X = torch.randn(size, generator=generator, dtype=torch.float32, device="cpu")
        if n_classes is None:
            y = torch.rand(PROBES, generator=generator, dtype=torch.float32, device="cpu")
        elif labels:
            y = torch.randint(2, (PROBES, n_classes), generator=generator, device="cpu").float()
        else:
            y = torch.randint(n_classes, (PROBES,), generator=generator, device="cpu")
        return cls(X.to(device), y.to(device), n_classes or 1, views)

    def as_indices(self) -> Probe:
        """Return 0/1 inputs, for modules of embeddings that accept only indices."""
        return replace(self, inputs=(self.inputs > 0).to(self.inputs.dtype))


def select_gradient_method(
    module: nn.Module, loss: Loss, probe: Probe
) -> tuple[PerExampleGradients, Probe]:
    """Return the fastest method of per-example gradients, and the probe as the module accepts it.

    ValueError is raised if a layer or the loss mixes examples, or if the module or the loss stores
    them or fails on them. Other modules that mix examples get a warning: no method mixes them.

    **Guarantees.** A trial on another device runs on the CPU first. So every device refuses the
    same modules. An operation that fails on the CPU, such as an index outside of a table, never
    reaches a GPU, which would not recover from it.
    """
    refuse_mixing_layers(module)
    if is_off_cpu(probe.inputs):
        here = replace(probe, inputs=probe.inputs.cpu(), targets=probe.targets.cpu())
        _, understood = select_gradient_method(*_copy_to_cpu(module, loss), here)
        if not torch.equal(understood.inputs, here.inputs):
            probe = probe.as_indices()
    trial = _trial_copy(module)
    probe = _adapt_probe(trial, loss, probe)
    return _fastest_method(module, trial, loss, probe), probe


def refuse_mixing_layers(module: nn.Module) -> None:
    """Refuse layers that mix the examples of a batch, or store statistics of them."""
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"Layer {name!r} is a {kind}: it mixes the examples of a batch, so one record "
                "affects every other record's gradient. Use LayerNorm or GroupNorm, or "
                "freeze_batch_norm(module) if it was trained on public records."
            )
        if getattr(layer, "track_running_stats", False):
            raise ValueError(
                f"Layer {name!r} is a {kind} that stores running statistics of private data. "
                "Use track_running_stats=False, or GroupNorm."
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and (
            layer.max_norm is not None or layer.scale_grad_by_freq
        ):
            raise ValueError(
                f"Layer {name!r} is an {kind} with max_norm or scale_grad_by_freq: both let one "
                "record affect the gradients of others. Leave them at None and False."
            )


class Vectorised:
    """Gradients of all examples at once, by ``torch.func.vmap``; the views of one are a batch."""

    name = "torch.func"

    def __init__(self, module: nn.Module, per_example_loss: Loss, views: int = 1) -> None:
        self.views = views
        self.trained = _named_trained_parameters(module)
        constant: dict[str, Tensor] = dict(module.named_buffers())
        constant |= {k: p for k, p in module.named_parameters() if not p.requires_grad}

        def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            output = functional_call(module, (weights, constant), (x,))
            return per_example_loss(output, y.expand(views, *y.shape)).mean()

        self._gradients = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]:
        weights = {k: p.detach() for k, p in self.trained.items()}
        found = self._gradients(weights, _split_by_example(inputs, self.views), targets)
        return [DenseGradients(p, found[k].detach()) for k, p in self.trained.items()]


class OneByOne:
    """Gradients by a loop over examples: the fallback, and the reference for all other methods."""

    name = "one by one"

    def __init__(self, module: nn.Module, per_example_loss: Loss, views: int = 1) -> None:
        self.module = module
        self.views = views
        self.per_example_loss = per_example_loss
        self.trained = _named_trained_parameters(module)

    def __call__(self, inputs: Tensor, targets: Tensor) -> list[Contribution]:
        parameters = list(self.trained.values())
        rows: list[tuple[Tensor, ...]] = []
        with torch.enable_grad():
            for x, y in zip(_split_by_example(inputs, self.views), targets, strict=True):
                labels = y.expand(self.views, *y.shape)
                loss = self.per_example_loss(self.module(x), labels).mean()
                rows.append(
                    torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
                )
        return [
            DenseGradients(p, torch.stack([g.to_dense() for g in column]))
            for p, column in zip(parameters, zip(*rows, strict=True), strict=True)
        ]


def _copy_to_cpu(module: nn.Module, loss: Loss) -> tuple[nn.Module, Loss]:
    here, its_loss = copy.deepcopy((module, loss))
    for p in here.parameters():
        p.grad = None
    return here.cpu(), its_loss.cpu() if isinstance(its_loss, nn.Module) else its_loss


def _fastest_method(
    module: nn.Module, trial: nn.Module, loss: Loss, probe: Probe
) -> PerExampleGradients:
    views = probe.views
    if views == 1 and PerceptronGradients.fits(module, loss):
        return PerceptronGradients(module, loss)
    _refuse_stored_examples(trial, loss, probe)
    expected = _norms_and_sum(trial, OneByOne(trial, loss, views), probe)
    for method in (AutogradBackward, Vectorised):
        if method is Vectorised:  # the gradients by one backward pass differ, or cannot be had
            _warn_of_mixing(trial, probe)
        try:
            found = _norms_and_sum(trial, method(trial, loss, views), probe)
        except Exception:  # any failure: the next method is slower and more general
            continue
        if method is Vectorised or _results_agree(found, expected):
            return method(module, loss, views)
    _warn_of_slow_layers(module)
    return OneByOne(module, loss, views)


def _warn_of_mixing(trial: nn.Module, probe: Probe) -> None:
    """Warn if an example's outputs depend on the other examples, which training never shows it."""
    own = probe.inputs[: probe.views]
    alike = own.repeat(PROBES, *[1] * (own.ndim - 1))

    def outputs(inputs: Tensor) -> Tensor:
        torch.manual_seed(0)  # for dropout in the forward pass
        return copy.deepcopy(trial)(inputs)[: probe.views]

    devices = [own.device] if own.is_cuda else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        found, expected = outputs(probe.inputs), outputs(alike)
    tolerance = {"rtol": _TRIAL_TOLERANCE, "atol": _TRIAL_TOLERANCE}
    if not torch.allclose(found, expected, equal_nan=True, **tolerance):
        warn_caller(
            f"module={type(trial).__name__} mixes examples: it computes other outputs for one if "
            "the others change. It is trained on each example alone but predicts in batches, so "
            "remove what mixes them, such as a mean over axis 0.",
            UserWarning,
        )


def _warn_of_slow_layers(module: nn.Module) -> None:
    """Name the trained layers without a rule, for which a step runs record by record."""
    slow = [
        f"{type(layer).__name__} {name!r}" if name else type(layer).__name__
        for name, layer in module.named_modules()
        if any(p.requires_grad for p in layer.parameters(recurse=False)) and not has_rule(layer)
    ]
    cause = ", ".join(slow) or "the order in which it uses its layers"
    warn_caller(
        f"module={type(module).__name__} computes the gradient of one record at a time, because of "
        f"{cause}: a step takes many times longer. Use layers with a rule, such as Linear, Conv1d "
        "or Embedding, or set requires_grad=False on the weights of that layer.",
        UserWarning,
    )


def _trial_copy(module: nn.Module) -> nn.Module:
    """Return a copy without dropout and with nonzero weights, since zeros would hide errors."""
    trial = copy.deepcopy(module).train()
    generator = torch.Generator().manual_seed(0)
    for p in trial.parameters():
        noise = torch.randn(p.shape, generator=generator, dtype=torch.float32, device="cpu")
        p.data = p.data.clone() + 0.1 * noise.to(p.device)
    for layer in trial.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd):
            layer.p = 0.0
    _clear_gradients(trial)
    return trial


def _clear_gradients(module: nn.Module) -> None:
    """Give every trained parameter a sum of zeros, which contributions add to."""
    for p in module.parameters():
        if p.requires_grad:
            setattr(p, ACCUMULATOR, torch.zeros_like(p))


def _adapt_probe(trial: nn.Module, loss: Loss, probe: Probe) -> Probe:
    """Return the probe in the form that the module accepts, after tests of its behaviour."""
    try:
        _check_behaviour(trial, loss, probe)
        return probe
    except (IndexError, RuntimeError, TypeError) as error:
        try:
            _check_behaviour(trial, loss, probe.as_indices())
            return probe.as_indices()
        except (IndexError, RuntimeError, TypeError):
            raise ValueError(
                f"module={type(trial).__name__} cannot be trained on inputs of shape "
                f"{tuple(probe.inputs.shape)}: {error}. It gets one row per example; reshape rows "
                "inside it, such as with torch.nn.Unflatten(1, (1, 28, 28))."
            ) from error


def _check_behaviour(trial: nn.Module, loss: Loss, probe: Probe) -> None:
    before = {k: b.clone() for k, b in trial.named_buffers()}
    with torch.enable_grad():
        outputs = trial(probe.inputs)
        shape, n = tuple(getattr(outputs, "shape", ())), len(probe.inputs)
        if probe.n_outputs is not None and shape != (n, probe.n_outputs):
            raise ValueError(
                f"module={type(trial).__name__} gave outputs of shape {shape}, expected "
                f"{(n, probe.n_outputs)}. Return one number per class, or one per example for "
                "regression."
            )
        if shape[:1] != (n,):
            raise ValueError(
                f"module={type(trial).__name__} gave outputs of shape {shape} for {n} examples. "
                "Return one tensor with a row per example."
            )
        losses = loss(outputs, probe.targets.repeat_interleave(probe.views, 0))
        losses.sum().backward()
    if isinstance(loss, nn.CrossEntropyLoss) and _are_probabilities(outputs):
        warnings.warn(
            f"module={type(trial).__name__} returns probabilities, but the loss takes logits and "
            "applies a softmax itself: training would be slow and poor. Leave the final Softmax "
            "out.",
            UserWarning,
            stacklevel=2,
        )
    if losses.shape != (len(probe.inputs),):
        raise ValueError(
            f"The loss of {len(probe.inputs)} examples has shape {tuple(losses.shape)}; expected "
            "one number per example, since a mean mixes them. Use reduction='none'."
        )
    changed = [k for k, b in trial.named_buffers() if not torch.equal(b, before[k])]
    if changed:
        raise ValueError(
            f"module={type(trial).__name__} changes its buffers {changed!r} when it sees data: "
            "they would store private records. Make them constant."
        )


def _are_probabilities(outputs: Tensor) -> bool:
    sums = outputs.sum(1)
    return (
        outputs.shape[1] > 1
        and bool((outputs >= 0).all())
        and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)
    )


def _refuse_stored_examples(trial: nn.Module, loss: Loss, probe: Probe) -> None:
    """Refuse a module or loss whose gradients or weights depend on examples seen before."""
    views = probe.views
    other = replace(
        probe,
        inputs=probe.inputs[:1].expand_as(probe.inputs),
        targets=probe.targets[:1].expand_as(probe.targets),
    )
    (found, weights), (expected, others) = [
        _sums_after(first, probe, trial, loss, views) for first in (probe, other)
    ]
    same = all(torch.allclose(a, b, equal_nan=True) for a, b in zip(weights, others, strict=True))
    if not (same and _results_agree(found, expected)):
        raise ValueError(
            f"module={type(trial).__name__}, or its loss, computes other gradients or has other "
            "weights after it has seen other examples: it stores private records, which affect "
            "the gradients of later ones. Make both depend only on their arguments."
        )


def _sums_after(
    first: Probe, then: Probe, trial: nn.Module, loss: Loss, views: int
) -> tuple[tuple[Tensor, Tensor], list[Tensor]]:
    """Return the sums on ``then`` of copies that first processed ``first``, and their weights."""
    fresh, its_loss = copy.deepcopy((trial, loss))
    _clear_gradients(fresh)
    method = OneByOne(fresh, its_loss, views)
    devices = [then.inputs.device] if then.inputs.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        fresh(first.inputs)  # as one batch, like book-keeping
        for probe in (first, then):
            torch.manual_seed(0)  # for functional dropout
            found = _norms_and_sum(fresh, method, probe)
    return found, [p.detach() for p in fresh.parameters()]


def _norms_and_sum(
    module: nn.Module, method: PerExampleGradients, probe: Probe
) -> tuple[Tensor, Tensor]:
    """Return the squared norms, and a weighted sum of the gradients."""
    contributions = method(probe.inputs, probe.targets)
    norms = torch.stack([c.squared_norms() for c in contributions]).sum(0)
    factors = torch.linspace(0.5, 1.5, len(norms), device=norms.device, dtype=norms.dtype)
    grads = [getattr(p, ACCUMULATOR) for p in module.parameters() if p.requires_grad]
    for gradient in grads:
        gradient.zero_()
    for c in contributions:
        c.add_sum(factors)
    return norms, torch.cat([gradient.flatten() for gradient in grads])


def _results_agree(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> bool:
    norms = torch.allclose(found[0], expected[0], rtol=2 * _TRIAL_TOLERANCE, atol=1e-12)
    return norms and bool((found[1] - expected[1]).norm() <= _TRIAL_TOLERANCE * expected[1].norm())


def _split_by_example(inputs: Tensor, views: int) -> Tensor:
    return inputs.unflatten(0, (-1, views))


def _named_trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}
