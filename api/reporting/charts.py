"""Two kinds of picture as SVG text: lines with bands, and bars. No library, no script, nothing from outside.

`sections` and `audited` call it. Texts are escaped; numbers are finite, which the caller sees to.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 32, 44
BAR, BAR_GAP, LETTER = 18, 8, 7  # a letter of 12 pixels is no wider, on average
MOST_LABEL = 300
BLUE, ORANGE, GREEN, GREY, PALE = "#0072B2", "#E69F00", "#009E73", "#7A7A7A", "#DDDDDD"
COLOURS = (BLUE, ORANGE, GREEN)  # Okabe and Ito's, told apart by nearly everyone
DASHES = ("", "7 4", "2 3")  # the same told apart without colours
MOST_TICKS = 6
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve, `x` not decreasing; with a band where it has one."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    is_shown_by_points: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Up to three curves of shares in [0, 1], told apart by colour and dashes. `from_zero`: the shares begin there."""

    lines: Sequence[Line]
    x_name: str
    y_name: str
    from_zero: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """One bar a label. `line`: a value to compare them with."""

    labels: Sequence[str]
    values: Sequence[float]
    unit: str
    line: float | None = None


def line_chart(chart: Lines) -> str:
    every_x = [x for line in chart.lines for x in line.x]
    every_y = [y for line in chart.lines for y in (*line.y, *line.low, *line.high)]
    x_ticks = ticks(min(0.0, *every_x), max(every_x))
    y_ticks = [
        tick / 100 for tick in ticks(0.0 if chart.from_zero else 100 * min(every_y), 100 * max(every_y), top=100.0)
    ]

    def place_x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - x_ticks[0]) / max(x_ticks[-1] - x_ticks[0], 1e-9)

    def place_y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - y_ticks[0]) / max(y_ticks[-1] - y_ticks[0], 1e-9)

    parts = []
    for y in y_ticks:
        at = f'y1="{place_y(y):.1f}" y2="{place_y(y):.1f}"'
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" {at} stroke="{PALE}"/>')
        parts.append(_text(LEFT - 6, place_y(y) + 4, f"{100 * y:g} %", "end"))
    parts += [_text(place_x(x), HEIGHT - BOTTOM + 16, _short(x), "middle") for x in x_ticks]
    legend_x = float(LEFT)
    for line, colour, dashes in zip(chart.lines, COLOURS, DASHES, strict=False):
        if line.low:
            upper = _points(line.x, line.high, place_x, place_y)
            lower = _points(line.x[::-1], line.low[::-1], place_x, place_y)
            parts.append(f'<polygon points="{upper} {lower}" fill="{colour}" fill-opacity="0.15"/>')
        look = f'stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dashes}"' if dashes else "")
        parts.append(f'<polyline points="{_points(line.x, line.y, place_x, place_y)}" fill="none" {look}/>')
        if line.is_shown_by_points:
            parts += [
                f'<circle cx="{place_x(x):.1f}" cy="{place_y(y):.1f}" r="3" fill="{colour}"/>'
                for x, y in zip(line.x, line.y, strict=True)
            ]
        parts.append(f'<line x1="{legend_x:.0f}" x2="{legend_x + 24:.0f}" y1="14" y2="14" {look}/>')
        parts.append(_text(legend_x + 30, 18, line.name, "start"))
        legend_x += 54 + LETTER * len(line.name)
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, chart.x_name, "middle"))
    return _svg(HEIGHT, parts, f"{chart.y_name} against {chart.x_name}")


def bar_chart(bars: Bars) -> str:
    top = max(*bars.values, bars.line or 0.0, 1e-9)
    left = min(16 + LETTER * max(len(label) for label in bars.labels), MOST_LABEL)
    room = WIDTH - left - 70
    height = TOP + len(bars.labels) * (BAR + BAR_GAP) + 24
    parts = []
    for i, (label, value) in enumerate(zip(bars.labels, bars.values, strict=True)):
        y = TOP + i * (BAR + BAR_GAP)
        width = max(room * value / top, 0.0)
        parts.append(_text(left - 8, y + 13, label, "end"))
        parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{BLUE}"/>')
        parts.append(_text(left + width + 6, y + 13, f"{value:.3g}", "start"))
    if bars.line is not None:
        x = left + room * bars.line / top
        bottom = height - 24
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}" stroke="{GREY}" stroke-dasharray="4 3"/>'
        )
    parts.append(_text(left, height - 8, bars.unit, "start"))
    return _svg(height, parts, bars.unit)


def ticks(low: float, high: float, *, top: float | None = None) -> list[float]:
    """Round numbers at equal distances, MOST_TICKS at most, from the one below `low` to the one above `high`, or `top`.

    Two where both ends are the same.
    """
    span = high - low if high > low else abs(high) or 1.0
    size = 10 ** floor(log10(span / (MOST_TICKS - 1)))
    for step in (factor * size for factor in STEPS):
        first, last = floor(low / step + 1e-9), ceil(max(high, low + 1e-9 * span) / step - 1e-9)
        if last - first < MOST_TICKS:
            break
    found = [step * number for number in range(first, max(last, first + 1) + 1)]
    kept = [tick for tick in found if top is None or tick <= top + 1e-9]
    return kept if len(kept) > 1 else [kept[0] - step, kept[0]]


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
