"""`midband serve`: one process that serves one database, started only when everything it needs is there.

Called by the command, and by `midband demo`, which has work of its own beside it. What can be refused is refused
before the server starts, in one sentence and not as a traceback.
"""

import errno
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from api.app import create_app
from api.db.keys import list_keys
from api.db.migrate import upgrade
from api.db.session import create_database, lock_database, read
from api.errors import StartRefused
from api.keys import Key
from api.process import begin_process
from api.settings import Settings, is_loopback, shown_url
from selector.warming import warm_up

BACKLOG = 2_048  # connections that may wait to be accepted
START_POLL_S = 0.01
logger = logging.getLogger("midband")


class PortInUse(StartRefused):
    """Another process listens on the port."""


class KeysMissing(StartRefused):
    """The address can be reached from elsewhere, and nothing would keep anybody out."""


def serve(settings: Settings) -> None:
    """Serves until it is told to stop. Raises StartRefused when it cannot start."""
    begin_process(settings)
    known = prepare_database(settings)
    with listen(settings) as listener:
        logger.info("database %s", shown_url(settings.database_url))
        if known:
            in_force = sum(key.fault(time.time()) is None for key in known)
            logger.info(
                "every call needs a key, %d of %d are in force; listening on %s", in_force, len(known), _url(listener)
            )
        else:
            logger.info("no keys exist: listening on this machine only, %s", _url(listener))
        warming().start()
        _server(settings, listener).run(sockets=[listener])


@contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """Serves from a thread for as long as the block runs; yields the URL. Raises StartRefused when it cannot start."""
    prepare_database(settings)
    with listen(settings) as listener:
        server, warmer = _server(settings, listener), warming()
        warmer.start()
        thread = threading.Thread(target=server.run, args=([listener],), name="midband service", daemon=True)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise StartRefused(f"the service on {shown_url(settings.database_url)} did not start")
                time.sleep(START_POLL_S)
            yield _url(listener)
        finally:
            server.should_exit = True
            thread.join()
            warmer.join()


def warming() -> threading.Thread:
    """Compiles what draws need while the service starts. No daemon: a process must not end in the middle of it."""
    return threading.Thread(target=warm_up, name="midband warm-up")


def _server(settings: Settings, listener: socket.socket) -> uvicorn.Server:
    # Port 0 is a real one only by now, and other servers are to find it.
    app = create_app(settings.model_copy(update={"port": listener.getsockname()[1]}))
    return uvicorn.Server(
        uvicorn.Config(app, log_level=settings.log_level, log_config=None, access_log=False, server_header=False)
    )


def prepare_database(settings: Settings) -> list[Key]:
    """Opens, migrates and lets go of the database: its refusals belong before the server's start.

    Returns the keys. Raises KeysMissing for an address that others can reach while there are none.
    """
    with lock_database(settings.database_url):
        database = create_database(settings.database_url)
        try:
            upgrade(database)
            with read(database) as connection:
                known = list_keys(connection)
        finally:
            database.dispose()
    if not known and not is_loopback(settings.host):
        raise KeysMissing(
            f"host {settings.host!r} is no loopback address and no key exists, so whoever reaches the port could read "
            "and write every run: make a key with `midband key create`, or listen on 127.0.0.1"
        )
    return known


def listen(settings: Settings) -> socket.socket:
    """A socket that listens where the settings say. Raises PortInUse, or StartRefused with what the system says."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named, as asyncio looks for it before it lets connections send at once: else the end of each
    # answer waits some 40 ms, until the caller's delayed acknowledgement of its beginning.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {settings.port} on {settings.host} is in use: stop the other process, or choose another port "
                "with --port or MIDBAND_PORT"
            ) from error
        raise StartRefused(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}") from error
    listener.listen(BACKLOG)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"
