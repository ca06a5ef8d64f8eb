"""The private model to begin with, chosen by public facts.

The limits were chosen by ``benchmarks/tables/which_model.py`` on its tables of ``study``.
"""

from __future__ import annotations

import math
from typing import Any

from .._extras import name_missing_extra
from .._validation import positive
from ..accounting.budget import PrivacyBudget
from ..accounting.calibration import analytic_noise_multiplier
from ..additive_model import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from ..preprocessing import BoundedColumn, CategoricalColumn, Schema, make_private_pipeline

# Least signal, per column and output, at which tables of effects beat a network.
_LEAST_SIGNAL_OF_CLASSES = 100.0
_LEAST_SIGNAL_OF_NUMBERS = 200.0


def suggest_model(
    schema: Schema,
    n_records: int,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    budget: PrivacyBudget | None = None,
    random_state: int | None = None,
) -> Any:
    """Return the unfitted private model with which to begin on a table.

    The choice depends on public facts only: the columns, the classes, a number of records, epsilon
    and delta. It costs no privacy.

    Parameters
    ----------
    schema : Schema
        Public facts about the columns, with ``classes`` or ``target_bounds``.
    n_records : int
        Public figure for the number of records, or of groups if ``fit`` gets groups; never the size
        of a private table. A round guess will do.
    epsilon : float, default=1.0
        The limit epsilon of the model, positive. ``inf`` returns a model without privacy.
    delta : float, default=1e-5
        Probability that the limit epsilon fails, between 0 and 1.
    budget : PrivacyBudget, default=None
        The ledger that ``fit`` charges.
    random_state : int, default=None
        Seed of a network's initial weights.

    Returns
    -------
    estimator
        An additive model where the table has many records for each column, and otherwise a network
        behind a :class:`~skprivacy.preprocessing.SchemaTransformer`. Both take ``X[list(schema)]``
        as it is.

    Raises
    ------
    TypeError
        If ``schema`` is not a Schema.
    ValueError
        If ``schema`` has no target, or a number is out of its range.
    ImportError
        If the network is chosen and torch is missing.

    Notes
    -----
    The signal of a table is ``n_records`` times the parameter mu of Gaussian differential privacy
    that belongs to epsilon and delta. An additive model is returned if the signal is at least 100
    per column and class (per column with two classes), or 200 per column of a regression, and if
    the schema has bounded and categorical columns only. It also hides the number of records.

    Examples
    --------
    >>> from skprivacy.model_selection import suggest_model
    >>> from skprivacy.preprocessing import BoundedColumn, Schema
    >>> schema = Schema({"age": BoundedColumn(0, 120)}, classes=["no", "yes"])
    >>> type(suggest_model(schema, n_records=20_000)).__name__
    'PrivateAdditiveClassifier'
    >>> list(suggest_model(schema, n_records=200).named_steps)
    ['schematransformer', 'dpsgdclassifier']
    """
    if not isinstance(schema, Schema):
        raise TypeError(f"schema={schema!r} must be a Schema. Create one with Schema({{...}}).")
    classifies = schema.classes is not None
    if not classifies and schema.target_bounds is None:
        raise ValueError(
            "schema describes no target. Pass Schema(..., classes=[...]) or "
            "Schema(..., target_bounds=(low, high))."
        )
    positive("n_records", n_records)
    hides_nothing = math.isinf(epsilon)
    signal = math.inf if hides_nothing else n_records / analytic_noise_multiplier(epsilon, delta)
    fits = all(isinstance(column, (BoundedColumn, CategoricalColumn)) for column in schema.values())
    if fits and signal >= _least_signal(schema):
        additive: Any = PrivateAdditiveClassifier if classifies else PrivateAdditiveRegressor
        return additive(epsilon, delta, schema=schema, budget=budget)
    with name_missing_extra():
        from ..neural_network import DPSGDClassifier, DPSGDRegressor
    network: Any = DPSGDClassifier if classifies else DPSGDRegressor
    settings = {"epsilon": epsilon, "delta": delta, "budget": budget, "random_state": random_state}
    return make_private_pipeline(schema, network(**settings))


def _least_signal(schema: Schema) -> float:
    """Return the signal at which an additive model is preferred."""
    if schema.classes is None:
        return _LEAST_SIGNAL_OF_NUMBERS * len(schema)
    n_outputs = len(schema.classes) if len(schema.classes) > 2 else 1
    return _LEAST_SIGNAL_OF_CLASSES * len(schema) * n_outputs
