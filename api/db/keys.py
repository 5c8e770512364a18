"""Queries on API keys and on the trail of management calls.

Called by the key commands, the keyring and the routes' guard. Keys are never deleted: a revoked one keeps its row, and
with it the service keeps asking for keys.
"""

from collections.abc import Iterable

import orjson
from sqlalchemy import Connection, Row, insert, select, update

from api.db.models import keys, management_calls
from api.keys import Access, Key, Scope


def insert_key(connection: Connection, key: Key) -> None:
    """Stores a new key. The prefix is unique."""
    connection.execute(
        insert(keys).values(
            prefix=key.prefix,
            digest=key.digest,
            name=key.name,
            scopes=_packed(key.access.scopes),
            pools=_packed(key.access.pools),
            runs=_packed(key.access.runs),
            created_at=key.created_at,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
        )
    )


def list_keys(connection: Connection) -> list[Key]:
    """Every key there ever was, oldest first."""
    return [_key(row) for row in connection.execute(select(keys).order_by(keys.c.created_at, keys.c.prefix))]


def revoke_key(connection: Connection, prefix: str, at: float) -> Key | None:
    """The key as it was before; from now on it opens nothing. None if no key has this prefix."""
    row = connection.execute(select(keys).where(keys.c.prefix == prefix)).one_or_none()
    if row is None:
        return None
    connection.execute(update(keys).where(keys.c.prefix == prefix, keys.c.revoked_at.is_(None)).values(revoked_at=at))
    return _key(row)


def insert_call(connection: Connection, *, at: float, key: str | None, action: str, target: str) -> None:
    """Adds a line to the trail. `key` is the caller's prefix."""
    connection.execute(insert(management_calls).values(at=at, key=key, action=action, target=target))


def _packed(names: Iterable[str]) -> str:
    return orjson.dumps(sorted(names)).decode()


def _key(row: Row[tuple[object, ...]]) -> Key:
    return Key(
        access=Access(
            prefix=row.prefix,
            scopes=frozenset(Scope(name) for name in orjson.loads(row.scopes)),
            pools=frozenset(orjson.loads(row.pools)),
            runs=frozenset(orjson.loads(row.runs)),
        ),
        digest=row.digest,
        name=row.name,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
