"""Private heads: gradient descent, least squares, prototypes and softmax regression.

- :class:`GradientHead`: noisy full-batch gradient descent on frozen features
- :class:`LeastSquaresHead`: noisy sufficient statistics (after AdaSSP, Wang 2018)
- :class:`PrototypeHead`: the noisy mean direction of each class (Wahdany et al. 2025)
- :class:`SoftmaxHead`: output perturbation, the head of the ALM paper (Yang, Gohari and Topcu
  2022), with a proof

:func:`choose_head` chooses among them by public facts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.special import softmax

from .._validation import is_number, positive
from ..accounting import Event, GaussianEvent, RepeatedEvent
from ..accounting.calibration import analytic_noise_multiplier
from ..accounting.events import NonPrivateEvent
from ..linear_model.logistic_regression import LogisticLoss, minimize
from ..linear_model.perturbation import TOLERANCE
from ..mechanisms import Gaussian, SecureRandom
from ..mechanisms.base import GRID_BITS, exact_map, exact_product, quantize, row_norms
from .features import FEATURE_NORM
from .head import Head, HeadInput, OneRelease, OneSumRelease, SumHead, SumSteps, Task
from .network_head import NetworkHead
from .sensitivity import Sensitivity, least_noise_mechanism, noise_std

_TRAVEL = 1.25  # standard deviation of the noise that a weight collects over all steps
_LEAST_NOISE = 0.3  # noise multiplier below which steps no longer grow
_AVERAGED = 0.25  # share of the last steps whose weights are averaged
_LONGEST_STEP = 50.0  # largest change of scores, in nats, by the first step without noise
_INWARDS = 1.0 - 1e-6  # outweighs the rounding of norms, and of sums of more than 2**20 records
_BALANCE = math.sqrt(2.0)  # weight of the class sums relative to the second moments
_LEAST_FLOOR = 1e-3  # least eigenvalue of the second moments
_LEAST_SQUARES_SHARPNESS = 10.0  # logit, in nats, of a fitted value of 1
_PROTOTYPE_SHARPNESS = 10.0  # logit, in nats, of a cosine of 1
_RIDGE = 6.0  # ratio of the ridge to the noise of a weight at sensitivity sqrt(2) and ridge 1
_LEAST_RIDGE = 0.1


@dataclass(frozen=True)
class GradientHead(SumHead):
    """Softmax regression by noisy gradient descent on all records.

    It is the most accurate head for an epsilon of about .1 or more. Each step adds Gaussian noise
    to the sum of the records' clipped gradients. The step size depends only on the noise: over all
    steps each weight collects noise of standard deviation 1.25. If many records share a direction,
    such a step overshoots in it. The singular values of a step are therefore clipped to the
    expected spectral norm of its noise, plus 50 nats at first and almost nothing at the end.

    **Guarantees.** Each step is a Gaussian mechanism of sensitivity ``max_grad_norm`` (twice that
    if a record is replaced), with sqrt(n_steps) times the noise of a single release. The steps are
    adaptive, and their composition is exactly that single release. A record's gradient is its row
    times its residual, so clipping the residual clips the gradient. The gradient of a group is the
    mean of its records' clipped gradients, whose norm is at most ``max_grad_norm``. Scores are
    exact products with rounded weights, and residuals lie on a grid. A record's gradient is
    therefore a function of that record and of the weights, to the last bit, and sums are exact. It
    is clipped to a millionth less than ``max_grad_norm``, which outweighs the rounding of its norm.
    The singular values of a step are clipped after its noise, which is post-processing.

    J. Dong, A. Roth and W. Su, "Gaussian differential privacy", JRSS B 2022.
    K. Davidson and S. Szarek, "Local operator theory, random matrices and Banach spaces", 2001.
    """

    n_steps: int = 30  # the cost is the same for any number: more steps get more noise
    max_grad_norm: float = 0.2  # of a record's gradient, for features of norm 1

    def __post_init__(self) -> None:
        if not (type(self.n_steps) is int and 1 <= self.n_steps <= 10_000):
            raise ValueError(f"n_steps={self.n_steps!r} must be a whole number from 1 to 10000.")
        if not (is_number(self.max_grad_norm) and 1e-3 <= self.max_grad_norm <= 2):
            raise ValueError(
                f"max_grad_norm={self.max_grad_norm!r} must be a number from 0.001 to 2; gradients "
                "of rows of norm 1 are at most sqrt(2)."
            )

    def event(self, task: Task) -> Event:
        multiplier = self._multiplier(task)
        return (
            RepeatedEvent(GaussianEvent(multiplier), self.n_steps)
            if multiplier
            else NonPrivateEvent()
        )

    def arithmetic(self, task: Task) -> str:
        return Gaussian.arithmetic

    def _multiplier(self, task: Task) -> float:
        if task.delta == 0:
            raise ValueError(
                "delta=0.0 must be above 0 for head='gradient', whose noise is Gaussian. Use "
                "delta=1e-6, or head='prototypes' for a pure guarantee."
            )
        if task.mechanism not in ("auto", "gaussian"):
            raise ValueError(
                f"mechanism={task.mechanism!r} does not fit head='gradient', which adds Gaussian "
                "noise. Use mechanism='auto', or head='softmax'."
            )
        if math.isinf(task.epsilon):
            return 0.0
        # Dong et al. 2022: T adaptive Gaussian mechanisms of parameter mu compose to sqrt(T) mu
        return math.sqrt(self.n_steps) * analytic_noise_multiplier(task.epsilon, task.delta)

    def n_sums(self, size: int, n_classes: int) -> int:
        return size * n_classes

    def sums(self, records: HeadInput, weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
        assert weights is not None
        residuals = self._residuals(records, records.targets, weights)
        return exact_product(records.rows, residuals).ravel()

    def scan(self, task: Task, random: SecureRandom) -> SumSteps:
        multiplier = self._multiplier(task)
        mechanism = Gaussian(multiplier, task.n_changed_records * self.max_grad_norm)
        noise = max(multiplier / math.sqrt(self.n_steps), _LEAST_NOISE)
        length = _TRAVEL / (noise * task.n_changed_records * self.max_grad_norm * self.n_steps)
        # Davidson and Szarek 2001: expected spectral norm of a Gaussian matrix, at most
        noise_norm = length * mechanism.std * (math.sqrt(task.size) + math.sqrt(task.n_classes))
        weights = np.zeros((task.size, task.n_classes))
        averaged, late = np.zeros_like(weights), max(1, round(self.n_steps * _AVERAGED))
        for step in range(self.n_steps):
            gradient = (yield weights).reshape(weights.shape)
            reach = noise_norm + _LONGEST_STEP * (1.0 - step / self.n_steps) ** 2
            weights = weights - _clip_spectrum(length * mechanism.release(gradient, random), reach)
            if step >= self.n_steps - late:
                averaged += weights / late
        return averaged

    def _residuals(
        self, records: HeadInput, targets: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the factors of the rows in the sum of clipped gradients."""
        scores = exact_map(records.rows, weights, GRID_BITS)
        residuals = softmax(scores, axis=1) - targets
        norms = row_norms(records.rows) * row_norms(residuals)
        residuals *= (_INWARDS * self.max_grad_norm / np.maximum(norms, self.max_grad_norm))[
            :, None
        ]
        return quantize(residuals * records.counts[:, None])


