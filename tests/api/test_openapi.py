"""The contract as the service describes it: every path is there, and what it answers is what it says it answers."""

import re
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from pydantic import BaseModel

from api import schemas
from api.docs_page import docs_page
from tests.api.harness import Http, Json, answered, group, held_out, ids_of, in_process, prompts

CONTRACT = {
    "/v1/pools": {"get", "post"},
    "/v1/pools/{pool}": {"get", "delete"},
    "/v1/pools/{pool}/prompts": {"get", "put"},
    "/v1/pools/{pool}/prompts/{key}": {"get"},
    "/v1/pools/{pool}/quarantine": {"post"},
    "/v1/pools/{pool}/export": {"get"},
    "/v1/runs": {"get", "post"},
    "/v1/runs/{run}": {"get"},
    "/v1/runs/{run}/config": {"post"},
    "/v1/runs/{run}/complete": {"post"},
    "/v1/presets": {"get"},
    "/v1/runs/{run}/batches": {"post"},
    "/v1/runs/{run}/batches/{index}": {"get"},
    "/v1/runs/{run}/tickets": {"get"},
    "/v1/runs/{run}/rollouts/fetch": {"post"},
    "/v1/runs/{run}/reports": {"post"},
    "/v1/runs/{run}/steps": {"post"},
    "/v1/runs/{run}/checkpoints": {"get", "post"},
    "/v1/runs/{run}/restore": {"post"},
    "/v1/runs/{run}/signals": {"post"},
    "/v1/runs/{run}/audit": {"get"},
    "/v1/runs/{run}/costs": {"get"},
    "/v1/runs/{run}/beliefs": {"get"},
    "/v1/runs/{run}/curve": {"get"},
    "/v1/runs/{run}/diagnosis": {"get"},
    "/v1/runs/{run}/report": {"get"},
    "/v1/runs/{run}/events": {"get"},
    "/v1/comparisons": {"post"},
    "/healthz": {"get"},
    "/readyz": {"get"},
    "/metrics": {"get"},
    "/version": {"get"},
    "/ui": {"get"},
}
RUN = "/v1/runs/r"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    """A service with a run that has seen a little of everything."""
    with in_process(f"sqlite:///{tmp_path_factory.mktemp('openapi')}/midband.db") as http:
        rows = [{**row, "category": "algebra" if i % 2 else "logic"} for i, row in enumerate(prompts(20))]
        http.pool([*rows, *held_out(4)])
        http.run(group_size=4, weights="horvitz_thompson")
        for index in range(3):
            batch = http.draw(index, 4, index)
            http.report(*(group(ticket, [1.0, 0.0, 1.0, None]) for ticket in batch["tickets"][:3]))
            http.post(f"{RUN}/steps", {"step": index, "policy_version": index, "trained": ids_of(batch)[:3]})
        http.post(f"{RUN}/checkpoints", {"step": 2})
        http.draw(0, 2, 2, purpose="heldout")
        http.quarantine(["p003"])
        yield http


@pytest.fixture(scope="module")
def document(http: Http) -> Json:
    return http.get("/openapi.json")


def test_every_path_of_the_contract_is_described(document: Json) -> None:
    described = {path.replace(":path", ""): set(item) for path, item in document["paths"].items()}
    missing = {path: methods - described.get(path, set()) for path, methods in CONTRACT.items()}
    assert not {path: methods for path, methods in missing.items() if methods}
    assert not set(described) - set(CONTRACT), "paths that the contract does not have"


def test_what_a_page_shows_of_a_document_is_escaped() -> None:
    sly = "<script>1</script>"
    call = {"operationId": sly, "description": sly, "responses": {"200": {"description": sly}}}
    item = {"get": {**call, "parameters": [{"name": sly, "in": sly, "schema": {"type": sly, "pattern": sly}}]}}
    document = {"info": {"title": sly, "version": sly, "summary": sly}, "paths": {sly: item}}
    schemas = {sly: {"description": sly, "properties": {sly: {"description": sly, "enum": [sly]}}}}
    page = docs_page({**document, "components": {"schemas": schemas}})
    assert "<script" not in page
    assert page.count("&lt;script") > 10


