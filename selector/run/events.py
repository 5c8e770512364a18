"""The log of a run: every fact that ever changed its state, as a frozen value with a JSON form.

`RunEngine` makes these and folds them; `api` stores them in order. Fields marked `attached` are too large for the log
or are derivable from it: they are left out of the JSON form and put back by an `Archive` before the event is applied
again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from selector.errors import SnapshotDamaged
from selector.pool import PoolState
from selector.waves import WaveDecision

ATTACHED = {"attached": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events; `kind` names the class in the log."""

    kind: ClassVar[str] = "event"

    def to_json(self) -> dict[str, Any]:
        """Plain values only: arrays become lists, NaN becomes None."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self) if not f.metadata.get("attached")}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegun(Event):
    """The first event of every log."""

    kind: ClassVar[str] = "run_begun"
    run: str
    config: dict[str, Any]
    config_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChanged(Event):
    """A change in mid-run: a new hash, and a new segment of claims and audit."""

    kind: ClassVar[str] = "config_changed"
    config: dict[str, Any]
    config_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRevised(Event):
    """From here on the run sees this revision of its pool."""

    kind: ClassVar[str] = "pool_revised"
    revision: int
    pool: PoolState | None = field(default=None, repr=False, metadata=ATTACHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStarted(Event):
    """The run begins with what another one on its pool had learned. That is here in full: that run may go on, or go."""

    kind: ClassVar[str] = "warm_started"
    run: str
    step: int | None  # of the checkpoint, None for where the run stood
    position: int  # in that run's log
    policy_version: int  # as its beliefs counted versions: the first version that this run names counts as that one
    discount: float  # share of own evidence that was kept
    learned: str  # `warm_start.unpacked` gives the arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDrawn(Event):
    """One draw with everything that cannot be reconstructed honestly later. K tickets, N rows in the frame."""

    kind: ClassVar[str] = "batch_drawn"
    branch: int
    purpose: str
    index: int
    refill: int
    requested: int
    group_size: int
    divisor: int
    short: str
    allow_repeat: bool
    policy_version: int
    config_hash: str
    claim: dict[str, Any]
    reason: str | None
    frame: int
    eligible: int
    blocked: int
    num_audit: int
    revisit_draws: int | None
    row_K: np.ndarray  # int64
    audit_K: np.ndarray  # bool
    inclusion_K: np.ndarray  # float64 in (0, 1]
    weight_K: np.ndarray | None  # float64 as handed out; None when nothing honest can be said
    ht_weight_K: np.ndarray  # float64, K(1+c)/(N pi) whatever was handed out
    credit_K: np.ndarray  # int32
    pass_rate_K: np.ndarray  # float64, predicted at the draw
    variance_K: np.ndarray  # float64
    informative_K: np.ndarray  # float64, predicted at the draw
    base_pass: float  # sum over eligible rows of (1+c) * predicted pass rate
    base_degenerate: float
    ranges: dict[str, list[float]]  # worst case of each audit observation over samples the design can draw
    carried_credit: list[float]  # (1/N) sum over the frame of c, c * pass rate, c * degenerate share, before this draw
    open_credit: list[float]  # the same after it
    pool_category: dict[str, int]  # code -> rows of the frame
    pool_difficulty: list[int]  # rows of the frame in ten equal bins of predicted pass rate
    deadline: float | None  # unix seconds
    digest: str
    woken: list[int] = field(default_factory=list)  # rows that had been mastered and by their belief no longer are
    cohorts: list[dict[str, Any]] = field(default_factory=list)  # mastered rows it could draw, `find_cohorts`
    spent: dict[str, float | None] = field(default_factory=dict)  # before a held-out draw, `Ledger.spent`
    group_size_K: np.ndarray | None = None  # int32 rollouts by ticket; None: `group_size` each
    wave: dict[str, Any] | None = None  # WaveConfig that its train tickets are under, whatever the run's is later
    controlled: dict[str, float] = field(default_factory=dict)  # the controller's numbers that it was drawn under
    tokens_K: np.ndarray | None = None  # float64, expected of one rollout at the draw; None while nothing was known
    priors: list[dict[str, Any]] = field(default_factory=list)  # what train tickets begin with, by place; `priors`

    @property
    def rollouts_K(self) -> np.ndarray:
        """(K,) int32, the rollouts that each ticket is for."""
        if self.group_size_K is not None:
            return self.group_size_K
        return np.full(len(self.row_K), self.group_size, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How a ticket attempt ended: the verdict, recorded with what it was based on."""

    reported: bool
    reason: int  # VoidReason; 0 when reported
    scored: int
    passes: float
    informative: bool | None
    disagrees: bool = False  # rewards and outcomes give different verdicts
    rewarded: int = 0  # rollouts that it counts by their rewards, as none of the group has an outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEvidence:
    """Rollouts of one ticket that arrived together, after numbering, and the closing if they closed it."""

    ticket: int  # ordinal in the run
    attempt: int
    n: list[int]
    fragment: list[int]
    outcome: list[float | None]
    reward: list[float | None]
    status: list[int]
    tokens: list[int]
    seconds: list[float]
    version: list[int]
    ids: list[str | None]
    rewards: list[dict[str, float | None] | None]
    closing: Closing | None
    reopens: bool = False  # the report began the next attempt of an errored or lost ticket
    decisions: list[WaveDecision] = field(default_factory=list)  # of the waves that it completed, in order
    kept: list[int] = field(default_factory=list)  # bytes of each content that the store takes, 0 for none; or empty


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedEvidence:
    """A rollout that was refused, kept for the audit."""

    ticket: int
    attempt: int
    n: int | None  # None when the caller gave an id and no number
    id: str | None
    fragment: int
    code: str
    outcome: float | None
    reward: float | None
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutsReported(Event):
    """What one report added."""

    kind: ClassVar[str] = "rollouts_reported"
    groups: list[GroupEvidence]
    refused: list[RefusedEvidence]
    deadline: float | None = None  # unix seconds, of attempts that it begins


