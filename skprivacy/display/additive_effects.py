"""Shapes of a private additive model: each effect over its columns, with its noise band."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._files import without_mathtext
from .._validation import sequence, whole
from ..additive_model.additive_models import PrivateAdditiveModel
from ..additive_model.effects import AdditiveEffect
from ..synthesis.domain import ColumnCells, NumberCells, ValueCells

_BAND_IN_STDS = 2.0
_MAX_NAMES = 2  # categories of one bin that are written out
_MAX_TILTED = 8  # names of categories at an angle; more are written upright
_FADED = 0.3  # opacity of a cell within the noise band
_COLORS = ("#1b6ca8", "#c0392b", "#117a65", "#6c3483", "#7e5109")


@dataclass(frozen=True)
class BinAxis:
    """The bins of a column as an axis: edges of numbers, or names of categories."""

    name: str
    edges: NDArray[np.float64] | None  # (n_number_bins + 1,); None for categories
    labels: list[str]  # of the bins without edges: categories, and missing values

    @classmethod
    def from_column(cls, column: ColumnCells, bins: NDArray[np.int64]) -> BinAxis:
        """Return the axis of a column from the bin of each cell."""
        missing = ["missing"] if column.may_be_missing else []
        cells, own = column.cells, bins[: column.cells.size]
        if isinstance(cells, NumberCells):
            first = np.unique(own, return_index=True)[1]
            return cls(column.name, np.append(cells.left[first], cells.right[-1]), missing)
        names = [_name_bin(cells, np.flatnonzero(own == k)) for k in range(int(own.max()) + 1)]
        return cls(column.name, None, names + missing)

    @property
    def n_numbers(self) -> int:
        """Number of bins that have edges."""
        return 0 if self.edges is None else len(self.edges) - 1


def _name_bin(cells: ValueCells, members: NDArray[np.intp]) -> str:
    """Return the names of a bin's categories, shortened."""
    names = [str(cells.fact.values[i]) for i in members]
    more = f" +{len(names) - _MAX_NAMES}" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


