import io

from rich.console import Console

from api.schemas import Estimate
from tests.trainer.demo.factories import make_look, make_result
from trainer.demo.result import ArmResult, Marks
from trainer.demo.table import by_difficulty, table, verdict
from trainer.training.evaluate import Evaluation, PassRate


def shown(*results: ArmResult) -> dict[str, list[str]]:
    """The cells of each row by its name."""
    marks = Marks.of(results[0], results)
    view = table(results, marks, num_cores=2)
    columns = [list(column.cells) for column in view.columns]
    return {str(row[0]).strip(): [str(cell) for cell in row[1:]] for row in zip(*columns, strict=True)}


def test_every_figure_stands_in_its_row_and_column() -> None:
    # 20 steps of 32 rollouts, an informative group each: 20 groups, 3.1 for 100 rollouts.
    cells = shown(make_result("uniform", rates=(0.1, 0.15, 0.2)), make_result("midband", rates=(0.1, 0.25, 0.3)))
    assert cells == {
        "informative groups": ["–", "20", "20"],
        "per 100 rollouts": ["–", "3.1", "3.1"],
        "of all groups": ["–", "25.0 %", "25.0 %"],
        "tokens of training": ["–", "20,000", "20,000"],
        "wall time of steps, s": ["–", "4", "4"],
        "for the service": ["–", "1", "1"],
        "held-out, 10 prompts": ["10.0 (0–20)", "20.0 (10–30)", "30.0 (20–40)"],
        "hard, 5": ["10.0 (0–20)", "20.0 (10–30)", "30.0 (20–40)"],
        "easy, 5": ["90.0 (80–100)", "90.0 (80–100)", "90.0 (80–100)"],
        "audit: uniform draws": ["–", "25.0 (20–30)", "25.0 (20–30)"],
        "all groups drawn": ["–", "50.0 (45–55)", "50.0 (45–55)"],
        "these, re-weighted": ["–", "24.0 (10–40)", "24.0 (10–40)"],
        "tokens to match uniform": ["–", "20,000", "10,000"],
    }


def test_it_fits_a_terminal_and_says_that_the_arms_shared_the_cores() -> None:
    console = Console(file=io.StringIO(), width=80)
    results = [make_result("uniform", rates=(0.1, 1.0)), make_result("midband", rates=(0.1, 1.0))]
    console.print(table(results, Marks.of(results[0], results), num_cores=1))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "100.0 (90–100)" in text
    assert "at the same time on 1 core, a thread each" in " ".join(text.split())


def test_what_was_never_measured_is_a_dash() -> None:
    nothing = Estimate(estimate=None, interval=None)
    audit = make_result().audit
    streams = audit.pass_rate.model_copy(
        update={"uniform": nothing, "reweighted": Estimate(estimate=0.5, interval=None)}
    )
    empty = make_result("uniform", rates=(), audit=audit.model_copy(update={"pass_rate": streams}))
    cells = shown(empty)
    assert cells["per 100 rollouts"] == cells["of all groups"] == ["–", "–"]
    assert cells["audit: uniform draws"] == ["–", "–"]
    assert cells["these, re-weighted"] == ["–", "50.0"]
    assert not [name for name in cells if name.startswith(("held-out", "tokens to"))]


def test_an_interval_below_one_per_cent_has_its_decimal() -> None:
    rare = PassRate(estimate=0.001, low=0.0, high=0.004, num_prompts=10, num_rollouts=40)
    look = Evaluation(step=0, tokens=0, overall=rare, strata={})
    assert shown(make_result("uniform", looks=[look]))["held-out, 10 prompts"] == ["0.1 (0.0–0.4)"] * 2


def test_a_stratum_that_a_look_lacks_is_a_dash() -> None:
    looks = [make_look(0, 0.1, hard=None, easy=0.5), make_look(10, 0.2, easy=0.6)]
    cells = shown(make_result("uniform", looks=looks))
    assert cells["hard, 5"] == ["–", "–"]
    assert list(cells).index("hard, 5") < list(cells).index("easy, 5")


def test_strata_are_ordered_by_what_the_start_makes_of_them() -> None:
    assert by_difficulty(make_look(0, 0.5, b=0.9, a=0.2, c=0.5)) == ["a", "c", "b"]


def test_the_share_of_tokens_is_said_with_when_uniform_itself_was_there() -> None:
    uniform, other = make_result("uniform", rates=(0.1, 0.2, 0.3, 0.25)), make_result(rates=(0.1, 0.25, 0.2, 0.2))
    said = verdict(uniform, other, Marks.of(uniform, [uniform, other]))
    assert "midband first reached uniform's final held-out pass rate of 25.0 % at 33 % of uniform's tokens" in said
    assert "uniform itself first had it at 67 % of them" in said


def test_a_quality_that_is_not_reached_is_said_so() -> None:
    uniform, other = make_result("uniform", rates=(0.1, 0.5)), make_result(rates=(0.1, 0.4))
    said = verdict(uniform, other, Marks.of(uniform, [uniform, other]))
    assert said == "midband did not reach uniform's final held-out pass rate of 50.0 % within its 10,000 tokens."
    assert shown(uniform, other)["tokens to match uniform"] == ["–", "10,000", "not reached"]


def test_without_progress_of_uniform_there_is_nothing_to_reach() -> None:
    other = make_result()
    for rates in ((0.3, 0.3), (0.3, 0.2), (None, 0.2), ()):
        uniform = make_result("uniform", rates=rates)
        assert Marks.of(uniform, [uniform, other]) is None
        assert "no better on the held-out prompts than it began" in verdict(uniform, other, None)


def test_a_look_counts_from_exactly_the_quality_on() -> None:
    result = make_result(rates=(0.1, 0.3, 0.2, 0.4))
    assert [look and look.step for look in map(result.first_look_at, (0.05, 0.3, 0.31, 0.5))] == [0, 10, 30, None]
