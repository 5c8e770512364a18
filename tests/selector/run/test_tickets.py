"""Ticket names, the columns behind tickets and rollouts, and attempts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.errors import SnapshotDamaged
from selector.run.columns import FIRST_CAPACITY, Columns
from selector.run.tickets import TicketBook, TicketName, hash_id, read_ticket_name
from selector.types import PURPOSES, TicketState, VoidReason

counts = st.integers(0, 10**19 - 1)


@given(
    st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True),
    st.sampled_from(PURPOSES),
    st.tuples(counts, counts, counts, counts),
)
def test_a_ticket_id_reads_back_as_it_was_written(run: str, purpose: str, numbers: tuple[int, int, int, int]) -> None:
    branch, index, refill, position = numbers
    name = TicketName(run, branch, purpose, index, refill, position)

    assert read_ticket_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "r",
        "r:0:train:1:0",
        "r:0:train:1:0:2:3",
        "r:0:eval:1:0:2",
        "r:-1:train:1:0:2",
        "r:0:train:1.0:0:2",
        "r:0:train::0:2",
        "r:٣:train:1:0:2",
        "r:0:train:1:0:" + "9" * 20,
    ],
)
def test_what_is_no_ticket_id_is_none(text: str) -> None:
    assert read_ticket_name(text) is None


def test_ids_hash_to_64_bits_apart_from_no_id() -> None:
    hashes = {hash_id(f"w{i}-{j}") for i in range(50) for j in range(50)}

    assert len(hashes) == 2500
    assert 0 not in hashes
    assert max(hashes) < 2**64
    assert hash_id(None) == 0
    assert hash_id("") not in {0, hash_id("a")}


def test_columns_grow_and_keep_what_they_hold() -> None:
    table = Columns({"a": (np.int64, -1), "b": (np.float64, np.nan)})
    table.extend(3)
    table["a"][:] = [1, 2, 3]

    first = table.extend(FIRST_CAPACITY)

    assert first == 3
    assert table["a"][:5].tolist() == [1, 2, 3, -1, -1]
    assert np.isnan(table["b"]).all()
    table.reset(slice(1, 2), ("a",))
    assert table["a"][:3].tolist() == [1, -1, 3]


def test_columns_come_back_and_go_on_growing() -> None:
    spec = {"a": (np.int64, 7.0)}
    table = Columns(spec)
    table.extend(2)
    table["a"][0] = 1
    again = Columns(spec)

    again.load_state(table.state("t."), "t.")
    again.extend(1)

    assert again["a"].tolist() == [1, 7, 7]
    assert table["a"].tolist() == [1, 7]


@pytest.mark.parametrize(
    "state", [{"t.a": np.zeros(1)}, {"t.a": np.zeros(1), "t.b": np.zeros(2)}], ids=["missing", "uneven"]
)
def test_columns_that_do_not_fit_are_refused(state: dict[str, np.ndarray]) -> None:
    with pytest.raises(SnapshotDamaged, match=r"'t\.'"):
        Columns({"a": (np.int64, 0), "b": (np.int64, 0)}).load_state(state, "t.")


def test_tickets_of_different_group_sizes_own_their_slots() -> None:
    book = TicketBook()

    book.issue(2, 4)
    ordinals = book.issue(3, 2)

    assert ordinals.tolist() == [2, 3, 4]
    assert [book.slots(ticket) for ticket in range(5)] == [
        slice(0, 4),
        slice(4, 8),
        slice(8, 10),
        slice(10, 12),
        slice(12, 14),
    ]
    assert list(book.open) == [0, 1, 2, 3, 4]
    assert (book.tickets["attempt"] == 1).all()


def ended(book: TicketBook, ticket: int, reason: VoidReason, seq: int) -> None:
    book.tickets["state"][ticket] = TicketState.VOID
    book.tickets["reason"][ticket] = reason
    book.tickets["ended_seq"][ticket] = seq
    del book.open[ticket]


def test_the_next_attempt_begins_empty_and_the_one_before_keeps_its_rollouts() -> None:
    book = TicketBook()
    book.issue(2, 2)
    book.rollouts["arrived"][2:4] = True
    book.rollouts["outcome"][2:4] = [1.0, 0.0]
    book.tickets["arrived"][1] = 2
    book.tickets["tokens"][1] = 20
    ended(book, 1, VoidReason.ERROR, 5)

    book.begin_attempt(1, 9)

    assert book.tickets["state"][1] == TicketState.OPEN
    assert book.tickets["reason"][1] == VoidReason.NONE
    assert [book.tickets[name][1] for name in ("attempt", "ended_seq", "arrived", "tokens")] == [2, 0, 0, 0]
    assert not book.rollouts["arrived"][book.slots(1)].any()
    assert book.slots(1, 1) == slice(2, 4)
    assert book.slots(1, 2) == book.slots(1)
    assert book.rollouts["outcome"][book.slots(1, 1)].tolist() == [1.0, 0.0]
    assert book.slots(0) == slice(0, 2)
    assert list(book.open) == [0, 1]


def test_a_ticket_was_void_between_the_end_of_an_attempt_and_the_next() -> None:
    book = TicketBook()
    book.issue(1, 2)
    ended(book, 0, VoidReason.ERROR, 5)
    book.begin_attempt(0, 9)
    book.begin_attempt(0, 12)  # a restore begins another one while this one is open
    ended(book, 0, VoidReason.LOST, 15)
    book.begin_attempt(0, 20)

    found = {seq: book.void_at(0, seq) for seq in (4, 5, 8, 9, 12, 15, 19, 20)}

    assert found == {
        4: None,
        5: (VoidReason.ERROR, 5),
        8: (VoidReason.ERROR, 5),
        9: None,
        12: None,
        15: (VoidReason.LOST, 15),
        19: (VoidReason.LOST, 15),
        20: None,
    }


def test_a_book_comes_back_with_its_fragments_attempts_and_deadlines() -> None:
    book = TicketBook()
    book.issue(3, 2)
    book.tickets["deadline"][:] = [30.0, 20.0, np.nan]
    book.fragments = {1: {4: (1.0, 5), 2: (1.0, 6)}, 0: {1: (np.nan, 7)}}
    ended(book, 1, VoidReason.LOST, 3)
    book.begin_attempt(1, 4)
    ended(book, 1, VoidReason.ERROR, 6)
    again = TicketBook()

    again.load_state(book.state())

    assert list(again.open) == [0, 2]
    assert again.next_deadline == 30.0
    assert list(again.fragments) == [1, 0]
    assert list(again.fragments[1]) == [4, 2]
    assert again.slots(1, 1) == slice(2, 4)
    for name, array in book.state().items():
        np.testing.assert_array_equal(again.state()[name], array)


def test_no_deadline_is_one_that_never_comes() -> None:
    book = TicketBook()
    book.issue(1, 2)

    book.find_next_deadline()

    assert book.next_deadline == np.inf
