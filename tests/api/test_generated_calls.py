"""Calls that the OpenAPI document allows or forbids, made up by schemathesis: alone, and one after another.

No answer is a failure inside the service, none has a status or a shape that the document does not declare, and nothing
is accepted that the document forbids. `pytest --hypothesis-profile=explore` makes up eight times as many.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from api.app import create_app
from api.settings import Settings
from tests.api.harness import Http, caller, group, held_out, in_process, listening, prompts

pytest.importorskip("schemathesis", reason="the oldest releases that we allow do not go with schemathesis")

import schemathesis
from schemathesis import Case, CheckContext, GenerationMode, Response
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

CALLS = max(10, settings().max_examples // 10)  # of each operation
CHAINS = settings().max_examples // 5  # of sixteen calls that go on with what others answered
AnyCase = Case[Any]
NAMES: dict[str, tuple[Any, ...]] = {
    "pool": ("p", "q", "none"),
    "run": ("r", "ended", "none"),
    "index": (0, 1, 9),
    "key": ("p001", "a/b", "none"),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with runs in several states, so that calls get further than a name."""
    with listening(f"sqlite:///{tmp_path_factory.mktemp('generated')}/midband.db") as url:
        with caller(url) as http:
            _furnish(http)
        yield url


def _furnish(http: Http) -> None:
    http.pool([*prompts(20), *held_out(4), {"key": "a/b", "content": "a question with a path"}])
    http.pool(prompts(2), "q")
    for run in ("r", "ended"):
        http.run(run, group_size=2)
        batch = http.draw(0, 4, run=run)
        http.report(*(group(ticket, [1.0, 0.0]) for ticket in batch["tickets"][:2]), run=run)
        http.post(f"/v1/runs/{run}/checkpoints", {"step": 1})
    http.post("/v1/runs/ended/complete", {})


@schemathesis.check
def no_failure_inside(ctx: CheckContext, response: Response, case: AnyCase) -> None:
    # 501 says which part of the contract is not built.
    assert response.status_code < 500 or response.status_code == 501, response.text


CHECKS = [
    no_failure_inside,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


def operations() -> list[str]:
    document = create_app(Settings(database_url="sqlite://")).openapi()
    return [f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item]


@pytest.fixture(scope="module")
def schema(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize("operation", operations())
def test_made_up_calls_are_answered_as_the_document_says(schema: Any, url: str, operation: str) -> None:
    method, path = operation.split()
    allowed, forbidden = (schema[path][method].as_strategy(generation_mode=mode) for mode in GenerationMode)

    @settings(max_examples=CALLS, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=allowed | forbidden, data=st.data())
    def calls(case: AnyCase, data: st.DataObject) -> None:
        _aim(case, data)
        case.call_and_validate(base_url=url, checks=CHECKS)

    calls()


def test_calls_that_go_on_with_what_others_answered_are_answered_so_too(schema: Any, tmp_path: Path) -> None:
    furnished = tmp_path / "furnished.db"
    with in_process(f"sqlite:///{furnished}") as http:
        _furnish(http)

    class Calls(schema.as_state_machine()):  # type: ignore[misc]
        def setup(self) -> None:
            # A service of its own for each chain: which call may come next depends on what the ones before did.
            self.services = ExitStack()
            copy = shutil.copy(furnished, tmp_path / f"{uuid4().hex}.db")
            self.url = self.services.enter_context(listening(f"sqlite:///{copy}"))

        def teardown(self) -> None:
            self.services.close()

        def get_call_kwargs(self, case: AnyCase) -> dict[str, Any]:
            return {"base_url": self.url}

        def validate_response(self, response: Response, case: AnyCase, **_: Any) -> None:
            case.validate_response(response, checks=CHECKS)

    checked = list(HealthCheck)
    run_state_machine_as_test(
        Calls,
        settings=settings(max_examples=CHAINS, deadline=None, stateful_step_count=16, suppress_health_check=checked),
    )


def _aim(case: AnyCase, data: st.DataObject) -> None:
    """Puts names that exist in place of those made up, so that calls get past them; what is wrong on purpose stays."""
    assert case.meta is not None
    wrong = {location for location, part in case.meta.components.items() if part.mode is GenerationMode.NEGATIVE}
    if ParameterLocation.PATH not in wrong:
        for name in case.path_parameters:
            case.path_parameters[name] = data.draw(st.sampled_from(NAMES[name]))
    body: Any = case.body
    if ParameterLocation.BODY not in wrong and isinstance(body, dict):
        if "pool" in body:
            body["pool"] = data.draw(st.sampled_from(NAMES["pool"]))
        for group in body.get("groups", ()):
            group["ticket"] = f"r:0:train:0:0:{data.draw(st.integers(0, 5))}"
