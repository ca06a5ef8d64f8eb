"""Empirical verification of a privacy claim by many fits on worst-case neighbours.

Jagielski, Ullman and Oprea 2020; Nasr et al. 2021.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from ..._docs import fill_docs
from ..._environment import check_n_jobs
from ..._files import shorten_text
from ..._report_facts import Fact, FactReport, ReportFacts, Section, values
from ..._validation import is_number, is_whole, sequence
from ...accounting import PrivacyGuarantee
from ...metrics.coin_guesses import BOUNDS, GuessBound, gaussian_epsilon
from ...metrics.rates import check_alpha
from ...metrics.repeated_runs import Counts, refuted_epsilon, refuted_mu
from ..inspection.guarantees import CLAIM_DOCS, read_claim
from ..report.findings import curve_of_chords
from .neighbors import (
    Effort,
    NeighbourPair,
    PublicFeatures,
    PublicRanges,
    copies_repeat,
    default_records,
    neighbours,
)
from .releases import IndependentFits, choose_epsilon
from .threshold_tests import CountedAttack

_FEWEST_RUNS = 20  # fewer could not show even a plain violation
_MOST_RUNS = 10_000_000  # a larger number is a slip: it would take weeks
_ONE_PROCESS = "n_jobs=1: copies of the release have its generator, and would draw the same noise"
_DELTA = 1e-5  # at which the Gaussian bound for a claim of pure epsilon is stated


@dataclass(frozen=True, repr=False)
class PrivacyVerificationReport(FactReport):
    """Result of attacks with many runs on a claim; returned by :func:`verify_privacy`.

    Attributes
    ----------
    model : str
        The estimator or release that was run.
    guarantee : PrivacyGuarantee
        The claim, at the epsilon of the runs.
    broken : bool
        Whether the claim is refuted, at error ``alpha``.
    bounds : tuple of GuessBound
        Lower bounds on epsilon, each with its assumptions. The first assumes nothing.
    neighbours : str
        The pair of neighbours that the attack chose.
    counts : tuple of Counts
        Number of fresh runs that passed each threshold test. The tests are fixed before the fresh
        runs.
    alpha : float
        Error probability of the verdict and of each bound.
    n_runs, n_pilot : int
        Number of fresh runs per side; number of all earlier runs, over all neighbours.
    seconds : float
        Duration.
    changes : tuple of str
        Parameters of the estimator that were changed for the runs, in words.
    left_out : tuple of str
        Neighbours on which the estimator failed.
    rarest_fault : float
        Smallest share of fits without noise that ``n_runs`` runs can show, by an attack that
        recognises each of these fits. 1 if not even 100% could refute the claim.
    """

    model: str
    guarantee: PrivacyGuarantee
    broken: bool
    bounds: tuple[GuessBound, ...]
    neighbours: str
    counts: tuple[Counts, ...]
    alpha: float
    n_runs: int
    n_pilot: int
    seconds: float
    changes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    rarest_fault: float = 1.0

    @property
    def claimed_epsilon(self) -> float:
        """The claimed epsilon, at the claimed delta."""
        return self.guarantee.epsilon()

    @property
    def epsilon_lower_bound(self) -> float:
        """The bound without assumptions, at the claimed delta."""
        return self.bounds[0].epsilon

    @property
    def verdict(self) -> str:
        """The result in one sentence. "held" does not prove a claim; see the function's Notes."""
        sure = f"at {100 * (1 - self.alpha):g}%"
        if not self.broken:
            return (
                f"held: epsilon is at least {self.epsilon_lower_bound:.3g} of the claimed "
                f"{self.claimed_epsilon:.3g}, {sure}; {self._limit}"
            )
        if self.epsilon_lower_bound > self.claimed_epsilon:
            claimed = f"where {self.claimed_epsilon:.3g} is claimed"
            return f"broken: epsilon is at least {self.epsilon_lower_bound:.3g}, {claimed}, {sure}"
        return (
            f"broken: the claimed trade-off curve is exceeded, {sure}; epsilon is at least "
            f"{self.epsilon_lower_bound:.3g} for any curve, where {self.claimed_epsilon:.3g} is "
            "claimed"
        )

    @property
    def _limit(self) -> str:
        """The share of fits without noise that this number of runs shows at best, in words."""
        if not self.rarest_fault < 1:
            return f"{self.n_runs:,} runs are too few to show anything"
        return (
            f"{self.n_runs:,} runs a side show noise that is missing in {self.rarest_fault:.2%} of "
            "the fits or more, at best"
        )

    @property
    def _excess(self) -> list[str]:
        """Why bounds above a claim that held do not contradict it, in words."""
        above = [b for b in self.bounds if b.assumptions and b.epsilon > self.claimed_epsilon]
        return [
            f"{bound.epsilon:.3g} is above the claimed {self.claimed_epsilon:.3g}, yet not "
            "refuted: it holds only under its assumption, which the verdict does not make"
            for bound in above
            if not self.broken
        ]

    def facts(self) -> ReportFacts:
        runs = (
            f"{self.n_runs:,} fresh runs per side after {self.n_pilot:,} pilot runs, "
            f"{self.seconds:.0f} s"
        )
        facts = (
            Fact("claim", self.guarantee.to_dict(), repr(self.guarantee), label="claim"),
            Fact("neighbours", self.neighbours, self.neighbours, label="neighbours"),
            *(
                Fact(f"counts {i}", asdict(found), _count_text(found, self.guarantee))
                for i, found in enumerate(self.counts)
            ),
            *(Fact(b.bound, asdict(b), repr(b)) for b in self.bounds),
            *(Fact(sentence=text) for text in self._excess),
            *(Fact(sentence=text, label="changed") for text in self.changes),
            *(Fact(sentence=name, label="not tried") for name in self.left_out),
            Fact("n_runs", self.n_runs, runs),
            *values(self, "n_pilot", "seconds", "model", "broken", "alpha", "changes", "left_out",
                    "rarest_fault"),
        )  # fmt: skip
        title = f"Verification of {shorten_text(self.model)}"
        return ReportFacts(
            Fact("verdict", self.verdict, self.verdict, label=title), (Section("", facts),)
        )


