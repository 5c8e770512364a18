"""TRL's own trainer on selected prompts: real training runs of a tiny model against the real service.

TRL comes with the `trl` extra; without it these tests are skipped, and say so.
"""

import runpy
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs the trainer extra")
trl = pytest.importorskip("trl", reason="TRL is not trained with: pip install 'midband[trl]'")
datasets = pytest.importorskip("datasets", reason="TRL needs datasets: pip install 'midband[trl]'")

import midband  # noqa: E402
from api.serve import serving  # noqa: E402
from api.settings import Settings  # noqa: E402
from tests.trainer.tiny import WANTED, make_model, make_tokenizer  # noqa: E402
from trainer.adapters.trl import SelectedGRPOTrainer, Selection, prompt_key  # noqa: E402
from trainer.client import Client  # noqa: E402
from trainer.errors import InvalidRequest, ReportsRefused, ShortBatch  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of TRL and what it imports
]

GROUP_SIZE = 4
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "train_with_trl.py"
KINDS = list(WANTED)


def rows(first: int, count: int) -> Any:
    numbers = range(first, first + count)
    return datasets.Dataset.from_dict(
        {"prompt": [f"{n} {KINDS[n % 3]}" for n in numbers], "answer": [KINDS[n % 3] for n in numbers]}
    )


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(WANTED[want](text[:1])) for text, want in zip(completions, answer, strict=True)]


def short(completions: list[str], **_: Any) -> list[float]:
    return [-0.1 * len(text) for text in completions]


@pytest.fixture
def service() -> Iterator[Client]:
    with midband.in_process() as client:
        yield client


def make_trainer(client: Client, folder: Path, *, run: str = "tiny", num_rows: int = 60, **options: Any) -> Any:
    """A trainer of 4 prompts a step; `options` of GRPOConfig, or of the selection where their names begin so."""
    model = folder / "model"
    if not model.exists():
        make_model().save_pretrained(model)
    chosen = {name.removeprefix("selection_"): options.pop(name) for name in list(options) if "selection_" in name}
    values: dict[str, Any] = {
        "output_dir": str(folder / "out"), "per_device_train_batch_size": 4 * GROUP_SIZE, "num_generations": GROUP_SIZE,
        "per_device_eval_batch_size": 8, "max_completion_length": 3, "max_steps": 6, "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False, "report_to": "none", "save_strategy": "no", "seed": 5, "learning_rate": 1e-3,
        "logging_strategy": "no", "disable_tqdm": True,
    }  # fmt: skip
    return SelectedGRPOTrainer(
        model=str(model),
        reward_funcs=[right, short],
        args=trl.GRPOConfig(**{**values, **options}),
        train_dataset=rows(0, num_rows),
        eval_dataset=rows(1000, 12),
        processing_class=make_tokenizer(),
        selection=Selection(client=client, run=run, pool=f"pool-{run}", **chosen),
    )


class Killed(Exception):
    """The process ends here."""


def dies_at(trainer: Any, *, index: int) -> None:
    """Ends the process while the batch with this index is scored."""
    scored = trainer._calculate_rewards

    def dying(*args: Any) -> Any:
        if trainer._next_generated == index:
            raise Killed
        return scored(*args)

    trainer._calculate_rewards = dying


def tickets_of(client: Client, run: str) -> list[Any]:
    found: list[Any] = []
    cursor = None
    while True:
        page = client.tickets(run, limit=50, cursor=cursor)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_a_training_run_reports_every_group_and_leaves_no_ticket_open(service: Client, tmp_path: Path) -> None:
    trainer = make_trainer(service, tmp_path, eval_strategy="steps", eval_steps=3)
    trainer.train()
    info = service.run("tiny")
    assert (info.tickets.open, info.step) == (0, 6)
    states = Counter((t.purpose in ("train", "audit"), t.state, t.reason) for t in tickets_of(service, "tiny"))
    # The loader reads one batch ahead, and the last one was never rolled out.
    assert states == {(True, "reported", None): 24, (True, "void", "never_started"): 4, (False, "reported", None): 24}
    costs = service.costs("tiny")
    assert costs.rollouts["train"] + costs.rollouts["audit"] == 24 * GROUP_SIZE
    assert costs.rollouts["heldout"] == 24 * GROUP_SIZE
    assert costs.tokens["heldout"] > 0
    lags = [t.issued_version - t.reported_version for t in tickets_of(service, "tiny") if t.state == "reported"]
    assert set(lags) <= {0, -1}
    assert set(service.prompt("pool-tiny", prompt_key("7 digit", "digit"))) >= {"content"}


