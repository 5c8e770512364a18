"""A report as a document without a form: headings, sentences, tables, pictures. `text` and `page` give it one.

Knows the content's names and the reader, who knows the field and not midband: every word of ours is said in plain ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from api.reporting.answers import answers
from api.reporting.audited import audit_sections
from api.reporting.blocks import Block, Picture, Section, Table
from api.reporting.charts import Bars, Line, Lines, bar_chart, line_chart
from api.reporting.content import percent, useful_per_hour
from api.reporting.words import estimate, hours, number, rate

STREAMS, STREAM_NAMES = ("uniform", "selected", "reweighted"), ("uniform", "selected", "re-weighted")
SOURCE_WORDS = {
    "train": "groups the policy chose, trained on",
    "audit": "groups drawn uniformly as a check, trained on as well",
    "probe": "groups that only inform the estimates",
    "heldout": "evaluation on held-out prompts; not part of the cost of training",
    "control": "uniform groups for an equal-work arm; not part of the cost of training",
    "rejected": "groups that came late, stale, failed or in surplus",
    "lost": "work that a restart from a checkpoint threw away",
    "replay": "old rollouts read again, as the trainer says",
    "overhead": "anything else, as the trainer says",
}


def title(found: Mapping[str, Any]) -> str:
    return f"What selection did and cost in run {found['run']}"


def sections(found: Mapping[str, Any]) -> list[Section]:
    return [answers(found), _summary(found), _selection(found), *audit_sections(found), _quality(found),
            _costs(found), _diagnosis(found), _checklist(found), _words()]  # fmt: skip


def _summary(found: Mapping[str, Any]) -> Section:
    config, costs, overall = found["configuration"], found["costs"], found["quality"]["overall"]
    per, spent, useful = costs["per_informative_group"], costs["spent"], useful_per_hour(costs)
    memory = max(costs["peak_memory_bytes"].values(), default=None)
    informative = costs["informative"]
    rows = [
        ["policy", f"{config['preset']}, weights {config['weights']}"],
        ["claim when drawn", f"{config['claim']['type']}: {config['claim']['objective']}"],
        ["claim as it went", f"{found['claim_realised']['type']}: {found['claim_realised']['objective']}"],
        ["steps that told costs", f"{costs['steps']:,}"],
        ["generated tokens for training", f"{spent['tokens']:,}"],
        ["rollouts for training", f"{spent['rollouts']:,}"],
        ["accelerator-hours", hours(spent["accelerator_s"])],
        ["informative groups (the useful outcome)", f"{informative['groups']:,}"],
        ["judged groups (its denominator)", f"{informative['judged']:,} ({percent(informative['share'])} useful)"],
        ["tokens for an informative group", number(per["tokens"])],
        ["rollouts for an informative group", number(per["rollouts"])],
        ["informative groups per accelerator-hour", number(useful)],
        ["held-out pass rate, last look", rate(overall)],
        ["peak memory", "missing" if memory is None else f"{memory / 2**30:.2f} GiB"],
        ["spread over seeds", "missing: one run has none"],
    ]
    return Section(title="The configuration", blocks=[Table(header=["", config["preset"]], rows=rows)])


def _selection(found: Mapping[str, Any]) -> Section:
    said = found["selection"]
    blocks: list[Block] = [
        "How often prompts were drawn, relative to uniform draws: 1 is as often, 2 twice as often, 0 never. Difficulty "
        "is the pass rate that was predicted when the batch was drawn.",
    ]
    bins = [(f"{10 * i}–{10 * i + 10} %", ratio) for i, ratio in enumerate(said["difficulty"])]
    known = [(name, ratio) for name, ratio in bins if ratio is not None]
    if known:
        svg = bar_chart(
            Bars(labels=[n for n, _ in known], values=[r for _, r in known], line=1.0, unit="times uniform")
        )
        blocks.append(
            Picture(svg=svg, caption="Draws by predicted pass rate, relative to uniform; the line is uniform")
        )
        blocks.append(Table(header=["predicted pass rate", "times uniform"], rows=[[n, f"{r:.2f}"] for n, r in known]))
    if said["category"]:
        rows = [[name, "–" if ratio is None else f"{ratio:.2f}"] for name, ratio in sorted(said["category"].items())]
        blocks.append(Table(header=["category", "times uniform"], rows=rows))
    streams = [
        [words, estimate(said["pass_rate"][name]), estimate(said["degenerate"][name])]
        for name, words in (
            ("uniform", "uniform: the pool itself, from the check"),
            ("selected", "selected: what the trainer saw"),
            ("reweighted", "re-weighted: the selected stream with its known chances undone"),
        )
    ]
    if said["draws"] is not None:
        first, last = said["draws"]
        blocks.append(
            f"The streams below are means over batches {first} to {last}, while the policy changed: what a prompt of "
            "the pool, or of the selection, passed on average through all of them, and not at their end."
        )
    blocks.append(Table(header=["stream", "pass rate", "share of groups that teach nothing"], rows=streams))
    blocks += _through_the_run(said["blocks"])
    blocks += [f"Note: {warning}." for warning in said["warnings"]]
    return Section(title="What was selected", blocks=blocks)


def _through_the_run(found: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The streams by blocks of batches, where there is more than one."""
    if len(found) < 2:
        return []
    rows = [
        [f"{one['draws'][0]} to {one['draws'][1]}", *(estimate(one["pass_rate"][name]) for name in STREAMS)]
        for one in found
    ]
    table = Table(header=["batches", *STREAM_NAMES], rows=rows)
    lines = []
    for stream, name in zip(STREAMS, STREAM_NAMES, strict=True):
        known = [(one["draws"][1], one["pass_rate"][stream]["estimate"]) for one in found]
        known = [(x, y) for x, y in known if y is not None]
        if known:
            lines.append(Line(name=name, x=[x for x, _ in known], y=[y for _, y in known], is_shown_by_points=True))
    svg = line_chart(Lines(lines=lines, x_name="last batch of the block", y_name="pass rate"))
    return [
        Picture(svg=svg, caption="Pass rate of each stream by block of batches: the selected one is not the pool's"),
        table,
        "The blocks are fixed before a run begins; their intervals hold together, and each is wider for it.",
    ]


