"""skorch's NeuralNet, trained with differential privacy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from numpy.typing import ArrayLike
from skorch import NeuralNet
from skorch.utils import to_device
from torch import Tensor, nn

from .._sklearn import validate_parameter_constraints
from ..accounting import PrivacyBudget
from ._network import COMMON_CONSTRAINTS
from ._skorch_rules import per_example_criterion, refuse_more_than_one, refuse_what_is_not_private
from ._training.skorch_training import SkorchTraining, as_rows, as_targets
from ._unchanged import unchanged_on_error

__all__ = ["DPNeuralNet"]

_PREDICT_NUMBERS = 1 << 22  # that go through the module at a time
# Parameters of the other networks that mean the same here, and those that skorch calls otherwise.
_SHARED = (
    "epsilon", "delta", "noise", "max_grad_norm", "clipping", "target_quantile", "batch_size",
    "schedule", "averaging", "averaging_decay", "augment", "augmentations", "n_records",
    "noise_seed", "budget", "distributed", "device", "verbose",
)  # fmt: skip
_RENAMED = {"max_epochs": "epochs", "lr": "learning_rate"}
_FITTED = (
    "privacy_", "privacy_event_", "epsilon_", "delta_", "noise_multiplier_", "n_steps_",
    "gradients_", "max_grad_norm_",
)  # fmt: skip


class DPNeuralNet(NeuralNet):
    """A ``skorch.NeuralNet`` whose training is differentially private (DP-SGD).

    For users of skorch: any module, loss and optimizer, with ``module__x``, ``criterion__x`` and
    ``optimizer__x`` parameters. :class:`DPSGDClassifier` and :class:`DPSGDRegressor` know more
    about classes and targets, and choose more by themselves.

    Parameters
    ----------
    module : type or torch.nn.Module
        Maps rows of X to outputs and keeps examples apart: batch normalisation is refused. The
        weights of a ready-made module, with which training starts, must be public.
    criterion : type or torch.nn.Module
        The loss. It is made with ``reduction="none"``; what it gives for several outputs of one
        example is averaged. Its parameters are public numbers.
    epsilon : float, default=1.0
        Privacy loss that training may cost. ``numpy.inf`` trains **without any guarantee**.
    delta : float, default=1e-5
        Probability with which ``epsilon`` may be exceeded. Must be below 1 / number of records.
    max_grad_norm : float, default=1.0
        L2 norm to which the gradient of each record is clipped.
    optimizer : type, default=torch.optim.SGD
        An optimizer that needs one gradient a step, such as :class:`PrivateAdam`, which knows the
        noise. All weights are one vector to it.
    lr : float or "auto", default="auto"
        Step size. "auto" follows from the noise for SGD, and is 0.01 for others.
    max_epochs : int, default=30
        Expected number of times that each record takes part.
    batch_size : int or "auto", default="auto"
        Expected number of records in a step. "auto" is a quarter of the records.
    noise, clipping, target_quantile, schedule, averaging, averaging_decay, augment, augmentations
        As of :class:`DPSGDClassifier`.
    n_records : int, default=None
        A public figure for the number of records; the guarantee then hides how many there are.
    noise_seed : int, default=None
        Makes sampling and noise reproducible **and the guarantee void**. For tests only.
    budget : PrivacyBudget, default=None
        Charged for every fit before training looks at the data.
    distributed : {"replicated", "sharded"}, default=None
        Train in all processes of ``torch.distributed`` together.
    train_split : None, default=None
        Stays None: what is measured on private records that were held out is private too.
    warm_start : bool, default=False
        Whether ``fit`` continues the earlier training, as ``partial_fit`` does.
    verbose : int, default=0
        Whether to show a progress bar.
    device : str, default="cpu"
        Where to train and to predict.
    **kwargs
        skorch's own: ``module__x``, ``criterion__x``, ``optimizer__x``, ``predict_nonlinearity``...

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained module.
    privacy_ : PrivacyGuarantee
        What is guaranteed, in which relation and under which assumptions.
    privacy_event_ : DpEvent
        What was released, for composition with other releases.
    epsilon_, delta_ : float
        The guaranteed epsilon, and the delta that it holds at.
    noise_multiplier_ : float
        Standard deviation of the noise divided by ``max_grad_norm``.
    n_steps_ : int
        Number of training steps.
    gradients_ : str
        How per-example gradients were computed.

    Notes
    -----
    **Guarantees.** As of :class:`DPSGDClassifier`: the trained weights are (``epsilon``,
    ``delta``)-differentially private. Whatever of skorch would look at private records outside of
    the mechanism is refused, with what to use instead: callbacks, validation splits, iterators and
    data sets of one's own, overridden training steps, optimizers that compute several gradients.
    ``history`` stays empty: losses are private. How far classes or targets reach is for the loss
    to know: a label that it cannot take is an error.

    **Edge cases.** A record whose loss or gradient is not finite takes no part. Ctrl-C leaves the
    net as it was and the budget charged, and reaches the caller. X may be a memory-mapped array.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from skprivacy.neural_network import DPNeuralNet
    >>> X = np.random.default_rng(0).normal(size=(2000, 4)).astype(np.float32)
    >>> y = (X[:, 0] > 0).astype(np.int64)
    >>> net = DPNeuralNet(
    ...     torch.nn.Linear, torch.nn.CrossEntropyLoss, epsilon=2.0, optimizer__momentum=0.9,
    ...     module__in_features=4, module__out_features=2,
    ... )
    >>> net.fit(X, y).privacy_
    (2.00, 1e-05)-DP, zero-out, proved assuming the module treats each record by itself (tried on
    random numbers); the weights that training starts from are public; the number of records is
    public
    >>> bool((net.predict_proba(X).argmax(1) == y).mean() > 0.8)
    True
    """

    prefixes_ = [*NeuralNet.prefixes_, "optimizer"]
    module_: nn.Module

    def __init__(
        self,
        module: Any,
        criterion: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        max_grad_norm: float = 1.0,
        optimizer: type[torch.optim.Optimizer] = torch.optim.SGD,
        lr: float | str = "auto",
        max_epochs: int = 30,
        batch_size: int | str = "auto",
        noise: str = "gaussian",
        clipping: str = "flat",
        target_quantile: float = 0.5,
        schedule: str = "constant",
        averaging: float | str = 0.5,
        averaging_decay: float = 0.95,
        augment: Any = None,
        augmentations: int = 1,
        n_records: int | None = None,
        noise_seed: int | None = None,
        budget: PrivacyBudget | None = None,
        distributed: str | None = None,
        train_split: None = None,
        verbose: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            module, criterion, optimizer=optimizer, lr=lr, max_epochs=max_epochs,
            batch_size=batch_size, train_split=train_split, verbose=verbose, **kwargs,
        )  # fmt: skip
        self.epsilon = epsilon
        self.delta = delta
        self.max_grad_norm = max_grad_norm
        self.noise = noise
        self.clipping = clipping
        self.target_quantile = target_quantile
        self.schedule = schedule
        self.averaging = averaging
        self.averaging_decay = averaging_decay
        self.augment = augment
        self.augmentations = augmentations
        self.n_records = n_records
        self.noise_seed = noise_seed
        self.budget = budget
        self.distributed = distributed

    @property
    def _default_callbacks(self) -> list:
        return []  # skorch's own record and print the loss, which is private

    def initialize_criterion(self) -> DPNeuralNet:
        """Make the loss, with one number for each example."""
        self.criterion_ = per_example_criterion(
            self.criterion, self.get_params_for("criterion")
        )  # fmt: skip
        return self

    def initialize_optimizer(self, triggered_directly: Any = None) -> DPNeuralNet:
        """Make nothing: the optimizer lives in ``fit`` alone, for its state is not released."""
        self._register_virtual_param(["optimizer__*"])  # may be set, and nobody need be told
        return self

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **fit_params: Any) -> DPNeuralNet:
        """Train on private records, from the start unless ``warm_start`` is set.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
            One record a row, of comparable and publicly bounded scale. May be memory-mapped.
        y : array or tensor of shape (n_samples, ...)
            Targets, as the loss takes them. Whole numbers stay so, others are single precision.
        **fit_params : dict
            Must be empty.

        Returns
        -------
        self : DPNeuralNet

        Raises
        ------
        ValueError
            If a setting would break the guarantee, or is not as described. Nothing has been
            released then.
        BudgetExceededError
            If ``budget`` cannot afford the fit.
        """
        return self._fit(X, y, fit_params, anew=not self.warm_start)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike | None = None, classes: Any = None, **fit_params: Any
    ) -> DPNeuralNet:
        """Train for another ``max_epochs`` at ``epsilon`` once more.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
        y : array or tensor of shape (n_samples, ...)
        classes : object, default=None
            Not used.
        **fit_params : dict
            Must be empty.

        Returns
        -------
        self : DPNeuralNet
            ``privacy_`` covers all calls since the last ``fit``, for a record in every one.
        """
        return self._fit(X, y, fit_params, anew=False)

    def _fit(self, X: Any, y: Any, fit_params: dict[str, Any], anew: bool) -> DPNeuralNet:
        if fit_params:
            raise ValueError(f"fit takes X and y only, not {sorted(fit_params)}.")
        refuse_what_is_not_private(self, DPNeuralNet)
        with unchanged_on_error(self):
            if anew or not self.initialized_:
                self._forget()
                self.initialize()
            self._train(X, y)
        return self

    def _train(self, X: Any, y: Any) -> None:
        refuse_more_than_one(self)
        shared = {name: getattr(self, name) for name in _SHARED}
        renamed = {theirs: getattr(self, ours) for ours, theirs in _RENAMED.items()}
        for names in ({k: k for k in _SHARED}, _RENAMED):
            constraints = {ours: COMMON_CONSTRAINTS[theirs] for ours, theirs in names.items()}
            values = {name: getattr(self, name) for name in constraints}
            validate_parameter_constraints(constraints, values, type(self).__name__)
        rows = as_rows(X)
        targets = as_targets(y, len(rows))
        run = SkorchTraining(
            self.module_, self.criterion_, self.optimizer, self.get_params_for("optimizer"),
            self._fitted(), **shared, **renamed,
        )  # fmt: skip
        run.run(rows, targets)
        self.module_ = run.module_.to(self.device)
        self.__dict__.update({k: v for k, v in vars(run).items() if k in _FITTED})

    def _fitted(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k in _FITTED}

    def _forget(self) -> None:
        for name in self._fitted():
            delattr(self, name)

    def forward_iter(self, X: Any, training: bool = False, device: str = "cpu") -> Iterator[Tensor]:
        """Yield the outputs of the module for X, a part at a time.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
        training : bool, default=False
            Whether the module behaves as in training.
        device : str, default="cpu"
            Where the outputs go.

        Yields
        ------
        torch.Tensor
        """
        rows = as_rows(X)
        size = max(1, _PREDICT_NUMBERS // max(1, rows.shape[1:].numel()))
        for start in range(0, len(rows), size):
            part = rows.index_select(0, torch.arange(start, min(start + size, len(rows))))
            yield to_device(self.evaluation_step((part, None), training=training), device)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # A fitted model is what gets out; the seed of its noise must not get out with it.
        return state | {"noise_seed": None} if "privacy_" in state else state

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            "A single step of DPNeuralNet cannot be called: it would be outside of the guarantee. "
            "Use fit or partial_fit."
        )

    fit_loop = run_single_epoch = train_step = train_step_single = validation_step = _refuse
