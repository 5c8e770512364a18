"""Types of fields are JSON's own: true is no number, "12" is none either, and 0.0 is not false."""

from collections.abc import Iterator

import pytest

from tests.api.harness import Http, in_process, prompts, refused


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    with in_process(f"sqlite:///{tmp_path_factory.mktemp('types')}/midband.db") as http:
        http.pool(prompts(8))
        http.run()
        http.draw(0, 4)
        yield http


TICKET = "r:0:train:0:0:0"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/runs/r/checkpoints", {"step": False}, "step"),
        ("/v1/runs/r/checkpoints", {"step": "3"}, "step"),
        ("/v1/runs/r/config", {"max_lag": True}, "max_lag"),
        ("/v1/runs/r/config", {"audit_share": "0.1"}, "audit_share"),
        ("/v1/runs/r/config", {"policy": {"refill": {"cancel_yield": 0.0}}}, "policy.refill.cancel_yield"),
        ("/v1/runs/r/config", {"policy": {"quotas": {"a": True}}}, "policy.quotas"),
        ("/v1/runs/r/batches", {"index": 1, "size": 2, "policy_version": 0, "allow_repeat": "yes"}, "allow_repeat"),
        ("/v1/runs/r/signals", {"policy_version": 0, "features": {"p000": {"x": "1"}}}, "features"),
        ("/v1/runs/r/steps", {"step": 0, "policy_version": 0, "costs": {"environment_s": {"a": True}}}, "costs"),
        ("/v1/runs/r/steps", {"step": 0, "policy_version": 0, "costs": {"idle_s": 1e10}}, "costs.idle_s"),
        ("/v1/runs/r/reports", {"groups": [{"ticket": TICKET, "final": 1}]}, "groups.0.final"),
        (
            "/v1/runs/r/reports",
            {"groups": [{"ticket": TICKET, "rollouts": [{"n": 0, "outcome": True}]}]},
            "groups.0.rollouts.0.outcome",
        ),
        (
            "/v1/runs/r/reports",
            {"groups": [{"ticket": TICKET, "rollouts": [{"n": 0, "outcome": 1, "tokens": "5"}]}]},
            "groups.0.rollouts.0.tokens",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_by_field(http: Http, path: str, body: object, field: str) -> None:
    refused(http.send("POST", path, body), 422, "invalid_request", field)


def test_an_integer_may_be_written_as_a_number_and_a_number_as_an_integer(http: Http) -> None:
    assert http.post("/v1/runs/r/checkpoints", {"step": 3.0})["step"] == 3
    assert http.post("/v1/runs/r/config", {"audit_share": 0})["config"]["audit_share"] == 0
    answer = http.report({"ticket": TICKET, "rollouts": [{"n": 0, "outcome": 1, "reward": 2}]})
    assert answer["applied"] == 1
