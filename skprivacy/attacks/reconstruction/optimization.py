"""Gradient inversion by optimisation: deep leakage from gradients (Zhu et al. 2019), TabLeak."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.stats import entropy

from ..._docs import fill_docs
from ..._environment import threads_for
from ..._sklearn import StrOptions
from ..._validation import Interval, check_random_state
from .column_layout import ColumnLayout
from .inversion_attack import INVERSION_DOCS, InversionAttack, Reconstruction

if TYPE_CHECKING:
    from torch import Tensor

    from ..torch_gradients import LossGradients

_AT_ONCE = 2**24  # numbers in simulated gradients that are in memory at once
_WIDEST = 12.0  # bound on the arguments of exponentials
_AS_GOOD = 1.5  # starts within this factor of the smallest distance are pooled
_ROUNDING = 1e-6  # smallest distance that counts as different from 0


@fill_docs(INVERSION_DOCS)
class GradientInversion(InversionAttack):
    """Search for records with the observed gradient: deep leakage from gradients (Zhu et al. 2019).

    Adam optimises rows until their gradient, computed and clipped as the party does, matches the
    observed one. A category is relaxed to a softmax over its features, a number stays within its
    range, and the rows of several starts are pooled (TabLeak). Labels that are not given are
    inferred from the last layer's gradient: the label of a single record, the counts of a batch.

    Parameters
    ----------
    %(inversion_parameters)s
    distance : {"cosine", "squared"}, default="cosine"
        Distance of gradients: "cosine" is 1 minus the cosine of their angle (Geiping et al.),
        "squared" the squared length of their difference (Zhu et al.).
    n_init : int, default=4
        Number of searches, from different rows of the attacker's records.
    max_iter : int, default=1000
        Steps of each search.
    learning_rate : float, default=0.3
        Learning rate of Adam at the first step; it decreases to zero.
    random_state : int, RandomState instance or None, default=None
        Seed of the starting points and of the null model "random rows".

    Attributes
    ----------
    %(inversion_attributes)s

    Notes
    -----
    **Edge cases.** Numbers outside of the range of the attacker's records are not found. The
    confidence in a category is 1 minus its entropy relative to the maximum. The confidence in a
    number is 1 minus its deviation between starts relative to the population's deviation, so with
    ``n_init=1`` all numbers are certain.

    If this attack fails, that does not show privacy: its only prior is the range of each feature.
    :class:`BayesInversion` uses a full prior.

    References
    ----------
    L. Zhu, Z. Liu, S. Han. Deep leakage from gradients. NeurIPS 2019.
    B. Zhao, K. R. Mopuri, H. Bilen. iDLG: improved deep leakage from gradients. 2020.
    J. Geiping, H. Bauermeister, H. Droege, M. Moeller. Inverting gradients: how easy is it to break
    privacy in federated learning? NeurIPS 2020.
    H. Yin et al. See through gradients: image batch recovery via GradInversion. CVPR 2021.
    M. Vero, M. Balunovic, D. I. Dimitrov, M. Vechev. TabLeak: tabular data leakage in federated
    learning. ICML 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.attacks import GradientInversion, party_gradient
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(size=(300, 4)), rng.integers(0, 2, 300)
    >>> model = LogisticRegression().fit(X[:100], y[:100])
    >>> attack = GradientInversion(model, max_iter=300, random_state=0).fit(X[:200], y[:200])
    >>> batches = [(X[[i]], y[[i]]) for i in range(200, 210)]
    >>> sent = [party_gradient(model, *batch) for batch in batches]
    >>> result = attack.evaluate(sent, batches)
    >>> result.share > 0.9 > 0.5 > result.null_shares["random rows"]
    True
    """

    _parameter_constraints = InversionAttack._parameter_constraints | {
        "distance": [StrOptions({"cosine", "squared"})],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1e30, closed="neither")],  # finite in single precision
    }

    def __init__(
        self,
        target: Any = None,
        *,
        columns: Any = None,
        loss: Any = None,
        max_grad_norm: float | None = None,
        noise_multiplier: float = 0.0,
        distance: str = "cosine",
        n_init: int = 4,
        max_iter: int = 1000,
        learning_rate: float = 0.3,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            target,
            columns=columns,
            loss=loss,
            max_grad_norm=max_grad_norm,
            noise_multiplier=noise_multiplier,
            random_state=random_state,
        )
        self.distance = distance
        self.n_init = n_init
        self.max_iter = max_iter
        self.learning_rate = learning_rate

    def _reconstruct_batches(
        self, observed: Tensor, n_records: int, labels: Tensor | None
    ) -> list[Reconstruction]:
        labels = self._infer_labels(observed, n_records) if labels is None else labels
        relaxation = Relaxation(self.layout_, self._gradients.dtype)
        search = Descent(self.max_iter, self.learning_rate, self.distance)
        rng = check_random_state(self.random_state)
        held = self.n_init * self._gradients.count_floats(n_records)
        found = []
        for some, own in zip(
            *(part.split(max(1, _AT_ONCE // held)) for part in (observed, labels)), strict=True
        ):
            starts = (len(some), self.n_init, n_records)
            chosen = self.reference_[rng.randint(len(self.reference_), size=starts)]
            with threads_for(self._gradients.module, math.prod(starts)):
                free, distances = search(
                    self._gradients,
                    relaxation,
                    some.repeat_interleave(self.n_init, 0),
                    own.repeat_interleave(self.n_init, 0),
                    relaxation.free_parameters_near(self._gradients.records(chosen)).flatten(0, 1),
                )
            shares = relaxation.shares(free).unflatten(0, starts[:2])
            for rows, away in zip(shares, distances.unflatten(0, starts[:2]), strict=True):
                found.append(self._pool_starts(relaxation, rows, away))
        return found

    def _pool_starts(
        self, relaxation: Relaxation, shares: Tensor, distances: Tensor
    ) -> Reconstruction:
        middle, apart = combine_starts(shares, distances, relaxation.is_category)
        low, width = self.layout_.low, self.layout_.high - self.layout_.low
        share, deviation = middle.double().numpy(), apart.double().numpy() * width
        rows = low + width * share
        certain = np.empty((len(rows), len(self.layout_.columns)))
        for j, features in enumerate(self.layout_.columns):
            if len(features) == 1:
                off = deviation[:, features[0]] / self.layout_.spread[features[0]]
                certain[:, j] = np.maximum(0.0, 1 - off)
            else:
                odds = np.column_stack([share[:, features], 1 - share[:, features].sum(axis=1)])
                odds = odds.clip(0, 1)
                certain[:, j] = 1 - entropy(odds, axis=1) / np.log(odds.shape[1])
                chosen = np.eye(odds.shape[1])[odds.argmax(axis=1), :-1]
                rows[:, features] = low[features] + width[features] * chosen
        return Reconstruction(rows, certain.mean(axis=1))


class Relaxation:
    """Rows as smooth functions of free parameters: sigmoids for numbers, softmax for categories."""

    def __init__(self, layout: ColumnLayout, dtype: Any) -> None:
        import torch

        d = len(layout.low)
        self.low = torch.as_tensor(layout.low, dtype=dtype)
        self.width = torch.as_tensor(layout.high - layout.low, dtype=dtype)
        self.together = torch.zeros((d, d), dtype=dtype)
        self.is_category = torch.zeros(d, dtype=torch.bool)
        for features in layout.one_hot:
            self.together[np.ix_(features, features)] = 1.0
            self.is_category[features] = True

    def rows(self, free: Tensor) -> Tensor:
        return self.low + self.width * self.shares(free)

    def shares(self, free: Tensor) -> Tensor:
        """Return each feature's position in its range, from 0 to 1."""
        bounded = _WIDEST * (free / _WIDEST).tanh()
        raised = bounded.exp()
        of_block = raised @ self.together
        # 1e-3 is the weight of "none": all features of a category may be off
        return (raised / (of_block + 1e-3)).where(self.is_category, bounded.sigmoid())

    def free_parameters_near(self, rows: Tensor) -> Tensor:
        """Return free parameters near these rows, with categories far from certain."""
        share = ((rows - self.low) / self.width).clip(0.02, 0.98)
        logits = (share / (1 - share)).log()
        return (0.3 * logits).where(self.is_category, logits)


