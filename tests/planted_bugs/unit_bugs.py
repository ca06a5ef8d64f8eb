"""Planted bugs in the protection of labels, of groups of records, and of parties."""

import math

import numpy as np

from skprivacy import _input_data
from skprivacy._groups import Groups
from skprivacy.additive_model import row_plan
from skprivacy.base import PrivateFit
from skprivacy.ensemble import PATEClassifier, pate
from skprivacy.ensemble.teachers import partition_by_hash
from skprivacy.federated import FederatedPlan, plan
from skprivacy.fine_tuning.head import HeadInput
from skprivacy.label_privacy import (
    ALIBIClassifier,
    LP2STClassifier,
    RandomizedResponseClassifier,
    base,
    noisy_labels,
)
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.mechanisms import distributed_gaussian
from skprivacy.mechanisms.distributed_gaussian import DistributedGaussian
from skprivacy.sums import sum_plan

from ..contracts import groups as of_groups
from ..contracts import labels as of_labels
from ..contracts import parties as of_parties
from .bug import Bug, calling, instead, replaced

LABEL_REPLAY, GROUP_REPLAY = of_labels.check_label_replay, of_groups.check_people_replay
LABELS_OF_GROUP, UNIT = of_groups.check_people_label_replay, of_groups.check_unit


def count_people(case):
    try:
        of_groups.check_delta_counts_people(case)
    except ValueError as error:
        raise AssertionError("the fit itself refuses a delta that is held to too many") from error


@calling
def noised_twice(original, self, X, codes, random, noise):
    """Ask each label again, and believe both answers."""
    first, second = (original(self, X, codes, random, noise) for _ in range(2))
    return first[0], first[1] * second[1], first[2]


@calling
def noised_again_in_the_second_stage(original, self, X, codes, random, noise):
    """Ask the labels of the first part in the second stage too, with those of the second."""
    labels, likelihood, prior = original(self, X, codes, random, noise)
    _, again, _ = noisy_labels._respond(codes, prior.shape[1], self.epsilon, noise)
    return labels, likelihood * again, prior


@calling
def prior_of_clean_labels(original, codes, prior, epsilon, noise):
    """Choose the candidates of the second part with a look at its labels."""
    return original(codes, prior + np.eye(prior.shape[1])[codes], epsilon, noise)


@calling
def clean_class_rates(original, self, X, codes, random, noise):
    """Take the bias off with the shares of the true classes, which were never released."""
    labels, likelihood, prior = original(self, X, codes, random, noise)
    rates = np.bincount(codes, minlength=prior.shape[1]) / len(codes)
    return labels, likelihood, prior * rates


@calling
def clean_first_model(original, self, X, codes, random, noise):
    """Begin with a model of the true labels."""
    labels, likelihood, _ = original(self, X, codes, random, noise)
    return labels, likelihood, np.eye(likelihood.shape[1])[codes] + 0.1


@calling
def hash_of_labels(original, teacher, X, y, parts, n_teachers, *rest):
    """Deal records to teachers by features and label: another label changes two teachers."""
    parts = partition_by_hash(X, y, n_teachers, np.random.RandomState(0))
    return original(teacher, X, y, parts, n_teachers, *rest)


@calling
def keeps_labels(original, self, X, y):
    model = original(self, X, y)
    model._seen = np.array(y)
    return model


@calling
def of_another_relation(original, self, event, *, relation, **rest):
    return original(self, event, relation="zero_out", **rest)


class Unbounded(Groups):
    def at_most(self, k, random):
        return np.arange(len(self.codes))


@calling
def any_number_drawn(original, groups, X):
    found = original(groups, X)
    return Unbounded(found.codes, found.n, found.unit)


@calling
def counts_records(original, groups, X):
    """Take the number of records for that of groups."""
    found = original(groups, X)
    return Groups(found.codes, len(found.codes), found.unit)


@calling
def says_record(original, self, *args, unit, **kwargs):
    return original(self, *args, **kwargs)


@calling
def cut_by_record(original, self, X, y, who, random):
    return partition_by_hash(X, y, self.n_teachers, random)


