"""Private synthetic tables, what they are worth, and models that are trained on them.

Files, in reading order:

- ``base``: Synthesizer; what is public of a table
- ``domain``: public cells: Grid, cells of a column, codes and values
- ``marginal_tables``: counts of records, noisy one-way tables, bins
- ``measurement_plan``: mechanisms of a fit, their event and noise
- ``marginal_selection``: private choice of pairs: tree or adaptive
- ``graphical_model``: junction tree, greatest entropy, sampling
- ``marginal_synthesizer``: the marginal synthesizer
- ``gan``: DPGANSynthesizer
- ``gan_features``: cells as network inputs; moments from which a generator starts
- ``synthetic_training``: SyntheticDataClassifier, -Regressor
- ``quality``: synthetic_quality
"""

from .domain import Grid
from .gan import DPGANSynthesizer
from .marginal_synthesizer import PrivateSynthesizer
from .quality import SyntheticQuality, synthetic_quality
from .synthetic_training import SyntheticDataClassifier, SyntheticDataRegressor

__all__ = [
    "DPGANSynthesizer",
    "Grid",
    "PrivateSynthesizer",
    "SyntheticDataClassifier",
    "SyntheticDataRegressor",
    "SyntheticQuality",
    "synthetic_quality",
]
