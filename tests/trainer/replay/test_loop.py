"""The replay on the real service, in process."""

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import midband
from tests.trainer.replay.factories import drifting_rows, write_record
from trainer.client import Client
from trainer.errors import InvalidRequest, MidbandError, MissingExtra
from trainer.replay import command
from trainer.replay.arms import PolicyArm
from trainer.replay.loop import replay
from trainer.rollout.recorded import RecordedEngine, RecordedOutcomes

ROUNDS = 100
UNIFORM, MIDBAND = PolicyArm.parse("uniform"), PolicyArm.parse("midband")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with midband.in_process() as one:
        yield one


def test_figures_agree_with_the_record_and_the_service(client: Client) -> None:
    record = RecordedOutcomes.from_rows(drifting_rows(40, visits=3, seed=5))
    seen: list[tuple[str, int, int]] = []
    (result,) = replay(
        client,
        record,
        [MIDBAND],
        batch_size=12,
        group_size=4,
        seed=2,
        watch=lambda arm, done, total, informative: seen.append((arm.name, done, total)),
    )
    # 120 groups on the clock: ten rounds of twelve, the clock moving on after 40 and 80.
    assert seen == [("midband", 12 * n, 120) for n in range(1, 11)]
    rounds = result.rounds
    assert rounds.groups_R.tolist() == [12] * 10
    assert rounds.rollouts_R.tolist() == [48] * 10
    means_V = record.pass_rate_VN.mean(axis=1)
    assert rounds.pool_R == pytest.approx(means_V[[0, 0, 0, 0, 1, 1, 1, 2, 2, 2]])

    # Slowly: each batch is read again and rolled out by a second engine of the same seed.
    engine, drawn, informative, log_losses = RecordedEngine(record, seed=2), set[str](), 0, list[float]()
    for index in range(10):
        batch = client.batch(result.run, index)
        for ticket, group in zip(batch.tickets, engine.generate(batch.tickets, policy_version=index), strict=True):
            outcomes = [rollout.outcome or 0.0 for rollout in group.rollouts]
            informative += 0 < sum(outcomes) < 4
            drawn.add(ticket.prompt)
            if ticket.purpose == "audit":
                p = ticket.predicted.pass_rate
                log_losses += [-math.log(p if outcome else 1 - p) for outcome in outcomes]
        assert rounds.never_seen_R[index] == 40 - len(drawn)
    assert (result.num_informative, result.num_rollouts) == (informative, 480)
    assert result.log_loss == pytest.approx(np.mean(log_losses))
    info = client.run(result.run)
    assert (info.informative.groups, info.tickets.open, info.rollouts.scored) == (informative, 0, 480)
    assert result.audit.pass_rate.uniform.estimate is not None


def test_the_same_replay_again_counts_nothing_twice(client: Client) -> None:
    record = RecordedOutcomes.from_rows(drifting_rows(30, visits=2, seed=6))
    first = replay(client, record, [UNIFORM, MIDBAND], batch_size=10)
    again = replay(client, record, [UNIFORM, MIDBAND], batch_size=10)
    assert [one.run for one in first] == [one.run for one in again]
    assert [one.resumed for one in first + again] == [False, False, True, True]
    for one, other in zip(first, again, strict=True):
        assert one.rounds.informative_R.tolist() == other.rounds.informative_R.tolist()
        assert one.audit == other.audit
        assert client.run(one.run).rollouts.scored == one.num_rollouts


def test_a_replay_that_was_cut_off_goes_on_where_it_stopped(client: Client) -> None:
    record = RecordedOutcomes.from_rows(drifting_rows(30, visits=2, seed=8))

    def cut_off(arm: PolicyArm, done: int, total: int, informative: int) -> None:
        if done == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(client, record, [MIDBAND], batch_size=10, watch=cut_off)
    (result,) = replay(client, record, [MIDBAND], batch_size=10)
    with midband.in_process() as other:
        (whole,) = replay(other, record, [MIDBAND], batch_size=10)
    assert result.rounds.informative_R.tolist() == whole.rounds.informative_R.tolist()
    assert result.num_groups == 60


def test_another_seed_size_or_policy_is_another_run(client: Client) -> None:
    record = RecordedOutcomes.from_rows(drifting_rows(20, visits=2, seed=7))
    runs = {
        replay(client, record, [arm], batch_size=size, seed=seed, rounds=1)[0].run
        for arm, size, seed in [
            (UNIFORM, 8, 0),
            (UNIFORM, 8, 1),
            (UNIFORM, 9, 0),
            (PolicyArm.parse("midband:power=2"), 8, 0),
        ]
    }
    assert len(runs) == 4