@dataclass(frozen=True)
class Descent:
    """Adam on the free parameters, with a step that decreases to zero."""

    max_iter: int
    step: float
    distance: str

    def __call__(
        self,
        gradients: LossGradients,
        relaxation: Relaxation,
        observed: Tensor,
        labels: Tensor,
        start: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Solve independent problems together; return their free parameters and distances."""
        import torch

        free = start.clone()
        first, second = torch.zeros_like(free), torch.zeros_like(free)
        scale = observed.square().sum(1).clamp(min=1e-30)
        # Zhu et al. 2019: minimise the distance of gradients over the records
        for t in range(self.max_iter):
            free.requires_grad_(True)
            away = self._distances(gradients.mean(relaxation.rows(free), labels), observed, scale)
            (slope,) = torch.autograd.grad(away.sum(), free)
            free = free.detach()
            first = 0.9 * first + 0.1 * slope
            second = 0.99 * second + 0.01 * slope.square()
            size = self.step * 0.5 * (1 + math.cos(math.pi * t / self.max_iter))  # cosine decay
            corrected = first / (1 - 0.9 ** (t + 1))
            free = free - size * corrected / ((second / (1 - 0.99 ** (t + 1))).sqrt() + 1e-12)
        with torch.no_grad():
            found = gradients.mean(relaxation.rows(free), labels)
            return free, self._distances(found, observed, scale)

    def _distances(self, found: Tensor, observed: Tensor, scale: Tensor) -> Tensor:
        if self.distance == "squared":  # Zhu et al. 2019
            return (found - observed).square().sum(1) / scale
        product = (found * observed).sum(1)
        # Geiping et al. 2020: 1 minus the cosine similarity
        return 1 - product / (found.square().sum(1).clamp(min=1e-30) * scale).sqrt()


def combine_starts(shares: Tensor, distances: Tensor, is_category: Tensor) -> tuple[Tensor, Tensor]:
    """Pool a batch's good starts: means of categories, medians of numbers, and deviations."""
    import torch

    order = distances.argsort()
    least = distances[order[0]].clamp(min=_ROUNDING)  # rounding may make it negative
    good = order[: max(1, int((distances <= _AS_GOOD * least).sum()))]
    best = shares[good[0]]
    aligned = [best]
    for k in good[1:]:
        apart = torch.cdist(best, shares[k], p=1).numpy()
        aligned.append(shares[k][linear_sum_assignment(apart)[1]])
    stacked = torch.stack(aligned)
    middle = torch.where(is_category, stacked.mean(0), stacked.median(0).values)
    return middle, stacked.std(0, unbiased=False)
