"""One conversation with a service, whatever serves it, as far as two services must agree on it to the byte."""

from typing import Any

from tests.api.harness import Http, group, prompts

# Of single answers, or of the server in front.
IGNORED = {"date", "server", "x-request-id", "content-length", "transfer-encoding"}

Said = tuple[int, dict[str, str], Any]


def conversation(http: Http) -> list[Said]:
    """What a trainer and a person ask, with mistakes among it; every answer without what names the single call."""
    said: list[Said] = []

    def ask(method: str, path: str, body: object = None, **options: Any) -> Any:
        response = http.send(method, path, body, **options)
        content = response.text
        named = response.headers.get("x-request-id", "")
        assert named
        assert "," not in named
        if not response.is_success and response.headers.get("content-type") == "application/json":
            assert response.json()["request_id"] == named
            content = content.replace(named, "")
        here = str(response.request.url.copy_with(raw_path=b""))
        headers = {
            name: value.removeprefix(here) for name, value in response.headers.items() if name not in IGNORED
        }  # fmt: skip
        said.append((response.status_code, headers, content))
        return response

    rows = prompts(20)
    assert http.pool(rows)["created"] == len(rows)
    run = "/v1/runs/r"
    ask("POST", "/v1/runs", {"name": "r", "pool": "p", "group_size": 2, "seed": 7})
    ask("POST", "/v1/runs", {"name": "r", "pool": "p", "group_size": 2, "seed": 7})
    ask("POST", "/v1/runs", {"name": "r", "pool": "p", "group_size": 3})
    ask("GET", run)
    for _ in range(2):
        batch = ask("POST", f"{run}/batches", {"index": 0, "size": 4, "policy_version": 0}).json()
    ask("POST", f"{run}/batches", {"index": 0, "size": 5, "policy_version": 0})
    ask("POST", f"{run}/batches", {"index": 1, "size": 0, "policy_version": 0, "nonsense": 1})
    ask("POST", f"{run}/batches", b"{")
    ask("GET", f"{run}/batches/0")
    ask("GET", f"{run}/batches/9")
    groups = [group(ticket, [1.0, 0.0]) for ticket in batch["tickets"]]
    for _ in range(2):
        ask("POST", f"{run}/reports", {"groups": groups})
    ask("POST", f"{run}/reports", {"groups": [{"ticket": "r:0:train:9:0:0", "rollouts": []}]})
    ask("POST", f"{run}/reports", {"groups": "none"})
    ask("POST", f"{run}/steps", {"step": 0, "policy_version": 0})
    ask("POST", f"{run}/checkpoints", {"step": 0})
    ask("POST", f"{run}/restore", {"step": 5})
    ask("POST", f"{run}/restore", {"step": 0, "restore_id": "a"})
    ask("POST", f"{run}/rollouts/fetch")
    for path in ("/v1/runs/other", "/v1/runs/a%2Fb/batches/0", f"{run}/nowhere", "/v1/nowhere", "/v1/pools/other"):
        ask("GET", path)
    ask("DELETE", run)
    ask("GET", f"{run}/", follow_redirects=False)
    for path in ("audit", "costs", "checkpoints", "tickets", "tickets?cursor=x", "beliefs", "beliefs?format=csv"):
        ask("GET", f"{run}/{path}")
    ask("GET", "/v1/runs")
    ask("GET", "/ui")
    ask("POST", f"{run}/complete")
    return said
