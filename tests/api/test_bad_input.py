"""What the service refuses, and how: one shape of error, the value and the remedy named, nothing half done."""

from collections.abc import Iterator

import pytest

from tests.api.harness import (
    FLAT_BETA,
    Http,
    Json,
    answered,
    codes_of,
    group,
    held_out,
    in_process,
    letters,
    prompts,
    refused,
    unchanged,
)

RUN = "/v1/runs/r"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    """A service with a run that has an open and a reported ticket. A refused request leaves it as it was."""
    with in_process(f"sqlite:///{tmp_path_factory.mktemp('shared')}/midband.db") as http:
        http.pool([*prompts(20), *held_out(5)])
        http.run(group_size=4)
        tickets = http.draw(0, 2, 1)["tickets"]
        http.report(group(tickets[0], [1.0, 0.0, 1.0, 0.0]))
        http.post(f"{RUN}/checkpoints", {"step": 0})
        yield http


@pytest.fixture
def http(sqlite_url: str) -> Iterator[Http]:
    """A service of the test's own."""
    with in_process(sqlite_url) as http:
        yield http


def open_ticket(http: Http) -> str:
    return str(http.tickets(state="open")[0]["ticket"])


DRAW = {"index": 1, "size": 2, "policy_version": 1}
STEP = {"step": 1, "policy_version": 1}
FIELDS: list[tuple[str, Json, str, object]] = [
    *(("batches", DRAW, "size", value) for value in (0, -1, 1.5, "many", None, 10**7)),
    *(("batches", DRAW, "index", value) for value in (-1, 2**60, 10**30, "first")),
    *(("batches", DRAW, "policy_version", value) for value in (-1, 1e300, None)),
    *(("batches", DRAW, "group_size", value) for value in (0, 5_000, "eight")),
    *(("batches", DRAW, "divisor", value) for value in (0, -4, 10**9)),
    *(("batches", DRAW, "refill", value) for value in (-1, 10**5)),
    ("batches", DRAW, "purpose", "testing"),
    ("batches", DRAW, "short", "maybe"),
    ("batches", DRAW, "allow_repeat", "perhaps"),
    ("batches", DRAW, "include", ["pictures"]),
    ("batches", DRAW, "branch", -1),
    ("batches", DRAW, "sizes", 4),
    *(("steps", STEP, "step", value) for value in (-1, "one", None)),
    ("steps", STEP, "trained", "all"),
    ("steps", STEP, "weights_applied", "perhaps"),
    ("steps", STEP, "costs", {"update_s": -1.0}),
    ("steps", STEP, "costs", {"coffee_s": 1.0}),
    ("steps", STEP, "cost", {}),
    *(("checkpoints", {"step": 1}, "step", value) for value in (-1, 0.5, "one")),
    ("checkpoints", {"step": 1}, "name", "best"),
    ("restore", {"step": 0}, "beliefs", "forget"),
    ("restore", {"step": 0}, "in_flight", "maybe"),
    ("restore", {"step": 0}, "restore_id", ""),
    ("restore", {"step": 0}, "branch", 1),
    *(("config", {}, "audit_share", value) for value in (-0.1, 1.1, "half", 1e300)),
    ("config", {}, "weights", "importance"),
    ("config", {}, "max_lag", -1),
    ("config", {}, "group_size", 4),
    ("config", {}, "policy", {"floor": -0.1}),
    ("config", {}, "policy", {"power": -1.0}),
    ("config", {}, "policy", {"utility": "beauty"}),
    ("config", {}, "policy", {"temperature": 1.0}),
    ("config", {}, "policy", {"target": 1.1}),
    ("config", {}, "policy", {"candidates": 0.5}),
    ("config", {}, "policy", {"design": "cluster"}),
    ("config", {}, "policy", {"reads": "minds"}),
    ("config", {}, "policy", {"low": -0.1}),
    ("config", {}, "policy", {"staleness": 1.1}),
    ("config", {}, "policy", {"easy_weight": -0.1}),
    ("config", {}, "policy", {"controller": {"name": "adarft", "options": {"rate": "fast"}}}),
    ("config", {}, "policy", {"high": float("inf")}),
]


