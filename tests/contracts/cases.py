"""Every private estimator of the library, with the facts that the contract tests need.

A new estimator is one more line in ``CASES`` and one in ``SCIKIT_LEARN``; ``test_records.py`` and
``tests/estimators/test_scikit_learn_checks.py`` do the rest.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from skprivacy.accounting import ComposedEvent, Event, RepeatedEvent, VoteBlockEvent
from skprivacy.accounting.events import PrivateSelectionEvent
from skprivacy.accounting.events.mixtures import MixtureEvent
from skprivacy.additive_model import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from skprivacy.defenses import SmoothedClassifier
from skprivacy.ensemble import (
    ConfidentGNMax,
    InteractiveGNMax,
    LNMax,
    PATEClassifier,
    PrivateKNNClassifier,
)
from skprivacy.federated import DPFederatedClassifier
from skprivacy.fine_tuning import ALMFineTuner, HalfWhitening, NetworkHead, SoftmaxHead
from skprivacy.fine_tuning.heads import GradientHead
from skprivacy.label_privacy import (
    ALIBIClassifier,
    LabelPATEClassifier,
    LP2STClassifier,
    RandomizedResponseClassifier,
)
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.mechanisms import SecureRandom
from skprivacy.model_selection import PrivateSearchCV
from skprivacy.neural_network import (
    Clipping,
    DPNeuralNet,
    DPSGDClassifier,
    DPSGDRegressor,
    Optimizer,
)
from skprivacy.preprocessing import (
    BoundedColumn,
    ImpossibleValues,
    LocalPerturbation,
    OrderedColumns,
    PrivateStandardScaler,
    Schema,
)
from skprivacy.synthesis import (
    DPGANSynthesizer,
    Grid,
    MarginalSynthesizer,
    SyntheticDataClassifier,
    SyntheticDataRegressor,
)
from skprivacy.synthesis.marginal_tables import MeasurementPlan

from .tape import by_record


def three_classes(n: int) -> tuple[NDArray, NDArray]:
    """Three blobs in four dimensions; the third class has one record, the last."""
    rng = np.random.RandomState(0)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 4)) * 0.5 + y[:, None]
    y[-1] = 2
    X[-1] = -2.0
    return X, y


def two_classes(n: int) -> tuple[NDArray, NDArray]:
    """The blobs of ``three_classes``, of which two have one label."""
    X, y = three_classes(n)
    return X, y % 2


def with_overflow(n: int) -> tuple[NDArray, NDArray]:
    """Every third record has squares whose sum is 0, or infinity less infinity."""
    X, y = three_classes(n)
    X[2::3] = np.array([1.7e19, 1.7e19, -1.7e19, -1.7e19])
    return X, y


def numbers(n: int) -> tuple[NDArray, NDArray]:
    """Targets of which some lie beyond the bounds."""
    X, y = three_classes(n)
    return X, 3.0 * y + X[:, 0]


def several_labels(n: int) -> tuple[NDArray, NDArray]:
    """Three labels a record, of which one is carried by the last record alone."""
    X, y = three_classes(n)
    return X, np.column_stack([y == 1, X[:, 0] > 0, y == 2]).astype(int)


def far_numbers(n: int) -> tuple[NDArray, NDArray]:
    """Targets of which the first and the last lie far beyond the bounds."""
    X, y = numbers(n)
    y[[0, -1]] = 1e6
    return X, y


def guesses(n: int) -> tuple[NDArray, NDArray]:
    """Labels independent of the features: any class may be unexpected."""
    rng = np.random.RandomState(0)
    return rng.normal(size=(n, 4)), rng.choice(3, size=n, p=[0.5, 0.3, 0.2])


@dataclass(frozen=True)
class Case:
    """A private estimator: how to make it, and on what."""

    make: Callable[..., Any]
    data: Callable[[int], tuple[NDArray, NDArray]] = three_classes
    null_label: Any = 0  # a label that a record without contribution may carry; None: there is none
    samples: bool = False  # whether it draws Poisson batches; otherwise records take turns
    once: bool = False  # whether it releases everything at once
    reaches: float = 0.6  # share of the sensitivity that some neighbour must come near
    add_remove: bool = True  # whether it can hide how many records there are
    before: int = 0  # how much is released before the steps of a training
    after: int = 0  # and after them
    releases_vary: bool = False  # whether how many releases there are depends on earlier ones
    # What is released of what the mechanisms return, from a tape; None: all of it.
    released: Callable[[Any], Event] | None = None


def relation_for(n_records: int | None) -> str:
    """Return the relation that hides the number of records if it is given."""
    return "zero_out" if n_records is None else "add_remove"


def maker(kind: Any, **fixed: Any) -> Callable[..., Any]:
    """Make estimators of a kind; with ``n_records`` that is, nothing may depend on n."""

    def make(n_records: int | None = None, **params: Any) -> Any:
        if "random_state" not in fixed:
            params.pop("random_state", None)
        return kind(**{"epsilon": 4.0, "relation": relation_for(n_records), **fixed, **params})

    return make


CLASSES = {"classes": [0, 1, 2]}
BOUNDED = {"target_bounds": (-1.0, 2.0)}
PLACES = {f"x{i}": BoundedColumn(-3, 3) for i in range(4)}
BOUNDS = (np.array([-2.0, -2.5, -2.0, -3.0]), np.array([3.0, 2.0, 3.0, 2.5]))
PUBLIC = np.random.RandomState(1).normal(size=(40, 4))

# --------------------------------------------------------------------------------------- networks

TRAINED = {"epsilon": 4.0, "delta": 1e-4, "batch_size": 8, "random_state": 0}
NETWORK = {**TRAINED, "hidden_layer_sizes": (5,), "epochs": 6, "max_grad_norm": 0.7}


def trainer(kind: Any, **fixed: Any) -> Callable[..., Any]:
    """Make networks, which hide the number of records if given one."""

    def make(**params: Any) -> Any:
        relation = relation_for(params.get("n_records"))
        return kind(**{"relation": relation, **fixed, **params})

    return make


def _network(**fixed: Any) -> Case:
    return Case(trainer(DPSGDClassifier, **NETWORK | CLASSES | fixed), samples=True)


def _regressor(**fixed: Any) -> Case:
    make = trainer(DPSGDRegressor, **NETWORK | BOUNDED | fixed)
    return Case(make, numbers, samples=True, before=1, after=2)


def case_of_module(module: Any, data: Any = three_classes) -> Case:
    """A classifier that trains ``module``."""
    case = _network(module=module)

    def make(hidden_layer_sizes: Any = (), **params: Any) -> Any:
        return case.make(hidden_layer_sizes=NETWORK["hidden_layer_sizes"], **params)

    return replace(case, make=make, data=data)


class Perceptron(nn.Module):
    def __init__(self, width: int = 5):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))

    def forward(self, x):
        return self.layers(x)


def _net(data: Any = three_classes, **fixed: Any) -> Case:
    """A net for skorch users, whose parameters have other names."""

    def make(criterion: Any = nn.CrossEntropyLoss, **params: Any) -> DPNeuralNet:
        torch.manual_seed(int(params.pop("random_state", 0)))
        width = params.pop("hidden_layer_sizes", (5,))[0]
        params["max_epochs"] = params.pop("epochs", 6)
        module = Perceptron(width)  # ready made: the same start whenever it is fitted
        defaults = {"batch_size": 8, "epsilon": 4.0, "delta": 1e-4, "max_grad_norm": 0.7}
        return trainer(partial(DPNeuralNet, module, criterion), **defaults)(**params)

    return Case(lambda **params: make(**{**fixed, **params}), data, samples=True)


class Network(nn.Module):
    """A module with every kind of layer that fits a row of four numbers."""

    def __init__(self, width: int = 12):
        super().__init__()
        self.convolution = nn.Conv1d(1, width, 3, padding=1)
        self.norms = nn.Sequential(nn.GroupNorm(2, width), nn.Tanh(), nn.LayerNorm(4))
        self.last = nn.Linear(4 * width, 3)

    def forward(self, x):
        return self.last(self.norms(self.convolution(x[:, None])).flatten(1))


class Shared(nn.Module):
    """A module whose weights are used outside of their layer, so that book-keeping cannot be."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 40), nn.Linear(40, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)) + x @ self.first.weight.T)


