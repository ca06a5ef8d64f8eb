"""Private aggregation of votes: PATE, Private-kNN, aggregators, students and vote analysis.

Start with ``pate.py``. Then ``partition.py`` and ``teachers.py`` (votes), ``aggregators.py`` and
``interactive.py`` (noisy labels), ``students.py`` (what is released), ``knn.py``, ``analysis.py``.

Files, in reading order:

- ``pate``: PATEClassifier
- ``knn``: PrivateKNNClassifier
- ``student_classifier``: base of classifiers whose student is taught by votes; PublicRecords,
  queries
- ``students``: PropagationStudent, its graph, the default choice, fit_student
- ``teachers``: partition of the records, teachers, votes
- ``drawn_records``: records drawn from noisy counts by column and class
- ``aggregators``: GNMax, LNMax, ConfidentGNMax, InteractiveGNMax
- ``vote_analysis``: what a matrix of votes costs
- ``published_cost``: sanitised_cost: publication of the data-dependent cost of PATE votes
  (Papernot et al. 2018)
"""

from .aggregators import Aggregator, ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from .knn import PrivateKNNClassifier
from .pate import PATEClassifier
from .published_cost import SanitisedCost, sanitised_cost
from .student_classifier import PublicRecords
from .students import PropagationStudent
from .vote_analysis import VoteAnalysis, analyse_votes, epsilon_of_moments

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
