r"""What public data sets' columns mean: rows as their authors publish them, worked by hand, and rows that are none."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.importing.layouts import LAYOUTS, Layout, NoPrompt, behind_hashes, boxed, detect, left_out, read_prompt

ASK = [{"role": "user", "content": "What is 6 times 7?"}]
ROWS: list[tuple[Layout, dict[str, Any], dict[str, Any]]] = [
    (
        Layout.GSM8K,
        {"question": "How many?", "answer": "He has 1,000+234 = <<1000+234=1234>>1,234.\n#### 1,234"},
        {"content": "How many?", "answer": "1234"},
    ),
    (
        Layout.QUESTION,
        {"question": "How many?", "answer": 42.0, "subject": "sums"},
        {"content": "How many?", "answer": "42", "category": "sums"},
    ),
    (
        Layout.MATH,
        {
            "problem": "Find x.",
            "solution": r"$\boxed{1}$, no: \boxed{\frac{1}{\{2\}}}.",
            "level": "Level 3",
            "type": "Algebra",
        },
        {"content": "Find x.", "answer": r"\frac{1}{\{2\}}", "category": "Algebra", "features": {"level": 3.0}},
    ),
    (
        Layout.DEEPSCALER,
        {"problem": "Find x.", "solution": r"\boxed{9}", "answer": "-\\frac{1}{2}", "subject": "Algebra", "level": 5},
        {"content": "Find x.", "answer": "-\\frac{1}{2}", "category": "Algebra", "features": {"level": 5.0}},
    ),
    (
        Layout.VERL,
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": "What is 6 times 7?", "name": None}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "42", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b6eb4", "split": "test"},
        },
        {"content": ASK, "answer": "42", "category": "math_dapo", "split": "heldout"},
    ),
    (
        Layout.VERL,
        {"prompt": "What?", "reward_model": {"ground_truth": ["a", "b"]}, "extra_info": None},
        {"content": "What?", "answer": '["a", "b"]'},
    ),
    (
        Layout.CHAT,
        {"messages": [*ASK, {"role": "assistant", "content": "42"}], "ground_truth": "42"},
        {"content": ASK, "answer": "42"},
    ),
    (
        Layout.PROMPT,
        {"prompt": "What?", "answer": ["2"], "type": "a"},
        {"content": "What?", "answer": "2", "category": "a"},
    ),
    (
        Layout.PROMPT,
        {"prompt": {"role": ["user"], "content": ["What?"]}},
        {"content": [{"role": "user", "content": "What?"}]},
    ),
]


@pytest.mark.parametrize(("layout", "row", "prompt"), ROWS)
def test_a_row_becomes_the_prompt_that_its_author_meant(
    layout: Layout, row: dict[str, Any], prompt: dict[str, Any]
) -> None:
    assert detect(row) is (Layout.GSM8K if layout is Layout.QUESTION else layout)
    assert read_prompt(layout, row) == prompt


def test_columns_of_the_contract_are_its_own_layout_and_others_are_none() -> None:
    assert detect(["key", "category"]) is detect(["content", "answer", "prompt"]) is Layout.MIDBAND
    assert detect(["text", "label"]) is detect([]) is None


def test_columns_that_are_not_read_are_named() -> None:
    assert left_out(Layout.GSM8K, ["answer", "question", "hint"]) == ["hint"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("#### 42", "42"), ("a #### b\n####  -3,000 ", "-3000"), ("#### 3, 4", "3, 4"), ("#### $1,000.50", "$1000.50")],
)
def test_what_stands_behind_the_last_hashes_is_the_answer(answer: str, expected: str) -> None:
    assert behind_hashes(answer) == expected


@pytest.mark.parametrize(
    ("solution", "expected"),
    [
        (r"so \boxed{42}.", "42"),
        (r"\boxed{a} and \boxed{ {b}{c} }", "{b}{c}"),
        (r"so $\boxed 5$.", "5"),
        (r"\fbox{7}", "7"),
    ],
)
def test_the_last_box_is_the_answer(solution: str, expected: str) -> None:
    assert boxed(solution) == expected


@given(st.text(alphabet="ab{}\\ ").filter(lambda s: "\\" not in s))
def test_a_box_around_balanced_braces_gives_what_is_in_it(inside: str) -> None:
    depth = least = 0
    for character in inside:
        depth += {"{": 1, "}": -1}.get(character, 0)
        least = min(least, depth)
    if depth == 0 and least == 0:
        assert boxed(f"so $\\boxed{{{inside}}}$ }}.") == inside.strip()


@pytest.mark.parametrize(
    ("layout", "row", "code"),
    [
        (Layout.GSM8K, {"question": "a", "answer": "42"}, "no_answer"),
        (Layout.GSM8K, {"question": "a", "answer": None}, "wrong_type"),
        (Layout.GSM8K, {"question": " ", "answer": "#### 1"}, "no_prompt"),
        (Layout.MATH, {"problem": "a", "solution": "no box"}, "no_answer"),
        (Layout.MATH, {"problem": "a", "solution": r"\boxed{1"}, "no_answer"),
        (Layout.MATH, {"problem": "a", "solution": r"\boxed\frac{1}{2}"}, "no_answer"),
        (Layout.DEEPSCALER, {"problem": "a", "answer": None}, "no_answer"),
        (Layout.DEEPSCALER, {"problem": "a", "answer": b"1"}, "wrong_type"),
        (Layout.DEEPSCALER, {"problem": "a", "answer": float("nan")}, "wrong_type"),
        (Layout.VERL, {"prompt": "a", "reward_model": None}, "no_answer"),
        (Layout.VERL, {"prompt": 3, "reward_model": {"ground_truth": "1"}}, "wrong_type"),
        (Layout.VERL, {"prompt": [], "reward_model": {"ground_truth": "1"}}, "no_prompt"),
        (Layout.CHAT, {"messages": [{"role": "assistant", "content": "a"}]}, "no_prompt"),
        (Layout.CHAT, {"messages": "a"}, "wrong_type"),
        (Layout.PROMPT, {"prompt": "a", "answer": " "}, "no_answer"),
    ],
)
def test_a_row_that_is_no_prompt_is_refused_by_code(layout: Layout, row: dict[str, Any], code: str) -> None:
    with pytest.raises(NoPrompt) as refused:
        read_prompt(layout, row)
    assert refused.value.code == code


NAMES = ["role", "content", "ground_truth"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "ground_truth"]), inner)
    ),
    max_leaves=6,
)


@given(st.sampled_from(list(LAYOUTS)), st.data())
def test_whatever_a_table_holds_a_row_is_read_or_refused(layout: Layout, data: st.DataObject) -> None:
    row = data.draw(st.fixed_dictionaries(dict.fromkeys(sorted(LAYOUTS[layout].needed | LAYOUTS[layout].used), JSON)))
    with suppress(NoPrompt):
        prompt = read_prompt(layout, row)
        assert prompt["content"]
        assert isinstance(prompt.get("answer", ""), str)
