import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

torch = pytest.importorskip("torch", reason="the learner needs the trainer extra")

from torch.nn import functional  # noqa: E402

from api.schemas import Ticket  # noqa: E402
from tests.trainer.factories import make_ticket  # noqa: E402
from trainer.graders import exact  # noqa: E402
from trainer.learner import warm_start as script  # noqa: E402
from trainer.learner.model import load_learner, new_learner  # noqa: E402
from trainer.learner.tasks import MAX_ANSWER_TOKENS, OPERATIONS, Puzzle, draw_puzzle, puzzle, stratum  # noqa: E402
from trainer.learner.tokenizer import END, PAD, VOCABULARY  # noqa: E402
from trainer.learner.warm_start import answer_loss, draw_examples, warm_start  # noqa: E402
from trainer.rollout.torch import TorchEngine  # noqa: E402

CHARACTERS = list(VOCABULARY)


def texts(ids_BT: Sequence[Sequence[int]]) -> list[str]:
    return ["".join(CHARACTERS[place] for place in row if CHARACTERS[place] not in (PAD, END)) for row in ids_BT]


def test_an_example_is_a_train_prompt_with_the_answer_of_one_of_its_two_rules() -> None:
    examples = draw_examples(200, random.Random(0))
    by_name = {one.name: one for one in OPERATIONS}
    for whole, answer in zip(texts(examples.ids_BT.tolist()), texts(examples.answers_BT.tolist()), strict=True):
        content = whole.removesuffix(answer)
        name, digits = content.rstrip("=").split(" ")
        made = puzzle_of(name, digits)
        assert content == made.content
        assert answer in (made.answer, made.wrong)
        assert not made.heldout
        assert by_name[name] == made.operation
    assert torch.equal(examples.attended_BT, (examples.ids_BT != VOCABULARY[PAD]).long())
    assert (examples.answers_BT == VOCABULARY[END]).sum(1).eq(1).all()


def puzzle_of(name: str, digits: str) -> Puzzle:
    return puzzle(next(one for one in OPERATIONS if one.name == name), [int(digit) for digit in digits])


def test_the_right_rule_is_shown_in_its_share_of_the_cases() -> None:
    examples = draw_examples(6_000, random.Random(1))
    shown, expected, variance = (defaultdict[str, float](float) for _ in range(3))
    for whole, answer in zip(texts(examples.ids_BT.tolist()), texts(examples.answers_BT.tolist()), strict=True):
        made = puzzle_of(whole[0], whole.removesuffix(answer)[2:-1])
        shown[stratum(made.share_right)] += answer == made.answer
        expected[stratum(made.share_right)] += made.share_right
        variance[stratum(made.share_right)] += made.share_right * (1 - made.share_right)
    assert shown["hopeless"] == 0
    for name in ("hard", "middling", "easy"):
        assert abs(shown[name] - expected[name]) < 4 * variance[name] ** 0.5


def test_the_loss_is_the_mean_over_the_answers_tokens_each_given_all_before_it() -> None:
    model, _ = new_learner(seed=2)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
    examples = draw_examples(5, random.Random(2))
    terms = []
    for ids, answer in zip(examples.ids_BT.tolist(), examples.answers_BT.tolist(), strict=True):
        ids = [place for place in ids if place != VOCABULARY[PAD]]
        num = sum(place != VOCABULARY[PAD] for place in answer)
        logits = model(torch.tensor([ids])).logits[0]
        terms += [
            functional.cross_entropy(logits[place - 1], torch.tensor(ids[place]))
            for place in range(len(ids) - num, len(ids))
        ]
    with torch.no_grad():
        assert answer_loss(model, examples).item() == pytest.approx(torch.stack(terms).mean().item(), rel=1e-5)


def test_the_same_seed_gives_the_same_bits_and_it_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "BATCH_SIZE", 32)
    monkeypatch.setattr(script, "REPORT_EVERY", 10)
    examples, said = draw_examples(64, random.Random(3)), list[str]()
    made = []
    for seed in (0, 0, 1):
        model, _ = new_learner(seed=0)
        before = answer_loss(model, examples).item()
        warm_start(model, num_steps=20, seed=seed, say=said.append)
        made.append(model)
        assert answer_loss(model, examples).item() < 0.8 * before
    assert torch.equal(made[0].lm_head.weight, made[1].lm_head.weight)
    assert not torch.equal(made[0].lm_head.weight, made[2].lm_head.weight)
    assert [line.split(":")[0] for line in said[:2]] == ["step 10 of 20", "step 20 of 20"]


def test_the_shipped_learner_holds_the_right_rule_in_its_share_and_the_wrong_one_otherwise() -> None:
    """On prompts it was never shown: what reinforcement has to work with."""
    rng, each, rollouts = random.Random(4), 24, 4
    puzzles = [draw_puzzle(one, rng, heldout=True) for one in OPERATIONS for _ in range(each)]
    engine = TorchEngine(*load_learner(), exact, max_new_tokens=MAX_ANSWER_TOKENS, seed=0)
    groups = engine.generate([_ticket(n, one, rollouts) for n, one in enumerate(puzzles)], policy_version=0)
    shares = {name: [0.0, 0.0, 0] for name in ("hopeless", "hard", "middling", "easy")}
    neither = 0
    for made, group in zip(puzzles, groups, strict=True):
        found = shares[stratum(made.share_right)]
        for rollout in group.rollouts:
            text = texts([rollout.completion_ids])[0]
            neither += text not in (made.answer, made.wrong)
            found[0] += text == made.answer
            found[1] += made.share_right
            found[2] += 1
    assert neither < 0.05 * len(puzzles) * rollouts
    assert shares["hopeless"][0] < 0.005 * shares["hopeless"][2]
    for name in ("hard", "middling", "easy"):
        right, expected, count = shares[name]
        assert abs(right - expected) < 0.08 * count


def _ticket(number: int, made: Puzzle, rollouts: int) -> Ticket:
    return make_ticket(
        f"p{number}",
        ticket=f"r:0:train:0:0:{number}",
        content=made.content,
        answer=made.answer,
        group_size=rollouts,
    )
