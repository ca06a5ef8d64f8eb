"""Private fine-tuning by the additive logistic mechanism (Yang, Gohari and Topcu 2022) and others.

Encoding is in ``features``, the interface of heads in ``head``.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from .._docs import fill_docs
from .._groups import Groups
from .._input_data import read_records, validate_data
from .._sklearn import HasMethods, StrOptions
from .._validation import Interval, check_delta_is_small
from ..accounting import PrivacyBudget
from ..accounting.event import check_delta
from ..base import PrivateFit, public_classes
from ..ensemble.student_classifier import check_not_private
from ..linear_model.logistic_regression import LinearScores
from ..mechanisms import SecureRandom
from ..sums.sources import is_table
from ..sums.sum_estimator import SUM_DOCS
from .features import check_public, encode_together, fit_to_public, head_rows
from .head import Head, HeadInput, OneRelease, Task
from .head_sums import HeadSums
from .heads import HEADS, choose_head
from .network_head import NetworkHead
from .sampled_sensitivity import SampledSensitivity, resolve_sensitivity, to_sampled
from .sensitivity import MECHANISMS

_FLOATS = [np.float64, np.float32]
_MOST_LOADED_FEATURES = 1 << 24  # a file that states more is refused before a row is made


@fill_docs(SUM_DOCS)
class ALMFineTuner(LinearScores, HeadSums, MetaEstimatorMixin, BaseEstimator):
    """Fine-tuning with differential privacy: a private head on a public encoder.

    The encoder is trained on public records without labels, or needs no training. The head is
    fitted to the features of the private records, and only its noisy weights are kept. With
    ``head="softmax"`` and ``mechanism="logistic"`` this is the additive logistic mechanism (ALM)
    of Yang, Gohari and Topcu. The default is more accurate at the same guarantee.

    Parameters
    ----------
    encoder : transformer, default=None
        Maps records to features, each record separately. If unfitted, a clone is fitted to
        ``X_public``. Pass a fitted encoder as ``sklearn.frozen.FrozenEstimator(encoder)``; it must
        not have seen private records. ``None`` uses the records as features.
    head : {"auto", "dpsgd", "gradient", "least_squares", "prototypes", "softmax"}, NetworkHead \
            or SoftmaxHead, default="auto"
        Model trained on the features; "dpsgd" is a network with a hidden layer. "auto" is
        "softmax" if ``sensitivity`` is not "proved". Otherwise it is "prototypes" if ``delta`` is 0
        or the mechanism is not Gaussian, and "gradient" if not.
    mechanism : {"auto", "gaussian", "k_norm", "laplace", "logistic"}, default="auto"
        Noise of a head that releases once. "auto" is the mechanism with the least noise for
        (``epsilon``, ``delta``). "logistic" has two proofs: a pure epsilon by the L1
        sensitivity, and moments by the L2 sensitivity. The one with less noise is used.
    sensitivity : "proved", "sampled", float or SampledSensitivity, default="proved"
        How far a record moves the weights of ``head="softmax"``. "proved" uses the proved bound. A
        number is an L2 sensitivity that the guarantee then assumes. "sampled" stands
        for ``SampledSensitivity()``, which uses the largest movement among the private records and
        is **an estimate, not a guarantee**; with a ``sampler`` of public records it gives random
        differential privacy. Both need ``relation="replace_one"``.
    %(epsilon)s
    delta : float, default=1e-5
        Probability with which ``epsilon`` may be exceeded; 0 for pure differential privacy.
    %(classes)s
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation. "add_remove" hides the number of records at no cost, since nothing
        depends on it ("dpsgd" needs a public figure for it). "replace_one" needs about twice the
        noise.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    encoder_ : transformer or None
        The fitted encoder.
    whitening_ : HalfWhitening or None
        The whitening fitted to the features of ``X_public``, if given.
    head_ : object
        The head, with its settings chosen from public facts.
    weights_ : ndarray of shape (n_features_out + 1, n_classes) or DPSGDClassifier
        The released weights of the features, scaled to norm 1, and of the constant. For "dpsgd",
        the network.
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy with one record as the unit, or
    one group; each head has its own proof. Each of the m records of a group counts 1 / m in the
    sums of a head, so a group adds a mean of records' contributions. "dpsgd" clips the mean of
    their gradients, see :class:`NetworkHead`. Features are centred and half-whitened by the
    covariance of the public records, if given, and always scaled to norm 1, so that the norm of a
    head's input is public. The exact weights live in one function call: they are neither in the
    fitted model, nor in its pickle, nor in the frames of an error's traceback. ``fit`` encodes each
    record in a separate call, and whitens exactly, so the rounding of a record's features does not
    depend on other records. Predictions encode records in one call.

    **Edge cases.** A record with NaN or infinity, or with features that are not finite, contributes
    nothing, which is not reported. Its predictions are equally probable for all classes. A class
    without records gets low probabilities. An encoder of columns that are not numbers must accept
    every record: a record that it refuses makes the fit fail, which reveals the record's presence.

    References
    ----------
    Y. Yang, P. Gohari and U. Topcu, "Additive logistic mechanism for privacy-preserving
    self-supervised learning", 2022.
    F. Tramer and D. Boneh, "Differentially private learning needs better features (or much more
    data)", ICLR 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> from skprivacy.fine_tuning import ALMFineTuner
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ALMFineTuner(PCA(16), epsilon=4.0, classes=range(10))
    >>> model = model.fit(X[:1000], y[:1000], X_public=X[1000:1400])
    >>> model.privacy_
    (4.00, 1e-05)-DP, add-remove, exact noise, proved assuming the public records depend on no
    private record; the encoder treats each record by itself (tried on records that are not
    private)
    >>> model.score(X[1400:], y[1400:]) > 0.6
    True
    """

    # attributes that save_model writes; persistence.attribute_states explains the words
    _saved_state = {
        "head": "head",
        "classes_": "labels",
        "privacy_": "guarantee",
        "encoder_": "encoder encoder",
        "whitening_": "encoder whitening",
        "head_": "head",
        "weights_": "weights",
    }

    _parameter_constraints: dict = {
        "encoder": [HasMethods(["fit", "transform", "__sklearn_tags__"]), None],
        "head": [StrOptions({"auto", *HEADS}), Head],
        "mechanism": [StrOptions(set(MECHANISMS))],
        "sensitivity": [
            StrOptions({"proved", "sampled"}),
            Interval(Real, 0, None, closed="neither"),
            SampledSensitivity,
        ],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="left")],
        "classes": ["array-like", None],
        "relation": [StrOptions({"add_remove", "zero_out", "replace_one"})],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __init__(
        self,
        encoder: Any = None,
        head: str | Head = "auto",
        mechanism: str = "auto",
        *,
        sensitivity: str | float | SampledSensitivity = "proved",
        epsilon: float = 1.0,
        delta: float = 1e-5,
        classes: ArrayLike | None = None,
        relation: str = "add_remove",
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.encoder = encoder
        self.head = head
        self.mechanism = mechanism
        self.sensitivity = sensitivity
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.relation = relation
        self.budget = budget
        self.noise_seed = noise_seed

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # refusing a record in fit would reveal its presence
        tags.classifier_tags.poor_score = True  # epsilon=1 is too small for the few rows of a check
        return tags

    def fit(
        self,
        X: Any,
        y: ArrayLike | str,
        *,
        X_public: Any = None,
        groups: ArrayLike | str | None = None,
    ) -> ALMFineTuner:
        """Fit the head to private records, and the encoder to public ones if it is unfitted.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features), or table
            Private records. An engine that holds a table of numbers encodes batches and computes
            sums: one scan for "least_squares" and "prototypes", and one for each step of
            "gradient".
        y : array-like of shape (n_samples,) or str
            Their labels, each one of ``classes``, or the column of a table that holds them.
        X_public : array-like, DataFrame or PublicRecords of shape (n_public, n_features), \
                default=None
            Public records of the same kind, without labels. In a cross-validation wrap them in
            :class:`~skprivacy.ensemble.PublicRecords`, so that the encoder is fitted once and not
            for each fold. ``None`` needs an encoder that is fitted or has nothing to learn, and
            changes only the norm of features.
        %(table_groups)s
            Not supported with a sampled sensitivity.

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        %(table_raises)s
        """
        with self._private_fit() as fit:
            if is_table(X, y, groups):
                self._validate_params()
                check_not_private(X_public, X)
                source = self._open_source(X, y, groups)
                source.public = X_public
                _call_without_frames(self._fit_source, fit, source)
                return self
            X, labels, units, task = self._prepare(fit, X, y, X_public, groups)
            with fit.charged(
                self.head_.event(task),
                relation=self.relation,
                at_delta=self.delta,
                unit=units.unit,
                arithmetic=self.head_.arithmetic(task),
            ):
                self.weights_ = _call_without_frames(self._release_weights, task, X, labels, units)
        return self

    def _prepare(
        self, fit: PrivateFit, X: Any, y: ArrayLike, X_public: Any, groups: Any
    ) -> tuple[Any, NDArray[np.int64], Groups, Task]:
        """Check the input, fit the encoder and choose the head, using only public facts."""
        check_not_private(X_public, X)
        X, target, units = self._read_records(X, y, groups)
        if self.relation != "add_remove" and self.delta > 0:
            check_delta(self.delta, units.n)
        self.classes_, labels = public_classes(fit, target, self.classes)
        if X_public is None and isinstance(X, pd.DataFrame):
            raise ValueError(
                "X has columns that are not numbers, and no X_public to try the encoder on. Pass "
                "a few public records, or use make_pipeline(SchemaTransformer(schema), "
                "ALMFineTuner(...))."
            )
        task = self._choose_parts(fit, X_public, units.n)
        sampled = to_sampled(self.sensitivity)
        if groups is not None and sampled is not None:
            raise ValueError(
                f"sensitivity={self.sensitivity!r} is sampled by leaving out single records, which "
                "does not cover groups. Use sensitivity='proved'."
            )
        if sampled is not None and sampled.sampler is not None:
            assert isinstance(self.head_, OneRelease)
            random = np.random.default_rng(self.noise_seed)
            task = sampled._sample_public(self.head_, task, self._public_records, random)
        return X, labels, units, task

    def _choose_parts(self, fit: PrivateFit, X_public: Any, n_records: int) -> Task:
        """Fit the encoder and choose the head, from public facts."""
        public = check_public(X_public, self.n_features_in_)
        # Yang et al. 2022, Algorithm 1, line 1: train the base encoder, on public records alone
        self.encoder_, self.whitening_, width = fit_to_public(
            self.encoder, public, self.n_features_in_, fit, X_public
        )
        task = Task(
            width + 1, len(self.classes_), float(self.epsilon), float(self.delta), self.relation,
            n_records, self.mechanism, resolve_sensitivity(self.sensitivity, self.relation, fit),
            self.noise_seed,
        )  # fmt: skip
        self.head_ = choose_head(self.head, task).ready(task)
        return task

    def _read_records(
        self, X: Any, y: ArrayLike, groups: ArrayLike | None
    ) -> tuple[Any, NDArray, Groups]:
        self._validate_params()
        records = read_records(self, X, y, groups, tables="keep_text", dtype=_FLOATS)
        check_delta_is_small(self.delta)
        return records

    def _public_records(self, X: Any, y: ArrayLike) -> HeadInput:
        X, labels = check_public(X, self.n_features_in_), np.asarray(y)
        if not np.isin(labels, self.classes_).all():
            raise ValueError("sampler returns labels outside of classes. Leave them out.")
        return self._records(X, np.searchsorted(self.classes_, labels))

    def _records(
        self, X: Any, labels: NDArray[np.int64], groups: Groups | None = None
    ) -> HeadInput:
        rows, found = head_rows(self.encoder_, self.whitening_, X, private=True)
        counts = found.astype(np.float64)
        if groups is not None:
            counts *= groups.exact_shares()
        return HeadInput(rows, counts, labels, len(self.classes_), groups)

    def _release_weights(self, task: Task, X: Any, labels: NDArray[np.int64], units: Groups) -> Any:
        # Yang et al. 2022, Algorithm 1, line 2: outputs of the encoder
        records = self._records(X, labels, units)
        sampled = to_sampled(self.sensitivity)
        if sampled is not None and sampled.sampler is None:
            assert isinstance(self.head_, OneRelease)
            random = np.random.default_rng(self.noise_seed)
            task = sampled._sample_private(self.head_, task, records, random)
        # Yang et al. 2022, Algorithm 1, line 3: train the head and add noise to its weights
        return self.head_.release(task, records, SecureRandom(self.noise_seed))

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "weights_")
        X = validate_data(
            self, X, tables="keep_text", dtype=_FLOATS, reset=False, ensure_all_finite=False
        )
        # Yang et al. 2022, Algorithm 1, line 4: the noisy head on the encoder's outputs
        rows, _ = head_rows(self.encoder_, self.whitening_, X, private=False)
        scores = self.head_.scores(rows, self.weights_)
        return np.diff(scores) if scores.shape[1] == 2 else scores

    def _finish_loading(self) -> None:
        """Compare the sizes of the parts of a model from a file; keep the encoder for a new fit."""
        d = self.n_features_in_
        own = getattr(self.encoder_, "n_features_in_", d)
        if own != d or d > _MOST_LOADED_FEATURES:
            raise ValueError(f"its encoder takes {own} features, and it {d}")
        width = (
            d
            if self.encoder_ is None
            else encode_together(self.encoder_, np.zeros((1, d))).shape[1]
        )
        if self.whitening_ is not None and self.whitening_.n_features_in_ != width:
            raise ValueError("its whitening takes other features than its encoder gives")
        numbers = isinstance(self.weights_, np.ndarray)
        size = self.weights_.shape[0] if numbers else self.weights_.n_features_in_
        if size != width + 1 or numbers == isinstance(self.head_, NetworkHead):
            raise ValueError("its weights do not fit its head and its encoder")
        if self.encoder_ is not None and not isinstance(self.encoder_, FrozenEstimator):
            self.encoder = FrozenEstimator(self.encoder_)
        else:
            self.encoder = self.encoder_


def _call_without_frames(compute: Any, *arguments: Any) -> Any:
    """Call, and remove the frames below from an error: their variables hold exact weights."""
    try:
        return compute(*arguments)
    except BaseException as error:
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None) from None
