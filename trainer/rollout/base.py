"""The interface between a loop that has tickets and whatever generates and scores their rollouts.

A loop (the replay, a trainer, a prober) calls `generate`; an engine is a model behind a sampler, or a record of one.
An engine knows nothing of the service: it sees tickets and gives groups, and the loop reports them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from api.schemas import GroupReport, Ticket
from trainer.errors import InvalidRequest
from trainer.reports import Status, as_group, group

T = TypeVar("T")
FinishReason = Literal["stop", "length"]  # the model ended it; a limit did


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One answer of the model and what it was worth."""

    outcome: float | None  # in [0, 1], drives the pass rate; None: no score
    reward: float | None = None  # what the trainer optimises; None: the outcome
    tokens: int | None = None  # generated
    seconds: float | None = None
    status: Status = "ok"
    # What a trainer learns from; an engine that has no tokens leaves them out.
    text: str | None = None  # the answer, without special tokens
    prompt_ids: Sequence[int] = ()
    completion_ids: Sequence[int] = ()  # the end token included, if the model gave it
    logprobs: Sequence[float] = ()  # of each completion token, in the distribution that was sampled
    finish_reason: FinishReason | None = None
    # Of an answer in several turns: which tokens of `completion_ids` the model wrote, the others being what it was told
    # in between (left out: all of them), and what each turn took, for the ledger.
    written: Sequence[bool] = ()
    turns: Sequence["Turn"] = ()
    # Of one that was there before its group, as its ticket's prior rollout: the version of the weights that made it.
    # Whoever made it has reported and paid for it.
    made_by: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a rollout: a fragment of it on the wire."""

    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """Rollouts of one ticket, in the order they were made: all that are wanted, or a wave of them."""

    ticket: Ticket
    rollouts: tuple[Rollout, ...]
    start: int = 0  # number of the first of them within the group
    version: int | None = None  # of the weights that made it, where the engine or the loop knows better than the draw

    def report(self, *, final: bool = True, completions: bool = False) -> GroupReport:
        """This group as it goes on the wire, closing its ticket; with `final` False, as a wave of it. What no rollout
        says is left out. With `completions` what was generated goes with it, for the run's rollout store.
        """
        rollouts = self.rollouts
        if any(rollout.turns for rollout in rollouts):
            return as_group(self._in_fragments(final))
        rewards = [rollout.outcome if rollout.reward is None else rollout.reward for rollout in rollouts]
        return group(
            self.ticket,
            [rollout.outcome for rollout in rollouts],
            rewards=rewards if any(rollout.reward is not None for rollout in rollouts) else None,
            tokens=_said([rollout.tokens for rollout in rollouts]),
            seconds=_said([rollout.seconds for rollout in rollouts]),
            statuses=[r.status for r in rollouts] if any(r.status != "ok" for r in rollouts) else None,
            completions=[_completion(rollout) for rollout in rollouts] if completions else None,
            final=final,
            start=None if final else self.start,
            policy_version=self.version,
        )

    def _in_fragments(self, final: bool) -> dict[str, object]:
        entries = [
            entry for n, rollout in enumerate(self.rollouts, self.start) for entry in fragments(rollout, n)
        ]  # fmt: skip
        version = {} if self.version is None else {"policy_version": self.version}
        return {"ticket": self.ticket.ticket, "final": final, "rollouts": entries} | version


class RolloutEngine(ABC):
    """Generates and scores groups. One engine belongs to one loop: it need not be safe to share between threads."""

    @abstractmethod
    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        """One group for each ticket, in their order, with `ticket.group_size` rollouts each.

        A rollout that fails is a value with status `error`, never an exception. Raises only for what no retry mends:
        a prompt the engine does not know, a group size it cannot give.
        """

    def environment_s(self) -> dict[str, float]:
        """Seconds that environments and tools took since the last call, by phase: create, reset, act, observe,
        teardown. Empty for engines without any.
        """
        return {}

    def generate_part(
        self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
    ) -> list[RolloutGroup]:
        """The same for some rollouts of each ticket, by their numbers: a wave.

        A ticket's waves together are the group that `generate` makes. Later waves follow those of their first ones
        before other tickets are begun. Raises InvalidRequest where an engine makes whole groups only.
        """
        raise InvalidRequest(
            f"{type(self).__name__} makes whole groups only, and the run's policy stops groups in between: give the "
            "engine a generate_part, or choose a policy without `wave`"
        )

    def sync(self, *, policy_version: int) -> None:  # noqa: B027  nothing to do is an answer
        """Take the weights of the model that it follows as they are now, under this version. An engine that samples
        from the very weights that a trainer changes has nothing to do.
        """

    def load(self, folder: Path, *, policy_version: int) -> None:
        """Take the weights in this folder, in transformers' format; from then on it generates under this version.

        Raises InvalidRequest for an engine that takes none.
        """
        raise InvalidRequest(
            f"{type(self).__name__} does not take weights from a folder: make a new engine for {folder}"
        )


def fragments(rollout: Rollout, n: int) -> list[dict[str, object]]:
    """Rollout number n as it goes on the wire in pieces: one for each turn, all with the same outcome.

    They count as one rollout; tokens and seconds add up.
    """
    shared: dict[str, object] = {"n": n, "outcome": rollout.outcome, "status": rollout.status}
    if rollout.reward is not None:
        shared["reward"] = rollout.reward
    turns = rollout.turns or (Turn(tokens=rollout.tokens or 0, seconds=rollout.seconds or 0.0),)
    return [
        shared | {"fragment": place, "tokens": turn.tokens, "seconds": turn.seconds} for place, turn in enumerate(turns)
    ]


def _completion(rollout: Rollout) -> dict[str, object] | None:
    """What a rollout generated; None for one that did not, or not all by itself."""
    if not rollout.completion_ids or rollout.written or not all(map(math.isfinite, rollout.logprobs)):
        return None
    said: dict[str, object] = {"token_ids": list(rollout.completion_ids)}
    if rollout.text is not None:
        said["text"] = rollout.text
    if len(rollout.logprobs) == len(rollout.completion_ids):
        said["logprobs"] = list(rollout.logprobs)
    return said


def _said(values: list[T | None]) -> list[T | None] | None:
    return values if any(value is not None for value in values) else None
