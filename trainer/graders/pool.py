"""Graders in processes of their own, each answer under a time limit: what foreign code does there ends there.

Engines call it like any grader. A worker that overruns is killed and replaced, as is one that dies. Whatever goes wrong
is no score, never a 0: the rollout is `unscored`, and the problem is counted under its name. Names hold no text of any
prompt or completion; neither does a log line, and what a grader prints goes nowhere.
"""

import logging
import math
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from trainer.errors import InvalidRequest, MidbandError
from trainer.graders.named import find_grader

logger = logging.getLogger(__name__)

LIMIT_S = 10.0  # of one answer; symbolic comparison takes seconds at worst
START_LIMIT_S = 120.0  # of a worker until it has imported its grader
JOIN_S = 5.0  # for a killed process to be gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What became of one answer."""

    outcome: float | None  # in [0, 1]
    reward: float | None = None  # where the grader gives one on another scale
    problem: str | None = None  # why there is no score


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection


class GraderPool:
    """A grader by name (see `named`) in `workers` processes. Threads may share it; close it, or use it with `with`.

    `problems` counts what went wrong, by name. Raises InvalidRequest at the start for a grader that cannot be had.
    """

    def __init__(self, grader: str, *, workers: int = 1, limit_s: float = LIMIT_S) -> None:
        if workers < 1 or not limit_s > 0:
            raise InvalidRequest(f"a pool of graders needs workers >= 1 and limit_s > 0, got {workers} and {limit_s}")
        self.problems: Counter[str] = Counter()
        self._grader, self._limit_s = grader, limit_s
        self._idle: queue.Queue[_Worker | None] = queue.Queue()
        self._size, self._lock, self._closed = workers, threading.Lock(), False
        self._idle.put(self._started())
        for _ in range(workers - 1):
            self._idle.put(None)  # started when it is needed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    def __call__(self, completion: str, answer: str | None) -> float | None:
        """The outcome alone, as engines ask a grader; None where there is none."""
        return self.grade(completion, answer).outcome

    def grade(self, completion: str, answer: str | None) -> Grade:
        """One answer, in the next free process."""
        worker = self._idle.get()
        try:
            if worker is None:
                worker = self._started()
            found, usable = self._asked(worker, completion, answer)
        except MidbandError:
            self._idle.put(None)
            raise
        if not usable:
            _end(worker)
            worker = None
        self._idle.put(worker)
        if found.problem is not None:
            with self._lock:
                self.problems[found.problem] += 1
                is_first = self.problems[found.problem] == 1
            if is_first:
                logger.warning("grader %s: %s; such answers are unscored", self._grader, found.problem)
        return found

    def close(self) -> None:
        """Ends the processes; waits for answers that are being graded. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        for _ in range(self._size):
            worker = self._idle.get()
            if worker is not None:
                _end(worker)

    def _asked(self, worker: _Worker, completion: str, answer: str | None) -> tuple[Grade, bool]:
        """The grade, and whether the worker can go on."""
        try:
            worker.pipe.send((completion, answer))
            if not worker.pipe.poll(self._limit_s):
                return Grade(outcome=None, problem=f"took longer than {self._limit_s:g} s"), False
            value, problem, is_reward = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(JOIN_S)
            return Grade(outcome=None, problem=f"its process died (exit code {worker.process.exitcode})"), False
        return (_grade(value, is_reward) if problem is None else Grade(outcome=None, problem=problem)), True

    def _started(self) -> _Worker:
        context = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self._grader, theirs), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        try:
            said = ours.recv() if ours.poll(START_LIMIT_S) else f"did not start within {START_LIMIT_S:g} s"
        except (EOFError, OSError):
            said = f"grader {self._grader!r}: its process died at the start"
        if said is not None:
            _end(worker)
            raise InvalidRequest(said)
        return worker


def _grade(value: float | None, is_reward: bool) -> Grade:
    if value is None or math.isnan(value):
        return Grade(outcome=None)
    if math.isinf(value):
        return Grade(outcome=None, problem="gave an infinity")
    if is_reward:
        return Grade(outcome=min(max(value, 0.0), 1.0), reward=value)
    if not 0.0 <= value <= 1.0:
        return Grade(outcome=None, problem="gave a number that is not within 0 and 1")
    return Grade(outcome=value)


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join(JOIN_S)
    worker.pipe.close()


def _work(name: str, pipe: Connection) -> None:
    """A worker's life: says None once it is ready, or what is wrong; then a grade for each answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command's own process ends it
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        grader, is_reward = find_grader(name)
    except Exception as error:
        pipe.send(str(error) if isinstance(error, MidbandError) else f"grader {name!r} cannot be loaded: {error!r}")
        return
    pipe.send(None)
    while True:
        try:
            completion, answer = pipe.recv()
        except (EOFError, OSError):
            return
        found: tuple[Any, str | None, bool]
        try:
            value = grader(completion, answer)
            found = (None if value is None else float(value), None, is_reward)
        except MidbandError as error:
            found = (None, str(error), is_reward)
        except Exception as error:
            # A grader meets whatever a model writes. The message may quote it, so the kind alone is told.
            found = (None, f"raised {type(error).__name__}", is_reward)
        pipe.send(found)
