"""White-box membership inference from gradient norms and a few figures of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .._blas import one_blas_thread
from .._sklearn import HasMethods
from . import scores
from ._networks import Layer, open_network
from ._predictions import class_list
from ._records import fingerprints
from .membership import MembershipAttack

__all__ = ["GradientNormAttack", "layer_figures", "linear_model"]

Float64Array = NDArray[np.float64]
N_FOLDS = 5


class GradientNormAttack(MembershipAttack):
    """Infer membership from the gradient norm of every layer, with a linear attack model.

    The attacker has the network itself and knows the membership of some records. The inputs of the
    attack model are, for each linear layer, the norm of the record's gradient and statistics of the
    layer's input, in addition to the loss and the prediction. :class:`WhiteBoxAttack` uses the
    gradients themselves; this attack does not need torch and takes a fraction of the time.

    Parameters
    ----------
    target : fitted network, default=None
        ``MLPClassifier``, or a classifier whose ``module_`` is a torch module made of linear
        layers and returns logits; alone or at the end of a pipeline.
    attack_model : classifier with ``predict_proba``, default=None
        Learns membership. None: logistic regression with balanced classes on scaled features.
    fpr : float, default=0.05
        Ignored: the threshold is set on the records of known membership.

    Notes
    -----
    ``fit`` needs ``member``. Every record is scored by an attack model that was not fitted on it
    (5 folds, assigned by fingerprint). Otherwise the attack model's overfitting would look like the
    target's.

    References
    ----------
    M. Nasr, R. Shokri, A. Houmansadr. Comprehensive privacy analysis of deep learning: passive
    and active white-box inference attacks. IEEE S&P 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skprivacy.attacks import GradientNormAttack
    >>> X, y = make_classification(400, flip_y=0.5, random_state=0)
    >>> target = MLPClassifier((50,), solver="lbfgs", random_state=0).fit(X[:200], y[:200])
    >>> attack = GradientNormAttack(target).fit(X, y, np.arange(400) < 200)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.6
    True
    """

    _needs_members = True

    _parameter_constraints: dict[str, Any] = {
        **MembershipAttack._parameter_constraints,
        "attack_model": [HasMethods(["fit", "predict_proba"]), None],
    }

    def __init__(self, target: Any = None, *, attack_model: Any = None, fpr: float = 0.05) -> None:
        self.target = target
        self.attack_model = attack_model
        self.fpr = fpr

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        if member is None:
            raise ValueError(
                "member=None must be one bool for each record, because this attack learns from "
                "records of known membership. Call fit(X, y, member)."
            )
        base = linear_model() if self.attack_model is None else self.attack_model
        features, fold = self._view(X, y), fingerprints(X) % N_FOLDS
        self._models = []
        for k in range(N_FOLDS):
            others = fold != k
            if len(np.unique(member[others])) < 2:
                raise ValueError(
                    f"member holds {int(member.sum())} members and {int((~member).sum())} "
                    f"non-members, too few to hold out one fold of {N_FOLDS}. Pass more records."
                )
            with one_blas_thread():
                self._models.append(clone(base).fit(features[others], member[others]))

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        features, fold = self._view(X, y), fingerprints(X) % N_FOLDS
        values = np.empty(len(features))
        for k, model in enumerate(self._models):
            if (fold == k).any():
                values[fold == k] = model.predict_proba(features[fold == k])[:, -1]
        return values

    def _view(self, X: Any, y: NDArray[Any]) -> Float64Array:
        network, as_inputs = open_network(self.target)
        classes = np.asarray(self.target.classes_)
        class_list(classes, y)
        column = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
        layers = network.trace(as_inputs(X), column, "loss")[0]
        return layer_figures(*self._target_proba(X, y), layers)


def linear_model() -> Any:
    """Return the default attack model."""
    return make_pipeline(
        StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000)
    )


def layer_figures(
    proba: Float64Array, label: NDArray[np.intp], layers: Sequence[Layer]
) -> Float64Array:
    """Return four figures of each prediction and three of each layer; column 4 is a log norm."""
    # the unsupervised white-box attack relies on the position of the first gradient norm
    columns = [scores.loss(proba, label), scores.logit(proba, label)]
    columns += [scores.entropy(proba, label), scores.margin(proba, label)]
    for inputs, gradient, _ in layers:
        size = np.sum(inputs**2, axis=1)
        # The gradient of a linear layer is the outer product of ``gradient`` and (inputs, 1), so
        # its norm is the product of their norms.
        norm = np.sqrt((size + 1) * np.sum(gradient**2, axis=1))
        columns += [np.log(norm + 1e-12), np.sqrt(size), inputs.mean(axis=1)]
    return np.column_stack(columns)
