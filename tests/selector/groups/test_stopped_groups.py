"""Groups that their outcomes stop: k/n of them is biased, and nothing that reads a share of them is."""

import numpy as np
import pytest

from api.measuring import diagnosis_info
from predictors.base import Observations
from selector.config import LifecycleConfig, RunConfig
from selector.controllers.base import COUNTS
from selector.groups.standing import fixed_counts, fixed_shares
from selector.lifecycle.evidence import follow, log_factors
from selector.lifecycle.stating import state_prompts
from selector.policies import PRESETS, override
from selector.run.state import RunState
from selector.types import Lifecycle, Purpose, RolloutStatus, TicketState
from selector.waves import RIGHT_ABOVE, Seen, Verdict, WaveConfig, decide, wave_ends
from tests.selector.engine_cases import Session, make_config, make_policy, make_pool, numbered, rollout, tickets_of

UNTIL = WaveConfig(rule="until_success", first=1, step=1)
GROUP = 6
LEVEL = 0.9


def waved(wave: WaveConfig = UNTIL, **changes: object) -> RunConfig:
    policy = make_policy(wave=wave, **{k: changes.pop(k) for k in ("lifecycle",) if k in changes})
    return make_config(policy, **({"group_size": GROUP, "min_rollouts": 1} | changes))


def rolled_out(session: Session, draws: int, size: int, pass_rate: float, seed: int = 0) -> None:
    """Rollout after rollout, until the rule has enough; now and then one fails for another reason."""
    rng = np.random.default_rng(seed)
    for _ in range(draws):
        for ticket in tickets_of(session.draw(session.state.train_draws, size)):
            for n in range(GROUP):
                if session.state.book.tickets["state"][ticket] == TicketState.OPEN:
                    session.report(ticket, [rollout(float(rng.random() < pass_rate), n=n)])


def slow_fixed_counts(state: RunState, ticket: int) -> tuple[float, int]:
    event, table = state.batch_of(ticket).event, state.book.tickets
    waves = event.wave is not None and table["purpose"][ticket] in (0, 2)
    first = event.wave["first"] if event.wave is not None and waves else int(table["group_size"][ticket])
    slot, rollouts = int(table["slot"][ticket]), state.book.rollouts
    seen = [
        float(rollouts["outcome"][slot + n])
        for n in range(first)
        if rollouts["arrived"][slot + n] and rollouts["status"][slot + n] in (0, 3)
    ]
    return sum(seen), len(seen)


def test_what_was_sure_to_be_made_is_that_of_a_loop_over_tickets_of_any_draws() -> None:
    rng = np.random.default_rng(3)
    session = Session(waved(WaveConfig(rule="screen", first=2), audit_share=0.4, min_rollouts=2), make_pool(30))
    for index in range(6):
        if index == 3:  # waves of another size, and then none
            session.configure(policy=make_policy(wave=WaveConfig(rule="until_success", first=3, step=2)))
        if index == 5:
            session.configure(policy=make_policy())
        for ticket in tickets_of(session.draw(index, 6)):
            for n in range(GROUP):
                if session.state.book.tickets["state"][ticket] == TicketState.OPEN:
                    status = RolloutStatus.ERROR if rng.random() < 0.2 else RolloutStatus.OK
                    session.report(ticket, [rollout(float(rng.random() < 0.4), n=n, status=status)])
    table = session.state.book.tickets
    tickets = rng.permutation(np.flatnonzero(table["state"] == TicketState.REPORTED))
    found = list(zip(*(column.tolist() for column in fixed_counts(session.state, tickets)), strict=True))
    assert found == [slow_fixed_counts(session.state, ticket) for ticket in tickets.tolist()]
    assert {int(n) for _, n in found} >= {2, 3, GROUP}
    assert fixed_counts(session.state, np.zeros(0, np.int64))[0].size == 0


def test_a_first_wave_of_errors_leaves_the_whole_group_to_go_by() -> None:
    session = Session(waved(WaveConfig(rule="pilot", first=2, low=0.1, high=0.9), min_rollouts=2), make_pool(8))
    ticket, *_ = tickets_of(session.draw(0, 2))
    failed = [rollout(0.0, n=n, status=RolloutStatus.ERROR) for n in (0, 1)]
    session.report(ticket, [*(rollout(float(n == 2), n=n) for n in range(2, GROUP)), *failed])
    tickets = np.array([ticket])
    assert [column.tolist() for column in fixed_counts(session.state, tickets)] == [[0.0], [0]]
    assert fixed_shares(session.state, tickets).tolist() == [0.25]


