"""Neural networks trained with differentially private stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .._data_validation import ClassifierMixin, column_or_1d
from .._groups import check_order
from ..accounting import PrivacyBudget
from ..base import PrivateFit
from ..public_facts import public_classes
from ._gradients.losses import LabelEntropy
from ._gradients.trial import Probe
from ._network import NETWORK_CONSTRAINTS, PrivateNetwork
from ._training.environment import ordinary_torch
from ._training.stacking import StackedFit, as_stacked_fit, fits_the_stack

__all__ = ["DPSGDClassifier"]


class DPSGDClassifier(ClassifierMixin, PrivateNetwork):
    """Multi-layer perceptron classifier trained with differential privacy (DP-SGD).

    Each step draws a random batch, clips the gradient of every record in it to ``max_grad_norm``,
    sums, adds Gaussian noise and updates. The noise is computed for you from ``epsilon``,
    ``delta``, the batch size and the number of steps.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int or "auto", default="auto"
        Units in each hidden layer. An empty tuple gives a private logistic regression, which does
        best when records are few or ``epsilon`` is small. "auto" follows from public facts: see
        the notes.
    activation : {"auto", "tanh", "relu", "logistic"}, default="auto"
        Activation of the hidden layers. Bounded ones keep gradients small, so clipping costs less:
        "auto" is "tanh", and "relu" without privacy.
    module : type or torch.nn.Module, default=None
        A network of your own instead of the perceptron: a class (its arguments are ``module__x``
        parameters) or a ready-made module, which is copied and whose weights must be public. It
        maps rows of shape (n, n_features) to logits of shape (n, n_classes) and keeps examples
        apart: batch normalisation is refused. Images are reshaped inside it.
    augment : callable or list of callables, default=None
        Random changes of the rows in training, such as :class:`RandomShift` of images. Each maps a
        tensor of rows to one of the same shape, treats each row by itself and draws its randomness
        from torch, whatever the values are; a trial on random numbers refuses what does not.
    augmentations : int, default=1
        Random views of each record in a step. Its gradient is the mean over them, and is clipped
        after that: more views cost time, but no privacy.
    epsilon : float or None, default=1.0
        Privacy loss that training may cost, in nats. Smaller is more private. ``numpy.inf``
        trains without noise and **without any guarantee**, to compare against. ``None`` if
        ``noise_multiplier`` is given.
    delta : float, default=1e-5
        Probability with which ``epsilon`` may be exceeded. Must be below 1 / number of records.
    noise_multiplier : float, default=None
        How much noise there is, in units of ``max_grad_norm``, instead of what ``epsilon`` and
        ``delta`` allow: to repeat what others did, or to compare accountants. ``epsilon`` must be
        ``None`` then, and ``epsilon_`` says what it costs.
    noise : {"gaussian", "exact", "logistic", "banded", "tree"}, default="gaussian"
        "gaussian" and "logistic" are drawn anew in every step, and the records of a step are a
        Poisson sample. "exact" is "gaussian" on a grid, so that the guarantee holds to the last bit
        of the weights; it takes longer, and is made on the processor if training is on a GPU.
        "banded" and "tree" are for streams: batches of records in the order of ``X``, and noise
        that partly cancels out over the steps. See the guarantees below.
    max_grad_norm : float or "auto", default="auto"
        L2 norm to which the gradient of each record is clipped. "auto" is 1, and no limit without
        privacy.
    clipping : {"flat", "per-layer", "automatic", "adaptive"}, default="flat"
        "flat" shortens gradients that are longer. "automatic" also lengthens short ones.
        "per-layer" shortens each layer's share by itself. "adaptive" begins at ``max_grad_norm``
        and follows ``target_quantile``; the steps keep the size that ``max_grad_norm`` gives them.
    target_quantile : float, default=0.5
        For "adaptive" clipping: the share of gradients that are to be short enough as they are. It
        is learned privately within each step, from a small part of ``epsilon``.
    batch_size : int or "auto", default="auto"
        Expected number of records in a step. "auto" follows from public facts: see the notes.
    epochs : int or "auto", default="auto"
        Expected number of times that each record takes part. "auto" follows from public facts.
    optimizer : {"auto", "sgd", "adam"}, default="auto"
        "adam" subtracts the known variance of the noise from its second moment. "auto" is "sgd",
        and "adam" without privacy where the learning rate is "auto", too.
    learning_rate : float or "auto", default="auto"
        Step size. "auto" is 0.01 for "adam"; for "sgd" it follows from public facts.
    schedule : {"auto", "constant", "linear", "cosine"}, default="auto"
        How the step size falls in the course of training: not, or to zero. "auto" is "linear",
        but "constant" where the notes say so.
    momentum : float, default=0.9
        Momentum of the updates, in [0, 1); the first of Adam's two.
    averaging : float, "ema" or "auto", default="auto"
        Share of the last steps whose weights are averaged into the final model, in [0, 1], or
        "ema" for an exponential moving average. It costs no privacy and reduces the noise, as does
        a step size that falls to zero: "auto" is 0 with one, and 0.5 with a constant one.
    averaging_decay : float, default=0.95
        For "ema": how much a step counts beside the one after it, in (0, 1).
    classes : array-like of shape (n_classes,), default=None
        All labels that may occur. They must be known publicly: without them they are read off
        ``y``, which tells whether a rare class occurs. When ``y`` has a column for each of several
        labels: the names of the columns, in their order; ``None`` numbers them.
    class_weight : dict, default=None
        A factor of the loss for some labels. Public numbers: "balanced" would read them off ``y``.
    n_records : int, default=None
        A public figure for the number of records, such as a rounded census total. With it the
        guarantee also hides how many records there are (add/remove). Without it the number of
        records counts as public (zero-out).
    max_group_rows : int or None, default=2
        With ``groups`` in ``fit``: at most so many records of each are used, drawn once by secure
        chance before training. The noise does not depend on it: 5 is better where a group's
        records differ much, see :doc:`/people`. ``None`` uses all.
    group_contribution : {"mean", "sum"}, default="mean"
        With ``groups``: whether the mean or the sum of the gradients of a group's records is what
        is clipped, once, to ``max_grad_norm``.
    device : str, default="auto"
        Where to train: "cpu", "cuda", "cuda:1"... "auto" takes a GPU if there is one.
    random_state : int, RandomState instance or None, default=None
        Drives the initial weights only. Sampling and noise are never reproducible by it.
    noise_seed : int, default=None
        Makes sampling and noise reproducible **and the guarantee void**. For tests only.
    budget : PrivacyBudget, default=None
        Charged for the fit before training looks at the data. What it cannot afford is refused.
        Copies, clones and workers charge the same budget.
    distributed : {"replicated", "sharded"}, default=None
        Train in all processes of ``torch.distributed`` together, which must be initialised: one
        model, one noise, one charge (by the first process). "replicated": each process was given
        all records and works on a part of every batch. "sharded": each has records of its own. The
        processes, and the network between them, must be trusted with the records.
    verbose : int, default=0
        Whether to show a progress bar.
    **module_params : dict
        Arguments of a ``module`` class, as ``module__x``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted; for several labels a record, in the order of the columns of ``y``.
    multilabel_ : bool
        Whether a record may have several labels.
    module_ : torch.nn.Module
        The trained network, on the CPU: maps inputs of shape (n, n_features) to logits.
    privacy_ : PrivacyGuarantee
        What is guaranteed, in which relation and under which assumptions.
    privacy_event_ : DpEvent
        What was released, for composition with other releases.
    epsilon_ : float
        The guaranteed epsilon at ``delta_``. Never above ``epsilon``, if that was given.
    delta_ : float
        The delta that ``epsilon_`` holds at.
    noise_multiplier_ : float
        Standard deviation (for "logistic": scale; for "banded" and "tree": standard deviation of
        the independent numbers that are mixed) of the noise divided by ``max_grad_norm``.
    max_grad_norm_ : float
        The clipping norm of the last step; other than ``max_grad_norm`` if it was "adaptive".
    n_steps_ : int
        Number of training steps.
    settings_ : dict
        What each parameter that can be "auto" was in the last training.
    gradients_ : {"book-keeping", "torch.func", "one by one"}
        How per-example gradients were computed, from fast to slow.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, when all of them are strings.

    Notes
    -----
    **Guarantees.** The fitted attributes, hence everything predicted from them, are (``epsilon``,
    ``delta``)-differentially private with one record as the unit, or, with ``groups``, all records
    of a group. Relation: zero-out (one record is replaced by one that contributes nothing; their
    number is public), or add/remove when ``n_records`` is given. With ``groups``, all that is said
    of records here holds of groups: each is drawn as a whole, joins the gradients of its records,
    and is clipped once; ``n_records``, ``batch_size``, ``epochs``, ``delta`` and what is "auto"
    count groups. Each step is a Poisson-sampled Gaussian mechanism; the steps are composed through
    their privacy loss distribution (logistic noise: or by their Renyi divergences, where that is
    better). A run of "banded" or "tree" noise is one Gaussian mechanism, without sampling: it holds
    for zero-out alone, and if which batch a record is in, and when, depends on nobody's data.
    Preprocessing fitted on the same data, such as a ``StandardScaler``, is **not** covered: use
    :class:`skprivacy.preprocessing.SchemaTransformer`. Gradients and noise are floating-point
    numbers: not hardened against an adversary who reads the lowest bits of the weights (Mironov
    2012). With "exact" noise they are: gradients are added up in double precision, whose errors
    clipping makes room for, and the sum is rounded once, to a grid on which the noise is, see
    :class:`~skprivacy.mechanisms.RoundedGaussian`. That one record does not change the last bit of
    another's gradient is so under zero-out, where it keeps its row of the batch, and an assumption
    of the guarantee under add/remove or with ``groups``. How long training takes is not protected.

    **What "auto" is** follows from public facts alone: the number n of records (``n_records``, if
    that is given), d of features and k of classes, ``epsilon`` and ``delta``. Let mu be the
    Gaussian-DP parameter of ``epsilon`` and ``delta``, and s = n * mu. Training lasts for the time
    t = 0.5 * s / sqrt(d), as the number of steps times the learning rate, and twice that without
    hidden layers. There are 32 * sqrt(t) steps, from 128 to 1,536, in batches of min(n / 4, 1024);
    the learning rate is t over the steps, at most 2, and falls to zero along a line. A step of
    another ``max_grad_norm`` is divided by it. There are 64 tanh units, and none if s is below
    5 * sqrt(64 * (d + k + 1) + k): noise would outgrow what they learn. What is given is obeyed,
    and the rest fits itself to it. With ``module`` or ``noise_multiplier``, and for streams, it is
    30 epochs in batches of n / 4, at a constant step size of ``min(1, 0.35 / sqrt(r)) /
    max_grad_norm``, where r is the norm of a step's noise divided by the largest norm that a step's
    mean gradient can have.

    With ``epsilon=numpy.inf`` "auto" is what one would do without privacy: 256 rectified units,
    batches of 128, 8,000 steps but no more than 100 epochs, Adam at 0.003 (a ``module``: 0.001)
    that falls to zero, no clipping; from 5,120 records on larger batches, up to 512, and fewer
    steps. It is then another network than the private one. With a ``learning_rate`` of one's own it
    is gradient descent, clipped, as with privacy.

    **Edge cases.** A record with NaN, infinite or huge values has no finite gradient and is
    ignored; whether there are such records must not show, so nothing is said about them. Of a group
    the other records count; the mean is still over all that are used. A batch may be empty: it
    still adds noise and counts. A class of which there is no record is learned as rare. ``predict``
    refuses NaN and infinity.

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

    multilabel_: bool

    _parameter_constraints: dict = {
        **NETWORK_CONSTRAINTS,
        "classes": ["array-like", None],
        "class_weight": [dict, None],
    }

    def __init__(
        self,
        *,
        hidden_layer_sizes: tuple[int, ...] | str = "auto",
        activation: str = "auto",
        module: Any = None,
        augment: Any = None,
        augmentations: int = 1,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        noise_multiplier: float | None = None,
        noise: str = "gaussian",
        max_grad_norm: float | str = "auto",
        clipping: str = "flat",
        target_quantile: float = 0.5,
        batch_size: int | str = "auto",
        epochs: int | str = "auto",
        optimizer: str = "auto",
        learning_rate: float | str = "auto",
        schedule: str = "auto",
        momentum: float = 0.9,
        averaging: float | str = "auto",
        averaging_decay: float = 0.95,
        classes: ArrayLike | None = None,
        class_weight: dict | None = None,
        n_records: int | None = None,
        max_group_rows: int | None = 2,
        group_contribution: str = "mean",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        noise_seed: int | None = None,
        budget: PrivacyBudget | None = None,
        distributed: str | None = None,
        verbose: int = 0,
        **module_params: Any,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.module = module
        self.augment = augment
        self.augmentations = augmentations
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.noise = noise
        self.max_grad_norm = max_grad_norm
        self.clipping = clipping
        self.target_quantile = target_quantile
        self.batch_size = batch_size
        self.epochs = epochs
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.momentum = momentum
        self.averaging = averaging
        self.averaging_decay = averaging_decay
        self.classes = classes
        self.class_weight = class_weight
        self.n_records = n_records
        self.max_group_rows = max_group_rows
        self.group_contribution = group_contribution
        self.device = device
        self.random_state = random_state
        self.noise_seed = noise_seed
        self.budget = budget
        self.distributed = distributed
        self.verbose = verbose
        self._set_module_params(module_params)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> DPSGDClassifier:
        """Train on private records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            One record a row, features of comparable and publicly bounded scale (about -1 to 1).
        y : array-like of shape (n_samples,) or {array-like, sparse matrix} of shape \
                (n_samples, n_labels)
            Labels, each one of ``classes``; or zeros and ones, a column for each label, of which a
            record may have several.
        groups : array-like of shape (n_samples,), default=None
            Whose record each is, such as a column of patients' numbers. What is protected is then
            a group instead of a record; a Series' name says what a group is called.

        Returns
        -------
        DPSGDClassifier
            Itself, fitted.

        Raises
        ------
        ValueError
            If a parameter, a shape or a label is not as described. Nothing has been released then.
        BudgetExceededError
            If ``budget`` cannot afford the fit. Nothing has been released, nothing charged.
        """
        return self._fit(X, y, groups, True, self.classes)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> DPSGDClassifier:
        """Train for another ``epochs``, on the same records or on others, at ``epsilon`` once more.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Their labels.
        classes : array-like of shape (n_classes,), default=None
            As the parameter of the same name; only the first call may need it.
        groups : array-like of shape (n_samples,), default=None
            As in ``fit``, and in every call since: records and groups, or groups of two names, are
            never added up.

        Returns
        -------
        DPSGDClassifier
            ``privacy_`` covers all calls since the last ``fit``, for a record (or a group) in every
            one.

        Raises
        ------
        ValueError
            As in ``fit``, or if the earlier training protects something else than this one would.
        """
        first = not hasattr(self, "module_")
        if first:
            return self._fit(X, y, groups, True, self.classes if classes is None else classes)
        return self._fit(X, y, groups, False, self.classes_)

    @ordinary_torch("cpu")
    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        groups: ArrayLike | None,
        first: bool,
        classes: ArrayLike | None,
    ) -> DPSGDClassifier:
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} would count the private labels. Give numbers "
                "that are public, such as {0: 1.0, 1: 3.0}, or None."
            )
        with self._private_fit() as fit, self._peers() as peers:
            check_order(groups, X)
            rows, y = self._rows(X, y, first, multi_output=True)
            targets = self._encode(fit, _dense(y), first, classes)
            self._train_on(fit, peers, rows, targets, groups, first)
        return self

    def _encode(
        self, fit: PrivateFit, labels: NDArray, first: bool, classes: ArrayLike | None
    ) -> NDArray:
        """Return the targets; set the classes."""
        multilabel = labels.ndim == 2
        if not first and multilabel != self.multilabel_:
            raise ValueError(
                f"y has {labels.ndim} dimensions, in fit it had {2 if self.multilabel_ else 1}. "
                "Go on with y of the same form, or call fit to start anew."
            )
        self.multilabel_ = multilabel
        targets: NDArray
        if multilabel:
            self.classes_, targets = _encode_columns(labels, classes)
        else:
            self.classes_, targets = public_classes(fit, labels, classes)
        return targets

    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _loss(self) -> dict[str, Any]:
        kind = LabelEntropy if self.multilabel_ else nn.CrossEntropyLoss
        if self.class_weight is None:
            return {"criterion": kind}
        return {"criterion": kind, "criterion__weight": self._class_weights()}

    def _probe(self, device: str, views: int) -> Probe:
        shape, labels = (self.n_features_in_,), self.multilabel_
        return Probe.like(shape, self._n_outputs(), device, views, labels=labels)

    def _stacked_training(self) -> Callable[[ArrayLike, ArrayLike], StackedFit] | None:
        """Return what writes a fit to X and y out, so that many are trained at once; None: nothing.

        For shadow models, which belong to an attacker. To be called on a clone.
        """
        return self._stacked_fit if type(self) is DPSGDClassifier and fits_the_stack(self) else None

    @ordinary_torch("cpu")
    def _stacked_fit(self, X: ArrayLike, y: ArrayLike) -> StackedFit:
        rows, y = self._rows(X, y, True)
        targets = self._encode(PrivateFit(self), _dense(y), True, self.classes)
        return as_stacked_fit(self, rows, targets)

    def _class_weights(self) -> torch.Tensor:
        given: dict = dict(self.class_weight or {})
        found: list[Any] = [given.pop(label, 1.0) for label in self.classes_.tolist()]
        usable = all(isinstance(w, Real) and 0 < float(w) < np.inf for w in found)
        if given or not usable:
            raise ValueError(
                f"class_weight={self.class_weight!r} must give positive numbers to labels in "
                f"classes={self.classes_.tolist()!r}."
            )
        return torch.tensor([float(w) for w in found], dtype=torch.float32, device="cpu")

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class, or of each label by itself.

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
        of_labels = self.multilabel_
        return self._outputs(X, lambda z: z.sigmoid() if of_labels else z.softmax(1))

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


def _dense(y: Any) -> NDArray:
    """Return validated labels as one column, or as a dense matrix with a column for each label."""
    if sparse.issparse(y):
        y = y.toarray()
    return y if y.ndim == 2 and y.shape[1] > 1 else column_or_1d(y, warn=True)


def _encode_columns(y: NDArray, given: ArrayLike | None) -> tuple[NDArray, NDArray[np.float32]]:
    """Return the names of the columns of ``y``, and its zeros and ones as numbers."""
    names = np.arange(y.shape[1]) if given is None else np.asarray(given)
    if len(names) != y.shape[1] or len(np.unique(names)) != len(names):
        raise ValueError(
            f"classes={names.tolist()!r} must name each of the {y.shape[1]} columns of y once: y "
            "has two dimensions, a column of zeros and ones for each label."
        )
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        raise ValueError(
            f"y has {y.shape[1]} columns, so each must hold zeros and ones: whether the record "
            "has that label. For a single label pass a vector."
        )
    return names, y.astype(np.float32)
