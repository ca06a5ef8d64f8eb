"""Planted bugs in estimators of one release: the contracts catch each."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
import torch

from skprivacy.accounting import ComposedEvent
from skprivacy.base import PrivateEstimatorMixin, PrivateFit
from skprivacy.ensemble import GNMax, LNMax
from skprivacy.fine_tuning import ALMFineTuner, GradientHead, HalfWhitening, features
from skprivacy.linear_model import (
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
)
from skprivacy.linear_model import (
    base as _base,
)
from skprivacy.linear_model import (
    functional_mechanism as functional,
)
from skprivacy.linear_model.base import PrivateLinearRegressor
from skprivacy.linear_model.perturbation import ObjectivePerturbation
from skprivacy.linear_model.polynomial_objective import PolynomialObjective
from skprivacy.mechanisms import Exponential, Gaussian, KNorm, Laplace, Mechanism, SecureRandom
from skprivacy.mechanisms.bounds import UnitBall
from skprivacy.neural_network._gradients import clipping
from skprivacy.neural_network._training.adversarial import AdversarialTraining
from skprivacy.preprocessing import BoundedColumn, Schema
from skprivacy.preprocessing import standard_scaler as scaler
from skprivacy.preprocessing.bounded_moments import Statistic
from skprivacy.synthesis import (
    DPGANSynthesizer,
    SyntheticDataClassifier,
    gan,
)
from skprivacy.synthesis import (
    marginal_synthesizer as synthesizer,
)
from skprivacy.synthesis.base import TableFacts
from skprivacy.synthesis.gan_features import Moments
from skprivacy.synthesis.marginal_tables import EncodedRecords
from skprivacy.synthesis.measurement_plan import MeasurementPlan

from ..contracts import (
    records as contracts,
)
from ..contracts import (
    refusals as contracts_refused,
)
from ..contracts import (
    single_release as contracts_once,
)
from ..contracts.cases import CASES
from ..mechanisms.noise_cases import CASES as NOISE_CASES
from ..mechanisms.test_noise import check_noise

REPLAY, NOISE = contracts.check_replay, contracts_once.check_noise
ACCOUNTING, TRACES = contracts_once.check_accounting, contracts.check_no_traces
FRESH = contracts.check_fresh_noise
REFUSED, FAILED = contracts_refused.check_refused_fit, contracts_refused.check_failed_fit


def halved(original):
    return lambda self, scale, size, random: original(self, scale, size, random) // 2


def half_tilt(original):
    """Minimise what another epsilon would, with the ridge that is declared."""

    def release(self, value, random):
        class Half(ObjectivePerturbation):
            def _scale(this, epsilon):
                return self.scale(value[0].shape[1]) / 2

            def ridge(this, size):
                return self.ridge(size)

        return original(Half(self.epsilon, self.delta, self.n_classes, self.alpha), value, random)

    return release


def seeded(original):
    return lambda self, value, random: original(self, value, SecureRandom(7))


def less_in_votes(original):
    """Draw 80% of the noise that the event of an aggregator claims."""

    def release(self, votes, *rest):
        return original(self.with_noise(0.8 * self.noise), votes, *rest)

    return release


def law_of(name):
    return lambda case: check_noise(NOISE_CASES[name])


def one_number_bare(original):
    def release(self, value, random):
        noisy = original(self, value, random)
        noisy[0] = value[0]
        return noisy

    return release


def no_radius(original):
    """Scale features, but let records be as long as they are."""

    def transform(self, X, shares=None):
        rows, _ = original(self, X)
        missing = np.isnan(X).any(axis=1)
        lower, upper = np.array(self.lower), np.array(self.upper)
        full = 2 * (np.clip(X, lower, upper) - lower) / (upper - lower) - 1
        rows[:, : X.shape[1]] = np.where(missing[:, None], 0.0, full)
        return rows, np.where(missing, 0.0, 1.0)

    return transform


def centred(original):
    """Take the mean of the private records for the middle."""

    def transform(self, X, shares=None):
        return original(self, X - np.nanmean(np.where(np.isfinite(X), X, np.nan), axis=0), shares)

    return transform


def wide_target(original):
    """Clip targets to bounds three times as wide as those declared."""

    def scaled(self, y):
        lower, upper = self.target_bounds_
        return np.clip(2.0 * (y - lower) / (upper - lower) - 1.0, -3.0, 3.0)

    return scaled


def half_sensitivity(original):
    return lambda self, *args, **kwargs: original(self, *args, **kwargs) / 2


def data_bounds(original):
    def bounds(fit, X, given):
        low, high = np.nanmin(np.clip(X, -9, 9), axis=0), np.nanmax(np.clip(X, -9, 9), axis=0)
        return original(fit, X, (low, high + 1.0))

    return bounds


def classes_of_the_data(original):
    return lambda fit, y, given: original(fit, y, np.unique(np.append(y, [0, 1])))


def keeps_what_a_refused_fit_has_set(original):
    @contextmanager
    def private_fit(self):
        yield PrivateFit(self)

    return private_fit


def twice(original):
    return lambda self, *args: type(original(self, *args))(
        original(self, *args).noise_multiplier, original(self, *args).sensitivity / 2
    )


def keeps_rows(original):
    def fit(self, X, y, groups=None):
        self._rows = np.array(X)
        return original(self, X, y, groups)

    return fit


def keeps_rows_elsewhere(original):
    def fit(self, X, y):
        kept.append(np.array(X))
        return original(self, X, y)

    kept = []
    return fit


def polishes_on_the_data(original):
    """Move the constant by the mean residual of the private records."""

    def fit(self, X, y):
        original(self, X, y)
        finite = np.nan_to_num(np.clip(X, -3, 3))
        self.intercept_ += np.mean(np.clip(y, *self.target_bounds_) - finite @ self.coef_)
        return self

    return fit


def doubled_epsilon(original):
    return lambda self, sensitivity: type(original(self, sensitivity))(
        original(self, sensitivity).noise_multiplier / 2, sensitivity
    )


def unclipped(original):
    def residuals(self, records, targets, weights):
        return (0.5 - targets) * records.counts[:, None]

    return residuals


def fitted_to_private_records(original):
    """Fit the encoder and the whitening to the private records, and say nothing of it."""

    def public_part(self, fit, X, y, X_public, groups):
        finite = np.clip(np.where(np.isfinite(X).all(axis=1)[:, None], X, 0.0), -9, 9)
        return original(self, fit, X, y, finite, groups)

    return public_part


def whitened_by_private_records(original):
    def records(self, X, *args):
        finite = np.clip(np.where(np.isfinite(X).all(axis=1)[:, None], X, 0.0), -9, 9)
        self.whitening_ = HalfWhitening().fit(self.encoder_.transform(finite))
        return original(self, X, *args)

    return records


def encoded_together(original):
    return features.encode_together


def keeps_exact_weights(original):
    def released(self, *args):
        with mock.patch.object(Mechanism, "release", lambda mechanism, value, random: value):
            self.exact_ = original(self, *args)
        return original(self, *args)

    return released


def domain_of_the_data(original):
    def from_table(fit, X, y, schema, label):
        finite = np.clip(np.nan_to_num(X), -9, 9)
        lower, upper = finite.min(axis=0), finite.max(axis=0) + 1.0
        facts = {n: BoundedColumn(lower[j], upper[j]) for j, n in enumerate(schema)}
        return original(fit, X, y, Schema(facts, classes=schema.classes), label)

    return from_table


def bins_of_the_data(original):
    """Cut each numeric column at the largest value of its records."""

    def binned(self, bins):
        for j, own in enumerate(bins[:-1]):
            own[:] = np.arange(len(own)) >= max(self.codes[:, j].max(), 1)
        return original(self, bins)

    return binned


def label_rates_unpaid(original):
    def release_fine_tables(records, columns, label_index, plan, random):
        noisy = original(records, columns, label_index, plan, random)
        return [
            t * records.table(label_index) / np.where(t.sum(0) == 0, 1.0, t.sum(0)) for t in noisy
        ]

    return release_fine_tables


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


def best_is_chosen(original):
    return lambda self, behind, scale, random: int(np.argmin(behind))


def choice_unpaid(original):
    """Choose by the scores, and release nothing."""

    class Bare(Exponential):
        def release(self, value, random):
            return int(np.argmax(value))

    return property(lambda self: Bare(original.fget(self).epsilon, original.fget(self).sensitivity))


def half_sensitivity_of_scores(original):
    return property(lambda self: Exponential(original.fget(self).epsilon, self._l1_change / 2))


def taught_by_real_rows(original):
    """Move the generator towards the mean of the private rows after training."""

    def learn(self, rows, labels, groups):
        original(self, rows, labels, groups)
        with torch.no_grad():
            self.generator().layers[-1].bias += torch.from_numpy(np.nanmean(rows, axis=0))

    return learn


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


def moments_are_not_charged(original):
    return lambda events: original(events[1:])


def only_labels_pay(original):
    """Say that a record adds nothing but its label."""
    return 1.0


MUTANTS = {
    "half the Laplace noise": (Laplace, "_noise", halved, NOISE, "FunctionalMechanismRegressor"),
    "half the Gaussian noise": (Gaussian, "_noise", halved, NOISE, "AdaSSPRegressor"),
    "half the random term": (
        ObjectivePerturbation, "_release", half_tilt, NOISE, "ObjectivePerturbationClassifier",
    ),
    "a fifth less noise on votes": (
        LNMax, "release", less_in_votes, law_of("LNMax"), "PATEClassifier",
    ),
    "a fifth less noise on votes, Gaussian": (
        GNMax, "release", less_in_votes, law_of("GNMax"), "PATEClassifier",
    ),
    "reused seed": (Laplace, "_release", seeded, NOISE, "OutputPerturbationClassifier"),
    "reused seed, Gaussian": (
        Gaussian, "_release", seeded, FRESH, "FunctionalMechanismClassifier-delta",
    ),
    "reused seed in the objective": (
        ObjectivePerturbation, "_release", seeded, FRESH, "ObjectivePerturbationClassifier-delta",
    ),
    "one number bare": (
        Gaussian, "_release", one_number_bare, NOISE, "FunctionalMechanismRegressor-delta",
    ),
    "no radius": (UnitBall, "transform", no_radius, REPLAY, "FunctionalMechanismRegressor"),
    "no radius in the objective": (
        UnitBall, "transform", no_radius, REPLAY, "ObjectivePerturbationClassifier",
    ),
    "centred by the data": (UnitBall, "transform", centred, REPLAY, "AdaSSPRegressor"),
    "target beyond its bounds": (
        PrivateLinearRegressor, "_scale_target", wide_target, REPLAY, "AdaSSPRegressor",
    ),
    "half the sensitivity": (
        PolynomialObjective, "sensitivity", half_sensitivity, REPLAY,
        "FunctionalMechanismRegressor",
    ),
    "bounds of the data": (
        _base, "public_bounds", data_bounds, REPLAY, "OutputPerturbationClassifier",
    ),
    "bounds of the data in the scaler": (
        scaler, "public_bounds", data_bounds, REPLAY, "PrivateStandardScaler",
    ),
    "half the sensitivity of the moments": (
        Statistic, "mechanism", twice, REPLAY, "PrivateStandardScaler-delta",
    ),
    "classes of the data": (
        functional, "public_classes", classes_of_the_data, REPLAY, "FunctionalMechanismClassifier",
    ),
    "a refused fit changes the model": (
        PrivateEstimatorMixin, "_private_fit", keeps_what_a_refused_fit_has_set, REFUSED,
        "ObjectivePerturbationClassifier",
    ),
    "a refused fit changes the scaler": (
        PrivateEstimatorMixin, "_private_fit", keeps_what_a_refused_fit_has_set, REFUSED,
        "PrivateStandardScaler",
    ),
    "a failed fit changes the model": (
        PrivateEstimatorMixin, "_private_fit", keeps_what_a_refused_fit_has_set, FAILED,
        "AdaSSPRegressor",
    ),
    "records kept": (
        ObjectivePerturbationClassifier, "fit", keeps_rows, TRACES,
        "ObjectivePerturbationClassifier",
    ),
    "records kept in a module": (
        FunctionalMechanismRegressor, "fit", keeps_rows_elsewhere, TRACES,
        "FunctionalMechanismRegressor",
    ),
    "constant polished on the data": (
        FunctionalMechanismRegressor, "fit", polishes_on_the_data, REPLAY,
        "FunctionalMechanismRegressor",
    ),
    "half the K-norm noise": (KNorm, "_noise", halved, NOISE, "ALMFineTuner-softmax-k-norm"),
    "gradients that are not clipped": (
        GradientHead, "_residuals", unclipped, REPLAY, "ALMFineTuner-gradient",
    ),
    "an encoder of private records": (
        ALMFineTuner, "_prepare", fitted_to_private_records, REPLAY,
        "ALMFineTuner-prototypes",
    ),
    "whitened by private records": (
        ALMFineTuner, "_records", whitened_by_private_records, REPLAY,
        "ALMFineTuner-least-squares",
    ),
    "private records encoded together": (
        features, "encode_each", encoded_together, REPLAY, "ALMFineTuner-rounded",
    ),
    "exact weights kept": (
        ALMFineTuner, "_release_weights", keeps_exact_weights, REPLAY, "ALMFineTuner-softmax",
    ),
    "domain of the data": (
        TableFacts, "from_table", domain_of_the_data, REPLAY, "MarginalSynthesizer-independent",
    ),
    "bins of the data": (
        EncodedRecords, "binned", bins_of_the_data, REPLAY,
        "MarginalSynthesizer-tree",
    ),
    "label rates unpaid": (
        synthesizer, "release_fine_tables", label_rates_unpaid, REPLAY,
        "MarginalSynthesizer-independent",
    ),
    "overlapping tables counted as one": (
        MeasurementPlan, "fine_mechanism", of_one_table, REPLAY, "MarginalSynthesizer-independent",
    ),
    "overlapping marginals counted as one": (
        MeasurementPlan, "marginal_mechanism", of_one_table, REPLAY, "MarginalSynthesizer-tree",
    ),
    "rounds counted as one": (
        MeasurementPlan, "event", one_round_is_charged, ACCOUNTING, "MarginalSynthesizer-adaptive",
    ),
    "marginal chosen without noise": (
        Exponential, "_select", best_is_chosen, NOISE, "MarginalSynthesizer-tree",
    ),
    "choices that are no releases": (
        MeasurementPlan, "choice_mechanism", choice_unpaid, ACCOUNTING, "MarginalSynthesizer-tree",
    ),
    "half the sensitivity of scores": (
        MeasurementPlan, "choice_mechanism", half_sensitivity_of_scores, REPLAY,
        "MarginalSynthesizer-adaptive",
    ),
    "trained beside private rows": (
        SyntheticDataClassifier, "_match_container", trained_beside_private_rows, REPLAY,
        "SyntheticDataClassifier",
    ),
    "a discriminator that does not clip": (
        clipping, "_SAFETY", lambda _: np.inf, REPLAY, "DPGANSynthesizer",
    ),
    "a generator taught by real rows": (
        AdversarialTraining, "learn", taught_by_real_rows, REPLAY, "DPGANSynthesizer",
    ),
    "moments unpaid by a generator": (
        DPGANSynthesizer, "_moments_mechanism", moments_of_the_data, REPLAY, "DPGANSynthesizer",
    ),
    "moments of a generator uncharged": (
        gan, "ComposedEvent", moments_are_not_charged, contracts.check_accounting,
        "DPGANSynthesizer",
    ),
    "moments as long as their label": (
        Moments, "sensitivity", only_labels_pay, REPLAY, "DPGANSynthesizer",
    ),
    "epsilon spent twice": (
        functional.FunctionalMechanism, "_single_mechanism", doubled_epsilon, ACCOUNTING,
        "FunctionalMechanismRegressor",
    ),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the mutants compute with NaN
def test_planted_bug_is_caught(name):
    owner, attribute, make, check, case = MUTANTS[name]
    with (
        mock.patch.object(owner, attribute, make(getattr(owner, attribute))),
        pytest.raises(AssertionError),
    ):
        check(CASES[case])
