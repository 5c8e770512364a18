"""Numbers pushed by the trainer: which count, which are refused, and that they come back with everything else."""

import numpy as np
import pytest

from predictors.base import NEVER, Column
from selector.run.signals import MAX_NAMES
from selector.run.snapshot import restore_snapshot, snapshot
from tests.selector.checked_run import fingerprint
from tests.selector.engine_cases import Session, coin, make_config, make_policy, make_pool


def known(session: Session, name: str) -> dict[int, tuple[float, int]]:
    """Row -> number and version, where there is one."""
    column: Column = session.state.signals.columns[name]
    assert column.version_N is not None
    rows = np.flatnonzero(column.version_N != NEVER).tolist()
    return {row: (float(column.value_N[row]), int(column.version_N[row])) for row in rows}


def test_numbers_are_kept_by_name_and_row_with_their_version() -> None:
    session = Session()
    session.push(1, value={0: 0.25, 3: 0.5}, entropy={3: -2.0})

    assert known(session, "value") == {0: (0.25, 1), 3: (0.5, 1)}
    assert known(session, "entropy") == {3: (-2.0, 1)}


def test_a_newer_version_replaces_and_an_older_one_is_late() -> None:
    session = Session()
    session.draw(0, 2, policy_version=5)
    session.push(4, value={0: 0.25, 1: 0.25})
    later = session.push(6, value={0: 0.75})
    early = session.push(5, value={0: 0.1, 1: 0.5})

    assert (later.late, early.late, early.rejected) == (0, 1, [])
    assert known(session, "value") == {0: (0.75, 6), 1: (0.5, 5)}


def test_sent_again_they_count_once_and_of_one_version_the_first_stands() -> None:
    session = Session()
    session.push(1, value={0: 0.25, 1: 0.5})
    length = len(session.log)
    again = session.push(1, value={0: 0.25, 1: 0.5})
    other = session.push(1, value={0: 0.25, 1: 0.625})

    assert (again.event, again.duplicate, again.rejected) == (None, 2, [])
    assert (other.event, other.duplicate) == (None, 1)
    assert [(r.key, r.name, r.code) for r in other.rejected] == [("row 1", "value", "signal_conflict")]
    assert "0.5, now 0.625" in other.rejected[0].detail
    assert len(session.log) == length
    assert known(session, "value") == {0: (0.25, 1), 1: (0.5, 1)}


def test_an_unknown_prompt_is_refused_and_the_others_count() -> None:
    session = Session(pool=make_pool(8))
    decision = session.push(0, value={3: 0.5, 8: 0.5})

    assert [(r.key, r.name, r.code) for r in decision.rejected] == [("row 8", None, "unknown_prompt")]
    assert known(session, "value") == {3: (0.5, 0)}


@pytest.mark.parametrize("name", ["value", "weak", "strong"])
@pytest.mark.parametrize("number", [-1e-9, 1.001])
def test_a_pass_rate_outside_its_range_is_refused_and_other_names_are_not(name: str, number: float) -> None:
    session = Session()
    decision = session.push(0, **{name: {0: number, 1: 1.0}, "gap": {0: number}})

    assert [(r.key, r.name, r.code) for r in decision.rejected] == [("row 0", name, "bad_value")]
    assert str(number) in decision.rejected[0].detail
    assert set(known(session, name)) == {1}
    assert set(known(session, "gap")) == {0}


def test_a_version_that_the_run_cannot_know_yet_is_refused_for_all() -> None:
    session = Session()
    session.draw(0, 2, policy_version=5)

    assert not session.push(6, value={0: 0.5}).rejected
    refused = session.push(7, value={0: 0.5, 1: 0.5}).rejected
    assert [(r.key, r.name, r.code) for r in refused] == [
        ("row 0", None, "bad_policy_version"), ("row 1", None, "bad_policy_version")
    ]  # fmt: skip


def test_there_are_so_many_names_and_no_more() -> None:
    session = Session()
    session.push(0, **{f"x{i}": {0: 1.0} for i in range(MAX_NAMES - 1)})
    decision = session.push(0, last={0: 1.0}, over={0: 1.0, 1: 1.0})

    assert [(r.name, r.code) for r in decision.rejected] == [("over", "too_many_names")] * 2
    assert len(session.state.signals.columns) == MAX_NAMES
    assert not session.push(1, last={1: 2.0}).rejected


def test_a_pool_that_grows_keeps_its_numbers_and_new_rows_have_none() -> None:
    session = Session(pool=make_pool(8))
    session.push(0, value={7: 0.5})
    session.revise(make_pool(12, revision=2))
    session.push(0, value={11: 0.25})

    assert known(session, "value") == {7: (0.5, 0), 11: (0.25, 0)}


@pytest.mark.parametrize("beliefs", ["rewind", "keep"])
def test_a_restore_takes_numbers_back_unless_it_keeps_beliefs(beliefs: str) -> None:
    session = Session()
    session.push(0, value={0: 0.25})
    session.checkpoint(0)
    session.push(1, value={0: 0.75}, entropy={0: 1.0})
    session.restore(0, beliefs=beliefs)

    kept = beliefs == "keep"
    assert session.state.branch == 1
    assert known(session, "value") == {0: (0.75, 1) if kept else (0.25, 0)}
    assert ("entropy" in session.state.signals.columns) == kept


def test_a_run_from_its_log_and_one_from_a_snapshot_have_the_same_numbers() -> None:
    session = Session()
    session.push(0, value={0: 0.25, 5: 0.1})
    stored = snapshot(session.state)
    session.push(1, value={0: 0.75}, entropy={2: 1e300})

    assert fingerprint(session.resumed(stored).state) == fingerprint(session.state)
    assert fingerprint(session.fork().state) == fingerprint(session.state)


def test_a_snapshot_without_signals_has_no_trace_of_them() -> None:
    session = Session()

    assert not any(name.startswith("signal") for name in session.state.rewindable())
    assert restore_snapshot(snapshot(session.state), session.archive.pool).signals.columns == {}


@pytest.mark.parametrize("estimator", ["features", "value", "mixture"])
def test_a_run_with_signals_goes_on_to_the_bit_from_its_log_and_from_any_snapshot(estimator: str) -> None:
    """Draws and beliefs agree after a crash at any point, and after a restore that is replayed."""
    pool, rate_N = make_pool(160), np.linspace(0.05, 0.95, 160)
    policy = make_policy(estimator=estimator, estimator_options={})
    session = Session(make_config(policy, audit_share=0.2), pool)
    stored = []
    for index in range(8):
        near = {row: float(rate_N[row]) for row in range(index, 160, 2)}
        session.push(index, value=near, depth={row: row % 7 for row in range(0, 160, 3)})
        session.answer_batch(session.draw(index, 24, policy_version=index), coin(3, rate_N))
        stored.append(snapshot(session.state))
        if index == 4:
            session.checkpoint(4)
    session.restore(4, restore_id="a")
    stored.append(snapshot(session.state))
    session.push(8, value={0: 0.5, 3: 0.75})

    for data in stored[::2]:
        np.testing.assert_array_equal(session.resumed(data).state.beliefs().mean_N, session.state.beliefs().mean_N)
    other = session.fork()
    drawn, again = (one.draw(9, 24, policy_version=8).event for one in (session, other))
    np.testing.assert_array_equal(again.row_K, drawn.row_K)
    np.testing.assert_array_equal(again.inclusion_K, drawn.inclusion_K)
    for data in (stored[3], stored[-1]):
        assert fingerprint(session.resumed(data).state) == fingerprint(session.state)
    assert (session.state.estimator.state().get("fit_sums", np.ones(1)) != 0).any()
