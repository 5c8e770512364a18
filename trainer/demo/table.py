"""The demo's figures as one table, and in words what they say and what they do not."""

import math
from collections.abc import Sequence

from rich.table import Table

from api.schemas import Estimate
from trainer.demo.result import ArmResult, Marks
from trainer.training.evaluate import Evaluation, PassRate

NONE = "–"


def table(results: Sequence[ArmResult], marks: Marks | None, *, num_cores: int) -> Table:
    """A column for the start, which all arms share, and one for each arm."""
    view = Table(
        title="One model, trained once on each arm's prompts, from the same start",
        caption=(
            "A group is informative if its rollouts do not all score alike. Held-out and audit: pass rates in %, in "
            "brackets 95 % intervals. The audit's are averages over the whole run, not its end, and hold however "
            "often one looks. The last line: tokens until the held-out pass rate was first what uniform's is at its "
            "end. The time is that of the steps, without the looks at the held-out split; the arms ran at the same "
            f"time on {num_cores} core{'s' if num_cores > 1 else ''}, a thread each, and shared them with the service."
        ),
        title_justify="left",
        caption_justify="left",
    )
    for name in ("", "at the start", *(result.name for result in results)):
        view.add_column(name, justify="right" if name else "left")
    for section in (_costs(results), _heldout(results), _audit(results), _reached(results, marks)):
        for name, cells in section:
            view.add_row(name, *cells, end_section=name == section[-1][0])
    return view


def verdict(uniform: ArmResult, other: ArmResult, marks: Marks | None) -> str:
    """At what share of uniform's tokens the other arm had uniform's final quality."""
    if marks is None:
        return (
            f"{uniform.name} ended no better on the held-out prompts than it began, so there is no quality that "
            f"{other.name} could have reached for less."
        )
    own, mark = marks.looks[uniform.name], marks.looks[other.name]
    assert own is not None, "uniform has its own final quality at its last look at the latest"
    last = uniform.looks[-1]
    quality = f"{uniform.name}'s final held-out pass rate of {_percent(marks.quality)}"
    if mark is None:
        return f"{other.name} did not reach {quality} within its {other.looks[-1].tokens:,} tokens."
    said = f"{other.name} first reached {quality} at {100 * mark.tokens / last.tokens:.0f} % of {uniform.name}'s tokens"
    if own.step != last.step:
        said += f"; {uniform.name} itself first had it at {100 * own.tokens / last.tokens:.0f} % of them"
    return f"{said}."


Row = tuple[str, list[str]]


def _costs(results: Sequence[ArmResult]) -> list[Row]:
    return [
        ("informative groups", [NONE, *(f"{one.num_informative:,}" for one in results)]),
        ("  per 100 rollouts", [NONE, *(_number(one.informative_per_100_rollouts) for one in results)]),
        ("  of all groups", [NONE, *(_percent(one.informative_share) for one in results)]),
        ("tokens of training", [NONE, *(f"{one.tokens:,}" for one in results)]),
        ("wall time of steps, s", [NONE, *(f"{one.wall_s:.0f}" for one in results)]),
        ("  for the service", [NONE, *(f"{one.seconds['idle']:.0f}" for one in results)]),
    ]


def _heldout(results: Sequence[ArmResult]) -> list[Row]:
    """All prompts, then the strata from the one that is most difficult at the start to the easiest."""
    if not all(one.looks for one in results):
        return []
    looks = [results[0].looks[0], *(one.looks[-1] for one in results)]
    strata = [
        (f"  {name}, {looks[0].strata[name].num_prompts}", [_rate(look.strata.get(name)) for look in looks])
        for name in by_difficulty(looks[0])
    ]
    overall = looks[0].overall
    return [(f"held-out, {overall.num_prompts} prompts", [_rate(look.overall) for look in looks]), *strata]


def by_difficulty(start: Evaluation) -> list[str]:
    """The strata, those with the lowest pass rate first; of those alike, the one that it is surest of."""
    return sorted(start.strata, key=lambda name: (start.strata[name].estimate or 0.0, start.strata[name].high))


def _audit(results: Sequence[ArmResult]) -> list[Row]:
    rates = [one.audit.pass_rate for one in results]
    return [
        ("audit: uniform draws", [NONE, *(_estimate(one.uniform) for one in rates)]),
        ("  all groups drawn", [NONE, *(_estimate(one.selected) for one in rates)]),
        ("  these, re-weighted", [NONE, *(_estimate(one.reweighted) for one in rates)]),
    ]


def _reached(results: Sequence[ArmResult], marks: Marks | None) -> list[Row]:
    if marks is None:
        return []
    looks = [marks.looks[one.name] for one in results]
    cells = ["not reached" if look is None else f"{look.tokens:,}" for look in looks]
    return [("tokens to match uniform", [NONE, *cells])]


def _number(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else NONE


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if math.isfinite(share) else NONE


def _rate(rate: PassRate | None) -> str:
    return NONE if rate is None else _in_percent(rate.estimate, (rate.low, rate.high))


def _estimate(view: Estimate) -> str:
    return _in_percent(view.estimate, view.interval)


def _in_percent(share: float | None, interval: tuple[float, float] | None) -> str:
    """`31.4 (28–35)`: bounds without decimals, unless both are below 1, so that three of these fit a terminal."""
    if share is None:
        return NONE
    if interval is None:
        return f"{100 * share:.1f}"
    low, high = 100 * interval[0], 100 * interval[1]
    bounds = f"{low:.1f}–{high:.1f}" if high < 1 else f"{low:.0f}–{high:.0f}"
    return f"{100 * share:.1f} ({bounds})"
