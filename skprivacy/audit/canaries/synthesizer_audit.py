"""Canary audit of a private synthesizer, from its noisy tables and from its synthetic records.

Mahloujifar, Melis and Chaudhuri 2024. Start at :func:`audit_synthesizer`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri
from sklearn.base import clone

from ..._input_data import check_consistent_length
from ..._report_facts import Fact, FactReport, ReportFacts, Section, details, values
from ..._validation import whole
from ...attacks.record_tables import as_records
from ...metrics import auc
from ...metrics.coin_guesses import gaussian_epsilon
from ...metrics.rates import check_alpha
from ...preprocessing import BoundedColumn, CategoricalColumn, Schema
from ...preprocessing.transformer import check_columns
from ...synthesis import MarginalSynthesizer
from ..inspection.claims import Claim, claim_of
from .coins import (
    CanaryMixture,
    CanaryRun,
    coin_entropy,
    coin_for,
    score_from_rows,
    score_from_tables,
)
from .one_run_report import COINS, OneRunAuditReport, guess_and_test

_COUNTED = ("adaptive", "independent", "tree")  # methods that release noisy tables
_DRAWN = 10  # synthetic records per record
_FEWEST = 20  # coins
_TOO_FEW = "too few coins: even with all guesses right, nothing would be refuted"
_LARGEST_MU = 1e3  # end of the search for claimed_mu


@dataclass(frozen=True, repr=False)
class SynthesizerAuditReport(FactReport):
    """Claimed privacy of a synthesizer compared with guesses of the canaries' coins.

    Returned by :func:`audit_synthesizer`.

    Attributes
    ----------
    tables : OneRunAuditReport
        Audit by an attacker who sees the noisy tables, which are all that is released.
    rows : OneRunAuditReport
        Audit by an attacker who sees synthetic records and knows the bins of each table.
    n_runs : int
        Number of fits, whose coins are joined.
    alpha : float
        Error probability of the verdict, and of all bounds without assumptions together. Each
        attacker gets one half of it.
    """

    tables: OneRunAuditReport
    rows: OneRunAuditReport
    n_runs: int
    alpha: float

    @property
    def claim(self) -> Claim:
        """The tested claim."""
        return self.tables.claim

    @property
    def verdict(self) -> str:
        """One of "violated", "consistent" and "no claim".

        "consistent" does not prove a claim: a stronger attack may refute it.
        """
        both = self.tables.verdict, self.rows.verdict
        return "violated" if "violated" in both else both[0]

    @property
    def claimed_mu(self) -> float:
        """The mu of Gaussian noise that has the claimed epsilon at the claimed delta.

        NaN without a claim, or at a delta of 0.
        """
        guarantee = self.claim.guarantee
        if guarantee is None or not guarantee.at_delta:
            return float("nan")
        epsilon, delta = guarantee.epsilon(), guarantee.at_delta
        if not epsilon < gaussian_epsilon(_LARGEST_MU, delta):
            return float("inf")
        return float(brentq(lambda mu: gaussian_epsilon(mu, delta) - epsilon, 0.0, _LARGEST_MU))

    @property
    def shown_mu(self) -> tuple[float, float]:
        """Estimated leakage of tables and of rows, as the mu of Gaussian noise; not a bound.

        Computed from the area under the ROC curve of all scores.
        """
        found = [_estimate_mu(report.scores, report.trained) for report in (self.tables, self.rows)]
        return found[0], found[1]

    @property
    def epsilon_lower_bound(self) -> float:
        """The larger of the bounds without assumptions about the mechanism, under the coin."""
        return max(self.tables.epsilon_lower_bound, self.rows.epsilon_lower_bound)

    def facts(self) -> ReportFacts:
        claimed, mu = str(self.claim.guarantee or self.claim.reason), self.claimed_mu
        as_noise = "" if np.isnan(mu) else f"; as Gaussian noise: mu {mu:.3g}"
        coins = f"{self.tables.n_canaries:,} coins in {self.n_runs:,} fits"
        facts = [
            Fact("claim", claimed, f"{claimed}{as_noise}", label="claim"),
            Fact("n_runs", self.n_runs, COINS[self.tables.coin], label=coins),
            *values(self, "alpha", "claimed_mu"),
        ]
        views = ("noisy tables", self.tables), ("synthetic records", self.rows)
        for (seen, report), shown in zip(views, self.shown_mu, strict=True):
            right = f"{report.right:,} of {report.guesses:,} guesses right, mu about {shown:.3g}"
            facts += [
                Fact(seen, report.to_dict(), right, label=seen),
                *details(map(repr, report.bounds)),
            ]
        if not (self.tables.within_reach or self.tables.untested):
            facts.append(Fact(sentence=_TOO_FEW))
        facts += [Fact(sentence=f"assumes that {text}") for text in self.tables.assumptions]
        title = f"Audit of {self.tables.model}"
        return ReportFacts(
            Fact("verdict", self.verdict, self.tables.untested or self.verdict, label=title),
            (Section("", tuple(facts)),),
        )


def audit_synthesizer(
    synthesizer: MarginalSynthesizer,
    X: Any,
    y: Any = None,
    *,
    n_runs: int = 300,
    n_canaries: int = 1,
    alpha: float = 0.05,
    random_state: int | None = None,
) -> SynthesizerAuditReport:
    """Fit a synthesizer many times, with or without a canary, and guess which from its output.

    A canary is an artificial record, drawn from the public ranges and categories, where real
    records are rare. A fair coin decides whether it replaces a record of ``X``. Otherwise this
    record is left out or, under replace-one, stays. The attacker knows all records without a coin,
    and sees either the released noisy tables or only synthetic records.

    Parameters
    ----------
    synthesizer : MarginalSynthesizer
        Synthesizer with a ``schema`` and a counting method: "tree", "adaptive" or "independent".
        Clones are fitted, without a budget.
    X : DataFrame or array-like of shape (n_samples, n_features)
        Records. Artificial ones are as good, because noise does not depend on them.
    y : array-like of shape (n_samples,), default=None
        Target of the records, as for ``fit``.
    n_runs : int, default=300
        Number of fits.
    n_canaries : int, default=1
        Number of canaries per fit, each with its own coin. Use more if fits are slow: 10 fits with
        100 canaries show about as much leakage, but prove less, because canaries may interfere.
    alpha : float, default=0.05
        Error probability: a true claim is called violated with at most this probability.
    random_state : int or None, default=None
        Seed of canaries, coins and samples. ``None`` draws them afresh. The party that fits the
        synthesizer must not know it.

    Returns
    -------
    SynthesizerAuditReport
        Its ``verdict`` and ``epsilon_lower_bound``; ``tables`` and ``rows``, reports of
        :func:`audit_one_run` for an attacker who sees the noisy tables, and for one who sees
        synthetic records; ``n_runs``, the number of fits; ``claimed_mu`` and ``shown_mu``, the
        claim and the estimated leakage of tables and of rows as the mu of Gaussian noise.

    Raises
    ------
    TypeError
        If ``synthesizer`` is not a MarginalSynthesizer, or a parameter has the wrong type.
    ValueError
        If it has no schema, releases no counts, or has a ``noise_seed``, or if a parameter is out
        of range. Raised before any fit.

    See Also
    --------
    audit_synthetic : Attacks on the synthetic records of any generator.

    Notes
    -----
    **Guarantees.** A true claim is called violated with probability ``alpha`` at most. With one
    canary per fit, the number of right guesses is compared exactly with the number that the claimed
    trade-off curve allows. With more canaries, the coins of all fits count as coins of one larger
    run. This is valid for any interference of canaries, but needs thousands of coins to detect
    noise of half the claimed size.

    Scores are the best linear estimates of the coins from all noisy tables, for the stated size of
    the noise. If this size is wrong, the guesses get worse, but the error probability holds. An
    audit is not private: it holds scores.

    **Edge cases.** Under ``zero_out`` records are replaced, which is two steps, so the claim is
    applied twice. The private choice of columns, which gets 5 % of the budget, is not tested.

    References
    ----------
    S. Mahloujifar, L. Melis and K. Chaudhuri, "Auditing f-differential privacy in one run",
    arXiv:2410.22235, 2024.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skprivacy.audit import audit_synthesizer
    >>> from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
    >>> from skprivacy.synthesis import MarginalSynthesizer
    >>> rng = np.random.default_rng(0)
    >>> X = pd.DataFrame({"age": rng.integers(18, 90, 500), "job": rng.choice(["no", "yes"], 500)})
    >>> schema = Schema({"age": BoundedColumn(18, 90), "job": CategoricalColumn(["no", "yes"])})
    >>> synthesizer = MarginalSynthesizer(4.0, 1e-6, schema=schema)
    >>> report = audit_synthesizer(synthesizer, X, n_runs=30, alpha=1e-8)
    >>> report.verdict, round(report.claimed_mu, 2)
    ('consistent', 0.84)
    """
    frame, facts, target = _whole_table(synthesizer, X, y)
    _check(synthesizer, len(frame), n_canaries, n_runs, alpha)
    random = np.random.default_rng(coin_entropy(random_state, "audit_synthesizer"))
    coin = coin_for(synthesizer)
    seen: list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]] = []
    for _ in range(n_runs):
        mixture = CanaryMixture.draw(frame, facts, n_canaries, coin, random)
        table = mixture.training_table()
        parts = (table,) if target is None else (table.drop(columns=target), table[target])
        fitted = clone(synthesizer).set_params(budget=None).fit(*parts)
        n = max(_DRAWN * len(table), 1000)
        synthetic = fitted.sample(n, random_state=int(random.integers(2**31)))
        seen.append(
            (
                score_from_tables(fitted, mixture),
                score_from_rows(fitted, mixture, synthetic),
                mixture.trained,
            )
        )
    scores = [np.concatenate(parts) for parts in zip(*seen, strict=True)]
    claim = claim_of(fitted)
    run = CanaryRun("tables", coin, fitted, scores[2], scores[0], apart=n_canaries == 1)
    reports = [
        guess_and_test(
            " ".join(repr(synthesizer).split()), view, claim, alpha / 2, random, independent=True
        )
        for view in (run, replace(run, canaries="rows", scores=scores[1]))
    ]
    return SynthesizerAuditReport(reports[0], reports[1], int(n_runs), float(alpha))


def _estimate_mu(scores: NDArray[np.float64], trained: NDArray[np.bool_]) -> float:
    """Return the mu of Gaussian noise with the AUC of these scores; NaN if all coins agree."""
    if trained.all() or not trained.any():
        return float("nan")
    area = auc(scores[trained], scores[~trained])
    # For N(0, 1) against N(mu, 1), AUC = Phi(mu / sqrt(2)).
    return float(np.sqrt(2) * ndtri(area))


def _whole_table(
    synthesizer: Any, X: Any, y: Any
) -> tuple[pd.DataFrame, dict[str, BoundedColumn | CategoricalColumn], str | None]:
    """Return all columns in one frame, the public facts of each, and the name of the target."""
    if not isinstance(synthesizer, MarginalSynthesizer):
        raise TypeError(
            f"synthesizer={synthesizer!r} must be a MarginalSynthesizer. For records of another "
            "generator, use audit_synthetic."
        )
    schema = synthesizer.schema
    if not isinstance(schema, Schema):
        raise ValueError(
            f"schema={schema!r} must be a Schema, because a schema read off the data would depend "
            "on the canaries. Pass MarginalSynthesizer(schema=...)."
        )
    facts = schema._check_kinds("audit_synthesizer", missing=True)
    X = as_records(X)
    if not isinstance(X, pd.DataFrame):
        if np.ndim(X) != 2 or np.shape(X)[1] != len(facts):
            raise ValueError(
                f"X has shape {np.shape(X)}; expected one column for each of the schema's "
                f"{len(facts)}: {list(facts)}."
            )
        X = pd.DataFrame(X, columns=list(facts))
    check_columns(schema, X)
    frame = X[list(facts)].reset_index(drop=True)
    if y is None:
        return frame, facts, None
    target = schema.target_column or "target"
    if target in facts or np.ndim(y) != 1:
        raise ValueError(
            f"y must be a column that X does not hold, with one value per record; got shape "
            f"{np.shape(y)}, and the columns {list(facts)}. Leave out y if X holds the target."
        )
    check_consistent_length(X, y)
    facts[target] = _target(schema)
    return frame.assign(**{target: np.asarray(y)}), facts, target


def _target(schema: Schema) -> BoundedColumn | CategoricalColumn:
    if schema.classes is not None:
        return CategoricalColumn(schema.classes)
    if schema.target_bounds is not None:
        return BoundedColumn(*schema.target_bounds)
    raise ValueError(
        "schema has neither classes nor target_bounds, which the y of canaries needs. Pass, for "
        "example, Schema(..., classes=[...])."
    )


def _check(synthesizer: Any, n: int, n_canaries: Any, n_runs: Any, alpha: Any) -> None:
    if synthesizer.method not in _COUNTED:
        raise ValueError(
            f"method={synthesizer.method!r} releases no noisy tables to audit; expected one of "
            f"{list(_COUNTED)}. Use audit_synthetic."
        )
    if synthesizer.noise_seed is not None:
        raise ValueError(
            f"noise_seed={synthesizer.noise_seed!r} must be None, because all fits would draw the "
            "same noise. Leave it out."
        )
    whole("n_runs", n_runs)
    whole("n_canaries", n_canaries)
    if n_canaries > n // 2:
        raise ValueError(
            f"n_canaries={n_canaries} must be at most half the number of records, {n // 2}. Pass "
            "fewer canaries, or more records."
        )
    if n_canaries * n_runs < _FEWEST:
        raise ValueError(
            f"n_runs={n_runs} times n_canaries={n_canaries} must be at least {_FEWEST} coins. Pass "
            "more runs."
        )
    check_alpha(alpha)
