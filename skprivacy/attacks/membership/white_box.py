"""White-box membership inference from gradients and activations.

:class:`WhiteBoxAttack` trains an attack model on all layers (Nasr et al. 2019, passive).
:class:`StolenMemoriesAttack` needs no known members (Leino 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..._docs import fill_docs
from ..._extras import name_missing_extra
from ..._input_data import column_or_1d, label_columns
from ..._sklearn import StrOptions, safe_indexing
from ..._validation import Interval, check_random_state
from ...metrics.rates import clopper_pearson, roc
from ..model_answers import entropy, logit, loss, margin
from ..network_view import Layer, Network, open_network
from ..record_tables import fingerprints
from ..updates import nearest_columns
from .classifiers import N_FOLDS, fit_attack_models, fit_folds, member_probabilities, score_folds
from .membership_attack import MEMBERSHIP_DOCS, MembershipAttack

if TYPE_CHECKING:
    from .white_box_encoder import View

Float64Array = NDArray[np.float64]
Folds = NDArray[np.intp]
STOLEN_MEMORIES_FOLDS = 3


@fill_docs(MEMBERSHIP_DOCS)
class WhiteBoxAttack(MembershipAttack):
    """Train an attack model on gradients and activations (Nasr et al. 2019, passive attack).

    The attacker has the network itself. For each record, the inputs of the attack network are every
    layer's loss gradients and activations, the loss and the true class. If ``fit`` is given
    ``y``, it learns to distinguish members from non-members. Otherwise an autoencoder
    compresses its inputs into one number, from which it restores the loss, the entropy of the
    prediction, the norms of the gradients and other figures. Records are ranked by this number.

    Parameters
    ----------
    target : fitted network, default=None
        ``MLPClassifier``, or a classifier whose ``module_`` is a torch module made of linear layers
        and returns logits; alone or at the end of a pipeline.
    attack_model : {"network", "linear"}, default="network"
        "network" is the attack network, which requires torch. "linear" is logistic regression with
        balanced classes on scaled inputs. It needs ``y``, and no torch. Its inputs are the loss,
        the prediction and, for each linear layer, the norm of the record's gradient and statistics
        of the layer's input.
    epochs : int, default=15
        Number of epochs in which the attack network is trained. With ``y``, five networks are
        trained and averaged, each from the epoch that is best on another fifth of the records.
    random_state : int, RandomState instance or None, default=None
        Seed of the attack network.
    %(attack_fpr)s

    Notes
    -----
    With ``y``, every record is scored by an attack model that was not trained on it (5 folds,
    assigned by fingerprint). Otherwise the attack model's overfitting would look like the target's.

    The gradient of a linear layer's weights is the outer product of its inputs and of the gradient
    at its outputs. The paper's convolution, with kernels as wide as the layer, is computed from
    both factors without forming the product.

    The paper had tens of thousands of known members. With fewer, its network overfits. The network
    here is therefore smaller, uses rescaled gradients, and corrects the scores of a linear model.
    The inputs of the linear model are the inputs of "linear", and the alignment of each layer's
    gradient with its weights, which a network would need more members to learn. The paper's
    unsupervised attack ends with a spectral clustering of the numbers into two clusters; here they
    are ranked.

    References
    ----------
    M. Nasr, R. Shokri, A. Houmansadr. Comprehensive privacy analysis of deep learning: passive
    and active white-box inference attacks. IEEE S&P 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skprivacy.attacks import LabeledRecords, WhiteBoxAttack
    >>> X, y = make_classification(400, flip_y=0.5, random_state=0)
    >>> target = MLPClassifier((50,), solver="lbfgs", random_state=0).fit(X[:200], y[:200])
    >>> records, member = LabeledRecords(X, y), np.arange(400) < 200
    >>> attack = WhiteBoxAttack(target, random_state=0).fit(records, member)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.6
    True
    """

    _parameter_constraints = MembershipAttack._parameter_constraints | {
        "attack_model": [StrOptions({"network", "linear"})],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        attack_model: str = "network",
        epochs: int = 15,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        self.target = target
        self.attack_model = attack_model
        self.epochs = epochs
        self.random_state = random_state
        self.fpr = fpr

    @property
    def _needs_members(self) -> bool:  # type: ignore[override]  # depends on a parameter
        return self.attack_model == "linear"

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        if self._needs_members:
            self._models = fit_attack_models(X, self._figures(X, y), member)
            return
        with name_missing_extra():
            from .white_box_encoder import train_decoded, train_labelled

        view = self._view(X, y)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=N_FOLDS)
        if member is None:
            self._models = [train_decoded(view, self.epochs, int(seeds[0]))]
            return

        def train(rows: NDArray[np.intp], k: int) -> Any:
            return train_labelled(view.take(rows), member[rows], self.epochs, int(seeds[k]))

        self._models = fit_folds(X, member, train)

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        if self._needs_members:
            return member_probabilities(self._models, X, self._figures(X, y))
        view = self._view(X, y)
        return score_folds(self._models, X, lambda model, rows: model(view.take(rows)))

    def _figures(self, X: Any, y: NDArray[Any]) -> Float64Array:
        return layer_figures(*self._target_proba(X, y), _trace_loss(self.target, X, y)[0])

    def _view(self, X: Any, y: NDArray[Any]) -> View:
        from .white_box_encoder import View

        proba, label = self._target_proba(X, y)
        layers, loss = _trace_loss(self.target, X, y)
        return View(
            inputs=[layer.inputs for layer in layers],
            gradients=[layer.at_output for layer in layers],
            loss=loss,
            label=np.eye(len(self._label_classes))[label],
            signals=np.column_stack(
                [layer_figures(proba, label, layers), gradient_alignments(layers)]
            ),
        )


def gradient_alignments(layers: Sequence[Layer]) -> Float64Array:
    """Return the projection of each layer's weights on each record's normalised gradient.

    Training moved the weights against members' gradients. For a gradient ``d x'`` and weights
    ``W``, the product is ``d W x``, where ``d W`` is the gradient at the layer's inputs.
    """
    columns = []
    for inputs, gradient, at_inputs in layers:
        norm = np.sqrt(np.sum(inputs**2, axis=1) * np.sum(gradient**2, axis=1))
        columns.append(np.sum(inputs * at_inputs, axis=1) / (norm + 1e-12))
    return np.column_stack(columns)


def _trace_loss(target: Any, X: Any, y: NDArray[Any]) -> tuple[list[Layer], Float64Array]:
    network, as_inputs = open_network(target)
    return network.trace(as_inputs(X), nearest_columns(target, y), "loss")


def layer_figures(
    proba: Float64Array, label: NDArray[np.intp], layers: Sequence[Layer]
) -> Float64Array:
    """Return four figures of each prediction and three of each layer; column 4 is a log norm."""
    # the unsupervised white-box attack relies on the position of the first gradient norm
    columns = [loss(proba, label), logit(proba, label)]
    columns += [entropy(proba, label), margin(proba, label)]
    for inputs, gradient, _ in layers:
        size = np.sum(inputs**2, axis=1)
        # The gradient of a linear layer is the outer product of ``gradient`` and (inputs, 1), so
        # its norm is the product of their norms.
        norm = np.sqrt((size + 1) * np.sum(gradient**2, axis=1))
        columns += [np.log(norm + 1e-12), np.sqrt(size), inputs.mean(axis=1)]
    return np.column_stack(columns)


class StolenMemoriesAttack(MembershipAttack):
    """Compare a network with proxies, white-box: stolen memories (Leino & Fredrikson 2020).

    A network uses some features in a way that is peculiar to its training records. Proxy networks
    show how these features are used otherwise: for each layer, this layer and all later layers are
    retrained on the attacker's records. Their inputs are the outputs of the target's earlier
    layers. The evidence of a layer is the difference between the local linear approximations of
    target and proxy. A shadow network, whose members the attacker knows, determines the weights of
    the layers and calibrates the threshold. No member of the target needs to be known.

    Parameters
    ----------
    target : fitted network or linear classifier, default=None
        ``MLPClassifier``; a linear model (``coef_``); a torch module that returns logits, or a
        classifier that has one as ``module_``; alone or at the end of a pipeline. The classes of
        a bare torch module are 0, 1, ...
    precision : float, default=0.9
        ``predict`` calls as many records members as possible, while at least this share of the
        calls is right with 95% confidence. This is measured on the shadow network, half of whose
        records are members. If it has no such threshold, ``predict`` calls no record a member.
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
    The approximated function is the log-odds of the record's class, since a logit is defined only
    up to a constant. Its weights and its bias are weighted separately. Every record is
    scored by proxies that were not trained on it (3 folds, assigned by fingerprint), and no proxy
    is trained on records that ``y`` marks as members. With L layers, ``6 L + 1`` networks or
    upper parts of networks are trained. A record of a class unknown to the target scores lowest.

    References
    ----------
    K. Leino, M. Fredrikson. Stolen memories: leveraging model memorization for calibrated
    white-box membership inference. USENIX Security 2020.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skprivacy.attacks import LabeledRecords, StolenMemoriesAttack
    >>> X, y = make_classification(1200, 60, flip_y=0.3, random_state=0)
    >>> target = MLPClassifier((30,), solver="lbfgs", random_state=0).fit(X[:300], y[:300])
    >>> records = LabeledRecords(X, y)
    >>> attack = StolenMemoriesAttack(target).fit(records[600:])
    >>> attack.evaluate(records[:300], records[300:600]).auc > 0.6
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
        if min(np.bincount(fold, minlength=STOLEN_MEMORIES_FOLDS)) < 2 * STOLEN_MEMORIES_FOLDS:
            raise ValueError(
                f"X holds {len(y)} non-members of known classes; expected dozens. Pass more "
                "records to fit, to train proxies on."
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._proxies = _train_proxies(self._network, inputs, label, fold, seed)
        # Leino & Fredrikson 2020: a shadow network, trained on half of the attacker's records,
        # calibrates the attack. The remainder of the fingerprint assigns the fold, its quotient the
        # half.
        half = prints // np.uint64(STOLEN_MEMORIES_FOLDS) % np.uint64(2) == 0
        shadow = self._network.retrained(inputs[half], label[half], 0, seed + 1)
        proxies = _train_proxies(shadow, inputs[~half], label[~half], fold[~half], seed + 2)
        evidence = _compute_displacements(shadow, proxies, inputs, label, fold)
        self._attack_model = make_pipeline(
            StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000)
        ).fit(evidence, half)
        known = self._attack_model.decision_function(evidence)
        self._lowest = float(known.min()) - 1.0
        self._choose_threshold(known[half], known[~half])

    def _choose_threshold(self, members: Float64Array, others: Float64Array) -> None:
        false, true, cuts = roc(members, others)
        hits = np.rint(true[1:] * len(members)).astype(int)
        called = hits + np.rint(false[1:] * len(others)).astype(int)
        sure = [clopper_pearson(k, n, 0.1)[0] for k, n in zip(hits, called, strict=True)]
        enough = np.flatnonzero(np.array(sure) >= self.precision)
        last = enough[-1] if len(enough) else None
        self._threshold = np.inf if last is None else float(cuts[1:][last])
        self.shadow_precision_ = float("nan") if last is None else float(hits[last] / called[last])

    def _calibrate(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> float:
        return self._threshold

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        y = column_or_1d(y)
        values = np.full(len(y), self._lowest)
        known = np.isin(y, self._known_classes)
        if known.any():
            X = safe_indexing(X, np.flatnonzero(known))
            label = label_columns(y[known], self._known_classes)
            evidence = _compute_displacements(
                self._network, self._proxies, self._inputs(X), label, _folds(fingerprints(X))
            )
            values[known] = np.maximum(self._attack_model.decision_function(evidence), self._lowest)
        return values


def _folds(prints: NDArray[np.uint64]) -> Folds:
    return (prints % np.uint64(STOLEN_MEMORIES_FOLDS)).astype(np.intp)


def _train_proxies(
    network: Network, inputs: Float64Array, label: NDArray[np.intp], fold: Folds, seed: int
) -> list[list[Network]]:
    """For each fold and each layer, retrain the network from that layer on, on the other folds."""
    return [
        [
            network.retrained(inputs[fold != k], label[fold != k], layer, seed)
            for layer in range(network.n_layers)
        ]
        for k in range(STOLEN_MEMORIES_FOLDS)
    ]


def _compute_displacements(
    network: Network,
    proxies: list[list[Network]],
    inputs: Float64Array,
    label: NDArray[np.intp],
    fold: Folds,
) -> Float64Array:
    """Return the displacement of weights (times the inputs) and of the bias, for each layer."""
    evidence = np.empty((len(label), 2 * network.n_layers))
    for k in range(STOLEN_MEMORIES_FOLDS):
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
