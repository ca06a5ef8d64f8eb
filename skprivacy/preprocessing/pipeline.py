"""A private model behind a schema, told every public fact before it sees a record."""

from __future__ import annotations

import math
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline

from .. import _config
from ..base import PrivateEstimatorMixin
from .schema import Schema
from .transformer import SchemaTransformer

__all__ = ["make_private_pipeline"]


def make_private_pipeline(
    schema: Schema,
    model: Any,
    *,
    n_records: int | None = None,
    feature_range: tuple[float, float] = (-1.0, 1.0),
    memory: Any = None,
    verbose: bool = False,
) -> Pipeline:
    """Put a private model behind a :class:`SchemaTransformer`, and tell it the public facts.

    A step of a scikit-learn pipeline cannot tell the next one what it knows, so a model by itself
    reads bounds and classes off the data, or assumes more noise than a schema's rows need. Here
    ``bounds``, ``radius``, ``classes`` and ``target_bounds`` follow from the schema before any fit.

    Parameters
    ----------
    schema : Schema
        Public facts about the columns and the target.
    model : estimator
        A private estimator. It is cloned. Of ``bounds``, ``radius``, ``classes``,
        ``target_bounds`` and ``n_records``, those that it has and that are None (or "auto") are
        set; what was set already is kept.
    n_records : int, default=None
        A public figure for the number of records, or of groups if ``fit`` is told of groups, never
        the size of a private table. Where the
        model has this parameter, its guarantee is then for add/remove instead of zero-out.
    feature_range : tuple of two floats, default=(-1.0, 1.0)
        The range of the scaled numeric columns.
    memory : str or Memory, default=None
        As of :class:`sklearn.pipeline.Pipeline`.
    verbose : bool, default=False
        As of :class:`sklearn.pipeline.Pipeline`.

    Returns
    -------
    Pipeline
        Of two steps, both unfitted.

    Raises
    ------
    TypeError
        If ``schema`` is not a Schema or ``model`` not a private estimator.
    ValueError
        If ``feature_range`` is not a range; under ``strict``, if facts of the schema were read off
        data and not confirmed.

    Warns
    -----
    PrivacyLeakWarning
        If the schema was read off data and not confirmed.

    Notes
    -----
    **Guarantees.** Those of the model. The facts are functions of the schema and of the parameters
    alone. ``radius`` is a bound on the norm of a row, whatever the record: the features of a
    categorical column hold at most one 1, those of a numeric column a number in ``feature_range``
    and ``bins - 1`` bits of 0.5, so that with the default range and no bins every column has
    norm at most 1, and a row at most the root of the number of columns. It replaces the models'
    default, the root of the number of *features* over 2.

    **Edge cases.** A schema that was read off data and not confirmed states no public facts: none
    is set, and the model reads them off the data with its own warnings and assumptions. If
    ``bounds`` were set, ``radius``, in whose units it is measured, is left alone as well. The facts
    do not follow later changes of the transformer by ``set_params``: make a new pipeline. Facts
    that no longer agree with the rows cost accuracy, not privacy: the model clips to them.

    Examples
    --------
    >>> from skprivacy.linear_model import ObjectivePerturbationClassifier
    >>> from skprivacy.preprocessing import Bounded, Categories, Schema, make_private_pipeline
    >>> schema = Schema(
    ...     {"age": Bounded(0, 120), "sex": Categories(["Female", "Male"])}, classes=["no", "yes"]
    ... )
    >>> model = make_private_pipeline(schema, ObjectivePerturbationClassifier(epsilon=1.0))
    >>> model[-1].bounds, model[-1].classes, round(model[-1].radius, 3)
    ((-1.0, 1.0), ('no', 'yes'), 1.414)
    """
    if not isinstance(schema, Schema):
        raise TypeError(f"schema={schema!r} must be a Schema. Create one with Schema({{...}}).")
    if isinstance(model, type) or not isinstance(model, PrivateEstimatorMixin):
        raise TypeError(
            f"model={model!r} must be a private estimator of skprivacy, such as "
            "DPSGDClassifier(epsilon=1.0): the facts are for its own parameters. Put a search or "
            "any other wrapper around the pipeline instead."
        )
    encode = SchemaTransformer(schema, feature_range=feature_range)
    encode._check_parameters()
    facts: dict[str, Any] = {"n_records": n_records}
    if schema.unconfirmed:
        _config.leak(
            f"schema={schema!r} was read off data, so that its facts are not public: none is set. "
            "Compare it with the codebook, and confirm it by `skprivacy schema confirm FILE`."
        )
    else:
        facts |= {"classes": schema.classes, "target_bounds": schema.target_bounds}
        facts |= _row_facts(schema, feature_range)
    return make_pipeline(encode, _told(model, facts), memory=memory, verbose=verbose)


def _row_facts(schema: Schema, feature_range: tuple[float, float]) -> dict[str, Any]:
    """Return bounds of each feature, and of the norm of a row in units of them.

    The bounds are symmetric, for models scale by them: the zeros of a category stay zeros.
    """
    bound = max(column.largest_feature(feature_range) for column in schema.values())
    norm = math.hypot(*(column.largest_norm(feature_range) for column in schema.values()))
    return {"bounds": (-bound, bound), "radius": norm / bound}


def _told(model: Any, facts: dict[str, Any]) -> Any:
    """Return a clone that knows each fact that it asks for and has not been told."""
    told = clone(model)
    params = told.get_params(deep=False)
    if params.get("bounds") is not None:
        facts.pop("radius", None)  # it is in units of ours
    missing = {
        name: fact
        for name, fact in facts.items()
        if fact is not None and name in params and _unknown(params[name])
    }
    return told.set_params(**missing)


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value == "auto")
