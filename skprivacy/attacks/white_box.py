"""White-box membership: what each layer of a network does with a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from .._sklearn import HasMethods
from . import scores
from ._predictions import label_columns
from ._records import fingerprints
from .membership import MembershipAttack

__all__ = ["WhiteBoxAttack"]

Floats = NDArray[np.float64]
N_FOLDS = 5
# of a layer's output, as a function of that output
SLOPES: dict[str, Callable[[Floats], Floats]] = {
    "identity": np.ones_like,
    "logistic": lambda a: a * (1 - a),
    "tanh": lambda a: 1 - a**2,
    "relu": lambda a: (a > 0).astype(float),
}
ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "identity": lambda z: z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
}


class WhiteBoxAttack(MembershipAttack):
    """Membership from gradients and activations of every layer (after Nasr et al. 2019).

    The attacker has the network itself and knows the membership of some records. An attack model
    sees, for each linear layer, the norm of the record's gradient and statistics of the layer's
    input, beside loss and prediction.

    Parameters
    ----------
    target : fitted network, default=None
        ``MLPClassifier``, or a classifier whose ``module_`` is a torch module made of linear
        layers that returns logits; alone or at the end of a pipeline.
    attack_model : classifier with ``predict_proba``, default=None
        Learns membership. None: logistic regression with balanced classes on scaled features.
    fpr : float, default=0.05
        False positive rate that ``predict`` aims at; not used, since membership is known.

    Notes
    -----
    ``fit`` needs ``member``. Every record is judged by an attack model that was not fitted on it
    (5 folds, told by its fingerprint): otherwise the attack model's memory would be taken for
    the target's.

    References
    ----------
    M. Nasr, R. Shokri, A. Houmansadr. Comprehensive privacy analysis of deep learning: passive
    and active white-box inference attacks. IEEE S&P 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skprivacy.attacks import WhiteBoxAttack
    >>> X, y = make_classification(400, flip_y=0.5, random_state=0)
    >>> target = MLPClassifier((50,), solver="lbfgs", random_state=0).fit(X[:200], y[:200])
    >>> attack = WhiteBoxAttack(target).fit(X, y, np.arange(400) < 200)
    >>> attack.evaluate(X[:200], y[:200], X[200:], y[200:]).auc > 0.6
    True
    """

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
                "member=None: this attack learns from records of known membership. Give fit "
                "`member`, one bool for each record."
            )
        default = make_pipeline(
            StandardScaler(), LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000)
        )
        base = default if self.attack_model is None else self.attack_model
        features, fold = self._view(X, y), fingerprints(X) % N_FOLDS
        self._models = []
        for k in range(N_FOLDS):
            others = fold != k
            if len(np.unique(member[others])) < 2:
                raise ValueError("Too few members or non-members to hold out a fold of 5.")
            self._models.append(clone(base).fit(features[others], member[others]))

    def _score(self, X: Any, y: NDArray[Any]) -> Floats:
        features, fold = self._view(X, y), fingerprints(X) % N_FOLDS
        values = np.empty(len(features))
        for k, model in enumerate(self._models):
            if (fold == k).any():
                values[fold == k] = model.predict_proba(features[fold == k])[:, -1]
        return values

    def _view(self, X: Any, y: NDArray[Any]) -> Floats:
        proba, label = self._target_proba(X, y)
        columns = [scores.loss(proba, label), scores.logit(proba, label)]
        columns += [scores.entropy(proba, label), scores.margin(proba, label)]
        net, own = self.target, X
        if isinstance(net, Pipeline):
            net, own = net.steps[-1][1], net[:-1].transform(X) if len(net.steps) > 1 else X
        own = own.toarray() if hasattr(own, "toarray") else np.asarray(own)
        place = label_columns(y, np.asarray(net.classes_))
        for inputs, gradient in _layers(net, own, place):
            size = np.sum(inputs**2, axis=1)
            # the gradient of a linear layer is an outer product: so is its norm a product
            norm = np.sqrt((size + 1) * np.sum(gradient**2, axis=1))
            columns += [np.log(norm + 1e-12), np.sqrt(size), inputs.mean(axis=1)]
        return np.column_stack(columns)


def _layers(net: Any, X: Any, place: NDArray[np.intp]) -> Iterator[tuple[Floats, Floats]]:
    """Yield the input of each linear layer and the loss's gradient at its output."""
    if isinstance(net, MLPClassifier):
        return _numpy_layers(net, X, place)
    if hasattr(net, "module_"):
        return _torch_layers(net.module_, X, place)
    raise TypeError(
        f"{type(net).__name__} is neither an MLPClassifier nor has it a torch module_; the "
        "white-box attack reads the layers of a network. Use LiRA."
    )


def _numpy_layers(
    net: MLPClassifier, X: Any, place: NDArray[np.intp]
) -> Iterator[tuple[Floats, Floats]]:
    inputs = [np.asarray(X, dtype=float)]
    for weight, bias in zip(net.coefs_[:-1], net.intercepts_[:-1], strict=True):
        inputs.append(ACTIVATIONS[net.activation](inputs[-1] @ weight + bias))
    logits = inputs[-1] @ net.coefs_[-1] + net.intercepts_[-1]
    if logits.shape[1] == 1:
        gradient = expit(logits) - place[:, None]
    else:
        gradient = softmax(logits, axis=1) - np.eye(logits.shape[1])[place]
    for layer in reversed(range(len(inputs))):
        yield inputs[layer], gradient
        gradient = (gradient @ net.coefs_[layer].T) * SLOPES[net.activation](inputs[layer])


def _torch_layers(module: Any, X: Any, place: NDArray[np.intp]) -> Iterator[tuple[Floats, Floats]]:
    import torch

    seen: list[tuple[Any, Any]] = []

    def record(_: Any, inputs: tuple[Any, ...], output: Any) -> None:
        seen.append((inputs[0], output))

    was_training, module = module.training, module.eval()
    linear = [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)]
    handles = [layer.register_forward_hook(record) for layer in linear]
    like = next(module.parameters())
    before = [weight.requires_grad for weight in module.parameters()]
    try:
        module.requires_grad_(True)
        logits = module(torch.as_tensor(np.asarray(X), dtype=like.dtype, device=like.device))
        truth = torch.as_tensor(place, device=like.device)
        if logits.ndim == 1 or logits.shape[1] == 1:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                logits.reshape(-1), truth.to(logits.dtype), reduction="sum"
            )
        else:
            loss = torch.nn.functional.cross_entropy(logits, truth, reduction="sum")
        gradients = torch.autograd.grad(loss, [output for _, output in seen])
    finally:
        for handle in handles:
            handle.remove()
        for weight, flag in zip(module.parameters(), before, strict=True):
            weight.requires_grad_(flag)
        module.train(was_training)
    for (inputs, _), gradient in zip(seen, gradients, strict=True):
        yield (
            inputs.detach().cpu().numpy().astype(float),
            gradient.detach().cpu().numpy().astype(float),
        )