def _count_text(counts: Counts, guarantee: PrivacyGuarantee) -> str:
    rate = counts.false / counts.n_out
    return (
        f"detected in {counts.hits:,} of {counts.n_in:,} runs with the record and in "
        f"{counts.false:,} of {counts.n_out:,} without; at {rate:.3g} the claim allows "
        f"{float(guarantee.tpr_bound(rate)):.3g}"
    )


@fill_docs(CLAIM_DOCS)
def verify_privacy(
    estimator: Any,
    X: Any = None,
    y: Any = None,
    *,
    epsilon: float | None = None,
    claim: Any = None,
    fit_params: Mapping[str, Any] | None = None,
    n_runs: int | None = None,
    seconds: float = 60.0,
    alpha: float = 0.01,
    n_jobs: int | None = None,
) -> PrivacyVerificationReport:
    """Test an estimator's own claim: fit it many times on worst-case neighbours.

    Clones are fitted on neighbouring data sets under the claimed relation. The data sets differ in
    one record, which is mislabelled, extreme, or the only one of its class. The other records are
    the given data, records that contradict the one record, or blank records.

    A score turns each release (the learned numbers and the predictions of a model) into one number.
    Pilot runs choose the neighbours, the score and its thresholds. Fresh runs then bound epsilon
    and test the whole claimed trade-off curve.

    Parameters
    ----------
    estimator : estimator
        Of any library, with a claim or with parameters ``epsilon`` and perhaps ``delta``. It is
        never changed, and its budget is never charged.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,), default=None
        A small data set of a few dozen records that the estimator can fit. Numbers only. ``None``
        makes 24 records from the estimator's public bounds, classes and target bounds.
    epsilon : float, default=None
        Epsilon of the runs. ``None`` chooses an epsilon at which mistakes show best, and reports
        it: there, the best attack that the claim allows errs in about 10% of cases.
    %(claim)s
        The estimator then runs unchanged. None tests its own claim. If it makes none, its
        parameters ``epsilon`` and ``delta`` count as a claim for replaced records.
    fit_params : mapping, default=None
        Further arguments of ``fit``, such as ``X_public``. They are the same on both neighbours, so
        they must be public.
    n_runs : int, default=None
        Fresh runs per side, at least 20. ``None`` makes as many as ``seconds`` allow, and fewer if
        the pilot runs already refute the claim plainly.
    seconds : float, default=60.0
        Approximate duration. The test is weak if a single fit takes more than a fraction of a
        second.
    alpha : float, default=0.01
        Error probability: a true claim is called broken with at most this probability.
    n_jobs : int, default=None
        Number of processes, through joblib. ``None`` means one.

    Returns
    -------
    PrivacyVerificationReport
        ``broken`` says whether the claim is refuted. ``claimed_epsilon`` and the ``bounds`` on
        epsilon; ``epsilon_lower_bound`` assumes nothing. ``neighbours`` is the chosen pair,
        ``n_runs`` the number of fresh runs on each side, and ``rarest_fault`` the smallest share
        of runs without noise that ``n_runs`` runs can show.

    Raises
    ------
    TypeError
        If ``estimator`` lacks ``fit`` or ``get_params``, or ``X`` holds anything but numbers.
    ValueError
        If the estimator makes no claim that could be refuted, fits no pair of neighbours, or a
        parameter is out of range.

    See Also
    --------
    verify_release : The same for mechanisms and functions.
    audit_one_run : One training run, with canaries, where fits are expensive.

    Notes
    -----
    **Guarantees.** A true claim is called broken with probability ``alpha`` at most. The choices
    made by the pilot runs do not matter, because the fresh runs are independent of them. "Held"
    proves nothing: a better attack, other neighbours or another epsilon may break the claim. The
    estimator's own code is run, never a faster equivalent.

    **Edge cases.** All sources of noise are fresh in every run, and the report lists the changes. A
    ``noise_seed`` is removed. An estimator with this parameter claims that its other seeds may be
    public, so they stay the same in every run. In any other estimator, ``random_state``, ``seed``
    and generators are fresh in every run.

    A fit that fails in some of the runs counts as an empty release. Only a ``TimeoutError``, as of
    an alarm, reaches the caller. If the claim assumes that labels or ranges read off the data are
    public, neighbours agree in them.

    References
    ----------
    M. Jagielski, J. Ullman and A. Oprea, "Auditing differentially private machine learning: how
    private is private SGD?", NeurIPS 2020.
    M. Nasr et al., "Adversary instantiation: lower bounds for differentially private machine
    learning", IEEE S&P 2021.

    Examples
    --------
    >>> from skprivacy.audit import verify_privacy
    >>> from skprivacy.preprocessing import PrivateStandardScaler
    >>> scaler = PrivateStandardScaler(bounds=([0.0], [1.0]))
    >>> result = verify_privacy(scaler, epsilon=3.0, n_runs=50)
    >>> result.broken, result.epsilon_lower_bound <= result.claimed_epsilon
    (False, True)
    """
    if not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        raise TypeError(
            f"estimator={estimator!r} must have fit and get_params. For a mechanism or a function, "
            "use verify_release."
        )
    stated = read_claim(claim)
    if not (fit_params is None or isinstance(fit_params, Mapping)):
        raise TypeError(f"fit_params={fit_params!r} must be a dict, or None.")
    if "groups" in (fit_params or {}):
        raise ValueError(
            "fit_params has groups, but these neighbours differ by one record, not by one group. "
            "Use verify_release with your own neighbours."
        )
    effort = _effort(n_runs, seconds, alpha, n_jobs)
    started = time.perf_counter()
    X, y, public = _records(estimator, X, y)
    probes = np.vstack([public.high, public.low, public.middle, X[:1], X[-1:]])
    fits = IndependentFits(estimator, dict(fit_params or {}), stated, probes)
    fits, guarantee = choose_epsilon(fits, (X, y), epsilon)
    fits, steps = fits.with_answers(guarantee, (X, y))
    # With partitions by a hash, a record's content alone determines its partition.
    erased = any(isinstance(v, str) and v == "hash" for v in estimator.get_params().values())
    agreed = PublicFeatures.from_guarantee(guarantee)
    pairs = list(neighbours(guarantee.relation, X, y, public, erased=erased, agreed=agreed))
    return _test_claim(
        fits, pairs, guarantee, effort, alpha, started,
        model=" ".join(repr(fits.estimator).split()), changes=fits.changes,
        steps=steps,
    )  # fmt: skip


