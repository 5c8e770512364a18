"""Blocks of draws, the shift of the selected stream, and what a finding says in words."""

from dataclasses import replace

import numpy as np
import pytest

from selector.audit.estimates import BLOCK_DRAWS, MOST_BLOCKS
from selector.audit.words import further_draws
from tests.selector.audit_cases import BETWEEN, audited, interval, many, steady, value


def test_blocks_are_the_audits_of_their_draws_at_a_level_of_their_own() -> None:
    rng = np.random.default_rng(12)
    draws = [replace(one, outcome_K=rng.random(2)) for one in many(250, **BETWEEN)]
    draws[99] = replace(draws[99], open_credit=(0.5, 0.2, 0.1))
    draws[100] = replace(draws[100], carried_credit=(0.5, 0.2, 0.1))
    found = audited(draws)
    assert found.num_blocks == 3
    assert [(block.number, block.draws, block.num_draws) for block in found.blocks] == [
        (1, (0, 99), 100),
        (2, (100, 199), 100),
        (3, (200, 249), 50),
    ]
    assert [1 - block.level for block in found.blocks] == pytest.approx([0.05 / 2, 0.05 / 6, 0.05 / 12])
    first = audited(draws[:100], level=0.975, open_credit=0.5, open_credit_predicted_pass=0.2)
    assert found.blocks[0].pass_rate == first.pass_rate
    second = audited(draws[100:200], level=found.blocks[1].level, carried_credit=0.5, carried_credit_predicted_pass=0.2)
    assert found.blocks[1].pass_rate == second.pass_rate


def test_the_latest_blocks_are_shown_and_all_are_counted() -> None:
    found = audited(many(MOST_BLOCKS * BLOCK_DRAWS + 1, **BETWEEN))
    assert found.num_blocks == MOST_BLOCKS + 1
    assert [block.number for block in found.blocks] == list(range(2, MOST_BLOCKS + 2))


def test_the_finding_is_none_too_little_or_bias_and_says_so_in_words() -> None:
    settled, early = audited(steady(400)), audited(steady(20))
    assert (settled.finding, early.finding) == ("none", "too_little")
    assert settled.verdict is not None
    assert early.verdict is not None
    assert settled.verdict.startswith("no bias found at this resolution: the selected stream differs from the pool by")
    assert early.verdict.startswith("too little data")
    assert "further draws would settle 0.05" in early.verdict
    apart = audited(steady(400, audit_x=0.2, other_x=0.8))
    assert apart.finding == "bias"
    assert apart.verdict is not None
    assert apart.verdict.startswith("bias found: the re-weighted draws contradict the uniform ones, overall by +0.30")


def test_how_much_more_is_needed_falls_with_the_square_of_the_margin() -> None:
    assert further_draws(100, 0.1) == 300
    assert further_draws(100, 0.05) == further_draws(100, 0.01) == 0


def test_the_shift_is_the_fact_of_the_selected_stream_minus_each_estimate() -> None:
    found = audited(many(300, **BETWEEN))
    selected = value(found.pass_rate.selected)
    for shift, pool in (
        (found.pass_rate_shift.against_uniform, found.pass_rate.uniform),
        (found.pass_rate_shift.against_reweighted, found.pass_rate.reweighted),
    ):
        assert shift.estimate == pytest.approx(selected - value(pool))
        low, high = interval(pool)
        assert interval(shift) == pytest.approx((selected - high, selected - low))
    assert audited(many(5), audit_share=0.1).pass_rate_shift.against_uniform.asymptotic is None


def test_nothing_is_contrasted_where_chances_are_not_known_or_silence_tells() -> None:
    draws = steady(50, audit_x=0.2, other_x=0.8)
    assert audited(draws, known_chances=False).contrasts == ()
    assert audited(draws, informative_only=True).contrasts == ()
    assert {c.quantity for c in audited(draws, same_groups=False).contrasts} == {"pass_rate"}
    assert {c.quantity for c in audited(draws).contrasts} == {"pass_rate", "degenerate"}
