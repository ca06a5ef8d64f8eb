"""Functions that each of two processes runs for ``test_process_group.py``."""

from __future__ import annotations

import os
import signal
import warnings
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import distributed as dist

from skprivacy.accounting import PrivacyBudget
from skprivacy.mechanisms import Mechanism
from skprivacy.neural_network import (
    Clipping,
    Distributed,
    DPNeuralNet,
    DPSGDClassifier,
    DPSGDRegressor,
    Optimizer,
)
from skprivacy.neural_network._training import process_group as distributed
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.process_group import ProcessGroup

REPLICATED, SHARDED = (Distributed(how, device="cpu") for how in ("replicated", "sharded"))
PATIENCE = timedelta(seconds=15)  # with a process that has begun
N, FIRST = 600, 250  # records, and how many of them are the first process's


def data():
    X = np.random.RandomState(0).normal(size=(N, 5))
    return X, (X[:, 0] > 0).astype(int)


def shard(rank):
    return slice(0, FIRST) if rank == 0 else slice(FIRST, N)


def private(**params):
    """On the processor, whatever else is there: two processes at a GPU take longer to start."""
    defaults = {"classes": [0, 1], "noise_seed": 3, "random_state": 0, "epochs": 2}
    return DPSGDClassifier(**{**defaults, "batch_size": 100, "device": "cpu", **params})


def regressor(**params):
    defaults = {"target_bounds": (-1, 1), "noise_seed": 3, "random_state": 0, "epochs": 2}
    return DPSGDRegressor(**{**defaults, "device": "cpu", **params})


def net(**params):
    """A net that starts at zero, wherever it is made."""
    module = torch.nn.Linear(5, 2)
    for p in module.parameters():
        p.data.zero_()
    return DPNeuralNet(module, torch.nn.CrossEntropyLoss, noise_seed=3, max_epochs=2, **params)


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.module_.parameters()])


def said(call) -> str:
    """Return the error that a call raises, as text."""
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


# --- what is done in both processes -------------------------------------------------------------


def same_as_one(rank: int, folder: Path) -> dict[str, Any]:
    X, y = data()
    own = shard(rank)
    if rank == 0:
        np.save(folder / "X.npy", X)
    dist.barrier()
    mapped = np.load(folder / "X.npy", mmap_mode="r")
    return {
        "replicated": weights(private(device=REPLICATED).fit(X, y)),
        "sharded": weights(private(device=SHARDED).fit(X[own], y[own])),
        "mapped": weights(private(device=REPLICATED).fit(mapped, y)),
        "regressor": weights(regressor(device=SHARDED).fit(X[own], X[own, 1])),
        "further": weights(private(device=SHARDED).fit(X[own], y[own]).partial_fit(X[own], y[own])),
        "adaptive": weights(
            private(device=SHARDED, max_grad_norm=Clipping("adaptive")).fit(X[own], y[own])
        ),
        "net": weights(net(distributed="sharded").fit(X[own], y[own])),
        "banded": weights(private(device=SHARDED, noise="banded").fit(X[own], y[own])),
        "exact": weights(private(device=SHARDED, noise="exact").fit(X[own], y[own])),
        "other start": weights(
            private(device=REPLICATED, random_state=rank, noise_seed=None).fit(X, y)
        ),
    }


def claims(rank: int, folder: Path) -> dict[str, Any]:
    X, y = data()
    model = private(device=SHARDED, noise_seed=None).fit(X[shard(rank)], y[shard(rank)])
    return {"privacy": repr(model.privacy_.to_dict()), "rate": model.privacy_.event.event}


def noise(rank: int, folder: Path) -> dict[str, Any]:
    """How far one step moves the weights when there is nothing to learn from."""
    X, y = data()
    params = {
        "hidden_layer_sizes": (400,), "epochs": 1, "batch_size": 10**6, "learning_rate": 1.0,
        "optimizer": Optimizer(momentum=0.0, averaging=0.0), "max_grad_norm": 0.5,
        "noise_seed": None,
    }  # fmt: skip

    def spread() -> float:
        noisy, bare = (
            private(device=REPLICATED, epsilon=epsilon, **params).fit(X * np.nan, y)
            for epsilon in (1.0, np.inf)
        )
        return float((weights(noisy) - weights(bare)).std()) / (noisy.noise_multiplier_ * 0.5 / N)

    found = {"sound": spread()}
    for mutant in (each_adds_noise, nobody_adds_noise, each_keeps_its_own_noise):
        with mock.patch.object(ProcessGroup, "release", mutant):
            found[mutant.__name__] = spread()
    return found


def each_adds_noise(self, mechanism, total, random):
    shared = torch.from_numpy(mechanism.release(total, random))
    dist.all_reduce(shared, group=self._group)
    return shared.numpy()


