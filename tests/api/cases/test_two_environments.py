"""Two environments, one of them fast: quotas are of what is trained on, and where that cannot be, it is said why."""

from typing import Any

from tests.api.harness import Http, Json, group, prompts

SIZE, CODE_STEPS = 16, 10
QUOTAS = {"math": 0.5, "code": 0.5}


def trained(http: Http, steps: int, *, math_mixed: int, names: bool = True, **options: Any) -> Json:
    """The audit after so many steps. Code takes ten times as long; one math group in `math_mixed` teaches something and
    is trained on.
    """
    http.pool([{**row, "category": "code" if i % 2 else "math"} for i, row in enumerate(prompts(200))])
    http.run(policy={"preset": "midband", "quotas": QUOTAS, **options})
    waiting, number = dict[int, list[str]](), 0
    for step in range(steps):
        named, groups = [], [group(name, [1.0, 0.0] * 4) for name in waiting.pop(step, [])]
        named += [g["ticket"] for g in groups]
        for ticket in http.draw(step, SIZE, step)["tickets"]:
            if ticket["category"] == "code":
                waiting.setdefault(step + CODE_STEPS, []).append(ticket["ticket"])
                continue
            number += 1
            is_mixed = number % math_mixed == 0
            groups.append(group(ticket, [1.0, 0.0] * 4 if is_mixed else [1.0] * 8))
            named += [ticket["ticket"]] * is_mixed
        http.report(*groups)
        http.post("/v1/runs/r/steps", {"step": step, "policy_version": step, **({"trained": named} if names else {})})
    return http.get("/v1/runs/r/audit")


def of_quota(audit: Json) -> dict[str, Json]:
    return {one["category"]: one for one in audit["quotas"]["categories"]}


def test_the_share_that_is_held_is_that_of_trained_groups(http: Http) -> None:
    audit = trained(http, 200, math_mixed=10)
    held, mix = of_quota(audit), {kind["kind"]: kind for kind in audit["mix"]["category"]}
    assert (audit["quotas"]["tolerance"], audit["quotas"]["counted"]) == (0.05, "named by steps")
    for category in QUOTAS:
        assert abs(held[category]["trained_share"] - 0.5) <= 0.05
        assert (held[category]["held"], held[category]["reason"]) == (True, None)
        assert held[category]["trained_share"] == mix[category]["trained_share"]
        assert held[category]["issued_share"] == mix[category]["issued_share"]
    assert mix["math"]["issued_share"] > 0.8  # what that takes
    assert not [w for w in audit["warnings"] if "category" in w]
    page = http.send("GET", "/v1/runs/r/report").text
    assert "Quotas" in page
    assert "trained on" in page


def test_informative_groups_are_what_is_trained_on_where_no_step_says_so(http: Http) -> None:
    audit = trained(http, 100, math_mixed=4, names=False)
    assert audit["quotas"]["counted"] == "informative groups"
    assert all(one["held"] for one in of_quota(audit).values())


def test_a_share_that_cannot_be_held_is_named_with_its_reason(http: Http) -> None:
    """A floor of one half gives code a quarter of the places, and all of its groups are trained on."""
    audit = trained(http, 60, math_mixed=10, floor=0.5)
    math, code = (of_quota(audit)[category] for category in ("math", "code"))
    assert math["trained_share"] < 0.3
    assert (math["held"], code["held"]) == (False, False)
    assert "all places that floor and audit leave free" in math["reason"]
    assert "drawn by floor and audit alone" in code["reason"]
    [warning] = [w for w in audit["warnings"] if w.startswith("quota of category math")]
    assert "50.0% of the groups trained on were asked for" in warning


def test_what_hardly_ever_teaches_is_not_paid_for_without_end(http: Http) -> None:
    audit = trained(http, 60, math_mixed=10_000)
    math = of_quota(audit)["math"]
    assert (math["trained"], math["held"]) == (0, False)
    assert "not made up for" in math["reason"]
    assert math["drawn_at"] == 0.5
    assert math["issued_share"] < 0.65
