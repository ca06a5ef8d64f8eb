"""Generative adversarial network trained with DP-SGD, for synthetic records (DP-GAN).

L. Xie et al., "Differentially private generative adversarial network", 2018. Training itself is in
``neural_network._training.adversarial``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._docs import fill_docs
from .._extras import name_missing_extra
from .._groups import Groups
from .._input_data import read_records
from .._sklearn import StrOptions
from .._validation import Interval, check_delta_is_small, check_random_state
from ..accounting import (
    ComposedEvent,
    Event,
    PrivacyBudget,
    calibrate_noise_multiplier,
    weakest_arithmetic,
)
from ..accounting.event import check_delta
from ..mechanisms import Gaussian, SecureRandom
from ..preprocessing import Schema
from .base import SYNTHESIS_DOCS, Synthesizer, TableFacts
from .constrained_records import Constraints
from .gan_features import Features, Moments

if TYPE_CHECKING:
    from ..neural_network._training.adversarial import Generator, GeneratorPlan
    from ..neural_network._training.training_config import TrainingConfig

_MOMENTS_SHARE = 0.3  # of the budget for moments, in units of zero-concentrated privacy
_ROWS_PER_BATCH = 4096  # generated at a time


@fill_docs(SYNTHESIS_DOCS)
class DPGANSynthesizer(Synthesizer):
    """Draw synthetic records from a generative adversarial network trained with DP-SGD (DP-GAN).

    **For tables use** :class:`MarginalSynthesizer`: its records are closer to the private ones at
    the same epsilon, in a hundredth of the time. This network is for records that marginals do not
    describe, such as small images, and for comparison with published results.

    The generator starts from noisy moments: the mean of each label's records, and the covariance of
    all records. A discriminator learns by DP-SGD to distinguish private from generated records. The
    generator learns from the discriminator. Both networks get the label as an input.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the fit, in nats; at least 0.001.
    delta : float, default=1e-5
        In (0, 1), below 1 / number of records.
    %(table_schema)s
    label : str, default=None
        Name of the categorical column that conditions the generator. A ``y`` with classes in
        ``fit`` is the label.
    grids : mapping of str to Grid, default=None
        Cells to which numeric columns are rounded, from public knowledge. The default is
        ``Grid()``.
    %(missing_columns)s
    hidden_layer_sizes : sequence of int, default=(128,)
        Units in each hidden layer of the discriminator. Noise does more harm in large layers.
    generator_layer_sizes : sequence of int, default=(128, 128)
        Units in each hidden layer of the generator. Large layers cost no privacy.
    latent_size : int, default=100
        Largest number of random inputs of the generator, and largest rank of the covariance.
    batch_size : int, default=300
        Expected number of private records in a step, and number of generated records.
    epochs : int, default=20
        Expected number of times that each private record takes part.
    discriminator_steps : int, default=5
        Discriminator steps per generator step. The generator begins after three tenths of all
        steps. With noise, several discriminator steps pay off.
    learning_rate : float, default=1e-3
        Step size of the discriminator's Adam optimizer. The generator's is 0.03 times as large.
    max_grad_norm : float, default=0.3
        Norm to which the gradient of each record is clipped.
    relation : {"zero_out", "add_remove"}, default="zero_out"
        Neighbouring relation. Under "zero_out" the number of records is public; "add_remove" hides
        it, and needs ``n_records``.
    n_records : int, default=None
        Public figure for the number of records, or of groups. Only for ``relation="add_remove"``.
    max_group_size : int or None, default=2
        With ``groups``: largest number of records used per group, drawn once. ``None`` uses all.
    random_state : int, RandomState instance or None, default=None
        Seed of the initial weights and of the rows generated in training.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    generator_ : torch.nn.Module
        Generates rows for labels. ``means`` and ``factor`` hold the noisy moments of its start.
    rates_ : ndarray of shape (n_classes,)
        Share of each label among sampled records, from the noisy moments.
    n_records_ : int
        The public number of records, or of groups.
    label_ : str or None
        The column that conditions the generator.
    %(synthesizer_attributes)s
    noise_multiplier_ : float
        Standard deviation of a step's noise in units of ``max_grad_norm``.
    n_steps_ : int
        Number of discriminator steps.
    %(guarantee_attributes)s
    %(feature_attributes)s

    See Also
    --------
    skprivacy.synthesis.MarginalSynthesizer : Synthesizer for tables, by noisy marginals.
    skprivacy.synthesis.SyntheticDataClassifier : Train a classifier on synthetic records.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of the generator and of all
    records ever drawn. The unit is a record or, with ``groups``, a group. There are two kinds of
    release. Sums of products are released once, with discrete Gaussian noise; they give the label
    rates, the means and the covariance. Each discriminator step releases the sum of clipped
    gradients of a Poisson sample, with Gaussian noise. The generator is computed from these
    releases, which are composed by their privacy loss distributions. Moments get 30 % of the
    budget, in units of zero-concentrated privacy.

    **Edge cases.** Values beyond their range count as the nearer end. A rare label is rarely
    generated. No covariance is released if rows have more than 2,000 entries, where each category
    counts as one. Training can fail without an error: check the records with
    :func:`synthetic_quality`, if you may see the private records.

    References
    ----------
    L. Xie, K. Lin, S. Wang, F. Wang and J. Zhou, "Differentially private generative adversarial
    network", arXiv:1802.06739, 2018.
    A. Bie, G. Kamath and G. Zhang, "Private GANs, revisited", TMLR 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.preprocessing import BoundedColumn, Schema
    >>> from skprivacy.synthesis import DPGANSynthesizer
    >>> X = np.random.default_rng(0).uniform(size=(500, 2))
    >>> schema = Schema({"a": BoundedColumn(0, 1), "b": BoundedColumn(0, 1)}, classes=[0, 1])
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
        "columns_with_missing": ["array-like"],
        "hidden_layer_sizes": ["array-like"],
        "generator_layer_sizes": ["array-like"],
        "latent_size": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "discriminator_steps": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, 1e30, closed="neither")],  # of single precision
        "max_grad_norm": [Interval(Real, 1e-20, 1e20, closed="both")],
        "relation": [StrOptions({"zero_out", "add_remove"})],
        "n_records": [Interval(Integral, 1, None, closed="left"), None],
        "max_group_size": [Interval(Integral, 1, None, closed="left"), None],
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
        columns_with_missing: Any = (),
        hidden_layer_sizes: Sequence[int] = (128,),
        generator_layer_sizes: Sequence[int] = (128, 128),
        latent_size: int = 100,
        batch_size: int = 300,
        epochs: int = 20,
        discriminator_steps: int = 5,
        learning_rate: float = 1e-3,
        max_grad_norm: float = 0.3,
        relation: str = "zero_out",
        n_records: int | None = None,
        max_group_size: int | None = 2,
        random_state: int | np.random.RandomState | None = None,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.label = label
        self.grids = grids
        self.columns_with_missing = columns_with_missing
        self.hidden_layer_sizes = hidden_layer_sizes
        self.generator_layer_sizes = generator_layer_sizes
        self.latent_size = latent_size
        self.batch_size = batch_size
        self.epochs = epochs
        self.discriminator_steps = discriminator_steps
        self.learning_rate = learning_rate
        self.max_grad_norm = max_grad_norm
        self.relation = relation
        self.n_records = n_records
        self.max_group_size = max_group_size
        self.random_state = random_state
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: Any = None, *, groups: ArrayLike | None = None) -> DPGANSynthesizer:
        """Train the discriminator on private records, and the generator on the discriminator.

        Parameters
        ----------
        %(synthesizer_fit)s
        groups : array-like of shape (n_samples,), default=None
            Group of each record. The guarantee then protects groups: the mean gradient of a group
            is clipped, and its records together count as one record in the moments.

        Returns
        -------
        DPGANSynthesizer
            The fitted synthesizer.

        Raises
        ------
        ValueError
            If a parameter or a shape is not as described; nothing has been released then. Also if
            weights overflow because ``learning_rate`` is too large; this fit is charged.
        BudgetExceededError
            If ``budget`` cannot afford the fit. Nothing has been released or charged.
        ImportError
            If torch is not installed.
        """
        with self._private_fit() as fit, name_missing_extra():
            from ..neural_network._training import adversarial

            self._validate_params()
            check_delta_is_small(self.delta)
            X, _, units = read_records(self, X, groups=groups, **self._input_checks())
            facts = TableFacts.from_table(fit, X, y, self.schema, self.label)
            domain = facts.build_domain(
                {} if self.grids is None else self.grids, self.columns_with_missing
            )
            Constraints.from_schema(facts.schema.constraints, domain)
            features = Features(domain, facts.label)
            who = None if groups is None else units
            config = self._discriminator_config(units.n, who)
            plan, moments = (
                self._generator_plan(features),
                Moments(features.n_classes, features.widths),
            )
            first = self._moments_mechanism(config)
            config = self._calibrate_steps(config, first.event)
            start = check_random_state(self.random_state)
            critic, generator = adversarial.make_networks(
                plan, _check_layer_sizes("hidden_layer_sizes", self.hidden_layer_sizes), start
            )
            with fit.charged(
                ComposedEvent((first.event, config.event)),
                relation=config.relation, at_delta=self.delta, unit=config.unit,
                arithmetic=weakest_arithmetic((first.arithmetic, config.noise_kind.arithmetic)),
            ):  # fmt: skip
                random = SecureRandom(self.noise_seed)
                codes, kept = domain.encode(facts.series)
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
                # Xie et al. 2018 (DP-GAN): alternate noisy discriminator and plain generator steps
                training.learn(_scatter_rows(rows, kept), _scatter_rows(labels, kept), who)
                generator = training.generator()
                self._check_finite(generator)
            self._store_public_facts(facts, domain)
            self.generator_, self.rates_ = generator, begun.rates
            self.n_records_ = config.n_records
            self.noise_multiplier_, self.n_steps_ = config.noise_multiplier, config.n_steps
        return self

    def _generator_plan(self, features: Features) -> GeneratorPlan:
        """Return the public architecture and optimizer of the generator."""
        from ..neural_network._training.adversarial import GeneratorPlan

        return GeneratorPlan(
            features.widths, features.n_classes, int(self.latent_size),
            _check_layer_sizes("generator_layer_sizes", self.generator_layer_sizes),
            float(self.learning_rate), int(self.discriminator_steps),
        )  # fmt: skip

    def _discriminator_config(self, n: int, units: Groups | None) -> TrainingConfig:
        """Return the training configuration of the discriminator, without its noise."""
        from ..neural_network._gradients.group_batches import PerGroup
        from ..neural_network._training.adversarial import discriminator_config

        most = None if self.max_group_size is None else int(self.max_group_size)
        config = discriminator_config(
            n,
            n_records=self.n_records,
            batch_size=int(self.batch_size),
            epochs=int(self.epochs),
            max_grad_norm=float(self.max_grad_norm),
            learning_rate=float(self.learning_rate),
            per_group=None if units is None else PerGroup(units.unit, most, "mean"),
        )
        check_delta(self.delta, config.n_records)
        if config.n_steps < self.discriminator_steps:
            raise ValueError(
                f"discriminator_steps={self.discriminator_steps!r} exceeds the total of "
                f"{config.n_steps} steps, so the generator would take none. Pass fewer, or "
                "more epochs, or a smaller batch_size."
            )
        return config

    def _moments_mechanism(self, config: TrainingConfig) -> Gaussian:
        """Return the mechanism that releases the moments with their share of the budget."""
        noise = calibrate_noise_multiplier(
            lambda z: Gaussian(z, 1.0).event,
            float(self.epsilon),
            float(self.delta),
            config.relation,
        )
        return Gaussian(noise / math.sqrt(_MOMENTS_SHARE), Moments.sensitivity)

    def _calibrate_steps(self, config: TrainingConfig, first: Event) -> TrainingConfig:
        """Return the configuration with the noise that brings the total cost to epsilon."""
        noise = calibrate_noise_multiplier(
            lambda z: ComposedEvent((first, config.event_at(z))),
            float(self.epsilon),
            float(self.delta),
            config.relation,
        )
        return replace(config, noise_multiplier=float(noise))

    def _check_finite(self, generator: Generator) -> None:
        """Refuse a generator whose weights, all of them released, overflowed."""
        if not all(bool(weight.isfinite().all()) for weight in generator.parameters()):
            raise ValueError(
                f"learning_rate={self.learning_rate!r} is too large: weights of the generator "
                "overflowed. The fit has been charged; pass a smaller learning_rate."
            )

    def _draw_codes(self, n: int, random: np.random.RandomState) -> NDArray[np.int64]:
        features = Features(self.domain_, self.label_)
        labels = random.choice(len(self.rates_), n, p=self.rates_)
        rows = generate_in_batches(self.generator_, labels, random)
        return features.codes(rows, labels)

    def _draw_values(
        self, codes: NDArray[np.int64], random: np.random.RandomState
    ) -> dict[str, NDArray[Any]]:
        return self.domain_.draw_values(codes, random)


def _scatter_rows(values: NDArray[Any], kept: NDArray[np.bool_]) -> NDArray[Any]:
    """Return a row for each record: NaN, or 0 for labels, for records left out."""
    if kept.all():
        return values
    empty = np.nan if values.dtype.kind == "f" else 0
    rows = np.full((len(kept), *values.shape[1:]), empty, dtype=values.dtype)
    rows[kept] = values
    return rows


def _check_layer_sizes(name: str, sizes: Any) -> tuple[int, ...]:
    found = np.atleast_1d(np.asarray(sizes, dtype=object))
    if not all(isinstance(size, Integral) and int(size) > 0 for size in found):
        raise ValueError(f"{name}={sizes!r} must hold positive integers, such as (128,).")
    return tuple(int(size) for size in found)


def generate_in_batches(
    generator: Generator, labels: NDArray[np.int64], random: np.random.RandomState
) -> NDArray[np.float32]:
    """Return a generated row of features for each label."""
    from ..neural_network._training.adversarial import generate_rows

    parts = np.array_split(labels, -(-len(labels) // _ROWS_PER_BATCH))
    return np.concatenate(
        [generate_rows(generator, part, int(random.randint(1 << 31))) for part in parts]
    )
