"""Bad input gets a clear error, and costs nothing."""

from __future__ import annotations

import ast
import re
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import skprivacy
from skprivacy._clones import describe_error
from skprivacy._validation import raise_alone
from skprivacy.accounting import GaussianEvent, PrivacyBudget, RepeatedEvent
from skprivacy.accounting.events import TreeAggregationEvent
from skprivacy.ensemble import PATEClassifier, PrivateKNNClassifier
from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.mechanisms import FloatGaussian, Laplace, SecureRandom
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.matrix_gaussian import MatrixGaussian
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.preprocessing import (
    PrivateStandardScaler,
    private_count,
    private_histogram,
    private_mean,
    private_quantile,
    private_sum,
    private_variance,
)

from ..contracts.cases import CASES
from ..contracts.cases import LABELS as LABEL_CASES

NUMBERS = np.linspace(-1, 1, 60).reshape(20, 3)
LABELS = np.arange(20) % 2
TEXT = np.array([["ill", 1, 2]] * 20, dtype=object)
DATES = pd.DataFrame({"born": pd.date_range("2020", periods=20), "age": range(20)})


def networks():
    pytest.importorskip("torch")
    from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor

    return [DPSGDClassifier(classes=[0, 1]), DPSGDRegressor(target_bounds=(0, 1))]


def estimators():
    for kind in (AdaSSPRegressor, FunctionalMechanismRegressor):
        yield kind(bounds=(-1, 1), target_bounds=(0, 1))
    for kind in (
        FunctionalMechanismClassifier,
        ObjectivePerturbationClassifier,
        OutputPerturbationClassifier,
    ):
        yield kind(bounds=(-1, 1), classes=[0, 1])
    yield PrivateStandardScaler(bounds=(-1, 1))
    yield from networks()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (TEXT, LABELS, "X holds text or dates; expected numbers.*SchemaTransformer"),
        (DATES, LABELS, r"X holds text or dates in the columns \['born'\]"),
        (sparse.csr_matrix(NUMBERS), LABELS, "Sparse data was passed"),
        (sparse.csr_array(NUMBERS), LABELS, "Sparse data was passed"),
        (NUMBERS[:0], LABELS[:0], "minimum of 1 is required"),
        (NUMBERS[:, :0], LABELS, "minimum of 1 is required"),
        (NUMBERS[:, 0], LABELS, "Reshape your data"),
        (pd.DataFrame(NUMBERS, columns=list("aab")), LABELS, "more than one column named 'a'"),
    ],
)
def test_estimators_refuse_records_that_are_none(X, y, message):
    for estimator in estimators():
        budget = PrivacyBudget(1e3, 0.01)
        with pytest.raises((ValueError, TypeError), match=message):
            estimator.set_params(budget=budget).fit(X, y)
        assert budget.entries().empty


@pytest.mark.parametrize(
    "y",
    [
        LABELS[:-1], np.full(20, "ill"), np.full(20, np.nan), LABELS + 0.5,
        np.ones((20, 2, 1)),
    ],
)  # fmt: skip
def test_estimators_refuse_targets_that_are_none(y):
    for estimator in estimators():
        if isinstance(estimator, PrivateStandardScaler):
            continue
        if np.ravel(y)[0] == 0.5 and not hasattr(estimator, "classes"):
            continue
        budget = PrivacyBudget(1e3, 0.01)
        with pytest.raises(ValueError, match=r"\by\b|label type|inconsistent|dim 3"):
            estimator.set_params(budget=budget).fit(NUMBERS, y)
        assert budget.entries().empty


ALL = {**CASES, **LABEL_CASES}
# A scaler takes no y; the loss of a DPNeuralNet decides what a target may be, and ignores a record
# without a finite one; a synthesizer leaves out a record without a value, of whatever column.
OTHERWISE = ("PrivateStandardScaler", "DPNeuralNet", "MarginalSynthesizer", "DPGANSynthesizer")