class SumsAsKernelsDo(nn.Module):
    """A module that adds up squares in an order that depends on how many rows there are.

    That is how the kernels of matrix products do it: each row's sum is the same but for rounding,
    unless a part of it overflows. Which order is taken when differs from processor to processor,
    so the module plays the kernel.
    """

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        lanes = (x * x.abs()).unflatten(1, (2, 2))
        total = lanes.sum(1 + len(x) % 2).sum(1, keepdim=True)
        return self.last(torch.cat([total, x], 1).tanh())


def turned(rows: torch.Tensor) -> torch.Tensor:
    """Turn every other view round: an augmentation without chance, as replays need."""
    rows[1::2] = rows[1::2].flip(1)
    return rows


class OfThreeParties(DPFederatedClassifier):
    """A federation of three parties with every third record each; it records what networks do."""

    n_steps_ = property(lambda self: self.n_rounds_)

    def fit(self, X, y, parties=None):
        if parties is None:
            n = np.shape(X)[0] if np.ndim(X) else 0
            parties = by_record(np.arange(n) % 3, n)
        return super().fit(X, y, parties=parties)


def _federated(**fixed: Any) -> Case:
    def make(**params: Any) -> Any:
        of_networks = {k: params.pop(k, None) for k in ("hidden_layer_sizes", "random_state")}
        epochs = params.pop("epochs", 6 if of_networks["hidden_layer_sizes"] is None else 210)
        batch = params.get("batch_size", 8)
        defaults = {
            "epsilon": 4.0, "delta": 1e-4, "n_untrusted": 0, "batch_size": 8,
            "n_rounds": epochs * (params.get("n_records") or 24) // batch, "party_names": range(3),
        }  # fmt: skip
        return trainer(OfThreeParties, **defaults | CLASSES | fixed)(**params)

    return Case(make, samples=True)


