"""Every prompt is hopeless, or solved: draws go on, each ends in bounded time, and a short one says why."""

import pytest

from tests.api.harness import FLAT_BETA, Http, caller, group, letters

DRAWS = 30
SHORT_REASONS = {"all_in_flight", "pool_exhausted", "all_mastered", "all_deferred"}


@pytest.mark.parametrize("solved", ["", "abcd", "ab"], ids=["none solved", "all solved", "half solved"])
def test_every_draw_answers_whatever_the_prompts_are_like(url: str, solved: str) -> None:
    with caller(url) as http:
        http.pool(letters())
        http.run(policy=FLAT_BETA)
        issued = 0
        for index in range(DRAWS):
            batch = http.draw(index, 2, index)
            issued += batch["returned"]
            assert (batch["reason"] is None) is (batch["returned"] == 2)
            assert batch["reason"] is None or batch["reason"] in SHORT_REASONS
            assert all(0 < ticket["inclusion_probability"] <= 1 for ticket in batch["tickets"])
            groups = [group(ticket, [float(ticket["prompt"] in solved)] * 8) for ticket in batch["tickets"]]
            if groups:
                http.report(*groups)
        info = http.info()
        assert info["tickets"] == {"open": 0, "reported": issued, "void": 0}
        assert info["informative"] | {"groups": 0, "rate": 0.0} == info["informative"]
        beliefs = http.beliefs()
        assert all((beliefs[key]["pass_rate"] > 0.9) is (key in solved) for key in "abcd")
        # Hopeless and solved prompts alike keep being looked at: none is dropped for good.
        assert all(http.prompt(key)["drawn"] > 0 for key in "abcd")


def test_a_draw_with_everything_out_returns_at_once_and_says_so(url: str) -> None:
    with caller(url) as http:
        http.pool(letters())
        http.run()
        assert http.draw(0, 8)["reason"] == "pool_exhausted"
        for index in range(1, 30):
            batch = http.draw(index, 2)
            assert (batch["returned"], batch["reason"]) == (0, "all_in_flight")
        assert http.info()["tickets"]["open"] == 4


def test_draws_that_bring_nothing_raise_one_alarm(http: Http) -> None:
    http.pool(letters())
    http.run()
    http.draw(0, 4)
    for index in range(1, 30):
        http.draw(index, 4)
    assert [alarm["alarm"] for alarm in http.info()["alarms"]] == ["no_usable_groups"]
