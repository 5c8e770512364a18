"""Graders in processes of their own: time limits, crashes, references that cannot be read; never a zero for any."""

import logging
import os
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainer.errors import InvalidRequest, MissingExtra
from trainer.graders import GRADERS, math, puzzle
from trainer.graders.named import find_grader
from trainer.graders.pool import Grade, GraderPool

FOREIGN = "tests.trainer.graders.foreign"


def test_ours_and_foreign_functions_grade_by_name() -> None:
    with GraderPool("numeric") as pool:
        assert pool("so 4 + 3 = 7", "7") == 1.0
        assert pool("8", "7") == 0.0
        assert pool("8", None) is None
    with GraderPool(f"{FOREIGN}:length") as pool:
        assert pool("abc", "3") == 1.0


def test_what_goes_wrong_is_unscored_named_and_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), GraderPool(f"{FOREIGN}:misbehave", limit_s=0.5) as pool:
        assert pool.grade("raise", "secret") == Grade(outcome=None, problem="raised RuntimeError")
        assert pool.grade("die", "secret") == Grade(outcome=None, problem="its process died (exit code 3)")
        assert pool("right", None) == 1.0  # in a new process
        assert pool.grade("hang", "secret") == Grade(outcome=None, problem="took longer than 0.5 s")
        assert pool("right", None) == 1.0
        assert pool.grade("inf", None).problem == "gave an infinity"
        assert pool.grade("two", None).problem == "gave a number that is not within 0 and 1"
        assert pool.grade("nan", None) == Grade(outcome=None)
        pool("raise", "secret")
    assert pool.problems["raised RuntimeError"] == 2
    assert sum(pool.problems.values()) == 6
    assert "secret" not in caplog.text
    assert caplog.text.count("raised RuntimeError") == 1


def test_a_reference_that_cannot_be_read_is_no_opinion() -> None:
    # A constant that stands for "could not parse" would say solved, or hopeless, to every rollout of the prompt.
    with GraderPool("numeric") as pool:
        grades = [pool.grade(text, "no number at all") for text in ("1", "2", "words")]
    assert grades == [Grade(outcome=None, problem="raised ValueError")] * 3


def test_a_killed_process_is_gone() -> None:
    with GraderPool(f"{FOREIGN}:misbehave", limit_s=0.2) as pool:
        before = pool._idle.queue[0]
        assert before is not None
        pool("hang", None)
        with pytest.raises(ProcessLookupError):
            os.kill(before.process.pid or 0, 0)


def test_threads_share_a_pool_and_its_processes_work_side_by_side() -> None:
    with GraderPool(f"{FOREIGN}:length", workers=2) as pool, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda n: pool("x" * n, "3"), range(20)))
    assert found == [float(n == 3) for n in range(20)]


def test_a_reward_on_a_scale_of_its_own_is_kept_and_cut_for_the_pass_rate() -> None:
    with GraderPool(f"trl:{FOREIGN}:reward") as pool:
        assert pool.grade("a", "a") == Grade(outcome=1.0, reward=1.0)
        assert pool.grade("b", "a") == Grade(outcome=0.0, reward=-1.0)
        assert pool.grade("?", "a") == Grade(outcome=None)
    with GraderPool(f"trl:{FOREIGN}:needs_prompts") as pool:
        assert pool.grade("a", "a").problem == "raised TypeError"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nonsense", "no grader is called 'nonsense': give one of exact, numeric"),
        ("no.such.module:f", "no.such.module cannot be imported"),
        (f"{FOREIGN}:nothing", "has no function nothing"),
        (f"{FOREIGN}:DEAD", "has no function DEAD"),
    ],
)
def test_a_grader_that_cannot_be_had_is_refused_at_the_start(name: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        find_grader(name)
    if name == "nonsense":
        with pytest.raises(InvalidRequest, match=words):
            GraderPool(name)


def test_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="workers >= 1 and limit_s > 0, got 0 and 10"):
        GraderPool("exact", workers=0)


def test_a_closed_pool_may_be_closed_again() -> None:
    pool = GraderPool("exact")
    began = time.monotonic()
    pool.close()
    pool.close()
    assert time.monotonic() >= began


def test_every_grader_has_no_opinion_without_an_answer() -> None:
    assert [grader("x", None) for grader in GRADERS.values()] == [None] * len(GRADERS)


# Optional libraries


def test_without_its_library_a_grader_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(MissingExtra, match=r"pip install 'midband\[math\]'"):
        math("3", "3")
    with pytest.raises(MissingExtra, match=r"pip install 'midband\[reasoning-gym\]'"):
        puzzle("3", '{"metadata": {"source_dataset": "chain_sum"}}')


def test_mathematics_is_compared_by_the_library() -> None:
    pytest.importorskip("math_verify", reason="needs the extra math")
    assert math("so $\\frac{2}{4}$", "\\frac{1}{2}") == 1.0
    assert math("$\\{2, 1\\}$", "\\{1, 2\\}") == 1.0
    assert math("5", "4") == 0.0
    assert math("no idea", "4") == 0.0
    with pytest.raises(ValueError, match="no mathematics that can be read"):
        math("3", "???")


def test_a_puzzle_is_scored_by_its_own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("reasoning_gym")
    library.get_score_answer_fn = lambda name: lambda text, entry: float(text == entry["answer"]) * 0.5  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reasoning_gym", library)
    entry = '{"answer": "7", "metadata": {"source_dataset": "chain_sum"}}'
    assert puzzle("thinking <answer>8</answer> no, <answer> 7 </answer>", entry) == 0.5
    assert puzzle("7", entry) == 0.5
    assert puzzle("8", entry) == 0.0
    with pytest.raises(ValueError, match="no puzzle of reasoning-gym"):
        puzzle("7", "7")
