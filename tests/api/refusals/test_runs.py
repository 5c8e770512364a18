"""Runs and draws that cannot be: what is refused, with the value, and what would do."""

import pytest

from tests.api.harness import Http, Json, letters, refused, unchanged
from tests.api.refusals.cases import DRAW, RUN, STEP


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"policy": {"preset": "greedy"}}, ("policy.preset", "greedy", "midband")),
        ({"policy": {"utility": "target"}}, ("policy", "utility 'target' needs target")),
        ({"policy": {"target": 0.5}}, ("policy", "target 0.5 has no effect with utility 'informative'")),
        ({"policy": {"preset": "uniform", "power": 2.0}}, ("policy", "power 2.0 has no effect")),
        ({"policy": {"floor": 0.0}}, ("policy", "floor must be in (0, 1], or 0 with design 'top'")),
        ({"policy": {"candidates": 4.0}}, ("policy", "candidates 4.0 has no effect", "'proportional'")),
        ({"policy": {"preset": "uniform", "design": "top"}}, ("policy", "design top has no effect")),
        (
            {"policy": {"design": "top", "floor": 0.0}, "weights": "horvitz_thompson"},
            ("policy", "weights 'horvitz_thompson' need a chance for every prompt"),
        ),
        ({"policy": {"utility": "band", "low": 0.8, "high": 0.2}}, ("policy", "low 0.8 and high 0.2")),
        ({"policy": {"utility": "keep", "easy_keep": 0.5, "hard_keep": 0.5}}, ("policy", "estimator 'streak'")),
        ({"policy": {"preset": "greso", "easy_keep": 0.0}}, ("policy", "easy_keep must be in (0, 1], got 0.0")),
        ({"policy": {"preset": "greso", "lifecycle": {}}}, ("policy", "lifecycle needs design")),
        ({"policy": {"easy_keep": 0.5}}, ("policy", "easy_keep 0.5 has no effect")),
        ({"policy": {"budget": {"rule": "fixed", "low": 9, "high": 8}}}, ("policy", "low 9 and high 8")),
        ({"policy": {"budget": {"rule": "fixed", "low": 9, "high": 9}}}, ("group_size 8", "9 to 9 rollouts")),
        ({"policy": {"budget": {"rule": "fixed", "low": 1, "high": 9}}}, ("budget.low 1", "min_rollouts 2")),
        ({"policy": {"estimator": "oracle"}}, ("oracle", "kalman_arcsine")),
        ({"policy": {"estimator_options": {"speed": 1.0}}}, ("speed", "process_noise")),
        ({"policy": {"estimator": "discounted_beta", "estimator_options": {"discount": 7.0}}}, ("discount", "7")),
        ({"group_size": 2, "min_rollouts": 3}, ("min_rollouts 3", "group_size 2")),
        ({"group_size": 1}, ("min_rollouts 2", "group_size 1")),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_with_what_can(
    shared: Http, values: Json, words: tuple[str, ...]
) -> None:
    with unchanged(shared):
        refused(shared.send("POST", "/v1/runs", {"name": "z", "pool": "p", **values}), 422, "invalid_config", *words)


def test_a_run_without_a_chance_for_every_prompt_cannot_be_given_weights_later(shared: Http) -> None:
    shared.post("/v1/runs", {"name": "top", "pool": "p", "policy": {"preset": "mopps"}})
    with unchanged(shared, "top"):
        change = {"weights": "horvitz_thompson"}
        refused(
            shared.send("POST", "/v1/runs/top/config", change), 422, "invalid_config", "need a chance for every prompt"
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Upper"),
        ("name", ""),
        ("name", "-dash"),
        ("name", "x" * 101),
        ("name", "a/b"),
        ("pool", "Not A Pool"),
        ("group_size", 0),
        ("group_size", 5_000),
        ("audit_share", 1.5),
        ("audit_share", -0.5),
        ("review_share", 2),
        ("seed", -1),
        ("seed", 2**64),
        ("tolerance", -1),
        ("min_rollouts", 0),
        ("ticket_ttl_s", 0),
        ("max_weight", 0),
        ("revisit_draws", 0),
        ("weights", "some"),
        ("signal", "gut"),
        ("feed", "none"),
        ("loss_aggregation", "per_word"),
        ("advantage", "ppo"),
        ("max_lag", -1),
        ("batch_size", 64),
    ],
)
def test_a_run_is_refused_by_field(shared: Http, field: str, value: object) -> None:
    with unchanged(shared):
        body = {"name": "z", "pool": "p", field: value}
        refused(shared.send("POST", "/v1/runs", body), 422, "invalid_request", field)


