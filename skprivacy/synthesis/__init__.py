"""Private synthetic tables, their quality, and models trained on them.

Files, in reading order:

- ``base``: Synthesizer, the public facts of a table, and fits to counts by a public schema
- ``domain``: Grid, cells of a column, encoding and decoding of records
- ``constrained_records``: records that satisfy the constraints of a schema
- ``marginal_tables``: mechanisms of a fit, noisy tables, bins
- ``scanned_tables``: plans of exact counts, and the tables of a scan
- ``marginal_selection``: private choice of pairs: spanning tree or adaptive
- ``graphical_model``: junction tree, greatest entropy, sampling
- ``marginal_synthesizer``: MarginalSynthesizer
- ``gan``: DPGANSynthesizer
- ``gan_features``: cells as network inputs, and noisy moments that start a generator
- ``synthetic_training``: SyntheticDataClassifier, SyntheticDataRegressor
- ``quality``: synthetic_quality
"""

from .domain import Grid
from .gan import DPGANSynthesizer
from .marginal_synthesizer import MarginalSynthesizer
from .quality import synthetic_quality
from .synthetic_training import SyntheticDataClassifier, SyntheticDataRegressor

__all__ = [
    "DPGANSynthesizer",
    "Grid",
    "MarginalSynthesizer",
    "SyntheticDataClassifier",
    "SyntheticDataRegressor",
    "synthetic_quality",
]
