"""The audit's part of a report: did draws keep to their chances, who was drawn and came back, how good were beliefs.

`sections` puts it after what was selected. Knows the content's names and the reader, as `sections` does.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from api.reporting.blocks import Block, Picture, Section, Table
from api.reporting.charts import Line, Lines, line_chart
from api.reporting.content import percent
from api.reporting.words import QUANTITY_WORDS, between, counted, number

MOST_ROWS = 12  # of one table


def audit_sections(found: Mapping[str, Any]) -> list[Section]:
    said = found["selection"]
    return [_chances(said), _exposure(said, found["configuration"]["weights"]), _way(said), _beliefs(said)]


def _chances(said: Mapping[str, Any]) -> Section:
    blocks: list[Block] = [
        "Every ticket was drawn with a chance that was recorded. If the record is right and what came back is not "
        "picked by its outcome, the re-weighted stream and the uniform one agree in expectation, in every draw and "
        "however the policy moves; the numbers below bet against that. “Found” is wrong with the stated error at most.",
    ]
    shown = [c for c in said["contrasts"] if c["where"] == "overall" or c["detected"]]
    if shown:
        rows = [
            [c["where"], QUANTITY_WORDS[c["quantity"]], between(c["estimate"], c["interval"]),
             "found" + (f", at draw {c['detected_at']}" if c["detected_at"] is not None else "") if c["detected"]
             else "not found", f"{c['alpha']:.3g}"]
            for c in shown[:MOST_ROWS]
        ]  # fmt: skip
        header = ["where", "quantity", "re-weighted minus uniform", "a contradiction", "error at most"]
        blocks.append(Table(header=header, rows=rows))
        quiet = len(said["contrasts"]) - len(shown)
        if quiet:
            blocks.append(
                f"{quiet} further parts of the pool were looked at in the same way; nothing was found in them."
            )
    else:
        blocks.append("Not looked at: it takes draws with audit tickets and others that came back, in a full feed.")
    shift = said["shift"]["pass_rate"]
    rows = [
        [words, between(shift[name]["estimate"], shift[name]["interval"])]
        for name, words in (("against_uniform", "the uniform tickets"), ("against_reweighted", "the re-weighted ones"))
        if shift[name]["estimate"] is not None
    ]
    if rows:
        blocks.append(Table(header=["selected stream minus pool, by", "pass rate"], rows=rows))
    return Section(title="Whether the draws kept to their chances", blocks=blocks)


def _exposure(said: Mapping[str, Any], weights: str) -> Section:
    cover = said["coverage"]
    weighted = (
        "weighted gradient" if weights == "horvitz_thompson" else "gradient, were weights used to make it the pool's"
    )
    moment = said["second_moment"]
    rows = [
        ["prompts that may be drawn", f"{cover['prompts']:,}"],
        ["of them never drawn so far", f"{cover['never_drawn']:,}"],
        ["of them with a group that came back", f"{cover['with_groups']:,}"],
        ["longest wait now, in batches", f"{cover['longest_wait']:,}"],
        ["longest gap between two draws of a prompt", f"{cover['longest_gap']:,}"],
        ["mastered now; mastered before and back at work", f"{cover['mastered']:,}; {cover['regressed']:,}"],
        ["effective sample size of the weights", f"{said['effective_sample_size']:,.0f}"],
        ["largest weight", f"{said['largest_weight']:.3g}"],
        [
            f"second moment of the {weighted}, as predicted, uniform being 1",
            "–" if moment is None else f"{moment:.3g}",
        ],
        ["judged groups for each informative one", number(said["inverse_yield"])],
    ]
    blocks: list[Block] = [Table(header=["", "here"], rows=rows)]
    curve = said["induced_weight"]
    if curve:
        rows = [
            [
                f"{percent(p['low'])} to {percent(p['high'])}",
                f"{p['chance']:.2f}",
                number(p["weight"]),
                f"{p['tickets']:,}",
            ]
            for p in curve
        ]
        header = ["predicted pass rate", "chance, uniform being 1", "what it counts for, weights included", "tickets"]
        blocks += ["What a prompt counts for by its predicted pass rate, from the chances of the draws themselves.",
                   Table(header=header, rows=rows)]  # fmt: skip
    for name, ratios in [("expected tokens", said["length"]), *said["features"].items()]:
        if ratios:
            rows = [
                [f"{r['low']:.4g} to {r['high']:.4g}", percent(r["pool"]), percent(r["selected"]), f"{r['ratio']:.2f}"]
                for r in ratios
            ]
            blocks.append(Table(header=[name, "of the pool", "of the tickets", "times uniform"], rows=rows))
    return Section(title="Who was drawn, and what they count for", blocks=blocks)


def _way(said: Mapping[str, Any]) -> Section:
    blocks: list[Block] = [
        "From what was drawn to what came back and what was trained on. “Too low, too high”: how far what never came "
        "back may bias the kind's pass rate at most, weighted as drawn.",
    ]
    for name, kinds in said["mix"].items():
        if len(kinds) > 1:
            rows = [
                [k["kind"], counted(k["issued"], k["issued_share"]), counted(k["reported"], k["reported_share"]),
                 "not told" if k["trained"] is None else counted(k["trained"], k["trained_share"]), _void(k["void"])]
                for k in _largest(kinds, "issued")
            ]  # fmt: skip
            blocks.append(Table(header=[name, "drawn", "came back", "trained on", "void"], rows=rows))
    blocks += _quotas(said["quotas"])
    for name, kinds in said["response"].items():
        rows = [
            [k["kind"], f"{k['came_back']:,} of {k['ended']:,} ({percent(k['share'])})",
             f"{k['too_low']:.3f}, {k['too_high']:.3f}"]
            for k in _largest(kinds, "ended")
            if name == "purpose" or k["share"] < 1
        ]  # fmt: skip
        if rows:
            blocks.append(Table(header=[name, "came back", "too low, too high"], rows=rows))
    stuck = said["never_back"]
    if stuck["prompts"]:
        rows = [[one["prompt"], f"{one['tickets']:,}", f"{one['tokens']:,}"] for one in stuck["listed"]]
        blocks.append(Table(header=["prompt that never came back in time", "tickets", "tokens paid"], rows=rows))
    return Section(title="What became of it", blocks=blocks)


def _quotas(said: Mapping[str, Any] | None) -> list[Block]:
    if said is None:
        return []
    rows = [
        [
            one["category"],
            percent(one["quota"]),
            counted(one["issued"], one["issued_share"]),
            counted(one["trained"], one["trained_share"]),
            {True: "yes", False: "no", None: "not known yet"}[one["held"]],
            one["reason"] or "–",
        ]
        for one in said["categories"]
    ]
    return [
        f"Quotas are shares of what is trained on ({said['counted']}), held within {percent(said['tolerance'])}: "
        "prompts are drawn as often as it takes.",
        Table(header=["Quotas: category", "asked for", "drawn", "trained on", "held", "why not"], rows=rows),
    ]


def _beliefs(said: Mapping[str, Any]) -> Section:
    found = said["calibration"]
    rows = [
        [label, f"{s['groups']:,}", percent(s["predicted"]), percent(s["observed"]),
         percent(s["informative_predicted"]), percent(s["informative_observed"]),
         number(s["brier"]), number(s["log_loss"]), percent(s["central"])]
        for label, s in _scores(found)
        if s["groups"]
    ]  # fmt: skip
    if not rows:
        return Section(title="How good the predictions were", blocks=["No whole group has come back yet."])
    header = ["groups", "how many", "pass rate predicted", "seen", "informative predicted", "seen", "Brier", "log loss",
              "within the central 90 %"]  # fmt: skip
    blocks: list[Block] = [
        "Each group against the prediction that was stored when it was drawn. Lag: versions of the policy since the "
        "prompt's own newest group. Of good predictions 90 % of the groups are within the central 90 %; Brier and log "
        "loss are lower where they are better.",
    ]
    lines = [
        Line(
            name=name,
            x=[100 * one["predicted"] for one in found[key]],
            y=[one["observed"] for one in found[key]],
            is_shown_by_points=True,
        )
        for key, name in (("pass_rate", "pass rate"), ("informative", "informative"))
        if found[key]
    ]
    right = Line(name="as predicted", x=[0.0, 100.0], y=[0.0, 1.0])
    svg = line_chart(Lines(lines=[*lines, right], x_name="predicted, %", y_name="seen", from_zero=True))
    caption = "What was predicted and what came, in ten bins: on the dotted line predictions are right on average"
    return Section(
        title="How good the predictions were",
        blocks=[*blocks, Picture(svg=svg, caption=caption), Table(header=header, rows=rows)],
    )


def _scores(found: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        ("all", found["overall"]),
        *[(f"purpose {name}", value) for name, value in found["by_purpose"].items()],
        *[(f"lag {name}", value) for name, value in found["by_lag"].items()],
        *[(f"evidence: {name}", value) for name, value in found["by_evidence"].items()],
    ]


def _largest(kinds: Sequence[Mapping[str, Any]], by: str) -> list[Mapping[str, Any]]:
    """Not more than fit a table, in the order in which they came."""
    kept = sorted(range(len(kinds)), key=lambda place: -kinds[place][by])[:MOST_ROWS]
    return [kinds[place] for place in sorted(kept)]


def _void(void: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in void.items()) or "–"
