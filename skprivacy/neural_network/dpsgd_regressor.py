"""DPSGDRegressor: a neural network regressor trained with DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from .._docs import fill_docs
from .._input_data import RegressorMixin
from .._sklearn import StrOptions
from ..accounting import PrivacyBudget
from ..base import PrivateFit, public_target_bounds
from ..mechanisms.base import TargetScale
from ._gradients.losses import AbsoluteError, HuberError, SquaredError
from ._gradients.trial import Probe
from ._training.engine import Peers, Training
from ._training.target_releases import finite_rows, fit_last_layer, release_mean
from .network import PrivateNetwork, TrainingData
from .network_parameters import NETWORK_CONSTRAINTS, NETWORK_DOCS
from .settings import Clipping, Distributed, Optimizer, PublicFacts

_LOSSES = {"squared_error": SquaredError, "absolute_error": AbsoluteError, "huber": HuberError}


@fill_docs(NETWORK_DOCS)
class DPSGDRegressor(RegressorMixin, PrivateNetwork):
    """Multi-layer perceptron regressor trained with DP-SGD (Abadi et al. 2016, Algorithm 1).

    It minimises the error of a target with public bounds. Otherwise it is like
    :class:`DPSGDClassifier`.

    Parameters
    ----------
    %(network_model)s
    max_grad_norm : float, Clipping or "auto", default="auto"
        L2 norm to which the gradient of each record is clipped, for targets scaled to [-1, 1].
        "auto" is 0.3, and no limit without privacy; outside the study (see Notes) it is 1.
        A :class:`Clipping` also sets the way.
    %(network_optimization)s
    target_bounds : tuple of float, default=None
        Lowest and highest target, from public knowledge; other targets are clipped. ``None`` reads
        them off ``y``, and the guarantee then names this as an assumption.
    %(target_scale)s
    loss : {"squared_error", "absolute_error", "huber"}, default="squared_error"
        Predictions estimate the mean of the targets, their median, or a value between both.
        "huber" is linear beyond a tenth of half the width of ``target_bounds``.
    %(network_run)s

    Attributes
    ----------
    target_bounds_ : tuple of float
        The bounds in use. Predictions stay within them.
    %(target_scale_)s
    module_ : torch.nn.Module
        The trained network, on the CPU: maps inputs of shape (n, n_features) to targets scaled to
        [-1, 1].
    %(fitted_network)s

    Notes
    -----
    %(network_guarantees)s

    **The mean target is released first**, and the network learns what is left. After training, a
    second release estimates the slope of the targets on the outputs. A normal prior pulls it to the
    factor of James and Stein, by the noise that outputs usually have. The last layer is multiplied
    by it, within 0 and 1, so the mean is predicted where noise hides what the features explain. The
    mean error of the result is released last. Each of the three releases takes a share of
    p = min(0.1, (150 / s)**2) of the squared Gaussian-DP parameter, with s as below. This accuracy
    suffices, so large tables pay little. The releases need the squared error, the built-in
    perceptron, a finite ``epsilon`` and independent noise.

    **"auto" settings** follow from public facts only: the number n of records (``n_records`` if
    given), d of features, ``epsilon`` and ``delta``. Let mu be the Gaussian-DP parameter of
    ``epsilon`` and ``delta``, s = n * mu, and h = s / sqrt(64 * (d + 2) + 1).

    - There are 64 tanh units if h is at least 15, and none otherwise: noise would outweigh what
      they learn.
    - The training time, which is the number of steps times the learning rate, is
      t = 0.5 * s * sqrt((1 - 3 * p) / d). Hidden units multiply it by min(3, max(1, h / 25)).
      Without them it is sqrt(30 * t), if that is less.
    - There are 64 * sqrt(t) steps, from 128 to 1,536, in batches of min(n / 4, 1024).
    - The learning rate is t * (1 - momentum) / steps, at most 2, divided by ``max_grad_norm``.
      It falls linearly to zero.

    Given settings stay, and the "auto" settings adapt to them. With ``module``, another ``loss`` or
    ``noise_multiplier``, and for streams, training has 30 epochs in batches of n / 4 by Adam at a
    constant 0.01. For "sgd" the step size is then ``min(1, 0.35 / sqrt(r)) / max_grad_norm``, where
    r is the norm of a step's noise divided by the largest possible norm of a step's mean gradient.
    With ``epsilon=numpy.inf`` the settings are as in :class:`DPSGDClassifier`, except that Adam's
    step size is 0.001.

    %(network_edge_cases)s
    Targets must be finite.

    References
    ----------
    M. Abadi et al., "Deep learning with differential privacy", CCS 2016.
    W. James and C. Stein, "Estimation with quadratic loss", Berkeley Symposium 1961.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.neural_network import DPSGDRegressor
    >>> X = np.random.RandomState(0).uniform(-1, 1, size=(2000, 3))
    >>> y = X[:, 0] - 0.5 * X[:, 1]
    >>> model = DPSGDRegressor(epsilon=3.0, target_bounds=(-1.5, 1.5)).fit(X, y)
    >>> model.privacy_
    (3.00, 1e-05)-DP, zero-out, floating-point noise, proved assuming the number of records is
    public
    >>> model.score(X, y) > 0.7
    True
    """

    _parameter_constraints: dict = {
        **NETWORK_CONSTRAINTS,
        "target_bounds": ["array-like", None],
        "target_scale": [StrOptions({"linear", "log"})],
        "loss": [StrOptions(set(_LOSSES))],
    }
    _target_checks = {"y_numeric": True}

    def __init__(
        self,
        *,
        hidden_layer_sizes: tuple[int, ...] | str = "auto",
        module: Any = None,
        augment: Any = None,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
        noise: str = "gaussian",
        max_grad_norm: float | str | Clipping = "auto",
        batch_size: int | str = "auto",
        epochs: int | str = "auto",
        optimizer: str | Optimizer = "auto",
        learning_rate: float | str = "auto",
        target_bounds: tuple[float, float] | None = None,
        target_scale: str = "linear",
        loss: str = "squared_error",
        relation: str = "zero_out",
        n_records: int | None = None,
        max_group_size: int | None = 2,
        device: str | Distributed = "auto",
        random_state: int | np.random.RandomState | None = None,
        noise_seed: int | None = None,
        budget: PrivacyBudget | None = None,
        **module_params: Any,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.module = module
        self.augment = augment
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.noise = noise
        self.max_grad_norm = max_grad_norm
        self.batch_size = batch_size
        self.epochs = epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.target_bounds = target_bounds
        self.target_scale = target_scale
        self.loss = loss
        self.relation = relation
        self.n_records = n_records
        self.max_group_size = max_group_size
        self.device = device
        self.random_state = random_state
        self.noise_seed = noise_seed
        self.budget = budget
        self._set_module_params(module_params)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None
    ) -> DPSGDRegressor:
        """Train for another ``epochs``, on the same or other records, at another ``epsilon``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,)
            Their targets.
        %(continued_fit)s
        """
        return self._fit(X, y, groups, not hasattr(self, "module_"))

    def _trained(self, training: Training, data: TrainingData, peers: Peers) -> nn.Module:
        if training.config.target_noise is None:
            return super()._trained(training, data, peers)
        X, y, groups = data
        targets = np.where(finite_rows(X), y.numpy(), 0.0)
        mean = release_mean(training.config, targets, groups, peers, training.random)
        trained = super()._trained(training, (X, y - mean, groups), peers)
        fit_last_layer(training, trained, (X, targets, groups), mean, peers)
        return trained

    def _encode(
        self, fit: PrivateFit, y: Any, first: bool, classes: ArrayLike | None = None
    ) -> NDArray[Any]:
        if first:
            self.target_bounds_ = public_target_bounds(fit, y, self.target_bounds)
            self.target_scale_ = self.target_scale
        # Targets of [-1, 1] start near the outputs of a network whose last layer is zero.
        return self._target_scale().to_unit(y).astype(np.float32)

    def _target_scale(self) -> TargetScale:
        return TargetScale(*self.target_bounds_, self.target_scale_)

    def _n_outputs(self) -> int:
        return 1

    def _loss(self) -> nn.Module:
        return _LOSSES[self.loss]()

    def _public_facts(self, *shape: int) -> PublicFacts:
        facts = super()._public_facts(*shape)
        # Other losses estimate no mean, and the study does not cover them.
        return replace(facts, studied=facts.studied and self.loss == "squared_error")

    def _probe(self, device: str, views: int) -> Probe:
        return Probe.for_shape((self.n_features_in_,), None, device, views)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the predicted target of each row, within ``target_bounds_``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers, on the scale of the training data.

        Returns
        -------
        ndarray of shape (n_samples,)
            In the units of the target.
        """
        outputs = self._outputs(X, lambda z: z.flatten().clamp(-1.0, 1.0))
        return self._target_scale().from_unit(outputs)
