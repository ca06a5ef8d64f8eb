"""DPNeuralNet: a skorch NeuralNet trained with DP-SGD.

skorch makes the module and the loss from classes and their ``module__x`` and ``criterion__x``, and
predicts. Its own training loop is disabled: it would draw batches, store the loss, and show both to
callbacks.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from skorch import NeuralNet
from skorch.utils import to_device
from torch import Tensor, nn

from .._docs import fill_docs
from .._groups import check_order
from .._sklearn import StrOptions, validate_parameter_constraints
from .._validation import VERBOSE, check_unmasked
from ..accounting import PrivacyBudget
from ..base import check_n_records
from ..mechanisms import SecureRandom
from ._gradients.group_batches import PerGroup
from ._gradients.losses import PerExample
from ._gradients.trial import PROBES, Probe
from ._training.engine import Training
from ._training.mapped_rows import MappedRows, as_rows, as_targets
from ._training.skorch_rules import (
    per_example_criterion,
    refuse_nonprivate_settings,
    refuse_several_modules,
)
from ._training.torch_modes import usable_device
from ._training.training_config import SCHEDULES, TrainingConfig
from .modules import has_random_start
from .network import PrivateTrainingMixin, training_rows
from .network_parameters import EPOCHS, NETWORK_DOCS, STEP_SIZE, TRAINING_CONSTRAINTS
from .settings import AVERAGING, Clipping

_PREDICT_NUMBERS = 1 << 22  # input numbers of one forward pass
_CLASS_LOSSES = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss)  # their targets are indices


@fill_docs(NETWORK_DOCS)
class DPNeuralNet(PrivateTrainingMixin, NeuralNet):
    """A ``skorch.NeuralNet`` trained with DP-SGD (Abadi et al. 2016, Algorithm 1).

    For users of skorch: any module, loss and optimizer, with ``module__x``, ``criterion__x`` and
    ``optimizer__x`` parameters. :class:`DPSGDClassifier` and :class:`DPSGDRegressor` handle classes
    and targets, and have better automatic settings.

    Parameters
    ----------
    module : type or torch.nn.Module
        Maps rows of X to outputs. It must not mix examples: batch normalisation is refused. The
        initial weights of a ready-made module must be public.
    criterion : type or torch.nn.Module
        The loss, created with ``reduction="none"``. Its values are averaged over the outputs of an
        example. Its parameters are public.
    %(epsilon_or_noise)s
    max_grad_norm : float, Clipping or "auto", default="auto"
        L2 norm to which the gradient of each record is clipped. "auto" is 1. A :class:`Clipping`
        also sets the way.
    optimizer : type or "adam", default=torch.optim.SGD
        An optimizer that needs one gradient per step. It sees all weights as one vector. "adam" is
        Adam that subtracts the known variance of the noise from its second moment.
    lr : float or "auto", default="auto"
        Step size. "auto" follows from the noise for SGD, and is 0.01 for other optimizers.
    max_epochs : int, default=30
        Expected number of times that each record takes part.
    batch_size : int or "auto", default="auto"
        Expected number of records in a step. "auto" is a quarter of the records.
    %(training_noise)s
    schedule : {"constant", "linear", "cosine"}, default="constant"
        Decay of the step size, to zero unless "constant".
    averaging : float or "ema", default=0.5
        Share of the last steps whose weights are averaged into the final model, in [0, 1], or "ema"
        for an exponential moving average. It costs no privacy.
    %(augment)s
    %(n_records)s
    %(max_group_size)s
    %(noise_seed)s
    %(budget)s
    distributed : {"replicated", "sharded"}, default=None
        Train in all processes of ``torch.distributed``: the ``records`` of :class:`Distributed`.
    train_split : None, default=None
        Must stay None: scores of private validation records are private too.
    verbose : int, default=0
        Whether to show a progress bar.
    warm_start : bool, default=False
        Whether ``fit`` continues the earlier training, as ``partial_fit`` does.
    device : str, default="cpu"
        Where to train and to predict.
    **kwargs : dict
        Other parameters of skorch: ``module__x``, ``criterion__x``, ``optimizer__x``,
        ``predict_nonlinearity``...

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained module.
    %(guarantee_attributes)s
    %(network_attributes)s
    gradients_ : {"book-keeping", "torch.func", "one by one"}
        How per-example gradients were computed, from fast to slow.

    Notes
    -----
    **Guarantees.** As for :class:`DPSGDClassifier`: the trained weights are (``epsilon``,
    ``delta``)-differentially private, with a record as the unit or, with ``groups``, a group.
    Settings of skorch that would read private records outside the mechanism are refused, and the
    error names the alternative. They are callbacks, validation splits, custom iterators and data
    sets, overridden training steps, and optimizers that compute several gradients. ``history``
    stays empty, because losses are private. The estimator does not know the range of the targets: a
    label that the loss cannot take is an error.

    **Edge cases.** A record whose loss or gradient is not finite is ignored. Ctrl-C restores the
    net, leaves the budget charged, and reaches the caller. X may be a memory-mapped array.

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

    prefixes_ = [*NeuralNet.prefixes_, "optimizer"]
    module_: nn.Module
    _parameter_constraints: dict = {
        **TRAINING_CONSTRAINTS,
        "max_epochs": EPOCHS,
        "lr": STEP_SIZE,
        "schedule": [StrOptions(set(SCHEDULES))],
        "averaging": AVERAGING,
        "distributed": [StrOptions({"replicated", "sharded"}), None],
        "device": [str],
        "verbose": VERBOSE,
    }

    def __init__(
        self,
        module: Any,
        criterion: Any,
        *,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
        max_grad_norm: float | str | Clipping = "auto",
        optimizer: type[torch.optim.Optimizer] | str = torch.optim.SGD,
        lr: float | str = "auto",
        max_epochs: int = 30,
        batch_size: int | str = "auto",
        noise: str = "gaussian",
        schedule: str = "constant",
        averaging: float | str = 0.5,
        augment: Any = None,
        relation: str = "zero_out",
        n_records: int | None = None,
        max_group_size: int | None = 2,
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
        self.schedule = schedule
        self.averaging = averaging
        self.augment = augment
        self.relation = relation
        self.n_records = n_records
        self.max_group_size = max_group_size
        self.noise_seed = noise_seed
        self.budget = budget
        self.distributed = distributed

    @property
    def _processes(self) -> str | None:
        return self.distributed

    @property
    def _shows_progress(self) -> bool:
        return bool(self.verbose) or super()._shows_progress

    @property
    def _default_callbacks(self) -> list:
        return []  # skorch's default callbacks record and print the loss, which is private

    def initialize_criterion(self) -> DPNeuralNet:
        """Create the loss, with one number per example.

        Returns
        -------
        DPNeuralNet
            The net itself.
        """
        self.criterion_ = per_example_criterion(self.criterion, self.get_params_for("criterion"))
        return self

    def initialize_optimizer(self, triggered_directly: Any = None) -> DPNeuralNet:
        """Do nothing: the engine creates the optimizer, whose state is not released.

        Parameters
        ----------
        triggered_directly : object, default=None
            Ignored; skorch passes it.

        Returns
        -------
        DPNeuralNet
            The net itself.
        """
        self._register_virtual_param(["optimizer__*"])  # so that skorch accepts these settings
        return self

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} has no public single steps, because no guarantee would cover "
            "them. Use fit or partial_fit."
        )

    fit_loop = run_single_epoch = train_step = train_step_single = validation_step = _refuse

    def __sklearn_is_fitted__(self) -> bool:  # skorch 1.3 lacks it and would count as not fitted
        return hasattr(self, "privacy_")

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> DPNeuralNet:
        """Train on private records, from new weights unless ``warm_start`` is set.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
            One record per row, of comparable and publicly bounded scale. May be memory-mapped.
        y : array or tensor of shape (n_samples, ...)
            Targets, as the loss takes them. Integers stay; others become single precision.
        %(groups)s
        **fit_params : dict
            Must be empty.

        Returns
        -------
        DPNeuralNet
            The fitted net.

        Raises
        ------
        ValueError
            If a setting is invalid or would break the guarantee. Nothing has been released.
        BudgetExceededError
            If ``budget`` cannot afford the fit.
        """
        return self._fit(X, y, groups, fit_params, anew=not self.warm_start)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: Any = None,
        *,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> DPNeuralNet:
        """Train for another ``max_epochs``, at another ``epsilon``.

        Parameters
        ----------
        X : array or tensor of shape (n_samples, ...)
            Private records.
        y : array or tensor of shape (n_samples, ...)
            Targets, as the loss takes them.
        classes : object, default=None
            Not used.
        groups : array-like of shape (n_samples,), default=None
            As in ``fit``. All calls must protect the same unit: records, or groups of one name.
        **fit_params : dict
            Must be empty.

        Returns
        -------
        DPNeuralNet
            Its ``privacy_`` covers all calls since the last ``fit``, for a record (or a group) that
            is in all of them.
        """
        return self._fit(X, y, groups, fit_params, anew=False)

    def _fit(
        self, X: Any, y: Any, groups: Any, fit_params: dict[str, Any], anew: bool
    ) -> DPNeuralNet:
        if fit_params:
            raise ValueError(f"fit takes X, y and groups only, got {sorted(fit_params)} as well.")
        refuse_nonprivate_settings(self, DPNeuralNet)
        with self._private_fit() as fit, self._peers() as peers:
            first = anew or not hasattr(self, "privacy_")
            at_random = False  # weights may have been loaded since an earlier initialize()
            if anew or not self.initialized_:
                self.initialize()
                made = not isinstance(self.module, nn.Module)
                at_random = made and has_random_start(self.module_, self._made_again())
            fit.assume("the module treats each record by itself (tried on random numbers)")
            if first and not at_random:
                fit.assume("the weights that training starts from are public")
            refuse_several_modules(self)
            validate_parameter_constraints(
                self._parameter_constraints, self.get_params(deep=False), fit.source
            )
            self._clipping._validate_params()
            check_n_records(self.relation, self.n_records)
            check_unmasked(X)
            check_unmasked(y, "y")
            if groups is not None:
                check_order(groups, X)
            rows = as_rows(X)
            targets = as_targets(y, len(rows))
            self._check_module(rows, targets)
            units, per_group = self._groups(groups, rows)
            data = training_rows(rows), torch.from_numpy(targets), units
            config = self._config(peers.count(*data), per_group)
            views = 1 if config.views is None else config.views.count
            probe = _probe(rows, targets, usable_device(self.device), views)
            loss = self.criterion_
            if type(loss) is not nn.CrossEntropyLoss or targets.dtype.kind == "f":
                loss = PerExample(loss)
            start = self._synchronize_start(peers, self.module_, config, first)
            training = Training(config, start, loss, probe, SecureRandom(self.noise_seed))
            with self._charge_run(fit, peers, training, data, first) as run:
                run.trained = self._trained(training, data, peers)
            self.module_ = to_device(self.module_, self.device)
        return self

    def _made_again(self) -> nn.Module:
        """Return the module that ``initialize`` makes under another seed."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.seed()
            return clone(self).initialize().module_

    def _config(self, n: int, per_group: PerGroup | None) -> TrainingConfig:
        params = self.get_params_for("optimizer")
        planned = self._planned(
            n,
            batch_size=self.batch_size,
            epochs=int(self.max_epochs),
            max_grad_norm=1.0 if self._clipping.norm == "auto" else self._clipping.norm,
            optimizer=self.optimizer,
            optimizer_params=params,
            learning_rate=self.lr,
            schedule=self.schedule,
            averaging=self.averaging,
            device=self.device,
            per_group=per_group,
        )
        config = planned.with_noise_for(self.epsilon, self.delta, self.noise_multiplier)
        is_sgd = self.optimizer != "adam" and issubclass(self.optimizer, torch.optim.SGD)
        if self.lr != "auto" or not is_sgd:
            return config
        n_weights = sum(p.numel() for p in self.module_.parameters() if p.requires_grad)
        # step_size_for_noise is fitted to a momentum of 0.9: rescale to the same effective step.
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
        with torch.no_grad(), _name_shape(kind, probe.inputs):
            n_outputs = copy.deepcopy(self.module_).float()(probe.inputs).shape[1]
        ignored = getattr(self.criterion_, "ignore_index", -1)
        if ((targets != ignored) & ((targets < 0) | (targets >= n_outputs))).any():
            raise ValueError(
                f"y holds a class without an output: module={kind} has {n_outputs} outputs, for "
                f"the classes 0 to {n_outputs - 1} (labels are private, so the class is not "
                "named). Number the classes from 0, or give the module more outputs."
            )

    def forward_iter(self, X: Any, training: bool = False, device: str = "cpu") -> Iterator[Tensor]:
        """Yield the outputs of the module for X, in chunks.

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
            with _name_shape(type(self.module_).__name__, rows):
                outputs = self.evaluation_step((part, None), training=training)
            yield to_device(outputs, device)


@contextmanager
def _name_shape(kind: str, rows: Tensor | MappedRows) -> Iterator[None]:
    """Name the module and the shape of records in errors of torch, which names shapes only."""
    try:
        yield
    except (IndexError, RuntimeError) as error:
        raise ValueError(
            f"module={kind} cannot take the records of X, each of shape {tuple(rows.shape[1:])}: "
            f"{error}"
        ) from error


def _probe(rows: Tensor | MappedRows, targets: NDArray, device: str, views: int) -> Probe:
    """Return public random numbers of the shape and the dtype of the data."""
    generator = torch.Generator().manual_seed(0)
    dtype = rows.index_select(0, torch.zeros(0).int()).dtype
    X = torch.randn(PROBES * views, *rows.shape[1:], generator=generator)
    X = X.to(dtype) if dtype.is_floating_point else (X > 0).to(dtype)
    y = torch.rand(PROBES, *targets.shape[1:], generator=generator)
    # Class 0 exists for any number of outputs.
    y = torch.zeros_like(y).long() if targets.dtype.kind in "iu" else y
    return Probe(X.to(device), y.to(device), None, views)
