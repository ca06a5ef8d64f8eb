"""Several processes that train one private model, as one process would (torch.distributed).

The first process draws the batch for all, sums up what the processes found, adds the noise, once,
and hands the result back. Its randomness alone decides. Processes trust each other and the network
between them: they hold records, and what they send to the first one is not yet private.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch import distributed as dist

from ..._groups import Groups, as_text
from ...accounting import PrivacyBudget, Receipt
from ...base import reserve_release
from ...exceptions import BudgetExceededError
from ...mechanisms import Mechanism, SecureRandom
from .noise import Sampler
from .rows import MappedRows

__all__ = ["meeting"]

_COMPARED = 64  # records by which data of two processes is told apart
# What another process's error becomes here, from special to general.
_ERRORS = (BudgetExceededError, ValueError, RuntimeError)


@contextmanager
def meeting(distributed: str) -> Iterator[ProcessGroup]:
    """Join the other processes for one training; what goes wrong in one goes wrong in all."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            f"distributed={distributed!r} needs the processes to know each other: start them with "
            "torchrun and call torch.distributed.init_process_group('gloo') before fit."
        )
    group = ProcessGroup(distributed)
    try:
        yield group
    except BaseException as error:
        group.leave(error)
        raise
    group.close()


class ProcessGroup:
    """All processes of the default group of torch.distributed.

    Parameters
    ----------
    data : {"replicated", "sharded"}
        Whether all processes hold the same records, or each has its own.

    Notes
    -----
    **Guarantees.** Every record that is drawn contributes in exactly one process, so the sum over
    the processes has the sensitivity of one. So does every group, none of which has records in two
    shards. One process draws and adds noise, so there is exactly
    one noise of full size in what all processes train on. The budget is charged by that process.

    **Edge cases.** A process that fails before training makes all others fail with its message. One
    that fails or dies while training breaks the connections of the group; the others raise
    ``RuntimeError``, the charge stays, and the estimators are as they were. The same holds for one
    that answers no more, after the timeout which ``init_process_group`` was given (30 minutes if
    none was).
    """

    def __init__(self, data: str) -> None:
        self.replicated = data == "replicated"
        self.rank = dist.get_rank()
        # A separate group: breaking it off leaves the caller's alone.
        with _telling_who_is_lost():
            self._group: Any = dist.new_group(backend="gloo", timeout=_callers_timeout())
        self._training = False
        self._numbers: list[int] = []

    def count(
        self, inputs: Tensor | MappedRows, targets: Tensor, groups: Groups | None = None
    ) -> int:
        n = len(inputs) if groups is None else groups.n
        names = None if groups is None else _digests(groups)
        every = self._exchange((n, _fingerprint(inputs, targets, groups), names))
        found = [(n, fingerprint) for n, fingerprint, _ in every]
        self._numbers = [n for n, _ in found]
        different = len(set(found))
        if self.replicated and different > 1:
            raise ValueError(
                "distributed='replicated', but the processes hold different records (their numbers "
                f"are {self._numbers}). If each has records of its own, use 'sharded'."
            )
        if not self.replicated and different < len(found):
            raise ValueError(
                "distributed='sharded', but two processes hold the same records, each of which "
                "would count twice. If all have the same data, use 'replicated'."
            )
        if not self.replicated:
            _refuse_shared([names for *_, names in every])
        return self._numbers[0] if self.replicated else sum(self._numbers)

    def agree(self, facts: dict[str, str]) -> None:
        every = self._exchange(facts)
        for name in facts:
            found = [other.get(name) for other in every]
            if len(set(found)) > 1:
                raise ValueError(
                    f"The processes disagree on {name}: {found}. All of them must be started with "
                    "the same parameters."
                )

    def same(self, module: nn.Module) -> None:
        for tensor in [*module.parameters(), *module.buffers()]:
            self._meet(dist.broadcast, tensor.data, 0)

    @contextmanager
    def reserve(self, budget: PrivacyBudget | None, *terms: Any) -> Iterator[Receipt | None]:
        with reserve_release(budget if self.rank == 0 else None, *terms) as receipt:
            self._exchange(None)  # nobody looks at a record before the budget is charged
            self._training = True
            yield receipt

    def kept(self, groups: Groups, most: int | None, random: SecureRandom) -> NDArray[np.int64]:
        kept = np.arange(len(groups.codes))
        if most is not None:
            kept = groups.at_most(most, random)
        if self.replicated:  # how many there are, all know
            shared = torch.from_numpy(kept)
            self._meet(dist.broadcast, shared, 0)
            kept = shared.numpy()
        return kept

    def draw(self, sampler: Sampler, n: int, random: SecureRandom) -> NDArray[np.int64]:
        size = torch.zeros(1, dtype=torch.int64)
        drawn = torch.zeros(0, dtype=torch.int64)
        if self.rank == 0:
            total = n if self.replicated else sum(self._numbers)
            drawn = torch.from_numpy(sampler.draw(total, random))
            size[0] = len(drawn)
        self._meet(dist.broadcast, size, 0)
        drawn = drawn if self.rank == 0 else torch.zeros(int(size), dtype=torch.int64)
        self._meet(dist.broadcast, drawn, 0)
        return self._own(drawn.numpy())

    def _own(self, drawn: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this process's part: every record that is drawn is in one process's part."""
        if self.replicated:
            return drawn[self.rank :: len(self._numbers)]
        start = sum(self._numbers[: self.rank])
        stop = start + self._numbers[self.rank]
        return drawn[(drawn >= start) & (drawn < stop)] - start

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        # In double precision, whatever the size of this process's part of the batch asked for.
        total = np.array(total, dtype=np.float64)
        shared = torch.from_numpy(total)
        self._meet(dist.reduce, shared, 0)
        if self.rank == 0:
            shared = torch.from_numpy(mechanism.release(total, random))
        self._meet(dist.broadcast, shared, 0)
        return shared.numpy()

    def leave(self, error: BaseException) -> None:
        """Make the other processes stop too."""
        if self._group is None:
            return
        if not self._training:
            kind = next((i for i, k in enumerate(_ERRORS) if isinstance(error, k)), -1)
            with suppress(Exception):  # they have stopped already, or have been told now
                self._exchange(None, (kind, f"{type(error).__name__}: {error}"))
        self.close()

    def close(self) -> None:
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None

    def _exchange(self, value: Any, error: tuple[int, str] | None = None) -> list[Any]:
        """Return the values of all processes; raise what went wrong in one of them."""
        found: list[Any] = [None] * dist.get_world_size()
        self._meet(dist.all_gather_object, found, (error, value))
        for rank, (wrong, _) in enumerate(found):
            if wrong is not None and rank != self.rank:
                self.close()
                kind, message = wrong
                raise _ERRORS[kind](f"Process {rank} could not train. {message}")
        return [v for _, v in found]

    def _meet(self, collective: Any, *args: Any) -> None:
        with _telling_who_is_lost():
            collective(*args, group=self._group)


@contextmanager
def _telling_who_is_lost() -> Iterator[None]:
    """Say what an error of the connections to other processes means."""
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            f"Process {dist.get_rank()} of {dist.get_world_size()} lost the others: one of them "
            "has failed or died (see its own message), or has not answered within the timeout of "
            "init_process_group. This training is broken off; what the budget was charged stays "
            "charged, the model is as it was before. Start all processes again."
        ) from error


def _callers_timeout() -> timedelta:
    """Return how long the default group waits; a group made of it would wait for 30 minutes.

    torch has no public word for it.
    """
    group: Any = dist.group.WORLD
    device = "cpu" if "gloo" in dist.get_backend_config() else "cuda"
    timeout: timedelta = group._get_backend(torch.device(device)).options._timeout
    return timeout


def _fingerprint(inputs: Tensor | MappedRows, targets: Tensor, groups: Groups | None = None) -> str:
    """Return a digest of some records, spread over all, and of whose all of them are."""
    indices = torch.linspace(0, len(inputs) - 1, _COMPARED).long()
    digest = hashlib.sha256()
    for part in (inputs.index_select(0, indices), targets.index_select(0, indices)):
        digest.update(part.cpu().numpy().tobytes())
    if groups is not None:
        digest.update(groups.codes.tobytes())
    return digest.hexdigest()


def _digests(groups: Groups) -> set[bytes]:
    """Return what stands for each group's name, whichever type a process has read it as."""
    names = as_text(groups.names)
    return {hashlib.blake2b(name.encode(), digest_size=16).digest() for name in names}


def _refuse_shared(every: list[set[bytes] | None]) -> None:
    """Refuse groups of which two processes hold records: each would be a group of its own."""
    of_groups = [names for names in every if names is not None]
    if of_groups and len(of_groups) < len(every):
        raise ValueError("Some processes are given groups, and others none. Give them to all.")
    if len(set().union(*of_groups)) < sum(map(len, of_groups)):
        raise ValueError(
            "distributed='sharded', but two processes hold records of the same group, which would "
            "contribute twice. Give all records of a group to one process, or all records to all "
            "and use 'replicated'."
        )
