"""Choice of the strongest membership attack by self-attack of the shadow models.

:class:`LearnedRatio` is one of the candidates: a logistic regression on the scores of a
self-attack. Start reading at :class:`StrongestAttack`.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..._docs import fill_docs
from ..._environment import one_blas_thread
from ..._sklearn import safe_indexing
from ..._validation import Interval
from ..model_answers import labels_as_text
from ..record_tables import NearestRecords
from ..shadow_answers import PoolLogits
from ..shadow_pool import ShadowPool
from .likelihood_ratio import RMIA, LiRA
from .membership_attack import MEMBERSHIP_DOCS
from .shadow_attack import (
    N_RECORDS,
    Moments,
    PoolRecords,
    ShadowAttack,
    TunedAttack,
    column_means,
    iter_self_attacks,
    log_ratio,
    mean_tpr,
    pooled_variances,
    smooth_logit,
    standard_score,
)

Float64Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Pooled = tuple[float, float]
FLOORS = (1e-3, 0.03)
PRIOR = 4.0
NEIGHBOURS = (1, 5, 25)
# Neighbours are searched up to these sizes; beyond, the search takes more than seconds.
MOST_SEARCHED = 10_000  # distinct records
MOST_DIFFERENCES = 2e10  # pairs of records times features


@fill_docs(MEMBERSHIP_DOCS)
class StrongestAttack(ShadowAttack):
    """Choose the attack that finds most members of shadow models; the default of ``audit``.

    No attack is the strongest on every model, but the choice needs no access to the target. Every
    shadow model, whose members are known, is attacked with the others. The attack that finds most
    of their members is used: :class:`LiRA` or :class:`RMIA`, offline or online, or
    :class:`LearnedRatio`.

    Parameters
    ----------
    %(target_classifier)s
    online : bool, default=False
        Whether online attacks and :class:`LearnedRatio` take part, which also compare with models
        trained on the record. The pool must then have been trained on every record, including
        those given to ``fit``.
    %(shadow_parameters)s

    Attributes
    ----------
    %(pool_)s
    attack_ : LearnedRatio, LiRA or RMIA
        The fitted winner; its ``power_`` is the share of the shadow models' members that it found.
    powers_ : dict of str to float
        This share for every attack that took part. If no self-attack is possible (a pool of two
        models, or records outside the pool), all are 0 and RMIA is used.

    Notes
    -----
    **Guarantees.** The choice is a function of the shadow models and of the set of records given to
    ``fit``. It uses neither the target's members nor its answers, and the halves on which shadow
    models are trained are drawn without regard to the members. Suppose that the set of records
    given to ``fit`` does not depend on which records are members (members and non-members together,
    as in an audit). Then, given the shadow models, the winner is one test fixed in advance. Every
    bound for such a test holds for it, without a correction for having tried several. Training may
    depend on the order of records, so use an order that is independent of membership, as
    :func:`~skprivacy.audit.audit` does.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import StrongestAttack
    >>> attack = StrongestAttack(target, pool=4, online=True, random_state=0).fit(records)
    >>> sorted(attack.powers_)
    ['LearnedRatio', 'offline LiRA', 'offline RMIA', 'online LiRA', 'online RMIA']
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.7
    True
    """

    _parameter_constraints = ShadowAttack._parameter_constraints | {"online": ["boolean"]}

    _asks_given_records_only = True

    def __init__(
        self,
        target: Any = None,
        *,
        online: bool = False,
        pool: Any = 16,
        random_state: Any = None,
        fpr: float = 0.05,
    ) -> None:
        super().__init__(target, pool=pool, random_state=random_state, fpr=fpr)
        self.online = online

    def _learn(self, X: Any, y: NDArray[Any], member: NDArray[np.bool_] | None) -> None:
        super()._learn(X, y, member)
        shadows = self.pool_._ask_models(X, y)
        if self.online:
            self._check_in_models(shadows.trained, shadows.known)
        tried, known = self._candidates(), self._select_pool_records(shadows, X, y)
        for attack in tried:
            attack.pool_, attack._label_classes = self.pool_, self._label_classes
            attack._tune(known)
        self.powers_ = {_name(attack): attack.power_ for attack in tried}
        self.attack_ = max(tried, key=lambda attack: attack.power_)
        self.attack_._learn_population(shadows, X, y)

    def _candidates(self) -> list[Any]:
        """Return the attacks to choose from; among equally strong attacks, the first is taken."""
        given: dict[str, Any] = {"pool": self.pool_, "fpr": self.fpr}
        modes = (True, False) if self.online else (False,)
        formulas = [
            kind(self.target, online=online, **given) for kind in (RMIA, LiRA) for online in modes
        ]
        return [*formulas, LearnedRatio(self.target, **given)] if self.online else formulas

    def _score(self, X: Any, y: NDArray[Any]) -> NDArray[np.float64]:
        # the accepted records must not depend on which attack was chosen
        if self.online and not self.attack_.online:
            self._check_in_models(*self.pool_.membership(X))
        return self.attack_._score(X, y)

    @property
    def _name(self) -> str:
        return _name(self.attack_)


@fill_docs(MEMBERSHIP_DOCS)
class LearnedRatio(TunedAttack):
    """Learn on shadow models to combine the scores of LiRA, of RMIA and of neighbours.

    Each shadow model is attacked with the others. A logistic regression learns, from the known
    members of the shadow models, to predict membership from the scores of :class:`LiRA` and
    :class:`RMIA`. Its inputs include the model's answers for the nearest other records: if
    neighbours of the same class are members, they explain a rise of the record's own probability.
    On nearest neighbours and forests this attack is much stronger than LiRA and RMIA.

    Parameters
    ----------
    %(target_classifier)s
    %(shadow_parameters)s

    Attributes
    ----------
    %(pool_)s
    model_ : Pipeline
        The logistic regression.
    power_ : float
        Mean share of a shadow model's members that the attack finds if it has learned from the
        other shadow models only.

    Notes
    -----
    The pool must have at least 4 models, trained on every record that is given to ``fit`` or
    scored. The score is the log-odds of membership. Neighbours are the 25 nearest of the records
    given to ``fit``, with standardised numbers and indicators of other columns. The attack does not
    use neighbours if there are more than 10,000 distinct records, or if the search for them would
    take longer than some seconds.

    **Guarantees.** What is learned depends neither on the target, nor on its members, nor on the
    order of the records.

    The reference learns from one reference model to calibrate a score by the difficulty of the
    record and its neighbours. This attack extends the idea to a pool of shadow models.

    References
    ----------
    H. Shi, T. Ouyang, A. Wang. Learning-based difficulty calibration for enhanced membership
    inference attacks. IEEE EuroS&P 2024.

    Examples
    --------
    %(forest_target)s
    >>> from skprivacy.attacks import LearnedRatio
    >>> attack = LearnedRatio(target, pool=4, random_state=0).fit(records)
    >>> attack.evaluate(records[:200], records[200:]).auc > 0.7
    True
    """

    online = True  # compares with models trained on the record, too
    _asks_given_records_only = True

    _parameter_constraints = ShadowAttack._parameter_constraints | {
        # a self-attack needs at least two models beside the attacked one and its complement
        "pool": [Interval(Integral, 4, None, closed="left"), ShadowPool]
    }

    def _tune(self, known: PoolRecords) -> None:
        prints, classes = known.prints, labels_as_text(known.y)
        labels = np.unique(classes, return_inverse=True)[1]
        order = np.lexsort((labels, prints))
        shadow, out = known.shadow[:, order], ~known.trained[:, order]
        rows = np.random.default_rng(0).permutation(len(order))[:N_RECORDS]
        first = np.unique(prints[order], return_index=True)[1]  # of records that are copies
        self._places = np.flatnonzero(known.rows)[order][first]
        self._near, near = None, None
        if _searchable(known.X, len(first)):
            distinct, asked = order[first], order[rows]
            listed = safe_indexing(known.X, distinct)
            self._near = _NeighbourPool(
                NearestRecords(listed, prints[distinct], max(NEIGHBOURS)), classes[distinct]
            )
            near = self._near.find_neighbours(
                safe_indexing(known.X, asked), classes[asked], prints[asked]
            )

        def view(attacked: int, others: list[int]) -> Float64Array:
            beside, left_out = shadow[others][:, rows], out[others][:, rows]
            pooled = _pooled_variances(beside, left_out)
            seen = _ratio_features(shadow[attacked, rows], beside, left_out, pooled)
            if near is None:
                return seen
            excess = _excess_log_odds(
                shadow[attacked, first], shadow[others][:, first], out[others][:, first]
            )
            return np.hstack([seen, _neighbour_excess(excess, *near)])

        tried = list(iter_self_attacks(~out))
        seen = {attacked: view(attacked, others) for attacked, others in tried}
        member = {attacked: ~out[attacked, rows] for attacked in seen}
        self.power_ = _self_attack_power(seen, member)
        self.model_: Any = _fit_regression(seen, member) if self.power_ else None

    def _learn_population(self, shadows: PoolLogits, X: Any, y: NDArray[Any]) -> None:
        """Compute the target's excess for the neighbours, and fix the pooled variances."""
        self._check_in_models(shadows.trained, shadows.known)
        if self.model_ is None:
            raise ValueError(
                f"pool holds {self.pool_.n_shadows} shadow models; expected at least 4, with IN "
                "and OUT models of each record of fit. Pass a larger pool and all of its records."
            )
        target, shadow, out = self._target_logit(X, y), shadows.logits, shadows.out
        self._pooled_variances = _pooled_variances(shadow, out)
        self._excess_log_odds = _excess_log_odds(target, shadow, out)[self._places]

    def _score(self, X: Any, y: NDArray[Any]) -> Float64Array:
        shadows = self.pool_._ask_models(X, y)
        self._check_in_models(shadows.trained, shadows.known)
        seen = _ratio_features(
            self._target_logit(X, y), shadows.logits, shadows.out, self._pooled_variances
        )
        if self._near is not None:
            near = self._near.find_neighbours(X, labels_as_text(y), shadows.prints)
            seen = np.hstack([seen, _neighbour_excess(self._excess_log_odds, *near)])
        return np.asarray(self.model_.decision_function(seen))


