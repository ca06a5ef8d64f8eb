"""DPSGDRegressor: a neural network regressor trained with DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from .._docs import fill_docs
from .._input_data import RegressorMixin
from ..accounting import PrivacyBudget
from ..base import PrivateFit, public_target_bounds
from ._gradients.losses import SquaredError
from ._gradients.trial import Probe
from .network import NETWORK_CONSTRAINTS, PrivateNetwork
from .network_docs import NETWORK_DOCS


@fill_docs(NETWORK_DOCS)
class DPSGDRegressor(RegressorMixin, PrivateNetwork):
    """Multi-layer perceptron regressor trained with DP-SGD (Abadi et al. 2016, Algorithm 1).

    It minimises the squared error of a target with public bounds. Otherwise it is like
    :class:`DPSGDClassifier`.

    Parameters
    ----------
    %(network_shape)s
    %(augment)s
    %(epsilon_or_noise)s
    %(training_noise)s
    max_grad_norm : float or "auto", default="auto"
        L2 norm to which the gradient of each record is clipped. "auto" is 1, and no limit without
        privacy.
    %(clipping)s
    %(network_optimization)s
    target_bounds : tuple of float, default=None
        Lowest and highest target, from public knowledge; other targets are clipped. ``None`` reads
        them off ``y``, and the guarantee then names this as an assumption.
    %(n_records)s
    %(group_limits)s
    %(network_device)s
    %(noise_seed)s
    %(budget)s
    %(distributed)s
    **module_params : dict
        Arguments of a ``module`` class, as ``module__x``.

    Attributes
    ----------
    target_bounds_ : tuple of float
        The bounds in use. Predictions stay within them.
    module_ : torch.nn.Module
        The trained network, on the CPU: maps inputs of shape (n, n_features) to scaled targets.
    %(guarantee_attributes)s
    %(network_attributes)s
    %(settings_attributes)s
    %(feature_attributes)s

    Notes
    -----
    %(network_guarantees)s

    **"auto" settings** follow from public facts only: the number n of records (``n_records`` if
    given), d of features, ``epsilon`` and ``delta``. Let mu be the Gaussian-DP parameter of
    ``epsilon`` and ``delta``, and s = n * mu.

    - The training time, which is the number of steps times the learning rate, is
      t = 0.125 * s / sqrt(d).
    - There are 64 * sqrt(t) steps, from 128 to 1,536, in batches of min(n / 4, 1024).
    - The learning rate is t / steps, at most 2, divided by ``max_grad_norm``. It falls linearly to
      zero.
    - There are 64 tanh units. There are none if s is below 5 * sqrt(64 * (d + 2) + 1), because
      noise would outweigh what they learn.

    Given settings stay, and the "auto" settings adapt to them. With ``module`` or
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
    }
    _target_checks = {"y_numeric": True}

    def __init__(
        self,
        *,
        hidden_layer_sizes: tuple[int, ...] | str = "auto",
        activation: str = "auto",
        module: Any = None,
        augment: Any = None,
        augmentations: int = 1,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
        noise: str = "gaussian",
        max_grad_norm: float | str = "auto",
        clipping: str = "flat",
        target_quantile: float = 0.5,
        batch_size: int | str = "auto",
        epochs: int | str = "auto",
        optimizer: str = "auto",
        learning_rate: float | str = "auto",
        schedule: str = "auto",
        momentum: float = 0.9,
        averaging: float | str = "auto",
        averaging_decay: float = 0.95,
        target_bounds: tuple[float, float] | None = None,
        relation: str = "zero_out",
        n_records: int | None = None,
        max_group_size: int | None = 2,
        group_contribution: str = "mean",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        noise_seed: int | None = None,
        budget: PrivacyBudget | None = None,
        distributed: str | None = None,
        verbose: int = 0,
        **module_params: Any,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.module = module
        self.augment = augment
        self.augmentations = augmentations
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.noise = noise
        self.max_grad_norm = max_grad_norm
        self.clipping = clipping
        self.target_quantile = target_quantile
        self.batch_size = batch_size
        self.epochs = epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.momentum = momentum
        self.averaging = averaging
        self.averaging_decay = averaging_decay
        self.target_bounds = target_bounds
        self.relation = relation
        self.n_records = n_records
        self.max_group_size = max_group_size
        self.group_contribution = group_contribution
        self.device = device
        self.random_state = random_state
        self.noise_seed = noise_seed
        self.budget = budget
        self.distributed = distributed
        self.verbose = verbose
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
        groups : array-like of shape (n_samples,), default=None
            As in ``fit``. All calls must protect the same unit: records, or groups of one name.

        Returns
        -------
        DPSGDRegressor
            Its ``privacy_`` covers all calls since the last ``fit``, for a record (or a group) that
            is in all of them.

        Raises
        ------
        ValueError
            As in ``fit``, or if the earlier training protects another unit.
        """
        return self._fit(X, y, groups, not hasattr(self, "module_"))

    def _encode(
        self, fit: PrivateFit, y: Any, first: bool, classes: ArrayLike | None = None
    ) -> NDArray[Any]:
        if first:
            self.target_bounds_ = public_target_bounds(fit, y, self.target_bounds)
        low, high = self.target_bounds_
        # Targets of [-1, 1] start near the outputs of a network whose last layer is zero.
        scaled = (np.clip(y, low, high) - low) * (2.0 / (high - low)) - 1.0
        return scaled.astype(np.float32)

    def _n_outputs(self) -> int:
        return 1

    def _loss(self) -> nn.Module:
        return SquaredError("none")

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
        low, high = self.target_bounds_
        return low + (outputs + 1.0) * ((high - low) / 2.0)
