"""Federated logistic regression with differential privacy: DP-FedSGD and DP-FedAvg.

McMahan et al. 2018. Settings "auto" follow only from public facts.
"""

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

from .._docs import fill_docs
from .._groups import Groups
from .._input_data import validate_data
from .._sklearn import StrOptions
from .._validation import Interval
from ..accounting import PrivacyBudget
from ..accounting.calibration import analytic_noise_multiplier
from ..base import PrivateEstimatorMixin, public_classes
from ..linear_model.logistic_regression import LinearScores
from ..mechanisms import SecureRandom
from .plan import FederatedPlan, check_parties, train_over_parties

_FEWEST_ROUNDS, _MOST_ROUNDS = 128, 1536
_BATCH = 1024  # expected size: larger batches cost time, and the noise of a run is the same
_ROUNDS_OF_PARTIES = 64  # more rounds cost the parties time and gain nothing
_LARGEST_RATE = 2.0
_NORM_OF_PARTIES = 0.4
_AUTO = StrOptions({"auto"})
_SIZE = [Interval(Integral, 1, None, closed="left"), _AUTO]
_LENGTH = [Interval(Real, 0, None, closed="neither"), _AUTO]


@fill_docs
class DPFederatedClassifier(PrivateEstimatorMixin, LinearScores, BaseEstimator):
    """Federated logistic regression with differential privacy (DP-FedSGD, DP-FedAvg).

    In each round the server sends the weights to all parties. Each party computes an update from
    its records, clips it, adds its share of the noise and a mask, and sends it back. The server
    sees only the sum, in which the masks cancel out. Everything runs in this process: the class
    simulates the cost and accuracy of a federation, and is not a network protocol.

    Parameters
    ----------
    %(epsilon)s
    delta : float, default=1e-5
        Probability with which ``epsilon`` may be exceeded. Must be below 1 / number of records (or
        of parties).
    unit : {"record", "party"}, default="record"
        Unit of the guarantee. "record": each record, such as a patient of a hospital. The party may
        see its own records. "party": each party with all of its records, such as the owner of a
        phone.
    server : {"curious", "trusted"}, default="curious"
        "curious": the server follows the protocol and may try to learn from its view. It sees only
        the noisy sum of each round (secure aggregation). The parties add the noise. "trusted": the
        server sees each party's contribution and adds the noise. The guarantee holds against
        everybody else.
    n_untrusted : int, default=1
        Number of parties whose noise does not count, because they may drop out or disclose their
        own share of the noise. It raises the variance of the noise of each of K parties by the
        factor K / (K - n_untrusted). No effect with a trusted server.
    party_names : array-like of shape (n_parties,), default=None
        Names of all parties, including parties without records. ``None`` means the names in
        ``parties``.
    n_rounds : int or "auto", default="auto"
        Number of rounds.
    batch_size : int or "auto", default="auto"
        Expected number of records in a round, over all parties. Only for ``unit="record"``. A
        protected party uses all of its records.
    max_grad_norm : float or "auto", default="auto"
        L2 norm to which the gradient of each record (or the update of each party) is clipped.
        "auto" is 1 for records, and 0.4 for parties.
    learning_rate : float or "auto", default="auto"
        Step size of the first round. It decreases linearly to zero.
    momentum : float, default=0.9
        Momentum of the server's updates, in [0, 1).
    local_steps : int, default=1
        Number of gradient steps of a protected party in a round. 1 is DP-FedSGD, more are
        DP-FedAvg.
    local_learning_rate : float, default=1.0
        Size of the local steps. The update is divided by it, so that it is on the scale of one
        gradient.
    %(classes)s
    relation : {"zero_out", "add_remove"}, default="zero_out"
        Neighbouring relation. Under "zero_out" the number of records is public; "add_remove" hides
        it, and needs ``n_records``. ``unit="party"`` needs "zero_out".
    n_records : int, default=None
        Public figure for the number of records of all parties. Only for
        ``relation="add_remove"``.
    n_jobs : int, default=None
        Number of threads that compute for the parties. The result does not depend on it.
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
        Number of parties.
    n_rounds_ : int
        Number of rounds.
    noise_multiplier_ : float
        Standard deviation of the noise that counts, divided by ``max_grad_norm``.
    settings_ : dict
        Value used for each parameter that can be "auto".
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** The weights of all rounds, hence the model, are (``epsilon``,
    ``delta``)-differentially private.

    With ``unit="record"``, each record takes part in a round at random, in a Poisson sample that
    its party keeps secret. Each party is trusted with its own records.

    With ``unit="party"``, each party takes part in every round, because a server sees which parties
    answer. The relation is zero-out: a party contributes nothing. The number of parties is public.
    A party is protected against a coalition of the server and up to ``n_untrusted`` other parties.
    With 0, it is not protected against a party that subtracts its own noise.

    Gradients are rounded to integer steps and summed exactly. The noise is a sum of exact discrete
    Gaussians, which is nearly one Gaussian: ``mechanisms/distributed_gaussian.py`` bounds the
    difference. It withstands the floating-point attack of Mironov (2012). Party names,
    participation and timing are public. Parties that send wrong numbers can spoil the model or
    plant a backdoor.

    **Automatic settings** follow only from public facts, as for
    :class:`~skprivacy.neural_network.DPSGDClassifier` without hidden layers. Let mu be the
    Gaussian-DP parameter of ``epsilon`` and ``delta``, n the number of records (or parties), d the
    number of features, and t = n * mu / sqrt(d). Records take 32 * sqrt(t) rounds, between 128 and
    1,536, in batches of min(n / 4, 1024); parties take 64 rounds. The learning rate is t divided by
    the rounds, at most 2, and divided by ``max_grad_norm``.

    **Edge cases.** A record with NaN, infinite or huge values is ignored. This is not reported,
    since it would reveal the record. A party may have no records, or records of one class only: it
    takes part and adds noise. ``predict`` refuses NaN and infinity.

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

    # attributes that save_model writes, without the names of the parties; see
    # persistence.attribute_states for the words
    _saved_state = {
        "classes_": "labels",
        "privacy_": "guarantee",
        "n_parties_": "count",
        "n_rounds_": "count",
        "noise_multiplier_": "number",
        "settings_": "settings n_rounds# batch_size# max_grad_norm learning_rate",
        "coef_": "array outputs features",
        "intercept_": "array outputs",
    }
    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "unit": [StrOptions({"record", "party"})],
        "server": [StrOptions({"curious", "trusted"})],
        "n_untrusted": [Interval(Integral, 0, None, closed="left")],
        "party_names": ["array-like", None],
        "n_rounds": _SIZE,
        "batch_size": _SIZE,
        "max_grad_norm": _LENGTH,
        "learning_rate": _LENGTH,
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "local_steps": [Interval(Integral, 1, None, closed="left")],
        "local_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "classes": ["array-like", None],
        "relation": [StrOptions({"zero_out", "add_remove"})],
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
        max_grad_norm: float | str = "auto",
        learning_rate: float | str = "auto",
        momentum: float = 0.9,
        local_steps: int = 1,
        local_learning_rate: float = 1.0,
        classes: ArrayLike | None = None,
        relation: str = "zero_out",
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
        self.max_grad_norm = max_grad_norm
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.local_steps = local_steps
        self.local_learning_rate = local_learning_rate
        self.classes = classes
        self.relation = relation
        self.n_records = n_records
        self.n_jobs = n_jobs
        self.budget = budget
        self.noise_seed = noise_seed

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # epsilon=1 is too small for the few rows of a check
        return tags

    def fit(
        self, X: ArrayLike, y: ArrayLike, *, parties: ArrayLike | None = None
    ) -> DPFederatedClassifier:
        """Train over the parties.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records of about unit size, scaled by public bounds, for instance by a
            :class:`~skprivacy.preprocessing.SchemaTransformer`.
        y : array-like of shape (n_samples,)
            Labels.
        parties : array-like of shape (n_samples,), default=None
            Party of each record. With ``unit="party"``, the name of a Series names the unit.
            ``None`` makes each record a separate party, such as a phone, which is slow for many.

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        ValueError
            If the parameters or parties contradict each other. Nothing is charged.
        BudgetExceededError
            If the budget cannot afford the fit. Nothing is charged, and the data is not used.
        """
        with self._private_fit() as fit:
            self._validate_params()
            effective_n_jobs(self.n_jobs)  # raises for 0
            units = check_parties(parties, X, self.party_names)
            rows, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
            self.classes_, codes = public_classes(fit, labels, self.classes)
            plan, settings = self._make_plan(rows.shape[1], units, parties is None)
            fit.assume(*self._assumptions(units.n))
            unit = units.unit if plan.of_parties else "record"
            with fit.charged(
                plan.event,
                relation=self.relation,
                at_delta=self.delta,
                unit=unit,
                arithmetic=plan.mechanism.arithmetic,
            ):
                random = SecureRandom(self.noise_seed)
                weights = train_over_parties(plan, rows, codes, units.codes, random, self.n_jobs)
            self.coef_, self.intercept_ = weights[:, :-1].copy(), weights[:, -1].copy()
            self.n_parties_, self.n_rounds_ = plan.n_parties, plan.n_rounds
            self.noise_multiplier_, self.settings_ = plan.noise_multiplier, settings
        return self

    def _make_plan(
        self, n_features: int, units: Groups, alone: bool
    ) -> tuple[FederatedPlan, dict[str, Any]]:
        """Return the plan of training and the settings; refuse parameters that contradict."""
        if units.n < 2:
            raise ValueError(
                "parties has 1 party, and at least 2 are needed, or the sum shows what one sends. "
                "For one party's records use DPSGDClassifier(hidden_layer_sizes=())."
            )
        of_parties, trusted = self.unit == "party", self.server == "trusted"
        self._check_unit(of_parties, alone)
        n = units.n if of_parties else int(self.n_records or len(units.codes))
        if not math.isinf(self.epsilon) and self.delta >= 1.0 / n:
            raise ValueError(
                f"delta={self.delta!r} must be below 1 / {n}, the number of "
                f"{'parties' if of_parties else 'records'}: publishing one of them in full would "
                "meet a larger delta. Set a smaller one."
            )
        names = ("n_rounds", "batch_size", "max_grad_norm", "learning_rate")
        settings = resolve_auto_settings(
            {name: getattr(self, name) for name in names},
            n=n, n_features=n_features, epsilon=self.epsilon, delta=self.delta, parties=of_parties,
        )  # fmt: skip
        plan = FederatedPlan(
            n_features=n_features,
            n_outputs=1 if len(self.classes_) == 2 else len(self.classes_),
            n_parties=units.n,
            n_units=n,
            n_rounds=settings["n_rounds"],
            of_parties=of_parties,
            sampling_rate=settings["batch_size"] / n,
            max_grad_norm=settings["max_grad_norm"],
            n_noises=1 if trusted else None,
            n_untrusted=0 if trusted else self.n_untrusted,
            learning_rate=settings["learning_rate"],
            momentum=self.momentum,
            local_steps=self.local_steps,
            local_learning_rate=self.local_learning_rate,
        )
        target = float(self.epsilon), float(self.delta), self.relation
        return plan.with_noise_for(*target), settings

    def _check_unit(self, of_parties: bool, alone: bool) -> None:
        if alone and (of_parties or self.n_records is not None):
            raise ValueError(
                "parties=None makes each record a separate party, and the number of parties is "
                "public. Pass fit(X, y, parties=...) with the party of each record, or leave "
                "unit='record' and n_records=None."
            )
        for name in ("batch_size", "n_records") if of_parties else ():
            if getattr(self, name) not in (None, "auto"):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is for unit='record'; with unit='party' each "
                    "party takes part in every round. Leave it out."
                )

    def _assumptions(self, n_parties: int) -> list[str]:
        """Return the trust assumptions of the guarantee."""
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


def resolve_auto_settings(
    given: dict[str, Any], *, n: int, n_features: int, epsilon: float, delta: float, parties: bool
) -> dict[str, Any]:
    """Return the settings, with a value in place of each "auto"; ``n`` is public."""
    # As for DPSGDClassifier, the total noise on a mean of clipped gradients depends on n times the
    # Gaussian-DP parameter alone, which therefore determines the length of training.
    signal = math.inf if math.isinf(epsilon) else n / analytic_noise_multiplier(epsilon, delta)
    time = signal / math.sqrt(n_features)
    rounds = _MOST_ROUNDS if math.isinf(time) else 32 * math.sqrt(time)
    automatic: dict[str, Any] = {
        "n_rounds": round(min(max(rounds, _FEWEST_ROUNDS), _MOST_ROUNDS)),
        "batch_size": max(min(n // 4, _BATCH), n // _MOST_ROUNDS, 1),
        "max_grad_norm": 1.0,
        "learning_rate": "auto",
    }
    if parties:
        automatic |= {
            "n_rounds": _ROUNDS_OF_PARTIES, "batch_size": n, "max_grad_norm": _NORM_OF_PARTIES
        }  # fmt: skip
    settings = {name: automatic[name] if v == "auto" else v for name, v in given.items()}
    settings["batch_size"] = min(settings["batch_size"], n)
    if settings["learning_rate"] == "auto":
        rate = min(time / settings["n_rounds"], _LARGEST_RATE)
        settings["learning_rate"] = rate / settings["max_grad_norm"]
    return settings
