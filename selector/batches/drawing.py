"""From a run's state to a drawn batch: the frame, the utilities, the draw, and everything recorded with it.

`RunEngine.draw` calls it; nothing here changes the state. The sampling itself is in `sampling.draw`, the policies in
`policies`.
"""

import hashlib
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, Literal

import numpy as np

from predictors.base import Beliefs
from predictors.value import informative_probability
from selector.batches.controlling import controlled_policy, numbers_in_force
from selector.batches.facts import row_facts
from selector.batches.observations import NUM_DIFFICULTY_BINS, observation_ranges
from selector.batches.probe_draw import draw_probes
from selector.batches.quota_holding import held_shares, stratum_of_category
from selector.beliefs.costing import expected_tokens, group_cost
from selector.beliefs.graded import expected_informative
from selector.beliefs.reading import read_beliefs
from selector.beliefs.rewarded import with_reward_utility, with_rewards, without_probes
from selector.claims import Claim, begun_by_probes, derive_claim
from selector.config import BudgetConfig, RunConfig
from selector.errors import BatchConflict, RevisitImpossible
from selector.groups.priors import begun, foreseen
from selector.groups.reports import check_branch
from selector.lifecycle.rules import find_cohorts, review_rate, waking_rows
from selector.policies import build_policy
from selector.policies.base import FactPolicy, Policy
from selector.run.events import BatchDrawn
from selector.run.state import DrawnBatch, RunState
from selector.sampling.budget import spread_rollouts
from selector.sampling.draw import draw, draw_uniform
from selector.sampling.draw_plan import DrawFrame, Drawn, DrawPlan
from selector.sampling.eligibility import blocked_rows, resting_codes
from selector.sampling.revisits import due_now, late_after, revisit_draws, waited
from selector.sampling.scans import nonzero_rows, pool_counts
from selector.types import PURPOSE_CODE, Lifecycle, Purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRequest:
    """What the trainer asks for; names are those of the HTTP contract."""

    index: int
    size: int
    policy_version: int
    group_size: int
    purpose: Purpose = Purpose.TRAIN
    refill: int = 0
    divisor: int = 1
    short: Literal["partial", "fill"] = "partial"
    allow_repeat: bool = False
    branch: int | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        return (self.purpose.value, self.index, self.refill)


def claim_of(config: RunConfig) -> Claim:
    """What the run's configuration lets it claim."""
    policy = build_policy(config.policy, weights=config.weights, advantage=config.advantage)
    claim = derive_claim(
        uniform=policy.exact_uniform,
        empirical=config.policy.empirical,
        weights=config.weights,
        loss_aggregation=config.loss_aggregation,
        advantage=config.advantage,
        varying_groups=config.policy.budget is not None and config.policy.budget.rule != "fixed",
        rule=None if config.policy.wave is None else config.policy.wave.rule,
        refilled=config.policy.refill is not None,
        signal=config.signal,
    )
    return claim if config.rollout_store is None else begun_by_probes(claim)


def find_drawn(state: RunState, request: DrawRequest) -> DrawnBatch | None:
    """The batch if it was drawn before. Raises BatchConflict when it was drawn with other parameters."""
    check_branch(state, request.branch)
    ordinal = state.surviving.get(request.key)
    if ordinal is None:
        return None
    batch = state.batches[ordinal]
    stored = {
        "size": batch.event.requested,
        "group_size": batch.event.group_size,
        "divisor": batch.event.divisor,
        "short": batch.event.short,
        "allow_repeat": batch.event.allow_repeat,
    }
    wanted = {name: getattr(request, name) for name in stored}
    differences = [f"{name} {stored[name]} then, {wanted[name]} now" for name in stored if stored[name] != wanted[name]]
    if differences:
        raise BatchConflict(
            f"{request.purpose} batch {request.index}, refill {request.refill} was drawn with other parameters: "
            + "; ".join(differences)
        )
    return batch


def due_revisits(state: RunState, period: int, lifecycle_N: np.ndarray | None = None) -> np.ndarray:
    """(N,) bool: prompts whose revisit is due at the next train draw, blocked ones among them.

    lifecycle_N: their stages at that draw, by default those of now.

    A prompt at rest is due at every turn, one that was never drawn at its first, and any prompt once it was not drawn
    for most of a period, so that none waits for more than `period` draws; those for which it was blocked come on top.
    """
    due_N = np.zeros(state.num_rows, bool)
    if not period or state.config.policy.utility == "uniform":
        return due_N
    position_N, overdue_N, last_draw_N = state.revisit_position_N, state.rows["overdue_N"], state.rows["last_draw_N"]
    in_turn = state.revisit_row_P[state.train_draws % period :: period]
    rows = np.union1d(in_turn, nonzero_rows(overdue_N))  # often some dozens: only these and the late can be due
    latest = _latest(state, period)
    if latest > 0:
        rows = np.union1d(rows, np.flatnonzero((last_draw_N > 0) & (last_draw_N <= latest)))
    stage_N = state.rows["lifecycle_N"] if lifecycle_N is None else lifecycle_N
    last_draw = last_draw_N[rows]
    waiting = (last_draw == 0) | (stage_N[rows] >= Lifecycle.MASTERED)
    due = due_now(position_N[rows], overdue_N[rows], waiting, state.train_draws, period)
    due |= (last_draw > 0) & (last_draw <= latest)
    due_N[rows] = due & state.pool.frame_N[rows] & ~state.quarantined_N[rows]
    return due_N


