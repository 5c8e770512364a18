"""Pools and their prompts: making, filling, reading, exporting, quarantine."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from api import schemas
from api.schemas import ImportReport, PoolInfo, QuarantineReport
from trainer.bodies import JsonObject, Row, export_format, file_body, rows_body, write_body
from trainer.calls.base import Calls, request_body
from trainer.connection import Query, parsed, path_of

IMPORT_TIMEOUT_S = 3_600.0  # a pool of millions of prompts is one transaction


class PoolCalls(Calls):
    """What a client can ask about pools."""

    def create_pool(self, name: str, *, description: str | None = None) -> PoolInfo:
        """Make a pool; if it exists unchanged, that is fine too."""
        values: dict[str, object] = {"name": name}
        if description is not None:
            values["description"] = description
        return self._post(PoolInfo, "/v1/pools", request_body(schemas.PoolRequest, values))

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
        body = request_body(schemas.QuarantineRequest, {"keys": list(keys), "reason": reason, "lift": lift})
        return self._post(QuarantineReport, path_of("/v1/pools", pool, "quarantine"), body)
