"""The scattering transform: what it keeps, what it does not learn, and how good it is."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline

from skprivacy.neural_network import ScatteringTransformer, scattering

RNG = np.random.default_rng(0)


def test_an_image_is_transformed_by_itself(monkeypatch):
    lengths, channels = set(), scattering._channels
    monkeypatch.setattr(
        scattering, "_channels", lambda part, *w: lengths.add(len(part)) or channels(part, *w)
    )
    images = RNG.uniform(size=(70, 784))
    together = ScatteringTransformer().fit_transform(images)
    alone = ScatteringTransformer().fit(images[:1])
    for i in (0, 63, 64, 69):
        np.testing.assert_array_equal(alone.transform(images[[i]])[0], together[i])
    images[3] = np.nan
    images[5] = np.inf
    marred = ScatteringTransformer().fit_transform(images)
    others = np.setdiff1d(np.arange(70), [3, 5])
    np.testing.assert_array_equal(marred[others], together[others])
    assert lengths == {1}  # a convolution of other images too would round by their places


def test_features_are_normalised_within_an_image_and_shifts_change_little():
    image = np.zeros((1, 28, 28))
    image[0, 8:20, 13:15] = 1.0
    transformer = ScatteringTransformer().fit(image)
    features = transformer.transform(image)
    assert features.shape == (1, 81 * 49)
    assert features.dtype == np.float32
    noise = transformer.transform(100 * RNG.uniform(size=(1, 28, 28)))  # far above the floor
    assert abs(noise.mean()) < 1e-5
    assert noise.std() == pytest.approx(1.0, abs=0.01)
    pixels = np.linalg.norm(np.roll(image, 1, axis=2) - image) / np.linalg.norm(image)
    shifted = transformer.transform(np.roll(image, 1, axis=2))
    assert np.linalg.norm(shifted - features) / np.linalg.norm(features) < 0.7 * pixels


def test_black_images_and_other_shapes():
    assert not ScatteringTransformer().fit_transform(np.zeros((2, 144))).any()
    wide = ScatteringTransformer((12, 20)).fit(np.zeros((1, 240)))
    assert wide.transform(RNG.uniform(size=(3, 240))).shape == (3, 81 * 15)
    assert wide.data_independent_
    assert clone(wide).image_shape == (12, 20)
    again = pickle.loads(pickle.dumps(wide))
    rows = RNG.uniform(size=(3, 240))
    np.testing.assert_array_equal(again.transform(rows), wide.transform(rows))


@pytest.mark.parametrize(
    ("shape", "image_shape"), [((2, 100), None), ((2, 784), (28, 27)), ((2, 8, 8), None)]
)
def test_rows_that_are_no_images_are_refused(shape, image_shape):
    with pytest.raises(ValueError, match="image_shape="):
        ScatteringTransformer(image_shape).fit(np.zeros(shape))
    with pytest.raises(ValueError, match="is expecting 784 features"):
        ScatteringTransformer().fit(np.zeros((1, 784))).transform(np.zeros((1, 144)))


@pytest.mark.slow
def test_a_linear_model_on_few_images_is_better_with_it():
    digits, truth = load_digits(return_X_y=True)
    images = np.kron(digits.reshape(-1, 8, 8), np.ones((2, 2))).reshape(len(truth), 256)
    plain = RidgeClassifier().fit(images[:200], truth[:200]).score(images[200:], truth[200:])
    pipe = make_pipeline(ScatteringTransformer(), RidgeClassifier(alpha=100.0))
    assert pipe.fit(images[:200], truth[:200]).score(images[200:], truth[200:]) > plain + 0.02
