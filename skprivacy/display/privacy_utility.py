"""Privacy-utility curve: utility and attack success over epsilon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._extras import name_missing_extra
from .._files import without_mathtext

UTILITY, ATTACK, PLAIN = "#1b6ca8", "#c0392b", "#5f6b76"
_MODELS = (UTILITY, ATTACK, "#117a65", "#6c3483", "#7e5109")
_LEVELS = (
    ("#2e7d32", (0, (5, 2))),
    ("#8e44ad", (0, (1, 1.5))),
    ("#b9770e", (0, (5, 1.5, 1, 1.5))),
    (PLAIN, (0, (8, 3))),
)
_UNDER_AXIS = 0.55  # inches below the axis, under its numbers and its name
_IN_A_CORNER = 3  # largest number of legend entries that fit into a corner of the panel
_WIDE = 6.0  # inches of figure width from which a legend has two columns


class PrivacyUtilityDisplay:
    """Utility and membership leakage over epsilon, on two panels with a common axis.

    ``PrivacySweepCV.plot`` returns one. Epsilons, scores and AUCs have one value per candidate. An
    infinite epsilon, ``baselines`` and ``constant`` are drawn as horizontal lines; a constant far
    below the others only has an entry in the legend. ``attack_auc_bound`` is the largest AUC that
    the claimed guarantee allows, NaN without a claim. Each of several ``models`` gets its own
    curve.

    Attributes
    ----------
    axes_ : ndarray of two matplotlib Axes
        Utility above, attack below. Set by :meth:`plot`, as is ``figure_``.
    """

    def __init__(
        self,
        epsilons: ArrayLike,
        utility: ArrayLike,
        utility_std: ArrayLike,
        attack_auc: ArrayLike,
        attack_auc_std: ArrayLike,
        *,
        attack_auc_bound: ArrayLike | None = None,
        utility_name: str = "score",
        attack_name: str = "attack",
        baselines: Mapping[str, float] | None = None,
        constant: Mapping[str, float] | None = None,
        models: Sequence[str] | None = None,
    ) -> None:
        order = np.argsort(np.asarray(epsilons, dtype=float))

        def column(values: ArrayLike) -> np.ndarray:
            return np.asarray(values, dtype=float)[order]

        self.epsilons = column(epsilons)
        self.utility, self.utility_std = column(utility), column(utility_std)
        self.attack_auc, self.attack_auc_std = column(attack_auc), column(attack_auc_std)
        self.attack_auc_bound = column(
            np.full(len(order), np.nan) if attack_auc_bound is None else attack_auc_bound
        )
        self.utility_name = utility_name
        self.attack_name = attack_name
        self.baselines = dict(baselines or {})
        self.constant = dict(constant or {})
        self.models = np.array([""] * len(order) if models is None else list(models))[order]

    @classmethod
    def from_estimator(cls, sweep: Any, *, axes: Any = None) -> PrivacyUtilityDisplay:
        """Plot a fitted :class:`~skprivacy.model_selection.PrivacySweepCV`.

        Parameters
        ----------
        sweep : fitted PrivacySweepCV
            The fitted search.
        axes : sequence of two matplotlib Axes, default=None
            None makes a new figure.
        """
        if not hasattr(sweep, "cv_results_") or not hasattr(sweep, "baseline_results_"):
            raise TypeError(f"sweep={sweep!r} must be a fitted PrivacySweepCV.")
        results = sweep.cv_results_
        main = sweep.scores_[0]
        levels = [
            dict(zip(compared["param_baseline"], compared[f"mean_test_{main}"], strict=True))
            if compared
            else {}
            for compared in (sweep.baseline_results_, sweep.constant_results_)
        ]
        display = cls(
            [next(iter(params.values())) for params in results["params"]],
            results[f"mean_test_{main}"],
            results[f"std_test_{main}"],
            results["mean_attack_auc"],
            results["std_attack_auc"],
            attack_auc_bound=results["mean_attack_auc_bound"],
            utility_name=sweep.score_name_,
            attack_name=sweep.attack_name_,
            baselines=levels[0],
            constant=levels[1],
            models=[params.get("estimator", "") for params in results["params"]],
        )
        return display.plot(axes=axes)

    def plot(self, axes: Any = None) -> PrivacyUtilityDisplay:
        """Draw both panels, utility above and attack below, on two axes or a new figure."""
        if axes is None:
            with name_missing_extra():
                import matplotlib.pyplot as plt

            _, axes = plt.subplots(
                2, 1, sharex=True, figsize=(7, 6), height_ratios=(3, 2), layout="constrained"
            )
        self.axes_ = np.asarray(axes, dtype=object)
        if self.axes_.shape != (2,):
            raise ValueError(
                f"axes must be two matplotlib Axes; got shape {self.axes_.shape}. Pass the axes of "
                "matplotlib.pyplot.subplots(2)."
            )
        above, below = self.axes_
        self.figure_ = above.figure
        self._curve(above, self.utility, self.utility_std, UTILITY, "mean ± std of splits")
        for (name, level), (color, dashes) in zip(
            self.baselines.items(), cycle(_LEVELS), strict=False
        ):
            if np.isnan(level):  # the scorer failed
                continue
            label = without_mathtext(name)
            above.axhline(level, color=color, linestyle=dashes, linewidth=1.2, label=label)
        self._constant_levels(above)
        named = without_mathtext(self.utility_name.replace("_", " "))
        above.set(ylabel=f"Test {named}")
        self._attack(below)
        for ax in (above, below):
            ax.set_xscale("log")
            ax.grid(True, color="#e3e6e8", linewidth=0.8)
            ax.set_axisbelow(True)
            ax.spines[["top", "right"]].set_visible(False)
        self._ticks(below)
        below.set_xlabel("ε (smaller is more private)")
        above.set_title("What privacy costs", loc="left", fontsize=11)
        attacked = "label" if self.attack_name == "LabelInferenceAttack" else "membership"
        below.set_title(f"What it buys: {attacked} attack", loc="left", fontsize=11)
        if len(above.get_legend_handles_labels()[0]) > _IN_A_CORNER:
            self._legend_under(above, 0.1)
        else:
            above.legend(loc="best", fontsize=9, edgecolor="none")
        self._legend_under(below, _UNDER_AXIS)  # the ceiling, which rises to 1, leaves no corner
        return self

    def _legend_under(self, ax: Any, inches: float) -> None:
        """Place the legend under the axis, where it covers no line."""
        from matplotlib.transforms import ScaledTranslation

        lower = ScaledTranslation(0, -inches, self.figure_.dpi_scale_trans)
        ax.legend(
            loc="upper left",
            bbox_to_anchor=(0, 0),
            bbox_transform=ax.transAxes + lower,
            borderaxespad=0,
            fontsize=9,
            edgecolor="none",
            ncols=2 if self.figure_.get_figwidth() >= _WIDE else 1,
        )

    def _constant_levels(self, ax: Any) -> None:
        """Draw the level of a constant predictor, unless it would flatten the curves."""
        lowest, highest = ax.get_ylim()
        for name, level in self.constant.items():
            if np.isnan(level):  # the scorer needs more of a model
                continue
            is_far = level < lowest - (highest - lowest)
            label = without_mathtext(name) + (f": {level:.3g}, below this range" if is_far else "")
            ax.axhline(level, color=PLAIN, linestyle=":", linewidth=1.2, label=label)
            if is_far:
                ax.set_ylim(lowest, highest)

    def _attack(self, ax: Any) -> None:
        named = without_mathtext(self.attack_name)
        self._curve(ax, self.attack_auc, self.attack_auc_std, ATTACK, named)
        ax.axhline(0.5, color=PLAIN, linestyle=":", linewidth=1.2, label="chance")
        measured = np.isfinite(self.attack_auc)
        spread = np.where(measured, self.attack_auc_std, 0.0)
        highest = np.max(self.attack_auc + spread, where=measured, initial=0.5)
        lowest = np.min(self.attack_auc - spread, where=measured, initial=0.5)
        # The guarantee's bound soon nears 1; the axis follows the measurements instead, over a
        # range wide enough not to magnify noise.
        top = min(1.02, max(0.7, highest + 0.12))
        ax.set_ylim(min(0.45, lowest - 0.02), top)
        bound = self.attack_auc_bound
        is_shown = self._private & np.isfinite(bound)
        seen = np.min(bound, where=is_shown, initial=np.inf) <= top
        label = "ceiling set by the guarantee" + ("" if seen else ": above this range")
        for of_model, _, color in self._iterate_models("black"):
            shown = of_model & self._private
            if np.isfinite(self.attack_auc_bound[shown]).any():
                ax.plot(
                    self.epsilons[shown],
                    self.attack_auc_bound[shown],
                    color=color,
                    linewidth=1,
                    linestyle="-.",
                    label=label,
                )
                label = "_"  # one legend entry for all models
        ax.set_ylabel("Attack AUC")

    @property
    def _private(self) -> np.ndarray:
        return np.isfinite(self.epsilons)

    def _iterate_models(self, color: str) -> Iterator[tuple[np.ndarray, str, str]]:
        """Yield candidates, name and color of each model; a single model has ``color``."""
        names = list(dict.fromkeys(self.models.tolist()))
        colors = [color] if len(names) == 1 else cycle(_MODELS)
        for name, own in zip(sorted(names), colors, strict=False):
            yield self.models == name, without_mathtext(name), own

    def _curve(self, ax: Any, mean: Any, std: Any, color: str, label: str) -> None:
        for of_model, name, own in self._iterate_models(color):
            private, free = of_model & self._private, of_model & ~self._private
            if private.any():
                ax.errorbar(
                    self.epsilons[private],
                    mean[private],
                    yerr=std[private],
                    color=own,
                    marker="o",
                    capsize=3,
                    label=f"{name}: {label}" if name else label,
                )
            if free.any() and np.isfinite(mean[free]).all():
                (level,), (spread,) = mean[free], std[free]
                shown = f"{name} without privacy" if name else "without privacy"
                ax.axhline(level, color=own, linestyle="--", linewidth=1.2, label=shown)
                ax.axhspan(level - spread, level + spread, color=own, alpha=0.08, linewidth=0)

    def _ticks(self, ax: Any) -> None:
        values = np.unique(self.epsilons[self._private])
        if 0 < len(values) <= 12:
            ax.set_xticks(values, labels=[f"{value:g}" for value in values])
            ax.set_xticks([], minor=True)
