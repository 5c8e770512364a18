"""Random histories of a run, with the invariants checked after every event.

The machine draws, reports in every way a trainer may, loses answers and sends again, pushes signals, lets tickets
expire, saves, goes back, changes the configuration and the pool, and crashes. `pytest --hypothesis-profile=explore`
looks for new histories.
"""

from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from predictors.base import Column
from selector.config import BudgetConfig, ControllerConfig, Design, LifecycleConfig, Reads
from selector.refill import RefillConfig
from selector.rollout_store import RolloutStoreConfig
from selector.run.snapshot import snapshot
from selector.types import Lifecycle, Purpose, TicketState, VoidReason
from selector.waves import WaveConfig
from tests.selector.checked_run import NUM_ROWS, CheckedRun, Model, Saved, ShadowedSession, fingerprint
from tests.selector.engine_cases import make_config, make_policy, make_pool, tickets_of
from tests.selector.reported_run import GROUP_SIZE, ReportedRun, tickets

HELDOUT = (2, 5, 8)
SAMPLERS: list[tuple[Design, float | None]] = [("poisson", None), ("bernoulli", None), ("categorical", None)]
TTL_S = 50.0
RESTING = LifecycleConfig(level=0.5, sure=0.6, hopeless=0.9, groups=1)  # so that a few groups move a prompt
POOLS: dict[str, Any] = {
    "low": 0.4, "high": 0.6, "easy_weight": 0.2, "hard_weight": 0.2, "controller": ControllerConfig(name="pool_weights")
}  # fmt: skip

SCREEN = WaveConfig(rule="screen", first=2)
UNTIL = WaveConfig(rule="until_success", first=2, step=1)
BUDGET = BudgetConfig(rule="neyman", low=2, high=5)
SPENDING: list[dict[str, Any]] = [{}, {}, {"wave": SCREEN}, {"wave": UNTIL}, {"budget": BUDGET}]
STORES = [None, RolloutStoreConfig(max_rollouts=6, max_lag=2), RolloutStoreConfig(max_bytes=9, max_lag=1)]
CONTROLLERS: list[ControllerConfig | None] = [None, None, ControllerConfig(name="batch_size", options={"wanted": 3.0})]

values = st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])
what_of_beliefs = st.sampled_from(["rewind", "rewind", "keep"])
what_is_in_flight = st.sampled_from(["reissue", "reissue", "void"])


def versions_of(column: Column) -> np.ndarray:
    assert column.version_N is not None
    return column.version_N


