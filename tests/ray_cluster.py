"""A Ray cluster of one machine for tests, beside any others that may run here, and gone with its block.

Commands are pointed to it, and let in, by variables of their environment. It knows nothing of what is run there.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.api.harness import POLL_S, free_port

START_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0


@contextmanager
def ray_cluster(*, num_cpus: int) -> Iterator[dict[str, str]]:
    """What the environment of its commands needs. Raises RuntimeError, with what Ray said, if it does not start."""
    import ray

    # Not under pytest's tmp_path: that is too long for the paths of sockets (107 characters).
    folder = Path(tempfile.mkdtemp(prefix="mb-ray-"))
    port = free_port()
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # nobody else's code is run there
    options = {
        "port": port,
        "num-cpus": num_cpus,
        "include-dashboard": "false",
        "temp-dir": folder,
        "object-store-memory": 2**28,
    }
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
    command += [f"--{name}={value}" for name, value in options.items()]
    try:
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, **token},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            _wait(process, folder / "log")
            yield {"RAY_ADDRESS": f"{ray.util.get_node_ip_address()}:{port}", **token}
        finally:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    limit_s = time.monotonic() + START_LIMIT_S
    while "Ray runtime started" not in (said := log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > limit_s:
            raise RuntimeError(f"the tests' Ray cluster did not start; its log:\n{said}")
        time.sleep(POLL_S)
