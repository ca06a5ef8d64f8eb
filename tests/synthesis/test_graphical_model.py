"""The graphical model against sums over all cells."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from skprivacy.synthesis.graphical_model import (
    GraphicalModel,
    JunctionTree,
    Measurement,
    count_junction_tree_cells,
    sample_conditional,
)

SIZES = [2, 3, 4, 2, 3]
CLIQUES = {
    "tree": [(0, 1), (1, 2), (1, 3), (3, 4)],
    "loop": [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)],
    "in parts": [(0, 1), (2, 4), (3,)],
    "with a label": [(0, 1, 4), (2, 3, 4), (0, 4), (1, 2, 4)],
}


def joint(model):
    """Return the probabilities of all cells, by their potentials alone."""
    log = np.zeros(SIZES)
    for potential, m in zip(model.potentials, model.measurements, strict=True):
        log += potential.reshape([SIZES[c] if c in m.columns else 1 for c in range(len(SIZES))])
    cells = np.exp(log - log.max())
    return cells / cells.sum()


def random_model(cliques, seed=0, size=1.0):
    rng = np.random.default_rng(seed)
    tables = [rng.uniform(1, 9, size=[SIZES[c] for c in clique]) for clique in cliques]
    found = [Measurement(c, t, 1.0) for c, t in zip(cliques, tables, strict=True)]
    model = GraphicalModel(SIZES, found, 100.0)
    model.potentials = [size * rng.normal(size=t.shape) for t in tables]
    return model


def summed(cells, columns):
    return cells.sum(axis=tuple(c for c in range(len(SIZES)) if c not in columns))


@pytest.mark.parametrize("name", CLIQUES)
@pytest.mark.parametrize("size", [1.0, 300.0])  # 300: products of rows would underflow
def test_beliefs_are_those_of_the_whole_table(name, size):
    model = random_model(CLIQUES[name], size=size)
    cells = joint(model)
    for clique, belief in zip(model.tree.cliques, model.beliefs(), strict=True):
        np.testing.assert_allclose(belief, summed(cells, clique), atol=1e-12)


@pytest.mark.parametrize("name", CLIQUES)
def test_a_junction_tree_holds_every_clique_and_its_columns_hang_together(name):
    tree = JunctionTree.from_cliques(CLIQUES[name], SIZES)
    for clique in CLIQUES[name]:
        assert any(set(clique) <= set(c) for c in tree.cliques)
    seen = set()
    for i, parent, separator in tree.order:
        inside = set(tree.cliques[i]) & seen
        assert inside == set(separator)  # nothing known that the parent does not say
        assert parent is None or inside <= set(tree.cliques[parent])
        seen |= set(tree.cliques[i])
    assert seen == set(range(len(SIZES)))
    cells = sum(math.prod(SIZES[c] for c in clique) for clique in tree.cliques)
    assert count_junction_tree_cells(CLIQUES[name], SIZES) == cells


@pytest.mark.parametrize("name", CLIQUES)
def test_a_fit_finds_the_marginals_of_a_table_that_fits(name):
    """Consistent and almost exact tables are met."""
    rng = np.random.default_rng(1)
    cells = rng.dirichlet(np.ones(math.prod(SIZES))).reshape(SIZES) * 1e5
    measured = [Measurement(c, summed(cells, c), 1.0) for c in CLIQUES[name]]
    model = GraphicalModel(SIZES, measured, 1e5).fit(500)
    beliefs = model.beliefs()
    for m in measured:
        found = 1e5 * model.marginal(m.columns, beliefs)
        assert np.abs(found - m.table).max() < 5.0


@pytest.mark.parametrize("std", [1e-3, 1.0, 1e4])
def test_a_fit_survives_tables_that_contradict_each_other(std):
    rng = np.random.default_rng(2)
    measured = [
        Measurement(c, rng.normal(0, std, size=[SIZES[i] for i in c]), std) for c in CLIQUES["loop"]
    ]
    model = GraphicalModel(SIZES, measured, 1.0).fit(50)
    for belief in model.beliefs():
        assert np.isfinite(belief).all()
        assert math.isclose(belief.sum(), 1.0)


def test_the_less_noisy_of_two_tables_is_trusted_more():
    near, far = np.array([900.0, 100.0]), np.array([100.0, 900.0])
    measured = [Measurement((0,), near, 1.0), Measurement((0,), far, 100.0)]
    model = GraphicalModel([2], measured, 1000.0).fit(200)
    assert model.beliefs()[0][0] > 0.85


@pytest.mark.parametrize("name", CLIQUES)
def test_samples_have_the_marginals_of_the_model(name):
    model = random_model(CLIQUES[name])
    codes = model.sample(50_000, np.random.RandomState(0))
    cells = joint(model)
    for a, b in product(range(len(SIZES)), repeat=2):
        if a < b:
            found = np.zeros((SIZES[a], SIZES[b]))
            np.add.at(found, (codes[:, a], codes[:, b]), 1 / len(codes))
            assert np.abs(found - summed(cells, (a, b))).sum() / 2 < 0.03


def test_systematic_draws_are_within_one_of_what_is_expected():
    table = np.array([[0.2, 0.5, 0.3], [0.0, -1.0, 0.0]])
    rows = np.repeat([0, 1], [1000, 300])
    columns = sample_conditional(table, rows, np.random.RandomState(0))
    assert np.abs(np.bincount(columns[:1000], minlength=3) - [200, 500, 300]).max() <= 1
    assert np.abs(np.bincount(columns[1000:], minlength=3) - 100).max() <= 1
    # Values go to records at random: no run of equal ones, as in plain systematic draws.
    assert (np.diff(columns[:1000]) != 0).sum() > 400
