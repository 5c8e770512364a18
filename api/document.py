"""The OpenAPI document: what the framework knows of the routes, and what endpoints answer and parse by themselves.

`create_app` hands it over with the scopes of the routes. Every error that any call may be answered with is declared
here, once, in the one shape that all of them have.
"""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api import schemas
from api.auth import Guard, describe_keys

Document = dict[str, Any]
REFUSAL = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
# The framework's own shape of a refusal, which no answer of ours has.
FOREIGN_SCHEMAS = ("HTTPValidationError", "ValidationError")
OF_A_BODY = {
    "408": "`body_too_slow`: the body was not there in time",
    "413": "`body_too_large`: the body passes a limit of the settings",
}
# What calls may be answered with besides, by (path, method); of a run's own paths every one may have the first two.
OF_A_RUN = {
    "404": "`unknown_run`, `unknown_batch`, `unknown_checkpoint`",
    "500": "`snapshot_damaged`: the run's log or what it needs is damaged; the detail says what to do",
}
OF_A_CHANGED_RUN = {
    "409": "`not_owner`, `run_complete`, `batch_conflict`, `step_conflict`, `branch_superseded`, `revisit_impossible`, "
    "`estimator_fixed`, `pool_archived`",
}
OF_CALLS = {
    ("/v1/runs", "post"): {
        "200": "The run was there with this configuration",
        "404": "`unknown_pool`, `unknown_run`",
        "409": "`run_conflict`, `pool_archived`",
        "501": "`not_available`",
    },
    ("/v1/runs/{run}/rollouts/fetch", "post"): {
        "404": "`unknown_run`, `unknown_rollout`",
        "409": "`store_off`: the run was begun without rollout_store",
        "410": "`expired`: generate afresh",
        "413": "`body_too_large`: the body passes a limit of the settings, or the answer would",
    },
    ("/v1/comparisons", "post"): {"404": "`unknown_run`"},
    ("/v1/pools", "post"): {"200": "The pool was there with this description"},
    ("/readyz", "get"): {"503": "It is still recovering"},
    ("/ui", "get"): {"501": "`not_available`: the web page is not built yet"},
}
# What is answered otherwise than as JSON.
MEDIA = {
    "/metrics": ("text/plain",),
    "/v1/pools/{pool}/export": ("application/x-ndjson", "text/csv", "application/vnd.apache.parquet"),
    "/v1/runs/{run}/beliefs": ("application/x-ndjson", "text/csv", "application/vnd.apache.parquet"),
    "/v1/runs/{run}/events": ("application/x-ndjson",),
    "/v1/runs/{run}/report": ("text/markdown", "application/json", "text/html"),
}


def install_document(app: FastAPI, scopes: dict[tuple[str, str], Guard]) -> None:
    """Makes `app.openapi` build this document, once, when it is first asked for."""

    def openapi() -> Document:
        if app.openapi_schema is None:
            app.openapi_schema = _build(app, scopes)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _build(app: FastAPI, scopes: dict[tuple[str, str], Guard]) -> Document:
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    components = document.setdefault("components", {}).setdefault("schemas", {})
    schema = schemas.ReportRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    components |= schema.pop("$defs", {})
    components["ReportRequest"] = schema
    components["ErrorBody"] = schemas.ErrorBody.model_json_schema()
    for name in FOREIGN_SCHEMAS:
        components.pop(name, None)
    describe_keys(document, scopes)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            _declare_errors(operation, path, method, open_to_all=scopes[path, method].open)
            if path in MEDIA:
                operation["responses"]["200"]["content"] = {
                    name: {"schema": {} if name == "application/json" else {"type": "string"}} for name in MEDIA[path]
                }
    return document


def _declare_errors(operation: Document, path: str, method: str, *, open_to_all: bool) -> None:
    answers: Document = operation["responses"]
    if answers.get("422", {}).get("description") == "Validation Error" or "requestBody" in operation:
        _declare(answers, "422", "`invalid_request`: a field or parameter cannot be")
    texts: dict[str, str] = {}
    if "requestBody" in operation:
        texts |= OF_A_BODY
    if "/{run}" in path:
        texts |= OF_A_RUN | (OF_A_CHANGED_RUN if method == "post" else {})
    texts |= OF_CALLS.get((path, method), {})
    if not open_to_all:
        texts["503"] = "`busy`: no room at the moment; send it again"
    for status, text in texts.items():
        _declare(answers, status, text)


def _declare(answers: Document, status: str, text: str) -> None:
    """Adds to the words of an answer; one that is no error has the shape of the one declared for success."""
    known = answers.get(status, {})
    words = "" if known.get("description") == "Validation Error" else known.get("description", "")
    described = words if text.split(":")[0] in words else " ".join(filter(None, (words, text)))
    if int(status) < 400:
        answers[status] = {**answers["201"], "description": described}
    elif status == "503" and "busy" not in text:
        answers[status] = {**answers["200"], "description": described}
    else:
        answers[status] = {**known, "description": described, "content": REFUSAL}
