"""What is read of a whole run is computed beside it: draws and reports go on meanwhile."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api import measuring
from api.routes import costs, reading
from tests.api.harness import caller, group, in_process, listening, prompts

LIMIT_S = 30.0


@pytest.mark.parametrize(
    ("module", "name", "path"),
    [
        (reading, "audit_info", "audit"),
        (costs, "run_report", "report"),
        (measuring, "curve_info", "curve"),
        (measuring, "diagnosis_info", "diagnosis"),
    ],
)
def test_draws_and_reports_go_on_while_it_is_computed(
    database_url: str, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, path: str
) -> None:
    begun, go = threading.Event(), threading.Event()
    compute = getattr(module, name)

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert go.wait(LIMIT_S)
        return compute(*arguments)

    monkeypatch.setattr(module, name, slow)
    with listening(database_url) as url, caller(url) as http, ThreadPoolExecutor(1) as aside:
        http.pool(prompts(20))
        http.run(audit_share=0.5)
        http.report(*(group(t, [1.0, 0.0] * 4) for t in http.draw(0, 4)["tickets"]))
        waiting = aside.submit(_read, url, path)
        assert begun.wait(LIMIT_S)
        try:
            http.report(*(group(t, [1.0, 0.0] * 4) for t in http.draw(1, 4)["tickets"]))
            assert not waiting.done()
        finally:
            go.set()
        assert waiting.result(LIMIT_S) == 200
        if path == "audit":
            assert http.get("/v1/runs/r/audit")["draws"] == [0, 1]


def _read(url: str, path: str) -> int:
    with caller(url) as http:
        return http.send("GET", f"/v1/runs/r/{path}").status_code


def test_an_audit_speaks_of_the_draws_before_the_first_unfinished_one(database_url: str) -> None:
    with in_process(database_url) as http:
        http.pool(prompts(20))
        http.run(audit_share=0.5)
        http.report(*(group(t, [1.0, 0.0] * 4) for t in http.draw(0, 4)["tickets"]))
        http.draw(1, 4)
        audit = http.get("/v1/runs/r/audit")
    assert audit["draws"] == [0, 0]
    assert "before any that still has an open ticket" in audit["speaks_of"]
    assert sum(kind["open"] for kind in audit["mix"]["category"]) == 4
