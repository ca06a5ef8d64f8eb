"""Local differential privacy: a transformer that perturbs each record before learning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._docs import fill_docs
from .._validation import is_number
from ..accounting import ComposedEvent, Event, weakest_arithmetic
from ..accounting.calibration import analytic_noise_multiplier
from ..base import PrivateEstimatorMixin
from ..mechanisms import Gaussian, Laplace, Mechanism, RandomizedResponse, SecureRandom
from .columns import BoundedColumn, CategoricalColumn, scale_number
from .schema import Schema
from .transformer import TRANSFORMER_DOCS, SchemaTransformer


@fill_docs(TRANSFORMER_DOCS)
class LocalPerturbation(PrivateEstimatorMixin, SchemaTransformer):
    """Encode records by a public schema and perturb each one, for local differential privacy.

    It replaces a :class:`SchemaTransformer`. Later steps see perturbed records only, so any
    estimator can be used. Accuracy suffers: every record gets noise, and useful models need large
    ``epsilon`` and many records.

    Parameters
    ----------
    %(optional_schema)s
    epsilon : float, default=1.0
        Privacy loss of one record in one call, shared equally by its columns.
    delta : float, default=0.0
        Above 0, numeric columns get Gaussian instead of Laplace noise, which is smaller for many
        numeric columns.
    perturb : {"always", "fit"}, default="always"
        "fit" perturbs only in ``fit_transform``. Rows passed to ``transform`` stay unperturbed, for
        predictions that only the owner of the row sees.
    %(output_dtype)s
    %(noise_seed)s

    Attributes
    ----------
    %(schema_attribute)s
    privacy_ : PrivacyGuarantee
        The guarantee for a record in each call that perturbs it.
    privacy_event_ : Event
        Release of a record in each call.
    epsilon_, delta_ : float
        Epsilon and delta of the guarantee.
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-*local* differential privacy: it bounds the change of a
    perturbed record's distribution if the whole record is replaced, for any knowledge about other
    records. For a data set with one record per person, the same holds under replace-one. A number
    changes by at most the width of its range, to which it is clipped with its noise. A category is
    reported by randomised response, with one additional category for missing or unknown values. The
    noise is exact on a grid. Each call is a new release: perturbing the same records twice costs
    twice.

    **Edge cases.** A missing number is treated as the middle of its range. An unknown category
    becomes zeros, or any category.

    References
    ----------
    J. C. Duchi, M. I. Jordan and M. J. Wainwright, "Local privacy and statistical minimax
    rates", FOCS 2013.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivacy import LocalPerturbation
    >>> from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
    >>> schema = Schema(
    ...     {"age": BoundedColumn(0, 100), "sex": CategoricalColumn(["Female", "Male"])}
    ... )
    >>> X = pd.DataFrame({"age": [25, 52], "sex": ["Male", "Female"]})
    >>> local = LocalPerturbation(schema, epsilon=4.0)
    >>> local.fit_transform(X).shape
    (2, 3)
    >>> local.privacy_
    4.00-DP, replace-one, exact noise, proved assuming one record per person, perturbed once; the
    number of records is public
    """

    _saved_state = {**SchemaTransformer._saved_state, "privacy_": "guarantee"}

    def __init__(
        self,
        schema: Schema | None = None,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        perturb: str = "always",
        dtype: Any = np.float64,
        noise_seed: int | None = None,
    ) -> None:
        super().__init__(schema, dtype=dtype)
        self.epsilon = epsilon
        self.delta = delta
        self.perturb = perturb
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: Any = None) -> LocalPerturbation:
        """Check the columns of ``X`` against the schema, and state the guarantee.

        Parameters
        ----------
        %(table_without_target)s

        Returns
        -------
        LocalPerturbation
            The fitted transformer.

        Raises
        ------
        ValueError
            If a column is missing or unknown, or a parameter is wrong.
        """
        with self._private_fit() as fit:
            super().fit(X, y)
            self._store_settings()
            fit.assume("one record per person, perturbed once")
            fit.assume(*self.schema_.assumptions)
            with fit.charged(
                self._event(), relation="replace_one", at_delta=self.delta,
                arithmetic=weakest_arithmetic(m.arithmetic for m in self._mechanisms()),
            ):  # fmt: skip
                pass  # the records are released by transform, in every call
            # Sum of the columns' shares; tight composition would give slightly less.
            self.epsilon_ = float(self.epsilon)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return encoded records, perturbed unless ``perturb="fit"``.

        Parameters
        ----------
        %(table)s

        Returns
        -------
        %(encoded_table)s
        """
        encoded = super().transform(X)
        self._check_unchanged()
        return encoded if self.perturb == "fit" else self._perturb_rows(encoded)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Fit to ``X`` and return its records, encoded and perturbed.

        Parameters
        ----------
        %(table_without_target)s
        **fit_params : dict
            Must be empty.

        Returns
        -------
        %(encoded_table)s
        """
        return self._perturb_rows(
            super(LocalPerturbation, self.fit(X, y, **fit_params)).transform(X)
        )

    def _perturb_rows(self, encoded: Any) -> np.ndarray:
        check_is_fitted(self, "privacy_event_")
        self._check_unchanged()
        out = np.array(encoded, dtype=np.float64)
        random = SecureRandom(self.noise_seed)
        numbers, at = {}, 0
        for fact in self.schema_.values():
            if isinstance(fact, BoundedColumn):
                numbers[at] = fact
                at += fact.n_features_out
                continue
            assert isinstance(fact, CategoricalColumn)  # no other kinds: see _store_settings
            k = fact.n_features_out
            block = out[:, at : at + k]
            codes = np.where(block.any(axis=1), block.argmax(axis=1), k)
            reported = self._category_response(fact).release(codes, random)
            block[:] = reported[:, None] == np.arange(k)
            at += k
        if numbers:
            unit = (out[:, list(numbers)] + 1.0) / 2.0
            noisy = self._number_noise().release(np.clip(unit, 0.0, 1.0), random)
            for (at, fact), value in zip(numbers.items(), np.clip(noisy, 0.0, 1.0).T, strict=True):
                out[:, at] = scale_number(value)
                # Bits are computed from the noisy number; the true ones are never released.
                out[:, at + 1 : at + fact.bins] = fact._thermometer(value)
        return out.astype(self.dtype, copy=False)

    def _store_settings(self) -> None:
        """Store the settings that the guarantee describes, in a fit or after loading."""
        self.schema_._check_kinds(type(self).__name__, missing=False)
        if self.schema_.crosses:
            raise ValueError(
                f"schema: LocalPerturbation perturbs each column by itself, and the schema has the "
                f"crosses {list(self.schema_.crosses)}. Pass schema.with_crosses([])."
            )
        self._numeric = sum(isinstance(fact, BoundedColumn) for fact in self.schema_.values())
        self._stated = self._settings()

    def _finish_loading(self) -> None:
        """Refuse a file whose parameters release something else than its guarantee says."""
        super()._finish_loading()
        self._store_settings()
        if self.privacy_.event != self._event():
            raise ValueError("the parameters release something else than the guarantee says")
        self.epsilon_ = float(self.epsilon)

    def _event(self) -> Event:
        """Return the release of a record in each call."""
        return ComposedEvent(tuple(mechanism.event for mechanism in self._mechanisms()))

    def _mechanisms(self) -> list[Mechanism]:
        numbers: list[Mechanism] = [self._number_noise()] if self._numeric else []
        facts = self.schema_.values()
        return numbers + [
            self._category_response(f) for f in facts if isinstance(f, CategoricalColumn)
        ]

    def _settings(self) -> tuple[Any, ...]:
        return self.epsilon, self.delta, self.perturb

    def _check_unchanged(self) -> None:
        """Refuse to release if the parameters no longer agree with ``privacy_``."""
        seeded = self.noise_seed is not None and self.privacy_.kind == "proved"
        if seeded or self._settings() != self._stated:
            raise ValueError(
                "epsilon, delta, perturb or noise_seed was changed after fit, so privacy_ does not "
                "describe what transform would release. Call fit again."
            )

    def _number_noise(self) -> Laplace | Gaussian:
        """Return the noise mechanism of all numbers of a record, each scaled to [0, 1]."""
        share = float(self.epsilon) * self._numeric / len(self.schema_)
        if self.delta == 0:
            return Laplace(1.0 / share, float(self._numeric))
        z = analytic_noise_multiplier(share, float(self.delta))
        return Gaussian(z, math.sqrt(self._numeric))

    def _category_response(self, fact: CategoricalColumn) -> RandomizedResponse:
        return RandomizedResponse(float(self.epsilon) / len(self.schema_), len(fact.values) + 1)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not (is_number(self.epsilon) and 1e-4 <= self.epsilon < 700):
            raise ValueError(
                f"epsilon={self.epsilon!r} must be a number from 1e-4 to 700, for example 1.0."
            )
        if not (is_number(self.delta) and 0 <= self.delta < 1):
            raise ValueError(
                f"delta={self.delta!r} must be a number in [0, 1); 0 means Laplace noise."
            )
        if self.perturb not in ("always", "fit"):
            raise ValueError(f"perturb={self.perturb!r} must be 'always' or 'fit'.")
