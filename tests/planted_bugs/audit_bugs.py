"""Planted bugs in the comparison of an audit's samples: classifiers that know, units that leak."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from skprivacy.audit.comparability import blind_baseline, matched_pairs
from skprivacy.audit.comparability.blind_baseline import SampleUnits

from ..audit.comparability import null_samples
from .bug import Bug, calling, instead


def learns_all_blocks(original):
    return lambda stages, block: stages != block


def learns_the_scored_block(original):
    return lambda stages, block: stages <= block


def coded_by_appearance(original):
    """Number texts in their order of appearance: members come first."""
    return lambda values: pd.factorize(values)[0]


def records_as_units(original):
    """Leave the groups out, so that a block holds records of people who were learned."""
    return lambda X_in, y_in, X_out, y_out, people=None: original(X_in, y_in, X_out, y_out)


def ties_by_position(original):
    """Break ties by the order of units: members come first."""
    return lambda values: rankdata(values, method="ordinal")


@calling
def blocks_by_content(original, *samples):
    """Order the units by their first feature, in place of at random."""
    units = original(*samples)
    first = units.features[:, 0]
    halves = first[: units.n_in], first[units.n_in :]
    ranks = tuple(np.argsort(np.argsort(half, kind="stable")) for half in halves)
    return SampleUnits(units.features, units.codes, units.labels, ranks, units.seed)


@calling
def labels_unpaired(original, units, log_odds, inside, outside):
    same = SampleUnits(units.features, units.codes, None, units.ranks, units.seed)
    return original(same, log_odds, inside, outside)


BUGS = [
    Bug(blind_baseline, "_mark_earlier", learns_all_blocks, null_samples.check_numbers),
    Bug(blind_baseline, "_mark_earlier", learns_the_scored_block, null_samples.check_numbers),
    Bug(blind_baseline, "_sorted_codes", coded_by_appearance, null_samples.check_texts),
    Bug(SampleUnits, "from_records", records_as_units, null_samples.check_people),
    Bug(SampleUnits, "from_records", blocks_by_content, null_samples.check_one_bit, nightly=True),
    Bug(blind_baseline, "rankdata", ties_by_position, null_samples.check_few_values),
    Bug(matched_pairs, "CALIPER", instead(100.0), null_samples.check_pairs, name="a wide caliper"),
    Bug(matched_pairs, "pair_units", labels_unpaired, null_samples.check_pairs),
]