@pytest.mark.everyday(16)
@pytest.mark.heavy
@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith(OTHERWISE)])
def test_a_missing_target_is_told_of_y(name):
    X, y = ALL[name].data(40)
    y = np.array(y, dtype=float if y.dtype.kind in "iuf" else object)
    y[3] = np.nan
    budget = PrivacyBudget(epsilon=100, delta=1e-2)
    with pytest.raises(ValueError, match=r"\by\b.*(NaN|missing|finite)"):
        ALL[name].make(budget=budget).fit(X, y)
    assert budget.entries().empty


@pytest.mark.heavy
@pytest.mark.parametrize("missing", [None, pd.NA, pd.NaT, Decimal("NaN")], ids=repr)
@pytest.mark.parametrize(
    "name", ["AdaSSPRegressor", "DPSGDRegressor", "OutputPerturbationClassifier"]
)
def test_whatever_stands_for_it(name, missing):
    """None became NaN after the check, was charged, and no model came of it."""
    X, y = ALL[name].data(40)
    y = y.astype(object)
    y[3] = missing
    budget = PrivacyBudget(epsilon=100, delta=1e-2)
    with pytest.raises(ValueError, match=r"y contains NaN or another missing value"):
        ALL[name].make(budget=budget).fit(X, y)
    assert budget.entries().empty


STATISTICS = [
    private_count,
    partial(private_mean, bounds=(0, 1)),
    partial(private_sum, bounds=(0, 1)),
    partial(private_variance, bounds=(0, 1)),
    partial(private_quantile, quantile=0.5, bounds=(0, 1)),
    partial(private_histogram, bins=[0, 1]),
]


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (["ill", "well"], "holds text or dates; expected numbers|expected booleans"),
        (pd.Series(pd.date_range("2020", periods=3)), "holds text or dates|expected booleans"),
        (np.ma.masked_array([0.0, 1.0], [True, False]), "is a masked array"),
        (sparse.csr_matrix(NUMBERS), "(?i)sparse"),
        (sparse.csr_array(NUMBERS), "(?i)sparse"),
        (np.array([1 + 1j]), "(?i)complex"),
    ],
)
def test_statistics_refuse_what_is_no_column_of_numbers(statistic, x, message):
    budget = PrivacyBudget(1e3)
    with pytest.raises((ValueError, TypeError), match=message):
        statistic(x, epsilon=1.0, budget=budget)
    assert budget.entries().empty


def test_classes_as_the_target_of_a_regressor_are_refused_with_a_remedy():
    budget = PrivacyBudget(1e3)
    model = AdaSSPRegressor(bounds=(-1, 1), target_bounds=(0, 1), budget=budget)
    with pytest.raises(ValueError, match=r"y holds text or dates; .* choose a classifier"):
        model.fit(NUMBERS, np.resize(["ill", "well"], len(NUMBERS)))
    assert budget.entries().empty


def test_numbers_that_are_written_as_text_pass():
    X = np.array([["1", "0.5"], ["-1", "nan"]] * 10, dtype=object)
    model = AdaSSPRegressor(bounds=(-1, 1), target_bounds=(0, 1)).fit(X, LABELS)
    assert model.coef_.shape == (2,)
    assert 0 <= private_mean(["0.5", "1"], bounds=(0, 1), epsilon=1.0).value <= 1


PRINTING = re.compile(
    r"\b(check_array|check_X_y|column_or_1d|check_consistent_length|type_of_target"
    r"|check_classification_targets|indexable|ClassifierMixin|RegressorMixin)\b"
)


@pytest.mark.heavy
def test_one_file_imports_what_prints_records():
    """scikit-learn's own functions show arrays and labels in their errors."""
    for file in Path(skprivacy.__file__).parent.rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
        of_scikit_learn = [node for node in imports if (node.module or "").startswith("sklearn")]
        found = [
            alias.name
            for node in of_scikit_learn
            for alias in node.names
            if PRINTING.match(alias.name)
        ]
        assert not found or file.name == "_input_data.py", f"{file.name} imports {found}"


def failing(call):
    try:
        call()
    except Exception as error:
        return describe_error(error)


