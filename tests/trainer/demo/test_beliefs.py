from pathlib import Path

from trainer.demo.beliefs import NUM_BINS, BeliefHistogram


def columns(*rows: tuple[str, float, float]) -> dict[str, list[object]]:
    """As the client gives them: key, pass rate, effective rollouts."""
    return {name: [row[place] for row in rows] for place, name in enumerate(("key", "pass_rate", "n_eff"))}


def test_prompts_are_counted_by_pass_rate_and_by_whether_they_have_evidence() -> None:
    found = BeliefHistogram.of(
        columns(("a", 0.01, 8.0), ("b", 0.02, 0.0), ("c", 0.5, 3.5), ("d", 1.0, 16.0), ("held out", 0.5, 8.0)),
        {"a", "b", "c", "d"},
        step=7,
        tokens=90,
    )
    tried = {0: 1, NUM_BINS // 2: 1, NUM_BINS - 1: 1}  # bins of 5 %: 0.5 begins the eleventh, 1 is in the last
    assert found.tried_B == [tried.get(b, 0) for b in range(NUM_BINS)]
    assert found.untried_B == [1] + [0] * (NUM_BINS - 1)
    assert (found.step, found.tokens) == (7, 90)


def test_what_is_kept_is_read_back_in_the_order_of_steps(tmp_path: Path) -> None:
    made = [
        BeliefHistogram.of(columns(("a", step / 1_000, 1.0)), {"a"}, step=step, tokens=step) for step in (0, 25, 100)
    ]
    for one in reversed(made):
        one.write(tmp_path)
    assert BeliefHistogram.read_all(tmp_path) == made
    assert BeliefHistogram.read_all(tmp_path / "none") == []


def test_the_same_step_again_replaces_what_was_kept(tmp_path: Path) -> None:
    for rate in (0.1, 0.9):
        BeliefHistogram.of(columns(("a", rate, 1.0)), {"a"}, step=5, tokens=1).write(tmp_path)
    (found,) = BeliefHistogram.read_all(tmp_path)
    assert found.tried_B.index(1) == NUM_BINS - 2
    assert len(list((tmp_path / "beliefs").iterdir())) == 1
