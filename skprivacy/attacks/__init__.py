"""Attacks: what a fitted classifier reveals about the records it was trained on."""

from .aggregate import AggregateAttack, ExpectedPower, expected_power
from .attribute import AttributeInference, AttributeResult
from .bayes_inversion import BayesInversion
from .first_layer_inversion import FirstLayerInversion
from .generalized import VulnerableRecordsAttack
from .generative import GenerativeAttack
from .generators import DensityRatio, NearestGenerated
from .gradient_inversion import GradientInversion
from .gradient_norm import GradientNormAttack
from .indirect import IndirectInference
from .inversion_result import InversionResult
from .label_inference import LabelCanaries, LabelInferenceAttack, LabelInferenceResult
from .label_only import LabelOnlyAttack
from .learned import LearnedRatio
from .lira import LiRA
from .membership import LossThreshold, MembershipAttack
from .party_gradient import gradient_of_step, party_gradient
from .property import PropertyInference
from .quantile import QuantileAttack
from .result import AttackResult
from .rmia import RMIA
from .shadow import ShadowPool
from .shadow_classifier import MLLeaksAttack, ShokriAttack
from .shadow_threshold import ShadowThreshold
from .stolen_memories import StolenMemoriesAttack
from .strongest import StrongestAttack
from .supervised import SupervisedAttack
from .threshold import ReferenceThreshold, SignalThreshold
from .white_box import WhiteBoxAttack

__all__ = [
    "RMIA",
    "AggregateAttack",
    "AttackResult",
    "AttributeInference",
    "AttributeResult",
    "BayesInversion",
    "DensityRatio",
    "ExpectedPower",
    "FirstLayerInversion",
    "GenerativeAttack",
    "GradientInversion",
    "GradientNormAttack",
    "IndirectInference",
    "InversionResult",
    "LabelCanaries",
    "LabelInferenceAttack",
    "LabelInferenceResult",
    "LabelOnlyAttack",
    "LearnedRatio",
    "LiRA",
    "LossThreshold",
    "MLLeaksAttack",
    "MembershipAttack",
    "NearestGenerated",
    "PropertyInference",
    "QuantileAttack",
    "ReferenceThreshold",
    "ShadowPool",
    "ShadowThreshold",
    "ShokriAttack",
    "SignalThreshold",
    "StolenMemoriesAttack",
    "StrongestAttack",
    "SupervisedAttack",
    "VulnerableRecordsAttack",
    "WhiteBoxAttack",
    "expected_power",
    "gradient_of_step",
    "party_gradient",
]
