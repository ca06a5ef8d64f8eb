"""What is done over and over on the same memory, launched as one where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["WARM_UPS", "Body", "close", "recorded", "room_for"]

WARM_UPS = 3  # times that something is done beforehand: what is done once for all is done then
_AGREE = 1e-4  # relative: rounding is far less, anything else far more
Body = Callable[[], None]


def recorded(body: Body, changes: Sequence[Tensor], room: Any = None) -> Body:
    """Return what does the same as ``body``, launched as one.

    Parameters
    ----------
    body : callable
        Operations on tensors that stay where they are. No number of the processor's may change
        between calls, and no noise be drawn.
    changes : sequence of torch.Tensor
        All that it leaves changed, on one device. They are as before when this returns.

    room : object, default=None
        What :func:`room_for` gave for things that are recorded and are never done at once.

    Returns
    -------
    callable
        ``body`` itself where there is nothing to launch together.

    Raises
    ------
    RuntimeError
        If what was recorded does not make the numbers that ``body`` makes of what is in memory now,
        which must be public.
    """
    record = RECORD.get(changes[0].device.type)
    if record is None:
        return body
    with _undone(changes):
        for _ in range(WARM_UPS):
            body()
    with _undone(changes):
        again = record(body, room)
    with _undone(changes):
        body()
        expected = [value.to("cpu", copy=True) for value in changes]
    with _undone(changes):
        again()
        if not all(map(close, [value.cpu() for value in changes], expected)):
            raise RuntimeError("what was recorded makes other numbers")
    return again


@contextmanager
def _undone(changes: Sequence[Tensor]) -> Iterator[None]:
    """Let tensors be changed inside; put them back after. The copies take no room on the device."""
    before = [value.to("cpu", copy=True) for value in changes]
    try:
        yield
    finally:
        for value, was in zip(changes, before, strict=True):
            value.copy_(was)


def close(found: Tensor, expected: Tensor) -> bool:
    """Whether two vectors are the same to rounding."""
    difference, size = (found - expected).double().norm(), expected.double().norm()
    return bool(difference <= _AGREE * size)


def room_for(device: torch.device) -> Any:
    """Return memory that things which are recorded may share for what they compute in between."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


def _cuda_graph(body: Body, room: Any) -> Body:
    """Record a CUDA graph, which keeps the memory that it works in."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        body()  # on the stream of a capture, too, libraries set up at first
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, room, side, capture_error_mode="thread_local"):
        body()

    def launch(body: Body = body) -> None:  # keeps what the body holds: the graph works on it
        graph.replay()

    return launch


# How operations are recorded, by kind of device.
RECORD: dict[str, Callable[[Body, Any], Body]] = {"cuda": _cuda_graph}