@pytest.mark.parametrize(("path", "body", "field", "value"), FIELDS)
def test_a_field_of_the_wrong_type_or_out_of_range_is_named(
    shared: Http, path: str, body: Json, field: str, value: object
) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/{path}", {**body, field: value}), 422, "invalid_request", field)


@pytest.mark.parametrize("field", ["size", "index", "policy_version"])
def test_a_field_that_is_missing_is_named(shared: Http, field: str) -> None:
    body = {name: value for name, value in DRAW.items() if name != field}
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/batches", body), 422, "invalid_request", f"{field}: Field required")


GROUPS: list[tuple[Json, str]] = [
    ({}, "groups.1"),
    ({"rollouts": []}, "groups.1"),
    ({"rollouts": [{}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": 1.5}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": -0.1}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": "right"}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": "NaN"}]}, "rollouts.0.outcome"),
    ({"rollouts": [{"outcome": 1, "reward": "Infinity"}]}, "rollouts.0.reward"),
    ({"rollouts": [{"outcome": 1, "tokens": -1}]}, "rollouts.0.tokens"),
    ({"rollouts": [{"outcome": 1, "tokens": 2.5}]}, "rollouts.0.tokens"),
    ({"rollouts": [{"outcome": 1, "seconds": -1}]}, "rollouts.0.seconds"),
    ({"rollouts": [{"outcome": 1, "n": -1}]}, "rollouts.0.n"),
    ({"rollouts": [{"outcome": 1, "n": 10**6}]}, "rollouts.0.n"),
    ({"rollouts": [{"outcome": 1, "id": ""}]}, "rollouts.0.id"),
    ({"rollouts": [{"outcome": 1, "id": "x" * 201}]}, "rollouts.0.id"),
    ({"rollouts": [{"outcome": 1, "status": "fine"}]}, "rollouts.0.status"),
    ({"rollouts": [{"outcome": 1, "fragment": -1}]}, "rollouts.0.fragment"),
    ({"rollouts": [{"outcome": 1, "score": 1}]}, "rollouts.0.score"),
    ({"rollouts": [{"outcome": 1, "rewards": [1]}]}, "rollouts.0.rewards"),
    ({"rollouts": [{"outcome": 1, "policy_version": "new"}]}, "rollouts.0.policy_version"),
    ({"rollouts": [{"outcome": 1, "completion": {"text": 7}}]}, "rollouts.0.completion.text"),
    ({"rollouts": {"outcome": 1}}, "rollouts"),
    ({"attempt": 0, "final": True}, "attempt"),
    ({"void": "boring"}, "void"),
    ({"final": "perhaps"}, "final"),
    ({"final": True, "reason": "none"}, "reason"),
]


@pytest.mark.parametrize(("values", "place"), GROUPS)
def test_a_report_with_one_bad_group_is_refused_whole_and_names_the_place(
    shared: Http, values: Json, place: str
) -> None:
    ticket = open_ticket(shared)
    good = group(ticket, [1.0, 0.0, 1.0, 0.0])
    with unchanged(shared):
        response = shared.send("POST", f"{RUN}/reports", {"groups": [good, {"ticket": ticket, **values}]})
        refused(response, 422, "invalid_request", place if place == "groups.1" else f"groups.1.{place}")


def test_a_report_needs_groups_and_a_ticket(shared: Http) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/reports", {"groups": []}), 422, "invalid_request", "groups")
        refused(shared.send("POST", f"{RUN}/reports", {}), 422, "invalid_request", "groups: Field required")
        refused(shared.send("POST", f"{RUN}/reports", {"groups": [{"final": True}]}), 422, "invalid_request", "ticket")


@pytest.mark.parametrize("version", [[1], [1, 2, 3], []])
def test_a_span_of_versions_has_two_ends(shared: Http, version: list[int]) -> None:
    ticket = open_ticket(shared)
    body = {"groups": [{**group(ticket, [1.0] * 4), "policy_version": version}]}
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/reports", body), 422, "invalid_report", "[first, last]", str(version))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b'"draw"', b"7", b"{'index': 1}", b'{"index": "\xff"}', b"[" * 100_000, b"\x00"],
    ids=["empty", "broken", "null", "list", "text", "number", "single quotes", "not utf-8", "deep", "nul"],
)
@pytest.mark.parametrize("path", ["batches", "reports", "steps", "restore", "config"])
def test_a_body_that_is_no_json_object_is_refused(shared: Http, path: str, body: bytes) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"{RUN}/{path}", body), 422, "invalid_request", "body")


