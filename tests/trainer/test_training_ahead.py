"""Rollouts that run ahead: what each batch is generated with, what is dropped, and how such a run ends and goes on."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

from api.schemas import Ticket  # noqa: E402
from tests.trainer.tiny import (  # noqa: E402
    Killed,
    engine_of,
    fill,
    killed_in,
    make_config,
    make_policy,
    run,
    same_state,
    service,
    told,
)
from trainer.errors import InvalidRequest, MidbandError  # noqa: E402
from trainer.grpo import Result, train  # noqa: E402
from trainer.policy import Policy  # noqa: E402
from trainer.rollout.ahead import Ahead, by_age  # noqa: E402
from trainer.rollout.base import RolloutEngine, RolloutGroup  # noqa: E402
from trainer.training.config import TrainConfig  # noqa: E402
from trainer.training.metrics import Metrics  # noqa: E402


def lines(config: TrainConfig) -> list[dict[str, Any]]:
    return Metrics(config.output / "metrics.jsonl").lines("step")


def test_a_batch_is_generated_with_the_weights_of_depth_updates_before(tmp_path: Path) -> None:
    config = make_config(tmp_path, asynchrony={"depth": 2}, stop={"steps": 7})
    run(config)
    found = lines(config)
    assert [line["lag"] for line in found] == [0, 1, 2, 2, 2, 2, 2]
    assert [line["stale"] for line in found] == [0] * 7
    # The first batch is of the weights it updates; later ones of older weights, so that the trainer disagrees.
    assert found[0]["log_ratio"] < 1e-5 < min(line["log_ratio"] for line in found[1:])
    with service(tmp_path) as client:
        info = client.run("tiny")
        assert info.config["max_lag"] == 2
        assert [client.batch("tiny", index).policy_version for index in range(7)] == [0, 0, 0, 1, 2, 3, 4]
    assert (info.tickets.open, info.tickets.void) == (0, 0)


def test_the_same_run_twice_is_the_same_run_whatever_the_clock_does(tmp_path: Path) -> None:
    configs = [make_config(tmp_path / name, asynchrony={"depth": 2}, stop={"steps": 6}) for name in "ab"]
    (_, one), (_, other) = (run(config) for config in configs)
    assert told(configs[0]) == told(configs[1])
    assert same_state(one, other)


def test_depth_zero_is_the_loop_as_it_is_without_the_setting(tmp_path: Path) -> None:
    plain, zero = (
        make_config(tmp_path / "a", stop={"steps": 4}),
        make_config(tmp_path / "b", stop={"steps": 4}, asynchrony={"depth": 0}),
    )
    (_, one), (_, other) = run(plain), run(zero)
    assert told(plain) == told(zero)
    assert same_state(one, other)
    assert "asynchrony" not in (tmp_path / "b" / "config.json").read_text(encoding="utf-8")


def test_a_run_that_was_cut_off_goes_on_and_accounts_for_every_ticket(tmp_path: Path) -> None:
    config = make_config(tmp_path, asynchrony={"depth": 2}, checkpoints={"every": 3}, stop={"steps": 9})
    with pytest.raises(Killed):
        run(config, watch=killed_in(5))
    result, _ = run(config)
    assert result.progress.step == 9
    found = lines(config)
    assert [line["step"] for line in found] == list(range(1, 10))
    # What was in flight at the checkpoint of step 3 is generated anew with its weights.
    assert [line["lag"] for line in found] == [0, 1, 2, 0, 1, 2, 2, 2, 2]
    with service(tmp_path) as client:
        info, costs = client.run("tiny"), client.costs("tiny")
        events = list(client.events("tiny"))
        batches = [client.batch("tiny", index) for index in range(9)]
        attempts = [{t.attempt for t in client.tickets("tiny", batch=k, purpose="train").items} for k in range(9)]
        client.restore("tiny", 9)  # of a run that has ended, so that it can be drawn from
        after = client.draw("tiny", 9, 8, 9)
    assert info.tickets.open == 0
    assert costs.tokens["train"] + costs.tokens["audit"] == result.progress.tokens
    assert costs.tokens["lost"] > 0
    # Batches 3 and 4 were in flight at the checkpoint: the same tickets once more. Later ones are drawn anew.
    assert [{2} if index in (3, 4) else {1} for index in range(9)] == attempts
    assert [batch.branch for batch in batches] == [0] * 5 + [1] * 4
    # Of the surviving steps each was made once, of its own batch: no gap, nothing twice.
    last = {line["event"]["step"]: line["event"] for line in events if line["kind"] == "step_recorded"}
    trained = [ticket for step in range(9) for ticket in last[step]["trained"]]
    assert len(trained) == len(set(trained)) == 9 * 8
    # No prompt waits for a report that never comes.
    assert (after.blocked, after.eligible) == (0, after.frame)


def test_a_finished_run_goes_on_when_its_end_is_moved(tmp_path: Path) -> None:
    run(make_config(tmp_path, asynchrony={"depth": 1}, stop={"tokens": 250}))
    done = lines(make_config(tmp_path))[-1]["step"]
    with service(tmp_path) as client:
        assert client.run("tiny").tickets.void == 8, "the batch that ran ahead was paid for and is surplus"
        assert client.costs("tiny").tokens["rejected"] > 0
    result, _ = run(make_config(tmp_path, asynchrony={"depth": 1}, stop={"steps": done + 3}))
    assert result.progress.step == done + 3


class Late(RolloutEngine):
    """An engine whose groups of one kind of prompt were made by weights `by` versions older than asked for."""

    def __init__(self, inner: RolloutEngine, kind: str, by: int) -> None:
        self.inner, self.kind, self.by = inner, kind, by

    def generate(self, tickets: Sequence[Ticket], *, policy_version: int) -> list[RolloutGroup]:
        groups = self.inner.generate(tickets, policy_version=policy_version)
        late = max(0, policy_version - self.by)
        return [
            replace(group, version=late) if group.ticket.answer == self.kind else group for group in groups
        ]  # fmt: skip


def run_late(config: TrainConfig, *, by: int) -> tuple[Result, Policy]:
    with service(config.output) as client:
        fill(client)
        policy, engine = make_policy(config)
        twin = policy.twin()
        with Ahead(Late(engine_of(config, twin), "letter", by), lambda: policy.snapshot(twin)) as ahead:
            return train(config, client, policy, engine, ahead=ahead), policy


def test_groups_too_old_are_voided_as_stale_and_their_prompts_are_drawn_again(tmp_path: Path) -> None:
    config = make_config(
        tmp_path, asynchrony={"depth": 1, "max_lag": 2}, run={"policy": "uniform"}, batch={"size": 10, "group_size": 4},
        stop={"steps": 14},
    )  # fmt: skip
    result, _ = run_late(config, by=2)  # three versions behind when trained on: one too many
    found = lines(config)
    dropped = sum(line["stale"] for line in found)
    assert dropped > 10
    with service(tmp_path) as client:
        info, costs = client.run("tiny"), client.costs("tiny")
        page = client.tickets("tiny", state="void", limit=1_000).items
        drawn = Counter(t.prompt for index in range(14) for t in client.batch("tiny", index).tickets)
        trained = {
            ticket
            for line in client.events("tiny")
            if line["kind"] == "step_recorded"
            for ticket in line["event"]["trained"]
        }
    assert [ticket.reason for ticket in page] == ["stale"] * dropped
    assert (info.tickets.open, info.tickets.void) == (0, dropped)
    assert not trained & {ticket.ticket for ticket in page}
    assert costs.tokens["rejected"] > 0
    assert costs.tokens["rejected"] + costs.tokens["train"] + costs.tokens["audit"] == result.progress.tokens
    # Letters are prompts 0, 3, 6, ...: dropped every time, they are drawn no less than others.
    letters, others = ([drawn[f"p{n:03d}"] for n in range(40) if (n % 3 == 0) == late] for late in (True, False))
    # 14 draws of 10 from 40: 3.5 draws of a prompt on average; over 14 letters a deviation of about 0.4.
    assert abs(sum(letters) / len(letters) - sum(others) / len(others)) < 1.5
    assert min(letters) >= 1


def test_a_run_whose_groups_all_come_too_late_ends_and_says_so(tmp_path: Path) -> None:
    config = make_config(tmp_path, asynchrony={"depth": 1}, run={"policy": "uniform"}, stop={"steps": 24})
    with service(tmp_path) as client:
        fill(client)
        policy, engine = make_policy(config)
        twin = policy.twin()
        inner = Late(Late(Late(engine_of(config, twin), "letter", 9), "digit", 9), "never", 9)
        with Ahead(inner, lambda: policy.snapshot(twin)) as ahead:
            result = train(config, client, policy, engine, ahead=ahead)
        alarms = [alarm["alarm"] for alarm in client.run("tiny").alarms]
    assert result.stopped == "steps"
    moved = [line for line in lines(config) if line["stale"] < line["tickets"]]
    assert len(moved) <= 2
    assert "no_usable_groups" in alarms


def test_older_groups_count_less_where_the_rule_says_so(tmp_path: Path) -> None:
    norms = []
    for rule in ({"rule": "drop"}, {"rule": "down_weight", "decay": 0.5}):
        config = make_config(
            tmp_path, asynchrony={"depth": 2, **rule}, optimizer={"max_grad_norm": math.inf},
            stop={"steps": 3},
        )  # fmt: skip
        policy, engine = make_policy(config)
        groups = [
            replace(group, version=1) for group in engine.generate([_ticket(k) for k in range(6)], policy_version=1)
        ]
        norms.append(policy.update(groups, step=3)["gradient_norm"])
    assert norms[1] == pytest.approx(norms[0] * 0.5**2, rel=1e-4)


def _ticket(k: int) -> Ticket:
    from tests.trainer.factories import make_ticket

    return make_ticket(f"p{k}", ticket=f"r:0:train:0:0:{k}", content=f"{10**k} letter", answer="letter", group_size=4)


def test_by_age_keeps_the_bound_itself() -> None:
    groups = [RolloutGroup(ticket=_ticket(k), rollouts=(), version=version) for k, version in enumerate((3, 4, 5))]
    young, old = by_age([*groups, RolloutGroup(ticket=_ticket(9), rollouts=())], now=6, bound=2)
    assert [group.version for group in young] == [4, 5, None]
    assert [group.version for group in old] == [3]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"depth": 3, "max_lag": 2}, "max_lag 2 is below depth 3"),
        ({"depth": 1, "decay": 0.5}, "decay has no effect with rule 'drop'"),
        ({"depth": -1}, "greater than or equal to 0"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_config(tmp_path, asynchrony=settings)


def test_policies_that_go_on_in_waves_or_fill_up_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"stops groups in waves.*set asynchrony\.depth to 0"):
        run(
            make_config(
                tmp_path / "waves", asynchrony={"depth": 1}, run={"policy": "speed"}, batch={"size": 8, "group_size": 8}
            )
        )
    with pytest.raises(MidbandError, match=r"fills its batches up.*set asynchrony\.depth to 0"):
        run(make_config(tmp_path / "refill", asynchrony={"depth": 1}, run={"policy": "dapo"}))


def test_depth_and_worker_go_together(tmp_path: Path) -> None:
    config = make_config(tmp_path, asynchrony={"depth": 1})
    with service(tmp_path) as client:
        fill(client)
        policy, engine = make_policy(config)
        with pytest.raises(InvalidRequest, match=r"asynchrony\.depth is 1: give `ahead`"):
            train(config, client, policy, engine)
