"""What all pictures share: a figure drawn without a screen, colours, frames, smoothed curves.

The replay and the demo draw with it. matplotlib comes with the extra `page`; it is imported here alone, when a picture
is begun, so that everything else works without it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainer.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by nearly everyone; uniform is always the grey one.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
GREY, BLACK, PALE = "#7A7A7A", "#000000", "#DDDDDD"
DASHES = (0, (4, 2))  # points drawn, points left out
DPI = 150
TITLE_POINTS, PANEL_TITLE_POINTS = 13, 11


def new_figure(size_inches: tuple[float, float], title: str) -> "Figure":
    """An empty figure with a title on its left. Raises MissingExtra without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("a picture needs matplotlib: pip install 'midband[page]'") from error
    figure = Figure(figsize=size_inches, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=TITLE_POINTS, x=0.01, ha="left")
    return figure


def save(figure: "Figure", path: Path) -> Path:
    """Write a PNG, PDF or SVG by the suffix of `path`; its folder is made if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI)
    return path


def colours_of(presets: Sequence[str]) -> list[str]:
    """One for each policy, by its preset: grey for `uniform`, the others in order."""
    others = iter(COLOURS * (1 + len(presets) // len(COLOURS)))
    return [GREY if preset == "uniform" else next(others) for preset in presets]


def frame(axes: "Axes", title: str, *, x: str, y: str) -> None:
    """Title, names of the quantities, a pale grid, no box."""
    axes.set_title(title, loc="left", fontsize=PANEL_TITLE_POINTS)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def smoothed(values_R: NDArray[Any], window: int) -> NDArray[np.float64]:
    """(R,) means over `window` rounds centred on each, over fewer at the ends; `window` is odd."""
    half = window // 2
    sums = np.concatenate([[0.0], np.cumsum(values_R)])
    place = np.arange(len(values_R))
    low, high = np.maximum(place - half, 0), np.minimum(place + half + 1, len(values_R))
    means: NDArray[np.float64] = (sums[high] - sums[low]) / (high - low)
    return means


def smoothing_window(num_rounds: int, share: float) -> int:
    """An odd number of rounds, about this share of all."""
    return 2 * (int(share * num_rounds) // 2) + 1