def test_a_body_declared_as_something_else_is_refused(shared: Http) -> None:
    with unchanged(shared):
        response = shared.send("POST", f"{RUN}/batches", DRAW, headers={"content-type": "text/plain"})
        refused(response, 422, "invalid_request", "body")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("runs", '{"name": "z", "pool": "p", "audit_share": @}', "audit_share"),
        ("runs", '{"name": "z", "pool": "p", "tolerance": @}', "tolerance"),
        ("runs", '{"name": "z", "pool": "p", "policy": {"power": @}}', "policy.power"),
        (
            "runs",
            '{"name": "z", "pool": "p", "policy": {"estimator_options": {"drift": @}}}',
            "estimator_options.drift",
        ),
        ("runs/r/config", '{"audit_share": @}', "audit_share"),
        ("runs/r/batches", '{"index": @, "size": 1, "policy_version": 1}', "index"),
        ("runs/r/steps", '{"step": 1, "policy_version": 1, "update_size": @}', "update_size"),
        ("runs/r/steps", '{"step": 1, "policy_version": 1, "costs": {"update_s": @}}', "costs.update_s"),
        (
            "runs/r/steps",
            '{"step": 1, "policy_version": 1, "costs": {"environment_s": {"act": @}}}',
            "environment_s.act",
        ),
    ],
)
def test_a_number_that_is_not_finite_is_refused_by_place(
    shared: Http, path: str, body: str, field: str, number: str
) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"/v1/{path}", body.replace("@", number).encode()), 422, "invalid_request", field)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("runs/r/steps", b'{"step": 1, "policy_version": 1, "trained": ["\\ud800"]}'),
        ("runs/r/steps", b'{"step": 1, "policy_version": 1, "costs": {"environment_s": {"\\ud800": 1}}}'),
        ("runs/r/reports", b'{"groups": [{"ticket": "\\ud800", "final": true}]}'),
        ("runs/r/restore", b'{"step": 0, "restore_id": "\\ud800"}'),
        ("runs", b'{"name": "z", "pool": "p", "policy": {"preset": "\\ud800"}}'),
        ("runs", b'{"name": "z", "pool": "p", "policy": {"estimator_options": {"\\ud800": 1}}}'),
        ("pools", b'{"name": "z", "description": "\\ud800"}'),
        ("pools/p/quarantine", b'{"keys": ["\\ud800"], "reason": "x"}'),
        ("pools/p/quarantine", b'{"keys": ["p001"], "reason": "\\ud800"}'),
    ],
)
def test_half_a_surrogate_pair_is_refused(shared: Http, path: str, body: bytes) -> None:
    with unchanged(shared):
        refused(shared.send("POST", f"/v1/{path}", body), 422, "invalid_request")


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


def test_paths_and_methods_that_do_not_exist_have_the_same_shape(shared: Http) -> None:
    refused(shared.send("GET", "/v1/nothing"), 404, "not_found", "'/v1/nothing'")
    refused(shared.send("GET", "/v1/runs/r/nothing"), 404, "not_found", "'/v1/runs/r/nothing'")
    refused(shared.send("DELETE", "/v1/runs/r"), 405, "method_not_allowed", "DELETE")
    refused(shared.send("PUT", "/v1/runs/r/batches", DRAW), 405, "method_not_allowed", "PUT")
    response = shared.send("PATCH", "/v1/runs")
    refused(response, 405, "method_not_allowed", "PATCH")


