"""The loss: by hand, against a slow version on random input, at the edges, and its gradient."""

import math
import random
from typing import Any, get_args

import pytest

torch = pytest.importorskip("torch", reason="the loss needs the trainer extra")

from trainer.loss import Aggregation, Loss, policy_loss, sequence_coefficients, yield_factor  # noqa: E402

AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


def coefficients(
    ticket: list[int],
    tokens: list[int],
    weight: list[float],
    group_size: list[int],
    aggregation: Aggregation,
    constant_length: int | None = None,
) -> list[float]:
    found: list[float] = sequence_coefficients(
        torch.tensor(ticket, dtype=torch.int64),
        torch.tensor(tokens, dtype=torch.int64),
        torch.tensor(weight, dtype=torch.float64),
        torch.tensor(group_size),
        aggregation,
        constant_length=constant_length,
    ).tolist()
    return found


def loss_of(
    logp: list[list[float]], old: list[list[float]], advantage: list[float], coefficient: list[float], **options: Any
) -> Loss:
    """Of sequences whose every token counts."""
    logp_BT = torch.tensor(logp, dtype=torch.float64)
    return policy_loss(
        logp_BT,
        torch.tensor(old, dtype=torch.float64),
        torch.ones(logp_BT.shape, dtype=torch.bool),
        torch.tensor(advantage, dtype=torch.float64),
        torch.tensor(coefficient, dtype=torch.float64),
        **{"clip_low": 0.2, "clip_high": 0.2, **options},
    )


# Three tickets for two rollouts each: both came back, one came back, none came back.
TICKET, TOKENS, WEIGHT, SIZES = [0, 0, 1], [2, 4, 5], [1.0, 3.0, 9.0], [2, 2, 2]


def test_coefficients_by_hand() -> None:
    per_prompt = coefficients(TICKET, TOKENS, WEIGHT, SIZES, "per_prompt")
    assert per_prompt == pytest.approx([1 / (3 * 2 * 2), 1 / (3 * 2 * 4), 3 / (3 * 1 * 5)])
    per_sequence = coefficients(TICKET, TOKENS, WEIGHT, SIZES, "per_sequence")
    assert per_sequence == pytest.approx([1 / (6 * 2), 1 / (6 * 4), 3 / (6 * 5)])
    per_token = coefficients(TICKET, TOKENS, WEIGHT, SIZES, "per_token")
    assert per_token == pytest.approx([1 / 11, 1 / 11, 3 / 11])


def test_a_constant_length_takes_the_place_of_an_answers_own() -> None:
    arguments = (TICKET, TOKENS, WEIGHT, SIZES)
    assert coefficients(*arguments, "per_prompt", 10) == pytest.approx([1 / 60, 1 / 60, 3 / 30])
    assert coefficients(*arguments, "per_sequence", 10) == pytest.approx([1 / 60, 1 / 60, 3 / 60])
    assert coefficients(*arguments, "per_token", 10) == pytest.approx([1 / 30, 1 / 30, 3 / 30])


def test_a_group_that_never_came_back_makes_no_other_larger() -> None:
    whole = coefficients([0, 0, 1, 1], [2] * 4, [1.0, 1.0], [2, 2], "per_prompt")
    without = coefficients([0, 0], [2] * 2, [1.0, 1.0], [2, 2], "per_prompt")
    assert without == whole[:2]
    assert coefficients([0, 0], [2] * 2, [1.0, 1.0], [2, 2], "per_sequence") == whole[:2]


def test_with_whole_groups_of_one_size_prompts_and_sequences_are_the_same_mean() -> None:
    arguments = ([0, 0, 1, 1, 2, 2], [3, 1, 4, 1, 5, 9], [0.5, 1.0, 2.0], [2, 2, 2])
    assert coefficients(*arguments, "per_prompt") == pytest.approx(coefficients(*arguments, "per_sequence"))


def test_with_groups_of_different_sizes_a_prompt_counts_alike_only_per_prompt() -> None:
    arguments = ([0, 1, 1, 1], [1, 1, 1, 1], [1.0, 1.0], [1, 3])
    prompt = coefficients(*arguments, "per_prompt")
    assert prompt[0] == pytest.approx(sum(prompt[1:]))
    sequence = coefficients(*arguments, "per_sequence")
    assert sequence == pytest.approx([1 / 4] * 4)


def test_a_sequence_without_tokens_is_no_division_by_nothing() -> None:
    assert all(map(math.isfinite, coefficients([0, 0], [0, 3], [1.0], [2], "per_prompt")))
    assert coefficients([], [], [1.0], [2], "per_token") == []