def nobody_adds_noise(self, mechanism, total, random):
    shared = torch.from_numpy(total)
    dist.all_reduce(shared, group=self._group)
    return shared.numpy()


def each_keeps_its_own_noise(self, mechanism, total, random):
    summed = nobody_adds_noise(self, mechanism, total, random)
    return mechanism.release(summed, random) + mechanism.release(total * 0, random)


def sensitivity(rank: int, folder: Path) -> dict[str, Any]:
    """By how much one record, in either process, moves what is released in the first step."""
    found = {
        mode: [_moved(rank, mode, record) for record in (3, N - 3)]
        for mode in ("replicated", "sharded")
    }
    with mock.patch.object(ProcessGroup, "_select_own_part", lambda self, drawn: drawn):
        found["counted twice"] = [_moved(rank, "replicated", 3)]
    return found


def _moved(rank: int, mode: str, theirs: Any, whose: Any = None) -> float:
    """By how much some records, which are all of a group if there are any, move the first sum."""
    X, y = data()
    X[theirs], y[theirs] = 50.0, 1
    nothing = X.copy()
    nothing[theirs] = np.nan
    own = shard(rank) if mode == "sharded" else slice(None)
    sums = []
    for rows in (X, nothing):
        inputs: list = []
        with _released(inputs):
            private(
                device=Distributed(mode, device="cpu"), epochs=1, batch_size=10**6,
                max_group_size=None,
                max_grad_norm=Clipping("automatic", 0.7, group_contribution="sum"),
            ).fit(rows[own], y[own], groups=None if whose is None else whose[own])  # fmt: skip
        sums.append(inputs[0] if inputs else np.zeros(1))
    return float(np.linalg.norm(sums[0] - sums[1])) / 0.7


@contextmanager
def _released(inputs: list):
    original = Mechanism.release

    def release(self, value, random):
        inputs.append(value.copy())
        return original(self, value, random)

    with mock.patch.object(Mechanism, "release", release):
        yield