NETWORKS = {
    "DPSGDClassifier": _network(),
    "DPSGDClassifier-linear": _network(hidden_layer_sizes=()),
    "DPSGDClassifier-full-batch": _network(batch_size=10**6),
    "DPSGDClassifier-adam-automatic": _network(
        optimizer=Optimizer("adam", schedule="cosine"), max_grad_norm=Clipping("automatic", 0.7)
    ),
    "DPSGDClassifier-per-layer-weights": _network(
        max_grad_norm=Clipping("per-layer", 0.7), class_weight={2: 9.0}
    ),
    "DPSGDClassifier-prior": _network(
        class_prior={0: 0.48, 1: 0.48, 2: 0.04}, class_weight="balanced"
    ),
    "DPSGDClassifier-layers": case_of_module(Network),
    "DPSGDClassifier-torch.func": case_of_module(Shared),
    "DPSGDClassifier-augmented": _network(augment=(turned, 2)),
    "DPSGDClassifier-labels": replace(
        _network(classes=["a", "b", "c"], class_weight={"c": 3.0}), data=several_labels
    ),
    "DPNeuralNet": _net(),
    "DPNeuralNet-labels-adam": _net(
        lambda n: (several_labels(n)[0], several_labels(n)[1].astype(float)),
        criterion=nn.BCEWithLogitsLoss, optimizer="adam", averaging="ema",
    ),
    "DPSGDRegressor": _regressor(),
    "DPSGDRegressor-log": _regressor(target_scale="log"),
    "DPSGDClassifier-exact": _network(noise="exact"),
    "DPNeuralNet-exact-adaptive": _net(noise="exact", max_grad_norm=Clipping("adaptive", 0.7)),
    "DPSGDClassifier-logistic-ema": _network(
        noise="logistic", optimizer=Optimizer(averaging="ema")
    ),
    # A record of zeros begins with a gradient of norm 0.997: just within the norm, where what it
    # adds to the sum and to the count is most. Later the noise decides where the norm is.
    "DPSGDClassifier-adaptive": _network(
        max_grad_norm=Clipping("adaptive", 1.05, target_quantile=0.3)
    ),
    "DPSGDClassifier-banded": replace(_network(noise="banded", epochs=1), samples=False),
    "DPSGDRegressor-tree-adaptive": replace(
        _regressor(noise="tree", max_grad_norm=Clipping("adaptive", 0.7), optimizer="adam"),
        samples=False, before=0, after=0,
    ),
    "DPFederatedClassifier": _federated(),
    "DPFederatedClassifier-trusted": _federated(server="trusted"),
}  # fmt: skip

# ---------------------------------------------------------------------------------- linear models


def _linear_regression(kind: Any, **fixed: Any) -> Case:
    return Case(maker(kind, bounds=BOUNDS, **BOUNDED, **fixed), far_numbers, once=True)


