"""Small runs with looks, draws and costs, for tests of what the service says of quality and its cost."""

from collections.abc import Callable
from typing import Any

from tests.api.harness import Http, Json, group, held_out, prompts

TOKENS = 10  # of a rollout, as `group` says
COSTS: Json = {
    "accelerators": 4,
    "generation_s": 6.0,
    "update_s": 3.0,
    "idle_s": 1.0,
    "peak_memory_bytes": {"accelerator": 2**30},
    "environment": {"model": "m-1b", "accelerator": "4 × H1"},
}

Answer = Callable[[int, int], list[float]]
"""Outcomes of the group at a place of the batch at a step."""


def make_pool(http: Http, pool: str = "p") -> None:
    rows = [{**row, "category": "ab"[i % 2]} for i, row in enumerate(prompts(12))]
    http.pool([*rows, *({**row, "category": "ab"[i % 2]} for i, row in enumerate(held_out(8)))], pool)


def play(
    http: Http,
    run: str,
    passes: list[int],
    *,
    trained: Answer | None = None,
    costs: Json | None = None,
    **options: Any,
) -> None:
    """A run of four train groups of 4 a step; at look i, before step i, `passes[i]` of the 8 held-out prompts pass."""
    http.run(run, group_size=4, **options)
    answer = trained or (lambda place, step: [1.0, 0.0, 1.0, 0.0] if place % 2 else [0.0] * 4)
    for step, count in enumerate(passes):
        look(http, run, step, count)
        batch = http.draw(step, 4, step, run)
        groups = [group(ticket, answer(place, step)) for place, ticket in enumerate(batch["tickets"])]
        http.report(*groups, run=run, policy_version=step)
        body = {"step": step, "policy_version": step + 1, "costs": COSTS if costs is None else costs}
        http.post(f"/v1/runs/{run}/steps", body)


def look(http: Http, run: str, step: int, count: int) -> None:
    batch = http.draw(step, 8, step, run, purpose="heldout", group_size=2)
    groups = [group(ticket, [float(place < count)] * 2) for place, ticket in enumerate(batch["tickets"])]
    http.report(*groups, run=run, policy_version=step)
