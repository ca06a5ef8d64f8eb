"""Results of a fitted sweep: cv_results_, curves, intervals, tables and plots."""

from __future__ import annotations

import re
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from .._files import output_path, write_file
from .._validation import is_number, open_unit
from .sweep_intervals import (
    EpsilonInterval,
    Splits,
    is_useless,
    knee,
    smallest_epsilon,
    tabulate_groups,
)
from .sweep_plan import validate_models
from .sweep_records import sibling_name

if TYPE_CHECKING:
    from ..audit import About

# Names of scorers, or their beginnings, whose scores are in [0, 1].
_SHARES = (
    "accuracy", "balanced_accuracy", "top_k_accuracy", "f1", "precision", "recall", "jaccard",
    "roc_auc", "average_precision",
)  # fmt: skip


def arrange_results(
    rows: list[dict[str, Any]], params: list[dict[str, Any]], n_splits: int
) -> dict:
    """Arrange rows (candidate by candidate, split by split) as GridSearchCV does."""
    results: dict[str, Any] = {}
    for key in (key for key in rows[0] if key not in ("claim", "groups")):
        table = np.array([row[key] for row in rows], dtype=float).reshape(len(params), n_splits)
        if not key.endswith("_time"):
            results |= {f"split{i}_{key}": table[:, i] for i in range(n_splits)}
        results[f"mean_{key}"] = table.mean(axis=1)
        with np.errstate(invalid="ignore"):  # infinite epsilons have no spread
            results[f"std_{key}"] = table.std(axis=1)
        if key.startswith("test_"):
            ranked = rankdata(-np.nan_to_num(table.mean(axis=1), nan=-np.inf), method="min")
            results[f"rank_{key}"] = ranked.astype(np.int32)
        if key == "score_time":
            names = dict.fromkeys(name for candidate in params for name in candidate)
            results |= {f"param_{name}": _parameter_column(name, params) for name in names}
            results["params"] = params
    return results


def collect_groups(rows: list[dict[str, Any]], n_splits: int) -> list[list[dict[str, Any]]]:
    """Return the figures of groups for each candidate and each split."""
    found = [row.get("groups", {}) for row in rows]
    return [found[i : i + n_splits] for i in range(0, len(found), n_splits)]


def _parameter_column(name: str, params: list[dict[str, Any]]) -> np.ma.MaskedArray:
    """Return the values of a parameter, masked where a candidate has none of this name."""
    mask = [name not in candidate for candidate in params]
    values = [candidate.get(name) for candidate in params]
    return np.ma.MaskedArray(values, mask=mask, dtype=object if any(mask) else None)


