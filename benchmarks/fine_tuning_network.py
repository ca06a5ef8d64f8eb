"""MNIST by a public network: all of its layers fine-tuned, or its head alone.

``python benchmarks/fine_tuning_network.py [rows...] [--seeds N] [--held-out]`` prints a line for
each row and seed, with the test accuracy at epsilon 1 and 3. The same images as in
``fine_tuning.py`` are public and private, but the public ones have labels here and are never
upright: the network learns to read digits turned by one, two or three quarters, so that what it
brings along is for another task. Rows: "scratch" (the same network from random weights), "head"
(``ALMFineTuner`` over the features of its last hidden layer), "whole" (``DPSGDClassifier`` from its
weights, with a new last layer) and "scattering" (``ALMFineTuner`` over features that need no public
labels). The private fits have the clipping norm of ``mnist.py`` and else the defaults. With
``--held-out``, the last 10,000 images of the training file stand in for the test file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from fine_tuning import DELTA, ENCODERS, PRIVATE, PUBLIC
from mnist import SmallConvNet
from numpy.typing import NDArray
from sklearn.preprocessing import FunctionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from skprivacy.datasets import fetch_mnist
from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.neural_network import DPSGDClassifier

EPSILONS = (1.0, 3.0)
EPOCHS, BATCH, STEP = 4, 256, 0.004  # of the public training, which is not private
PRIVATE_FIT = {"max_grad_norm": 0.1, "classes": range(10), "delta": DELTA}


def turned(rows: Tensor) -> Tensor:
    """Return every image turned by one, two or three quarters, at random."""
    images = rows.reshape(-1, 28, 28)
    turns = torch.randint(1, 4, (len(images), 1, 1))
    for quarters in (1, 2, 3):
        images = torch.where(turns == quarters, torch.rot90(images, quarters, (1, 2)), images)
    return images.flatten(1)


def pre_trained(rows: NDArray, digits: NDArray, seed: int) -> nn.Sequential:
    """Return the layers of a network that reads turned public digits."""
    torch.manual_seed(seed)
    layers = SmallConvNet().layers
    X, y = torch.from_numpy(rows), torch.from_numpy(digits)
    optimizer = torch.optim.Adam(layers.parameters())
    steps = EPOCHS * (len(X) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, STEP, steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(X)).split(BATCH)[: len(X) // BATCH]:
            loss = F.cross_entropy(layers(turned(X[batch])), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return layers


def features_of(layers: nn.Sequential) -> FunctionTransformer:
    """Return an encoder: what the last hidden layer gives."""
    body = layers[:-1]

    def encode(rows: NDArray) -> NDArray:
        with torch.inference_mode():
            return body(torch.as_tensor(np.asarray(rows), dtype=torch.float32)).numpy()

    return FunctionTransformer(encode)


def with_new_head(layers: nn.Sequential) -> nn.Sequential:
    """Return the network with a last layer of zeros: no digit is more probable than another."""
    head = nn.Linear(layers[-1].in_features, 10)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(*layers[:-1], head)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    rows = ["scratch", "head", "whole", "scattering"]
    parser.add_argument("rows", nargs="*", default=rows, metavar=f"{{{','.join(rows)}}}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    train = fetch_mnist(subset="train")
    images = (np.asarray(train.data) / 255).astype(np.float32)
    digits = np.asarray(train.target).astype(np.int64)
    if options.held_out:
        others, truth = images[50_000:], digits[50_000:]
    else:
        test = fetch_mnist(subset="test")
        others = (np.asarray(test.data) / 255).astype(np.float32)
        truth = np.asarray(test.target).astype(np.int64)

    def tuned(row: str, seed: int) -> Callable[[float], float]:
        """Return the accuracy as a function of epsilon."""
        if row in ("scratch", "whole"):
            start = SmallConvNet
            if row == "whole":
                start = with_new_head(pre_trained(images[PUBLIC], digits[PUBLIC], seed))
            model = DPSGDClassifier(module=start, random_state=seed, **PRIVATE_FIT)
            fit = {}
        else:
            encoder = ENCODERS["scattering"](seed)
            if row == "head":
                encoder = features_of(pre_trained(images[PUBLIC], digits[PUBLIC], seed))
            model = ALMFineTuner(encoder, delta=DELTA, classes=range(10))
            fit = {"X_public": images[PUBLIC]}
        return lambda epsilon: (
            model.set_params(epsilon=epsilon)
            .fit(images[PRIVATE], digits[PRIVATE], **fit)
            .score(others, truth)
        )

    for seed in range(options.seeds):
        for row in options.rows:
            started, accuracy = time.process_time(), tuned(row, seed)
            found = "  ".join(f"epsilon={e:g}: {accuracy(e):.4f}" for e in EPSILONS)
            seconds = time.process_time() - started
            print(f"{row:10} seed {seed}  {found}  ({seconds:.0f} s of processor)", flush=True)


if __name__ == "__main__":
    main()
