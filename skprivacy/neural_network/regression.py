"""Regression networks trained with differentially private stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._data_validation import RegressorMixin
from .._groups import check_order
from ..accounting import PrivacyBudget
from ..public_facts import public_target_bounds
from ._gradients.losses import SquaredError
from ._gradients.trial import Probe
from ._network import NETWORK_CONSTRAINTS, PrivateNetwork
from ._training.environment import ordinary_torch

__all__ = ["DPSGDRegressor"]


class DPSGDRegressor(RegressorMixin, PrivateNetwork):
    """Multi-layer perceptron regressor trained with differential privacy (DP-SGD).

    Minimises the squared error of a target with public bounds. Otherwise as
    :class:`DPSGDClassifier`.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int or "auto", default="auto"
        Units in each hidden layer. An empty tuple gives a private linear regression, which does
        best when records are few or ``epsilon`` is small. "auto" follows from public facts: see
        the notes.
    activation : {"auto", "tanh", "relu", "logistic"}, default="auto"
        Activation of the hidden layers. Bounded ones keep gradients small, so clipping costs less:
        "auto" is "tanh", and "relu" without privacy.
    module : type or torch.nn.Module, default=None
        A network of your own instead of the perceptron: a class (its arguments are ``module__x``
        parameters) or a ready-made module, which is copied and whose weights must be public. It
        maps rows of shape (n, n_features) to outputs of shape (n, 1) and keeps examples
        apart: batch normalisation is refused. Images are reshaped inside it.
    augment : callable or list of callables, default=None
        Random changes of the rows in training, such as :class:`RandomShift` of images. Each maps a
        tensor of rows to one of the same shape, treats each row by itself and draws its randomness
        from torch, whatever the values are; a trial on random numbers refuses what does not.
    augmentations : int, default=1
        Random views of each record in a step. Its gradient is the mean over them, and is clipped
        after that: more views cost time, but no privacy.
    epsilon : float or None, default=1.0
        Privacy loss that training may cost, in nats. Smaller is more private. ``numpy.inf``
        trains without noise and **without any guarantee**, to compare against. ``None`` if
        ``noise_multiplier`` is given.
    delta : float, default=1e-5
        Probability with which ``epsilon`` may be exceeded. Must be below 1 / number of records.
    noise_multiplier : float, default=None
        How much noise there is, in units of ``max_grad_norm``, instead of what ``epsilon`` and
        ``delta`` allow: to repeat what others did, or to compare accountants. ``epsilon`` must be
        ``None`` then, and ``epsilon_`` says what it costs.
    noise : {"gaussian", "exact", "logistic", "banded", "tree"}, default="gaussian"
        "gaussian" and "logistic" are drawn anew in every step, and the records of a step are a
        Poisson sample. "exact" is "gaussian" on a grid, so that the guarantee holds to the last bit
        of the weights; it takes longer, and is made on the processor if training is on a GPU.
        "banded" and "tree" are for streams: batches of records in the order of ``X``, and noise
        that partly cancels out over the steps. See the guarantees below.
    max_grad_norm : float or "auto", default="auto"
        L2 norm to which the gradient of each record is clipped. "auto" is 1, and no limit without
        privacy.
    clipping : {"flat", "per-layer", "automatic", "adaptive"}, default="flat"
        "flat" shortens gradients that are longer. "automatic" also lengthens short ones.
        "per-layer" shortens each layer's share by itself. "adaptive" begins at ``max_grad_norm``
        and follows ``target_quantile``; the steps keep the size that ``max_grad_norm`` gives them.
    target_quantile : float, default=0.5
        For "adaptive" clipping: the share of gradients that are to be short enough as they are. It
        is learned privately within each step, from a small part of ``epsilon``.
    batch_size : int or "auto", default="auto"
        Expected number of records in a step. "auto" follows from public facts: see the notes.
    epochs : int or "auto", default="auto"
        Expected number of times that each record takes part. "auto" follows from public facts.
    optimizer : {"auto", "sgd", "adam"}, default="auto"
        "adam" subtracts the known variance of the noise from its second moment. "auto" is "sgd",
        but "adam" where the notes say so.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" is 0.01 for "adam"; for "sgd" it follows from public facts.
    schedule : {"auto", "constant", "linear", "cosine"}, default="auto"
        How the step size falls in the course of training: not, or to zero. "auto" is "linear",
        but "constant" where the notes say so.
    momentum : float, default=0.9
        Momentum of the updates, in [0, 1); the first of Adam's two.
    averaging : float, "ema" or "auto", default="auto"
        Share of the last steps whose weights are averaged into the final model, in [0, 1], or
        "ema" for an exponential moving average. It costs no privacy and reduces the noise, as does
        a step size that falls to zero: "auto" is 0 with one, and 0.5 with a constant one.
    averaging_decay : float, default=0.95
        For "ema": how much a step counts beside the one after it, in (0, 1).
    target_bounds : tuple of float, default=None
        Lowest and highest target, publicly known; targets beyond are moved to them. Without it
        they are read off ``y``, which tells what the extremes are.
    n_records : int, default=None
        A public figure for the number of records, such as a rounded census total. With it the
        guarantee also hides how many records there are (add/remove). Without it the number of
        records counts as public (zero-out).
    max_group_rows : int or None, default=2
        With ``groups`` in ``fit``: at most so many records of each are used, drawn once by secure
        chance before training. The noise does not depend on it: 5 is better where a group's
        records differ much, see :doc:`/people`. ``None`` uses all.
    group_contribution : {"mean", "sum"}, default="mean"
        With ``groups``: whether the mean or the sum of the gradients of a group's records is what
        is clipped, once, to ``max_grad_norm``.
    device : str, default="auto"
        Where to train: "cpu", "cuda", "cuda:1"... "auto" takes a GPU if there is one.
    random_state : int, RandomState instance or None, default=None
        Drives the initial weights only. Sampling and noise are never reproducible by it.
    noise_seed : int, default=None
        Makes sampling and noise reproducible **and the guarantee void**. For tests only.
    budget : PrivacyBudget, default=None
        Charged for the fit before training looks at the data. What it cannot afford is refused.
        Copies, clones and workers charge the same budget.
    distributed : {"replicated", "sharded"}, default=None
        Train in all processes of ``torch.distributed`` together, which must be initialised: one
        model, one noise, one charge (by the first process). "replicated": each process was given
        all records and works on a part of every batch. "sharded": each has records of its own. The
        processes, and the network between them, must be trusted with the records.
    verbose : int, default=0
        Whether to show a progress bar.
    **module_params : dict
        Arguments of a ``module`` class, as ``module__x``.

    Attributes
    ----------
    target_bounds_ : tuple of float
        The bounds that were used. Predictions stay within.
    module_ : torch.nn.Module
        The trained network, on the CPU: maps inputs of shape (n, n_features) to logits.
    privacy_ : PrivacyGuarantee
        What is guaranteed, in which relation and under which assumptions.
    privacy_event_ : DpEvent
        What was released, for composition with other releases.
    epsilon_ : float
        The guaranteed epsilon at ``delta_``. Never above ``epsilon``, if that was given.
    delta_ : float
        The delta that ``epsilon_`` holds at.
    noise_multiplier_ : float
        Standard deviation (for "logistic": scale; for "banded" and "tree": standard deviation of
        the independent numbers that are mixed) of the noise divided by ``max_grad_norm``.
    max_grad_norm_ : float
        The clipping norm of the last step; other than ``max_grad_norm`` if it was "adaptive".
    n_steps_ : int
        Number of training steps.
    settings_ : dict
        What each parameter that can be "auto" was in the last training.
    gradients_ : {"book-keeping", "torch.func", "one by one"}
        How per-example gradients were computed, from fast to slow.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, when all of them are strings.

    Notes
    -----
    **Guarantees.** The fitted attributes, hence everything predicted from them, are (``epsilon``,
    ``delta``)-differentially private with one record as the unit, or, with ``groups``, all records
    of a group. Relation: zero-out (one record is replaced by one that contributes nothing; their
    number is public), or add/remove when ``n_records`` is given. With ``groups``, all that is said
    of records here holds of groups: each is drawn as a whole, joins the gradients of its records,
    and is clipped once; ``n_records``, ``batch_size``, ``epochs``, ``delta`` and what is "auto"
    count groups. Each step is a Poisson-sampled Gaussian mechanism; the steps are composed through
    their privacy loss distribution (logistic noise: or by their Renyi divergences, where that is
    better). A run of "banded" or "tree" noise is one Gaussian mechanism, without sampling: it holds
    for zero-out alone, and if which batch a record is in, and when, depends on nobody's data.
    Preprocessing fitted on the same data, such as a ``StandardScaler``, is **not** covered: use
    :class:`skprivacy.preprocessing.SchemaTransformer`. Gradients and noise are floating-point
    numbers: not hardened against an adversary who reads the lowest bits of the weights (Mironov
    2012). With "exact" noise they are: gradients are added up in double precision, whose errors
    clipping makes room for, and the sum is rounded once, to a grid on which the noise is, see
    :class:`~skprivacy.mechanisms.RoundedGaussian`. That one record does not change the last bit of
    another's gradient is so under zero-out, where it keeps its row of the batch, and an assumption
    of the guarantee under add/remove or with ``groups``. How long training takes is not protected.

    **What "auto" is** follows from public facts alone: the number n of records (``n_records``, if
    that is given), d of features, ``epsilon`` and ``delta``. Let mu be the Gaussian-DP parameter of
    ``epsilon`` and ``delta``, and s = n * mu. Training lasts for the time t = 0.125 * s / sqrt(d),
    as the number of steps times the learning rate. There are 64 * sqrt(t) steps, from 128 to 1,536,
    in batches of min(n / 4, 1024); the learning rate is t over the steps, at most 2, and falls to
    zero along a line. A step of another ``max_grad_norm`` is divided by it. There are 64 tanh
    units, and none if s is below 5 * sqrt(64 * (d + 2) + 1): noise would outgrow what they learn.
    What is given is obeyed, and the rest fits itself to it. With ``module`` or
    ``noise_multiplier``, and for streams, it is 30 epochs in batches of n / 4 by Adam at a constant
    0.01; for "sgd" the step size is then ``min(1, 0.35 / sqrt(r)) / max_grad_norm``, where r is the
    norm of a step's noise divided by the largest norm that a step's mean gradient can have. With
    ``epsilon=numpy.inf`` it is as :class:`DPSGDClassifier` says, but Adam's rate is 0.001.

    **Edge cases.** A record with NaN, infinite or huge values has no finite gradient and is
    ignored; whether there are such records must not show, so nothing is said about them. Of a group
    the other records count; the mean is still over all that are used. A batch may be empty: it
    still adds noise and counts. Targets must be finite. ``predict`` refuses NaN and infinity.

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
        n_records: int | None = None,
        max_group_rows: int | None = 2,
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
        self.n_records = n_records
        self.max_group_rows = max_group_rows
        self.group_contribution = group_contribution
        self.device = device
        self.random_state = random_state
        self.noise_seed = noise_seed
        self.budget = budget
        self.distributed = distributed
        self.verbose = verbose
        self._set_module_params(module_params)

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> DPSGDRegressor:
        """Train on private records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One record a row, features of comparable and publicly bounded scale (about -1 to 1).
        y : array-like of shape (n_samples,)
            Finite targets.
        groups : array-like of shape (n_samples,), default=None
            Whose record each is, such as a column of patients' numbers. What is protected is then
            a group instead of a record; a Series' name says what a group is called.

        Returns
        -------
        DPSGDRegressor
            Itself, fitted.

        Raises
        ------
        ValueError
            If a parameter, a shape or a target is not as described. Nothing has been released then.
        BudgetExceededError
            If ``budget`` cannot afford the fit. Nothing has been released, nothing charged.
        """
        return self._fit(X, y, groups, True)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None
    ) -> DPSGDRegressor:
        """Train for another ``epochs``, on the same records or on others, at ``epsilon`` once more.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,)
            Their targets.
        groups : array-like of shape (n_samples,), default=None
            As in ``fit``, and in every call since: records and groups, or groups of two names, are
            never added up.

        Returns
        -------
        DPSGDRegressor
            ``privacy_`` covers all calls since the last ``fit``, for a record (or a group) in every
            one.

        Raises
        ------
        ValueError
            As in ``fit``, or if the earlier training protects something else than this one would.
        """
        return self._fit(X, y, groups, not hasattr(self, "module_"))

    @ordinary_torch("cpu")
    def _fit(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None, first: bool
    ) -> DPSGDRegressor:
        with self._private_fit() as fit, self._peers() as peers:
            check_order(groups, X)
            rows, values = self._rows(X, y, first, y_numeric=True)
            if first:
                self.target_bounds_ = public_target_bounds(fit, values, self.target_bounds)
            low, high = self.target_bounds_
            scaled = (np.clip(values, low, high) - low) * (2.0 / (high - low)) - 1.0
            self._train_on(fit, peers, rows, scaled.astype(np.float32), groups, first)
        return self

    def _n_outputs(self) -> int:
        return 1

    def _loss(self) -> dict[str, Any]:
        return {"criterion": SquaredError}

    def _probe(self, device: str, views: int) -> Probe:
        return Probe.like((self.n_features_in_,), None, device, views)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the expected target of each row, within ``target_bounds_``.

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
