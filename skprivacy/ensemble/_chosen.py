"""Default student of PATE: cross-validated choice between two, on released labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder

from .._sklearn import num_samples, safe_indexing
from .._validation import all_numbers
from .aggregators import UNANSWERED
from .students import PropagationStudent, fit_student

__all__ = ["default_students", "select_student"]

_FOLDS = 5
# Records on which students are compared: the graph grows with the square of their number.
_MAX_COMPARED_RECORDS = 2000


def default_students(public: Any) -> list[Any]:
    """Return two unfitted students for public records, the preferred one first.

    The graph is the most accurate where neighbours share a class, but elsewhere it may predict a
    single class. No public figure, such as the number of columns, separates the two cases.

    **Guarantees.** Only public records provide ranges and categories.

    **Edge cases.** Columns that are not numbers are one-hot encoded.
    """
    scale = MinMaxScaler()
    tabular = isinstance(public, pd.DataFrame) and not all_numbers(public)
    if tabular:
        numbers = [pd.api.types.is_numeric_dtype(dtype) for dtype in public.dtypes]
        codes = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        scale = make_column_transformer((scale, np.array(numbers)), (codes, ~np.array(numbers)))
    scaled = FrozenEstimator(scale.fit(public))
    graph = PropagationStudent()
    return [
        make_pipeline(scaled, graph) if tabular else graph,
        make_pipeline(scaled, LogisticRegression(max_iter=1000)),
    ]


def select_student(public: Any, labels: NDArray[np.int64]) -> Any:
    """Return the unfitted default student with the better cross-validated accuracy.

    **Guarantees.** The choice sees only public records and released labels, so it costs no privacy.
    It draws no random numbers.

    **Edge cases.** A fold is skipped if all other labels are of one class. A tie goes to the first
    student.
    """
    answered = np.flatnonzero(labels != UNANSWERED)
    n = num_samples(public)
    spread = np.linspace(0, n - 1, min(n, _MAX_COMPARED_RECORDS)).astype(np.intp)
    some = np.union1d(answered, spread)
    records, known = safe_indexing(public, some), labels[some]
    answered = np.flatnonzero(known != UNANSWERED)
    right = np.zeros(2, np.int64)
    for fold in range(_FOLDS):
        held = answered[fold::_FOLDS]
        rest = known.copy()
        rest[held] = UNANSWERED
        if len(held) and len(np.unique(rest[rest != UNANSWERED])) > 1:
            asked = safe_indexing(records, held)
            for i, student in enumerate(default_students(records)):
                right[i] += np.sum(
                    fit_student(student, records, rest).predict(asked) == known[held]
                )
    return default_students(public)[int(right.argmax())]
