"""The prober against the real service: several at once, budgets, interrupts, versions, no work done twice."""

import threading
from collections.abc import Iterator, Sequence

import pytest

import midband
from api.schemas import Ticket
from trainer.client import Client
from trainer.probing.prober import Probed, probe
from trainer.rollout.base import Rollout, RolloutEngine, RolloutGroup

NUM_PROMPTS = 60
TOKENS = 5


class Scripted(RolloutEngine):
    """A third of the prompts pass always, a third never, a third every other time; each rollout has five tokens."""

    def __init__(self, *, fail_at: int | None = None) -> None:
        self.seen: list[str] = []
        self.versions: list[int] = []
        self.fail_at = fail_at

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        return self.generate_part(tickets, [range(t.group_size) for t in tickets], policy_version=policy_version)

    def generate_part(
        self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
    ) -> list[RolloutGroup]:
        if self.fail_at is not None and len(self.versions) >= self.fail_at:
            raise KeyboardInterrupt
        self.versions.append(policy_version)
        groups = []
        for ticket, span in zip(tickets, spans, strict=True):
            assert ticket.content is not None
            if span.start == 0:
                self.seen.append(ticket.prompt)
            kind = int(ticket.prompt[1:]) % 3
            rollouts = [Rollout(outcome=float(n % 2 if kind == 2 else kind), tokens=TOKENS, text=str(n)) for n in span]
            groups.append(RolloutGroup(ticket=ticket, rollouts=tuple(rollouts), start=span.start))
        return groups


@pytest.fixture
def client() -> Iterator[Client]:
    with midband.in_process() as client:
        client.create_pool("p")
        rows = [{"key": f"p{n}", "content": f"prompt {n}", "answer": "a"} for n in range(NUM_PROMPTS)]
        client.put_prompts("p", [*rows, {"key": "h", "content": "held out", "split": "heldout"}])
        client.create_run("r", pool="p")
        yield client


def test_every_prompt_is_probed_until_it_is_settled_and_then_no_more(client: Client) -> None:
    engine = Scripted()
    heard: list[Probed] = []
    made = probe(client, "r", engine, version=lambda: 0, batch_size=20, watch=heard.append)

    assert made.ended == "nothing_to_learn"
    assert set(engine.seen) <= {f"p{n}" for n in range(NUM_PROMPTS)}
    assert made.prompts == len(engine.seen)
    assert made.rollouts < 8 * made.prompts
    assert made.stopped > 0
    assert made.tokens == TOKENS * made.rollouts
    assert client.run("r").tickets.open == 0
    assert client.costs("r").tokens["probe"] == made.tokens
    assert [one.prompts for one in heard] == sorted({one.prompts for one in heard})
    beliefs = client.beliefs("r")
    rates = [0.0, 0.0, 0.0]
    for key, rate in zip(beliefs["key"], beliefs["pass_rate"], strict=True):
        if key in engine.seen:
            rates[int(key[1:]) % 3] = rate
    assert rates[1] > rates[2] > rates[0]


def test_a_budget_in_tokens_ends_it(client: Client) -> None:
    made = probe(client, "r", Scripted(), version=lambda: 0, budget_tokens=45, batch_size=4)
    assert made.ended == "budget"
    assert 45 <= made.tokens <= 45 + 4 * 8 * TOKENS


def test_several_at_once_never_do_the_same_work(client: Client) -> None:
    # In one batch each, so that no prompt is due again in between.
    engines = [Scripted() for _ in range(3)]
    start = threading.Barrier(3)

    def work(engine: Scripted) -> None:
        start.wait()
        probe(client, "r", engine, version=lambda: 0, budget_tokens=1, batch_size=15)

    threads = [threading.Thread(target=work, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    open_at_once = [prompt for engine in engines for prompt in engine.seen]
    assert len(open_at_once) == 45
    groups = [client.prompt("p", prompt, run="r") for prompt in set(open_at_once)]
    assert client.run("r").tickets.reported == 45
    assert len(groups) == len(set(open_at_once))


def test_who_is_interrupted_hands_back_what_was_open(client: Client) -> None:
    with pytest.raises(KeyboardInterrupt):
        probe(client, "r", Scripted(fail_at=1), version=lambda: 0, batch_size=20)
    info = client.run("r")
    assert info.tickets.open == 0
    assert info.tickets.void > 0
    # Of the reasons, this is one of those after which a ticket may be tried again.
    assert {item.reason for item in client.tickets("r", purpose="probe", state="void").items} == {"lost"}
    assert probe(client, "r", Scripted(), version=lambda: 0).ended == "nothing_to_learn"


def test_a_prober_that_is_behind_says_its_true_version(client: Client) -> None:
    client.draw("r", 0, 4, 7, purpose="control")
    versions = iter([3, 5, 5, 5, 5, 5, 5, 5, 5])
    engine = Scripted()
    probe(client, "r", engine, version=lambda: next(versions), budget_tokens=150, batch_size=4)
    assert engine.versions[0] == 3
    assert set(engine.versions) == {3, 5}
    assert client.run("r").policy_version == 7
    beliefs = client.beliefs("r")
    lags = dict(zip(beliefs["key"], beliefs["lag"], strict=True))
    assert {lags[key] for key in engine.seen} <= {2, 4}


def test_a_run_that_has_ended_has_nothing_to_probe(client: Client) -> None:
    client.complete("r")
    made = probe(client, "r", Scripted(), version=lambda: 0)
    assert (made.prompts, made.ended) == (0, "run_complete")


def test_a_wave_that_the_service_knows_already_is_no_obstacle(client: Client) -> None:
    class Twice(Scripted):
        """Reports the first wave itself, as a prober does that dies before it hears the answer."""

        def generate_part(
            self, tickets: Sequence[Ticket], spans: Sequence[range], *, policy_version: int
        ) -> list[RolloutGroup]:
            groups = super().generate_part(tickets, spans, policy_version=policy_version)
            client.report("r", [group.report(final=False) for group in groups], policy_version=policy_version)
            return groups

    made = probe(client, "r", Twice(), version=lambda: 0, batch_size=10, budget_tokens=1)
    assert client.run("r").tickets.reported == made.prompts == 10
