"""Planted bugs in the comparison of an audit's samples: classifiers that know, units that leak."""

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from skprivacy.audit.comparability import blind_baseline, matched_pairs
from skprivacy.audit.comparability.blind_baseline import SampleUnits

from ..audit.comparability import null_samples
from .bug import Bug, calling, replaced


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
    replaced(blind_baseline, "_mark_earlier", lambda stages, block: stages != block,
             null_samples.check_numbers, "learns all blocks", nightly=True),
    replaced(blind_baseline, "_mark_earlier", lambda stages, block: stages <= block,
             null_samples.check_numbers, "learns the scored block"),
    # Members come first: in the order of appearance of texts, and of units with equal values.
    replaced(blind_baseline, "_sorted_codes", lambda values: pd.factorize(values)[0],
             null_samples.check_texts, "coded by appearance"),
    replaced(blind_baseline, "rankdata", lambda values: rankdata(values, method="ordinal"),
             null_samples.check_few_values, "ties by position"),
    # Without groups, a block holds records of people who were learned.
    Bug(SampleUnits, "from_records",
        calling(lambda original, *samples: original(*samples[:4])), null_samples.check_people,
        name="records as units"),
    Bug(SampleUnits, "from_records", blocks_by_content, null_samples.check_one_bit, nightly=True),
    replaced(matched_pairs, "CALIPER", 100.0, null_samples.check_pairs, "a wide caliper"),
    Bug(matched_pairs, "pair_units", labels_unpaired, null_samples.check_pairs),
]  # fmt: skip
