r"""What the columns of public data sets mean: where the question stands, where its answer, what else is worth keeping.

`command` calls it. A layout is a pure function from a row to a prompt of the contract; which one fits shows in the
names of the columns. Keys are not taken over: without one a prompt is known by its content, so that duplicates are
merged and history stays with its prompt however rows are ordered.

Answers: GSM8K's stand behind `####` at the end of a solution (arXiv:2110.14168, section 2), with commas between
thousands that graders drop; MATH's in the last `\boxed{}` of one (arXiv:2103.03874, section 3). Trainers in the manner
of verl, DAPO-17k among their data, keep chat messages in `prompt` and the answer in `reward_model.ground_truth`.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainer.importing.files import SPLITS

Row = Mapping[str, Any]
Prompt = dict[str, Any]


class Layout(StrEnum):
    """Columns that belong together."""

    MIDBAND = "midband"  # key, content, answer, ...: the contract's own
    VERL = "verl"  # prompt and reward_model.ground_truth; DAPO-17k
    GSM8K = "gsm8k"  # question, and answer with ####
    QUESTION = "question"  # question, and answer as it is; to be asked for, as its columns are GSM8K's
    DEEPSCALER = "deepscaler"  # problem and answer; MATH-500 too
    MATH = "math"  # problem, and solution with \boxed{}
    CHAT = "chat"  # messages up to the assistant's, and answer or ground_truth
    PROMPT = "prompt"  # prompt, and answer, ground_truth or solution


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a layout needs to be there, and what it reads besides."""

    needed: frozenset[str]
    used: frozenset[str]
    read: Callable[[Row], Prompt]


