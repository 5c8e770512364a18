import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.factories import make_ticket
from trainer.errors import InvalidRecord, InvalidRequest
from trainer.rollout.recorded import RecordedEngine, RecordedOutcomes

COUNTS = [
    {"prompt_id": "a", "prompt": "1+1?", "answer": "2", "category": "sums", "group_size": 4, "successes": [0, 4, 2]},
    {"prompt_id": "b", "group_size": 4, "visits": 4, "successes": [4, 0, 1, 3]},
]


def record_of(*rows: dict[str, Any]) -> RecordedOutcomes:
    return RecordedOutcomes.from_rows(rows, name="r")


def passes(engine: RecordedEngine, *prompts: str, group_size: int = 4) -> list[int]:
    """Successes of the groups of one batch."""
    tickets = [make_ticket(prompt, group_size=group_size) for prompt in prompts]
    groups = engine.generate(tickets, policy_version=0)
    assert [group.ticket.prompt for group in groups] == list(prompts)
    assert all(len(group.rollouts) == group_size for group in groups)
    return [int(sum(rollout.outcome or 0 for rollout in group.rollouts)) for group in groups]


def test_the_clock_moves_one_visit_for_every_n_groups_whatever_was_drawn() -> None:
    # Two prompts: groups 0 and 1 are at visit 0, 2 and 3 at visit 1, 4 and 5 at visit 2, the last of the shorter row.
    engine = RecordedEngine(record_of(*COUNTS))
    assert engine.num_left == 6
    assert passes(engine, "a") == [0]
    assert passes(engine, "a", "a", "b") == [0, 4, 0]
    assert passes(engine, "b", "b") == [1, 1]
    assert engine.num_left == 0
    with pytest.raises(InvalidRequest, match="0 groups left, got 1 tickets"):
        passes(engine, "a")


def test_a_batch_beyond_the_end_is_refused_whole() -> None:
    engine = RecordedEngine(record_of(*COUNTS))
    passes(engine, "a", "b", "a")
    with pytest.raises(InvalidRequest, match="3 groups left, got 4 tickets"):
        passes(engine, "a", "b", "a", "b")
    assert engine.num_drawn == 3


def test_a_record_is_cut_at_its_shortest_row() -> None:
    record = record_of(*COUNTS)
    assert (record.num_prompts, record.num_visits, record.num_groups, record.group_size) == (2, 3, 6, 4)
    assert record.pass_rate_VN.tolist() == [[0, 1], [1, 0], [0.5, 0.25]]
    assert record.pass_rates(3).tolist() == [1, 0]
    assert record.pass_rates(6).tolist() == [0.5, 0.25]  # at the end: the last visit


def test_prompts_go_to_the_pool_under_the_contracts_names() -> None:
    assert list(record_of(*COUNTS).prompts) == [
        {"key": "a", "content": "1+1?", "answer": "2", "category": "sums"},
        {"key": "b"},
    ]


def test_the_same_draw_gives_the_same_order_and_a_second_draw_another() -> None:
    row = {"key": "a", "group_size": 64, "successes": [32]}

    def orders(seed: int, draws: int) -> list[tuple[float | None, ...]]:
        engine = RecordedEngine(record_of(row, *({**row, "key": f"x{n}"} for n in range(9))), seed=seed)
        groups = engine.generate([make_ticket("a", group_size=64)] * draws, policy_version=0)
        return [tuple(rollout.outcome for rollout in group.rollouts) for group in groups]

    first, second = orders(0, 2)
    assert orders(0, 2) == [first, second]
    assert orders(1, 1) != [first]
    assert first != second
    assert sum(map(float, first)) == sum(map(float, second)) == 32  # type: ignore[arg-type]


def test_outcomes_of_a_prompt_do_not_depend_on_what_else_was_drawn() -> None:
    rows = [{"key": key, "p": [0.5, 0.5, 0.5]} for key in "abcd"]
    one, other = RecordedEngine(record_of(*rows), seed=3), RecordedEngine(record_of(*rows), seed=3)
    tickets = [make_ticket(prompt, group_size=32) for prompt in "abab"]
    shuffled = [make_ticket(prompt, group_size=32) for prompt in "bcda"]
    by_prompt = {group.ticket.prompt: group.rollouts for group in other.generate(shuffled, policy_version=0)}
    groups = one.generate(tickets, policy_version=0)
    assert [groups[0].rollouts, groups[1].rollouts] == [by_prompt["a"], by_prompt["b"]]
    assert groups[2].rollouts != groups[0].rollouts


def test_outcomes_at_a_visit_do_not_depend_on_how_often_the_prompt_was_drawn_before() -> None:
    rows = [{"key": key, "p": [0.5, 0.5]} for key in "ab"]
    often, never = RecordedEngine(record_of(*rows)), RecordedEngine(record_of(*rows))
    ticket = make_ticket("a", group_size=32)
    often.generate([ticket, ticket], policy_version=0)
    never.generate([make_ticket("b"), make_ticket("b")], policy_version=0)
    assert often.generate([ticket], policy_version=0) == never.generate([ticket], policy_version=0)


def test_pass_rates_give_outcomes_of_that_mean_at_any_group_size() -> None:
    engine = RecordedEngine(record_of({"key": "a", "p": 0.3}, {"key": "b", "p": 0}, {"key": "c", "p": 1}))
    assert engine.num_left is None
    draws = 400
    found = sum(passes(engine, *["a"] * draws, group_size=16)) / (16 * draws)
    # Four standard errors of 6,400 rollouts at p = 0.3.
    assert abs(found - 0.3) < 4 * math.sqrt(0.3 * 0.7 / (16 * draws))
    assert passes(engine, "b", "c", group_size=5) == [0, 5]


