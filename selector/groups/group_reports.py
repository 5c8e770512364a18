"""One group of a report: each rollout accepted, known, refused or late, and what closes the ticket.

`deciding` calls it for groups that are not plainly whole. Changes the ticket's draft and the decision, never the state.
Rules in order, per rollout: known with equal values is a duplicate; known with other values a conflict; unknown on a
ticket that is not open is late; beyond the group size is refused.
"""

from typing import Any

from selector.beliefs.rewarded import CountsRewards
from selector.beliefs.silence import may_be_silent
from selector.errors import ReportInvalid
from selector.groups.drafts import Draft, Slot, as_counted, begun, identity, is_same, load_slots
from selector.groups.priors import is_wanted, why_not_kept
from selector.groups.reports import Decision, GroupIn, Refusal, Report, RolloutIn
from selector.groups.standing import belief_at_draw, decide_waves
from selector.run.events import Closing, GroupEvidence, RefusedEvidence
from selector.run.state import RunState
from selector.run.tickets import hash_id
from selector.run.verdict import COUNTED, judge
from selector.types import TicketState, VoidReason
from selector.waves import WaveDecision

EVIDENCE_COLUMNS = (
    "n", "fragment", "outcome", "reward", "status", "tokens", "seconds", "version", "ids", "rewards", "kept",
)  # fmt: skip
RETRIABLE = (VoidReason.ERROR, VoidReason.LOST)


class GroupDecision:
    """Works through one group of a report."""

    def __init__(
        self,
        state: RunState,
        report: Report,
        group: GroupIn,
        draft: Draft,
        decision: Decision,
        refused: list[RefusedEvidence],
        rewards_count: CountsRewards,
    ) -> None:
        self.state, self.group, self.draft, self.decision, self.refused = state, group, draft, decision, refused
        self.rewards_count = rewards_count.of_ticket(draft.ticket)
        self.version = version_of(state, report, group)
        self.columns: dict[str, list[Any]] = {name: [] for name in EVIDENCE_COLUMNS}
        self.problem = problem_of(state, self.version)  # of rollouts that name no version of their own
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
            draft.slots = begun([Slot(False, None, None, 0, 0, {}, 0) for _ in draft.slots], draft.begins_with)
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
            draft.past[attempt] = load_slots(self.state, self.state.book.slots(draft.ticket, attempt))
        slots = draft.past[attempt]
        for place, rollout in enumerate(self.group.rollouts):
            n = self._number_given(rollout, place)
            known = [slots[n]] if n is not None and n < len(slots) else []
            if n is None:
                known = [slot for slot in slots if slot.id_hash == hash_id(rollout.id)]
            if known and known[0].arrived and is_same(known[0], rollout):
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
        elif (problem := problem_of(self.state, rollout.version) if rollout.version else self.problem) is not None:
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
            if is_same(slot, rollout):
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
        status, outcome, reward = as_counted(rollout)
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
        if identity(evidence) not in self.draft.refused:
            self.draft.refused.add(identity(evidence))
            self.refused.append(evidence)


def version_of(state: RunState, report: Report, group: GroupIn) -> tuple[int, int]:
    """First and last weights that made a group, where its rollouts name none of their own."""
    return group.version or report.version or (state.policy_version, state.policy_version)


def problem_of(state: RunState, version: tuple[int, int]) -> tuple[str, str] | None:
    """Why rollouts of these weights are refused: a code and a sentence; None when they are not."""
    first, last = version
    current = state.policy_version
    if first < 0 or last < first or last > current + 1:
        return "bad_policy_version", f"policy version {[first, last]} is not within 0 and {current + 1}"
    max_lag = state.config.max_lag
    if max_lag is not None and current - first > max_lag:
        return "stale", f"generated by version {first}, {current - first} behind {current}; max_lag is {max_lag}"
    return None
