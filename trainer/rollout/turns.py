"""Rollouts of several turns: the model says something, an environment answers, until it says that the episode is over.

A loop uses it as any engine. All episodes take their turns together, so the model is asked for many answers at a time;
the environments are asked one after the other. What an environment says is read by the model and not learned from. A
rollout is reported in fragments, one for each turn, once its outcome is known: `on_rollout` is called then, while other
episodes go on, so that a report need not wait for the slowest. The group that the loop reports at the end has the same
fragments, and they count once.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from api.schemas import Ticket
from trainer.rollout.base import Rollout, RolloutEngine, RolloutGroup, Turn

logger = logging.getLogger(__name__)

Phase = Literal["create", "reset", "act", "observe", "teardown"]
OnRollout = Callable[[Ticket, int, Rollout, int], None]  # ticket, number of the rollout, rollout, policy version


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What an environment shows after an action: text for the model; at the end what the episode was worth."""

    text: str = ""
    done: bool = False
    outcome: float | None = None  # in [0, 1]; None: no score


class Environment(Protocol):
    """One episode of one ticket."""

    def reset(self) -> str:
        """What the model reads behind the prompt before its first turn; may be empty."""

    def act(self, text: str) -> None:
        """Do what the model said: run a tool, make a move."""

    def observe(self) -> Observed:
        """What became of it."""

    def close(self) -> None:
        """Give back what the episode held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One turn of the model."""

    ids: list[int]
    logprobs: list[float]
    text: str
    ended: bool  # by itself, and not by a limit


class Speaker(Protocol):
    """What takes the model's turns."""

    def prompt_ids(self, ticket: Ticket) -> list[int]:
        """The ticket's prompt in tokens."""

    def encode(self, text: str) -> list[int]:
        """Text from an environment in tokens."""

    def fits(self, ids: Sequence[int]) -> bool:
        """Whether the model can read these and still answer."""

    def say(self, histories: Sequence[list[int]], turns: Sequence[tuple[Ticket, int, int]]) -> list[Said]:
        """An answer to each history; `turns` names them: ticket, number of the rollout, number of the turn."""


@dataclass(slots=True, kw_only=True)
class _Episode:
    ticket: Ticket
    number: int
    environment: Environment | None = None
    prompt: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)  # behind the prompt
    logprobs: list[float] = field(default_factory=list)
    written: list[bool] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    last: Observed = Observed()
    rollout: Rollout | None = None

    def hear(self, said: Said, seconds: float) -> None:
        self.ids += said.ids
        self.logprobs += said.logprobs
        self.written += [True] * len(said.ids)
        self.texts.append(said.text)
        self.turns.append(Turn(tokens=len(said.ids), seconds=seconds))

    def be_told(self, ids: list[int]) -> None:
        self.ids += ids
        self.logprobs += [0.0] * len(ids)
        self.written += [False] * len(ids)


