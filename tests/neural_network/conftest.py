"""Data that several tests of networks train on."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def blobs():
    rng = np.random.RandomState(0)
    y = np.arange(400) % 2
    return rng.normal(size=(400, 3)) + 2.0 * y[:, None] - 1.0, y
