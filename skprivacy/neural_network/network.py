"""PrivateNetwork: checks, planning, training and prediction of private networks."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .._config import get_config
from .._docs import fill_docs
from .._environment import PREDICT_WORK, threads_for
from .._groups import Groups, check_groups, check_order
from .._input_data import (
    check_array,
    check_consistent_length,
    is_mapped,
    single_precision,
    validate_data,
)
from .._validation import check_random_state, num_samples
from ..base import PrivateEstimatorMixin, PrivateFit
from ..mechanisms import SecureRandom
from ._gradients.group_batches import PerGroup
from ._gradients.perceptron import (
    PerceptronGradients,
    layer_sizes,
    make_mlp,
    mlp_from_arrays,
    mlp_to_arrays,
)
from ._gradients.trial import Probe
from ._training.early_stopping import EarlyStoppedTraining, QuantileUnits, find_quantile_units
from ._training.engine import ChargedRun, Peers, SingleProcess, Training, needs_public_rows
from ._training.mapped_rows import MappedRows, iterate_chunks
from ._training.torch_modes import ordinary_torch, usable_device
from ._training.training_config import NOISE, TrainingConfig
from .augmentation import Views
from .modules import has_random_start, make_module
from .network_parameters import NETWORK_DOCS
from .settings import (
    Clipping,
    Distributed,
    Optimizer,
    PublicFacts,
    Recipe,
    TrainingOption,
    add_quantile_layer,
    as_clipping,
    as_optimizer,
    held_out_share,
    resolve_auto_settings,
    starts_from_quantiles,
)

Self = TypeVar("Self", bound="PrivateNetwork")
TrainingData: TypeAlias = tuple[Tensor | MappedRows, Tensor, Groups | None]
_PREDICT_ROWS = 1 << 16
_PREDICT_NUMBERS = 1 << 20  # numbers read from a file at a time
_ARCHITECTURE_PARAMS = ("hidden_layer_sizes", "activation")
_OPTIONS: dict[str, Callable[[Any], TrainingOption]] = {
    "max_grad_norm": as_clipping,
    "optimizer": as_optimizer,
}
# Fitted attributes that must agree in the processes of a distributed training ...
_PUBLIC_ATTRIBUTES = frozenset({"class_prior_", "classes_", "target_bounds_", "target_scale_"})
# ... and parameters that may differ.
_PER_PROCESS_PARAMS = frozenset(
    {"augment", "budget", "device", "module", "random_state", "verbose"}
)


class PrivateTrainingMixin(PrivateEstimatorMixin):
    """Private run of an estimator that trains a module: groups, processes, charge, results."""

    augment: Any
    delta: float
    max_grad_norm: Any
    max_group_size: int | None
    n_records: int | None
    noise: str
    noise_seed: int | None
    module_: nn.Module
    privacy_: Any

    @property
    def _processes(self) -> str | None:
        """How the processes that train together hold the records; None in one process."""
        raise NotImplementedError

    @property
    def _shows_progress(self) -> bool:
        return get_config()["progress"]

    @property
    def _clipping(self) -> Clipping:
        return as_clipping(self.max_grad_norm)

    def _groups(self, groups: ArrayLike | None, rows: Any) -> tuple[Groups | None, PerGroup | None]:
        """Return the checked groups and their public terms; None where records are protected."""
        if groups is None:
            return None, None
        checked = check_groups(groups, rows)
        most = None if self.max_group_size is None else int(self.max_group_size)
        return checked, PerGroup(checked.unit, most, self._clipping.group_contribution)

    def _planned(self, n: int, **settings: Any) -> TrainingConfig:
        """Return the plan of a run on ``n`` records, without noise."""
        return TrainingConfig.planned(
            n,
            n_records=self.n_records,
            noise=self.noise,
            clipping=self._clipping.method,
            target_quantile=self._clipping.target_quantile,
            views=None if self.augment is None else Views.from_augment(self.augment),
            **settings,
        )

    def _peers(self) -> AbstractContextManager[Peers]:
        """Join the other processes of a distributed training, if there are any."""
        if self._processes is None:
            return nullcontext(SingleProcess())
        from ._training.process_group import join_process_group

        return join_process_group(self._processes)

    def _synchronize_start(
        self, peers: Peers, module: nn.Module, config: TrainingConfig, first: bool
    ) -> nn.Module:
        """Return a copy of the module to start from, the same in all processes."""
        start = copy.deepcopy(module).cpu().float()
        # The public classes are also BaseEstimators.
        params: dict = self.get_params(deep=False)  # type: ignore[attr-defined]
        facts = {
            **{k: v for k, v in params.items() if k not in _PER_PROCESS_PARAMS},
            **{k: v for k, v in vars(self).items() if k in _PUBLIC_ATTRIBUTES},
            "the configuration": replace(config, views=None, device="any"),
            "module": [tuple(p.shape) for p in start.parameters()],
            "augment": None if config.views is None else config.views.names,
            "records of the processes": self._processes,
            "earlier training": None if first else self.privacy_,
        }
        peers.agree({k: getattr(v, "__qualname__", repr(v)) for k, v in facts.items()})
        peers.same(start)
        return start

    @contextmanager
    def _charge_run(
        self,
        fit: PrivateFit,
        peers: Peers,
        training: Training,
        data: TrainingData,
        first: bool,
    ) -> Iterator[ChargedRun]:
        """Charge the budget, yield the run to be trained, and set the attributes it leads to."""
        config = training.config
        fit.assume(*config.assumptions)
        if config.views is not None and not config.views.are_built_in:
            fit.assume("augmentations treat each record by itself (tried on random numbers)")
        if self._processes is not None:
            fit.assume("the processes that train together, and what connects them, are trusted")
        with fit.charged(
            config.event,
            relation=config.relation,
            at_delta=self.delta,
            unit=config.unit,
            before=None if first else self.privacy_,
            charging=peers.reserve,
            arithmetic=config.noise_kind.arithmetic,
        ):
            run = ChargedRun(training, data, peers)
            yield run
        assert run.trained is not None
        self.module_ = run.trained
        self.noise_multiplier_ = config.noise_multiplier
        self.n_steps_ = training.n_steps
        self.gradients_ = training.gradients
        self.max_grad_norm_ = training.max_grad_norm

    def _trained(self, training: Training, data: TrainingData, peers: Peers) -> nn.Module:
        """Return the trained module; all that it releases is in the event of the configuration."""
        X, y, groups = data
        return training.run(X, y, peers, self._shows_progress, groups)


@fill_docs(NETWORK_DOCS)
class PrivateNetwork(PrivateTrainingMixin, BaseEstimator):
    """Training and prediction of a private network; subclasses define the targets."""

    settings_: dict[str, Any]
    _training: type[Training] = Training  # the engine; audits replace it by one that they observe
    _target_checks: dict[str, Any] = {}  # arguments of validate_data for ``y``

    @property
    def _processes(self) -> str | None:
        return self.device.records if isinstance(self.device, Distributed) else None

    @property
    def _device(self) -> str:
        return self.device.device if isinstance(self.device, Distributed) else self.device

    @property
    def _optimizer(self) -> Optimizer:
        return as_optimizer(self.optimizer)

    def _validate_params(self) -> None:
        super()._validate_params()
        for option in (self.device, self._optimizer, self._clipping):
            if isinstance(option, TrainingOption):
                option._validate_params()

    # The built-in perceptron is stored as arrays, for file formats that refuse torch's pickles.
    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        arrays = mlp_to_arrays(state.get("module_")) if self.module is None else None
        return state if arrays is None else state | {"module_": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("module_"), dict):
            state = state | {"module_": mlp_from_arrays(state["module_"])}
        super().__setstate__(state)

    def _set_module_params(self, module_params: dict[str, Any]) -> None:
        for name in module_params:
            if not name.startswith("module__"):
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}.")
        self.__dict__.update(module_params)

    def _module_params(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k.startswith("module__")}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, including the ``module__`` ones.

        Parameters
        ----------
        deep : bool, default=True
            As in scikit-learn.

        Returns
        -------
        dict
            Values by name.
        """
        return {**super().get_params(deep=deep), **self._module_params()}

    def set_params(self, **params: Any) -> PrivateNetwork:
        """Set parameters, including the ``module__`` ones.

        Parameters
        ----------
        **params : dict
            Values by name. ``optimizer__x`` and ``max_grad_norm__x`` set a part of an
            :class:`Optimizer` or :class:`Clipping`, which other values turn into.

        Returns
        -------
        object
            The estimator itself.
        """
        of_module = {k: v for k, v in params.items() if k.startswith("module__")}
        self.__dict__.update(of_module)
        params = {k: v for k, v in params.items() if k not in of_module}
        for owner, as_option in _OPTIONS.items():
            if any(name.startswith(f"{owner}__") for name in params):
                params[owner] = as_option(params.get(owner, getattr(self, owner)))
        super().set_params(**params)
        return self

    def fit(self: Self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> Self:
        """Train on private records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One record per row. Features need a comparable and publicly bounded scale, about -1 to
            1. May be memory-mapped.
        y : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_labels)
            Labels of ``classes``; for regression, finite targets. With several labels per record:
            a column of zeros and ones for each label.
        %(groups)s

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        ValueError
            If a parameter, a shape or a target is invalid. Nothing has been released.
        BudgetExceededError
            If ``budget`` cannot afford the fit. Nothing has been released or charged.
        """
        return self._fit(X, y, groups, True)

    def _fit(
        self: Self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None,
        first: bool,
        classes: ArrayLike | None = None,
    ) -> Self:
        with self._begin_fit(X, y, groups, first, classes) as run:
            run.trained = self._trained(run.training, run.data, run.peers)
        return self

    @contextmanager
    def _begin_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        first: bool = True,
        classes: ArrayLike | None = None,
    ) -> Iterator[ChargedRun]:
        """Do all of a fit but its training, which the ``with`` block does."""
        with ordinary_torch("cpu"), self._private_fit() as fit, self._peers() as peers:
            if groups is not None:
                check_order(groups, X)
            rows, y = self._rows(X, y, first)
            targets = self._encode(fit, y, first, classes)
            with self._prepare_run(fit, peers, rows, targets, groups, first) as run:
                yield run

    def _rows(self, X: ArrayLike, y: ArrayLike, first: bool) -> tuple[Any, Any]:
        """Validate parameters, rows and targets."""
        self._validate_params()
        if not isinstance(self.hidden_layer_sizes, str):
            layer_sizes(self.hidden_layer_sizes)
        usable_device(self._device)
        if is_mapped(X) and X.ndim == 2:
            # by shape alone: the rows are read when a step needs them
            check_consistent_length(X, y)
            self._check_width(X, first)
            y = validate_data(self, X="no_validation", y=y, reset=first, **self._target_checks)
            return MappedRows(X), y
        floats = [np.float64, np.float32]
        return validate_data(
            self, X, y, dtype=floats, ensure_all_finite=False, reset=first, **self._target_checks
        )

    def _check_width(self, X: NDArray, reset: bool) -> None:
        validate_data(self, np.zeros((min(1, len(X)), X.shape[1])), reset=reset)

    @contextmanager
    def _prepare_run(
        self,
        fit: PrivateFit,
        peers: Peers,
        rows: NDArray | MappedRows,
        targets: NDArray,
        groups: ArrayLike | None,
        first: bool,
    ) -> Iterator[ChargedRun]:
        """Plan and charge a run on validated rows, and on targets as the loss takes them."""
        checked, per_group = self._groups(groups, rows)
        data = training_rows(rows), torch.from_numpy(targets), checked
        n = peers.count(*data)
        shape = n, self.n_features_in_, self._n_outputs()
        fixed = None if first else {name: self.settings_[name] for name in _ARCHITECTURE_PARAMS}
        recipe = self._recipe(*shape, fixed)
        facts = self._public_facts(*shape)
        config = replace(
            self._plan(n, recipe),
            per_group=per_group,
            target_noise=facts.target_noise if first else None,
            held_out_share=held_out_share(self._settings(), facts),
        ).with_noise_for(self.epsilon, self.delta, self.noise_multiplier)
        units: QuantileUnits | None = None
        if first and starts_from_quantiles(self._settings(), facts):
            units = find_quantile_units(data[0])
        if units is not None:
            recipe = add_quantile_layer(recipe, len(units.column))
        module = self._make_module(recipe, self.random_state) if first else self.module_
        loss = self._loss()
        if self.module is not None:
            fit.assume("the module treats each record by itself (tried on random numbers)")
            if first and (
                isinstance(self.module, nn.Module)
                or not has_random_start(module, self._make_module(recipe, RandomState()))
            ):
                fit.assume("the weights that training starts from are public")
        device, probe = usable_device(self._device), None
        # The tests check the gradients of the built-in perceptron by a loop.
        built_in = self.module is None and config.views is None
        if needs_public_rows(device) or not (built_in and PerceptronGradients.fits(module, loss)):
            probe = self._probe(device, 1 if config.views is None else config.views.count)
        start = self._synchronize_start(peers, module, config, first)
        random = SecureRandom(self.noise_seed)
        kind: Callable[..., Training] = self._training
        if config.held_out_share:
            kind = partial(EarlyStoppedTraining, units=units)
        training = kind(config, start, loss, probe, random)
        with self._charge_run(fit, peers, training, data, first) as run:
            yield run
        self.settings_ = asdict(replace(recipe, learning_rate=training.rate))

    def _recipe(
        self, n: int, n_features: int, n_outputs: int, fixed: Mapping[str, Any] | None = None
    ) -> Recipe:
        """Return a value for each setting that is "auto"; ``fixed`` ones stay as they are."""
        facts = self._public_facts(n, n_features, n_outputs)
        return resolve_auto_settings({**self._settings(), **(fixed or {})}, facts)

    def _settings(self) -> dict[str, Any]:
        """Return the parameters that may be "auto"."""
        return {
            "hidden_layer_sizes": self.hidden_layer_sizes,
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "optimizer": self._optimizer.method,
            "learning_rate": self.learning_rate,
            "schedule": self._optimizer.schedule,
            "averaging": self._optimizer.averaging,
            "max_grad_norm": self._clipping.norm,
        }

    def _public_facts(self, n: int, n_features: int, n_outputs: int) -> PublicFacts:
        return PublicFacts(
            n_records=n if self.n_records is None else int(self.n_records),
            n_features=n_features,
            n_outputs=n_outputs,
            epsilon=self.epsilon,
            delta=self.delta,
            clipping=self._clipping.method,
            classifies=is_classifier(self),
            perceptron=self.module is None,
            studied=self.noise_multiplier is None
            and self.epsilon is not None
            and not NOISE[self.noise].streams,
            momentum=self._optimizer.momentum,
            plain=self._processes is None and self.augment is None,
        )

    def _plan(self, n: int, recipe: Recipe) -> TrainingConfig:
        """Return the configuration of a run on ``n`` records, without noise."""
        momentum = self._optimizer.momentum
        if recipe.optimizer == "sgd":
            moments: dict[str, Any] = {"momentum": momentum}
        else:
            moments = {"betas": (momentum, 0.999)}
        return self._planned(
            n,
            batch_size=recipe.batch_size,
            epochs=int(recipe.epochs),
            max_grad_norm=recipe.max_grad_norm,
            optimizer=recipe.optimizer,
            optimizer_params=moments,
            learning_rate=recipe.learning_rate,
            schedule=recipe.schedule,
            averaging=recipe.averaging,
            device=self._device,
        )

    # Classifiers and regressors differ in the next four methods.
    def _encode(
        self, fit: PrivateFit, y: Any, first: bool, classes: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Return the targets as the loss takes them, and set the public facts about them."""
        raise NotImplementedError

    def _loss(self) -> nn.Module:
        """Return the loss, with one number per row."""
        raise NotImplementedError

    def _probe(self, device: str, views: int) -> Probe:
        """Return public random numbers of the shape of rows and targets."""
        raise NotImplementedError

    def _n_outputs(self) -> int:
        """Return the number of outputs of the module per row."""
        raise NotImplementedError

    def _make_module(self, recipe: Recipe, random_state: Any) -> nn.Module:
        """Return the module from which training starts."""
        params = {k.removeprefix("module__"): v for k, v in self._module_params().items()}
        random = check_random_state(random_state)
        if self.module is not None:
            return make_module(self.module, params, random)
        if params:
            raise ValueError(
                f"module__{next(iter(params))} is given, but module=None has no parameters. Pass "
                "module=..., or leave it out."
            )
        sizes = layer_sizes(recipe.hidden_layer_sizes)
        return make_mlp(self.n_features_in_, sizes, self._n_outputs(), recipe.activation, random)

    def _outputs(self, X: ArrayLike, link: Callable[[Tensor], Tensor]) -> NDArray[np.float64]:
        """Return ``link`` of the network's outputs, in double precision."""
        check_is_fitted(self, "module_")
        answers, start = torch.empty(0), 0
        # The work of a user's module is unknown, so it always gets all threads.
        least = PREDICT_WORK if self.module is None else 0
        with torch.inference_mode():
            for part in self._chunks(X):
                with threads_for(self.module_, len(part), worth=least):
                    found = link(self.module_(part).double())
                    if start == 0:  # one array: many small ones would pin the chunks' memory
                        shape = num_samples(X), *found.shape[1:]
                        answers = torch.empty(shape, dtype=torch.float64)
                    answers[start : start + len(part)] = found
                start += len(part)
        return np.asarray(answers.numpy())

    def _chunks(self, X: ArrayLike) -> Iterable[Tensor]:
        """Yield finite rows in chunks."""
        if not is_mapped(X) or X.ndim != 2:
            rows = validate_data(self, X, dtype=np.float32, reset=False)
            yield from torch.from_numpy(rows).split(_PREDICT_ROWS)
            return
        self._check_width(X, reset=False)
        for part in iterate_chunks(X, max(1, _PREDICT_NUMBERS // X.shape[1])):
            yield torch.from_numpy(check_array(part, dtype=np.float32, order="C", input_name="X"))


def training_rows(rows: NDArray | Tensor | MappedRows) -> Tensor | MappedRows:
    """Return rows as training reads them: in single precision, where huge numbers are infinite.

    **Guarantees.** The argument is not changed. If it has the right form already, the result shares
    its memory, which training only reads.
    """
    if isinstance(rows, MappedRows) or (isinstance(rows, Tensor) and not rows.is_floating_point()):
        return rows
    values = single_precision(rows.numpy() if isinstance(rows, Tensor) else rows)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(values)
