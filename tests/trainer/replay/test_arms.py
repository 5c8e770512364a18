import pytest

from trainer.errors import InvalidRequest
from trainer.replay.arms import PolicyArm


def test_a_name_alone_is_a_preset() -> None:
    arm = PolicyArm.parse("uniform")
    assert (arm.name, arm.policy.model_dump(exclude_unset=True)) == ("uniform", {"preset": "uniform"})


def test_options_override_parts_of_the_preset() -> None:
    arm = PolicyArm.parse(
        "midband: power=2, floor=0.2,estimator=kalman_arcsine,estimator.discount=0.9,utility=informative"
    )
    assert arm.policy.model_dump(exclude_unset=True) == {
        "preset": "midband",
        "power": 2.0,
        "floor": 0.2,
        "estimator": "kalman_arcsine",
        "estimator_options": {"discount": 0.9},
        "utility": "informative",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "midband:pwer=2",
            r"unknown option 'pwer'; known: power, floor, target, low, high, candidates, estimator, utility",
        ),
        ("midband:power", "'power' is not of the form option=value"),
        ("midband:power=", "not of the form"),
        ("midband:power=two", "power must be a number, got 'two'"),
        ("midband:power=2,power=3", "power is given twice"),
        ("midband:estimator.a=1,estimator.a=2", "given twice"),
        ("midband:floor=-1", "floor: .* got -1.0"),
        ("midband:power=nan", "power: .* got nan"),
        ("midband:utility=best", "utility: "),
        ("midband:preset=x", "preset"),
        ("", "preset"),
        (":power=2", "preset"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        PolicyArm.parse(text)
