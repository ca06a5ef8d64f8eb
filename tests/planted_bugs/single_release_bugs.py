"""Planted bugs in estimators that release once: bounds, sensitivities, charges, state."""

import dataclasses
from contextlib import contextmanager
from operator import attrgetter
from unittest import mock

import numpy as np
import torch
from sklearn.base import BaseEstimator

from skprivacy.accounting import ComposedEvent
from skprivacy.additive_model.gradient_plan import GradientPlan, RegressionPlan
from skprivacy.additive_model.losses import LogisticLoss, SquaredLoss
from skprivacy.additive_model.regression import LastStep
from skprivacy.base import PrivateEstimatorMixin, PrivateFit
from skprivacy.ensemble import aggregators, knn
from skprivacy.fine_tuning import ALMFineTuner, HalfWhitening, features, heads
from skprivacy.fine_tuning.heads import GradientHead, LeastSquaresHead, PrototypeHead
from skprivacy.label_privacy import noisy_labels
from skprivacy.linear_model import (
    AdaSSPRegressor,
    OutputPerturbationClassifier,
    functional_mechanism,
)
from skprivacy.linear_model import base as linear
from skprivacy.linear_model.base import PolynomialObjective
from skprivacy.linear_model.perturbation import ObjectivePerturbation
from skprivacy.mechanisms import Exponential, Gaussian, Mechanism
from skprivacy.mechanisms.base import UnitBall, quantize
from skprivacy.neural_network._training.adversarial import AdversarialTraining
from skprivacy.preprocessing import BoundedColumn, Schema
from skprivacy.preprocessing.statistics import standard_scaler
from skprivacy.preprocessing.statistics.moments import BoundedColumns, MomentPlan
from skprivacy.preprocessing.statistics.release import Statistic
from skprivacy.sums.sum_plan import Labels, TargetRange
from skprivacy.synthesis import DPGANSynthesizer, SyntheticDataClassifier, gan, marginal_synthesizer
from skprivacy.synthesis.base import TableFacts
from skprivacy.synthesis.gan_features import Moments
from skprivacy.synthesis.marginal_tables import MeasurementPlan
from skprivacy.synthesis.scanned_tables import ScannedTables

from ..contracts import records as contracts
from ..contracts import refusals
from ..contracts import single_release as contracts_once
from .bug import Bug, calling, fields_halved, halved, instead

REPLAY, TRACES = contracts.check_replay, contracts.check_no_traces
ACCOUNTING = contracts_once.check_accounting
REFUSED, FAILED = refusals.check_refused_fit, refusals.check_failed_fit
FACTS = refusals.check_facts_off_data


@calling
def drops_records_of_one_class(original, self, labels):
    codes = original(self, labels)
    return codes if len(np.unique(codes)) > 1 else np.full(len(codes), np.nan)


@calling
def divided_by_n(original, self, degree, _, value):
    """Divide noisy sums by the exact number of records, though it is private."""
    released, counts = original(self, degree, "zero_out", value), []

    def vector(total):
        counts.append(total.n_units)
        return released.vector(total)

    return dataclasses.replace(
        released, vector=vector,
        read=lambda noisy, mechanism, _: released.read(noisy, mechanism, counts[-1]),
    )  # fmt: skip


@calling
def no_radius(original, self, X, shares=None):
    """Scale features, but let records be as long as they are."""
    rows, _ = original(self, X)
    missing = np.isnan(X).any(axis=1)
    lower, upper = np.array(self.lower), np.array(self.upper)
    full = 2 * (np.clip(X, lower, upper) - lower) / (upper - lower) - 1
    rows[:, : X.shape[1]] = np.where(missing[:, None], 0.0, full)
    return rows, np.where(missing, 0.0, 1.0)


@calling
def centred(original, self, X, shares=None):
    """Take the mean of the private records for the middle."""
    return original(self, X - np.nanmean(np.where(np.isfinite(X), X, np.nan), axis=0), shares)


