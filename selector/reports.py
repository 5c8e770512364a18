"""Reports: which rollouts count, which were sent before, which are refused, and what closes a ticket.

`RunEngine.report` calls `decide`, which changes nothing: it returns one event with everything that counted, or none,
and the counts of the answer. Rules in order, per rollout: known with equal values is a duplicate; known with other
values a conflict; unknown on a ticket that is not open is late; beyond the group size is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from selector.errors import BranchSuperseded, BranchUnknown, ReportInvalid
from selector.events import Closing, GroupEvidence, RefusedEvidence, RolloutsReported
from selector.priors import Arrived, is_wanted, prior_rollouts, why_not_kept
from selector.rewarded import CountsRewards
from selector.silence import may_be_silent
from selector.standing import belief_at_draw, decide_waves, rule_of
from selector.state import RunState
from selector.tickets import hash_id, read_ticket_name
from selector.types import RolloutStatus, TicketState, VoidReason
from selector.verdict import COUNTED, judge
from selector.waves import WaveConfig, WaveDecision
from selector.whole_groups import untouched, whole_group

EVIDENCE_COLUMNS = (
    "n", "fragment", "outcome", "reward", "status", "tokens", "seconds", "version", "ids", "rewards", "kept",
)  # fmt: skip
WITHOUT_OUTCOME = {RolloutStatus.UNSCORED, RolloutStatus.REWARDED}  # earlier versions told no difference
RETRIABLE = (VoidReason.ERROR, VoidReason.LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutIn:
    """One rollout as reported. `outcome` None: unscored. `reward` None: unscored for the trainer's reward."""

    n: int | None = None
    id: str | None = None
    outcome: float | None = None
    reward: float | None = None
    status: RolloutStatus = RolloutStatus.OK
    tokens: int | None = None
    seconds: float | None = None
    fragment: int = 0
    rewards: dict[str, float | None] | None = None
    version: tuple[int, int] | None = None  # first and last weights that generated it
    body: bytes | None = None  # its content, for the rollout store


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupIn:
    """One group as reported."""

    ticket: str
    attempt: int | None = None
    final: bool = False
    void: VoidReason | None = None
    version: tuple[int, int] | None = None
    rollouts: Sequence[RolloutIn] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one call reports."""

    groups: Sequence[GroupIn]
    version: tuple[int, int] | None = None
    branch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A rollout or group that does not count, and why."""

    ticket: str
    n: int | None
    code: str
    detail: str


@dataclass(slots=True)
class Decision:
    """The event to log, if anything counted, and what to answer."""

    event: RolloutsReported | None = None
    applied: int = 0
    duplicate: int = 0
    late: int = 0
    rejected: list[Refusal] = field(default_factory=list)
    tickets: list[tuple[str, int | None]] = field(default_factory=list)  # per group sent: id, ordinal
    reached: list[int] = field(default_factory=list)  # per group sent: the rollout number its answer is about, or −1
    bodies: dict[tuple[int, int, int], bytes] = field(default_factory=dict)  # (ticket, attempt, n) -> to be stored
    not_kept: list[Refusal] = field(default_factory=list)  # contents of rollouts that count all the same


@dataclass(slots=True)
class _Slot:
    """A rollout's place as this report sees it so far."""

    arrived: bool
    outcome: float | None
    reward: float | None
    status: int
    tokens: int
    fragments: dict[int, tuple[float | None, int]]  # fragment -> outcome, tokens
    id_hash: int
    prior: Arrived | None = None  # what fills the place while nothing has arrived


@dataclass(slots=True)
class _Draft:
    """A ticket as this report has changed it so far."""

    ticket: int
    state: int
    reason: int
    attempt: int
    slots: list[_Slot]
    rule: WaveConfig | None
    wave: int  # that is waited for; 0 is the first
    begins_with: list[Arrived]  # prior rollouts
    past: dict[int, list[_Slot]] = field(default_factory=dict)  # earlier attempts, as far as they were asked for
    refused: set[tuple[object, ...]] = field(default_factory=set)  # rollouts refused so far


