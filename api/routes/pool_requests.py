"""What a request about a pool reaches: the pool that its path names, the database, the turns that long readers take.

For the endpoints in `pools` and `prompts`. Expects `database` and `service` on `app.state`.
"""

from fastapi import Request
from sqlalchemy import Engine

from api.db.pools import Pool, get_pool
from api.db.session import read
from api.routes.answers import service_of
from api.turns import Turns


def database_of(request: Request) -> Engine:
    engine: Engine = request.app.state.database
    return engine


def turns_of(request: Request) -> Turns:
    return service_of(request).store.turns


def pool_of(request: Request, name: str) -> Pool:
    with read(database_of(request)) as connection:
        return get_pool(connection, name)