class TurnsEngine(RolloutEngine):
    """Episodes of at most `max_turns` turns. `make` begins one for a ticket and the number of a rollout.

    An episode that runs out of turns or of the model's length is `truncated`, worth what its environment last said, or
    nothing. One whose environment raises is an `error`, which says nothing of the prompt.
    """

    def __init__(
        self,
        speaker: Speaker,
        make: Callable[[Ticket, int], Environment],
        *,
        max_turns: int,
        on_rollout: OnRollout | None = None,
    ) -> None:
        if max_turns < 1:
            raise ValueError(f"max_turns must be >= 1, got {max_turns}")
        self._speaker, self._make, self._max_turns = speaker, make, max_turns
        self._on_rollout = on_rollout
        self._seconds: dict[str, float] = {}
        self._counting = threading.Lock()  # a trainer may ask while a worker generates

    def environment_s(self) -> dict[str, float]:
        with self._counting:
            seconds, self._seconds = self._seconds, {}
        return seconds

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        episodes = [_Episode(ticket=ticket, number=n) for ticket in tickets for n in range(ticket.group_size)]
        for episode in episodes:
            self._begin(episode, policy_version)
        for turn in range(self._max_turns):
            going = [episode for episode in episodes if episode.rollout is None]
            if not going:
                break
            began_s = time.perf_counter()
            said = self._speaker.say(
                [episode.prompt + episode.ids for episode in going],
                [(episode.ticket, episode.number, turn) for episode in going],
            )
            seconds_per_token = (time.perf_counter() - began_s) / max(1, sum(len(one.ids) for one in said))
            for episode, one in zip(going, said, strict=True):
                episode.hear(one, seconds_per_token * len(one.ids))
                self._answer(episode, last=turn + 1 == self._max_turns, version=policy_version)
        made = iter(episodes)
        return [
            RolloutGroup(ticket=ticket, rollouts=tuple(_done(next(made)) for _ in range(ticket.group_size)))
            for ticket in tickets
        ]

    def _begin(self, episode: _Episode, version: int) -> None:
        episode.prompt = self._speaker.prompt_ids(episode.ticket)
        try:
            with self._timed("create"):
                episode.environment = self._make(episode.ticket, episode.number)
            with self._timed("reset"):
                text = episode.environment.reset()
        except Exception:
            self._fail(episode, version)
            return
        episode.prompt = episode.prompt + self._speaker.encode(text) if text else episode.prompt

    def _answer(self, episode: _Episode, *, last: bool, version: int) -> None:
        """The environment's turn."""
        environment = episode.environment
        assert environment is not None
        try:
            with self._timed("act"):
                environment.act(episode.texts[-1])
            with self._timed("observe"):
                episode.last = environment.observe()
        except Exception:
            self._fail(episode, version)
            return
        told = [] if episode.last.done or not episode.last.text else self._speaker.encode(episode.last.text)
        if episode.last.done:
            self._finish(episode, version)
        elif last or not self._speaker.fits(episode.prompt + episode.ids + told):
            self._finish(episode, version, truncated=True)
        else:
            episode.be_told(told)

    def _fail(self, episode: _Episode, version: int) -> None:
        # An environment meets whatever a model says, and its own troubles. One costs one rollout, by name.
        logger.warning(
            "ticket %s, rollout %d: the environment failed", episode.ticket.ticket, episode.number, exc_info=True
        )
        self._finish(episode, version, failed=True)

    def _finish(self, episode: _Episode, version: int, *, truncated: bool = False, failed: bool = False) -> None:
        if episode.environment is not None:
            try:
                with self._timed("teardown"):
                    episode.environment.close()
            except Exception:
                logger.warning("ticket %s: an environment did not close", episode.ticket.ticket, exc_info=True)
        outcome = None if failed else episode.last.outcome
        if truncated and outcome is None:
            outcome = 0.0
        episode.rollout = Rollout(
            outcome=outcome,
            tokens=sum(episode.written),
            seconds=sum(turn.seconds for turn in episode.turns),
            status="error" if failed else "truncated" if truncated else "unscored" if outcome is None else "ok",
            text="\n".join(episode.texts),
            prompt_ids=episode.prompt,
            completion_ids=episode.ids,
            logprobs=episode.logprobs,
            finish_reason="length" if truncated else "stop",
            written=episode.written,
            turns=episode.turns,
        )
        if self._on_rollout is not None:
            self._on_rollout(episode.ticket, episode.number, episode.rollout, version)

    @contextmanager
    def _timed(self, phase: Phase) -> Iterator[None]:
        began_s = time.perf_counter()
        try:
            yield
        finally:
            took_s = time.perf_counter() - began_s
            with self._counting:
                self._seconds[phase] = self._seconds.get(phase, 0.0) + took_s


def _done(episode: _Episode) -> Rollout:
    assert episode.rollout is not None  # the last turn ends every episode
    return episode.rollout
