"""Privacy attacks: membership, attribute, property and label inference, and reconstruction.

Start with ``membership.py`` (the base of membership attacks), ``shadow.py`` (shadow models) and
``lira.py`` (the likelihood ratio attack).

Files, in reading order:

- ``attack_result``: `AttackResult`: scores of members and non-members, every metric with its
  interval
- ``group_scores``: Groups as members: separate them, join their scores, keep them together in
  halves
- ``record_tables``: Records in any container: convert, concatenate, select, fingerprint
- ``coordinates``: Mixed columns as points, as cells, and nearest neighbours among them (one
  encoder)
- ``model_answers``: One number per record from any model: probabilities, margins, densities,
  residuals; bare torch modules
- ``network_view``: One view of a network: inputs and output gradients of each linear layer,
  retraining from a layer on
- ``record_gradients``: Norms, products, clipped means and the differentiable batch gradient, all
  from that view
- ``aggregates``: `AggregateAttack`, `expected_power`: membership in published means
- ``candidate_records``: `from_model`, `from_marginals`, `noisy`: records for an attacker who has
  none (Shokri 2017, V-C)
- ``scores``: Formulas of one-model and calibrated scores as one documented table; moments over
  shadow models
- ``shadow_pool``: `ShadowPool`: parameters, complementary halves, fit, from_predictions, questions
- ``shadow_training``: Train or load shadow models (singly, in threads, stacked); folder of models
- ``shadow_answers``: Logits of all models of a pool; tables that stand in for models; stateless
  first steps taken once
- ``updates``: `Updates`: what an attacker sees of federated training; `gradient_ascent`
- ``torch_gradients``: Gradients of networks of linear layers, from the inputs and output gradients
  of each layer
- ``attributes/``: Attribute, property and label inference
- ``generators/``: Attacks on generated records and their generators
- ``membership/``: Membership inference attacks
- ``reconstruction/``: Reconstruction of records from gradients and models
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
