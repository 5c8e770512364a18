"""Controllers one by one: their rules by hand, their limits, and what all of them must keep to."""

from dataclasses import replace
from math import tanh
from typing import Any

import numpy as np
import pytest

from selector.config import ControllerConfig, PolicyConfig
from selector.controllers import CONTROLLERS, Controller, Numbers, Seen, build_controller, check_controller
from selector.controllers.base import COUNTS
from selector.controllers.greso import Greso
from selector.policies import POLICIES, PRESETS, build_policy, override

REQUIRED: dict[str, dict[str, float]] = {"batch_size": {"wanted": 64.0}}
BEGINNINGS: dict[str, Numbers] = {
    "adarft": {"target": 0.0},
    "batch_size": {"yield": 1.0, "suggested_size": 80.0},
    "greso": {"easy_keep": 0.5, "hard_keep": 0.5},
    "pool_weights": {"easy_weight": 0.2, "hard_weight": 0.2},
    "vcrl": {"draws": 0.0, "threshold": 0.3, "low": 0.5 - 0.7**0.5 / 2, "high": 0.5 + 0.7**0.5 / 2},
}


def make(name: str, **options: float) -> Controller:
    return build_controller(ControllerConfig(name=name, options=REQUIRED.get(name, {}) | options))


def make_seen(**changes: Any) -> Seen:
    """Sixteen groups, all informative, half of which passed, in a later pass over the pool."""
    return Seen(**({"groups": 16, "share_sum": 8.0, "epochs": 2.0} | changes))


def config_of(preset: str, **changes: Any) -> PolicyConfig:
    return override(PRESETS[preset].config, changes)


@pytest.mark.parametrize("name", CONTROLLERS)
@pytest.mark.parametrize("seen", [make_seen(), make_seen(groups=0, share_sum=0.0), make_seen(hard=16, share_sum=0.0)])
def test_numbers_keep_their_names_and_order_and_hold_what_is_moved(name: str, seen: Seen) -> None:
    controller, numbers = make(name), BEGINNINGS[name]

    after = controller.after(numbers, seen)

    assert list(after) == list(numbers)
    assert set(controller.overrides(after)) == set(controller.sets)
    assert numbers == BEGINNINGS[name]
    assert after == controller.after(numbers, seen)


@pytest.mark.parametrize("name", sorted(set(CONTROLLERS) - {"vcrl"}))
def test_where_no_group_came_back_nothing_moves(name: str) -> None:
    assert make(name).after(BEGINNINGS[name], Seen(epochs=3.0)) == BEGINNINGS[name]


def test_adarft_moves_its_target_by_the_hyperbolic_tangent_of_the_surplus() -> None:
    # 12 of 16 shares: 0.75 - 0.5, times 2, a half of whose tanh is added.
    assert make("adarft").after({"target": 0.3}, make_seen(share_sum=12.0)) == {
        "target": pytest.approx(0.3 + 0.5 * tanh(0.5))
    }
    assert make("adarft").after({"target": 0.3}, make_seen()) == {"target": pytest.approx(0.3)}


def test_the_largest_step_of_adarft_is_38_of_100_and_ends_at_the_scale() -> None:
    controller = make("adarft")

    up = controller.after({"target": 0.0}, make_seen(share_sum=16.0))["target"]
    down = controller.after({"target": 1.0}, make_seen(share_sum=0.0))["target"]

    assert (round(100 * up), round(100 * (1 - down))) == (38, 38)
    assert controller.after({"target": 0.9}, make_seen(share_sum=16.0)) == {"target": 1.0}
    assert controller.after({"target": 0.1}, make_seen(share_sum=0.0)) == {"target": 0.0}


@pytest.mark.parametrize(
    ("easy", "hard", "expected"),
    # Of 24 groups 2 are a twelfth and 4 a sixth: the targets, which count as reached.
    [(2, 4, (0.49, 0.49)), (1, 3, (0.51, 0.51)), (2, 3, (0.49, 0.51)), (1, 4, (0.51, 0.49))],
)
def test_greso_lowers_a_chance_where_its_share_is_reached(easy: int, hard: int, expected: tuple[float, float]) -> None:
    after = make("greso").after(BEGINNINGS["greso"], make_seen(groups=24, easy=easy, hard=hard))

    assert (after["easy_keep"], after["hard_keep"]) == pytest.approx(expected)


def test_greso_waits_for_the_second_pass_over_the_pool_and_stays_within_its_bounds() -> None:
    controller = make("greso")

    assert controller.after(BEGINNINGS["greso"], make_seen(easy=16, epochs=0.99)) == BEGINNINGS["greso"]
    ends = {"easy_keep": 0.055, "hard_keep": 0.945}
    assert controller.after(ends, make_seen(easy=16)) == {"easy_keep": 0.05, "hard_keep": 0.95}


def test_greso_begins_with_the_two_numbers_of_its_policy() -> None:
    class WithTwoNumbers:
        easy_keep, hard_keep = 0.4, 0.6

    assert Greso().begin(WithTwoNumbers()) == {"easy_keep": 0.4, "hard_keep": 0.6}  # type: ignore[arg-type]


def test_vcrl_keeps_1_to_7_of_8_for_twenty_draws_and_3_to_5_from_then_on() -> None:
    controller = make("vcrl")
    numbers, kept = controller.begin(PRESETS["vcrl"].config), []
    for _ in range(22):
        kept.append([k for k in range(9) if numbers["low"] <= k / 8 <= numbers["high"]])
        numbers = controller.after(numbers, Seen())

    # v = k(8 - k)/16: 7/16 for 1, 15/16 for 3 and 12/16 for 2.
    assert kept[:20] == [list(range(1, 8))] * 20
    assert kept[20:] == [[3, 4, 5]] * 2


