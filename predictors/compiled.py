"""How the core compiles a loop over rows: one decorator, so that every kernel has the same rules of arithmetic.

Used by the files that hold kernels. Sums keep the order they are written in and no operation is contracted, so equal
inputs give equal bits on one build. Machine code is kept beside the file, or in the user's cache folder, and read again
by the next process. What is kept notices a change of its own file only: a kernel takes nothing from another file but
arguments.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numpy as np
from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function as machine code, made when it is first called with arguments of new types.

    Other threads of Python run meanwhile. A division by zero gives an infinity or NaN, as in numpy, and an index is not
    checked: callers see to both.
    """
    try:
        kernel = njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no folder can be written to, as in a sealed container: every process compiles for itself
        kernel = njit(nogil=True, error_model="numpy")(function)
    return cast(Callable[P, R], kernel)


KEPT_BYTES = 32 * 2**20 - 2**13
"""Just below the largest block that the C library of Linux keeps for itself once it has been freed (mallopt(3))."""


def keep_pages() -> None:
    """Let arrays of a large pool take the memory of those before them. Costs some microseconds; changes no value.

    By default a large array that is freed goes back to the system, and the next one takes new pages at some 0.2 ms a
    megabyte, more than reading it takes. The C library learns from the largest block it has seen freed: this is one,
    and none of its pages is ever touched. Elsewhere it does nothing.
    """
    np.empty(KEPT_BYTES, np.uint8)
