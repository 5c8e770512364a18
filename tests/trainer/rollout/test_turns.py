"""Rollouts of several turns: what is learned from, what is told, what it took, and how it is reported."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from api.schemas import Ticket
from tests.trainer.factories import make_ticket
from trainer.rollout.base import Rollout
from trainer.rollout.turns import Environment, Observed, Said, TurnsEngine


class Counting:
    """A speaker without a model: turn t of rollout n says the token 10·n + t."""

    def __init__(self, longest: int = 1_000) -> None:
        self.longest = longest
        self.histories: list[list[int]] = []

    def prompt_ids(self, ticket: Ticket) -> list[int]:
        return [1, 2]

    def encode(self, text: str) -> list[int]:
        return [100 + ord(one) for one in text]

    def fits(self, ids: Sequence[int]) -> bool:
        return len(ids) < self.longest

    def say(self, histories: Sequence[list[int]], turns: Sequence[tuple[Ticket, int, int]]) -> list[Said]:
        self.histories += histories
        return [Said(ids=[10 * n + turn], logprobs=[-0.5], text=str(turn), ended=True) for _, n, turn in turns]


class Talk:
    """An episode that is over after the turns it is given, and worth 1 where their number is even."""

    def __init__(self, turns: int, log: list[str], *, fails_in: str | None = None) -> None:
        self.turns, self.log, self.fails_in, self.heard = turns, log, fails_in, 0

    def _note(self, name: str) -> None:
        self.log.append(name)
        if name == self.fails_in:
            raise ConnectionError("the sandbox is gone")

    def reset(self) -> str:
        self._note("reset")
        return "a"

    def act(self, text: str) -> None:
        self._note("act")
        self.heard += 1

    def observe(self) -> Observed:
        self._note("observe")
        if self.heard < self.turns:
            return Observed(text="b")
        return Observed(done=True, outcome=float(self.turns % 2 == 0))

    def close(self) -> None:
        self._note("close")


def talks(log: list[str], **changed: Any) -> Any:
    def make(ticket: Ticket, n: int) -> Environment:
        return Talk(n + 1, log, **changed)

    return make


def test_what_the_model_wrote_and_what_it_was_told_stand_in_their_order() -> None:
    speaker, log = Counting(), list[str]()
    engine = TurnsEngine(speaker, talks(log), max_turns=5)
    (group,) = engine.generate([make_ticket(group_size=3)], policy_version=0)
    third = group.rollouts[2]
    told = 100 + ord("b")
    assert third.prompt_ids == [1, 2, 100 + ord("a")]
    assert third.completion_ids == [20, told, 21, told, 22]
    assert third.written == [True, False, True, False, True]
    assert third.logprobs == [-0.5, 0.0, -0.5, 0.0, -0.5]
    assert (third.tokens, len(third.turns), third.status, third.outcome) == (3, 3, "ok", 0.0)
    assert [rollout.outcome for rollout in group.rollouts] == [0.0, 1.0, 0.0]
    assert speaker.histories[-1] == [1, 2, 100 + ord("a"), 20, told, 21, told]
    assert log.count("close") == 3


def test_a_rollout_is_told_of_when_it_is_done_and_not_with_the_slowest() -> None:
    order: list[tuple[int, int]] = []
    log: list[str] = []

    def done(ticket: Ticket, n: int, rollout: Rollout, version: int) -> None:
        order.append((n, len(rollout.turns)))
        assert version == 7

    TurnsEngine(Counting(), talks(log), max_turns=5, on_rollout=done).generate(
        [make_ticket(group_size=3)], policy_version=7
    )
    assert order == [(0, 1), (1, 2), (2, 3)]


def test_seconds_are_by_phase_and_begin_anew() -> None:
    engine = TurnsEngine(Counting(), talks([]), max_turns=5)
    engine.generate([make_ticket(group_size=2)], policy_version=0)
    found = engine.environment_s()
    assert set(found) == {"create", "reset", "act", "observe", "teardown"}
    assert all(seconds > 0 for seconds in found.values())
    assert engine.environment_s() == {}


def test_an_episode_without_an_end_is_truncated_and_worth_nothing() -> None:
    (group,) = TurnsEngine(Counting(), talks([]), max_turns=2).generate([make_ticket(group_size=4)], policy_version=0)
    assert [(one.status, one.outcome, len(one.turns)) for one in group.rollouts] == [
        ("ok", 0.0, 1), ("ok", 1.0, 2), ("truncated", 0.0, 2), ("truncated", 0.0, 2)
    ]  # fmt: skip
    (short,) = TurnsEngine(Counting(longest=6), talks([]), max_turns=9).generate(
        [make_ticket(group_size=4)], policy_version=0
    )
    assert [(one.status, len(one.turns)) for one in short.rollouts] == [
        ("ok", 1), ("ok", 2), ("truncated", 2), ("truncated", 2)
    ]  # fmt: skip


@pytest.mark.parametrize("phase", ["reset", "act", "observe"])
def test_an_environment_that_fails_costs_its_rollout_and_says_nothing_of_the_prompt(phase: str) -> None:
    log: list[str] = []
    (group,) = TurnsEngine(Counting(), talks(log, fails_in=phase), max_turns=3).generate(
        [make_ticket(group_size=2)], policy_version=0
    )
    assert [(one.status, one.outcome) for one in group.rollouts] == [("error", None)] * 2
    assert log.count("close") == 2


def test_turns_without_a_number_are_refused() -> None:
    with pytest.raises(ValueError, match="max_turns must be >= 1, got 0"):
        TurnsEngine(Counting(), talks([]), max_turns=0)


class Hint:
    """A puzzle in two turns: any first answer is met with a hint, the second is graded."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket, self.said = ticket, list[str]()

    def reset(self) -> str:
        return ""

    def act(self, text: str) -> None:
        self.said.append(text)

    def observe(self) -> Observed:
        from tests.trainer.tiny import grade

        if len(self.said) == 1:
            return Observed(text="?")
        return Observed(done=True, outcome=grade(self.said[-1], self.ticket.answer))

    def close(self) -> None:
        pass