class NoPrompt(Exception):
    """A row that is no prompt of its layout; `code` and `detail` go into the report."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


def detect(columns: Iterable[str]) -> Layout | None:
    """The first layout whose columns are all there."""
    there = set(columns)
    if {"key", "content"} & there:
        return Layout.MIDBAND
    return next((layout for layout, known in LAYOUTS.items() if known.needed <= there), None)


def read_prompt(layout: Layout, row: Row) -> Prompt:
    """A row as the contract has it, without what it does not say. Raises NoPrompt."""
    prompt = LAYOUTS[layout].read(row)
    return {name: value for name, value in prompt.items() if value is not None}


def left_out(layout: Layout, columns: Iterable[str]) -> list[str]:
    """Columns that the layout does not read."""
    return [name for name in columns if name not in LAYOUTS[layout].used]


def behind_hashes(solution: object) -> str:
    """The final answer of a GSM8K solution: 1,234 in `... #### 1,234` is 1234."""
    _, found, answer = _text("answer", solution).rpartition("####")
    if not found or not answer.strip():
        raise NoPrompt("no_answer", "answer has nothing behind `####`; --layout question takes it as it is")
    answer = answer.strip()
    return answer.replace(",", "") if re.fullmatch(r"[-+$]?[\d,]+(\.\d+)?%?", answer) else answer


def boxed(solution: object) -> str:
    r"""What stands in the last `\boxed{...}` of a MATH solution, braces balanced; some have `\boxed 5` instead."""
    text = _text("solution", solution)
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    rest = text[start:].partition("box")[2].removeprefix("ed") if start >= 0 else ""
    if rest.startswith(" "):
        return rest[1:].split("$")[0].strip()
    depth = 0
    if not rest.startswith("{"):
        rest = ""
    for place, character in enumerate(rest):
        # A brace behind a backslash is a sign of the formula.
        if character in "{}" and rest[place - 1 : place] != "\\":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return rest[1:place].strip()
    raise NoPrompt("no_answer", "solution holds no complete `\\boxed{}`")


def _gsm8k(row: Row) -> Prompt:
    return {"content": _question("question", row), "answer": behind_hashes(row["answer"])}


def _plain_question(row: Row) -> Prompt:
    return {
        "content": _question("question", row),
        "answer": _answer("answer", row),
        "category": _category(row, *CATEGORIES),
    }


def _math(row: Row) -> Prompt:
    return {"content": _question("problem", row), "answer": boxed(row["solution"]), **_of_math(row)}


def _deepscaler(row: Row) -> Prompt:
    return {"content": _question("problem", row), "answer": _answer("answer", row), **_of_math(row)}


def _of_math(row: Row) -> Prompt:
    level = re.fullmatch(r"(?:Level )?(\d)", str(row.get("level", "")))  # `Level ?` is there too
    return {
        "category": _category(row, "type", "subject", "category"),
        "features": None if level is None else {"level": float(level[1])},
    }


def _verl(row: Row) -> Prompt:
    model, extra = row["reward_model"], row.get("extra_info")
    if not isinstance(model, dict) or model.get("ground_truth") is None:
        raise NoPrompt("no_answer", "reward_model has no ground_truth")
    said = extra.get("split") if isinstance(extra, dict) else None
    return {
        "content": _content("prompt", row["prompt"]),
        "answer": _answer("ground_truth", model),
        "category": _category(row, "data_source", "ability"),
        "split": SPLITS.get(said) if isinstance(said, str) else None,
    }


def _chat(row: Row) -> Prompt:
    messages = _content("messages", row["messages"])
    if not isinstance(messages, list):
        raise NoPrompt("wrong_type", "messages is a list of messages")
    while messages and messages[-1].get("role") == "assistant":
        messages = messages[:-1]
    if not messages:
        raise NoPrompt("no_prompt", "messages holds none but the assistant's")
    return {"content": messages, "answer": _first_answer(row), "category": _category(row, *CATEGORIES)}


def _prompt(row: Row) -> Prompt:
    return {
        "content": _content("prompt", row["prompt"]),
        "answer": _first_answer(row),
        "category": _category(row, *CATEGORIES),
    }


CATEGORIES = ("category", "type", "subject", "data_source", "ability")
ANSWERS = ("answer", "ground_truth", "solution")


# The more columns a layout needs, the earlier it is tried.
LAYOUTS: Mapping[Layout, Columns] = {
    Layout.VERL: Columns(
        needed=frozenset({"prompt", "reward_model"}),
        used=frozenset({"prompt", "reward_model", "extra_info", "data_source", "ability"}),
        read=_verl,
    ),
    Layout.DEEPSCALER: Columns(
        needed=frozenset({"problem", "answer"}),
        used=frozenset({"problem", "answer", "type", "subject", "category", "level"}),
        read=_deepscaler,
    ),
    Layout.MATH: Columns(
        needed=frozenset({"problem", "solution"}),
        used=frozenset({"problem", "solution", "type", "subject", "category", "level"}),
        read=_math,
    ),
    Layout.GSM8K: Columns(
        needed=frozenset({"question", "answer"}), used=frozenset({"question", "answer"}), read=_gsm8k
    ),
    Layout.QUESTION: Columns(
        needed=frozenset({"question", "answer"}),
        used=frozenset({"question", "answer", *CATEGORIES}),
        read=_plain_question,
    ),
    Layout.CHAT: Columns(
        needed=frozenset({"messages"}), used=frozenset({"messages", *ANSWERS, *CATEGORIES}), read=_chat
    ),
    Layout.PROMPT: Columns(
        needed=frozenset({"prompt"}), used=frozenset({"prompt", *ANSWERS, *CATEGORIES}), read=_prompt
    ),
}


def _question(name: str, row: Row) -> str:
    text = _text(name, row[name])
    if not text.strip():
        raise NoPrompt("no_prompt", f"{name} is empty")
    return text


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise NoPrompt("wrong_type", f"{name} is a text, got {type(value).__name__}")
    return value


def _content(name: str, value: object) -> str | list[dict[str, Any]]:
    """A text, or messages; lists of roles and of texts side by side, as some versions store them, are messages too."""
    if isinstance(value, str):
        if not value.strip():
            raise NoPrompt("no_prompt", f"{name} is empty")
        return value
    if isinstance(value, dict):
        roles, texts = value.get("role"), value.get("content")
        if isinstance(roles, list) and isinstance(texts, list) and len(roles) == len(texts):
            value = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise NoPrompt("wrong_type", f"{name} is a text or a list of messages, got {type(value).__name__}")
    if not value:
        raise NoPrompt("no_prompt", f"{name} holds no message")
    # A table has every field in every message, as null where it was not there.
    return [{field: item for field, item in message.items() if item is not None} for message in value]


def _first_answer(row: Row) -> str | None:
    return next((_answer(name, row) for name in ANSWERS if row.get(name) is not None), None)


def _answer(name: str, row: Row) -> str | None:
    """As text: a list of one is that one, 142.0 from a column of numbers is 142."""
    value = row[name]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        raise NoPrompt("no_answer", f"{name} is null")
    if isinstance(value, str):
        if not value.strip():
            raise NoPrompt("no_answer", f"{name} is empty")
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError):
        raise NoPrompt("wrong_type", f"{name} is no text and no number, got {type(value).__name__}") from None


def _category(row: Row, *names: str) -> str | None:
    return next((row[name] for name in names if isinstance(row.get(name), str) and row[name].strip()), None)
