"""Private aggregation of votes: PATE, Private-kNN, aggregators, students and vote analysis.

Start with ``pate.py``. Then ``partition.py`` and ``teachers.py`` (votes), ``aggregators.py`` and
``interactive.py`` (noisy labels), ``students.py`` (what is released), ``knn.py``, ``analysis.py``.
"""

from ..mechanisms.sanitised import SanitisedCost, sanitised_cost
from .aggregators import Aggregator, ConfidentGNMax, GNMax, LNMax
from .analysis import VoteAnalysis, analyse_votes, epsilon_of_moments
from .interactive import InteractiveGNMax
from .knn import PrivateKNNClassifier
from .pate import PATEClassifier
from .public_records import PublicRecords
from .students import PropagationStudent

__all__ = [
    "Aggregator",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "PATEClassifier",
    "PrivateKNNClassifier",
    "PropagationStudent",
    "PublicRecords",
    "SanitisedCost",
    "VoteAnalysis",
    "analyse_votes",
    "epsilon_of_moments",
    "sanitised_cost",
]
