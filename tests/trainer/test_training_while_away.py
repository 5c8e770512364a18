"""Training whose service dies: it ends with a word, or goes on with draws of its own until the service is back."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

torch = pytest.importorskip("torch", reason="training needs the trainer extra")

from api.app import create_app  # noqa: E402
from api.settings import Settings  # noqa: E402
from tests.trainer.tiny import Killed, engine_of, fill, killed_in, make_config, make_policy, run, same_state, told  # noqa: E402
from trainer.client import Client  # noqa: E402
from trainer.errors import InvalidRequest, NotFound, ServiceUnavailable  # noqa: E402
from trainer.grpo import Result, train  # noqa: E402
from trainer.policy import Policy  # noqa: E402
from trainer.retry import Backoff  # noqa: E402
from trainer.rollout.ahead import Ahead  # noqa: E402
from trainer.training.config import TrainConfig  # noqa: E402
from trainer.training.metrics import Line, Metrics  # noqa: E402
from trainer.transport import InProcessTransport  # noqa: E402

PATIENCE_S = 30.0


class Mortal(httpx.BaseTransport):
    """A service that can die and come back on its database; `die_at` is asked before each call whether it does."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.settings = Settings(database_url=f"sqlite:///{folder / 'midband.db'}")
        self.inner: InProcessTransport | None = None
        self.die_at: Callable[[str], bool] = lambda path: False
        self.refused = 0  # calls that nobody answered

    def live(self) -> None:
        if self.inner is None:
            self.inner = InProcessTransport(create_app(self.settings))

    def die(self) -> None:
        if self.inner is not None:
            self.inner.close()
        self.inner = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.inner is not None and self.die_at(request.url.path.rpartition("/")[2]):
            self.die()
        if self.inner is None:
            self.refused += 1
            raise httpx.ConnectError("connection refused")
        return self.inner.handle_request(request)

    def close(self) -> None:
        self.die()


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@contextmanager
def mortal(folder: Path) -> Iterator[tuple[Client, Mortal, Clock]]:
    service, clock = Mortal(folder), Clock()
    service.live()
    backoff = Backoff(clock=lambda: clock.now_s, sleep=clock.sleep)
    with Client("http://in-process", transport=service, backoff=backoff) as client:
        fill(client)
        yield client, service, clock


def uniform(folder: Path, **tables: Any) -> TrainConfig:
    values = {"stop": {"steps": 9}, "evaluation": {"every": 100}, "checkpoints": {"every": 4}, **tables}
    return make_config(folder, when_away={"patience_s": PATIENCE_S, "then": "uniform"}, **values)


def at(step: int, do: Callable[[], None]) -> Callable[[Line], None]:
    """Something that happens when this many updates are made."""

    def watch(line: Line) -> None:
        if line["kind"] == "step" and line["step"] == step:
            do()

    return watch


def both(*watches: Callable[[Line], None]) -> Callable[[Line], None]:
    def watch(line: Line) -> None:
        for one in watches:
            one(line)

    return watch


def trained(config: TrainConfig, client: Client, watch: Callable[[Line], None] | None = None) -> tuple[Result, Policy]:
    policy, engine = make_policy(config)
    if not config.asynchrony.depth:
        return train(config, client, policy, engine, watch=watch), policy
    twin = policy.twin()
    with Ahead(engine_of(config, twin), lambda: policy.snapshot(twin)) as ahead:
        return train(config, client, policy, engine, watch=watch, ahead=ahead), policy


def steps(config: TrainConfig) -> list[Line]:
    return Metrics(config.output / "metrics.jsonl").lines("step")


def unheard(config: TrainConfig) -> list[dict[str, Any]]:
    file = config.output / "away.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def recorded(client: Client) -> dict[int, dict[str, Any]]:
    """The run's steps in its log."""
    events = [line["event"] for line in client.events("tiny") if line["kind"] == "step_recorded"]
    return {event["step"]: event for event in events}


