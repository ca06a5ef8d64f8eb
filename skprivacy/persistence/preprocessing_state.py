"""What a file holds of preprocessing that learns nothing: its parameters and its schema."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..preprocessing import LocalPerturbation, Schema
from .file_format import Arrays
from .value_checks import check_names, common, make, restore_common, restore_guarantee, whole

__all__ = [
    "FROM_SCIKIT_LEARN",
    "restored_by_schema",
    "restored_images",
    "restored_stateless",
    "told_by_schema",
    "told_images",
    "told_stateless",
]

_TYPES = {"float32": np.float32, "float64": np.float64}
_OF_LOCAL = ("epsilon", "delta", "perturb")
# What learns nothing but the number of columns, with the parameters that change its output.
FROM_SCIKIT_LEARN = {
    "Binarizer": ("threshold",),
    "FunctionTransformer": ("validate", "accept_sparse", "feature_names_out"),
    "Normalizer": ("norm",),
}


def told_by_schema(model: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts of a fitted SchemaTransformer or LocalPerturbation.

    Raises
    ------
    ValueError
        If a LocalPerturbation would not release what its guarantee says.
    """
    facts = {
        **common(model),
        "schema": model.schema_.to_dict(),
        "schema_given": model.schema is not None,
        "feature_range": [float(end) for end in model.feature_range],
        "dtype": np.dtype(model.dtype).name,
    }
    if isinstance(model, LocalPerturbation):
        model._check_unchanged()
        facts["params"] = {name: getattr(model, name) for name in _OF_LOCAL}
        facts["privacy"] = model.privacy_.to_dict()
    return facts, {}


def restored_by_schema(kind: type, facts: dict[str, Any], arrays: Arrays) -> Any:
    """Return the transformer that the facts describe."""
    local = issubclass(kind, LocalPerturbation)
    told = ["n_features_in_", "feature_names", "schema", "schema_given", "feature_range", "dtype"]
    check_names(facts, [*told, *(["params", "privacy"] if local else [])])
    schema = Schema.from_dict(facts["schema"])
    low, high = facts["feature_range"]
    params = check_names(facts["params"], _OF_LOCAL) if local else {}
    model = kind(
        schema if facts["schema_given"] is True else None,
        feature_range=(low, high), dtype=_TYPES[facts["dtype"]], **params,
    )  # fmt: skip
    model._check_parameters()
    if restore_common(model, facts) != len(schema):
        raise ValueError(f"the schema has {len(schema)} columns, and the model another number")
    if set(getattr(model, "feature_names_in_", schema)) != set(schema):
        raise ValueError("the schema has other columns than the model was fitted to")
    model.schema_ = schema
    model.data_independent_ = not schema.unconfirmed
    if local:
        model._restate()
        restore_guarantee(model, facts)
        if model.privacy_.event != model._event():
            raise ValueError("the parameters release something else than the guarantee says")
        model.epsilon_ = float(model.epsilon)
    return model


def told_images(model: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts of a fitted ScatteringTransformer."""
    return {
        "n_features_in_": model.n_features_in_,
        "image_shape": model.image_shape,
        "image_shape_": model.image_shape_,
    }, {}


def restored_images(kind: type, facts: dict[str, Any], arrays: Arrays) -> Any:
    """Return the transformer of images that the facts describe."""
    check_names(facts, ["n_features_in_", "image_shape", "image_shape_"])
    height, width = (whole({"side": side}, "side") for side in facts["image_shape_"])
    given = facts["image_shape"]
    if given is not None and given != [height, width]:
        raise ValueError(f"image_shape={given!r} is not the shape {[height, width]} that was used")
    model = kind(image_shape=None if given is None else (height, width))
    model.image_shape_ = (height, width)
    model.n_features_in_ = whole(facts, "n_features_in_")
    if height * width != model.n_features_in_:
        raise ValueError(f"images of {height} times {width} have no {model.n_features_in_} pixels")
    model.data_independent_ = True
    return model


def told_stateless(model: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts of one of scikit-learn's transformers that learn nothing.

    Raises
    ------
    ValueError
        If it is a FunctionTransformer with a function, which is code.
    """
    if any(getattr(model, name, None) is not None for name in ("func", "inverse_func")):
        raise ValueError(
            "func of the FunctionTransformer is code, which no file of save_model holds. Describe "
            "the columns by a Schema, or apply the function before the pipeline."
        )
    names = FROM_SCIKIT_LEARN[type(model).__name__]
    facts: dict[str, Any] = {"params": {name: getattr(model, name) for name in names}}
    if hasattr(model, "n_features_in_"):
        facts.update(common(model))
    return facts, {}


def restored_stateless(kind: type, facts: dict[str, Any], arrays: Arrays) -> Any:
    """Return the transformer of scikit-learn's that the facts describe."""
    fitted = ["n_features_in_", "feature_names"] if "n_features_in_" in facts else []
    check_names(facts, ["params", *fitted])
    model = make(kind, facts["params"], FROM_SCIKIT_LEARN[kind.__name__])
    if fitted:
        restore_common(model, facts)
    return model
