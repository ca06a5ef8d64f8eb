"""The epsilon at which mistakes in the size of noise show in the fewest runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..accounting import PrivacyGuarantee
from ._fits import Fits

__all__ = ["at_telling_epsilon"]

# The epsilons that are looked at, and how often the best attack that the claim allows may err: a
# mistake in the size of the noise then shows in the fewest runs, whatever the noise is.
_EPSILONS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 14.0, 18.0, 24.0, 32.0, 48.0, 64.0)
_TELLING = 0.1
_FLAT = 1.05


def at_telling_epsilon(
    fits: Fits, data: tuple[Any, Any], epsilon: float | None
) -> tuple[Fits, PrivacyGuarantee]:
    """Return the fits at the epsilon that is asked for, or that shows most, with their claim.

    **Edge cases.** What does not have one parameter ``epsilon``, or has a stated claim, stays as
    it is. If no epsilon tells enough it is the smallest of those that tell as much.

    Raises
    ------
    ValueError
        If an epsilon is asked for that cannot be set.
    """
    if epsilon is not None:
        changed = fits.at(epsilon)
        if changed is None:
            raise ValueError(
                f"epsilon={epsilon!r} cannot be set: the estimator has not one parameter of "
                "this name, or claim was given. Leave epsilon=None."
            )
        return changed, changed.claim(data)
    options = [(fits, fits.claim(data))]
    for value in _EPSILONS if fits.at(1.0) is not None else ():
        changed = fits.at(value)
        assert changed is not None
        options.append((changed, changed.claim(data)))
    errors = [_error(guarantee) for _, guarantee in options]
    least = min(errors)
    if least > _TELLING:  # no epsilon tells more: the smallest of those that tell as much
        enough = [i for i, error in enumerate(errors) if error <= _FLAT * least]
        return options[min(enough, key=lambda i: options[i][1].epsilon())]
    return options[int(np.argmin(np.abs(np.log(np.maximum(errors, 1e-9) / _TELLING))))]


def _error(guarantee: PrivacyGuarantee) -> float:
    """Return the rate of errors, of both kinds alike, of the best attack that a claim allows."""
    rates = np.geomspace(1e-6, 0.5, 200)
    return float(rates[np.argmax(guarantee.tpr_bound(rates) >= 1 - rates)])
