"""Tickets and their rollouts as columns: what was issued, what came back, what each is waiting for.

`folding` is the only writer. A ticket is addressed by its ordinal in the run; its public id says branch, purpose,
index, refill and position, so that no dictionary of ids is kept. An attempt owns `group_size` consecutive rollout
slots, and keeps them when the next one begins: what comes again, or late, is still known.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selector.run.columns import Columns
from selector.types import PURPOSES, TicketState
from selector.waves import DROPPED, WaveDecision

UNKNOWN = -1  # informative not judged, no version yet
TICKET_COLUMNS: dict[str, tuple[type[np.generic], float]] = {
    "batch": (np.int64, 0),  # ordinal of the batch
    "position": (np.int32, 0),  # place in the batch
    "row": (np.int64, 0),
    "purpose": (np.uint8, 0),  # code in PURPOSES; an audit ticket of a train batch has its own
    "group_size": (np.int32, 0),
    "slot": (np.int64, 0),  # first rollout slot of the current attempt
    "state": (np.uint8, 0),  # TicketState
    "reason": (np.uint8, 0),  # VoidReason
    "attempt": (np.int32, 1),
    "issued_seq": (np.int64, 0),
    "ended_seq": (np.int64, 0),  # 0 while open
    "issued_draw": (np.int64, 0),  # train draws before this one
    "draws_between": (np.int64, UNKNOWN),  # train draws between issue and end
    "issued_version": (np.int64, 0),
    "reported_version": (np.int64, UNKNOWN),
    "deadline": (np.float64, np.nan),  # unix seconds
    "arrived": (np.int32, 0),  # rollouts in
    "scored": (np.int32, 0),  # rollouts with an outcome
    "passes": (np.float64, 0.0),
    "rewarded": (np.int32, 0),  # rollouts that it counts by their rewards, where none has an outcome
    "informative": (np.int8, UNKNOWN),
    "disagrees": (np.bool_, 0),  # rewards and outcomes give different verdicts
    "tokens": (np.int64, 0),  # of the current attempt
    "microseconds": (np.int64, 0),  # what its rollouts took by the caller's word, of the current attempt
    "wave": (np.int32, 0),  # waves after which it was told to continue
    "dropped": (np.bool_, 0),  # its rule ended it, and its method does not train on it
    "prior": (np.int32, 0),  # first places of its group that prior rollouts fill, of every attempt; `groups.priors`
}
LATER_COLUMNS = ("microseconds", "rewarded", "prior")  # that snapshots of earlier versions do not have
ATTEMPT_COLUMNS = (
    "state",
    "reason",
    "ended_seq",
    "reported_version",
    "draws_between",
    "arrived",
    "scored",
    "passes",
    "rewarded",
    "informative",
    "disagrees",
    "tokens",
    "microseconds",
    "wave",
    "dropped",
)
PAST_COLUMNS: dict[str, tuple[type[np.generic], float]] = {
    "ticket": (np.int64, 0),
    "attempt": (np.int32, 0),
    "slot": (np.int64, 0),
    "reason": (np.uint8, 0),  # VoidReason it ended with; 0 when it was open or reported as a restore began the next
    "ended_seq": (np.int64, 0),
    "resumed_seq": (np.int64, 0),  # when the next attempt began
}
DECISION_COLUMNS: dict[str, tuple[type[np.generic], float]] = {
    "ticket": (np.int64, 0),
    "attempt": (np.int32, 0),
    "wave": (np.int32, 0),  # the one that was complete; 0 is the first
    "right": (np.int32, 0),
    "scored": (np.int32, 0),
    "verdict": (np.uint8, 0),  # waves.Verdict
    "more": (np.int32, 0),
}
ROLLOUT_COLUMNS: dict[str, tuple[type[np.generic], float]] = {
    "arrived": (np.bool_, 0),
    "fragment": (np.int32, 0),  # the fragment that came first
    "outcome": (np.float64, np.nan),
    "reward": (np.float64, np.nan),
    "status": (np.uint8, 0),  # RolloutStatus
    "tokens": (np.int64, 0),  # of the first fragment
    "seconds": (np.float64, 0.0),  # of all fragments; 0 where nobody said
    "version": (np.int64, UNKNOWN),
    "id_hash": (np.uint64, 0),  # 0: no id
}


def hash_id(rollout_id: str | None) -> int:
    """64 bits of a caller's opaque rollout id; never 0, which stands for none."""
    if rollout_id is None:
        return 0
    return int.from_bytes(hashlib.blake2b(rollout_id.encode(), digest_size=8).digest(), "little") or 1


