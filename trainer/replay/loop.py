"""The replay: each policy gets a run of its own on the service and the same record, drawn and reported to the end.

Only the contract is used, so what is measured is the service as a trainer meets it. The names of pool and runs come
from the record and the arguments: the same replay again finds them, goes on where it stopped, and counts nothing twice.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from api.schemas import Batch
from trainer.client import Client
from trainer.errors import InvalidRequest, MidbandError
from trainer.replay.arms import PolicyArm
from trainer.replay.result import ReplayResult, Rounds
from trainer.rollout.recorded import RecordedEngine, RecordedOutcomes
from trainer.rollout.waves import RolledOut, roll_out

BATCH_SIZE = 256
GROUP_SIZE = 8
AUDIT_SHARE = 0.1
TEXT_FIELDS = ("content", "answer")
LONGEST_REMARK = 30_000  # characters of JSON; half of what the service takes, so that the row's own `meta` fits too
LOSS_CLIP = 1e-6  # predictions are held this far from 0 and 1, so that one surprise costs 14 nats and not infinity

Watch = Callable[[PolicyArm, int, int, int], None]  # arm, groups done, groups in all, informative groups so far


def replay(
    client: Client,
    record: RecordedOutcomes,
    policies: Sequence[PolicyArm],
    *,
    batch_size: int = BATCH_SIZE,
    group_size: int | None = None,
    seed: int = 0,
    audit_share: float = AUDIT_SHARE,
    rounds: int | None = None,
    watch: Watch | None = None,
) -> list[ReplayResult]:
    """Every policy on the same record, one after the other; results in their order.

    `group_size`: the record's own, else 8. `rounds`: an earlier end than the record's; needed if that has none.
    Raises InvalidRequest for arguments that do not fit the record, MidbandError if the service refuses a group.
    """
    size = group_size or record.group_size or GROUP_SIZE
    _check(record, policies, batch_size, size, rounds)
    pool = f"replay-{record.digest[:12]}"
    _import(client, record, pool)
    common = {"batch_size": batch_size, "group_size": size, "seed": seed, "audit_share": audit_share, "rounds": rounds}
    results = []
    for arm in policies:
        run = _run_name(pool, arm, common)
        client.create_run(run, pool=pool, policy=arm.policy, group_size=size, seed=seed, audit_share=audit_share)
        began_s = time.perf_counter()
        tally, stopped = _play(client, run, arm, RecordedEngine(record, seed=seed), batch_size, rounds, watch)
        client.complete(run)
        audit = client.audit(run)
        results.append(
            ReplayResult(
                arm=arm,
                run=run,
                pool=pool,
                record=record.name,
                num_prompts=record.num_prompts,
                batch_size=batch_size,
                group_size=size,
                seed=seed,
                audit_share=audit_share,
                rounds=tally.rounds(),
                stopped=stopped,
                audit=audit,
                wall_s=time.perf_counter() - began_s,
                resumed=tally.duplicates > 0,
            )
        )
    return results


def _check(
    record: RecordedOutcomes, policies: Sequence[PolicyArm], batch_size: int, group_size: int, rounds: int | None
) -> None:
    names = [arm.name for arm in policies]
    if not names or len(set(names)) != len(names):
        raise InvalidRequest(f"a replay compares policies with different names, at least one; got {names}")
    if batch_size < 1 or (rounds is not None and rounds < 1):
        raise InvalidRequest(f"batch_size and rounds must be >= 1, got {batch_size} and {rounds}")
    if record.group_size not in (None, group_size):
        raise InvalidRequest(
            f"{record.name} holds groups of {record.group_size} rollouts, asked for {group_size}: leave group_size out"
        )
    if record.num_groups is None and rounds is None:
        raise InvalidRequest(f"{record.name} has constant pass rates and so no end: say how many rounds")
    if record.num_groups is not None and record.num_groups < batch_size:
        raise InvalidRequest(
            f"{record.name} holds {record.num_groups} groups in all, fewer than one batch of {batch_size}: lower "
            "batch_size"
        )


def _import(client: Client, record: RecordedOutcomes, pool: str) -> None:
    client.create_pool(pool, description=f"replay of {record.name}")
    report = client.put_prompts(pool, [_without_text(prompt) for prompt in record.prompts])
    if report.rejected:
        first = report.errors[0]
        raise InvalidRequest(
            f"{record.name}: the service rejected {report.rejected} of {report.received} prompts; row {first.row}: "
            f"{first.detail} ({first.code})"
        )


def _without_text(prompt: Mapping[str, object]) -> dict[str, object]:
    """The prompt with its text as a remark, so that a page can show it.

    The service rightly makes one prompt of two with the same text; a record with two histories for it needs both.
    """
    row = {field: value for field, value in prompt.items() if field not in TEXT_FIELDS}
    text = {field: prompt[field] for field in TEXT_FIELDS if field in prompt}
    if not text or len(json.dumps(text)) > LONGEST_REMARK:
        return row
    meta = prompt.get("meta", {})
    return row | {"meta": text | (dict(meta) if isinstance(meta, Mapping) else {})}


def _run_name(pool: str, arm: PolicyArm, common: Mapping[str, object]) -> str:
    """A readable name that differs whenever anything differs that the outcome depends on."""
    asked = json.dumps([arm.policy.model_dump(exclude_unset=True), common], sort_keys=True)
    words = re.sub(r"[^a-z0-9.]+", "-", arm.name.lower()).strip("-.")[:50]
    return f"{pool}-{words}-{hashlib.sha256(asked.encode()).hexdigest()[:8]}"


def _play(
    client: Client,
    run: str,
    arm: PolicyArm,
    engine: RecordedEngine,
    batch_size: int,
    max_rounds: int | None,
    watch: Watch | None,
) -> tuple["_Tally", str | None]:
    """Draw, roll out, report, until the record ends or the service has nothing to draw. A refill is a round as well."""
    tally = _Tally(engine.record)
    ends = [total // batch_size for total in [engine.record.num_groups] if total is not None]
    total = batch_size * min([*ends, *([max_rounds] if max_rounds is not None else [])])
    index, refill, size = 0, 0, batch_size
    while size and engine.num_drawn + size <= total:
        pool_mean = float(engine.record.pass_rates(engine.num_drawn).mean())
        batch = client.draw(run, index, size, policy_version=index, refill=refill)
        if not batch.tickets and not refill:
            return tally, batch.reason or "no tickets"
        standing = None
        if batch.tickets:
            done = roll_out(client, run, engine, batch.tickets, policy_version=index)
            if done.rejected:
                first = done.rejected[0]
                raise MidbandError(
                    f"run {run}, batch {index}: {len(done.rejected)} reports were rejected; ticket {first.ticket}: "
                    f"{first.detail} ({first.code})"
                )
            tally.add(batch, done, pool_mean)
            standing = done.standing
            if watch is not None:
                watch(arm, engine.num_drawn, total, tally.num_informative)
        if standing is None or standing.size is None:
            index, refill, size = index + 1, 0, batch_size
        else:  # what is left at most, so that no batch but the last goes without its refill
            refill, size = standing.refill or 0, min(standing.size, total - engine.num_drawn)
    return tally, None


class _Tally:
    """Collects the rounds of one policy."""

    def __init__(self, record: RecordedOutcomes) -> None:
        self._num_prompts = record.num_prompts
        self._seen: set[str] = set()
        self._rows: list[dict[str, float]] = []
        self.num_informative = 0
        self.duplicates = 0  # rollouts the service knew already

    @property
    def num_rounds(self) -> int:
        return len(self._rows)

    def add(self, batch: Batch, done: RolledOut, pool_mean: float) -> None:
        groups = done.groups
        self._seen.update(ticket.prompt for ticket in batch.tickets)
        self.duplicates += done.duplicates
        informative = sum(answer.informative is True for answer in done.answers)
        self.num_informative += informative
        # Of first waves: the share passed of a group that was stopped by its outcomes is biased.
        first = [group.rollouts[: group.ticket.first_wave] for group in groups]
        mean_K = np.array([np.mean([rollout.outcome for rollout in rollouts]) for rollouts in first])
        pi_K = np.array([ticket.inclusion_probability for ticket in batch.tickets])
        p_K = np.clip([ticket.predicted.pass_rate for ticket in batch.tickets], LOSS_CLIP, 1 - LOSS_CLIP)
        audit_K = np.array([ticket.purpose == "audit" for ticket in batch.tickets])
        # Outcomes are 0 or 1, so a group's mean is all that either loss needs.
        log_loss_K = -(mean_K * np.log(p_K) + (1 - mean_K) * np.log(1 - p_K))
        brier_K = mean_K * (1 - p_K) ** 2 + (1 - mean_K) * p_K**2
        self._rows.append(
            {
                "groups": len(groups),
                "rollouts": sum(len(group.rollouts) for group in groups),
                "informative": informative,
                "never_seen": self._num_prompts - len(self._seen),
                "selected": float(mean_K.mean()),
                "reweighted": float((mean_K / pi_K).sum() / batch.frame),
                "weights": float((1 / pi_K).sum() / batch.frame),
                "pool": pool_mean,
                "audit_groups": int(audit_K.sum()),
                "log_loss": float(log_loss_K[audit_K].mean()) if audit_K.any() else float("nan"),
                "brier": float(brier_K[audit_K].mean()) if audit_K.any() else float("nan"),
            }
        )

    def rounds(self) -> Rounds:
        def integers(name: str) -> NDArray[np.int64]:
            return np.array([row[name] for row in self._rows], dtype=np.int64)

        def reals(name: str) -> NDArray[np.float64]:
            return np.array([row[name] for row in self._rows], dtype=np.float64)

        return Rounds(
            groups_R=integers("groups"),
            rollouts_R=integers("rollouts"),
            informative_R=integers("informative"),
            never_seen_R=integers("never_seen"),
            selected_R=reals("selected"),
            reweighted_R=reals("reweighted"),
            weights_R=reals("weights"),
            pool_R=reals("pool"),
            audit_groups_R=integers("audit_groups"),
            log_loss_R=reals("log_loss"),
            brier_R=reals("brier"),
        )
