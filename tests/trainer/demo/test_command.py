"""The whole demo, a few steps of it: real processes, a real service on a port, the learner that is shipped."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pipe, active_children
from pathlib import Path
from statistics import fmean

import pytest

pytest.importorskip("torch", reason="the demo needs the trainer extra")

from rich.console import Console
from typer.testing import CliRunner

import midband
from api.serve import serving
from api.settings import Settings
from tests.trainer.tiny import make_config
from trainer.client import Client
from trainer.demo import arms
from trainer.demo.command import kept, run_demo
from trainer.demo.plan import POLICIES, POOL, Sizes, arm_config, open_folder, train_keys
from trainer.demo.result import ArmResult
from trainer.errors import InvalidRequest, MidbandError
from trainer.rollout.recorded import RecordedOutcomes
from trainer.training.checkpoints import Checkpoints
from trainer.training.command import fill_pool
from trainer.training.config import PoolSettings
from trainer.training.metrics import Line

SIZES = Sizes(
    num_train=48, num_heldout=12, tokens=600, batch_size=8, group_size=4, look_every=2, looked_at=12, look_group_size=2
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A demo that has ended, and the service it ran on."""

    folder: Path
    client: Client
    url: str
    results: list[ArmResult]
    text: str

    def again(self, *, seed: int = 0) -> tuple[list[ArmResult], str]:
        console = Console(file=io.StringIO(), width=100)
        results = run_demo(self.client, self.url, self.folder, sizes=SIZES, seed=seed, console=console)
        return results, _text(console)


def _text(console: Console) -> str:
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def _row(text: str, name: str) -> list[str]:
    """The cells of a row of the table, as printed."""
    return [cell.strip() for cell in text.partition(f"│ {name} │")[2].split("│")[:3]]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    console = Console(file=io.StringIO(), width=100)
    settings = Settings(database_url=f"sqlite:///{folder / 'midband.db'}", port=0, log_level="warning")
    with serving(settings) as url, Client(url) as client:
        results = run_demo(client, url, folder, sizes=SIZES, console=console)
        yield Demo(folder=folder, client=client, url=url, results=results, text=_text(console))


def test_the_table_says_what_the_api_says(demo: Demo) -> None:
    for place, name in enumerate(POLICIES, start=1):
        costs, audit = demo.client.costs(name), demo.client.audit(name)
        tokens, rollouts = (spent["train"] + spent["audit"] for spent in (costs.tokens, costs.rollouts))
        assert tokens >= SIZES.tokens
        assert _row(demo.text, "tokens of training")[place] == f"{tokens:,}"
        assert _row(demo.text, "wall time of steps, s")[place] == f"{sum(costs.seconds.values()):.0f}"
        assert audit.degenerate.selected.estimate is not None
        share = 1 - audit.degenerate.selected.estimate
        assert _row(demo.text, "of all groups")[place] == f"{100 * share:.1f} %"
        assert _row(demo.text, "informative groups")[place] == f"{share * rollouts / SIZES.group_size:.0f}"
        for row, stream in (("audit: uniform draws", "uniform"), ("all groups drawn", "selected")):
            view = getattr(audit.pass_rate, stream)
            low, high = (f"{100 * bound:.0f}" for bound in view.interval)
            assert _row(demo.text, row)[place] == f"{100 * view.estimate:.1f} ({low}–{high})"


def test_held_out_figures_are_those_of_the_groups_that_the_service_was_told(demo: Demo) -> None:
    heldout = demo.client.prompts(POOL, split="heldout", limit=100)["items"]
    for place, result in enumerate(demo.results, start=1):
        last = result.looks[-1].step
        rates: dict[str, list[float]] = {}
        for prompt in heldout:
            found = demo.client.prompt(POOL, prompt["key"], run=result.name)
            (group,) = (one for one in found["groups"] if one["ticket"].split(":")[3] == str(last))
            rates.setdefault(found["meta"]["stratum"], []).append(group["passes"] / group["scored"])
        overall = fmean(rate for one in rates.values() for rate in one)
        assert _row(demo.text, "held-out, 12 prompts")[place].startswith(f"{100 * overall:.1f} (")
        for stratum, one in rates.items():
            assert _row(demo.text, f"{stratum}, {len(one)}")[place].startswith(f"{100 * fmean(one):.1f} (")


def test_both_arms_begin_alike_and_train_under_their_own_policy(demo: Demo) -> None:
    uniform, other = demo.results
    assert uniform.looks[0] == other.looks[0]
    for name, policy in POLICIES.items():
        config = demo.client.run(name).config
        assert isinstance(config["policy"], dict)
        assert config["policy"]["preset"] == policy.preset


def test_the_pool_came_from_its_file(demo: Demo) -> None:
    assert demo.client.pool(POOL).splits == {"train": 48, "heldout": 12}
    assert len((demo.folder / "pool.jsonl").read_text(encoding="utf-8").splitlines()) == 60


def test_beliefs_are_kept_for_every_look_and_every_prompt_that_is_trained_on(demo: Demo) -> None:
    for result in demo.results:
        assert [one.step for one in result.beliefs] == [look.step for look in result.looks]
        assert {sum(one.tried_B) + sum(one.untried_B) for one in result.beliefs} == {48}
        assert sum(result.beliefs[0].tried_B) == 0
        seen = demo.client.prompts(POOL, split="train", run=result.name, sort="drawn", limit=100)["items"]
        assert sum(result.beliefs[-1].tried_B) == sum(prompt["groups_reported"] > 0 for prompt in seen)


