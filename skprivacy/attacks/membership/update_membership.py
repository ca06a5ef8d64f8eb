"""Membership inference from the updates of federated training, by a linear test of each round."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ..._docs import fill_docs
from ..._sklearn import safe_indexing
from ..._validation import Interval
from ..model_answers import as_classifier
from ..record_gradients import RecordGradients
from ..record_tables import fingerprints
from ..updates import Updates, nearest_columns
from .classifiers import N_FOLDS, fit_attack_models, member_probabilities
from .membership_attack import MEMBERSHIP_DOCS, MembershipAttack

Float64Array = NDArray[np.float64]
# Relative to the mean variance. On Location-30 the AUC is .95 at 1e-3 and .97 from 1e-4 to 1e-6.
RIDGE = 1e-4


@fill_docs(MEMBERSHIP_DOCS)
class UpdatesMembership(MembershipAttack):
    """Infer membership from model updates, by the best linear test of each round.

    An update is the mean of its n records' gradients, so it contains 1/n of each of them, as a
    published mean contains its records (:class:`AggregateAttack`). The attacker computes the
    gradient of a record at the weights before the round. The attack removes the mean gradient of
    the attacker's own records from this gradient and from the update, and compares the remainders
    by the best linear test. The score is the log-likelihood ratio of normal gradients, summed over
    the rounds and scaled to the confidence observed on the attacker's own records.

    Parameters
    ----------
    target : Updates, default=None
        The updates that the attacker has seen. None makes a template for ``clone`` and
        ``set_params``.
    n_reference : int, default=1000
        Maximum number of non-members that estimate the distribution of gradients, chosen by
        fingerprint.
    %(attack_fpr)s

    Notes
    -----
    Without ``y``, all records given to ``fit`` are treated as non-members, so pass it if some
    are members. With it, a logistic regression learns membership from the ratio and the loss of
    each round (Nasr et al.). Records are split into 5 folds by fingerprint, and a record is scored
    with the reference records and attack model of the other four.

    The ratio of one round is (g - m)' A (u - m) - (g - m)' A (g - m) / (2 n). Here g is the
    record's gradient. The gradients of k reference records have the mean m and the covariance C.
    The update implies u, the mean gradient over n records, with noise of standard deviation s. A is
    the inverse of (1 + n / k) C + n s^2 I. The ratio is exact for one step on all of a party's
    records, and an approximation for several steps. A is computed from inner products of gradients,
    so its cost hardly depends on the number of weights.

    An active attacker creates updates with :meth:`Updates.from_gradient_ascent`.

    References
    ----------
    M. Nasr, R. Shokri, A. Houmansadr. Comprehensive privacy analysis of deep learning: passive
    and active white-box inference attacks. IEEE S&P 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.neural_network import MLPClassifier
    >>> from skprivacy.attacks import LabeledRecords, Updates, UpdatesMembership
    >>> X, y = make_classification(1200, flip_y=0.3, random_state=0)
    >>> party = MLPClassifier((20,), solver="sgd", momentum=0, batch_size=50, random_state=0)
    >>> def after_a_pass():
    ...     return Updates.weights_of(party.partial_fit(X[:50], y[:50], classes=[0, 1]))
    >>> weights = [after_a_pass() for _ in range(6)]
    >>> seen = Updates(party, weights[:-1], weights[1:], step=0.001, n_records=50)
    >>> records = LabeledRecords(X, y)
    >>> attack = UpdatesMembership(seen).fit(records[300:])
    >>> attack.evaluate(records[:50], records[50:300]).auc > 0.8
    True
    """

    _parameter_constraints = MembershipAttack._parameter_constraints | {
        "n_reference": [Interval(Integral, 2, None, closed="left")]
    }

    def __init__(
        self, target: Updates | None = None, *, n_reference: int = 1000, fpr: float = 0.05
    ) -> None:
        self.target = target
        self.n_reference = n_reference
        self.fpr = fpr

    def _check_target(self, X: Any, y: Any) -> None:
        if not isinstance(self.target, Updates):
            raise TypeError(f"target={self.target!r} must be Updates.")
        if self._target_classes(X) is None or np.ndim(y) != 1:
            raise TypeError(
                "target must be the Updates of a classifier, and y the class of each record."
            )

    def _target_classes(self, X: Any) -> Any:
        return getattr(as_classifier(self.target.model, X), "classes_", None)

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        others = np.arange(len(y)) if member is None else np.flatnonzero(~member)
        marks = fingerprints(safe_indexing(X, others))
        order = np.argsort(marks, kind="stable")[: self.n_reference]
        self._fold = marks[order] % N_FOLDS
        if min(np.sum(self._fold != k) for k in range(N_FOLDS)) < 2:
            raise ValueError(
                f"X holds {len(others)} non-members; expected 10 or more, to hold out one fold of "
                f"{N_FOLDS}. Pass more records that no party trains on."
            )
        self._reference = safe_indexing(X, others[order])
        self._reference_labels = y[others[order]]
        self._models, self._trust = None, 1.0
        ratios, expected, _ = self._rounds(self._reference, self._reference_labels)
        # Scale by the claimed variance of a non-member's total over the observed variance on the
        # attacker's own records: rounds are correlated, and gradients are not normal.
        off = ratios.sum(axis=1) - expected.sum(axis=1)
        if off.any():
            self._trust = min(1.0, float(-2 * expected.sum() / np.sum(off**2)))
        if member is not None:
            features = self._features(X, y)
            self._models = fit_attack_models(X, features, member)

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        if self._models is None:
            return self._rounds(X, y)[0].sum(axis=1) * self._trust
        return member_probabilities(self._models, X, self._features(X, y))

    def _features(self, X: Any, y: NDArray[Any]) -> Float64Array:
        ratios, _, losses = self._rounds(X, y)
        return np.hstack([ratios.sum(axis=1, keepdims=True), ratios, losses])

    def _rounds(self, X: Any, y: NDArray[Any]) -> tuple[Float64Array, Float64Array, Float64Array]:
        """Return log-likelihood ratios, their non-member means, and losses, (records, rounds)."""
        seen, fold = self.target, fingerprints(X) % N_FOLDS
        labels = nearest_columns(seen.model, y)
        known = nearest_columns(seen.model, self._reference_labels)
        ratios, expected, losses = np.empty((3, len(y), seen.n_rounds))
        for t in range(seen.n_rounds):
            records = seen._gradients(t, X, labels)
            reference = seen._gradients(t, self._reference, known)
            losses[:, t] = records.loss
            test = _Round(records, reference, seen._implied_gradient(t))
            noise = seen.noise_std / seen.step[t]
            for k in np.unique(fold):
                rows, others = np.flatnonzero(fold == k), np.flatnonzero(self._fold != k)
                ratios[rows, t], expected[rows, t] = test.ratios(
                    rows, others, seen.n_records, noise
                )
        return ratios, expected, losses


class _Round:
    """Inner products of gradients and update, from which the ratios of one round are computed."""

    def __init__(
        self, records: RecordGradients, reference: RecordGradients, descent: Float64Array
    ) -> None:
        self.among = reference.products(reference)
        self.across = records.products(reference)
        self.sizes = records.squared_norms()
        self.shown = records.project_on(descent)
        self.shown_reference = reference.project_on(descent)

    def ratios(
        self, rows: NDArray[np.intp], others: NDArray[np.intp], n_records: int, noise: float
    ) -> tuple[Float64Array, Float64Array]:
        """Return the ratios of ``rows`` with ``others`` as reference, and non-member means."""
        among, across = self.among[np.ix_(others, others)], self.across[np.ix_(rows, others)]
        if not (np.isfinite(among).all() and np.isfinite(across).all()):
            raise ValueError(
                "X holds NaN, infinity or values so large that gradients are not finite. Leave "
                "these records out."
            )
        m, to_mean, centre = len(others), among.mean(axis=0), among.mean()
        mean_across, level = across.mean(axis=1), self.shown_reference[others].mean()
        # inner products after subtracting the mean gradient m of the reference
        agreement = self.shown[rows] - mean_across - level + centre
        explained = self.shown_reference[others] - to_mean - level + centre
        size = self.sizes[rows] - 2 * mean_across + centre
        across = across - mean_across[:, None] - to_mean + centre
        among = among - to_mean[:, None] - to_mean + centre
        # the inverse of (1 + n / k) C + ridge I, by the Woodbury identity (k is ``m`` here)
        spread = np.trace(among) / (m - 1)
        if spread <= 0:
            return np.zeros(len(rows)), np.zeros(len(rows))
        ridge = n_records * noise**2 + RIDGE * spread
        scale = (m - 1) / (1 + n_records / m)
        factor = cho_factor(among + scale * ridge * np.eye(m), lower=True)
        agreement = agreement - across @ cho_solve(factor, explained)
        size = size - np.sum(across * cho_solve(factor, across.T).T, axis=1)
        expected = -size / (2 * n_records * ridge)
        return agreement / ridge + expected, expected
