"""A report as a document without a form: headings, sentences, tables, pictures. `text` and `page` give it one.

Knows the content's names and the reader, who knows the field and not midband: every word of ours is said in plain ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from api.reporting.audited import audit_sections
from api.reporting.blocks import Block, Picture, Section, Table
from api.reporting.charts import Bars, Series, bar_chart, line_chart
from api.reporting.content import percent, useful_per_hour

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
    return [_answers(found), _summary(found), _selection(found), *audit_sections(found), _quality(found),
            _costs(found), _diagnosis(found), _checklist(found), _words()]  # fmt: skip


def _answers(found: Mapping[str, Any]) -> Section:
    """The three questions of a reader: what was selected, what it cost, whether to believe it."""
    config, work, spent = found["configuration"], found["workload"], found["costs"]["spent"]
    informative = found["costs"]["informative"]
    hours = spent["accelerator_s"]
    cost = f"{spent['tokens']:,} generated tokens in {spent['rollouts']:,} rollouts"
    if hours is not None:
        cost += f" and {hours / 3600:,.4g} accelerator-hours"
    useful = f"{informative['groups']:,} of {informative['judged']:,} judged groups were informative"
    per_group = found["costs"]["per_informative_group"]["tokens"]
    if per_group is not None:
        useful += f", at {per_group:,.0f} tokens each"
    return Section(
        title="In short",
        blocks=[
            f"Selected: {work['train_draws']:,} batches from {work['train_prompts']:,} prompts by the policy "
            f"{config['preset']}; {percent(config['audit_share'])} of each batch was drawn uniformly as a check.",
            f"Cost: {cost}, evaluation left out; {useful}.",
            f"Held-out quality: {_from_to(found['curve'])}.",
            f"Whether the trainer's own curve can be read as quality: {found['quality']['verdict']}.",
            f"Whether it can be read as the pool's: {found['selection']['verdict'] or 'no verdict'}.",
            f"Missing from this report: {'; '.join(found['missing'])}." if found["missing"] else "Nothing is missing.",
        ],
    )


def _summary(found: Mapping[str, Any]) -> Section:
    config, costs, overall = found["configuration"], found["costs"], found["quality"]["overall"]
    per, spent, rate = costs["per_informative_group"], costs["spent"], useful_per_hour(costs)
    memory = max(costs["peak_memory_bytes"].values(), default=None)
    informative = costs["informative"]
    rows = [
        ["policy", f"{config['preset']}, weights {config['weights']}"],
        ["claim when drawn", f"{config['claim']['type']}: {config['claim']['objective']}"],
        ["claim as it went", f"{found['claim_realised']['type']}: {found['claim_realised']['objective']}"],
        ["steps that told costs", f"{costs['steps']:,}"],
        ["generated tokens for training", f"{spent['tokens']:,}"],
        ["rollouts for training", f"{spent['rollouts']:,}"],
        ["accelerator-hours", _hours(spent["accelerator_s"])],
        ["informative groups (the useful outcome)", f"{informative['groups']:,}"],
        ["judged groups (its denominator)", f"{informative['judged']:,} ({percent(informative['share'])} useful)"],
        ["tokens for an informative group", _number(per["tokens"])],
        ["rollouts for an informative group", _number(per["rollouts"])],
        ["informative groups per accelerator-hour", _number(rate)],
        ["held-out pass rate, last look", _rate(overall)],
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
        [words, _estimate(said["pass_rate"][name]), _estimate(said["degenerate"][name])]
        for name, words in (
            ("uniform", "uniform: the pool itself, from the check"),
            ("selected", "selected: what the trainer saw"),
            ("reweighted", "re-weighted: the selected stream with its known chances undone"),
        )
    ]
    blocks.append(Table(header=["stream", "pass rate", "share of groups that teach nothing"], rows=streams))
    blocks += [f"Note: {warning}." for warning in said["warnings"]]
    return Section(title="What was selected", blocks=blocks)


def _quality(found: Mapping[str, Any]) -> Section:
    said, points = found["quality"], found["curve"]
    blocks: list[Block] = [
        "Held-out prompts are drawn uniformly, never trained on, and read by nothing that selects. Intervals are 95 %, "
        "one prompt being one observation, and hold for each look alone. The smoothed curve is the closest one that "
        "never falls.",
        f"Verdict: {said['verdict']}.",
    ]
    if points:
        svg = line_chart(
            Series(
                x=[p["spent"]["tokens"] for p in points],
                y=[p["estimate"] for p in points],
                low=[p["interval"][0] for p in points],
                high=[p["interval"][1] for p in points],
                smoothed=[p["smoothed"] for p in points],
                x_name="tokens generated for training",
                y_name="held-out pass rate",
            )
        )
        blocks.append(Picture(svg=svg, caption="Held-out pass rate against tokens; shaded: 95 % of each look"))
        rows = [
            [str(p["index"]), f"{p['spent']['tokens']:,}", f"{p['spent']['rollouts']:,}",
             _hours(p["spent"]["accelerator_s"]), _rate(p), percent(p["smoothed"]), str(p["prompts"])]
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
            rows = [[key, _rate(value), str(value["prompts"])] for key, value in said[name].items()]
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
             str(gap["windows"]), "enough" if gap["further_looks"] == 0 else _number(gap["further_looks"])]
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
        rows = [[n, f"{s:,.1f}", percent(s / whole)] for n, s in seconds.items()]
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
        "i idle; y is the share of informative groups, G the group size. They do not add up.",
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


def _from_to(points: Sequence[Mapping[str, Any]]) -> str:
    if not points:
        return "missing: nothing was drawn with purpose heldout"
    last = f"pass rate {_rate(points[-1])} at the last look, on {points[-1]['prompts']} prompts"
    return last if len(points) == 1 else f"{last}, from {_rate(points[0])} at the first of {len(points)}"


def _rate(value: Mapping[str, Any] | None) -> str:
    if value is None or value["estimate"] is None:
        return "missing"
    return f"{percent(value['estimate'])} ({percent(value['interval'][0])} to {percent(value['interval'][1])})"


def _estimate(value: Mapping[str, Any]) -> str:
    return _rate(value) if value["estimate"] is not None else "–"


def _seconds(value: float) -> str:
    """Rollouts that do not say what they took add up to nothing."""
    return f"{value:,.1f}" if value else "missing"


def _hours(seconds: float | None) -> str:
    return "missing" if seconds is None else f"{seconds / 3600:,.4g}"


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:,.4g}"
