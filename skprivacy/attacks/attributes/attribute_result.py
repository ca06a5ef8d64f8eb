"""Result of attribute inference: attack and imputation compared record by record.

Start reading at :func:`compare_guesses`.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t

from ..._report_facts import (
    Fact,
    FactReport,
    Level,
    ReportFacts,
    Section,
    format_number,
    format_significant,
    render_brief,
    values,
)
from ...metrics.rates import Interval, clopper_pearson

_NOT_A_LEAK = "inference from the population is no leak of a record"
_FINDINGS: dict[str, tuple[str, Level]] = {
    "leak": ("the model helps more with members than with others, beyond imputation", "bad"),
    "population": (
        "the model is better than imputation, but not shown to be more so for members; "
        + _NOT_A_LEAK,
        "open",
    ),
    "nothing": ("the attack is not shown to be better than imputation without the model", "plain"),
}


class Guesses(NamedTuple):
    """Guesses about records: whether each is right, and its absolute error (NaN for categories)."""

    right: NDArray[np.bool_]
    error: NDArray[np.float64]


@dataclass(frozen=True)
class AttributeRates:
    """Attribute inference and imputation on the same records.

    Attributes
    ----------
    n : int
        Number of records.
    accuracy, baseline : float
        Shares that the attack inferred, and that imputation without the model inferred.
    accuracy_interval, baseline_interval : (float, float)
        Their confidence intervals.
    gain : float
        ``accuracy - baseline``.
    gain_interval : (float, float)
        Confidence interval of ``gain``, paired by record.
    error, baseline_error : float
        Mean absolute errors of attack and imputation; NaN for categories. Both guess the median of
        their distribution.
    error_gain : float
        ``baseline_error - error``; NaN for categories.
    error_gain_interval : (float, float)
        Confidence interval of ``error_gain``, paired by record, by Student's t distribution. Each
        difference lies within the range of the attacker's values.
    """

    n: int
    accuracy: float
    accuracy_interval: Interval
    baseline: float
    baseline_interval: Interval
    gain: float
    gain_interval: Interval
    error: float
    baseline_error: float
    error_gain: float
    error_gain_interval: Interval


@dataclass(frozen=True, repr=False)
class AttributeResult(FactReport):
    """Attribute inference of members and of others, each compared with imputation.

    Attributes
    ----------
    members, others : AttributeRates
        Rates among members and among non-members.
    advantage : float
        ``members.gain - others.gain``: the effect of membership. Knowledge of the population, which
        the model has learned, helps equally for members and non-members and leaks no record.
    advantage_interval : (float, float)
        Confidence interval of ``advantage``.
    within : float
        Largest absolute error that counts as inferred; 0 for categories.
    baseline : str
        The imputation compared with: the one of two that is right more often on all records.
    alpha : float
        Error probability of each interval.

    Notes
    -----
    Records are treated as independent, and non-members as records of the members' population. No
    claimed epsilon bounds these figures: the intervals measure one model.
    """

    members: AttributeRates
    others: AttributeRates
    advantage: float
    advantage_interval: Interval
    within: float
    baseline: str
    alpha: float

    @property
    def finding(self) -> str:
        """One of "leak", "population" and "nothing".

        "leak": the intervals of the members' gain and of the advantage lie above 0. "population":
        only the interval of the members' gain does. "nothing": the latter does not, which proves no
        privacy.
        """
        if self.members.gain_interval[0] <= 0:
            return "nothing"
        return "leak" if self.advantage_interval[0] > 0 else "population"

    def facts(self) -> ReportFacts:
        sentence, level = _FINDINGS[self.finding]
        close = f" within {format_significant(self.within)}" if self.within else ""
        sides = (("members", self.members), ("others", self.others))
        return ReportFacts(
            Fact("finding", self.finding, sentence, level, label="Attribute inference"),
            (
                Section(
                    "",
                    (
                        *(
                            Fact(name, asdict(side), _describe_rates(side, close), label=name)
                            for name, side in sides
                        ),
                        Fact(
                            "advantage",
                            self.advantage,
                            _format_estimate(self.advantage, self.advantage_interval),
                            label="advantage (gain of members minus gain of others)",
                        ),
                        Fact("baseline", self.baseline, self.baseline, label="imputed by"),
                        *values(self, "advantage_interval", "within", "alpha"),
                    ),
                ),
            ),
        )

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_frame(self) -> pd.DataFrame:
        """Return one row of figures."""
        return pd.DataFrame([{"finding": self.finding} | _flatten(asdict(self))])

    def _repr_html_(self) -> str | None:
        return render_brief("facts.html", facts=self.facts())


def compare_guesses(attack: Guesses, imputed: Guesses, alpha: float) -> AttributeRates:
    """Compare an attack's guesses with imputation on the same records."""
    n = len(attack.right)
    hits = [int(guesses.right.sum()) for guesses in (attack, imputed)]
    gain, gain_interval = _compare_paired(attack.right, imputed.right, alpha)
    reduced = imputed.error - attack.error
    return AttributeRates(
        n=n,
        accuracy=hits[0] / n,
        accuracy_interval=clopper_pearson(hits[0], n, alpha),
        baseline=hits[1] / n,
        baseline_interval=clopper_pearson(hits[1], n, alpha),
        gain=gain,
        gain_interval=gain_interval,
        error=float(attack.error.mean()),
        baseline_error=float(imputed.error.mean()),
        error_gain=float(reduced.mean()),
        error_gain_interval=_mean_interval(reduced, alpha),
    )