@dataclass(frozen=True, slots=True, kw_only=True)
class TicketsExpired(Event):
    """Tickets whose deadline passed; each counts what it has if that is enough."""

    kind: ClassVar[str] = "tickets_expired"
    tickets: list[int]
    closings: list[Closing]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecorded(Event):
    """One optimiser step, with what the trainer says of it."""

    kind: ClassVar[str] = "step_recorded"
    branch: int
    step: int
    policy_version: int
    trained: list[int] | None
    weights_applied: bool | None
    update_size: float | None
    costs: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsReceived(Event):
    """Numbers about prompts that the trainer pushed, made at one version of the policy. One entry each."""

    kind: ClassVar[str] = "signals_received"
    policy_version: int
    names: list[str]
    name: list[int]  # place in `names`
    row: list[int]
    value: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMade(Event):
    """Names a position in the log."""

    kind: ClassVar[str] = "checkpoint_made"
    branch: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Event):
    """Back to a checkpoint. `rewound` holds the per-prompt state at `position`."""

    kind: ClassVar[str] = "restored"
    step: int
    position: int
    restore_id: str | None
    beliefs: str
    in_flight: str
    branch: int  # the branch from here on
    at: float  # unix seconds; deadlines of reissued tickets count from it
    rewound: Mapping[str, np.ndarray] | None = field(default=None, repr=False, metadata=ATTACHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompleted(Event):
    """Open tickets are void from here on, and nothing is drawn."""

    kind: ClassVar[str] = "run_completed"


EVENTS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        RunBegun,
        ConfigChanged,
        PoolRevised,
        BatchDrawn,
        RolloutsReported,
        TicketsExpired,
        StepRecorded,
        SignalsReceived,
        WarmStarted,
        CheckpointMade,
        Restored,
        RunCompleted,
    )
}
_ARRAYS: dict[str, type[np.generic]] = {
    "row_K": np.int64,
    "audit_K": np.bool_,
    "inclusion_K": np.float64,
    "weight_K": np.float64,
    "ht_weight_K": np.float64,
    "credit_K": np.int32,
    "pass_rate_K": np.float64,
    "variance_K": np.float64,
    "informative_K": np.float64,
    "group_size_K": np.int32,
    "tokens_K": np.float64,
}
_LATER: dict[str, Any] = {"tokens_K": None}  # what older logs do not have


def event_from_json(kind: str, values: Mapping[str, Any]) -> Event:
    """The inverse of `to_json`; attached fields are None. Raises SnapshotDamaged for what this version cannot read."""
    cls = EVENTS.get(kind)
    if cls is None:
        raise SnapshotDamaged(f"the log holds an event of unknown kind {kind!r}; a newer version wrote it")
    read = dict(values)
    try:
        if cls is BatchDrawn:
            read = {**_LATER, **read}
            for name, dtype in _ARRAYS.items():
                if read.get(name) is not None:
                    read[name] = np.asarray(read[name], dtype)
        elif cls is RolloutsReported:
            read["groups"] = [
                GroupEvidence(
                    **{
                        **g,
                        "closing": Closing(**g["closing"]) if g["closing"] else None,
                        "decisions": [WaveDecision(**d) for d in g.get("decisions", ())],
                    }
                )
                for g in read["groups"]
            ]
            read["refused"] = [RefusedEvidence(**r) for r in read["refused"]]
        elif cls is TicketsExpired:
            read["closings"] = [Closing(**c) for c in read["closings"]]
        return cls(**read)
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotDamaged(f"the log holds a {kind} event that cannot be read: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (Closing, GroupEvidence, RefusedEvidence, WaveDecision)):
        return {name: _plain(getattr(value, name)) for name in _PARTS[type(value)]}
    if isinstance(value, list) and value and type(value[0]) in _PARTS:
        return [_plain(part) for part in value]
    return value


_PARTS = {cls: tuple(f.name for f in fields(cls)) for cls in (Closing, GroupEvidence, RefusedEvidence, WaveDecision)}
