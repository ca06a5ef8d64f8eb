"""Training copies its data only where needed, and never changes it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch

from skprivacy.neural_network import DPNeuralNet, DPSGDClassifier
from skprivacy.neural_network._training.mapped_rows import as_rows
from skprivacy.neural_network.network import training_rows


def table(n=40):
    return np.random.default_rng(0).standard_normal((n, 3)).astype(np.float32)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("rows", [training_rows, lambda X: training_rows(as_rows(X))])
def test_no_copy_is_made_of_what_can_be_trained_on(rows, read_only):
    X = table()
    X.setflags(write=not read_only)
    assert rows(X).data_ptr() == X.ctypes.data


@pytest.mark.parametrize("huge", [1e30, -1e30, np.inf, -np.inf])
@pytest.mark.parametrize("rows", [training_rows, lambda X: training_rows(as_rows(X))])
def test_huge_numbers_are_infinite_in_a_copy(rows, huge):
    X = table()
    X[3, 1] = huge
    before = X.copy()
    made = rows(X)
    assert made[3, 1] == np.inf
    assert np.array_equal(np.delete(made.numpy(), 3, axis=0), np.delete(X, 3, axis=0))
    np.testing.assert_array_equal(X, before)


def test_nan_stays():
    X = table()
    X[2, 2] = np.nan
    assert torch.isnan(training_rows(X)[2, 2])


@pytest.mark.parametrize(
    "given",
    [np.asfortranarray, lambda X: X.astype(np.float64), lambda X: pd.DataFrame(X).to_numpy()],
)
def test_rows_lie_one_after_another(given):
    """Out of a matrix that lies by columns a batch takes thirty times as long to gather."""
    made = training_rows(given(table()))
    assert made.is_contiguous()
    np.testing.assert_array_equal(made.numpy(), table())


TERMS = {"batch_size": 4000, "delta": 1e-6, "relation": "add_remove", "n_records": 100_000}


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "model",
    [
        DPSGDClassifier(classes=[0, 1], epochs=1, device="cpu", **TERMS),
        DPNeuralNet(
            lambda: torch.nn.Sequential(torch.nn.Linear(100, 2)),
            criterion=torch.nn.CrossEntropyLoss, max_epochs=1, **TERMS,
        ),
    ],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_a_fit_takes_a_tenth_of_the_memory_of_the_data(model):
    """Of what numpy allocates: torch's parts are those of a batch."""
    X = np.random.default_rng(0).standard_normal((100_000, 100), dtype=np.float32)
    y = (X[:, 0] > 0).astype(int)
    before = X.copy()
    model.fit(X[:5000], y[:5000])  # what is imported, or worked out once
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.15 * X.nbytes  # a tenth, and the targets
    np.testing.assert_array_equal(X, before)