@calling
def features_beyond_the_ball(original, self, X, shares=None):
    lower, upper = np.array(self.lower), np.array(self.upper)
    rows = 2 * (np.nan_to_num(X) - lower) / (upper - lower) - 1
    return quantize(rows / self.norm), np.ones(len(X))


@calling
def wide_target(original, self, y):
    """Clip targets to bounds three times as wide as those declared."""
    lower, upper = self.lower, self.upper
    return np.clip(2.0 * (y - lower) / (upper - lower) - 1.0, -3.0, 3.0)


@calling
def half_spread(original, first, sensitivity):
    """Halve the sensitivity of a mechanism when it is made."""
    return original(first, sensitivity / 2)


@calling
def data_bounds(original, fit, X, given):
    low, high = np.nanmin(np.clip(X, -9, 9), axis=0), np.nanmax(np.clip(X, -9, 9), axis=0)
    return original(fit, X, (low, high + 1.0))


@calling
def classes_of_the_data(original, fit, y, given):
    return original(fit, y, np.unique(np.append(y, [0, 1])))


def keeps_what_a_refused_fit_has_set(original):
    @contextmanager
    def private_fit(self):
        yield PrivateFit(self)

    return private_fit


@calling
def keeps_rows(original, self, X, y=None, **params):
    self.kept_ = np.array(X) if y is None else np.c_[np.array(X), y]
    return original(self, X, y, **params)


@calling
def keeps_n(original, self, X, y=None, **params):
    self.seen_ = len(X)
    return original(self, X, y, **params)


def kept_elsewhere(copied):
    """Keep the records of each call in a list that lives as long as the bug is planted."""

    def make(original):
        def run(self, X, *args):
            kept.append(copied(X))
            return original(self, X, *args)

        kept = []
        return run

    return make


@calling
def polishes_on_the_data(original, self, X, y):
    """Move the constant by the mean residual of the private records."""
    original(self, X, y)
    finite = np.nan_to_num(np.clip(X, -3, 3))
    self.intercept_ += np.mean(np.clip(y, *self.target_bounds_) - finite @ self.coef_)
    return self


@calling
def polished_on_the_data(original, self, X, y, **params):
    """Move the constant by the mean of the private targets, bare."""
    original(self, X, y, **params)
    self.intercept_ = self.intercept_ + np.mean(np.clip(np.nan_to_num(y), -1, 1))
    return self


@calling
def twice_the_steps(original, self, task, records, random):
    """Take twice the steps that the noise is for."""

    class More(GradientHead):
        def _multiplier(this, task):
            return self._multiplier(task)

    more = More(**{**dataclasses.asdict(self), "n_steps": 2 * self.n_steps})
    return original(more, task, records, random)


@calling
def unclipped(original, self, records, targets, weights):
    return (0.5 - targets) * records.counts[:, None]


@calling
def fitted_to_private_records(original, self, fit, X, y, X_public, groups):
    """Fit the encoder and the whitening to the private records, and say nothing of it."""
    finite = np.clip(np.where(np.isfinite(X).all(axis=1)[:, None], X, 0.0), -9, 9)
    return original(self, fit, X, y, finite, groups)


@calling
def whitened_by_private_records(original, self, X, *args):
    finite = np.clip(np.where(np.isfinite(X).all(axis=1)[:, None], X, 0.0), -9, 9)
    self.whitening_ = HalfWhitening().fit(self.encoder_.transform(finite))
    return original(self, X, *args)


@calling
def keeps_exact_weights(original, self, *args):
    with mock.patch.object(Mechanism, "release", lambda mechanism, value, random: value):
        self.exact_ = original(self, *args)
    return original(self, *args)


@calling
def domain_of_the_data(original, fit, X, y, schema, label):
    finite = np.clip(np.nan_to_num(X), -9, 9)
    lower, upper = finite.min(axis=0), finite.max(axis=0) + 1.0
    facts = {n: BoundedColumn(lower[j], upper[j]) for j, n in enumerate(schema)}
    return original(fit, X, y, Schema(facts, classes=schema.classes), label)


