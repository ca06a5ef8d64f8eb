"""Comparison of accountants: naive and advanced composition, zCDP, GDP, RDP and PLD."""

from __future__ import annotations

import math
from collections.abc import Callable

from ._checks import allows_replacement, check_delta, check_relation
from ._event import Event, NoLossDistributionError, check_event, check_known, flatten
from ._proved import epsilon_of
from ._work import check_work
from .events import Composed, GaussianEvent, NonPrivate, PoissonSampled
from .events.composition import total_zcdp
from .pld import pld
from .rdp import rdp_epsilon

__all__ = ["ACCOUNTANTS", "compare_accountants", "epsilon_by", "gdp_mu", "zcdp"]


def zcdp(event: Event, relation: str = "add_remove") -> float:
    """Return rho of zero-concentrated differential privacy (zCDP).

    Parameters
    ----------
    event : Event
        What was released.
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    float
        At least 0; infinity if no bound is known.

    References
    ----------
    M. Bun and T. Steinke, "Concentrated differential privacy: simplifications, extensions, and
    lower bounds", TCC 2016, arXiv:1605.02065.

    Examples
    --------
    >>> from skprivacy.accounting import GaussianEvent, Repeated, zcdp
    >>> zcdp(Repeated(GaussianEvent(10.0), 20))
    0.1
    """
    check_relation(relation)
    check_known(event, relation)
    return total_zcdp(event, relation)


def gdp_mu(event: Event) -> tuple[float, bool]:
    """Return mu of Gaussian differential privacy (GDP), and whether it is proved.

    Mu is exact for Gaussian noise and a bound for logistic noise. For Poisson-sampled Gaussian
    noise it is the central limit of many steps (Bu, Dong, Long and Su 2020). The limit may lie
    *below* the true value: it is an estimate, never a guarantee.

    Parameters
    ----------
    event : Event
        What was released.

    Returns
    -------
    mu : float
        Infinity for all other events.
    proved : bool
        False if mu is the limit of many steps.
    """
    check_work(event)
    total, proved = 0.0, True
    for part, n in flatten(event).items():
        mu, known = part.gdp()
        if math.isinf(mu) and known:
            return math.inf, True
        # Dong, Roth and Su 2022, Corollary 3.3: the squares of the mus add up
        total, proved = total + n * mu**2, proved and known
    return math.sqrt(total), proved


def _naive_epsilon(event: Event, delta: float, relation: str) -> float:
    """Add up the epsilons, each at an equal share of delta: basic composition."""
    counts = flatten(event)
    steps = sum(counts.values())
    return math.fsum(n * _single_epsilon(e, delta / steps, relation) for e, n in counts.items())


def _advanced_epsilon(event: Event, delta: float, relation: str) -> float:
    """Apply advanced composition at half of delta; the steps share the other half equally."""
    counts = flatten(event)
    steps = sum(counts.values())
    each = [(n, _single_epsilon(e, delta / (2 * steps), relation)) for e, n in counts.items()]
    if not all(math.isfinite(e) for _, e in each):
        return math.inf
    # Kairouz, Oh and Viswanath 2015, composition of different epsilons: e (e^e - 1) / (e^e + 1)
    drift = math.fsum(n * e * math.tanh(e / 2) for n, e in each)
    return drift + math.sqrt(2 * math.log(2 / delta) * math.fsum(n * e**2 for n, e in each))


def _single_epsilon(event: Event, delta: float, relation: str) -> float:
    """Return the pure epsilon of one event, or its epsilon at ``delta`` if it is not pure."""
    try:
        return epsilon_of(event, 0.0, relation)
    except ValueError:
        return epsilon_of(event, delta, relation)


def _zcdp_epsilon(event: Event, delta: float, relation: str) -> float:
    rho = zcdp(event, relation)
    # Bun and Steinke 2016, Proposition 1.3
    return rho + 2 * math.sqrt(rho * math.log(1 / delta)) if math.isfinite(rho) else math.inf


def _gdp_epsilon(event: Event, delta: float, relation: str) -> float:
    if allows_replacement(relation) and any(isinstance(e, PoissonSampled) for e in flatten(event)):
        return math.inf  # the central limit is for added or removed records
    mu = gdp_mu(event)[0]
    # Dong, Roth and Su 2022: mu-GDP has the privacy curve of Gaussian noise 1 / mu
    return pld(GaussianEvent(1 / mu)).epsilon(delta) if math.isfinite(mu) else math.inf


def _pld_epsilon(event: Event, delta: float, relation: str) -> float:
    try:
        return pld(event, relation).epsilon(delta)
    except NoLossDistributionError:
        return math.inf


ACCOUNTANTS: dict[str, Callable[[Event, float, str], float]] = {
    "naive": _naive_epsilon,
    "advanced": _advanced_epsilon,
    "zcdp": _zcdp_epsilon,
    "gdp": _gdp_epsilon,
    "rdp": rdp_epsilon,
    "pld": _pld_epsilon,
}


def epsilon_by(accountant: str, event: Event, delta: float, relation: str = "add_remove") -> float:
    """Return the epsilon that one accountant proves; infinity if it has no bound."""
    check_work(event)
    parts = flatten(event)
    if not parts:
        return 0.0
    if any(isinstance(part, NonPrivate) for part in parts):
        return math.inf
    return float(ACCOUNTANTS[accountant](Composed((event,)), delta, relation))


def compare_accountants(
    event: Event, delta: float, relation: str = "add_remove"
) -> dict[str, dict[str, float | str]]:
    """Return the epsilon of an event by each accountant.

    Parameters
    ----------
    event : Event
        What was released.
    delta : float
        In (0, 1).
    relation : {"add_remove", "label", "replace_one", "zero_out"}, default="add_remove"
        The neighbouring relation.

    Returns
    -------
    dict
        For each of ``naive``, ``advanced``, ``zcdp``, ``gdp``, ``rdp`` and ``pld``, its ``epsilon``
        (infinity if it has no bound) and its ``kind``: ``proved``, or ``estimate`` for the central
        limit that Gaussian differential privacy uses under sampling.

    References
    ----------
    B. Jayaraman and D. Evans, "Evaluating differentially private machine learning in practice",
    USENIX Security 2019.

    Examples
    --------
    >>> from skprivacy.accounting import GaussianEvent, Repeated, compare_accountants
    >>> table = compare_accountants(Repeated(GaussianEvent(10.0), 20), 1e-6)
    >>> {name: round(row["epsilon"], 3) for name, row in table.items()}
    {'naive': 9.225, 'advanced': 13.661, 'zcdp': 2.451, 'gdp': 1.995, 'rdp': 2.142, 'pld': 1.995}
    """
    if check_delta(delta) == 0:
        raise ValueError(
            "delta=0 leaves nothing to compare: pure epsilons only add up. Pass a delta > 0."
        )
    check_relation(relation)
    check_event("event", event)
    check_known(event, relation)
    if event.data_dependent:
        raise ValueError(
            f"The cost of {event!r} was computed from private data. Compare the data-independent "
            "event instead."
        )
    table: dict[str, dict[str, float | str]] = {}
    for name in ACCOUNTANTS:
        estimate = name == "gdp" and not gdp_mu(event)[1]
        table[name] = {
            "epsilon": epsilon_by(name, event, delta, relation),
            "kind": "estimate" if estimate else "proved",
        }
    return table
