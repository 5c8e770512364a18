"""Graders: from what a model wrote and the prompt's answer to an outcome in [0, 1]. One file each; pure functions.

`GRADERS` names them for configurations. None means no score, which is never a 0. Foreign code is run through `pool`, in
processes of its own; `named` finds it.
"""

from collections.abc import Callable, Mapping

from trainer.graders.choice import choice
from trainer.graders.exact import exact
from trainer.graders.math import math
from trainer.graders.numeric import numeric
from trainer.graders.puzzle import puzzle

Grader = Callable[[str, str | None], float | None]

GRADERS: Mapping[str, Grader] = {
    "exact": exact,
    "numeric": numeric,
    "choice": choice,
    "math": math,
    "reasoning-gym": puzzle,
}

__all__ = ["GRADERS", "Grader", "choice", "exact", "math", "numeric", "puzzle"]