def test_a_service_that_dies_and_comes_back_misses_only_the_batches_between(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "midband")
    config = uniform(tmp_path)
    with mortal(tmp_path) as (client, service, clock):
        result, _ = trained(config, client, both(at(3, service.die), at(6, service.live)))
        info, costs, log = client.run("tiny"), client.costs("tiny"), recorded(client)
        drawn = [client.batch("tiny", index).index for index in (0, 1, 2, 6, 7, 8)]
        with pytest.raises(NotFound, match="has no train batch 3"):
            client.batch("tiny", 3)
    assert (result.stopped, result.progress.step, result.progress.away) == ("steps", 9, 3)
    assert (result.away.batches, result.away.late, list(result.away.unreported)) == (3, 0, [])
    assert [line["away"] for line in steps(config)] == [0, 0, 0, 1, 2, 3, 3, 3, 3]
    assert drawn == [0, 1, 2, 6, 7, 8], "the service goes on with the index of the step"
    # 30 s for the first draw that nobody answered; from then on one try for each draw.
    assert clock.now_s == pytest.approx(PATIENCE_S)
    assert service.refused > 3
    assert (info.tickets.open, info.tickets.reported) == (0, 6 * 8 + 2 * 6)
    # Told late of the steps in between: that they were made, without tickets and without a claim.
    assert sorted(log) == list(range(9))
    assert [log[step]["trained"] == [] for step in range(9)] == [False] * 3 + [True] * 3 + [False] * 3
    assert [log[step]["weights_applied"] for step in (2, 4, 6)] == [True, False, True]
    groups = unheard(config)
    assert len(groups) == 3 * 8
    assert {group["ticket"].split(":")[1] for group in groups} == {"away"}
    assert len({group["prompt"] for group in groups[:8]}) == 8
    assert all(int(group["prompt"][1:]) < 40 for group in groups), "nothing that is held out"
    assert sum(group["tokens"] for group in groups) + costs.tokens["train"] + costs.tokens["audit"] == (
        result.progress.tokens
    )
    assert all(line["judged"] == 8 and line["gradient_norm"] >= 0 for line in steps(config)[3:6])
    assert max(line["gradient_norm"] for line in steps(config)[3:6]) > 0, "they are trained on"
    words = [record.getMessage() for record in caplog.records]
    assert sum("drawn uniformly from a copy of 40 prompts" in one for one in words) == 1
    assert sum("the service is back; 3 batches were drawn without it" in one for one in words) == 1


def test_a_batch_whose_report_finds_nobody_is_reported_when_the_service_is_back(tmp_path: Path) -> None:
    config = uniform(tmp_path)
    with mortal(tmp_path) as (client, service, _):
        seen: list[str] = []

        def in_the_third_report(call: str) -> bool:
            seen.append(call)
            return call == "reports" and seen.count("reports") == 4  # the first is of the look at the start

        service.die_at = in_the_third_report
        result, _ = trained(config, client, at(5, service.live))
        info, log, events = client.run("tiny"), recorded(client), list(client.events("tiny"))
        third = client.tickets("tiny", batch=2, purpose="train").items
    assert (result.away.batches, result.away.late, list(result.away.unreported)) == (2, 8, [])
    assert {ticket.state for ticket in third} == {"reported"}
    # Told in the old order, and before anything new is drawn.
    steps_told = [e["event"]["step"] for e in events if e["kind"] == "step_recorded"]
    drawn = [e["event"]["index"] for e in events if e["kind"] == "batch_drawn" and e["event"]["purpose"] == "train"]
    place_of_step = next(k for k, e in enumerate(events) if e["kind"] == "step_recorded" and e["event"]["step"] == 4)
    place_of_draw = next(
        k for k, e in enumerate(events) if e["kind"] == "batch_drawn" and e["event"]["index"] == 5
    )  # fmt: skip
    assert steps_told == list(range(9))
    assert drawn == [0, 1, 2, 5, 6, 7, 8]
    assert place_of_step < place_of_draw
    assert (info.tickets.open, info.tickets.void) == (0, 0)
    assert [len(log[step]["trained"]) for step in range(9)] == [8, 8, 8, 0, 0, 8, 8, 8, 8]
    assert [group["ticket"].split(":")[1] for group in unheard(config)] == ["away"] * 16


def test_a_service_that_stays_away_is_outlived_and_what_it_missed_is_named(tmp_path: Path) -> None:
    config = uniform(tmp_path)
    with mortal(tmp_path) as (client, service, clock):
        seen: list[str] = []

        def in_the_third_report(call: str) -> bool:
            seen.append(call)
            return call == "reports" and seen.count("reports") == 4

        service.die_at = in_the_third_report
        result, policy = trained(config, client)
        assert clock.now_s == pytest.approx(2 * PATIENCE_S), "at the end there is patience once more"
        assert (result.stopped, result.progress.step, result.progress.away) == ("steps", 9, 6)
        assert [ticket.split(":")[3] for ticket in result.away.unreported] == ["2"] * 8
        assert {group["ticket"] for group in unheard(config)} >= set(result.away.unreported)
        assert len(unheard(config)) == 7 * 8
        # The service knows no place behind its death, so the weights are kept, and not as a checkpoint.
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000000"]
        other, _ = make_policy(config)
        other.load(tmp_path / "weights-while-away")
        assert same_state(policy, other)
        # Once it is back the same command goes on from what both know.
        service.live()
        service.die_at = lambda call: False
        again, _ = trained(config, client)
        info = client.run("tiny")
    assert (again.progress.step, again.progress.away, again.stopped) == (9, 0, "steps")
    assert (info.tickets.open, info.branch) == (0, 1)
    assert not (tmp_path / "weights-while-away").exists()


