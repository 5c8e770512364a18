"""From a run's batches and tickets to the audit: which draws it speaks of, and what each left behind.

`api` calls `audit_run`. The window is the current configuration's segment of surviving train draws, up to the first
whose tickets have not all ended: to skip a slow draw would select draws by their outcome.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from selector.audit.estimates import audit
from selector.audit.values import Audit, Block, Estimate, Shift
from selector.batches.drawing import claim_of, difficulty_bins
from selector.batches.observations import DrawRecord
from selector.claims import Claim, ClaimType
from selector.groups.standing import fixed_counts
from selector.run.state import DrawnBatch, RunState
from selector.types import Purpose, TicketState

LEVEL = 0.95


def audit_run(state: RunState, level: float = LEVEL) -> Audit:
    """The audit of the run's current segment."""
    batches = _window(state)
    last, first = (batches[-1].event, batches[0].event) if batches else (None, None)
    open_credit = last.open_credit if last else [0.0, 0.0, 0.0]
    carried = first.carried_credit if first else [0.0, 0.0, 0.0]
    left_out = sum(b.event.claim["type"] == ClaimType.EMPIRICAL and not b.event.num_audit for b in batches)
    in_waves = any(batch.event.wave is not None for batch in batches)
    varying = any(batch.event.group_size_K is not None for batch in batches)
    rewarded = sum(int(np.count_nonzero(state.book.tickets["rewarded"][_span(batch)])) for batch in batches)
    begun = any(batch.event.priors for batch in batches)
    found = audit(
        [_record(state, batch) for batch in batches],
        level=level,
        categories=state.pool.categories,
        audit_share=state.config.audit_share,
        informative_only=state.config.feed == "informative_only",
        same_groups=not in_waves and not varying and not begun,
        known_chances=not left_out,
        by_rewards=rewarded > 0,
        open_credit=open_credit[0],
        open_credit_predicted_pass=open_credit[1],
        open_credit_predicted_degenerate=open_credit[2],
        carried_credit=carried[0],
        carried_credit_predicted_pass=carried[1],
        carried_credit_predicted_degenerate=carried[2],
    )
    if in_waves:
        found = _without(
            found,
            ("degenerate",),
            ("selected", "reweighted"),
            "groups are stopped by their outcomes: pass rates are those of first waves, and the degenerate share is "
            "the audit's alone",
        )
    if varying:
        size = batches[0].event.group_size
        found = _without(
            found,
            ("degenerate",),
            ("reweighted",),
            f"train tickets vary in their rollouts: only audit tickets tell of groups of {size}",
        )
    if rewarded:
        found = _without(
            found,
            ("pass_rate",),
            ("uniform", "selected", "reweighted"),
            f"{rewarded} groups have rewards and no outcome: nothing is said of pass rates, and there is no verdict",
        )
        found = replace(found, finding=None, verdict=None)
    if begun:
        found = _without(
            found,
            ("degenerate",),
            ("selected", "reweighted"),
            "groups begin with rollouts of probes: pass rates are those of their new rollouts, and the degenerate "
            "share is the audit's alone",
        )
    if left_out:
        found = _without(
            found,
            ("pass_rate", "degenerate"),
            ("reweighted",),
            f"{left_out} draws without floor and audit gave some prompts no chance: nothing can be re-weighted",
        )
    return found


def _without(found: Audit, quantities: tuple[str, ...], streams: tuple[str, ...], why: str) -> Audit:
    """Without what cannot be said, in the whole window and in its blocks: these streams of these quantities."""
    nothing = Estimate(estimate=None, interval=None)

    def cleared(part: Audit | Block) -> dict[str, Any]:
        return {name: replace(getattr(part, name), **dict.fromkeys(streams, nothing)) for name in quantities}

    shifts = dict[str, Any]()
    for name in quantities:
        shift: Shift = getattr(found, f"{name}_shift")
        gone = ("against_uniform", "against_reweighted") if "selected" in streams else ("against_reweighted",)
        shifts[f"{name}_shift"] = replace(shift, **dict.fromkeys(gone, nothing))
    blocks = tuple(replace(block, **cleared(block)) for block in found.blocks)
    return replace(found, blocks=blocks, warnings=(*found.warnings, why), **cleared(found), **shifts)