def test_an_error_of_another_author_is_told_without_its_text():
    own = failing(lambda: AdaSSPRegressor(epsilon=-1).fit([[1.0]], [1.0]))
    assert own.startswith("The 'epsilon' parameter of AdaSSPRegressor must be a float")
    own = failing(lambda: private_mean(NUMBERS, bounds=(1, 0), epsilon=1.0))
    assert own.startswith("bounds=(1, 0) must be")
    counted = failing(lambda: LogisticRegression().fit(NUMBERS, LABELS).predict([[1.0]]))
    assert "X has 1 features, but LogisticRegression is expecting 3 features" in counted
    told = failing(lambda: LogisticRegression().fit([["a secret"]], [0]))
    assert "secret" not in told
    assert re.match(r"ValueError in sklearn/.*, line \d+, 'could not convert string to", told)
    told = failing(lambda: pd.to_datetime("a secret"))
    assert "secret" not in told
    assert re.match(r"\w+ in [\w/.]+, line \d+; its text is left out", told)


def test_an_error_is_raised_without_the_one_that_it_replaces():
    def replaced():
        try:
            float("a secret")
        except ValueError:
            raise_alone(ValueError("fine"))

    with pytest.raises(ValueError, match="fine") as raised:
        replaced()
    assert raised.value.__context__ is None
    assert raised.value.__cause__ is None


ROWS = np.random.default_rng(0).random((40, 2))


def masked(values):
    hidden = np.arange(np.size(values)) % 7 == 0
    return np.ma.masked_array(values, mask=hidden.reshape(np.shape(values)))


@pytest.mark.everyday(16)
@pytest.mark.heavy
@pytest.mark.parametrize("name", ALL)
def test_masked_records_and_targets_are_refused_at_no_cost(name):
    case = ALL[name]
    X, y = case.data(60)
    budget = PrivacyBudget(1e6, 1e-3)
    with pytest.raises(ValueError, match="X is a masked array"):
        case.make(budget=budget).fit(masked(X), y)
    if y is not None and not isinstance(case.make(), PrivateStandardScaler):
        with pytest.raises(ValueError, match="y is a masked array"):
            case.make(budget=budget).fit(X, masked(y))
    assert len(budget.entries()) == 0


def test_masked_groups_and_public_records_are_refused():
    y, public = np.arange(40) % 2, ROWS + 1.0
    with pytest.raises(ValueError, match="groups is a masked array"):
        PATEClassifier(classes=[0, 1]).fit(ROWS, y, X_public=public, groups=masked(np.arange(40)))
    for kind in (PATEClassifier, PrivateKNNClassifier, ALMFineTuner):
        with pytest.raises(ValueError, match="X_public is a masked array"):
            kind(classes=[0, 1]).fit(ROWS, y, X_public=masked(public))


def test_masked_values_are_not_released():
    with pytest.raises(ValueError, match="is a masked array"):
        Laplace(1.0, sensitivity=1.0).release(masked(np.zeros(4)), SecureRandom())


def test_dates_are_no_targets():
    dates = np.arange(40).astype("datetime64[D]")
    for y in (dates, dates - dates[0]):
        with pytest.raises(ValueError, match="y holds text or dates"):
            AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1)).fit(ROWS, y)


def test_numbers_of_numpy_are_numbers():
    budget = PrivacyBudget(np.int64(3), np.float32(0.5))
    assert budget.cap == (3.0, 0.5)
    assert budget.scope("adult", np.int64(1), np.float32(0.25)).cap == (1.0, 0.25)
    for number in (np.int64(2), np.float32(2), np.float64(2)):
        event = RepeatedEvent(GaussianEvent(number), np.int64(4))
        assert event == RepeatedEvent(GaussianEvent(2.0), 4)
        assert event.to_dict() == RepeatedEvent(GaussianEvent(2.0), 4).to_dict()
        budget.reserve(event)
    assert len(budget.entries()) == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "mechanism",
    [
        FloatGaussian(1.0, 1.0),
        FloatLogistic(1.0, 1.0),
        RoundedGaussian(1.0, 1.0),
        MatrixGaussian(TreeAggregationEvent(1.0, 4, 1), 1.0),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_values_that_no_noise_hides_are_not_released(mechanism, bad):
    value = np.array([0.0, bad, 1.0], np.float32)
    before = value.copy()
    with pytest.raises(ValueError, match="value holds NaN or infinity"):
        mechanism.release(value, SecureRandom())
    np.testing.assert_array_equal(value, before)