def _latest(state: RunState, period: int) -> int:
    """The largest `last_draw_N` with which a prompt is due by age."""
    return state.train_draws + 1 - late_after(period)


def plan_batch(state: RunState, request: DrawRequest, *, now: float) -> BatchDrawn:
    """A new batch. Raises RevisitImpossible, at the first train draw only, when the run's period cannot be kept."""
    config = state.config
    is_train = request.purpose is Purpose.TRAIN
    heldout = request.purpose is Purpose.HELDOUT
    frame_N = state.pool.heldout_N if heldout else state.frame_N
    period = _period(state, request, frame_N) if is_train else state.revisit_draws
    beliefs = state.pass_rates()
    informative_N = expected_informative(state, beliefs, request.group_size)
    lifecycle_N, rules = state.rows["lifecycle_N"], config.policy.lifecycle
    woken = np.zeros(0, np.int64)
    cohorts = list[dict[str, Any]]()
    if is_train and rules is not None:
        woken = waking_rows(lifecycle_N, beliefs, rules)
        lifecycle_N = lifecycle_N.copy()
        lifecycle_N[woken] = Lifecycle.ACTIVE
    due_N = due_revisits(state, period, lifecycle_N)
    frame = DrawFrame(
        frame_N=frame_N,
        blocked_N=blocked_rows(frame_N, state.in_flight_N),
        credit_N=state.rows["credit_N"] if is_train else np.zeros(state.num_rows, np.int32),
        resting_code_N=resting_codes(lifecycle_N),
        due_N=due_N,
        waited_N=_waited(state, due_N, period),
        stratum_N=_strata(state) if config.policy.quotas else None,
    )
    controlled = numbers_in_force(state, refill=request.refill) if is_train else {}
    in_force = controlled_policy(config.policy, controlled)
    policy = build_policy(in_force, weights=config.weights, advantage=config.advantage)
    plan = DrawPlan(
        size=request.size,
        group_size=request.group_size,
        divisor=request.divisor,
        audit_share=config.audit_share,
        short=request.short,
        allow_repeat=request.allow_repeat,
        review_share=config.review_share,
        floor=config.policy.floor,
        weights=config.weights,
        max_weight=config.max_weight,
        exact_uniform=policy.exact_uniform,
        top=config.policy.design == "top",
        candidates=config.policy.candidates,
        quotas=held_shares(state, request.size) if is_train else (),
        sampler=config.policy.sampler,
        seed=config.seed,
        purpose_code=PURPOSE_CODE[request.purpose],
        index=request.index,
        refill=request.refill,
    )
    if is_train:
        version = max(state.policy_version, request.policy_version)
        foreseen_N = foreseen(state, informative_N, request.group_size, version)
        cost_N = group_cost(state, config.policy.per, request.group_size)
        is_bare = cost_N is None and rules is None and config.policy.reads == "belief"
        power = policy.informative_power if is_bare else None
        utility_N = foreseen_N if power else _utility(state, policy, beliefs, foreseen_N, frame, plan)
        if cost_N is not None:
            utility_N = utility_N / cost_N
        if rules is not None:
            utility_N = utility_N * review_rate(lifecycle_N, state.rows["reviews_N"])
        drawn = draw(frame, utility_N, plan, power=power or 1)
        if rules is not None:
            could_N = (lifecycle_N == Lifecycle.MASTERED) & (drawn.expected_N > 0)
            mastered_N = state.rows["mastered_draw_N"]
            cohorts = find_cohorts(state.pool.category_N, mastered_N, could_N, drawn.rows_K)
    elif request.purpose is Purpose.PROBE and not request.allow_repeat:
        as_training = replace(plan, group_size=config.group_size)
        trained_N = informative_N
        if request.group_size != config.group_size:
            trained_N = expected_informative(state, beliefs, config.group_size)
        utility_N = _utility(state, policy, beliefs, trained_N, frame, as_training)
        drawn, stopping = draw_probes(state, frame, plan, without_probes(state, beliefs), trained_N, utility_N)
        event = _record(state, request, frame, beliefs, informative_N, drawn, period, now, weighted=False)
        return replace(event, wave=stopping)
    else:
        drawn = draw_uniform(frame, plan)
    event = _record(state, request, frame, beliefs, informative_N, drawn, period, now)
    if is_train and config.policy.budget is not None:
        event = spread(state, event, config.policy.budget)
    if is_train and config.rollout_store is not None:
        event = begun(state, event)
    rule = config.policy.wave if is_train else None
    wave = None if rule is None else asdict(rule)
    return replace(event, woken=woken.tolist(), cohorts=cohorts, wave=wave, controlled=controlled)


