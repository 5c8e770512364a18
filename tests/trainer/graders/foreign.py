"""Graders of somebody else, for the tests of the pool: they run in its processes."""

import os
import signal
import time
from contextlib import suppress

DEAD = 3


def length(completion: str, answer: str | None) -> float | None:
    return None if answer is None else float(len(completion) == int(answer))


def kills_once(completion: str, answer: str | None) -> float:
    """Kills the process that asks, if the answer is a folder that nobody has made yet."""
    if answer is not None and answer.startswith("/"):
        with suppress(FileExistsError):
            os.mkdir(answer)
            os.kill(os.getppid(), signal.SIGKILL)
    return float(len(completion) % 2)


def misbehave(completion: str, answer: str | None) -> float | None:
    """Does what the completion says."""
    print(completion)  # noqa: T201
    if completion == "hang":
        time.sleep(60)
    if completion == "die":
        os._exit(DEAD)
    if completion == "raise":
        raise RuntimeError(f"quotes {completion} and {answer}")
    return {"nan": float("nan"), "inf": float("inf"), "two": 2.0, "right": 1.0}.get(completion, 0.0)


def reward(completions: list[str], answer: list[str], **kwargs: object) -> list[float | None]:
    return [
        None if text == "?" else 2.0 * (text == right) - 1.0 for text, right in zip(completions, answer, strict=True)
    ]


def needs_prompts(prompts: list[str], completions: list[str], **kwargs: object) -> list[float]:
    return [1.0]