@dataclass(frozen=True, slots=True)
class TicketName:
    """A ticket id read back: run, branch of issue, purpose of the batch, index, refill, position."""

    run: str
    branch: int
    purpose: str
    index: int
    refill: int
    position: int

    def __str__(self) -> str:
        return f"{self.run}:{self.branch}:{self.purpose}:{self.index}:{self.refill}:{self.position}"


def read_ticket_name(text: str) -> TicketName | None:
    """None when the text is no ticket id."""
    parts = text.split(":")
    if len(parts) != 6 or parts[2] not in PURPOSES:
        return None
    numbers = (parts[1], *parts[3:])
    if not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in numbers):
        return None
    branch, index, refill, position = (int(part) for part in numbers)
    return TicketName(parts[0], branch, parts[2], index, refill, position)


class TicketBook:
    """The tables, and the further fragments, which are rare."""

    def __init__(self) -> None:
        self.tickets = Columns(TICKET_COLUMNS)
        self.past = Columns(PAST_COLUMNS)  # attempts that another one followed
        self.rollouts = Columns(ROLLOUT_COLUMNS)
        self.decisions = Columns(DECISION_COLUMNS)  # of waves
        self.fragments: dict[int, dict[int, tuple[float, int]]] = {}  # slot -> fragment -> (outcome, tokens)
        self.open: dict[int, None] = {}  # ordinals, in order of issue
        self.next_deadline = np.inf

    def issue(self, count: int, group_size: int | np.ndarray) -> np.ndarray:
        """Adds `count` open tickets with their slots and returns their ordinals. group_size: for all, or (count,)."""
        first = self.tickets.extend(count)
        size_K = np.broadcast_to(np.asarray(group_size, np.int64), count)
        slot = self.rollouts.extend(int(size_K.sum()))
        ordinals = np.arange(first, first + count)
        self.tickets["slot"][first:] = slot + np.cumsum(size_K) - size_K
        self.tickets["group_size"][first:] = size_K
        self.open.update(dict.fromkeys(ordinals.tolist()))
        return ordinals

    def slots(self, ticket: int, attempt: int | None = None) -> slice:
        """Where an attempt's rollouts are; the current one's by default."""
        first = int(self.tickets["slot"][ticket])
        if attempt is not None and attempt != self.tickets["attempt"][ticket]:
            first = int(self.past["slot"][self._past(ticket) & (self.past["attempt"] == attempt)][0])
        return slice(first, first + int(self.tickets["group_size"][ticket]))

    def first_versions(self, tickets: np.ndarray) -> np.ndarray:
        """(B,) the least version that the rollouts of these tickets' current attempts name; each has one that does."""
        size_B = self.tickets["group_size"][tickets].astype(np.int64)
        begin_B = np.cumsum(size_B) - size_B
        place_R = np.arange(int(size_B.sum())) + np.repeat(self.tickets["slot"][tickets] - begin_B, size_B)
        version_R = self.rollouts["version"][place_R]
        version_R[version_R == UNKNOWN] = np.iinfo(np.int64).max
        least_B: np.ndarray = np.minimum.reduceat(version_R, begin_B) if len(tickets) else np.zeros(0, np.int64)
        return least_B

    def begin_attempt(self, ticket: int, seq: int) -> None:
        """Opens the next attempt, with nothing in; the event at `seq` ends the one before if it was open."""
        table = self.tickets
        row = self.past.extend(1)
        self.past["ticket"][row] = ticket
        self.past["resumed_seq"][row] = seq
        for name in ("attempt", "slot", "reason", "ended_seq"):
            self.past[name][row] = table[name][ticket]
        if table["state"][ticket] == TicketState.OPEN:
            self.past["ended_seq"][row] = seq
        table.reset(slice(ticket, ticket + 1), ATTEMPT_COLUMNS)
        table["attempt"][ticket] += 1
        table["slot"][ticket] = self.rollouts.extend(int(table["group_size"][ticket]))
        self.open[ticket] = None

    def note(self, ticket: int, decisions: Sequence[WaveDecision]) -> None:
        """Decisions of the current attempt's waves."""
        row, table = self.decisions.extend(len(decisions)), self.decisions
        for place, decision in enumerate(decisions, start=row):
            table["ticket"][place], table["attempt"][place] = ticket, self.tickets["attempt"][ticket]
            for name in ("wave", "right", "scored", "verdict", "more"):
                table[name][place] = getattr(decision, name)
            self.tickets["wave"][ticket] += decision.more > 0
            self.tickets["dropped"][ticket] = decision.verdict in DROPPED

    def void_at(self, ticket: int, seq: int) -> tuple[int, int] | None:
        """Reason and end of the attempt after which the ticket was void at `seq` and that another one followed."""
        past = self.past
        rows = np.flatnonzero(self._past(ticket) & (past["ended_seq"] <= seq) & (seq < past["resumed_seq"]))
        return (int(past["reason"][rows[0]]), int(past["ended_seq"][rows[0]])) if len(rows) else None

    def _past(self, ticket: int) -> np.ndarray:
        is_past: np.ndarray = self.past["ticket"] == ticket
        return is_past

    def state(self) -> dict[str, np.ndarray]:
        flat = [(s, f, o, t) for s, per in self.fragments.items() for f, (o, t) in per.items()]
        columns = np.array(flat, np.float64).reshape(-1, 4)
        return {
            **self.tickets.state("tickets."),
            **self.past.state("past."),
            **self.rollouts.state("rollouts."),
            **self.decisions.state("decisions."),
            "fragments.slot": columns[:, 0].astype(np.int64),
            "fragments.fragment": columns[:, 1].astype(np.int64),
            "fragments.outcome": columns[:, 2],
            "fragments.tokens": columns[:, 3].astype(np.int64),
        }

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        size = len(state["tickets.batch"])
        later = {f"tickets.{name}": np.zeros(size, np.int64) for name in LATER_COLUMNS}
        state = {**later, **_without_waves(size), **state}
        self.tickets.load_state(state, "tickets.")
        self.past.load_state(state, "past.")
        self.rollouts.load_state(state, "rollouts.", later=("seconds",))
        self.decisions.load_state(state, "decisions.")
        self.fragments = {}
        for slot, fragment, outcome, tokens in zip(
            *(state[f"fragments.{name}"].tolist() for name in ("slot", "fragment", "outcome", "tokens")), strict=True
        ):
            self.fragments.setdefault(slot, {})[fragment] = (outcome, tokens)
        self.open = dict.fromkeys(np.flatnonzero(self.tickets["state"] == TicketState.OPEN).tolist())
        self.find_next_deadline()

    def find_next_deadline(self) -> None:
        """Brings `next_deadline` up to date after tickets have ended; until then it may be too early."""
        deadlines = self.tickets["deadline"][list(self.open)]
        self.next_deadline = float(np.nanmin(deadlines)) if np.isfinite(deadlines).any() else np.inf


def _without_waves(num_tickets: int) -> dict[str, np.ndarray]:
    """What snapshots lack that were taken before there were waves."""
    return {
        **{f"tickets.{name}": np.zeros(num_tickets, TICKET_COLUMNS[name][0]) for name in ("wave", "dropped")},
        **{f"decisions.{name}": np.zeros(0, dtype) for name, (dtype, _) in DECISION_COLUMNS.items()},
    }
