"""Fits, scores and attacks of the models and baselines of a sweep, in parallel and resumed.

:class:`SweepRunner` runs all of them; :func:`fit_and_attack` and :func:`fit_baseline` are one fit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.base import clone, is_regressor
from sklearn.utils.parallel import Parallel, delayed

from .._clones import check_weights, describe_error
from .._config import warn_caller
from .._environment import limit_workers, one_thread, progress_bar
from .._groups import check_groups, group_unit
from .._sklearn import uses_predictions_only
from .._stacked import MAX_FITS, PlannedFit, can_wait, fit_together
from .._validation import num_samples, raise_alone
from ..accounting.budget import LedgerError
from ..accounting.guarantee import auc_ceiling
from ..attacks import (
    AttackResult,
    LabelInferenceAttack,
    LossThreshold,
    MembershipAttack,
    ShadowPool,
)
from ..attacks.membership.labeled_records import label_records
from ..audit import claim_of
from ..audit.inspection.claims import NOT_MEMBERSHIP, Claim, protects_labels
from ..audit.inspection.guarantees import holds_private_labels
from ..audit.label_audit import guess_labels, label_attack
from ..exceptions import BudgetExceededError
from .sweep_intervals import measure_groups
from .sweep_plan import split_weights
from .sweep_records import BOOSTING, SIBLING, Candidate, Records, Split, last_step
from .sweep_store import ResultStore, load_result, store_result

FPR = 0.01
_MAX_NUMBERS = 1 << 26  # features in memory of the fits that are made together


def validate_attack(attack: Any, models: Iterable[Any]) -> MembershipAttack | LabelInferenceAttack:
    """Return the attack of a sweep, or refuse it before anything is fitted."""
    swept = list(models)
    protected = {holds_private_labels(model) for model in swept}
    if len(protected) > 1:
        raise ValueError(
            f"Some estimators protect labels alone, others whole records: {NOT_MEMBERSHIP}. Sweep "
            "them separately, as no attack measures both."
        )
    if True in protected or isinstance(attack, LabelInferenceAttack):
        return label_attack(None if attack is None else [attack], None)
    if attack is None:
        return LossThreshold()
    if not isinstance(attack, MembershipAttack):
        raise TypeError(
            f"attack={attack!r} must be a membership attack object or None. Pass an instance, such "
            "as LossThreshold()."
        )
    if hasattr(getattr(attack, "pool", None), "estimators_"):
        raise ValueError(
            f"attack={attack!r} must not have a fitted pool, as each epsilon needs separate shadow "
            "models. Set pool to a number of models, or pass a pool that is not fitted."
        )
    if attack._needs_members:
        raise ValueError(
            f"attack={attack!r} learns from known members, and a sweep gives it none. Use an "
            "attack that needs none, such as LossThreshold() or LiRA()."
        )
    if attack._needs_classes and any(map(is_regressor, swept)):
        raise ValueError(
            f"attack={attack!r} needs classes, and the estimator is a regressor. Use "
            "LossThreshold(), LiRA(), RMIA() or StrongestAttack()."
        )
    return attack


class SplitModel:
    """A model on one split, fitted behind the shared first step if there is one."""

    def __init__(self, model: Any, split: Split) -> None:
        first = split.own.first
        self.split = split
        self._first = first if first is not None and first.begins(model) else None
        self._fitted = model if self._first is None else model[1:]
        self._name = "" if self._first is None else model.steps[0][0]
        own = split.own
        self.planned = PlannedFit(*self.model_and_features(own), own.y, own.fit_params)

    @property
    def model(self) -> Any:
        """The model that takes raw records, with its first step."""
        return self._fitted if self._first is None else self._first.before(self._fitted, self._name)

    @property
    def is_behind(self) -> bool:
        """Whether the model is fitted behind the first step."""
        return self._first is not None

    def model_and_features(self, records: Records) -> tuple[Any, Any]:
        """Return the model without the shared step, and the features for it; else model and X."""
        if self._first is None or records.first is None:
            return self.model, records.X
        return self._fitted, records.first.features


def fit_and_score(fitting: SplitModel, scorers: dict[str, Any]) -> dict[str, Any]:
    """Fit a model unless that is done, and return its times and scores."""
    seconds, split = fitting.planned.finish(), fitting.split
    fitted = time.perf_counter()
    test = {f"test_{k}": _score(fitting, split.new, k, scorer) for k, scorer in scorers.items()}
    done = time.perf_counter()
    train = {f"train_{k}": _score(fitting, split.own, k, scorer) for k, scorer in scorers.items()}
    return {"fit_time": seconds, "score_time": done - fitted, **test, **train}


def _score(fitting: SplitModel, records: Records, name: str, scorer: Any) -> float:
    """Return a score; NaN, with a warning, if the scorer fails: the model has been paid for."""
    model, X = fitting.model, records.X
    if uses_predictions_only(scorer):  # other scorers may use the raw records
        model, X = fitting.model_and_features(records)
    try:
        found = scorer(model, X, records.y, **records.score_params.get(name, {}))
        return float(found)
    except Exception as error:
        warn_caller(
            f"The scorer {name!r} failed, and its score is NaN: {describe_error(error)}.",
            UserWarning,
        )
        return math.nan


def _try_attack(fitting: SplitModel, attack: Any, pool: Any) -> AttackResult | None:
    """Return the result of an attack; None, with a warning, if it fails."""
    try:
        return _run_attack(fitting, attack, pool)
    except (BudgetExceededError, LedgerError):
        raise
    except Exception as error:
        warn_caller(
            f"attack={attack!r} failed, and its figures are NaN: {describe_error(error)}.",
            UserWarning,
        )
        return None


def _run_attack(fitting: SplitModel, attack: Any, pool: Any) -> AttackResult:
    """Return the result of an attack on a fitted model."""
    split = fitting.split
    own, new, known = split.own, split.new, split.known
    if isinstance(attack, LabelInferenceAttack):
        groups = None if own.groups is None else check_groups(own.groups, own.X)
        return guess_labels(fitting.model, attack, own.X, own.y, new.X, new.y, groups)
    if type(attack) is LossThreshold and fitting.is_behind:  # it needs predictions only
        model, X = fitting.model_and_features(known)
        # no threshold is needed, which would cost another prediction
        attack = clone(attack).set_params(target=model, training_loss=0.0, fpr=None)
        records = label_records(X, known.y)
        scores = attack.fit(records).decision_function(records)
        n = num_samples(own.X)  # the training records come first in known
        return AttackResult(scores[:n], scores[n:], type(attack).__name__)
    attack = clone(attack).set_params(target=fitting.model)
    if pool is not None:
        attack.set_params(pool=pool)
    attack.fit(label_records(known.X, known.y))
    return attack.evaluate(label_records(own.X, own.y), label_records(new.X, new.y))


def measure_leakage(
    fitting: SplitModel, scorers: dict[str, Any], attack: Any, pool: Any = None
) -> dict[str, Any]:
    """Return the figures of an attack on a fitted model, and of each subgroup; NaN if it fails."""
    split = fitting.split
    result = None if attack is None else _try_attack(fitting, attack, pool)
    shown = result
    of_groups = split.own.groups is not None and not isinstance(attack, LabelInferenceAttack)
    if result is not None and of_groups:
        shown = result.join_groups(split.own.groups, split.new.groups)
    found: dict[str, Any] = {
        "attack_auc": math.nan if shown is None else shown.auc,
        f"attack_tpr_at_{FPR}": math.nan if shown is None else shown.tpr_at_fpr(FPR).tpr,
    }
    if split.new.subgroups is not None:
        name, scorer = next(iter(scorers.items()))
        found["groups"] = measure_groups(
            split, lambda part: _score(fitting, part, name, scorer), result
        )
    return found


def fit_and_attack(
    fitting: SplitModel, scorers: dict[str, Any], attack: Any, pool: Any
) -> dict[str, Any]:
    """Return the results of a private model on one split, with its claim."""
    split, row = fitting.split, fit_and_score(fitting, scorers)
    claim = claim_of(fitting.model, split.own.X)
    if protects_labels(claim) != isinstance(attack, LabelInferenceAttack):
        raise ValueError(
            f"attack={attack!r} does not fit the claim {claim.guarantee!r}: {NOT_MEMBERSHIP}. Pass "
            "a LabelInferenceAttack for it, and an attack on membership for any other."
        )
    proved = claim.guarantee if claim.proved else None
    attacked = "record" if split.own.groups is None else group_unit(split.own.groups)
    about = proved if proved is not None and proved.unit == attacked else None
    return {
        **row,
        **measure_leakage(fitting, scorers, attack, pool),
        "claimed_epsilon": math.nan if proved is None else proved.epsilon(),
        "attack_auc_bound": math.nan if about is None else auc_ceiling(about),
        "claim": claim,
    }


def fit_baseline(
    fitting: SplitModel, scorers: Any, attack: Any, name: str, optional: bool
) -> dict[str, Any] | None:
    """Return the results of a baseline on one split; None if it is optional and cannot be fitted.

    Figures of attacks that need shadow models, or private labels, are NaN.
    """
    attackable = not (hasattr(attack, "pool") or isinstance(attack, LabelInferenceAttack))
    try:
        trees = isinstance(last_step(fitting.model), BOOSTING)
        few = one_thread(math.prod(np.shape(fitting.split.own.X)) if trees else math.inf)
        with _ignore_warnings(), few:
            warnings.filterwarnings("always", message="(The scorer|attack=).* NaN")
            row = fit_and_score(fitting, scorers)
            return row | measure_leakage(fitting, scorers, attack if attackable else None)
    except Exception as error:
        if not optional:
            if isinstance(error, BudgetExceededError) or not isinstance(
                error, (TypeError, ValueError)
            ):
                raise
            raise_alone(
                ValueError(
                    f"The baseline {name!r} cannot be fitted to these records: "
                    f"{describe_error(error)}. No private model of the sweep has been trained. "
                    "Pass baseline= with the steps that it needs, such as "
                    "make_pipeline(SchemaTransformer(schema), model), or None."
                )
            )
        if not name.endswith(SIBLING):  # many private models are not made for epsilon=inf
            warn_caller(
                f"The baseline {name!r} is left out, as it does not take these records "
                f"({describe_error(error)}). Pass baseline= with one that does, or None.",
                UserWarning,
            )
        return None


@contextmanager
def _ignore_warnings() -> Iterator[None]:
    """Ignore warnings of baselines: the private models give the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


