"""The demo's pictures: held-out quality against tokens, and what the service believed of the pool as training went on.

`quality.png` has quality, the share of informative groups, and quality by stratum; `beliefs.png` a histogram of the
believed pass rates for each arm at a few looks. Axes: B bins, S steps.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainer.charts import BLACK, DASHES, PALE, colours_of, frame, new_figure, save, smoothed, smoothing_window
from trainer.demo.beliefs import BeliefHistogram
from trainer.demo.result import ArmResult, Marks
from trainer.demo.table import by_difficulty
from trainer.training.evaluate import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUALITY_INCHES = (14.0, 4.8)
BELIEFS_INCHES = (14.0, 5.2)
SMOOTHED_SHARE = 0.06  # of the steps go into one point of a curve, so that noise does not hide the course
THOUSAND = 1_000
TOKENS = "thousand tokens generated for training"
BAND_ALPHA = 0.15
OFFSET = 0.2  # of a stratum's row between the start and the arms
MOMENTS = 5  # looks whose beliefs are drawn, the first and the last among them
TALLEST = 25.0  # % of the prompts: taller bars are cut and say how tall they are, so that the others can be seen


def quality_picture(results: Sequence[ArmResult], marks: Marks | None, path: Path, *, title: str) -> Path:
    """Quality and informative groups against tokens, quality by stratum. Raises MissingExtra without matplotlib."""
    figure = new_figure(QUALITY_INCHES, title)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    colours = colours_of([result.preset for result in results])
    _draw_quality(left, results, marks, colours)
    _draw_informative(middle, results, colours)
    _draw_strata(right, results, colours)
    handles, names = middle.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper right", ncols=len(results), frameon=False)
    return save(figure, path)


def belief_picture(results: Sequence[ArmResult], path: Path, *, title: str) -> Path:
    """A row of histograms for each arm, from the first look to the last. Raises MissingExtra without matplotlib."""
    figure = new_figure(BELIEFS_INCHES, title)
    columns = max(1, *(len(moments(result.beliefs)) for result in results))
    panels = figure.subplots(len(results), columns, squeeze=False, sharex=True, sharey=True)
    for row, (result, colour) in enumerate(zip(results, colours_of([one.preset for one in results]), strict=True)):
        drawn = moments(result.beliefs)
        for column, axes in enumerate(panels[row]):
            if column >= len(drawn):
                axes.set_axis_off()
                continue
            _draw_beliefs(axes, drawn[column], colour)
            is_last, is_first = row == len(results) - 1, column == 0
            quantities = {"x": "believed pass rate, %" if is_last else "", "y": "prompts, %" if is_first else ""}
            frame(axes, f"{result.name}, step {drawn[column].step:,}", **quantities)
            axes.set_ylim(0, TALLEST)
    pale = panels[0][0].bar(0, 0, color=PALE)
    figure.legend([pale], ["no group of the prompt yet: judged by others"], loc="outside upper right", frameon=False)
    return save(figure, path)


def moments(beliefs: Sequence[BeliefHistogram]) -> list[BeliefHistogram]:
    """At most MOMENTS of them, evenly spread, the first and the last among them."""
    places = np.linspace(0, len(beliefs) - 1, min(MOMENTS, len(beliefs))).round().astype(int)
    return [beliefs[place] for place in places.tolist()]


def _draw_quality(axes: "Axes", results: Sequence[ArmResult], marks: Marks | None, colours: Sequence[str]) -> None:
    for result, colour in zip(results, colours, strict=True):
        seen = [look for look in result.looks if look.overall.estimate is not None]
        tokens = [look.tokens / THOUSAND for look in seen]
        low, high = [100 * look.overall.low for look in seen], [100 * look.overall.high for look in seen]
        axes.fill_between(tokens, low, high, color=colour, alpha=BAND_ALPHA, linewidth=0)
        axes.plot(tokens, [100 * (look.overall.estimate or 0) for look in seen], color=colour, linewidth=2)
    axes.set_ylim(bottom=0)
    if marks is not None:
        axes.axhline(100 * marks.quality, color=BLACK, linewidth=1, linestyle=DASHES)
        axes.annotate("where uniform ends", (0, 100 * marks.quality), **_beside(4))
        for result, colour in zip(results, colours, strict=True):
            look = marks.looks[result.name]
            if look is not None:
                _draw_mark(axes, look, colour, last_tokens=result.looks[-1].tokens)
    frame(axes, "Held-out pass rate, with 95 % intervals", x=TOKENS, y="pass rate, %")


def _draw_mark(axes: "Axes", look: Evaluation, colour: str, *, last_tokens: int) -> None:
    """A dot where an arm has the quality, and a line down to the tokens that took."""
    tokens, rate = look.tokens / THOUSAND, 100 * (look.overall.estimate or 0)
    axes.plot([tokens, tokens], [0, rate], color=colour, linewidth=1, linestyle=DASHES)
    axes.plot(tokens, rate, color=colour, marker="o", markersize=9, markeredgecolor="white")
    left_of_it = {"ha": "right", **_beside(-4)} if look.tokens > last_tokens / 2 else _beside(4)
    axes.annotate(f"{tokens:,.0f} k", (tokens, 0), color=colour, **left_of_it)


def _beside(points: int, *, below: int = -4) -> dict[str, Any]:
    """Where a text stands that belongs to a place: so far to the right of it and below."""
    return {"xytext": (points, -below), "textcoords": "offset points", "fontsize": 9}


def _draw_informative(axes: "Axes", results: Sequence[ArmResult], colours: Sequence[str]) -> None:
    for result, colour in zip(results, colours, strict=True):
        share_S = 100 * result.informative_S / np.maximum(result.groups_S, 1)
        window = smoothing_window(len(share_S), SMOOTHED_SHARE)
        tokens_S = result.tokens_S / THOUSAND
        axes.plot(tokens_S, share_S, color=colour, alpha=0.18, linewidth=0.8)
        axes.plot(tokens_S, smoothed(share_S, window), color=colour, linewidth=2, label=result.name)
    frame(axes, "Groups that teach something", x=TOKENS, y="informative groups, % of the batch")
    axes.set_ylim(bottom=0)


def _draw_strata(axes: "Axes", results: Sequence[ArmResult], colours: Sequence[str]) -> None:
    """A row for each stratum, the easiest on top, and in it the start and each arm's end."""
    looked = [(result, colour) for result, colour in zip(results, colours, strict=True) if result.looks]
    if not looked:
        return
    start = looked[0][0].looks[0]
    names = by_difficulty(start)
    for row, name in enumerate(names):
        lines = [(start, BLACK), *((result.looks[-1], colour) for result, colour in looked)]
        for place, (look, colour) in enumerate(lines):
            rate = look.strata.get(name)
            if rate is not None and rate.estimate is not None:
                height = row + OFFSET * ((len(lines) - 1) / 2 - place)
                axes.plot([100 * rate.low, 100 * rate.high], [height, height], color=colour, linewidth=2)
                fill = "white" if look is start else colour
                axes.plot(100 * rate.estimate, height, color=colour, marker="o", markerfacecolor=fill)
    axes.plot([], [], marker="o", color=BLACK, markerfacecolor="white", label="at the start")
    frame(axes, "Held-out pass rate at the end, by difficulty", x="pass rate, %", y="")
    axes.set_yticks(range(len(names)), [f"{name} ({start.strata[name].num_prompts})" for name in names])
    axes.set_xlim(-2, 102)
    axes.legend(loc="best", edgecolor="none", framealpha=0.85)


