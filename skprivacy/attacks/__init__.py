"""Privacy attacks: membership, attribute, property and label inference, and reconstruction.

Files, in reading order:

- ``membership/``: membership inference; start with ``membership/membership_attack``
- ``attributes/``: attribute, property and label inference
- ``reconstruction/``: reconstruction of records from gradients and models
- ``generators/``: membership inference on generators and their synthetic records
- ``aggregates``: membership in published means, frequencies and marginals
- ``attack_result``: AttackResult: scores of members and non-members, metrics, intervals
- ``model_answers``: one number for each record from any model: ``SIGNALS`` and other kinds
- ``module_classifier``: bare torch modules as classifiers
- ``shadow_pool``: ShadowPool: shadow models that attacks share
- ``shadow_training``: training and storage of shadow models
- ``shadow_answers``: answers of all models of a pool; tables of stored answers
- ``updates``: Updates: what an attacker sees of federated training
- ``record_tables``: records in any container: convert, fingerprint, encode, find nearest
- ``group_scores``: groups as members: halve them, and join their records' scores
- ``network_view``: inputs and output gradients of each linear layer of a network
- ``record_gradients``: norms and inner products of per-record gradients
- ``torch_gradients``: clipped loss gradients as a party of federated training sends them
"""

from .aggregates import AggregateAttack
from .attack_result import AttackResult
from .attributes.attribute import AttributeInference
from .attributes.label import LabelCanaries, LabelInferenceAttack
from .attributes.property import PropertyInference
from .generators.discriminator import GenerativeAttack
from .generators.distances import DensityRatio, LikelihoodRatio, NearestGenerated
from .generators.shadow_generators import MarginalAttack, ShadowGenerators
from .membership.classifiers import MLLeaksAttack, ShokriAttack, SupervisedAttack
from .membership.few_neighbors import IndirectInference, VulnerableRecordsAttack
from .membership.label_only import LabelOnlyAttack
from .membership.labeled_records import LabeledRecords
from .membership.likelihood_ratio import RMIA, LiRA
from .membership.membership_attack import LossThreshold, MembershipAttack
from .membership.quantile import QuantileAttack
from .membership.strongest import LearnedRatio, StrongestAttack
from .membership.thresholds import ReferenceThreshold, ShadowThreshold, SignalThreshold
from .membership.update_membership import UpdatesMembership
from .membership.white_box import StolenMemoriesAttack, WhiteBoxAttack
from .reconstruction.bayes import BayesInversion
from .reconstruction.first_layer import FirstLayerInversion
from .reconstruction.inversion_result import InversionResult
from .reconstruction.model_inversion import invert_class
from .reconstruction.optimization import GradientInversion
from .reconstruction.party_gradient import party_gradient
from .shadow_pool import ShadowPool
from .updates import Updates

__all__ = [
    "RMIA",
    "AggregateAttack",
    "AttackResult",
    "AttributeInference",
    "BayesInversion",
    "DensityRatio",
    "FirstLayerInversion",
    "GenerativeAttack",
    "GradientInversion",
    "IndirectInference",
    "InversionResult",
    "LabelCanaries",
    "LabelInferenceAttack",
    "LabelOnlyAttack",
    "LabeledRecords",
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
    "UpdatesMembership",
    "VulnerableRecordsAttack",
    "WhiteBoxAttack",
    "invert_class",
    "party_gradient",
]
