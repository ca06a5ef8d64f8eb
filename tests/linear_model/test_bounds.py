"""Records in the unit ball, exactly; sums without rounding."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skprivacy._groups import check_groups
from skprivacy.mechanisms.base import UnitBall, check_bounds, exact_product, quantize

numbers = st.floats(allow_nan=True, allow_infinity=True)


@pytest.mark.heavy
@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=4),
    radius=st.sampled_from([0.01, 0.5, 1.0, 1.7]),
    intercept=st.sampled_from([0.0, 0.5, 3.0]),
)
def test_rows_are_in_the_unit_ball_exactly(rows, radius, intercept):
    ball = UnitBall((0.0, -1.0, 5.0), (1.0, 10.0, 5.0), radius, intercept)
    transformed, weights = ball.transform(np.array(rows))
    for row, original, weight in zip(transformed, rows, weights, strict=True):
        assert sum(Fraction(x) ** 2 for x in row) <= 1
        assert np.abs(row).sum() <= ball.l1_radius + 1e-12
        assert ((row * 2**16) % 1 == 0).all()
        assert 0 <= weight < 1
        if np.isnan(original).any():
            assert weight == 0
            assert not row.any()


@pytest.mark.heavy
@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=60),
    radius=st.sampled_from([0.01, 1.0, 1.7]),
    intercept=st.sampled_from([0.0, 0.5]),
)
def test_the_rows_of_a_group_are_in_the_unit_ball_together_exactly(rows, radius, intercept):
    """As a mean of rows each of which is: the sum of their squares is at most 1, not just about."""
    ball = UnitBall((0.0, -1.0, 5.0), (1.0, 10.0, 5.0), radius, intercept)
    shares = check_groups(np.zeros(len(rows)), rows).exact_shares()
    transformed, weights = ball.transform(np.array(rows), shares)
    exact = [[Fraction(x) for x in (*row, w)] for row, w in zip(transformed, weights, strict=True)]
    assert sum(x**2 for row in exact for x in row[:-1]) <= 1
    assert sum(row[-1] ** 2 for row in exact) <= 1
    for *row, weight in exact:
        assert sum(x**2 for x in row) <= Fraction(shares[0])
        assert weight**2 <= Fraction(shares[0])
        assert all((x * 2**16).denominator == 1 for x in row)


def test_sums_are_exact_in_any_order():
    rng = np.random.default_rng(0)
    X = quantize(rng.uniform(-1, 1, size=(3000, 7)) / 3)
    y = quantize(rng.uniform(-1, 1, size=(3000, 2)))
    forwards = exact_product(X, y)
    order = rng.permutation(3000)
    assert (exact_product(X[order], y[order]) == forwards).all()
    integers = (X * 2**16).astype(int).astype(object).T @ (y * 2**16).astype(int).astype(object)
    assert (integers / 2**32 == forwards).all()


def test_unquantised_sums_depend_on_the_order():
    """Why rows are quantised: the planted bug is any ordinary dot product."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(3000, 7)) / 3
    order = rng.permutation(3000)
    assert (exact_product(X, X) != exact_product(X[order], X[order])).any()


def test_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    X = quantize(rng.uniform(-1, 1, size=(100, 3)))
    whole = exact_product(X, X)
    monkeypatch.setattr("skprivacy.mechanisms.base._ROWS", 7)
    assert (exact_product(X, X) == whole).all()


@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_coefficients_undo_the_map(intercept):
    rng = np.random.default_rng(0)
    ball = UnitBall((0.0, -1.0, 5.0), (1.0, 10.0, 7.0), 1.2, intercept)
    X = rng.uniform(ball.lower, ball.upper, size=(50, 3))
    rows, weights = ball.transform(X)
    solution = rng.normal(size=(ball.size, 2))
    coef, constant = ball.coefficients(solution)
    np.testing.assert_allclose(
        (rows @ solution) / weights[:, None], X @ coef.T + constant, atol=1e-3
    )


TURNED = r"tuple\(numpy\.transpose\(pairs\)\)|numpy\.transpose"
AMBIGUOUS = r"ambiguous for two features.*\(numpy\.array\(lower\), numpy\.array\(upper\)\)"


@pytest.mark.parametrize(
    ("bounds", "n_features", "said"),
    [
        ([(0, 1), (0, 10), (5, 6)], 3, TURNED),
        ([(0, 1), (-5, -1)], 2, TURNED),  # pairs alone make sense
        ((1, 0), 3, "must be a pair"),
        (([0, 1], [2]), 3, "must be a pair"),
        (([0, 0], [1, 1]), 3, "must be a pair"),
        ([(0, 1), (0, 10)], 2, AMBIGUOUS),  # lower=(0, 1), upper=(0, 10): a constant, and 1 to 10
        (((0, 1), (2, 10)), 2, AMBIGUOUS),
        ([[0, 1], [2, 10]], 2, AMBIGUOUS),
        (np.array([[0, 1], [2, 10]]), 2, AMBIGUOUS),
        ([np.array([0, 1]), np.array([2, 10])], 2, AMBIGUOUS),  # rows of an array of pairs
    ],
)
def test_wrong_bounds_are_told_apart(bounds, n_features, said):
    with pytest.raises(ValueError, match=said) as error:
        check_bounds("bounds", bounds, n_features)
    assert ("transpose" in str(error.value)) == (said != "must be a pair")


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (np.transpose([(0, 1), (0, 10), (5, 6)]), ([0, 0, 5], [1, 10, 6])),
        (tuple(np.transpose([(0, 1), (2, 10)])), ([0, 2], [1, 10])),
        ((np.array([0, 1]), np.array([2, 10])), ([0, 1], [2, 10])),
        (([0, 0], [120, 200]), ([0, 0], [120, 200])),  # one sensible reading
        ([[-1, -1], [1, 1]], ([-1, -1], [1, 1])),
        (((3, 1), (4, 5)), ([3, 1], [4, 5])),
        (([0, 1], [1, 9]), ([0, 1], [1, 9])),
    ],
)
def test_bounds_are_lower_and_upper(bounds, expected):
    lower, upper = check_bounds("bounds", bounds, len(expected[0]))
    assert (lower.tolist(), upper.tolist()) == expected
