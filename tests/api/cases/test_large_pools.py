"""A pool too large to be looked at whole: pages, orders, filters and jumps are the service's work, exports stream."""

import orjson

from tests.api.harness import FLAT_BETA, Http, group

ROWS = 3_000
PAGE_BYTES = 2**20


def test_pages_stay_small_and_an_export_has_every_prompt(http: Http) -> None:
    text = "a question of some length " * 20
    http.pool({"key": f"p{i:05}", "content": f"{text}{i}", "category": f"c{i % 3}"} for i in range(ROWS))
    http.run(policy=FLAT_BETA, group_size=2)
    tickets = http.draw(0, 100)["tickets"]
    http.report(*(group(t, [1.0, 1.0] if i < 10 else [0.0, 0.0]) for i, t in enumerate(tickets)))
    path = "/v1/pools/p/prompts"

    first = http.send("GET", path, params={"run": "r", "sort": "pass_rate", "order": "desc", "limit": 100})
    assert len(first.content) < PAGE_BYTES
    assert {item["key"] for item in first.json()["items"][:10]} == {t["prompt"] for t in tickets[:10]}
    last = http.get(path, run="r", sort="pass_rate", order="desc", limit=90, offset=ROWS - 90)
    assert {item["key"] for item in last["items"]} == {t["prompt"] for t in tickets[10:]}
    assert first.json()["total"] == last["total"] == ROWS

    assert http.get(path, category="c1", limit=1)["total"] == ROWS // 3
    jump = http.get(path, offset=2_512, limit=1)
    assert [item["key"] for item in jump["items"]] == ["p02512"]
    assert http.get("/v1/pools/p")["categories"] == {f"c{i}": ROWS // 3 for i in range(3)}

    lines = http.send("GET", "/v1/pools/p/export", params={"format": "jsonl", "run": "r"}).content.splitlines()
    assert len(lines) == ROWS
    assert len({orjson.loads(line)["key"] for line in lines}) == ROWS
