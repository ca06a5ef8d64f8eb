"""DPSGDClassifier: a neural network classifier trained with DP-SGD (Abadi et al. 2016)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._docs import fill_docs
from .._input_data import ClassifierMixin, column_or_1d, single_precision
from .._sklearn import StrOptions
from .._stacked.stacked_dpsgd import PrivateTask, is_supported
from ..accounting import PrivacyBudget
from ..base import PrivateFit, public_classes
from ._gradients.losses import LabelEntropy
from ._gradients.perceptron import PerceptronGradients
from ._gradients.trial import Probe
from ._training.torch_modes import ordinary_torch
from .network import PrivateNetwork
from .network_parameters import NETWORK_CONSTRAINTS, NETWORK_DOCS
from .settings import (
    Clipping,
    Distributed,
    Optimizer,
    PublicFacts,
    Recipe,
    do_bins_pay_off,
    held_out_share,
    starts_from_quantiles,
)

_MANY_RECORDS = 1 << 30


@fill_docs(NETWORK_DOCS)
class DPSGDClassifier(ClassifierMixin, PrivateNetwork):
    """Multi-layer perceptron classifier trained with DP-SGD (Abadi et al. 2016, Algorithm 1).

    Each step draws a random batch, clips the gradient of every record in it to ``max_grad_norm``,
    sums the gradients, adds Gaussian noise and updates the weights. The noise is calibrated to
    ``epsilon``, ``delta``, the batch size and the number of steps.

    Parameters
    ----------
    %(network_model)s
    max_grad_norm : float, Clipping or "auto", default="auto"
        L2 norm to which the gradient of each record is clipped. "auto" is 1, larger with
        ``class_prior``, and no limit without privacy. A :class:`Clipping` also sets the way.
    %(network_optimization)s
    classes : array-like of shape (n_classes,), default=None
        All labels that may occur, from public knowledge. ``None`` reads them off ``y``, and the
        guarantee then names this as an assumption. With several labels per record: the names of
        the columns of ``y``, in their order; ``None`` numbers them.
    class_prior : dict or array-like of shape (n_classes,), default=None
        Public guess of the share of each class: by label, or in the order of ``classes``. It must
        not be counted in ``y``. For rare classes: training starts from these shares, and "auto"
        settings suit them, see the notes. Not for several labels per record.
    class_weight : dict or "balanced", default=None
        Public factors of the loss for some labels, applied before gradients are clipped. "balanced"
        needs ``class_prior``, divides by it, and gives the rarest class the factor 1. With
        ``class_prior``, ``predict_proba`` undoes the factors.
    %(network_run)s

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted. With several labels per record, in the order of the columns of ``y``.
    class_prior_ : ndarray of shape (n_classes,) or None
        The public shares from ``class_prior``, in the order of ``classes_``.
    class_weight_ : ndarray of shape (n_classes,)
        Factors of the loss in the last training, in the order of ``classes_``.
    multilabel_ : bool
        Whether a record may have several labels.
    module_ : torch.nn.Module
        The trained network, on the CPU: maps inputs of shape (n, n_features) to logits.
    %(fitted_network)s

    Notes
    -----
    %(network_guarantees)s

    **"auto" settings** follow from public facts only: the number n of records (``n_records`` if
    given), d of features and k of classes, ``epsilon`` and ``delta``. Let mu be the Gaussian-DP
    parameter of ``epsilon`` and ``delta``, and s = n * mu.

    - The training time, which is the number of steps times the learning rate, is
      t = 0.5 * s / sqrt(d). Without hidden layers it is twice that.
    - There are 32 * sqrt(t) steps, from 128 to 1,536, in batches of min(n / 4, 1024).
    - The learning rate is t / steps, at most 2, divided by ``max_grad_norm``. It falls linearly to
      zero.
    - There are 64 tanh units. There are none if s is below 5 * sqrt(64 * (d + k + 1) + k), because
      noise would outweigh what they learn.

    With ``class_prior``, let r be its least share times k: 1 if all shares are even.

    - Outputs start at the shares, unless there is a ``module``.
    - There are units only if r * s reaches the bound, and they train for r ** 0.25 times as long.
    - ``max_grad_norm`` is r ** -0.25 with units, and at most 2 without. It is 1 with a
      ``class_weight``.

    Given settings stay, and the "auto" settings adapt to them. With ``module`` or
    ``noise_multiplier``, and for streams, training has 30 epochs in batches of n / 4. The step size
    is then constant, ``min(1, 0.35 / sqrt(r)) / max_grad_norm``. Here r is the norm of a step's
    noise, divided by the largest norm that a step's mean gradient can have.

    With ``epsilon=numpy.inf`` nothing is private, and "auto" means another network. A tenth of the
    records (at most 5,000) is held out: training ends once their loss no longer falls, and the best
    average of weights becomes the model. The first layer separates quantiles of each column (n /
    200, from 10 to 32), for up to 64 columns of numbers; 128 tanh units follow. An L1 penalty of
    min(0.3, 1000 / n) * min(1, d / 10) drops columns without effect. The optimizer is Adam, without
    clipping. Its rate falls from 0.003 to zero in 8,000 steps, or 100 epochs, of batches of 128.
    From 5,120 records on, batches grow up to 512 and steps are fewer. Given layers, and tables
    without such columns, have ReLU units (256), and neither quantiles nor a penalty. Given epochs,
    fewer than 2,000 records, ``augment`` and several processes hold nothing out; nor does a
    ``module``, with a rate of 0.001. If ``learning_rate`` is given, training is clipped gradient
    descent on tanh units, as with privacy.

    %(network_edge_cases)s
    A class without records gets low probabilities.

    References
    ----------
    M. Abadi et al., "Deep learning with differential privacy", CCS 2016.

    S. De et al., "Unlocking high-accuracy differentially private image classification through
    scale", 2022 (augmentation multiplicity).

    V. Doroshenko et al., "Connect the dots: tighter discrete approximations of privacy loss
    distributions", PoPETs 2022.

    Examples
    --------
    >>> from skprivacy.neural_network import DPSGDClassifier
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DPSGDClassifier(epsilon=8.0, classes=range(10)).fit(X / 16, y)
    >>> model.privacy_
    (8.00, 1e-05)-DP, zero-out, floating-point noise, proved assuming the number of records is
    public
    >>> model.score(X / 16, y) > 0.6
    True
    """

    class_prior_: NDArray[np.float64] | None
    multilabel_: bool

    _parameter_constraints: dict = {
        **NETWORK_CONSTRAINTS,
        "classes": ["array-like", None],
        "class_prior": [dict, "array-like", None],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    _target_checks = {"multi_output": True}

    def __init__(
        self,
        *,
        hidden_layer_sizes: tuple[int, ...] | str = "auto",
        module: Any = None,
        augment: Any = None,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
        noise: str = "gaussian",
        max_grad_norm: float | str | Clipping = "auto",
        batch_size: int | str = "auto",
        epochs: int | str = "auto",
        optimizer: str | Optimizer = "auto",
        learning_rate: float | str = "auto",
        classes: ArrayLike | None = None,
        class_prior: Mapping[Any, float] | ArrayLike | None = None,
        class_weight: dict | str | None = None,
        relation: str = "zero_out",
        n_records: int | None = None,
        max_group_size: int | None = 2,
        device: str | Distributed = "auto",
        random_state: int | np.random.RandomState | None = None,
        noise_seed: int | None = None,
        budget: PrivacyBudget | None = None,
        **module_params: Any,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.module = module
        self.augment = augment
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.noise = noise
        self.max_grad_norm = max_grad_norm
        self.batch_size = batch_size
        self.epochs = epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.classes = classes
        self.class_prior = class_prior
        self.class_weight = class_weight
        self.relation = relation
        self.n_records = n_records
        self.max_group_size = max_group_size
        self.device = device
        self.random_state = random_state
        self.noise_seed = noise_seed
        self.budget = budget
        self._set_module_params(module_params)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> DPSGDClassifier:
        """Train for another ``epochs``, on the same or other records, at another ``epsilon``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            As the parameter of the same name; used by the first call only.
        %(continued_fit)s
        """
        return self._fit(X, y, groups, not hasattr(self, "module_"), classes)

    def _validate_params(self) -> None:
        if isinstance(self.class_weight, str) and self.class_prior is None:
            raise ValueError(
                f"class_weight={self.class_weight!r} would count the private labels. Pass a public "
                "class_prior=, or public numbers, such as class_weight={0: 1.0, 1: 3.0}."
            )
        super()._validate_params()

    def _encode(
        self, fit: PrivateFit, y: Any, first: bool, classes: ArrayLike | None = None
    ) -> NDArray[Any]:
        labels = _dense(y)
        given = (self.classes if classes is None else classes) if first else self.classes_
        multilabel = labels.ndim == 2
        if not first and multilabel != self.multilabel_:
            raise ValueError(
                f"y has {labels.ndim} dimensions; expected {2 if self.multilabel_ else 1}, as in "
                "fit. Pass y of the same form, or call fit to start again."
            )
        self.multilabel_ = multilabel
        targets: NDArray
        if multilabel:
            self.classes_, targets = _encode_columns(labels, given)
        else:
            self.classes_, targets = public_classes(fit, labels, given)
        if first:
            self.class_prior_ = self._read_prior(given)
        self.class_weight_ = self._read_weights()
        return targets

    def _read_prior(self, classes: ArrayLike | None) -> NDArray[np.float64] | None:
        """Return the public shares in the order of ``classes_``, checked."""
        if self.class_prior is None:
            return None
        if self.multilabel_:
            raise ValueError(
                f"class_prior={self.class_prior!r} is for one label per record, but y has several "
                "columns. Leave it out."
            )
        labels = self.classes_.tolist()
        if isinstance(self.class_prior, Mapping):
            shares = dict(self.class_prior)
        else:
            order = labels if classes is None else np.asarray(classes).tolist()
            each = list(np.asarray(self.class_prior).tolist())
            shares = dict(zip(order, each, strict=True)) if len(order) == len(each) else {}
        found: list[Any] = [shares.get(label) for label in labels]
        if len(shares) != len(labels) or not _are_positive(found) or abs(sum(found) - 1) > 1e-6:
            raise ValueError(
                f"class_prior={self.class_prior!r} must give a positive share to every one of the "
                "classes, and sum to 1. Pass a dict such as {0: 0.99, 1: 0.01}."
            )
        return np.array(found, dtype=np.float64) / sum(found)

    def _read_weights(self) -> NDArray[np.float64]:
        """Return the public factors of the loss in the order of ``classes_``, checked."""
        if isinstance(self.class_weight, str):
            if self.class_prior_ is None:
                raise ValueError(
                    f"class_weight={self.class_weight!r} needs class_prior, which the first "
                    "training did not have. Call fit to start again."
                )
            # Gradients are clipped after weighting: a factor above 1 would only be cut off.
            return self.class_prior_.min() / self.class_prior_
        given = dict(self.class_weight or {})
        found = [given.pop(label, 1.0) for label in self.classes_.tolist()]
        if given or not _are_positive(found):
            raise ValueError(
                f"class_weight={self.class_weight!r} must map labels in "
                f"classes={self.classes_.tolist()!r} to positive numbers."
            )
        return np.array(found, dtype=np.float64)

    def _public_facts(self, n: int, n_features: int, n_outputs: int) -> PublicFacts:
        facts = super()._public_facts(n, n_features, n_outputs)
        prior = getattr(self, "class_prior_", None)
        if prior is None:
            return facts
        rarity, weighted = len(prior) * float(prior.min()), self.class_weight is not None
        return replace(facts, rarity=rarity, weighted=weighted)

    def _make_module(self, recipe: Recipe, random_state: Any) -> nn.Module:
        module = super()._make_module(recipe, random_state)
        if self.class_prior_ is not None and self.module is None:
            # Training would first push all outputs towards the frequent classes, and would take
            # the hidden layers with them.
            logits = np.log(self.class_prior_ * self.class_weight_)
            *_, last = module.parameters()
            last.data.copy_(torch.from_numpy(logits - logits.mean()))
        return module

    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _needs_bins(self, n: int, n_bits: int) -> bool:
        """Return whether bits of public bins pay off in a fit to ``n`` records or groups."""
        self._validate_params()
        facts = self._public_facts(n, n_features=n_bits, n_outputs=1)
        return not starts_from_quantiles(self._settings(), facts) and do_bins_pay_off(facts, n_bits)

    def _loss(self) -> nn.Module:
        weight = None
        if self.class_weight is not None:
            weight = torch.tensor(self.class_weight_, dtype=torch.float32, device="cpu")
        if self.multilabel_:
            return LabelEntropy(weight)
        return nn.CrossEntropyLoss(weight, reduction="none")

    def _probe(self, device: str, views: int) -> Probe:
        shape, labels = (self.n_features_in_,), self.multilabel_
        return Probe.for_shape(shape, self._n_outputs(), device, views, labels=labels)

    def _stacked_training(
        self, n_records: float = math.inf
    ) -> Callable[[ArrayLike, ArrayLike], PrivateTask] | None:
        """Return a function that describes a shadow model's fit for a stack, or None."""
        undoes_weights = self.class_prior is not None and self.class_weight is not None
        built_in = self.module is None and not self._module_params() and self._processes is None
        if type(self) is not DPSGDClassifier or undoes_weights or not built_in:
            return None
        try:
            self._validate_params()
            # The options that a stack may lack do not depend on these public facts.
            config = self._plan(1, self._recipe(1, 1, 2))
        except ValueError:
            return None  # fit raises the error
        most = int(min(n_records, _MANY_RECORDS))
        if held_out_share(self._settings(), self._public_facts(most, 1, 2)):
            return None
        return self._describe_fit if is_supported(config) else None

    @ordinary_torch("cpu")
    def _describe_fit(self, X: ArrayLike, y: ArrayLike) -> PrivateTask:
        rows, y = self._rows(X, y, True)
        targets = self._encode(PrivateFit(self), y, True)
        n_classes = len(self.classes_)
        recipe = self._recipe(len(rows), rows.shape[1], n_classes)
        config = self._plan(len(rows), recipe)
        module = self._make_module(recipe, self.random_state)
        loss: Any = self._loss()
        weight, loss.weight = loss.weight, None  # all else must be as the perceptron has it
        if not PerceptronGradients.fits(module, loss):
            raise NotImplementedError(f"Stacked training supports neither {module} nor {loss}.")
        layers = [layer for layer in module.children() if isinstance(layer, nn.Linear)]
        return PrivateTask(
            config=config.with_noise_for(self.epsilon, self.delta, self.noise_multiplier),
            inputs=single_precision(rows),
            targets=targets.astype(np.intp),
            classes=self.classes_,
            layers=[
                (m.weight.detach().numpy().T.copy(), m.bias.detach().numpy().copy()) for m in layers
            ],
            activation=recipe.activation,
            loss_weight=np.ones(n_classes, np.float32) if weight is None else weight.numpy(),
        )

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class, or of each label by itself.

        With ``class_prior``, the factors of ``class_weight`` are undone: probabilities are on the
        scale of the shares of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers, on the scale of the training data.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        check_is_fitted(self, "module_")
        if self.multilabel_:
            return self._outputs(X, torch.sigmoid)
        if self.class_prior_ is None:
            return self._outputs(X, lambda z: z.softmax(1))
        shift = torch.from_numpy(np.log(self.class_weight_))
        return self._outputs(X, lambda z: (z - shift).softmax(1))

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the most probable class of each row, or all labels more probable than not.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Finite numbers, on the scale of the training data.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_labels)
            Labels out of ``classes_``, or zeros and ones.
        """
        probabilities = self.predict_proba(X)
        if self.multilabel_:
            return (probabilities > 0.5).astype(np.int64)
        return self.classes_[probabilities.argmax(1)]


def _are_positive(values: list[Any]) -> bool:
    """Return True for finite real numbers above 0."""
    return all(isinstance(value, Real) and 0 < float(value) < np.inf for value in values)


def _dense(y: Any) -> NDArray:
    """Return validated labels as one column, or as a dense matrix of one column per label."""
    if sparse.issparse(y):
        y = y.toarray()
    return y if y.ndim == 2 and y.shape[1] > 1 else column_or_1d(y, warn=True)


def _encode_columns(y: NDArray, given: ArrayLike | None) -> tuple[NDArray, NDArray[np.float32]]:
    """Return the names of the columns of ``y``, and its zeros and ones as float32."""
    names = np.arange(y.shape[1]) if given is None else np.asarray(given)
    if len(names) != y.shape[1] or len(np.unique(names)) != len(names):
        raise ValueError(
            f"classes={names.tolist()!r} must name each of the {y.shape[1]} columns of y once. "
            "A y of two dimensions has one column of zeros and ones per label."
        )
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        raise ValueError(
            f"y has {y.shape[1]} columns; expected one column of zeros and ones per label. For a "
            "single label, pass a vector."
        )
    return names, y.astype(np.float32)