def test_the_mean_share_that_a_controller_follows_is_not_lifted_by_stopping_on_a_pass() -> None:
    """At a pass rate of 0.2, E[k/n] of groups that end on a pass or at six is Σ_n (1/n)·0.8^(n−1)·0.2 = 0.391."""
    policy = override(PRESETS["adarft"].config, {"wave": UNTIL})
    session = Session(
        RunConfig(pool="pool", policy=policy, group_size=GROUP, min_rollouts=1, audit_share=0.0), make_pool(600)
    )
    rolled_out(session, 1, 500, 0.2)
    counts = dict(zip(COUNTS, session.state.seen.tolist(), strict=True))
    table = session.state.book.tickets
    biased = float((table["passes"] / table["scored"]).mean())
    assert biased == pytest.approx(sum(0.8 ** (n - 1) * 0.2 / n for n in range(1, GROUP + 1)), abs=4 * 0.4 / 500**0.5)
    assert biased > 0.3
    assert counts["groups"] == 500
    assert counts["share_sum"] / 500 == pytest.approx(0.2, abs=4 * 0.4 / 500**0.5)
    # What came of the groups as they were made is a fact: all that end on their first rollout are alike.
    assert counts["easy"] == np.count_nonzero((table["scored"] == 1) & (table["passes"] == 1))


def test_progress_is_rated_by_first_waves() -> None:
    session = Session(waved(WaveConfig(rule="until_success", first=2, step=2), min_rollouts=2), make_pool(8))
    ticket, *_ = tickets_of(session.draw(0, 2))
    session.report(ticket, numbered(n0=0.0, n1=0.0))
    session.report(ticket, numbered(n2=1.0, n3=1.0))
    row = int(session.state.book.tickets["row"][ticket])
    assert session.ticket(ticket)["passes"] == 2.0
    assert float(session.state.rows["fast_N"][row]) == 0.0


def test_a_review_is_a_slip_by_its_first_wave() -> None:
    """One of two passes, then all of four: five of six is no slip at 0.9, one of two is none either, none of two is."""
    rules = LifecycleConfig(level=LEVEL)
    for outcomes, slipped in (((1.0, 0.0), False), ((0.0, 0.0), True)):
        session = Session(
            waved(WaveConfig(rule="balanced", first=2, step=4, keep=6), lifecycle=rules, min_rollouts=2), make_pool(4)
        )
        session.state.rows["lifecycle_N"][:] = Lifecycle.MASTERED
        session.state.rows["mastered_draw_N"][:] = 1
        for _ in range(30):  # so sure a belief that a single group does not move it
            session.state.estimator.observe(_passed(session))
        ticket, *_ = tickets_of(session.draw(0, 2, short="fill"))
        session.report(ticket, [rollout(x, n=n) for n, x in enumerate(outcomes)])
        session.report(ticket, [rollout(1.0, n=n) for n in range(2, GROUP)])
        row = int(session.state.book.tickets["row"][ticket])
        assert session.ticket(ticket)["scored"] == GROUP
        assert (session.state.rows["lifecycle_N"][row] == Lifecycle.ACTIVE) == slipped


def test_a_statement_shows_first_waves_and_weighs_all_that_was_made() -> None:
    rules = LifecycleConfig(level=LEVEL)
    session = Session(
        waved(WaveConfig(rule="until_success", first=2, step=2), lifecycle=rules, min_rollouts=2), make_pool(4)
    )
    session.state.rows["mastered_draw_N"][:] = 1
    row, scored = -1, list[int]()
    for index in range(12):
        for ticket in tickets_of(session.draw(index, 2, short="fill")):
            row = int(session.state.book.tickets["row"][ticket])
            passes = float(row != 0)
            for start in (0, 2, 4):
                if session.state.book.tickets["state"][ticket] == TicketState.OPEN:
                    late = float(start == 2)  # the second wave passes, and ends it
                    session.report(ticket, [rollout(max(passes, late), n=start + i) for i in (0, 1)])
            scored += [session.ticket(ticket)["scored"]] * (row == 0)
    _, (found,) = state_prompts(session.state, rules)
    assert (found.row, found.reviews) == (0, len(scored))
    assert set(scored) == {4}
    assert (found.passes, found.scored) == (0.0, 2 * len(scored))
    whole = follow(np.zeros(len(scored), np.int64), np.full(len(scored), 2.0), np.array(scored), LEVEL, 1)
    assert found.log_e == pytest.approx(float(whole.log_e_M[0]))


