"""Groups that begin with what probes have made: fetched or refused, trained on as if made whole, and paid for once."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs the trainer extra")

import torch

import midband
from api.schemas import Ticket
from tests.trainer.factories import make_ticket
from tests.trainer.tiny import (
    Killed,
    fill,
    killed_in,
    make_config,
    make_policy,
    run,
    same_state,
    service,
    told,
)
from trainer.client import Client
from trainer.errors import Expired
from trainer.grpo import train
from trainer.policy import Policy
from trainer.priors import prior_rollouts
from trainer.probing.prober import probe
from trainer.rollout.base import Rollout, RolloutGroup
from trainer.rollout.waves import roll_out
from trainer.training.config import TrainConfig
from trainer.training.metrics import Line, Metrics

LARGE = {"audit_share": 0.0, "policy": "uniform"}


@pytest.fixture
def client() -> Iterator[Client]:
    with midband.in_process() as client:
        yield client


def config_of(folder: Path, *, store: dict[str, Any] | None = None, **tables: dict[str, Any]) -> TrainConfig:
    kept = {} if store is None else {"rollout_store": store}
    return make_config(folder, run={**LARGE, **kept, "name": "tiny"}, **tables)


def probed(client: Client, config: TrainConfig, *, size: int = 40, version: int = 0) -> tuple[Policy, Any]:
    """A run on the pool `tiny` of which some prompts were probed with the model of the start."""
    fill(client)
    store = config.run.rollout_store
    options: dict[str, Any] = {} if store is None else {"rollout_store": store.model_dump(exclude_none=True)}
    client.create_run("tiny", pool="tiny", policy="uniform", audit_share=0.0, group_size=4, **options)
    policy, engine = make_policy(config)
    probe(client, "tiny", engine, version=lambda: version, batch_size=size, budget_tokens=size)
    return policy, engine


def drawn(client: Client, *, index: int = 0, version: int = 0, size: int = 40) -> list[Ticket]:
    return client.draw("tiny", index, size, version, include=["content", "answer"]).tickets


def begun(tickets: list[Ticket]) -> list[Ticket]:
    return [ticket for ticket in tickets if ticket.prior_rollouts]


def test_a_prober_hands_over_what_it_generated(client: Client, tmp_path: Path) -> None:
    probed(client, config_of(tmp_path, store={}))
    info, tickets = client.run("tiny"), begun(drawn(client))
    assert info.rollout_store is not None
    assert info.rollout_store["rollouts"] == info.rollout_store["unused"] > 0
    assert tickets
    found = prior_rollouts(client, "tiny", tickets, version=0, max_lag=0)
    assert set(found) == {ticket.ticket for ticket in tickets}
    for rollouts in found.values():
        assert all(len(one.logprobs) == len(one.completion_ids) == one.tokens for one in rollouts)
        assert all(one.made_by == 0 and one.text is not None for one in rollouts)


def test_what_is_too_much_for_one_report_goes_out_in_several(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.probing.prober.REPORT_TOKENS", 7)
    sent: list[list[int]] = []
    report = client.report

    def counted(run: str, groups: Any, **values: Any) -> Any:
        of_call = list(groups)
        sent.append([len(r.completion.token_ids or ()) for g in of_call for r in g.rollouts if r.completion])
        return report(run, of_call, **values)

    monkeypatch.setattr(client, "report", counted)
    probed(client, config_of(tmp_path, store={}), size=10)
    assert len(sent) > 3
    assert all(sum(of_call) <= 7 for of_call in sent)
    assert client.run("tiny").tickets.open == 0


def test_a_probability_that_is_none_is_not_sent() -> None:
    ticket = make_ticket("p", group_size=2)
    fine = Rollout(outcome=1.0, tokens=1, completion_ids=[3], logprobs=[-0.5], text="a")
    odd = Rollout(outcome=1.0, tokens=1, completion_ids=[3], logprobs=[-math.inf], text="a")
    sent = RolloutGroup(ticket=ticket, rollouts=(fine, odd)).report(completions=True).rollouts
    assert sent[0].completion is not None
    assert (sent[0].completion.token_ids, sent[0].completion.logprobs, sent[0].completion.text) == ([3], [-0.5], "a")
    assert sent[1].completion is None


def test_without_a_store_it_sends_none_and_no_ticket_begins_with_any(client: Client, tmp_path: Path) -> None:
    probed(client, config_of(tmp_path))
    assert client.run("tiny").rollout_store is None
    assert begun(drawn(client)) == []
    assert prior_rollouts(client, "tiny", drawn(client), version=0, max_lag=0) == {}


def test_only_the_rest_of_a_group_is_generated_and_paid_for(client: Client, tmp_path: Path) -> None:
    _, engine = probed(client, config_of(tmp_path, store={}))
    before, tickets = client.run("tiny"), drawn(client)
    priors = prior_rollouts(client, "tiny", tickets, version=0, max_lag=0)
    done = roll_out(client, "tiny", engine, tickets, policy_version=0, priors=priors)
    after, costs = client.run("tiny"), client.costs("tiny")
    saved = sum(map(len, priors.values()))
    assert saved > 0
    assert all(len(group.rollouts) == 4 for group in done.groups)
    assert after.rollouts.reported - before.rollouts.reported == 4 * len(tickets) - saved
    assert costs.rollouts["train"] == 4 * len(tickets) - saved
    assert costs.tokens["probe"] == before.tokens["probe"]
    for group, answer in zip(done.groups, done.answers, strict=True):
        outcomes = [rollout.outcome for rollout in group.rollouts]
        prior = len(priors.get(group.ticket.ticket, ()))
        assert answer.state == "reported"
        assert answer.informative == (len(set(outcomes)) > 1)
        assert (answer.scored, answer.passes) == (4 - prior, sum(o or 0.0 for o in outcomes[prior:]))
        assert len({tuple(rollout.prompt_ids) for rollout in group.rollouts}) == 1


def test_a_step_on_such_groups_is_that_on_groups_generated_whole(client: Client, tmp_path: Path) -> None:
    config = config_of(tmp_path, store={})
    policy, engine = probed(client, config)
    twin, _ = make_policy(config)
    tickets = drawn(client)
    priors = prior_rollouts(client, "tiny", tickets, version=0, max_lag=0)
    done = roll_out(client, "tiny", engine, tickets, policy_version=0, priors=priors)
    # The same answers, from an engine that makes each group in one go.
    whole = [as_if_whole(group, policy) for group in done.groups]
    ours, theirs = policy.update(done.groups, step=0), twin.update(whole, step=0)
    assert ours == theirs
    assert ours["gradient_norm"] > 0
    assert same_state(policy, twin)


def as_if_whole(group: RolloutGroup, policy: Policy) -> RolloutGroup:
    """The group as the engine that made it all would have given it: log-probabilities are the model's own."""
    rollouts = []
    for rollout in group.rollouts:
        ids = torch.tensor([[*rollout.prompt_ids, *rollout.completion_ids]])
        with torch.no_grad():
            logits = policy.model(ids).logits[0, len(rollout.prompt_ids) - 1 : -1].float()
        said = torch.log_softmax(logits, -1).gather(1, torch.tensor(rollout.completion_ids)[:, None])[:, 0]
        assert torch.allclose(said, torch.tensor(rollout.logprobs), atol=1e-5)
        rollouts.append(
            Rollout(
                outcome=rollout.outcome,
                reward=rollout.reward,
                tokens=rollout.tokens,
                status=rollout.status,
                text=rollout.text,
                prompt_ids=rollout.prompt_ids,
                completion_ids=rollout.completion_ids,
                logprobs=rollout.logprobs,
            )
        )
    return RolloutGroup(ticket=group.ticket, rollouts=tuple(rollouts))