def test_bad_arguments_of_coefficients_are_refused() -> None:
    wrong: Any = "per_batch"
    with pytest.raises(ValueError, match="per_prompt, per_sequence, per_token, got 'per_batch'"):
        coefficients(TICKET, TOKENS, WEIGHT, SIZES, wrong)
    with pytest.raises(ValueError, match="constant_length must be >= 1, got 0"):
        coefficients(TICKET, TOKENS, WEIGHT, SIZES, "per_prompt", 0)


def test_the_yield_factor_is_all_over_informative() -> None:
    assert yield_factor(16, 64) == 4.0
    assert yield_factor(64, 64) == 1.0
    assert yield_factor(0, 64) == 1.0


def test_the_clip_holds_a_ratio_only_where_that_makes_the_loss_larger() -> None:
    # Ratios 1.5 and 0.5, advantage 1 and then −1, clip (0.2, 0.3): min(ρA, clip(ρ)A) is taken token by token.
    logp = [[math.log(1.5), math.log(0.5)]] * 2
    found = loss_of(logp, [[0, 0]] * 2, [1, -1], [1, 1], clip_low=0.2, clip_high=0.3)
    better, worse = -(1.3 + 0.5), -(-1.5 - 0.8)
    assert float(found.total) == pytest.approx(better + worse)
    assert (int(found.clipped_sum), found.num_tokens) == (2, 4)
    assert float(found.log_ratio_sum) == pytest.approx(2 * (math.log(1.5) + math.log(2)))


def test_a_token_that_is_held_has_no_gradient() -> None:
    logp = torch.tensor([[math.log(1.5), 0.0]], requires_grad=True)
    found = policy_loss(
        logp, torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([2.0]), torch.tensor([0.5]), clip_low=0.2, clip_high=0.2
    )
    torch.autograd.backward(found.total)
    # At ratio 1 the gradient is −coefficient · advantage.
    assert logp.grad.tolist() == [[0.0, -1.0]]


def test_k3_by_hand() -> None:
    # d = reference − logp = ln 2: 2 − ln 2 − 1.
    found = loss_of(
        [[0.0]], [[0.0]], [0.0], [1.0], reference_BT=torch.tensor([[math.log(2)]]).double(), kl_coefficient=0.1
    )
    assert float(found.total) == pytest.approx(0.1 * (1 - math.log(2)))
    assert float(found.kl_sum) == pytest.approx(1 - math.log(2))


def test_the_kl_term_and_its_gradient_are_those_of_the_divergence() -> None:
    # One token out of three; its expected term is summed over the three as another distribution samples them.
    sampled = torch.tensor([0.3, 0.3, 0.4]).double()
    reference = torch.tensor([0.2, 0.3, 0.5]).double().log()
    logits = torch.tensor([0.4, -0.3, 0.1], dtype=torch.float64, requires_grad=True)
    found = policy_loss(
        logits.log_softmax(dim=0)[:, None],
        sampled.log()[:, None],
        torch.ones(3, 1),
        torch.zeros(3),
        sampled,  # the chance of each of the three
        clip_low=0.2,
        clip_high=0.2,
        reference_BT=reference[:, None],
        kl_coefficient=1.0,
    )
    logp = logits.log_softmax(dim=0)
    divergence = (logp.exp() * (logp - reference)).sum()
    assert float(found.total.detach()) == pytest.approx(float(divergence.detach()))
    (gradient,) = torch.autograd.grad(found.total, logits)
    (expected,) = torch.autograd.grad(divergence, logits)
    assert gradient.tolist() == pytest.approx(expected.tolist())


def slow_loss(batch: dict[str, Any], aggregation: Aggregation, low: float, high: float, beta: float) -> float:
    """Prompt by prompt, sequence by sequence, token by token."""
    prompts = []
    all_tokens = sum(len(sequence["logp"]) for prompt in batch["prompts"] for sequence in prompt["sequences"])
    for prompt in batch["prompts"]:
        sequences = []
        for sequence in prompt["sequences"]:
            tokens = []
            for logp, old, reference in zip(sequence["logp"], sequence["old"], sequence["reference"], strict=True):
                ratio = math.exp(logp - old)
                held = min(max(ratio, 1 - low), 1 + high)
                surrogate = -min(ratio * sequence["advantage"], held * sequence["advantage"])
                difference = reference - logp
                tokens.append(surrogate + beta * ratio * (math.exp(difference) - difference - 1))
            sequences.append(sum(tokens) if aggregation == "per_token" else sum(tokens) / len(tokens))
        prompts.append((prompt["weight"], sequences))
    if aggregation == "per_token":
        return float(sum(weight * sum(sequences) for weight, sequences in prompts) / all_tokens)
    if aggregation == "per_sequence":
        return float(sum(weight * sum(sequences) for weight, sequences in prompts) / batch["rollouts_drawn"])
    means = [weight * sum(sequences) / len(sequences) if sequences else 0.0 for weight, sequences in prompts]
    return sum(means) / len(means)


