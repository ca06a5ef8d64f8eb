"""Rounds of federated training, simulated: parties, their contributions and the noisy sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from .._groups import Groups, check_groups, group_labels
from .._input_data import resolve_groups
from .._validation import sequence
from ..mechanisms import PoissonSampler, SecureRandom
from .plan import FederatedPlan


def check_parties(parties: Any, X: Any, names: Any) -> Groups:
    """Return the party of each record; without ``parties`` each record is a separate party."""
    units = resolve_groups(None, X) if parties is None else check_groups(parties, X, "parties")
    return units if names is None else _index_parties(units, parties, names)


def _index_parties(units: Groups, parties: Any, names: Any) -> Groups:
    if parties is None:
        raise ValueError("party_names is given, but parties is not: pass fit(X, y, parties=...).")
    every = sequence("party_names", names)
    if not all(isinstance(name, str | int | float | np.generic) for name in every):
        raise ValueError(f"party_names={names!r} must be numbers or text, as in parties.")
    if len(set(group_labels(np.array(every, object)))) < len(every):
        raise ValueError(f"party_names={names!r} must name each party once.")
    places = pd.Index(np.array(every, object)).get_indexer(np.asarray(units.names, object))
    if (places < 0).any():
        raise ValueError(
            f"parties has a name which is not in party_names={names!r}. Name all parties, with "
            "the type of their names in parties."
        )
    return Groups(places[units.codes].astype(np.int64), len(every), units.unit, every)


def train_over_parties(
    plan: FederatedPlan,
    X: NDArray,
    codes: NDArray[np.int64],
    parties: NDArray[np.int64],
    random: SecureRandom,
    n_jobs: int | None = None,
) -> NDArray[np.float64]:
    """Return the weights after all rounds, each one release of ``plan.mechanism``.

    The Poisson sample of records is drawn from one generator instead of by each party, with the
    same distribution. The result does not depend on ``n_jobs``.
    """
    mechanism, sampler = plan.mechanism, PoissonSampler(plan.sampling_rate)
    weights, velocity = plan.start()
    grouped = _group_by_party(np.arange(len(X)), parties, plan.n_parties)
    with Parallel(n_jobs=n_jobs, prefer="threads") as workers:
        for done in range(plan.n_rounds):
            if not plan.of_parties:
                grouped = _group_by_party(sampler.draw(len(X), random), parties, plan.n_parties)
            added = _party_contributions(plan, weights, X, codes, grouped, workers)
            if plan.n_noises == 1:  # trusted server: it sees all contributions and adds the noise
                added = added.sum(axis=0, keepdims=True)
            total = mechanism.release(added, random)
            weights, velocity = plan.step(weights, velocity, total, done)
    return weights


def _group_by_party(
    rows: NDArray[np.int64], parties: NDArray[np.int64], n: int
) -> list[NDArray[np.int64]]:
    """Return the ``rows`` of each party, in their order."""
    rows = rows[np.argsort(parties[rows], kind="stable")]
    ends = np.searchsorted(parties[rows], np.arange(n + 1))
    return [rows[begin:end] for begin, end in pairwise(ends)]


def _party_contributions(
    plan: FederatedPlan,
    weights: NDArray[np.float64],
    X: NDArray,
    codes: NDArray[np.int64],
    grouped: Sequence[NDArray[np.int64]],
    workers: Parallel,
) -> NDArray[np.int64]:
    """Return the contribution of each party, of shape (n_parties, n_weights)."""
    added = np.zeros((len(grouped), weights.size), np.int64)

    def some(these: NDArray[np.int64]) -> None:
        for party in these:
            rows = grouped[party]
            if len(rows):
                added[party] = plan.contribution(weights, X[rows], codes[rows])

    shares = np.array_split(np.arange(len(grouped)), effective_n_jobs(workers.n_jobs))
    workers(delayed(some)(these) for these in shares)
    return added
