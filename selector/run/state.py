"""Everything a run knows, as data: the value that `folding` changes and everyone else reads.

Two parts: what a restore takes back (beliefs, credits, lifecycle, counters: `rewindable`) and what it does not
(tickets, batches, ledger, the pool).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from predictors.base import NEVER, Beliefs, Column, Estimator, State
from predictors.costs import Costs
from predictors.registry import build_estimator
from predictors.rewards import Rewards
from predictors.ties import Ties
from selector.config import RunConfig
from selector.controllers.base import COUNTS
from selector.errors import SnapshotDamaged
from selector.ledger import Ledger
from selector.pool import PoolState
from selector.rollout_store import Held
from selector.run.events import BatchDrawn, RefusedEvidence, SignalsReceived
from selector.run.signals import Signals
from selector.run.tickets import TicketBook, TicketName
from selector.sampling.revisits import assign_positions, rows_by_position
from selector.types import PURPOSES, Lifecycle, Source

Version = TypeVar("Version", int, np.ndarray)

ROW_COLUMNS: dict[str, type[np.generic]] = {
    "credit_N": np.int32,  # draws in a row for which the prompt was blocked just before
    "lifecycle_N": np.uint8,  # Lifecycle
    "drawn_N": np.int32,  # train draws that held it
    "last_draw_N": np.int64,  # 1 + ordinal of the last of them, 0 when there was none
    "groups_N": np.int32,  # groups reported, of every purpose that beliefs see
    "rollouts_N": np.int32,  # rollouts that came back
    "errors_N": np.int32,  # of them, infrastructure errors
    "overdue_N": np.bool_,  # a revisit it was blocked for
    "failed_N": np.int32,  # groups in a row in which nothing passed and nothing differed
    "reviews_N": np.int32,  # groups in a row that left it at rest, 0 at work
    "unscored_N": np.int32,  # groups in a row that came back without any score, while others were scored
    "same_N": np.int32,  # groups in a row that scored all alike, and like each other
    "score_N": np.float64,  # that score
    "mastered_draw_N": np.int64,  # 1 + train draws before it was last mastered, 0 when it never was
    "rated_N": np.int32,  # groups in the two averages of its shares passed, `selector.beliefs.progress`
    "fast_N": np.float32,  # the one that forgets sooner
    "slow_N": np.float32,
}
# Kept by a restore that keeps beliefs.
WITH_BELIEFS = ("lifecycle_N", "failed_N", "reviews_N", "mastered_draw_N", "rated_N", "fast_N", "slow_N")
CONTROLLED = "controlled."  # prefix of the controller's numbers in what a restore takes back
CLOCK = "clock"  # what a restore takes back of a run that began with another one's beliefs
COUNTERS = ("policy_version", "belief_version", "step", "train_draws", "revisit_draws", "dry_draws", "last_change")


@dataclass(slots=True)
class DrawnBatch:
    """A batch in the run's memory."""

    ordinal: int
    event: BatchDrawn
    seq: int
    first_ticket: int
    alive: bool = True  # False once a restore discarded it

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.event.purpose, self.event.index, self.event.refill)

    @property
    def tickets(self) -> np.ndarray:
        """Ordinals of its tickets."""
        return np.arange(self.first_ticket, self.first_ticket + len(self.event.row_K))


@dataclass(slots=True)
class Checkpoint:
    """A named position in the log."""

    step: int
    branch: int
    seq: int


