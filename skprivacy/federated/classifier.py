"""A classifier trained over parties that keep their records: private federated averaging."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._data_validation import validate_data
from .._docs import fill_docs
from .._groups import Groups
from .._sklearn import StrOptions
from .._validation import Interval
from ..accounting import PrivacyBudget
from ..base import PrivateEstimatorMixin, PrivateFit
from ..linear_model._base import LinearScores
from ..mechanisms import SecureRandom
from ..public_facts import public_classes
from ._auto import resolve_auto_settings
from ._parties import check_parties, train_over_parties
from .plan import FederatedPlan

__all__ = ["DPFederatedClassifier"]

_AUTO = StrOptions({"auto"})
_SIZE = [Interval(Integral, 1, None, closed="left"), _AUTO]
_LENGTH = [Interval(Real, 0, None, closed="neither"), _AUTO]


@fill_docs
class DPFederatedClassifier(PrivateEstimatorMixin, LinearScores, BaseEstimator):
    """Logistic regression trained over parties, none of which shows its records to anybody.

    In each round the server sends the weights to all parties. Each party computes what its records
    would change, clips it, adds its share of the noise and a mask, and sends that back; the server
    sees nothing but the sum, in which the masks cancel out. All of it runs in this process: it
    shows what a federation learns at which price, and is not a network protocol.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss that training may cost, in nats. ``numpy.inf`` trains without noise and
        **without any guarantee**, to compare against.
    delta : float, default=1e-5
        Probability with which ``epsilon`` may be exceeded. Must be below 1 / number of records (or
        of parties).
    unit : {"record", "party"}, default="record"
        Who is protected: each record, such as a patient of a hospital that may see her record
        anyway; or each party with all of its records, such as the owner of a phone.
    server : {"curious", "trusted"}, default="curious"
        "curious": the server follows the protocol and may try to learn from what it sees, which is
        the noisy sum of each round alone (secure aggregation); the parties add the noise.
        "trusted": the server sees what each party sends and adds the noise itself; the guarantee
        holds against everybody else.
    n_untrusted : int, default=1
        Of how many parties the noise is not counted on, because they drop out, or tell it to
        others: each party knows its own share of it. The noise of each of K parties is larger for
        it, by K / (K - n_untrusted) in its variance. Of no effect with a trusted server.
    party_names : array-like of shape (n_parties,), default=None
        All parties, also those without records. ``None``: those in ``parties``.
    n_rounds : int or "auto", default="auto"
        How often the model is sent to the parties and back.
    batch_size : int or "auto", default="auto"
        Expected number of records in a round, of all parties together. Only where records are
        protected; a protected party uses all of its own.
    max_norm : float or "auto", default="auto"
        L2 norm to which the gradient of each record (or the update of each party) is clipped.
        "auto" is 1 for records, and 0.4 for parties.
    learning_rate : float or "auto", default="auto"
        Step size of the first round, from which it falls to zero along a line.
    momentum : float, default=0.9
        Momentum of the server's updates, in [0, 1).
    local_steps : int, default=1
        How many steps a protected party does on its own records in a round: 1 is DP-FedSGD, more
        are DP-FedAvg.
    local_learning_rate : float, default=1.0
        Their size. The update is divided by it, so that it is measured as one gradient.
    classes : array-like of shape (n_classes,), default=None
        All labels that may occur. They must be known publicly: without them they are read off
        ``y``, which tells whether a rare class occurs.
    n_records : int, default=None
        A public figure for the number of records of all parties together. With it the guarantee
        also hides how many records there are (add/remove). Without it the number of records counts
        as public (zero-out). Only where records are protected.
    n_jobs : int, default=None
        How many threads work for the parties. The result is the same.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the features; one row for two classes.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Constants of the scores.
    n_parties_ : int
        How many parties took part.
    n_rounds_ : int
        How many rounds there were.
    noise_multiplier_ : float
        Standard deviation of the noise that is counted on, divided by ``max_norm``.
    settings_ : dict
        What each parameter that can be "auto" was.
    privacy_ : PrivacyGuarantee
        What is guaranteed, in which relation and under which assumptions.
    privacy_event_ : DpEvent
        What was released, for composition with other releases.
    epsilon_ : float
        The guaranteed epsilon at ``delta_``.
    delta_ : float
        The delta that ``epsilon_`` holds at.
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** The weights of all rounds, hence the model, are (``epsilon``,
    ``delta``)-differentially private. Of records: each takes part in a round by chance of its own
    (a Poisson sample that its party keeps secret); relation zero-out, or add/remove when
    ``n_records`` is given. Of parties: each takes part in every round, because a server sees who
    answers; relation zero-out, a party that contributes nothing, and their number is public. A
    party is protected against the server and against up to ``n_untrusted`` other parties, together;
    with 0, not against another party that knows its own noise. With records as the unit, each
    party is trusted with its own. Gradients are rounded to whole steps before they are summed,
    exactly, and the noise is a sum of exact discrete Gaussians, which is as good as one Gaussian
    (:class:`~skprivacy.mechanisms.DistributedGaussian` says how good): the floating-point attack of
    Mironov (2012) finds nothing. Party names, who takes part and how long it takes are public.
    Parties that send wrong numbers on purpose, to spoil the model or to plant a backdoor, are not
    defended against.

    **What "auto" is** follows from public facts alone, as for
    :class:`~skprivacy.neural_network.DPSGDClassifier` without hidden layers: let mu be the
    Gaussian-DP parameter of ``epsilon`` and ``delta``, n the number of records (or parties), d that
    of features, and t = n * mu / sqrt(d). For records there are 32 * sqrt(t) rounds, from 128 to
    1,536, in batches of min(n / 4, 1024); for parties 64 rounds. The learning rate is t divided by
    the rounds, at most 2, and divided by ``max_norm``.

    **Edge cases.** A record with NaN, infinite or huge values is ignored; whether there are such
    records must not show, so nothing is said about them. A party may have no records, or those of
    one class alone: it takes part and adds noise. ``predict`` refuses NaN and infinity.

    References
    ----------
    H. B. McMahan, D. Ramage, K. Talwar and L. Zhang, "Learning differentially private recurrent
    language models", ICLR 2018.

    P. Kairouz, Z. Liu and T. Steinke, "The distributed discrete Gaussian mechanism for federated
    learning with secure aggregation", ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.federated import DPFederatedClassifier
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> hospital = np.arange(len(y)) % 10
    >>> model = DPFederatedClassifier(epsilon=8.0, classes=range(10), n_rounds=60)
    >>> model = model.fit(X / 16, y, parties=hospital)
    >>> model.n_parties_, model.privacy_.unit, round(model.epsilon_)
    (10, 'record', 8)
    >>> model.score(X / 16, y) > 0.6
    True
    """

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "unit": [StrOptions({"record", "party"})],
        "server": [StrOptions({"curious", "trusted"})],
        "n_untrusted": [Interval(Integral, 0, None, closed="left")],
        "party_names": ["array-like", None],
        "n_rounds": _SIZE,
        "batch_size": _SIZE,
        "max_norm": _LENGTH,
        "learning_rate": _LENGTH,
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "local_steps": [Interval(Integral, 1, None, closed="left")],
        "local_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "classes": ["array-like", None],
        "n_records": [Interval(Integral, 1, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        unit: str = "record",
        server: str = "curious",
        n_untrusted: int = 1,
        party_names: Sequence[Any] | None = None,
        n_rounds: int | str = "auto",
        batch_size: int | str = "auto",
        max_norm: float | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float = 0.9,
        local_steps: int = 1,
        local_learning_rate: float = 1.0,
        classes: ArrayLike | None = None,
        n_records: int | None = None,
        n_jobs: int | None = None,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.server = server
        self.n_untrusted = n_untrusted
        self.party_names = party_names
        self.n_rounds = n_rounds
        self.batch_size = batch_size
        self.max_norm = max_norm
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.local_steps = local_steps
        self.local_learning_rate = local_learning_rate
        self.classes = classes
        self.n_records = n_records
        self.n_jobs = n_jobs
        self.budget = budget
        self.noise_seed = noise_seed

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # epsilon=1 is too small for the few rows of a check
        return tags

    def fit(
        self, X: ArrayLike, y: ArrayLike, parties: ArrayLike | None = None
    ) -> DPFederatedClassifier:
        """Train over the parties.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numbers of about unit size, by public bounds such as those of a
            :class:`~skprivacy.preprocessing.SchemaTransformer`.
        y : array-like of shape (n_samples,)
            Labels.
        parties : array-like of shape (n_samples,), default=None
            Whose record each is. The name of a Series is the unit of a guarantee for parties.
            ``None``: each record is a party of its own, such as a phone; it is slow for many.

        Returns
        -------
        DPFederatedClassifier
            The fitted classifier.

        Raises
        ------
        ValueError
            If parameters or parties do not fit together. Nothing is charged.
        BudgetExceededError
            If the budget cannot afford the fit. Nothing is charged, and the data is not used.
        """
        with self._private_fit() as fit:
            self._validate_params()
            effective_n_jobs(self.n_jobs)  # which refuses 0
            who = check_parties(parties, X, self.party_names)
            rows, codes = self._check_data(fit, X, y)
            plan, settings = self._make_plan(rows.shape[1], who, parties is None)
            fit.assume(*self._assumptions(who.n))
            relation = "zero_out" if self.n_records is None else "add_remove"
            unit = who.unit if plan.of_parties else "record"
            with fit.charged(
                plan.event,
                relation=relation,
                at_delta=self.delta,
                unit=unit,
                arithmetic=plan.mechanism.arithmetic,
            ):
                random = SecureRandom(self.noise_seed)
                weights = train_over_parties(plan, rows, codes, who.codes, random, self.n_jobs)
            self.coef_, self.intercept_ = weights[:, :-1].copy(), weights[:, -1].copy()
            self.n_parties_, self.n_rounds_ = plan.n_parties, plan.n_rounds
            self.noise_multiplier_, self.settings_ = plan.noise_multiplier, settings
        return self

    def _check_data(
        self, fit: PrivateFit, X: ArrayLike, y: ArrayLike
    ) -> tuple[NDArray, NDArray[np.int64]]:
        rows, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        self.classes_, codes = public_classes(fit, labels, self.classes)
        return rows, codes

    def _make_plan(
        self, n_features: int, who: Groups, alone: bool
    ) -> tuple[FederatedPlan, dict[str, Any]]:
        """Return what training does, and the settings; refuse what does not fit together."""
        if who.n < 2:
            raise ValueError(
                "parties has 1 party: a federation needs two at least, or the server sees what one "
                "sends. For one party's records use DPSGDClassifier(hidden_layer_sizes=())."
            )
        of_parties, trusted = self.unit == "party", self.server == "trusted"
        self._check_unit(of_parties, alone)
        n = who.n if of_parties else int(self.n_records or len(who.codes))
        if not math.isinf(self.epsilon) and self.delta >= 1.0 / n:
            raise ValueError(
                f"delta={self.delta!r} must be below 1 / {n}, the number of "
                f"{'parties' if of_parties else 'records'}: otherwise publishing one outright "
                f"would count as private. Set a smaller delta."
            )
        names = ("n_rounds", "batch_size", "max_norm", "learning_rate")
        settings = resolve_auto_settings(
            {name: getattr(self, name) for name in names},
            n=n, n_features=n_features, epsilon=self.epsilon, delta=self.delta, parties=of_parties,
        )  # fmt: skip
        plan = FederatedPlan(
            n_features=n_features,
            n_outputs=1 if len(self.classes_) == 2 else len(self.classes_),
            n_parties=who.n,
            n_units=n,
            n_rounds=settings["n_rounds"],
            of_parties=of_parties,
            sampling_rate=settings["batch_size"] / n,
            max_norm=settings["max_norm"],
            n_noises=1 if trusted else None,
            n_untrusted=0 if trusted else self.n_untrusted,
            learning_rate=settings["learning_rate"],
            momentum=self.momentum,
            local_steps=self.local_steps,
            local_learning_rate=self.local_learning_rate,
        )
        relation = "zero_out" if self.n_records is None else "add_remove"
        return plan.with_noise_for(float(self.epsilon), float(self.delta), relation), settings

    def _check_unit(self, of_parties: bool, alone: bool) -> None:
        if alone and (of_parties or self.n_records is not None):
            raise ValueError(
                "parties=None makes each record a party of its own, and the number of parties is "
                "public. Pass fit(X, y, parties=...) with whose record each is, or leave "
                "unit='record' and n_records=None."
            )
        for name in ("batch_size", "n_records") if of_parties else ():
            if getattr(self, name) not in (None, "auto"):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is about protected records, and unit='party' "
                    "protects parties, each of which takes part in every round. Leave it out."
                )

    def _assumptions(self, n_parties: int) -> list[str]:
        """Return whom the guarantee trusts with what."""
        stated = ["the parties that take part are public"]
        if self.unit == "record":
            stated.append("each party is trusted with its own records")
        if self.server == "trusted":
            stated.append(
                "the server is trusted: it sees what each party sends, and adds the noise"
            )
            return stated
        return [
            *stated,
            "the server is honest but curious: of what the parties send it sees only the sum of "
            "each round (secure aggregation)",
            f"of the {n_parties} parties, {self.n_untrusted} at most drop out or use what they "
            "know of the noise; the others follow the protocol",
        ]

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.clip(X, -1e150, 1e150) @ self.coef_.T + self.intercept_