def _utility(
    state: RunState,
    policy: Policy,
    beliefs: Beliefs,
    informative_N: np.ndarray,
    frame: DrawFrame,
    plan: DrawPlan,
) -> np.ndarray:
    """(N,) what the policy says that a train ticket of each row is worth."""
    seen = read_beliefs(beliefs, state.config.policy.reads, frame, plan)
    if isinstance(policy, FactPolicy):
        utility_N = policy.utility(seen, group_size=plan.group_size, facts=row_facts(state))
    else:
        known_N = informative_N if seen is beliefs else None
        utility_N = policy.utility(seen, group_size=plan.group_size, informative_N=known_N)
    return with_reward_utility(state, policy, utility_N, frame, plan)


def spread(state: RunState, event: BatchDrawn, budget: BudgetConfig) -> BatchDrawn:
    """The batch with the rollouts of its train tickets spread by the budget; together they are as many as before."""
    budget.check_group_size(event.group_size)
    train = np.flatnonzero(~event.audit_K)
    size_K = np.full(len(event.row_K), event.group_size, np.int32)
    size_K[train] = spread_rollouts(
        event.pass_rate_K[train], event.variance_K[train], len(train) * event.group_size, budget
    )
    informative_K = np.empty(len(size_K))
    for size in np.unique(size_K).tolist():
        of_size = size_K == size
        binary = informative_probability(event.pass_rate_K[of_size], event.variance_K[of_size], size)
        rows = event.row_K[of_size]
        told = state.ties.adjusted(binary, state.pool.category_N[rows] + 1)
        informative_K[of_size] = with_rewards(state, told, size, rows)
    digest = hashlib.sha256(event.digest.encode() + np.ascontiguousarray(size_K, "<i4").tobytes()).hexdigest()
    return replace(event, group_size_K=size_K, informative_K=informative_K, digest=f"sha256:{digest}")


def _record(
    state: RunState,
    request: DrawRequest,
    frame: DrawFrame,
    beliefs: Beliefs,
    informative_N: np.ndarray,
    drawn: Drawn,
    period: int,
    now: float,
    *,
    weighted: bool = True,
) -> BatchDrawn:
    config, rows = state.config, drawn.rows_K
    is_train = request.purpose is Purpose.TRAIN
    base, ranges = {"pass": 0.0, "degenerate": 0.0}, dict[str, list[float]]()
    if is_train and len(rows):
        found = observation_ranges(
            inclusion=drawn.expected,
            credit_N=frame.credit_N,
            pass_rate_N=beliefs.mean_N,
            informative_N=informative_N,
            eligible_N=frame.eligible_N(allow_repeat=request.allow_repeat),
            num_tickets=drawn.most,
            num_audit=drawn.num_audit,
            frame=drawn.frame,
        )
        for name, of_one in zip(base, found, strict=True):
            base[name] = of_one.base
            ranges |= {name: list(of_one.reweighted), f"{name}_uniform": list(of_one.uniform)}
    carried = nonzero_rows(frame.credit_N)
    carried = carried[frame.frame_N[carried]]
    blocked = np.zeros(0, np.int64) if request.allow_repeat else nonzero_rows(frame.blocked_N)
    owing = blocked if len(rows) else carried
    category_C = np.zeros(len(state.pool.categories) + 1, np.int64)
    difficulty_D = np.zeros(NUM_DIFFICULTY_BINS, np.int64)
    pool_counts(state.pool.category_N, beliefs.mean_N, frame.frame_N, category_C, difficulty_D)
    weight_K = None if not weighted else drawn.weight_K if is_train else np.ones(len(rows))
    return BatchDrawn(
        branch=state.branch,
        purpose=request.purpose.value,
        index=request.index,
        refill=request.refill,
        requested=request.size,
        group_size=request.group_size,
        divisor=request.divisor,
        short=request.short,
        allow_repeat=request.allow_repeat,
        policy_version=request.policy_version,
        config_hash=state.config_hash,
        claim=claim_of(config).to_dict(),
        reason=drawn.reason,
        frame=drawn.frame,
        eligible=drawn.eligible,
        blocked=drawn.blocked,
        num_audit=drawn.num_audit,
        revisit_draws=period or None,
        row_K=rows,
        audit_K=drawn.audit_K,
        inclusion_K=drawn.inclusion_K,
        weight_K=weight_K,
        ht_weight_K=drawn.ht_weight_K,
        credit_K=frame.credit_N[rows],
        pass_rate_K=beliefs.mean_N[rows],
        variance_K=beliefs.variance_N[rows],
        informative_K=informative_N[rows],
        base_pass=base["pass"],
        base_degenerate=base["degenerate"],
        ranges=ranges,
        carried_credit=_credit(carried, frame.credit_N[carried], beliefs.mean_N, informative_N, drawn.frame),
        open_credit=_credit(
            owing, frame.credit_N[owing] + (1 if len(rows) else 0), beliefs.mean_N, informative_N, drawn.frame
        ),
        pool_category={str(code - 1): int(count) for code, count in enumerate(category_C) if count},
        pool_difficulty=difficulty_D.tolist(),
        deadline=None if config.ticket_ttl_s is None else now + config.ticket_ttl_s,
        digest=_digest(state, request, drawn, weight_K),
        spent=state.ledger.spent() if request.purpose is Purpose.HELDOUT else {},
        tokens_K=expected_tokens(state, rows),
    )


