"""The ledger's sums: one source at a time, nothing lost, nothing twice."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.ledger import MAX_VALUES, PHASES, Ledger, efficiency
from selector.types import SOURCES, Source


def test_a_new_ledger_has_every_source_and_phase_at_zero() -> None:
    ledger = Ledger()

    assert ledger.tokens == dict.fromkeys(SOURCES, 0)
    assert ledger.rollouts == dict.fromkeys(SOURCES, 0)
    assert ledger.seconds == dict.fromkeys(PHASES, 0.0)


def test_what_moves_keeps_the_total() -> None:
    ledger = Ledger()
    ledger.add(Source.TRAIN, tokens=100, rollouts=4)
    ledger.add(Source.AUDIT, tokens=20, rollouts=1)

    ledger.move(Source.TRAIN, Source.REJECTED, tokens=30, rollouts=1)
    ledger.move(Source.REJECTED, Source.LOST, tokens=5, rollouts=0)

    assert {source: n for source, n in ledger.tokens.items() if n} == {
        Source.TRAIN: 70,
        Source.AUDIT: 20,
        Source.REJECTED: 25,
        Source.LOST: 5,
    }
    assert sum(ledger.tokens.values()) == 120
    assert sum(ledger.rollouts.values()) == 5


def test_seconds_add_up_by_phase_and_the_environment_over_its_parts() -> None:
    ledger = Ledger()

    ledger.add_costs({"generation_s": 2.5, "environment_s": {"reset": 1.0, "act": 0.5}, "accelerators": 8})
    ledger.add_costs({"generation_s": 0.5, "update_s": 4.0, "environment_s": {}, "scoring_s": None})

    assert {phase: s for phase, s in ledger.seconds.items() if s} == {
        "generation": 3.0,
        "environment": 1.5,
        "update": 4.0,
    }


def test_the_ledger_comes_back_from_its_json() -> None:
    ledger = Ledger()
    ledger.add(Source.PROBE, tokens=7, rollouts=1)
    ledger.add_costs({"weight_sync_s": 0.25})
    ledger.statuses["scored"] += 3

    again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))

    assert again == ledger


def test_accelerator_seconds_are_accelerators_times_the_phases_of_their_step() -> None:
    ledger = Ledger()

    ledger.add_costs({"accelerators": 8, "generation_s": 2.0, "idle_s": 1.0, "environment_s": {"act": 0.5}})
    ledger.add_costs({"accelerators": 4, "update_s": 3.0})

    assert ledger.accelerator_s == 8 * 3.5 + 4 * 3.0
    assert ledger.accelerators == 8
    assert ledger.environment_seconds == {"act": 0.5}


def test_a_unit_that_one_step_keeps_to_itself_has_no_cost() -> None:
    ledger = Ledger()
    assert ledger.spent() == {"tokens": 0, "rollouts": 0, "accelerator_s": 0.0, "energy_j": 0.0}, "nothing was done yet"

    ledger.add(Source.TRAIN, tokens=100, rollouts=4)
    assert ledger.spent()["accelerator_s"] is None, "work without a step that says what it took"

    ledger.add_costs({"accelerators": 2, "generation_s": 1.0, "energy_j": 5.0})
    assert ledger.spent()["accelerator_s"] == 2.0
    assert ledger.spent()["energy_j"] == 5.0

    ledger.add_costs({"accelerators": 2, "generation_s": 1.0})
    assert ledger.spent()["accelerator_s"] == 4.0
    assert ledger.spent()["energy_j"] is None
    ledger.add_costs({"energy_j": 1.0})
    assert ledger.spent()["accelerator_s"] is None


def test_evaluation_and_control_arms_are_no_cost_of_training_and_everything_else_is() -> None:
    ledger = Ledger()
    for tokens, source in enumerate(SOURCES, start=1):
        ledger.add(source, tokens=10**tokens, rollouts=1)

    left_out = sum(10 ** (1 + SOURCES.index(source)) for source in (Source.HELDOUT, Source.CONTROL))
    assert ledger.spent()["tokens"] == sum(ledger.tokens.values()) - left_out
    assert ledger.spent()["rollouts"] == len(SOURCES) - 2


def test_the_trainer_says_what_it_spent_outside_of_tickets() -> None:
    ledger = Ledger()
    ledger.add_costs({"replay_tokens": 30, "overhead_tokens": 7})
    ledger.add_costs({"replay_tokens": 1})

    assert ledger.tokens[Source.REPLAY] == 31
    assert ledger.tokens[Source.OVERHEAD] == 7


def test_memory_is_its_peak_and_facts_that_change_keep_every_value_in_order() -> None:
    ledger = Ledger()
    ledger.add_costs({"peak_memory_bytes": {"accelerator": 5, "host": 9}, "environment": {"driver": "1", "model": "m"}})
    ledger.add_costs({"peak_memory_bytes": {"accelerator": 7, "host": 1}, "environment": {"driver": "2"}})
    ledger.add_costs({"environment": {"driver": "1"}})

    assert ledger.peak_memory_bytes == {"accelerator": 7, "host": 9}
    assert ledger.environment == {"driver": ["1", "2"], "model": ["m"]}
    assert ledger.steps == 2, "facts alone are no costs"
    for n in range(20):
        ledger.add_costs({"environment": {"driver": f"v{n}"}})
    assert len(ledger.environment["driver"]) == MAX_VALUES
    assert (ledger.environment["driver"][0], ledger.environment["driver"][-1]) == ("1", "v19")


def test_a_ledger_of_an_earlier_version_is_read_with_what_it_lacks_at_zero() -> None:
    early = Ledger()
    early.add(Source.TRAIN, tokens=7, rollouts=1)
    names = ("tokens", "rollouts", "seconds", "statuses")
    written = {name: value for name, value in early.to_json().items() if name in names}
    del written["tokens"]["replay"], written["tokens"]["overhead"]

    assert Ledger.from_json(written) == early


COSTS = st.fixed_dictionaries(
    {},
    optional={
        "accelerators": st.integers(0, 64),
        "generation_s": st.integers(0, 1000),
        "environment_s": st.dictionaries(st.sampled_from(["create", "reset", "act"]), st.integers(0, 100)),
        "energy_j": st.integers(0, 10**6),
        "replay_tokens": st.integers(0, 10**6),
        "peak_memory_bytes": st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 10**12)),
    },
)
MOVES = st.tuples(
    st.sampled_from(SOURCES), st.sampled_from(SOURCES), st.integers(0, 10**6), st.integers(0, 100), st.booleans()
)


@given(st.lists(st.one_of(COSTS, MOVES), max_size=40))
def test_sums_balance_whatever_happens_in_whatever_order(happened: list[Any]) -> None:
    ledger, tokens, rollouts, seconds, environment_s = Ledger(), 0, 0, 0, 0
    for what in happened:
        if isinstance(what, dict):
            ledger.add_costs(what)
            tokens += what.get("replay_tokens", 0)
            environment_s += sum(what.get("environment_s", {}).values())
            seconds += what.get("generation_s", 0) + sum(what.get("environment_s", {}).values())
        else:
            origin, target, num_tokens, num_rollouts, moves = what
            if moves:
                ledger.move(origin, target, tokens=num_tokens, rollouts=num_rollouts, microseconds=3 * num_tokens)
            else:
                ledger.add(target, tokens=num_tokens, rollouts=num_rollouts, microseconds=num_rollouts)
                tokens, rollouts = tokens + num_tokens, rollouts + num_rollouts

    assert sum(ledger.tokens.values()) == tokens
    assert sum(ledger.rollouts.values()) == rollouts == sum(ledger.microseconds.values())
    assert sum(ledger.seconds.values()) == seconds
    assert sum(ledger.environment_seconds.values()) == environment_s == ledger.seconds["environment"]
    assert Ledger.from_json(json.loads(json.dumps(ledger.to_json()))) == ledger


@pytest.mark.parametrize(
    ("group_size", "share", "hours", "groups_an_hour"), [(8, 0.40, 8_000, 2.5), (4, 0.70, 4_000, 8.75)]
)
def test_the_worked_example_of_the_cost_literature(
    group_size: int, share: float, hours: float, groups_an_hour: float
) -> None:
    """100 prompts a step, 0.02 GPU-hours a rollout, 500 steps."""
    ledger = Ledger()
    for _ in range(500):
        ledger.add(Source.TRAIN, tokens=0, rollouts=100 * group_size)
        ledger.add_costs({"accelerators": 1, "generation_s": 100 * group_size * 0.02 * 3600})
    found = efficiency(ledger.spent(), informative=round(500 * 100 * share), judged=500 * 100)

    spent_s, per_group_s = ledger.spent()["accelerator_s"], found.per_informative_group["accelerator_s"]
    assert spent_s is not None
    assert per_group_s is not None
    assert spent_s / 3600 == pytest.approx(hours)
    assert 3600 / per_group_s == pytest.approx(groups_an_hour)
    assert found.share == share
    assert found.per_informative_group["rollouts"] == pytest.approx(group_size / share)


def test_nothing_useful_has_no_price_and_impossible_counts_are_refused() -> None:
    found = efficiency({"tokens": 100.0, "energy_j": None}, informative=0, judged=0)
    assert found.share is None
    assert found.per_informative_group == {"tokens": None, "energy_j": None}
    with pytest.raises(ValueError, match="between 0 and the 3 judged ones, got 4"):
        efficiency({}, informative=4, judged=3)
