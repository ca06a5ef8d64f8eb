"""Saving and loading of fitted models without pickle: `save_model` and `load_model`."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from .._files import as_path
from .._version import __version__
from ..accounting import PrivacyGuarantee
from ..audit.inspection.claims import claim_of
from . import file_format as files
from .state import Given, from_state, to_state

_FORMAT = 1
_SECTIONS = {"format", "versions", "privacy", "model"}
# Suffixes of pickles: a reader would open the file by pickle, which fails or runs its code.
_PICKLE_SUFFIXES = {".joblib", ".pickle", ".pkl"}


def save_model(model: Any, path: str | PathLike[str]) -> None:
    """Write a fitted model to a safetensors file, without pickle.

    Parameters
    ----------
    model : estimator or Pipeline
        Fitted private estimator, encoder of ``skprivacy.neural_network``, SchemaTransformer,
        ScatteringTransformer, or a Pipeline of these. A Pipeline may also hold scikit-learn's
        Binarizer and Normalizer, and each step may be wrapped in a FrozenEstimator. The encoder
        of an ALMFineTuner must be a PCA, a scaler, an encoder of this library or None. A learner
        inside a private model must be linear, a GaussianNB or the default.
    path : str or Path
        The file to write, such as "model.safetensors". An existing file is replaced.

    Raises
    ------
    ValueError
        If the model or one of its steps has an unsupported class, is not fitted or holds code, if
        its labels are neither numbers nor text, or if ``path`` ends like a pickle, as "model.pkl"
        does. In this case nothing is written.

    Notes
    -----
    **Guarantees.** The file holds the released values, the guarantee of each step and of the whole
    model, and public facts: parameters, bounds, schema, feature names and labels. It holds no
    record, no seed, no budget and no value computed before the noise was added. An encoder has no
    guarantee: its file is as public as the records that it was fitted on.

    **Edge cases.** Bounds and labels that were read off the private data are part of the model, so
    the file holds them; the guarantee lists the assumption that they are public. After loading,
    such a model warns again when it is refitted. Callables are not written: a custom module, a
    loss, ``augment`` and ``scoring``. The parameter ``class_weight`` is not written either. A model
    that trains another model is saved without its teacher, aggregator and schema. A new fit uses
    the defaults.

    See Also
    --------
    load_model : Read the file.
    skprivacy.certificates.issue_certificate : Sign the statements of the file.

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
    if Path(as_path("path", path)).suffix.lower() in _PICKLE_SUFFIXES:
        raise ValueError(
            f"path={str(path)!r} ends like a pickle, but the file is a safetensors file that only "
            "load_model reads. Pass a name such as 'model.safetensors'."
        )
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
            f"({error}). Refit the model with such values."
        ) from error


def load_model(path: str | PathLike[str], module: Any = None, criterion: Any = None) -> Any:
    """Read a model that :func:`save_model` wrote. Nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        The file.
    module : torch.nn.Module, default=None
        For a network with a custom ``module``: a module of the same architecture. Its weights are
        replaced. The file does not contain the code of a module.
    criterion : type or torch.nn.Module, default=None
        For a ``DPNeuralNet`` whose loss is not in torch: the loss.

    Returns
    -------
    estimator or Pipeline
        The model, with the same predictions or transformations and the same guarantee.

    Raises
    ------
    ValueError
        If the file is damaged, was not written by :func:`save_model` or states a guarantee that
        its steps do not give, or if ``module`` does not fit the weights.
    ImportError
        If the file holds a network and torch is not installed.

    Notes
    -----
    **Guarantees.** Classes are looked up in a fixed table, and attributes are set from a fixed
    list for each class. Sizes are compared before anything of that size is allocated. The author
    of a file therefore controls numbers and text, but never which code runs. A file can still
    state an invented guarantee; a certificate names the party that vouches for it.
    """
    with files.open_arrays(path) as (header, arrays):
        name = repr(str(path))
        node = _check_format(header, name)
        try:
            model = from_state(node, arrays, Given(module, criterion))
            _check_consistency(model, header, arrays)
        except ValueError as error:
            raise ValueError(f"path={name}: {error}") from error
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            raise ValueError(
                f"path={name} is damaged: it does not describe a valid model ({error!r}). Copy "
                "it again, or save the model again with save_model."
            ) from error
    if module is not None and not _has_own_module(node):
        raise ValueError(f"path={name} has no custom module: leave module=None.")
    return model


def _check_format(header: dict[str, Any], name: str) -> Any:
    """Check the format of the header; return its description of the model."""
    found = header.get("format")
    if found == _FORMAT:
        if set(header) != _SECTIONS:
            raise ValueError(f"path={name} is damaged: its header has the keys {sorted(header)}.")
        return header["model"]
    newer = isinstance(found, int) and found > _FORMAT
    raise ValueError(
        f"path={name} was written by a newer version of skprivacy (format {found}). Upgrade."
        if newer
        else f"path={name} is not a model of save_model, or is damaged. Pass a file of save_model."
    )


def _check_consistency(model: Any, header: dict[str, Any], arrays: files.Arrays) -> None:
    """Refuse a file with unused arrays, or with a guarantee that its steps do not give."""
    if unread := arrays.unread():
        raise ValueError(f"its model does not use the arrays {unread}: the file is damaged")
    stated, made = header.get("privacy"), claim_of(model).guarantee
    wanted = None if stated is None else PrivacyGuarantee.from_dict(stated)
    if _comparable_terms(wanted) != _comparable_terms(made):
        raise ValueError(f"it states {wanted!r}, but its steps give {made!r}: the file is damaged")


def _comparable_terms(guarantee: PrivacyGuarantee | None) -> Any:
    """Return all fields but the assumptions, whose wording may differ between versions."""
    if guarantee is None:
        return None
    return (
        guarantee.event, guarantee.at_delta, guarantee.relation, guarantee.kind, guarantee.unit
    )  # fmt: skip


def _has_own_module(node: Any) -> bool:
    """Return True if the description contains a network with a custom module at any depth."""
    if isinstance(node, list):
        return any(map(_has_own_module, node))
    if not isinstance(node, dict):
        return False
    return node.get("own_module") is True or any(map(_has_own_module, node.values()))
