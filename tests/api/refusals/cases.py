"""What the refusals share: a run's address, and bodies that are right but for what a test puts into them."""

from tests.api.harness import Http

RUN = "/v1/runs/r"
DRAW = {"index": 1, "size": 2, "policy_version": 1}
STEP = {"step": 1, "policy_version": 1}


def open_ticket(http: Http) -> str:
    return str(http.tickets(state="open")[0]["ticket"])
