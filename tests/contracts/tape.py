"""Record what passes through mechanisms and samplers, and replay the answers on a neighbour."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from skprivacy.mechanisms import Mechanism, PoissonSampler


@dataclass
class Tape:
    """Tape of the inputs and outputs of mechanisms and sampler during a fit."""

    mechanisms: list[Mechanism] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    draws: list[NDArray] = field(default_factory=list)


@contextmanager
def recording(tape: Tape, always: int | None = None) -> Iterator[None]:
    """Record; the record numbered ``always`` is made to take part in every step."""
    release, draw = Mechanism.release, PoissonSampler.draw

    def recorded_release(self, value, random):
        tape.mechanisms.append(self)
        tape.inputs.append(_copied(value))
        output = release(self, value, random)
        tape.outputs.append(_copied(output))
        return output

    def recorded_draw(self, n, random):
        indices = draw(self, n, random)
        if always is not None:
            indices = np.union1d(indices, [always])
        tape.draws.append(indices)
        return indices

    with (
        mock.patch.object(Mechanism, "release", recorded_release),
        mock.patch.object(PoissonSampler, "draw", recorded_draw),
    ):
        yield


@contextmanager
def replaying(recorded: Tape, tape: Tape, extra: int | None = None) -> Iterator[None]:
    """Answer as recorded; ``extra`` is the index in D' of the unit that D has not."""

    def replayed_release(self, value, random):
        tape.mechanisms.append(self)
        tape.inputs.append(_copied(value))
        place = len(tape.inputs) - 1
        assert place < len(recorded.outputs), "more releases on the neighbour"
        assert self == recorded.mechanisms[place], "another mechanism on the neighbour"
        if not isinstance(value, tuple):
            same = np.shape(value) == np.shape(recorded.inputs[place])
            assert same, "the shape of a release depends on the data"
        output = np.array(recorded.outputs[place], copy=True)
        if isinstance(value, torch.Tensor):
            return torch.from_numpy(output).to(value.device)
        return output

    def replayed_draw(self, n, random):
        assert len(tape.draws) < len(recorded.draws), "more steps on the neighbour"
        indices = recorded.draws[len(tape.draws)]
        if extra is not None:
            indices = np.union1d(indices + (indices >= extra), [extra])
        tape.draws.append(indices)
        return indices[indices < n]

    with (
        mock.patch.object(Mechanism, "release", replayed_release),
        mock.patch.object(PoissonSampler, "draw", replayed_draw),
        mock.patch.dict(_INSERTED, {"place": extra}),
    ):
        yield


_INSERTED: dict[str, int | None] = {"place": None}


def by_record(values: NDArray, n: int) -> NDArray:
    """Return one of the first ``n`` values for each record, the same for each on a neighbour.

    It stands for facts about records that come with them, or by chance, and not by position. A
    record that the neighbour alone has takes the last value.
    """
    place = _INSERTED["place"]
    return values[:n] if place is None else np.insert(values[: n - 1], place, values[n - 1])


def _copied(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(np.array, value))
    return np.array(value.cpu().numpy() if isinstance(value, torch.Tensor) else value, copy=True)
