"""Settings at the end of their range: groups of one, an audit of nothing or everything, a period too short to keep."""

import pytest

from tests.api.harness import (
    FLAT_BETA,
    Http,
    group,
    letters,
    prompts,
    refused,
    unchanged,
)

RUN = "/v1/runs/r"


def test_groups_of_one_teach_nothing_and_inform_all_the_same(http: Http) -> None:
    http.pool(letters("a"))
    http.run(group_size=1, min_rollouts=1, policy=FLAT_BETA)
    batch = http.draw(0, 1)
    assert batch["predicted_yield"] == 0.0
    answer = http.report(group(batch["tickets"][0], [1.0]))
    assert [(g["state"], g["scored"], g["informative"]) for g in answer["groups"]] == [("reported", 1, False)]
    assert http.prompt("a")["belief"]["pass_rate"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("weights", ["none", "horvitz_thompson", "clipped"])
@pytest.mark.parametrize(("share", "audits"), [(0.0, 0), (1.0, 6)])
def test_an_audit_share_of_nothing_or_everything(http: Http, share: float, audits: int, weights: str) -> None:
    http.pool(prompts(20))
    http.run(audit_share=share, weights=weights)
    for index in range(4):
        batch = http.draw(index, 6)
        purposes = [ticket["purpose"] for ticket in batch["tickets"]]
        assert (purposes.count("audit"), len(purposes)) == (audits, 6)
        assert all(0 < ticket["inclusion_probability"] <= 1 for ticket in batch["tickets"])
        if share == 1:
            assert [t["inclusion_probability"] for t in batch["tickets"]] == pytest.approx([0.3] * 6)
            assert [t["weight"] for t in batch["tickets"]] == pytest.approx([1.0] * 6)
        http.report(*(group(ticket, [1.0, 0.0] * 4) for ticket in batch["tickets"]))
    audit = http.get(f"{RUN}/audit")
    assert (audit["verdict"] is None) is (share == 0)
    assert (audit["pass_rate"]["uniform"]["estimate"] is None) is (share == 0)


def test_a_revisit_period_that_batches_cannot_keep_is_refused_at_the_first_train_draw(http: Http) -> None:
    http.pool(prompts(100))
    http.run(revisit_draws=10)
    assert http.draw(0, 8, purpose="probe")["returned"] == 8
    with unchanged(http):
        words = ("revisit_draws 10", "100 prompts", "batches of 8")
        refused(
            http.send("POST", f"{RUN}/batches", {"index": 1, "size": 8, "policy_version": 1}),
            409,
            "revisit_impossible",
            *words,
        )
    # ⌊0.05·(224−23)⌋ = 10 places a draw for 100 prompts
    assert http.draw(1, 224)["returned"] == 92
    assert http.info()["revisit_draws"] == 10
