"""What a report adds: which rollouts count, which were sent before, which are refused, and what closes a ticket.

`RunEngine.report` calls `decide`, which changes nothing: it returns one event with everything that counted, or none,
and the counts of the answer. Groups that are plainly whole are taken at once; every other goes to `group_reports`.
"""

from selector.beliefs.rewarded import CountsRewards
from selector.groups.drafts import Draft, as_counted, load
from selector.groups.group_reports import GroupDecision, problem_of, version_of
from selector.groups.reports import Decision, GroupIn, Refusal, Report, RolloutIn, check_branch
from selector.groups.whole_groups import untouched, whole_group
from selector.run.events import GroupEvidence, RefusedEvidence, RolloutsReported
from selector.run.state import RunState
from selector.run.tickets import read_ticket_name


def decide(state: RunState, report: Report, now: float | None = None) -> Decision:
    """What this report would add. Pure. Raises BranchSuperseded, BranchUnknown or ReportInvalid, nothing applied."""
    check_branch(state, report.branch)
    decision, drafts = Decision(), dict[int, Draft]()
    groups: list[GroupEvidence] = []
    refused: list[RefusedEvidence] = []
    tickets = [_find(state, group.ticket) for group in report.groups]
    fresh, rewards_count = untouched(state, tickets), CountsRewards(state)
    for group, ticket in zip(report.groups, tickets, strict=True):
        decision.tickets.append((group.ticket, ticket))
        decision.reached.append(-1)
        if ticket is None:
            _reject_name(state, group.ticket, decision)
            continue
        if ticket in fresh and _is_plain(group, *fresh[ticket]):
            version = version_of(state, report, group)
            if problem_of(state, version) is None:
                values = [_values(rollout) for rollout in group.rollouts]
                by_reward = rewards_count.of_ticket(ticket)
                groups.append(whole_group(ticket, fresh[ticket][0], values, version[0], state.config, by_reward))
                decision.applied += len(values)
                decision.reached[-1] = len(values) - 1
                continue
        if ticket not in drafts:
            drafts[ticket] = load(state, ticket)
        evidence = GroupDecision(state, report, group, drafts[ticket], decision, refused, rewards_count).run()
        if evidence is not None:
            groups.append(evidence)
    if groups or refused:
        deadline = _deadline(state, now) if any(group.reopens for group in groups) else None
        decision.event = RolloutsReported(groups=groups, refused=refused, deadline=deadline)
    return decision


def _deadline(state: RunState, now: float | None) -> float | None:
    ttl = state.config.ticket_ttl_s
    return None if ttl is None or now is None else now + ttl


def _find(state: RunState, ticket_id: str) -> int | None:
    """The ordinal of a ticket of this run, or None."""
    name = read_ticket_name(ticket_id)
    return None if name is None or name.run != state.run else state.find_ticket(name)


def _reject_name(state: RunState, ticket_id: str, decision: Decision) -> None:
    """Says what is wrong with an id that is no ticket of this run."""
    name = read_ticket_name(ticket_id)
    code, detail = "unknown_ticket", "this run never issued the ticket"
    if name is not None and name.run != state.run:
        code, detail = "wrong_run", f"the ticket is of run {name.run!r}, not {state.run!r}"
    decision.rejected.append(Refusal(ticket=ticket_id, n=None, code=code, detail=detail))


def _is_plain(group: GroupIn, attempt: int, size: int) -> bool:
    """Whether a group is all rollouts of an attempt of this size, in order, and nothing else is said of it."""
    if len(group.rollouts) != size or group.void is not None or group.attempt not in (None, attempt):
        return False
    return all(
        rollout.n in (None, place)
        and rollout.id is None
        and rollout.version is None
        and not rollout.fragment
        and rollout.body is None
        for place, rollout in enumerate(group.rollouts)
    )


def _values(rollout: RolloutIn) -> tuple[float | None, float | None, int, int, float, dict[str, float | None] | None]:
    status, outcome, reward = as_counted(rollout)
    return outcome, reward, status, rollout.tokens or 0, rollout.seconds or 0.0, rollout.rewards
