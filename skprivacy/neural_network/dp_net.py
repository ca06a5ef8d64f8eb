"""skorch's NeuralNet, trained with differential privacy."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from skorch.utils import to_device
from torch import Tensor, nn

from .._groups import check_order
from .._sklearn import validate_parameter_constraints
from .._validation import check_unmasked
from ..accounting import PrivacyBudget
from ..mechanisms import SecureRandom
from ._gradients.losses import PerExample
from ._gradients.trial import PROBES, Probe
from ._network import EPOCHS, STEP_SIZE, TRAINING_CONSTRAINTS, PrivateTrainingMixin
from ._skorch_rules import refuse_more_than_one, refuse_what_is_not_private
from ._training.config import PerGroup, TrainingConfig
from ._training.engine import Training
from ._training.environment import usable_device
from ._training.net import PrivateNet, begins_at_random
from ._training.rows import MappedRows, as_rows, as_targets, single_precision
from .augmentation import Views

__all__ = ["DPNeuralNet"]

_PREDICT_NUMBERS = 1 << 22  # that go through the module at a time
_CLASS_LOSSES = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss)  # of numbers of classes


class DPNeuralNet(PrivateTrainingMixin, PrivateNet):
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
    epsilon : float or None, default=1.0
        Privacy loss that training may cost. ``numpy.inf`` trains **without any guarantee**.
        ``None`` if ``noise_multiplier`` is given.
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
    n_records : int, default=None
        A public figure for the number of records (or groups); the guarantee then hides how many
        there are.
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
    **kwargs : dict
        Those of skorch: ``module__x``, ``criterion__x``, ``optimizer__x``,
        ``predict_nonlinearity``...
    noise_multiplier : float, default=None
        As of :class:`DPSGDClassifier`, and so are the following.
    noise : {"gaussian", "exact", "logistic", "banded", "tree"}, default="gaussian"
        The noise of a step, or of a run.
    clipping : {"flat", "per-layer", "automatic", "adaptive"}, default="flat"
        How gradients are bounded.
    target_quantile : float, default=0.5
        The share of gradients that "adaptive" leaves alone.
    schedule : {"auto", "constant", "linear", "cosine"}, default="auto"
        How the step size falls.
    averaging : float, "ema" or "auto", default="auto"
        Which steps' weights are averaged.
    averaging_decay : float, default=0.95
        Of "ema".
    augment : callable or list of callables, default=None
        Makes views of a record.
    augmentations : int, default=1
        Number of views of a record in a step.
    max_group_rows : int, default=2
        How many records of a group are used at most, where ``groups`` are given.
    group_contribution : {"mean", "sum"}, default="mean"
        What a group contributes: of the gradients of its records, before it is clipped.

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
    ``delta``)-differentially private, with a record as the unit or, with ``groups``, a group.
    Whatever of skorch would look at private records outside of the mechanism is refused, with what
    to use instead: callbacks, validation splits, custom iterators and data sets, overridden
    training steps, optimizers that compute several gradients. ``history`` stays empty: losses are
    private. How far classes or targets reach is for the loss to know: a label that it cannot take
    is an error.

    **Edge cases.** A record whose loss or gradient is not finite is ignored, by itself. Ctrl-C
    leaves the net as it was and the budget charged, and reaches the caller. X may be a
    memory-mapped array.

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
    (2.00, 1e-05)-DP, zero-out, floating-point noise, proved assuming the module treats each
    record by itself (tried on random numbers); the number of records is public
    >>> bool((net.predict_proba(X).argmax(1) == y).mean() > 0.8)
    True
    """

    _parameter_constraints: dict = {
        **TRAINING_CONSTRAINTS,
        "max_epochs": EPOCHS,
        "lr": STEP_SIZE,
    }

    def __init__(
        self,
        module: Any,
        criterion: Any,
        *,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
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
        max_group_rows: int | None = 2,
        group_contribution: str = "mean",
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
        self.noise_multiplier = noise_multiplier
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
        self.max_group_rows = max_group_rows
        self.group_contribution = group_contribution
        self.noise_seed = noise_seed
        self.budget = budget
        self.distributed = distributed

    def __sklearn_is_fitted__(self) -> bool:  # skorch 1.3 says nothing, which is taken for no
        return hasattr(self, "privacy_")

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> DPNeuralNet:
        """Train on private records, from the start unless ``warm_start`` is set.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
            One record a row, of comparable and publicly bounded scale. May be memory-mapped.
        y : array or tensor of shape (n_samples, ...)
            Targets, as the loss takes them. Whole numbers stay so, others are single precision.
        groups : array-like of shape (n_samples,), default=None
            Whose record each is, such as a column of patients' numbers. What is protected is then
            a group instead of a record; a Series' name says what a group is called.
        **fit_params : dict
            Must be empty.

        Returns
        -------
        DPNeuralNet
            Itself, fitted.

        Raises
        ------
        ValueError
            If a setting would break the guarantee, or is not as described. Nothing has been
            released then.
        BudgetExceededError
            If ``budget`` cannot afford the fit.
        """
        return self._fit(X, y, groups, fit_params, anew=not self.warm_start)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: Any = None,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> DPNeuralNet:
        """Train for another ``max_epochs`` at ``epsilon`` once more.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
            Private records.
        y : array or tensor of shape (n_samples, ...)
            What the loss compares the outputs with.
        classes : object, default=None
            Not used.
        groups : array-like of shape (n_samples,), default=None
            As in ``fit``, and in every call since: records and groups, or groups of two names, are
            never added up.
        **fit_params : dict
            Must be empty.

        Returns
        -------
        DPNeuralNet
            ``privacy_`` covers all calls since the last ``fit``, for a record (or a group) in every
            one.
        """
        return self._fit(X, y, groups, fit_params, anew=False)

    def _fit(
        self, X: Any, y: Any, groups: Any, fit_params: dict[str, Any], anew: bool
    ) -> DPNeuralNet:
        if fit_params:
            raise ValueError(f"fit takes X, y and groups only, got {sorted(fit_params)} as well.")
        refuse_what_is_not_private(self, DPNeuralNet)
        with self._private_fit() as fit, self._peers() as peers:
            first = anew or not hasattr(self, "privacy_")
            at_random = False  # weights may have been loaded since an earlier initialize()
            if anew or not self.initialized_:
                self.initialize()
                made = not isinstance(self.module, nn.Module)
                at_random = made and begins_at_random(self.module_, self._made_again())
            fit.assume("the module treats each record by itself (tried on random numbers)")
            if first and not at_random:
                fit.assume("the weights that training starts from are public")
            refuse_more_than_one(self)
            validate_parameter_constraints(
                self._parameter_constraints, self.get_params(deep=False), fit.who
            )
            check_unmasked(X)
            check_unmasked(y, "y")
            check_order(groups, X)
            rows = as_rows(X)
            targets = as_targets(y, len(rows))
            self._check_module(rows, targets)
            whose, per_group = self._groups(groups, rows)
            data = single_precision(rows), torch.from_numpy(targets), whose
            config = self._config(peers.count(*data), per_group)
            views = 1 if config.views is None else config.views.count
            probe = _probe(rows, targets, usable_device(self.device), views)
            loss = self.criterion_
            if type(loss) is not nn.CrossEntropyLoss or targets.dtype.kind == "f":
                loss = PerExample(loss)
            start = self._agreed_start(peers, self.module_, config, first)
            training = Training(config, start, loss, probe, SecureRandom(self.noise_seed))
            self._run(fit, peers, self, training, data, first)
        return self

    def _made_again(self) -> nn.Module:
        """Return the module that ``initialize`` makes under another seed."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.seed()
            return clone(self).initialize().module_

    def _config(self, n: int, per_group: PerGroup | None) -> TrainingConfig:
        params = self.get_params_for("optimizer")
        planned = TrainingConfig.planned(
            n,
            n_records=self.n_records,
            batch_size=self.batch_size,
            noise=self.noise,
            epochs=int(self.max_epochs),
            max_grad_norm=self.max_grad_norm,
            clipping=self.clipping,
            target_quantile=self.target_quantile,
            optimizer=self.optimizer,
            optimizer_params=params,
            learning_rate=self.lr,
            schedule=self.schedule,
            averaging=self.averaging,
            averaging_decay=self.averaging_decay,
            views=Views.of(self.augment, self.augmentations),
            device=self.device,
            per_group=per_group,
        )
        config = planned.with_noise_for(self.epsilon, self.delta, self.noise_multiplier)
        if self.lr != "auto" or not issubclass(self.optimizer, torch.optim.SGD):
            return config
        n_weights = sum(p.numel() for p in self.module_.parameters() if p.requires_grad)
        # What the other networks take is meant for a momentum of 0.9.
        for_momentum = (1.0 - float(params.get("momentum", 0.0))) / (1.0 - 0.9)
        return replace(config, learning_rate=config.step_size_for_noise(n_weights) * for_momentum)

    def _check_module(self, rows: Tensor | MappedRows, targets: NDArray) -> None:
        """Refuse a module that cannot be trained, or labels that it has no output for."""
        kind = type(self.module_).__name__
        if not any(p.requires_grad for p in self.module_.parameters()):
            raise ValueError(f"module={kind} has no parameters to train.")
        if not isinstance(self.criterion_, _CLASS_LOSSES) or targets.dtype.kind not in "iu":
            return
        probe = _probe(rows, targets, self.device, 1)
        try:
            with torch.no_grad():
                n_outputs = copy.deepcopy(self.module_).float()(probe.inputs).shape[1]
        except (IndexError, RuntimeError) as error:  # torch's own, which tell of shapes alone
            raise ValueError(
                f"module={kind} cannot take the records of X, each of shape "
                f"{tuple(probe.inputs.shape[1:])}: {error}"
            ) from error
        ignored = getattr(self.criterion_, "ignore_index", -1)
        if ((targets != ignored) & ((targets < 0) | (targets >= n_outputs))).any():
            raise ValueError(
                f"y holds a class for which module={kind} has no output: it has {n_outputs} "
                f"outputs, for the classes 0 to {n_outputs - 1}. Which class is not told, because "
                "labels are private. Number the classes from 0, or give the module more outputs."
            )

    def forward_iter(self, X: Any, training: bool = False, device: str = "cpu") -> Iterator[Tensor]:
        """Yield the outputs of the module for X, a part at a time.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
            Records.
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
            try:
                outputs = self.evaluation_step((part, None), training=training)
            except (IndexError, RuntimeError) as error:  # torch's own, which tell of shapes alone
                raise ValueError(
                    f"module={type(self.module_).__name__} cannot take the records of X, each of "
                    f"shape {tuple(rows.shape[1:])}: {error}"
                ) from error
            yield to_device(outputs, device)


def _probe(rows: Tensor | MappedRows, targets: NDArray, device: str, views: int) -> Probe:
    """Return random numbers of the shape and the type of the data, and nothing else of it."""
    generator = torch.Generator().manual_seed(0)
    dtype = rows.index_select(0, torch.zeros(0).int()).dtype
    X = torch.randn(PROBES * views, *rows.shape[1:], generator=generator)
    X = X.to(dtype) if dtype.is_floating_point else (X > 0).to(dtype)
    y = torch.rand(PROBES, *targets.shape[1:], generator=generator)
    # Zero is a class whatever the module's outputs are.
    y = torch.zeros_like(y).long() if targets.dtype.kind in "iu" else y
    return Probe(X.to(device), y.to(device), None, views)