@dataclass(slots=True)
class RunState:
    """N rows of the pool, in columns; see ROW_COLUMNS for the per-prompt ones."""

    run: str
    config: RunConfig
    config_hash: str
    pool: PoolState
    estimator: Estimator
    seq: int = 0  # events applied
    branch: int = 0
    policy_version: int = 0
    belief_version: int = 0  # that the beliefs stand at; ahead of policy_version after a restore that kept them
    clock_shift: int = 0  # versions by which the beliefs are ahead of the run, as they began in another one
    clock_open: bool = False  # whether the first version that the run names is still to come, and to set that
    started_from: dict[str, Any] | None = None  # run, step, position, discount of the beliefs that it began with
    step: int = -1  # -1: no step recorded
    train_draws: int = 0  # surviving draws of purpose train
    revisit_draws: int = 0  # 0: not set yet
    dry_draws: int = 0  # train draws since the last usable group
    last_change: int = 0  # seq of the last event that a restore could discard
    segment_start: int = 0  # seq at which the current configuration began
    lifecycle_start: int = 0  # seq at which prompts began to rest by the rules of now
    controller_start: int = 0  # seq at which the controller of now began
    completed: bool = False
    controlled: dict[str, float] = field(default_factory=dict)  # the controller's numbers at the last train draw
    quota_counts: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # `batches.quota_holding`; empty: none
    seen: np.ndarray = field(default_factory=lambda: np.zeros(len(COUNTS)))  # what came back since, as it counts
    rows: dict[str, np.ndarray] = field(default_factory=dict)
    signals: Signals = field(default_factory=Signals)
    held: Held = field(default_factory=Held)
    ever_held: int = 0  # rollouts that the store ever held, lost ones among them
    in_flight_N: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    revisit_position_N: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    revisit_row_P: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # row at each of these positions
    quarantined_N: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))  # by this run, beside the pool's
    book: TicketBook = field(default_factory=TicketBook)
    batches: list[DrawnBatch] = field(default_factory=list)
    surviving: dict[tuple[str, int, int], int] = field(default_factory=dict)
    by_branch: dict[tuple[int, str, int, int], int] = field(default_factory=dict)
    refused: dict[int, list[RefusedEvidence]] = field(default_factory=dict)  # ticket -> kept for the audit
    ledger: Ledger = field(default_factory=Ledger)
    steps: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    restores: dict[str, dict[str, Any]] = field(default_factory=dict)
    alarms: dict[str, dict[str, Any]] = field(default_factory=dict)
    costs: Costs = field(default_factory=Costs)
    ties: Ties = field(default_factory=Ties)
    rewards: Rewards = field(default_factory=Rewards)  # of prompts that have no outcomes
    heard: np.ndarray = field(
        default_factory=lambda: np.zeros(2)
    )  # audit tickets lost without a word, and all; `beliefs.silence`

    @property
    def num_rows(self) -> int:
        return len(self.pool)

    @property
    def frame_N(self) -> np.ndarray:
        """(N,) bool: prompts of the train split neither absent nor quarantined, by a person or by this run. For reading
        only: it may be the pool's own array.
        """
        if not self.quarantined_N.any():
            return self.pool.frame_N
        frame_N: np.ndarray = self.pool.frame_N & ~self.quarantined_N
        return frame_N

    def see_pool(self, pool: PoolState) -> None:
        """Switches to another revision; new rows begin as new prompts. A prompt that a person let out of quarantine is
        out of the run's too.
        """
        size, lifted = len(pool), np.flatnonzero(self.pool.quarantined_N & ~pool.quarantined_N[: len(self.pool)])
        self.pool = pool
        self.quarantined_N = grown(self.quarantined_N, size, np.bool_)
        for name, dtype in ROW_COLUMNS.items():
            self.rows[name] = grown(self.rows.get(name), size, dtype)
        self.quarantined_N[lifted] = False
        self.rows["unscored_N"][lifted] = 0
        self.in_flight_N = grown(self.in_flight_N, size, np.int32)
        self.revisit_position_N = assign_positions(self.revisit_position_N, pool.frame_N, self.config.seed)
        self.revisit_row_P = rows_by_position(self.revisit_position_N)
        self.estimator.resize(pool.category_N + 1)  # code 0 is "no category"
        self.costs.resize(pool.category_N + 1)
        self.ties.resize(len(pool.categories) + 1)
        self.rewards.resize(pool.category_N + 1)
        self.signals.grow(size)
        self._attach()

    def beliefs(self, rows: np.ndarray | None = None) -> Beliefs:
        return self.estimator.beliefs(rows)

    def pass_rates(self) -> Beliefs:
        """Beliefs of all prompts as a draw needs them: `Estimator.pass_rates`."""
        return self.estimator.pass_rates()

    def wake_all(self) -> None:
        """Nothing rests any more: the rules by which prompts went to rest are not those of now."""
        lifecycle_N = self.rows["lifecycle_N"]
        lifecycle_N[lifecycle_N >= Lifecycle.MASTERED] = Lifecycle.ACTIVE
        self.rows["reviews_N"][:] = 0
        self.rows["mastered_draw_N"][:] = 0
        self.lifecycle_start = self.seq

    def begin_controller(self) -> None:
        """The controller's numbers are not those of the policy of now: it begins anew."""
        self.controlled = {}
        self.seen = np.zeros(len(COUNTS))
        self.quota_counts = np.zeros((0, 0))
        self.controller_start = self.seq

    def see_version(self, policy_version: int) -> None:
        """A draw or step named this version of the policy; versions never go back but by a restore."""
        if self.clock_open:
            self.clock_shift, self.clock_open = self.clock_shift - policy_version, False
            self._attach()
        self.policy_version = max(self.policy_version, policy_version)
        if self.policy_version > self.belief_version:
            self.belief_version = self.policy_version
            self.estimator.advance(self.clock(self.policy_version))

    def clock(self, version: Version) -> Version:
        """A policy version of the run, or an array of them, as the beliefs count versions: never below 0."""
        if not self.clock_shift:
            return version
        if isinstance(version, np.ndarray):
            return np.asarray(np.maximum(version + self.clock_shift, 0))
        return max(version + self.clock_shift, 0)

    def begin_with(self, learned: Mapping[str, np.ndarray], policy_version: int, told: dict[str, Any]) -> None:
        """Beliefs of another run on the pool, which stand at this version. told: where they are from."""
        self._load_beliefs(learned, int(learned["num_rows"]))
        self.clock_shift, self.clock_open, self.started_from = policy_version, True, told
        self._attach()

    def see_signals(self, event: SignalsReceived) -> None:
        """The trainer pushed numbers; beliefs read them from here on."""
        self.signals.put(event)
        self._attach()
        self.last_change = self.seq

    def _attach(self) -> None:
        """Features of the pool and signals; of one name the signal counts."""
        features = {name: Column(value_N=value_N) for name, value_N in self.pool.features.items()}
        signals = {name: self._on_clock(column) for name, column in self.signals.columns.items()}
        self.estimator.attach({**features, **signals} if self.estimator.reads_columns else {})

    def _on_clock(self, column: Column) -> Column:
        """A signal with its versions as the beliefs count them."""
        version_N = column.version_N
        if not self.clock_shift or version_N is None:
            return column
        return replace(column, version_N=np.where(version_N == NEVER, NEVER, self.clock(version_N)))

    def batch_of(self, ticket: int) -> DrawnBatch:
        return self.batches[int(self.book.tickets["batch"][ticket])]

    def ticket_id(self, ticket: int) -> str:
        batch = self.batch_of(ticket).event
        position = int(self.book.tickets["position"][ticket])
        return str(TicketName(self.run, batch.branch, batch.purpose, batch.index, batch.refill, position))

    def source_of(self, ticket: int) -> Source:
        """The ledger's source of a ticket's tokens while nothing voids it: its purpose."""
        return Source(PURPOSES[int(self.book.tickets["purpose"][ticket])].value)

    def find_ticket(self, name: TicketName) -> int | None:
        """The ordinal of a ticket id of this run, or None when it was never issued."""
        ordinal = self.by_branch.get((name.branch, name.purpose, name.index, name.refill))
        if ordinal is None:
            return None
        batch = self.batches[ordinal]
        return batch.first_ticket + name.position if name.position < len(batch.event.row_K) else None

    def rewindable(self) -> dict[str, np.ndarray]:
        """What a restore takes back, as arrays."""
        return {
            **{name: self.rows[name].copy() for name in ROW_COLUMNS},
            "counters": np.array([getattr(self, name) for name in COUNTERS], np.int64),
            "quota_counts": self.quota_counts.copy(),
            "seen": self.seen.copy(),
            **{f"{CONTROLLED}{name}": np.array([value]) for name, value in self.controlled.items()},
            **self.signals.state(),
            **{f"estimator.{name}": array.copy() for name, array in self.estimator.state().items()},
            **{f"costs.{name}": array for name, array in self.costs.state().items()},
            **{f"ties.{name}": array for name, array in self.ties.state().items()},
            **{f"rewards.{name}": array for name, array in self._known_rewards().items()},
            "heard": self.heard.copy(),
            **({CLOCK: np.array([self.clock_shift, self.clock_open], np.int64)} if self.started_from else {}),
            **({} if self.config.rollout_store is None else self.held.state()),
        }

    def _known_rewards(self) -> State:
        """What is known of rewards; nothing while there are none, as in most runs."""
        return self.rewards.state() if self.rewards.is_known else {}

    def rewind(self, saved: Mapping[str, np.ndarray], *, beliefs: bool = True) -> None:
        """Takes back the rewindable part; rows added since stay, as new prompts. Columns that the version which saved
        it did not have begin anew.
        """
        size = len(saved["credit_N"])
        if size > self.num_rows:
            raise SnapshotDamaged(f"the saved state has {size} rows, the pool has {self.num_rows}")
        for name, dtype in ROW_COLUMNS.items():
            if beliefs or name not in WITH_BELIEFS:
                self.rows[name] = grown(saved.get(name), self.num_rows, dtype)
        for name, value in zip(COUNTERS, saved["counters"].tolist(), strict=True):
            if beliefs or name != "belief_version":
                setattr(self, name, value)
        self.controlled = {
            k.removeprefix(CONTROLLED): v[0].item() for k, v in saved.items() if k.startswith(CONTROLLED)
        }
        self.quota_counts = np.array(saved.get("quota_counts", np.zeros((0, 0))))
        self.seen = np.array(saved.get("seen", np.zeros(len(COUNTS))))
        self.held = Held.from_state(saved)
        # Draws that count anew: what was mastered in those that are lost was so before the next one.
        np.minimum(self.rows["mastered_draw_N"], self.train_draws + 1, out=self.rows["mastered_draw_N"])
        if beliefs:
            self._load_beliefs(saved, size)
            self.clock_shift, open_ = saved.get(CLOCK, np.zeros(2, np.int64)).tolist()
            self.clock_open = bool(open_)
            self.heard = np.array(saved.get("heard", np.zeros(2)))
            self.signals = Signals.from_state(saved)
            self.signals.grow(self.num_rows)
            self._attach()

    def _load_beliefs(self, saved: Mapping[str, np.ndarray], size: int) -> None:
        """Of the first rows, so many; columns that the version which saved them did not have begin anew."""
        category_N = self.pool.category_N + 1
        estimator = make_estimator(self.config)
        estimator.resize(category_N[:size])
        prefix = "estimator."
        estimator.load_state({k.removeprefix(prefix): v for k, v in saved.items() if k.startswith(prefix)})
        estimator.resize(category_N)
        self.estimator = estimator
        self.costs = Costs()
        if known := {k.removeprefix("costs."): v for k, v in saved.items() if k.startswith("costs.")}:
            self.costs.load_state(known)
        self.costs.resize(category_N)
        self.ties = Ties()
        if learned := {k.removeprefix("ties."): v for k, v in saved.items() if k.startswith("ties.")}:
            self.ties.load_state(learned)
        self.ties.resize(len(self.pool.categories) + 1)
        self.rewards = Rewards()
        if rewarded := {k.removeprefix("rewards."): v for k, v in saved.items() if k.startswith("rewards.")}:
            self.rewards.load_state(rewarded)
        self.rewards.resize(category_N)


def make_estimator(config: RunConfig) -> Estimator:
    return build_estimator(config.policy.estimator, config.policy.estimator_options)


def grown(array: np.ndarray | None, size: int, dtype: type[np.generic]) -> np.ndarray:
    """A copy with `size` rows, new ones zero."""
    result = np.zeros(size, dtype)
    if array is not None:
        result[: len(array)] = array
    return result