@fill_docs(CLAIM_DOCS)
def verify_release(
    release: Callable[[Any], Any],
    neighbours: Sequence[tuple[Any, Any]],
    claim: Any,
    *,
    n_runs: int | None = None,
    seconds: float = 60.0,
    alpha: float = 0.01,
    n_jobs: int | None = None,
) -> PrivacyVerificationReport:
    """Test a claim about any release of numbers, on given neighbours.

    Parameters
    ----------
    release : callable
        ``release(data)`` returns a number or an array of them, with fresh noise at every call.
    neighbours : sequence of pairs
        Pairs of neighbouring data sets, as ``release`` takes them. For a mechanism: two values as
        far apart as its sensitivity.
    %(required_claim)s
    n_runs, seconds, alpha, n_jobs : int, float, float, int
        As in :func:`verify_privacy`, with the same defaults.

    Returns
    -------
    PrivacyVerificationReport
        As of :func:`verify_privacy`.

    Raises
    ------
    TypeError
        If ``release`` cannot be called or ``claim`` is not a guarantee.
    ValueError
        If ``neighbours`` is empty, the release returns other values than numbers, or a parameter
        is out of range.

    Notes
    -----
    **Guarantees.** The guarantees of :func:`verify_privacy`. Mistakes show best at an epsilon at
    which the best allowed attack errs in about 10% of cases. This epsilon is about 3 for Laplace
    noise, and about 12 for Gaussian noise at delta 1e-5.

    **Edge cases.** A release that holds its own generator runs in one process, for any ``n_jobs``:
    every process would have a copy of the generator.

    Examples
    --------
    >>> from skprivacy.audit import verify_release
    >>> from skprivacy.mechanisms import Laplace, SecureRandom
    >>> noise, random = Laplace(0.5, sensitivity=1.0), SecureRandom()
    >>> release = lambda v: noise.release(v, random)
    >>> verify_release(release, [(1.0, 0.0)], noise.event, n_runs=500, alpha=1e-8).broken
    False
    >>> half = Laplace(0.1, sensitivity=1.0)
    >>> release = lambda v: half.release(v, random)
    >>> verify_release(release, [(1.0, 0.0)], claim=2.0, n_runs=500).broken
    True
    """
    stated = read_claim(claim)
    if not callable(release) or stated is None:
        raise TypeError(
            f"release={release!r} must be callable, and claim={claim!r} a claim. Pass, for "
            "example, mechanism.event."
        )
    given = [sequence("neighbours", pair) for pair in sequence("neighbours", neighbours)]
    if not all(len(pair) == 2 for pair in given):
        raise ValueError("neighbours must be a list of pairs of neighbouring data sets.")
    pairs = [NeighbourPair(f"neighbours {i}", data, other) for i, (data, other) in enumerate(given)]
    if not pairs:
        raise ValueError("neighbours=[] must hold at least one pair of neighbouring data sets.")
    effort = _effort(n_runs, seconds, alpha, n_jobs)
    changes: tuple[str, ...] = ()
    if effort.n_jobs > 1 and copies_repeat(release, pairs[0].data, effort.n_jobs):
        effort, changes = replace(effort, n_jobs=1), (_ONE_PROCESS,)
    name = getattr(release, "__name__", type(release).__name__)
    return _test_claim(
        release, pairs, stated, effort, alpha, time.perf_counter(), model=name, changes=changes
    )


