"""Trials for another device run on the CPU first; fake tensors stand in for the device."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from torch import Tensor, nn

from skprivacy.neural_network import DPSGDClassifier, RandomShift, augmentation
from skprivacy.neural_network._gradients import trial
from skprivacy.neural_network._gradients.trial import Probe, select_gradient_method
from skprivacy.neural_network.augmentation import Views

from ..test_augmentation import by_numpy, by_value, centred, noisy, with_a_partner
from .test_contributions import MovingMean, ScaledByTheLast

LOSS = nn.CrossEntropyLoss(reduction="none")


class There(Tensor):
    """A tensor that is taken to be on another device; what is made of it is there, too."""

    def cpu(self):
        return self.detach().as_subclass(Tensor)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    for owner in (trial, augmentation):
        monkeypatch.setattr(owner, "is_off_cpu", lambda values: isinstance(values, There))


def there(*shape, **params):
    probe = Probe.for_shape(shape, 2, **params)
    return Probe(probe.inputs.as_subclass(There), probe.targets, 2, probe.views)


class Words(nn.Module):
    """Takes places in a table, and nothing else."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(3, 4), nn.Linear(16, 2)

    def forward(self, x):
        return self.last(self.table(x.long()).flatten(1))


@pytest.mark.parametrize("augment", [by_numpy, by_value, centred, with_a_partner])
def test_augmentations_that_only_the_processor_would_refuse(augment):
    """As if the device saw nothing wrong."""
    check = Views._check

    def blind(self, inputs):
        if not isinstance(inputs, There):
            check(self, inputs)

    with (
        mock.patch.object(Views, "_check", blind),
        pytest.raises(ValueError, match="mixes records, or its randomness is not torch's"),
    ):
        Views.from_augment((augment, 2)).check(there(4).inputs)


@pytest.mark.parametrize("error", [TypeError, RuntimeError])
def test_augmentations_that_fail_on_the_device(error):
    def augment(rows):
        if isinstance(rows, There):
            raise error("can't convert cuda:0 device type tensor to numpy")
        return noisy(rows)

    with pytest.raises(ValueError, match=r"augment=.* works on the CPU .*Compute with torch"):
        Views.from_augment(augment).check(there(4).inputs)


@pytest.mark.parametrize("augment", [noisy, RandomShift((1, 2, 2), 0, flip=True)])
def test_good_ones_are_tried_on_both(augment):
    seen = set()
    check = Views._check
    with mock.patch.object(
        Views, "_check", lambda self, inputs: seen.add(type(inputs)) or check(self, inputs)
    ):
        Views.from_augment(augment).check(there(4).inputs)
    assert seen == {Tensor, There}


@pytest.mark.parametrize(
    ("module", "loss", "match"),
    [
        (nn.Sequential(nn.Linear(71, 2)), LOSS, "cannot be trained on inputs of shape"),
        (nn.Sequential(nn.Linear(72, 5)), LOSS, "gave outputs of shape"),
        (nn.Sequential(MovingMean(as_array=True), nn.Linear(3, 2)), LOSS, "stores private records"),
        (nn.Sequential(nn.Linear(72, 2)), ScaledByTheLast(), "stores private records"),
    ],
)
def test_modules_and_losses_are_refused_by_the_processor(module, loss, match):
    places = []
    behaviour = trial._check_behaviour

    def seen(module, loss, probe):
        places.append(type(probe.inputs))
        return behaviour(module, loss, probe)

    with (
        mock.patch.object(trial, "_check_behaviour", seen),
        pytest.raises(ValueError, match=match),
    ):
        select_gradient_method(module, loss, there(72))
    assert set(places) == {Tensor}


def test_a_device_is_shown_no_place_outside_of_a_table():
    """A GPU answers such a place with an error from which the process does not recover."""
    shown = []
    forward = Words.forward

    def seen(self, x):
        shown.append((type(x), int(x.min()), int(x.max())))
        return forward(self, x)

    with mock.patch.object(Words, "forward", seen):
        _, probe = select_gradient_method(Words(), LOSS, there(4))
    assert set(np.unique(probe.inputs.cpu().numpy())) == {0.0, 1.0}
    on_device = [(low, high) for kind, low, high in shown if kind is There]
    assert on_device
    assert all(0 <= low <= high <= 1 for low, high in on_device)


def test_a_module_of_embeddings_is_trained():
    """Its memory is counted on what it understands; it failed with torch's IndexError."""
    places = np.random.default_rng(0).integers(3, size=(60, 4))
    model = DPSGDClassifier(module=Words, classes=[0, 1], epochs=2).fit(places, places[:, 0] > 0)
    assert model.gradients_ == "book-keeping"
