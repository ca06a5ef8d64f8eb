"""Pipelines of a schema and a private model, with public bins by rule."""

from __future__ import annotations

import math
from typing import Any

from sklearn.base import clone, is_classifier, is_regressor
from sklearn.pipeline import Pipeline

from .. import _config
from .._groups import check_groups
from .._validation import num_samples
from ..base import PrivateEstimatorMixin
from .schema import Schema
from .transformer import SchemaTransformer, add_bins

AUTO_BINS = 16


class PrivatePipeline(Pipeline):
    """Pipeline of :func:`make_private_pipeline`, whose ``fit`` chooses the bins of its schema.

    The choice follows from the schema, the epsilon and delta of the model, and the public number of
    records or groups, on which the automatic settings of the model depend as well. It is made anew
    in each ``fit``, so it follows a changed epsilon.
    """

    def fit(self, X: Any, y: Any = None, **params: Any) -> PrivatePipeline:
        """Choose the bins, and fit the steps, as in :meth:`sklearn.pipeline.Pipeline.fit`."""
        self.steps = self._steps_for(count_units(X, params))
        super().fit(X, y, **params)
        return self

    def settle_bins(self, n: int) -> Pipeline:
        """Return a plain pipeline with the bins for this public number of records or groups."""
        return Pipeline(
            self._steps_for(n),
            transform_input=self.transform_input,
            memory=self.memory,
            verbose=self.verbose,
        )

    def _steps_for(self, n: int) -> list[tuple[str, Any]]:
        """Return the steps with bins for this public number of records or groups."""
        (name, encode), *others = self.steps
        needs_bins = getattr(self.steps[-1][1], "_needs_bins", None)
        if type(encode) is not SchemaTransformer or encode.schema is None or needs_bins is None:
            return list(self.steps)
        n_bits = add_bins(encode.schema, AUTO_BINS).n_features_out - encode.schema.n_features_out
        bins = AUTO_BINS if n_bits and needs_bins(n, n_bits) else None
        return [(name, clone(encode).set_params(bins=bins)), *others]


def count_units(X: Any, fit_params: dict[str, Any]) -> int:
    """Return the number of groups that ``fit`` gets, or of records."""
    for name, value in fit_params.items():
        if name.rpartition("__")[2] == "groups" and value is not None:
            return check_groups(value, X).n
    return num_samples(X)


def is_plain_pipeline(model: Any) -> bool:
    """Return whether a model is exactly a pipeline of scikit-learn or of this module."""
    return type(model) in (Pipeline, PrivatePipeline)


