"""Private synthetic tables by noisy marginals."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._groups import resolve_groups
from .._sklearn import StrOptions
from .._validation import Interval, check_delta_is_small
from ..accounting import PrivacyBudget, check_delta
from ..mechanisms import SecureRandom
from ..preprocessing import Schema
from .base import Facts, Synthesizer
from .graphical_model import GraphicalModel, Measurement, drawn
from .marginal_selection import adaptive, n_choices, spanning_tree
from .marginal_tables import Records, bins_of_columns, cells_of_bins, fine_tables, of_bins, total_of
from .measurement_plan import METHODS, Plan, std_of

__all__ = ["PrivateSynthesizer"]

_STEPS = 300


class PrivateSynthesizer(Synthesizer):
    """Draw synthetic records that resemble private ones, with a proved guarantee.

    Counts of the private records by one, two or three columns are released with noise. A graphical
    model that agrees with them is fitted, and records are drawn from it: as many as one likes, for
    any use, without further cost.

    If a classifier is all that is wanted, give its target as ``label``: it is then part of every
    count, which matters more for what is learned from the synthetic records than anything else.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the fit, in nats; at least 0.001.
    delta : float, default=1e-5
        In (0, 1), far below 1 / number of records.
    schema : Schema, default=None
        Public ranges and categories of the columns. ``None`` reads them off the data, which leaks.
    method : {"tree", "adaptive", "independent"}, default="tree"
        Which columns are counted together: pairs that form a privately chosen spanning tree; pairs
        chosen in rounds, each where the model so far is most wrong, which is better and takes
        longer; or none. With a ``label``, pairs become triples with it, and "independent" columns
        are so given the label.
    label : str, default=None
        Name of the categorical column that is to be predicted. If ``fit`` gets a ``y`` with
        classes, it is the label.
    workload : mapping of (str, str) to float, default=None
        How much it matters that a pair of columns goes together as in the private records, at least
        0. ``None``: all pairs alike. A pair that is not named is not counted, so that more of the
        budget is left for others. With the label, every column is counted anyway.
    grids : mapping of str to Grid, default=None
        How finely numeric columns are counted, by public knowledge. Others have ``Grid()``.
    missing : sequence of str, default=()
        Columns in which values may be missing, by public knowledge. A record in which another
        value is missing, or no number or category, is left out.
    max_bins : int, default=16
        About how many bins a numeric column has where it is counted with others. They are joined
        from cells of the grid by noisy counts.
    rounds : int, default=20
        Of "adaptive".
    max_cells : int, default=60000
        Of all tables of the model of "adaptive" together, which decides over time and memory.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation. Under "add_remove" the number of records is private.
    budget : PrivacyBudget, default=None
        Charged for the fit before the data is touched; refuses a fit that it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Attributes
    ----------
    cliques_ : list of tuple of str
        The columns of each noisy table that the model agrees with.
    n_records_ : int
        The number of records, or of groups, estimated from the noisy tables.
    tables_ : dict of str to ndarray of shape (n_cells, n_classes)
        Noisy counts of the fine cells of each column but the label, by the label. They are
        released anyway.
    measurements_ : list of Measurement
        All noisy tables that were released, as an auditor needs them: those of ``tables_`` in fine
        cells, then those of the chosen columns in bins. Each has ``columns``, their places in
        ``domain_``; ``table``, with an axis for each; and ``std``, the deviation of its noise.
    domain_ : Domain
        The public cells of each column.
    bins_ : list of ndarray of shape (n_cells,)
        The bin of each fine cell, by column.
    model_ : GraphicalModel
        The distribution that records are drawn from.
    schema_ : Schema
        The schema used.
    label_ : str or None
        The column that is part of every count.
    target_ : str or None
        The column that ``sample(return_X_y=True)`` returns by itself: that of ``y``, or the label.
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
    skprivacy.synthesis.Grid : How finely a numeric column is counted.
    skprivacy.synthesis.synthetic_quality : What synthetic records are worth.
    skprivacy.synthesis.SyntheticDataClassifier : Trains any classifier on them, in one step.
    skprivacy.synthesis.DPGANSynthesizer : By a network, for records that are no tables.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of everything that is kept, and of
    all records that are ever drawn, with a record as the unit; with ``groups`` a group. All that is
    computed from private records are counts. Those that are released have discrete Gaussian noise;
    others are scores of an exponential mechanism. Bins, model and records come of noisy tables
    alone. The cost is that of all releases together, by their privacy loss distributions.

    **Edge cases.** A value beyond its range counts as the end of it. The number of records is
    never used, but estimated. The types of columns in a DataFrame are taken for public, and
    stated as an assumption. Synthetic records obey no rule between columns that no table knows:
    check what must never occur. With few records noise drowns everything but single columns.

    References
    ----------
    R. McKenna, G. Miklau and D. Sheldon, "Winning the NIST contest: a scalable and general approach
    to differentially private synthetic data", Journal of Privacy and Confidentiality 11(3), 2021.
    R. McKenna, B. Mullins, D. Sheldon and G. Miklau, "AIM: an adaptive and iterative mechanism for
    differentially private synthetic data", VLDB 2022.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skprivacy.preprocessing import Bounded, Categories, Schema
    >>> from skprivacy.synthesis import PrivateSynthesizer
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(18, 90, 5000)
    >>> X = pd.DataFrame({"age": age, "retired": np.where(age > 65, "yes", "no")})
    >>> schema = Schema({"age": Bounded(18, 90), "retired": Categories(["no", "yes"])})
    >>> synthesizer = PrivateSynthesizer(1.0, 1e-6, schema=schema).fit(X)
    >>> synthesizer.privacy_
    (1.00, 1e-06)-DP, add-remove, exact noise, proved assuming the types of the columns are public
    >>> synthetic = synthesizer.sample(1000, random_state=0)
    >>> list(synthetic), synthetic["age"].dtype == X["age"].dtype
    (['age', 'retired'], True)
    >>> bool((synthetic["age"][synthetic["retired"] == "yes"] > 60).mean() > 0.9)
    True
    """

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 1e-3, None, closed="left")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "schema": [Schema, None],
        "method": [StrOptions(set(METHODS))],
        "label": [str, None],
        "workload": [Mapping, None],
        "grids": [Mapping, None],
        "missing": ["array-like"],
        "max_bins": [Interval(Integral, 1, None, closed="left")],
        "rounds": [Interval(Integral, 1, 1000, closed="both")],
        "max_cells": [Interval(Integral, 1, None, closed="left")],
        "relation": [StrOptions({"add_remove", "zero_out", "replace_one"})],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        schema: Schema | None = None,
        method: str = "tree",
        label: str | None = None,
        workload: Mapping[tuple[str, str], float] | None = None,
        grids: Mapping[str, Any] | None = None,
        missing: Any = (),
        max_bins: int = 16,
        rounds: int = 20,
        max_cells: int = 60_000,
        relation: str = "add_remove",
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.method = method
        self.label = label
        self.workload = workload
        self.grids = grids
        self.missing = missing
        self.max_bins = max_bins
        self.rounds = rounds
        self.max_cells = max_cells
        self.relation = relation
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: Any = None, *, groups: ArrayLike | None = None) -> PrivateSynthesizer:
        """Release noisy marginals, and fit a model to them.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Private records, with the schema's columns.
        y : array-like of shape (n_samples,), default=None
            Their target, one more column: the schema's ``target``, with its ``classes`` or
            ``target_bounds``.
        groups : array-like of shape (n_samples,), default=None
            Whom each record belongs to. The records of a group count as one together, and the
            guarantee is the group's.

        Returns
        -------
        PrivateSynthesizer
            Itself, fitted.

        Raises
        ------
        ValueError
            If a parameter or a shape is not as described. Nothing has been released then.
        BudgetExceededError
            If ``budget`` cannot afford the fit. Nothing has been released, nothing charged.
        """
        with self._private_fit() as fit:
            if isinstance(self.method, str) and self.method == "gan":
                raise ValueError(
                    "method='gan' is a class of its own, DPGANSynthesizer: it counts nothing, and "
                    "has other parameters. For tables, use method='tree' or 'adaptive'."
                )
            self._validate_params()
            check_delta_is_small(self.delta)
            X = self._checked(X)
            facts = Facts.of(fit, X, y, self.schema, self.label)
            domain = facts.domain({} if self.grids is None else self.grids, self.missing)
            workload = facts.workload(self.workload)
            who = resolve_groups(groups, X)
            if self.relation != "add_remove":
                check_delta(self.delta, who.n)
            columns = [c for c in range(len(domain.columns)) if c not in facts.tie]
            chosen = n_choices(self.method, workload, self.rounds)
            plan = Plan.calibrated(
                len(columns), chosen, self.method == "tree",
                float(self.epsilon), float(self.delta), self.relation,
            )  # fmt: skip
            with fit.charged(
                plan.event,
                relation=self.relation,
                at_delta=self.delta,
                unit=who.unit,
                arithmetic=plan.arithmetic,
            ):
                random = SecureRandom(self.noise_seed)
                codes, kept = domain.encoded(facts.series)
                records = Records(codes, domain.sizes, who.exact_shares()[kept])
                tables = fine_tables(records, columns, facts.tie, plan, random)
                total = total_of(tables)
                bins = bins_of_columns(domain, columns, tables, plan, int(self.max_bins))
                records = records.binned(bins)
                measured = of_bins(tables, columns, facts.tie, bins, plan)
                model = GraphicalModel(records.sizes, measured, total).fit(_STEPS)
                if chosen:
                    parts = records, facts.tie, workload, plan, random
                    model = (
                        spanning_tree(model, *parts)
                        if self.method == "tree"
                        else adaptive(model, *parts, int(self.max_cells))
                    )
            self._keep(facts, domain)
            self.tables_ = {domain.names[c]: t for c, t in zip(columns, tables, strict=True)}
            self.bins_, self.model_ = bins, model
            fine = [
                Measurement((c, *facts.tie), t if facts.tie else t[:, 0], std_of(plan.fine))
                for c, t in zip(columns, tables, strict=True)
            ]
            self.measurements_ = [*fine, *model.measurements[len(columns) :]]
            self.cliques_ = [tuple(domain.names[c] for c in m.columns) for m in model.measurements]
            self.n_records_ = round(total)
        return self

    def _drawn(self, n: int, random: np.random.RandomState) -> pd.DataFrame:
        binned = self.model_.sample(n, random)
        codes = binned.copy()
        names = self.domain_.names
        classes = np.zeros(n, np.int64)
        if self.label_ is not None:
            classes = binned[:, names.index(self.label_)]
        for name, table in self.tables_.items():
            c = names.index(name)
            cells = cells_of_bins(table, self.bins_[c], self.model_.total)
            codes[:, c] = drawn(cells, binned[:, c] * table.shape[1] + classes, random)
        return self.domain_.decoded(codes, random)
