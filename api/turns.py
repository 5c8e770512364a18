"""Lets long work, as uploads and exports are, give way to the commands of runs: both share one interpreter.

A thread that computes in Python takes the interpreter from every other each time that one comes back from the database
or from numpy, and a draw does so many times. Whoever works for long therefore works in slices, and between two of them
waits while commands are being carried out, though never for long, so that it gets on under any load. `RunService` says
when a command is under way, from before it is handed to a thread until its answer is back with the event loop: each
hand-over in between would wait for the interpreter. The import and the routes of pools ask. It knows neither of them.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

SLICE_S = 0.002  # how long the work goes on before it looks whether others wait
LONGEST_S = 0.02  # how long it then waits at most
ITEMS_BETWEEN_LOOKS = 16  # rows of an upload, each of some 20 microseconds

T = TypeVar("T")


class Turns:
    """Of one process. Thread safe."""

    def __init__(self) -> None:
        self._foremost = 0
        self._changed = threading.Condition()

    @contextmanager
    def foremost(self) -> Iterator[None]:
        """Around what others give way to."""
        with self._changed:
            self._foremost += 1
        try:
            yield
        finally:
            with self._changed:
                self._foremost -= 1
                if not self._foremost:
                    self._changed.notify_all()

    def give_way(self) -> None:
        """Waits until nothing foremost is under way, LONGEST_S at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._foremost, LONGEST_S)

    def pace(self, clock: Callable[[], float] = time.perf_counter) -> Callable[[], None]:
        """What one thread calls every few microseconds of long work: gives way when a slice is over."""
        began = clock()

        def look() -> None:
            nonlocal began
            if clock() - began >= SLICE_S:
                self.give_way()
                began = clock()

        return look


def paced(items: Iterable[T], look: Callable[[], None], *, every: int = ITEMS_BETWEEN_LOOKS) -> Iterator[T]:
    """The items, with a look after every few of them."""
    for place, item in enumerate(items):
        yield item
        if not place % every:
            look()