def _test_claim(
    release: Callable[[Any], Any], pairs: list[NeighbourPair], guarantee: PrivacyGuarantee,
    effort: Effort, alpha: float, started: float, model: str, changes: tuple[str, ...] = (),
    steps: Sequence[slice] = (),
) -> PrivacyVerificationReport:  # fmt: skip
    delta = guarantee.at_delta or 0.0
    curve = curve_of_chords(guarantee, 1e-7, 300)
    attack = CountedAttack.run(release, pairs, curve, delta, alpha, effort, steps)
    # Each test gets its share of alpha (Bonferroni): the verdict takes any of them.
    share = alpha / len(attack.counts)
    return PrivacyVerificationReport(
        model=model,
        guarantee=guarantee,
        broken=any(counts.surprise(guarantee.tpr_bound) < share for counts in attack.counts),
        bounds=_bounds(attack.counts, delta, alpha),
        neighbours=attack.pair.name,
        counts=attack.counts,
        alpha=float(alpha),
        n_runs=attack.counts[0].n_in,
        n_pilot=attack.n_pilot,
        seconds=time.perf_counter() - started,
        changes=changes,
        left_out=attack.left_out,
        rarest_fault=_find_rarest_fault(attack.counts[0].n_in, guarantee, share),
    )


def _find_rarest_fault(n: int, guarantee: PrivacyGuarantee, share: float) -> float:
    """Return the smallest share of n runs that refutes a claim if no run of the other side errs."""
    hits = bisect_left(
        range(n), -share,
        key=lambda hits: -Counts(hits, n, 0, n).surprise(guarantee.tpr_bound),
    )  # fmt: skip
    return hits / n


