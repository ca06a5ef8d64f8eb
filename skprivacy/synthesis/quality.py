"""Quality of synthetic records: distances of marginals and correlations, and scores of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import check_scoring

from .._extras import name_missing_extra
from .._files import output_path, without_mathtext, write_file
from .._report_facts import Column, Fact, ReportFacts, Section, format_significant, number
from ..accounting import PrivacyGuarantee
from ..preprocessing import BoundedColumn, Schema
from ..preprocessing.transformer import check_columns
from .domain import Domain, Grid, ValueCells
from .scanned_tables import count_cells

_COMPARISON_GRID = Grid(cells=20)
_N_SHOWN_PAIRS = 20  # on a page


def _significant(name: str) -> Callable[[Any], str]:
    return lambda row: format_significant(row[name])


def _name(row: dict[str, Any]) -> str:
    return str(row["name"])


_COLUMNS = (
    Column("Column", _name),
    Column("Total variation", number("total_variation")),
    Column("Mean", _significant("real_mean"), "real"),
    Column("Mean", _significant("synthetic_mean"), "synthetic"),
    Column("Deviation", _significant("real_std"), "real"),
    Column("Deviation", _significant("synthetic_std"), "synthetic"),
)
_PAIRS = (
    Column("Pair", lambda row: f"{row['first']}, {row['second']}"),
    Column("Total variation", number("total_variation")),
    Column("Correlation", number("real"), "real"),
    Column("Correlation", number("synthetic"), "synthetic"),
)


@dataclass(frozen=True)
class SyntheticQuality:
    """Distances between real and synthetic records, and scores of models trained on each.

    **It is computed from the real records without noise.** Show it only to people who may see these
    records: no guarantee covers its publication.

    Attributes
    ----------
    columns : DataFrame
        A row for each column: ``total_variation``, between 0 and 1. For numeric columns also the
        mean and standard deviation of real and synthetic values.
    pairs : DataFrame
        A row for each pair of columns, the worst first: ``total_variation``. For two numeric
        columns also the correlations ``real`` and ``synthetic``.
    scores : DataFrame or None
        Score on real test records of a model trained on ``real`` and on ``synthetic`` records.
        ``None`` if no model was given.
    shares : dict of str to DataFrame
        For each column the share of real and synthetic records in each cell.
    """

    columns: pd.DataFrame
    pairs: pd.DataFrame
    scores: pd.DataFrame | None
    shares: dict[str, pd.DataFrame] = field(repr=False)

    def __str__(self) -> str:
        return self.facts().to_text()

    def facts(self, *, guarantee: PrivacyGuarantee | None = None) -> ReportFacts:
        """Return what the report states, for text and pages alike."""
        variation = self.columns["total_variation"]
        columns = Section(
            "Columns",
            (
                Fact(
                    "columns", float(variation.mean()),
                    f"{variation.mean():.3f} on average, {variation.max():.3f} at worst",
                    label="total variation of columns",
                ),
                *(Fact(row=row) for row in _frame_to_rows(self.columns)),
            ),
            intro="Total variation is the share of synthetic records that would have to change "
            "their value to match the real shares: 0 is best, 1 is worst.",
            columns=_COLUMNS,
        )  # fmt: skip
        if not (guarantee is None or isinstance(guarantee, PrivacyGuarantee)):
            raise TypeError(f"guarantee={guarantee!r} must be a PrivacyGuarantee, or None.")
        notice = "computed from the real records: not covered by any guarantee"
        assumptions = () if guarantee is None else guarantee.assumptions
        return ReportFacts(
            Fact(),
            (
                columns,
                *([self._pair_facts()] if len(self.pairs) else []),
                *([self._score_facts(self.scores)] if self.scores is not None else []),
                Section(
                    "Assumptions of the guarantee",
                    tuple(Fact(sentence=text) for text in assumptions),
                ),
                Section("", (Fact(sentence=notice),)),
            ),
        )

    def _pair_facts(self) -> Section:
        variation, worst = self.pairs["total_variation"], self.pairs.iloc[0]
        at_worst = f"{worst['total_variation']:.3f} at worst ({worst['first']}, {worst['second']})"
        off = (self.pairs["real"] - self.pairs["synthetic"]).abs().max()
        return Section(
            "Pairs of columns",
            (
                Fact(
                    "pairs", float(variation.mean()),
                    f"{variation.mean():.3f} on average, {at_worst}",
                    label="total variation of pairs",
                ),
                Fact(
                    "correlations", float(off),
                    "" if np.isnan(off) else f"off by {off:.3f} at most",
                    label="correlations",
                ),
                *(Fact(row=row) for row in _frame_to_rows(self.pairs[:_N_SHOWN_PAIRS])),
            ),
            intro=f"The worst of {len(self.pairs)} pairs.",
            columns=_PAIRS,
        )  # fmt: skip

    def _score_facts(self, scores: pd.DataFrame) -> Section:
        return Section(
            "Models trained on them",
            tuple(
                Fact(
                    "score", row,
                    f"{row['synthetic']:.3f} when trained on synthetic records, "
                    f"{row['real']:.3f} on real ones",
                    label=str(row["name"]), row=row,
                )
                for row in _frame_to_rows(scores)
            ),
            "scores",
            columns=(
                Column("Score on real test records", _name),
                Column("Trained on synthetic records", number("synthetic")),
                Column("Trained on real records", number("real")),
            ),
        )  # fmt: skip

    def plot(self, *, axes: Any = None) -> Any:
        """Draw the shares of real and synthetic records in the cells of each column.

        Parameters
        ----------
        axes : array of matplotlib Axes, default=None
            One for each column. ``None`` makes a figure.

        Returns
        -------
        ndarray of Axes
            Axes in the order of the columns, followed by unused ones.
        """
        with name_missing_extra():
            import matplotlib.pyplot as plt

        if axes is None:
            rows = -(-len(self.shares) // 3)
            _, axes = plt.subplots(
                rows, min(3, len(self.shares)), figsize=(11, 2.6 * rows), layout="constrained",
                squeeze=False,
            )  # fmt: skip
        axes = np.asarray(axes)
        for (name, shares), ax in zip(self.shares.items(), axes.flat, strict=False):
            _draw_shares(shares, ax)
            ax.set_title(without_mathtext(name))
        for ax in axes.flat[len(self.shares) :]:
            ax.set_axis_off()
        axes.flat[0].legend()
        return axes

    def to_html(
        self,
        path: str | PathLike[str] | None = None,
        *,
        name: str = "the records",
        guarantee: PrivacyGuarantee | None = None,
    ) -> str:
        """Return an HTML report with plots and figures of columns, the worst pairs, and the scores.

        Parameters
        ----------
        path : str or PathLike, default=None
            File to write, in UTF-8; it must end in .html or .htm. ``None`` writes nothing.
        name : str, default="the records"
            Name of the data set on the page.
        guarantee : PrivacyGuarantee, default=None
            Guarantee of the synthetic records: ``privacy_`` of their synthesizer.

        Returns
        -------
        str
            A page that refers to no other files. All text is escaped.
        """
        with name_missing_extra():
            from matplotlib.figure import Figure  # slow to import, as are templates

        from .._report_facts import embed_figure, render

        target = None if path is None else output_path(path, ".html", ".htm")
        if not isinstance(name, str):
            raise TypeError(f"name={name!r} must be a string.")
        rows = -(-len(self.shares) // 2)
        figure = Figure(figsize=(9, 2.6 * rows), layout="constrained")
        self.plot(axes=figure.subplots(rows, 2, squeeze=False))
        plots = embed_figure(figure, "Shares of real and synthetic records in the cells of columns")
        facts = self.facts(guarantee=guarantee)
        page = render("quality.html", name=name, guarantee=guarantee, facts=facts, figure=plots)
        if target is not None:
            write_file(target, page)
        return page


def _frame_to_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return frame.rename_axis("name").reset_index().to_dict("records")


def synthetic_quality(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    schema: Schema,
    *,
    grids: Mapping[str, Grid] | None = None,
    model: Any = None,
    target_column: str | None = None,
    test: pd.DataFrame | None = None,
    scoring: Any = None,
) -> SyntheticQuality:
    """Compare synthetic records with real ones.

    Parameters
    ----------
    real, synthetic : DataFrame
        With the schema's columns.
    schema : Schema
        Facts of the columns. A target is one of the columns.
    grids : mapping of str to Grid, default=None
        Cells in which numeric columns are counted. The default is ``Grid(cells=20)``. With fine
        grids, even a second sample of real records would seem far off.
    model : estimator, default=None
        Model trained on synthetic and on real records, and tested on ``test``. It gets the frame
        without ``target_column``.
    target_column : str, default=None
        Column that ``model`` predicts.
    test : DataFrame, default=None
        Real records not used by the synthesizer nor by ``model``.
    scoring : str, callable or dict of them, default=None
        As in scikit-learn. ``None`` uses the model's ``score``.

    Returns
    -------
    SyntheticQuality
        Tables of distances and scores, which are not private.

    Raises
    ------
    ValueError
        If columns do not fit the schema, or some of ``model``, ``target_column`` and ``test`` are
        missing.

    Notes
    -----
    **Edge cases.** Missing values have a separate cell. Means, deviations and correlations ignore
    missing values. The correlation of a constant column is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
    >>> from skprivacy.synthesis import synthetic_quality
    >>> schema = Schema({"age": BoundedColumn(0, 100), "sex": CategoricalColumn(["f", "m"])})
    >>> real = pd.DataFrame({"age": [20, 40, 60, 80], "sex": ["f", "m", "f", "m"]})
    >>> synthetic = pd.DataFrame({"age": [20, 40, 60, 80], "sex": ["f", "f", "f", "m"]})
    >>> print(synthetic_quality(real, synthetic, schema))
    total variation of columns: 0.125 on average, 0.250 at worst
    total variation of pairs: 0.250 on average, 0.250 at worst (age, sex)
    computed from the real records: not covered by any guarantee
    """
    if not isinstance(schema, Schema):
        raise TypeError(f"schema={schema!r} must be a Schema. Create one with Schema({{...}}).")
    if grids is not None and not isinstance(grids, Mapping):
        raise TypeError(f"grids={grids!r} must be a dict of column names to grids, or None.")
    for frame in (real, synthetic):
        if not isinstance(frame, pd.DataFrame) or not len(frame):
            raise ValueError(
                "real and synthetic must be DataFrames with at least one record; got "
                f"{type(frame).__name__}."
            )
        check_columns(schema, frame)
    numeric = [name for name, fact in schema.items() if isinstance(fact, BoundedColumn)]
    cells = dict.fromkeys(numeric, _COMPARISON_GRID) | dict(grids or {})
    domain = Domain.from_facts(
        schema._check_kinds("synthetic_quality", missing=True), cells, list(schema), {}
    )
    codes = [domain.cell_codes([f[name] for name in domain.names]) for f in (real, synthetic)]

    def cell_shares(codes: NDArray[Any], *columns: int) -> NDArray[Any]:
        shape = [domain.sizes[c] for c in columns]
        return count_cells(codes, columns, shape, None) / len(codes)

    shares = {
        column.name: pd.DataFrame(
            {"real": one, "synthetic": other}, index=_cell_names(column, schema[column.name])
        )
        for j, column in enumerate(domain.columns)
        for one, other in [[cell_shares(c, j) for c in codes]]
    }
    pairs = [
        {
            "first": domain.names[i],
            "second": domain.names[j],
            "total_variation": _total_variation(*(cell_shares(c, i, j) for c in codes)),
        }
        for i, j in combinations(range(len(schema)), 2)
    ]
    values = [frame[numeric].astype(float) for frame in (real, synthetic)]
    return SyntheticQuality(
        _summarize_columns(shares, values, numeric),
        _summarize_pairs(pairs, values),
        _score_model(real, synthetic, model, target_column, test, scoring),
        shares,
    )


def _total_variation(one: NDArray, other: NDArray) -> float:
    return float(np.abs(one - other).sum() / 2)


def _cell_names(column: Any, fact: Any) -> list[Any]:
    known = fact.values if isinstance(column.cells, ValueCells) else column.cells.left
    return [*known, "missing"]


def _summarize_columns(
    shares: dict[str, pd.DataFrame], values: list[pd.DataFrame], numeric: list[str]
) -> pd.DataFrame:
    variation = {n: _total_variation(*table.to_numpy().T) for n, table in shares.items()}
    found = pd.DataFrame({"total_variation": pd.Series(variation, dtype=float)})
    for title, frame in zip(("real", "synthetic"), values, strict=True):
        found[f"{title}_mean"] = frame.mean().reindex(found.index)
        found[f"{title}_std"] = frame.std(ddof=0).reindex(found.index)
    return found


def _summarize_pairs(pairs: list[dict[str, Any]], values: list[pd.DataFrame]) -> pd.DataFrame:
    tables = [frame.corr() for frame in values]
    for pair in pairs:
        for title, table in zip(("real", "synthetic"), tables, strict=True):
            known = pair["first"] in table and pair["second"] in table
            pair[title] = table.loc[pair["first"], pair["second"]] if known else np.nan
    names = ["first", "second", "total_variation", "real", "synthetic"]
    found = pd.DataFrame(pairs, columns=names)
    return found.sort_values("total_variation", ascending=False, ignore_index=True)


def _score_model(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    model: Any,
    target_column: str | None,
    test: pd.DataFrame | None,
    scoring: Any,
) -> pd.DataFrame | None:
    if model is None:
        return None
    if target_column is None or test is None:
        raise ValueError(
            "model needs target_column, the name of a column, and test, unused real records. "
            "Pass both, or model=None."
        )
    scorers = scoring if isinstance(scoring, Mapping) else {"score": scoring}
    found, X_test = {}, test.drop(columns=target_column)
    for title, frame in (("real", real), ("synthetic", synthetic)):
        fitted = clone(model).fit(frame.drop(columns=target_column), frame[target_column])
        found[title] = {
            name: float(check_scoring(fitted, scorer)(fitted, X_test, test[target_column]))
            for name, scorer in scorers.items()
        }
    return pd.DataFrame(found)


def _draw_shares(shares: pd.DataFrame, ax: Any) -> None:
    """Draw the shares of a column's cells as bars, without an empty cell of missing values."""
    shown = shares[(shares.index != "missing") | (shares.sum(axis=1) > 0)]
    places = np.arange(len(shown))
    for shift, (title, values) in zip((-0.2, 0.2), shown.items(), strict=True):
        ax.bar(places + shift, values, width=0.4, label=title)
    every = max(1, len(shown) // 6)
    ax.set_xticks(places[::every])
    labels = [without_mathtext(v) if isinstance(v, str) else f"{v:g}" for v in shown.index[::every]]
    ax.set_xticklabels(labels, rotation=30, ha="right", fontsize="small")
    ax.set_ylabel("share")
