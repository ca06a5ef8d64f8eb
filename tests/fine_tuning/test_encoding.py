"""The features of a private record depend on that record alone, to the last bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler

from skprivacy.fine_tuning import ALMFineTuner, HalfWhitening, features
from skprivacy.fine_tuning.features import unit_rows
from skprivacy.mechanisms import base

from ..contracts.cases import RoundedByPlace
from ..contracts.tape import Tape, recording, replaying

RNG = np.random.default_rng(0)
N, WIDTH = 70, 20
X, Y = RNG.normal(size=(N, WIDTH)), RNG.integers(2, size=N)
PUBLIC, NEW = RNG.normal(size=(200, WIDTH)), RNG.normal(size=(1, WIDTH))
WEIGHTS = np.vstack([1e-6 * RNG.normal(size=(WIDTH, 16)), np.ones(16)]).astype(np.float32)
PLACES = pytest.mark.parametrize("place", [0, N // 2, N], ids=["first", "middle", "last"])


def blas_product(X):
    """The sum of an offset and small differences, in single precision."""
    return np.column_stack([X, np.ones(len(X))]).astype(np.float32) @ WEIGHTS


MODULE = torch.nn.Sequential(torch.nn.Linear(WIDTH, 30), torch.nn.Tanh(), torch.nn.GELU())


def torch_module(X):
    with torch.inference_mode():
        return MODULE(torch.as_tensor(X, dtype=torch.float32)).numpy()


ENCODERS = {
    "none": None,
    "rounded by place": RoundedByPlace(),
    "pipeline": FrozenEstimator(make_pipeline(StandardScaler(), RoundedByPlace()).fit(PUBLIC)),
    "frozen pipeline": FrozenEstimator(
        make_pipeline(StandardScaler(), PCA(8), HalfWhitening()).fit(PUBLIC)
    ),
    "blas": FunctionTransformer(blas_product),
    "torch": FunctionTransformer(torch_module),
    "norms": Normalizer(),
}


def tuner(encoder, head="prototypes"):
    return ALMFineTuner(encoder, head, classes=[0, 1], epsilon=1.0, delta=1e-6)


def rows_of(fitted, X):
    return fitted._records(X, np.zeros(len(X), int)).rows


def with_new(X, place):
    if isinstance(X, pd.DataFrame):
        new = X.iloc[[3]].assign(number=0.37)
        return pd.concat([X.iloc[:place], new, X.iloc[place:]], ignore_index=True)
    return np.insert(X, place, NEW.astype(X.dtype), axis=0)


@pytest.fixture
def short_parts(monkeypatch):
    """Sixteen records at a time, so that an insertion moves records to other parts."""
    monkeypatch.setattr(base, "_AT_A_TIME", 16)


@pytest.mark.heavy
@pytest.mark.usefixtures("short_parts")
@PLACES
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
def test_one_more_record_changes_no_other_row(encoder, dtype, place):
    records = X.astype(dtype)
    fitted = tuner(encoder).fit(records, Y, X_public=PUBLIC)
    others = np.delete(rows_of(fitted, with_new(records, place)), place, axis=0)
    np.testing.assert_array_equal(others, rows_of(fitted, records))


@pytest.mark.heavy
@PLACES
def test_one_more_record_changes_no_other_row_of_a_table(place):
    table = pd.DataFrame({"number": X[:, 0], "word": RNG.choice(["a", "b"], N)})
    columns = ColumnTransformer([("n", StandardScaler(), ["number"]), ("w", OneHotEncoder(), [1])])
    encoder = FrozenEstimator(make_pipeline(columns, RoundedByPlace()).fit(table))
    fitted = tuner(encoder).fit(table, Y, X_public=table.copy())
    others = np.delete(rows_of(fitted, with_new(table, place)), place, axis=0)
    np.testing.assert_array_equal(others, rows_of(fitted, table))


@pytest.mark.heavy
@PLACES
@pytest.mark.parametrize("head", ["prototypes", "least_squares", "gradient"])
@pytest.mark.parametrize("encoder", ["rounded by place", "blas"])
def test_one_record_moves_a_release_by_its_sensitivity_at_most(head, encoder, place):
    """Half-whitening multiplies the rounding beside an offset: the other records must not move."""
    first, second = Tape(), Tape()
    with recording(first):
        tuner(ENCODERS[encoder], head).fit(X, Y, X_public=PUBLIC)
    with replaying(first, second):
        tuner(ENCODERS[encoder], head).fit(
            with_new(X, place), np.insert(Y, place, 1), X_public=PUBLIC
        )
    assert len(first.inputs) == len(second.inputs) > 0
    for mechanism, one, other in zip(first.mechanisms, first.inputs, second.inputs, strict=True):
        assert np.linalg.norm(one - other) <= mechanism.sensitivity


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", sorted(features._NUMBER_BY_NUMBER, key=str))
def test_transformers_of_single_numbers_round_no_row_by_others(kind, order):
    values = np.asarray(RNG.integers(5, size=(40, 3)) / 7, order=order)
    step = kind().fit(values)
    together = features.encode_together(step, values)
    alone = [features.encode_together(step, values[[i]]) for i in range(len(values))]
    np.testing.assert_array_equal(together, np.concatenate(alone))


def test_encoders_that_compute_records_apart_are_called_once():
    apart, mixed = make_pipeline(StandardScaler(), HalfWhitening()), make_pipeline(PCA())
    assert features._split_steps(FrozenEstimator(apart.fit(X)))[1] is None
    assert features._split_steps(mixed.fit(X))[0] is None
    first, rest = features._split_steps(
        make_pipeline(StandardScaler(), PCA(), StandardScaler()).fit(X)
    )
    assert (len(first), len(rest)) == (1, 2)


class Overridden(HalfWhitening):
    def transform(self, X):
        return super().transform(X)


def test_a_subclass_of_an_encoder_that_computes_records_apart_is_called_for_each():
    assert features._split_steps(Overridden().fit(X))[0] is None


def test_a_product_without_rounding_is_that_of_fractions():
    rows = unit_rows(RNG.normal(size=(3, 9)))[0]
    rows = np.rint(np.ldexp(rows, 26)) * 2.0**-26
    matrix = RNG.normal(size=(9, 4)) * [1e-9, 1.0, 300.0, 0.0]
    found = base.exact_map(rows, matrix, 26)
    # Each column loses less than 2**-26 of its norm in each of its numbers.
    scale = np.linalg.norm(matrix, axis=0) + (matrix == 0).all(axis=0)
    np.testing.assert_allclose(found / scale, rows @ matrix / scale, rtol=0, atol=9 * 2.0**-26)
    rounded = base.exact_map(np.eye(9), matrix, 26)
    for i, j in np.ndindex(found.shape):
        terms = [Fraction(rows[i, k]) * Fraction(rounded[k, j]) for k in range(9)]
        assert Fraction(found[i, j]) == sum(terms)


def test_half_whitening_rounds_no_row_by_others():
    """A product of one row with a matrix rounds otherwise than one of many rows."""
    whitening, records = HalfWhitening().fit(PUBLIC), RNG.normal(size=(N, WIDTH))
    together = whitening._scaled(records)
    np.testing.assert_array_equal(
        together, np.concatenate([whitening._scaled(records[[i]]) for i in range(N)])
    )


def test_half_whitening_loses_little_to_its_grid():
    """Over deviations from 1 down to 1e-4, rows differ by less than the grid of 2**-16."""
    public = RNG.normal(size=(500, 30)) * np.geomspace(1, 1e-4, 30) + 5
    whitening = HalfWhitening().fit(public)
    exact = unit_rows((public - whitening.mean_) @ whitening.components_)[0]
    np.testing.assert_allclose(whitening.transform(public), exact, rtol=0, atol=2.0**-16)


def test_a_long_row_has_the_same_norm_alone():
    rows = RNG.normal(size=(30, 9000))
    alone = [base.row_norms(rows[[i]])[0] for i in range(len(rows))]
    np.testing.assert_array_equal(base.row_norms(rows), alone)
    np.testing.assert_array_equal(base.row_norms(np.asfortranarray(rows)), alone)
