"""Pictures: lengths that are values, round ticks, words that are no markup."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.reporting.charts import MOST_TICKS, Bars, Line, Lines, bar_chart, line_chart, ticks


def line(name: str) -> Line:
    return Line(name=name, x=[0.0, 10.0], y=[0.2, 0.3])


def test_pictures_escape_their_words_and_stand_equal_and_zero_values() -> None:
    for x in ([0.0, 10.0], [0.0, 0.0]):
        shown = Line(name="<a>", x=x, y=[0.2, 0.3], low=[0.1, 0.2], high=[0.3, 0.4], is_shown_by_points=True)
        svg = line_chart(Lines(lines=[shown], x_name="<x>", y_name="y&"))
        assert "<x>" not in svg
        assert "<a>" not in svg
        assert "nan" not in svg
        assert svg.count("<circle") == 2
        assert svg.count("<polygon") == 1
    svg = bar_chart(Bars(labels=["a<b"], values=[0.0], unit="share", line=0.0))
    assert "a&lt;b" in svg
    assert 'width="0.0"' in svg


def test_a_bar_is_as_long_as_its_value() -> None:
    svg = bar_chart(Bars(labels=["a", "b"], values=[1.0, 2.0], unit="share"))
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', svg)]
    assert widths[1] == pytest.approx(2 * widths[0], abs=0.1)


def test_curves_are_told_apart_by_dashes_too_and_all_are_named() -> None:
    svg = line_chart(Lines(lines=[line("one"), line("two"), line("three")], x_name="x", y_name="y"))
    looks = re.findall(r'<polyline [^>]*stroke="(#\w+)" stroke-width="2"(?: stroke-dasharray="([\d ]+)")?', svg)
    assert len(set(looks)) == 3
    assert {dashes for _, dashes in looks} == {"", "7 4", "2 3"}
    assert all(f">{name}</text>" in svg for name in ("one", "two", "three"))


def test_a_point_is_where_its_share_is_between_the_ticks() -> None:
    svg = line_chart(Lines(lines=[Line(name="a", x=[0.0, 4.0], y=[0.4, 0.6])], x_name="x", y_name="y"))
    levels = re.findall(r'y="([\d.]+)" text-anchor="end" font-size="12">([\d.]+) %', svg)
    at = {float(share): float(y) - 4 for y, share in levels}
    (first, last) = re.findall(r'points="[\d.]+,([\d.]+) [\d.]+,([\d.]+)" fill="none"', svg)[0]
    assert float(first) == pytest.approx(at[40.0], abs=0.1)
    assert float(last) == pytest.approx(at[60.0], abs=0.1)


def test_ticks_by_hand() -> None:
    assert ticks(0.0, 7.0e6) == [0.0, 2e6, 4e6, 6e6, 8e6]
    assert ticks(41.0, 99.9, top=100.0) == [40.0, 60.0, 80.0, 100.0]
    assert ticks(100.0, 100.0, top=100.0)[-1] == 100.0
    assert len(ticks(100.0, 100.0, top=100.0)) == 2
    assert ticks(0.0, 0.0) == [0.0, pytest.approx(0.1)]


@given(st.floats(0.0, 1e9), st.floats(0.0, 1e9))
def test_ticks_hold_both_ends_and_are_few(one: float, other: float) -> None:
    low, high = sorted((one, other))
    found = ticks(low, high)
    slack = 1e-6 * max(high - low, abs(high), 1e-3)
    assert 2 <= len(found) <= MOST_TICKS + 1
    assert found[0] <= low + slack
    assert found[-1] >= high - slack
    assert found == sorted(found)