def test_a_request_keeps_the_name_it_was_given_if_that_is_sane(shared: Http) -> None:
    named = shared.send("GET", "/v1/runs/nope", headers={"x-request-id": "trainer-7"})
    assert named.headers["x-request-id"] == "trainer-7"
    assert named.json()["request_id"] == "trainer-7"
    assert shared.send("GET", RUN, headers={"x-request-id": "trainer-8"}).headers["x-request-id"] == "trainer-8"
    for odd in ("a b", "x" * 101, "a;b", "<script>"):
        assert shared.send("GET", RUN, headers={"x-request-id": odd}).headers["x-request-id"] != odd
    assert shared.send("GET", RUN).headers["x-request-id"] != shared.send("GET", RUN).headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "code", "word"),
    [
        ("tickets?cursor=abc", "invalid_cursor", "abc"),
        ("tickets?cursor=-1", "invalid_cursor", "-1"),
        ("tickets?limit=0", "invalid_request", "limit"),
        ("tickets?limit=1000000", "invalid_request", "limit"),
        ("tickets?state=lost", "invalid_request", "state"),
        ("tickets?batch=-1", "invalid_request", "batch"),
        ("batches/-1", "invalid_request", "index"),
        ("batches/first", "invalid_request", "index"),
        ("batches/0?purpose=none", "invalid_request", "purpose"),
        ("batches/0?refill=-1", "invalid_request", "refill"),
        ("batches/0?include=pictures", "invalid_request", "include"),
        ("events?after=-1", "invalid_request", "after"),
        ("events?after=1000000000000000000000000000000", "invalid_request", "after"),
        ("audit?level=2", "invalid_request", "level"),
        ("audit?level=nan", "invalid_request", "level"),
        ("beliefs?format=xml", "invalid_request", "format"),
    ],
)
def test_a_query_out_of_range_is_named(shared: Http, path: str, code: str, word: str) -> None:
    refused(shared.send("GET", f"{RUN}/{path}"), 422, code, word)


def test_reading_past_the_end_gives_nothing(shared: Http) -> None:
    far = shared.get(f"{RUN}/tickets", cursor=str(10**30))
    assert far == {"items": [], "next_cursor": None}
    assert shared.events(after=2**53) == []
    refused(shared.send("GET", f"{RUN}/batches/0?branch=7"), 404, "unknown_batch")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("r:0:train:99:0:0", "unknown_ticket"),
        ("r:0:train:0:0:2", "unknown_ticket"),
        ("r:0:train:0:1:0", "unknown_ticket"),
        ("r:1:train:0:0:0", "unknown_ticket"),
        ("r:0:heldout:0:0:0", "unknown_ticket"),
        ("r:0:train:0:0:99999999999999999999999", "unknown_ticket"),
        ("made up", "unknown_ticket"),
        ("\x00", "unknown_ticket"),
        ("s:0:train:0:0:0", "wrong_run"),
    ],
)
def test_a_ticket_that_was_never_issued_is_refused_and_the_others_count(http: Http, name: str, code: str) -> None:
    http.pool(prompts(8))
    http.run(group_size=4)
    good = http.draw(0, 2)["tickets"][0]["ticket"]
    answer = http.report(group(name, [1.0] * 4), group(good, [1.0] * 4))
    assert (answer["applied"], [(r["ticket"], r["code"]) for r in answer["rejected"]]) == (4, [(name, code)])
    assert answer["rejected"][0]["detail"]
    assert [(g["ticket"], g["state"]) for g in answer["groups"]] == [(name, None), (good, "reported")]


def test_nine_rewards_for_a_group_of_eight_leave_eight(http: Http) -> None:
    http.pool(letters("a"))
    http.run(policy=FLAT_BETA)
    ticket = http.draw(0, 1)["tickets"][0]["ticket"]
    unnumbered = {"groups": [group(ticket, [1.0] * 9)]}
    with unchanged(http):
        refused(http.send("POST", f"{RUN}/reports", unnumbered), 422, "invalid_report", ticket, "8")
    nine = [{"n": n, "outcome": 1.0} for n in range(9)]
    answer = http.report({"ticket": ticket, "rollouts": nine})
    assert (answer["applied"], answer["late"]) == (8, 0)
    assert [(r["n"], r["code"]) for r in answer["rejected"]] == [(8, "too_many_rollouts")]
    assert http.prompt("a")["belief"]["pass_rate"] == 9 / 10
    again = http.report({"ticket": ticket, "rollouts": [{"n": 8, "outcome": 1.0}]})
    assert (again["late"], codes_of(again)) == (1, ["ticket_closed"])


