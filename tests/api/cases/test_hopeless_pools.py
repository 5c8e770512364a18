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


@pytest.mark.parametrize(
    ("solved", "alarm", "reason"),
    [
        ("", "pool_all_deferred", "all_deferred"),
        ("abcd", "pool_all_mastered", "all_mastered"),
        ("ab", "pool_no_signal", "all_mastered"),
    ],
)
def test_where_prompts_rest_only_audits_and_reviews_still_go_out_and_the_pool_is_said_to_teach_nothing_once(
    http: Http, solved: str, alarm: str, reason: str
) -> None:
    http.pool(letters())
    # At the smallest period one of four prompts is due at every draw; at 40 four are in forty.
    http.run(policy={"preset": "midband", "lifecycle": {}}, revisit_draws=40)
    said = None
    for index in range(100):
        batch = http.draw(index, 2, index)
        if said is None and http.info()["alarms"]:
            said = index
        if said is not None:
            assert batch["returned"] <= 2
            assert batch["reason"] == (None if batch["returned"] == 2 else reason)
        if batch["tickets"]:
            http.report(
                *(group(ticket, [float(ticket["prompt"] in solved)] * 8) for ticket in batch["tickets"]),
                policy_version=index,
            )

    info = http.info()
    assert said is not None
    assert [found["alarm"] for found in info["alarms"]] == [alarm]
    assert info["num_alarms"] == 1
    issued = info["tickets"]["reported"] - 2 * (said + 1)
    rest = 100 - (said + 1)
    # A review with a chance of a twentieth of two places, four standard errors of so many, and those that are due.
    assert rest <= issued <= rest * 1.1 + 4 * (rest * 0.1 * 0.9) ** 0.5 + 4 * (rest // 40 + 1)
