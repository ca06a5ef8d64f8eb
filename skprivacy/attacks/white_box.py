"""White-box membership inference from gradients and activations (Nasr et al. 2019, passive)."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._docs import fill_docs
from .._torch import torch_is_named
from .._validation import Interval, check_random_state
from ._networks import Layer, open_network
from ._records import fingerprints
from .gradient_norm import layer_figures
from .membership import MembershipAttack

if TYPE_CHECKING:
    from ._membership_net import View

__all__ = ["WhiteBoxAttack"]

Float64Array = NDArray[np.float64]
N_FOLDS = 5


@fill_docs
class WhiteBoxAttack(MembershipAttack):
    """Train an attack network on gradients and activations (Nasr et al. 2019, passive attack).

    The attacker has the network itself. For each record, the inputs of the attack network are every
    layer's loss gradients and activations, the loss and the true class. If ``fit`` is given
    ``member``, it learns to distinguish members from non-members. Otherwise an autoencoder
    compresses its inputs into one number, from which it restores the loss, the entropy of the
    prediction, the norms of the gradients and other figures. Records are ranked by this number.

    Parameters
    ----------
    target : fitted network, default=None
        ``MLPClassifier``, or a classifier whose ``module_`` is a torch module made of linear
        layers and returns logits; alone or at the end of a pipeline.
    epochs : int, default=15
        Number of epochs in which the attack network is trained. With ``member``, five networks are
        trained and averaged, each from the epoch that is best on another fifth of the records.
    random_state : int, RandomState instance or None, default=None
        Seed of the attack network.
    %(attack_fpr)s

    Notes
    -----
    Requires torch. With ``member``, every record is scored by an attack network that was not
    trained on it (5 folds, assigned by fingerprint). Otherwise the attack network's overfitting
    would look like the target's.

    The gradient of a linear layer's weights is the outer product of its inputs and of the gradient
    at its outputs. The paper's convolution, with kernels as wide as the layer, is computed from
    both factors without forming the product.

    The paper had tens of thousands of known members. With fewer, its network overfits. The network
    here is therefore smaller, uses rescaled gradients, and corrects the scores of a linear model.
    The linear model takes the figures of :class:`GradientNormAttack`, and the alignment of each
    layer's gradient with its weights, which few members are not enough to teach a network. The
    paper's unsupervised attack ends with a spectral clustering of the numbers into two clusters;
    here they are ranked.

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
    >>> X, y = make_classification(200, flip_y=0.5, random_state=0)
    >>> target = MLPClassifier((50,), solver="lbfgs", random_state=0).fit(X[:100], y[:100])
    >>> attack = WhiteBoxAttack(target, random_state=0).fit(X, y, np.arange(200) < 100)
    >>> attack.evaluate(X[:100], y[:100], X[100:], y[100:]).auc > 0.6
    True
    """

    _parameter_constraints: dict[str, Any] = {
        **MembershipAttack._parameter_constraints,
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        target: Any = None,
        *,
        epochs: int = 15,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        self.target = target
        self.epochs = epochs
        self.random_state = random_state
        self.fpr = fpr

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        with torch_is_named():
            from ._membership_net import train_decoded, train_labelled

        view = self._view(X, y)
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=N_FOLDS)
        if member is None:
            self._models = [train_decoded(view, self.epochs, int(seeds[0]))]
            return
        fold, self._models = fingerprints(X) % N_FOLDS, []
        for k in range(N_FOLDS):
            others = np.flatnonzero(fold != k)
            if len(np.unique(member[others])) < 2:
                raise ValueError(
                    f"member holds {int(member.sum())} members and {int((~member).sum())} "
                    f"non-members, too few to hold out one fold of {N_FOLDS}. Pass more records."
                )
            self._models.append(
                train_labelled(view.take(others), member[others], self.epochs, int(seeds[k]))
            )

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        view, fold = self._view(X, y), fingerprints(X) % len(self._models)
        values = np.empty(len(y))
        for k, model in enumerate(self._models):
            if (fold == k).any():
                values[fold == k] = model(view.take(fold == k))
        return values

    def _view(self, X: Any, y: NDArray[Any]) -> View:
        from ._membership_net import View

        proba, label = self._target_proba(X, y)
        network, as_inputs = open_network(self.target)
        known = np.asarray(self.target.classes_)
        column = np.minimum(np.searchsorted(known, y), len(known) - 1)
        layers, loss = network.trace(as_inputs(X), column, "loss")
        return View(
            inputs=[layer.inputs for layer in layers],
            gradients=[layer.at_output for layer in layers],
            loss=loss,
            label=np.eye(len(self.classes_))[label],
            signals=np.column_stack(
                [layer_figures(proba, label, layers), gradient_alignments(layers)]
            ),
        )


def gradient_alignments(layers: Sequence[Layer]) -> Float64Array:
    """Return the projection of each layer's weights on each record's normalised gradient.

    Each training step moved the weights against the gradients of its records, so the weights are
    made of members' gradients. The gradient is the outer product of ``d`` and ``x``. Its inner
    product with the weights ``W`` is ``d W x``, and ``d W`` is the gradient at the layer's inputs.
    """
    columns = []
    for inputs, gradient, at_inputs in layers:
        norm = np.sqrt(np.sum(inputs**2, axis=1) * np.sum(gradient**2, axis=1))
        columns.append(np.sum(inputs * at_inputs, axis=1) / (norm + 1e-12))
    return np.column_stack(columns)
