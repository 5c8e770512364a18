"""Presets: what each says of itself, and that every one draws batches that can be redrawn."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from selector.batches.drawing import claim_of
from selector.claims import ClaimType
from selector.config import LifecycleConfig
from selector.policies import POLICIES, PRESETS, Policy, build_policy
from tests.selector.engine_cases import Session, make_pool, redraw
from tests.selector.preset_cases import answered, config_of, passes_of

CLAIMS = {
    "uniform": ClaimType.EXACT,
    "midband": ClaimType.MODIFIED,
    "band": ClaimType.MODIFIED,
    "mopps": ClaimType.EMPIRICAL,
    "lilo": ClaimType.EMPIRICAL,
    "kgps": ClaimType.EMPIRICAL,
    "dps": ClaimType.EMPIRICAL,
    "bots": ClaimType.EMPIRICAL,
    "pcl": ClaimType.EMPIRICAL,
    "sec": ClaimType.MODIFIED,
    "pools": ClaimType.MODIFIED,
    "greso": ClaimType.MODIFIED,
    "random-equal-rollouts": ClaimType.EXACT,
    "shuffled-scores": ClaimType.MODIFIED,
    "random-equal-informative": ClaimType.EXACT,
    "knapsack": ClaimType.MODIFIED,
    "duet": ClaimType.MODIFIED,
    "speed": ClaimType.MODIFIED,
    "pilot-commit": ClaimType.MODIFIED,
    "ar3po": ClaimType.MODIFIED,
    "reinforce-ada": ClaimType.MODIFIED,
    "reinforce-ada-positive": ClaimType.MODIFIED,
    "aero": ClaimType.MODIFIED,
    "dapo": ClaimType.UNBIASED,
    "adarft": ClaimType.EMPIRICAL,
    "vcrl": ClaimType.MODIFIED,
    "plr": ClaimType.MODIFIED,
    "sfl": ClaimType.MODIFIED,
    "dots": ClaimType.EMPIRICAL,
    "vip": ClaimType.MODIFIED,
    "insight": ClaimType.EMPIRICAL,
    "prompt-replay": ClaimType.MODIFIED,
}


def test_the_presets_are_these_and_claim_what_their_design_allows() -> None:
    assert list(PRESETS) == list(CLAIMS)
    assert {name: claim_of(config_of(name)).type for name in PRESETS} == CLAIMS


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_says_where_it_comes_from_and_builds(name: str) -> None:
    preset = PRESETS[name]

    assert preset.config.preset == name
    assert preset.source
    assert preset.sentence.endswith(".")
    assert isinstance(build_policy(preset.config, weights="none", advantage="grpo"), Policy)


def test_the_documents_list_every_preset_and_every_utility() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")

    assert [name for name in (*PRESETS, *POLICIES) if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_draws_whole_batches_with_an_audit_and_can_be_redrawn(name: str) -> None:
    session = Session(config_of(name, audit_share=0.2), make_pool(50))
    for index in range(5):
        request = session.request(index, 8)
        event = session.engine.draw(request, now=0.0)
        assert event is not None
        again = redraw(session.state, request, event.revisit_draws)
        session.apply(event)
        answered(session, session.state.batches[-1])
        assert len(event.row_K) == 8
        assert event.row_K.tolist() == again.rows_K.tolist()
        assert event.inclusion_K.tobytes() == again.inclusion_K.tobytes()
        # With an audit every prompt has a chance, whatever the design.
        assert again.inclusion_N.min() >= event.num_audit / 50 - 1e-12


@pytest.mark.parametrize("name", PRESETS)
def test_with_a_floor_every_preset_can_have_weights(name: str) -> None:
    preset = PRESETS[name].config
    policy = preset if preset.utility == "uniform" else replace(preset, floor=0.1)

    claim = claim_of(replace(config_of(name), policy=policy, weights="horvitz_thompson", advantage="rloo"))

    # No weight that is known at the draw makes up for groups that are stopped by their outcomes.
    assert (claim.type in (ClaimType.EXACT, ClaimType.UNBIASED)) is (policy.wave is None)


def test_midband_is_as_it_was() -> None:
    config = PRESETS["midband"].config

    assert (config.utility, config.power, config.floor, config.design) == ("informative", 4.0, 0.05, "proportional")


def test_designs_of_random_size_have_no_places_for_reviews() -> None:
    policy = replace(PRESETS["greso"].config, lifecycle=LifecycleConfig())
    with pytest.raises(ValueError, match="lifecycle needs design 'proportional' or 'top'"):
        build_policy(policy, weights="none", advantage="grpo")


def test_shuffled_scores_are_as_uneven_as_midband_and_know_nothing() -> None:
    ours, control = (Session(config_of(name, seed=3), make_pool(300)) for name in ("midband", "shuffled-scores"))
    found = {}
    for name, session in (("midband", ours), ("shuffled-scores", control)):
        informative, pi = 0, []
        for index in range(40):
            request = session.request(index, 20)
            event = session.engine.draw(request, now=0.0)
            assert event is not None
            if index >= 20:
                informative += sum(0 < passes_of(row) < 8 for row in event.row_K.tolist())
                pi.append(np.sort(redraw(session.state, request, event.revisit_draws).inclusion_N))
            session.apply(event)
            answered(session, session.state.batches[-1])
        found[name] = informative / 400, float(np.mean([column.std() for column in pi]))

    # 7 of 9 prompts differ within their groups. Four standard errors of a share of 400.
    error = 4 * np.sqrt(7 / 9 * 2 / 9 / 400)
    assert abs(found["shuffled-scores"][0] - 7 / 9) < error
    assert found["midband"][0] > 7 / 9 + error
    assert 0.7 < found["shuffled-scores"][1] / found["midband"][1] < 1.3