def test_a_checkpoint_that_is_due_is_made_once_the_service_is_back(tmp_path: Path) -> None:
    config = uniform(tmp_path, stop={"steps": 11})
    with mortal(tmp_path) as (client, service, _):
        with pytest.raises(Killed):
            trained(config, client, both(at(3, service.die), at(6, service.live), killed_in(10)))
        # Due after 4 while it was away, made after 7; the one of 8 follows.
        assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == [
            "step-00000007",
            "step-00000008",
        ]
        result, _ = trained(config, client)
        info = client.run("tiny")
    assert (result.progress.step, result.progress.away) == (11, 3)
    assert (info.tickets.open, info.branch) == (0, 1)
    assert [line["step"] for line in steps(config)] == list(range(1, 12))


def test_rollouts_that_run_ahead_go_on_too(tmp_path: Path) -> None:
    config = uniform(tmp_path, asynchrony={"depth": 2})
    with mortal(tmp_path) as (client, service, _):
        result, _ = trained(config, client, both(at(3, service.die), at(6, service.live)))
        info, tickets = client.run("tiny"), client.tickets("tiny", state="reported", limit=1_000).items
    # Batches 3 and 4 were drawn and are reported late; 5, 6 and 7 are begun while the service is away.
    assert [line["away"] for line in steps(config)] == [0, 0, 0, 0, 0, 1, 2, 3, 3]
    assert (result.away.batches, result.away.late) == (3, 16)
    assert (info.tickets.open, info.tickets.void) == (0, 0)
    assert {int(item.ticket.split(":")[3]) for item in tickets if ":train:" in item.ticket} == {0, 1, 2, 3, 4, 8}


def test_a_look_at_the_held_out_split_is_left_out_while_the_service_is_away(tmp_path: Path) -> None:
    config = uniform(tmp_path, evaluation={"every": 2})
    with mortal(tmp_path) as (client, service, _):
        result, _ = trained(config, client, both(at(3, service.die), at(5, service.live)))
    assert [found.step for found in result.evaluations] == [0, 2, 6, 8, 9]


def test_waves_that_nobody_goes_on_with_end_with_what_they_have(tmp_path: Path) -> None:
    config = uniform(tmp_path, run={"policy": "speed"}, batch={"size": 8, "group_size": 8}, stop={"steps": 6})
    with mortal(tmp_path) as (client, service, _):
        seen: list[str] = []

        def in_the_first_wave(call: str) -> bool:
            seen.append(call)
            return call == "reports" and seen.count("reports") == 2  # behind the look at the start

        service.die_at = in_the_first_wave
        result, _ = trained(config, client, at(3, service.live))
        info = client.run("tiny")
    assert result.progress.step == 6
    assert result.away.late > 0
    assert (info.tickets.open, info.tickets.void) == (0, 0), "none waited for its end, to be voided by it"


def test_without_being_told_so_training_stops_after_the_stated_time(tmp_path: Path) -> None:
    config = make_config(tmp_path, when_away={"patience_s": PATIENCE_S})
    with mortal(tmp_path) as (client, service, clock):
        with pytest.raises(ServiceUnavailable, match=r"no answer from http://in-process to POST .*batches"):
            trained(config, client, at(4, service.die))
        assert clock.now_s == pytest.approx(PATIENCE_S)
        assert len(steps(config)) == 4
        service.live()
        result, _ = trained(config, client)
    assert result.progress.step == 11
    assert unheard(config) == []


def test_a_service_that_never_dies_is_trained_with_as_if_nothing_were_said(tmp_path: Path) -> None:
    configs = [make_config(tmp_path / "stop", stop={"steps": 5}), uniform(tmp_path / "uniform", stop={"steps": 5})]
    configs[1] = configs[1].model_copy(update={"evaluation": configs[0].evaluation})
    (_, one), (_, other) = run(configs[0]), run(configs[1])
    assert told(configs[0]) == told(configs[1])
    assert same_state(one, other)
    began = (tmp_path / "uniform" / "config.json").read_text(encoding="utf-8")
    assert "when_away" not in began, "it may change between a run and its continuation"


def test_a_pool_without_prompts_to_draw_is_refused_at_the_start(tmp_path: Path) -> None:
    service = Mortal(tmp_path)
    service.live()
    with Client("http://in-process", transport=service) as client:
        client.create_pool("tiny")
        client.put_prompts("tiny", [{"key": "h", "content": "1 letter", "answer": "letter", "split": "heldout"}])
        with pytest.raises(InvalidRequest, match="when_away is 'uniform', and pool 'tiny' has no prompt to be drawn"):
            trained(uniform(tmp_path), client)