@calling
def constraints_that_the_data_satisfies(original, fit, X, y, schema, label):
    """Drop the constraints that some record breaks."""
    facts = original(fit, X, y, schema, label)
    values = {name: np.asarray(X)[:, j] for j, name in enumerate(schema)}
    kept = [rule for rule in schema.constraints if rule.holds(values, schema, 0.0).all()]
    return dataclasses.replace(facts, schema=schema.with_constraints(kept))


@calling
def bins_of_the_data(original, self, bins, cliques):
    """Cut each numeric column at the largest value of its records."""
    for (j, *_), table in self._tables.items():
        held = np.flatnonzero(table.reshape(len(table), -1).any(axis=1))
        bins[j] = (np.arange(len(table)) >= max(held.max(), 1)).astype(np.int64)
    return original(self, bins, cliques)


@calling
def label_rates_unpaid(original, records, plan, random):
    *noisy, _ = original(records, plan, random)
    return [*noisy, records.table([len(noisy)])]


def of_one_table(original):
    """Say that a record changes tables of overlapping columns as if they were one."""
    return property(
        lambda self: Gaussian(original.fget(self).noise_multiplier, np.sqrt(self._l1_change))
    )


def one_round_is_charged(original):
    return property(
        lambda self: ComposedEvent(
            (self.fine_mechanism.event, self.choice_mechanism.event, self.marginal_mechanism.event)
        )
    )


def choice_unpaid(original):
    """Choose by the scores, and release nothing."""

    class Bare(Exponential):
        def release(self, value, random):
            return int(np.argmax(value))

    return property(lambda self: Bare(original.fget(self).epsilon, original.fget(self).sensitivity))


@calling
def residuals_unclipped(original, self, scores, target):
    rows = original(self, scores, target)
    rows[:, 0] = (scores[:, 0] - target) / self.clip / self.scale
    return rows


def charged_alone(mechanism):
    """Charge the rounds and one of the two releases beside them."""
    events = attrgetter(f"{mechanism}.event")
    return instead(
        property(lambda self: ComposedEvent((events(self), GradientPlan.event.fget(self))))
    )


@calling
def taught_by_real_rows(original, self, rows, labels, groups):
    """Move the generator towards the mean of the private rows after training."""
    original(self, rows, labels, groups)
    with torch.no_grad():
        self.generator().layers[-1].bias += torch.from_numpy(np.nanmean(rows, axis=0))


def trained_beside_private_rows(original):
    """Move the synthetic rows to where the private ones are."""

    def as_given(X, rows, y):
        rows, y = original(X, rows, y)
        return rows + np.clip(np.nan_to_num(X), -9, 9).mean(axis=0), y

    return staticmethod(as_given)


def moments_of_the_data(original):
    """Start from the moments that there are, and release none."""

    class Bare(Gaussian):
        def release(self, value, random):
            return value

    def first(self, config):
        mechanism = original(self, config)
        return Bare(mechanism.noise_multiplier, mechanism.sensitivity)

    return first


LINEAR = ("FunctionalMechanism", "AdaSSP", "OutputPerturbation", "ObjectivePerturbation")
ESTIMATORS = (
    "FunctionalMechanismRegressor", "FunctionalMechanismClassifier", "AdaSSPRegressor",
    "OutputPerturbationClassifier", "ObjectivePerturbationClassifier",
)  # fmt: skip
FUNCTIONAL, OUTPUT, OBJECTIVE = (
    ESTIMATORS[0], "OutputPerturbationClassifier", "ObjectivePerturbationClassifier"
)  # fmt: skip
INDEPENDENT, TREE, ROUNDS, CONSTRAINED = (
    "MarginalSynthesizer-independent", "MarginalSynthesizer-tree", "MarginalSynthesizer-adaptive",
    "MarginalSynthesizer-constrained",
)  # fmt: skip
ADDITIVE, TWO_CLASSES, ADDITIVE_NUMBERS = (
    "PrivateAdditiveClassifier", "PrivateAdditiveClassifier-two-classes", "PrivateAdditiveRegressor"
)  # fmt: skip
GAN = "DPGANSynthesizer"


