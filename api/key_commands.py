"""What `midband key` does: makes, lists and revokes the keys of a database, also while a server has it open.

Called by the command. Each change is a line in the trail of management calls. The whole key leaves this module once, as
the result of `create`; it is never logged.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from api.db.keys import insert_call, insert_key, list_keys, revoke_key
from api.db.migrate import refuse_outdated, upgrade
from api.db.session import create_database, lock_database, read, write
from api.errors import DatabaseLocked, ServiceError, shown
from api.keyring import KEYS_LIVE_S
from api.keys import Access, Key, Scope, digest_of, new_secret, prefix_of
from api.schemas import Name
from api.settings import Settings

DAY_S = 86_400
MAX_DAYS = 36_500
NAME_CHARACTERS = 200
SOON = f"a running service knows within {KEYS_LIVE_S:g} s"


class KeyRefused(ServiceError):
    """A value that no key can have, a key that is not there, or a database that is busy."""


def create(
    settings: Settings,
    *,
    name: str | None,
    scopes: Iterable[str],
    pools: Iterable[str],
    runs: Iterable[str],
    days: float | None,
) -> tuple[str, str]:
    """A new key, and what to say of it. Raises KeyRefused, or StartRefused where the database cannot be used."""
    now = time.time()
    prefix, secret = new_secret()
    access = Access(prefix=prefix, scopes=_scopes(scopes), pools=_names("pool", pools), runs=_names("run", runs))
    if name is not None and not (name.isprintable() and 0 < len(name) <= NAME_CHARACTERS):
        raise KeyRefused(f"a key's name has 1 to {NAME_CHARACTERS} printable characters, got {shown(name)}")
    if days is not None and not 0 <= days <= MAX_DAYS:  # NaN is in no range, and would be stored as "never"
        raise KeyRefused(f"a key expires after 0 to {MAX_DAYS} days, got {days}")
    key = Key(
        access=access,
        digest=digest_of(secret),
        name=name,
        created_at=now,
        expires_at=None if days is None else now + days * DAY_S,
        revoked_at=None,
    )
    with _opened(settings.database_url) as database, write(database) as connection:
        first = not list_keys(connection)
        insert_key(connection, key)
        insert_call(connection, at=now, key=None, action="midband key create", target=prefix)
    said = f"key {prefix}: {_scope_text(access)}; {_bound_text(access)}; {_until_text(key)}. Shown this once; {SOON}"
    if first:
        said += ". It is the first: from then on every call needs one, also from this machine"
    return secret, said


def table(settings: Settings) -> list[str]:
    """Every key there ever was, a line each, oldest first."""
    with _opened(settings.database_url) as database, read(database) as connection:
        known = list_keys(connection)
    if not known:
        return ["no keys: the service listens on its own machine only and asks for none"]
    now = time.time()
    rows = [("key", "state", "scopes", "bound to", "made", "expires", "name")]
    for key in known:
        state = (key.fault(now) or "in force").removeprefix("was ").removeprefix("has ")
        expires = "never" if key.expires_at is None else _day(key.expires_at)
        bound, scopes = _bound_text(key.access), _scope_text(key.access)
        rows.append((key.prefix, state, scopes, bound, _day(key.created_at), expires, key.name or ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def revoke(settings: Settings, text: str) -> str:
    """Ends a key, named by its prefix or whole; returns what to say. Again changes nothing. Raises KeyRefused."""
    prefix = prefix_of(text)
    if prefix is None:
        raise KeyRefused("that is no key: give the prefix, as `midband key list` shows it, mb_ and ten more characters")
    now = time.time()
    with _opened(settings.database_url) as database, write(database) as connection:
        before = revoke_key(connection, prefix, now)
        if before is None:
            raise KeyRefused(f"there is no key {prefix}: `midband key list` shows those there are")
        if before.revoked_at is not None:
            return f"key {prefix} was revoked before, {_day(before.revoked_at)}"
        insert_call(connection, at=now, key=None, action="midband key revoke", target=prefix)
    return f"key {prefix} is revoked; {SOON}"


@contextmanager
def _opened(url: str) -> Iterator[Engine]:
    """The database with its tables up to date; a server that has it open has seen to that."""
    database = create_database(url)
    try:
        try:
            lock = lock_database(url)
        except DatabaseLocked:
            refuse_outdated(database)
            yield database
        else:
            with lock:
                upgrade(database)
                yield database
    except OperationalError as error:
        reason = (str(error.orig).splitlines() or ["no reason given"])[0]
        raise KeyRefused(f"the database did not answer ({reason}), and nothing was changed: try again") from error
    finally:
        database.dispose()


def _scopes(names: Iterable[str]) -> frozenset[Scope]:
    given = frozenset(part for name in names for part in name.split(","))
    unknown = sorted(given - set(Scope))
    if unknown:
        raise KeyRefused(f"no scope is called {shown(unknown[0])}: there are {', '.join(Scope)}")
    return frozenset(map(Scope, given)) or frozenset(Scope)


def _names(kind: str, names: Iterable[str]) -> frozenset[str]:
    given = frozenset(names)
    try:
        return TypeAdapter(frozenset[Name]).validate_python(given)
    except ValidationError:
        raise KeyRefused(
            f"no {kind} can be called that, got {', '.join(map(shown, sorted(given)))}: names have small letters, "
            "digits, dots, underscores and dashes"
        ) from None


def _scope_text(access: Access) -> str:
    return ",".join(scope for scope in Scope if scope in access.scopes)


def _bound_text(access: Access) -> str:
    parts = [*(f"pool {name}" for name in sorted(access.pools)), *(f"run {name}" for name in sorted(access.runs))]
    return ", ".join(parts) or "everything"


def _until_text(key: Key) -> str:
    return "never expires" if key.expires_at is None else f"expires {_day(key.expires_at)}"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%MZ")
