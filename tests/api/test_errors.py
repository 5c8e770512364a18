"""The one shape of errors: every class of ours, the framework's, and what goes wrong on the way."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import httpx
import pytest
from fastapi import FastAPI, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from api import errors
from api.body_limit import BodyLimit
from api.errors import CORE_STATUS, ApiError, Busy, ServiceError, describe_problems, install_error_handlers, shown
from selector.errors import BatchConflict, SelectorError
from tests.api.harness import refused

LIMIT, IMPORT_LIMIT = 2_000, 6_000


def subclasses(root: type[Any]) -> list[type[Any]]:
    """All below `root` that its own module has."""
    found = [child for child in root.__subclasses__() if child.__module__ == root.__module__]
    return [*found, *(deeper for child in found for deeper in subclasses(child))]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int = Field(ge=1)
    rate: float = Field(default=0.0, allow_inf_nan=False)
    mode: Literal["a", "b"] = "a"
    content: int | None = None
    items: list[int] = []


def make_app(**times: float) -> FastAPI:
    """A service that fails in every way there is."""
    app = FastAPI()
    app.add_middleware(BodyLimit, max_body_bytes=LIMIT, max_import_bytes=IMPORT_LIMIT, **times)
    install_error_handlers(app)

    @app.post("/body")
    def body(body: Body, flag: Annotated[bool, Query()] = False) -> dict[str, int]:
        return {"size": body.size}

    @app.get("/raise/{name}")
    def fail(name: str) -> None:
        match name:
            case "core":
                raise BatchConflict("batch 3 was drawn with size 8")
            case "database":
                raise OperationalError("SELECT 'a secret'", {}, Exception("disk I/O error\nSELECT 'a secret'"))
            case "connections":
                raise PoolTimeout("no connection")
            case "bug":
                raise RuntimeError("a secret")
        error = next(e for e in subclasses(ApiError) if e.__name__ == name)
        raise error(f"this is {name}")

    @app.put("/v1/pools/{pool}/prompts")
    @app.put("/read")
    async def read(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}

    @app.put("/ignore")
    async def ignore(request: Request) -> dict[str, str]:
        try:
            await request.body()
        except Exception as error:
            return {"swallowed": type(error).__name__}
        return {}

    return app


def send(method: str, path: str, app: FastAPI | None = None, **options: Any) -> httpx.Response:
    async def go() -> httpx.Response:
        transport = httpx.ASGITransport(app or make_app(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://midband") as client:
            return await client.request(method, path, **options)

    return asyncio.run(go())


async def streamed(total: int) -> AsyncIterator[bytes]:
    """A body without a declared length."""
    for _ in range(total // 100):
        yield b"x" * 100


# The tree


@pytest.mark.parametrize("error", subclasses(ServiceError), ids=lambda e: e.__name__)
def test_each_error_says_when_it_occurs_and_stands_in_the_drawing(error: type[ServiceError]) -> None:
    assert error.__doc__
    assert error.__name__ in str(errors.__doc__)


@pytest.mark.parametrize("error", subclasses(ApiError), ids=lambda e: e.__name__)
def test_each_error_of_a_request_has_a_code_a_status_and_the_one_shape(error: type[ApiError]) -> None:
    assert error.code != ApiError.code
    assert 400 <= error.status <= 599
    assert error.retryable is (error.status == 503 or error.code == "not_owner")
    assert refused(send("GET", f"/raise/{error.__name__}"), error.status, error.code) == f"this is {error.__name__}"


def test_codes_are_told_apart() -> None:
    codes = [error.code for error in subclasses(ApiError)]
    assert len(set(codes)) == len(codes)
    assert not set(codes) & set(CORE_STATUS)


@pytest.mark.parametrize("error", subclasses(SelectorError), ids=lambda e: e.__name__)
def test_each_error_of_the_core_has_a_status(error: type[SelectorError]) -> None:
    assert error.code in CORE_STATUS


def test_an_error_of_the_core_is_answered_with_its_code() -> None:
    refused(send("GET", "/raise/core"), 409, "batch_conflict", "batch 3 was drawn with size 8")


def test_a_busy_service_says_when_to_come_back() -> None:
    response = send("GET", f"/raise/{Busy.__name__}")
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


# What the framework refuses


def test_an_unknown_path_and_a_wrong_method_have_the_same_shape() -> None:
    refused(send("GET", "/nowhere"), 404, "not_found", "nothing at '/nowhere'")
    response = send("DELETE", "/body")
    refused(response, 405, "method_not_allowed", "DELETE is not possible at '/body'")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"size": 0}', "size: Input should be greater than or equal to 1, got 0"),
        ('{"size": 1, "siez": 2}', "siez: Extra inputs are not permitted"),
        ("{}", "size: Field required"),
        ('{"size": 1, "rate": NaN}', "rate: Input should be a finite number, got nan"),
        ('{"size": Infinity}', "size: "),
        ('{"size": 1, "mode": "c"}', "mode: Input should be 'a' or 'b', got 'c'"),
        ('{"size": 1, "items": [1, "x"]}', "items.1: "),
        ('{"size": [1, 2]}', "got a list of 2"),
        ('{"size": {"a": 1}}', "got an object with 1 fields"),
        ('{"size": ', "not JSON"),
        ("[]", "body: "),
        ("", "body: Field required"),
    ],
)
def test_a_bad_body_is_refused_by_field_and_value(content: str, words: str) -> None:
    headers = {"content-type": "application/json"}
    refused(send("POST", "/body", content=content, headers=headers), 422, "invalid_request", words)


def test_a_bad_parameter_is_refused_by_name() -> None:
    refused(send("POST", "/body?flag=maybe", json={"size": 1}), 422, "invalid_request", "query.flag: ", "'maybe'")


def test_prompt_texts_are_not_repeated_and_long_values_are_cut() -> None:
    text = refused(send("POST", "/body", json={"size": 1, "content": "a secret prompt"}), 422, "invalid_request")
    assert "secret" not in text
    assert "got a text of 15 characters" in text
    text = refused(send("POST", "/body", json={"size": 1, "mode": "x" * 1_000}), 422, "invalid_request")
    assert len(text) < 200


def test_many_problems_are_counted_and_not_all_told() -> None:
    body = {"size": 1, **{f"extra{i}": i for i in range(30)}}
    text = refused(send("POST", "/body", json=body), 422, "invalid_request")
    assert text.endswith("; and 25 more")
    assert text.count("Extra inputs") == 5


def test_values_are_shown_by_kind() -> None:
    values: list[object] = ["a", 1.5, None, True, [1], {}, b"xy"]
    assert [shown(value) for value in values] == [
        "'a'", "1.5", "None", "True", "a list of 1", "an object with 0 fields", "a value of type bytes",
    ]  # fmt: skip
    assert describe_problems([]) == ""


# What breaks inside


def test_a_database_that_fails_is_a_reason_to_try_again_and_shows_no_values(caplog: pytest.LogCaptureFixture) -> None:
    response = send("GET", "/raise/database")
    text = refused(response, 503, "busy", "disk I/O error")
    assert "secret" not in text + caplog.text
    assert response.headers["x-request-id"] in caplog.text
    refused(send("GET", "/raise/connections"), 503, "busy", "connections")


def test_a_bug_is_answered_without_its_words_and_logged_by_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="midband.api"):
        response = send("GET", "/raise/bug", headers={"x-request-id": "mine-1"})
    assert "secret" not in refused(response, 500, "internal_error")
    assert response.headers["x-request-id"] == "mine-1"
    assert "request mine-1 failed: RuntimeError" in caplog.text


# Request ids


def test_a_sane_request_id_is_kept_and_any_other_is_replaced() -> None:
    assert send("GET", "/nowhere", headers={"x-request-id": "job-17:a.b_c"}).headers["x-request-id"] == "job-17:a.b_c"
    for bad in ("", "a b", "x" * 101, "<script>", "a;b"):
        given = send("POST", "/body", json={"size": 1}, headers={"x-request-id": bad}).headers.get_list("x-request-id")
        assert len(given) == 1
        assert len(given[0]) == 32


def test_each_request_has_an_id_of_its_own() -> None:
    ids = {send("POST", "/body", json={"size": 1}).headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5


# Limits of size


@pytest.mark.parametrize(("path", "limit"), [("/read", LIMIT), ("/v1/pools/p/prompts", IMPORT_LIMIT)])
@pytest.mark.parametrize("declared", [True, False])
def test_a_body_up_to_the_limit_passes_and_a_larger_one_does_not(path: str, limit: int, declared: bool) -> None:
    def put(size: int) -> httpx.Response:
        return send("PUT", path, content=b"x" * size if declared else streamed(size))

    assert put(limit).json() == {"bytes": limit}
    response = put(limit + 100)
    refused(response, 413, "body_too_large", f"larger than {limit} bytes")


def test_the_larger_limit_is_for_uploads_of_prompts_only() -> None:
    assert send("POST", "/v1/pools/p/prompts", content=b"x" * (LIMIT + 1)).status_code == 413
    assert send("PUT", "/v1/pools/p/prompts/x", content=b"x" * (LIMIT + 1)).status_code == 413


def test_a_large_json_body_is_refused_as_too_large_and_not_as_bad_json() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'{"size": 1, "items": ['
        async for part in streamed(LIMIT):
            yield part

    headers = {"content-type": "application/json"}
    refused(send("POST", "/body", content=body(), headers=headers), 413, "body_too_large")


def test_an_app_that_swallows_the_refusal_cannot_answer_in_its_place() -> None:
    refused(send("PUT", "/ignore", content=streamed(LIMIT + 100)), 413, "body_too_large")


# Limits of time


async def stuck() -> AsyncIterator[bytes]:
    """A body that never ends."""
    yield b"x" * 100
    await asyncio.Event().wait()


@pytest.mark.parametrize("path", ["/read", "/ignore", "/v1/pools/p/prompts"])
def test_a_body_that_does_not_arrive_is_given_up(path: str) -> None:
    app = make_app(body_time_s=0.05, import_time_s=0.05)
    refused(send("PUT", path, app, content=stuck()), 408, "body_too_slow", "within 0.05 s; 100 bytes were")


def test_the_time_is_that_of_the_whole_body_and_not_of_a_part() -> None:
    async def drops() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    refused(send("PUT", "/read", make_app(body_time_s=0.1), content=drops()), 408, "body_too_slow")


def test_an_upload_has_a_time_of_its_own_and_an_answer_has_none() -> None:
    async def late() -> AsyncIterator[bytes]:
        yield b"x"
        await asyncio.sleep(0.1)
        yield b"x"

    app = make_app(body_time_s=0.01)
    assert send("PUT", "/v1/pools/p/prompts", app, content=late()).json() == {"bytes": 2}

    @app.get("/slow")
    async def slow() -> StreamingResponse:
        return StreamingResponse(late())

    assert send("GET", "/slow", app).content == b"xx"
