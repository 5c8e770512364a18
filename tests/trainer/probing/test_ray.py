"""`midband probe --ray` on a cluster of this machine, with a worker that is killed; and where `midband ray` sees it."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the workers' engine needs the trainer extra")

from api.serve import serving
from api.settings import Settings
from tests.api.harness import ROOT, command
from tests.ray_cluster import ray_cluster
from tests.trainer.tiny import make_model, make_tokenizer
from trainer.client import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not tested: pip install 'midband[ray]'"),
    pytest.mark.filterwarnings("ignore"),  # of Ray and what it imports
]

NUM_PROMPTS = 40
LIMIT_S = 240.0  # for what takes seconds on an idle machine
WORKER_LINE = re.compile(r"^  letters, worker \d  \S+  process (?P<pid>\d+)  CPU$", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    with ray_cluster(num_cpus=2) as environment:
        yield environment


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A run on a pool in which one prompt kills the worker that has it, once."""
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'service.db'}", port=0, log_level="warning")
    rows = [{"key": f"p{n}", "content": f"{n}", "answer": "a"} for n in range(NUM_PROMPTS)]
    rows[NUM_PROMPTS // 2]["answer"] = str(tmp_path / "killed")
    with serving(settings) as url, Client(url) as client:
        client.create_pool("letters")
        client.put_prompts("letters", rows)
        client.create_run("r", pool="letters", group_size=4)
        yield url


def run(cluster: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    options = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": LIMIT_S, "check": False}
    return subprocess.run(command(*arguments), env=os.environ | cluster, **options)  # type: ignore[call-overload,no-any-return]


def test_the_tickets_of_a_killed_worker_are_probed_by_others(tmp_path: Path, url: str, cluster: dict[str, str]) -> None:
    for saved in (make_model(), make_tokenizer()):
        saved.save_pretrained(tmp_path / "checkpoints" / "step-3")
    arguments = ["--run", "r", "--ray", "--workers", "2", "--server", url, "--model", str(tmp_path / "checkpoints")]
    arguments += ["--max-new-tokens", "2", "--grader", "tests.trainer.graders.foreign:kills_once"]
    done = run(cluster, "probe", *arguments)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").is_dir()
    assert "prompts probed with" in done.stdout
    assert "Ended: " in done.stdout
    assert "were errors" not in done.stdout
    assert "have no score" not in done.stdout
    with Client(url) as client:
        info = client.run("r")
        assert (info.tickets.open, info.tickets.void) == (0, 0)
        assert info.policy_version == 3  # of the checkpoint, which every worker has
        events = [event["event"] for event in client.events("r") if event["kind"] == "rollouts_reported"]
        groups = [group for event in events for group in event["groups"]]
        counted = [(group["ticket"], group["attempt"], n) for group in groups for n in group["n"]]
        assert len(set(counted)) == len(counted) == info.rollouts.reported
        assert client.prompt("letters", f"p{NUM_PROMPTS // 2}", run="r")["groups_reported"]


def test_what_cannot_be_probed_is_one_line_on_standard_error(tmp_path: Path, url: str, cluster: dict[str, str]) -> None:
    for arguments, words in (
        (["--workers", "3"], "3 workers need 3 CPU of Ray, and its cluster has 2"),
        (["--model", str(tmp_path)], f"{tmp_path} holds no model in transformers' format"),
    ):
        done = run(cluster, "probe", "--run", "r", "--ray", "--server", url, *arguments)
        assert done.returncode == 1
        assert f"midband: {words}" in done.stderr
        assert "Traceback" not in done.stderr


WORKING = """
import sys
from functools import partial
from pathlib import Path
from tests.trainer.rollout.test_ray import Letters, tickets_of
from trainer.rollout.ray import RayEngine
with RayEngine(partial(Letters, Path(sys.argv[1])), workers=2, name="letters") as engine:
    engine.generate(tickets_of(40), policy_version=0)
    print(*engine.each(lambda engine: type(engine).__name__), flush=True)
    sys.stdin.read()
"""


def test_midband_ray_shows_the_workers_while_there_are_any(tmp_path: Path, cluster: dict[str, str]) -> None:
    # A process of its own: what lets it into the cluster is read when Ray is loaded.
    with subprocess.Popen(
        [sys.executable, "-c", WORKING, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | cluster,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        names = process.stdout.readline().split()
        found = {found["pid"] for found in WORKER_LINE.finditer(run(cluster, "ray").stdout)}
        process.stdin.close()
    assert process.returncode == 0
    assert set(names) == {"Letters"}
    assert len(found) == len(names)
    assert found <= {path.name.split("-")[1] for path in tmp_path.glob("made-*")}
    assert "letters" not in run(cluster, "ray").stdout