def _quality(found: Mapping[str, Any]) -> Section:
    said, points = found["quality"], found["curve"]
    blocks: list[Block] = [
        "Held-out prompts are drawn uniformly, never trained on, and read by nothing that selects. Intervals are 95 %, "
        "one prompt being one observation, and hold for each look alone. The smoothed curve is the closest one that "
        "never falls.",
        f"Verdict: {said['verdict']}.",
    ]
    if points:
        x = [p["spent"]["tokens"] for p in points]
        looks = Line(
            name="each look, with 95 %",
            x=x,
            y=[p["estimate"] for p in points],
            low=[p["interval"][0] for p in points],
            high=[p["interval"][1] for p in points],
            is_shown_by_points=True,
        )
        smoothed = Line(name="smoothed, never falling", x=x, y=[p["smoothed"] for p in points])
        x_name, y_name = "tokens generated for training", "held-out pass rate"
        svg = line_chart(Lines(lines=[looks, smoothed], x_name=x_name, y_name=y_name))
        blocks.append(Picture(svg=svg, caption="Held-out pass rate against tokens; shaded: 95 % of each look"))
        rows = [
            [str(p["index"]), f"{p['spent']['tokens']:,}", f"{p['spent']['rollouts']:,}",
             hours(p["spent"]["accelerator_s"]), rate(p), percent(p["smoothed"]), str(p["prompts"])]
            for p in points
        ]  # fmt: skip
        header = [
            "look",
            "tokens before",
            "rollouts before",
            "accelerator-hours before",
            "pass rate",
            "smoothed",
            "prompts",
        ]
        blocks.append(Table(header=header, rows=rows))
    for name, words in (("category", "category"), ("stratum", "share passed at the first look")):
        if said[name]:
            rows = [[key, rate(value), str(value["prompts"])] for key, value in said[name].items()]
            blocks.append(Table(header=[words, "pass rate, last look", "prompts"], rows=rows))
    tail = said["tail"]
    if tail is not None and tail["low"] is not None:
        upper = "unknown, as groups have one rollout" if tail["high"] is None else percent(tail["high"])
        blocks.append(
            f"The hardest {percent(tail['share'])} of the held-out prompts pass {percent(tail['low'])} to {upper} "
            "of the time (in expectation: the first counts bad luck as hardness, the second ranks by other rollouts)."
        )
    gaps = [gap for gap in said["gaps"] if gap["estimate"] is not None]
    if gaps:
        rows = [
            [gap["where"], f"{gap['estimate']:+.3f} ({gap['interval'][0]:+.3f} to {gap['interval'][1]:+.3f})",
             str(gap["windows"]), "enough" if gap["further_looks"] == 0 else number(gap["further_looks"])]
            for gap in gaps
        ]  # fmt: skip
        header = ["where", "selected stream minus held-out", "stretches between looks", "further looks to settle 0.05"]
        blocks.append(Table(header=header, rows=rows))
        blocks.append("These intervals hold together, and however often one looks.")
    blocks += [f"Note: {warning}." for warning in found["quality_warnings"]]
    return Section(title="Held-out quality, and whether selection biases it", blocks=blocks)