def random_batch(rng: random.Random) -> dict[str, Any]:
    prompts = []
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 5))]
    for size in sizes:
        sequences = []
        for _ in range(rng.randint(0, size)):
            length = rng.randint(1, 6)
            old = [rng.uniform(-3, 0) for _ in range(length)]
            sequences.append(
                {
                    "old": old,
                    "logp": [value + rng.gauss(0, 0.4) for value in old],
                    "reference": [value + rng.gauss(0, 0.4) for value in old],
                    "advantage": rng.gauss(0, 1),
                }
            )
        prompts.append({"weight": rng.uniform(0.1, 3), "sequences": sequences})
    if not any(prompt["sequences"] for prompt in prompts):
        return random_batch(rng)
    return {"prompts": prompts, "sizes": sizes, "rollouts_drawn": sum(sizes)}


def padded(rows: list[list[float]], fill: float) -> Any:
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_the_slow_version(aggregation: Aggregation, seed: int) -> None:
    rng = random.Random(seed)
    batch = random_batch(rng)
    low, high, beta = rng.uniform(0, 0.4), rng.uniform(0, 0.4), rng.choice([0.0, 0.3])
    flat = [(k, sequence) for k, prompt in enumerate(batch["prompts"]) for sequence in prompt["sequences"]]
    coefficient_B = sequence_coefficients(
        torch.tensor([k for k, _ in flat]),
        torch.tensor([len(sequence["logp"]) for _, sequence in flat]),
        torch.tensor([prompt["weight"] for prompt in batch["prompts"]], dtype=torch.float64),
        torch.tensor(batch["sizes"]),
        aggregation,
    )
    found = policy_loss(
        # Behind the mask stands what would be infinite if anything looked at it.
        padded([sequence["logp"] for _, sequence in flat], 1e6),
        padded([sequence["old"] for _, sequence in flat], -1e6),
        padded([[1.0] * len(sequence["logp"]) for _, sequence in flat], 0.0),
        torch.tensor([sequence["advantage"] for _, sequence in flat], dtype=torch.float64),
        coefficient_B,
        clip_low=low,
        clip_high=high,
        reference_BT=padded([sequence["reference"] for _, sequence in flat], 1e6),
        kl_coefficient=beta,
    )
    assert float(found.total) == pytest.approx(slow_loss(batch, aggregation, low, high, beta), rel=1e-9)


def test_what_stands_behind_the_mask_has_no_gradient() -> None:
    logp = torch.tensor([[-1.0, 1e4]], requires_grad=True)
    reference = torch.tensor([[-1.5, -1e4]])
    found = policy_loss(
        logp, torch.tensor([[-1.0, -1e4]]), torch.tensor([[1, 0]]), torch.tensor([1.0]), torch.tensor([1.0]),
        clip_low=0.2, clip_high=0.2, reference_BT=reference, kl_coefficient=0.1,
    )  # fmt: skip
    torch.autograd.backward(found.total)
    assert torch.isfinite(found.total.detach())
    assert logp.grad[0, 1] == 0


def test_pieces_of_a_batch_add_up_to_the_whole() -> None:
    rng = random.Random(3)
    logp, old = ([[rng.uniform(-2, 0) for _ in range(3)] for _ in range(5)] for _ in range(2))
    advantage, coefficient = [rng.gauss(0, 1) for _ in range(5)], [rng.random() for _ in range(5)]
    whole = loss_of(logp, old, advantage, coefficient)
    pieces = [loss_of(logp[a:b], old[a:b], advantage[a:b], coefficient[a:b]) for a, b in ((0, 2), (2, 5))]
    assert sum(float(piece.total) for piece in pieces) == pytest.approx(float(whole.total))
    # A sequence without advantage may be left out: its part is 0.
    assert float(loss_of(logp[:1], old[:1], [0.0], coefficient[:1]).total) == 0


@pytest.mark.parametrize(("low", "high"), [(-0.1, 0.2), (1.1, 0.2), (0.2, -0.1)])
def test_a_clip_that_cannot_be_is_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="clip_low must be in"):
        loss_of([[0.0]], [[0.0]], [1.0], [1.0], clip_low=low, clip_high=high)


def test_a_kl_term_without_a_reference_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kl_coefficient 0\.1.* needs log-probabilities under a reference"):
        loss_of([[0.0]], [[0.0]], [1.0], [1.0], kl_coefficient=0.1)
