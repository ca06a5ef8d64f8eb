"""The parameter by which a model's privacy is set."""

from __future__ import annotations

from typing import Any

__all__ = ["epsilon_parameter"]


def epsilon_parameter(estimator: Any, name: str | None = None) -> str:
    """Return the name of the privacy parameter of a model, as in ``get_params``.

    Parameters
    ----------
    estimator : estimator
        Bare or nested.
    name : str, default=None
        The name, to be checked. ``None`` finds the only parameter called ``epsilon``.

    Returns
    -------
    str

    Raises
    ------
    TypeError
        If ``estimator`` is no estimator object.
    ValueError
        If there is no such parameter, or more than one.
    """
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        raise TypeError(
            f"estimator={estimator!r} must be a scikit-learn estimator object. Pass an instance."
        )
    params = estimator.get_params(deep=True)
    kind = type(estimator).__name__
    if name is not None:
        if not isinstance(name, str) or name not in params:
            raise ValueError(
                f"param_name={name!r} must be a parameter of {kind}; it has {sorted(params)}."
            )
        return name
    found = [p for p in params if p.rpartition("__")[2] == "epsilon"]
    if not found:
        raise ValueError(
            f"estimator: {kind} has no parameter epsilon. Pass a private model. A sweep also takes "
            "one whose privacy parameter has another name: param_name."
        )
    if len(found) > 1:
        raise ValueError(
            f"estimator: {kind} has {len(found)} parameters called epsilon ({found}). A sweep "
            "takes the name of the one to vary: param_name."
        )
    return found[0]
