"""Reports: what one call reports of groups and rollouts, and what is decided of it.

The edge makes a `Report`, `deciding` a `Decision` of it, and `RunEngine.report` hands both on. Values, and whether a
branch is the run's; which rollouts count is not known here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from selector.errors import BranchSuperseded, BranchUnknown
from selector.run.events import RolloutsReported
from selector.run.state import RunState
from selector.types import RolloutStatus, VoidReason


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


def check_branch(state: RunState, branch: int | None) -> None:
    """Raises BranchSuperseded for a branch that a restore replaced, BranchUnknown for one that never was."""
    if branch is None or branch == state.branch:
        return
    if branch < state.branch:
        raise BranchSuperseded(f"branch {branch} of run {state.run!r} was superseded by branch {state.branch}")
    raise BranchUnknown(f"run {state.run!r} has no branch {branch}; the current one is {state.branch}")
