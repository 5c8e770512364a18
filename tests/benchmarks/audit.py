"""The audit of a large run: how long it takes, how long it keeps a draw waiting, and what it finds how soon.

The run is made up column by column, as drawing and reporting ten million rollouts would take hours. Chances are those
of a fixed size measure, outcomes those of fixed pass rates.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from api.audits import audit_info
from api.measuring import curve_info
from api.reporting.content import run_report
from selector.config import RunConfig
from selector.engine import RunEngine
from selector.policies import PRESETS
from selector.pool import PoolState
from selector.run.events import BatchDrawn
from selector.run.frozen import frozen
from selector.run.state import DrawnBatch, RunState
from selector.types import PURPOSE_CODE, Purpose, TicketState
from tests.benchmarks.language import Figure, arguments, show
from tests.selector.contrast_cases import Fault, contrast, simulate, tilt_that_moves

NUM_PROMPTS, QUICK_PROMPTS = 1_000_000, 5_000
NUM_ROLLOUTS, QUICK_ROLLOUTS = 10_000_000, 64_000
BATCH_SIZE, GROUP_SIZE, AUDIT_SHARE = 128, 8, 0.25
NUM_CATEGORIES = 8
LEVEL = 0.95
SHIFTS, SHIFT_DRAWS, SHIFT_RUNS, QUICK_RUNS = (0.15, 0.05), 1_000, 20, 2


def main() -> None:
    options = arguments("The audit of a large run, and what it finds how soon.").parse_args()
    num_prompts, num_rollouts = (QUICK_PROMPTS, QUICK_ROLLOUTS) if options.quick else (NUM_PROMPTS, NUM_ROLLOUTS)
    state = made_up(num_prompts, num_rollouts)
    figures = _times(state, num_rollouts)
    figures += _detection(QUICK_RUNS if options.quick else SHIFT_RUNS)
    show(figures, as_json=options.json)


def made_up(num_prompts: int, num_rollouts: int) -> RunState:
    """A run whose tickets have all come back."""
    rng = np.random.default_rng(0)
    pool = PoolState(
        name="made-up",
        revision=1,
        keys=[f"p{row}" for row in range(num_prompts)],
        split_N=np.zeros(num_prompts, np.uint8),
        category_N=rng.integers(0, NUM_CATEGORIES, num_prompts).astype(np.int32),
        categories=tuple(f"c{code}" for code in range(NUM_CATEGORIES)),
        absent_N=np.zeros(num_prompts, bool),
        quarantined_N=np.zeros(num_prompts, bool),
        features={"difficulty": rng.random(num_prompts)},
    )
    config = RunConfig(
        pool=pool.name, policy=PRESETS["midband"].config, weights="horvitz_thompson", audit_share=AUDIT_SHARE
    )
    state = RunEngine.begin("bench", config, pool)[0].state
    rate_N = rng.beta(0.5, 0.7, num_prompts)
    believed_N = np.clip(rate_N + rng.normal(0, 0.2, num_prompts), 0.02, 0.98)
    num_draws, num_audit = num_rollouts // (BATCH_SIZE * GROUP_SIZE), int(BATCH_SIZE * AUDIT_SHARE)
    size_N = 0.05 + believed_N * (1 - believed_N)
    selected_N = (BATCH_SIZE - num_audit) * size_N / size_N.sum()
    chance_N = selected_N + (1 - selected_N) * num_audit / (num_prompts - BATCH_SIZE + num_audit)
    pick_N = np.cumsum(selected_N) / selected_N.sum()
    row_TK = np.searchsorted(pick_N, rng.random((num_draws, BATCH_SIZE))).clip(0, num_prompts - 1)
    row_TK[:, :num_audit] = rng.integers(0, num_prompts, (num_draws, num_audit))
    audit_K = np.arange(BATCH_SIZE) < num_audit
    model = _one_draw(state, believed_N)
    for index in range(num_draws):
        row_K = row_TK[index]
        weight_K = BATCH_SIZE / (num_prompts * chance_N[row_K])
        event = replace(
            model,
            index=index,
            policy_version=index,
            row_K=row_K,
            audit_K=audit_K,
            num_audit=num_audit,
            inclusion_K=chance_N[row_K],
            weight_K=weight_K,
            ht_weight_K=weight_K,
            pass_rate_K=believed_N[row_K],
            tokens_K=np.full(BATCH_SIZE, 500.0) + row_K % 1000,
        )
        state.batches.append(DrawnBatch(ordinal=index, event=event, seq=2 + 2 * index, first_ticket=index * BATCH_SIZE))
    _answer(state, row_TK, audit_K, rate_N, rng)
    state.train_draws, state.seq = num_draws, 2 * num_draws + 3
    return state


def _one_draw(state: RunState, believed_N: np.ndarray) -> BatchDrawn:
    """The parts that all draws share."""
    num_rows, zero_K = len(believed_N), np.zeros(BATCH_SIZE)
    counts = np.bincount(state.pool.category_N, minlength=NUM_CATEGORIES)
    base = float(believed_N.sum())
    wide, whole = [-5.0, 6.0], [0.0, 1.0]
    return BatchDrawn(
        branch=0,
        purpose=Purpose.TRAIN.value,
        index=0,
        refill=0,
        requested=BATCH_SIZE,
        group_size=GROUP_SIZE,
        divisor=1,
        short="partial",
        allow_repeat=False,
        policy_version=0,
        config_hash=state.config_hash,
        claim={"type": "unbiased", "objective": "", "conditions": []},
        reason=None,
        frame=num_rows,
        eligible=num_rows,
        blocked=0,
        num_audit=0,
        revisit_draws=None,
        row_K=np.zeros(BATCH_SIZE, np.int64),
        audit_K=np.zeros(BATCH_SIZE, bool),
        inclusion_K=zero_K,
        weight_K=zero_K,
        ht_weight_K=zero_K,
        credit_K=np.zeros(BATCH_SIZE, np.int32),
        pass_rate_K=zero_K,
        variance_K=np.full(BATCH_SIZE, 0.01),
        informative_K=np.full(BATCH_SIZE, 0.5),
        base_pass=base,
        base_degenerate=num_rows / 2,
        ranges={"pass": wide, "pass_uniform": whole, "degenerate": wide, "degenerate_uniform": whole},
        carried_credit=[0.0, 0.0, 0.0],
        open_credit=[0.0, 0.0, 0.0],
        pool_category={str(code): int(count) for code, count in enumerate(counts)},
        pool_difficulty=np.histogram(believed_N, 10, (0.0, 1.0))[0].tolist(),
        deadline=None,
        digest="",
    )


def _answer(
    state: RunState, row_TK: np.ndarray, audit_K: np.ndarray, rate_N: np.ndarray, rng: np.random.Generator
) -> None:
    """Fills the tables as whole groups that came back at once would have."""
    num_draws, size = row_TK.shape[0], row_TK.size
    book, draw_M = state.book, np.repeat(np.arange(row_TK.shape[0]), BATCH_SIZE)
    book.tickets.extend(size)
    outcome = rng.random((size, GROUP_SIZE)) < rate_N[row_TK.ravel()][:, None]
    passes_M = outcome.sum(axis=1)
    columns = {
        "batch": draw_M,
        "position": np.tile(np.arange(BATCH_SIZE), num_draws),
        "row": row_TK.ravel(),
        "purpose": np.tile(np.where(audit_K, PURPOSE_CODE[Purpose.AUDIT], PURPOSE_CODE[Purpose.TRAIN]), num_draws),
        "group_size": GROUP_SIZE,
        "slot": np.arange(size) * GROUP_SIZE,
        "state": TicketState.REPORTED,
        "issued_seq": 2 + 2 * draw_M,
        "ended_seq": 3 + 2 * draw_M,
        "issued_draw": draw_M,
        "issued_version": draw_M,
        "reported_version": draw_M,
        "arrived": GROUP_SIZE,
        "scored": GROUP_SIZE,
        "passes": passes_M,
        "informative": (passes_M > 0) & (passes_M < GROUP_SIZE),
        "tokens": 500 * GROUP_SIZE,
    }
    for name, values in columns.items():
        book.tickets[name][:] = values
    book.rollouts.extend(size * GROUP_SIZE)
    book.rollouts["arrived"][:] = True
    book.rollouts["outcome"][:] = outcome.ravel()
    book.rollouts["tokens"][:] = 500
    np.add.at(state.rows["drawn_N"], row_TK.ravel(), 1)
    np.add.at(state.rows["groups_N"], row_TK.ravel(), 1)
    np.maximum.at(state.rows["last_draw_N"], row_TK.ravel(), draw_M + 1)


def _times(state: RunState, num_rollouts: int) -> list[Figure]:
    """What a draw may have to wait for is the copy; the rest goes on beside it."""
    n = state.num_rows
    setting = {"rollouts": num_rollouts, "draws": state.train_draws, "batch_size": BATCH_SIZE}
    parts: dict[str, Callable[[], object]] = {
        "audit: the copy, in the run's turn": lambda: frozen(state, ()),
        "audit: computed beside it": lambda: audit_info(frozen(state, ()), LEVEL),
        "report: the copy, in the run's turn": lambda: frozen(state),
        "report: computed beside it": lambda: run_report(frozen(state)),
        "curve: computed beside it": lambda: curve_info(frozen(state), None),
    }
    figures = []
    for case, part in parts.items():
        begun, busy = time.perf_counter(), time.process_time()
        part()
        took = {"time": time.perf_counter() - begun, "processor time": time.process_time() - busy}
        figures += [
            Figure(benchmark="audit", case=case, metric=metric, value=value, unit="s", n=n, setting=setting)
            for metric, value in took.items()
        ]
    return figures


def _detection(num_runs: int) -> list[Figure]:
    """Draws until the contrast finds that recorded chances are wrong; `interval`: the first and the last run."""
    figures = []
    for shift in SHIFTS:
        fault = tilt_that_moves(shift, SHIFT_DRAWS)
        figures.append(_until_found(f"chances that move the weighted mean by {shift}", fault, num_runs, shift))
    return figures


def _until_found(case: str, fault: Fault, num_runs: int, shift: float) -> Figure:
    found = [contrast(run, SHIFT_DRAWS).detected_at for run in simulate(num_runs, SHIFT_DRAWS, fault)]
    draws = [float(draw + 1) for draw in found if draw is not None]
    all_found = len(draws) == num_runs
    return Figure(
        benchmark="audit",
        case=case,
        metric="draws until found, median",
        value=float(np.median(draws)) if all_found else None,
        unit="draws",
        n=768,
        seeds=num_runs,
        interval=(min(draws), max(draws)) if all_found else None,
        setting={"batch_size": 128, "audit_share": 0.25, "shift": shift, "found": len(draws), "alpha": 0.025},
    )


if __name__ == "__main__":
    main()
