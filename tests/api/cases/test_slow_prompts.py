"""Slow prompts starve: what takes too long is drawn and paid for again and again, and never trained on."""

from typing import Any

import orjson
import pytest

from tests.api.harness import Http, Json, group, prompts

STEPS, SIZE, BOUND, SLOW_STEPS = 40, 16, 4, 6


def begin(http: Http, **options: Any) -> None:
    rows = [{**row, "category": "slow" if i % 2 else "fast"} for i, row in enumerate(prompts(100))]
    http.pool(rows)
    http.run(audit_share=0.25, **options)


def is_slow(ticket: Json) -> bool:
    return bool(ticket["category"] == "slow")


def of_tokens(ticket: Json) -> Json:
    """A mixed group; slow ones are long."""
    found = group(ticket, [1.0, 0.0] * 4)
    for rollout in found["rollouts"]:
        rollout["tokens"] = 600 if is_slow(ticket) else 100
    return found


def train(http: Http, *, bound_from: int) -> None:
    """Fast groups come back at once, slow ones SLOW_STEPS later once `bound_from` is reached; both name the version
    that generated them.
    """
    waiting: dict[int, list[Json]] = {}
    for step in range(STEPS):
        tickets = http.draw(step, SIZE, step)["tickets"]
        late = [ticket for ticket in tickets if is_slow(ticket) and step >= bound_from]
        waiting[step + SLOW_STEPS] = [{**of_tokens(t), "policy_version": step} for t in late]
        back = [{**of_tokens(t), "policy_version": step} for t in tickets if t not in late]
        groups = back + waiting.pop(step, [])
        answer = http.report(*groups) if groups else {"groups": []}
        trained = [g["ticket"] for g in answer["groups"] if g["state"] == "reported"]
        http.post("/v1/runs/r/steps", {"step": step, "policy_version": step, "trained": trained})


def test_what_is_never_in_time_is_named_with_its_shares_and_with_what_was_paid(http: Http) -> None:
    begin(http, max_lag=BOUND)
    train(http, bound_from=0)
    audit = http.get("/v1/runs/r/audit")
    mix = {kind["kind"]: kind for kind in audit["mix"]["category"]}
    assert mix["slow"]["issued"] > 100
    assert (mix["slow"]["reported"], mix["slow"]["trained"], mix["slow"]["trained_share"]) == (0, 0, 0.0)
    assert mix["fast"]["trained"] == mix["fast"]["reported"] > 100
    assert mix["slow"]["void"]["stale"] + mix["slow"]["open"] == mix["slow"]["issued"]
    [warning] = [w for w in audit["warnings"] if w.startswith("category slow")]
    assert "0.0% of those trained on" in warning
    assert "void as stale" in warning
    stuck = audit["never_back"]
    assert stuck["prompts"] > 20
    assert stuck["tokens"] == stuck["tickets"] * 8 * 600
    assert stuck["listed"][0]["tickets"] >= 3
    assert any("raise max_lag or the deadline, or quarantine them" in w for w in audit["warnings"])
    rows = [
        orjson.loads(line) for line in http.send("GET", "/v1/pools/p/export", params={"run": "r"}).text.splitlines()
    ]
    paid = {row["key"]: (row["paid_tokens"], row["untrained_tokens"]) for row in rows}
    listed = {one["prompt"]: one["tokens"] for one in stuck["listed"]}
    assert all(paid[key] == (tokens, tokens) for key, tokens in listed.items())
    assert all(untrained == 0 for key, (_, untrained) in paid.items() if int(key[1:]) % 2 == 0)
    assert sum(tokens for tokens, _ in paid.values()) == sum(http.get("/v1/runs/r/costs")["tokens"].values())
    came_back = {one["kind"]: one["share"] for one in audit["response"]["category"]}
    assert (came_back["slow"], came_back["fast"]) == (0.0, 1.0)


def test_shares_are_shown_by_length_once_lengths_are_known(http: Http) -> None:
    begin(http, max_lag=BOUND)
    train(http, bound_from=STEPS // 4)
    audit = http.get("/v1/runs/r/audit")
    known = [kind for kind in audit["mix"]["length"] if kind["kind"] != "not known at the draw"]
    assert known[-1]["void"]["stale"] > 20
    assert known[-1]["trained_share"] < known[-1]["issued_share"]
    assert known[0]["trained_share"] > known[0]["issued_share"]
    assert any(w.startswith(f"length {known[-1]['kind']}") for w in audit["warnings"])


@pytest.mark.parametrize("takes", ["first to finish", "all"])
def test_taking_the_first_to_finish_of_twice_as_many_is_warned_of(http: Http, takes: str) -> None:
    begin(http)
    for step in range(STEPS):
        tickets = http.draw(step, SIZE, step)["tickets"]
        fast_first = sorted(tickets, key=is_slow)
        kept = fast_first[: SIZE // 2] if takes == "first to finish" else fast_first
        surplus = [{"ticket": t["ticket"], "void": "surplus", "rollouts": []} for t in fast_first if t not in kept]
        http.report(*[of_tokens(t) for t in kept], *surplus)
        trained = [t["ticket"] for t in kept]
        http.post("/v1/runs/r/steps", {"step": step, "policy_version": step, "trained": trained})
    audit = http.get("/v1/runs/r/audit")
    warned = [w for w in audit["warnings"] if w.startswith("category slow")]
    assert bool(warned) == (takes == "first to finish")
    assert all("void as surplus" in w for w in warned)
