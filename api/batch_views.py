"""What the API shows of a batch that was drawn, or of a draw on a run that has ended, in the contract's names.

The service renders it as JSON in worker threads. Reads the state and never changes it.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from selector.batches.drawing import DrawRequest, claim_of
from selector.groups.priors import rollout_ids
from selector.run.state import DrawnBatch, RunState
from selector.run.tickets import TicketName
from selector.types import Purpose
from selector.waves import wave_ends, wave_from_dict


def batch(state: RunState, drawn: DrawnBatch, texts: dict[int, dict[str, Any]] | None = None) -> dict[str, Any]:
    """A batch as answered, the same however often it is asked for. `texts`: row -> content and answer to include."""
    event = drawn.event
    first = TicketName(state.run, event.branch, event.purpose, event.index, event.refill, 0)
    prefix = str(first).removesuffix("0")
    weights = [None] * len(event.row_K) if event.weight_K is None else event.weight_K.tolist()
    audit = Purpose.AUDIT.value
    first_wave = wave_ends(wave_from_dict(event.wave), event.group_size)[0]
    priors, informative_K = {prior["place"]: prior for prior in event.priors}, event.informative_K.copy()
    informative_K[list(priors)] = [prior["informative"] for prior in event.priors]
    columns = zip(
        event.row_K.tolist(),
        event.audit_K.tolist(),
        event.inclusion_K.tolist(),
        weights,
        event.pass_rate_K.tolist(),
        np.sqrt(event.variance_K).tolist(),
        informative_K.tolist(),
        event.rollouts_K.tolist(),
        [None] * len(event.row_K) if event.tokens_K is None else event.tokens_K.tolist(),
        strict=True,
    )
    tickets = [
        {
            "ticket": f"{prefix}{position}",
            "prompt": state.pool.keys[row],
            "purpose": audit if is_audit else event.purpose,
            "group_size": size,
            "first_wave": size if is_audit or event.wave is None else first_wave,
            "inclusion_probability": inclusion,
            "weight": weight,
            "predicted": {"pass_rate": rate, "pass_rate_sd": deviation, "informative": informative, "tokens": tokens},
            "category": state.pool.category_of(row),
            **(_prior(state, priors[position]) if position in priors else {}),
            **(texts[row] if texts is not None else {}),
        }
        for position, (row, is_audit, inclusion, weight, rate, deviation, informative, size, tokens) in enumerate(
            columns
        )
    ]
    return {
        "run": state.run,
        "branch": event.branch,
        "purpose": event.purpose,
        "index": event.index,
        "refill": event.refill,
        "requested": event.requested,
        "returned": len(tickets),
        "reason": event.reason,
        "claim": event.claim,
        "predicted_yield": math.fsum(informative_K) / len(tickets) if tickets else None,
        "policy_version": event.policy_version,
        "digest": event.digest,
        "frame": event.frame,
        "eligible": event.eligible,
        "blocked": event.blocked,
        "suggested_size": _whole(event.controlled.get("suggested_size")),
        "tickets": tickets,
    }


def complete_batch(state: RunState, request: DrawRequest) -> dict[str, Any]:
    """The answer to a draw on a run that has ended: nothing, and why. It is not recorded."""
    return {
        "run": state.run,
        "branch": state.branch,
        "purpose": request.purpose.value,
        "index": request.index,
        "refill": request.refill,
        "requested": request.size,
        "returned": 0,
        "reason": "run_complete",
        "claim": claim_of(state.config).to_dict(),
        "predicted_yield": None,
        "policy_version": request.policy_version,
        "digest": "sha256:" + "0" * 64,
        "frame": int(np.count_nonzero(state.frame_N)),
        "eligible": 0,
        "blocked": 0,
        "suggested_size": None,
        "tickets": [],
    }


def _prior(state: RunState, prior: Mapping[str, Any]) -> dict[str, Any]:
    named = zip(rollout_ids(state, prior), prior["versions"], strict=True)
    return {"prior_rollouts": [{"id": name, "policy_version": version} for name, version in named]}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