@pytest.mark.parametrize("field", ["audit_share", "weights", "policy"])
def test_a_change_of_configuration_takes_no_null(shared: Http, field: str) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/config", {field: None}), 422, "invalid_config", field, "leave it out")
    assert shared.draw(0, 2, 1)["returned"] == 2


def test_the_estimator_of_a_run_is_for_life(shared: Http) -> None:
    with unchanged(shared):
        body = {"policy": {"estimator": "discounted_beta"}}
        refused(shared.send("POST", f"{RUN}/config", body), 409, "estimator_fixed", "discounted_beta", "new run")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("POST", "/batches", DRAW),
        ("GET", "/batches/0", None),
        ("GET", "/tickets", None),
        ("POST", "/reports", {"groups": [{"ticket": "nope:0:train:0:0:0", "final": True}]}),
        ("POST", "/steps", STEP),
        ("POST", "/checkpoints", {"step": 1}),
        ("GET", "/checkpoints", None),
        ("POST", "/restore", {"step": 0}),
        ("POST", "/config", {}),
        ("POST", "/complete", {}),
        ("GET", "/audit", None),
        ("GET", "/costs", None),
        ("GET", "/beliefs", None),
        ("GET", "/events", None),
    ],
)
@pytest.mark.parametrize("run", ["nope", "UPPER", "%F0%9F%98%80", "x" * 300])
def test_a_run_that_does_not_exist_is_named(shared: Http, method: str, path: str, body: object, run: str) -> None:
    refused(shared.send(method, f"/v1/runs/{run}{path}", body), 404, "unknown_run")


def test_a_run_needs_a_pool_that_exists(shared: Http) -> None:
    with unchanged(shared):
        body = {"name": "z", "pool": "nope"}
        refused(shared.send("POST", "/v1/runs", body), 404, "unknown_pool", "'nope'", "POST /v1/pools")


def test_a_run_made_twice_is_one_run_and_made_otherwise_a_conflict(http: Http) -> None:
    http.pool(letters())
    body = {"name": "r", "pool": "p", "group_size": 4, "policy": {"preset": "uniform"}}
    first, second = http.send("POST", "/v1/runs", body), http.send("POST", "/v1/runs", body)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.content == second.content
    with unchanged(http):
        other = {**body, "group_size": 8, "seed": 3}
        words = ("group_size: 4 then, 8 now", "seed: left out then, 3 now")
        refused(http.send("POST", "/v1/runs", other), 409, "run_conflict", *words)


def test_a_batch_of_more_rollouts_than_can_be_kept_is_refused(shared: Http) -> None:
    with unchanged(shared):
        body = {"index": 9, "size": 1_000_000, "group_size": 4_096, "policy_version": 1, "allow_repeat": True}
        refused(
            shared.send("POST", f"{RUN}/batches", body), 422, "invalid_request", "1000000", "4096", "several batches"
        )


def test_groups_that_could_never_count_are_not_drawn(shared: Http) -> None:
    with unchanged(shared):
        body = {**DRAW, "group_size": 1}
        refused(shared.send("POST", f"{RUN}/batches", body), 422, "invalid_request", "group_size 1", "min_rollouts 2")
