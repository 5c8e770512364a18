"""How a process that serves begins: its log, when Python looks for cycles, and where its memory comes from.

Called by `api.serve` and by what serves on Ray, before they start threads of their own.
"""

import ctypes
import gc
import logging

from api.settings import Settings

# Objects that may be made before Python looks for cycles, by generation. A report has tens of thousands, none of them
# in a cycle; at Python's own thresholds a third of its time went into looking through everything the service holds.
COLLECT_AFTER = (100_000, 20, 100)
M_ARENA_MAX = -8  # glibc's malloc.h


def begin_process(settings: Settings) -> None:
    """Of any process that serves."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    gc.set_threshold(*COLLECT_AFTER)
    share_heap()


def share_heap() -> None:
    """Has all threads begun from now on take memory from one heap, where the C library is glibc. Earlier ones, as a
    worker of Ray has, keep theirs.

    By itself it gives each of the first threads one of its own, which that thread then has to fill with pages anew: the
    arrays over a million prompts of the first sixty draws or so cost a third more for that, and the heaps some 180 MiB.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(M_ARENA_MAX, 1)