@calling
def dealt_by_record(original, groups, X):
    """Send each record of a group to a different teacher."""
    found = original(groups, X)
    return Groups(np.arange(len(found.codes)), len(found.codes), found.unit)


@calling
def hashed_by_number(original, groups, n_teachers, random):
    """Deal groups by their number, which depends on who came before."""
    return groups.codes // 2 % n_teachers  # a mere shift would only rename the teachers


@calling
def missing_accepted(original, groups, X):
    values = [0 if v is None or v != v else v for v in np.ravel(np.asarray(groups, object))]
    return original(np.resize(np.array(values, object), len(X)), X)


@calling
def rows_counted(original, n, sizes):
    return original(n, None if sizes is None else np.ones_like(sizes))


def share_of(divisor):
    return lambda self: math.ceil(self.noise_multiplier * 2**36 / divisor(self))


def total_in_32_bits(self, sent):
    return sent.astype(np.uint32).sum(axis=0, dtype=np.uint32).view(np.int32).astype(np.int64)


def same_mask(self, n, size, random):
    """Uniform, and of a sum that is corrected: but the server sees differences of parties."""
    masks = np.zeros((n, size), np.uint64)
    masks[0] = np.frombuffer(random.random_bytes(8 * size), np.uint64)
    masks[1] -= masks[0]
    return masks


@calling
def noise_from_the_first(original, self, values, random):
    """Let the first party alone add noise, as much as all were to."""
    noisy = original(self, values, random)
    noisy[1:] = values[1:].astype(np.uint64)
    return noisy


def parties_unclipped(self, norms):
    return 2.0**36 / self.max_grad_norm * np.ones_like(norms)


@calling
def by_size(original, plan, weights, X, codes, grouped, workers):
    """Divide what a party sends by how many records all parties have."""
    added = original(plan, weights, X, codes, grouped, workers)
    return added * sum(map(len, grouped)) // 20


@calling
def only_those_with_records(original, rows, parties, n):
    return [rows for rows in original(rows, parties, n) if len(rows)]


ALIBI, LP2ST, RESPONSE = "ALIBIClassifier", "LP2STClassifier", "RandomizedResponseClassifier"
PATE, TURNING = "PATEClassifier", "LabelPATEClassifier-turning"
INDEPENDENT, OBJECTIVE = "MarginalSynthesizer-independent", "ObjectivePerturbationClassifier"
SUM_OF_PARTIES = DistributedGaussian
SHARES, SUMS, SECRECY = of_parties.check_shares, of_parties.check_sums, of_parties.check_secrecy
PARTY, RECORD = of_parties.check_party_replay, of_parties.check_record_replay
CLIPPING = "_clipping_factors"


