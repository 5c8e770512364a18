"""Graders by name: ours, any function by its import path, and reward functions as TRL takes them.

    exact · numeric · choice · math · reasoning-gym     ours
    package.module:function                             function(completion, answer) -> number or None
    trl:package.module:function                         function(completions=[...], answer=[...]) -> [number or None]

The pool's processes call it: a foreign module is imported there and nowhere else.
"""

import importlib
from collections.abc import Callable
from typing import Any

from trainer.errors import InvalidRequest
from trainer.graders import GRADERS

Reward = Callable[[str, str | None], float | None]
TRL = "trl:"


def find_grader(name: str) -> tuple[Reward, bool]:
    """The function, and whether what it gives is a reward on any scale instead of an outcome in [0, 1].

    Raises InvalidRequest for a name that leads to no function.
    """
    if name in GRADERS:
        return GRADERS[name], False
    is_trl = name.startswith(TRL)
    module_name, _, function_name = name.removeprefix(TRL).partition(":")
    if not module_name or not function_name:
        raise InvalidRequest(
            f"no grader is called {name!r}: give one of {', '.join(GRADERS)}, package.module:function, or "
            "trl:package.module:function"
        )
    try:
        function = getattr(importlib.import_module(module_name), function_name, None)
    except ImportError as error:
        raise InvalidRequest(f"grader {name!r}: {module_name} cannot be imported: {error}") from error
    if not callable(function):
        raise InvalidRequest(f"grader {name!r}: {module_name} has no function {function_name}")
    return (_from_trl(function) if is_trl else function), is_trl


def _from_trl(function: Callable[..., Any]) -> Reward:
    """One completion at a time, as text; the prompt's answer is the column `answer`."""

    def reward(completion: str, answer: str | None) -> float | None:
        values = list(function(completions=[completion], answer=[answer]))
        if len(values) != 1:
            raise ValueError(f"a reward function gave {len(values)} rewards for one completion")
        return None if values[0] is None else float(values[0])

    return reward
