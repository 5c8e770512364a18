"""The rollout store's bounds: what they let go of, what they keep, and that nothing is named twice."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.rollout_store import COLUMNS, NOBODY, Held, RolloutStoreConfig

ROOMY = RolloutStoreConfig(max_rollouts=100, max_bytes=10_000, max_lag=100)


def held(*sizes: int, versions: list[int] | None = None) -> Held:
    num = len(sizes)
    columns: dict[str, Any] = {
        "serial": np.arange(1, num + 1),
        "ticket": np.arange(num) // 2,
        "attempt": np.ones(num),
        "n": np.arange(num) % 2,
        "version": np.array(versions or [0] * num),
        "size": np.array(sizes),
        "given": np.full(num, NOBODY),
    }
    return Held().with_more(columns)


def left(store: Held) -> list[int]:
    found: list[int] = store["serial"].tolist()
    return found


def test_within_its_bounds_nothing_leaves() -> None:
    store = held(10, 20, 30)
    assert store.within(ROOMY, 0) is store
    assert store.serials == (1, 3)


def test_the_oldest_leave_first_where_there_are_too_many() -> None:
    assert left(held(10, 20, 30).within(RolloutStoreConfig(max_rollouts=2), 0)) == [2, 3]


def test_the_oldest_leave_until_the_rest_is_small_enough() -> None:
    # 30 + 20 = 50 fits, with the 10 more it does not.
    assert left(held(10, 20, 30).within(RolloutStoreConfig(max_bytes=50), 0)) == [2, 3]
    assert left(held(10, 20, 30).within(RolloutStoreConfig(max_bytes=59), 0)) == [2, 3]
    assert left(held(10, 20, 30).within(RolloutStoreConfig(max_bytes=60), 0)) == [1, 2, 3]
    assert left(held(10, 20, 30).within(RolloutStoreConfig(max_bytes=29), 0)) == []


def test_what_is_too_old_leaves_once_nothing_younger_is_before_it() -> None:
    store = held(1, 1, 1, 1, versions=[3, 5, 3, 5])
    assert left(store.within(RolloutStoreConfig(max_lag=1), 5)) == [2, 3, 4]
    assert left(store.within(RolloutStoreConfig(max_lag=2), 5)) == [1, 2, 3, 4]
    assert left(store.within(RolloutStoreConfig(max_lag=0), 6)) == []


@given(
    sizes=st.lists(st.integers(1, 40), max_size=12),
    versions=st.lists(st.integers(0, 4), min_size=12, max_size=12),
    most=st.integers(1, 12),
    room=st.integers(1, 200),
    lag=st.integers(0, 4),
)
def test_it_is_what_dropping_one_by_one_leaves(
    sizes: list[int], versions: list[int], most: int, room: int, lag: int
) -> None:
    store = held(*sizes, versions=versions[: len(sizes)])
    serials = left(store)
    while serials and (
        len(serials) > most or sum(sizes[s - 1] for s in serials) > room or 4 - versions[serials[0] - 1] > lag
    ):
        serials = serials[1:]
    assert left(store.within(RolloutStoreConfig(max_rollouts=most, max_bytes=room, max_lag=lag), 4)) == serials


def test_rollouts_are_found_by_their_names() -> None:
    store = held(1, 1, 1, 1)
    assert store.places_of([(1, 1, 1), (0, 1, 0), (1, 2, 0), (7, 1, 0)]) == {(1, 1, 1): 3, (0, 1, 0): 0}
    assert Held().places_of([(0, 1, 0)]) == {}
    assert Held().serials == (1, 0)


def test_what_was_given_stays_so_and_the_value_before_is_as_it_was() -> None:
    store = held(1, 1, 1)
    given_away = store.given_to(np.array([1]), np.array([9]))
    assert given_away["given"].tolist() == [NOBODY, 9, NOBODY]
    assert store["given"].tolist() == [NOBODY] * 3


def test_it_is_read_again_to_the_bit_and_empty_from_before_there_was_one() -> None:
    store = held(5, 6).given_to(np.array([0]), np.array([4]))
    again = Held.from_state(store.state())
    assert {name: again[name].tolist() for name in COLUMNS} == {name: store[name].tolist() for name in COLUMNS}
    assert len(Held.from_state({})) == 0


@pytest.mark.parametrize("bounds", [{"max_rollouts": 0}, {"max_bytes": 0}, {"max_lag": -1}])
def test_bounds_that_cannot_be_are_refused(bounds: dict[str, int]) -> None:
    ((name, value),) = bounds.items()
    with pytest.raises(ValueError, match=rf"rollout_store\.{name} must be >= \d, got {value}"):
        RolloutStoreConfig(**bounds)
