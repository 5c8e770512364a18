"""What the tests of pools and of prompts share: an upload as it is, and a run with a history."""

from typing import Any

from tests.api.harness import Http, group, prompts


def upload(http: Http, body: bytes | str, content_type: str, pool: str = "p", **query: str) -> Any:
    data = body.encode() if isinstance(body, str) else body
    headers = {"content-type": content_type}
    return http.send("PUT", f"/v1/pools/{pool}/prompts", data, params=query, headers=headers)


def started(http: Http) -> None:
    """A run on 12 prompts, two of them held out, in which p003 was solved and p004 was not."""
    rows = prompts(12)
    rows[10] |= {"split": "heldout"}
    rows[11] |= {"split": "heldout"}
    http.put(rows)
    http.run()
    tickets = {ticket["prompt"]: ticket for ticket in http.draw(0, 10)["tickets"]}
    http.report(group(tickets["p003"], [1.0] * 8), group(tickets["p004"], [0.0] * 8))
