"""Many runs on worst-case neighbours: an estimator's own claim, attacked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray

from .._jobs import check_n_jobs
from .._validation import is_number, is_whole, sequence
from ..accounting import PrivacyGuarantee
from ..metrics import GuessBound
from ..metrics._fresh_runs import Counts, Curve, refuted_epsilon, refuted_mu
from ..metrics._guesses import BOUNDS, gaussian_epsilon
from ._attack import Attack, Effort, copies_repeat
from ._error_probability import check_alpha
from ._fits import Fits
from ._neighbours import Agreed, Pair, Public, default_records, neighbours
from ._plain import brief
from ._telling import at_telling_epsilon

__all__ = ["PrivacyVerification", "verify_privacy", "verify_release"]

_FEWEST_RUNS = 20  # with fewer, what is plain is not shown either
_MOST_RUNS = 10_000_000  # more is a slip: weeks
_ONE_PROCESS = "n_jobs=1: copies of the release have its generator, and would draw the same noise"
_DELTA = 1e-5  # at which the Gaussian bound of a claim of pure epsilon is stated


@dataclass(frozen=True, repr=False)
class PrivacyVerification:
    """What attacks with many runs showed of a claim, by :func:`verify_privacy`.

    Attributes
    ----------
    model : str
        What was run.
    guarantee : PrivacyGuarantee
        The claim, at the epsilon at which it was run.
    broken : bool
        Whether the claim is refuted, at error ``alpha``.
    bounds : tuple of GuessBound
        Lower bounds on epsilon, each with its assumptions; the first has none.
    neighbours : str
        The neighbours that showed most.
    counts : tuple of Counts
        How often each event, settled before the fresh runs, came about in them.
    alpha : float
        Error probability of the verdict and of each bound.
    n_runs, n_pilot : int
        Fresh runs a side; runs before them, on all neighbours.
    seconds : float
        How long it took.
    changes : tuple of str
        What was changed of the estimator for the runs.
    left_out : tuple of str
        Neighbours on which it could not be run.
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

    @property
    def claimed_epsilon(self) -> float:
        """The claimed epsilon, at the claimed delta."""
        return self.guarantee.epsilon()

    @property
    def epsilon_lower_bound(self) -> float:
        """The bound that assumes nothing, at the claimed delta."""
        return self.bounds[0].epsilon

    @property
    def verdict(self) -> str:
        """The result in one sentence. "held" does not prove a claim: see Notes of the function."""
        sure = f"at {100 * (1 - self.alpha):g}%"
        if not self.broken:
            return (
                f"held: epsilon is at least {self.epsilon_lower_bound:.3g} of the claimed "
                f"{self.claimed_epsilon:.3g}, {sure}"
            )
        if self.epsilon_lower_bound > self.claimed_epsilon:
            claimed = f"where {self.claimed_epsilon:.3g} is claimed"
            return f"broken: epsilon is at least {self.epsilon_lower_bound:.3g}, {claimed}, {sure}"
        return (
            f"broken: the claimed trade-off curve is exceeded, {sure}; epsilon is at least "
            f"{self.epsilon_lower_bound:.3g} whatever the curve, and {self.claimed_epsilon:.3g} is "
            "claimed"
        )

    def __repr__(self) -> str:
        lines = [
            f"Verification of {brief(self.model)}: {self.verdict}",
            f"  claim: {self.guarantee!r}",
            f"  neighbours: {self.neighbours}",
            *(f"  {_shown(counts, self.guarantee)}" for counts in self.counts),
            *(f"  {bound!r}" for bound in self.bounds),
            *(f"  changed: {text}" for text in self.changes),
            *(f"  not tried: {name}" for name in self.left_out),
            f"  {self.n_runs:,} fresh runs a side after {self.n_pilot:,} runs to choose by, "
            f"{self.seconds:.0f} s",
        ]
        return "\n".join(lines)


def _shown(counts: Counts, guarantee: PrivacyGuarantee) -> str:
    rate = counts.false / counts.n_out
    return (
        f"told in {counts.hits:,} of {counts.n_in:,} runs with the record, {counts.false:,} of "
        f"{counts.n_out:,} without; at {rate:.3g} the claim allows "
        f"{float(guarantee.tpr_bound(rate)):.3g}"
    )


