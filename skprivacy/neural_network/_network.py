"""What private networks for classes and for numbers have in common."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from .._config import warn_caller
from .._sklearn import Interval, StrOptions, num_samples
from .._validation import check_column_names, check_numbers
from ..accounting import (
    Composed,
    PrivacyBudget,
    PrivacyGuarantee,
    calibrate_noise_multiplier,
)
from ..exceptions import PrivacyWarning
from ..mechanisms import SecureRandom
from ._gradients.clipping import CLIPPING, AdaptiveClipping
from ._gradients.trial import Probe
from ._training.config import SCHEDULES, Plan
from ._training.module import ACTIVATIONS, make_module
from ._training.net import PrivateNet
from ._training.noise import NOISE
from ._training.optimizers import MomentumSGD, PrivateAdam
from ._training.peers import Peers
from ._training.rows import MappedRows, chunks, is_mapped, without_huge
from .augmentation import Views

__all__ = ["COMMON_CONSTRAINTS", "PrivateNetwork"]

_PREDICT_ROWS = 1 << 16
_PREDICT_NUMBERS = 1 << 20  # that are read from a file at a time

COMMON_CONSTRAINTS: dict = {
    "hidden_layer_sizes": ["array-like"],
    "activation": [StrOptions(set(ACTIVATIONS))],
    "module": [callable, None],
    "augment": [callable, "array-like", None],
    "augmentations": [Interval(Integral, 1, None, closed="left")],
    "epsilon": [Interval(Real, 0, None, closed="right")],
    "delta": [Interval(Real, 0, 1, closed="neither")],
    "max_grad_norm": [Interval(Real, 1e-20, 1e20, closed="both")],  # else no single precision
    "noise": [StrOptions(set(NOISE))],
    "clipping": [StrOptions({*CLIPPING, "adaptive"})],
    "target_quantile": [Interval(Real, 0, 1, closed="neither")],
    "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "epochs": [Interval(Integral, 1, None, closed="left")],
    "optimizer": [StrOptions({"sgd", "adam"})],
    "learning_rate": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    "schedule": [StrOptions(set(SCHEDULES))],
    "momentum": [Interval(Real, 0, 1, closed="left")],
    "averaging": [Interval(Real, 0, 1, closed="both"), StrOptions({"ema"})],
    "averaging_decay": [Interval(Real, 0, 1, closed="neither")],
    "n_records": [Interval(Integral, 1, None, closed="left"), None],
    "device": [str],
    "random_state": ["random_state"],
    "noise_seed": [Integral, None],
    "budget": [PrivacyBudget, None],
    "distributed": [StrOptions({"replicated", "sharded"}), None],
    "verbose": ["verbose"],
}


class PrivateNetwork(BaseEstimator):
    """Training, certification and prediction of a private network; targets are for subclasses."""

    def _set(self, params: dict[str, Any], module_params: dict[str, Any]) -> None:
        """Store the parameters of ``__init__`` as they are."""
        for name in module_params:
            if not name.startswith("module__"):
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}.")
        own = {k: v for k, v in params.items() if k not in ("self", "__class__", "module_params")}
        self.__dict__.update(own, **module_params)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, ``module__`` ones included.

        Parameters
        ----------
        deep : bool, default=True
            As in scikit-learn.

        Returns
        -------
        dict
        """
        own = {k: v for k, v in vars(self).items() if k.startswith("module__")}
        return {**super().get_params(deep=deep), **own}

    def set_params(self, **params: Any) -> PrivateNetwork:
        """Set parameters, ``module__`` ones included.

        Parameters
        ----------
        **params : dict

        Returns
        -------
        self : estimator
        """
        own = {k: v for k, v in params.items() if k.startswith("module__")}
        self.__dict__.update(own)
        super().set_params(**{k: v for k, v in params.items() if k not in own})
        return self

    def __getstate__(self):
        state = super().__getstate__()
        # A fitted model is what gets out; the seed of its noise must not get out with it.
        return state | {"noise_seed": None} if "privacy_" in state else state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def _rows(self, X: ArrayLike, y: ArrayLike, first: bool, **checks: Any) -> tuple[Any, Any]:
        """Validate parameters, rows and targets."""
        self._validate_params()
        _check_hidden(self.hidden_layer_sizes)
        _check_device(self.device)
        if is_mapped(X) and X.ndim == 2:
            return self._mapped_rows(X, y, first, **checks)
        check_column_names(X)
        check_numbers(X)
        floats = [np.float64, np.float32]
        return validate_data(
            self, X, y, dtype=floats, ensure_all_finite=False, reset=first, **checks
        )

    def _mapped_rows(
        self, X: NDArray, y: ArrayLike, first: bool, **checks: Any
    ) -> tuple[MappedRows, Any]:
        """Validate what can be without a look at the rows, which stay where they are."""
        check_consistent_length(X, y)
        self._check_width(X, first)
        return MappedRows(X), validate_data(self, X="no_validation", y=y, reset=first, **checks)

    def _check_width(self, X: NDArray, reset: bool) -> None:
        validate_data(self, np.zeros((min(1, len(X)), X.shape[1])), reset=reset)

    def _train(
        self,
        rows: NDArray | MappedRows | Tensor,
        targets: NDArray,
        n_classes: int | None,
        assumptions: list[str],
        first: bool,
        peers: Peers,
        **criterion: Any,
    ) -> None:
        """Plan, prepare, charge, train, certify: in this order."""
        inputs, labels = _single_precision(rows), torch.from_numpy(targets)
        plan = self._plan(peers.count(inputs, labels))
        noise_multiplier = self._noise_multiplier(plan)
        event = plan.event(noise_multiplier)
        kind = "proved" if self.noise_seed is None else "estimate"
        module = self._start(rows.shape[1], n_classes or 1, first)
        peers.agree(self._facts(plan, module, first))
        peers.same(module)
        net = self._net(module, plan, noise_multiplier, n_classes, peers=peers, **criterion)
        net.prepare()
        assumptions.extend([*NOISE[self.noise].assumptions, *self._trusted(first)])
        guarantee = self._guarantee(event, plan.relation, kind, assumptions, first)
        with peers.charge(self.budget, event, plan.relation, type(self).__name__, kind):
            trained = net.train(inputs, labels)
            peers.same(trained)
        # Model and claim change together: an earlier model must not be left with a later claim.
        self.module_ = trained
        self._certify(guarantee, noise_multiplier, plan)
        self.gradients_ = net.gradients
        self.max_grad_norm_ = float(self.max_grad_norm)
        if isinstance(net.clipping, AdaptiveClipping):
            self.max_grad_norm_ = net.clipping.norm

    def _facts(self, plan: Plan, module: nn.Module, first: bool) -> dict[str, str]:
        """Return all that processes must agree on to train one model."""
        own = {"budget", "device", "module", "random_state", "verbose"}
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in own}
        seen = {k: v for k, v in vars(self).items() if k in ("classes_", "target_bounds_")}
        before = None if first else self.privacy_
        shapes = [tuple(p.shape) for p in module.parameters()]
        facts = {**params, **seen, "plan": plan, "module": shapes, "earlier training": before}
        return {k: getattr(v, "__qualname__", repr(v)) for k, v in facts.items()}

    def _net(
        self,
        module: nn.Module,
        plan: Plan,
        noise_multiplier: float,
        n_classes: int | None,
        **criterion: Any,
    ) -> PrivateNet:
        device = _check_device(self.device)
        views = Views.of(self.augment, self.augmentations)
        probe = self._probe(n_classes, device, views.count)
        views.check(probe.inputs)
        noise = NOISE[self.noise]
        clipping, noise_std = self._clipping(noise_multiplier * noise.spread(plan), plan)
        return PrivateNet(
            module,
            sampler=noise.sampler(plan),
            mechanism=noise.mechanism(noise_multiplier, self.max_grad_norm, plan),
            random=SecureRandom(self.noise_seed),
            divisor=plan.divisor,
            steps_per_epoch=plan.steps_per_epoch,
            averaging=self.averaging,
            averaging_decay=self.averaging_decay,
            clipping=clipping,
            schedule=SCHEDULES[self.schedule],
            probe=probe,
            views=views,
            max_epochs=plan.epochs,
            lr=self._learning_rate(
                module, noise_std * noise.spread_in_sums(plan) / noise.spread(plan), plan
            ),
            device=device,
            verbose=int(self.verbose),
            **self._optimizer(noise_std, plan),
            **criterion,
        )

    def _probe(self, n_classes: int | None, device: str, views: int) -> Probe:
        return Probe.like((self.n_features_in_,), n_classes, device, views)

    def _start(self, n_features: int, n_outputs: int, first: bool) -> nn.Module:
        """Return the module to train further: a new one, or a copy of the trained one."""
        if not first:
            return copy.deepcopy(self.module_)
        return make_module(
            self.module,
            {k[8:]: v for k, v in vars(self).items() if k.startswith("module__")},
            n_features,
            n_outputs,
            _check_hidden(self.hidden_layer_sizes),
            self.activation,
            check_random_state(self.random_state),
        )

    def _plan(self, n: int) -> Plan:
        delta = None if math.isinf(self.epsilon) else self.delta
        return Plan.of(n, self.n_records, self.batch_size, self.epochs, delta, self.noise)

    def _noise_multiplier(self, plan: Plan) -> float:
        if math.isinf(self.epsilon):
            return 0.0
        return calibrate_noise_multiplier(
            plan.event, epsilon=self.epsilon, delta=self.delta, relation=plan.relation
        )

    def _clipping(self, noise_std: float, plan: Plan) -> tuple[str | AdaptiveClipping, float]:
        """Return how to clip, and the noise that is then on the sum, in units of the norm."""
        if self.clipping != "adaptive":
            return self.clipping, noise_std
        norm = float(self.max_grad_norm)
        adaptive = AdaptiveClipping(norm, norm, noise_std, self.target_quantile, plan.divisor)
        return adaptive, adaptive.noise_on_sum

    def _optimizer(self, noise_std: float, plan: Plan) -> dict[str, Any]:
        if self.optimizer == "sgd":
            return {"optimizer": MomentumSGD, "optimizer__momentum": self.momentum}
        return {
            "optimizer": PrivateAdam,
            "optimizer__betas": (self.momentum, 0.999),
            "optimizer__noise_std": noise_std * self.max_grad_norm / plan.divisor,
        }

    def _learning_rate(self, module: nn.Module, noise_std: float, plan: Plan) -> float:
        if self.learning_rate != "auto":
            return float(self.learning_rate)
        if self.optimizer == "adam":
            return 0.01
        n_weights = sum(p.numel() for p in module.parameters() if p.requires_grad)
        noise = noise_std * math.sqrt(n_weights) / plan.divisor
        return min(1.0, 0.35 / math.sqrt(max(noise, 1e-12))) / self.max_grad_norm

    def _trusted(self, first: bool) -> list[str]:
        """Return what is taken on trust of the user's own code, weights and processes."""
        found = []
        if self.module is not None:
            found.append("the module treats each record by itself (tried on random numbers)")
        if first and isinstance(self.module, nn.Module):
            found.append("the weights that training starts from are public")
        if not Views.of(self.augment, self.augmentations).ours:
            found.append("augmentations treat each record by itself (tried on random numbers)")
        if self.distributed is not None:
            found.append("the processes that train together, and what connects them, are trusted")
        return found

    def _guarantee(
        self, event: Any, relation: str, kind: str, assumptions: list[str], first: bool
    ) -> PrivacyGuarantee:
        """Return what holds after this run, earlier ones included."""
        if relation == "zero_out":
            assumptions.append("the number of records is public")
        if self.noise_seed is not None:
            warn_caller(
                f"noise_seed={self.noise_seed!r} makes the noise predictable: there is no privacy. "
                "Use it in tests only.",
                PrivacyWarning,
            )
            assumptions.append("nobody knows or guesses noise_seed")
        if not first:
            before = self.privacy_
            if before.relation != relation:
                raise ValueError(
                    f"The earlier runs hold for relation={before.relation!r}, this one would for "
                    f"{relation!r}: set n_records as it was."
                )
            event = Composed((before.event, event))
            kind = "proved" if kind == before.kind == "proved" else "estimate"
            assumptions = [*before.assumptions, *assumptions]
        return PrivacyGuarantee(
            event,
            at_delta=self.delta,
            relation=relation,
            kind=kind,
            assumptions=tuple(dict.fromkeys(assumptions)),
        )

    def _certify(self, guarantee: PrivacyGuarantee, noise_multiplier: float, plan: Plan) -> None:
        self.privacy_ = guarantee
        self.privacy_event_ = guarantee.event
        self.epsilon_ = guarantee.epsilon()
        self.delta_ = self.delta
        self.noise_multiplier_ = noise_multiplier
        self.n_steps_ = plan.n_steps

    def _outputs(self, X: ArrayLike) -> Tensor:
        """Return the outputs of the network in double precision."""
        check_is_fitted(self, "module_")
        outputs, start = torch.empty(0), 0
        with torch.inference_mode():
            for part in self._parts(X):
                found = self.module_(part)
                if start == 0:  # one block: many small ones would pin the parts' memory
                    outputs = torch.empty((num_samples(X), *found.shape[1:]), dtype=torch.float64)
                outputs[start : start + len(part)] = found
                start += len(part)
        return outputs

    def _parts(self, X: ArrayLike) -> Iterable[Tensor]:
        """Yield finite rows, a part at a time."""
        if not is_mapped(X) or X.ndim != 2:
            rows = validate_data(self, X, dtype=np.float32, reset=False)
            yield from torch.from_numpy(rows).split(_PREDICT_ROWS)
            return
        self._check_width(X, reset=False)
        for part in chunks(X, max(1, _PREDICT_NUMBERS // X.shape[1])):
            yield torch.from_numpy(check_array(part, dtype=np.float32, input_name="X"))


def _single_precision(rows: NDArray | MappedRows | Tensor) -> Tensor | MappedRows:
    """Return rows in single precision; what is too large is infinite, hence takes no part."""
    if isinstance(rows, MappedRows):
        return rows
    if not isinstance(rows, Tensor):
        with np.errstate(over="ignore"):
            rows = torch.from_numpy(rows.astype(np.float32))
    return without_huge(rows)


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
