"""What a run keeps of the movement of pass rates, and what policies see of prompts beside beliefs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.batches.facts import row_facts
from selector.beliefs.progress import rate
from selector.errors import UnknownConfig
from selector.run.snapshot import restore_snapshot, snapshot
from selector.types import Purpose
from tests.selector.engine_cases import Session, make_config, make_policy, make_pool


def columns(num_rows: int) -> dict[str, np.ndarray]:
    return {
        "rated_N": np.zeros(num_rows, np.int32),
        "fast_N": np.zeros(num_rows, np.float32),
        "slow_N": np.zeros(num_rows, np.float32),
    }


def test_two_averages_by_hand() -> None:
    rows = columns(2)
    for share in (0.0, 1.0, 1.0):
        rate(rows, np.array([1]), np.array([share]))

    # Fast: 0, 1/2, 3/4. Slow: 0, 1/10, 19/100.
    assert rows["rated_N"].tolist() == [0, 3]
    np.testing.assert_allclose([rows["fast_N"][1], rows["slow_N"][1]], [0.75, 0.19], rtol=1e-6)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.25, 0.5, 1.0])), max_size=20))
def test_groups_of_one_report_count_in_their_order_as_one_by_one(groups: list[tuple[int, float]]) -> None:
    together, apart = columns(4), columns(4)
    rate(together, np.array([row for row, _ in groups], np.int64), np.array([share for _, share in groups]))
    for row, share in groups:
        rate(apart, np.array([row]), np.array([share]))

    assert {name: column.tobytes() for name, column in together.items()} == {
        name: column.tobytes() for name, column in apart.items()
    }


def test_what_is_seen_of_prompts_before_a_draw() -> None:
    session = Session(make_config(make_policy(utility="progress")), make_pool(6, heldout=[5]))
    first = session.draw(0, 2)
    session.answer_batch(first, lambda _row, _index, n: float(n < 1))
    session.draw(1, 1)
    facts = row_facts(session.state)
    tried = first.event.row_K

    assert facts.frame_N.tolist() == [True] * 5 + [False]
    assert facts.drawn_N[tried].min() >= 1
    # Drawn in the first of two draws: two ago. Never: one more than there were.
    others = np.setdiff1d(np.arange(6), np.r_[tried, session.state.batches[1].event.row_K])
    assert facts.age_N[others].tolist() == [3] * len(others)
    assert set(facts.age_N[np.setdiff1d(tried, session.state.batches[1].event.row_K)].tolist()) <= {2}
    assert facts.age_N[session.state.batches[1].event.row_K].tolist() == [1]
    # One group shows no movement.
    assert np.isnan(facts.progress_N).all()
    assert np.isnan(facts.feature_N).all()


def test_movement_is_recent_less_of_longer_ago() -> None:
    session = Session(make_config(make_policy(utility="progress")), make_pool(4))
    for index, passes in enumerate((0, 4)):
        session.answer_batch(
            session.draw(index, 4),
            lambda row, _index, n, k=passes: float(n < (k if row else 4 - k)),  # type: ignore[misc]
        )

    np.testing.assert_allclose(row_facts(session.state).progress_N, [-0.4, 0.4, 0.4, 0.4], rtol=1e-6)


def test_groups_that_beliefs_do_not_see_move_nothing() -> None:
    session = Session(make_config(), make_pool(6, heldout=[4, 5]))
    for purpose in (Purpose.HELDOUT, Purpose.CONTROL):
        batch = session.draw(0, 2, purpose=purpose)
        session.answer_batch(batch, lambda _row, _index, _n: 1.0)

    assert not session.state.rows["rated_N"].any()


@pytest.mark.parametrize("beliefs", ["rewind", "keep"])
def test_the_averages_go_where_the_beliefs_go(beliefs: str) -> None:
    session = Session(make_config(make_policy(utility="progress")), make_pool(4))
    session.answer_batch(session.draw(0, 4), lambda _row, _index, n: float(n < 2))
    session.checkpoint(1)
    then = session.state.rows["fast_N"].tobytes()
    session.answer_batch(session.draw(1, 4), lambda _row, _index, _n: 1.0)
    later = session.state.rows["fast_N"].tobytes()
    session.restore(1, beliefs=beliefs)

    assert session.state.rows["fast_N"].tobytes() == (then if beliefs == "rewind" else later)
    assert restore_snapshot(snapshot(session.state), session.archive.pool).rows["fast_N"].tobytes() == (
        session.replayed().state.rows["fast_N"].tobytes()
    )


def test_a_feature_that_the_pool_lacks_is_refused_with_those_it_has() -> None:
    config = make_config(make_policy(utility="difficulty", target=0.5, feature="length"))
    with pytest.raises(UnknownConfig, match=r"prompts of pool 'pool' have no number 'length'; they have \['difficulty"):
        Session(config, make_pool(4))
    session = Session(make_config(), make_pool(4))
    with pytest.raises(UnknownConfig, match="no number 'length'"):
        session.configure(policy=config.policy)
