"""What the API shows of a run: pure functions from its state to JSON-ready values, in the contract's names.

Called by the service in worker threads. Reads the state and never changes it.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from api.informative import informative_counts
from api.measuring import costs
from api.regressions import regression_alarms
from api.rewarded import REWARD_COLUMNS, with_rewards_shown
from api.stages import LISTED_AT_MOST, lifecycle_counts, quarantine_alarms, state_names
from predictors.base import SOURCES
from selector.batches.drawing import claim_of
from selector.batches.refilling import RefillStanding, last_refilled, refill_standing
from selector.beliefs.costing import expected_costs
from selector.beliefs.graded import expected_informative
from selector.config import PolicyConfig, RunConfig
from selector.groups.priors import num_standing
from selector.groups.reports import Decision, Refusal
from selector.groups.standing import what_next
from selector.lifecycle.suspects import Suspect, find_suspects
from selector.rollout_store import NOBODY
from selector.run.signals import SignalsDecision
from selector.run.state import RunState
from selector.types import PURPOSES, Purpose, TicketState, VoidReason
from selector.waves import Verdict


def run_created(run: str, config: RunConfig) -> dict[str, Any]:
    return {
        "run": run,
        "config": config.to_dict(),
        "config_hash": config.config_hash(),
        "claim": claim_of(config).to_dict(),
    }


def run_info(state: RunState) -> dict[str, Any]:
    table = state.book.tickets
    states = np.bincount(table["state"], minlength=3)
    statuses = state.ledger.statuses
    alarms = [*state.alarms.values(), *quarantine_alarms(state), *regression_alarms(state)]
    suspects, num_suspects = find_suspects(state, LISTED_AT_MOST)
    return {
        **run_created(state.run, state.config),
        "pool": state.pool.name,
        "pool_revision": state.pool.revision,
        "branch": state.branch,
        "policy_version": state.policy_version,
        "step": None if state.step < 0 else state.step,
        "revisit_draws": state.revisit_draws or None,
        "completed": state.completed,
        "train_draws": state.train_draws,
        "tickets": {"open": int(states[0]), "reported": int(states[1]), "void": int(states[2])},
        "rollouts": {"issued": int(table["group_size"].sum()) - num_standing(state), **statuses},
        "tokens": state.ledger.to_json()["tokens"],
        "informative": informative_counts(state),
        "refill": _refill_summary(state),
        "states": lifecycle_counts(state),
        "alarms": alarms[:LISTED_AT_MOST],
        "num_alarms": len(alarms),
        "suspects": [{"prompt": state.pool.keys[s.row], **_suspect(s)} for s in suspects],
        "num_suspects": num_suspects,
        "controlled": state.controlled,
        "started_from": state.started_from,
        "rollout_store": _store(state),
    }


def preset_claim(policy: PolicyConfig, group_size: int) -> dict[str, Any]:
    """The claim of a run that names the preset and nothing else."""
    return claim_of(RunConfig(pool="", policy=policy, group_size=group_size)).to_dict()


def _store(state: RunState) -> dict[str, int] | None:
    """What the rollout store holds; None for a run without one."""
    if state.config.rollout_store is None:
        return None
    unused = int(np.count_nonzero(state.held["given"] == NOBODY))
    return {"rollouts": len(state.held), "bytes": int(state.held["size"].sum()), "unused": unused}


def _refill_info(state: RunState, standing: RefillStanding) -> dict[str, Any]:
    names = ("index", "target", "waves", "open", "judged", "informative", "inverse_yield", "factor", "refill", "size")
    return {
        **{name: getattr(standing, name) for name in names},
        **{
            name: [] if standing.open else [state.ticket_id(ticket) for ticket in getattr(standing, name)]
            for name in ("kept", "surplus", "offered")
        },
    }


def _refill_summary(state: RunState) -> dict[str, Any] | None:
    """Of the batch drawn last: counts in place of its tickets."""
    standing = last_refilled(state)
    if standing is None:
        return None
    found = _refill_info(state, standing)
    return {name: len(value) if isinstance(value, list) else value for name, value in found.items()}


def _refills(state: RunState, decision: Decision) -> list[dict[str, Any]]:
    """Where the train batches stand that a report speaks of."""
    if state.config.policy.refill is None:
        return []
    batches = [state.batch_of(ticket) for _, ticket in decision.tickets if ticket is not None]
    indices = {b.event.index for b in batches if b.alive and b.event.purpose == Purpose.TRAIN}
    return [_refill_info(state, refill_standing(state, index)) for index in sorted(indices)]


def checkpoints(state: RunState) -> list[dict[str, Any]]:
    return [{"step": c.step, "branch": c.branch, "position": c.seq} for c in state.checkpoints]


def report_answer(state: RunState, decision: Decision) -> dict[str, Any]:
    return {
        "applied": decision.applied,
        "duplicate": decision.duplicate,
        "late": decision.late,
        "rejected": rejections(decision.rejected),
        "groups": _groups(state, decision),
        "kept": len(decision.bodies),
        "not_kept": rejections(decision.not_kept),
        "refills": _refills(state, decision),
    }


def rejections(refusals: Iterable[Refusal]) -> list[dict[str, Any]]:
    return [{"ticket": r.ticket, "n": r.n, "code": r.code, "detail": r.detail} for r in refusals]


def signals_answer(policy_version: int, decision: SignalsDecision) -> dict[str, Any]:
    return {
        "policy_version": policy_version,
        "applied": 0 if decision.event is None else len(decision.event.row),
        "duplicate": decision.duplicate,
        "late": decision.late,
        "rejected": [asdict(refused) for refused in decision.rejected],
    }


def ticket_page(state: RunState, *, tickets: np.ndarray, limit: int, cursor: int) -> dict[str, Any]:
    """Ticket states from a list of ordinals, from the cursor on."""
    shown = tickets[tickets >= cursor]
    items = [_ticket(state, ticket) for ticket in shown[:limit].tolist()]
    return {"items": items, "next_cursor": str(int(shown[limit])) if len(shown) > limit else None}


def prompt_groups(state: RunState, row: int) -> list[dict[str, Any]]:
    """Every group a prompt was given, newest first."""
    table = state.book.tickets
    tickets = np.flatnonzero(table["row"] == row)[::-1].tolist()
    return [
        {
            **_ticket(state, ticket),
            "scored": int(table["scored"][ticket] + table["rewarded"][ticket]),
            "passes": float(table["passes"][ticket]),
            "informative": _verdict(state, ticket),
            "disagrees": bool(table["disagrees"][ticket]),
            "tokens": int(table["tokens"][ticket]),
            "dropped": bool(table["dropped"][ticket]),
            "prior": int(table["prior"][ticket]),
            "waves": _waves(state, ticket),
            "inclusion_probability": float(state.batch_of(ticket).event.inclusion_K[int(table["position"][ticket])]),
            "refused": [
                {"n": r.n, "code": r.code, "outcome": r.outcome, "reward": r.reward}
                for r in state.refused.get(ticket, ())
            ],
        }
        for ticket in tickets
    ]


def beliefs(state: RunState, rows: np.ndarray | None = None) -> dict[str, Any]:
    """Columns of the contract for rows of the pool, all by default; `key` is a list."""
    found = state.beliefs(rows)
    chosen = range(state.num_rows) if rows is None else rows.tolist()
    informative = expected_informative(state, found, state.config.group_size, rows)
    columns = {
        "key": [state.pool.keys[row] for row in chosen],
        "pass_rate": found.mean_N,
        "pass_rate_sd": np.sqrt(found.variance_N),
        "n_eff": found.n_eff_N,
        "lag": found.lag_N,
        "informative": informative,
        "state": state_names(state, list(chosen)),
        "source": [SOURCES[code] for code in found.source_N.tolist()],
        **expected_costs(state, rows),
    }
    return with_rewards_shown(state, columns, rows)


def prompt_fields(state: RunState, rows: np.ndarray) -> dict[int, dict[str, Any]]:
    """What a run adds to prompts in a list: belief, state, counts."""
    columns = beliefs(state, rows)
    counts = state.rows
    return {
        row: {
            "belief": {
                name: _plain(columns[name][i])
                for name in ("pass_rate", "pass_rate_sd", "n_eff", "lag", "informative", "source")
            }
            | {name: _finite(columns[name][i]) for name in REWARD_COLUMNS},
            "state": columns["state"][i],
            "drawn": int(counts["drawn_N"][row]),
            "groups_reported": int(counts["groups_N"][row]),
            "error_share": _share(int(counts["errors_N"][row]), int(counts["rollouts_N"][row])),
            "in_flight": int(state.in_flight_N[row]),
            "credit": int(counts["credit_N"][row]),
        }
        for i, row in enumerate(rows.tolist())
    }


def costs_info(state: RunState) -> dict[str, Any]:
    return costs(state)


def _suspect(found: Suspect) -> dict[str, Any]:
    fields = ("reason", "groups", "score", "answers_differ", "errors", "rollouts")
    return {name: getattr(found, name) for name in fields}


def _groups(state: RunState, decision: Decision) -> list[dict[str, Any]]:
    """An entry for each group sent. Columns are read once for all of them, as a report may have thousands."""
    known = np.array([ticket for _, ticket in decision.tickets if ticket is not None], np.int64)
    table = state.book.tickets
    names = ("attempt", "state", "scored", "rewarded", "passes", "informative", "dropped", "batch")
    rows = zip(*(table[name][known].tolist() for name in names), strict=True)
    answers = []
    for (name, ticket), reached in zip(decision.tickets, decision.reached, strict=True):
        if ticket is None:
            answers.append(_NO_GROUP | {"ticket": name})
            continue
        attempt, code, scored, rewarded, passes, verdict, dropped, batch = next(rows)
        if state.batches[batch].event.wave is None:
            following, more = ("wait" if code == TicketState.OPEN else "stop"), 0
        else:
            following, more = what_next(state, ticket, reached)
        answers.append(
            {
                "ticket": name,
                "attempt": attempt,
                "state": _STATE_NAMES[code],
                "scored": scored + rewarded,
                "passes": passes,
                "informative": None if verdict < 0 else bool(verdict),
                "next": following,
                "more": more,
                "dropped": dropped,
            }
        )
    return answers


_STATE_NAMES = {int(state): state.name.lower() for state in TicketState}
_NO_GROUP: dict[str, Any] = {
    "ticket": "", "attempt": None, "state": None, "scored": 0, "passes": 0.0, "informative": None, "next": "stop",
    "more": 0,
}  # fmt: skip


def _waves(state: RunState, ticket: int) -> list[dict[str, Any]]:
    """What was decided of each wave of the current attempt: counts, never ratios."""
    rule, table = state.batch_of(ticket).event.wave, state.book.decisions
    if rule is None:
        return []
    mine = (table["ticket"] == ticket) & (table["attempt"] == state.book.tickets["attempt"][ticket])
    names = ("wave", "right", "scored", "more")
    return [
        {
            "rule": rule["rule"],
            **{name: int(table[name][place]) for name in names},
            "verdict": Verdict(int(table["verdict"][place])).name.lower(),
        }
        for place in np.flatnonzero(mine).tolist()
    ]


def _ticket(state: RunState, ticket: int) -> dict[str, Any]:
    table = state.book.tickets
    deadline = float(table["deadline"][ticket])
    reason = VoidReason(int(table["reason"][ticket]))
    return {
        "ticket": state.ticket_id(ticket),
        "prompt": state.pool.keys[int(table["row"][ticket])],
        "purpose": PURPOSES[int(table["purpose"][ticket])].value,
        "state": TicketState(int(table["state"][ticket])).name.lower(),
        "reason": reason.name.lower() if reason else None,
        "attempt": int(table["attempt"][ticket]),
        "deadline": None if math.isnan(deadline) else deadline,
        "issued_version": int(table["issued_version"][ticket]),
        "reported_version": _known(int(table["reported_version"][ticket])),
        "draws_between": _known(int(table["draws_between"][ticket])),
    }


def _verdict(state: RunState, ticket: int) -> bool | None:
    value = int(state.book.tickets["informative"][ticket])
    return None if value < 0 else bool(value)


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
