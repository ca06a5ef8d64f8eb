"""Semi-supervised networks: students that also learn from unlabelled records.

:class:`ConsistencyStudent` is FixMatch (Sohn et al. 2020), :class:`VATStudent` virtual adversarial
training (Miyato et al. 2018). Start reading at the loop that they share,
:class:`SemiSupervisedNetwork`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from .._docs import fill_docs
from .._environment import threads_for
from .._input_data import ClassifierMixin, check_one_type, validate_data
from .._validation import Interval, check_random_state
from ..base import rolls_back_on_error
from ._gradients.perceptron import layer_sizes, make_mlp
from .augmentation import augmentation_steps
from .modules import make_module

STUDENT_DOCS = {
    "student_training": """\
module : type or torch.nn.Module, default=None
    A network instead of the perceptron: a class without arguments, or a module, which is copied.
hidden_layer_sizes : tuple of int, default=(256,)
    Units of the perceptron's hidden layers.
epochs : int, default=30
    Passes over all records.
batch_size : int, default=256
    Records in a step, in addition to 64 labelled ones.
learning_rate : float, default=0.001
    Initial step size of Adam; it falls to 0.
random_state : int, RandomState instance or None, default=None
    Seeds the weights, the batches and the perturbations.""",
    "student_notes": """\
**Guarantees.** The student is private only if its labels are; it adds no protection.

**Edge cases.** All columns share one scale; standardise them by public facts. A single class is
always predicted.""",
    "student_attributes": """\
classes_ : ndarray of shape (n_classes,)
    The labels, sorted, without -1.
module_ : torch.nn.Module
    The fitted network; it takes rows as ``fit`` does, unscaled.
