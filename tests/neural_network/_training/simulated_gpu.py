"""The way that a GPU takes, on the processor: the same code, and graphs that repeat what was done.

A CUDA graph repeats operations on the memory of when it was captured, with the numbers that the
processor had then, and without a look at either. So does :class:`Graph`, by operations of torch.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from skprivacy.mechanisms import chacha
from skprivacy.mechanisms import float_noise as floating
from skprivacy.neural_network._training import engine, graph_step, torch_modes

# What makes the processor wait for a device, or what a graph cannot do.
WAITS = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "unique", "_assert")


CAPTURING = "is_current_stream_capturing"


class NoWaits(TorchDispatchMode):
    """Nothing inside lets the processor wait for a device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().split("::")[1].split(".")[0]
        assert not name.startswith(WAITS), f"{name} waits for the device"
        if name == "index" and any(i.dtype == torch.bool for i in args[1] if i is not None):
            raise AssertionError("a mask for an index waits for the device")
        return func(*args, **(kwargs or {}))


class Graph(NoWaits):
    """What was done inside, to be done again."""

    def __init__(self):
        super().__init__()
        self.done = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # Detached, for shapes may change in place.
        kept = tree_map_only(Tensor, Tensor.detach, (args, kwargs or {}))
        made = super().__torch_dispatch__(func, types, args, kwargs)
        self.done.append((func, *kept, tree_map_only(Tensor, Tensor.detach, made)))
        return made

    @torch.no_grad()
    def replay(self):
        for func, args, kwargs, made in self.done:
            if func.is_view:
                continue
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def graph_of(body, room=None):
    graph = Graph()
    with mock.patch.object(torch.cuda, CAPTURING, return_value=True), graph:
        body()
    return graph.replay


@contextmanager
def simulated_gpu(graphs=True):
    """Let the processor be treated as a GPU is."""
    with ExitStack() as stack:
        for owner, name in ((engine, "NOISE_ON"), (graph_step, "FIXED_ON"), (engine, "FIXED_ON")):
            stack.enter_context(mock.patch.object(owner, name, {"cpu"}))
        for owner, name in ((chacha, "GRAPHS_ON"), (floating, "_ASYNCHRONOUS")):
            stack.enter_context(mock.patch.object(owner, name, {"cpu"}))
        capturing = mock.patch.object(torch.cuda, CAPTURING, return_value=False)
        stack.enter_context(capturing)
        stack.enter_context(mock.patch.object(torch_modes, "NUMPY_ON", set()))  # is not recorded
        record = {"cpu": graph_of} if graphs else {}
        stack.enter_context(mock.patch.object(graph_step, "RECORD", record))
        yield
