"""How long and how often a call is tried again. Used by `trainer.connection`; knows no HTTP.

The delays are fixed, without jitter: one trainer makes a handful of calls a step, so there is no herd to spread, and a
test or a log reads the same every time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

PATIENCE_S = 60.0  # a restart of the service with its recovery takes seconds; a GPU that waits longer wants a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delays of `first_s`, then `factor` times the last, never above `longest_s`, until `patience_s` is used up."""

    patience_s: float = PATIENCE_S
    first_s: float = 0.1
    factor: float = 2.0
    longest_s: float = 5.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if not self.patience_s >= 0:
            raise ValueError(f"patience_s must be a number of seconds >= 0, got {self.patience_s}")
        if not (self.first_s > 0 and self.factor >= 1 and self.longest_s >= self.first_s):
            raise ValueError(
                "a back-off needs first_s > 0, factor >= 1 and longest_s >= first_s, "
                f"got {self.first_s}, {self.factor} and {self.longest_s}"
            )

    def start(self) -> "Wait":
        """The wait of one call, from now."""
        return Wait(self)


class Wait:
    """One call's waiting: how much patience is left, and the next delay. Lives as long as the call."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._began_s = backoff.clock()
        self._next_s = backoff.first_s
        self.is_first = True  # nothing has failed yet

    @property
    def left_s(self) -> float:
        """Patience left; never below 0."""
        return max(0.0, self._backoff.patience_s - (self._backoff.clock() - self._began_s))

    def pause(self, at_least_s: float = 0.0) -> bool:
        """Sleep before the next try and say True; say False at once when patience does not reach that far.

        `at_least_s` is the server's own wish (Retry-After). Our own delay is cut so that the last try falls on the
        end of the patience; the server's is not, as it would only refuse again.
        """
        self.is_first = False
        left_s = self.left_s
        if left_s <= 0 or at_least_s > left_s:
            return False
        self._backoff.sleep(max(min(self._next_s, left_s), at_least_s))
        self._next_s = min(self._next_s * self._backoff.factor, self._backoff.longest_s)
        return True
