"""CUDA graphs: operations on the same memory, captured once and launched as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["WARM_UPS", "Body", "are_close", "capture_graph", "graph_memory_pool"]

WARM_UPS = 3  # calls before a capture, so that one-time initialisation is not captured
_AGREE = 1e-4  # relative tolerance: rounding is far below, errors are far above
Body = Callable[[], None]


def capture_graph(body: Body, changes: Sequence[Tensor], room: Any = None) -> Body:
    """Return a function that does the same as ``body`` in one launch, or ``body`` itself.

    ``body`` consists of operations on tensors that stay in place. It must read no number from the
    CPU that changes between calls, and draw no noise. ``changes`` are all tensors that it changes,
    on one device; they are restored. ``room`` is the memory of :func:`graph_memory_pool`, shared
    by graphs
    that never run at once. RuntimeError is raised if the graph does not reproduce the results of
    ``body`` on the numbers in memory, which must be public.
    """
    record = RECORD.get(changes[0].device.type)
    if record is None:
        return body
    with _restore_tensors(changes):
        for _ in range(WARM_UPS):
            body()
    with _restore_tensors(changes):
        again = record(body, room)
    with _restore_tensors(changes):
        body()
        expected = [value.to("cpu", copy=True) for value in changes]
    with _restore_tensors(changes):
        again()
        if not all(map(are_close, [value.cpu() for value in changes], expected)):
            raise RuntimeError("the captured operations give other numbers")
    return again


@contextmanager
def _restore_tensors(changes: Sequence[Tensor]) -> Iterator[None]:
    """Restore tensors after; the copies are on the CPU and take no device memory."""
    before = [value.to("cpu", copy=True) for value in changes]
    try:
        yield
    finally:
        for value, was in zip(changes, before, strict=True):
            value.copy_(was)


def are_close(found: Tensor, expected: Tensor) -> bool:
    """Return True if two vectors are equal up to rounding."""
    difference, size = (found - expected).double().norm(), expected.double().norm()
    return bool(difference <= _AGREE * size)


def graph_memory_pool(device: torch.device) -> Any:
    """Return a memory pool that captured graphs may share for intermediate results."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


def _cuda_graph(body: Body, room: Any) -> Body:
    """Capture a CUDA graph, which keeps the memory that it works in."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        body()  # libraries initialise themselves once per stream, which must not be captured
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, room, side, capture_error_mode="thread_local"):
        body()

    def launch(body: Body = body) -> None:  # keeps the body's tensors alive for the graph
        graph.replay()

    return launch


# Capture function by kind of device.
RECORD: dict[str, Callable[[Body, Any], Body]] = {"cuda": _cuda_graph}
