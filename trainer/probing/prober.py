"""The prober: draws probe batches, rolls each ticket out as far as the service says, reports, until it is enough.

Commands and scripts call `probe`. Any number of probers may work on a run at once: a prompt whose ticket is open is
drawn for nobody else, and each prober draws indices of its own. What a prober leaves unfinished it hands back.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from api.schemas import Batch, GroupAnswer, Ticket
from trainer.client import Client
from trainer.errors import MidbandError
from trainer.reports import group
from trainer.rollout.base import RolloutEngine, RolloutGroup

BATCH_SIZE = 64  # prompts
REPORT_TOKENS = (
    500_000  # of completions in one report: some 15 MB as JSON, and services take 64 MiB unless told otherwise
)
LANE_BITS, INDEX_BITS = 30, 20  # an index is a prober's own number and then a counter; 53 bits are allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What probes came to, so far."""

    prompts: int = 0
    rollouts: int = 0
    tokens: int = 0
    informative: int = 0  # groups
    judged: int = 0
    stopped: int = 0  # groups that needed fewer rollouts than they could have had
    errors: int = 0  # rollouts
    unscored: int = 0
    ended: str = ""  # why: `budget`, or the service's reason for an empty batch

    def after(self, groups: Sequence[RolloutGroup], answers: Sequence[GroupAnswer]) -> "Probed":
        """With one batch more."""
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        verdicts = [answer.informative for answer in answers if answer.informative is not None]
        return Probed(
            prompts=self.prompts + len(groups),
            rollouts=self.rollouts + len(rollouts),
            tokens=self.tokens + sum(rollout.tokens or 0 for rollout in rollouts),
            informative=self.informative + sum(verdicts),
            judged=self.judged + len(verdicts),
            stopped=self.stopped + sum(len(group.rollouts) < group.ticket.group_size for group in groups),
            errors=self.errors + sum(rollout.status == "error" for rollout in rollouts),
            unscored=self.unscored + sum(rollout.status == "unscored" for rollout in rollouts),
        )


Watch = Callable[[Probed], None]


def probe(
    client: Client,
    run: str,
    engine: RolloutEngine,
    *,
    version: Callable[[], int],
    budget_tokens: int | None = None,
    batch_size: int = BATCH_SIZE,
    group_size: int | None = None,
    watch: Watch = lambda so_far: None,
) -> Probed:
    """Probes until the budget is spent or nothing is left that is worth a probe.

    version: says, before each batch, which weights will generate; they may be older than the run's, and the service
    counts the lag from it. group_size: most rollouts of a prompt, by default the run's. The budget holds to a batch:
    the last one is made smaller by what prompts have cost so far.
    """
    lane, made = secrets.randbits(LANE_BITS) << INDEX_BITS, Probed()
    keeps = client.run(run).rollout_store is not None
    options = {} if group_size is None else {"group_size": group_size}
    for counter in range(1 << INDEX_BITS):
        size = _next_size(made, budget_tokens, batch_size)
        if size == 0:
            return replace(made, ended="budget")
        policy_version = version()
        batch = client.draw(
            run,
            lane + counter,
            size,
            policy_version,
            purpose="probe",
            include=["content", "answer"],
            **options,  # type: ignore[arg-type]
        )
        if not batch.tickets:
            return replace(made, ended=str(batch.reason))
        groups, answers = roll_out_probes(client, run, engine, batch.tickets, policy_version, batch, completions=keeps)
        made = made.after(groups, answers)
        watch(made)
    raise MidbandError(f"run {run}: this prober has no index left; start another one")


def roll_out_probes(
    client: Client,
    run: str,
    engine: RolloutEngine,
    tickets: Sequence[Ticket],
    policy_version: int,
    batch: Batch,
    *,
    completions: bool = False,
) -> tuple[list[RolloutGroup], list[GroupAnswer]]:
    """These tickets of a batch to their ends, with the last answer to each.

    What the service knows already, as of a prober that died on its way, is no obstacle: it says how to go on. Whatever
    ends this early, an interrupt among it, hands back the tickets that are open. `completions`: the run keeps what is
    generated, for training tickets to begin with.
    """
    going = [(ticket, range(ticket.first_wave)) for ticket in tickets]
    made: dict[str, RolloutGroup] = {}
    told: dict[str, GroupAnswer] = {}
    try:
        while going:
            parts = engine.generate_part(
                [ticket for ticket, _ in going], [span for _, span in going], policy_version=policy_version
            )
            answers: list[GroupAnswer] = []
            for some in _in_pieces(parts) if completions else [parts]:
                reports = [
                    part.report(final=part.ticket.first_wave == part.ticket.group_size, completions=completions)
                    for part in some
                ]
                answers += client.report(run, reports, policy_version=policy_version, branch=batch.branch).groups
            following = []
            for part, found in zip(parts, answers, strict=True):
                name = part.ticket.ticket
                before = made[name].rollouts if name in made else ()
                made[name] = RolloutGroup(ticket=part.ticket, rollouts=before + part.rollouts)
                told[name] = found
                if found.next == "continue":
                    end = part.start + len(part.rollouts)
                    following.append((part.ticket, range(end, end + found.more)))
            going = following
    finally:
        left = [ticket for ticket, _ in going]
        if left:
            client.report(run, [group(ticket, void="lost", final=False) for ticket in left], branch=batch.branch)
    return [made[ticket.ticket] for ticket in tickets], [told[ticket.ticket] for ticket in tickets]


def _in_pieces(parts: Sequence[RolloutGroup]) -> list[list[RolloutGroup]]:
    """The same in order, in reports of a size that any service takes."""
    pieces: list[list[RolloutGroup]] = []
    room = 0
    for part in parts:
        tokens = sum(len(rollout.completion_ids) for rollout in part.rollouts)
        if not pieces or tokens > room:
            pieces.append([])
            room = REPORT_TOKENS
        pieces[-1].append(part)
        room -= tokens
    return pieces


def _next_size(made: Probed, budget_tokens: int | None, batch_size: int) -> int:
    if budget_tokens is None:
        return batch_size
    left = budget_tokens - made.tokens
    if left <= 0:
        return 0
    return batch_size if not made.tokens else max(1, min(batch_size, left * made.prompts // made.tokens))
