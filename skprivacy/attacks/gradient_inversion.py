"""Records whose gradient is like the one that a party sent, found by a search."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import entropy

from .._blas import threads_for
from .._sklearn import StrOptions
from .._validation import Interval, check_random_state
from ._inversion_attack import InversionAttack, Reconstruction

if TYPE_CHECKING:
    from torch import Tensor

    from ._relaxed_rows import Relaxation

__all__ = ["GradientInversion"]

_AT_ONCE = 2**24  # numbers in simulated gradients that are held together


class GradientInversion(InversionAttack):
    """Search for records whose gradient is the one observed, as in deep leakage from gradients.

    Rows are varied until their gradient, computed and clipped as the party does, is near to the
    observed one. A category is relaxed to a softmax over its features, a number stays within its
    range, and rows that several starts agree on are pooled (TabLeak). Labels that are not given are
    read from the last layer's gradient: of one record its label, of a batch the counts.

    Parameters
    ----------
    target : torch module or fitted estimator, default=None
        The model whose gradient was sent, as it was then: a module whose outputs are logits; a
        fitted estimator with ``module_``, such as
        :class:`~skprivacy.neural_network.DPSGDClassifier`; a fitted ``MLPClassifier`` or linear
        classifier.
    columns : Schema, list of lists of int or None, default=None
        Which features form a column: one is a number, several are a category's, of which one is on.
        A Schema says so of what ``SchemaTransformer`` returns. None: all are numbers.
    loss : callable, default=None
        What the gradient is of: maps outputs (n, n_outputs) and targets (n,) to a loss for each
        record. None: the cross-entropy of logits.
    max_grad_norm : float, default=None
        What the party clips the gradient of each record to. An attacker who knows it does the same.
    noise_multiplier : float, default=0.0
        Standard deviation of the noise that the party adds to the sum, in units of
        ``max_grad_norm``. The search cannot use it; :class:`BayesInversion` does.
    distance : {"cosine", "squared"}, default="cosine"
        Of gradients: 1 minus the cosine of their angle (Geiping et al.), or the squared length of
        their difference (Zhu et al.).
    n_starts : int, default=4
        Searches from different rows of the attacker's.
    n_iter : int, default=1000
        Steps of each.
    learning_rate : float, default=0.3
        Of Adam at the first step; it falls to zero.
    random_state : int, RandomState instance or None, default=None
        Of the starting points, and of the rows of the null model.

    Attributes
    ----------
    layout_ : RowLayout
        Which features form columns, and their ranges.
    reference_ : ndarray of shape (n_reference, n_features)
        The attacker's records.
    n_features_in_ : int
        Their number of features.

    Notes
    -----
    **Edge cases.** Numbers outside of the range of the attacker's records are not found. Confidence
    is 1 minus the entropy of categories, over its largest value, and minus the deviation of numbers
    between starts, over that of the population; with ``n_starts=1`` numbers are all certain.

    That this attack fails proves nothing: it has no prior but ranges. :class:`BayesInversion` does.

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
    >>> attack = GradientInversion(model, n_iter=300, random_state=0).fit(X[:200], y[:200])
    >>> batches = [(X[[i]], y[[i]]) for i in range(200, 210)]
    >>> sent = [party_gradient(model, *batch) for batch in batches]
    >>> result = attack.evaluate(sent, batches)
    >>> result.share > 0.9 > 0.5 > result.null_shares["random rows"]
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **InversionAttack._parameter_constraints,
        "distance": [StrOptions({"cosine", "squared"})],
        "n_starts": [Interval(Integral, 1, None, closed="left")],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1e30, closed="neither")],  # of single precision
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
        n_starts: int = 4,
        n_iter: int = 1000,
        learning_rate: float = 0.3,
        random_state: Any = None,
    ) -> None:
        self.target = target
        self.columns = columns
        self.loss = loss
        self.max_grad_norm = max_grad_norm
        self.noise_multiplier = noise_multiplier
        self.distance = distance
        self.n_starts = n_starts
        self.n_iter = n_iter
        self.learning_rate = learning_rate
        self.random_state = random_state

    def _reconstructed(
        self, observed: Tensor, n_records: int, labels: Tensor | None
    ) -> list[Reconstruction]:
        from ._relaxed_rows import Descent, Relaxation

        labels = self._labels(observed, n_records) if labels is None else labels
        relaxation = Relaxation(self.layout_, self._gradients.dtype)
        search = Descent(self.n_iter, self.learning_rate, self.distance)
        rng = check_random_state(self.random_state)
        held = self.n_starts * self._gradients.held(n_records)
        found = []
        for some, own in zip(
            *(part.split(max(1, _AT_ONCE // held)) for part in (observed, labels)), strict=True
        ):
            starts = (len(some), self.n_starts, n_records)
            drawn = self.reference_[rng.randint(len(self.reference_), size=starts)]
            with threads_for(self._gradients.module, math.prod(starts)):
                free, distances = search(
                    self._gradients,
                    relaxation,
                    some.repeat_interleave(self.n_starts, 0),
                    own.repeat_interleave(self.n_starts, 0),
                    relaxation.near(self._gradients.records(drawn)).flatten(0, 1),
                )
            shares = relaxation.shares(free).unflatten(0, starts[:2])
            for rows, away in zip(shares, distances.unflatten(0, starts[:2]), strict=True):
                found.append(self._pooled(relaxation, rows, away))
        return found

    def _pooled(self, relaxation: Relaxation, shares: Tensor, distances: Tensor) -> Reconstruction:
        from ._relaxed_rows import pooled

        middle, apart = pooled(shares, distances, relaxation.is_category)
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