def _draw_beliefs(axes: "Axes", found: BeliefHistogram, colour: str) -> None:
    tried_B, untried_B = (np.asarray(counts, dtype=np.float64) for counts in (found.tried_B, found.untried_B))
    total = max(tried_B.sum() + untried_B.sum(), 1)
    share_B, tried_share_B = 100 * (tried_B + untried_B) / total, 100 * tried_B / total
    edges = np.linspace(0, 100, len(tried_B) + 1)
    width = edges[1] - edges[0]
    axes.bar(edges[:-1], share_B, width, align="edge", color=PALE)
    axes.bar(edges[:-1], tried_share_B, width, align="edge", color=colour)
    for first, last in _runs(share_B > TALLEST):
        words = ", ".join(f"{share:.0f} %" for share in share_B[first : last + 1])
        if last < len(share_B) // 2:
            axes.annotate(words, (edges[last + 1], TALLEST), va="top", **_beside(3, below=2))
        else:
            axes.annotate(words, (edges[first], TALLEST), ha="right", va="top", **_beside(-3, below=2))


def _runs(cut_B: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last place of each row of neighbours that are true."""
    changes = np.flatnonzero(np.diff(np.concatenate([[False], cut_B, [False]]).astype(int)))
    return [(int(first), int(behind) - 1) for first, behind in changes.reshape(-1, 2)]