def _linear_classification(kind: Any, reaches: float = 0.6, **fixed: Any) -> Case:
    return Case(maker(kind, bounds=BOUNDS, **CLASSES, **fixed), once=True, reaches=reaches)


LINEAR = {
    "FunctionalMechanismRegressor": _linear_regression(FunctionalMechanismRegressor),
    "FunctionalMechanismRegressor-delta": _linear_regression(
        FunctionalMechanismRegressor, delta=1e-4, fit_intercept=False
    ),
    "FunctionalMechanismRegressor-log": _linear_regression(
        FunctionalMechanismRegressor, target_scale="log"
    ),
    "AdaSSPRegressor": _linear_regression(AdaSSPRegressor, delta=1e-4),
    "AdaSSPRegressor-log": _linear_regression(AdaSSPRegressor, delta=1e-4, target_scale="log"),
    "FunctionalMechanismClassifier": _linear_classification(FunctionalMechanismClassifier),
    "FunctionalMechanismClassifier-delta": _linear_classification(
        FunctionalMechanismClassifier, delta=1e-4, order=1
    ),
    # A record's gradient is as large as its error: near the bound only where a model with a small
    # ridge is confident and wrong. How confident it is depends on the noise.
    "ObjectivePerturbationClassifier": _linear_classification(
        ObjectivePerturbationClassifier, 0.5, epsilon=30.0, alpha=0.0
    ),
    "ObjectivePerturbationClassifier-delta": _linear_classification(
        ObjectivePerturbationClassifier, 0.5, epsilon=30.0, delta=1e-4, alpha=0.0
    ),
    # A record among two dozen moves a minimiser by half of Lipschitz / ridge at the most, and
    # the L1 norm of a Laplace mechanism by less; test_sensitivity.py nears it by thousands.
    "OutputPerturbationClassifier": _linear_classification(OutputPerturbationClassifier, 0.15),
    "OutputPerturbationClassifier-delta": _linear_classification(
        OutputPerturbationClassifier, 0.3, delta=1e-4
    ),
}


def _scaler(**fixed: Any) -> Case:
    # A missing value counts as the middle of the bounds: no row contributes nothing.
    make = maker(PrivateStandardScaler, bounds=BOUNDS, **fixed)
    return Case(make, far_numbers, null_label=None, once=True)


# ----------------------------------------------------------------------------------------- votes


def public_like(X: Any) -> Any:
    """Return the public records in the form of the private ones, which may lack columns."""
    if not isinstance(X, pd.DataFrame):
        return PUBLIC
    return pd.DataFrame(PUBLIC[:, : X.shape[1]], columns=X.columns)


class PublicRecordsAtHand:
    """Fits with public records that are at hand, so that it is fitted as the others are."""

    def fit(self, X, y, groups=None):
        return super().fit(X, y, X_public=public_like(X), groups=groups)


class WithPublicRecords(PublicRecordsAtHand, PATEClassifier):
    pass


class NeighboursWithPublicRecords(PublicRecordsAtHand, PrivateKNNClassifier):
    pass


VOTES = {"student": GaussianNB(), "n_queries": 12, "delta": 1e-4, "random_state": 0, **CLASSES}
TAUGHT = {**VOTES, "teacher": GaussianNB(), "n_teachers": 4}
_pate = partial(maker, WithPublicRecords, **TAUGHT)


def _winners_only(tape: Any) -> Event:
    """Return what PATE releases of its mechanisms: winners of counts, and passed thresholds."""
    return _winners(tape, 0)


def _marginals_and_winners(tape: Any) -> Event:
    return ComposedEvent((tape.mechanisms[0].event, _winners(tape, 1)))


def _winners(tape: Any, first: int) -> Event:
    blocks = []
    for mechanism, counts in zip(tape.mechanisms[first:], tape.inputs[first:], strict=True):
        kind = "gnmax" if np.ndim(counts) == 2 else "threshold"
        blocks.append(VoteBlockEvent(kind, votes_noise(mechanism), len(counts)))
    return ComposedEvent(tuple(blocks))


def votes_noise(mechanism: Any) -> float:
    """Return the scale of the noise on each count, in votes."""
    return mechanism.noise_multiplier * mechanism.sensitivity


def _laplace_winners(tape: Any) -> Event:
    return VoteBlockEvent("lnmax", votes_noise(tape.mechanisms[0]), len(tape.outputs))


