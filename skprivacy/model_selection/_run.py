"""All fits of a sweep: in parallel, resumed where their results have been kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from joblib.parallel import get_active_backend
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed
from tqdm.auto import tqdm

from .._clones import check_weights
from .._jobs import workers
from .._sklearn import num_samples
from ..accounting.budget import LedgerError
from ..attacks import LabelInferenceAttack, ShadowPool
from ..audit import Claim
from ..exceptions import BudgetExceededError
from ._attacked import fit_and_attack
from ._baselines import fit_baseline
from ._kept import Kept, keep, kept
from ._routing import weights_in
from ._split import Records, Split

__all__ = ["Candidate", "Fits", "check_passed_on"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A private model at one epsilon, or a baseline; its records have what its ``fit`` takes."""

    name: str
    model: Any
    records: Records
    params: dict[str, Any]  # as ``cv_results_`` shows them
    mark: str = ""  # tells a baseline from another one of the same name


@dataclass(frozen=True)
class Fits:
    """How candidates are fitted: on which splits, scored and attacked by what."""

    splits: list[tuple[Any, Any]]
    scorers: dict[str, Any]
    attack: Any
    kept: Kept
    n_jobs: int | None
    verbose: int
    done: list[None] = field(default_factory=list)  # one for each private model trained by now

    def models(self, candidates: list[Candidate], total: int) -> list[Row]:
        """Return the results of private models, candidate by candidate and split by split.

        Shadow models are trained candidate by candidate, and are gone when its results are there.
        """
        shadowed = hasattr(self.attack, "n_shadows")
        rows: list[Row] = []
        with self._bar("models", candidates) as bar, self.saying_what_stays_charged(total):
            for batch in [[c] for c in candidates] if shadowed else [candidates]:
                pool = None
                if shadowed and not all(kept(file) for file in self._files(batch)):
                    pool = self._pool(batch[0])
                how = [(self.scorers, self.attack, pool)] * len(batch)
                for row in self._rows(batch, fit_and_attack, how, bar):
                    self.done.append(None)
                    rows.append(row)
        return rows

    def earlier(self, candidates: list[Candidate]) -> list[Claim]:
        """Return the claims of models, other than these, whose results have been kept."""
        return self.kept.claims_beside(self._files(candidates))

    def baselines(self, candidates: list[Candidate], optional: bool) -> list[Row | None]:
        """Return the results of baselines; None for one that is optional and cannot be fitted."""
        how = [(self.scorers, self.attack, c.name, optional) for c in candidates]
        with self._bar("baselines", candidates) as bar:
            return list(self._rows(candidates, fit_baseline, how, bar))

    def unpaid(self, candidates: list[Candidate]) -> Iterator[tuple[Candidate, Any]]:
        """Yield the models that are going to be trained, each with the rows of its records."""
        each = [(c, train) for c in candidates for train, _ in self.splits]
        for fit, file in zip(each, self._files(candidates), strict=True):
            if kept(file) is None:
                yield fit

    def _files(self, candidates: list[Candidate]) -> list[Path | None]:
        n = range(len(self.splits))
        return [self.kept.file(sorted(c.params.items()), c.mark, i) for c in candidates for i in n]

    def _rows(
        self,
        candidates: list[Candidate],
        fit: Callable[..., Any],
        how: list[tuple[Any, ...]],
        bar: Any,
    ) -> Iterator[Any]:
        """Yield the result of each candidate on each split: what is kept, and what is made now."""
        files = self._files(candidates)
        known = [kept(file) for file in files]
        jobs = [
            (c, split, own) for c, own in zip(candidates, how, strict=True) for split in self.splits
        ]
        backend, _ = get_active_backend()  # that of Ray has results all at once
        how_returned = "generator" if backend.supports_return_generator else "list"
        n_jobs = workers(self.n_jobs, known.count(None))
        made = iter(
            Parallel(n_jobs=n_jobs, return_as=how_returned)(
                delayed(_in_split)(fit, c.records, split, file, clone(c.model), *own)
                for (c, split, own), file, row in zip(jobs, files, known, strict=True)
                if row is None
            )
        )
        for row in known:
            yield next(made) if row is None else row
            bar.update()
        next(made, None)  # lets joblib finish

    def _pool(self, candidate: Candidate) -> ShadowPool:
        """Train shadow models for a candidate: as the attack's own pool says, if it has one."""
        asked, records = self.attack.pool, candidate.records
        if asked is None:
            asked = ShadowPool(
                None,
                n_shadows=self.attack.n_shadows,
                n_jobs=self.n_jobs,
                random_state=self.attack.random_state,
                keep_models=getattr(self.attack, "_needs_models", True),
            )
        model = candidate.model
        if records.first is not None and records.first.begins(model):
            # It is fitted, so that shadows share it, too.
            model = records.first.before(model[1:], model.steps[0][0])
        pool = clone(asked).set_params(estimator=model)
        if pool.path is not None:
            epsilon = next(iter(candidate.params.values()))
            part = f"{quote(candidate.name, safe='') or 'model'}_{epsilon!r}"
            pool.set_params(path=Path(pool.path) / part)
        weights, _ = weights_in(records.fit_params, candidate.model)
        return pool.fit(records.X, records.y, weights, records.people)

    @contextmanager
    def _bar(self, what: str, candidates: list[Candidate]) -> Iterator[Any]:
        total = len(candidates) * len(self.splits)
        hidden = not (self.verbose and total)
        with tqdm(total=total, disable=hidden, desc=what, unit="fit") as bar:
            yield bar

    @contextmanager
    def saying_what_stays_charged(self, total: int) -> Iterator[None]:
        """Let the refusal of one model say that it does not undo the earlier ones."""
        try:
            yield
        except (BudgetExceededError, LedgerError) as error:
            result = "no result is kept"
            if self.kept.folder is not None:
                result = f"results are kept in {str(self.kept.folder)!r}, from where fit goes on"
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


def check_passed_on(attack: Any, records: Records, model: Any) -> None:
    """Refuse arguments of ``fit`` that an attack cannot train its own models with."""
    own = isinstance(attack, LabelInferenceAttack)
    if not (own or hasattr(attack, "n_shadows")):
        return
    weights, others = weights_in(records.fit_params, model)
    if others or (own and weights is not None):
        raise ValueError(
            f"fit was given {sorted(records.fit_params)}, with which "
            f"{type(attack).__name__} cannot train its own models. Leave these out, or use an "
            "attack without models of its own, such as LossThreshold()."
        )
    check_weights(model, weights, num_samples(records.X))


def _in_split(
    fit: Callable[..., Any], records: Records, split: Any, file: Any, model: Any, *how: Any
) -> Any:
    """Run a fit on one split and keep its result; records are divided where it runs."""
    row = fit(model, Split.of(records, *split), *how)
    keep(row, file)
    return row
