import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine needs the trainer extra")

from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

from api.schemas import Ticket  # noqa: E402
from tests.trainer.factories import make_ticket  # noqa: E402
from trainer.errors import InvalidRequest  # noqa: E402
from trainer.graders import exact  # noqa: E402
from trainer.learner.model import new_learner  # noqa: E402
from trainer.learner.tokenizer import END, VOCABULARY  # noqa: E402
from trainer.rollout.base import Rollout  # noqa: E402
from trainer.rollout.torch import TorchEngine, _uniforms  # noqa: E402

MAX_NEW_TOKENS = 9
# Of different lengths, so that most are padded.
CONTENTS = ("a", "roll 123=", "sort 40917=", "add 12345678=", "next 55=")


def ticket_of(content: object, position: int = 0, *, group_size: int = 4, index: int = 0, **changed: Any) -> Ticket:
    name = f"r:0:train:{index}:0:{position}"
    values = {"ticket": name, "content": content, "answer": "1", "group_size": group_size}
    return make_ticket(f"p{position}", **{**values, **changed})


def tickets_of(contents: Sequence[object] = CONTENTS, **changed: Any) -> list[Ticket]:
    return [ticket_of(content, position, **changed) for position, content in enumerate(contents)]


@pytest.fixture(scope="module")
def learner() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Untrained, with logits far enough apart that a mistake in position or padding shows."""
    model, tokenizer = new_learner(seed=4)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    return model, tokenizer


@pytest.fixture
def engine(learner: tuple[LlamaForCausalLM, PreTrainedTokenizerFast]) -> TorchEngine:
    return make_engine(learner)


def make_engine(learner: tuple[Any, Any], **changed: Any) -> TorchEngine:
    values: dict[str, Any] = {"grader": exact, "max_new_tokens": MAX_NEW_TOKENS, **changed}
    return TorchEngine(*learner, **values)


def rollouts(engine: TorchEngine, tickets: Sequence[Ticket]) -> list[list[Rollout]]:
    return [list(group.rollouts) for group in engine.generate(tickets, policy_version=0)]


def tokens(engine: TorchEngine, tickets: Sequence[Ticket]) -> list[list[list[int]]]:
    return [[list(rollout.completion_ids) for rollout in group] for group in rollouts(engine, tickets)]


def logprobs_in_full(model: Any, rollout: Rollout, temperature: float = 1.0) -> list[float]:
    """By one pass over the whole text, without padding or cache."""
    ids = torch.tensor([[*rollout.prompt_ids, *rollout.completion_ids]])
    with torch.no_grad():
        logp_TV = (model(ids).logits[0] / temperature).log_softmax(-1)
    start = len(rollout.prompt_ids)
    return [float(logp_TV[start + t - 1, token]) for t, token in enumerate(rollout.completion_ids)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("batch_size", [3, 8, 512])
def test_logprobs_equal_those_of_a_full_pass(learner: tuple[Any, Any], batch_size: int, temperature: float) -> None:
    engine = make_engine(learner, batch_size=batch_size, temperature=temperature)
    groups = rollouts(engine, tickets_of(group_size=6))
    lengths = {len(rollout.completion_ids) for group in groups for rollout in group}
    assert len(lengths) > 2, "all answers end together: nothing was dropped from the cache"
    for rollout in (rollout for group in groups for rollout in group):
        expected = logprobs_in_full(learner[0], rollout, temperature)
        assert np.allclose(rollout.logprobs, expected, rtol=0, atol=1e-4)


def test_tokens_come_as_often_as_the_model_says(learner: tuple[Any, Any], engine: TorchEngine) -> None:
    size = 4_000
    (answers,) = tokens(engine, [ticket_of("a", group_size=size)])
    drawn = Counter(answer[0] for answer in answers)
    with torch.no_grad():
        p_V = learner[0](torch.tensor([learner[1]("a").input_ids])).logits[0, -1].softmax(-1)
    for token, p in enumerate(p_V.tolist()):
        # Five standard errors, and one answer more for the tokens that are hardly ever drawn.
        assert abs(drawn[token] / size - p) < 5 * math.sqrt(p * (1 - p) / size) + 1 / size


def test_groups_come_in_the_order_and_size_of_their_tickets(engine: TorchEngine) -> None:
    tickets = [ticket_of(content, n, group_size=n + 1) for n, content in enumerate(reversed(CONTENTS))]
    groups = engine.generate(tickets, policy_version=0)
    assert [group.ticket for group in groups] == tickets
    assert [len(group.rollouts) for group in groups] == [1, 2, 3, 4, 5]
    assert engine.generate([], policy_version=0) == []


def test_a_ticket_gets_the_same_rollouts_again_whatever_came_between(learner: tuple[Any, Any]) -> None:
    first = tokens(make_engine(learner), tickets_of())
    engine = make_engine(learner)
    tokens(engine, tickets_of(index=7))
    torch.manual_seed(99)
    assert tokens(engine, tickets_of()) == first
    assert tokens(make_engine(learner, seed=1), tickets_of()) != first


def test_the_process_s_own_generator_is_left_alone(engine: TorchEngine) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    tokens(engine, tickets_of())
    assert torch.equal(torch.get_rng_state(), before)


def test_rollouts_do_not_depend_on_what_shares_their_batch(learner: tuple[Any, Any], engine: TorchEngine) -> None:
    together = tokens(engine, tickets_of())
    alone = [tokens(engine, [ticket])[0] for ticket in tickets_of()]
    assert alone == together
    assert tokens(make_engine(learner, batch_size=1), tickets_of()) == together


def test_more_rollouts_of_a_ticket_begin_with_the_fewer(engine: TorchEngine) -> None:
    few, many = (tokens(engine, [ticket_of("roll 123=", group_size=size)])[0] for size in (3, 8))
    assert many[:3] == few


def test_neither_run_nor_branch_of_a_ticket_changes_what_is_drawn_and_all_else_does(engine: TorchEngine) -> None:
    def drawn(name: str) -> list[list[int]]:
        return tokens(engine, [ticket_of("roll 123=", ticket=name)])[0]

    base = drawn("r:0:train:4:0:2")
    assert drawn("other:3:train:4:0:2") == base
    different = ["r:0:heldout:4:0:2", "r:0:train:5:0:2", "r:0:train:4:1:2", "r:0:train:4:0:3", "some-other-id"]
    found = [drawn(name) for name in different]
    assert base not in found
    assert len({str(one) for one in found}) == len(different)


def test_uniforms_are_even_and_differ_between_rollouts() -> None:
    u_GT = _uniforms(0, ticket_of("a", group_size=1_000), 9)
    # Four standard errors of a mean of 9,000, and of a correlation of neighbours.
    assert abs(u_GT.mean() - 0.5) < 4 * math.sqrt(1 / 12 / u_GT.size)
    assert abs(np.corrcoef(u_GT[:-1].ravel(), u_GT[1:].ravel())[0, 1]) < 4 / math.sqrt(u_GT.size)


def test_an_answer_ends_with_the_end_token_or_at_the_limit(engine: TorchEngine) -> None:
    found = [rollout for group in rollouts(engine, tickets_of(group_size=16)) for rollout in group]
    assert {rollout.finish_reason for rollout in found} == {"stop", "length"}
    for rollout in found:
        ended = rollout.completion_ids[-1] == VOCABULARY[END]
        assert VOCABULARY[END] not in rollout.completion_ids[:-1]
        assert rollout.finish_reason == ("stop" if ended else "length")
        assert rollout.status == ("ok" if ended else "truncated")
        assert ended or len(rollout.completion_ids) == MAX_NEW_TOKENS
        assert rollout.tokens == len(rollout.completion_ids) == len(rollout.logprobs)
        assert rollout.seconds is not None
        assert rollout.seconds > 0
        assert rollout.text is not None
        assert END not in rollout.text


def test_a_group_goes_on_the_wire(engine: TorchEngine) -> None:
    (group,) = engine.generate([ticket_of("a")], policy_version=0)
    report = group.report()
    assert [rollout.tokens for rollout in report.rollouts] == [rollout.tokens for rollout in group.rollouts]
    assert [rollout.status for rollout in report.rollouts] == [rollout.status for rollout in group.rollouts]
    assert report.final


def test_the_grader_sees_text_and_answer_and_gives_the_outcome(learner: tuple[Any, Any]) -> None:
    seen: list[tuple[str, str | None]] = []

    def grade(completion: str, answer: str | None) -> float:
        seen.append((completion, answer))
        return len(completion) / MAX_NEW_TOKENS

    (group,) = rollouts(make_engine(learner, grader=grade), [ticket_of("a", answer="x")])
    assert seen == [(rollout.text, "x") for rollout in group]
    assert [rollout.outcome for rollout in group] == [len(text) / MAX_NEW_TOKENS for text, _ in seen]


def test_no_score_is_unscored_and_a_grader_that_fails_is_an_error(
    learner: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    (unscored,) = rollouts(make_engine(learner), [ticket_of("a", answer=None)])
    assert {(rollout.outcome, rollout.status) for rollout in unscored} == {(None, "unscored")}

    def fail(completion: str, answer: str | None) -> float:
        raise RuntimeError("no compiler here")

    (failed,) = rollouts(make_engine(learner, grader=fail), [ticket_of("a")])
    assert {(rollout.outcome, rollout.status) for rollout in failed} == {(None, "error")}
    assert all(rollout.tokens for rollout in failed), "what was generated was spent all the same"
    assert "no compiler here" in caplog.text


def test_weights_changed_in_place_are_used_at_once(learner: tuple[Any, Any]) -> None:
    model, tokenizer = new_learner(seed=4)
    engine = TorchEngine(model, tokenizer, exact, max_new_tokens=MAX_NEW_TOKENS)
    before = tokens(engine, tickets_of())
    with torch.no_grad():
        model.lm_head.weight[VOCABULARY[END]] += 100 * model.lm_head.weight.std()
        model.load_state_dict(learner[0].state_dict())
    assert tokens(engine, tickets_of()) == tokens(make_engine(learner), tickets_of()) != before


def test_weights_come_from_a_folder(learner: tuple[Any, Any], tmp_path: Path) -> None:
    model, tokenizer = new_learner(seed=4)
    engine = TorchEngine(model, tokenizer, exact, max_new_tokens=MAX_NEW_TOKENS)
    learner[0].save_pretrained(tmp_path)
    engine.load(tmp_path, policy_version=1)
    assert tokens(engine, tickets_of()) == tokens(make_engine(learner), tickets_of())


def test_a_model_in_training_is_sampled_without_dropout_and_left_in_training() -> None:
    config = LlamaConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
        attention_dropout=0.9, eos_token_id=VOCABULARY[END], bos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).train()
    engine = TorchEngine(model, new_learner(seed=0)[1], exact, max_new_tokens=MAX_NEW_TOKENS)
    (group,) = rollouts(engine, [ticket_of("roll 123=")])
    assert model.training
    model.eval()
    assert np.allclose(group[0].logprobs, logprobs_in_full(model, group[0]), rtol=0, atol=1e-4)


def test_chat_messages_go_through_the_tokenizers_template(learner: tuple[Any, Any]) -> None:
    model, tokenizer = learner[0], new_learner(seed=0)[1]
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    engine = TorchEngine(model, tokenizer, exact, max_new_tokens=MAX_NEW_TOKENS)
    messages = [{"role": "user", "content": "roll 123"}]
    assert tokens(engine, [ticket_of(messages)]) == tokens(engine, [ticket_of("roll 123=")])


def test_weights_that_have_diverged_are_said_so() -> None:
    model, tokenizer = new_learner(seed=0)
    with torch.no_grad():
        model.lm_head.weight.fill_(math.nan)
    engine = TorchEngine(model, tokenizer, exact, max_new_tokens=MAX_NEW_TOKENS)
    with pytest.raises(FloatingPointError, match="weights have diverged"):
        rollouts(engine, [ticket_of("a")])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "r:0:train:0:0:0 came without its prompt's text: draw with include"),
        ("", "prompt 'p0' is empty"),
        ("1" * 60, "has 60 tokens, and with 9 more it passes the model's 64: take it out of the pool"),
    ],
)
def test_a_ticket_that_cannot_be_rolled_out_is_refused(engine: TorchEngine, content: object, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        rollouts(engine, [ticket_of(content)])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"temperature": 0}, "temperature must be a number > 0, got 0"),
        ({"temperature": math.nan}, "got nan"),
        ({"max_new_tokens": 0}, "max_new_tokens and batch_size must be >= 1, got 0 and 512"),
        ({"batch_size": 0}, "got 9 and 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(learner: tuple[Any, Any], changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_engine(learner, **changed)


def test_rollouts_made_in_waves_are_those_made_at_once(engine: TorchEngine) -> None:
    tickets = tickets_of(group_size=5)
    whole = tokens(engine, tickets)
    first = engine.generate_part(tickets, [range(2)] * len(tickets), policy_version=0)
    rest = engine.generate_part(tickets[1:3], [range(2, 5), range(2, 4)], policy_version=0)

    ids = [[list(rollout.completion_ids) for rollout in group.rollouts] for group in [*first, *rest]]
    assert ids == [*(group[:2] for group in whole), whole[1][2:], whole[2][2:4]]
    assert [group.start for group in [*first, *rest]] == [0] * len(tickets) + [2, 2]
