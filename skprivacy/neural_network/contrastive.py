"""ContrastiveEncoder: the loss and training loop of contrastive encoders (Chen et al. 2020)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from .._config import get_config
from .._environment import one_torch_thread, progress_bar, threads_for
from .._input_data import validate_data
from .._validation import Interval, check_random_state
from ..base import rolls_back_on_error
from ._training.torch_modes import map_each_record, ordinary_torch, usable_device

ENCODER_DOCS = {
    "public_encoder": """\
**Guarantees.** None for the records that ``fit`` sees: they MUST BE PUBLIC. Inside a pipeline,
``fit`` would see the private records, and ``claim_of`` reports that no guarantee covers them. Fit
the encoder first, and pass ``FrozenEstimator(encoder)`` to the pipeline. ``transform`` treats each
record by itself, so a guarantee on features is a guarantee on records.""",
    "contrastive_training": """\
device : str, default="auto"
    "auto" takes a GPU if there is one; "cpu", "cuda" or a device of torch.
random_state : int, RandomState instance or None, default=None
    Seeds the initial weights, the batches and the random views.""",
    "encoder_attributes": """\
needs_public_records_ : bool
    True: no guarantee covers the records that ``fit`` saw.""",
}

Self = TypeVar("Self", bound="ContrastiveEncoder")
Views = Callable[[Tensor], tuple[Tensor, Tensor]]
_PROJECTION_SIZE = 64  # outputs of the projection head, which the loss compares
_WARM_UP = 0.1  # share of the steps with a rising step size

CONSTRAINTS: dict[str, list[Any]] = {
    "n_components": [Interval(Integral, 1, None, closed="left")],
    "temperature": [Interval(Real, 0, None, closed="neither")],
    "batch_size": [Interval(Integral, 2, None, closed="left")],
    "epochs": [Interval(Integral, 1, None, closed="left")],
    "learning_rate": [Interval(Real, 0, 1e30, closed="neither")],  # fits single precision
    "device": [str],
    "random_state": ["random_state"],
}


class ContrastiveEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Training loop and features of contrastive encoders.

    A subclass has the parameters of ``CONSTRAINTS``, makes a module of ``n_components`` outputs,
    and defines two views of a record.

    **Guarantees.** None for the records that ``fit`` sees: the weights are a function of them. A
    record's features depend on that record and the weights alone, to the last bit.

    **Edge cases.** Rows after the last full batch of an epoch are skipped until the next epoch.
    """

    _parameter_constraints: dict[str, list[Any]] = CONSTRAINTS
    module_: nn.Module
    feature_names_in_: NDArray
    n_components: int
    temperature: float
    batch_size: int
    epochs: int
    learning_rate: float
    device: str
    random_state: Any

    def _make_module(self, rows: NDArray[np.float32]) -> nn.Module:
        """Return an untrained module; of ``rows`` it may store shape and public statistics."""
        raise NotImplementedError

    def _make_views(self, rows: Tensor) -> Views:
        """Return a function that maps a batch to two views of it."""
        raise NotImplementedError

    def _saved(self) -> dict[str, Any]:
        """Return the fitted state that a file needs besides parameters and weights."""
        raise NotImplementedError

    def _restore(self, saved: dict[str, Any]) -> nn.Module:
        """Load the state of :meth:`_saved`; return a module of the saved architecture."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    @rolls_back_on_error
    def fit(self: Self, X_public: ArrayLike, y: Any = None) -> Self:
        """Learn from public records, without labels.

        Parameters
        ----------
        X_public : array-like of shape (n_samples, n_features)
            Public records. No guarantee covers what is learned from them.
        y : None
            Ignored.

        Returns
        -------
        object
            The fitted encoder.

        Raises
        ------
        ValueError
            If there are fewer than two records, or a parameter does not fit them.
        """
        self._validate_params()
        device = usable_device(self.device)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = validate_data(self, X_public, dtype=np.float32, ensure_min_samples=2)
        with ordinary_torch(device), _seed_generators(seed, device):
            module = self._make_module(rows).to(device)
            on_device = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
            self._train(module, on_device, self._make_views(on_device))
        self.module_ = module.cpu().eval()
        self.needs_public_records_ = True
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return the features of each record.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records, which may be private: the module sees each in its own call.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            In single precision.
        """
        check_is_fitted(self, "module_")
        rows = validate_data(self, X, dtype=np.float32, reset=False)
        device = usable_device(self.device)
        module = self.module_ if device == "cpu" else copy.deepcopy(self.module_).to(device)
        with ordinary_torch(device), torch.inference_mode(), one_torch_thread():
            records = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
            found = map_each_record(module, records).cpu()
        return np.asarray(found.numpy())

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)

    def _train(self, module: nn.Module, rows: Tensor, views: Views) -> None:
        projection = nn.Sequential(
            nn.ReLU(), nn.Linear(self.n_components, 2 * _PROJECTION_SIZE),
            nn.ReLU(), nn.Linear(2 * _PROJECTION_SIZE, _PROJECTION_SIZE),
        ).to(rows.device)  # fmt: skip
        weights = [*module.parameters(), *projection.parameters()]
        optimizer = torch.optim.Adam(weights, lr=self.learning_rate)
        size = min(int(self.batch_size), len(rows))  # torch refuses numpy's integers
        total = self.epochs * (len(rows) // size)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: _step_size_factor(step, total)
        )
        module.train()
        kind = type(self).__name__
        few, shown = threads_for(module, 2 * size), get_config()["progress"]
        with few, progress_bar(shown=shown, total=total, desc=kind, unit="step") as bar:
            for _ in range(self.epochs):
                order = torch.randperm(len(rows), device=rows.device)
                for batch in order.split(size):
                    if len(batch) < size:
                        continue
                    loss = contrastive_loss(
                        projection(module(torch.cat(views(rows[batch])))), self.temperature
                    )
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    schedule.step()
                    bar.update()


def contrastive_loss(projected: Tensor, temperature: float) -> Tensor:
    """Return the NT-Xent loss: cross-entropy of finding a row's view in the other half."""
    # Chen et al. 2020, eq. (1): similarities over the temperature, without the view itself
    unit = F.normalize(projected, dim=1)
    similarity = (unit @ unit.T / temperature).fill_diagonal_(-torch.inf)
    n = len(unit) // 2
    partners = torch.arange(2 * n, device=unit.device).roll(n)
    return F.cross_entropy(similarity, partners)


def _step_size_factor(step: int, total: int) -> float:
    """Return the factor of the step size: a linear rise, then a cosine decay."""
    rising = max(1, round(_WARM_UP * total))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + np.cos(np.pi * (step - rising) / max(1, total - rising)))


@contextmanager
def _seed_generators(seed: int, device: str) -> Iterator[None]:
    """Seed torch's generators inside, and restore them after."""
    index = torch.device(device).index
    gpu = [] if torch.device(device).type != "cuda" else [torch.cuda.current_device()]
    with torch.random.fork_rng(devices=gpu if index is None else [index]):
        torch.manual_seed(seed)
        yield