@pytest.mark.parametrize(
    "rule",
    [
        WaveConfig(rule="until_success", first=1, step=2),
        WaveConfig(rule="balanced", first=2, step=2, keep=4),
        WaveConfig(rule="rescue", first=2, step=1, ceiling=0.5),
        WaveConfig(rule="screen", first=2),
        WaveConfig(rule="pilot", first=3, low=0.3, high=0.7),
    ],
    ids=lambda rule: rule.rule,
)
def test_evidence_against_the_level_has_mean_one_at_it_however_a_rule_stops(rule: WaveConfig) -> None:
    """Over all sequences of six outcomes. The share k/n has the mean of neither."""
    for pass_rate, exact in ((LEVEL, True), (0.95, False)):
        mean_J, mean_share = np.zeros(5), 0.0
        for code in range(2**GROUP):
            outcomes = [float(code >> n & 1) for n in range(GROUP)]
            k, n = stopped(rule, outcomes)
            chance = np.prod([pass_rate if x else 1 - pass_rate for x in outcomes])
            mean_J += chance * np.exp(log_factors(np.array([k]), np.array([n]), LEVEL)[0])
            mean_share += float(chance) * k / n
        if exact:
            np.testing.assert_allclose(mean_J, 1.0)
            if rule.rule in ("until_success", "rescue", "pilot"):
                assert abs(mean_share - LEVEL) > 0.001
        else:
            assert (mean_J < 1.0).all()


def test_what_smaller_groups_would_save_is_told_by_whole_groups_alone() -> None:
    """Pairs within a group that ended on a pass are no sample of pairs."""

    def saving(config: RunConfig) -> float | None:
        session = Session(config, make_pool(40))
        rolled_out(session, 3, 20, 0.3)
        session.step(0, 0, costs={"generation_s": 1.0})
        remedies = {one["remedy"]: one["saving"] for one in diagnosis_info(session.state)["remedies"]}
        found: float | None = remedies["groups of 3"]
        return found

    assert saving(waved()) is None
    assert saving(make_config(group_size=GROUP)) is not None


def test_probes_that_were_stopped_have_first_waves_too() -> None:
    session = Session(make_config(group_size=GROUP), make_pool(8))
    batch = session.draw(0, 4, purpose=Purpose.PROBE)
    assert batch.event.wave is not None
    ticket = batch.first_ticket
    for n in range(GROUP):
        if session.state.book.tickets["state"][ticket] == TicketState.OPEN:
            session.report(ticket, [rollout(1.0, n=n)])
    _, scored_B = fixed_counts(session.state, np.array([ticket]))
    assert scored_B.tolist() == [batch.event.wave["first"]]
    assert session.ticket(ticket)["scored"] >= scored_B[0]


def stopped(rule: WaveConfig, outcomes: list[float]) -> tuple[float, int]:
    """k and n of a group with these outcomes, as far as the rule lets it go."""
    ends = wave_ends(rule, len(outcomes))
    for end in ends[:-1]:
        right = [x > RIGHT_ABOVE for x in outcomes]
        seen = Seen(
            right=sum(right[:end]),
            scored=end,
            right_first=sum(right[: ends[0]]),
            scored_first=ends[0],
            informative=len(set(outcomes[:end])) > 1,
        )
        if decide(rule, seen) is not Verdict.CONTINUE:
            return sum(outcomes[:end]), end
    return sum(outcomes), len(outcomes)


def _passed(session: Session) -> Observations:
    rows = np.arange(session.state.num_rows)
    return Observations(
        rows_B=rows,
        passes_B=np.full(len(rows), 8.0),
        scored_B=np.full(len(rows), 8),
        version_B=np.zeros(len(rows), np.int64),
    )