class RunMachine(ReportedRun):
    @initialize(
        weights=st.sampled_from(["none", "horvitz_thompson", "clipped"]),
        utility=st.sampled_from(["informative", "informative", "uniform", "pools"]),
        estimator=st.sampled_from(["discounted_beta", "discounted_beta", "kalman_arcsine", "value"]),
        audit_share=st.sampled_from([0.0, 0.2, 0.5]),
        max_lag=st.sampled_from([None, 2]),
        ttl=st.sampled_from([TTL_S, None]),
        review_share=st.sampled_from([0.05, 0.4]),
        seed=st.integers(0, 3),
        reads=st.sampled_from(["belief", "mean", "draw", "shuffled"]),
        design=st.sampled_from([("proportional", None), ("top", None), ("top", 2.0), *SAMPLERS]),
        rests=st.booleans(),
        spending=st.sampled_from(SPENDING),
        refill=st.sampled_from([None, RefillConfig(rounds=3)]),
        controller=st.sampled_from(CONTROLLERS),
        store=st.sampled_from(STORES),
    )
    def begin(
        self,
        weights: str,
        utility: Literal["uniform", "informative", "pools"],
        estimator: str,
        audit_share: float,
        max_lag: int | None,
        ttl: float | None,
        review_share: float,
        seed: int,
        reads: Reads,
        design: tuple[Design, float | None],
        rests: bool,
        spending: dict[str, Any],
        refill: RefillConfig | None,
        controller: ControllerConfig | None,
        store: RolloutStoreConfig | None,
    ) -> None:
        self.flat = estimator == "discounted_beta"
        base = make_policy() if self.flat else make_policy(estimator=estimator, estimator_options={})
        policy = replace(base, utility=utility, reads=reads, refill=refill, controller=controller, **spending)
        if utility == "pools":
            policy = replace(policy, **POOLS)
        by_itself = design in SAMPLERS
        rules = RESTING if rests and utility != "uniform" and not by_itself else None
        config = make_config(
            replace(policy, design=design[0], candidates=design[1], lifecycle=rules),
            weights=weights,
            audit_share=audit_share,
            group_size=GROUP_SIZE,
            max_lag=max_lag,
            ticket_ttl_s=ttl,
            review_share=review_share,
            seed=seed,
            rollout_store=None if "wave" in spending else store,
        )
        self.session = ShadowedSession(config, make_pool(NUM_ROWS, heldout=HELDOUT))
        self.model = Model()
        self.next_index = Counter[str]()
        self.next_step = 0
        self.saved_seq = 0
        self.stored = snapshot(self.state)
        self.train_draw(4)

    # Draws

    @precondition(CheckedRun.is_running)
    @rule(
        size=st.integers(1, 12),
        refill=st.booleans(),
        allow_repeat=st.booleans(),
        short=st.sampled_from(["partial", "fill"]),
        divisor=st.sampled_from([1, 1, 2]),
        ahead=st.integers(0, 1),
    )
    def draw_train(self, size: int, **values: Any) -> None:
        self.train_draw(size, **values)

    def train_draw(
        self,
        size: int,
        refill: bool = False,
        allow_repeat: bool = False,
        short: Literal["partial", "fill"] = "partial",
        divisor: int = 1,
        ahead: int = 1,
    ) -> None:
        known = [key for key in self.state.surviving if key[0] == Purpose.TRAIN]
        if refill and known:
            _, index, last = max(known)
            request = self.session.request(index, size, refill=last + 1)
        else:
            request = self.session.request(self.next_index[Purpose.TRAIN], size)
            self.next_index[Purpose.TRAIN] += 1
        request = replace(
            request,
            allow_repeat=allow_repeat,
            short=short,
            divisor=1 if self.state.config.policy.design == "categorical" else divisor,
            policy_version=self.state.policy_version + ahead,
        )
        event = self.drawn(request)
        self.check_chances(request, event)
        self.owe(event)
        self.session.apply(event)

    @precondition(CheckedRun.is_running)
    @rule(purpose=st.sampled_from([p for p in Purpose if p is not Purpose.TRAIN]), size=st.integers(1, 4))
    def draw_other(self, purpose: Purpose, size: int) -> None:
        request = self.session.request(self.next_index[purpose], size, purpose=purpose)
        self.next_index[purpose] += 1
        self.session.apply(self.drawn(request))

    # Going on

    @precondition(CheckedRun.is_running)
    @rule(draws=st.integers(1, 4), size=st.integers(2, 5), lag=st.integers(0, 2))
    def go_on(self, draws: int, size: int, lag: int) -> None:
        self.train(draws, size, lag)

    def train(self, draws: int, size: int, lag: int) -> None:
        """What most of a run is: draws, reports that come after some more of them, steps."""
        for _ in range(draws):
            self.train_draw(size)
            alive = [b for b in self.state.batches if b.alive and b.event.purpose == Purpose.TRAIN]
            for ticket in tickets_of(alive[-1 - lag]) if len(alive) > lag else ():
                if self.state.book.tickets["state"][ticket] == TicketState.OPEN:
                    self.send(ticket, self.group(ticket, list(range(self.size_of(ticket)))))
            self.record_step(0, 1)

    @precondition(lambda self: self.state.config.rollout_store is not None and self.is_running())
    @rule(size=st.integers(2, 5), reported=st.integers(1, 4), lag=st.integers(0, 2))
    def probe_and_train(self, size: int, reported: int, lag: int) -> None:
        """Probes of the weights of now or of older ones, and a draw that may begin with what they made."""
        request = self.session.request(self.next_index[Purpose.PROBE], size, purpose=Purpose.PROBE, allow_repeat=True)
        self.next_index[Purpose.PROBE] += 1
        event = self.drawn(request)
        self.session.apply(event)
        for ticket in tickets_of(self.state.batches[-1])[:reported]:
            group = self.group(ticket, list(range(self.size_of(ticket))))
            self.send(ticket, group, version=max(self.state.policy_version - lag, 0))
        self.train_draw(size + 3)

    # Signals

    @precondition(CheckedRun.is_running)
    @rule(
        rows=st.lists(st.integers(0, NUM_ROWS - 1), min_size=1, max_size=4, unique=True),
        value=values,
        ahead=st.booleans(),
    )
    def push(self, rows: list[int], value: float, ahead: bool) -> None:
        """A number of some prompts, held-out ones among them: of one version the first stands, and a push sent again is
        no second event.
        """
        version = self.state.policy_version + ahead
        before = self.state.signals.columns.get("value")
        newer = [row for row in rows if before is None or versions_of(before)[row] < version]
        self.session.push(version, value=dict.fromkeys(rows, value))
        column, known = self.state.signals.columns["value"], self.state.seq
        assert (column.value_N[newer] == value).all()
        assert (versions_of(column)[rows] >= version).all()
        self.session.push(version, value=dict.fromkeys(rows, value))
        assert self.state.seq == known

    # Time, steps, changes

    @precondition(lambda self: self.state.config.ticket_ttl_s is not None)
    @rule(seconds=st.sampled_from([1.0, 30.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        now = self.session.now + seconds
        table = self.state.book.tickets
        due = np.flatnonzero((table["state"] == TicketState.OPEN) & (table["deadline"] <= now))
        assert self.session.expire(now) == due.tolist()
        assert (table["state"][due] != TicketState.OPEN).all()

    @rule(ahead=st.integers(0, 2), seconds=st.integers(0, 3))
    def step(self, ahead: int, seconds: int) -> None:
        self.record_step(ahead, seconds)

    def record_step(self, ahead: int, seconds: int) -> None:
        spent = self.state.ledger.seconds["update"]
        version = self.state.policy_version + ahead
        for _ in range(2):
            self.session.step(self.next_step, version, costs={"update_s": float(seconds)})
        self.next_step += 1
        assert self.state.ledger.seconds["update"] == spent + seconds

    @precondition(CheckedRun.is_running)
    @rule(
        weights=st.sampled_from(["none", "horvitz_thompson", "clipped"]),
        audit_share=st.sampled_from([0.0, 0.2, 0.5]),
        power=st.sampled_from([1.0, 3.0]),
        rules=st.sampled_from([RESTING, RESTING, None]),
    )
    def configure(self, weights: str, audit_share: float, power: float, rules: LifecycleConfig | None) -> None:
        policy = replace(self.state.config.policy, power=power)
        if policy.utility != "uniform" and policy.sampler is None:
            policy = replace(policy, lifecycle=rules)
        self.session.configure(weights=weights, audit_share=audit_share, policy=policy)

    @precondition(lambda self: len(self.session.pools) < 4)
    @rule(
        added=st.integers(0, 2),
        absent=st.lists(st.integers(0, NUM_ROWS), max_size=2),
        quarantined=st.lists(st.integers(0, NUM_ROWS), max_size=2),
    )
    def revise(self, added: int, absent: list[int], quarantined: list[int]) -> None:
        """New prompts, and prompts that go, come back, are put in quarantine or let out of it."""
        num_rows, revision = len(self.state.pool) + added, self.state.pool.revision + 1
        inside = [[row for row in rows if row < num_rows] for rows in (absent, quarantined)]
        self.session.revise(
            make_pool(num_rows, heldout=HELDOUT, absent=inside[0], quarantined=inside[1], revision=revision)
        )
        self.model.credit_N = np.r_[self.model.credit_N, np.zeros(added, np.int64)]

    # The end, and back

    @precondition(lambda self: self.is_running() and self.state.checkpoints)
    @rule(sure=st.sampled_from([False, False, True]))
    def complete(self, sure: bool) -> None:
        if sure:
            self.session.complete()
            assert not self.state.book.open

    @precondition(lambda self: self.state.seq >= self.saved_seq + 3)
    @rule()
    def save(self) -> None:
        self.checkpoint()

    def checkpoint(self) -> None:
        self.saved_seq = self.state.seq
        position = self.session.checkpoint(self.next_step)
        if position == self.state.seq:
            self.model.saved[position] = Saved(
                {name: array.tobytes() for name, array in self.state.rewindable().items()},
                sorted(self.state.book.open),
                self.model.credit_N,
                self.state.num_rows,
                self.state.lifecycle_start,
                self.state.controller_start,
            )

    @precondition(CheckedRun.is_running)
    @rule(
        more=st.integers(0, 2),
        lag=st.integers(0, 1),
        failed=st.lists(tickets, max_size=2),
        beliefs=what_of_beliefs,
        in_flight=what_is_in_flight,
    )
    def save_go_on_and_go_back(self, more: int, lag: int, failed: list[int], beliefs: str, in_flight: str) -> None:
        """The trainer dies some time after it saved, and comes back; groups that had failed were tried again."""
        for ticket in self.each_of(failed, TicketState.OPEN):
            self.send(ticket, self.group(ticket, [], void=VoidReason.ERROR))
        self.checkpoint()
        for ticket in self.each_of(failed, TicketState.VOID):
            self.try_again(ticket, [1])
        self.train(more, 3, lag)
        self.go_back(-1, beliefs, in_flight, twice=False)

    @precondition(lambda self: self.state.checkpoints)
    @rule(
        choice=st.integers(0, 100),
        beliefs=what_of_beliefs,
        in_flight=what_is_in_flight,
        twice=st.booleans(),
    )
    def restore(self, choice: int, beliefs: str, in_flight: str, twice: bool) -> None:
        self.go_back(choice, beliefs, in_flight, twice)

    def go_back(self, choice: int, beliefs: str, in_flight: str, twice: bool) -> None:
        found = self.state.checkpoints[choice % len(self.state.checkpoints)]
        position = next(c.seq for c in self.state.checkpoints if c.step == found.step)
        saved, model = self.model.saved[position], self.model
        rules_changed = self.state.lifecycle_start != saved.lifecycle_start
        told = self.session.restore(found.step, beliefs=beliefs, in_flight=in_flight)
        model.kept_beliefs |= beliefs == "keep"
        model.freed |= in_flight == "void"
        model.credit_N = np.r_[saved.credit_N, np.zeros(self.state.num_rows - saved.num_rows, np.int64)]
        if beliefs == "rewind" and self.state.num_rows == saved.num_rows:
            stages = {"lifecycle_N", "reviews_N", "mastered_draw_N"} if rules_changed else set()
            begun_anew = self.state.controller_start != saved.controller_start
            numbers = {n for n in saved.rewindable if n == "seen" or n.startswith("controlled.")}
            left_out = stages | numbers if begun_anew else stages
            rewound = self.state.rewindable()
            assert not begun_anew or not (rewound["seen"].any() or any(n.startswith("controlled.") for n in rewound))
            now = {n: a.tobytes() for n, a in rewound.items() if n not in left_out}
            assert now == {n: bits for n, bits in saved.rewindable.items() if n not in left_out}
        if beliefs == "rewind" and rules_changed:
            assert self.state.rows["lifecycle_N"].max() < Lifecycle.MASTERED
        if in_flight == "void":
            assert not self.state.book.open
        else:
            survives = [ticket for ticket in saved.open if self.state.batch_of(ticket).alive]
            assert sorted(self.state.book.open) == survives
            assert survives == saved.open or model.freed
        assert not self.state.completed
        self.next_index[Purpose.TRAIN] = told["next_index"]
        if twice:
            attempts = self.state.book.tickets["attempt"].copy()
            again = self.session.restore(found.step, beliefs=beliefs, in_flight=in_flight)
            assert again == {**told, "lost": 0}
            risen = self.state.book.tickets["attempt"] - attempts
            is_open = self.state.book.tickets["state"] == TicketState.OPEN
            assert risen.tolist() == is_open.astype(int).tolist()

    # Budgets

    @invariant()
    def a_budget_spends_what_whole_groups_would_have(self) -> None:
        event = self.state.batches[-1].event if self.state.batches else None
        if event is None or event.group_size_K is None:
            return
        assert event.rollouts_K.sum() == event.group_size * len(event.row_K)
        assert (event.rollouts_K[event.audit_K] == event.group_size).all()
        assert ((event.rollouts_K >= BUDGET.low) & (event.rollouts_K <= BUDGET.high)).all()

    # Crashes

    @rule(from_snapshot=st.booleans())
    def crash(self, from_snapshot: bool) -> None:
        """Starts again from the log, or from a snapshot and the log's tail, and stores a new one for the next time."""
        engine = self.session.resumed(self.stored) if from_snapshot else self.session.replayed()
        self.stored = snapshot(self.state)
        assert fingerprint(engine.state) == fingerprint(self.state)
        assert snapshot(engine.state) == self.stored
        self.session.engine = engine
        self.ask_for_each_batch_again()


RunMachine.TestCase.settings = settings(stateful_step_count=40)
test_invariants_hold_over_random_histories = RunMachine.TestCase
