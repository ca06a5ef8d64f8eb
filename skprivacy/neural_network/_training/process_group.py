"""Training of one private model in several processes (torch.distributed).

The first process draws the batch for all, sums the processes' results, adds the noise once, and
broadcasts the noisy sum. Only its randomness counts. Processes must trust each other and the
network between them: they hold records, and the sums that they send are not yet private.
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

from ..._groups import Groups, group_labels
from ...accounting import PrivacyBudget
from ...accounting.budget.receipts import Receipt
from ...base import reserve_release
from ...exceptions import BudgetExceededError
from ...mechanisms import Mechanism, SecureRandom
from .engine import Peers
from .mapped_rows import MappedRows
from .training_config import Sampler

_OLDEST_TORCH = "2.8"
_COMPARED_RECORDS = 64  # records hashed to compare the data of two processes
# Types of another process's errors that are raised here, from special to general.
_ERRORS = (BudgetExceededError, ValueError, RuntimeError)


@contextmanager
def join_process_group(records: str) -> Iterator[ProcessGroup]:
    """Join the other processes for one training; an error in one process stops all."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            f"Training on {records!r} records needs an initialised process group. Start the "
            "processes with torchrun and call torch.distributed.init_process_group('gloo') before "
            "fit."
        )
    if torch.__version__ < _OLDEST_TORCH:
        raise ValueError(
            f"Training on {records!r} records needs torch {_OLDEST_TORCH} or newer, as older "
            f"versions wait for ever at the end of a group; found {torch.__version__}. Upgrade "
            "torch."
        )
    group = ProcessGroup(records)
    try:
        yield group
    except BaseException as error:
        group.leave(error)
        raise
    group.close()


