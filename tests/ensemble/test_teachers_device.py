"""On a device too, a teacher's votes depend only on its partition; the CPU stands in."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skprivacy._stacked import device_networks, scheduling, train_alone, train_isolated_networks
from skprivacy._stacked.stacked_mlp import MLPTask
from skprivacy.accounting import PrivacyBudget
from skprivacy.ensemble import PATEClassifier, teachers
from skprivacy.label_privacy import LabelPATEClassifier

from .test_teachers import (
    CHANGED,
    CHANGES,
    CLASSES,
    N_TEACHERS,
    NETS,
    PARTS,
    PUBLIC,
    SEEDS,
    SMALL,
    X,
    Y,
)  # fmt: skip

pytestmark = pytest.mark.heavy

DEVICES = ["cpu:0"] + ["cuda"] * torch.cuda.is_available()
PLAIN = {name: net for name, net in NETS.items() if isinstance(net, MLPClassifier)}
PLAIN["in order"] = MLPClassifier((6,), "relu", batch_size=40, max_iter=4, shuffle=False)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """Let "cpu:0", another name of the processor, be a device."""
    monkeypatch.setattr(scheduling, "_PROCESSORS", {"cpu"})


def trained(net, X, y, parts, device):
    """Return the votes of each teacher, and the weights of each that was trained, by its place."""
    kept = {}

    def keeping(*args):
        members = train_isolated_networks(*args)
        for i, member in enumerate(members):
            if member is not None:
                kept[i] = member
        return members

    with mock.patch.object(teachers, "train_isolated_networks", keeping):
        votes = teachers.collect_votes(
            net, X, y, parts, N_TEACHERS, PUBLIC, CLASSES, SEEDS, device=device
        )
    return np.array(votes), kept


def weights(member):
    return b"".join(v.tobytes() for layer in member.layers for v in layer)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("net", PLAIN.values(), ids=PLAIN)
def test_no_part_reaches_another_network(net, device):
    votes, members = trained(net, X, Y, PARTS, device)
    others = np.arange(N_TEACHERS) != CHANGED
    assert len({weights(m) for m in members.values()}) == N_TEACHERS
    for name, change in CHANGES.items():
        votes_then, members_then = trained(net, *change(X, Y, PARTS), device)
        np.testing.assert_array_equal(votes_then[others], votes[others], err_msg=name)
        for i, member in members_then.items():
            assert (weights(member) == weights(members[i])) == (i != CHANGED), name
        assert {*members_then} | {CHANGED} == {*members}, name


@pytest.mark.parametrize("change", ["grown", "shortened", "emptied"])
def test_shadows_trained_side_by_side_are_caught(change):
    """The planted bug: the longest part decides on the steps of all."""

    def side_by_side(net, records, n_features, classes, seeds, device):
        able = [i for i, own in enumerate(records) if own is not None and len(own)]
        tasks = [
            MLPTask(net, records[i], np.arange(len(records[i])), classes, int(seeds[i]))
            for i in able
        ]
        layers = dict(zip(able, device_networks.train_mlps(tasks, device), strict=True))
        return [layers.get(i) for i in range(len(records))]

    with mock.patch.object(device_networks, "train_isolated", side_by_side):
        _, members = trained(SMALL, X, Y, PARTS, "cpu:0")
        _, then = trained(SMALL, *CHANGES[change](X, Y, PARTS), "cpu:0")
    assert any(weights(then[i]) != weights(members[i]) for i in then if i != CHANGED)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("net", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("classes", [CLASSES, CLASSES[1:]], ids=len)
def test_they_are_the_networks_of_the_processor(net, classes, device):
    y = np.where(np.isin(Y, classes), Y, classes[0])
    parts = [(X[i == PARTS], y[i == PARTS]) for i in range(N_TEACHERS)]
    ours = train_isolated_networks(net, parts, 4, classes, SEEDS, device)
    for (records, labels), seed, member in zip(parts, SEEDS, ours, strict=True):
        alone = train_alone(net, records, labels, classes, int(seed))
        for layer, its_layer in zip(member.layers, alone.layers, strict=True):
            for values, its_values in zip(layer, its_layer, strict=True):
                np.testing.assert_allclose(values, its_values, atol=1e-4)


@pytest.mark.parametrize("change", ["missing", "huge", "emptied", "one class"])
def test_a_part_that_trains_no_network_votes_by_the_public_rule(change):
    votes, _ = trained(SMALL, *CHANGES[change](X, Y, PARTS), "cpu:0")
    rule = "ill" if change == "one class" else CLASSES[CHANGED % 3]
    assert set(CLASSES[votes[CHANGED]]) == {rule}


def test_groups_are_public():
    whole, members = trained(SMALL, X, Y, PARTS, "cpu:0")
    with mock.patch.object(device_networks, "_MAX_NUMBERS", 1):
        parts, alone = trained(SMALL, X, Y, PARTS, "cpu:0")
    np.testing.assert_array_equal(whole, parts)
    for i in members:
        for layer, its_layer in zip(members[i].layers, alone[i].layers, strict=True):
            np.testing.assert_allclose(layer[0], its_layer[0], atol=1e-5)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("kind", [PATEClassifier, LabelPATEClassifier])
def test_students_of_such_teachers(kind):
    model = kind(SMALL, n_teachers=20, epsilon=20.0, classes=CLASSES, device="cpu:0", n_queries=20)
    public = {"X_public": PUBLIC} if kind is PATEClassifier else {}
    assert model.fit(X, Y, **public).predict(X).shape == (600,)


@pytest.mark.parametrize(
    ("teacher", "device", "match"),
    [
        (LogisticRegression(), "cpu:0", "teacher=MLPClassifier.*got LogisticRegression"),
        (NETS["pipeline"], "cpu:0", "transform the records before"),
        (SMALL, "nowhere", "device='nowhere' is not usable"),
    ],
)
def test_untrainable_teachers_are_refused_before_any_charge(teacher, device, match):
    budget = PrivacyBudget(10.0, 1e-3)
    model = PATEClassifier(teacher, n_teachers=20, classes=CLASSES, budget=budget, device=device)
    with pytest.raises(ValueError, match=match):
        model.fit(X, Y, X_public=PUBLIC)
    assert len(budget.entries()) == 0