def test_a_training_of_two_turns_reports_fragments_as_they_come_and_its_ledger_balances(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="training needs the trainer extra")
    from tests.trainer.tiny import fill, make_config, make_policy, service
    from trainer.grpo import train
    from trainer.rollout.base import fragments
    from trainer.selection.buffer import ReportBuffer

    config = make_config(tmp_path, stop={"steps": 4}, evaluation={"every": 100}, loss={"importance_cap": 2.0})
    early: list[str] = []
    with service(tmp_path) as client:
        fill(client)
        policy, speaker = make_policy(config)
        with ReportBuffer(client, "tiny", most_rollouts=5, longest_wait_s=60) as buffer:

            def done(ticket: Ticket, n: int, rollout: Rollout, version: int) -> None:
                for fragment in fragments(rollout, n):
                    buffer.add(ticket, fragment, policy_version=version)
                early.append(ticket.ticket)

            engine = TurnsEngine(speaker, lambda ticket, n: Hint(ticket), max_turns=3, on_rollout=done)
            result = train(config, client, policy, engine)
        info, costs = client.run("tiny"), client.costs("tiny")
        events = [line["event"] for line in client.events("tiny") if line["kind"] == "rollouts_reported"]
    heldout = 2 * 6 * 2
    assert len(early) == 4 * 8 * 4 + heldout
    assert len(events) > 4 * 2, "reports came in pieces, not one a step"
    assert (info.tickets.open, info.tickets.void) == (0, 0)
    assert info.rollouts.scored == 4 * 8 * 4 + heldout, "the fragments of a rollout count once"
    assert costs.tokens["train"] + costs.tokens["audit"] == result.progress.tokens
    assert set(costs.environment_seconds) == {"create", "reset", "act", "observe", "teardown"}
    assert all(seconds > 0 for seconds in costs.environment_seconds.values())
