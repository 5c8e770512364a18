"""The picture of a replay: how many groups were informative, which prompts were never drawn, what the curves show.

The only file that knows matplotlib, which comes with the extra `page` and is imported when a picture is drawn.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.errors import MissingExtra
from trainer.replay.result import Floats, ReplayResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart by nearly everyone; uniform is always the grey one.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
GREY, BLACK, PALE = "#7A7A7A", "#000000", "#DDDDDD"
SMOOTHED_SHARE = 0.06  # of the rounds go into one point of a curve, so that noise does not hide the course
SMOOTHED_SHARE_OF_MEANS = 0.12  # the same for pass rates, whose re-weighted curve is noisier
SIZE_INCHES = (14.0, 4.6)
DPI = 150
LEGEND_COLUMNS = 4
DASHES = (0, (4, 2))  # points drawn, points left out


def picture(results: Sequence[ReplayResult], path: Path) -> Path:
    """Draw the results as a PNG, PDF or SVG by the suffix of `path`. Raises MissingExtra without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("a picture needs matplotlib: pip install 'midband[page]'") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    colours = _colours(results)
    _draw_informative(left, results, colours)
    _draw_never_seen(middle, results, colours)
    _draw_pass_rates(right, results, colours)
    first = results[0]
    figure.suptitle(
        f"{first.record}: {first.num_prompts:,} prompts, {first.batch_size} groups of {first.group_size} a round",
        fontsize=13,
        x=0.01,
        ha="left",
    )
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper right", ncols=min(len(results), LEGEND_COLUMNS), frameon=False)
    figure.savefig(path, dpi=DPI)
    return path


def smoothed(values_R: Floats, window: int) -> Floats:
    """(R,) means over `window` rounds centred on each, over fewer at the ends; `window` is odd."""
    half = window // 2
    sums = np.concatenate([[0.0], np.cumsum(values_R)])
    place = np.arange(len(values_R))
    low, high = np.maximum(place - half, 0), np.minimum(place + half + 1, len(values_R))
    means: Floats = (sums[high] - sums[low]) / (high - low)
    return means


def _draw_informative(axes: "Axes", results: Sequence[ReplayResult], colours: Sequence[str]) -> None:
    for result, colour in zip(results, colours, strict=True):
        share_R = result.rounds.informative_R / result.rounds.groups_R
        window = _window(share_R)
        axes.plot(_rounds(share_R), 100 * share_R, color=colour, alpha=0.18, linewidth=0.8)
        axes.plot(_rounds(share_R), 100 * smoothed(share_R, window), color=colour, linewidth=2, label=result.arm.name)
    _frame(axes, "Groups that teach something", "informative groups, % of the round")
    axes.set_ylim(0, 100)


def _draw_never_seen(axes: "Axes", results: Sequence[ReplayResult], colours: Sequence[str]) -> None:
    for result, colour in zip(results, colours, strict=True):
        never_seen_R = result.rounds.never_seen_R
        axes.plot(_rounds(never_seen_R), never_seen_R, color=colour, linewidth=2, label=result.arm.name)
    _frame(axes, "Prompts no group was drawn for yet", "prompts")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)


def _draw_pass_rates(axes: "Axes", results: Sequence[ReplayResult], colours: Sequence[str]) -> None:
    longest = max(results, key=lambda result: len(result.rounds.pool_R))
    pool_R = longest.rounds.pool_R
    axes.plot(_rounds(pool_R), 100 * pool_R, color=BLACK, linewidth=1, label="whole pool, as the record has it")
    for result, colour in zip(results, colours, strict=True):
        rounds = result.rounds
        place, window = _rounds(rounds.selected_R), _window(rounds.selected_R, SMOOTHED_SHARE_OF_MEANS)
        axes.plot(place, 100 * smoothed(rounds.selected_R, window), color=colour, linewidth=2)
        if result.arm.policy.preset != "uniform":
            mean_R = smoothed(rounds.reweighted_R, window) / smoothed(rounds.weights_R, window)
            axes.plot(place, 100 * mean_R, color=colour, linewidth=1.5, linestyle=DASHES)
    # Colours mean policies in all panels; here the line's form says which stream it is.
    axes.plot([], [], color=GREY, linewidth=2, label="groups drawn")
    axes.plot([], [], color=GREY, linewidth=1.5, linestyle=DASHES, label="the same, re-weighted by 1/π")
    _frame(axes, "What a reward curve would show", "pass rate, %")
    axes.legend(loc="best", edgecolor="none", framealpha=0.85)


def _frame(axes: "Axes", title: str, quantity: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("round")
    axes.set_ylabel(quantity)
    axes.grid(color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _colours(results: Sequence[ReplayResult]) -> list[str]:
    others = iter(COLOURS * (1 + len(results) // len(COLOURS)))
    return [GREY if result.arm.policy.preset == "uniform" else next(others) for result in results]


def _window(values_R: Floats, share: float = SMOOTHED_SHARE) -> int:
    """An odd number of rounds."""
    return 2 * (int(share * len(values_R)) // 2) + 1


def _rounds(values_R: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return np.arange(1, len(values_R) + 1)
