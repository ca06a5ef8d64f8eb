"""Private aggregation of votes: PATE, Private-kNN, aggregators, students and vote analysis.

Files, in reading order:

- ``pate``: PATEClassifier
- ``teachers``: partition of the records into teachers, and their votes
- ``aggregators``: GNMax, LNMax, ConfidentGNMax, InteractiveGNMax: noisy labels from votes
- ``student_classifier``: StudentClassifier, the base: a student of noisy votes; public records
- ``students``: PropagationStudent, and the default choice of the student
- ``drawn_records``: queries drawn from noisy marginals, without public records
- ``knn``: PrivateKNNClassifier
- ``vote_analysis``: Renyi costs of a matrix of votes; sanitized_cost, which publishes them
"""

from .aggregators import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from .knn import PrivateKNNClassifier
from .pate import PATEClassifier
from .student_classifier import PublicRecords
from .students import PropagationStudent
from .vote_analysis import analyze_votes, sanitized_cost

__all__ = [
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "PATEClassifier",
    "PrivateKNNClassifier",
    "PropagationStudent",
    "PublicRecords",
    "analyze_votes",
    "sanitized_cost",
]