def _in_rounds(tape: Any) -> Event:
    """Return what rounds release: of each kind all together; empty rows are asked about nobody."""
    asked, noise = Counter(), {}
    for mechanism, counts in zip(tape.mechanisms, tape.inputs, strict=True):
        kind = "gnmax" if np.ndim(counts) == 2 else "threshold"
        asked[kind] += int(counts.any(axis=1).sum()) if kind == "gnmax" else len(counts)
        noise[kind] = votes_noise(mechanism)
    blocks = (VoteBlockEvent(k, noise[k], asked[k]) for k in ("threshold", "gnmax"))
    return ComposedEvent(tuple(blocks))


def _voting(released: Any, make: Any) -> Case:
    # A record that is replaced goes to another teacher: only removal is a neighbour by one vote.
    return Case(make, null_label=None, once=True, released=released)


PATE = {
    # All records take part, as the other contracts of one release know it: ensemble/test_knn.py
    # looks at the sampling.
    "PrivateKNNClassifier": Case(
        maker(NeighboursWithPublicRecords, n_neighbors=5, sampling_rate=1.0, **VOTES), once=True
    ),
    "PATEClassifier": _voting(_winners_only, _pate()),
    "PATEClassifier-index": replace(
        _voting(_winners_only, _pate(partition="index")), null_label=0, add_remove=False
    ),
    "PATEClassifier-marginals": _voting(
        _marginals_and_winners,
        maker(PATEClassifier, schema=Schema(PLACES), marginal_share=0.5, **TAUGHT),
    ),
    "PATEClassifier-confident": _voting(
        _winners_only, _pate(aggregator=ConfidentGNMax(threshold=3.0, max_answers=8))
    ),
    "PATEClassifier-laplace": _voting(
        _laplace_winners,
        maker(WithPublicRecords, **TAUGHT | {"aggregator": LNMax(), "n_queries": 4}),
    ),
    # All tests pass, so that all answers that are paid for are given.
    "PATEClassifier-interactive": _voting(
        _in_rounds,
        _pate(aggregator=InteractiveGNMax(threshold=-500.0, max_answers=8, n_rounds=3)),
    ),
}

# ------------------------------------------------------------------------------------ fine-tuning


