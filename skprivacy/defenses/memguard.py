"""MemGuard (Jia et al. 2019): adversarial noise on probabilities against the defender's attack."""

from __future__ import annotations

import hashlib
import warnings
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from .._clones import name_failing_model
from .._docs import fill_docs
from .._input_data import check_y, column_or_1d, indexable
from .._sklearn import safe_indexing
from .._validation import Interval, check_random_state, num_samples
from .output_defense import DEFENCE_DOCS, Float64Array, OutputDefense

_STEPS, _STEP = 300, 0.1  # number and size of the search steps: Jia et al. 2019, section 5
_LABEL_WEIGHT = 10.0  # weight of the constraint that keeps the label
_SIZE_WEIGHTS = tuple(0.1 * 10.0**i for i in range(6))  # of the size of the noise, tried in turn
_HIDDEN = (64,)  # units of the hidden layers of the defender's attack
_FLOOR = 1e-12  # least probability whose logarithm is taken
_DIGITS = 6  # digits of a prediction on which its noise depends


@fill_docs(DEFENCE_DOCS)
class MemGuardClassifier(OutputDefense):
    """MemGuard (Jia et al. 2019): classifier with adversarial noise on its probabilities.

    It proves nothing. The defender trains an attack, a network on sorted probabilities of members
    and non-members. For each prediction it then searches the smallest noise that keeps the label
    and reduces this attack to guessing.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``
        Cloned, and fitted to the records that are not held out.
    max_distortion : float, default=1.0
        Largest expected sum of absolute changes of a record's probabilities, from 0 to 2.
    validation_fraction : float, default=0.25
        Share of the records that are held out from the classifier. They are the non-members for the
        defender's attack.
    random_state : int, RandomState instance or None, default=None
        Seed of the held-out records, of the attack's initial weights, and of the choice of
        predictions that get noise. A record gets the same noise each time.

    Attributes
    ----------
    %(fitted_estimator)s
    attack_ : MLPClassifier
        The defender's attack.
    %(classes_)s

    Notes
    -----
    **Guarantees.** None. Labels are unchanged, and labels by themselves distinguish members from
    non-members. An attack that is trained on noisy predictions removes some of the noise.

    **Edge cases.** A prediction for which no noise is found is shown unchanged. Fitting copies the
    training records, in addition to the estimator's own memory: 2.3 times the memory of the records
    with logistic regression.

    References
    ----------
    J. Jia, A. Salem, M. Backes, Y. Zhang, N. Z. Gong, "MemGuard: Defending against black-box
    membership inference attacks via adversarial examples", CCS 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.defenses import MemGuardClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> guarded = MemGuardClassifier(LogisticRegression(max_iter=2000), random_state=0)
    >>> guarded = guarded.fit(X[:400], y[:400])
    >>> bool((guarded.predict(X) == guarded.estimator_.predict(X)).all())
    True
    """

    _parameter_constraints = OutputDefense._parameter_constraints | {
        "max_distortion": [Interval(Real, 0, 2, closed="both")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        max_distortion: float = 1.0,
        validation_fraction: float = 0.25,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.max_distortion = max_distortion
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def _fit_estimator(self, X: Any, y: Any) -> None:
        if y is None:
            raise ValueError(
                "MemGuardClassifier requires y to be passed, but the target y is None."
            )
        check_y(y)
        X, labels = indexable(X, column_or_1d(y, warn=True))
        random = check_random_state(self.random_state)
        seed, self._key = random.randint(2**31 - 1), random.bytes(16)
        try:
            kept, out = train_test_split(
                np.arange(num_samples(X)), test_size=self.validation_fraction, random_state=seed
            )
        except ValueError:  # in scikit-learn's words
            raise ValueError(
                f"X has n_samples = {num_samples(X)}, too few to hold out validation_fraction="
                f"{self.validation_fraction!r} of them and to learn from the others."
            ) from None
        with name_failing_model(self.estimator, "trained on X and y"):
            self.estimator_ = clone(self.estimator).fit(safe_indexing(X, kept), labels[kept])
        shown = [
            np.sort(self.estimator_.predict_proba(safe_indexing(X, rows)), axis=1)
            for rows in (kept, out)
        ]
        # As many members as non-members, so that the attack's prior odds are even. Jia et al. 2019
        # train their defence classifier in the same way, on sorted probabilities.
        copies = np.resize(np.arange(len(out)), len(kept))
        member = np.repeat([1, 0], len(kept))
        self.attack_ = MLPClassifier(_HIDDEN, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.attack_.fit(np.concatenate([shown[0], shown[1][copies]]), member)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of the largest disguised probability.

        The noise never changes the predicted class. It is computed only for records whose class
        rounding could change.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        proba = self._model_probabilities(X)
        label = proba.argmax(axis=1)
        unsure = label != proba.round(_DIGITS).argmax(axis=1)
        if unsure.any():
            label[unsure] = self._disguise(proba[unsure]).argmax(axis=1)
        return np.asarray(self.classes_[label])

    def _disguise(self, proba: Float64Array) -> Float64Array:
        if proba.shape[1] < 2:
            return proba
        # The last digits of a prediction depend on the other records of a call; the noise must not.
        rounded = proba.round(_DIGITS)
        noisy = _least_noise(rounded, self.attack_)
        guess, unchanged_guess = (np.abs(_attack_logit(p, self.attack_)[0]) for p in (noisy, proba))
        size = np.abs(noisy - rounded).sum(axis=1)
        helps = (size > 0) & (guess <= unchanged_guess)
        # Jia et al. 2019, phase II: add the noise with the probability that meets the distortion
        chance = np.minimum(1.0, self.max_distortion / np.maximum(size, _FLOOR))
        chosen = helps & (_hash_to_coins(rounded, self._key) < chance)
        return np.where(chosen[:, None], noisy, proba)


def _least_noise(proba: Float64Array, attack: MLPClassifier) -> Float64Array:
    """Return the least-changed probabilities that make the attack guess (Algorithm 1)."""
    start = np.log(np.maximum(proba, _FLOOR))
    label = proba.argmax(axis=1)
    wanted = -np.sign(_attack_logit(proba, attack)[0])  # the sign of the opposite guess
    best = proba.copy()
    rows = np.arange(len(proba))
    for weight in _SIZE_WEIGHTS:
        found = _search(start[rows], proba[rows], label[rows], wanted[rows], weight, attack)
        solved = _is_solved(found, label[rows], wanted[rows], attack)
        best[rows[solved]] = found[solved]
        rows = rows[solved]  # a larger weight is tried where the smaller one succeeded
        if not len(rows):
            break
    return best


def _search(
    start: Float64Array,
    proba: Float64Array,
    label: Any,
    wanted: Float64Array,
    weight: float,
    attack: MLPClassifier,
) -> Float64Array:
    """Descend from each record's log-probabilities until the attack's guess flips."""
    logits = start.copy()
    moving = np.arange(len(start))
    for _ in range(_STEPS):
        shown = softmax(logits[moving], axis=1)
        moving = moving[~_is_solved(shown, label[moving], wanted[moving], attack)]
        if not len(moving):
            break
        shown = softmax(logits[moving], axis=1)
        logit, slope = _attack_logit(shown, attack)
        # Jia et al. 2019: the gradient of L1 + c2 L2 + c3 L3, that is of the attack's confidence
        # (L1), of the lead of another label (L2) and of the size of the noise (L3)
        of_shown = np.sign(logit)[:, None] * slope + weight * np.sign(shown - proba[moving])
        gradient = shown * (of_shown - (of_shown * shown).sum(axis=1, keepdims=True))
        gradient += _LABEL_WEIGHT * _slope_of_label(logits[moving], label[moving])
        length = np.linalg.norm(gradient, axis=1, keepdims=True)
        logits[moving] -= _STEP * gradient / np.maximum(length, _FLOOR)
    return np.asarray(softmax(logits, axis=1))


def _is_solved(shown: Float64Array, label: Any, wanted: Float64Array, attack: Any) -> Any:
    """Return where the label is unchanged and the attack's guess has flipped."""
    turned = _attack_logit(shown, attack)[0] * wanted >= 0
    return (shown.argmax(axis=1) == label) & turned


def _slope_of_label(logits: Float64Array, label: Any) -> Float64Array:
    """Return the gradient of the best other class's lead over the label."""
    rows = np.arange(len(label))
    others = logits.copy()
    others[rows, label] = -np.inf
    rival = others.argmax(axis=1)
    slope = np.zeros_like(logits)
    above = logits[rows, rival] >= logits[rows, label]
    slope[rows[above], rival[above]] = 1.0
    slope[rows[above], label[above]] = -1.0
    return slope


def _attack_logit(proba: Float64Array, attack: MLPClassifier) -> tuple[Float64Array, Float64Array]:
    """Return the attack's log-odds of membership, and their gradient by the probabilities."""
    order = np.argsort(proba, axis=1, kind="stable")
    layers = list(zip(attack.coefs_, attack.intercepts_, strict=True))
    units, active = np.take_along_axis(proba, order, 1), []
    for weights, bias in layers[:-1]:
        units = units @ weights + bias
        active.append(units > 0)
        units = np.maximum(units, 0)
    weights, bias = layers[-1]
    logit = (units @ weights + bias)[:, 0]
    slope = np.broadcast_to(weights[:, 0], units.shape)
    for (below, _), on in zip(reversed(layers[:-1]), reversed(active), strict=True):
        slope = (slope * on) @ below.T
    by_class = np.empty_like(proba)
    np.put_along_axis(by_class, order, slope, 1)
    return logit, by_class


def _hash_to_coins(proba: Float64Array, key: bytes) -> Float64Array:
    """Return a number in [0, 1) for each row, a keyed hash of it."""
    rows = proba + 0.0  # no negative zeros
    digests = [hashlib.blake2b(row.tobytes(), key=key, digest_size=8).digest() for row in rows]
    return np.frombuffer(b"".join(digests), "<u8") / 2.0**64