def make_private_pipeline(
    schema: Schema,
    model: Any,
    *,
    n_records: int | None = None,
    bins: int | str | None = "auto",
) -> Pipeline:
    """Return a pipeline of a :class:`SchemaTransformer` and a private model with the schema's
    facts.

    Steps of a scikit-learn pipeline cannot pass facts on, so a model alone would read bounds and
    classes off the data, or add more noise than needed. This function sets ``bounds``, ``radius``,
    ``classes`` and ``target_bounds`` from the schema before any fit.

    Parameters
    ----------
    schema : Schema
        Public facts about the columns and the target.
    model : estimator
        A private estimator. It is cloned. Its parameters ``bounds``, ``radius``, ``classes``,
        ``target_bounds`` and ``n_records`` are set if they exist and are None or "auto".
    n_records : int, default=None
        Public figure for the number of records, or of groups; never the size of a private table.
        For a model with ``relation="add_remove"``.
    bins : int, "auto" or None, default="auto"
        Number of bins of each bounded column to which the schema gives none. "auto" is 16 for a
        :class:`~skprivacy.neural_network.DPSGDClassifier` whose noise leaves room for them, and
        None otherwise.

    Returns
    -------
    Pipeline
        A pipeline of two unfitted steps. Under "auto", ``fit`` sets ``bins`` of the first one.

    Raises
    ------
    TypeError
        If ``schema`` is not a Schema, or ``model`` is not a private estimator or takes the schema
        itself.
    ValueError
        If ``bins`` is not a number of bins; if the schema describes classes and the model predicts
        numbers, or the reverse; under ``strict``, if facts of the schema were read off data and not
        confirmed.

    Warns
    -----
    PrivacyLeakWarning
        If the schema was read off data and not confirmed.

    Notes
    -----
    **Guarantees.** The pipeline has the guarantee of the model. The facts depend on the schema and
    the parameters only.

    ``radius`` bounds the norm of every possible row. A categorical column has at most one 1. A
    numeric column has a number in [-1, 1], and ``bins - 1`` features of at most 0.5. Without bins,
    the norm of a row is at most the root of the number of columns of the table. Without a schema,
    models use half the root of the number of *features*.

    **Bins** under "auto" depend on the schema, the epsilon and delta of the model, and the number n
    of records or groups: public under its guarantee, or ``n_records``. Each ``fit`` chooses
    anew. Let c be the number of bounded columns without bins, and mu the Gaussian-DP parameter of
    epsilon and delta. There are 16 bins if n * mu is at least 10 * sqrt(15 * c) and c at most 40.
    Without privacy, there are 16 only if layers or epochs are given: other networks find quantiles.

    **Edge cases.** A schema that was read off data and not confirmed has no public facts. Nothing
    is set, and the model reads facts off the data with its usual warnings and assumptions. If the
    model has ``bounds``, ``radius`` is not set either, because its units depend on the bounds.
    Later changes of the transformer by ``set_params`` do not change the facts: make a new pipeline.
    Facts that disagree with the rows cost accuracy, not privacy: the model clips to them.

    Examples
    --------
    >>> from skprivacy.linear_model import ObjectivePerturbationClassifier
    >>> from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
    >>> from skprivacy.preprocessing import make_private_pipeline
    >>> schema = Schema(
    ...     {"age": BoundedColumn(0, 120), "sex": CategoricalColumn(["Female", "Male"])},
    ...     classes=["no", "yes"],
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
            "DPSGDClassifier(epsilon=1.0): the facts set its parameters. Put a search or "
            "another wrapper around the pipeline instead."
        )
    _check_model_fits_schema(schema, model)
    automatic = isinstance(bins, str) and bins == "auto"
    given: Any = None if automatic else bins
    encode = SchemaTransformer(schema, bins=given)
    encode._check_parameters()
    facts: dict[str, Any] = {"n_records": n_records}
    if schema.unconfirmed:
        _config.leak(
            f"schema={schema!r} was read off data: its facts are not public, and none is set. "
            "Compare it with the codebook, and confirm it by `skprivacy schema confirm FILE`."
        )
    else:
        facts |= {"classes": schema.classes, "target_bounds": schema.target_bounds}
        facts |= _row_facts(add_bins(schema, encode.bins))
    kind = PrivatePipeline if automatic and hasattr(model, "_needs_bins") else Pipeline
    steps = [
        (type(step).__name__.lower(), step) for step in (encode, _set_known_facts(model, facts))
    ]
    return kind(steps)


def _check_model_fits_schema(schema: Schema, model: Any) -> None:
    """Raise if the model takes the table itself, or predicts another kind of target."""
    kind = type(model).__name__
    if getattr(model, "_takes_table", False):
        raise TypeError(
            f"model={kind}() takes the columns as they are. Pass {kind}(schema=schema) without a "
            "pipeline."
        )
    has_classes, has_bounds = schema.classes is not None, schema.target_bounds is not None
    if is_regressor(model) and has_classes and not has_bounds:
        raise ValueError(
            f"{kind} predicts numbers, but the schema has classes. Choose a classifier, or give "
            "the schema target_bounds=(lower, upper) instead."
        )
    if is_classifier(model) and has_bounds and not has_classes:
        raise ValueError(
            f"{kind} predicts classes, but the schema has target_bounds. Choose a regressor, or "
            "give the schema classes=[...] instead."
        )


def _row_facts(schema: Schema) -> dict[str, Any]:
    """Return bounds of the features, and the largest norm of a row."""
    ones = [1.0] * len(schema.crosses)  # each has one 1 at most
    norms = [column._largest_norm() for column in schema.values()]
    return {"bounds": (-1.0, 1.0), "radius": math.hypot(*ones, *norms)}


def _set_known_facts(model: Any, facts: dict[str, Any]) -> Any:
    """Return a clone with each fact set whose parameter is unset."""
    known = clone(model)
    params = known.get_params(deep=False)
    if params.get("bounds") is not None:
        facts.pop("radius", None)  # a radius in units of other bounds
    missing = {
        name: fact
        for name, fact in facts.items()
        if fact is not None and name in params and _is_unset(params[name])
    }
    return known.set_params(**missing)


def _is_unset(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value == "auto")