n_features_in_ : int
    Number of features seen during fit.""",
}
_NO_LABEL = -1
_LABELED_PER_STEP = 64  # labelled rows in a step, drawn with replacement since they are few
_PREDICT_ROWS_PER_PASS = 4096  # rows of one forward pass
_PROBE = 1e-3  # length of the step that finds the worst direction, in the unit of the radius


class SemiSupervisedNetwork(ClassifierMixin, BaseEstimator):
    """A network with a loss on labelled rows plus a loss on all rows.

    **Guarantees.** The caller's random generators stay as they were. An integer ``random_state``
    makes two fits equal on one machine.

    **Edge cases.** All columns are centred, and divided by one standard deviation over all of them:
    constant columns become 0. A single class is always predicted.
    """

    semi_supervised = True

    module: Any
    hidden_layer_sizes: Any
    epochs: int
    batch_size: int
    learning_rate: float
    random_state: Any
    classes_: NDArray[Any]
    module_: nn.Module

    _parameter_constraints: dict = {
        "module": [callable, None],
        "hidden_layer_sizes": ["array-like"],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1e30, closed="neither")],  # fits single precision
        "random_state": ["random_state"],
    }

    @abstractmethod
    def _labeled_view(self, rows: Tensor) -> Tensor:
        """Return labelled rows as the network sees them in training."""

    @abstractmethod
    def _unlabeled_loss(self, network: nn.Module, rows: Tensor) -> Tensor:
        """Return the loss of the network's answers to rows, which needs no labels."""

    @rolls_back_on_error
    def fit(self, X: ArrayLike, y: ArrayLike) -> SemiSupervisedNetwork:
        """Fit to records of which some are labelled.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Public records.
        y : array-like of int, shape (n_samples,)
            -1 marks records without a label.

        Returns
        -------
        object
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or a shape is invalid, or no record is labelled.
        """
        self._validate_params()
        rows, labels = validate_data(self, X, y, dtype=np.float32)
        check_one_type("y", labels)
        self.classes_ = np.setdiff1d(labels, [_NO_LABEL])
        if not len(self.classes_):
            raise ValueError(
                f"y marks all {len(rows)} records as without a label (-1). Label at least one."
            )
        random = check_random_state(self.random_state)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random.randint(1 << 31))
            if self.module is not None:
                network = make_module(self.module, {}, random)
            else:
                sizes = layer_sizes(self.hidden_layer_sizes)
                network = make_mlp(rows.shape[1], sizes, len(self.classes_), "relu", random)
            self.module_ = nn.Sequential(_Standardization(rows), network)
            with threads_for(self.module_, self.batch_size):
                self._train(torch.from_numpy(rows), np.asarray(labels))
        return self

    def _train(self, rows: Tensor, labels: NDArray[Any]) -> None:
        known = torch.from_numpy(np.flatnonzero(labels != _NO_LABEL))
        codes = torch.from_numpy(np.searchsorted(self.classes_, labels[known.numpy()]))
        steps = self.epochs * math.ceil(len(rows) / self.batch_size)
        optimizer = torch.optim.Adam(self.module_.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        self.module_.train()
        for _ in range(steps):
            drawn = torch.randint(len(known), (_LABELED_PER_STEP,))
            answers = self.module_(self._labeled_view(rows[known[drawn]]))
            others = rows[torch.randint(len(rows), (self.batch_size,))]
            loss = F.cross_entropy(answers, codes[drawn])
            loss = loss + self._unlabeled_loss(self.module_, others)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        self.module_.eval()

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        check_is_fitted(self, "module_")
        rows = torch.from_numpy(validate_data(self, X, dtype=np.float32, reset=False))
        with torch.inference_mode():
            found = [
                self.module_(part).double().softmax(1)
                for part in rows.split(_PREDICT_ROWS_PER_PASS)
            ]
        return np.asarray(torch.cat(found).numpy())

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels of ``classes_``.
        """
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@dataclass(frozen=True)
class ColumnCorruption:
    """Replace a ``share`` of a public row's numbers by other rows' (SCARF, Bahri et al. 2022)."""

    share: float = 0.3

    def __call__(self, rows: Tensor) -> Tensor:
        others = rows.gather(0, torch.randint(len(rows), rows.shape))
        return torch.where(torch.rand(rows.shape) < self.share, others, rows)


class _Standardization(nn.Module):
    """Rows minus their mean, divided by one standard deviation over all columns."""

    mean: Tensor

    def __init__(self, rows: NDArray[np.float32]) -> None:
        super().__init__()
        mean = rows.mean(axis=0, dtype=np.float64)
        scale = math.sqrt(max(float(rows.var(axis=0, dtype=np.float64).mean()), 1e-30))
        self.register_buffer("mean", torch.from_numpy(mean.astype(np.float32)))
        self.scale = scale

    def forward(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.scale


@fill_docs(STUDENT_DOCS)
class ConsistencyStudent(SemiSupervisedNetwork):
    """Classifier trained by FixMatch: confident predictions become labels of distorted views.

    Parameters
    ----------
    weak : callable or list of callables, default=None
        Weak augmentation of all records: functions of a tensor of rows, such as
        :class:`RandomShift`. ``None`` leaves the records as they are.
    strong : callable or list of callables, default=None
        Strong augmentation, likewise. ``None`` replaces three in ten numbers of each row by numbers
        of other rows in the same column, which suits tables.
    threshold : float, default=0.95
        Least probability of a confident prediction, in (0, 1).
    %(student_training)s

    Attributes
    ----------
    %(student_attributes)s

    Notes
    -----
    %(student_notes)s
    Without confident predictions only the labels teach.

    References
    ----------
    K. Sohn et al., "FixMatch: simplifying semi-supervised learning with consistency and
    confidence", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.neural_network import ConsistencyStudent
    >>> rng = np.random.default_rng(0)
    >>> centre = np.repeat([[-1.0], [1.0]], 200, axis=0)
    >>> X = rng.normal(centre, 1.0, (400, 20))
    >>> y = np.full(400, -1)
    >>> y[[0, 1, 200, 201]] = 0, 0, 1, 1  # two labels a class
    >>> student = ConsistencyStudent(random_state=0).fit(X, y)
    >>> float((student.predict(X) == np.repeat([0, 1], 200)).mean()) > 0.9
    True
    """

    _parameter_constraints: dict = {
        **SemiSupervisedNetwork._parameter_constraints,
        "weak": [callable, "array-like", None],
        "strong": [callable, "array-like", None],
        "threshold": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        *,
        weak: Any = None,
        strong: Any = None,
        threshold: float = 0.95,
        module: Any = None,
        hidden_layer_sizes: tuple[int, ...] = (256,),
        epochs: int = 30,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.weak = weak
        self.strong = strong
        self.threshold = threshold
        self.module = module
        self.hidden_layer_sizes = hidden_layer_sizes
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _labeled_view(self, rows: Tensor) -> Tensor:
        return rows if self.weak is None else self._view("weak", rows)

    def _view(self, name: str, rows: Tensor) -> Tensor:
        for step in augmentation_steps(name, getattr(self, name)):
            rows = step(rows)
        return rows

    def _unlabeled_loss(self, network: nn.Module, rows: Tensor) -> Tensor:
        # FixMatch (Sohn et al. 2020), Section 2: pseudo-labels from weakly augmented rows
        with torch.no_grad():
            sureness, answer = network(self._labeled_view(rows)).softmax(1).max(1)
        # ... and their cross-entropy on strongly augmented rows, where the network is confident
        strong = ColumnCorruption()(rows) if self.strong is None else self._view("strong", rows)
        distorted = network(strong)
        sure = (sureness >= self.threshold).float()
        return (sure * F.cross_entropy(distorted, answer, reduction="none")).mean()


@fill_docs(STUDENT_DOCS)
class VATStudent(SemiSupervisedNetwork):
    """Classifier trained by virtual adversarial training on partly labelled records.

    For each record it finds the direction in which the prediction changes most, and penalises that
    change. It also penalises the entropy of predictions, so that boundaries between classes stay
    away from records.

    Parameters
    ----------
    radius : float, default=0.3
        Distance over which predictions must not change, as a share of the root mean square distance
        of records from their mean.
    %(student_training)s

    Attributes
    ----------
    %(student_attributes)s

    Notes
    -----
    %(student_notes)s

    References
    ----------
    T. Miyato et al., "Virtual adversarial training: a regularization method for supervised and
    semi-supervised learning", TPAMI 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.neural_network import VATStudent
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-2, 1, (200, 2)), rng.normal(2, 1, (200, 2))])
    >>> y = np.full(400, -1)
    >>> y[[0, 200]] = 0, 1  # one label a class
    >>> student = VATStudent(random_state=0).fit(X, y)
    >>> float((student.predict(X) == np.repeat([0, 1], 200)).mean()) > 0.9
    True
    """

    _parameter_constraints: dict = {
        **SemiSupervisedNetwork._parameter_constraints,
        "radius": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        radius: float = 0.3,
        module: Any = None,
        hidden_layer_sizes: tuple[int, ...] = (256,),
        epochs: int = 30,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.radius = radius
        self.module = module
        self.hidden_layer_sizes = hidden_layer_sizes
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _labeled_view(self, rows: Tensor) -> Tensor:
        return rows

    def _unlabeled_loss(self, network: nn.Module, rows: Tensor) -> Tensor:
        unit = float(network[0].scale) * math.sqrt(rows.shape[1])  # type: ignore[index]
        logs = network(rows).log_softmax(1)
        # Miyato et al. 2018, "VAT+EntMin": the conditional entropy of the predictions
        entropy = -(logs.exp() * logs).sum(1).mean()
        worst = _worst_direction(network, rows, logs.detach(), _PROBE * unit)
        # The local distributional smoothness loss of Miyato et al. 2018
        moved = network(rows + self.radius * unit * worst).log_softmax(1)
        return entropy + F.kl_div(moved, logs.detach(), log_target=True, reduction="batchmean")


def _worst_direction(network: nn.Module, rows: Tensor, logs: Tensor, length: float) -> Tensor:
    """Return for each row the unit vector along which its prediction changes most.

    One power iteration, as in Algorithm 1 of Miyato et al. 2018.
    """
    start = F.normalize(torch.randn_like(rows), dim=1).requires_grad_()
    moved = network(rows + length * start).log_softmax(1)
    change = F.kl_div(moved, logs, log_target=True, reduction="sum")
    [gradient] = torch.autograd.grad(change, start)
    return F.normalize(gradient / gradient.abs().amax(1, keepdim=True).clamp_min(1e-30), dim=1)