Row = dict[str, Any]


@dataclass(frozen=True)
class SweepRunner:
    """Runs all fits of a sweep: the splits, the scorers, the attack and the store of results."""

    splits: list[tuple[Any, Any]]
    scorers: dict[str, Any]
    attack: Any
    store: ResultStore | None
    n_jobs: int | None
    verbose: int
    done: list[None] = field(default_factory=list)  # one for each private model trained by now

    def models(self, candidates: list[Candidate], total: int) -> list[Row]:
        """Return the results of private models, by candidate and split; each pool is dropped."""
        shadowed = hasattr(self.attack, "pool")
        rows: list[Row] = []
        with self._bar("models", candidates) as bar, self.note_remaining_charges(total):
            for batch in [[c] for c in candidates] if shadowed else [candidates]:
                pool = None
                if shadowed and None in self._load_stored(batch):
                    pool = self._pool(batch[0])
                how = [(self.scorers, self.attack, pool)] * len(batch)
                for row in self._rows(batch, fit_and_attack, how, bar):
                    self.done.append(None)
                    rows.append(row)
        return rows

    def list_earlier_claims(self, candidates: list[Candidate]) -> list[Claim]:
        """Return the claims of other models whose results are in the store."""
        return [] if self.store is None else self.store.claims_beside(self._files(candidates))

    def baselines(self, candidates: list[Candidate], optional: bool) -> list[Row | None]:
        """Return the results of baselines; None for one that is optional and cannot be fitted."""
        how = [(self.scorers, self.attack, c.name, optional) for c in candidates]
        with self._bar("baselines", candidates) as bar:
            return list(self._rows(candidates, fit_baseline, how, bar))

    def score_constant(self, candidate: Candidate) -> list[Row]:
        """Return the results of the constant predictor, which is not stored."""
        rows = []
        for indices in self.splits:
            split = Split.from_indices(candidate.records, *indices)
            fitting = SplitModel(clone(candidate.model), split)
            with _ignore_warnings():
                row = fit_and_score(fitting, self.scorers)
                rows.append(row | measure_leakage(fitting, self.scorers, None))
        return rows

    def iter_unpaid(self, candidates: list[Candidate]) -> Iterator[tuple[Candidate, Any]]:
        """Yield the models without a stored result, each with its training rows."""
        each = [(c, train) for c in candidates for train, _ in self.splits]
        for fit, row in zip(each, self._load_stored(candidates), strict=True):
            if row is None:
                yield fit

    def _files(self, candidates: list[Candidate]) -> list[Path | None]:
        n, store = range(len(self.splits)), self.store
        if store is None:
            return [None for _ in candidates for _ in n]
        return [store.file(sorted(c.params.items()), c.mark, i) for c in candidates for i in n]

    def _load_stored(self, candidates: list[Candidate]) -> list[Row | None]:
        """Return the result of each model that is in the store, and None for others."""
        return [None if file is None else load_result(file) for file in self._files(candidates)]

    def _rows(
        self,
        candidates: list[Candidate],
        fit: Callable[..., Any],
        how: list[tuple[Any, ...]],
        bar: Any,
    ) -> Iterator[Any]:
        """Yield the result of each candidate on each split, stored or computed now."""
        files, known = self._files(candidates), self._load_stored(candidates)
        each = [
            (c, split, own) for c, own in zip(candidates, how, strict=True) for split in self.splits
        ]
        jobs = [
            _Job(c, split, own, file)
            for (c, split, own), file, row in zip(each, files, known, strict=True)
            if row is None
        ]
        backend, _ = get_active_backend()  # Ray's backend returns all results at once
        how_returned = "generator" if backend.supports_return_generator else "list"
        n_jobs = limit_workers(self.n_jobs, len(jobs))
        made = chain.from_iterable(
            Parallel(n_jobs=n_jobs, return_as=how_returned)(
                delayed(_run_jobs)(fit, own) for own in _cut_into_batches(jobs, n_jobs)
            )
        )
        for row in known:
            yield next(made) if row is None else row
            bar.update()
        next(made, None)  # lets joblib finish

    def _pool(self, candidate: Candidate) -> ShadowPool:
        """Train shadow models for a candidate, with the settings of the attack's pool, if any."""
        asked, records = self.attack.pool, candidate.records
        if not isinstance(asked, ShadowPool):
            asked = ShadowPool(
                None,
                n_shadows=asked,
                n_jobs=self.n_jobs,
                random_state=self.attack.random_state,
                keep_models=getattr(self.attack, "_needs_models", True),
            )
        model = candidate.model
        if records.first is not None and records.first.begins(model):
            # The shadow models share the fitted first step.
            model = records.first.before(model[1:], model.steps[0][0])
        pool = clone(asked).set_params(estimator=model)
        if pool.path is not None:
            epsilon = next(iter(candidate.params.values()))
            part = f"{quote(candidate.name, safe='') or 'model'}_{epsilon!r}"
            pool.set_params(path=Path(pool.path) / part)
        weights, _ = split_weights(records.fit_params, candidate.model)
        return pool.fit(records.X, records.y, weights, groups=records.groups)

    @contextmanager
    def _bar(self, what: str, candidates: list[Candidate]) -> Iterator[Any]:
        total = len(candidates) * len(self.splits)
        shown = self.verbose and total
        with progress_bar(shown=shown, total=total, desc=what, unit="fit") as bar:
            yield bar

    @contextmanager
    def note_remaining_charges(self, total: int) -> Iterator[None]:
        """Add to a refusal that the charges of earlier models remain."""
        try:
            yield
        except (BudgetExceededError, LedgerError) as error:
            result = "no result is kept"
            if self.store is not None:
                result = f"results are kept in {str(self.store.folder)!r}, from where fit goes on"
            raise type(error)(
                f"The sweep ended {self._so_far(total)}, and {result}. Give the sweep a budget for "
                "all of its models, or sweep with budget=None on public data. "
                f"Then: {error}"
            ) from error

    def _so_far(self, total: int) -> str:
        if not self.done:  # other processes may have trained some
            return f"before any of its {total} models was done; what was charged stays charged"
        return (
            f"after at least {len(self.done)} of its {total} models had been trained; what they "
            "were charged stays charged"
        )