def _bounds(counts: tuple[Counts, ...], delta: float, alpha: float) -> tuple[GuessBound, ...]:
    # Nasr et al. 2023: a lower bound on mu of Gaussian DP, stated as epsilon at delta.
    mu, at = refuted_mu(counts, alpha), delta or _DELTA
    epsilon = gaussian_epsilon(mu, at)
    return (
        # Jagielski, Ullman and Oprea 2020: a lower bound on epsilon from counted error rates.
        GuessBound(refuted_epsilon(counts, delta, alpha), delta, float(alpha), "approximate"),
        GuessBound(epsilon, at, float(alpha), "gaussian", mu, BOUNDS["gaussian"]),
    )


def _records(
    estimator: Any, X: Any, y: Any
) -> tuple[NDArray[Any], NDArray[Any] | None, PublicRanges]:
    if X is None:
        public = PublicRanges.from_estimator(estimator, None, None)
        return *default_records(public), public
    rows = np.asarray(X)
    if rows.dtype.kind not in "biuf" or rows.ndim != 2:
        raise TypeError(
            f"X has dtype {rows.dtype} and {rows.ndim} dimensions, but worst-case neighbours are "
            "made for tables of numbers. Use verify_release with your own neighbours."
        )
    labels = None if y is None else np.atleast_1d(y)
    if len(rows) < 2 or (labels is not None and len(labels) != len(rows)):
        raise ValueError(
            f"X and y must have the same number of records, at least two; got {len(rows)} and "
            f"{None if labels is None else len(labels)}."
        )
    return rows.astype(float), labels, PublicRanges.from_estimator(estimator, rows, labels)


def _effort(n_runs: Any, seconds: Any, alpha: Any, n_jobs: Any) -> Effort:
    if n_runs is not None and not (is_whole(n_runs) and _FEWEST_RUNS <= n_runs <= _MOST_RUNS):
        raise ValueError(
            f"n_runs={n_runs!r} must be a whole number from {_FEWEST_RUNS} to {_MOST_RUNS:,}, or "
            "None for as many as the time allows."
        )
    if not (is_number(seconds) and seconds > 0):
        raise ValueError(f"seconds={seconds!r} must be a number above 0, such as 60.")
    check_alpha(alpha)
    check_n_jobs(n_jobs)
    return Effort(None if n_runs is None else int(n_runs), float(seconds), effective_n_jobs(n_jobs))
