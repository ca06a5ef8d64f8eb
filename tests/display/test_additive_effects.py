"""Panels of an additive model: shapes over columns, their noise bands and their names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skprivacy.additive_model import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from skprivacy.display import PrivateAdditiveDisplay
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

pytest.importorskip("matplotlib").use("Agg")

COLUMNS = {
    "age": BoundedColumn(0, 90, missing=True),
    "kind": CategoricalColumn(["x$y", "y", "z"]),
    "size": BoundedColumn(0, 1),
}


def table(n=3000):
    rng = np.random.default_rng(0)
    age = np.where(rng.uniform(size=n) < 0.1, np.nan, rng.uniform(0, 90, n))
    kinds = np.array(["x$y", "y", "z"])[rng.integers(3, size=n)]
    X = pd.DataFrame({"age": age, "kind": kinds, "size": rng.uniform(size=n)})
    return X, (X["age"] > 45).to_numpy() ^ (X["size"] > 0.5).to_numpy()


@pytest.fixture(scope="module")
def model():
    X, y = table()
    return PrivateAdditiveClassifier(5.0, 1e-6, schema=Schema(COLUMNS, classes=[False, True])).fit(
        X, y
    )


def test_each_effect_has_a_panel(model):
    display = PrivateAdditiveDisplay.from_estimator(model)
    assert len(display.axes_) == len(model.effects_)
    assert all(ax.get_xlabel() in COLUMNS for ax in display.axes_)
    fewer = PrivateAdditiveDisplay.from_estimator(model, max_effects=2)
    assert len(fewer.effects) == 2
    assert [e.size for e in fewer.effects] == sorted((e.size for e in fewer.effects), reverse=True)


def test_a_curve_is_the_effect_and_its_band_is_two_standard_deviations(model):
    display = PrivateAdditiveDisplay.from_estimator(model, ["age"])
    (effect,) = (e for e in model.effects_ if e.columns == ("age",))
    ax = display.axes_[0]
    values, edges, _ = ax.patches[0].get_data()
    n = len(values)
    np.testing.assert_array_equal(values, effect.scores[:n, 0])
    assert (edges[0], edges[-1]) == (0, 90)
    assert len(effect.scores) == n + 1  # the last bin holds missing values, to the right
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    highest = (effect.scores + 2 * effect.noise_std)[:n].max()
    assert band.max() == pytest.approx(highest)
    assert any(container.lines[0].get_xdata()[0] > 90 for container in ax.containers)


def test_categories_have_points_under_their_names(model):
    display = PrivateAdditiveDisplay.from_estimator(model, ["kind"])
    names = [text.get_text() for text in display.axes_[0].get_xticklabels()]
    assert sorted(name.replace("\\", "") for name in names) == ["x$y", "y", "z"]


def test_cells_of_a_pair_within_the_noise_are_faded(model):
    (pair, *_) = (e for e in model.effects_ if len(e.columns) == 2)
    display = PrivateAdditiveDisplay.from_estimator(model, [pair.columns])
    mesh = display.axes_[0].collections[0]
    np.testing.assert_allclose(np.ravel(mesh.get_array()), pair.scores[..., 0].T.ravel())
    clear = np.ravel(mesh.get_alpha()) == 1
    np.testing.assert_array_equal(
        clear, (np.abs(pair.scores) > 2 * pair.noise_std)[..., 0].T.ravel()
    )


def test_every_class_has_a_curve_and_a_target_has_one():
    X, y = table()
    three = np.where(X["age"] > 60, "old", np.where(y, "odd", "even"))
    schema = Schema(COLUMNS, classes=["even", "odd", "old"])
    model = PrivateAdditiveClassifier(5.0, 1e-6, schema=schema).fit(X, three)
    display = PrivateAdditiveDisplay.from_estimator(model, ["size"])
    assert [t.get_text() for t in display.axes_[0].get_legend().texts] == ["even", "odd", "old"]
    numbers = PrivateAdditiveRegressor(5.0, 1e-6, schema=Schema(COLUMNS, target_bounds=(0, 1)))
    display = PrivateAdditiveDisplay.from_estimator(numbers.fit(X, y.astype(float)), ["size"])
    assert display.axes_[0].get_legend() is None


def test_undrawable_effects_are_refused(model):
    with pytest.raises(ValueError, match="no effect of \\('weight',\\)"):
        PrivateAdditiveDisplay.from_estimator(model, ["weight"])
    with pytest.raises(TypeError, match="fitted PrivateAdditive"):
        PrivateAdditiveDisplay.from_estimator(PrivateAdditiveClassifier())
    display = PrivateAdditiveDisplay.from_estimator(model, ["age", "kind"])
    with pytest.raises(ValueError, match="1 panels for 2 effects"):
        display.plot(axes=display.axes_[:1])