def test_a_measured_record_is_replayed_at_its_own_group_size(client: Client) -> None:
    rows = [{"prompt_id": f"x{n}", "prompt": "same text", "group_size": 4, "successes": [n % 5] * 2} for n in range(10)]
    record = RecordedOutcomes.from_rows(rows)
    (result,) = replay(client, record, [UNIFORM], batch_size=10)
    assert (result.group_size, result.num_groups, result.num_informative) == (4, 20, 12)
    # Prompts of the same text keep a history each, and their text to look at.
    assert client.pool(result.pool).prompts == 10
    assert client.prompt(result.pool, "x3")["meta"] == {"content": "same text"}
    with pytest.raises(InvalidRequest, match="holds groups of 4 rollouts, asked for 8"):
        replay(client, record, [UNIFORM], batch_size=10, group_size=8)


def test_what_was_drawn_misleads_and_the_audit_does_not(client: Client) -> None:
    # Half of the prompts are hopeless, half pass every other time, and nothing ever changes: the pool's mean is 0.25.
    rows = [{"key": f"p{n:03d}", "p": 0.0 if n < 50 else 0.5} for n in range(100)]
    (result,) = replay(client, RecordedOutcomes.from_rows(rows), [MIDBAND], batch_size=16, rounds=ROUNDS)
    rates = result.audit.pass_rate
    for stream in (rates.uniform, rates.reweighted):
        assert stream.interval is not None
        assert stream.interval[0] <= 0.25 <= stream.interval[1]
    assert rates.selected.estimate is not None
    assert rates.selected.estimate > 0.35
    rounds = result.rounds
    assert rounds.selected_R[ROUNDS // 2 :].mean() > 0.35
    # The re-weighted mean of the rounds comes within a few standard errors of the truth.
    error = rounds.reweighted_R.std() / math.sqrt(ROUNDS)
    assert abs(rounds.reweighted_R.mean() - 0.25) < 4 * error
    assert abs(rounds.weights_R.mean() - 1) < 4 * rounds.weights_R.std() / math.sqrt(ROUNDS)
    assert result.informative_share > 1.3 * 0.5 * (1 - 2 * 0.5**8)


@pytest.mark.parametrize(
    ("rows", "arguments", "words"),
    [
        ([{"key": "a", "p": 0.5}], {}, "no end: say how many rounds"),
        ([{"key": "a", "p": [0.5] * 3}], {"batch_size": 4}, "holds 3 groups in all, fewer than one batch of 4"),
        ([{"key": "a", "p": 0.5}], {"rounds": 0}, "rounds must be >= 1"),
        ([{"key": "a", "p": 0.5}], {"batch_size": 0, "rounds": 1}, "batch_size"),
        ([{"key": "x" * 600, "p": 0.5}], {"rounds": 1, "batch_size": 1}, "rejected 1 of 1 prompts; row 0"),
    ],
)
def test_a_replay_that_cannot_be_is_refused(
    client: Client, rows: list[dict[str, object]], arguments: dict[str, int], words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        replay(client, RecordedOutcomes.from_rows(rows), [UNIFORM], **arguments)  # type: ignore[arg-type]


def test_policies_of_the_same_name_or_none_at_all_are_refused(client: Client) -> None:
    record = RecordedOutcomes.from_rows([{"key": "a", "p": [0.5]}])
    for arms in ([], [UNIFORM, UNIFORM]):
        with pytest.raises(InvalidRequest, match="different names"):
            replay(client, record, arms, batch_size=1)


def test_a_preset_that_does_not_exist_is_refused_by_the_service(client: Client) -> None:
    record = RecordedOutcomes.from_rows([{"key": "a", "p": [0.5]}])
    with pytest.raises(MidbandError, match="nonsense"):
        replay(client, record, [PolicyArm.parse("nonsense")], batch_size=1)


def test_the_command_prints_the_table_and_writes_the_files(client: Client, tmp_path: Path) -> None:
    file = write_record(drifting_rows(20, visits=2, seed=9), tmp_path / "pool.jsonl")
    console = Console(file=io.StringIO(), width=100)
    results = command.run_command(
        client, file, ["uniform", "midband:power=2"], tmp_path / "out", batch_size=10, console=console
    )
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "midband:power=2" in text
    assert str(tmp_path / "out" / "replay.png") in text
    assert (tmp_path / "out" / "replay.png").stat().st_size > 10_000
    lines = [json.loads(line) for line in (tmp_path / "out" / "replay.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {line["case"] for line in lines} == {one.arm.name for one in results}


def test_without_matplotlib_the_command_still_gives_its_figures(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> Path:
        raise MissingExtra("a picture needs matplotlib: pip install 'midband[page]'")

    monkeypatch.setattr(command, "picture", missing)
    file = write_record(drifting_rows(20, visits=2, seed=9), tmp_path / "pool.jsonl")
    console = Console(file=io.StringIO(), width=100)
    command.run_command(client, file, ["uniform"], tmp_path, batch_size=10, console=console)
    assert "No picture: a picture needs matplotlib: pip install 'midband[page]'" in console.file.getvalue()  # type: ignore[attr-defined]
    assert (tmp_path / "replay.jsonl").exists()
