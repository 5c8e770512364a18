"""Two kinds of picture as SVG text: lines with a band, and bars. No library, no script, nothing from outside.

`sections` calls it. Texts are escaped; numbers are finite, which the caller sees to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 280
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 12, 44
BAR, BAR_GAP, LABEL_WIDTH = 18, 8, 300
BLUE, ORANGE, GREY, PALE = "#0072B2", "#E69F00", "#7A7A7A", "#DDDDDD"  # Okabe and Ito's, told apart by nearly everyone
TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve with its band; all of one length, `x` not decreasing."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    smoothed: Sequence[float]
    x_name: str
    y_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """One bar a label. `line`: a value to compare them with."""

    labels: Sequence[str]
    values: Sequence[float]
    unit: str
    line: float | None = None


def line_chart(series: Series) -> str:
    x_top, y_top = max(series.x) or 1.0, min(1.0, max(max(series.high), 0.05))
    y_low = max(0.0, min(series.low))

    def place_x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / x_top

    def place_y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - y_low) / max(y_top - y_low, 1e-9)

    upper = _points(series.x, series.high, place_x, place_y)
    lower = _points(series.x[::-1], series.low[::-1], place_x, place_y)
    parts = [f'<polygon points="{upper} {lower}" fill="{BLUE}" fill-opacity="0.15"/>']
    for i in range(TICKS):
        x, y = x_top * i / (TICKS - 1), y_low + (y_top - y_low) * i / (TICKS - 1)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place_y(y):.1f}" y2="{place_y(y):.1f}" stroke="{PALE}"/>'
        )
        parts.append(_text(LEFT - 6, place_y(y) + 4, f"{100 * y:.0f} %", "end"))
        parts.append(_text(place_x(x), HEIGHT - BOTTOM + 16, _short(x), "middle"))
    smoothed = _points(series.x, series.smoothed, place_x, place_y)
    shown = _points(series.x, series.y, place_x, place_y)
    parts.append(
        f'<polyline points="{smoothed}" fill="none" stroke="{ORANGE}" stroke-width="2" stroke-dasharray="5 3"/>'
    )
    parts.append(f'<polyline points="{shown}" fill="none" stroke="{BLUE}" stroke-width="2"/>')
    parts += [
        f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="3" fill="{BLUE}"/>'
        for x, y in zip(series.x, series.y, strict=True)
    ]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, series.x_name, "middle"))
    parts.append(_text(LEFT + 8, TOP + 10, f"{series.y_name}: blue; smoothed: dashed", "start"))
    return _svg(HEIGHT, parts, f"{series.y_name} against {series.x_name}")


def bar_chart(bars: Bars) -> str:
    top = max(*bars.values, bars.line or 0.0, 1e-9)
    room = WIDTH - LABEL_WIDTH - 70
    height = TOP + len(bars.labels) * (BAR + BAR_GAP) + 24
    parts = []
    for i, (label, value) in enumerate(zip(bars.labels, bars.values, strict=True)):
        y = TOP + i * (BAR + BAR_GAP)
        width = max(room * value / top, 0.0)
        parts.append(_text(LABEL_WIDTH - 8, y + 13, label, "end"))
        parts.append(f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{BLUE}"/>')
        parts.append(_text(LABEL_WIDTH + width + 6, y + 13, f"{value:.3g}", "start"))
    if bars.line is not None:
        x = LABEL_WIDTH + room * bars.line / top
        bottom = height - 24
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}" stroke="{GREY}" stroke-dasharray="4 3"/>'
        )
    parts.append(_text(LABEL_WIDTH, height - 8, bars.unit, "start"))
    return _svg(height, parts, bars.unit)


def _points(
    x: Sequence[float], y: Sequence[float], place_x: Callable[[float], float], place_y: Callable[[float], float]
) -> str:
    return " ".join(f"{place_x(a):.1f},{place_y(b):.1f}" for a, b in zip(x, y, strict=True))


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12">{escape(text)}</text>'


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" role="img" aria-label="{escape(label, quote=True)}" '
        f'font-family="sans-serif">{"".join(parts)}</svg>'
    )


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"