def check_fit_arguments(attack: Any, records: Records, model: Any) -> None:
    """Refuse arguments of ``fit`` that an attack cannot train its own models with."""
    own = isinstance(attack, LabelInferenceAttack)
    if not (own or hasattr(attack, "pool")):
        return
    weights, others = split_weights(records.fit_params, model)
    if others or (own and weights is not None):
        raise ValueError(
            f"fit was given {sorted(records.fit_params)}, with which "
            f"{type(attack).__name__} cannot train its own models. Leave these out, or use an "
            "attack that trains no models, such as LossThreshold()."
        )
    check_weights(model, weights, num_samples(records.X))


@dataclass(frozen=True)
class _Job:
    """A candidate on one split, with further arguments of the function that measures it."""

    candidate: Candidate
    split: tuple[Any, Any]
    how: tuple[Any, ...]
    file: Path | None


def _cut_into_batches(jobs: list[_Job], n_jobs: int | None) -> Iterator[list[_Job]]:
    """Yield the jobs of a worker at a time: several if their networks can be trained together."""
    share = -(-len(jobs) // effective_n_jobs(n_jobs))
    able = {
        id(j.candidate): can_wait(j.candidate.model, j.candidate.records.fit_params) for j in jobs
    }
    for waits, group in groupby(jobs, key=lambda job: able[id(job.candidate)]):
        own = list(group)
        numbers = max(job.candidate.records.n_numbers for job in own)
        most = min(MAX_FITS, share, max(1, _MAX_NUMBERS // numbers)) if waits else 1
        for start in range(0, len(own), most):
            yield own[start : start + most]


def _run_jobs(fit: Callable[..., Any], jobs: list[_Job]) -> list[Any]:
    """Return the result of each job and store it; the worker divides the records."""
    splits: dict[tuple[int, int], Split] = {}
    fittings = []
    for job in jobs:
        records = job.candidate.records
        key = id(records), id(job.split)
        if key not in splits:
            splits[key] = Split.from_indices(records, *job.split)
        fittings.append(SplitModel(clone(job.candidate.model), splits[key]))
    if len(jobs) > 1:
        with _ignore_warnings() if fit is fit_baseline else nullcontext():
            fit_together([fitting.planned for fitting in fittings])
    rows = []
    for job, fitting in zip(jobs, fittings, strict=True):
        rows.append(fit(fitting, *job.how))
        if job.file is not None and rows[-1] is not None:
            store_result(rows[-1], job.file)
    return rows