class RoundedByPlace(TransformerMixin, BaseEstimator):
    """Small differences beside an offset, in single precision, rounded by a record's place.

    It stands for a product of matrices, whose rounding differs between processors.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        found = (1 + 1e-6 * np.asarray(X)).astype(np.float32)
        even = np.arange(len(X))[:, None] % 2 == 0
        return np.where(even, found, np.nextafter(found, np.float32(2)))


class FineTunerWithPublicRecords(PublicRecordsAtHand, ALMFineTuner):
    """A fine-tuner that learns its encoder from the public records."""


class NetworkWithPublicRecords(FineTunerWithPublicRecords):
    """One whose head is a network, and that tells of its training what a network does."""

    noise_multiplier_ = property(lambda self: self.weights_.noise_multiplier_)
    n_steps_ = property(lambda self: self.weights_.n_steps_)


TUNED = {"encoder": PCA(3), "delta": 1e-4, **CLASSES}


def _fine_tuner(reaches: float = 0.6, **fixed: Any) -> Case:
    make = maker(FineTunerWithPublicRecords, **TUNED | fixed)
    return Case(make, once=True, reaches=reaches)


def _fine_tuned_network(**params: Any) -> ALMFineTuner:
    of_head = {"hidden_layer_sizes": (5,), "epochs": 6, "batch_size": 8, "random_state": 0}
    of_head = {k: params.pop(k, v) for k, v in {**of_head, "n_records": None}.items()}
    make = maker(NetworkWithPublicRecords, head=NetworkHead(**of_head), **TUNED)
    return make(of_head["n_records"], **params)


FINE_TUNING = {
    "ALMFineTuner": Case(maker(ALMFineTuner, delta=0.0, **CLASSES), once=True),
    "ALMFineTuner-dpsgd": Case(_fine_tuned_network, samples=True),
    # A record among two dozen moves the minimiser by far less than one that all others oppose:
    # fine_tuning/test_sensitivity.py nears the bound by a search.
    "ALMFineTuner-softmax": _fine_tuner(0.3, head=SoftmaxHead(ridge=20.0)),
    "ALMFineTuner-softmax-k-norm": _fine_tuner(0.2, head="softmax", delta=0.0),
    "ALMFineTuner-softmax-laplace": _fine_tuner(
        0.1, head="softmax", mechanism="laplace", delta=0.0
    ),
    "ALMFineTuner-softmax-logistic": _fine_tuner(0.2, head="softmax", mechanism="logistic"),
    "ALMFineTuner-gradient": _fine_tuner(head=GradientHead(n_steps=4)),
    "ALMFineTuner-prototypes": _fine_tuner(head="prototypes"),
    "ALMFineTuner-least-squares": _fine_tuner(head="least_squares"),
    # Whitening multiplies what the encoder rounds.
    "ALMFineTuner-rounded": _fine_tuner(encoder=RoundedByPlace(), head="prototypes"),
}

# ----------------------------------------------------------------------------------------- labels


def _labels(kind: Any, data: Any = three_classes, **fixed: Any) -> Case:
    """A classifier that protects labels: ``labels.py`` has its contracts."""

    def make(**params: Any) -> Any:
        defaults = {"epsilon": 2.0, "random_state": 0, "estimator": GaussianNB(), **CLASSES}
        return kind(**{**defaults, **fixed, **params})

    vary = kind is LP2STClassifier  # which candidates there are depends on the first stage
    return Case(make, data, null_label=None, once=True, releases_vary=vary)


def _label_pate(**fixed: Any) -> Case:
    own = {**TAUGHT, "epsilon": 4.0, "delta": 1e-5, **fixed}
    return _voting(None, lambda **params: LabelPATEClassifier(**{**own, **params}))


N_TURNING = 24
LABELS = {
    "ALIBIClassifier": _labels(ALIBIClassifier),
    "ALIBIClassifier-scores": _labels(ALIBIClassifier, estimator=RidgeClassifier()),
    "LP2STClassifier": _labels(LP2STClassifier),
    "LP2STClassifier-drawn": _labels(LP2STClassifier, estimator=KNeighborsClassifier(3)),
    "LP2STClassifier-guesses": _labels(LP2STClassifier, guesses, epsilon=1.0),
    "LabelPATEClassifier": _label_pate(),
    # With about one record each, a teacher turns round with its label.
    "LabelPATEClassifier-turning": _label_pate(n_teachers=N_TURNING),
    "RandomizedResponseClassifier": _labels(RandomizedResponseClassifier),
    "RandomizedResponseClassifier-scores": _labels(
        RandomizedResponseClassifier, estimator=RidgeClassifier()
    ),
}

# --------------------------------------------------------------------------------------- searches


class SettledRandom(SecureRandom):
    """Chance that decides about trials as it always did: how many, which, and who is held out."""

    def __init__(self):
        super().__init__()
        self._terms_with_defaults, self._left = SecureRandom(31), 3

    def _next(self) -> SecureRandom:
        self._left -= 1
        return self._terms_with_defaults if self._left >= 0 else super()

    def uniform(self, size):
        drawn = self._next().uniform(size)
        return by_record(drawn, size) if size > 1 else drawn

    def integers(self, high, size):
        return self._next().integers(high, size)


class SettledSearch(PrivateSearchCV):
    """A search whose trials can be replayed: noise is new, and the settings are the same."""

    relation = property(lambda self: self.estimator.relation)

    def _random(self):
        return SettledRandom()


SHARE, TRIALS = 0.25, 4


def rightness(y, predicted):
    """A score whose sums are not round numbers, which occur in a model anyway."""
    return np.where(y == predicted, 0.98182818, 0.05123456)


def _search(n_records: int | None = None, **params: Any) -> Any:
    params.pop("random_state", None)  # a search draws its trials and splits in secret
    relation = relation_for(n_records)
    model = FunctionalMechanismClassifier(bounds=BOUNDS, relation=relation, **CLASSES)
    defaults = {
        "epsilon": 12.0, "delta": 0.0, "n_trials": TRIALS, "test_size": SHARE,
        "n_records": n_records, "scoring": rightness,
    }  # fmt: skip
    return SettledSearch(model, {"order": [1, 2], "radius": [1.0, None]}, **{**defaults, **params})


def _best_of_trials(tape: Any) -> Event:
    """Return the release of a search: the best of random trials, each with one record."""
    fit, score = tape.mechanisms[:2]
    best = (PrivateSelectionEvent(m.event, 1.0, 1 / TRIALS) for m in (fit, score))
    return MixtureEvent((1 - SHARE, SHARE), tuple(best))


SEARCH = Case(_search, once=True, released=_best_of_trials)

# ------------------------------------------------------------------------- tables with a schema


def _synthesizer(
    target: dict[str, Any] = CLASSES,
    data: Any = three_classes,
    constraints: tuple[Any, ...] = (),
    released: Any = None,
    **fixed: Any,
) -> Case:
    defaults = {
        "schema": Schema(PLACES, constraints=constraints, **target), "delta": 1e-4, "max_bins": 2,
        "grids": dict.fromkeys(PLACES, Grid(cells=4)),
    }  # fmt: skip
    make = maker(MarginalSynthesizer, **defaults | fixed)
    return Case(make, data, once=True, released=released)


def _with_unused_choices(tape: Any) -> Event:
    """Return what a tree charges if records are few: its choices, too, which are not made."""
    plan = MeasurementPlan(5, 3, True, "zero_out", n_fixed=1).calibrated(4.0, 1e-4)
    made = (mechanism.event for mechanism in tape.mechanisms)
    return ComposedEvent((*made, RepeatedEvent(plan.choice_mechanism.event, plan.n_choices)))


def _additive(kind: Any, target: dict[str, Any], data: Any, **fixed: Any) -> Case:
    own = {"schema": Schema(PLACES, **target), "epsilon": 8.0, "delta": 1e-4, "n_rounds": 2}
    return Case(maker(kind, **own, **fixed), data, once=True)


ADDITIVE = {
    "PrivateAdditiveClassifier": _additive(PrivateAdditiveClassifier, CLASSES, three_classes),
    "PrivateAdditiveClassifier-two-classes": _additive(
        PrivateAdditiveClassifier, {"classes": [0, 1]}, two_classes
    ),
    "PrivateAdditiveClassifier-single-columns": _additive(
        PrivateAdditiveClassifier, {"classes": [0, 1]}, two_classes, max_pairs=0
    ),
    "PrivateAdditiveRegressor": _additive(PrivateAdditiveRegressor, BOUNDED, far_numbers),
}


class OfSynthesizer:
    """What is set at the synthesizer of a model, under the names that contracts know."""

    epsilon, delta, relation = (
        property(lambda self, name=name: getattr(self.synthesizer, name))
        for name in ("epsilon", "delta", "relation")
    )

    def set_params(self, **params: Any) -> Any:
        budget = {"synthesizer__budget": params.pop("budget")} if "budget" in params else {}
        return super().set_params(**params, **budget)


class SettledClassifier(OfSynthesizer, SyntheticDataClassifier):
    pass


class SettledRegressor(OfSynthesizer, SyntheticDataRegressor):
    pass


def _trained(kind: Any, estimator: Any, target: dict[str, Any], data: Any) -> Case:
    synthesizer = _synthesizer(target, method="independent")

    def make(random_state: Any = 0, **params: Any) -> Any:
        return kind(estimator, synthesizer.make(**params), n_samples=50, random_state=random_state)

    return Case(make, data, once=True)


GAN = {
    **TRAINED, "schema": Schema(PLACES, **CLASSES), "hidden_layer_sizes": (5,), "epochs": 6,
    "generator_layer_sizes": (5,), "latent_size": 3, "discriminator_steps": 2, "max_grad_norm": 0.2,
}  # fmt: skip
SYNTHESIS = {
    "MarginalSynthesizer-independent": _synthesizer(method="independent"),
    "MarginalSynthesizer-tree": _synthesizer(BOUNDED, far_numbers),
    "MarginalSynthesizer-few-records": _synthesizer(released=_with_unused_choices),
    "MarginalSynthesizer-constrained": _synthesizer(
        BOUNDED,
        far_numbers,
        (OrderedColumns(["x0", "x1", "x2"]), ImpossibleValues({"x3": (-3, -1), "x0": (None, 0)})),
    ),
    "MarginalSynthesizer-adaptive": _synthesizer(method="adaptive", n_rounds=3),
    "SyntheticDataClassifier": _trained(SettledClassifier, GaussianNB(), CLASSES, three_classes),
    "SyntheticDataRegressor": _trained(
        SettledRegressor, LinearRegression(), {"target_bounds": (-3, 3)}, numbers
    ),
    "DPGANSynthesizer": Case(trainer(DPGANSynthesizer, **GAN), samples=True, before=1),
}

CASES = {
    **NETWORKS,
    **ADDITIVE,
    **FINE_TUNING,
    **LINEAR,
    **PATE,
    "PrivateSearchCV": SEARCH,
    "PrivateStandardScaler": _scaler(),
    "PrivateStandardScaler-delta": _scaler(delta=1e-4),
    **SYNTHESIS,
}


def in_forms(names: Collection[str], heavy: Container[str] = ()) -> list[Any]:
    """Return names as parameters: the first form of each estimator is tried every day."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(name.partition("-")[0], name)
    marks = {name: [pytest.mark.slow] for name in set(names) - set(first.values())}
    marks |= {name: [pytest.mark.heavy] for name in first.values() if name in heavy}
    return [pytest.param(name, marks=marks.get(name, ())) for name in names]