def test_every_reference_leads_somewhere(document: Json) -> None:
    def references(value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for name, item in value.items():
                if name == "$ref":
                    yield str(item)
                else:
                    yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


def test_every_body_is_described_with_its_fields(document: Json) -> None:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method in ("post", "put") and path not in WITHOUT_BODY:
                assert operation["requestBody"]["content"], f"{method} {path}"
    components = document["components"]["schemas"]
    for model in (schemas.RunRequest, schemas.BatchRequest, schemas.ReportRequest, schemas.RestoreRequest):
        assert set(components[model.__name__]["properties"]) == set(model.model_fields)


WITHOUT_BODY = {"/v1/runs/{run}/complete"}


def test_operations_are_named_apart(document: Json) -> None:
    names = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(names) == len(set(names))


def test_the_page_of_the_document_describes_every_call_and_object(http: Http, document: Json) -> None:
    page = http.send("GET", "/docs")
    assert page.status_code == 200
    assert "openapi.json" in page.text
    anchors = set(re.findall(r'id="([^"]*)"', page.text))
    assert set(re.findall(r'href="#([^"]*)"', page.text)) <= anchors
    for path, item in document["paths"].items():
        for method, call in item.items():
            assert f"<code>{method.upper()} {path}</code>" in page.text
            assert f"call-{call['operationId']}" in anchors
    assert {f"object-{name}" for name in document["components"]["schemas"]} <= anchors
    assert http.send("GET", "/").is_redirect


READS: list[tuple[str, type[BaseModel]]] = [
    ("/version", schemas.VersionInfo),
    ("/v1/pools/p", schemas.PoolInfo),
    (RUN, schemas.RunInfo),
    (f"{RUN}/batches/0", schemas.Batch),
    (f"{RUN}/batches/0?purpose=heldout", schemas.Batch),
    (f"{RUN}/batches/0?include=content&include=answer", schemas.Batch),
    (f"{RUN}/tickets", schemas.TicketPage),
    (f"{RUN}/tickets?limit=1", schemas.TicketPage),
    (f"{RUN}/audit", schemas.AuditInfo),
    (f"{RUN}/costs", schemas.CostsInfo),
    (f"{RUN}/curve", schemas.CurveInfo),
    (f"{RUN}/curve?q=0.5", schemas.CurveInfo),
    (f"{RUN}/diagnosis", schemas.DiagnosisInfo),
]


@pytest.mark.parametrize(("path", "model"), READS)
def test_what_is_read_is_what_the_contract_says(http: Http, path: str, model: type[BaseModel]) -> None:
    _fits(http.get(path), model)


WRITES: list[tuple[str, str, Json, type[BaseModel]]] = [
    ("pool", "/v1/pools", {"name": "q"}, schemas.PoolInfo),
    ("run", "/v1/runs", {"name": "w", "pool": "p"}, schemas.RunCreated),
    ("config", "/v1/runs/w/config", {"max_lag": 4}, schemas.RunCreated),
    ("draw", "/v1/runs/w/batches", {"index": 0, "size": 4, "policy_version": 0}, schemas.Batch),
    (
        "report",
        "/v1/runs/w/reports",
        {"groups": [{"ticket": "w:0:train:0:0:0", "void": "surplus"}]},
        schemas.ReportAnswer,
    ),
    ("refusal", "/v1/runs/w/reports", {"groups": [{"ticket": "none", "final": True}]}, schemas.ReportAnswer),
    ("step", "/v1/runs/w/steps", {"step": 1, "policy_version": 1, "trained": ["none"]}, schemas.StepAnswer),
    ("checkpoint", "/v1/runs/w/checkpoints", {"step": 1}, schemas.CheckpointInfo),
    ("restore", "/v1/runs/w/restore", {"step": 1}, schemas.RestoreAnswer),
    ("quarantine", "/v1/pools/p/quarantine", {"keys": ["p001", "none"], "reason": "x"}, schemas.QuarantineReport),
    ("compare", "/v1/comparisons", {"runs": [["r"], ["w"]], "quality": {"target": 0.5}}, schemas.ComparisonInfo),
    ("complete", "/v1/runs/w/complete", {}, schemas.RunInfo),
    ("drawn out", "/v1/runs/w/batches", {"index": 9, "size": 4, "policy_version": 0}, schemas.Batch),
]


def test_what_is_written_is_answered_as_the_contract_says(http: Http) -> None:
    for name, path, body, model in WRITES:
        answer = answered(http.send("POST", path, body))
        assert answer, name
        _fits(answer, model)
    _fits(http.put(prompts(2)), schemas.ImportReport)
    _fits(http.put(prompts(25), mode="replace"), schemas.ImportReport)


def test_errors_have_the_shape_of_the_contract(http: Http) -> None:
    for path in ("/v1/nothing", "/v1/runs/none", f"{RUN}/audit?level=3", f"{RUN}/curve?q=2"):
        response = http.send("GET", path)
        assert not response.is_success
        _fits(response.json(), schemas.ErrorBody)
        assert response.headers["content-type"] == "application/json"


def test_lists_are_wrapped(http: Http) -> None:
    for path in ("/v1/pools", "/v1/runs", "/v1/presets", f"{RUN}/checkpoints", f"{RUN}/tickets", "/v1/pools/p/prompts"):
        assert isinstance(http.get(path)["items"], list)


def test_presets_are_full_configurations(http: Http) -> None:
    for preset in http.get("/v1/presets")["items"]:
        assert set(preset) >= {"preset", "config", "claim", "source", "description"}
        _fits(preset["claim"], schemas.ClaimInfo)
        if (feature := preset["config"]["feature"]) is not None:
            body = {"name": "of-a-feature", "pool": "p", "policy": preset["config"]}
            refused = http.send("POST", "/v1/runs", body)
            assert refused.status_code == 422
            assert f"no number {feature!r}" in refused.json()["detail"]
            continue
        created = http.run(f"of-{preset['preset']}", policy=preset["config"])
        assert created["config"]["policy"] == preset["config"]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_beliefs_come_in_every_format_with_the_same_rows(http: Http, form: str) -> None:
    import io

    import pyarrow.csv
    import pyarrow.parquet

    names = ["key", "pass_rate", "pass_rate_sd", "n_eff", "lag", "informative", "state", "source", "tokens", "seconds"]
    names += ["reward_mean", "reward_sd"]
    expected = http.beliefs()
    content = http.send("GET", f"{RUN}/beliefs", params={"format": form}).content
    match form:
        case "parquet":
            rows: list[Json] = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
        case "csv":
            rows = pyarrow.csv.read_csv(io.BytesIO(content)).to_pylist()
        case _:
            rows = list(expected.values())
    assert all(list(row) == names for row in rows)
    assert {row["key"]: pytest.approx(row["pass_rate"]) for row in rows} == {
        key: belief["pass_rate"] for key, belief in expected.items()
    }
    assert {row["state"] for row in rows} <= {"new", "active", "mastered", "deferred", "quarantined", "absent"}


def _fits(answer: Any, model: type[BaseModel]) -> None:
    """The answer is valid without any conversion, and every field that the contract names is there."""
    model.model_validate_json(orjson.dumps(answer), strict=True)
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert required <= set(answer)
