import pytest

from selector.claims import OBJECTIVE, Claim, ClaimType, derive_claim
from selector.config import Advantage, LossAggregation, Weights


def claim(
    *,
    uniform: bool = False,
    empirical: bool = False,
    weights: Weights = "horvitz_thompson",
    loss: LossAggregation = "per_prompt",
    advantage: Advantage = "grpo",
) -> Claim:
    return derive_claim(
        uniform=uniform, empirical=empirical, weights=weights, loss_aggregation=loss, advantage=advantage
    )


@pytest.mark.parametrize("weights", ["none", "horvitz_thompson", "clipped"])
@pytest.mark.parametrize("loss", ["per_prompt", "per_sequence", "per_token"])
def test_a_uniform_draw_is_exact_whatever_the_weights_and_the_loss(weights: Weights, loss: LossAggregation) -> None:
    found = claim(uniform=True, weights=weights, loss=loss)

    assert found.type is ClaimType.EXACT
    assert not any("weight" in condition for condition in found.conditions)


@pytest.mark.parametrize(
    ("weights", "loss", "expected"),
    [
        ("horvitz_thompson", "per_prompt", ClaimType.UNBIASED),
        ("horvitz_thompson", "per_sequence", ClaimType.UNBIASED),
        ("horvitz_thompson", "per_token", ClaimType.MODIFIED),
        ("clipped", "per_prompt", ClaimType.MODIFIED),
        ("clipped", "per_token", ClaimType.MODIFIED),
        ("none", "per_prompt", ClaimType.MODIFIED),
        ("none", "per_token", ClaimType.MODIFIED),
    ],
)
def test_a_selection_is_unbiased_only_with_its_weights_and_a_constant_denominator(
    weights: Weights, loss: LossAggregation, expected: ClaimType
) -> None:
    assert claim(weights=weights, loss=loss).type is expected


def test_an_unbiased_claim_holds_only_while_the_trainer_does_its_part() -> None:
    per_prompt, per_sequence = claim(), claim(loss="per_sequence")

    assert any("weights_applied" in condition for condition in per_prompt.conditions)
    assert any("K of the answer" in condition for condition in per_prompt.conditions)
    assert set(per_prompt.conditions) < set(per_sequence.conditions)


@pytest.mark.parametrize("advantage", ["grpo", "dr_grpo", "rloo"])
def test_the_objective_is_that_of_the_advantage(advantage: Advantage) -> None:
    assert claim(advantage=advantage).objective == OBJECTIVE[advantage]
    assert claim(advantage=advantage, weights="none").objective.startswith(OBJECTIVE[advantage])


def test_each_way_to_modify_the_objective_is_told_apart() -> None:
    ways = [claim(weights="none"), claim(weights="clipped"), claim(loss="per_token")]

    assert len({found.objective for found in ways}) == 3


@pytest.mark.parametrize("weights", ["none", "horvitz_thompson"])
def test_a_design_with_unknown_chances_claims_nothing(weights: Weights) -> None:
    assert claim(empirical=True, weights=weights).type is ClaimType.EMPIRICAL


def test_a_claim_is_plain_values_in_json() -> None:
    found = claim(weights="none")

    assert found.to_dict() == {
        "type": "modified",
        "objective": found.objective,
        "conditions": list(found.conditions),
    }
    assert type(found.to_dict()["type"]) is str