def test_each_group_is_of_the_prompt_that_its_ticket_names(service: Client, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []

    def watched(completions: list[str], prompts: list[str], answer: list[str], **_: Any) -> list[float]:
        scores = right(completions, answer)
        seen.extend(zip(prompts, scores, strict=True))
        return scores

    trainer = make_trainer(service, tmp_path, steps_per_generation=2, max_steps=4)
    trainer.reward_funcs[0] = watched
    trainer.train()
    passes: dict[str, float] = defaultdict(float)
    for prompt, score in seen:
        passes[prompt_key(prompt, prompt.split()[1])] += score
    told = {
        key: sum(group["passes"] for group in service.prompt("pool-tiny", key, run="tiny")["groups"] if group["scored"])
        for key in passes
    }
    assert told == passes
    assert len(told) > 4


def test_a_resumed_run_has_the_tickets_of_an_uninterrupted_one(tmp_path: Path) -> None:
    told = []
    for name, stops in (("whole", False), ("resumed", True)):
        folder = tmp_path / name
        with midband.in_process(f"sqlite:///{tmp_path / name}.db") as client:
            options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}
            trainer = make_trainer(client, folder, **options)
            if stops:
                dies_at(trainer, index=4)
                with pytest.raises(Killed):
                    trainer.train()
                shutil.rmtree(folder / "out" / "checkpoint-4")  # as if that had not been written in full
                trainer = make_trainer(client, folder, **options)
                trainer.train(resume_from_checkpoint=str(folder / "out" / "checkpoint-2"))
            else:
                trainer.train()
            info = client.run("tiny")
            assert info.tickets.open == 0
            batches = [client.batch("tiny", index) for index in range(6)]
            told.append([[t.prompt for t in batch.tickets] for batch in batches])
            states = {t.ticket: t.state for t in tickets_of(client, "tiny")}
            assert {states[ticket.ticket] for batch in batches for ticket in batch.tickets} == {"reported"}
    assert told[0] == told[1]


def test_a_second_training_from_nothing_on_the_same_run_is_refused(service: Client, tmp_path: Path) -> None:
    make_trainer(service, tmp_path, max_steps=1).train()
    with pytest.raises(InvalidRequest, match="has tickets already"):
        make_trainer(service, tmp_path, max_steps=1).train()


def test_settings_that_go_wrong_in_silence_are_refused(service: Client, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="dataloader_num_workers=2"):
        make_trainer(service, tmp_path, dataloader_num_workers=2)
    with pytest.raises(InvalidRequest, match="no reward function is named 'best'"):
        make_trainer(service, tmp_path, selection_outcome="best")
    with pytest.raises(InvalidRequest, match="no place to apply them"):
        make_trainer(service, tmp_path, selection_options={"weights": "horvitz_thompson"})
    with pytest.raises(InvalidRequest, match="cannot be cut into whole batches"):
        make_trainer(service, tmp_path, run="odd", per_device_eval_batch_size=52).evaluate()


def test_a_batch_larger_than_the_pool_stops_the_run_instead_of_a_short_list(service: Client, tmp_path: Path) -> None:
    with pytest.raises(ShortBatch, match="3 of 4 tickets"):
        make_trainer(service, tmp_path, num_rows=3).train()


def test_a_group_that_the_service_does_not_take_stops_the_run(service: Client, tmp_path: Path) -> None:
    trainer = make_trainer(service, tmp_path, max_steps=2)

    def closing(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        batch = service.batch("tiny", trainer._next_generated)
        service.report("tiny", [midband.group(ticket, void="lost") for ticket in batch.tickets], policy_version=0)
        service.report(
            "tiny", [midband.group(ticket, [1.0] * GROUP_SIZE) for ticket in batch.tickets], policy_version=0
        )
        return right(completions, answer)

    trainer.reward_funcs[0] = closing
    with pytest.raises(ReportsRefused, match=r"report_conflict|ticket_closed"):
        trainer.train()


def test_the_example_of_the_documentation_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    monkeypatch.chdir(tmp_path)
    rewards = main("midband", steps=24)
    assert len(rewards) == 4
    # 512 prompts of two rollouts each: a rise of .04 is twice the standard error of the difference.
    assert rewards[-1] > rewards[0] + 0.04


def launch(url: str, folder: Path, how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    command += ["--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0"]
    command += ["-m", "tests.trainer.adapters.ranks_of_trl", url, str(folder), how]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'midband.db'}", port=0, log_level="warning")
    with serving(settings) as url:
        yield url


def test_two_ranks_train_on_one_set_of_tickets(server: str, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path / "model")
    done = launch(server, tmp_path, "same")
    assert done.returncode == 0, done.stderr[-3000:]
    with Client(server) as client:
        states = Counter((t.purpose, t.state) for t in tickets_of(client, "tiny") if t.reason != "never_started")
        assert sum(n for (purpose, _), n in states.items() if purpose != "heldout") == 9
        assert states["heldout", "reported"] == 12
        assert {state for _, state in states} == {"reported"}
        assert client.run("tiny").rollouts.scored == (9 + 12) * GROUP_SIZE


def test_ranks_with_different_batches_stop_before_they_train(server: str, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path / "model")
    done = launch(server, tmp_path, "differs")
    assert done.returncode != 0
    assert "is not the same on all ranks: [1] of 2 differ from rank 0" in done.stderr
    with Client(server) as client:
        assert client.run("tiny").rollouts.reported == 0


def test_a_step_says_what_generation_scoring_update_and_waiting_took(service: Client, tmp_path: Path) -> None:
    make_trainer(service, tmp_path, max_steps=2).train()
    seconds = service.costs("tiny").seconds
    assert all(seconds[phase] > 0 for phase in ("generation", "scoring", "update", "idle"))


def test_a_step_that_generates_twice_leaves_its_seconds_out(service: Client, tmp_path: Path) -> None:
    options: dict[str, Any] = {"per_device_train_batch_size": 2 * GROUP_SIZE, "gradient_accumulation_steps": 2}
    make_trainer(service, tmp_path, max_steps=2, steps_per_generation=1, **options).train()
    seconds = service.costs("tiny").seconds
    assert not any(seconds.get(phase) for phase in ("generation", "update"))