def verify_privacy(
    estimator: Any,
    X: Any = None,
    y: Any = None,
    *,
    epsilon: float | None = None,
    claim: PrivacyGuarantee | None = None,
    fit_params: Mapping[str, Any] | None = None,
    n_runs: int | None = None,
    seconds: float = 60.0,
    alpha: float = 0.01,
    n_jobs: int | None = None,
) -> PrivacyVerification:
    """Attack an estimator's own claim: fit it many times on worst-case neighbours.

    Clones are fitted on neighbouring data sets under the claimed relation: with a record that is
    mislabelled, extreme, far out, alone in its class, and without it; among the data, among records
    that say the opposite, among blank ones. What each fit released, its learned numbers and its
    answers, is reduced to scores. Where noise is added step by step, as by DP-SGD, a score is the
    likelihood ratio of a record that takes part in some steps. Some of the runs settle neighbours,
    score and thresholds; fresh ones then bound epsilon, and test the whole claimed trade-off curve.

    Parameters
    ----------
    estimator : estimator
        Of any library, with a claim or with parameters ``epsilon`` and perhaps ``delta``. Never
        changed, and its budget is never charged.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,), default=None
        A small data set, a few dozen records, on which it can be fitted. Numbers only. ``None``:
        24 records from its public bounds, classes and target bounds.
    epsilon : float, default=None
        At which epsilon to run. ``None``: where mistakes show best, which is where the best attack
        that the claim allows errs in about 10% of cases; the report says where.
    claim : PrivacyGuarantee, default=None
        What to test; the estimator is then run as it is. ``None``: what it claims by itself, or
        for replaced records, (epsilon, delta) of its parameters.
    fit_params : mapping, default=None
        Further arguments of ``fit``, such as ``X_public``. Alike on both neighbours, so public.
    n_runs : int, default=None
        Fresh runs a side, at least 20. ``None``: what ``seconds`` allow, less if it is plain.
    seconds : float, default=60.0
        About how long it may take. A single fit of more than a fraction of a second makes it weak.
    alpha : float, default=0.01
        Error probability: a true claim is called broken with at most this probability.
    n_jobs : int, default=None
        Processes, through joblib. ``None``: one.

    Returns
    -------
    PrivacyVerification
        Whether the claim is refuted, and the bounds on epsilon.

    Raises
    ------
    TypeError
        If there is no estimator with ``fit`` and ``get_params``, or X holds other than numbers.
    ValueError
        If there is no claim that could be refuted, no neighbours on which the estimator can be
        fitted, or a parameter is out of range.

    See Also
    --------
    verify_release : The same for mechanisms and functions.
    audit_one_run : One training run, with canaries, where fits are expensive.

    Notes
    -----
    **Guarantees.** A true claim is called broken with probability ``alpha`` at most, whatever was
    chosen by the first runs, since the others are fresh and independent. "Held" proves nothing: a
    better attack, other neighbours or another epsilon may break the claim. The estimator's own
    code is run, never a faster equivalent of it.

    **Edge cases.** What drives noise is fresh in every run: a ``noise_seed`` is taken out. Beside
    one, other seeds are public by claim, and alike in every run. Without one, as in other
    libraries, ``random_state``, a ``seed`` and generators are fresh in every run. The report lists
    what was changed. A fit that fails on some runs alone counts as a release of nothing; what an
    alarm or another signal of yours raises inside a fit reaches you. A claim that takes for public
    what a fit reads off the data, labels or ranges, is tested on neighbours that agree in it.

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
            f"estimator={estimator!r} must have fit and get_params. For a mechanism or a function "
            "use verify_release."
        )
    if not (claim is None or isinstance(claim, PrivacyGuarantee) or callable(claim)):
        raise TypeError(f"claim={claim!r} must be a PrivacyGuarantee, or None.")
    if not (fit_params is None or isinstance(fit_params, Mapping)):
        raise TypeError(f"fit_params={fit_params!r} must be a dict, or None.")
    if "groups" in (fit_params or {}):
        raise ValueError(
            "fit_params has groups, and the neighbours that are made here differ by one record and "
            "not by all of a person. Use verify_release with neighbours of your own."
        )
    effort = _effort(n_runs, seconds, alpha, n_jobs)
    started = time.perf_counter()
    X, y, public = _records(estimator, X, y)
    fits = Fits(estimator, dict(fit_params or {}), claim, _probes(X, public))
    fits, guarantee = at_telling_epsilon(fits, (X, y), epsilon)
    fits, steps = fits.with_answers(guarantee, (X, y))
    pairs = list(neighbours(
        guarantee.relation, X, y, public,
        erased=_dealt_by_hash(estimator), agreed=Agreed.of(guarantee),
    ))  # fmt: skip
    return _verified(
        fits, pairs, guarantee, effort, alpha, started,
        model=" ".join(repr(fits.estimator).split()), changes=fits.changes,
        steps=steps,
    )  # fmt: skip


def verify_release(
    release: Callable[[Any], Any],
    neighbours: Sequence[tuple[Any, Any]],
    claim: PrivacyGuarantee,
    *,
    n_runs: int | None = None,
    seconds: float = 60.0,
    alpha: float = 0.01,
    n_jobs: int | None = None,
) -> PrivacyVerification:
    """Attack a claim about anything that releases numbers, on neighbours that are given.

    Parameters
    ----------
    release : callable
        ``release(data)`` returns a number or an array of them, with fresh noise at every call.
    neighbours : sequence of pairs
        Data sets, in the form that ``release`` takes, that are neighbours under the claim. For a
        mechanism: values as far apart as its sensitivity.
    claim : PrivacyGuarantee
        What is claimed.
    n_runs : int, default=None
        As in :func:`verify_privacy`.
    seconds : float, default=60.0
        As in :func:`verify_privacy`.
    alpha : float, default=0.01
        Error probability of the verdict.
    n_jobs : int, default=None
        Number of processes.

    Returns
    -------
    PrivacyVerification
        Whether the claim is refuted, and the bounds on epsilon.

    Raises
    ------
    TypeError
        If ``release`` cannot be called or ``claim`` is no guarantee.
    ValueError
        If there are no neighbours, nothing is released, or a parameter is out of range.

    Notes
    -----
    **Edge cases.** A release with a generator of its own, of which every process would have a copy,
    is run in one process, whatever ``n_jobs`` says.

    **Guarantees.** As of :func:`verify_privacy`. Choose the noise so that mistakes show: at an
    epsilon where the best attack allowed errs in about 10% of cases, some 3 for Laplace noise and
    12 for Gaussian noise at delta 1e-5.

    Examples
    --------
    >>> from skprivacy.accounting import PrivacyGuarantee
    >>> from skprivacy.audit import verify_release
    >>> from skprivacy.mechanisms import Laplace, SecureRandom
    >>> noise, random = Laplace(0.5, sensitivity=1.0), SecureRandom()
    >>> claim = PrivacyGuarantee(noise.event)
    >>> release = lambda v: noise.release(v, random)
    >>> verify_release(release, [(1.0, 0.0)], claim, n_runs=500, alpha=1e-8).broken
    False
    >>> half = Laplace(0.1, sensitivity=1.0)
    >>> verify_release(lambda v: half.release(v, random), [(1.0, 0.0)], claim, n_runs=500).broken
    True
    """
    if not callable(release) or not isinstance(claim, PrivacyGuarantee):
        raise TypeError(
            f"release={release!r} must be callable, and claim={claim!r} a PrivacyGuarantee. Pass "
            "PrivacyGuarantee(mechanism.event), for one."
        )
    given = [sequence("neighbours", pair) for pair in sequence("neighbours", neighbours)]
    if not all(len(pair) == 2 for pair in given):
        raise ValueError("neighbours must be a list of pairs of neighbouring data sets.")
    pairs = [Pair(f"neighbours {i}", data, other) for i, (data, other) in enumerate(given)]
    if not pairs:
        raise ValueError("neighbours=[] must hold a pair of neighbouring data sets at least.")
    effort = _effort(n_runs, seconds, alpha, n_jobs)
    changes: tuple[str, ...] = ()
    if effort.n_jobs > 1 and copies_repeat(release, pairs[0].data, effort.n_jobs):
        effort, changes = replace(effort, n_jobs=1), (_ONE_PROCESS,)
    name = getattr(release, "__name__", type(release).__name__)
    return _verified(
        release, pairs, claim, effort, alpha, time.perf_counter(), model=name, changes=changes
    )


def _verified(
    release: Callable[[Any], Any], pairs: list[Pair], guarantee: PrivacyGuarantee, effort: Effort,
    alpha: float, started: float, model: str, changes: tuple[str, ...] = (),
    steps: Sequence[slice] = (),
) -> PrivacyVerification:  # fmt: skip
    delta = guarantee.at_delta or 0.0
    attack = Attack.of(release, pairs, _quick(guarantee), delta, alpha, effort, steps)
    share = alpha / len(attack.counts)
    bounds = _bounds(attack.counts, delta, alpha)
    return PrivacyVerification(
        model=model,
        guarantee=guarantee,
        broken=any(counts.surprise(guarantee.tpr_bound) < share for counts in attack.counts),
        bounds=bounds,
        neighbours=attack.pair.name,
        counts=attack.counts,
        alpha=float(alpha),
        n_runs=attack.counts[0].n_in,
        n_pilot=attack.n_pilot,
        seconds=time.perf_counter() - started,
        changes=changes,
        left_out=attack.left_out,
    )


def _bounds(counts: tuple[Counts, ...], delta: float, alpha: float) -> tuple[GuessBound, ...]:
    mu, at = refuted_mu(counts, alpha), delta or _DELTA
    shown = gaussian_epsilon(mu, at)
    return (
        GuessBound(refuted_epsilon(counts, delta, alpha), delta, float(alpha), "approximate"),
        GuessBound(shown, at, float(alpha), "gaussian", mu, BOUNDS["gaussian"]),
    )


def _dealt_by_hash(estimator: Any) -> bool:
    """Return whether a blank record gets a place of its own, not that of another."""
    return any(isinstance(v, str) and v == "hash" for v in estimator.get_params().values())


def _quick(guarantee: PrivacyGuarantee) -> Curve:
    """Return the claimed curve by chords, which serves to choose by."""
    low = np.geomspace(1e-7, 0.5, 300)
    fpr = np.r_[0.0, low, (1 - low[:-1])[::-1], 1.0]
    tpr = guarantee.tpr_bound(fpr)
    return lambda rates: np.interp(rates, fpr, tpr)


def _records(estimator: Any, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any] | None, Public]:
    if X is None:
        public = Public.of(estimator, None, None)
        return *default_records(public), public
    rows = np.asarray(X)
    if rows.dtype.kind not in "biuf" or rows.ndim != 2:
        raise TypeError(
            f"X has dtype {rows.dtype} and {rows.ndim} dimensions; worst cases are made for tables "
            "of numbers. Use verify_release with neighbours of your own."
        )
    labels = None if y is None else np.atleast_1d(y)
    if len(rows) < 2 or (labels is not None and len(labels) != len(rows)):
        raise ValueError(
            f"X and y must have the same number of records, two at least; got {len(rows)} and "
            f"{None if labels is None else len(labels)}."
        )
    return rows.astype(float), labels, Public.of(estimator, rows, labels)


def _probes(X: NDArray[Any], public: Public) -> NDArray[Any]:
    return np.vstack([public.high, public.low, public.middle, X[:1], X[-1:]])


def _effort(n_runs: Any, seconds: Any, alpha: Any, n_jobs: Any) -> Effort:
    if n_runs is not None and not (is_whole(n_runs) and _FEWEST_RUNS <= n_runs <= _MOST_RUNS):
        raise ValueError(
            f"n_runs={n_runs!r} must be a whole number of at least {_FEWEST_RUNS}, {_MOST_RUNS:,} "
            "at most, or None for what the time allows."
        )
    if not (is_number(seconds) and seconds > 0):
        raise ValueError(f"seconds={seconds!r} must be a number above 0, such as 60.")
    check_alpha(alpha)
    check_n_jobs(n_jobs)
    return Effort(None if n_runs is None else int(n_runs), float(seconds), effective_n_jobs(n_jobs))
