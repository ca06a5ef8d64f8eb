"""Bins of columns at several resolutions, from noisy counts and effects."""

import numpy as np
import pytest

from skprivacy.additive_model.effects import RESOLUTIONS, choose_levels
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn
from skprivacy.synthesis.domain import ColumnCells, Grid, ValueCells, make_number_cells


def numeric(n_cells=100, missing=False):
    cells = make_number_cells(BoundedColumn(0, 1), Grid(cells=n_cells), False)
    return ColumnCells("x", cells, None, missing)


@pytest.mark.parametrize("missing", [False, True])
def test_each_level_has_few_bins_of_about_equal_counts(missing):
    column = numeric(missing=missing)
    counts = np.random.default_rng(0).gamma(2.0, 50.0, column.size)
    bins = choose_levels(column, counts, np.zeros((column.size, 1)), 0.0)
    for level, most in enumerate(RESOLUTIONS):
        assert most / 2 < bins.size(level) - missing <= most
        joined = bins.levels[level][bins.cells]
        assert (np.diff(joined[: column.cells.size]) >= 0).all()  # of neighbours
        assert bins.n_ordered(level) == bins.size(level) - missing
        mass = np.bincount(joined[: column.cells.size], counts[: column.cells.size])
        assert mass.max() < 3 * counts.sum() / most
        starts = bins.starts(level)
        assert (bins.levels[level][starts] == np.arange(bins.size(level))).all()
    if missing:
        assert (bins.cells == bins.cells[-1]).sum() == 1


def test_few_values_have_the_same_bins_at_several_levels():
    bins = choose_levels(numeric(6), np.full(6, 100.0), np.zeros((6, 1)), 0.0)
    assert [bins.size(level) for level in range(len(RESOLUTIONS))] == [6, 6, 6, 3]


def test_categories_of_like_effect_share_a_bin():
    names = [f"v{i}" for i in range(64)]
    column = ColumnCells("kind", ValueCells(CategoricalColumn(names)), None, False)
    effect = np.random.default_rng(0).permutation(64).astype(float)[:, None]
    bins = choose_levels(column, np.full(64, 10.0), effect, 0.0)
    coarse = bins.levels[-1][bins.cells]
    order = np.argsort(effect[:, 0])
    changes = np.count_nonzero(np.diff(coarse[order]))
    assert changes == bins.size(len(RESOLUTIONS) - 1) - 1
    assert bins.n_ordered(0) == 0


def test_noisy_counts_below_zero_are_no_obstacle():
    column = numeric()
    counts = np.random.default_rng(0).normal(0.0, 5.0, column.size)
    bins = choose_levels(column, counts, np.zeros((column.size, 1)), 0.0)
    assert 1 <= bins.n_bins <= RESOLUTIONS[0]


def test_bins_are_wider_where_counts_are_noisy():
    column = numeric()
    counts = np.full(column.size, 10.0)
    bins = choose_levels(column, counts, np.zeros((column.size, 1)), 120.0)
    assert np.bincount(bins.cells, counts).min() >= 120.0
    assert 7 <= bins.n_bins <= 8  # 1,000 records
