"""Private models made of many that vote: PATE, its aggregators and its students."""

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
