"""
Train one private model in several processes
============================================

Start it with

    torchrun --nproc_per_node=2 examples/train/distributed_training.py

Both processes open the same file, and each computes a part of every batch. Only the first process
draws batches, adds noise and charges the budget. In the end both hold the same model.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch.distributed as dist

from skprivacy import DPSGDClassifier, PrivacyBudget
from skprivacy.neural_network import Distributed

dist.init_process_group("gloo")
folder = Path(tempfile.gettempdir())

# All processes open one file. Each reads only the records that its part of a batch needs.
if dist.get_rank() == 0:
    rng = np.random.default_rng()
    X = rng.normal(size=(20_000, 20)).astype(np.float32)
    np.save(folder / "records.npy", X)
    np.save(folder / "labels.npy", (X[:, :3].sum(1) > 0).astype(int))
dist.barrier()
X = np.load(folder / "records.npy", mmap_mode="r")
y = np.load(folder / "labels.npy")

model = DPSGDClassifier(
    device=Distributed("replicated"),  # "sharded" if each process has different records
    classes=[0, 1],
    epsilon=1.0,
    delta=1e-6,
    batch_size=2_000,
    budget=PrivacyBudget(epsilon=2.0, delta=1e-5),
)
model.fit(X, y)

if dist.get_rank() == 0:
    print(model.privacy_, "accuracy on the training data:", round(model.score(X, y), 3))
dist.destroy_process_group()
