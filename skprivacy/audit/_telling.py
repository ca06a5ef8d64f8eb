"""Choice of the epsilon at which a wrong size of the noise shows in the fewest runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..accounting import PrivacyGuarantee
from ._fits import IndependentFits

__all__ = ["choose_epsilon"]

# Candidate epsilons, and the target error rate of the best attack that the claim allows. At this
# rate a wrong size of the noise shows in the fewest runs, for any noise.
_EPSILONS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 14.0, 18.0, 24.0, 32.0, 48.0, 64.0)
_TELLING = 0.1
_FLAT = 1.05  # error rates within this factor of the least count as equal


def choose_epsilon(
    fits: IndependentFits, data: tuple[Any, Any], epsilon: float | None
) -> tuple[IndependentFits, PrivacyGuarantee]:
    """Return the fits at the requested epsilon, or at the most sensitive one, with their claim.

    Fits without a single parameter ``epsilon``, or with a stated claim, are returned unchanged. If
    no epsilon reaches the target error rate, the smallest of those with the least error is chosen.
    Raises ValueError if the requested epsilon cannot be set.
    """
    if epsilon is not None:
        changed = fits.at(epsilon)
        if changed is None:
            raise ValueError(
                f"epsilon={epsilon!r} cannot be set, because the estimator does not have exactly "
                "one parameter of this name, or claim was given. Leave epsilon=None."
            )
        return changed, changed.claim(data)
    options = [(fits, fits.claim(data))]
    for value in _EPSILONS if fits.at(1.0) is not None else ():
        changed = fits.at(value)
        assert changed is not None
        options.append((changed, changed.claim(data)))
    errors = [_error(guarantee) for _, guarantee in options]
    least = min(errors)
    if least > _TELLING:  # no epsilon reaches the target
        enough = [i for i, error in enumerate(errors) if error <= _FLAT * least]
        return options[min(enough, key=lambda i: options[i][1].epsilon())]
    return options[int(np.argmin(np.abs(np.log(np.maximum(errors, 1e-9) / _TELLING))))]


def _error(guarantee: PrivacyGuarantee) -> float:
    """Return the error rate, equal for both kinds of error, of the best attack of a claim."""
    rates = np.geomspace(1e-6, 0.5, 200)
    # Equal error rates: FPR = FNR on the claimed trade-off curve.
    return float(rates[np.argmax(guarantee.tpr_bound(rates) >= 1 - rates)])