def households():
    """Household of each record, of up to three records, none of them in two shards."""
    return np.r_[np.arange(FIRST) // 3, 1000 + np.arange(N - FIRST) // 3]


def people(rank: int, folder: Path) -> dict[str, Any]:
    """Training that protects people, and by how much one of them moves the first release."""
    X, y = data()
    own, whose = shard(rank), households()
    across = np.arange(N) // 3  # the household of record 249 is in both shards
    found: dict[str, Any] = {
        "replicated": weights(private(device=REPLICATED).fit(X, y, groups=whose)),
        "sharded": weights(
            private(device=SHARDED, max_group_size=None).fit(X[own], y[own], groups=whose[own])
        ),
        "in two shards": said(
            lambda: private(device=SHARDED).fit(X[own], y[own], groups=across[own].astype(float))
        ),
        "other groups": said(
            lambda: private(device=REPLICATED).fit(X, y, groups=np.roll(whose, rank))
        ),
        "one without": said(
            lambda: private(device=SHARDED).fit(X[own], y[own], groups=[None, whose[own]][rank])
        ),
        "moved": [
            _moved(rank, mode, whose == household, whose)
            for mode in ("replicated", "sharded")
            for household in (1, 1001)
        ],
    }
    with mock.patch.object(distributed, "_refuse_shared_groups", return_value=None):
        found["moved in two shards"] = _moved(rank, "sharded", across == FIRST // 3, across)
    return found


def parts(rank: int, folder: Path) -> dict[str, Any]:
    """Participants of each process and step."""
    X, y = data()
    found: dict[str, list] = {}
    for mode, own in (("replicated", slice(None)), ("sharded", shard(rank))):
        original = ProcessGroup._select_own_part
        steps: list = found.setdefault(mode, [])

        def noted(self, drawn, original=original, steps=steps):
            part = original(self, drawn)
            steps.append((drawn.tolist(), part.tolist()))
            return part

        with mock.patch.object(ProcessGroup, "_select_own_part", noted):
            private(device=Distributed(mode, device="cpu"), noise_seed=None).fit(X[own], y[own])
    return found


def budget(rank: int, folder: Path) -> dict[str, Any]:
    X, y = data()
    ledger = PrivacyBudget(epsilon=1.1, delta=1e-5, path=folder / "ledger")
    params = {"device": REPLICATED, "noise_seed": None, "budget": ledger}
    model = private(**params).fit(X, y)
    dist.barrier()
    after_one = len(ledger.entries())
    dist.barrier()
    earlier, claim = model.module_, model.privacy_
    refused = said(lambda: model.fit(X, y))
    dist.barrier()
    return {
        "entries": after_one,
        "refused": refused,
        "entries after": len(ledger.entries()),
        "kept": model.module_ is earlier and model.privacy_ is claim,
    }


def mistakes(rank: int, folder: Path) -> dict[str, Any]:
    X, y = data()
    own = shard(rank)
    calls = {
        "not sharded": lambda: private(device=SHARDED).fit(X, y),
        "not replicated": lambda: private(device=REPLICATED).fit(X[own], y[own]),
        "norm": lambda: private(device=REPLICATED, max_grad_norm=1.0 + rank).fit(X, y),
        "clipping": lambda: private(
            device=REPLICATED,
            max_grad_norm=Clipping("automatic" if rank else "flat"),
        ).fit(X, y),
        "module": lambda: private(
            device=REPLICATED,
            module=torch.nn.Sequential(torch.nn.Linear(5, 2 + rank)),
        ).fit(X, y),
        "one bad": lambda: private(device=REPLICATED, epsilon=-1.0 if rank else 1.0).fit(X, y),
        "one bad label": lambda: private(device=REPLICATED).fit(X, y + 5 * rank),
        "classes": lambda: private(device=SHARDED, classes=None).fit(X[own], y[own] + 2 * rank),
    }
    return {name: said(call) for name, call in calls.items()}


def failing_step(rank: int, folder: Path) -> dict[str, Any]:
    """The second process fails in a step; the next training is none the worse."""
    X, y = data()
    ledger = PrivacyBudget(epsilon=5, delta=1e-5, path=folder / "failing")
    model = private(device=REPLICATED, noise_seed=None).fit(X, y)
    model.budget = ledger
    earlier, claim = model.module_, model.privacy_
    original = Training.step

    def fail(self, *args):
        if rank == 1 and self._step == 3:
            raise MemoryError("no memory in process 1")
        return original(self, *args)

    with mock.patch.object(Training, "step", fail):
        error = said(lambda: model.fit(X, y))
    dist.barrier()
    charged = len(ledger.entries()), round(ledger.spent(), 3)
    return {
        "error": error,
        "kept": model.module_ is earlier and model.privacy_ is claim,
        "charged": charged,
        "again": weights(private(device=REPLICATED).fit(X, y)),
    }


def dying(rank: int, folder: Path) -> dict[str, Any]:
    """The first process, which adds the noise, is killed in a training. Nothing can follow this."""
    X, y = data()
    original = Training.step

    def die(self, *args):
        if rank == 0 and self._step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *args)

    ledger = PrivacyBudget(epsilon=5, delta=1e-5, path=folder / "dying")
    model = private(device=REPLICATED, noise_seed=None, budget=ledger)
    with mock.patch.object(Training, "step", die):
        error = said(lambda: model.fit(X, y))
    killed = {"entries": len(ledger.entries()), "spent": ledger.spent()}
    private(noise_seed=None, budget=ledger).fit(X, y)
    return {"error": error, **killed, "entries again": len(ledger.entries())}


SCENES = [
    same_as_one, claims, noise, sensitivity, people, parts, budget, mistakes, failing_step, dying,
]  # fmt: skip


def freezing_on_the_way(rank: int, folder: Path) -> dict[str, Any]:
    """The second process is stopped, with all of its threads, in the middle of a training."""
    X, y = data()
    ledger = PrivacyBudget(epsilon=5, delta=1e-5, path=folder / "ledger")
    original = Training.step

    def freeze(self, *args):
        if rank == 1 and self._step == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        return original(self, *args)

    with mock.patch.object(Training, "step", freeze):
        model = private(device=REPLICATED, noise_seed=None, budget=ledger)
        return {"error": said(lambda: model.fit(X, y)), "charged": len(ledger.entries())}


def freezing_before(rank: int, folder: Path) -> dict[str, Any]:
    """The second process is stopped before it joins."""
    X, y = data()
    ledger = PrivacyBudget(epsilon=5, delta=1e-5, path=folder / "ledger")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    model = private(device=REPLICATED, noise_seed=None, budget=ledger)
    return {"error": said(lambda: model.fit(X, y)), "charged": len(ledger.entries())}


def run_freezing(rank: int, folder: str, results: Any, scene: Any = freezing_on_the_way) -> None:
    warnings.simplefilter("ignore")
    store = dist.FileStore(f"{folder}/rendezvous", 2)
    store.set(f"begun {rank}", "")
    # On a busy machine one process takes minutes longer than the other to import what it needs.
    store.wait([f"begun {other}" for other in range(2)], timedelta(minutes=4))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=PATIENCE)
    results.put((rank, scene.__name__, scene(rank, Path(folder))))


def run_freezing_before(rank: int, folder: str, results: Any) -> None:
    run_freezing(rank, folder, results, freezing_before)


def run(rank: int, folder: str, results: Any) -> None:
    """Join the other process and play all scenes."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2)
    for scene in SCENES:
        results.put((rank, scene.__name__, scene(rank, Path(folder))))
