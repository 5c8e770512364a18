"""Graders: from what a model wrote and the prompt's answer to an outcome in [0, 1]. One file each; pure functions.

`GRADERS` names them for configurations. None means no score, which is never a 0.
"""

from collections.abc import Callable, Mapping

from trainer.graders.exact import exact
from trainer.graders.numeric import numeric

Grader = Callable[[str, str | None], float | None]

GRADERS: Mapping[str, Grader] = {"exact": exact, "numeric": numeric}

__all__ = ["GRADERS", "Grader", "exact", "numeric"]
