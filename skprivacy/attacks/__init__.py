"""Privacy attacks: membership, attribute, property and label inference, and reconstruction.

Start with ``membership.py`` (the base of membership attacks), ``shadow.py`` (shadow models) and
``lira.py`` (the likelihood ratio attack).
"""

from .aggregate import AggregateAttack, ExpectedPower, expected_power
from .attribute import AttributeInference, AttributeResult
from .bayes_inversion import BayesInversion
from .first_layer_inversion import FirstLayerInversion
from .generalized import VulnerableRecordsAttack
from .generative import GenerativeAttack
from .generators import DensityRatio, LikelihoodRatio, NearestGenerated
from .gradient_inversion import GradientInversion
from .gradient_norm import GradientNormAttack
from .indirect import IndirectInference
from .inversion_result import InversionResult
from .label_inference import LabelCanaries, LabelInferenceAttack, LabelInferenceResult
from .label_only import LabelOnlyAttack
from .learned import LearnedRatio
from .lira import LiRA
from .marginals import MarginalAttack
from .membership import LossThreshold, MembershipAttack
from .party_gradient import gradient_of_step, party_gradient
from .property import PropertyInference
from .quantile import QuantileAttack
from .result import AttackResult
from .rmia import RMIA
from .shadow import ShadowPool
from .shadow_classifier import MLLeaksAttack, ShokriAttack
from .shadow_generators import ShadowGenerators
from .shadow_threshold import ShadowThreshold
from .stolen_memories import StolenMemoriesAttack
from .strongest import StrongestAttack
from .supervised import SupervisedAttack
from .threshold import ReferenceThreshold, SignalThreshold
from .update_attribute import UpdatesAttributeInference
from .update_membership import UpdatesAttack
from .update_property import UpdatesPropertyInference
from .updates import Updates, gradient_ascent
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
    "LikelihoodRatio",
    "LossThreshold",
    "MLLeaksAttack",
    "MarginalAttack",
    "MembershipAttack",
    "NearestGenerated",
    "PropertyInference",
    "QuantileAttack",
    "ReferenceThreshold",
    "ShadowGenerators",
    "ShadowPool",
    "ShadowThreshold",
    "ShokriAttack",
    "SignalThreshold",
    "StolenMemoriesAttack",
    "StrongestAttack",
    "SupervisedAttack",
    "Updates",
    "UpdatesAttack",
    "UpdatesAttributeInference",
    "UpdatesPropertyInference",
    "VulnerableRecordsAttack",
    "WhiteBoxAttack",
    "expected_power",
    "gradient_ascent",
    "gradient_of_step",
    "party_gradient",
]
