"""Encoders: what they learn from public records, what they keep, how they are saved."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivacy import load_model, save_model
from skprivacy.neural_network import RandomShift, SCARFEncoder, SimCLREncoder
from skprivacy.neural_network.augmentation import RandomDistortion
from skprivacy.neural_network.contrastive import contrastive_loss

RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(60, 5)).astype(np.float32)
IMAGES = RNG.uniform(size=(40, 64)).astype(np.float32)


def scarf(**params):
    return SCARFEncoder(**{"n_components": 3, "epochs": 2, "random_state": 0, **params})


def simclr(**params):
    return SimCLREncoder(**{"n_components": 3, "epochs": 1, "random_state": 0, **params})


FITTED = [(scarf, TABLE), (simclr, IMAGES)]


def test_the_loss_is_that_of_the_paper():
    projected = torch.tensor(RNG.normal(size=(6, 4)))
    unit = projected.numpy() / np.linalg.norm(projected.numpy(), axis=1, keepdims=True)
    likeness = np.exp(unit @ unit.T / 0.3)
    pairs = [(0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2)]
    losses = [-np.log(likeness[i, j] / (likeness[i].sum() - likeness[i, i])) for i, j in pairs]
    assert contrastive_loss(projected, 0.3).item() == pytest.approx(np.mean(losses), rel=1e-12)


@pytest.mark.heavy
@pytest.mark.parametrize(("make", "rows"), FITTED)
def test_equal_seeds_give_equal_features_and_leave_torch_as_it_was(make, rows):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = make().fit(rows), make().fit(rows)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first.transform(rows), second.transform(rows))
    assert not np.allclose(make(random_state=1).fit(rows).transform(rows), first.transform(rows))


@pytest.mark.parametrize(("make", "rows"), FITTED)
def test_a_record_is_transformed_by_itself(make, rows):
    encoder = make().fit(rows)
    many = np.tile(rows, (4, 1))
    lengths = set()
    encoder.module_.register_forward_hook(lambda _, given, out: lengths.add(len(given[0])))
    together = encoder.transform(many)
    for i in (0, 63, 64, 100):
        np.testing.assert_array_equal(encoder.transform(many[[i]])[0], together[i])
    assert together.dtype == np.float32
    assert lengths == {1}  # a product of other rows too would round by their number and places


@pytest.mark.parametrize(("make", "rows"), FITTED)
def test_names_frames_and_pickles(make, rows, tmp_path):
    frame = pd.DataFrame(rows, columns=[f"c{i}" for i in range(rows.shape[1])])
    encoder = make().set_output(transform="pandas").fit(frame)
    out = encoder.transform(frame)
    prefix = type(encoder).__name__.lower()
    assert list(out.columns) == [f"{prefix}{i}" for i in range(3)]
    assert pickle.loads(pickle.dumps(encoder)).transform(frame).equals(out)
    save_model(encoder, tmp_path / "m")
    again = load_model(tmp_path / "m")
    np.testing.assert_array_equal(again.transform(frame), out.to_numpy())
    assert again.feature_names_in_.tolist() == list(frame.columns)
    assert again.needs_public_records_
    with pytest.raises(ValueError, match="feature names"):
        again.transform(frame.iloc[:, ::-1])
    with pytest.raises(ValueError, match="must be a fitted"):
        save_model(clone(encoder), tmp_path / "m")


@pytest.mark.heavy
@pytest.mark.parametrize(("make", "rows"), FITTED)
@pytest.mark.parametrize(
    "change",
    [
        {"params": {"n_components": 10**12}},
        {"n_features_in_": 10**12},
        {"saved": {"image_shape_": [10**6, 10**6, 1]}, "params": {"hidden_layer_sizes": [10**12]}},
        {"params": {"module": "os"}},
        {"kind": "DPSGDClassifier"},
    ],
)
def test_a_file_that_lies_is_refused_before_memory_is_taken(make, rows, change, tmp_path):
    save_model(make().fit(rows), tmp_path / "m")
    with safe_open(tmp_path / "m", framework="pt") as file:
        header = json.loads(file.metadata()["skprivacy"])
        weights = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 (not a dict)
    facts = header["model"]
    for name, value in change.items():
        facts[name] = {**facts[name], **value} if isinstance(value, dict) else value
    save_file(weights, tmp_path / "m", metadata={"skprivacy": json.dumps(header)})
    with pytest.raises(ValueError, match=r"damaged|save_model|image_shape|are unknown"):
        load_model(tmp_path / "m")


def test_no_record_is_in_the_file(tmp_path):
    marked = TABLE.copy()
    marked[7, 2] = canary = np.float32(31.415926)
    encoder = scarf().fit(marked)
    save_model(encoder, tmp_path / "m")
    for kept in ((tmp_path / "m").read_bytes(), pickle.dumps(encoder)):
        assert canary.tobytes() not in kept


@pytest.mark.parametrize(
    ("encoder", "rows", "told"),
    [
        (scarf(column_groups=[0, 1]), TABLE, "column_groups has shape"),
        (scarf(hidden_layer_sizes=(4, 0)), TABLE, "hidden_layer_sizes="),
        (simclr(image_shape=(8, 7)), IMAGES, "image_shape="),
        (simclr(image_shape=(8,)), IMAGES, "image_shape="),
        (simclr(augment=[]), IMAGES, "augment="),
        (simclr(augment=lambda rows: rows[:, 1:]), IMAGES, "augment="),
        (simclr(device="nowhere"), IMAGES, "device="),
    ],
)
def test_parameters_that_do_not_fit_are_refused(encoder, rows, told):
    with pytest.raises(ValueError, match=told):
        encoder.fit(rows)
    assert not hasattr(encoder, "module_")


def test_images_of_several_channels_and_views_of_ones_own():
    flip = RandomShift((3, 4, 5), pixels=0, flip=True)
    images = RNG.uniform(size=(20, 60))
    encoder = simclr(image_shape=(3, 4, 5), augment=flip).fit(images)
    assert encoder.transform(images).shape == (20, 3)
    assert encoder.image_shape_ == (3, 4, 5)
    assert simclr().fit(RNG.uniform(size=(20, 7))).image_shape_ == (1, 1, 7)


def test_columns_of_a_group_are_replaced_together():
    rows = torch.tensor(np.repeat(np.arange(50.0), 6).reshape(50, 6))
    encoder = scarf(column_groups=["a", "a", "b", "c", "c", "c"])
    first, second = encoder._make_views(rows)(rows)
    assert torch.equal(first, rows)
    assert torch.equal(second[:, 0], second[:, 1])
    assert torch.equal(second[:, 3], second[:, 5])
    replaced = (second != rows)[:, [0, 2, 3]].sum(1)
    assert replaced.max() == 2  # round(0.6 * 3)
    assert replaced.float().mean() > 1.5


def test_a_distortion_treats_each_image_by_itself_and_keeps_the_digit():
    digits = torch.tensor(load_digits().data, dtype=torch.float32)
    distort = RandomDistortion((1, 8, 8))
    torch.manual_seed(0)
    whole = distort(digits[:50])
    other = digits[:50].clone()
    other[1:] = 0
    torch.manual_seed(0)
    assert torch.equal(distort(other)[0], whole[0])
    still = RandomDistortion((1, 8, 8), *([0.0] * 7))
    assert torch.allclose(still(digits[:50]), digits[:50], atol=1e-4)
    assert not torch.allclose(whole, digits[:50], atol=1.0)
    truth = load_digits().target
    known = KNeighborsClassifier(1).fit(digits[50:], truth[50:])
    assert known.score(whole, truth[:50]) > 0.3  # chance is 0.1


def linear():
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))


@pytest.mark.slow
def test_few_labels_are_enough_on_features_of_an_encoder():
    """On 40 labelled digits: a linear model on pixels, on an untrained net, on a trained one."""
    X, y = load_digits(return_X_y=True)
    small = {"degrees": 10, "scale": 0.1, "slant": 0.1, "bend": 0.1, "thickness": 0.3}
    trained = SimCLREncoder(
        32, epochs=15, augment=RandomDistortion((1, 8, 8), **small), random_state=0
    ).fit(X[:1200])
    untrained = SimCLREncoder(32, epochs=1, learning_rate=1e-9, random_state=0).fit(X[:1200])
    kept, held = slice(1200, 1240), slice(1240, None)
    score = {
        name: linear().fit(rows[kept], y[kept]).score(rows[held], y[held])
        for name, rows in [
            ("pixels", X), ("untrained", untrained.transform(X)), ("trained", trained.transform(X))
        ]
    }  # fmt: skip
    assert score["trained"] > max(score["pixels"], score["untrained"]) + 0.05, score


@pytest.mark.slow
def test_few_labels_are_enough_on_features_of_a_table():
    """Four hidden words, each behind twenty columns of noise; twenty labels for the first word."""
    rng = np.random.RandomState(0)
    hidden = rng.randint(2, size=(3000, 4)) * 2 - 1
    X, y = np.repeat(hidden, 20, axis=1) + 2.5 * rng.normal(size=(3000, 80)), hidden[:, 0]
    trained = scarf(n_components=4, epochs=15).fit(X[:2500])
    untrained = scarf(n_components=4, epochs=1, learning_rate=1e-9).fit(X[:2500])
    kept, held = slice(2500, 2520), slice(2520, None)
    score = {
        name: linear().fit(rows[kept], y[kept]).score(rows[held], y[held])
        for name, rows in [
            ("columns", X), ("untrained", untrained.transform(X)), ("trained", trained.transform(X))
        ]
    }  # fmt: skip
    assert score["trained"] > max(score["columns"], score["untrained"]) + 0.03, score


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize(("make", "rows"), FITTED)
def test_a_gpu_gives_an_encoder_for_every_machine(make, rows):
    encoder = make(device="cuda").fit(rows)
    found = encoder.transform(rows)
    encoder.device = "cpu"
    np.testing.assert_allclose(encoder.transform(rows), found, atol=1e-2)  # TF32 in convolutions
