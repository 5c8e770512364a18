"""Runs, and what goes round in them: batches, tickets, reports."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Unpack

from api import schemas
from api.schemas import Batch, FetchedRollout, GroupReport, PurposeName, ReportAnswer, RunCreated, RunInfo, TicketPage
from trainer.bodies import JsonObject
from trainer.calls.base import Calls, Policy, request_body, with_policy
from trainer.connection import Query, path_of
from trainer.options import ConfigOptions, DrawOptions, RunOptions
from trainer.reports import as_group


class RunCalls(Calls):
    """What a client can ask about runs, and the two calls of every step."""

    def create_run(
        self, name: str, *, pool: str, policy: Policy | None = None, **options: Unpack[RunOptions]
    ) -> RunCreated:
        """Start a run. The same call again answers the same; with other options it is a Conflict."""
        values: dict[str, object] = {"name": name, "pool": pool, **options}
        return self._post(RunCreated, "/v1/runs", request_body(schemas.RunRequest, with_policy(values, policy)))

    def configure(self, run: str, *, policy: Policy | None = None, **options: Unpack[ConfigOptions]) -> RunCreated:
        """Change a run from the next draw on; claims and audit are given for each such segment."""
        body = request_body(schemas.ConfigRequest, with_policy({**options}, policy))
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

    def draw(self, run: str, index: int, size: int, policy_version: int, **options: Unpack[DrawOptions]) -> Batch:
        """The tickets of one batch. The same index again gives the same tickets, from any process.

        May hold fewer than `size`, with the `reason`; it never waits. Raises BatchConflict if this index was drawn
        with other parameters, BranchSuperseded if `branch` was replaced by a restore.
        """
        values: dict[str, object] = {"index": index, "size": size, "policy_version": policy_version, **options}
        return self._post(Batch, path_of("/v1/runs", run, "batches"), request_body(schemas.BatchRequest, values))

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

    def fetch_rollouts(self, run: str, ids: Sequence[str]) -> list[FetchedRollout]:
        """What prior rollouts of tickets say, in the order asked for: outcome, reward, and completion as reported.

        Raises Expired if any of them is no longer kept or too old by now: generate the groups of their tickets whole;
        NotFound for an id that no ticket named, Conflict for a run without a rollout store.
        """
        body = request_body(schemas.FetchRequest, {"ids": list(ids)})
        return self._post(schemas.FetchAnswer, path_of("/v1/runs", run, "rollouts", "fetch"), body).rollouts

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
        return self._post(
            ReportAnswer, path_of("/v1/runs", run, "reports"), request_body(schemas.ReportRequest, values)
        )
