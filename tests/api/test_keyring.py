"""Keys in memory: read rarely, old for a bounded time, and never in the way of the event loop."""

import asyncio
import logging
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, event, text

from api.db.keys import insert_key, revoke_key
from api.db.migrate import upgrade
from api.db.session import create_database, write
from api.errors import Busy, Unauthenticated
from api.keyring import KEYS_LIVE_S, Keyring
from api.keys import EVERYTHING, Access, Key, Scope, digest_of, new_secret


class Clock:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("api.keyring.time", clock)
    return clock


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_database(database_url)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def ring(engine: Engine) -> Iterator[Keyring]:
    ring = Keyring(engine, open_without_keys=True)
    yield ring
    ring.close()


def stored(engine: Engine, *, expires_at: float | None = None) -> str:
    """A key in the database; returns it whole."""
    prefix, key = new_secret()
    access = Access(prefix=prefix, scopes=frozenset({Scope.READ}))
    made = Key(access=access, digest=digest_of(key), name=None, created_at=1.0, expires_at=expires_at, revoked_at=None)
    with write(engine) as connection:
        insert_key(connection, made)
    return key


def revoked(engine: Engine, key: str) -> None:
    with write(engine) as connection:
        assert revoke_key(connection, key.rpartition("_")[0], 2.0) is not None


def asked(ring: Keyring, *presented: str | None) -> list[str]:
    """For each text the prefix of who it is, or the code of the refusal."""

    async def go() -> list[str]:
        answers = []
        for text_ in presented:
            try:
                answers.append(str((await ring.access(text_)).prefix))
            except (Unauthenticated, Busy) as error:
                answers.append(error.code)
        return answers

    return asyncio.run(go())


def test_while_no_key_exists_everybody_may_do_everything(ring: Keyring) -> None:
    async def go() -> None:
        assert await ring.access(None) is EVERYTHING
        assert await ring.access("anything") is EVERYTHING

    asyncio.run(go())


def test_where_others_reach_it_nobody_is_let_in_without_keys(engine: Engine) -> None:
    # The start is refused already; this holds also for keys that are deleted by hand while it runs.
    ring = Keyring(engine, open_without_keys=False)
    assert asked(ring, None, "anything") == ["unauthenticated"] * 2
    ring.close()


def test_a_key_is_who_it_says_and_anything_else_is_nobody(engine: Engine, ring: Keyring) -> None:
    key, other = stored(engine), new_secret()[1]
    prefix = key.rpartition("_")[0]
    forged = f"{prefix}_{other.rpartition('_')[2]}"
    assert asked(ring, key, None, "", prefix, forged, other, f"{key} ") == [prefix, *["unauthenticated"] * 6]


def test_the_first_key_a_new_key_and_a_revocation_are_known_within_the_bound(
    engine: Engine, ring: Keyring, clock: Clock
) -> None:
    assert asked(ring, None) == ["None"]
    first = stored(engine)
    assert asked(ring, None) == ["None"]
    clock.now_s += KEYS_LIVE_S
    assert asked(ring, None, first) == ["unauthenticated", first.rpartition("_")[0]]
    revoked(engine, first)
    second = stored(engine)
    clock.now_s += KEYS_LIVE_S - 0.01
    assert asked(ring, first, second) == [first.rpartition("_")[0], "unauthenticated"]
    clock.now_s += 0.01
    assert asked(ring, first, second) == ["unauthenticated", second.rpartition("_")[0]]


def test_a_service_whose_keys_are_all_revoked_stays_closed(engine: Engine, ring: Keyring) -> None:
    key = stored(engine)
    revoked(engine, key)
    assert asked(ring, None, key) == ["unauthenticated"] * 2


def test_a_key_that_is_revoked_again_keeps_the_time_of_the_first(engine: Engine) -> None:
    prefix = stored(engine).rpartition("_")[0]
    with write(engine) as connection:
        before = [revoke_key(connection, prefix, at) for at in (2.0, 5.0, 9.0)]
        assert revoke_key(connection, "mb_0123456789", 5.0) is None
    assert [key.revoked_at for key in before if key is not None] == [None, 2.0, 2.0]


def test_an_expiry_needs_no_look_at_the_database(engine: Engine, ring: Keyring, clock: Clock) -> None:
    key = stored(engine, expires_at=1_001.0)
    assert asked(ring, key) == [key.rpartition("_")[0]]
    clock.now_s += 1.0  # less than the bound
    assert asked(ring, key) == ["unauthenticated"]


def test_any_number_of_calls_and_unknown_keys_share_one_query(engine: Engine, ring: Keyring, clock: Clock) -> None:
    key = stored(engine)
    statements: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _count(*seen: object) -> None:
        if "FROM keys" in str(seen[2]):
            statements.append(str(seen[2]))

    async def go() -> None:
        await asyncio.gather(*(ring.access(key) for _ in range(50)))
        unknown = await asyncio.gather(*(ring.access(new_secret()[1]) for _ in range(50)), return_exceptions=True)
        assert all(isinstance(error, Unauthenticated) for error in unknown)

    asyncio.run(go())
    assert len(statements) == 1


def test_a_caller_that_hangs_up_does_not_take_the_others_answer_with_it(engine: Engine, ring: Keyring) -> None:
    key = stored(engine)

    async def go() -> None:
        first, second = (asyncio.create_task(ring.access(key)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).prefix == key.rpartition("_")[0]

    asyncio.run(go())


def test_the_event_loop_goes_on_while_the_database_keeps_a_look_waiting() -> None:
    engine = create_database("sqlite://")  # in memory, where a writer keeps readers out
    upgrade(engine)
    ring = Keyring(engine, open_without_keys=True)

    async def go() -> None:
        with write(engine):
            asking = asyncio.create_task(ring.access(None))
            began_s = time.monotonic()
            while time.monotonic() - began_s < 0.2:
                await asyncio.sleep(0.01)
            assert not asking.done()
        assert await asking is EVERYTHING

    asyncio.run(go())
    ring.close()
    engine.dispose()


def test_where_the_keys_cannot_be_read_nobody_is_let_in_until_they_can(
    engine: Engine, ring: Keyring, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    key = stored(engine)
    prefix = key.rpartition("_")[0]
    assert asked(ring, key) == [prefix]
    with write(engine) as connection:
        connection.execute(text("ALTER TABLE keys RENAME TO hidden"))
    assert asked(ring, key) == [prefix]
    clock.now_s += KEYS_LIVE_S
    assert asked(ring, key, None) == ["busy"] * 2
    assert "the keys could not be read" in caplog.text
    with write(engine) as connection:
        connection.execute(text("ALTER TABLE hidden RENAME TO keys"))
    assert asked(ring, key, None) == [prefix, "unauthenticated"]


def test_a_key_that_no_longer_opens_is_logged_by_its_prefix_only(
    engine: Engine, ring: Keyring, caplog: pytest.LogCaptureFixture
) -> None:
    key, unknown = stored(engine, expires_at=5.0), new_secret()[1]
    with caplog.at_level(logging.DEBUG):
        assert asked(ring, key, unknown) == ["unauthenticated"] * 2
    prefix, secret = key.rpartition("_")[0], key.rpartition("_")[2]
    assert f"{prefix}, which has expired" in caplog.text
    assert secret not in caplog.text
    assert digest_of(key) not in caplog.text
    assert unknown.rpartition("_")[0] not in caplog.text
