"""Marginal-based synthesizer for tables: noisy marginals, a graphical model, and sampled records.

Follows MST (McKenna, Miklau and Sheldon 2021) and AIM (McKenna et al. 2022). Start reading at
:meth:`MarginalSynthesizer.fit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._docs import fill_docs
from .._input_data import read_records
from .._sklearn import StrOptions
from .._validation import Interval
from ..accounting import PrivacyBudget
from ..base import PrivateFit
from ..mechanisms import SecureRandom
from ..preprocessing import Schema
from ..sums import SumTotal
from ..sums.sources import ArraySource, ColumnSource, ScanReleases, Scans, SumSource, is_table
from ..sums.sum_estimator import SUM_DOCS
from .base import SYNTHESIS_DOCS, SchemaSumEstimator, Synthesizer, TableFacts
from .constrained_records import Constraints
from .graphical_model import GraphicalModel, Measurement, sample_conditional
from .marginal_selection import MarginalSelection, candidate_cliques, count_choices, count_fixed
from .marginal_tables import (
    METHODS,
    MeasurementPlan,
    cell_weights_in_bins,
    choose_column_bins,
    estimate_total,
    noise_std,
    release_fine_tables,
    sum_over_bins,
)
from .scanned_tables import MarginalPlan, ScannedTables, encode_cells

_MAX_LBFGS_STEPS = 300


@fill_docs({**SYNTHESIS_DOCS, **SUM_DOCS})
class MarginalSynthesizer(SchemaSumEstimator, Synthesizer):
    """Draw synthetic tables from a graphical model of noisy marginals (MST and AIM).

    The fit releases noisy counts of the private records by one, two or three columns, and fits a
    graphical model to them. ``sample`` draws any number of records from it, without further cost.

    To train a classifier on the records, pass its target as ``label``. All columns are then counted
    jointly with the label. No other parameter improves the classifier more.

    Records satisfy the constraints of the schema, whatever the private records do
    (:meth:`skprivacy.preprocessing.Schema.with_constraints`).

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss of the fit, in nats; at least 0.001.
    delta : float, default=1e-5
        In (0, 1), far below 1 / number of records.
    %(table_schema)s
    method : {"tree", "adaptive", "independent"}, default="tree"
        Selection of the pairs of columns that are counted together. "tree" chooses a spanning tree
        privately. "adaptive" chooses in each round the pair that the model fits worst, which is
        more accurate and slower. "independent" chooses no pairs. With a ``label``, each pair is
        counted jointly with the label, and "independent" columns are independent given the label.
        "tree" counts each column with the label instead of pairs, if the estimated number of
        records times mu is below 1,000: mu is the parameter of Gaussian differential privacy of
        ``epsilon`` and ``delta``.
    label : str, default=None
        Name of a categorical column with which all other columns are counted jointly. If ``fit``
        gets a ``y`` with classes, ``y`` is the label.
    workload : mapping of (str, str) to float, default=None
        Weight of each pair of columns, at least 0. ``None`` means equal weights. Pairs without a
        weight are not counted, which leaves more of the budget to the others. Each column is
        counted with the label in any case.
    grids : mapping of str to Grid, default=None
        Cells in which numeric columns are counted, from public knowledge. The default is
        ``Grid()``.
    %(missing_columns)s
    max_bins : int, default=16
        Approximate number of bins of a numeric column in joint counts. Bins join cells of the grid,
        by noisy counts.
    n_rounds : int, default=20
        Number of rounds of "adaptive".
    max_cells : int, default=60000
        Limit of the number of cells of the "adaptive" model, which determines time and memory.
        Constraints whose tables exceed it are applied to single records only.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation. Under "add_remove" the number of records is private.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    cliques_ : list of tuple of str
        The columns of each noisy table to which the model is fitted.
    n_records_ : int
        The number of records, or of groups, estimated from the noisy tables.
    tables_ : dict of str to ndarray of shape (n_cells,)
        Noisy counts of the fine cells of each column.
    measurements_ : list of Measurement
        All released noisy tables, for audits: first the tables of fine cells, then the tables of
        chosen columns in bins. Each has ``columns`` (indices in ``domain_``), ``table`` (an axis
        for each column) and ``std`` (the standard deviation of its noise).
    bins_ : list of ndarray of shape (n_cells,)
        The bin of each fine cell, by column.
    model_ : GraphicalModel
        The distribution that records are drawn from.
    label_ : str or None
        The column by which all others are counted.
    %(synthesizer_attributes)s
    %(guarantee_attributes)s
    %(feature_attributes)s

    See Also
    --------
    skprivacy.synthesis.Grid : Cells of a numeric column.
    skprivacy.synthesis.synthetic_quality : Compare synthetic records with real ones.
    skprivacy.synthesis.SyntheticDataClassifier : Train any classifier on synthetic records.
    skprivacy.synthesis.DPGANSynthesizer : Synthesizer for records other than tables.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of all fitted attributes and of
    all records ever drawn. The unit is a record or, with ``groups``, a group. Private records enter
    counts only. Counts are released with discrete Gaussian noise, or serve as scores of an
    exponential mechanism. Bins, model and sampled records are computed from noisy tables only. The
    releases are composed by their privacy loss distributions.

    **Edge cases.** A value beyond its range counts as the nearer end. The number of records is
    estimated from noisy tables. Column types of a DataFrame count as public, and the guarantee
    names this as an assumption. Rules between columns hold only if they are constraints of the
    schema, or if a measured table shows them. With few records, noise hides everything except
    the distributions of single columns.

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
    >>> from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
    >>> from skprivacy.synthesis import MarginalSynthesizer
    >>> rng = np.random.default_rng(0)
    >>> age = rng.integers(18, 90, 5000)
    >>> X = pd.DataFrame({"age": age, "retired": np.where(age > 65, "yes", "no")})
    >>> schema = Schema({"age": BoundedColumn(18, 90), "retired": CategoricalColumn(["no", "yes"])})
    >>> synthesizer = MarginalSynthesizer(1.0, 1e-6, schema=schema).fit(X)
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
        "columns_with_missing": ["array-like"],
        "max_bins": [Interval(Integral, 1, None, closed="left")],
        "n_rounds": [Interval(Integral, 1, 1000, closed="both")],
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
        columns_with_missing: Any = (),
        max_bins: int = 16,
        n_rounds: int = 20,
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
        self.columns_with_missing = columns_with_missing
        self.max_bins = max_bins
        self.n_rounds = n_rounds
        self.max_cells = max_cells
        self.relation = relation
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: Any, y: Any = None, *, groups: ArrayLike | str | None = None) -> Any:
        """Release noisy marginals, and fit a model to them.

        Parameters
        ----------
        %(synthesizer_fit)s
        groups : array-like of shape (n_samples,) or str, default=None
            Group of each record, or the column of a table that holds it. The records of a group
            count as one record, and the guarantee protects groups.

        Returns
        -------
        MarginalSynthesizer
            The fitted synthesizer.

        Raises
        ------
        %(table_raises)s
        """
        return self._fit_table(X, y, groups)

    def _open_source(self, X: Any, y: Any, groups: Any) -> SumSource:
        if isinstance(y, str):
            raise ValueError(
                f"y={y!r} must have a label for each record of X, or be None. Of a table in an "
                "engine, all columns are synthesized; label names a column to count others with."
            )
        if not is_table(X, groups):
            X, _, units = read_records(self, X, groups=groups, **self._input_checks())
            source = ArraySource(X, None, units)
            source.y = y  # TableFacts checks it
            return source
        return super()._open_source(X, None, groups)

    def _source_of_columns(self, columns: Any, y: Any, groups: Any) -> ColumnSource:
        if y is not None:
            raise ValueError("y must be None: all columns are synthesized. label names one.")
        return super()._source_of_columns(columns, None, groups)

    def _make_release(self, fit: PrivateFit, source: SumSource) -> ScanReleases:
        y = source.y if isinstance(source, ArraySource) else None
        facts = TableFacts.from_table(fit, source.rows, y, self.schema, self.label)
        domain = facts.build_domain(
            {} if self.grids is None else self.grids, self.columns_with_missing
        )
        constraints = Constraints.from_schema(facts.schema.constraints, domain)
        workload = facts.pair_weights(self.workload)
        label, n_columns = facts.label_index, len(domain.columns)
        chosen = count_choices(self.method, workload, self.n_rounds)
        fixed = count_fixed(self.method, chosen, n_columns, label)
        plan = MeasurementPlan(
            n_columns, chosen, self.method != "adaptive", self.relation, n_fixed=fixed
        ).calibrated(float(self.epsilon), float(self.delta))
        cells = tuple((c,) for c in range(n_columns))
        cell_plan = MarginalPlan(domain, cells, unit=source.unit)
        if isinstance(source, ArraySource):
            source.read = lambda: (encode_cells(domain, facts.series),)

        def release_tables(total: SumTotal, random: SecureRandom) -> Scans:
            records = ScannedTables(cell_plan, total)
            # MST, measurement step: every one-way table
            tables = release_fine_tables(records, plan, random)
            bins = choose_column_bins(domain, tables, label, plan, int(self.max_bins))
            candidates = candidate_cliques(workload, label, n_columns, chosen)
            bin_plan = records.plan_bins(bins, candidates)
            measured = sum_over_bins(tables, bins, plan)
            zeros = tuple(constraints.structural_zeros(bins))
            model = GraphicalModel(bin_plan.sizes, measured, estimate_total(tables), zeros)
            model = model.without_large_zeros(int(self.max_cells)).fit(_MAX_LBFGS_STEPS)
            if plan.n_marginals:  # selection step, then the final measurements
                records = ScannedTables(bin_plan, (yield bin_plan))
                selection = MarginalSelection(
                    records, label, workload, plan, random, int(self.max_cells)
                )
                adaptive = self.method == "adaptive"
                select = selection.select_adaptively if adaptive else selection.select_spanning_tree
                model = select(model)
            return tables, bins, model

        def store(released: Any, _: int) -> None:
            tables, bins, model = released
            self._store_public_facts(facts, domain)
            self.tables_ = dict(zip(domain.names, tables, strict=True))
            self.bins_, self.model_ = bins, model
            std = noise_std(plan.fine_mechanism)
            fine = [Measurement((c,), table, std) for c, table in enumerate(tables)]
            self.measurements_ = [*fine, *model.measurements[n_columns:]]
            self.cliques_ = [tuple(domain.names[c] for c in m.columns) for m in model.measurements]
            self.n_records_ = round(model.total)

        return ScanReleases(cell_plan, plan.event, plan.arithmetic, release_tables, store)

    def _draw_codes(self, n: int, random: np.random.RandomState) -> NDArray[np.int64]:
        """Sample the bin of each column from the model."""
        return self.model_.sample(n, random)

    def _draw_values(
        self, binned: NDArray[np.int64], random: np.random.RandomState
    ) -> dict[str, NDArray[Any]]:
        """Sample a fine cell within each bin, and a value within the cell."""
        codes = binned.copy()
        for c, (table, own) in enumerate(zip(self.tables_.values(), self.bins_, strict=True)):
            cells = cell_weights_in_bins(table, own, self.model_.total)
            codes[:, c] = sample_conditional(cells, binned[:, c], random)
        return self.domain_.draw_values(codes, random)