class PrivateAdditiveDisplay:
    """Effects of a private additive model, each on a panel with its noise band.

    A number has a step curve, categories have points, and a pair of columns has a heat map. The
    band is two standard deviations of the noise that protects the records. Cells of a heat map that
    lie within this band are faded: they may be pure noise.

    Create one with :meth:`from_estimator`.

    Parameters
    ----------
    effects : list of AdditiveEffect
        The effects to draw.
    axes_of_columns : mapping of str to BinAxis
        The bins of each column.
    outputs : sequence of str
        Name of each output: the class, or the target.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        A panel for each effect. Set by :meth:`plot`, as is ``figure_``.

    See Also
    --------
    skprivacy.additive_model.PrivateAdditiveClassifier : The model.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.additive_model import PrivateAdditiveClassifier
    >>> from skprivacy.display import PrivateAdditiveDisplay
    >>> from skprivacy.preprocessing import BoundedColumn, Schema
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> schema = Schema({"a": BoundedColumn(0, 1), "b": BoundedColumn(0, 1)}, classes=[False, True])
    >>> model = PrivateAdditiveClassifier(1.0, 1e-6, schema=schema).fit(X, X[:, 0] > 0.5)
    >>> display = PrivateAdditiveDisplay.from_estimator(model, columns=["a"])
    >>> display.axes_[0].get_xlabel()
    'a'
    """

    axes_: NDArray[Any]
    figure_: Any

    def __init__(
        self,
        effects: Sequence[AdditiveEffect],
        axes_of_columns: dict[str, BinAxis],
        outputs: Sequence[str],
    ) -> None:
        self.effects = list(effects)
        self.axes_of_columns = dict(axes_of_columns)
        self.outputs = [str(name) for name in outputs]

    @classmethod
    def from_estimator(
        cls,
        model: PrivateAdditiveModel,
        columns: Iterable[str | tuple[str, str]] | None = None,
        *,
        max_effects: int = 12,
        axes: Any = None,
    ) -> PrivateAdditiveDisplay:
        """Draw the effects of a fitted model; reads released numbers only.

        Parameters
        ----------
        model : PrivateAdditiveClassifier or PrivateAdditiveRegressor
            The fitted model.
        columns : iterable of str or (str, str), default=None
            Columns and pairs to draw. ``None`` draws the largest effects.
        max_effects : int, default=12
            Largest number of panels if ``columns`` is None.
        axes : array-like of matplotlib Axes, default=None
            One for each effect. None makes a new figure.

        Returns
        -------
        PrivateAdditiveDisplay
            The display.

        Raises
        ------
        TypeError
            If ``model`` is not a fitted additive model.
        ValueError
            If the model has no effect of some of ``columns``.
        """
        if not isinstance(model, PrivateAdditiveModel) or not hasattr(model, "effects_"):
            raise TypeError(
                f"model={model!r} must be a fitted PrivateAdditiveClassifier or Regressor."
            )
        known = {effect.columns: effect for effect in model.effects_}
        if columns is None:
            whole("max_effects", max_effects)
            largest = sorted(model.effects_, key=lambda effect: -effect.size)[:max_effects]
        else:
            listed = sequence("columns", columns)
            named = [tuple(name) if isinstance(name, tuple | list) else (name,) for name in listed]
            if unknown := [name for name in named if name not in known]:
                raise ValueError(
                    f"columns: the model has no effect of {unknown[0]!r}. It has {sorted(known)}."
                )
            largest = [known[name] for name in named]
        axes_of_columns = {
            column.name: BinAxis.from_column(column, bins)
            for column, bins in zip(model.domain_.columns, model.bins_, strict=True)
        }
        classes = getattr(model, "classes_", ["target"])
        outputs = classes[-1:] if len(model.intercept_) == 1 else classes
        return cls(largest, axes_of_columns, outputs).plot(axes=axes)

    def plot(self, axes: Any = None) -> PrivateAdditiveDisplay:
        """Draw a panel for each effect.

        Parameters
        ----------
        axes : array-like of matplotlib Axes, default=None
            One for each effect. None makes a new figure.

        Returns
        -------
        PrivateAdditiveDisplay
            Itself.
        """
        if axes is None:
            axes = _new_panels(len(self.effects))
        self.axes_ = np.asarray(axes, dtype=object).ravel()
        are_panels = all(hasattr(ax, "pcolormesh") for ax in self.axes_)
        if len(self.axes_) != len(self.effects) or not are_panels:
            raise ValueError(
                f"axes has {len(self.axes_)} panels for {len(self.effects)} effects. Pass one of "
                "matplotlib's Axes for each."
            )
        self.figure_ = self.axes_[0].figure
        for ax, effect in zip(self.axes_, self.effects, strict=True):
            if len(effect.columns) == 1:
                self._draw_column(ax, effect)
            else:
                self._draw_pair(ax, effect)
        return self

    def _draw_column(self, ax: Any, effect: AdditiveEffect) -> None:
        """Draw the effect of a column: steps over numbers, points for categories."""
        axis = self.axes_of_columns[effect.columns[0]]
        n = axis.n_numbers
        for k, name in enumerate(self.outputs):
            scores, band = effect.scores[:, k], _BAND_IN_STDS * effect.noise_std[:, k]
            color = _COLORS[k % len(_COLORS)]
            label = without_mathtext(name)
            if axis.edges is not None:
                ax.stairs(scores[:n], axis.edges, baseline=None, color=color, label=label)
                steps = {"step": "post", "color": color, "alpha": 0.2, "linewidth": 0}
                low, high = (
                    np.append(v, v[-1]) for v in (scores[:n] - band[:n], scores[:n] + band[:n])
                )
                ax.fill_between(axis.edges, low, high, **steps)
                label = "_"
            if len(scores) > n:
                places = np.arange(len(scores) - n, dtype=float)
                if axis.edges is not None:  # missing values, to the right of the numbers
                    places += axis.edges[-1] + 0.05 * (axis.edges[-1] - axis.edges[0])
                ax.errorbar(
                    places, scores[n:], band[n:], fmt="o", capsize=3, color=color, label=label
                )
        if axis.edges is None:
            names = [without_mathtext(name) for name in axis.labels]
            crowded = len(names) > _MAX_TILTED
            ax.set_xticks(
                range(len(names)), names, ha="center" if crowded else "right",
                rotation=90 if crowded else 30, fontsize=6 if crowded else None,
            )  # fmt: skip
        ax.axhline(0, color="#5f6b76", linewidth=0.8)
        ax.set_xlabel(without_mathtext(axis.name))
        ax.set_ylabel("effect on the score")
        if len(self.outputs) > 1:
            ax.legend(fontsize=8, edgecolor="none")

    def _draw_pair(self, ax: Any, effect: AdditiveEffect) -> None:
        """Draw the effect of a pair on the last output; cells within the noise band are faded."""
        first, second = (self.axes_of_columns[name] for name in effect.columns)
        scores, std = effect.scores[..., -1].T, effect.noise_std[..., -1].T
        x, y = (np.arange(size + 1) - 0.5 for size in scores.shape[::-1])
        top = float(np.abs(scores).max()) or 1.0
        faded = np.where(np.abs(scores) > _BAND_IN_STDS * std, 1.0, _FADED)
        mesh = ax.pcolormesh(x, y, scores, cmap="RdBu_r", vmin=-top, vmax=top, alpha=faded)
        for axis, set_ticks in ((first, ax.set_xticks), (second, ax.set_yticks)):
            _label_bins(axis, set_ticks)
        ax.set_xlabel(without_mathtext(first.name))
        ax.set_ylabel(without_mathtext(second.name))
        self.figure_.colorbar(mesh, ax=ax, label="effect on the score")


def _new_panels(n: int) -> Any:
    """Return n axes of a new figure, three in a row."""
    import matplotlib.pyplot as plt

    columns = min(n, 3) or 1
    rows = max(math.ceil(n / columns), 1)
    size = (4.5 * columns, 3.2 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for unused in axes.ravel()[n:]:
        figure.delaxes(unused)
    return axes.ravel()[:n]


def _label_bins(axis: BinAxis, set_ticks: Any) -> None:
    """Write values at about six bins of a heat map's axis."""
    numbers = [] if axis.edges is None else [f"{edge:.4g}" for edge in axis.edges[:-1]]
    names = [without_mathtext(name) for name in (*numbers, *axis.labels)]
    chosen = np.unique(np.linspace(0, len(names) - 1, 6).astype(int))
    set_ticks(chosen, [names[i] for i in chosen])
