"""What is counted of calls and of the database, in Prometheus' types, and the middleware that does it.

`create_app` makes one `Metrics`, with a registry of its own, as the library's global one would mix apps up. Labels are
routes as they are written in the contract, methods and statuses: never a name, a key or a text that a caller chose.
What is read of runs when somebody asks is `run_metrics.py`'s.
"""

import time

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A draw from a small pool takes milliseconds; an upload of millions of prompts takes a minute.
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
OTHER = "other"  # a path that leads nowhere, a method that HTTP does not have
NO_ANSWER = "none"  # the caller hung up before it had one


class Metrics:
    """The figures of one app. Thread safe, as the library's types are."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.request_seconds = Histogram(
            "midband_request_seconds",
            "Seconds from a request's headers to the end of its answer.",
            ("method", "route"),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.requests = Counter(
            "midband_requests_total",
            "Requests answered, by status; none where the caller hung up.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.requests_in_progress = Gauge(
            "midband_requests_in_progress", "Requests that are not answered yet.", registry=self.registry
        )
        self.database_errors = Counter(
            "midband_database_errors_total",
            "Errors that the database or its driver raised, by the driver's class of them.",
            ("kind",),
            registry=self.registry,
        )

    def watch(self, database: Engine) -> None:
        """Counts every error of this database from now on, wherever it is raised and whatever becomes of it."""

        @event.listens_for(database, "handle_error")
        def _count(context: ExceptionContext) -> None:
            # Drivers have the classes of PEP 249 and some dozen below them.
            self.database_errors.labels(type(context.original_exception).__name__).inc()


class RequestMetrics:
    """ASGI middleware, the outermost: times and counts every request."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, began = NO_ANSWER, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        self.metrics.requests_in_progress.inc()
        try:
            await self.app(scope, receive, noted)
        finally:
            self.metrics.requests_in_progress.dec()
            method = scope["method"] if scope["method"] in METHODS else OTHER
            route = getattr(scope.get("route"), "path", OTHER)
            self.metrics.requests.labels(method, route, status).inc()
            self.metrics.request_seconds.labels(method, route).observe(time.perf_counter() - began)
