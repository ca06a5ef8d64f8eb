"""Private synthetic records by a generative adversarial network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._environment import name_missing_torch
from .._groups import Groups, check_groups
from .._validation import Interval, check_delta_is_small, check_random_state
from ..accounting import (
    Composed,
    Event,
    PrivacyBudget,
    calibrate_noise_multiplier,
    check_delta,
    weakest_arithmetic,
)
from ..mechanisms import Gaussian, SecureRandom
from ..preprocessing import Schema
from .base import Facts, Synthesizer
from .gan_features import Features, Moments

if TYPE_CHECKING:
    from ..neural_network._training.adversarial import Generator, GeneratorPlan
    from ..neural_network._training.training_config import TrainingConfig

__all__ = ["DPGANSynthesizer"]

_SHARE = 0.3  # of the square of what a Gaussian mechanism costs: for moments
_MADE = 4096  # rows that are made at a time


class DPGANSynthesizer(Synthesizer):
    """Draw synthetic records from a generator that a private discriminator has taught (DP-GAN).

    **For tables use** :class:`PrivateSynthesizer`, whose records are nearer to the private ones at
    the same epsilon, in a hundredth of the time. This network is for records that marginals do not
    describe, such as small images, and because it is what many mean by private synthetic data.

    The generator starts from noisy moments: the mean of each label's records, and the covariance of
    all. A discriminator learns to tell private records from made ones, by private stochastic
    gradient descent, and the generator learns from the discriminator. Both are told the label, so
    that records are made of each.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the fit, in nats; at least 0.001.
    delta : float, default=1e-5
        In (0, 1), below 1 / number of records.
    schema : Schema, default=None
        Public ranges and categories of the columns. ``None`` reads them off the data, which leaks.
    label : str, default=None
        Name of the categorical column that records are made for. If ``fit`` gets a ``y`` with
        classes, it is the label.
    grids : mapping of str to Grid, default=None
        To which cells numeric columns are rounded, by public knowledge. Others have ``Grid()``.
    missing : sequence of str, default=()
        Columns in which values may be missing, by public knowledge. A record in which another
        value is missing, or no number or category, is left out.
    hidden_layer_sizes : sequence of int, default=(128,)
        Units in each hidden layer of the discriminator. More of them need more noise.
    generator_layer_sizes : sequence of int, default=(128, 128)
        Units in each hidden layer of the generator, which cost no privacy.
    latent_size : int, default=100
        How many random numbers a record is made of, and directions that the covariance may have.
    batch_size : int, default=300
        Expected number of private records in a step, and number of made ones.
    epochs : int, default=20
        Expected number of times that each private record takes part.
    discriminator_steps : int, default=5
        Steps of the discriminator for each of the generator, which begins after three tenths of all
        steps. Noise makes many worth while.
    learning_rate : float, default=1e-3
        Step size of the discriminator's optimizer; the generator's is 0.03 times it. Both are Adam.
    max_grad_norm : float, default=0.3
        Norm to which the gradient of each record is clipped.
    n_records : int, default=None
        A public figure for the number of records, or of groups. The guarantee is then for
        add/remove; otherwise it is for zero-out, and the number of records is public.
    max_group_rows : int or None, default=2
        With ``groups``: at most so many records of each are used, drawn once; ``None`` uses all.
    random_state : int, RandomState instance or None, default=None
        Of the weights that training starts from, and of the rows that are made in it.
    budget : PrivacyBudget, default=None
        Charged for the fit before the data is touched; refuses a fit that it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Attributes
    ----------
    generator_ : torch.nn.Module
        Makes rows for labels. ``means`` and ``factor`` are those that it started from.
    rates_ : ndarray of shape (n_classes,)
        Share of each label among the records that are drawn, by the noisy moments.
    n_records_ : int
        The number of records, or of groups, that is public.
    domain_ : Domain
        The public cells of each column.
    schema_ : Schema
        The schema used.
    label_ : str or None
        The column that records are made for.
    target_ : str or None
        The column that ``sample(return_X_y=True)`` returns by itself: that of ``y``, or the label.
    noise_multiplier_ : float
        Size of the noise of a step in units of ``max_grad_norm``.
    n_steps_ : int
        Steps of the discriminator.
    privacy_ : PrivacyGuarantee
        The guarantee, with its neighbouring relation and its assumptions.
    privacy_event_ : Event
        What was released, for composition with other releases.
    epsilon_, delta_ : float
        The guarantee in two numbers.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of features, if all of them are strings.

    See Also
    --------
    skprivacy.synthesis.PrivateSynthesizer : By noisy marginals: for tables.
    skprivacy.synthesis.SyntheticDataClassifier : Trains a classifier on synthetic records.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of the generator and of all
    records that are ever drawn, with a record as the unit; with ``groups`` a group. Private records
    reach the result by two kinds of release alone: sums of products, which tell how often labels
    are, their means and the covariance of all, with discrete Gaussian noise, once; and in each step
    the sum of the clipped gradients of a Poisson sample of them, with Gaussian noise. What the
    generator is and learns is computed from these. The cost is that of all releases together, by
    their privacy loss distributions; 30 % of it, as squares of Gaussian noise go, is for moments.

    **Edge cases.** Values beyond their range count as the end of it. A label that is hardly counted
    is hardly made. Of records with more than 2,000 numbers, which categories have one each of, no
    covariance is told. Training may fail without telling: look at the records, by
    :func:`synthetic_quality`, if you may see the private ones.

    References
    ----------
    L. Xie, K. Lin, S. Wang, F. Wang and J. Zhou, "Differentially private generative adversarial
    network", arXiv:1802.06739, 2018.
    A. Bie, G. Kamath and G. Zhang, "Private GANs, revisited", TMLR 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.preprocessing import Bounded, Schema
    >>> from skprivacy.synthesis import DPGANSynthesizer
    >>> X = np.random.default_rng(0).uniform(size=(500, 2))
    >>> schema = Schema({"a": Bounded(0, 1), "b": Bounded(0, 1)}, classes=[0, 1])
    >>> synthesizer = DPGANSynthesizer(2.0, 1e-4, schema=schema, batch_size=50, epochs=2)
    >>> synthesizer.fit(X, X[:, 0] > 0.5).privacy_
    (2.00, 0.0001)-DP, zero-out, floating-point noise, proved assuming the number of records is
    public
    >>> list(synthesizer.sample(10))
    ['a', 'b', 'target']
    """

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 1e-3, None, closed="left")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "schema": [Schema, None],
        "label": [str, None],
        "grids": [Mapping, None],
        "missing": ["array-like"],
        "hidden_layer_sizes": ["array-like"],
        "generator_layer_sizes": ["array-like"],
        "latent_size": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "discriminator_steps": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1e30, closed="neither")],  # of single precision
        "max_grad_norm": [Interval(Real, 1e-20, 1e20, closed="both")],
        "n_records": [Interval(Integral, 1, None, closed="left"), None],
        "max_group_rows": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        schema: Schema | None = None,
        label: str | None = None,
        grids: Mapping[str, Any] | None = None,
        missing: Any = (),
        hidden_layer_sizes: Sequence[int] = (128,),
        generator_layer_sizes: Sequence[int] = (128, 128),
        latent_size: int = 100,
        batch_size: int = 300,
        epochs: int = 20,
        discriminator_steps: int = 5,
        learning_rate: float = 1e-3,
        max_grad_norm: float = 0.3,
        n_records: int | None = None,
        max_group_rows: int | None = 2,
        random_state: int | np.random.RandomState | None = None,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.label = label
        self.grids = grids
        self.missing = missing
        self.hidden_layer_sizes = hidden_layer_sizes
        self.generator_layer_sizes = generator_layer_sizes
        self.latent_size = latent_size
        self.batch_size = batch_size
        self.epochs = epochs
        self.discriminator_steps = discriminator_steps
        self.learning_rate = learning_rate
        self.max_grad_norm = max_grad_norm
        self.n_records = n_records
        self.max_group_rows = max_group_rows
        self.random_state = random_state
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: Any = None, *, groups: ArrayLike | None = None) -> DPGANSynthesizer:
        """Train the discriminator on private records, and the generator on the discriminator.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Private records, with the schema's columns.
        y : array-like of shape (n_samples,), default=None
            Their target, one more column: the schema's ``target``, with its ``classes`` or
            ``target_bounds``.
        groups : array-like of shape (n_samples,), default=None
            Whom each record belongs to. The guarantee is then the group's: the mean of the
            gradients of its records is clipped, and together they count as one label.

        Returns
        -------
        DPGANSynthesizer
            Itself, fitted.

        Raises
        ------
        ValueError
            If a parameter or a shape is not as described. Nothing has been released then, but if
            ``learning_rate`` is so large that weights overflow, which shows in the end.
        BudgetExceededError
            If ``budget`` cannot afford the fit. Nothing has been released, nothing charged.
        ImportError
            If torch is not installed.
        """
        with self._private_fit() as fit, name_missing_torch():
            from ..neural_network._training import adversarial

            self._validate_params()
            check_delta_is_small(self.delta)
            X = self._checked(X)
            facts = Facts.of(fit, X, y, self.schema, self.label)
            domain = facts.domain({} if self.grids is None else self.grids, self.missing)
            features = Features(domain, facts.label)
            who = None if groups is None else check_groups(groups, X)
            config = self._config(len(X) if who is None else who.n, who)
            plan, moments = self._plan(features), Moments(features.n_classes, features.widths)
            first = self._first(config)
            config = self._with_noise(config, first.event)
            start = check_random_state(self.random_state)
            critic, generator = adversarial.make_networks(
                plan, _sizes("hidden_layer_sizes", self.hidden_layer_sizes), start
            )
            with fit.charged(
                Composed((first.event, config.event)),
                relation=config.relation, at_delta=self.delta, unit=config.unit,
                arithmetic=weakest_arithmetic((first.arithmetic, config.noise_kind.arithmetic)),
            ):  # fmt: skip
                random = SecureRandom(self.noise_seed)
                codes, kept = domain.encoded(facts.series)
                labels = features.labels(codes)
                shares = None if who is None else who.exact_shares()[kept]
                rows = features.rows(codes)
                noisy = first.release(moments.sums(rows, labels, shares), random)
                begun = moments.start(noisy, first.std, plan.n_noise)
                generator.start(begun.means, begun.factor)
                training = adversarial.AdversarialTraining(
                    config,
                    critic,
                    generator,
                    begun.rates,
                    int(start.randint(1 << 31)),
                    random,
                )
                training.learn(_placed(rows, kept), _placed(labels, kept), who)
                generator = training.generator()
                self._check_finite(generator)
            self._keep(facts, domain)
            self.generator_, self.rates_ = generator, begun.rates
            self.n_records_ = config.n_records
            self.noise_multiplier_, self.n_steps_ = config.noise_multiplier, config.n_steps
        return self

    def _plan(self, features: Features) -> GeneratorPlan:
        """Return what is public of the generator."""
        from ..neural_network._training.adversarial import GeneratorPlan

        return GeneratorPlan(
            features.widths, features.n_classes, int(self.latent_size),
            _sizes("generator_layer_sizes", self.generator_layer_sizes),
            float(self.learning_rate), int(self.discriminator_steps),
        )  # fmt: skip

    def _config(self, n: int, who: Groups | None) -> TrainingConfig:
        """Return what is done to the discriminator, but for the noise."""
        from ..neural_network._training.adversarial import discriminator_config
        from ..neural_network._training.training_config import PerGroup

        most = None if self.max_group_rows is None else int(self.max_group_rows)
        config = discriminator_config(
            n,
            n_records=self.n_records,
            batch_size=int(self.batch_size),
            epochs=int(self.epochs),
            max_grad_norm=float(self.max_grad_norm),
            learning_rate=float(self.learning_rate),
            per_group=None if who is None else PerGroup(who.unit, most, "mean"),
        )
        check_delta(self.delta, config.n_records)
        if config.n_steps < self.discriminator_steps:
            raise ValueError(
                f"discriminator_steps={self.discriminator_steps!r} are more than all "
                f"{config.n_steps} steps, so that the generator would take none. Pass fewer, or "
                "more epochs, or a smaller batch_size."
            )
        return config

    def _first(self, config: TrainingConfig) -> Gaussian:
        """Return what releases the moments, for its share of the budget."""
        noise = calibrate_noise_multiplier(
            lambda z: Gaussian(z, 1.0).event,
            float(self.epsilon),
            float(self.delta),
            config.relation,
        )
        return Gaussian(noise / math.sqrt(_SHARE), Moments.sensitivity)

    def _with_noise(self, config: TrainingConfig, first: Event) -> TrainingConfig:
        """Return the same with noise for the steps, so that they and the first cost epsilon."""
        noise = calibrate_noise_multiplier(
            lambda z: Composed((first, config.event_at(z))),
            float(self.epsilon),
            float(self.delta),
            config.relation,
        )
        return replace(config, noise_multiplier=float(noise))

    def _check_finite(self, generator: Generator) -> None:
        """Refuse weights that make no records: all that is told of them has been released."""
        if not all(bool(weight.isfinite().all()) for weight in generator.parameters()):
            raise ValueError(
                f"learning_rate={self.learning_rate!r} is too large: the generator has weights "
                "that are not finite. The noise has been paid for. Pass a smaller one."
            )

    def _drawn(self, n: int, random: np.random.RandomState) -> pd.DataFrame:
        features = Features(self.domain_, self.label_)
        labels = random.choice(len(self.rates_), n, p=self.rates_)
        rows = made_rows(self.generator_, labels, random)
        return self.domain_.decoded(features.codes(rows, labels), random)


def _placed(values: NDArray[Any], kept: NDArray[np.bool_]) -> NDArray[Any]:
    """Return a row for each record; those that are left out have none that counts."""
    if kept.all():
        return values
    empty = np.nan if values.dtype.kind == "f" else 0
    rows = np.full((len(kept), *values.shape[1:]), empty, dtype=values.dtype)
    rows[kept] = values
    return rows


def _sizes(name: str, sizes: Any) -> tuple[int, ...]:
    found = np.atleast_1d(np.asarray(sizes, dtype=object))
    if not all(isinstance(size, Integral) and int(size) > 0 for size in found):
        raise ValueError(f"{name}={sizes!r} must hold positive integers, such as (128,).")
    return tuple(int(size) for size in found)


def made_rows(
    generator: Generator, labels: NDArray[np.int64], random: np.random.RandomState
) -> NDArray[np.float32]:
    """Return a row of features for each label."""
    from ..neural_network._training.adversarial import generate_rows

    parts = np.array_split(labels, -(-len(labels) // _MADE))
    return np.concatenate(
        [generate_rows(generator, part, int(random.randint(1 << 31))) for part in parts]
    )
