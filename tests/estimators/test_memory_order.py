"""Equal records get equal answers, whatever the memory order that they are stored in."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from skprivacy._input_data import make_row_major
from skprivacy._sklearn import safe_indexing
from skprivacy.attacks import LabeledRecords, LiRA, LossThreshold
from skprivacy.attacks.record_tables import as_records, concat
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    ObjectivePerturbationClassifier,
)
from skprivacy.neural_network import DPSGDClassifier

random = np.random.default_rng(0)
# As many columns as make BLAS round the two orders differently in each of its kernels.
X = random.uniform(-1, 1, size=(700, 23))
Y = (X @ random.normal(size=23) + random.normal(size=700) > 0).astype(int)
FORMS = {
    "columns": np.asfortranarray,
    "frame": pd.DataFrame,
    "rows apart": lambda rows: np.repeat(rows, 2, axis=0)[::2],
}
LINEAR = {"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1)}
CLASSES = {"classes": [0, 1], "epsilon": 1.0, "delta": 1e-6}
MODELS = [
    AdaSSPRegressor(**LINEAR, target_bounds=(0, 1)),
    FunctionalMechanismClassifier(**LINEAR, classes=[0, 1]),
    ObjectivePerturbationClassifier(**LINEAR, classes=[0, 1]),
    DPSGDClassifier(**CLASSES, epochs=1, random_state=0),
]


def answers(model, rows):
    return getattr(model, "predict_proba", model.predict)(rows)


@pytest.mark.heavy
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_private_models_answer_equal_records_alike(model):
    model.fit(X, Y)
    expected = answers(model, X)
    for form in FORMS.values():
        np.testing.assert_array_equal(answers(model, form(X)), expected)


@pytest.mark.heavy
@pytest.mark.parametrize("attack", [LossThreshold(), LiRA(pool=4, random_state=0)])
def test_attacks_score_equal_records_alike(attack):
    attack.set_params(target=LogisticRegression().fit(X[:350], Y[:350]))
    records = LabeledRecords(X, Y)
    expected = attack.fit(records).decision_function(records)
    for form in FORMS.values():
        with warnings.catch_warnings():  # the target has not seen names of columns
            warnings.filterwarnings("ignore", "X has feature names")
            found = attack.fit(LabeledRecords(form(X), Y)).decision_function(
                LabeledRecords(form(X), Y)
            )
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_records_are_stored_by_rows_and_stay_so(form):
    records = as_records(form(X))
    assert type(records) is type(form(X))
    np.testing.assert_array_equal(records, X)
    assert as_records(records) is records  # converted once
    chosen = safe_indexing(records, np.arange(0, 700, 3))
    for rows in (records, chosen, concat(chosen, records)):
        assert np.asarray(rows).flags.c_contiguous


@pytest.mark.parametrize("dtypes", [{1: int}, {1: object}, dict.fromkeys(range(23), "Float64")])
def test_tables_without_a_common_array_stay_as_they_are(dtypes):
    table = pd.DataFrame(X).astype(dtypes)
    assert make_row_major(table) is table
