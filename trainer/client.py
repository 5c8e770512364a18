"""The service as a Python object: one method for each call of the contract, blocking, typed.

A trainer, the `midband` command and the replay all use it. It checks requests with the contract's own models before it
sends them, and answers with the contract's models. Nothing of a run is kept here: the service remembers, so any process
may go on where another stopped, and any call may be made again.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack

import httpx
from pydantic import BaseModel, ValidationError

from api import schemas
from api.schemas import (
    AuditInfo,
    Batch,
    CheckpointInfo,
    ComparisonInfo,
    CostsInfo,
    CurveInfo,
    DiagnosisInfo,
    GroupReport,
    ImportReport,
    PoolInfo,
    PurposeName,
    QuarantineReport,
    ReportAnswer,
    RestoreAnswer,
    RunCreated,
    RunInfo,
    SignalsAnswer,
    StepAnswer,
    TicketPage,
    VersionInfo,
)
from trainer.bodies import JsonObject, Row, export_format, file_body, json_lines, rows_body, write_body
from trainer.connection import Connection, Query, parsed, path_of
from trainer.environment import environment
from trainer.errors import InvalidRequest, ServiceUnavailable
from trainer.options import ConfigOptions, DrawOptions, RunOptions
from trainer.reports import as_group, in_words
from trainer.retry import PATIENCE_S, Backoff

DEFAULT_URL = "http://127.0.0.1:8765"
TIMEOUT_S = 60.0  # one try of one call; a draw or report takes milliseconds
IMPORT_TIMEOUT_S = 3_600.0  # a pool of millions of prompts is one transaction

Policy = str | Mapping[str, object] | schemas.PolicyRequest  # a preset's name, or a preset with parts overridden
Columns = dict[str, list[Any]]
AnswerT = TypeVar("AnswerT")


class Client:
    """A connection to one midband service. Threads may share it; close it, or use it as a context manager.

    `patience_s`: how long a call is tried again while the service is away or busy, before ServiceUnavailable. The
    first failure is logged as a warning. `timeout_s` is for one try. `key`: what `midband key create` printed, for a
    service that asks for one; by default the environment's MIDBAND_KEY. It is never shown.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        key: str | None = None,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
        backoff: Backoff | None = None,
    ) -> None:
        self._connection = Connection(
            base_url,
            key=key,
            transport=transport,
            timeout_s=timeout_s,
            backoff=backoff or Backoff(patience_s=patience_s),
        )

    def __repr__(self) -> str:
        return f"Client({self._connection.where!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection; an in-process service is shut down. Calling it again does nothing."""
        self._connection.close()

    def version(self) -> VersionInfo:
        return self._get(VersionInfo, "/version")

    # Pools

    def create_pool(self, name: str, *, description: str | None = None) -> PoolInfo:
        """Make a pool; if it exists unchanged, that is fine too."""
        values: dict[str, object] = {"name": name}
        if description is not None:
            values["description"] = description
        return self._post(PoolInfo, "/v1/pools", _request(schemas.PoolRequest, values))

    def pools(self) -> list[PoolInfo]:
        return self._items(PoolInfo, "/v1/pools")

    def pool(self, pool: str) -> PoolInfo:
        """Counts of a pool's prompts by split and category."""
        return self._get(PoolInfo, path_of("/v1/pools", pool))

    def archive_pool(self, pool: str) -> None:
        """Take the pool out of use; its history stays."""
        self._connection.call("DELETE", path_of("/v1/pools", pool))

    def put_prompts(
        self, pool: str, rows: Iterable[Row] | Path | str, *, mode: Literal["replace"] | None = None
    ) -> ImportReport:
        """Import prompts: rows with the contract's fields, or the path of a JSONL, JSON, CSV or Parquet file.

        Bad rows are counted and named in the answer and the others are imported; look at `rejected`. With `replace`,
        prompts that are not among these are marked absent and never drawn.
        """
        body, content_type = file_body(Path(rows)) if isinstance(rows, str | Path) else rows_body(rows)
        response = self._connection.call(
            "PUT",
            path_of("/v1/pools", pool, "prompts"),
            query={"mode": mode},
            body=body,
            content_type=content_type,
            timeout_s=IMPORT_TIMEOUT_S,
        )
        return parsed(ImportReport, response)

    def prompts(
        self,
        pool: str,
        *,
        run: str | None = None,
        state: str | None = None,
        category: str | None = None,
        split: Literal["train", "heldout"] | None = None,
        search: str | None = None,
        sort: str | None = None,
        order: Literal["asc", "desc"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        offset: int | None = None,
    ) -> JsonObject:
        """One page of a pool's prompts: `items`, `total`, and `next_cursor` for the page after it.

        `offset` jumps to a place, without a cursor. States and orders that belong to a run need `run`.
        """
        query: Query = {
            "run": run, "state": state, "category": category, "split": split, "search": search, "sort": sort,
            "order": order, "limit": limit, "cursor": cursor, "offset": offset,
        }  # fmt: skip
        return self._get(JsonObject, path_of("/v1/pools", pool, "prompts"), query)

    def prompt(self, pool: str, key: str, *, run: str | None = None) -> JsonObject:
        """One prompt; with `run`, also its belief, its state and every group it was given."""
        return self._get(JsonObject, path_of("/v1/pools", pool, "prompts", key), {"run": run})

    def export_prompts(self, pool: str, path: Path | str, *, run: str | None = None) -> Path:
        """Write all prompts of a pool to a JSONL, CSV or Parquet file, as its name says; `put_prompts` reads it again.

        With `run`, what the run knows of each prompt is in it too.
        """
        path = Path(path)
        query: Query = {"format": export_format(path), "run": run}
        response = self._connection.call("GET", path_of("/v1/pools", pool, "export"), query=query, stream=True)
        return write_body(response, path)

    def quarantine(self, pool: str, keys: Sequence[str], *, reason: str, lift: bool = False) -> QuarantineReport:
        """Never draw these prompts again, in any run of the pool, until it is lifted."""
        body = _request(schemas.QuarantineRequest, {"keys": list(keys), "reason": reason, "lift": lift})
        return self._post(QuarantineReport, path_of("/v1/pools", pool, "quarantine"), body)

    # Runs

    def create_run(
        self, name: str, *, pool: str, policy: Policy | None = None, **options: Unpack[RunOptions]
    ) -> RunCreated:
        """Start a run. The same call again answers the same; with other options it is a Conflict."""
        values: dict[str, object] = {"name": name, "pool": pool, **options}
        return self._post(RunCreated, "/v1/runs", _request(schemas.RunRequest, _with_policy(values, policy)))

    def configure(self, run: str, *, policy: Policy | None = None, **options: Unpack[ConfigOptions]) -> RunCreated:
        """Change a run from the next draw on; claims and audit are given for each such segment."""
        body = _request(schemas.ConfigRequest, _with_policy({**options}, policy))
        return self._post(RunCreated, path_of("/v1/runs", run, "config"), body)

    def runs(self) -> list[JsonObject]:
        """Name, pool and whether it has ended, for every run."""
        return self._items(JsonObject, "/v1/runs")

    def presets(self) -> list[JsonObject]:
        """The policies to choose from: configuration, claim, source and a sentence each."""
        return self._items(JsonObject, "/v1/presets")

    def run(self, run: str) -> RunInfo:
        """Counts, states, alarms and configuration of a run."""
        return self._get(RunInfo, path_of("/v1/runs", run))

    def complete(self, run: str) -> RunInfo:
        """End a run: what is open becomes void. A restore reopens it."""
        return self._post(RunInfo, path_of("/v1/runs", run, "complete"), b"{}")

    # Batches and reports

    def draw(self, run: str, index: int, size: int, policy_version: int, **options: Unpack[DrawOptions]) -> Batch:
        """The tickets of one batch. The same index again gives the same tickets, from any process.

        May hold fewer than `size`, with the `reason`; it never waits. Raises BatchConflict if this index was drawn
        with other parameters, BranchSuperseded if `branch` was replaced by a restore.
        """
        values: dict[str, object] = {"index": index, "size": size, "policy_version": policy_version, **options}
        return self._post(Batch, path_of("/v1/runs", run, "batches"), _request(schemas.BatchRequest, values))

    def batch(
        self,
        run: str,
        index: int,
        *,
        purpose: PurposeName | None = None,
        refill: int | None = None,
        branch: int | None = None,
    ) -> Batch:
        """A batch drawn before, as it was answered then."""
        query: Query = {"purpose": purpose, "refill": refill, "branch": branch}
        return self._get(Batch, path_of("/v1/runs", run, "batches", str(index)), query)

    def tickets(
        self,
        run: str,
        *,
        batch: int | None = None,
        purpose: PurposeName | None = None,
        state: Literal["open", "reported", "void"] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> TicketPage:
        """One page of a run's tickets with their states; `next_cursor` asks for the page after it.

        `purpose` says whose batch is meant where `batch` is given: each purpose has indices of its own.
        """
        query: Query = {"batch": batch, "purpose": purpose, "state": state, "limit": limit, "cursor": cursor}
        return self._get(TicketPage, path_of("/v1/runs", run, "tickets"), query)

    def report(
        self,
        run: str,
        groups: Iterable[GroupReport | Mapping[str, object]],
        *,
        policy_version: int | None = None,
        branch: int | None = None,
    ) -> ReportAnswer:
        """Hand in groups, made with `group` or as mappings of the contract. Sent twice, they count once.

        Single rollouts or groups may be `rejected` in the answer while the others count.
        Raises InvalidRequest, before anything is sent, for values the contract does not allow.
        """
        values: dict[str, object] = {"groups": [as_group(group) for group in groups]}
        if policy_version is not None:
            values["policy_version"] = policy_version
        if branch is not None:
            values["branch"] = branch
        return self._post(ReportAnswer, path_of("/v1/runs", run, "reports"), _request(schemas.ReportRequest, values))

    # Steps, checkpoints, restore

    def step(
        self,
        run: str,
        step: int,
        *,
        policy_version: int,
        trained: Sequence[str] | None = None,
        weights_applied: bool | None = None,
        update_size: float | None = None,
        costs: schemas.StepCosts | Mapping[str, object] | None = None,
    ) -> StepAnswer:
        """Record an update of the weights: which tickets it used, and what it cost.

        With costs goes what this process runs on, as far as it can tell; what `costs["environment"]` says is added to
        it and counts where both speak, such as the model and its length limits.
        """
        if costs is not None:
            costs = dict(costs) if isinstance(costs, Mapping) else costs.model_dump(exclude_unset=True)
            given_facts = costs.get("environment")
            costs["environment"] = environment() | (given_facts if isinstance(given_facts, dict) else {})
        given = {
            "trained": None if trained is None else list(trained),
            "weights_applied": weights_applied,
            "update_size": update_size,
            "costs": costs,
        }
        values = {"step": step, "policy_version": policy_version} | {k: v for k, v in given.items() if v is not None}
        return self._post(StepAnswer, path_of("/v1/runs", run, "steps"), _request(schemas.StepRequest, values))

    def push_signals(
        self, run: str, features: Mapping[str, Mapping[str, float]], *, policy_version: int
    ) -> SignalsAnswer:
        """Hand in numbers about prompts that only the trainer can compute, by key and name. Sent twice, they count
        once.

        `value` is a belief of the pass rate at this version; other names are features. Single numbers may be
        `rejected` in the answer while the others count. Many prompts go out in several calls, whose answers are added
        up.
        """
        keys = list(features)
        answers = []
        for start in range(0, max(len(keys), 1), schemas.MAX_PROMPTS_PER_PUSH):
            part = {key: dict(features[key]) for key in keys[start : start + schemas.MAX_PROMPTS_PER_PUSH]}
            body = _request(schemas.SignalsRequest, {"policy_version": policy_version, "features": part})
            answers.append(self._post(SignalsAnswer, path_of("/v1/runs", run, "signals"), body))
        return SignalsAnswer(
            policy_version=policy_version,
            applied=sum(answer.applied for answer in answers),
            duplicate=sum(answer.duplicate for answer in answers),
            late=sum(answer.late for answer in answers),
            rejected=[refused for answer in answers for refused in answer.rejected],
        )

    def checkpoint(self, run: str, step: int) -> CheckpointInfo:
        """Remember this point of the run under the trainer's step; call it before the trainer writes its own file."""
        body = _request(schemas.CheckpointRequest, {"step": step})
        return self._post(CheckpointInfo, path_of("/v1/runs", run, "checkpoints"), body)

    def checkpoints(self, run: str) -> list[CheckpointInfo]:
        return self._items(CheckpointInfo, path_of("/v1/runs", run, "checkpoints"))

    def restore(
        self,
        run: str,
        step: int,
        *,
        beliefs: Literal["rewind", "keep"] = "rewind",
        in_flight: Literal["reissue", "void"] = "reissue",
        restore_id: str | None = None,
    ) -> RestoreAnswer:
        """Go back to a checkpoint; later tickets are lost, and a new branch begins if that discards anything.

        Every rank that restores must give the same `restore_id`, or each of them restores anew; without one it is made
        here, so that a call sent twice for want of an answer counts once.
        """
        values = {
            "step": step,
            "beliefs": beliefs,
            "in_flight": in_flight,
            "restore_id": restore_id or uuid.uuid4().hex,
        }
        return self._post(RestoreAnswer, path_of("/v1/runs", run, "restore"), _request(schemas.RestoreRequest, values))

    # Reading

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
        return self._post(ComparisonInfo, "/v1/comparisons", _request(schemas.ComparisonRequest, values))

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

    def _get(self, answer: type[AnswerT], path: str, query: Query | None = None) -> AnswerT:
        return parsed(answer, self._connection.call("GET", path, query=query))

    def _items(self, item: type[AnswerT], path: str) -> list[AnswerT]:
        return parsed(_Items[item], self._connection.call("GET", path)).items  # type: ignore[valid-type]

    def _post(self, answer: type[AnswerT], path: str, body: bytes) -> AnswerT:
        return parsed(answer, self._connection.call("POST", path, body=body))


class _Items(BaseModel, Generic[AnswerT]):
    """How the contract wraps a list."""

    items: list[AnswerT]


def _request(model: type[schemas.Body], values: Mapping[str, object]) -> bytes:
    """The body of a request with only what the caller gave: what is left out stays the service's to choose."""
    try:
        return model.model_validate(values).model_dump_json(exclude_unset=True).encode()
    except ValidationError as error:
        raise InvalidRequest(in_words(error)) from error


def _with_policy(values: dict[str, object], policy: Policy | None) -> dict[str, object]:
    if policy is None:
        return values
    return {**values, "policy": {"preset": policy} if isinstance(policy, str) else policy}