@pytest.mark.parametrize("version", [-1, 3, 10**30, [0, 9], [2, 1]])
def test_a_policy_version_that_cannot_be_is_refused(http: Http, version: object) -> None:
    http.pool(letters("a"))
    http.run(group_size=4)
    ticket = http.draw(0, 1, 1)["tickets"][0]["ticket"]
    body = (
        f'{{"groups": [{{"ticket": "{ticket}", "policy_version": {version}, "rollouts": [{{"n": 0, "outcome": 1}}]}}]}}'
    )
    answer = answered(http.send("POST", f"{RUN}/reports", body.encode()))
    assert (answer["applied"], codes_of(answer), answer["groups"][0]["state"]) == (0, ["bad_policy_version"], "open")
    # One above the run's is what a trainer has between its update and its next draw.
    assert http.report({**group(ticket, [1.0] * 4), "policy_version": [0, 2]})["applied"] == 4


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "streamed"])
def test_a_body_above_the_limit_is_refused_and_nothing_of_it_counts(sqlite_url: str, chunked: bool) -> None:
    with in_process(sqlite_url, max_body_bytes=4_096) as http:
        http.pool(letters("a"))
        http.run()
        ticket = http.draw(0, 1)["tickets"][0]["ticket"]
        body = (
            f'{{"groups": [{{"ticket": "{ticket}", "rollouts": [{{"n": 0, "outcome": 1}}]}}]}}' + " " * 5_000
        ).encode()
        content = iter([body[:2_000], body[2_000:]]) if chunked else body
        with unchanged(http):
            response = http.client.post(f"{RUN}/reports", content=content, headers={"content-type": "application/json"})
            refused(response, 413, "body_too_large", "4096")
        assert http.report({"ticket": ticket, "rollouts": [{"n": 0, "outcome": 1.0}]})["applied"] == 1


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


def test_a_malformed_upload_changes_nothing_and_a_bad_row_only_itself(http: Http) -> None:
    http.pool(letters())
    http.run()
    lines = {"content-type": "application/x-ndjson"}
    with unchanged(http):
        refused(http.send("PUT", "/v1/pools/p/prompts", b"not json\nat all", headers=lines), 422, "unreadable_body")
        refused(http.send("PUT", "/v1/pools/p/prompts", b"{}", headers={"content-type": "image/png"}), 415,
                "unsupported_format", "image/png")  # fmt: skip
        refused(http.send("PUT", "/v1/pools/q/prompts", b"{}", headers=lines), 404, "unknown_pool", "'q'")
    rows = b"\n".join(
        [
            b'{"key": "new", "content": "a new question"}',
            b'{"key": "x1", "content": "x", "colour": "red"}',
            b'{"key": "x2", "content": 7}',
            b'{"key": "x3", "content": "x", "features": {"length": NaN}}',
            b'{"key": "a", "content": "question a", "answer": "a"}',
            b'{"key": "new", "content": "another question"}',
        ]
    )
    answer = answered(http.send("PUT", "/v1/pools/p/prompts", rows, headers=lines))
    assert (answer["received"], answer["created"], answer["unchanged"], answer["rejected"]) == (6, 1, 1, 4)
    assert [(error["row"], error["code"]) for error in answer["errors"]] == [
        (1, "unknown_field"), (2, "wrong_type"), (3, "not_finite"), (5, "duplicate_key")
    ]  # fmt: skip
    assert http.draw(0, 10)["frame"] == 5


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/pools", b'{"name": "q", "description": "a\\u0000b"}'),
        ("POST", "/v1/pools/p/quarantine", b'{"keys": ["p001"], "reason": "a\\u0000b"}'),
        ("POST", "/v1/pools/p/quarantine", b'{"keys": ["\\u0000"], "reason": "x"}'),
        ("GET", "/v1/pools/p/prompts/a%00b", None),
        ("GET", "/v1/pools/p/prompts?search=%00", None),
        ("GET", "/v1/runs/%00", None),
    ],
)
def test_a_character_that_the_database_cannot_store_is_a_bad_request(
    postgres_url: str, method: str, path: str, body: bytes | None
) -> None:
    with in_process(postgres_url) as http:
        http.pool(prompts(3))
        http.run()
        with unchanged(http):
            refused(http.send(method, path, body), 422, "invalid_request", "character")