def decide(state: RunState, report: Report, now: float | None = None) -> Decision:
    """What this report would add. Pure. Raises BranchSuperseded, BranchUnknown or ReportInvalid, nothing applied."""
    check_branch(state, report.branch)
    decision, drafts = Decision(), dict[int, _Draft]()
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
            version = _version_of(state, report, group)
            if _problem_of(state, version) is None:
                values = [_values(rollout) for rollout in group.rollouts]
                by_reward = rewards_count.of_ticket(ticket)
                groups.append(whole_group(ticket, fresh[ticket][0], values, version[0], state.config, by_reward))
                decision.applied += len(values)
                decision.reached[-1] = len(values) - 1
                continue
        if ticket not in drafts:
            drafts[ticket] = _load(state, ticket)
        evidence = _GroupDecision(state, report, group, drafts[ticket], decision, refused, rewards_count).run()
        if evidence is not None:
            groups.append(evidence)
    if groups or refused:
        deadline = _deadline(state, now) if any(group.reopens for group in groups) else None
        decision.event = RolloutsReported(groups=groups, refused=refused, deadline=deadline)
    return decision


def _deadline(state: RunState, now: float | None) -> float | None:
    ttl = state.config.ticket_ttl_s
    return None if ttl is None or now is None else now + ttl


def check_branch(state: RunState, branch: int | None) -> None:
    """Raises BranchSuperseded for a branch that a restore replaced, BranchUnknown for one that never was."""
    if branch is None or branch == state.branch:
        return
    if branch < state.branch:
        raise BranchSuperseded(f"branch {branch} of run {state.run!r} was superseded by branch {state.branch}")
    raise BranchUnknown(f"run {state.run!r} has no branch {branch}; the current one is {state.branch}")


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
    status, outcome, reward = _normal(rollout)
    return outcome, reward, status, rollout.tokens or 0, rollout.seconds or 0.0, rollout.rewards


def _version_of(state: RunState, report: Report, group: GroupIn) -> tuple[int, int]:
    """First and last weights that made a group, where its rollouts name none of their own."""
    return group.version or report.version or (state.policy_version, state.policy_version)


def _problem_of(state: RunState, version: tuple[int, int]) -> tuple[str, str] | None:
    """Why rollouts of these weights are refused: a code and a sentence; None when they are not."""
    first, last = version
    current = state.policy_version
    if first < 0 or last < first or last > current + 1:
        return "bad_policy_version", f"policy version {[first, last]} is not within 0 and {current + 1}"
    max_lag = state.config.max_lag
    if max_lag is not None and current - first > max_lag:
        return "stale", f"generated by version {first}, {current - first} behind {current}; max_lag is {max_lag}"
    return None


def _load(state: RunState, ticket: int) -> _Draft:
    table, begins_with = state.book.tickets, prior_rollouts(state, ticket)
    slots = _load_slots(state, state.book.slots(ticket)) if table["arrived"][ticket] else _empty_slots(state, ticket)
    return _Draft(
        ticket=ticket,
        state=int(table["state"][ticket]),
        reason=int(table["reason"][ticket]),
        attempt=int(table["attempt"][ticket]),
        slots=_begun(slots, begins_with),
        rule=rule_of(state, ticket),
        wave=int(table["wave"][ticket]),
        begins_with=begins_with,
        refused={_identity(refused) for refused in state.refused.get(ticket, ())},
    )


def _load_slots(state: RunState, slots: slice) -> list[_Slot]:
    columns = [state.book.rollouts[name][slots].tolist() for name in ("arrived", "fragment", "outcome", "reward")]
    columns += [state.book.rollouts[name][slots].tolist() for name in ("status", "tokens", "id_hash")]
    loaded = []
    for i, (arrived, fragment, outcome, reward, status, tokens, id_hash) in enumerate(zip(*columns, strict=True)):
        known = None if np.isnan(outcome) else outcome
        fragments: dict[int, tuple[float | None, int]] = {fragment: (known, tokens)} if arrived else {}
        for other, (value, cost) in state.book.fragments.get(slots.start + i, {}).items():
            fragments[other] = (None if np.isnan(value) else value, cost)
        loaded.append(_Slot(arrived, known, None if np.isnan(reward) else reward, status, tokens, fragments, id_hash))
    return loaded


def _empty_slots(state: RunState, ticket: int) -> list[_Slot]:
    """The slots of an attempt of which nothing has arrived, as most are when they are reported."""
    return [_Slot(False, None, None, 0, 0, {}, 0) for _ in range(int(state.book.tickets["group_size"][ticket]))]


