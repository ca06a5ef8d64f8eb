"""Result of a reconstruction attack: recovered shares, null models and the bound of Balle 2022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

from ..._validation import open_unit
from ...accounting import PrivacyGuarantee
from ...metrics.rates import clopper_pearson

Float64Array = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True, eq=False, repr=False)
class InversionResult:
    """Columns of records recovered by an attack, and by null models that see no gradient.

    A number counts as recovered within .319 standard deviations, a category if it is equal. The
    guesses of a batch are matched with its records so that most columns are recovered, for the
    attack and for each null model. ``evaluate`` of the inversion attacks returns this result.

    Parameters
    ----------
    recovered : ndarray of bool of shape (n_rows, n_columns)
        Whether the attack recovered each column of each row.
    nulls : dict of ndarray of bool of shape (n_rows, n_columns)
        The same for each null model, on the same rows. "middle" guesses the middle of each range
        and the first category. "mode" guesses the most frequent values among the attacker's
        records, of each class if labels were given. "random rows" guesses as many of the attacker's
        records, of the same labels if given.
    exact : ndarray of bool of shape (n_rows,)
        Whether some guess equals the row in all columns, numbers to .001 standard deviations.
    confidence : ndarray of shape (n_rows,)
        Confidence of the attack in the matched guess, from 0 to 1.
    batch : ndarray of int of shape (n_rows,)
        Batch of each row.
    blind : ndarray of shape (n_columns,)
        Upper bound on the share of each column of these rows that guesses without a gradient can
        recover, even if the rows themselves choose the guesses.
    names : tuple of str
        Names of the columns.
    attack : str, default="inversion"
        Name of the attack, for tables.
    alpha : float, default=0.05
        Error probability of every interval.

    Attributes
    ----------
    share : float
        Mean share of columns that the attack recovered.
    interval : (float, float)
        Its confidence interval, with batches as independent units.
    null_shares : dict of float
        Mean share of columns that each null model recovered.
    best_null : str
        The null model with the largest share.
    gain : float
        ``share`` minus the share of the best null model.
    gain_interval : (float, float)
        Its confidence interval, over the differences of batches.
    exact_share : float
        Share of rows that were recovered exactly.

    Notes
    -----
    **Edge cases.** With a single batch, intervals are [0, 1] and [-1, 1]. The best null model is
    chosen on the attacked rows, which favours the null models.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import InversionResult
    >>> right, wrong = np.ones((40, 2), dtype=bool), np.zeros((40, 2), dtype=bool)
    >>> InversionResult(
    ...     recovered=right, nulls={"mode": wrong}, exact=right[:, 0], confidence=np.ones(40),
    ...     batch=np.arange(40), blind=np.array([0.5, 0.5]), names=("age", "sex"),
    ... )
    inversion: recovered 1.000 [0.912, 1.000] of columns, 1.000 of rows exactly; mode 0.000
    (gain 1.000 [0.912, 1.000])
    """

    recovered: NDArray[np.bool_]
    nulls: Mapping[str, NDArray[np.bool_]]
    exact: NDArray[np.bool_]
    confidence: Float64Array
    batch: NDArray[np.intp]
    blind: Float64Array
    names: tuple[str, ...]
    attack: str = "inversion"
    alpha: float = 0.05

    def __post_init__(self) -> None:
        open_unit("alpha", self.alpha)
        for name, found in self.nulls.items():
            if found.shape != self.recovered.shape:
                raise ValueError(
                    f"nulls[{name!r}] has shape {found.shape}; expected {self.recovered.shape}, "
                    "the rows of the attack."
                )

    @property
    def share(self) -> float:
        return float(self.recovered.mean())

    @property
    def interval(self) -> Interval:
        return _interval(self._by_batch(self.recovered), 0.0, self.alpha)

    @property
    def null_shares(self) -> dict[str, float]:
        return {name: float(found.mean()) for name, found in self.nulls.items()}

    @property
    def best_null(self) -> str:
        return max(self.null_shares, key=self.null_shares.__getitem__)

    @property
    def gain(self) -> float:
        return self.share - self.null_shares[self.best_null]

    @property
    def gain_interval(self) -> Interval:
        null = self._by_batch(self.nulls[self.best_null])
        return _interval(self._by_batch(self.recovered) - null, -1.0, self.alpha)

    @property
    def exact_share(self) -> float:
        return float(self.exact.mean())

    def best_rows(self, share: float = 0.25, by: str = "recovery") -> pd.DataFrame:
        """Return the recovered shares on the best rows, for the attack and the null models.

        An average may hide that some rows leak entirely.

        Parameters
        ----------
        share : float, default=0.25
            Share of the rows that count as best.
        by : {"recovery", "confidence"}, default="recovery"
            "recovery" takes the rows that were recovered best, which only their owner knows.
            "confidence" takes the rows of which the attacker was most certain.

        Returns
        -------
        DataFrame
            One line for the attack and for each null model. ``same_rows`` is its share of columns
            on the attack's best rows, ``own_rows`` its share on the rows that it recovers best.
            If the attack beats a null model only on ``same_rows``, the choice of rows explains it.
        """
        open_unit("share", share)
        if not isinstance(by, str) or by not in ("recovery", "confidence"):
            raise ValueError(f"by={by!r} must be 'recovery' or 'confidence'.")
        count = max(1, round(share * len(self.recovered)))
        value = self.recovered.mean(axis=1) if by == "recovery" else self.confidence
        best = np.argsort(-value, kind="stable")[:count]
        return pd.DataFrame(
            {
                name: {
                    "same_rows": found[best].mean(),
                    "own_rows": np.sort(found.mean(axis=1))[-count:].mean(),
                }
                for name, found in {self.attack: self.recovered, **self.nulls}.items()
            }
        ).T

    def bound(self, guarantee: PrivacyGuarantee) -> float:
        """Return an upper bound on the expected share of columns that any attack recovers.

        Parameters
        ----------
        guarantee : PrivacyGuarantee
            Guarantee of the gradients for each record, under the relation zero-out or add-remove.

        Returns
        -------
        float
            In [0, 1].

        Notes
        -----
        Let T(f) be the largest true positive rate of a membership attack at false positive rate f.
        "The record's column is recovered" is a test on the gradient. Let f be its probability had
        the record contributed nothing; with the record, it is at most T(f). T is concave, so the
        mean over records is at most T of the mean of f. The mean of f is at most ``blind``, since
        such guesses do not depend on the record. For one record among m equally probable
        candidates, the bound is T(1 / m).

        References
        ----------
        B. Balle, G. Cherubin, J. Hayes. Reconstructing training data with informed adversaries.
        IEEE S&P 2022.
        J. Hayes, S. Mahloujifar, B. Balle. Bounding training data reconstruction in DP-SGD.
        NeurIPS 2023.
        """
        if not isinstance(guarantee, PrivacyGuarantee):
            raise TypeError(f"guarantee={guarantee!r} must be a PrivacyGuarantee.")
        if guarantee.relation not in ("zero_out", "add_remove"):
            raise ValueError(
                f"guarantee.relation={guarantee.relation!r} must be 'zero_out' or 'add_remove', "
                "because the bound compares with the absence of a record."
            )
        # Balle et al. 2022: reconstruction robustness from a bound on the trade-off function
        return float(guarantee.tpr_bound(np.minimum(self.blind, 1.0)).mean())

    def refutes(self, guarantee: PrivacyGuarantee, alpha: float | None = None) -> bool:
        """Return whether the recovered share refutes the guarantee, at confidence 1 - alpha.

        Parameters
        ----------
        guarantee : PrivacyGuarantee
            See :meth:`bound`.
        alpha : float, default=None
            Probability of refuting a true guarantee. ``None`` uses the result's ``alpha``.

        Returns
        -------
        bool
            True if refuted, by Hoeffding's inequality over batches, which must have been drawn
            independently.
        """
        alpha = self.alpha if alpha is None else open_unit("alpha", alpha)
        batches = len(np.unique(self.batch))
        # Hoeffding's inequality for the mean of independent shares in [0, 1]
        least = self.share - np.sqrt(np.log(1 / alpha) / (2 * batches))
        return bool(least > self.bound(guarantee))

    def columns(self) -> pd.DataFrame:
        """Return one line per column: shares of the attack and of null models, and ``blind``.

        Returns
        -------
        DataFrame
            With the columns' names as index.
        """
        shares = {"recovered": self.recovered.mean(axis=0)}
        shares |= {name: found.mean(axis=0) for name, found in self.nulls.items()}
        return pd.DataFrame({**shares, "blind": self.blind}, index=list(self.names))

    def to_frame(self) -> pd.DataFrame:
        """Return one row of figures.

        Returns
        -------
        DataFrame
            Each interval takes two columns, each null model one.
        """
        quarter = self.best_rows()["same_rows"]
        row: dict[str, Any] = {"attack": self.attack, "n_rows": len(self.recovered)}
        row |= {"share": self.share, "share_low": self.interval[0], "share_high": self.interval[1]}
        row |= self.null_shares
        row |= {"gain": self.gain, "gain_low": self.gain_interval[0]}
        row |= {"gain_high": self.gain_interval[1], "exact": self.exact_share}
        row |= {"best_quarter": quarter[self.attack], "null_there": quarter.iloc[1:].max()}
        return pd.DataFrame([row])

    def __repr__(self) -> str:
        low, high = self.interval
        worse, better = self.gain_interval
        return (
            f"{self.attack}: recovered {self.share:.3f} [{low:.3f}, {high:.3f}] of columns, "
            f"{self.exact_share:.3f} of rows exactly; {self.best_null} "
            f"{self.null_shares[self.best_null]:.3f}\n"
            f"(gain {self.gain:.3f} [{worse:.3f}, {better:.3f}])"
        )

    def _by_batch(self, found: NDArray[np.bool_]) -> Float64Array:
        of = np.unique(self.batch, return_inverse=True)[1]
        return np.asarray(np.bincount(of, found.mean(axis=1)) / np.bincount(of))


def _interval(means: Float64Array, least: float, alpha: float) -> Interval:
    """Return Student's interval of the mean of batches; an exact one if all batches are equal."""
    n, mean = len(means), float(means.mean())
    if n == 1:
        return least, 1.0
    if np.ptp(means) == 0:
        half = clopper_pearson(n, n, alpha)[0]
        return max(least, mean - (1 - half)), min(1.0, mean + (1 - half))
    half = float(-student.ppf(alpha / 2, n - 1) * means.std(ddof=1) / np.sqrt(n))
    return max(least, mean - half), min(1.0, mean + half)
