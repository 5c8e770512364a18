import pytest

from trainer.graders import GRADERS, exact


@pytest.mark.parametrize(
    ("completion", "answer", "outcome"),
    [
        ("0123", "0123", 1.0),
        (" 0123\n", "0123", 1.0),
        ("0123", "0123 ", 1.0),
        ("123", "0123", 0.0),  # as texts, not as numbers
        ("0123 or so", "0123", 0.0),
        ("", "0123", 0.0),
        ("", "", 1.0),
        ("anything", None, None),
    ],
)
def test_only_the_answer_itself_is_right(completion: str, answer: str | None, outcome: float | None) -> None:
    assert exact(completion, answer) == outcome


def test_configurations_find_the_graders_by_name() -> None:
    assert set(GRADERS) == {"exact", "numeric", "choice", "math", "reasoning-gym"}
    assert GRADERS["exact"] is exact
