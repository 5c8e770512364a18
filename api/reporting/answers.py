"""The first part of a report: what was selected, what it cost, what it bought, whether to believe it.

`sections` puts it before everything else. Knows the content's names and the reader, as `sections` does.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from api.reporting.blocks import Section
from api.reporting.content import percent
from api.reporting.words import QUANTITY_WORDS, between, rate
from selector.claims import ClaimType

NO_VERDICT = "no verdict"
UNIFORM = ClaimType.EXACT.value  # which uniform draws alone have


def answers(found: Mapping[str, Any]) -> Section:
    said = found["selection"]
    blocks = [
        f"Selected: {_selected(found)}",
        f"Cost: {_cost(found)}",
        f"Held-out quality: {_from_to(found['curve'])}.",
        f"Bought: {_bought(found)}",
        f"Whether the trainer's own curve can be read as quality: {found['quality']['verdict']}.",
        f"Whether it can be read as the pool's: {_verdict(said)}.",
        f"Whether to believe the numbers: {'; '.join(_believable(said))}.",
        f"Missing from this report: {'; '.join(found['missing'])}." if found["missing"] else "Nothing is missing.",
    ]
    return Section(title="In short", blocks=blocks)


def _selected(found: Mapping[str, Any]) -> str:
    config, work, said = found["configuration"], found["workload"], found["selection"]
    words = (
        f"{work['train_draws']:,} batches from {work['train_prompts']:,} prompts by the policy {config['preset']}; "
        f"{percent(config['audit_share'])} of each batch was drawn uniformly as a check."
    )
    if config["claim"]["type"] == UNIFORM:
        return f"{words} All prompts were drawn alike."
    known = [(ratio, 10 * place) for place, ratio in enumerate(said["difficulty"]) if ratio is not None]
    if len(known) > 1:
        (least, least_at), (most, most_at) = min(known), max(known)
        words += (
            f" By the pass rate predicted at the draw, prompts at {most_at} to {most_at + 10} % were drawn most, "
            f"{most:.2g} times as often as by uniform draws, and those at {least_at} to {least_at + 10} % least, "
            f"{least:.2g} times."
        )
    return words


def _cost(found: Mapping[str, Any]) -> str:
    costs = found["costs"]
    spent, informative, hours = costs["spent"], costs["informative"], costs["spent"]["accelerator_s"]
    words = f"{spent['tokens']:,} generated tokens in {spent['rollouts']:,} rollouts"
    if hours is not None:
        words += f" and {hours / 3600:,.4g} accelerator-hours"
    words += (
        f", evaluation left out; {informative['groups']:,} of {informative['judged']:,} judged groups were informative"
    )
    per_group = costs["per_informative_group"]["tokens"]
    return words + (f", at {per_group:,.0f} tokens each." if per_group is not None else ".")


def _from_to(points: Sequence[Mapping[str, Any]]) -> str:
    if not points:
        return "missing: nothing was drawn with purpose heldout"
    last = f"pass rate {rate(points[-1])} at the last look, on {points[-1]['prompts']} prompts"
    return last if len(points) == 1 else f"{last}, from {rate(points[0])} at the first of {len(points)}"


def _bought(found: Mapping[str, Any]) -> str:
    """Informative shares of selected and of uniform groups, under the same policies: what selection was worth."""
    if found["configuration"]["claim"]["type"] == UNIFORM:
        return "nothing, as the run draws uniformly: it is what others are compared with."
    said = found["selection"]
    uniform, selected = said["degenerate"]["uniform"], said["degenerate"]["selected"]
    if uniform["estimate"] is None or selected["estimate"] is None:
        return "not known: it takes uniformly drawn groups beside selected ones that came back whole."
    useful, chosen = 1 - uniform["estimate"], 1 - selected["estimate"]
    low, high = 1 - uniform["interval"][1], 1 - uniform["interval"][0]
    words = (
        f"{percent(chosen)} of the groups in the selected stream were informative, and {percent(useful)} "
        f"({percent(low)} to {percent(high)}) of groups drawn uniformly from the same pool under the same policies"
    )
    if not useful or not low:
        return f"{words}."
    return (
        f"{words}: uniform draws take {chosen / useful:.2f} ({chosen / high:.2f} to {chosen / low:.2f}) times the "
        "groups for each informative one. Whether that made a better model is for runs to say that are compared."
    )


def _verdict(said: Mapping[str, Any]) -> str:
    """The verdict, or why there is none."""
    if said["verdict"]:
        return str(said["verdict"])
    why = [warning for warning in said["warnings"] if warning.startswith(NO_VERDICT)]
    return "; ".join(why) or NO_VERDICT


def _believable(said: Mapping[str, Any]) -> Iterator[str]:
    alarms = [c for c in said["contrasts"] if c["detected"]]
    if alarms:
        where = ", ".join(
            f"{QUANTITY_WORDS[c['quantity']]} {c['where']} by {between(c['estimate'], c['interval'])}" for c in alarms
        )
        yield f"no: the draws contradict the chances recorded for them ({where})"
    elif said["contrasts"]:
        yield "nothing contradicts the chances recorded for the draws"
    else:
        yield "whether the draws kept to their chances could not be looked at"
    kinds = said["response"]["purpose"]
    ended, back = sum(kind["ended"] for kind in kinds), sum(kind["came_back"] for kind in kinds)
    if ended:
        yield (
            f"{percent(1 - back / ended)} of the tickets that ended brought no score"
            if back < ended
            else "every ticket that ended brought a score"
        )
    overall = said["calibration"]["overall"]
    if overall["central"] is not None:
        error = "" if overall["central_error"] is None else f" ± {percent(2 * overall['central_error'])}"
        yield f"{percent(overall['central'])}{error} of the groups came within the central 90 % of what was predicted"