def half(owner, attribute, make, where, *caught):
    return Bug(owner, attribute, make, *caught, name="half the sensitivity", visible_outside=where)


BUGS = [
    Bug(UnitBall, "transform", no_radius, REPLAY, (FUNCTIONAL, OBJECTIVE)),
    Bug(UnitBall, "transform", centred, REPLAY, "AdaSSPRegressor"),
    Bug(UnitBall, "transform", features_beyond_the_ball, name="features that are not clipped",
        visible_outside=LINEAR),
    Bug(MomentPlan, "_unit", calling(lambda original, *args: quantize(10.0 * original(*args))),
        name="features that are not clipped", visible_outside=("PrivateStandardScaler",)),
    Bug(TargetRange, "encode", wide_target, REPLAY, "AdaSSPRegressor",
        "targets beyond their bounds", ("AdaSSP",)),
    half(PolynomialObjective, "sensitivity", halved, ("FunctionalMechanism",),
         REPLAY, FUNCTIONAL),
    half(Statistic, "mechanism", fields_halved("sensitivity"), ("PrivateStandardScaler",),
         REPLAY, "PrivateStandardScaler-delta"),
    half(AdaSSPRegressor, "_single_mechanism", half_spread, ("AdaSSP",)),
    half(OutputPerturbationClassifier, "_single_mechanism", half_spread, ("OutputPerturbation",)),
    half(ObjectivePerturbation, "sensitivity", halved, ("ObjectivePerturbation",)),
    half(heads, "Gaussian", half_spread, ("ALMFineTuner-gradient",)),
    half(PrototypeHead, "sensitivity", fields_halved("l2"), ("ALMFineTuner-prototypes",)),
    half(LeastSquaresHead, "sensitivity", fields_halved("l2"), ("ALMFineTuner-least",)),
    half(aggregators, "Gaussian", half_spread, ("PATE",)),
    half(knn, "Gaussian", half_spread, ("PrivateKNN",)),
    half(noisy_labels, "Laplace", half_spread, ("ALIBI",)),
    Bug(linear, "public_bounds", data_bounds, REPLAY, OUTPUT, "bounds of the data", LINEAR),
    Bug(standard_scaler, "public_bounds", data_bounds, REPLAY, "PrivateStandardScaler",
        "bounds of the data", ("PrivateStandardScaler",)),
    Bug(functional_mechanism, "public_classes", classes_of_the_data, REPLAY, ESTIMATORS[1]),
    Bug(PrivateEstimatorMixin, "_private_fit", keeps_what_a_refused_fit_has_set, REFUSED,
        (OBJECTIVE, "PrivateStandardScaler")),
    Bug(PrivateEstimatorMixin, "_private_fit", keeps_what_a_refused_fit_has_set, FAILED,
        "AdaSSPRegressor"),
    Bug(PrivateFit, "assume", instead(lambda *_: None), FACTS, (FUNCTIONAL, OUTPUT),
        "no assumption"),
    Bug(PrivateEstimatorMixin, "__getstate__", instead(BaseEstimator.__getstate__), FACTS,
        "AdaSSPRegressor", "a pickle holds the seed"),
    Bug(Labels, "encode", drops_records_of_one_class, REPLAY, ESTIMATORS[1]),
    Bug(None, "fit", keeps_rows, TRACES, (OBJECTIVE, "DPSGDClassifier", "DPNeuralNet"),
        "records kept", ("",)),
    Bug(None, "fit", keeps_n, name="the number of records kept", visible_outside=("",)),
    Bug(None, "fit", kept_elsewhere(np.array), TRACES, FUNCTIONAL, "keeps rows elsewhere"),
    Bug(None, "fit", polishes_on_the_data, REPLAY, FUNCTIONAL),
    Bug(None, "fit", polished_on_the_data, name="a constant without protection",
        visible_outside=ESTIMATORS),
    Bug(BoundedColumns, "moments",
        divided_by_n, REPLAY, "PrivateStandardScaler", "divided by the number of records",
        ("PrivateStandardScaler",)),
    Bug(functional_mechanism.FunctionalMechanism, "_single_mechanism",
        fields_halved("noise_multiplier"), ACCOUNTING, FUNCTIONAL, "doubled epsilon"),
    Bug(GradientHead, "_residuals", unclipped, REPLAY, "ALMFineTuner-gradient", "no clipping",
        ("ALMFineTuner-gradient",)),
    Bug(GradientHead, "release", twice_the_steps, name="steps that are not accounted for",
        visible_outside=("ALMFineTuner-gradient",)),
    Bug(ALMFineTuner, "_prepare", fitted_to_private_records, REPLAY, "ALMFineTuner-prototypes"),
    Bug(ALMFineTuner, "_records", whitened_by_private_records, REPLAY,
        "ALMFineTuner-least-squares"),
    Bug(features, "encode_each", instead(features.encode_together), REPLAY, "ALMFineTuner-rounded",
        "encoded together"),
    Bug(ALMFineTuner, "_release_weights", keeps_exact_weights, REPLAY, "ALMFineTuner-softmax"),
    Bug(TableFacts, "from_table", domain_of_the_data, REPLAY, INDEPENDENT),
    Bug(TableFacts, "from_table", constraints_that_the_data_satisfies, REPLAY, CONSTRAINED),
    Bug(ScannedTables, "plan_bins", bins_of_the_data, REPLAY, TREE),
    Bug(marginal_synthesizer, "release_fine_tables", label_rates_unpaid, REPLAY, INDEPENDENT),
    Bug(MeasurementPlan, "fine_mechanism", of_one_table, REPLAY, INDEPENDENT),
    Bug(MeasurementPlan, "marginal_mechanism", of_one_table, REPLAY, TREE),
    Bug(MeasurementPlan, "event", one_round_is_charged, ACCOUNTING, ROUNDS),
    Bug(MeasurementPlan, "choice_mechanism", choice_unpaid, ACCOUNTING, TREE),
    Bug(MeasurementPlan, "choice_mechanism", fields_halved("sensitivity"), REPLAY, ROUNDS,
        "half the sensitivity of scores"),
    Bug(LogisticLoss, "hessian_weight", instead(4.0), REPLAY, TWO_CLASSES, "a heavier hessian"),
    Bug(SquaredLoss, "derivative_row", residuals_unclipped, REPLAY, ADDITIVE_NUMBERS),
    Bug(GradientPlan, "fine_mechanism", of_one_table, REPLAY, ADDITIVE),
    Bug(GradientPlan, "choice_mechanism", fields_halved("sensitivity"), REPLAY, ADDITIVE_NUMBERS,
        "half the sensitivity of scores"),
    Bug(GradientPlan, "choice_mechanism", choice_unpaid, ACCOUNTING, ADDITIVE),
    Bug(GradientPlan, "event", one_round_is_charged, ACCOUNTING, ADDITIVE),
    Bug(RegressionPlan, "event", charged_alone("total_mechanism"), ACCOUNTING, ADDITIVE_NUMBERS,
        "the last step is not charged"),
    Bug(RegressionPlan, "event", charged_alone("last_mechanism"), ACCOUNTING, ADDITIVE_NUMBERS,
        "totals are not charged"),
    Bug(LastStep, "rows", calling(lambda original, *args: 2**0.5 * original(*args)), REPLAY,
        ADDITIVE_NUMBERS, "sums of the last step unscaled"),
    Bug(SyntheticDataClassifier, "_match_container", trained_beside_private_rows, REPLAY,
        "SyntheticDataClassifier"),
    Bug(AdversarialTraining, "learn", taught_by_real_rows, REPLAY, GAN),
    Bug(DPGANSynthesizer, "_moments_mechanism", moments_of_the_data, REPLAY, GAN),
    Bug(gan, "ComposedEvent", calling(lambda original, events: original(events[1:])),
        contracts.check_accounting, GAN, "moments are not charged"),
    # as if a record added nothing but its label
    Bug(Moments, "sensitivity", instead(1.0), REPLAY, GAN, "only labels pay"),
]  # fmt: skip