BUGS = [
    Bug(row_plan, "weighted_rows", calling(lambda original, rows, shares: original(rows, None)),
        GROUP_REPLAY, "PrivateAdditiveClassifier", "rows without shares"),
    Bug(RandomizedResponseClassifier, "_release_labels", noised_twice, LABEL_REPLAY, RESPONSE),
    Bug(ALIBIClassifier, "_release_labels", noised_twice, LABEL_REPLAY, ALIBI),
    Bug(LP2STClassifier, "_release_labels", noised_again_in_the_second_stage, LABEL_REPLAY, LP2ST),
    Bug(noisy_labels, "_respond_with_prior", prior_of_clean_labels, LABEL_REPLAY, LP2ST),
    Bug(RandomizedResponseClassifier, "_release_labels", clean_class_rates, LABEL_REPLAY, RESPONSE),
    Bug(ALIBIClassifier, "_release_labels", clean_first_model, LABEL_REPLAY, ALIBI),
    Bug(noisy_labels, "_SENSITIVITY", instead(1.0), LABEL_REPLAY, ALIBI,
        "indicators of sensitivity 1"),
    Bug(pate, "count_votes", hash_of_labels, LABEL_REPLAY, TURNING),
    Bug(base.NoisyLabelClassifier, "fit", keeps_labels, of_labels.check_labels_leave_no_trace,
        ALIBI),
    Bug(PrivateFit, "charged", of_another_relation, of_labels.check_label_claim, LP2ST),
    Bug(Groups, "exact_shares_of", instead(staticmethod(np.ones_like)), GROUP_REPLAY, (
        "AdaSSPRegressor", "FunctionalMechanismRegressor",
        "FunctionalMechanismClassifier-delta", "PrivateStandardScaler", "ALMFineTuner-softmax",
        "ALMFineTuner-gradient", "ALMFineTuner-prototypes", "ALMFineTuner-least-squares",
        "PATEClassifier-marginals", INDEPENDENT, "MarginalSynthesizer-tree",
    ), "all count whole"),
    # by how many records there are of anybody, not of each group
    Bug(Groups, "exact_shares_of",
        instead(staticmethod(lambda sizes: np.full(len(sizes), np.mean(1.0 / sizes)))),
        GROUP_REPLAY, "AdaSSPRegressor", "shares of the average"),
    Bug(HeadInput, "weighted", instead(property(lambda self: self.rows)), GROUP_REPLAY,
        "ALMFineTuner-least-squares", "unweighted"),
    Bug(ObjectivePerturbationClassifier, "_record_shares",
        instead(lambda self, who: np.ones(len(who.codes))), GROUP_REPLAY, OBJECTIVE,
        "all records in an objective"),
    Bug(_input_data, "resolve_groups", any_number_drawn, GROUP_REPLAY, "PrivateKNNClassifier"),
    Bug(PATEClassifier, "_partition", cut_by_record, GROUP_REPLAY, PATE),
    Bug(pate, "partition_by_group", hashed_by_number, GROUP_REPLAY, PATE),
    Bug(sum_plan, "_count", rows_counted, GROUP_REPLAY, "PrivateStandardScaler"),
    Bug(PrivateFit, "charged", says_record, UNIT, ("AdaSSPRegressor", INDEPENDENT)),
    Bug(_input_data, "check_groups", missing_accepted, of_groups.check_bad_groups, OBJECTIVE),
    *[Bug(_input_data, "resolve_groups", counts_records, count_people, name) for name in (
        "AdaSSPRegressor", "PrivateKNNClassifier", "ALMFineTuner-gradient", INDEPENDENT)],
    Bug(_input_data, "resolve_groups", any_number_drawn, LABELS_OF_GROUP, (RESPONSE, ALIBI)),
    Bug(_input_data, "resolve_groups", dealt_by_record, LABELS_OF_GROUP, TURNING),
    replaced(SUM_OF_PARTIES, "_share", share_of(lambda m: m.n_parties - m.n_untrusted), SHARES,
             "noise divided by how many there are"),
    replaced(SUM_OF_PARTIES, "_share", share_of(lambda m: math.sqrt(m.n_parties)), SHARES,
             "the missing are not made up for"),
    Bug(SUM_OF_PARTIES, "_share_steps", noise_from_the_first, SHARES),
    replaced(SUM_OF_PARTIES, "total", total_in_32_bits, SUMS),
    replaced(SUM_OF_PARTIES, "total", lambda self, sent: sent.sum(axis=0).astype(float), SUMS,
             "total without a sign"),
    replaced(distributed_gaussian, "_ROOM", math.inf, SUMS, "overflow is not thought of"),
    replaced(SUM_OF_PARTIES, "masks", lambda self, n, size, _: np.zeros((n, size), np.uint64),
             SECRECY, "unmasked"),
    replaced(SUM_OF_PARTIES, "masks", same_mask, SECRECY),
    replaced(FederatedPlan, CLIPPING, parties_unclipped, PARTY),
    replaced(FederatedPlan, CLIPPING, parties_unclipped, RECORD, "records unclipped"),
    replaced(FederatedPlan, CLIPPING,
             lambda self, norms: 2.0**36 / np.maximum(norms / 2, self.max_grad_norm), PARTY,
             "clipped to twice"),
    replaced(FederatedPlan, "_party_contribution", FederatedPlan._record_contribution, PARTY,
             "records are clipped, and not the party"),
    Bug(plan, "_party_contributions", by_size, PARTY),
    Bug(plan, "_group_by_party", only_those_with_records, PARTY),
]  # fmt: skip