def subtract_intervals(
    first: float,
    first_interval: Interval,
    second: float,
    second_interval: Interval,
    correlation: float = 0.0,
) -> Interval:
    """Return the interval of a difference, from the intervals of its terms (Newcombe 1998)."""
    below = first - first_interval[0], second_interval[1] - second
    above = first_interval[1] - first, second - second_interval[0]
    # Newcombe 1998, method 10: squared distances are added
    down, up = (math.sqrt(a * a + b * b - 2 * correlation * a * b) for a, b in (below, above))
    return first - second - down, first - second + up


def _compare_paired(
    right: NDArray[np.bool_], other: NDArray[np.bool_], alpha: float
) -> tuple[float, Interval]:
    """Return the difference of two hit rates on the same records, with its interval.

    It is the rate of records on which only the first is right minus the rate of those on which only
    the second is. The counts are multinomial, so their correlation is not positive.
    """
    n = len(right)
    won, lost = int(np.sum(right & ~other)), int(np.sum(~right & other))
    both = [(k / n, clopper_pearson(k, n, alpha)) for k in (won, lost)]
    odds = math.prod(k / (n - k) if k < n else 0.0 for k in (won, lost))
    interval = subtract_intervals(*both[0], *both[1], correlation=-math.sqrt(odds))
    return (won - lost) / n, (max(interval[0], -1.0), min(interval[1], 1.0))


def _mean_interval(differences: NDArray[np.float64], alpha: float) -> Interval:
    """Return the interval of a mean by Student's t distribution; infinite for one record."""
    n, mean = len(differences), float(differences.mean())
    if n < 2:
        return -math.inf, math.inf
    width = float(t.ppf(1 - alpha / 2, n - 1) * differences.std(ddof=1) / math.sqrt(n))
    return mean - width, mean + width


def _format_estimate(value: float, interval: Interval) -> str:
    return f"{format_number(value)} [{', '.join(map(format_number, interval))}]"


def _describe_rates(rates: AttributeRates, close: str) -> str:
    """Return the figures of members or of others as text."""
    text = (
        f"inferred {_format_estimate(rates.accuracy, rates.accuracy_interval)} of {rates.n:,}"
        f"{close}, imputed {_format_estimate(rates.baseline, rates.baseline_interval)}, gain "
        f"{_format_estimate(rates.gain, rates.gain_interval)}"
    )
    if math.isnan(rates.error):
        return text
    low, high = map(format_significant, rates.error_gain_interval)
    return (
        f"{text}; mean absolute error {format_significant(rates.error)}, imputed "
        f"{format_significant(rates.baseline_error)}, gain "
        f"{format_significant(rates.error_gain)} [{low}, {high}]"
    )


def _flatten(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures with one level of names, and each interval as two figures."""
    row: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            row |= {f"{name}_{key}": inner for key, inner in _flatten(value).items()}
        elif isinstance(value, tuple):
            row[f"{name.removesuffix('_interval')}_low"] = value[0]
            row[f"{name.removesuffix('_interval')}_high"] = value[1]
        else:
            row[name] = value
    return row
