"""Privacy attacks: membership, attribute, property and label inference, and reconstruction.

Start with ``membership.py`` (the base of membership attacks), ``shadow.py`` (shadow models) and
``lira.py`` (the likelihood ratio attack).
"""

from .aggregates import AggregateAttack, ExpectedPower, expected_power
from .attack_result import AttackResult
from .attributes.attribute import AttributeInference, AttributeResult, UpdatesAttributeInference
from .attributes.label import LabelCanaries, LabelInferenceAttack, LabelInferenceResult
from .attributes.property import PropertyInference, UpdatesPropertyInference
from .generators.discriminator import GenerativeAttack
from .generators.distances import DensityRatio, LikelihoodRatio, NearestGenerated
from .generators.shadow_generators import MarginalAttack, ShadowGenerators
from .membership.classifiers import MLLeaksAttack, ShokriAttack, SupervisedAttack
from .membership.few_neighbors import IndirectInference, VulnerableRecordsAttack
from .membership.label_only import LabelOnlyAttack
from .membership.likelihood_ratio import RMIA, LiRA
from .membership.membership_attack import LossThreshold, MembershipAttack
from .membership.quantile import QuantileAttack
from .membership.strongest import LearnedRatio, StrongestAttack
from .membership.thresholds import ReferenceThreshold, ShadowThreshold, SignalThreshold
from .membership.update_membership import UpdatesAttack
from .membership.white_box import GradientNormAttack, StolenMemoriesAttack, WhiteBoxAttack
from .reconstruction.bayes import BayesInversion
from .reconstruction.first_layer import FirstLayerInversion
from .reconstruction.inversion_result import InversionResult
from .reconstruction.optimization import GradientInversion
from .reconstruction.party_gradient import gradient_of_step, party_gradient
from .shadow_pool import ShadowPool
from .updates import Updates, gradient_ascent

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