def test_each_place_in_a_group_passes_equally_often() -> None:
    record = record_of({"key": "a", "group_size": 4, "successes": [1] * 1000})
    engine = RecordedEngine(record)
    groups = engine.generate([make_ticket("a", group_size=4)] * 1000, policy_version=0)
    places = Counter([rollout.outcome for rollout in group.rollouts].index(1.0) for group in groups)
    # Five standard errors of 1,000 draws with chance 1/4.
    assert all(abs(places[n] - 250) < 5 * math.sqrt(1000 * 0.25 * 0.75) for n in range(4))


def test_constant_and_moving_pass_rates_may_stand_together() -> None:
    record = record_of({"key": "a", "p": 0.5}, {"key": "b", "p": [0.1, 0.2]})
    assert record.pass_rate_VN.tolist() == [[0.5, 0.1], [0.5, 0.2]]


def test_the_digest_names_the_content() -> None:
    assert record_of(*COUNTS).digest == record_of(*json.loads(json.dumps(COUNTS))).digest
    changed = [{**COUNTS[0], "successes": [0, 4, 3]}, COUNTS[1]]
    assert record_of(*COUNTS).digest != record_of(*changed).digest


def test_a_smaller_group_is_a_random_part_of_the_recorded_one() -> None:
    keys = [f"p{n:04}" for n in range(2_000)]
    record = record_of(*({"key": key, "group_size": 4, "successes": [1]} for key in keys))
    found = Counter(passes(RecordedEngine(record), *keys, group_size=3))
    # One of four passed: three of them hold it three times in four. Four standard errors.
    assert set(found) == {0, 1}
    assert abs(found[1] / 2_000 - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 2_000)


def test_a_run_of_another_group_size_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"r holds groups of 4 .* asks for 8: make the run with group_size=4"):
        passes(RecordedEngine(record_of(*COUNTS)), "a", group_size=8)


def test_a_prompt_outside_the_record_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="r has no prompt 'zz'"):
        passes(RecordedEngine(record_of(*COUNTS)), "zz")


GOOD = {"key": "a", "group_size": 4, "successes": [1]}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"key": "b", "group_size": 4, "successes": [1, 5]}, r"`successes` at visit 1 must be .* in 0..4, got 5"),
        ({"key": "b", "group_size": 4, "successes": [-1]}, "got -1"),
        ({"key": "b", "group_size": 4, "successes": [1.0]}, r"got 1\.0"),
        ({"key": "b", "group_size": 4, "successes": [True]}, "got True"),
        ({"key": "b", "group_size": 4, "successes": []}, "one count a visit"),
        ({"key": "b", "successes": [1]}, "`group_size` must be a whole number >= 1, got None"),
        ({"key": "b", "group_size": 0, "successes": [0]}, "got 0"),
        ({"key": "b", "group_size": 4, "visits": 2, "successes": [1]}, "`visits` says 2, `successes` has 1"),
        ({"key": "a", "group_size": 4, "successes": [1]}, "line 3: key 'a' stands in r.jsonl, line 1 already"),
        ({"key": "b", "group_size": 8, "successes": [1]}, "groups of 8, but r.jsonl, line 1: .* groups of 4"),
        ({"key": "b", "p": 0.5}, "one record is of one kind"),
        ({"key": "b", "p": 0.5, "successes": [1]}, "either `successes` or `p`"),
        ({"key": "b"}, "either `successes` or `p`"),
        ({"key": "b", "p": math.nan}, r"`p` at visit 0 must be a number in \[0, 1\], got nan"),
        ({"key": "b", "p": [0.5, math.inf]}, "`p` at visit 1 .* got inf"),
        ({"key": "b", "p": [0.5, 1.5]}, r"got 1\.5"),
        ({"key": "b", "p": "half"}, "got 'half'"),
        ({"key": "b", "p": []}, "empty list"),
        ({"key": "b", "p": 0.5, "group_size": 4}, r"\['group_size'\] belong to `successes`"),
        ({"key": "", "p": 0.5}, "needs a `key`"),
        ({"key": 7, "p": 0.5}, "got 7"),
        ({"p": 0.5}, "needs a `key`"),
        ({"key": "b", "prompt_id": "b", "p": 0.5}, "same field"),
        ({"key": "b", "p": 0.5, "categroy": "x"}, r"unknown fields \['categroy'\]"),
        ([1, 2], "expected a JSON object"),
    ],
)
def test_a_row_that_cannot_be_is_refused_by_file_and_line(tmp_path: Path, row: object, words: str) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(f"{json.dumps(GOOD)}\n\n{json.dumps(row)}\n", encoding="utf-8")
    with pytest.raises(InvalidRecord, match=words) as caught:
        RecordedOutcomes.load(file)
    assert "r.jsonl, line 3" in str(caught.value)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    with pytest.raises(InvalidRecord, match="cannot be read"):
        RecordedOutcomes.load(file)
    for content, words in [
        (b"\n\n", "holds no prompts"),
        (b"{\n", "line 1: not a JSON object"),
        (b"\xff", "cannot be"),
    ]:
        file.write_bytes(content)
        with pytest.raises(InvalidRecord, match=words):
            RecordedOutcomes.load(file)


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text('{"key": "a", "content": "one\u2028two", "p": 0.5}\r\n', encoding="utf-8")
    record = RecordedOutcomes.load(file)
    assert record.prompts[0]["content"] == "one\u2028two"
    assert np.array_equal(record.pass_rate_VN, [[0.5]])


def test_a_record_takes_no_weights() -> None:
    with pytest.raises(InvalidRequest, match="RecordedEngine does not take weights from a folder"):
        RecordedEngine(record_of(*COUNTS)).load(Path("step-1"), policy_version=1)