def test_pictures_and_record_are_there_and_named(demo: Demo) -> None:
    for name in ("quality.png", "beliefs.png"):
        assert (demo.folder / name).read_bytes().startswith(b"\x89PNG")
        assert f"{name}" in demo.text
    made = RecordedOutcomes.load(demo.folder / "outcomes.jsonl")
    assert made.group_size == SIZES.group_size
    reported = demo.client.run("uniform").rollouts.reported - demo.client.costs("uniform").rollouts["heldout"]
    assert f"of the {reported // SIZES.group_size} reported" in demo.text


def test_it_says_that_one_seed_is_no_evidence_and_what_to_do_next(demo: Demo) -> None:
    assert "One seed is a demo, not evidence" in demo.text
    assert "midband demo --seed 1 --out-dir" in demo.text
    assert f"midband replay {demo.folder / 'outcomes.jsonl'} --batch-size 8" in demo.text
    assert f"serve --database-url sqlite:///{demo.folder / 'midband.db'}" in demo.text


def test_a_demo_that_has_ended_is_shown_again_and_nothing_is_drawn(demo: Demo) -> None:
    tickets = [demo.client.run(name).tickets for name in POLICIES]
    results, text = demo.again()
    assert "has a demo already, which goes on" in text
    assert [demo.client.run(name).tickets for name in POLICIES] == tickets
    assert text.partition("One model, trained")[2] == demo.text.partition("One model, trained")[2]
    assert [one.audit for one in results] == [one.audit for one in demo.results]


def test_another_seed_in_the_same_folder_is_refused(demo: Demo) -> None:
    with pytest.raises(InvalidRequest, match="holds another demo"):
        demo.again(seed=1)


def test_what_an_arm_refuses_is_raised_where_it_is_listened_to() -> None:
    ends = [Pipe(duplex=False) for _ in range(2)]
    (one, tell_one), (_, tell_other) = ends
    told: list[tuple[str, Line]] = []
    tell_one.send({"kind": "step", "step": 1})
    tell_one.close()
    hears = {one: "uniform"}
    arms._listen(hears, lambda arm, line: told.append((arm, line)))
    assert told == [("uniform", {"kind": "step", "step": 1})]
    assert not hears
    tell_other.send(InvalidRequest("no such thing"))
    with pytest.raises(InvalidRequest, match="no such thing"):
        arms._listen({ends[1][0]: "midband"}, lambda arm, line: None)


def test_an_interrupt_says_what_is_kept_and_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "uniform" / "checkpoints" / "step-00000025").mkdir(parents=True)
    progress = '{"step": 25, "tokens": 9, "rollouts": 3, "metrics_bytes": 0, "branch": 0}'
    (tmp_path / "uniform" / "checkpoints" / "step-00000025" / "progress.json").write_text(progress, encoding="utf-8")
    monkeypatch.setattr("trainer.demo.command.run_demo", interrupted)
    done = CliRunner().invoke(midband.app, ["demo", "--out-dir", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"midband: {kept(tmp_path)}")
    assert "uniform at step 25, midband at step 0" in done.stderr
    assert "The same command goes on" in done.stderr


@pytest.mark.slow
def test_a_demo_that_was_interrupted_goes_on_to_the_same_figures(demo: Demo, tmp_path: Path) -> None:
    class Interrupt(Exception):
        """The person at the keyboard."""

    def interrupt(arm: str, line: Line) -> None:
        if line["kind"] == "step" and line["step"] == 3:
            raise Interrupt

    console = Console(file=io.StringIO(), width=100)
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'midband.db'}", port=0, log_level="warning")
    with serving(settings) as url, Client(url) as client:
        file = open_folder(tmp_path, SIZES, seed=0)
        configs = [arm_config(name, tmp_path, SIZES, server=url, seed=0) for name in POLICIES]
        fill_pool(client, PoolSettings(name=POOL, file=file))
        with pytest.raises(Interrupt):
            arms.train_arms(configs, train_keys(file), interrupt)
        assert not active_children()
        assert max(at.step for config in configs if (at := Checkpoints(config.output).progress())) >= 2
    # Another service on the same database, on another port.
    with serving(settings) as url, Client(url) as client:
        results = run_demo(client, url, tmp_path, sizes=SIZES, console=console)
        assert "has a demo already, which goes on" in _text(console)
        for one, whole in zip(results, demo.results, strict=True):
            assert one.looks == whole.looks
            assert one.beliefs == whole.beliefs
            assert one.tokens == whole.tokens
            assert one.informative_S.tolist() == whole.informative_S.tolist()
    record = "outcomes.jsonl"
    assert (tmp_path / record).read_bytes() == (demo.folder / record).read_bytes()


@pytest.mark.slow
def test_an_arm_that_dies_ends_the_others_and_is_named(tmp_path: Path) -> None:
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'midband.db'}", port=0, log_level="warning")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")  # of no model that there is
    with serving(settings) as url:
        dies = make_config(tmp_path / "out", model={"path": tmp_path})
        with pytest.raises(MidbandError, match="arm tiny ended with status 1"):
            arms.train_arms([dies.model_copy(update={"server": url})], frozenset(), lambda arm, line: None)
    assert not active_children()
