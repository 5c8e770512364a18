"""What a run says of itself: audit, costs, curve, comparisons, beliefs, its log."""

from collections.abc import Iterator, Sequence
from typing import Literal

import httpx

from api import schemas
from api.schemas import AuditInfo, ComparisonInfo, CostsInfo, CurveInfo, DiagnosisInfo
from trainer.bodies import JsonObject, json_lines
from trainer.calls.base import Calls, Columns, request_body
from trainer.connection import path_of
from trainer.errors import ServiceUnavailable


class ReadingCalls(Calls):
    """What a client can read of a run."""

    def audit(self, run: str) -> AuditInfo:
        """What selection did: pass rates of the uniform, selected and re-weighted streams, and the verdict."""
        return self._get(AuditInfo, path_of("/v1/runs", run, "audit"))

    def costs(self, run: str) -> CostsInfo:
        """Tokens, rollouts and seconds by source of spending."""
        return self._get(CostsInfo, path_of("/v1/runs", run, "costs"))

    def curve(self, run: str, *, q: float | None = None) -> CurveInfo:
        """Held-out quality against the cost of training; with `q`, between which looks it first got there."""
        return self._get(CurveInfo, path_of("/v1/runs", run, "curve"), {"q": None if q is None else repr(float(q))})

    def diagnosis(self, run: str) -> DiagnosisInfo:
        """Which constraint binds, and what each remedy could save at most."""
        return self._get(DiagnosisInfo, path_of("/v1/runs", run, "diagnosis"))

    def report_text(self, run: str, *, format: Literal["md", "json", "html"] = "md") -> str:
        """The report on a run, as a document of its own."""
        return self._connection.call("GET", path_of("/v1/runs", run, "report"), query={"format": format}).text

    def compare(
        self,
        runs: Sequence[Sequence[str]],
        *,
        target: float,
        names: Sequence[str] | None = None,
        controls: Sequence[Sequence[str]] | None = None,
        unit: str | None = None,
    ) -> ComparisonInfo:
        """Configurations, each a list of its seeds' runs, measured against the first: what the target cost each.

        `controls`: equal-work runs beside each configuration, an empty list where there are none.
        """
        values: dict[str, object] = {"runs": [list(seeds) for seeds in runs], "quality": {"target": target}}
        given = {
            "names": None if names is None else list(names),
            "controls": None if controls is None else [list(seeds) for seeds in controls],
            "unit": unit,
        }
        values |= {name: value for name, value in given.items() if value is not None}
        return self._post(ComparisonInfo, "/v1/comparisons", request_body(schemas.ComparisonRequest, values))

    def beliefs(self, run: str) -> Columns:
        """What the run believes of every prompt, as columns: key, pass_rate, pass_rate_sd, n_eff, informative, ...

        The columns are lists of equal length, as table libraries take them.
        """
        response = self._connection.call("GET", path_of("/v1/runs", run, "beliefs"), query={"format": "jsonl"})
        columns: Columns = {}
        for row in json_lines(response):
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
        return columns

    def events(self, run: str, *, after: int = 0) -> Iterator[JsonObject]:
        """The run's log, oldest first, behind position `after`; each event holds its own position as `seq`."""
        while True:
            began = after
            response = self._connection.call(
                "GET", path_of("/v1/runs", run, "events"), query={"after": after}, stream=True
            )
            try:
                for event in json_lines(response):
                    yield event
                    after = event["seq"]
                return
            except httpx.TransportError as error:
                # The line broke in the middle of a long log: go on behind what came, if anything did.
                if after == began:
                    raise ServiceUnavailable(f"the log of {run} broke off behind event {after}: {error}") from error
            finally:
                response.close()