def claim_realised(state: RunState, found: Audit) -> Claim:
    """What is left of the run's claim given how the draws went and what the trainer said of its weights."""
    claim = claim_of(state.config)
    reasons = list(found.claim_reasons)
    applied = [step["weights_applied"] for step in state.steps.values() if step["seq"] > state.segment_start]
    if state.config.weights != "none" and claim.type is ClaimType.UNBIASED and not (applied and all(applied)):
        said = "steps report that weights were not applied" if False in applied else "no step reports weights_applied"
        reasons.append(said)
    if not reasons or claim.type in (ClaimType.MODIFIED, ClaimType.EMPIRICAL):
        return claim
    return replace(claim, type=ClaimType.MODIFIED, conditions=(*claim.conditions, *reasons))


def _window(state: RunState) -> list[DrawnBatch]:
    """Surviving train draws of the segment that handed something out, in order of the log, up to the first
    unfinished.
    """
    window = []
    ticket_state = state.book.tickets["state"]
    for batch in state.batches:
        event = batch.event
        if not batch.alive or event.purpose != Purpose.TRAIN or batch.seq < state.segment_start or not len(event.row_K):
            continue
        if (ticket_state[batch.first_ticket : batch.first_ticket + len(event.row_K)] == TicketState.OPEN).any():
            break
        window.append(batch)
    return window


def _record(state: RunState, batch: DrawnBatch) -> DrawRecord:
    event, table = batch.event, state.book.tickets
    span = _span(batch)
    back = table["state"][span] == TicketState.REPORTED
    passes_K, scored_K = fixed_counts(state, batch.tickets)
    nothing: list[float] = [0.0, 0.0]
    ranges: dict[str, Any] = {name: tuple(event.ranges.get(name, nothing)) for name in _RANGES}
    counts = {int(code): count for code, count in event.pool_category.items() if int(code) >= 0}
    category_C = np.zeros(len(state.pool.categories), np.int64)
    category_C[list(counts)] = list(counts.values())
    return DrawRecord(
        index=event.index,
        num_tickets=len(event.row_K),
        num_audit=event.num_audit,
        frame=event.frame,
        eligible=event.eligible,
        weight_K=event.ht_weight_K,
        credit_K=event.credit_K,
        audit_K=event.audit_K,
        predicted_pass_K=event.pass_rate_K,
        predicted_degenerate_K=1.0 - event.informative_K,
        base_pass=event.base_pass,
        base_degenerate=event.base_degenerate,
        range_pass=ranges["pass"],
        range_degenerate=ranges["degenerate"],
        range_pass_uniform=ranges["pass_uniform"],
        range_degenerate_uniform=ranges["degenerate_uniform"],
        category_K=state.pool.category_N[event.row_K],
        difficulty_K=difficulty_bins(event.pass_rate_K),
        pool_category_C=category_C,
        pool_difficulty_B=np.array(event.pool_difficulty, np.int64),
        outcome_K=np.where(back & (scored_K > 0), passes_K / np.maximum(scored_K, 1), np.nan),
        degenerate_K=np.where(back, 1.0 - table["informative"][span], np.nan),
        open_credit=_three(event.open_credit),
        carried_credit=_three(event.carried_credit),
    )


def _span(batch: DrawnBatch) -> slice:
    """Its tickets."""
    return slice(batch.first_ticket, batch.first_ticket + len(batch.event.row_K))


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    credit, predicted_pass, predicted_degenerate = values
    return credit, predicted_pass, predicted_degenerate


_RANGES = ("pass", "pass_uniform", "degenerate", "degenerate_uniform")
