"""Batches wave by wave against the real service: what is generated, what is kept, and that it can be done again."""

from collections.abc import Iterator, Sequence

import pytest

import midband
from api.schemas import Ticket
from tests.trainer.factories import make_ticket
from trainer.client import Client
from trainer.errors import InvalidRequest
from trainer.replay.arms import PolicyArm
from trainer.replay.loop import replay
from trainer.reports import group
from trainer.rollout.base import Rollout, RolloutEngine, RolloutGroup
from trainer.rollout.recorded import RecordedEngine, RecordedOutcomes
from trainer.rollout.waves import roll_out

SPEED = {"preset": "speed"}


@pytest.fixture
def client() -> Iterator[Client]:
    with midband.in_process() as one:
        yield one


def record(*pass_rates: float, num: int = 12) -> RecordedOutcomes:
    return RecordedOutcomes.from_rows([{"key": f"p{n}", "p": pass_rates[n % len(pass_rates)]} for n in range(num)])


def begin(client: Client, outcomes: RecordedOutcomes, policy: object = SPEED, **options: int) -> None:
    client.create_pool("p")
    client.put_prompts("p", [dict(prompt) for prompt in outcomes.prompts])
    client.create_run("r", pool="p", policy=policy, audit_share=0, **options)  # type: ignore[arg-type]


def test_screened_prompts_are_made_whole_and_others_stop(client: Client) -> None:
    outcomes = record(0.0, 0.5, 1.0)
    begin(client, outcomes)
    laps: list[str] = []
    batch = client.draw("r", 0, 12, 0)
    done = roll_out(client, "r", RecordedEngine(outcomes), batch.tickets, policy_version=0, lap=laps.append)

    sizes = {group.ticket.prompt: len(group.rollouts) for group in done.groups}
    mixed = {g.ticket.prompt for g in done.groups if 0 < sum(r.outcome or 0.0 for r in g.rollouts[:4]) < 4}
    assert {prompt for prompt, size in sizes.items() if size == 24} == mixed
    assert set(sizes.values()) == {4, 24}
    assert [a.ticket for a in done.answers] == [t.ticket for t in batch.tickets]
    assert all(answer.state == "reported" for answer in done.answers)
    assert laps == ["rollouts", "report"] * 2
    assert client.run("r").rollouts.reported == sum(sizes.values())


def test_the_same_again_is_generated_again_and_counts_once(client: Client) -> None:
    outcomes = record(0.3)
    begin(client, outcomes)
    batch = client.draw("r", 0, 12, 0)
    first, second = (roll_out(client, "r", RecordedEngine(outcomes), batch.tickets, policy_version=0) for _ in range(2))

    assert first.groups == second.groups
    assert [(a.next, a.scored) for a in first.answers] == [(a.next, a.scored) for a in second.answers]
    assert second.duplicates == sum(len(one.rollouts) for one in second.groups)


def test_groups_that_a_pilot_drops_are_not_kept(client: Client) -> None:
    outcomes = record(0.0, 0.5, 1.0)
    begin(client, outcomes, {"preset": "pilot-commit"})
    done = roll_out(client, "r", RecordedEngine(outcomes), client.draw("r", 0, 12, 0).tickets, policy_version=0)

    assert {len(group.rollouts) for group in done.kept} == {64}
    assert {len(group.rollouts) for group in done.groups} == {16, 64}


def test_parts_of_a_recorded_group_are_the_group() -> None:
    outcomes = record(0.5, num=3)
    tickets = [make_ticket(f"p{n}", group_size=6) for n in range(3)]
    whole = RecordedEngine(outcomes).generate(tickets, policy_version=0)
    engine = RecordedEngine(outcomes)
    first = engine.generate_part(tickets, [range(2)] * 3, policy_version=0)
    rest = engine.generate_part(tickets[1:], [range(2, 6)] * 2, policy_version=0)

    assert [one.rollouts for one in first] == [one.rollouts[:2] for one in whole]
    assert [one.rollouts for one in rest] == [one.rollouts[2:] for one in whole[1:]]
    assert [one.start for one in rest] == [2, 2]
    assert engine.num_drawn == 3
    with pytest.raises(InvalidRequest, match="first wave is not among"):
        engine.generate_part([make_ticket("p0", ticket="other")], [range(2, 6)], policy_version=0)


class WholeGroups(RolloutEngine):
    """An engine from before there were waves."""

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        return [
            RolloutGroup(ticket=one, rollouts=(Rollout(outcome=float(one.prompt == "p1")),) * one.group_size)
            for one in tickets
        ]


def test_an_engine_of_whole_groups_is_asked_for_parts_only_under_a_rule(client: Client) -> None:
    outcomes = record(0.5)
    begin(client, outcomes)
    client.create_run("u", pool="p", policy="uniform")
    batch = client.draw("u", 0, 4, 0)
    assert len(roll_out(client, "u", WholeGroups(), batch.tickets, policy_version=0).groups) == 4
    with pytest.raises(InvalidRequest, match="WholeGroups makes whole groups only"):
        roll_out(client, "r", WholeGroups(), client.draw("r", 0, 4, 0).tickets, policy_version=0)


def test_a_wave_is_numbered_from_its_start_and_leaves_the_ticket_open() -> None:
    sent = group(make_ticket(group_size=6), [1.0, 0.0], start=2, final=False)
    assert (sent.final, [rollout.n for rollout in sent.rollouts]) == (False, [2, 3])
    with pytest.raises(InvalidRequest, match="is for 6 rollouts, got 7"):
        group(make_ticket(group_size=6), [1.0, 0.0], start=5, final=False)


@pytest.mark.parametrize(
    "preset", ["speed", "pilot-commit", "ar3po", "reinforce-ada", "reinforce-ada-positive", "aero"]
)
def test_a_replay_works_with_presets_that_stop_groups(client: Client, preset: str) -> None:
    size = {"speed": 24, "pilot-commit": 64, "ar3po": 16, "aero": 16}.get(preset, 32)
    outcomes = record(0.0, 0.1, 0.5, 1.0)
    results = [
        replay(client, outcomes, [PolicyArm.parse(preset)], batch_size=6, group_size=size, rounds=4) for _ in range(2)
    ]
    (first,), (again,) = results
    assert first.rounds.rollouts_R.sum() < 4 * 6 * size
    assert again.resumed
    assert again.rounds.rollouts_R.tolist() == first.rounds.rollouts_R.tolist()
    assert again.rounds.informative_R.tolist() == first.rounds.informative_R.tolist()


def test_a_replay_draws_refills_of_its_batches(client: Client) -> None:
    outcomes = record(0.0, 0.0, 0.0, 0.5)
    (result,) = replay(client, outcomes, [PolicyArm.parse("dapo")], batch_size=4, group_size=8, rounds=30)

    keys = [event["event"] for event in client.events(result.run) if event["kind"] == "batch_drawn"]
    assert {event["refill"] for event in keys} > {0, 1}
    assert len(keys) == len(result.rounds.groups_R)
    # The last batch may have met the end of the replay.
    asked = [{"ticket": f"{result.run}:0:train:{index}:0:0", "final": True} for index in range(keys[-1]["index"])]
    assert [len(standing.kept) for standing in client.report(result.run, asked).refills] == [4] * len(asked)