def _begun(slots: list[_Slot], begins_with: Sequence[Arrived]) -> list[_Slot]:
    """The same slots, with prior rollouts in the first of them."""
    for slot, prior in zip(slots, begins_with, strict=False):
        slot.prior = prior
    return slots


def _identity(refused: RefusedEvidence) -> tuple[object, ...]:
    """What makes it the same refused rollout: everything but why it was refused, which changes as tickets close."""
    return (refused.attempt, refused.n, refused.id, refused.fragment, refused.outcome, refused.reward, refused.tokens)


class _GroupDecision:
    """Works through one group of a report."""

    def __init__(
        self,
        state: RunState,
        report: Report,
        group: GroupIn,
        draft: _Draft,
        decision: Decision,
        refused: list[RefusedEvidence],
        rewards_count: CountsRewards,
    ) -> None:
        self.state, self.group, self.draft, self.decision, self.refused = state, group, draft, decision, refused
        self.rewards_count = rewards_count.of_ticket(draft.ticket)
        self.version = _version_of(state, report, group)
        self.columns: dict[str, list[Any]] = {name: [] for name in EVIDENCE_COLUMNS}
        self.problem = _problem_of(state, self.version)  # of rollouts that name no version of their own
        self.stale = False
        self.waves: list[WaveDecision] = []

    def run(self) -> GroupEvidence | None:
        """The group's evidence, or None when it adds nothing."""
        reopens = self._reopens()
        if reopens is None:
            return None
        for place, rollout in enumerate(self.group.rollouts):
            self._take(rollout, self._number_given(rollout, place))
        closing = self._closing()
        if closing is not None:
            self.decision.reached[-1] = len(self.draft.slots) - 1
        elif self.waves:
            self.decision.reached[-1] = self.waves[-1].end - 1  # also when it held rollouts beyond the wave
        if not self.columns["n"] and closing is None and not reopens:
            return None
        attempt = self.draft.attempt
        if not any(self.columns["kept"]):
            self.columns["kept"] = []
        return GroupEvidence(
            ticket=self.draft.ticket,
            attempt=attempt,
            closing=closing,
            reopens=reopens,
            decisions=self.waves,
            **self.columns,
        )

    def _number_given(self, rollout: RolloutIn, place: int) -> int | None:
        """The number that the caller gave. Its place in the list is one only when the list is the whole group."""
        if rollout.n is not None or rollout.id is not None:
            return rollout.n
        size, sent, prior = len(self.draft.slots), len(self.group.rollouts), len(self.draft.begins_with)
        if sent not in (size, size - prior) and not self.group.final:
            raise ReportInvalid(
                f"ticket {self.group.ticket!r}: rollout {place} of {sent} has neither `n` nor `id`; give one, send all "
                f"{size - prior} rollouts, or set `final`"
            )
        return place if sent > size - prior else prior + place

    def _reopens(self) -> bool | None:
        """Whether this report begins the ticket's next attempt; None when it names an attempt it cannot."""
        draft, wanted = self.draft, self.group.attempt
        if wanted is None or wanted == draft.attempt:
            return False
        retriable = draft.state == TicketState.VOID and draft.reason in RETRIABLE
        alive = self.state.batch_of(draft.ticket).alive and not self.state.completed
        if wanted == draft.attempt + 1 and retriable and alive:
            draft.past[draft.attempt] = draft.slots
            draft.attempt, draft.state, draft.reason = wanted, TicketState.OPEN, VoidReason.NONE
            draft.slots = _begun([_Slot(False, None, None, 0, 0, {}, 0) for _ in draft.slots], draft.begins_with)
            draft.wave = 0
            return True
        if wanted < draft.attempt:
            self._meet_past(wanted)
            return None
        self._reject(None, "unknown_ticket", f"attempt {wanted} was never issued; the current one is {draft.attempt}")
        return None

    def _meet_past(self, attempt: int) -> None:
        """Rollouts of an attempt that another one followed: known already, or late."""
        draft = self.draft
        if attempt not in draft.past:
            draft.past[attempt] = _load_slots(self.state, self.state.book.slots(draft.ticket, attempt))
        slots = draft.past[attempt]
        for place, rollout in enumerate(self.group.rollouts):
            n = self._number_given(rollout, place)
            known = [slots[n]] if n is not None and n < len(slots) else []
            if n is None:
                known = [slot for slot in slots if slot.id_hash == hash_id(rollout.id)]
            if known and known[0].arrived and _is_same(known[0], rollout):
                self.decision.duplicate += 1
            else:
                self._late(rollout, n, f"attempt {attempt} has ended; the current one is {draft.attempt}", attempt)

    def _take(self, rollout: RolloutIn, number: int | None) -> None:
        slots, open_ = self.draft.slots, self.draft.state == TicketState.OPEN
        id_hash = hash_id(rollout.id)
        n = number if number is not None else self._number_of(id_hash)
        if n is not None and n < len(slots) and slots[n].arrived:
            self._known(rollout, n, id_hash)
        elif not open_:
            self._late(rollout, n, f"the ticket is {TicketState(self.draft.state).name.lower()}")
        elif n is None or n >= len(slots):
            self._reject(n, "too_many_rollouts", f"the group has {len(slots)} rollouts")
        elif (problem := _problem_of(self.state, rollout.version) if rollout.version else self.problem) is not None:
            self._reject(n, *problem)
            if problem[0] == "stale":
                self.stale = True
                self._refuse(rollout, n, "stale")
        else:
            self._accept(rollout, n, id_hash)
            self.decision.applied += 1

    def _number_of(self, id_hash: int) -> int | None:
        """The number of a known id, else the next free one, those of prior rollouts last; None when the group is
        full.
        """
        for n, slot in enumerate(self.draft.slots):
            if slot.id_hash == id_hash:
                return n
        free = [n for n, slot in enumerate(self.draft.slots) if not slot.arrived]
        return min(free, key=lambda n: (self.draft.slots[n].prior is not None, n), default=None)

    def _known(self, rollout: RolloutIn, n: int, id_hash: int) -> None:
        slot = self.draft.slots[n]
        self._reach(n)
        if id_hash and slot.id_hash and id_hash != slot.id_hash:
            return self._conflict(rollout, n, "the number belongs to a rollout with another id")
        if rollout.fragment in slot.fragments:
            if _is_same(slot, rollout):
                self.decision.duplicate += 1
                return None
            return self._conflict(rollout, n, "it was reported with other values; the first stand")
        if rollout.outcome != slot.outcome:
            return self._conflict(
                rollout, n, f"fragment {rollout.fragment} has another outcome than the fragments before"
            )
        self._accept(rollout, n, id_hash)
        self.decision.applied += 1
        return None

    def _accept(self, rollout: RolloutIn, n: int, id_hash: int) -> None:
        status, outcome, reward = _normal(rollout)
        tokens = rollout.tokens or 0
        slot = self.draft.slots[n]
        self._reach(n)
        if not slot.arrived:
            slot.arrived, slot.outcome, slot.reward, slot.status = True, outcome, reward, status
            slot.tokens, slot.id_hash = tokens, id_hash
        slot.fragments[rollout.fragment] = (outcome, tokens)
        version = (rollout.version or self.version)[0]
        values = (
            n, rollout.fragment, outcome, reward, status, tokens, rollout.seconds or 0.0, version, rollout.id,
            rollout.rewards, self._keep(rollout, n, version),
        )  # fmt: skip
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def _keep(self, rollout: RolloutIn, n: int, version: int) -> int:
        """Bytes of the rollout's content that the store takes, of rollouts that a train ticket could begin with; 0 for
        none.
        """
        ticket, body, slot = self.draft.ticket, rollout.body, self.draft.slots[n]
        if body is None or rollout.fragment or len(slot.fragments) != 1 or not is_wanted(self.state, ticket):
            return 0
        if slot.outcome is None or slot.status not in COUNTED:
            return 0
        why = why_not_kept(self.state, len(body), version)
        if why is not None:
            code, detail = why
            self.decision.not_kept.append(Refusal(ticket=self.group.ticket, n=n, code=code, detail=detail))
            return 0
        self.decision.bodies[ticket, self.draft.attempt, n] = body
        return len(body)

    def _closing(self) -> Closing | None:
        """How the group leaves its ticket, or None while it stays as it was."""
        draft, void = self.draft, self.group.void
        if draft.state != TicketState.OPEN:
            if void is not None and (draft.state, draft.reason) != (TicketState.VOID, void):
                self._reject(None, "ticket_closed", f"the ticket is {TicketState(draft.state).name.lower()} already")
            return None
        if self.stale:
            void = VoidReason.STALE
        ended = void is not None or self.group.final or self._stops()
        if not ended and not all(slot.arrived or slot.prior is not None for slot in draft.slots):
            return None
        columns = tuple(zip(*((s.outcome, s.reward, s.status) for s in draft.slots if s.arrived), strict=True)) or (
            (),
            (),
            (),
        )
        closing = judge(
            *columns,
            config=self.state.config,
            void=void,
            may_be_silent=may_be_silent(self.state, draft.ticket),
            rewards_count=self.rewards_count,
            prior=[slot.prior for slot in draft.slots if slot.prior is not None and not slot.arrived],
        )
        draft.state = TicketState.REPORTED if closing.reported else TicketState.VOID
        draft.reason = closing.reason
        return closing

    def _stops(self) -> bool:
        """Decides the waves that are complete by now; whether the rule ends the ticket."""
        draft = self.draft
        if draft.rule is None:
            return False
        rollouts = [(s.outcome, s.reward, s.status) if s.arrived else None for s in draft.slots]
        belief = belief_at_draw(self.state, draft.ticket)
        config = self.state.config
        self.waves = decide_waves(draft.rule, draft.wave, rollouts, config, belief, self.rewards_count)
        draft.wave += sum(decision.more > 0 for decision in self.waves)
        return bool(self.waves) and not self.waves[-1].more

    def _reach(self, n: int) -> None:
        self.decision.reached[-1] = max(self.decision.reached[-1], n)

    def _late(self, rollout: RolloutIn, n: int | None, detail: str, attempt: int | None = None) -> None:
        self.decision.late += 1
        self._reject(n, "ticket_closed", detail)
        self._refuse(rollout, n, "ticket_closed", attempt)

    def _conflict(self, rollout: RolloutIn, n: int, detail: str) -> None:
        self._reject(n, "report_conflict", detail)
        self._refuse(rollout, n, "report_conflict")

    def _reject(self, n: int | None, code: str, detail: str) -> None:
        self.decision.rejected.append(Refusal(ticket=self.group.ticket, n=n, code=code, detail=detail))

    def _refuse(self, rollout: RolloutIn, n: int | None, code: str, attempt: int | None = None) -> None:
        """Keeps what was refused for the audit, once: the same refused values again are not new evidence."""
        evidence = RefusedEvidence(
            ticket=self.draft.ticket,
            attempt=attempt or self.draft.attempt,
            n=n if rollout.id is None else rollout.n,
            id=rollout.id,
            fragment=rollout.fragment,
            code=code,
            outcome=rollout.outcome,
            reward=rollout.reward,
            tokens=0 if code == "report_conflict" else rollout.tokens or 0,
        )
        if _identity(evidence) not in self.draft.refused:
            self.draft.refused.add(_identity(evidence))
            self.refused.append(evidence)


def _is_same(slot: _Slot, rollout: RolloutIn) -> bool:
    """Whether the slot knows this fragment of the rollout with these values."""
    status, outcome, reward = _normal(rollout)
    if slot.fragments.get(rollout.fragment) != (outcome, rollout.tokens or 0):
        return False
    same_status = slot.status == status or {slot.status, status} == WITHOUT_OUTCOME
    return rollout.fragment != next(iter(slot.fragments)) or (slot.reward == reward and same_status)


def _normal(rollout: RolloutIn) -> tuple[int, float | None, float | None]:
    """Status, outcome and reward as they count: what was never begun is an error, what has no outcome has a reward at
    most, and without either is unscored.
    """
    status = rollout.status
    if status is RolloutStatus.TRUNCATED and rollout.tokens == 0:
        status = RolloutStatus.ERROR
    if status is RolloutStatus.OK and rollout.outcome is None:
        status = RolloutStatus.UNSCORED if rollout.reward is None else RolloutStatus.REWARDED
    return int(status), rollout.outcome, rollout.reward
