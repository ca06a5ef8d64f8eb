"""Fitted models are saved and loaded, without pickle."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from .._version import __version__
from ..accounting import PrivacyGuarantee
from ..audit.inspection.claims import claim_of
from . import file_format as files
from .state import Given, from_state, to_state

__all__ = ["load_model", "save_model"]

_FORMAT = 2
_SECTIONS = {"format", "versions", "privacy", "model"}


def save_model(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model to a safetensors file, without pickle.

    Parameters
    ----------
    model : estimator or Pipeline
        Fitted: any private estimator, an encoder of ``skprivacy.neural_network``, a
        SchemaTransformer or ScatteringTransformer, or a Pipeline of these, of scikit-learn's
        Binarizer and Normalizer, and of such steps in a FrozenEstimator. What a model teaches must
        be linear, a GaussianNB or the default; the encoder of an ALMFineTuner a PCA, a scaler, an
        encoder of this library or None.
    path : str or Path
        The file to write; what is there is replaced.

    Raises
    ------
    ValueError
        If the model or one of its steps is of another class or not fitted, holds code, or its
        labels are neither numbers nor text. Nothing is written then.

    Notes
    -----
    **Guarantees.** The file holds what was released, the guarantee of each step and that of all
    together, and public facts: parameters, bounds, schema, names of features, labels. No record,
    no seed, no budget and nothing computed before the noise is in it. An encoder has no
    guarantee, and its file is as public as the records that it was fitted on.

    **Edge cases.** Bounds and labels that were read off the private data are written, as they are
    part of the model; the guarantee lists the assumption that they are public. Once loaded, such a
    model warns again when it is fitted anew. Callables are not written: a module of one's own, a
    loss, ``augment`` and ``scoring``; ``class_weight`` is not either. Of a model that teaches
    another, its teacher, aggregator and schema are not: a new fit takes the default ones.

    See Also
    --------
    load_model : Reads the file.
    skprivacy.certificate : Signs what the file states.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from skprivacy import AdaSSPRegressor, load_model, save_model
    >>> from skprivacy.preprocessing import PrivateStandardScaler
    >>> X = np.random.default_rng(0).uniform(size=(500, 2))
    >>> model = make_pipeline(
    ...     PrivateStandardScaler(epsilon=0.5, bounds=(0, 1)),
    ...     AdaSSPRegressor(epsilon=0.5, bounds=(-3, 3), target_bounds=(0, 2)),
    ... ).fit(X, X.sum(axis=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, Path(folder) / "model.safetensors")
    ...     again = load_model(Path(folder) / "model.safetensors")
    >>> np.array_equal(again.predict(X), model.predict(X))
    True
    >>> again[-1].privacy_ == model[-1].privacy_
    True
    """
    if not hasattr(model, "fit"):
        raise ValueError(f"model={model!r} cannot be saved: it must be a fitted estimator.")
    arrays: dict[str, NDArray] = {}
    try:
        node = to_state(model, "", arrays)
    except NotFittedError as error:
        raise ValueError(f"model must be a fitted estimator. Call fit first. ({error})") from error
    guarantee = claim_of(model).guarantee
    header = {
        "format": _FORMAT,
        "versions": {
            "skprivacy": __version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__
        },
        "privacy": None if guarantee is None else guarantee.to_dict(),
        "model": node,
    }  # fmt: skip
    try:
        files.write(path, header, arrays)
    except TypeError as error:
        raise ValueError(
            "Labels and parameters must be numbers or text to be saved "
            f"({error}). Fit the model with such ones."
        ) from error


def load_model(path: str | PathLike[str], module: Any = None, criterion: Any = None) -> Any:
    """Read a model that :func:`save_model` wrote. Nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        The file.
    module : torch.nn.Module, default=None
        For a network with a ``module`` of its own: a module of the same make, whose weights are
        replaced. It is not in the file, which holds numbers alone.
    criterion : type or torch.nn.Module, default=None
        For a ``DPNeuralNet`` whose loss is none of torch's own: the loss.

    Returns
    -------
    estimator or Pipeline
        Predicts or transforms as the saved one, and states the same guarantee.

    Raises
    ------
    ValueError
        If the file is damaged, was not written by :func:`save_model` or states another guarantee
        than its steps, or ``module`` does not fit to it.
    ImportError
        If it holds a network, and torch is not installed.

    Notes
    -----
    **Guarantees.** Classes are looked up in a fixed table, attributes are set from a fixed list
    for each class, and sizes are compared before anything of that size is made: whoever wrote
    the file decides about numbers and words, never about what runs. A file can still state a
    guarantee that its author made up; a certificate says who vouches for it.
    """
    with files.opened(path) as (header, arrays):
        name = repr(str(path))
        node = _node(header, name)
        try:
            model = from_state(node, arrays, Given(module, criterion))
            _check_whole(model, header, arrays)
        except ValueError as error:
            raise ValueError(f"path={name}: {error}") from error
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            raise ValueError(
                f"path={name} is damaged: what it says of its model makes none ({error!r}). Copy "
                "it again, or save the model again with save_model."
            ) from error
    if module is not None and not _has_own_module(node):
        raise ValueError(f"path={name} holds no network with a module of its own: leave module.")
    return model


def _node(header: dict[str, Any], name: str) -> Any:
    """Return what the header says of the model."""
    found = header.get("format")
    if found == _FORMAT:
        if set(header) != _SECTIONS:
            raise ValueError(f"path={name} is damaged: its header has {sorted(header)}.")
        return header["model"]
    newer = isinstance(found, int) and found > _FORMAT
    raise ValueError(
        f"path={name} was written by a newer version of skprivacy, in format {found}. Upgrade."
        if newer
        else f"path={name} is not a model of save_model, or damaged. Pass a file that it wrote."
    )


def _check_whole(model: Any, header: dict[str, Any], arrays: files.Arrays) -> None:
    """Refuse a file that holds more than its model, or states another guarantee."""
    if unread := arrays.unread():
        raise ValueError(f"its model has no arrays {unread}: it is damaged")
    stated, made = header.get("privacy"), claim_of(model).guarantee
    wanted = None if stated is None else PrivacyGuarantee.from_dict(stated)
    if _terms(wanted) != _terms(made):
        raise ValueError(
            f"it states {wanted!r} for the whole, and its steps make {made!r}: it is damaged"
        )


def _terms(guarantee: PrivacyGuarantee | None) -> Any:
    """Return all but the assumptions, which another version may say in other words."""
    if guarantee is None:
        return None
    return (
        guarantee.event, guarantee.at_delta, guarantee.relation, guarantee.kind, guarantee.unit
    )  # fmt: skip


def _has_own_module(node: Any) -> bool:
    """Return whether a network with a module of its own is in what a file says, however deep."""
    if isinstance(node, list):
        return any(map(_has_own_module, node))
    if not isinstance(node, dict):
        return False
    return node.get("own_module") is True or any(map(_has_own_module, node.values()))
