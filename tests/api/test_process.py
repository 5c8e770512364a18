"""How a process that serves begins."""

import subprocess
import sys

import pytest

from tests.api.harness import ROOT

# glibc writes a line `<heap nr="..">` for every heap that it has; all threads take memory at one time.
COUNT = """
import ctypes, sys, threading
import numpy as np
from api.process import begin_process
from api.settings import Settings

library = ctypes.CDLL(None)
if not hasattr(library, "malloc_info"):
    sys.exit("another C library")
if sys.argv[1] == "shared":
    begin_process(Settings())
together = threading.Barrier(8)

def work():
    together.wait()
    kept = [np.ones(1_000) for _ in range(100)]
    together.wait()
    del kept

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library.fdopen.restype = ctypes.c_void_p
library.malloc_info(0, ctypes.c_void_p(library.fdopen(1, b"w")))
library.fflush(None)
"""


def test_threads_take_memory_from_one_heap() -> None:
    apart, shared = _heaps("apart"), _heaps("shared")
    assert shared < apart
    assert shared == 1


def _heaps(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, how],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "another C library" in done.stderr:
        pytest.skip("the C library is not glibc")
    assert done.returncode == 0, done.stderr
    return done.stdout.count("<heap nr=")
