"""`midband audit`, `compare` and `report`: what the service says of runs, for a person at a terminal.

The `midband` module hands them a client. They compute nothing: the service does, and these lay it out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from api.schemas import AuditInfo, ComparisonInfo, Estimate
from trainer.client import Client
from trainer.errors import InvalidRequest

NONE = "–"
UNIT_WORDS = {
    "tokens": "tokens",
    "rollouts": "rollouts",
    "accelerator_s": "accelerator-seconds",
    "energy_j": "joules",
}
QUANTITY_WORDS = {"pass_rate": "pass rate", "degenerate": "groups that teach nothing"}
STREAMS = (
    "uniform: the pool, from the uniform check; selected: what the trainer saw; reweighted: the selected stream with "
    "its known chances undone. Means over all draws, not of their end."
)
ReportFormat = Literal["md", "json", "html"]


def audit_command(client: Client, run: str, *, console: Console | None = None) -> AuditInfo:
    """The three streams of the audit, the claim, and the verdict."""
    console, found = console or Console(), client.audit(run)
    view = Table(title=f"Audit of {run}, {100 * found.level:g} % intervals", title_justify="left")
    for name in ("stream", "pass rate", "groups that teach nothing"):
        view.add_column(name, justify="left" if name == "stream" else "right")
    for name in ("uniform", "selected", "reweighted"):
        view.add_row(name, _estimate(getattr(found.pass_rate, name)), _estimate(getattr(found.degenerate, name)))
    view.caption = (
        f"{STREAMS} Means over draws {found.draws[0]} to {found.draws[1]}, not of their end."
        if found.draws
        else STREAMS
    )
    view.caption_justify = "left"
    console.print(view)
    lines = [
        f"claim when drawn: {found.claim.type}, {found.claim.objective}",
        f"claim as it went: {found.claim_realised.type}, {found.claim_realised.objective}",
        *(f"  {condition}" for condition in found.claim_realised.conditions),
        *_counted(found),
        *_quotas(found),
        f"verdict: {found.verdict or 'not given; the notes say why'}",
        *(f"note: {warning}" for warning in found.warnings),
    ]
    console.print("\n".join(lines), markup=False, soft_wrap=True)
    return found


def _quotas(found: AuditInfo) -> list[str]:
    """Of each category with a quota what was asked for, drawn and trained on."""
    if found.quotas is None:
        return []
    return [
        f"quota of {one.category}: {one.quota:.1%} asked for, {_share(one.issued_share)} drawn, "
        f"{_share(one.trained_share)} trained on" + (f"; {one.reason}" if one.reason else "")
        for one in found.quotas.categories
    ]


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"


def _counted(found: AuditInfo) -> list[str]:
    """In a line each what the audit counts; the report has the tables."""
    lines = []
    if found.draws is not None:
        lines.append(f"draws {found.draws[0]} to {found.draws[1]}: {found.speaks_of}")
    for quantity, shift in found.shift.items():
        lines.append(f"selected minus pool, {QUANTITY_WORDS[quantity]}: {_estimate(shift.against_uniform)}")
    for contrast in found.contrasts:
        if contrast.where == "overall" or contrast.detected:
            said = "found to contradict" if contrast.detected else "no contradiction found"
            low, high = contrast.interval
            lines.append(
                f"re-weighted minus uniform, {QUANTITY_WORDS[contrast.quantity]}, {contrast.where}: "
                f"{contrast.estimate:.3f} ({low:.3f} to {high:.3f}), {said}"
            )
    cover = found.coverage
    if cover is not None:
        lines.append(
            f"coverage: {cover['drawn']} of {cover['prompts']} prompts drawn, longest wait {cover['longest_wait']} "
            f"draws; {cover['mastered']} mastered, {cover['regressed']} back at work after that"
        )
    if found.second_moment is not None:
        lines.append(
            f"second moment of the gradient with weights that make it the pool's: {found.second_moment:.3g}, uniform "
            "being 1"
        )
    if found.inverse_yield is not None:
        lines.append(f"judged groups for each informative one: {found.inverse_yield:.3g}")
    return lines


def report_command(
    client: Client, run: str, *, format: ReportFormat, out: Path | None, console: Console | None = None
) -> str:
    """The report as text, to a file or to the console; a file's ending must not say another format."""
    text = client.report_text(run, format=format)
    if out is None:
        (console or Console()).out(text, highlight=False, end="")
        return text
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    (console or Console()).print(f"report  {out}", markup=False, soft_wrap=True)
    return text