@pytest.mark.parametrize("group_size", [4, 8, 16])
@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.77, 0.95])
def test_the_band_of_vcrl_is_where_the_normalised_variance_reaches_the_threshold(
    group_size: int, threshold: float
) -> None:
    numbers = make("vcrl", first=threshold).begin(PRESETS["vcrl"].config)
    for k in range(group_size + 1):
        variance = k * (group_size - k) / (group_size * (group_size - 1))
        largest = group_size / (4 * (group_size - 1))
        assert (variance / largest >= threshold) == (numbers["low"] <= k / group_size <= numbers["high"])


def test_pool_weights_go_a_tenth_of_the_way_to_the_relative_yield() -> None:
    seen = make_seen(
        middle_groups=8, middle_informative=7, high_groups=6, high_informative=1, low_groups=2, low_informative=2
    )

    after = make("pool_weights").after(BEGINNINGS["pool_weights"], seen)

    # 8/10 in the middle; 2/8 of the easy ones is 5/16 of it; 3/4 of the hard ones 15/16.
    assert after == {
        "easy_weight": pytest.approx(0.9 * 0.2 + 0.1 * 5 / 16),
        "hard_weight": pytest.approx(0.9 * 0.2 + 0.1 * 15 / 16),
    }


def test_pool_weights_never_close_a_pool_and_leave_one_alone_that_was_not_seen() -> None:
    controller, seen = make("pool_weights", rate=1.0), make_seen(middle_groups=98, middle_informative=97)

    assert controller.after(BEGINNINGS["pool_weights"], seen) == BEGINNINGS["pool_weights"]
    assert controller.after(BEGINNINGS["pool_weights"], replace(seen, high_groups=1000))["easy_weight"] == 0.02
    assert controller.after(BEGINNINGS["pool_weights"], replace(seen, low_groups=5, low_informative=5))[
        "hard_weight"
    ] == pytest.approx(6 / 7 / (98 / 100))
    # A pool that yields more than the middle one is worth no more than it.
    richer = replace(seen, middle_informative=48, low_groups=98, low_informative=98)
    assert controller.after(BEGINNINGS["pool_weights"], richer)["hard_weight"] == 1.0


@pytest.mark.parametrize(
    ("informative", "suggested"),
    # 1.25 * 64 / yield; none informative: eight times what is wanted, as for any yield below 5/32.
    [(16, 80), (8, 160), (4, 320), (2, 512), (0, 512), (5, 256)],
)
def test_the_batch_grows_as_the_yield_falls_up_to_a_bound(informative: int, suggested: int) -> None:
    after = make("batch_size").after(BEGINNINGS["batch_size"], make_seen(hard=16 - informative))

    assert after == {"yield": informative / 16, "suggested_size": suggested}


def test_what_is_counted_is_what_a_controller_is_told() -> None:
    counts = Seen.of(np.arange(len(COUNTS), dtype=np.float64), 1.5)

    assert [getattr(counts, name) for name in COUNTS] == list(range(len(COUNTS)))
    assert counts.epochs == 1.5
    assert counts.informative == counts.groups - counts.easy - counts.hard


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("oracle", {}, r"unknown controller 'oracle'; known: \['adarft', 'batch_size'"),
        ("adarft", {"speed": 1.0}, r"controller 'adarft' has no option 'speed'; it has \['rate', 'slope', 'wanted'\]"),
        ("adarft", {"rate": 1.5}, r"rate of the controller must be in \[0, 1\], got 1.5"),
        ("adarft", {"wanted": float("nan")}, "wanted of the controller"),
        ("greso", {"lowest": 0.0}, "lowest of the controller must be in"),
        ("greso", {"lowest": 0.9, "highest": 0.1}, "lowest of the controller"),
        ("vcrl", {"later": 1.0}, "later of the controller"),
        ("batch_size", {"wanted": 0.0}, "wanted of the controller"),
    ],
)
def test_a_controller_that_cannot_be_is_refused_by_name(name: str, options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make(name, **options)


def test_an_option_that_has_to_be_given_is_asked_for() -> None:
    with pytest.raises(ValueError, match="controller 'batch_size' needs wanted"):
        build_controller(ControllerConfig(name="batch_size"))


@pytest.mark.parametrize("name", [name for name in CONTROLLERS if CONTROLLERS[name].sets])
def test_a_controller_is_refused_with_a_utility_that_lacks_what_it_moves(name: str) -> None:
    policy = replace(PRESETS["midband"].config, controller=ControllerConfig(name=name))
    with pytest.raises(ValueError, match=f"controller '{name}' moves {sorted(CONTROLLERS[name].sets)[0]}, which"):
        build_policy(policy, weights="none", advantage="grpo")


def test_a_controller_that_has_nothing_to_begin_with_is_refused() -> None:
    policy = replace(PRESETS["pools"].config, controller=ControllerConfig(name="pool_weights"))
    with pytest.raises(ValueError, match="begins with the policy's easy_weight: give it"):
        build_policy(policy, weights="none", advantage="grpo")
    check_controller(replace(policy, easy_weight=0.2, hard_weight=0.2), POLICIES["pools"].parameters())


def test_a_controller_goes_with_the_utility_that_it_served() -> None:
    assert config_of("adarft", utility="variance").controller is None
    assert config_of("adarft", power=2.0).controller == ControllerConfig(name="adarft")
    with_size = ControllerConfig(name="batch_size", options={"wanted": 32.0})
    assert config_of("uniform", controller=with_size).controller == with_size
