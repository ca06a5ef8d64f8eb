"""Stolen memories: white-box membership inference without known members (Leino 2020)."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .. import metrics
from .._sklearn import safe_indexing
from .._validation import Interval, check_random_state, label_columns
from ._networks import Network, open_network
from ._records import fingerprints
from .membership import MembershipAttack

__all__ = ["StolenMemoriesAttack"]

Float64Array = NDArray[np.float64]
Folds = NDArray[np.intp]
N_FOLDS = 3


class StolenMemoriesAttack(MembershipAttack):
    """Compare a network with proxies, white-box: stolen memories (Leino & Fredrikson 2020).

    A network uses some features in a way that is peculiar to its training records. Proxy networks
    show how these features are used otherwise: for each layer, this layer and those above are
    retrained on the attacker's records, as represented by the target's layers below. The
    displacement of the target's local linear approximation from the proxy's is the evidence of that
    layer. A shadow network, whose members the attacker knows, determines the weights of the layers
    and calibrates the threshold. No member of the target needs to be known.

    Parameters
    ----------
    target : fitted network or linear classifier, default=None
        ``MLPClassifier``; a linear model (``coef_``); a torch module that returns logits, or a
        classifier that has one as ``module_``; alone or at the end of a pipeline. The classes of
        a bare torch module are 0, 1, ...
    precision : float, default=0.9
        ``predict`` calls as many members as possible, while at least this share of them is right
        on the shadow network, half of whose records are members, with 95% confidence. If the shadow
        network has no such threshold, ``predict`` calls no record a member.
    epochs : int, default=100
        Number of epochs of Adam in which proxies of torch modules are trained. The number of the
        target's own epochs works best. Ignored for other models, whose parameters determine their
        training.
    random_state : int, RandomState instance or None, default=0
        Seed of the proxies and the shadow network.

    Attributes
    ----------
    threshold_ : float
        Lowest score that ``predict`` calls a member; infinity if it calls no record a member.
    shadow_precision_ : float
        Precision at ``threshold_`` on the shadow network; NaN if the threshold is infinite.

    Notes
    -----
    The linear approximation at the record is that of the log-odds of its class, since a logit is
    defined only up to a constant. Its weights and its bias are weighted separately. Every record is
    scored by proxies that were not trained on it (3 folds, assigned by fingerprint), and no proxy
    is trained on records that ``member`` marks as members. With L layers, ``6 L + 1`` networks or
    upper parts of networks are trained. A record of a class unknown to the target scores lowest.

    References
    ----------
    K. Leino, M. Fredrikson. Stolen memories: leveraging model memorization for calibrated
    white-box membership inference. USENIX Security 2020.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skprivacy.attacks import StolenMemoriesAttack
    >>> X, y = make_classification(1200, 60, flip_y=0.3, random_state=0)
    >>> target = MLPClassifier((30,), solver="lbfgs", random_state=0).fit(X[:300], y[:300])
    >>> attack = StolenMemoriesAttack(target).fit(X[600:], y[600:])
    >>> attack.evaluate(X[:300], y[:300], X[300:600], y[300:600]).auc > 0.6
    True
    """

    _parameter_constraints: dict[str, Any] = {
        "target": "no_validation",
        "precision": [Interval(Real, 0.5, 1, closed="neither")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        precision: float = 0.9,
        epochs: int = 100,
        random_state: Any = 0,
    ) -> None:
        self.target = target
        self.precision = precision
        self.epochs = epochs
        self.random_state = random_state

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        self._network, self._inputs = open_network(self.target, epochs=self.epochs)
        self._known_classes = np.asarray(self._target_classes(X))
        others = np.ones(len(y), bool) if member is None else ~member
        others &= np.isin(y, self._known_classes)
        X, y = safe_indexing(X, np.flatnonzero(others)), y[others]
        inputs, label = self._inputs(X), label_columns(y, self._known_classes)
        prints = fingerprints(X)
        fold = _folds(prints)
        if min(np.bincount(fold, minlength=N_FOLDS)) < 2 * N_FOLDS:
            raise ValueError(
                f"X holds {len(y)} non-members of known classes; expected dozens. Pass more "
                "records to fit, to train proxies on."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._proxies = _train_proxies(self._network, inputs, label, fold, seed)
        # Leino & Fredrikson 2020: a shadow network, trained on half of the attacker's records,
        # calibrates the attack. The remainder of the fingerprint assigns the fold, its quotient the
        # half.
        half = prints // np.uint64(N_FOLDS) % np.uint64(2) == 0
        shadow = self._network.retrained(inputs[half], label[half], 0, seed + 1)
        proxies = _train_proxies(shadow, inputs[~half], label[~half], fold[~half], seed + 2)
        evidence = _displacements(shadow, proxies, inputs, label, fold)
        self._attack_model = make_pipeline(
            StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000)
        ).fit(evidence, half)
        known = self._attack_model.decision_function(evidence)
        self._lowest = float(known.min()) - 1.0
        self._choose_threshold(known[half], known[~half])

    def _choose_threshold(self, members: Float64Array, others: Float64Array) -> None:
        false, true, cuts = metrics.roc(members, others)
        hits = np.rint(true[1:] * len(members)).astype(int)
        called = hits + np.rint(false[1:] * len(others)).astype(int)
        sure = [metrics.clopper_pearson(k, n, 0.1)[0] for k, n in zip(hits, called, strict=True)]
        enough = np.flatnonzero(np.array(sure) >= self.precision)
        last = enough[-1] if len(enough) else None
        self._threshold = np.inf if last is None else float(cuts[1:][last])
        self.shadow_precision_ = float("nan") if last is None else float(hits[last] / called[last])

    def _calibrate(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> float:
        return self._threshold

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        values = np.full(len(y), self._lowest)
        known = np.isin(y, self._known_classes)
        if known.any():
            X = safe_indexing(X, np.flatnonzero(known))
            label = label_columns(y[known], self._known_classes)
            evidence = _displacements(
                self._network, self._proxies, self._inputs(X), label, _folds(fingerprints(X))
            )
            values[known] = np.maximum(self._attack_model.decision_function(evidence), self._lowest)
        return values


def _folds(prints: NDArray[np.uint64]) -> Folds:
    return (prints % np.uint64(N_FOLDS)).astype(np.intp)


def _train_proxies(
    network: Network, inputs: Float64Array, label: NDArray[np.intp], fold: Folds, seed: int
) -> list[list[Network]]:
    """For each fold and each layer, retrain the network from that layer on, on the other folds."""
    return [
        [
            network.retrained(inputs[fold != k], label[fold != k], layer, seed)
            for layer in range(network.n_layers)
        ]
        for k in range(N_FOLDS)
    ]


def _displacements(
    network: Network,
    proxies: list[list[Network]],
    inputs: Float64Array,
    label: NDArray[np.intp],
    fold: Folds,
) -> Float64Array:
    """Return the displacement of weights (times the inputs) and of the bias, for each layer."""
    evidence = np.empty((len(label), 2 * network.n_layers))
    for k in range(N_FOLDS):
        here = fold == k
        if not here.any():
            continue
        layers, odds = network.trace(inputs[here], label[here], "odds")
        for i, proxy in enumerate(proxies[k]):
            layer = layers[i]
            proxy_layers, proxy_odds = proxy.trace(inputs[here], label[here], "odds")
            # Leino & Fredrikson 2020: displacement between the local linear models of target and
            # proxy, at the record
            displaced = (layer.at_inputs - proxy_layers[i].at_inputs) * layer.inputs
            weights = displaced.reshape(len(proxy_odds), -1).sum(axis=1)
            evidence[here, 2 * i] = weights
            evidence[here, 2 * i + 1] = odds - proxy_odds - weights
    return evidence
