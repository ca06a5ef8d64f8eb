"""Images: what small convolution nets reach under a guarantee."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from skprivacy.datasets import fetch_mnist
from skprivacy.datasets.files import data_folder
from skprivacy.neural_network import DPSGDClassifier, RandomShift

pytestmark = pytest.mark.heavy


class ConvNet(nn.Module):
    """Two convolutions on images of some size."""

    def __init__(self, size=28, kernel=8, stride=2, channels=16):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Unflatten(1, (1, size, size)),
            nn.Conv2d(1, channels, kernel, stride, padding=kernel // 4), nn.Tanh(),
            nn.Conv2d(channels, 2 * channels, 4, stride), nn.Tanh(), nn.Flatten(),
            nn.LazyLinear(32), nn.Tanh(), nn.Linear(32, 10),
        )  # fmt: skip
        self.layers(torch.zeros(1, size * size))  # the lazy layer now knows its size

    def forward(self, x):
        return self.layers(x)


def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order] / 16, y[order]
    return X[:1400], y[:1400], X[1400:], y[1400:]


def on_digits(**params):
    return DPSGDClassifier(
        module=ConvNet, module__size=8, module__kernel=3, module__stride=1, module__channels=8,
        classes=range(10), epsilon=8.0, delta=1e-4, batch_size=350, epochs=12,
        max_grad_norm=0.1, learning_rate=8.0, random_state=0, **params,
    )  # fmt: skip


SHIFT = RandomShift((1, 8, 8), pixels=1)


# Accuracy on shifted digits varies by 0.025 with the noise.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_a_convolution_net_learns_digits():
    X, y, X_test, y_test = digits()
    model = on_digits(noise_seed=0).fit(X, y)
    assert model.gradients_ == "book-keeping"
    assert model.privacy_.epsilon(1e-4) <= 8.0
    assert model.score(X_test, y_test) > 0.86  # 0.92 to 0.95
    shifted = SHIFT(torch.tensor(X_test)).numpy()
    assert model.score(shifted, y_test) < 0.45  # 0.30 to 0.40: it never saw any


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_shifted_views_teach_shifts():
    X, y, X_test, y_test = digits()
    model = on_digits(noise_seed=0, augment=(SHIFT, 2)).fit(X, y)
    shifted = SHIFT(torch.tensor(X_test)).numpy()
    assert model.score(shifted, y_test) > 0.5  # 0.54 to 0.64


@pytest.mark.slow
@pytest.mark.skipif(not (data_folder() / "mnist").is_dir(), reason="MNIST is not in SKPRIVACY_DATA")
def test_mnist_in_six_epochs():
    X, y = fetch_mnist(return_X_y=True)
    X_test, y_test = fetch_mnist(subset="test", return_X_y=True)
    model = DPSGDClassifier(
        module=ConvNet, classes=range(10), epsilon=3.0, delta=1e-5, batch_size=1024, epochs=6,
        max_grad_norm=0.1, learning_rate=4.0, random_state=0,
    )  # fmt: skip
    model.fit(X / 255, y)
    assert model.score(X_test / 255, y_test) >= 0.94