class ProcessGroup(Peers):
    """All processes of torch.distributed's default group, with "replicated" or "sharded" records.

    **Guarantees.** Every drawn record contributes in exactly one process, so the sum over processes
    has the sensitivity of one. The same holds for groups, because no group has records in two
    shards. One process adds noise, so the shared sum has exactly one noise of full size. The same
    process charges the budget.

    **Edge cases.** A process that fails before training makes all others fail with its message. One
    that fails or dies during training breaks the connections: the others raise ``RuntimeError``,
    which names the charge, and the estimators are restored. The same happens if a process does not
    answer within the timeout of ``init_process_group``, by default 30 minutes.

    A run does not resume. The survivors do not know whether the lost process has released one more
    step. To repeat that step would release its sum with two noises, and the event has one.
    """

    def __init__(self, data: str) -> None:
        self.replicated = data == "replicated"
        self.rank = dist.get_rank()
        self._charge = "nothing was charged: start all processes again."
        self._n_released = 0  # steps
        # A separate group, so that destroying it does not affect the caller's.
        with self._explain_lost_process():
            self._group: Any = dist.new_group(backend="gloo", timeout=_default_group_timeout())
        self._training = False
        self._numbers: list[int] = []

    def count(
        self, inputs: Tensor | MappedRows, targets: Tensor, groups: Groups | None = None
    ) -> int:
        n = len(inputs) if groups is None else groups.n
        names = None if groups is None else _digest_names(groups)
        every = self._exchange((n, _fingerprint(inputs, targets, groups), names))
        found = [(n, fingerprint) for n, fingerprint, _ in every]
        self._numbers = [n for n, _ in found]
        different = len(set(found))
        if self.replicated and different > 1:
            raise ValueError(
                "The records are declared 'replicated', but the processes hold different records, "
                f"{self._numbers} in number. If each has its own records, use 'sharded'."
            )
        if not self.replicated and different < len(found):
            raise ValueError(
                "The records are declared 'sharded', but two processes hold the same ones, which "
                "would count twice. If all have the same data, use 'replicated'."
            )
        if not self.replicated:
            _refuse_shared_groups([names for *_, names in every])
        return self._numbers[0] if self.replicated else sum(self._numbers)

    def agree(self, facts: dict[str, str]) -> None:
        every = self._exchange(facts)
        for name in facts:
            found = [other.get(name) for other in every]
            if len(set(found)) > 1:
                raise ValueError(
                    f"The processes disagree on {name}: {found}. Start all of them with the same "
                    "parameters."
                )

    def same(self, module: nn.Module) -> None:
        for tensor in [*module.parameters(), *module.buffers()]:
            self._meet(dist.broadcast, tensor.data, 0)

    @contextmanager
    def reserve(self, budget: PrivacyBudget | None, *terms: Any) -> Iterator[Receipt | None]:
        with reserve_release(budget if self.rank == 0 else None, *terms) as receipt:
            self._charge = "a charge may have been made: look at the budget before a new fit."
            # no process reads a record before the budget is charged
            charge = self._exchange(receipt)[0] or "the count of the run (without a budget)"
            self._charge = (
                f"{charge} stays; a resumed run could release a step twice, so fit again, at a new "
                "charge."
            )
            self._training = True
            yield receipt

    def select_rows(
        self, groups: Groups, most: int | None, random: SecureRandom
    ) -> NDArray[np.int64]:
        kept = super().select_rows(groups, most, random)
        if self.replicated:  # all processes know the length
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
        return self._select_own_part(drawn.numpy())

    def _select_own_part(self, drawn: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this process's part of the sample: every drawn record is in exactly one part."""
        if self.replicated:
            return drawn[self.rank :: len(self._numbers)]
        start = sum(self._numbers[: self.rank])
        stop = start + self._numbers[self.rank]
        return drawn[(drawn >= start) & (drawn < stop)] - start

    def release(
        self, mechanism: Mechanism, total: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        # In double precision in all processes, though the size of a part may allow single.
        total = np.array(total, dtype=np.float64)
        shared = torch.from_numpy(total)
        self._meet(dist.reduce, shared, 0)
        if self.rank == 0:
            shared = torch.from_numpy(mechanism.release(total, random))
        self._meet(dist.broadcast, shared, 0)
        self._n_released += 1
        return shared.numpy()

    def leave(self, error: BaseException) -> None:
        """Make the other processes stop."""
        if self._group is None:
            return
        if not self._training:
            kind = next((i for i, k in enumerate(_ERRORS) if isinstance(error, k)), -1)
            with suppress(Exception):  # the others may have stopped already
                self._exchange(None, (kind, f"{type(error).__name__}: {error}"))
        self.close()

    def close(self) -> None:
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None

    def _exchange(self, value: Any, error: tuple[int, str] | None = None) -> list[Any]:
        """Return the values of all processes; raise the error of another one."""
        found: list[Any] = [None] * dist.get_world_size()
        self._meet(dist.all_gather_object, found, (error, value))
        for rank, (wrong, _) in enumerate(found):
            if wrong is not None and rank != self.rank:
                self.close()
                kind, message = wrong
                raise _ERRORS[kind](f"Process {rank} could not train. {message}")
        return [v for _, v in found]

    def _meet(self, collective: Any, *args: Any) -> None:
        with self._explain_lost_process():
            collective(*args, group=self._group)

    @contextmanager
    def _explain_lost_process(self) -> Iterator[None]:
        """Explain errors of the connections to other processes."""
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError(
                f"Process {self.rank} of {dist.get_world_size()} lost the others after "
                f"{self._n_released} steps: one of them has failed or died (see its own message), "
                "or has not answered within the timeout of init_process_group. The model is "
                f"restored, and {self._charge}"
            ) from error


def _default_group_timeout() -> timedelta:
    """Return the default group's timeout, for which torch has no public function."""
    group: Any = dist.group.WORLD
    device = "cpu" if "gloo" in dist.get_backend_config() else "cuda"
    timeout: timedelta = group._get_backend(torch.device(device)).options._timeout
    return timeout


def _fingerprint(inputs: Tensor | MappedRows, targets: Tensor, groups: Groups | None = None) -> str:
    """Return a digest of some records, spread over all, and of the group of each record."""
    indices = torch.linspace(0, len(inputs) - 1, _COMPARED_RECORDS).long()
    digest = hashlib.sha256()
    for part in (inputs.index_select(0, indices), targets.index_select(0, indices)):
        digest.update(part.cpu().numpy().tobytes())
    if groups is not None:
        digest.update(groups.codes.tobytes())
    return digest.hexdigest()


def _digest_names(groups: Groups) -> set[bytes]:
    """Return a digest of each group's name, independent of the type it was read as."""
    names = group_labels(groups.names)
    return {hashlib.blake2b(name.encode(), digest_size=16).digest() for name in names}


def _refuse_shared_groups(every: list[set[bytes] | None]) -> None:
    """Refuse groups with records in two processes: each would count as its own group."""
    of_groups = [names for names in every if names is not None]
    if of_groups and len(of_groups) < len(every):
        raise ValueError("Some processes have groups and others none. Pass groups to all.")
    if len(set().union(*of_groups)) < sum(map(len, of_groups)):
        raise ValueError(
            "The records are declared 'sharded', but two processes hold records of the same group, "
            "which would contribute twice. Pass all records of a group to one process, or use "
            "'replicated'."
        )