# What scikit-learn's own checks run on. They cannot pass public facts, and most of them compare two
# fits, which only a seed makes equal.
SCIKIT_LEARN = [
    ALMFineTuner(epsilon=100.0, noise_seed=0),
    ALMFineTuner(head="softmax", epsilon=100.0, noise_seed=0),
    HalfWhitening(),
    # The checks fit on a few dozen rows; a large epsilon lets them look at learning, not at noise.
    # In 20 epochs accuracy is 0.936 +- 0.005 where 0.83 is asked for, in 60 R2 is 0.825 +- 0.018 of
    # 0.5 (in 20 it was 0.66 +- 0.05, which failed once in 150 runs).
    DPSGDClassifier(epsilon=100.0, epochs=20),
    DPSGDClassifier(epsilon=100.0, epochs=20, noise_seed=0),
    DPSGDClassifier(epsilon=100.0, epochs=20, hidden_layer_sizes=(), device="cpu", noise_seed=0),
    DPSGDRegressor(epsilon=100.0, epochs=60),
    DPSGDRegressor(epsilon=100.0, epochs=60, noise_seed=0),
    DPFederatedClassifier(epsilon=100.0, n_rounds=30, noise_seed=0),
    FunctionalMechanismRegressor(noise_seed=0),
    FunctionalMechanismClassifier(noise_seed=0),
    ObjectivePerturbationClassifier(noise_seed=0),
    OutputPerturbationClassifier(noise_seed=0),
    AdaSSPRegressor(noise_seed=0),
    PrivateSearchCV(
        OutputPerturbationClassifier(relation="zero_out"),
        {"alpha": [0.01, 0.1]},
        n_trials=2,
        epsilon=100.0,
        test_size=0.4,
        noise_seed=0,
    ),
    PrivateStandardScaler(noise_seed=0),
    MarginalSynthesizer(noise_seed=0),
    PrivateAdditiveClassifier(epsilon=100.0, noise_seed=0),
    PrivateAdditiveRegressor(epsilon=100.0, noise_seed=0),
    DPGANSynthesizer(epochs=1, discriminator_steps=1, noise_seed=0, random_state=0),
    SyntheticDataClassifier(
        LogisticRegression(), MarginalSynthesizer(epsilon=100.0, noise_seed=0), random_state=0
    ),
    SyntheticDataRegressor(
        LinearRegression(), MarginalSynthesizer(epsilon=100.0, noise_seed=0), random_state=0
    ),
    LocalPerturbation(noise_seed=0),
    PATEClassifier(student=LogisticRegression(), n_teachers=5, noise_seed=0, random_state=0),
    PrivateKNNClassifier(student=LogisticRegression(), n_neighbors=5, noise_seed=0, random_state=0),
    ALIBIClassifier(epsilon=20.0, noise_seed=0, random_state=0),
    LP2STClassifier(epsilon=20.0, noise_seed=0, random_state=0),
    LabelPATEClassifier(n_teachers=5, noise_seed=0, random_state=0),
    RandomizedResponseClassifier(epsilon=20.0, noise_seed=0, random_state=0),
]

# For ``check_replay`` alone; the rest is said by the cases above.
OVERFLOWING = case_of_module(SumsAsKernelsDo, with_overflow)
SMOOTHED = Case(
    lambda **params: SmoothedClassifier(
        CASES["DPSGDClassifier"].make(**params), sigma=0.5, random_state=0
    ),
    samples=True,
)