class ResultsMixin:
    """Methods of a fitted sweep that read, plot and report its results."""

    estimator: Any
    scoring: Any
    cv_results_: dict[str, Any]
    baseline_results_: dict[str, Any]
    constant_results_: dict[str, Any]
    charged_: Any
    n_splits_: int
    scores_: list[str]
    test_per_train_: float
    subgroups_: str | None
    group_results_: dict[str, list[Any]]

    def smallest_epsilon(
        self,
        loss: float,
        *,
        compared_with: str | None = None,
        alpha: float = 0.05,
        score: str | None = None,
        estimator: str | None = None,
    ) -> EpsilonInterval:
        """Return the smallest swept epsilon from which on at most ``loss`` of the score is lost.

        Parameters
        ----------
        loss : float
            At least 0, in units of the score: 0.01 is a point of accuracy.
        compared_with : str, default=None
            Name of a baseline. ``None``: the best of them in the mean; without baselines, the
            largest epsilon.
        alpha : float, default=0.05
            The interval has confidence 1 - ``alpha``. It allows for few splits that share records.
        score : str, default=None
            One of ``scores_``; ``None`` means the first.
        estimator : str, default=None
            Name of one of several estimators; ``None`` means the first.

        Returns
        -------
        EpsilonInterval
            Read off the sweep's scores, which are not private. Infinity if all levels are useless:
            no better than the constant predictor.

        Raises
        ------
        ValueError
            If ``loss`` or ``compared_with`` is invalid, there is only one split or no finite
            epsilon, or a score is NaN because its scorer failed.
        """
        check_is_fitted(self, "cv_results_")
        if not (is_number(loss) and loss >= 0):
            raise ValueError(f"loss={loss!r} must be a number of at least 0, such as 0.01.")
        splits = self._splits(alpha)
        epsilons, scores = self._known_curve(score, estimator)
        name = self._reference(compared_with, score)
        if name is None:
            reference, name = scores[-1], f"epsilon={epsilons[-1]:g}"
        else:
            reference = _scores_by_split(self.baseline_results_, score or self.scores_[0])[name]
            _check_finite(reference, f"compared_with={name!r}")
        private = np.isfinite(epsilons)
        if not private.any():
            raise ValueError(f"epsilons={epsilons.tolist()} has no finite level to choose.")
        constant = self._constant_scores(score)
        return smallest_epsilon(
            epsilons[private],
            scores[private],
            reference,
            float(loss),
            splits,
            alpha,
            name,
            constant,
        )

    def knee(self, *, score: str | None = None, estimator: str | None = None) -> EpsilonInterval:
        """Return the knee of a score over epsilon, above which it grows slowly.

        Parameters
        ----------
        score : str, default=None
            One of ``scores_``; ``None`` means the first.
        estimator : str, default=None
            Name of one of several estimators; ``None`` means the first.

        Returns
        -------
        EpsilonInterval
            Read off the sweep's scores, which are not private. Infinity if all levels are useless.

        Raises
        ------
        ValueError
            If there are fewer than three finite epsilons, or a score is NaN because its scorer
            failed.
        """
        check_is_fitted(self, "cv_results_")
        epsilons, scores = self._known_curve(score, estimator)
        private = np.isfinite(epsilons)
        if private.sum() < 3:
            raise ValueError(
                f"epsilons={epsilons.tolist()} has {private.sum()} finite levels; a knee needs at "
                "least three."
            )
        return knee(epsilons[private], scores[private], self._constant_scores(score))

    def split_loss(self, *, alpha: float = 0.05, score: str | None = None) -> pd.DataFrame:
        """Return the loss of each privacy level, split into the losses by the noise and the model.

        Parameters
        ----------
        alpha : float, default=0.05
            Each interval has confidence 1 - ``alpha``, and allows for splits that share records.
        score : str, default=None
            One of ``scores_``; ``None`` means the first.

        Returns
        -------
        DataFrame
            A row for each private epsilon, with ``model``, ``epsilon``, ``compared_with``, and

            - ``loss``: the score of the best other baseline less that of the private model;
            - ``noise_loss``: the score of the same model at ``epsilon=inf`` less that of the
              private model;
            - ``model_loss``: the rest, which the model loses without any noise.

            ``_low`` and ``_high`` at the end of a name are the ends of an interval. NaN if there is
            no other baseline, no model at ``epsilon=inf``, or a score is NaN.

        Raises
        ------
        ValueError
            If there is only one split, or ``score`` is none of ``scores_``.
        """
        check_is_fitted(self, "cv_results_")
        splits, largest = self._splits(alpha), _largest_loss(self, score)
        models = list(validate_models(self.estimator))
        levels = _scores_by_split(self.baseline_results_, score or self.scores_[0])
        siblings = {name: levels.pop(sibling_name(name), None) for name in models}
        best = _best_level(levels)
        unknown = np.full(self.n_splits_, np.nan)
        rows = []
        for model in models:
            epsilons, scores = self._curve(score, model)
            free = siblings[model]
            if free is None:
                free = scores[-1] if np.isinf(epsilons[-1]) else unknown
            other = unknown if best is None else levels[best]
            for epsilon, own in zip(epsilons, scores, strict=True):
                if np.isinf(epsilon):
                    continue
                row = {"model": model, "epsilon": epsilon, "compared_with": best}
                lost = {"loss": other - own, "noise_loss": free - own, "model_loss": other - free}
                for name, values in lost.items():
                    mean, low, high = splits.interval(values, alpha)
                    low, high = np.clip((low, high), -largest, largest)
                    row |= {name: mean, f"{name}_low": low, f"{name}_high": high}
                rows.append(row)
        return pd.DataFrame(rows)

    def by_group(self, *, compared_with: str | None = None, alpha: float = 0.05) -> pd.DataFrame:
        """Return the cost of each privacy level to each subgroup, and the subgroups it exposes.

        Parameters
        ----------
        compared_with : str, default=None
            Name of a baseline, as in :meth:`smallest_epsilon`; without baselines, the largest
            epsilon.
        alpha : float, default=0.05
            All intervals together, all "pays" together and all "exposed" together have confidence
            1 - ``alpha``.

        Returns
        -------
        DataFrame
            A row for each private epsilon and each group, with ``model``, ``epsilon``, ``by``,
            ``group`` and

            - ``n_test``: mean number of the group's test records in a split;
            - ``test_score`` and ``test_score_std``: the first score on these records;
            - ``compared_with``, ``loss``, ``loss_low``, ``loss_high``: the group's loss of score by
              privacy, with an interval;
            - ``pays``: whether the group loses significantly more than all others, and
              ``pays_p_value``;
            - ``attack_auc``, ``attack_auc_std``: how well the attack tells the group's members from
              its other records;
            - ``exposed``: whether the attack is significantly better than chance, and
              ``exposed_p_value``.

            Groups with fewer than five test records in a split are left out.

        Raises
        ------
        ValueError
            If ``fit`` was given no ``subgroups``, there is only one split, or ``compared_with`` is
            invalid.

        Notes
        -----
        P-values are adjusted by Holm's method for all rows. Losses are paired by split, and their
        variance is corrected for records that splits share (Nadeau and Bengio 2003). The p-values
        of the attack are combined over splits by twice their mean, which is valid under any
        dependence.
        """
        check_is_fitted(self, "cv_results_")
        if self.subgroups_ is None:
            raise ValueError("fit was given no subgroups. Pass them: fit(X, y, subgroups=...).")
        splits, name = self._splits(alpha), self._reference(compared_with)
        candidates = [
            {"model": p.get("estimator", ""), "epsilon": next(iter(p.values())), "groups": groups}
            for p, groups in zip(
                self.cv_results_["params"], self.group_results_["models"], strict=True
            )
        ]
        if name is None:
            largest = max(candidates, key=lambda row: row["epsilon"])
            reference, name = largest["groups"], f"epsilon={largest['epsilon']:g}"
        else:
            row = self.baseline_results_["param_baseline"].tolist().index(name)
            reference = self.group_results_["baselines"][row]
        private = [row for row in candidates if np.isfinite(row["epsilon"])]
        return tabulate_groups(
            private, reference, (self.subgroups_, name), splits, alpha, _largest_loss(self)
        )

    def _splits(self, alpha: float) -> Splits:
        """Return the corrected errors of splits, after checking ``alpha``."""
        open_unit("alpha", alpha, 0.05)
        if self.n_splits_ < 2:
            raise ValueError("One split gives no interval. Use cv=5, or repeat splits.")
        return Splits(self.n_splits_, self.test_per_train_)

    def _reference(self, compared_with: str | None, score: str | None = None) -> str | None:
        """Return the baseline to compare with; for None the best, or failed only if all have."""
        levels = _scores_by_split(self.baseline_results_, score or self.scores_[0])
        known = isinstance(compared_with, str) and compared_with in levels
        if compared_with is not None and not known:
            raise ValueError(
                f"compared_with={compared_with!r} must be one of the baselines, {list(levels)}."
            )
        return _best_level(levels) if compared_with is None else compared_with

    def _constant_scores(self, score: str | None = None) -> np.ndarray:
        """Return the scores of the constant predictor on all splits."""
        levels = _scores_by_split(self.constant_results_, score or self.scores_[0])
        return next(iter(levels.values()))

    def _find_useless(self, results: dict[str, Any]) -> np.ndarray:
        """Return whether each model of ``results`` is no better than the constant predictor."""
        keys = [f"split{i}_test_{self.scores_[0]}" for i in range(self.n_splits_)]
        scores = np.stack([results[key] for key in keys], axis=1)
        return is_useless(scores, self._constant_scores())

    def _curve(
        self, score: str | None = None, estimator: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return epsilons, increasing, and test scores of shape (n_epsilons, n_splits)."""
        name = self.scores_[0] if score is None else score
        if not isinstance(name, str) or name not in self.scores_:
            raise ValueError(f"score={score!r} must be one of {self.scores_}.")
        params = self.cv_results_["params"]
        names = [candidate.get("estimator", "") for candidate in params]
        shown = names[0] if estimator is None else estimator
        if not isinstance(shown, str) or shown not in names:
            raise ValueError(
                f"estimator={estimator!r} must be one of {list(dict.fromkeys(names))}."
            )
        epsilons = np.array([next(iter(candidate.values())) for candidate in params])
        rows = np.flatnonzero(np.array(names) == shown)
        order = rows[np.argsort(epsilons[rows])]
        splits = [self.cv_results_[f"split{i}_test_{name}"] for i in range(self.n_splits_)]
        return epsilons[order], np.stack(splits, axis=1)[order]

    def _known_curve(self, score: str | None, estimator: str | None) -> tuple[Any, Any]:
        """Return the curve, or refuse one with NaN scores."""
        epsilons, scores = self._curve(score, estimator)
        _check_finite(scores, f"score={score or self.scores_[0]!r}")
        return epsilons, scores

    def plot(self, **kwargs: Any) -> Any:
        """Plot utility and leakage over epsilon.

        Parameters
        ----------
        **kwargs
            ``axes``, two matplotlib Axes: utility above, attack below. None makes a new figure.

        Returns
        -------
        PrivacyUtilityDisplay
            The display, with its ``figure_`` and ``axes_``.
        """
        from ..display.privacy_utility import PrivacyUtilityDisplay

        return PrivacyUtilityDisplay.from_estimator(self, **kwargs)

    def to_html(
        self, path: str | PathLike[str] | None = None, *, about: About | None = None
    ) -> str:
        """Return an HTML page with the figure, all results, their cost and how to read them.

        Parameters
        ----------
        path : str or PathLike, default=None
            Where to write it, in UTF-8; it must end in .html. ``None`` does not.
        about : About, default=None
            Data set, author, command and digests, for the page.

        Returns
        -------
        str
            Without any reference to other files. All text is escaped.
        """
        from ..audit.report.document import about_or_empty
        from .sweep_report import caveats_of_sweep, draw_figure, page

        check_is_fitted(self, "cv_results_")
        target = None if path is None else output_path(path, ".html", ".htm")
        shown = page(self, about_or_empty(about), caveats_of_sweep(self), draw_figure(self))
        if target is not None:
            write_file(target, shown)
        return shown

    @property
    def score_name_(self) -> str:
        """Name of the first score in figures and on pages."""
        if self.scores_ != ["score"]:
            return self.scores_[0]
        if isinstance(self.scoring, str):
            return self.scoring
        first = next(iter(validate_models(self.estimator).values()))
        return "R²" if is_regressor(first) else "accuracy"


def _scores_by_split(results: dict[str, Any], score: str) -> dict[str, np.ndarray]:
    """Return the test scores of each baseline on all splits, by its name."""
    keys = [key for key in results if re.fullmatch(rf"split\d+_test_{re.escape(score)}", key)]
    names = results.get("param_baseline", [])
    return {str(name): np.array([results[key][i] for key in keys]) for i, name in enumerate(names)}


def _best_level(levels: dict[str, np.ndarray]) -> str | None:
    """Return the name with the highest mean score; one with a NaN only if all have one."""
    if not levels:
        return None
    return max(levels, key=lambda name: np.nan_to_num(levels[name].mean(), nan=-np.inf))


def _largest_loss(sweep: Any, score: str | None = None) -> float:
    """Return the largest difference of two scores: 1 for a score in [0, 1], else infinity."""
    scoring = sweep.scoring
    if isinstance(scoring, dict):
        scoring = scoring.get(score or sweep.scores_[0])
    elif isinstance(scoring, list | tuple | set):
        scoring = score or sweep.scores_[0]
    name = "accuracy" if scoring is None and sweep.score_name_ == "accuracy" else scoring
    is_share = isinstance(name, str) and name.startswith(_SHARES) and not name.startswith("neg_")
    return 1.0 if is_share else np.inf


def _check_finite(scores: np.ndarray, what: str) -> None:
    if failed := int(np.isnan(scores).sum()):
        raise ValueError(
            f"{what} is NaN in {failed} of {scores.size} fits, where its scorer failed, so that "
            "nothing can be read off it. Name another of the scores or baselines, or sweep with a "
            "scorer or splits that suit all folds."
        )