class _NeighbourPool(NamedTuple):
    """The records among which neighbours are searched, and their classes."""

    surroundings: NearestRecords
    classes: NDArray[Any]

    def find_neighbours(
        self, X: Any, y: NDArray[Any], prints: NDArray[np.uint64]
    ) -> tuple[NDArray[np.intp], Mask]:
        """Return each record's neighbours, nearest first, and whether they are of its class."""
        near = self.surroundings.find_nearest(X, prints)
        return near, self.classes[near] == y[:, None]


def _searchable(X: Any, n_distinct: int) -> bool:
    if np.ndim(X) < 2:  # texts
        return False
    differences = n_distinct**2 * float(np.prod(X.shape[1:]))
    return 1 < n_distinct <= MOST_SEARCHED and differences <= MOST_DIFFERENCES


def _pooled_variances(shadow: Float64Array, out: Mask) -> list[Pooled]:
    """Return the pooled variances of OUT and IN models for each floor."""
    return [pooled_variances(smooth_logit(shadow, floor), out) for floor in FLOORS]


def _ratio_features(
    target: Float64Array, shadow: Float64Array, out: Mask, pooled: list[Pooled]
) -> Float64Array:
    """Return the regression's inputs from each record's own log-odds."""
    columns = []
    for floor, of_all in zip(FLOORS, pooled, strict=True):
        own, others = smooth_logit(target, floor), smooth_logit(shadow, floor)
        without, within = Moments.from_values(others, out), Moments.from_values(others, ~out)
        columns.append(log_ratio(own, without, within, PRIOR, of_all))
        columns.append(standard_score(own, without, PRIOR, of_all[0]))
    p, p_all = expit(target), expit(shadow)
    p_out, p_in = (column_means(p_all, of) for of in (out, ~out))
    mean = (p_in + p_out) / 2
    columns += [np.log((p + FLOORS[0]) / (q + FLOORS[0])) for q in (mean, p_out)]
    sd_out, sd_in = without.deviation(PRIOR, of_all[0]), within.deviation(PRIOR, of_all[1])
    excess, effect = own - (within.mean + without.mean) / 2, within.mean - without.mean
    variance = sd_in**2 + sd_out**2
    columns += [p, mean, excess, effect, sd_out, sd_in, excess * effect]
    columns += [excess * effect / variance, effect**2 / variance, excess / np.sqrt(variance)]
    return np.arcsinh(np.column_stack(columns))


