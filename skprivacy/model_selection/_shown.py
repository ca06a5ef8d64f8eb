"""What is read off a fitted sweep, and how it is shown."""

from __future__ import annotations

import numbers
import re
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._reading import EpsilonInterval, knee, smallest_epsilon

__all__ = ["ShownMixin"]


class ShownMixin:
    """The methods of a fitted sweep that read its results."""

    scoring: Any
    cv_results_: dict[str, Any]
    baseline_results_: dict[str, Any]
    charged_: Any
    n_splits_: int
    scores_: list[str]
    test_per_train_: float

    def smallest_epsilon(
        self,
        loss: float,
        *,
        compared_with: str | None = None,
        confidence: float = 0.95,
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
        confidence : float, default=0.95
            Of the interval, which takes splits for what they are: few, and not independent.
        score : str, default=None
            One of ``scores_``; ``None`` means the first.
        estimator : str, default=None
            Name of one of several estimators; ``None`` means the first.

        Returns
        -------
        EpsilonInterval

        Raises
        ------
        ValueError
            If ``loss`` or ``compared_with`` is invalid, or there is only one split.
        """
        check_is_fitted(self, "cv_results_")
        if not (isinstance(loss, numbers.Real) and loss >= 0):
            raise ValueError(f"loss={loss!r} must be a number of at least 0, such as 0.01.")
        if not 0 < confidence < 1:
            raise ValueError(f"confidence={confidence!r} must be in (0, 1), such as 0.95.")
        if self.n_splits_ < 2:
            raise ValueError("One split does not tell how sure it is. Use cv=5, or repeat splits.")
        epsilons, scores = self._curve(score, estimator)
        levels = _by_split(self.baseline_results_, score or self.scores_[0])
        if compared_with is None and levels:
            compared_with = max(levels, key=lambda name: float(levels[name].mean()))
        if compared_with is None:
            reference, name = scores[-1], f"epsilon={epsilons[-1]:g}"
        elif compared_with in levels:
            reference, name = levels[compared_with], compared_with
        else:
            raise ValueError(
                f"compared_with={compared_with!r} must be one of the baselines, {list(levels)}."
            )
        private = np.isfinite(epsilons)
        return smallest_epsilon(
            epsilons[private],
            scores[private],
            reference,
            float(loss),
            self.test_per_train_,
            confidence,
            name,
        )

    def knee(self, *, score: str | None = None, estimator: str | None = None) -> EpsilonInterval:
        """Return the epsilon from which on more of it brings less, and its range over splits.

        Parameters
        ----------
        score : str, default=None
            One of ``scores_``; ``None`` means the first.
        estimator : str, default=None
            Name of one of several estimators; ``None`` means the first.

        Returns
        -------
        EpsilonInterval

        Raises
        ------
        ValueError
            If there are fewer than three finite epsilons.
        """
        check_is_fitted(self, "cv_results_")
        epsilons, scores = self._curve(score, estimator)
        private = np.isfinite(epsilons)
        if private.sum() < 3:
            raise ValueError(
                f"epsilons={epsilons.tolist()} has {private.sum()} finite levels; a knee needs at "
                "least three."
            )
        return knee(epsilons[private], scores[private])

    def _curve(
        self, score: str | None = None, estimator: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return epsilons, increasing, and test scores of shape (n_epsilons, n_splits)."""
        name = self.scores_[0] if score is None else score
        if name not in self.scores_:
            raise ValueError(f"score={score!r} must be one of {self.scores_}.")
        params = self.cv_results_["params"]
        names = [candidate.get("estimator", "") for candidate in params]
        shown = names[0] if estimator is None else estimator
        if shown not in names:
            raise ValueError(
                f"estimator={estimator!r} must be one of {list(dict.fromkeys(names))}."
            )
        epsilons = np.array([next(iter(candidate.values())) for candidate in params])
        rows = np.flatnonzero(np.array(names) == shown)
        order = rows[np.argsort(epsilons[rows])]
        splits = [self.cv_results_[f"split{i}_test_{name}"] for i in range(self.n_splits_)]
        return epsilons[order], np.stack(splits, axis=1)[order]

    def plot(self, **kwargs: Any) -> Any:
        """Plot utility and leakage over epsilon.

        Parameters
        ----------
        **kwargs
            Passed to :class:`~skprivacy.display.PrivacyUtilityDisplay`'s ``plot``.

        Returns
        -------
        PrivacyUtilityDisplay
        """
        from ..display import PrivacyUtilityDisplay

        return PrivacyUtilityDisplay.from_estimator(self, **kwargs)

    def to_html(self, path: str | PathLike[str] | None = None, *, name: str = "the records") -> str:
        """Return a page with the figure, all results, what they cost and how to read them.

        Parameters
        ----------
        path : str or PathLike, default=None
            Where to write it, in UTF-8. ``None`` does not.
        name : str, default="the records"
            What the data is called on the page.

        Returns
        -------
        str
            Without any reference to other files. All text is escaped.
        """
        from ._page import figure_of, page

        check_is_fitted(self, "cv_results_")
        shown = page(self, name, self.charged_.assumptions, figure_of(self))
        if path is not None:
            Path(path).write_text(shown, encoding="utf-8")
        return shown

    @property
    def score_name_(self) -> str:
        """What the first score is called in figures and on pages."""
        if self.scores_ != ["score"]:
            return self.scores_[0]
        return self.scoring if isinstance(self.scoring, str) else "accuracy"


def _by_split(results: dict[str, Any], score: str) -> dict[str, np.ndarray]:
    """Return the test scores of each baseline on all splits, by its name."""
    keys = [key for key in results if re.fullmatch(rf"split\d+_test_{re.escape(score)}", key)]
    names = results.get("param_baseline", [])
    return {name: np.array([results[key][i] for key in keys]) for i, name in enumerate(names)}