def _costs(found: Mapping[str, Any]) -> Section:
    costs = found["costs"]
    used = [(n, c) for n, c in costs["tokens"].items() if c or costs["rollouts"][n]]
    total = sum(costs["tokens"].values())
    rows = [
        [
            n,
            SOURCE_WORDS.get(n, ""),
            f"{c:,}",
            percent(c / total if total else None),
            f"{costs['rollouts'][n]:,}",
            _seconds(costs["rollout_seconds"][n]),
        ]
        for n, c in used
    ]
    rows.append(
        [
            "all",
            "",
            f"{total:,}",
            percent(1.0 if total else None),
            f"{sum(costs['rollouts'].values()):,}",
            _seconds(sum(costs["rollout_seconds"].values())),
        ]
    )
    blocks: list[Block] = [
        Table(header=["source", "what it is", "tokens", "share", "rollouts", "rollouts' own seconds"], rows=rows)
    ]
    if total:
        svg = bar_chart(
            Bars(labels=[n for n, _ in used], values=[100 * c / total for _, c in used], unit="% of all tokens")
        )
        blocks.append(Picture(svg=svg, caption="Where the generated tokens went"))
    seconds = {n: s for n, s in costs["seconds"].items() if s > 0}
    if seconds:
        whole = sum(seconds.values())
        rows = [[n.replace("_", " "), f"{s:,.1f}", percent(s / whole)] for n, s in seconds.items()]
        blocks.append(Table(header=["phase", "seconds", "share"], rows=[*rows, ["all", f"{whole:,.1f}", "100.0 %"]]))
        parts = [[n, f"{s:,.1f}"] for n, s in costs["environment_seconds"].items()]
        if parts:
            blocks.append(Table(header=["environment", "seconds"], rows=parts))
    else:
        blocks.append("No step told its seconds.")
    return Section(title="What it cost", blocks=blocks)


def _diagnosis(found: Mapping[str, Any]) -> Section:
    said = found["diagnosis"]
    rows = [
        [r["remedy"], "missing" if r["saving"] is None else percent(r["saving"]), r["formula"], r["note"]]
        for r in said["remedies"]
    ]
    known = [(r["remedy"], r["saving"]) for r in said["remedies"] if r["saving"] is not None]
    blocks: list[Block] = [
        f"{said['statement'][0].upper()}{said['statement'][1:]}.",
        "Upper bounds, as shares of all seconds T: g generation, c scoring, e environment, u update, w weight sync, "
        "i idle; y is the share of informative groups, n the rollouts of a group. They do not add up.",
    ]
    if known:
        svg = bar_chart(Bars(labels=[n for n, _ in known], values=[100 * s for _, s in known], unit="% of all seconds"))
        blocks.append(Picture(svg=svg, caption="The most that each remedy could save"))
    blocks.append(Table(header=["remedy", "saves at most", "formula", "what it assumes"], rows=rows))
    blocks += [f"Not known: {part}." for part in said["missing"]]
    return Section(title="What holds the run back", blocks=blocks)


def _checklist(found: Mapping[str, Any]) -> Section:
    rows = [[i["item"], i["value"] or "missing", i["missing"] or ""] for i in found["checklist"]]
    return Section(
        title="The minimum that a figure of cost comes with",
        blocks=[Table(header=["item", "here", "what is missing, and how to give it"], rows=rows)],
    )


def _words() -> Section:
    return Section(
        title="Words",
        blocks=[
            "Group: all rollouts of one prompt in one batch. Informative: its rewards differ, so a group-relative "
            "update learns from it. Look: one uniform draw of held-out prompts. Pool: the prompts to be trained on.",
            "Claim: what the objective of training is, given how prompts were drawn and weighted. exact: uniform; "
            "unbiased: uniform in expectation once weights are applied; modified: another objective, named; empirical: "
            "nothing provable.",
        ],
    )


def _seconds(value: float) -> str:
    """Rollouts that do not say what they took add up to nothing."""
    return f"{value:,.1f}" if value else "missing"