def test_rollouts_of_older_weights_are_weighed_by_their_own_probabilities(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, store={"max_lag": 1})
    policy, engine = probed(client, config)
    tickets = drawn(client, version=1)
    priors = prior_rollouts(client, "tiny", tickets, version=1, max_lag=1)
    assert priors
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.mul_(1.2)
    done = roll_out(client, "tiny", engine, tickets, policy_version=1, priors=priors)
    seen: list[Any] = []
    original = policy._importance

    def importance(rollouts: list[Rollout], *values: Any) -> Any:
        before = list(rollouts)
        found = original(rollouts, *values)
        seen.append((before, found, list(rollouts)))
        return found

    monkeypatch.setattr(policy, "_importance", importance)
    policy.update(done.groups, step=1)
    ((before, ratios, after),) = seen
    assert ratios is not None
    assert any(rollout.made_by == 0 for rollout in before)
    moved: list[bool] = []
    for was, ratio, now in zip(before, ratios, after, strict=True):
        if was.made_by is None:
            assert set(ratio) == {1.0}
            assert now.logprobs == was.logprobs
        else:
            expected = [
                pytest.approx(torch.tensor(b - a).exp().item()) for a, b in zip(was.logprobs, now.logprobs, strict=True)
            ]
            assert ratio == expected
            moved += [abs(one - 1.0) > 1e-3 for one in ratio]
    assert any(moved)


@pytest.mark.parametrize(("version", "max_lag"), [(1, 0), (3, 2), (-1, 5)])
def test_stale_ones_are_refused_without_being_asked_for(
    client: Client, tmp_path: Path, version: int, max_lag: int
) -> None:
    probed(client, config_of(tmp_path, store={}))
    asked = drawn(client)
    assert begun(asked)
    client.fetch_rollouts = None  # type: ignore[method-assign, assignment]
    assert prior_rollouts(client, "tiny", asked, version=version, max_lag=max_lag) == {}


