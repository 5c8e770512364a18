"""Rolls a batch out wave by wave: generate, report, and go on with the tickets that the service says go on.

The reference trainer and the replay use it. Without waves in the run's policy it is one call of the engine and one
report. It knows nothing of the rules: the service decides, this does as it is told.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from api.schemas import GroupAnswer, RefillInfo, Rejection, Ticket, VoidName
from trainer.client import Client
from trainer.errors import MidbandError
from trainer.rollout.base import Rollout, RolloutEngine, RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledOut:
    """A batch that is done, ticket by ticket."""

    groups: list[RolloutGroup]  # with the rollouts of all their waves
    answers: list[GroupAnswer]  # the last of each
    rejected: list[Rejection]  # the first report that had any is also the last one
    duplicates: int  # rollouts the service knew already
    standing: RefillInfo | None  # of the batch then, where the run fills its batches up
    stale: list[RolloutGroup] = field(default_factory=list)  # too old to be trained on, and voided

    @property
    def kept(self) -> list[RolloutGroup]:
        """Groups that the run's policy trains on."""
        return [group for group, answer in zip(self.groups, self.answers, strict=True) if not answer.dropped]


def roll_out(
    client: Client,
    run: str,
    engine: RolloutEngine,
    tickets: Sequence[Ticket],
    *,
    policy_version: int,
    branch: int | None = None,
    lap: Callable[[str], None] = lambda name: None,
    priors: Mapping[str, tuple[Rollout, ...]] | None = None,
) -> RolledOut:
    """Every ticket to its end. `lap` is called with `rollouts` and `report` as each of them ends. `priors`: what the
    groups of some tickets begin with; it is not generated or reported again.

    Raises MidbandError if the service waits for rollouts of a ticket that somebody else would have to make.
    """
    made: dict[str, RolloutGroup] = {}
    told: dict[str, GroupAnswer] = {}
    priors = priors or {}
    going = [(ticket, range(len(priors.get(ticket.ticket, ())), ticket.first_wave)) for ticket in tickets]
    duplicates, rejected, refills = 0, list[Rejection](), list[RefillInfo]()
    while going and not rejected:
        parts = _generate(engine, going, policy_version)
        lap("rollouts")
        reports = [part.report(final=part.ticket.first_wave == part.ticket.group_size) for part in parts]
        answer = client.report(run, reports, policy_version=policy_version, branch=branch)
        lap("report")
        duplicates, rejected, refills = duplicates + answer.duplicate, answer.rejected, answer.refills
        going = []
        for part, found in zip(parts, answer.groups, strict=True):
            name, before = part.ticket.ticket, made.get(part.ticket.ticket)
            made[name] = part if before is None else replace(before, rollouts=before.rollouts + part.rollouts)
            told[name] = found
            if found.next == "continue":
                end = part.start + len(part.rollouts)
                going.append((part.ticket, range(end, end + found.more)))
            elif found.next == "wait" and not rejected:
                raise MidbandError(f"run {run}: ticket {name} waits for rollouts that nobody here was asked to make")
    return RolledOut(
        groups=[_whole(made[ticket.ticket], priors.get(ticket.ticket, ())) for ticket in tickets],
        answers=[told[ticket.ticket] for ticket in tickets],
        rejected=rejected,
        duplicates=duplicates,
        standing=refills[0] if refills else None,
    )


def hand_in(
    client: Client,
    run: str,
    groups: Sequence[RolloutGroup],
    voided: Sequence[RolloutGroup],
    *,
    branch: int | None = None,
    void: VoidName = "stale",
) -> RolledOut:
    """Reports whole groups that were generated before, and ends others without a group; all of them are paid for.

    Raises MidbandError where the run fills its batches up: a further wave would have to follow at once.
    """
    ended = [group.report().model_copy(update={"void": void}) for group in voided]
    if not (groups or ended):
        return RolledOut(groups=[], answers=[], rejected=[], duplicates=0, standing=None)
    answer = client.report(run, [*(group.report() for group in groups), *ended], branch=branch)
    if any(refill.refill is not None for refill in answer.refills):
        raise MidbandError(
            f"run {run} fills its batches up, and rollouts that run ahead cannot: set asynchrony.depth to 0, or choose "
            "a policy without `refill`"
        )
    kept = {group.ticket.ticket for group in groups}
    return RolledOut(
        groups=list(groups),
        answers=answer.groups[: len(groups)],
        rejected=[refused for refused in answer.rejected if refused.ticket in kept],
        duplicates=answer.duplicate,
        standing=None,
        stale=list(voided),
    )


def _whole(made: RolloutGroup, prior: Sequence[Rollout]) -> RolloutGroup:
    """The group with what it began with, which answers the prompt that the others do."""
    ids = next((rollout.prompt_ids for rollout in made.rollouts if rollout.prompt_ids), None)
    if not prior or ids is None:  # where nothing new came, there is no group to begin
        return made
    began = tuple(replace(rollout, prompt_ids=ids) for rollout in prior)
    return replace(made, rollouts=began + made.rollouts, start=0)


def _generate(engine: RolloutEngine, going: Sequence[tuple[Ticket, range]], policy_version: int) -> list[RolloutGroup]:
    tickets, spans = [ticket for ticket, _ in going], [span for _, span in going]
    if all(len(span) == ticket.group_size for ticket, span in going):
        return engine.generate(tickets, policy_version=policy_version)
    return engine.generate_part(tickets, spans, policy_version=policy_version)
