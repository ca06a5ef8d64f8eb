"""Figures of ``papers/fine_tuning``: both columns, in three panels each."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.special import expit

DELTA = 1e-5
SAID = {
    "paper": "The paper's conventions: an estimate, nothing is guaranteed",
    "ours": "skprivacy: proved, with delta 1e-5",
}
LABELS = {
    "logistic": "logistic noise",
    "laplace": "Laplace noise",
    "gaussian": "Gaussian noise",
    "K-norm": "K-norm noise",
    "gradient": "noisy gradient descent",
    "prototypes": "private prototypes",
    "least squares": "noisy least squares",
}
COLOURS = dict(zip(LABELS, plt.get_cmap("tab10").colors, strict=False))  # type: ignore[attr-defined]
MARKERS = dict(zip(LABELS, "osD^vPX", strict=True))
AXES = {
    "epsilon": "epsilon (smaller is more private)",
    "loss": "utility loss (share of the accuracy)",
    "attack": "accuracy of the attack",
}
PANELS = (("epsilon", "loss"), ("epsilon", "attack"), ("loss", "attack"))


class Row(NamedTuple):
    """Means over seeds, and their standard errors."""

    column: str
    mechanism: str
    epsilon: float
    loss: float
    loss_error: float
    attack: float
    attack_error: float


def read_rows(file: Path | None) -> list[Row]:
    if file is None or not file.exists():
        return []
    with file.open(newline="") as lines:
        return [Row(*line[:2], *map(float, line[2:])) for line in csv.reader(lines)]


def limit(epsilon: NDArray) -> NDArray:
    """Return the accuracy that the proof allows any attack, on as many members as others.

    There are always N members: where one record is out another is in, and two are protected
    together, with twice epsilon and (1 + exp(epsilon)) * delta.
    """
    extra = DELTA * (1 + np.exp(epsilon)) / (1 + np.exp(2 * epsilon))
    return np.minimum(1.0, expit(2 * epsilon) + extra)


def draw_figures(rows: list[Row], title: str, path: Path) -> None:
    """Draw both columns in three figures each, with the attack on the unprotected head."""
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.6), layout="constrained", sharey="col",
                                sharex="col")  # fmt: skip
    found = [row.attack for row in rows]
    lowest, highest = min(0.5, *found), max(0.54, *found)
    for line, column in zip(axes, SAID, strict=True):
        kept = [row for row in rows if row.column == column]
        line[1].set_title(SAID[column], fontsize=11, fontweight="bold")
        for axis, (x, y) in zip(line, PANELS, strict=True):
            axis.set(xlabel=AXES[x], ylabel=AXES[y])
            axis.tick_params(labelbottom=True)
            axis.grid(alpha=0.25)
            for name, label in LABELS.items():
                drawn = [r for r in kept if r.mechanism == name and not math.isinf(r.epsilon)]
                axis.plot([getattr(row, x) for row in drawn], [getattr(row, y) for row in drawn],
                          marker=MARKERS[name], color=COLOURS[name], markersize=4, lw=1.3,
                          label=label if drawn else None)  # fmt: skip
            if x == "epsilon":
                axis.set_xscale("log")
                axis.xaxis.set_major_formatter("{x:g}")
        unprotected = next(row.attack for row in kept if math.isinf(row.epsilon))
        marks = [(line[0], 0.0, "no loss", "left", 3)]
        for axis, side in ((line[1], "left"), (line[2], "right")):
            marks.append((axis, unprotected, "without protection", side, 3))
            marks.append((axis, 0.5, "guessing", "left", -10))
        for axis, at, said, side, above in marks:
            axis.axhline(at, color="black", ls="--", lw=0.8)
            axis.annotate(said, (0.02 if side == "left" else 0.98, at), (0, above), ha=side,
                          xycoords=axis.get_yaxis_transform(), textcoords="offset points",
                          fontsize=8)  # fmt: skip
        if column == "ours":
            at = np.geomspace(*line[1].get_xlim(), 300)
            shown = at[limit(at) < highest]
            line[1].plot(shown, limit(shown), color="black", lw=0.8, ls="-.")
            if len(shown):
                line[1].annotate("proved limit", (shown[-1], limit(shown[-1])), (6, -8),
                                 textcoords="offset points", fontsize=8)  # fmt: skip
    for axis in axes[0, 1:]:  # shared with the lower ones
        axis.set_ylim(lowest - (highest - 0.5) / 8, highest + (highest - 0.5) / 8)
    figure.suptitle(title)
    handles, labels = axes[1][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=90)
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)  # a fifth of the size