def difficulty_bins(pass_rate: np.ndarray) -> np.ndarray:
    """Bin of each predicted pass rate: ten equal ones over [0, 1], the last closed."""
    return np.minimum((pass_rate * NUM_DIFFICULTY_BINS).astype(np.int64), NUM_DIFFICULTY_BINS - 1)


def _period(state: RunState, request: DrawRequest, frame_N: np.ndarray) -> int:
    """The revisit period: fixed at the first train draw, from its size, or as the run asks if that can be kept."""
    if state.revisit_draws:
        return state.revisit_draws
    config, num_frame = state.config, int(np.count_nonzero(frame_N))
    num_audit = min(request.size, ceil(config.audit_share * request.size))
    smallest = revisit_draws(num_frame, config.review_share, request.size, num_audit)
    if config.revisit_draws is not None and config.revisit_draws < smallest:
        raise RevisitImpossible(
            f"revisit_draws {config.revisit_draws} is too small: with {num_frame} prompts, batches of {request.size} "
            f"and review_share {config.review_share}, each can be revisited every {smallest} draws at best"
        )
    return config.revisit_draws or smallest


def _waited(state: RunState, due_N: np.ndarray, period: int) -> np.ndarray:
    """(N,) draws since each prompt that is due became so, by age or by its turn; of other rows it says nothing."""
    waited_N, rows = np.empty(state.num_rows, np.int32), nonzero_rows(due_N)
    if len(rows):
        last_draw, latest = state.rows["last_draw_N"][rows], _latest(state, period)
        in_turn = waited(state.revisit_position_N[rows], state.train_draws, period)
        waited_N[rows] = np.where((last_draw > 0) & (last_draw <= latest), latest - last_draw, in_turn)
    return waited_N


def _strata(state: RunState) -> np.ndarray:
    """(N,) the quota of each prompt's category, counted from 1, and 0 for a category without one."""
    of_row_N: np.ndarray = stratum_of_category(state)[state.pool.category_N + 1]
    return of_row_N


def _credit(
    held: np.ndarray, credit: np.ndarray, pass_rate_N: np.ndarray, informative_N: np.ndarray, num_frame: int
) -> list[float]:
    """What blocked prompts are owed, per prompt of the frame: draws, and the part of each quantity predicted for
    them. held: their rows, credit: the draws that each is owed.
    """
    owed = credit.astype(np.float64)
    sums = (owed.sum(), owed @ pass_rate_N[held], owed @ (1.0 - informative_N[held]))
    return [float(value) / max(num_frame, 1) for value in sums]


def _digest(state: RunState, request: DrawRequest, drawn: Drawn, weight_K: np.ndarray | None) -> str:
    """SHA-256 over what was drawn; the same for equal draws of a run, on whatever branch."""
    digest = hashlib.sha256(f"{state.run}|{request.key}|{request.group_size}|{state.config_hash}".encode())
    keys, marks = state.pool.keys, np.where(drawn.audit_K, "1", "0").tolist()
    of_tickets = zip([keys[row] for row in drawn.rows_K.tolist()], marks, strict=True)
    digest.update("".join([f"|{len(key)}:{key}:{mark}" for key, mark in of_tickets]).encode())
    digest.update(np.ascontiguousarray(drawn.inclusion_K, np.float64).tobytes())
    if weight_K is not None:
        digest.update(np.ascontiguousarray(weight_K, np.float64).tobytes())
    return f"sha256:{digest.hexdigest()}"