@dataclass(frozen=True)
class LeastSquaresHead(OneSumRelease):
    """Least squares on one-hot labels, from noisy second moments and class sums.

    Eigenvalues of the second moments below the typical spectral norm of their noise are raised to
    it. A ridge would shrink all directions instead.

    **Guarantees.** A record x of norm 1 adds x x' to the second moments and x to the sum of its
    class. Only the upper triangle of the symmetric second moments is released, with factor sqrt(2)
    off the diagonal, so that its L2 norm is the Frobenius norm of the matrix. The class sums have
    factor sqrt(2). Adding a record moves both, as one vector, by at most sqrt(1 + 2). If x is
    replaced by z, with c = <x, z> the squared distance is at most 2 - 2 c**2 + 2 (2 - 2 c). This is
    largest at c = -1, and the sensitivity is sqrt(8). One mechanism releases both. The sums are
    exact, and the solution uses only the released numbers and the size of the noise.

    Y.-X. Wang, "Revisiting differentially private linear regression: optimal and adaptive
    prediction and estimation in unbounded domain", UAI 2018.
    """

    def length(self, task: Task) -> int:
        return self.n_sums(task.size, task.n_classes)

    def sensitivity(self, task: Task) -> Sensitivity:
        if task.relation == "replace_one":
            return Sensitivity(2.0 * _BALANCE)  # for a balance of sqrt(2) or more
        return Sensitivity(math.sqrt(1.0 + _BALANCE**2))

    def n_sums(self, size: int, n_classes: int) -> int:
        return size * (size + 1) // 2 + size * n_classes

    def sums(self, records: HeadInput, weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
        rows = records.weighted
        moments = exact_product(rows, rows)[np.triu_indices(rows.shape[1])]
        return np.concatenate([moments, exact_product(rows, records.indicators).ravel()])

    def vector(self, task: Task, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        upper = np.triu_indices(task.size)
        moments, by_class = np.split(sums, [len(upper[0])])
        return np.concatenate([moments * _triangle_scales(upper), _BALANCE * by_class])

    def weights(self, task: Task, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        p, upper = task.size, np.triu_indices(task.size)
        moments = np.zeros((p, p))
        moments[upper] = noisy[: len(upper[0])] / _triangle_scales(upper)
        moments += np.triu(moments, 1).T
        sums = noisy[len(upper[0]) :].reshape(p, task.n_classes) / _BALANCE
        # A symmetric matrix whose entries off the diagonal are independent with this standard
        # deviation over sqrt(2) has a spectral norm of about 2 std sqrt(p / 2).
        spread = noise_std(self.mechanism(task), len(noisy)) * math.sqrt(2.0 * p)
        sizes, directions = np.linalg.eigh(moments)
        sizes = np.maximum(sizes, max(spread, _LEAST_FLOOR))
        solution = directions @ ((directions.T @ sums) / sizes[:, None])
        return np.asarray(_LEAST_SQUARES_SHARPNESS * solution, dtype=np.float64)


@dataclass(frozen=True)
class PrototypeHead(OneSumRelease):
    """Nearest class by angle: the noisy sum of each class's features is its prototype.

    It is the most accurate head where noise is large: a small epsilon, a pure guarantee, or few
    records.

    **Guarantees.** A record is a row in the unit ball: its features, scaled to norm .944, and a
    constant. It adds its features to the sum of its class only. The L2 sensitivity is this norm, or
    twice this norm if the record is replaced. The constant is not used. The sums are exact.

    P. Wahdany, M. Jagielski, A. Dziedzic and F. Boenisch, "Differentially private prototypes for
    imbalanced transfer learning", AAAI 2025.
    """

    def length(self, task: Task) -> int:
        return self.n_sums(task.size, task.n_classes)

    def sensitivity(self, task: Task) -> Sensitivity:
        return Sensitivity(task.n_changed_records * FEATURE_NORM)

    def n_sums(self, size: int, n_classes: int) -> int:
        return (size - 1) * n_classes

    def sums(self, records: HeadInput, weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
        return exact_product(records.weighted[:, :-1], records.indicators).ravel()

    def vector(self, task: Task, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return sums

    def weights(self, task: Task, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = noisy.reshape(task.size - 1, task.n_classes)
        norms = np.linalg.norm(sums, axis=0)
        directions = _PROTOTYPE_SHARPNESS * sums / np.where(norms > 0, norms, 1.0)
        return np.vstack([directions, np.zeros(task.n_classes)])


@dataclass(frozen=True)
class SoftmaxHead(OneRelease):
    """Softmax regression whose weights get noise once, after training.

    Parameters
    ----------
    ridge : float, default=None
        Strength of the L2 penalty, ``ridge / 2 * norm**2`` added to the sum of the losses. ``None``
        sets it to 6 times the noise that a weight would have at ridge 1. The noise of the weights
        is then about 1 / 6, whatever the number of records.

    Notes
    -----
    **Guarantees.** The loss of a record of norm 1 has a gradient of norm at most sqrt(2), or 1 for
    two classes, and the penalty makes the sum strongly convex. A record therefore moves the exact
    minimiser by at most Lipschitz / ridge in L2. The computed minimiser, whose gradient has norm at
    most tau = 1e-6, is within tau / ridge of the exact one, so the sensitivity is
    (Lipschitz + 2 tau) / ridge. The mean of the losses of a group's records is convex and has the
    same Lipschitz constant. Weights that are equal for all classes have no effect. Only the
    n_classes - 1 contrasts between classes are released, in an orthonormal basis: the L2
    sensitivity is the same, and fewer numbers need noise. A given sensitivity is used as it is.

    References
    ----------
    K. Chaudhuri, C. Monteleoni and A. Sarwate, "Differentially private empirical risk
    minimization", JMLR 12, 2011.
    """

    ridge: float | None = None

    def __post_init__(self) -> None:
        if self.ridge is not None:
            positive("ridge", self.ridge)

    def ready(self, task: Task) -> SoftmaxHead:
        if self.ridge is not None:
            return self
        unit = Sensitivity(_lipschitz_constant(task.n_classes))
        noise = least_noise_mechanism(
            task.mechanism, task.epsilon, task.delta, unit, self.length(task)
        )
        return replace(self, ridge=max(_RIDGE * noise_std(noise, self.length(task)), _LEAST_RIDGE))

    def length(self, task: Task) -> int:
        return task.size * (task.n_classes - 1)

    def sensitivity(self, task: Task) -> Sensitivity:
        if task.sensitivity is not None:
            return task.sensitivity
        # Chaudhuri et al. 2011, output perturbation: the minimiser moves by Lipschitz / ridge
        moved = task.n_changed_records * _lipschitz_constant(task.n_classes) + 2.0 * TOLERANCE
        return Sensitivity(moved / _ridge(self))

    def statistic(self, task: Task, records: HeadInput) -> NDArray[np.float64]:
        return self.flatten_minimizer(task, minimize(self.loss(task, records), TOLERANCE))

    def loss(self, task: Task, records: HeadInput) -> LogisticLoss:
        """Return the loss that the weights minimise; with two classes it has one output."""
        outputs = 1 if task.n_classes == 2 else task.n_classes
        return LogisticLoss(
            records.weighted,
            records.targets[:, -outputs:],
            records.roots,
            _ridge(self),
            np.zeros((task.size, outputs)),
        )

    @property
    def distance(self) -> float:
        """Largest L2 distance of the computed minimiser from the exact one."""
        return TOLERANCE / _ridge(self)

    def flatten_minimizer(self, task: Task, minimiser: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the statistic of a minimiser of the loss: its contrasts between classes."""
        return np.asarray((minimiser @ _contrast_basis(task.n_classes)).ravel())

    def weights(self, task: Task, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        contrasts = noisy.reshape(task.size, task.n_classes - 1)
        if task.n_classes == 2:  # the log-odds of the second class
            return contrasts * np.array([-0.5, 0.5])
        return contrasts @ _contrast_basis(task.n_classes).T


def choose_head(head: str | Head, task: Task) -> Head:
    """Return the head with this name, or for "auto" the most accurate one for the task."""
    found = (
        head
        if isinstance(head, Head)
        else HEADS[_most_accurate_head(task) if head == "auto" else head]()
    )
    if task.sensitivity is not None and not isinstance(found, SoftmaxHead):
        raise ValueError(
            f"sensitivity={task.sensitivity!r} does not apply to head={head!r}, whose sensitivity "
            "is exact. Use sensitivity='proved', or head='softmax'."
        )
    return found


def _clip_spectrum(step: NDArray[np.float64], largest: float) -> NDArray[np.float64]:
    """Clip the singular values of a matrix, and so the norm of its product with a unit row."""
    left, sizes, right = np.linalg.svd(step, full_matrices=False)
    return np.asarray((left * np.minimum(sizes, largest)) @ right)


def _triangle_scales(upper: tuple[NDArray[np.intp], NDArray[np.intp]]) -> NDArray[np.float64]:
    return np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))


def _ridge(head: SoftmaxHead) -> float:
    assert head.ridge is not None, "the head is not ready"
    return head.ridge


def _lipschitz_constant(n_classes: int) -> float:
    return 1.0 if n_classes == 2 else math.sqrt(2.0)


def _contrast_basis(n_classes: int) -> NDArray[np.float64]:
    """Return an orthonormal basis of contrasts between classes, (outputs, n_classes - 1)."""
    if n_classes == 2:
        return np.ones((1, 1))
    return np.asarray(null_space(np.ones((1, n_classes))))


def _most_accurate_head(task: Task) -> str:
    """Return the name of the head that was the most accurate in benchmarks, or within .01 of it."""
    # This was gradient descent for all numbers of records from 1,500 to 40,000 and all epsilons
    # from .1 to 4, on pixels and on scattering features. A pure guarantee needs ten times the noise
    # on each number of a release, and class sums tolerate it best.
    if task.sensitivity is not None:
        return "softmax"
    gaussian = task.delta > 0 and task.mechanism in ("auto", "gaussian")
    return "gradient" if gaussian else "prototypes"


HEADS: dict[str, type[Head]] = {
    "dpsgd": NetworkHead,
    "gradient": GradientHead,
    "least_squares": LeastSquaresHead,
    "prototypes": PrototypeHead,
    "softmax": SoftmaxHead,
}
