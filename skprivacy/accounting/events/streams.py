"""Matrix factorisation mechanisms: streams with correlated noise, as one event for the whole run.

Step t of a run yields a vector x_t, the sum of the contributions of the records in its batch. A
matrix factorisation releases C x + z row by row, where z is independent Gaussian noise. Each row is
released as soon as its last step is over. Anything computed from the rows, such as x + C^-1 z, is
post-processing. Start reading at :class:`MatrixFactorization`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

from .._checks import allows_replacement, numbers, positive, whole
from .._event import Event, NoLossDistributionError, Orders, Pairs
from .._work import CLOSED_FORM_WORK
from ..matrix import banded_sensitivity, tree_sensitivity
from ..pld.pairs import GaussianPair, symmetric_pairs

__all__ = ["BandedFactorization", "MatrixFactorization", "TreeAggregation"]

_WORK_PER_STEP = 200  # for the sensitivity: one pass over the steps for each level of a tree


@dataclass(frozen=True)
class MatrixFactorization(Event, tag=None):
    """Matrix factorisation mechanism: each record is in the same public batch of every epoch.

    A record of batch i contributes at the steps i, i + steps_per_epoch, ..., ``epochs`` times. Each
    contribution is a vector of norm at most 1.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of z in units of the norm of a contribution.
    steps_per_epoch : int
        Number of batches per epoch, at least 1.
    epochs : int
        Number of contributions of each record, at least 1.

    Notes
    -----
    **Guarantees.** The run costs as much as one Gaussian release with noise multiplier
    ``noise_multiplier / sensitivity``, where ``sensitivity`` is the largest norm of C u over all
    contributions u of one record. The entries of C are not negative, so contributions that all
    point in the same direction attain the maximum: the squared norm is a sum of inner products, and
    no other direction increases any of them. Contributions may depend on earlier answers, because
    the noise is Gaussian and no row contains a future step (Denisov et al. 2022, theorem 2.1). The
    relation may be ``zero_out``, or ``replace_one`` or ``label`` at twice the sensitivity. Under
    ``add_remove`` there is no guarantee, since one more record would move the others between
    batches.

    References
    ----------
    S. Denisov, B. McMahan, K. Rush, A. Smith and A. Thakurta, "Improved differential privacy for
    SGD via optimal private linear operators on adaptive streams", NeurIPS 2022.
    C. Choquette-Choo et al., "(Amplified) banded matrix factorization: a unified approach to
    private training", NeurIPS 2023.
    """

    noise_multiplier: float
    steps_per_epoch: int
    epochs: int

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        whole("steps_per_epoch", self.steps_per_epoch)
        whole("epochs", self.epochs)

    @property
    def n_steps(self) -> int:
        """Number of steps of the run."""
        return self.steps_per_epoch * self.epochs

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest norm of C u, if each contribution in u has a norm of at most 1."""

    def effective_noise(self, relation: str) -> float:
        """Return the noise multiplier of the single Gaussian release equivalent to the run.

        Parameters
        ----------
        relation : str
            The neighbouring relation.

        Returns
        -------
        float
            Noise divided by the sensitivity of the whole run.
        """
        if relation == "add_remove":
            raise NoLossDistributionError(
                f"{type(self).__name__} has no guarantee under relation='add_remove': adding or "
                "removing a record would move the others in the stream. Use relation='zero_out' or "
                "'replace_one'."
            )
        # A replaced contribution moves by up to twice its norm.
        contributions = 2 if allows_replacement(relation) else 1
        return self.noise_multiplier / (contributions * self.sensitivity)

    def work(self) -> float:
        return CLOSED_FORM_WORK + _WORK_PER_STEP * self.n_steps

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Denisov et al. 2022, theorem 2.1: one Gaussian release, even for adaptive streams
        return orders / (2 * self.effective_noise(relation) ** 2)

    def dominating_pairs(self, relation: str) -> Pairs:
        return symmetric_pairs(GaussianPair(self.effective_noise(relation)))

    def zcdp(self, relation: str) -> float:
        return 1 / (2 * self.effective_noise(relation) ** 2)

    def grouped(self, size: int) -> MatrixFactorization:
        return replace(self, noise_multiplier=self.noise_multiplier / size)


@dataclass(frozen=True)
class BandedFactorization(
    MatrixFactorization,
    tag="BandedFactorization",
    stored=("noise_multiplier", "steps_per_epoch", "epochs", "coefficients"),
    knows_label=True,
):
    """Banded matrix factorisation: row t of the Toeplitz C is ``coefficients``, backwards from t.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the independent noise z divided by the norm of one contribution.
    steps_per_epoch : int
        Number of batches. Each record is in exactly one batch.
    epochs : int
        Number of passes over the batches, always in the same order.
    coefficients : tuple of float, default=(1.0,)
        First column of C, from the diagonal down. The first is 1 and none is negative.

    Notes
    -----
    Batch 0 has the largest sensitivity, since the sum for batch i is the same sum cut off i steps
    earlier. If the coefficients decrease, the order of batches may even change between epochs. The
    sensitivity then covers every record that contributes at most ``epochs`` times, at public steps
    at least ``steps_per_epoch`` apart (Kalinin and Lampert 2024, theorem 2).

    References
    ----------
    N. Kalinin and C. Lampert, "Banded square root matrix factorization for differentially private
    model training", NeurIPS 2024.

    Examples
    --------
    >>> from skprivacy.accounting import BandedFactorization
    >>> stream = BandedFactorization(2.0, steps_per_epoch=100, epochs=1, coefficients=(1.0, 0.75))
    >>> stream.sensitivity
    1.25
    """

    coefficients: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coefficients", numbers("coefficients", self.coefficients))
        usable = all(isinstance(c, float | int) and 0 <= c < math.inf for c in self.coefficients)
        if not usable or not self.coefficients or self.coefficients[0] != 1:
            raise ValueError(
                f"coefficients={self.coefficients!r} must be finite numbers >= 0 that begin with "
                "1. Divide all of them by the first."
            )

    @property
    def sensitivity(self) -> float:
        return banded_sensitivity(self.coefficients, self.steps_per_epoch, self.epochs)


@dataclass(frozen=True)
class TreeAggregation(
    MatrixFactorization,
    tag="TreeAggregation",
    stored=("noise_multiplier", "steps_per_epoch", "epochs"),
    knows_label=True,
):
    """Tree aggregation: running sums are made of noisy sums over 2^l steps.

    Row (l, m) of C sums the steps m 2^l to (m + 1) 2^l - 1. Only even m are needed: the sum of the
    first t steps uses one such row for each binary digit 1 of t.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise of each row divided by the norm of one contribution.
    steps_per_epoch : int
        Number of batches. Each record is in exactly one batch.
    epochs : int
        Number of passes over the batches, always in the same order.

    References
    ----------
    P. Kairouz et al., "Practical and private (deep) learning without sampling or shuffling",
    ICML 2021.

    Examples
    --------
    >>> from skprivacy.accounting import TreeAggregation
    >>> TreeAggregation(2.0, steps_per_epoch=8, epochs=1).sensitivity
    2.0
    """

    @property
    def sensitivity(self) -> float:
        return tree_sensitivity(self.steps_per_epoch, self.epochs)