def _excess_log_odds(target: Float64Array, shadow: Float64Array, out: Mask) -> Float64Array:
    """Return the target's log-odds minus the mean of the IN and the OUT models' means."""
    own, others = smooth_logit(target, FLOORS[-1]), smooth_logit(shadow, FLOORS[-1])
    return own - sum(column_means(others, of) for of in (out, ~out)) / 2


def _neighbour_excess(excess: Float64Array, near: NDArray[np.intp], same: Mask) -> Float64Array:
    """Return the mean excess of same-class and of other neighbours, and the same-class share."""
    columns = []
    for k in NEIGHBOURS:
        values, alike = excess[near[:, :k]], same[:, :k]
        columns += [np.where(chosen, values, 0).mean(axis=1) for chosen in (alike, ~alike)]
        columns.append(alike.mean(axis=1))
    return np.column_stack(columns)


def _fit_regression(seen: dict[int, Float64Array], member: dict[int, Mask]) -> Any:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    with one_blas_thread():
        return model.fit(np.vstack(list(seen.values())), np.concatenate(list(member.values())))


def _self_attack_power(seen: dict[int, Float64Array], member: dict[int, Mask]) -> float:
    """Return the mean share of members found in models that the regression did not learn from."""
    found = []
    # A pair is left out together: its second model has the first one's non-members as members.
    for pair in {attacked // 2 for attacked in seen}:
        others = [attacked for attacked in seen if attacked // 2 != pair]
        if not others:
            return 0.0
        model = _fit_regression({k: seen[k] for k in others}, {k: member[k] for k in others})
        for attacked in set(seen) - set(others):
            score = model.decision_function(seen[attacked])
            found.append(mean_tpr(score, member[attacked]))
    return float(np.mean(found)) if found else 0.0


def _name(attack: Any) -> str:
    if isinstance(attack, LearnedRatio):
        return LearnedRatio.__name__
    return f"{'online' if attack.online else 'offline'} {type(attack).__name__}"
