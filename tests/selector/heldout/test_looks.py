"""Looks as they are read from runs, and that nothing that decides anything reads what they found."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import selector
from selector.batches.drawing import DrawRequest, plan_batch
from selector.config import LifecycleConfig
from selector.heldout.looks import held_out_looks, informative_groups, selected_draws
from selector.run.events import BatchDrawn, event_from_json
from selector.run.snapshot import restore_snapshot, snapshot
from selector.run.tickets import TicketBook
from selector.types import Purpose, VoidReason
from tests.selector.engine_cases import (
    KALMAN,
    Answer,
    Session,
    beliefs_of,
    coin,
    make_config,
    make_pool,
    rollout,
    rollouts,
    tickets_of,
    what_was_drawn,
)

HELDOUT = {"purpose": Purpose.HELDOUT}


def session(**config: Any) -> Session:
    return Session(make_config(**config), make_pool(30, heldout=range(20, 30)))


def always(value: float) -> Answer:
    return lambda row, index, n: value


def test_a_look_says_what_it_found_and_what_training_had_cost_before_it() -> None:
    run = session()
    run.answer_batch(run.draw(0, 3, **HELDOUT), always(0.0))
    run.answer_batch(run.draw(0, 4), always(1.0))
    run.step(0, 1, costs={"accelerators": 2, "generation_s": 3.0})
    batch = run.draw(1, 3, **HELDOUT)
    first, second, third = tickets_of(batch)
    run.report(first, rollouts(1.0, 0.0, 1.0, 1.0))
    run.report(second, rollouts(1.0, None, None, 0.0))
    run.void(third, VoidReason.ERROR)

    looks, waiting = held_out_looks(run.state)

    assert waiting == 0
    assert [look.spent["tokens"] for look in looks] == [0, 160], "the look before it is no cost of training"
    assert looks[0].spent["accelerator_s"] == 0.0
    assert looks[1].spent == {"tokens": 160, "rollouts": 16, "accelerator_s": 6.0, "energy_j": None}
    assert looks[1].outcome_K[:2].tolist() == [0.75, 0.5]
    assert np.isnan(looks[1].outcome_K[2])
    assert looks[1].outcome_KG[0].tolist() == [1, 0, 1, 1]
    assert np.isfinite(looks[1].outcome_KG).sum(axis=1).tolist() == [4, 2, 0]
    assert set(looks[1].row_K.tolist()) <= set(range(20, 30))


def test_a_look_with_an_open_ticket_ends_the_list() -> None:
    run = session()
    for index in range(3):
        batch = run.draw(index, 2, **HELDOUT)
        if index != 1:
            run.answer_batch(batch, always(1.0))

    looks, waiting = held_out_looks(run.state)

    assert [look.index for look in looks] == [0]
    assert waiting == 2


def test_looks_and_draws_that_a_restore_discarded_are_gone_and_their_cost_stays() -> None:
    run = session()
    run.answer_batch(run.draw(0, 4), always(1.0))
    run.checkpoint(1)
    run.answer_batch(run.draw(1, 4), always(1.0))
    run.answer_batch(run.draw(1, 2, **HELDOUT), always(1.0))
    run.restore(1)
    run.answer_batch(run.draw(1, 2, **HELDOUT), always(0.0))

    looks, _ = held_out_looks(run.state)

    assert [look.outcome_K.tolist() for look in looks] == [[0.0, 0.0]]
    assert looks[0].spent["tokens"] == 2 * 160 + 80, "the lost batch, and the look that was lost with it"
    assert [draw.outcome_K.size for draw in selected_draws(run.state)] == [4]


def test_informative_groups_are_counted_among_those_drawn_to_be_trained_on() -> None:
    run = session(audit_share=0.5)
    run.answer_batch(run.draw(0, 4), lambda row, index, n: float(n == 0))
    run.answer_batch(run.draw(0, 3, **HELDOUT), lambda row, index, n: float(n == 0))
    run.answer_batch(run.draw(0, 2, purpose=Purpose.CONTROL), always(1.0))
    run.answer_batch(run.draw(1, 2), always(1.0))

    assert informative_groups(run.state) == (4, 6)


@pytest.mark.parametrize("weights", ["none", "horvitz_thompson"])
def test_the_same_prompts_are_drawn_whatever_the_held_out_split_shows(weights: str) -> None:
    """All that decides: draws, chances, weights, stages, alarms, beliefs; to the bit."""

    def history(seed: int) -> Session:
        run = Session(
            make_config(replace(KALMAN, lifecycle=LifecycleConfig(groups=1)), audit_share=0.2, weights=weights),
            make_pool(30, heldout=range(20, 30)),
        )
        held_out = np.random.default_rng(seed).random(30)
        for index in range(12):
            looked_at = run.draw(index, 5, **HELDOUT)
            run.answer_batch(looked_at, coin(seed, held_out), version=index)
            run.answer_batch(run.draw(index, 6, policy_version=index), coin(7, np.linspace(0, 1, 30)), version=index)
            run.step(index, index + 1)
        return run

    one, other = history(1), history(2)

    outcomes = [np.concatenate([look.outcome_K for look in held_out_looks(run.state)[0]]) for run in (one, other)]
    assert not np.array_equal(outcomes[0], outcomes[1]), "the two histories saw different held-out outcomes"
    assert [what_was_drawn(b) for b in one.state.batches] == [what_was_drawn(b) for b in other.state.batches]
    assert beliefs_of(one.state) == beliefs_of(other.state)
    assert {n: a.tobytes() for n, a in one.state.rewindable().items()} == {
        n: a.tobytes() for n, a in other.state.rewindable().items()
    }
    assert one.state.alarms == other.state.alarms


def test_what_decides_does_not_import_what_reads_the_looks() -> None:
    root = Path(selector.__file__).parent
    readers = ("selector.heldout", "selector.audit", "selector.diagnosis")
    paths = [path.relative_to(root.parent) for path in root.rglob("*.py")]
    deciding = [path for path in paths if not ".".join(path.with_suffix("").parts).startswith(readers)]
    assert len(deciding) > 20
    for path in deciding:
        tree = ast.parse((root.parent / path).read_text(encoding="utf-8"))
        named = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not [name for name in named if name.startswith(readers)], path


def test_a_run_from_its_log_and_one_from_a_snapshot_have_the_same_looks_and_go_on_alike() -> None:
    run = session()
    for index in range(3):
        run.answer_batch(run.draw(index, 4), coin(3, np.linspace(0, 1, 30)))
        run.step(index, index + 1, costs={"accelerators": 1, "update_s": 0.1, "energy_j": 3.0})
        run.answer_batch(run.draw(index, 3, **HELDOUT), coin(5, np.linspace(0, 1, 30)))

    stored = restore_snapshot(snapshot(run.state), lambda revision: run.pools[revision])
    replayed = run.replayed().state

    for state in (stored, replayed):
        assert state.ledger == run.state.ledger
        for one, other in zip(held_out_looks(state)[0], held_out_looks(run.state)[0], strict=True):
            assert one.spent == other.spent
            assert one.outcome_KG.tobytes() == other.outcome_KG.tobytes()
        assert what_was_drawn_next(state) == what_was_drawn_next(run.state)


def what_was_drawn_next(state: Any) -> Any:
    event = plan_batch(state, DrawRequest(index=9, size=4, policy_version=3, group_size=4), now=0.0)
    return event.to_json()


def test_a_look_of_an_earlier_version_has_no_cost() -> None:
    run = session()
    run.answer_batch(run.draw(0, 2, **HELDOUT), always(1.0))
    written = run.state.batches[0].event.to_json()
    del written["spent"]

    read = event_from_json("batch_drawn", written)
    assert isinstance(read, BatchDrawn)
    assert read.spent == {}


def test_the_time_of_rollouts_goes_where_their_tokens_go() -> None:
    """Whole microseconds: to their purpose, to rejected when the ticket is void, to lost when a restore discards it."""
    run = session()
    first, second, third, fourth = tickets_of(run.draw(0, 4))
    run.checkpoint(0)
    run.report(first, [rollout(1.0, seconds=0.1) for _ in range(4)])
    run.report(second, [rollout(0.0, n=0, seconds=2.0000004)])
    run.void(second, VoidReason.ERROR)
    run.report(third, [rollout(1.0, seconds=1e300) for _ in range(4)])
    run.report(fourth, [rollout(1.0) for _ in range(4)])

    assert spent_us(run.state) == {"train": 400_000 + 4 * 10**12, "rejected": 2_000_000}
    assert spent_us(run.replayed().state) == spent_us(run.state)
    run.restore(0)
    assert spent_us(run.state) == {"lost": 400_000 + 4 * 10**12, "rejected": 2_000_000}
    assert spent_us(restore_snapshot(snapshot(run.state), lambda revision: run.pools[revision])) == spent_us(run.state)


def spent_us(state: Any) -> dict[str, int]:
    return {source.value: us for source, us in state.ledger.microseconds.items() if us}


def test_a_book_of_an_earlier_version_is_read_with_its_new_columns_at_zero() -> None:
    run = session()
    run.answer_batch(run.draw(0, 4), always(1.0))
    stored = {name: array for name, array in run.state.book.state().items() if name != "tickets.microseconds"}
    book = TicketBook()
    book.load_state(stored)
    assert book.tickets["microseconds"].tolist() == [0] * 4
    assert book.tickets["tokens"].tolist() == run.state.book.tickets["tokens"].tolist()
