"""The framework alone, for `service` to compare with: endpoints that parse the same bodies and answer ready bytes.

Run as `python -m tests.benchmarks.bare PORT DRAW_ANSWER REPORT_ANSWER`, the last two files whose bytes are answered.
"""

import sys
from pathlib import Path

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

from api import schemas


def bare_app(draw_answer: bytes, report_answer: bytes) -> FastAPI:
    app = FastAPI()

    @app.post("/batches")
    async def draw(body: schemas.BatchRequest) -> Response:
        return Response(draw_answer, media_type="application/json")

    @app.post("/reports")
    async def report(request: Request) -> Response:
        schemas.ReportRequest.model_validate_json(await request.body())
        return Response(report_answer, media_type="application/json")

    @app.put("/prompts")
    async def upload(request: Request) -> Response:
        rest = b""
        async for part in request.stream():
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                orjson.loads(line)
        return Response(b"{}", media_type="application/json")

    return app


if __name__ == "__main__":
    answers = [Path(name).read_bytes() for name in sys.argv[2:4]]
    uvicorn.run(bare_app(*answers), port=int(sys.argv[1]), log_level="warning", access_log=False)
