"""The table and the picture of `simulate` for people: one row a case, the least rollouts to the target first."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.benchmarks.closed_loop import Closed
from tests.benchmarks.language import Figure

SHOWN = (
    "uniform",
    "midband",
    "band",
    "mopps",
    "greso",
    "dapo",
    "speed",
)  # curves; every case has its line on the right
TICKS = (30, 50, 75, 100, 150, 200, 300)  # thousand rollouts
SMOOTHED_STEPS = 10  # over which the picture averages the informative share
WEIGHTS = ("second_moment", "second_moment_predicted", "second_moment_knowing", "second_moment_bound")


def show_overview(figures: Sequence[Figure], compared_with: Mapping[str, str], targets: Sequence[float]) -> None:
    """compared_with: cases in their order, and what each is compared with. The middle target sorts them."""
    found = {(figure.case, figure.metric): figure for figure in figures}
    middle = f"rollouts_to_{targets[1]:g}"

    def last(case: str) -> float:
        value = found[case, middle].value
        return float("inf") if value is None else value

    table = Table(title="thousand rollouts to a held-out pass rate, and what else came of it")
    table.add_column("case", no_wrap=True)
    for target in targets:
        table.add_column(f"to {target:g}", no_wrap=True)
    for name in ("informative /100", "a step", "held-out", "longest wait", "never drawn", "audit error", "seeds"):
        table.add_column(name, justify="right")
    for case in sorted(compared_with, key=last):
        spent = [found[case, f"rollouts_to_{target:g}"] for target in targets]
        table.add_row(
            case,
            *(_thousands(figure) for figure in spent),
            _number(found[case, "informative_groups_per_rollout"].value, 100.0, "{:.2f}"),
            _number(found[case, "rollouts_per_step"].value, 1.0, "{:,.0f}"),
            _number(found[case, "heldout_pass_rate"].value, 1.0, "{:.3f}"),
            _number(found[case, "longest_wait"].value, 1.0, "{:.0f}"),
            _number(found[case, "never_drawn"].value, 1.0, "{:.1f}"),
            _number(found[case, "audit_error_uniform"].value, 1.0, "{:+.4f}"),
            str(spent[0].seeds),
        )
    console = Console()
    console.width = max(console.width, 150)
    console.print(table)
    console.print("In brackets the smallest and the largest seed; – where a seed never gets there.")
    for case in compared_with:
        if (case, WEIGHTS[0]) in found:
            values = ", ".join(f"{name} {_number(found[case, name].value, 1.0, '{:.3f}')}" for name in WEIGHTS)
            console.print(f"{case}: {values}")


def _thousands(figure: Figure) -> str:
    if figure.value is None or figure.interval is None:
        return "–"
    low, high = figure.interval
    return f"{figure.value / 1000:.0f} ({low / 1000:.0f} – {high / 1000:.0f})"


def _number(value: float | None, factor: float, form: str) -> str:
    return "–" if value is None else form.format(factor * value)


def draw_picture(results: Mapping[str, Sequence[Closed]], path: Path, *, target: float) -> None:
    """Held-out pass rate and informative share against rollouts, mean and range over seeds; rollouts to the target."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import NullLocator

    figure, axes = plt.subplots(
        1, 3, figsize=(14, max(4.4, 0.22 * len(results))), layout="constrained", width_ratios=[1, 1, 1.1]
    )
    shown = [name for name in SHOWN if name in results]
    colours = {name: mpl.colormaps["tab10"](place) for place, name in enumerate(shown)}
    furthest = max(run.rollouts_T.sum() for run in results["uniform"])
    for name in shown:
        runs = results[name]
        rollouts_ST = np.array([np.cumsum(run.rollouts_T) for run in runs])
        grid = np.linspace(rollouts_ST[:, SMOOTHED_STEPS - 1 : SMOOTHED_STEPS].max(), furthest, 200)
        grid = grid[grid <= rollouts_ST[:, -1].min()]
        share_ST = [
            np.convolve(run.informative_T / run.groups_T, np.ones(SMOOTHED_STEPS) / SMOOTHED_STEPS)[: len(run.groups_T)]
            for run in runs
        ]
        for axis, of_run in ((axes[0], [run.heldout_T for run in runs]), (axes[1], share_ST)):
            curve = np.array([np.interp(grid, x, y) for x, y in zip(rollouts_ST, of_run, strict=True)])
            axis.plot(grid / 1000, curve.mean(axis=0), label=name, color=colours[name])
            axis.fill_between(
                grid / 1000, curve.min(axis=0), curve.max(axis=0), color=colours[name], alpha=0.15, linewidth=0
            )
    axes[0].axhline(target, color="0.6", linestyle=":", linewidth=1)
    axes[0].set(xlabel="thousand rollouts", ylabel="held-out pass rate")
    axes[1].set(xlabel="thousand rollouts", ylabel="share of groups that are informative")
    axes[0].legend(frameon=False, fontsize=8)
    spent = {name: [run.rollouts_to(target) for run in runs] for name, runs in results.items()}
    reached = {name: [x / 1000 for x in values if x is not None] for name, values in spent.items()}
    there = {name: values for name, values in reached.items() if len(values) == len(results[name])}
    order = sorted(there, key=lambda name: float(np.mean(there[name])), reverse=True)
    order = [name for name in results if name not in there] + order
    for place, name in enumerate(order):
        colour = colours.get(name, "0.45")
        if name in there:
            axes[2].plot([min(there[name]), max(there[name])], [place, place], color=colour, linewidth=2)
            axes[2].plot(np.mean(there[name]), place, "o", color=colour, markersize=4)
        else:
            axes[2].text(
                1.0,
                place,
                "not by every seed",
                transform=axes[2].get_yaxis_transform(),
                ha="right",
                va="center",
                fontsize=7,
                color="0.45",
            )
    axes[2].set_yticks(range(len(order)), order, fontsize=7)
    axes[2].set(xscale="log", ylim=(-0.7, len(order) - 0.3))
    axes[2].set(xlabel=f"thousand rollouts to a held-out pass rate of {target:g}")
    axes[2].set_xticks(TICKS, [str(tick) for tick in TICKS], fontsize=8)
    axes[2].xaxis.set_minor_locator(NullLocator())
    axes[2].grid(axis="x", which="both", color="0.9", linewidth=0.5)
    figure.suptitle("A simulated learner under each preset: mean and range over seeds", fontsize=10)
    figure.savefig(path, dpi=110)
    plt.close(figure)
