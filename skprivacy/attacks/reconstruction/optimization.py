"""Gradient inversion by optimisation: deep leakage from gradients (Zhu et al. 2019), TabLeak."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import entropy

from ..._environment import threads_for
from ..._sklearn import StrOptions
from ..._validation import Interval, check_random_state
from .inversion_attack import InversionAttack, Reconstruction

if TYPE_CHECKING:
    from torch import Tensor

    from .relaxed_rows import Relaxation

__all__ = ["GradientInversion"]

_AT_ONCE = 2**24  # numbers in simulated gradients that are in memory at once


class GradientInversion(InversionAttack):
    """Search for records with the observed gradient: deep leakage from gradients (Zhu et al. 2019).

    Adam optimises rows until their gradient, computed and clipped as the party does, matches the
    observed one. A category is relaxed to a softmax over its features, a number stays within its
    range, and the rows of several starts are pooled (TabLeak). Labels that are not given are
    inferred from the last layer's gradient: the label of a single record, the counts of a batch.

    Parameters
    ----------
    target : torch module or fitted estimator, default=None
        The model whose gradient was sent, with its weights at that time: a module whose outputs are
        logits; a fitted estimator with ``module_``, such as
        :class:`~skprivacy.neural_network.DPSGDClassifier`; a fitted ``MLPClassifier`` or linear
        classifier.
    columns : Schema, list of lists of int or None, default=None
        Features of each column: one feature for a number, several for a one-hot category. A Schema
        describes the output of ``SchemaTransformer``. None: all features are numbers.
    loss : callable, default=None
        The loss of the gradient: maps outputs (n, n_outputs) and targets (n,) to a loss for each
        record. None: the cross-entropy of logits.
    max_grad_norm : float, default=None
        Norm to which the party clips the gradient of each record. The attack clips in the same way.
    noise_multiplier : float, default=0.0
        Standard deviation of the noise that the party adds to the sum, in units of
        ``max_grad_norm``. This attack ignores it; :class:`BayesInversion` uses it.
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
    layout_ : RowLayout
        Features of each column, and their ranges.
    reference_ : ndarray of shape (n_reference, n_features)
        The attacker's records.
    n_features_in_ : int
        Number of features.

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

    _parameter_constraints: dict[str, Any] = {
        **InversionAttack._parameter_constraints,
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
        self.target = target
        self.columns = columns
        self.loss = loss
        self.max_grad_norm = max_grad_norm
        self.noise_multiplier = noise_multiplier
        self.distance = distance
        self.n_init = n_init
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _reconstruct_batches(
        self, observed: Tensor, n_records: int, labels: Tensor | None
    ) -> list[Reconstruction]:
        from .relaxed_rows import Descent, Relaxation

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
            drawn = self.reference_[rng.randint(len(self.reference_), size=starts)]
            with threads_for(self._gradients.module, math.prod(starts)):
                free, distances = search(
                    self._gradients,
                    relaxation,
                    some.repeat_interleave(self.n_init, 0),
                    own.repeat_interleave(self.n_init, 0),
                    relaxation.free_parameters_near(self._gradients.records(drawn)).flatten(0, 1),
                )
            shares = relaxation.shares(free).unflatten(0, starts[:2])
            for rows, away in zip(shares, distances.unflatten(0, starts[:2]), strict=True):
                found.append(self._pool_starts(relaxation, rows, away))
        return found

    def _pool_starts(
        self, relaxation: Relaxation, shares: Tensor, distances: Tensor
    ) -> Reconstruction:
        from .relaxed_rows import combine_starts

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