def test_what_has_expired_is_generated_afresh(client: Client, tmp_path: Path) -> None:
    _, engine = probed(client, config_of(tmp_path, store={}))
    tickets = drawn(client)
    client.step("tiny", 0, policy_version=5)  # the run has gone on, and its store with it
    priors = prior_rollouts(client, "tiny", tickets, version=0, max_lag=0)
    assert begun(tickets)
    assert priors == {}
    done = roll_out(client, "tiny", engine, tickets, policy_version=0, priors=priors)
    assert done.rejected == []
    assert {answer.scored for answer in done.answers} == {4}
    assert client.run("tiny").rollouts.issued == client.run("tiny").rollouts.reported + left_of_probes(client)


def left_of_probes(client: Client) -> int:
    """Places of probes that were stopped before."""
    info, costs = client.run("tiny"), client.costs("tiny")
    probes = [t for t in client.tickets("tiny", limit=10_000).items if t.purpose == "probe"]
    assert info.tickets.open == 0
    return 4 * len(probes) - costs.rollouts["probe"]


def test_where_one_has_expired_the_others_are_found(client: Client, tmp_path: Path) -> None:
    probed(client, config_of(tmp_path, store={"max_rollouts": 6}))
    tickets = begun(drawn(client))
    assert len(tickets) > 1
    strange = tickets[0].model_copy(update={"prior_rollouts": tickets[0].prior_rollouts[:1]})
    gone = tickets[0].prior_rollouts[0].model_copy(update={"id": first_of_all(client)})
    strange = strange.model_copy(update={"ticket": "strange", "prior_rollouts": [gone]})
    with pytest.raises(Expired):
        client.fetch_rollouts("tiny", [gone.id])
    found = prior_rollouts(client, "tiny", [*tickets, strange], version=0, max_lag=0)
    assert set(found) == {ticket.ticket for ticket in tickets}


def first_of_all(client: Client) -> str:
    """The id of the rollout that was reported first, and that the store has let go of."""
    probes = [t for t in client.tickets("tiny", limit=10_000).items if t.purpose == "probe"]
    return f"{probes[0].ticket}/1/0"


# The reference trainer


def trained(config: TrainConfig, watch: Callable[[Client, Policy, Any], Callable[[Line], None]]) -> Policy:
    with service(config.output) as client:
        fill(client)
        policy, engine = make_policy(config)
        train(config, client, policy, engine, watch=watch(client, policy, engine))
        return policy


def probing(client: Client, policy: Policy, engine: Any) -> Callable[[Line], None]:
    """Probes on the weights of now after each step."""

    def watch(line: Line) -> None:
        if line["kind"] == "step":
            probe(client, "tiny", engine, version=lambda: int(line["step"]), batch_size=20, budget_tokens=40)

    return watch


def test_training_that_begins_with_probes_pays_for_fewer_rollouts(tmp_path: Path) -> None:
    # A tenth of the pool is drawn, by what is believed of each prompt: a look at some more of them may change the draw.
    chosen = {"policy": "midband", "weights": "horvitz_thompson", "audit_share": 0.0}
    paid, priors, charged = {}, {}, {}
    for name, kept in (("with", {"rollout_store": dict[str, Any]()}), ("without", {})):
        run_table = {**chosen, **kept, "name": "tiny"}
        config = make_config(tmp_path / name, run=run_table, batch={"size": 4}, stop={"steps": 4})
        trained(config, probing)
        lines = Metrics(config.output / "metrics.jsonl").lines("step")
        priors[name] = sum(line.get("prior", 0) for line in lines)
        paid[name] = lines[-1]["rollouts"]
        with service(config.output) as client:
            charged[name] = client.costs("tiny").rollouts["train"]
            assert client.run("tiny").claim.type == ("modified" if kept else "unbiased")
    assert priors["without"] == 0
    assert priors["with"] > 0
    assert paid == charged
    assert paid["without"] - paid["with"] == priors["with"]


def test_a_run_with_a_store_that_was_killed_goes_on(tmp_path: Path) -> None:
    config = config_of(tmp_path / "whole", store={"max_lag": 2}, stop={"steps": 5})
    _, whole = run(config)
    killed = config.model_copy(update={"output": tmp_path / "killed"})
    with pytest.raises(Killed):
        run(killed, watch=killed_in(5))
    _, resumed = run(killed)
    assert told(killed) == told(config)
    assert same_state(whole, resumed)


def test_rollouts_that_run_ahead_are_refused_with_a_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"run\.rollout_store needs asynchrony\.depth 0"):
        config_of(tmp_path, store={}, asynchrony={"depth": 1})
