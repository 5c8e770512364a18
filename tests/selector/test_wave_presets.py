"""Presets that stop groups or fill batches up: the choices that their methods document, on pools made by hand."""

from typing import Any

import numpy as np
import pytest

from predictors.value import expected_over_counts
from selector.batches.refilling import refill_standing
from selector.config import RunConfig
from selector.policies import PRESETS
from selector.run.state import DrawnBatch
from selector.waves import Seen, Verdict, WaveConfig, decide, wave_ends
from tests.selector.engine_cases import Session, make_pool, rollout, tickets_of
from tests.selector.test_closed_forms import PASS_RATES


def session_of(name: str, **changes: Any) -> Session:
    preset = PRESETS[name]
    defaults: dict[str, Any] = {"audit_share": 0.0, "group_size": preset.group_size}
    return Session(RunConfig(pool="pool", policy=preset.config, **(defaults | changes)), make_pool(10))


def wave_of(name: str) -> WaveConfig:
    wave = PRESETS[name].config.wave
    assert wave is not None
    return wave


def play(session: Session, batch: DrawnBatch, passes: dict[int, str]) -> dict[int, tuple[int, float, bool]]:
    """By row: rollouts made, passes, and whether the method leaves it out. `passes`: a row's outcomes, then zeros."""
    table, found = session.state.book.tickets, {}
    for ticket in tickets_of(batch):
        row = int(table["row"][ticket])
        outcomes = passes.get(row, "").ljust(batch.event.group_size, "0")
        for n, one in enumerate(outcomes):
            if table["state"][ticket] == 0:
                session.report(ticket, [rollout(float(one), n=n)])
        found[row] = (int(table["scored"][ticket]), float(table["passes"][ticket]), bool(table["dropped"][ticket]))
    return found


def test_speed_screens_with_four_and_trains_mixed_prompts_on_twenty_four() -> None:
    session = session_of("speed")
    found = play(session, session.draw(0, 10), {0: "1111" + "1" * 20, 1: "0001" + "1" * 20, 2: "0000" + "1" * 20})

    assert [found[row] for row in range(4)] == [(4, 4.0, False), (24, 21.0, False), (4, 0.0, False), (4, 0.0, False)]


def test_pilot_commit_skips_defers_and_commits_by_sixteen_pilots() -> None:
    session = session_of("pilot-commit")
    pilots = {0: "1" * 13, 1: "1" * 12, 2: "1" * 2, 3: "1"}
    found = play(session, session.draw(0, 10), {row: text.ljust(16, "0") for row, text in pilots.items()})

    # 13/16 is above three quarters, 12/16 is not; 2/16 is an eighth, 1/16 is below.
    assert [found[row] for row in range(4)] == [(16, 13.0, True), (64, 12.0, False), (64, 2.0, False), (16, 1.0, True)]


def test_ar3po_stops_with_the_first_wave_that_has_a_right_answer() -> None:
    session = session_of("ar3po")
    found = play(session, session.draw(0, 10), {0: "1011", 1: "000001", 2: ""})

    assert [found[row] for row in range(3)] == [(4, 3.0, False), (8, 1.0, False), (16, 0.0, False)]


@pytest.mark.parametrize(
    ("name", "expected"), [("reinforce-ada", [8, 16, 32, 32]), ("reinforce-ada-positive", [8, 8, 8, 32])]
)
def test_reinforce_ada_stops_at_its_exit_or_after_four_rounds(name: str, expected: list[int]) -> None:
    session = session_of(name)
    outcomes = {0: "11", 1: "1" + "0" * 8 + "1", 2: "1" * 32, 3: ""}
    found = play(session, session.draw(0, 10), outcomes)

    assert [found[row][0] for row in range(4)] == expected


def test_aero_rescues_prompts_without_a_success_two_rollouts_at_a_time() -> None:
    session = session_of("aero")
    found = play(session, session.draw(0, 10), {0: "1", 1: "0" * 11 + "1", 2: ""})

    assert [found[row] for row in range(3)] == [(8, 1.0, False), (12, 1.0, False), (16, 0.0, False)]


def test_dapo_draws_until_the_batch_has_its_mixed_groups() -> None:
    session = session_of("dapo", group_size=4)
    mixed = dict.fromkeys((0, 1, 2), "01")
    play(session, session.draw(0, 5), mixed)
    refill = 1
    while (size := refill_standing(session.state, 0).size) is not None:
        play(session, session.draw(0, size, refill=refill), mixed)
        refill += 1
    standing = refill_standing(session.state, 0)
    table = session.state.book.tickets

    assert len(standing.kept) == 5 or standing.waves == 10
    assert len(standing.kept) == 5
    assert set(table["row"][list(standing.kept)].tolist()) <= set(mixed)
    assert standing.judged == table.size
    assert len(standing.kept) + len(standing.surplus) == standing.informative


def test_speed_weighs_prompts_as_published() -> None:
    """P(kept) and the step given that, relative to GRPO's: the column of SPEED 4 + 20.

    The first four are mixed with j right, the other twenty have k right: weight sqrt(n+ n−) of the whole 24.
    """
    wave, size = wave_of("speed"), PRESETS["speed"].group_size
    first, rest = wave_ends(wave, size)[0], size - wave_ends(wave, size)[0]
    p = np.array(PASS_RATES)

    def step(kept_j: np.ndarray) -> np.ndarray:
        total = np.zeros(len(p))
        for j in range(first + 1):
            share = (np.arange(rest + 1) + j) / size
            given_j = expected_over_counts(p, np.zeros(len(p)), np.sqrt(share * (1 - share)))
            is_j = np.zeros(first + 1)
            is_j[j] = kept_j[j]
            total += given_j * expected_over_counts(p, np.zeros(len(p)), is_j)
        return total

    kept_j = np.array(
        [
            decide(wave, Seen(right=j, scored=first, right_first=j, scored_first=first, informative=0 < j < first))
            is Verdict.CONTINUE
            for j in range(first + 1)
        ],
        float,
    )

    np.testing.assert_allclose(step(kept_j) / step(np.ones(first + 1)), [0.19, 0.29, 0.41, 0.62, 0.88], atol=0.01)
