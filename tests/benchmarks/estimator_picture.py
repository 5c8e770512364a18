"""The picture of the benchmark of estimators: reliability of P(informative) and loss against lag, in a sparse feed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from predictors.base import NEVER
from predictors.calibration import reliability
from tests.benchmarks.knobs import OURS
from tests.benchmarks.outcome_sets import FEEDS
from tests.benchmarks.results import RAW, Case, SetResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_INCHES = (14.0, 6.0)
DPI = 150
NUM_BINS = 12
LEAST_COUNT = 200  # predictions in a bin or at a lag, for a point to be drawn
LAG_STEP = 20  # versions that share a point
OURS_COLOUR, FORECAST_COLOUR = "#D55E00", "#BBBBBB"


def picture(results: Sequence[SetResult], path: Path) -> Path | None:
    """Draw the trajectories in the sparse feed, raw, as a PNG, PDF or SVG; None if they are not there."""
    found = [result for result in results if result.outcomes.kind == "over time" and result.outcomes.feed == FEEDS[1]]
    if not found:
        return None
    result = found[0]
    cases = [case for case in result.cases if case.readout == RAW]
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for case in cases:
        _draw_reliability(left, result, case)
        _draw_loss(right, case)
    left.plot([0, 1], [0, 1], color=FORECAST_COLOUR, zorder=0)
    left.set(xlabel="predicted chance that the next group is informative", ylabel="share that was")
    right.set(xlabel="policy versions since the prompt's newest group", ylabel="log loss of the next group, nats")
    figure.suptitle(
        f"{result.outcomes.name}, {result.outcomes.feed}: {result.outcomes.num_prompts:,} prompts, "
        f"{result.truth.passes_J.size:,} predictions",
        x=0.01,
        ha="left",
    )
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    return path


def _style(case: Case) -> dict[str, Any]:
    ours = case.name == OURS
    colour: dict[str, Any] = {"color": OURS_COLOUR} if ours else {}
    return {"label": case.name, "linewidth": 2.5 if ours else 1.2, "zorder": 3 if ours else 2, **colour}


def _draw_reliability(axes: "Axes", result: SetResult, case: Case) -> None:
    assert case.scores.informative_J is not None
    bins = reliability(case.scores.informative_J, result.truth.informative_J, num_bins=NUM_BINS)
    drawn = bins.count_R >= LEAST_COUNT
    axes.plot(bins.forecast_R[drawn], bins.frequency_R[drawn], marker="o", markersize=3, **_style(case))


def _draw_loss(axes: "Axes", case: Case) -> None:
    lag_J, loss_J = case.scores.lag_J, case.scores.log_loss_J
    tried = lag_J != NEVER
    place_J = lag_J[tried] // LAG_STEP
    count = np.bincount(place_J)
    total = np.bincount(place_J, weights=loss_J[tried])
    drawn = np.flatnonzero(count >= LEAST_COUNT)
    axes.plot((drawn + 0.5) * LAG_STEP, total[drawn] / count[drawn], **_style(case))
