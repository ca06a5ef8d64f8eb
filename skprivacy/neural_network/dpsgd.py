"""Neural networks trained with differentially private stochastic gradient descent."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import _config
from .._sklearn import Interval, StrOptions
from .._validation import check_column_names
from ..accounting import (
    Gaussian,
    NonPrivate,
    PoissonSampled,
    PrivacyBudget,
    PrivacyGuarantee,
    Repeated,
    calibrate_noise_multiplier,
    charge,
)
from ..exceptions import PrivacyWarning
from ..mechanisms import FloatGaussian, PoissonSampler, SecureRandom
from ._mlp import ACTIVATIONS, make_mlp
from ._net import PrivateNet

__all__ = ["DPSGDClassifier"]

_PREDICT_ROWS = 1 << 16


@dataclass(frozen=True)
class _Plan:
    """What training will do, fixed by public facts before the data is looked at."""

    sampling_rate: float
    steps_per_epoch: int
    epochs: int
    divisor: float
    relation: str

    @property
    def n_steps(self) -> int:
        return self.steps_per_epoch * self.epochs

    def event(self, noise_multiplier: float) -> Any:
        if noise_multiplier == 0:
            return NonPrivate()
        step = PoissonSampled(self.sampling_rate, Gaussian(noise_multiplier))
        return Repeated(step, self.n_steps)


class DPSGDClassifier(ClassifierMixin, BaseEstimator):
    """Multi-layer perceptron classifier trained with differential privacy (DP-SGD).

    Each step draws a random batch, clips the gradient of every record in it to ``max_grad_norm``,
    sums, adds Gaussian noise and updates. The noise is computed for you from ``epsilon``,
    ``delta``, the batch size and the number of steps.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int, default=(64,)
        Units in each hidden layer. An empty tuple gives a private logistic regression, which does
        best when records are few or ``epsilon`` is small.
    activation : {"tanh", "relu", "logistic"}, default="tanh"
        Activation of the hidden layers. Bounded ones keep gradients small, so clipping costs less.
    epsilon : float, default=1.0
        Privacy loss that training may cost, in nats. Smaller is more private. ``numpy.inf``
        trains without noise and **without any guarantee**, to compare against.
    delta : float, default=1e-5
        Probability with which ``epsilon`` may be exceeded. Must be below 1 / number of records.
    max_grad_norm : float, default=1.0
        L2 norm to which the gradient of each record is clipped.
    batch_size : int or "auto", default="auto"
        Expected number of records in a step. "auto" is a quarter of the records. Large batches
        are the better bargain: the noise is shared by more records.
    epochs : int, default=30
        Expected number of times that each record takes part.
    learning_rate : float or "auto", default="auto"
        Step size, constant. "auto" follows from the noise, hence from public facts alone:
        ``min(1, 0.35 / sqrt(r)) / max_grad_norm``, where r is the norm of a step's noise divided
        by the largest norm that a step's mean gradient can have.
    momentum : float, default=0.9
        Momentum of the updates, in [0, 1).
    averaging : float, default=0.5
        Share of the last steps whose weights are averaged into the final model, in [0, 1].
        Averaging costs no privacy and takes noise away.
    classes : array-like of shape (n_classes,), default=None
        All labels that may occur. They must be known publicly: without them they are read off
        ``y``, which tells whether a rare class occurs.
    n_records : int, default=None
        A public figure for the number of records, such as a rounded census total. With it the
        guarantee also hides how many records there are (add/remove). Without it the number of
        records counts as public (zero-out).
    device : str, default="auto"
        Where to train: "cpu", "cuda", "cuda:1"... "auto" takes a GPU if there is one.
    random_state : int, RandomState instance or None, default=None
        Drives the initial weights only. Sampling and noise are never reproducible by it.
    noise_seed : int, default=None
        Makes sampling and noise reproducible **and the guarantee void**. For tests only.
    budget : PrivacyBudget, default=None
        Charged for the fit before training looks at the data. What it cannot afford is refused.
        Copies, clones and workers charge the same budget.
    verbose : int, default=0
        Whether to show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    module_ : torch.nn.Module
        The trained network, on the CPU: maps inputs of shape (n, n_features) to logits.
    privacy_ : PrivacyGuarantee
        What is guaranteed, in which relation and under which assumptions.
    privacy_event_ : DpEvent
        What was released, for composition with other releases.
    epsilon_ : float
        The guaranteed epsilon at ``delta_``. Never above ``epsilon``.
    delta_ : float
        The delta that ``epsilon_`` holds at.
    noise_multiplier_ : float
        Standard deviation of the noise divided by ``max_grad_norm``.
    n_steps_ : int
        Number of training steps.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, when all of them are strings.

    Notes
    -----
    **Guarantees.** The fitted attributes, hence everything predicted from them, are
    (``epsilon``, ``delta``)-differentially private with one record as the unit. Relation: zero-out
    (one record is replaced by one that contributes nothing; their number is public), or add/remove
    when ``n_records`` is given. Each step is a Poisson-sampled Gaussian mechanism; the steps are
    composed through their privacy loss distribution. Preprocessing fitted on the same data, such
    as a ``StandardScaler``, is **not** covered: use
    :class:`skprivacy.preprocessing.SchemaTransformer`.
    Gradients and noise are floating-point numbers: not hardened against an adversary who reads
    the lowest bits of the weights (Mironov 2012). How long training takes is not protected.

    **Edge cases.** A record with NaN, infinite or huge values has no finite gradient and takes no
    part; whether there are such records must not show, so nothing is said about them. A batch may
    be empty: it still adds noise and counts. A class of which there is no record is learned as
    rare. ``predict`` refuses NaN and infinity.

    References
    ----------
    M. Abadi et al., "Deep learning with differential privacy", CCS 2016.

    V. Doroshenko et al., "Connect the dots: tighter discrete approximations of privacy loss
    distributions", PoPETs 2022.

    Examples
    --------
    >>> from skprivacy.neural_network import DPSGDClassifier
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DPSGDClassifier(epsilon=8.0, classes=range(10)).fit(X / 16, y)
    >>> model.privacy_
    (8.00, 1e-05)-DP, zero-out, proved
    >>> model.score(X / 16, y) > 0.6
    True
    """

    _parameter_constraints: dict = {
        "hidden_layer_sizes": ["array-like"],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "max_grad_norm": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "averaging": [Interval(Real, 0, 1, closed="both")],
        "classes": ["array-like", None],
        "n_records": [Interval(Integral, 1, None, closed="left"), None],
        "device": [str],
        "random_state": ["random_state"],
        "noise_seed": [Integral, None],
        "budget": [PrivacyBudget, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        hidden_layer_sizes: tuple[int, ...] = (64,),
        activation: str = "tanh",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        max_grad_norm: float = 1.0,
        batch_size: int | str = "auto",
        epochs: int = 30,
        learning_rate: float | str = "auto",
        momentum: float = 0.9,
        averaging: float = 0.5,
        classes: ArrayLike | None = None,
        n_records: int | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        noise_seed: int | None = None,
        budget: PrivacyBudget | None = None,
        verbose: int = 0,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.epsilon = epsilon
        self.delta = delta
        self.max_grad_norm = max_grad_norm
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.averaging = averaging
        self.classes = classes
        self.n_records = n_records
        self.device = device
        self.random_state = random_state
        self.noise_seed = noise_seed
        self.budget = budget
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike) -> DPSGDClassifier:
        """Train on private records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One record a row, features of comparable and publicly bounded scale (about -1 to 1).
        y : array-like of shape (n_samples,)
            Labels, each one of ``classes``.

        Returns
        -------
        self : DPSGDClassifier

        Raises
        ------
        ValueError
            If a parameter, a shape or a label is not as described. Nothing has been released then.
        BudgetExceededError
            If ``budget`` cannot afford the fit. Nothing has been released, nothing charged.
        """
        self._validate_params()
        hidden = _check_hidden(self.hidden_layer_sizes)
        device = _check_device(self.device)
        check_column_names(X)
        rows, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        check_classification_targets(labels)
        assumptions: list[str] = []
        self.classes_, targets = self._encode(labels, assumptions)
        plan = self._plan(len(rows))
        noise_multiplier = self._noise_multiplier(plan)
        self._certify(plan, noise_multiplier, assumptions)
        module = make_mlp(
            rows.shape[1], hidden, len(self.classes_), self.activation,
            check_random_state(self.random_state),
        )  # fmt: skip
        net = PrivateNet(
            module,
            sampler=PoissonSampler(plan.sampling_rate),
            mechanism=FloatGaussian(noise_multiplier, self.max_grad_norm),
            random=SecureRandom(self.noise_seed),
            divisor=plan.divisor,
            steps_per_epoch=plan.steps_per_epoch,
            averaging=self.averaging,
            max_epochs=plan.epochs,
            lr=self._learning_rate(module, noise_multiplier, plan),
            optimizer__momentum=self.momentum,
            device=device,
            verbose=int(self.verbose),
        )
        with np.errstate(over="ignore"):  # beyond single precision means infinite, hence no part
            inputs = torch.from_numpy(rows.astype(np.float32))
        with charge(
            self.budget, self.privacy_event_, plan.relation, type(self).__name__, self.privacy_.kind
        ):
            self.module_ = net.train(inputs, torch.from_numpy(targets))
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers, on the scale of the training data.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        check_is_fitted(self, "module_")
        rows = validate_data(self, X, dtype=np.float32, reset=False)
        with torch.inference_mode():
            logits = [
                self.module_(torch.from_numpy(rows[start : start + _PREDICT_ROWS]))
                for start in range(0, len(rows), _PREDICT_ROWS)
            ]
            return torch.cat(logits).double().softmax(1).numpy()

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers, on the scale of the training data.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]

    def _encode(self, y: NDArray, assumptions: list[str]) -> tuple[NDArray, NDArray[np.int64]]:
        """Return the classes, and the labels as indices into them."""
        if self.classes is None:
            _config.leak(
                "classes=None: the labels are read off y, which tells whether a rare class "
                "occurs. Pass classes=[...], all labels that are publicly possible."
            )
            assumptions.append("the set of class labels is public (it was read off y)")
            classes = np.unique(y)
        else:
            classes = np.unique(np.asarray(self.classes))
        if len(classes) < 2:
            raise ValueError(
                f"classes={classes.tolist()!r}: {type(self).__name__} needs at least two classes, "
                f"got {len(classes)} class. Pass classes=[...] with all possible labels."
            )
        known = np.isin(y, classes)
        if not known.all():
            strange = np.unique(y[~known])[:5].tolist()
            raise ValueError(
                f"y holds labels that are not in classes={classes.tolist()!r}: {strange!r}. "
                "Add them to classes, or drop those records."
            )
        return classes, np.searchsorted(classes, y)

    def _plan(self, n: int) -> _Plan:
        """Fix sampling rate and number of steps from public facts."""
        public_n = n if self.n_records is None else int(self.n_records)
        if self.delta >= 1.0 / public_n and math.isfinite(self.epsilon):
            raise ValueError(
                f"delta={self.delta!r} must be below 1 / number of records = {1 / public_n:.3g}: "
                "otherwise publishing a record outright would count as private. A usual choice is "
                f"{10.0 ** math.floor(math.log10(0.1 / public_n)):.0e}."
            )
        expected = max(1, public_n // 4) if self.batch_size == "auto" else int(self.batch_size)
        expected = min(expected, public_n)
        return _Plan(
            sampling_rate=expected / public_n,
            steps_per_epoch=round(public_n / expected),
            epochs=int(self.epochs),
            divisor=float(expected),
            relation="zero_out" if self.n_records is None else "add_remove",
        )

    def _noise_multiplier(self, plan: _Plan) -> float:
        if math.isinf(self.epsilon):
            return 0.0
        return calibrate_noise_multiplier(
            plan.event, epsilon=self.epsilon, delta=self.delta, relation=plan.relation
        )

    def _learning_rate(self, module: Any, noise_multiplier: float, plan: _Plan) -> float:
        if self.learning_rate != "auto":
            return float(self.learning_rate)
        n_weights = sum(p.numel() for p in module.parameters())
        noise = noise_multiplier * math.sqrt(n_weights) / plan.divisor
        return min(1.0, 0.35 / math.sqrt(max(noise, 1e-12))) / self.max_grad_norm

    def _certify(self, plan: _Plan, noise_multiplier: float, assumptions: list[str]) -> None:
        if plan.relation == "zero_out":
            assumptions.append("the number of records is public")
        if self.noise_seed is not None:
            warnings.warn(
                f"noise_seed={self.noise_seed!r} makes the noise predictable: there is no privacy. "
                "Use it in tests only.", PrivacyWarning, stacklevel=3,
            )  # fmt: skip
            assumptions.append("nobody knows or guesses noise_seed")
        self.privacy_event_ = plan.event(noise_multiplier)
        self.privacy_ = PrivacyGuarantee(
            self.privacy_event_,
            at_delta=self.delta,
            relation=plan.relation,
            kind="proved" if self.noise_seed is None else "estimate",
            assumptions=tuple(assumptions),
        )
        self.epsilon_ = self.privacy_.epsilon()
        self.delta_ = self.delta
        self.noise_multiplier_ = noise_multiplier
        self.n_steps_ = plan.n_steps


def _check_hidden(sizes: Any) -> tuple[int, ...]:
    values = tuple(np.atleast_1d(np.asarray(sizes)).tolist())
    if not all(isinstance(v, int) and v > 0 for v in values):
        raise ValueError(
            f"hidden_layer_sizes={sizes!r} must be positive whole numbers, such as (64,) or (), "
            "one for each hidden layer."
        )
    return values


def _check_device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device={name!r} cannot be used here ({error}). Use 'auto' or 'cpu'."
        ) from error
    return name
