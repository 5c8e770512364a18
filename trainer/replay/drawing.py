"""The picture of a replay: how many groups were informative, which prompts were never drawn, what the curves show."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.charts import BLACK, DASHES, GREY, colours_of, frame, new_figure, save, smoothed, smoothing_window
from trainer.replay.result import ReplayResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMOOTHED_SHARE = 0.06  # of the rounds go into one point of a curve, so that noise does not hide the course
SMOOTHED_SHARE_OF_MEANS = 0.12  # the same for pass rates, whose re-weighted curve is noisier
SIZE_INCHES = (14.0, 4.6)
LEGEND_COLUMNS = 4


def picture(results: Sequence[ReplayResult], path: Path) -> Path:
    """Draw the results as a PNG, PDF or SVG by the suffix of `path`. Raises MissingExtra without matplotlib."""
    first = results[0]
    figure = new_figure(
        SIZE_INCHES,
        f"{first.record}: {first.num_prompts:,} prompts, {first.batch_size} groups of {first.group_size} a round",
    )
    left, middle, right = figure.subplots(1, 3)
    colours = colours_of([result.arm.policy.preset for result in results])
    _draw_informative(left, results, colours)
    _draw_never_seen(middle, results, colours)
    _draw_pass_rates(right, results, colours)
    handles, names = left.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper right", ncols=min(len(results), LEGEND_COLUMNS), frameon=False)
    return save(figure, path)


def _draw_informative(axes: "Axes", results: Sequence[ReplayResult], colours: Sequence[str]) -> None:
    for result, colour in zip(results, colours, strict=True):
        share_R = result.rounds.informative_R / result.rounds.groups_R
        window = smoothing_window(len(share_R), SMOOTHED_SHARE)
        axes.plot(_rounds(share_R), 100 * share_R, color=colour, alpha=0.18, linewidth=0.8)
        axes.plot(_rounds(share_R), 100 * smoothed(share_R, window), color=colour, linewidth=2, label=result.arm.name)
    frame(axes, "Groups that teach something", x="round", y="informative groups, % of the round")
    axes.set_ylim(0, 100)


def _draw_never_seen(axes: "Axes", results: Sequence[ReplayResult], colours: Sequence[str]) -> None:
    for result, colour in zip(results, colours, strict=True):
        never_seen_R = result.rounds.never_seen_R
        axes.plot(_rounds(never_seen_R), never_seen_R, color=colour, linewidth=2, label=result.arm.name)
    frame(axes, "Prompts no group was drawn for yet", x="round", y="prompts")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)


def _draw_pass_rates(axes: "Axes", results: Sequence[ReplayResult], colours: Sequence[str]) -> None:
    longest = max(results, key=lambda result: len(result.rounds.pool_R))
    pool_R = longest.rounds.pool_R
    axes.plot(_rounds(pool_R), 100 * pool_R, color=BLACK, linewidth=1, label="whole pool, as the record has it")
    for result, colour in zip(results, colours, strict=True):
        rounds = result.rounds
        place = _rounds(rounds.selected_R)
        window = smoothing_window(len(place), SMOOTHED_SHARE_OF_MEANS)
        axes.plot(place, 100 * smoothed(rounds.selected_R, window), color=colour, linewidth=2)
        if result.arm.policy.preset != "uniform":
            mean_R = smoothed(rounds.reweighted_R, window) / smoothed(rounds.weights_R, window)
            axes.plot(place, 100 * mean_R, color=colour, linewidth=1.5, linestyle=DASHES)
    # Colours mean policies in all panels; here the line's form says which stream it is.
    axes.plot([], [], color=GREY, linewidth=2, label="groups drawn")
    axes.plot([], [], color=GREY, linewidth=1.5, linestyle=DASHES, label="the same, re-weighted by 1/π")
    frame(axes, "What a reward curve would show", x="round", y="pass rate, %")
    axes.legend(loc="best", edgecolor="none", framealpha=0.85)


def _rounds(values_R: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return np.arange(1, len(values_R) + 1)
