"""What synthesizers of all kinds have in common: how a table comes in, and how records come out."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._data_validation import validate_data
from .._validation import as_frame, check_random_state, flag, is_whole
from ..base import PrivateEstimatorMixin, PrivateFit
from ..preprocessing import Schema
from ._domain import Domain
from ._facts import Facts

__all__ = ["Synthesizer"]


class Synthesizer(PrivateEstimatorMixin, BaseEstimator):
    """Draws records that resemble private ones; how, is for subclasses.

    **Guarantees.** Records are drawn from what a fit has released, and from public facts.
    """

    schema: Schema | None
    label: str | None
    missing: Any
    schema_: Schema
    label_: str | None
    target_: str | None
    n_records_: int
    domain_: Domain
    _order: list[str]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        given = self.schema is not None
        tags.input_tags.allow_nan = given
        tags.input_tags.string = given
        tags.input_tags.categorical = given
        return tags

    @abstractmethod
    def _drawn(self, n: int, random: np.random.RandomState) -> pd.DataFrame:
        """Return ``n`` records, with the columns of ``domain_`` in any order."""

    def sample(
        self,
        n: int | None = None,
        *,
        return_X_y: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> Any:
        """Draw synthetic records. That costs no privacy, however many are drawn.

        Parameters
        ----------
        n : int, default=None
            How many. ``None``: ``n_records_``.
        return_X_y : bool, default=False
            Whether the target is returned by itself: the ``y`` that ``fit`` got, or else the label.
        random_state : int, RandomState instance or None, default=None
            Of the records; nothing private hangs on it.

        Returns
        -------
        DataFrame of shape (n, n_columns)
            With the columns and types that ``fit`` got, ``y`` last; or this without the target,
            and the target as a Series.
        """
        check_is_fitted(self)
        n = self.n_records_ if n is None else n
        if not is_whole(n) or n < 1:
            raise ValueError(f"n={n!r} must be an integer of at least 1, or None.")
        flag("return_X_y", return_X_y)
        if return_X_y and self.target_ is None:
            raise ValueError(
                "return_X_y=True needs a target, and there is none. Fit with label=, or with y."
            )
        frame = self._drawn(int(n), check_random_state(random_state))[self._order]
        if return_X_y:
            return frame.drop(columns=self.target_), frame[self.target_]
        return frame

    def _keep(self, facts: Facts, domain: Domain) -> None:
        """Keep what is public of the table."""
        self.schema_, self.domain_ = facts.schema, domain
        self.label_, self.target_ = facts.label, facts.target
        self._order = facts.order

    def _checked(self, X: Any) -> Any:
        X = as_frame(X)
        if self.schema is None:
            if isinstance(X, pd.DataFrame):
                validate_data(self, X, skip_check_array=True)
                return X
            return validate_data(self, X, dtype=np.float64)
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, skip_check_array=True)
            if not len(X):
                raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
            return X
        return validate_data(self, X, dtype=None, ensure_all_finite=False)

    def _public(self, X: Any, y: Any) -> tuple[Facts, Domain]:
        """Return what is public of a table. What a fit would warn of is left to the fit."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            facts = Facts.of(PrivateFit(self), self._checked(X), y, self.schema, self.label)
            grids: Mapping[str, Any] = getattr(self, "grids", None) or {}
            return facts, facts.domain(grids, self.missing)
