"""The keys in memory: who is calling, answered without a query for each call.

One for each app, made in its lifespan and asked by `api.auth` from the event loop. All keys are read together and kept
for KEYS_LIVE_S: a new key, a revocation or a first key takes effect within that time, and a stream of unknown keys
costs no query. Where the keys cannot be read, nobody is let in.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from api.db.keys import list_keys
from api.db.session import read
from api.errors import Busy, Unauthenticated
from api.keys import EVERYTHING, Access, Key, prefix_of, recognised

KEYS_LIVE_S = 2.0  # how long what was read stays in use

logger = logging.getLogger("midband.api")


class Keyring:
    """Coroutines of one event loop only. `open_without_keys`: whether everything is allowed while no key exists."""

    def __init__(self, database: Engine, *, open_without_keys: bool) -> None:
        self._database, self._open = database, open_without_keys
        self._keys: Mapping[str, Key] = {}
        self._good_until_s = -1.0  # on the monotonic clock
        self._reading: asyncio.Task[None] | None = None
        # A thread of its own: a look at the keys must not wait behind work that their holders ordered.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="keys")

    async def access(self, presented: str | None) -> Access:
        """What the holder of a key may do; `presented` is what came as one, if anything.

        Raises Unauthenticated, or Busy where the keys cannot be read.
        """
        if time.monotonic() >= self._good_until_s:
            if self._reading is None:
                self._reading = asyncio.create_task(self._read())
            # Shielded: a caller that hangs up must not take the others' answer with it.
            await asyncio.shield(self._reading)
        if not self._keys and self._open:
            return EVERYTHING
        if presented is None:
            raise Unauthenticated("this service asks for a key: send it as `Authorization: Bearer <key>`")
        known = self._keys.get(prefix_of(presented) or "")
        if not recognised(presented, known) or known is None:
            raise Unauthenticated("the key is not one of this service: `midband key list` shows those there are")
        fault = known.fault(time.time())
        if fault is not None:
            logger.warning("refused a call with the key %s, which %s", known.prefix, fault)
            raise Unauthenticated(f"the key {known.prefix} {fault}: make another one with `midband key create`")
        return known.access

    def close(self) -> None:
        self._executor.shutdown()

    async def _read(self) -> None:
        try:
            began_s = time.monotonic()
            found = await asyncio.get_running_loop().run_in_executor(self._executor, self._query)
            self._keys, self._good_until_s = {key.prefix: key for key in found}, began_s + KEYS_LIVE_S
        except SQLAlchemyError as error:
            logger.error("the keys could not be read: %s", type(error).__name__)
            raise Busy("the keys cannot be read at the moment") from error
        finally:
            self._reading = None

    def _query(self) -> list[Key]:
        with read(self._database) as connection:
            return list_keys(connection)
