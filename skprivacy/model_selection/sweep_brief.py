"""Opening of a sweep's page: cost of privacy, success of the attack, and its ceiling.

Start reading at :func:`brief_of_sweep`.
"""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from .._report_facts import format_number

_NOT_SHARED = (
    "This page. Its scores were computed from the private data without noise. No guarantee covers "
    "them, or an epsilon that was chosen by them."
)


def brief_of_sweep(sweep: Any, table: pd.DataFrame) -> list[tuple[str, str]]:
    """Return questions and answers on each model: at the epsilon next to 1, and without privacy.

    ``table`` has a row for each epsilon and each baseline. An interval is two standard deviations
    over the splits.
    """
    found = []
    for name, rows in table[~table["baseline"]].groupby("model", sort=False):
        private = rows[rows["epsilon"].map(math.isfinite)]
        if private.empty:
            continue
        level = private.loc[private["epsilon"].map(lambda e: abs(math.log(e))).idxmin()]
        free = rows[rows["epsilon"] == math.inf]
        compared = free if len(free) else table[table["baseline"]]
        other = compared.iloc[0] if len(compared) else None
        found += _answers(f" of {name}" if name else "", level, other, sweep)
    return [*found, ("What must not be shared?", _NOT_SHARED)] if found else found


def _answers(whose: str, level: Any, other: Any, sweep: Any) -> list[tuple[str, str]]:
    at, score = f"at epsilon {level['epsilon']:g}", sweep.score_name_
    cost = f"The test {score} is {_interval(level, 'test_score')} {at}"
    leak = f"{_interval(level, 'attack_auc')} {at}"
    if other is not None:
        cost += f", and {_interval(other, 'test_score')} without privacy"
        if not math.isnan(other["attack_auc"]):
            leak = f"{_interval(other, 'attack_auc')} without privacy, and {leak}"
    answers = [(f"What does the privacy{whose} cost?", f"{cost}.")]
    if not math.isnan(level["attack_auc"]):
        told = f"{sweep.attack_name_} tells a training record from another with an AUC of {leak}"
        answers.append(("What does it buy?", f"{told}. Guessing has 0.5, certainty 1."))
    if not math.isnan(level["attack_auc_bound"]):
        ceiling = format_number(level["attack_auc_bound"])
        limit = f"Under its assumptions, the guarantee limits the true AUC {at} to {ceiling}."
        answers.append(("What holds for every attack?", limit))
    return answers


def _interval(row: Any, name: str) -> str:
    mean, width = row[name], 2 * row[f"{name}_std"]
    if math.isnan(width):
        return format_number(mean)
    low, high = format_number(mean - width), format_number(mean + width)
    return f"{format_number(mean)} ({low} to {high})"
