"""The figures and tables of the PATE papers, each by its name.

Writes ``pate_NAME.png`` into ``--out`` and prints the numbers behind it.

votes      agreement of teachers, and the gap between the two leading classes
cost       epsilon against queries, with the counts public, as a block, and for the votes
labels     accuracy of labels against noise, for 10, 100 and 250 teachers
consensus  queries that pass a threshold, by agreement
classes    a simulated vote of 5,000 teachers on 150 classes
accuracy   students against epsilon beside DP-SGD; minutes for each epsilon

All but ``classes`` need MNIST: ridge teachers on scattering features of the 60,000 private images
vote on the test file's first 9,000. Figures marked as not releasable depend on private votes. Noise
is drawn by NumPy, which is good enough for figures alone.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from benchmarks.shared.pate_votes import (
    DELTA,
    TEACHERS,
    TESTED,
    Counts,
    Labels,
    load_teacher_votes,
    score_dpsgd,
    score_pate,
    simulate_votes,
)
from benchmarks.shared.quick import QUICK, choose, make_parser, results_folder
from skprivacy.accounting import ComposedEvent, VoteBlockEvent, epsilon_of
from skprivacy.ensemble import ConfidentGNMax, GNMax, LNMax, analyze_votes
from skprivacy.ensemble.vote_analysis import VoteAnalysis
from skprivacy.exceptions import PrivacyLeakWarning

N_SIMULATED = choose(12_000, 200)
BLUE, RED, GREEN, GREY = "#1f5fa8", "#c0392b", "#2e8b57", "#8a8a8a"
SHADES = dict(zip(TEACHERS, (GREY, GREEN, BLUE), strict=True))
STYLE = {
    "figure.constrained_layout.use": True, "font.size": 8, "axes.titlesize": 9,
    "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.4,
    "legend.fontsize": 7, "legend.frameon": False, "savefig.dpi": 200,
}  # fmt: skip
EPSILON = r"$\varepsilon$ at $\delta = 10^{-5}$"


def votes(options: argparse.Namespace) -> Any:
    """Draw the agreement of teachers, and the gap between the two leading classes."""
    figure, (leading, gaps) = plt.subplots(1, 2, figsize=(7.0, 2.7))
    for n_teachers, colour in SHADES.items():
        counts, truth = load_teacher_votes(options.out, n_teachers)
        ahead = np.sort(counts, axis=1)[:, ::-1]
        gap = 100 * np.sort(ahead[:, 0] - ahead[:, 1]) / n_teachers
        share = 100 * np.arange(1, len(gap) + 1) / len(gap)
        label = f"{n_teachers} teachers"
        gaps.plot(gap, share, color=colour, label=label, drawstyle="steps-post")
        right = counts.argmax(axis=1) == truth
        alone = counts[np.arange(len(truth)), truth].mean() / n_teachers
        print(
            f"{n_teachers} teachers: {alone:.4f} right alone, {right.mean():.4f} together; gap "
            f"{gap.mean():.1f} % on average, below 20 % for {np.mean(gap < 20):.4f} of queries"
        )
    both = [ahead[which, 0] for which in (right, ~right)]
    names = ["leading class right", "leading class wrong"]
    leading.hist(both, np.arange(50, 251, 20), color=[BLUE, RED], label=names)
    leading.set(xlabel="votes of the leading class, of 250", ylabel="queries", yscale="log")
    leading.legend(loc="upper left")
    gaps.set(
        xlabel="gap between the two leading classes, % of teachers", ylabel="% of queries, at most",
        yscale="log", ylim=(0.05, 120),
    )  # fmt: skip
    gaps.legend(loc="upper left")
    return figure


def cost(options: argparse.Namespace) -> Any:
    """Draw epsilon against queries for the settings of the papers, accounted for in three ways."""
    counts, _ = load_teacher_votes(options.out, TEACHERS[-1])
    counts = counts[np.random.default_rng(0).permutation(len(counts))[:1000]]
    confident = ConfidentGNMax(200, len(counts), threshold_noise=150, noise=40)
    settings: dict[str, tuple[LNMax | GNMax | ConfidentGNMax, NDArray[np.bool_] | None]] = {
        "LNMax, scale 20": (LNMax(20), None),
        r"GNMax, $\sigma$ = 40": (GNMax(40), None),
        r"Confident, T = 200, $\sigma$ = 150, 40": (confident, draw_passed(counts, 200, 150)),
    }
    figure, panels = plt.subplots(1, 3, figsize=(8.4, 2.9))
    every = np.r_[1, np.arange(20, len(counts) + 1, 20)]
    some = choose([1, 25, 50, 100, 200, 400, 700, 1000], [1, 25])
    for axes, (title, (aggregator, answered)) in zip(panels, settings.items(), strict=True):
        usual = analyze_votes(counts, aggregator)  # all that are asked may be answered
        told = analyze_votes(counts, aggregator, answered=answered)
        public = [usual.epsilon(n) for n in every]
        axes.plot(every, public, color=RED, label="all counts public, Rényi")
        block = [epsilon_of(aggregator.event(n, 1), DELTA) for n in some]
        axes.plot(some, block, color=BLUE, marker="o", ms=3, label="winners public (block)")
        private = [compute_private_epsilon(told, n) for n in every]
        axes.plot(every, private, color=GREY, ls="--", label="for these votes: not releasable")
        axes.set(title=title, xlabel="queries", ylim=(0, None))
        for n, spent in zip(some, block, strict=True):
            print(
                f"{title:38} {n:5} queries: counts public {usual.epsilon(n):.3f}, block "
                f"{spent:.3f}, for these votes (private) {compute_private_epsilon(told, n):.3f}",
                flush=True,
            )
    panels[0].set_ylabel(EPSILON)
    figure.legend(handles=axes.get_lines(), loc="outside lower center", ncols=3)
    return figure


def draw_passed(counts: Counts, threshold: float, noise: float) -> NDArray[np.bool_]:
    """Return which queries pass a noisy threshold."""
    noisy = counts.max(axis=1) + np.random.default_rng(1).normal(0, noise, len(counts))
    passed: NDArray[np.bool_] = noisy >= threshold
    return passed


def compute_private_epsilon(analysis: VoteAnalysis, n_queries: int) -> float:
    with warnings.catch_warnings():  # marked wherever it is shown
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return analysis.private_epsilon(n_queries)


def labels(options: argparse.Namespace) -> Any:
    """Draw the accuracy of labels against noise, for small and large ensembles."""
    random = np.random.default_rng(2)
    noise = np.geomspace(1, 400, choose(40, 4))
    figure, panels = plt.subplots(1, 3, figsize=(8.4, 2.8), sharey=True)
    for axes, n_queries in zip(panels, choose((100, 500, 1000), (20, 50, 100)), strict=True):
        paid = GNMax()._calibrated(n_queries, 1, 1.0, DELTA, "zero_out").noise or 0.0
        for n_teachers, colour in SHADES.items():
            counts, truth = load_teacher_votes(options.out, n_teachers)
            right = np.array(
                [
                    [
                        measure_labels(counts, truth, n_queries, z, random)
                        for _ in range(choose(30, 3))
                    ]
                    for z in noise
                ]
            )
            low, high = np.quantile(right, (0.1, 0.9), axis=1)
            axes.plot(noise, right.mean(axis=1), color=colour, label=f"{n_teachers} teachers")
            axes.fill_between(noise, low, high, color=colour, alpha=0.2, lw=0)
            print(
                f"{n_queries} queries, {n_teachers} teachers: {right[0].mean():.4f} right at noise "
                f"1, {np.interp(paid, noise, right.mean(axis=1)):.4f} at {paid:.1f} (epsilon 1)",
                flush=True,
            )
        axes.axvline(paid, color="k", ls=":", lw=0.8)
        axes.text(paid * 1.1, 1.05, r"$\varepsilon$ = 1")
        title = f"{n_queries:,} queries"
        axes.set(title=title, xlabel=r"noise $\sigma$, votes", xscale="log", ylim=(0, 1.12))
    panels[0].set_ylabel("labels that are right")
    panels[0].legend(loc="lower left")
    return figure


def measure_labels(
    counts: Counts, truth: Labels, n_queries: int, noise: float, random: np.random.Generator
) -> float:
    """Return the share of right labels of so many queries."""
    asked = random.choice(len(truth), n_queries, replace=False)
    noisy = counts[asked] + random.normal(0, noise, (n_queries, counts.shape[1]))
    return float(np.mean(noisy.argmax(axis=1) == truth[asked]))


def consensus(options: argparse.Namespace) -> Any:
    """Draw the queries that pass a threshold, by the number of teachers that agree."""
    counts, truth = load_teacher_votes(options.out, TEACHERS[-1])
    figure, panels = plt.subplots(1, 2, figsize=(7.4, 2.9), sharey=True)
    for axes, spread in zip(panels, (150, 40), strict=True):
        axes.set_title(rf"T = 200, $\sigma_1$ = {spread}, $\sigma_2$ = 40")
        passes = ndtr((counts.max(axis=1) - 200) / spread)
        draw_consensus(axes, counts, truth, passes, 40, np.arange(50, 251, 20))
    add_legend(figure, panels)
    return figure


def classes(options: argparse.Namespace) -> Any:
    """Draw and print the answers of 5,000 simulated teachers on 150 classes, at two thresholds."""
    counts, truth = simulate_votes(N_SIMULATED)
    delta, spread, noise = 1e-8, 1500.0, 100.0
    figure, panels = plt.subplots(1, 2, figsize=(7.4, 2.9), sharey=True)
    for axes, (threshold, reserved) in zip(
        panels, ((3500, choose(9000, 90)), (5000, choose(4500, 45))), strict=True
    ):
        axes.set_title(rf"T = {threshold:,}, $\sigma_1$ = 1,500, $\sigma_2$ = 100")
        passes = ndtr((counts.max(axis=1) - threshold) / spread)
        draw_consensus(axes, counts, truth, passes, noise, np.arange(0, 5001, 500))
        passed = draw_passed(counts, threshold, spread)
        passed &= np.cumsum(passed) <= reserved
        aggregator = ConfidentGNMax(threshold, reserved, threshold_noise=spread, noise=noise)
        blocks = aggregator.event(len(counts), 1)
        assert isinstance(blocks, ComposedEvent)
        usual = ComposedEvent(
            tuple(b.with_counts for b in blocks.events if isinstance(b, VoteBlockEvent))
        )
        private = compute_private_epsilon(
            analyze_votes(counts, aggregator, delta=delta, answered=passed), N_SIMULATED
        )
        print(
            f"  {reserved} answers reserved. epsilon at delta {delta:g}: counts public "
            f"{epsilon_of(usual, delta):.3f}, blocks {epsilon_of(blocks, delta):.3f}, for these "
            f"votes (private) {private:.3f}",
            flush=True,
        )
    add_legend(figure, panels)
    return figure


def draw_consensus(
    axes: Any,
    counts: Counts,
    truth: Labels,
    passes: NDArray[np.float64],
    noise: float,
    bins: NDArray[np.int64],
) -> None:
    """Draw queries in bins of the leading count: how many are answered on average, and rightly.

    ``passes`` is the probability that a query passes the threshold.
    """
    random = np.random.default_rng(3)
    draws = [(counts + random.normal(0, noise, counts.shape)).argmax(1) == truth for _ in range(9)]
    right = np.mean(draws, axis=0)
    asked, answered, correct, wins = (
        np.histogram(counts.max(axis=1), bins, weights=of)[0]
        for of in (np.ones(len(counts)), passes, passes * right, right)
    )
    middle, width = (bins[1:] + bins[:-1]) / 2, np.diff(bins) * 0.9
    axes.bar(middle, asked, width, color="#d5d5d5", label="asked")
    axes.bar(middle, answered, width * 0.7, color=BLUE, label="answered")
    axes.set(xlabel="votes of the leading class", yscale="log", ylim=(0.7, None))
    shares = axes.twinx()
    shares.spines["right"].set_visible(True)
    shares.set(ylim=(0, 1.03), ylabel="share")
    for part, colour, marker, label in (
        (answered, GREEN, "o", "share answered"),
        (wins, RED, "s", "share of noisy winners that are right"),
    ):
        share = np.divide(part, asked, out=np.full(len(part), np.nan), where=asked > 0)
        shares.plot(middle, share, color=colour, marker=marker, ms=3, label=label)
    print(
        f"{axes.get_title()}: of {asked.sum():.0f} queries {answered.sum():.0f} are answered on "
        f"average, {correct.sum() / answered.sum():.4f} of them rightly"
    )
    for row in zip(bins, bins[1:], asked, answered, correct, strict=False):
        print("  {:5} to {:5}: asked {:6.0f}, answered {:7.1f}, right {:7.1f}".format(*row))
    axes.figure.handles = [
        *axes.get_legend_handles_labels()[0], *shares.get_legend_handles_labels()[0],
    ]  # fmt: skip


def add_legend(figure: Any, panels: Any) -> None:
    panels[0].set_ylabel("queries")
    figure.legend(handles=figure.handles, loc="outside lower center", ncols=4)


def accuracy(options: argparse.Namespace) -> Any:
    """Draw accuracy against epsilon of PATE and DP-SGD, with standard errors.

    Fits are added to ``accuracy.csv``, and none is made twice.
    """
    path = options.out / "accuracy.csv"
    methods = {"PATE": score_pate, "DP-SGD": score_dpsgd}
    for epsilon in options.epsilons:
        for seed in range(options.seeds):
            for method, fit in methods.items():
                if any(row[:3] == (method, epsilon, seed) for row in read_fits(path)):
                    continue
                started = time.perf_counter()
                score = fit(options.out, epsilon, seed)
                seconds = time.perf_counter() - started
                print(f"{method} epsilon {epsilon} seed {seed}: {score:.4f}, {seconds:.0f} s")
                with path.open("a", newline="") as file:
                    csv.writer(file).writerow([method, epsilon, seed, score])
    return _draw_accuracy(read_fits(path))


def read_fits(path: Path) -> list[tuple[str, float, int, float]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [(m, float(e), int(s), float(a)) for m, e, s, a in csv.reader(file)]


def _draw_accuracy(fits: list[tuple[str, float, int, float]]) -> Any:
    figure, axes = plt.subplots(figsize=(4.2, 3.0))
    styles = {"PATE": (BLUE, "o", "PATE, 250 teachers"), "DP-SGD": (RED, "s", "DP-SGD, linear")}
    for method, (colour, marker, label) in styles.items():
        epsilons = sorted({fit[1] for fit in fits if fit[0] == method})
        scores = [[fit[3] for fit in fits if fit[:2] == (method, epsilon)] for epsilon in epsilons]
        middle = np.array([np.mean(of) for of in scores])
        error = np.sqrt(middle * (1 - middle) / TESTED)  # all seeds are tested on the same images
        style = {"color": colour, "marker": marker, "ms": 4, "label": label, "capsize": 2}
        aside = 0.98 if method == "PATE" else 1.02
        axes.errorbar(aside * np.array(epsilons), middle, error, **style)
    title, label = "MNIST, scattering features", f"accuracy on {TESTED:,} images"
    axes.set(xscale="log", xlabel=EPSILON, ylabel=label, title=title)
    ticks = sorted({fit[1] for fit in fits})
    axes.minorticks_off()
    axes.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
    figure.legend(loc="outside lower center", ncols=2)
    return figure


FIGURES = {
    "votes": votes,
    "cost": cost,
    "labels": labels,
    "consensus": consensus,
    "classes": classes,
    "accuracy": accuracy,
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", type=Path, default=results_folder() / "pate")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--epsilons", nargs="+", type=float, default=choose([0.25, 0.5, 1.0, 2.0, 4.0], [4.0])
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(FIGURES))
    if unknown:
        parser.error(f"unknown figures {unknown}; choose from {list(FIGURES)}")
    if QUICK:  # tables of another run may be of other sizes
        shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update(STYLE)
    for name in options.names or FIGURES:
        figure = FIGURES[name](options)
        path = options.out / f"pate_{name}.png"
        figure.savefig(path)
        plt.close(figure)
        print(path, flush=True)


if __name__ == "__main__":
    main()