def compare_command(
    client: Client,
    arms: Sequence[str],
    *,
    target: float,
    controls: Sequence[str] = (),
    unit: str = "tokens",
    console: Console | None = None,
) -> ComparisonInfo:
    """Compares configurations, each written as `name=run,run,...` or `run,run,...`; the first is the baseline.

    controls: equal-work runs, as `name=run,run,...` with a configuration's name.
    """
    console = console or Console()
    named = [_arm(text) for text in arms]
    beside = dict(_arm(text) for text in controls)
    strange = sorted(set(beside) - {name for name, _ in named})
    if strange:
        raise InvalidRequest(f"controls {', '.join(strange)}: no configuration has that name; write name=run,run")
    found = client.compare(
        [runs for _, runs in named],
        target=target,
        names=[name for name, _ in named],
        controls=[beside.get(name, []) for name, _ in named] if beside else None,
        unit=unit,
    )
    console.print(_table(found))
    for contrast in found.contrasts:
        console.print(_contrast(contrast), markup=False, soft_wrap=True)
    console.print(f"Never reached: {found.never_reached}.", markup=False, soft_wrap=True)
    for warning in found.warnings:
        console.print(f"Note: {warning}.", markup=False, soft_wrap=True)
    return found


def _table(found: ComparisonInfo) -> Table:
    unit, target = UNIT_WORDS[found.unit], float(str(found.quality["target"]))
    cost = "" if found.matched_cost is None else f" {found.matched_cost:,.0f} {unit}"
    view = Table(
        title=f"Held-out pass rate of {target:.3g}, in {unit}",
        caption=f"Quality is the mean over seeds at the last look within{cost}, the least that any run spent; in "
        "brackets its standard deviation over seeds.",
        title_justify="left",
        caption_justify="left",
    )
    for name in ("configuration", "seeds", "reached", f"median {unit}", "per informative group", "quality"):
        view.add_column(name, justify="left" if name == "configuration" else "right")
    for arm in found.configurations:
        view.add_row(
            str(arm["name"]),
            str(arm["seeds"]),
            f"{arm['reached']} of {arm['seeds']}",
            _number(arm["median_cost"], "half never"),
            _range([run["per_informative_group"][found.unit] for run in _runs(arm)]),
            f"{_number(arm['matched_quality'])} ({_number(arm['spread'])})",
        )
    return view


def _contrast(contrast: Mapping[str, Any]) -> str:
    parts = [f"{contrast['arm']} against {contrast['against']}: {contrast['statement']}"]
    for name, words in (("quality", "difference in quality"), ("cost_ratio", "ratio of costs")):
        value = contrast[name]
        if value["estimate"] is not None:
            ends = value["interval"]
            shown = f" ({ends[0]:.3g} to {ends[1]:.3g})" if ends else ", too few pairs for an interval"
            parts.append(f"{words} {value['estimate']:.3g}{shown}")
    return "; ".join(parts) + "."


def _arm(text: str) -> tuple[str, list[str]]:
    name, _, listed = text.rpartition("=")
    runs = [run for run in listed.split(",") if run]
    if not runs:
        raise InvalidRequest(f"{text!r} names no run: write run,run,... or name=run,run,...")
    return name or listed, runs


def _runs(arm: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    runs: list[Mapping[str, Any]] = arm["runs"]
    return runs


def _range(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return NONE
    low, high = min(known), max(known)
    return _number(low) if low == high else f"{_number(low)} to {_number(high)}"


def _number(value: object, missing: str = NONE) -> str:
    """Four digits that count, and whole numbers from a thousand on."""
    if value is None:
        return missing
    known = float(str(value))
    return f"{known:,.0f}" if abs(known) >= 1000 else f"{known:.4g}"


def _estimate(value: Estimate) -> str:
    if value.estimate is None or value.interval is None:
        return NONE
    return f"{value.estimate:.3f} ({value.interval[0]:.3f} to {value.interval[1]:.3f})"
