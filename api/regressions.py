"""What the API shows of mastered prompts that have regressed: alarms, and the audit's part on them.

Views call it. Pure functions from a run's state to JSON-ready values; the statistics are in
`selector.lifecycle.stating`.
"""

from typing import Any

from api.stages import LISTED_AT_MOST, state_names
from selector.lifecycle.stating import (
    FALSE_SHARE,
    RUN_LENGTH,
    CohortStatement,
    PromptStatement,
    state_prompts,
    state_regressions,
)
from selector.run.state import RunState

REPORTS_AS_THEY_COME = "whether a group has come back by the time one looks does not depend on its outcomes"


def regression_alarms(state: RunState) -> list[dict[str, Any]]:
    """Prompts that are listed as regressed, the strongest evidence first. Cohorts are the audit's, which looks at every
    draw; this is asked for after each step.
    """
    rules = state.config.policy.lifecycle
    if rules is None:
        return []
    return [
        {
            "alarm": "prompt_regressed",
            "detail": f"{found.passes:g} of {found.scored} passed since it was mastered at {rules.level:g}",
            **_regressed(state, found),
        }
        for found in state_prompts(state, rules)[1]
        if found.listed
    ]


def regressions_info(state: RunState) -> dict[str, Any] | None:
    """What the reviews of mastered prompts allow to be said, and what is claimed of it."""
    found = state_regressions(state)
    if found is None:
        return None
    listed = [p for p in found.prompts if p.listed]
    detected = [p for p in found.prompts if p.detected]
    return {
        "level": found.level,
        "claims": {
            "listed": f"at most {FALSE_SHARE:g} of what is listed at any one time is so wrongly, on average: of the "
            "prompts, that the pass rate was at the level at each review since they were mastered; of the cohorts, "
            "that the mean pass rate of their members was at each draw",
            "detected": f"for a prompt that stays at the level, {RUN_LENGTH} reviews or more on average until it is "
            "detected wrongly",
            "condition": REPORTS_AS_THEY_COME,
        },
        "followed": found.num_prompts,
        "listed": [_regressed(state, p) for p in listed[:LISTED_AT_MOST]],
        "num_listed": len(listed),
        "detected": [_regressed(state, p) for p in detected[:LISTED_AT_MOST]],
        "num_detected": len(detected),
        "cohorts": [{**_cohort(c), "listed": c.listed} for c in found.cohorts[:LISTED_AT_MOST]],
        "num_cohorts": len(found.cohorts),
    }


def _regressed(state: RunState, found: PromptStatement) -> dict[str, Any]:
    return {
        "prompt": state.pool.keys[found.row],
        "state": state_names(state, [found.row])[0],
        "reviews": found.reviews,
        "passes": found.passes,
        "scored": found.scored,
        "log_e_value": found.log_e,
    }


def _cohort(found: CohortStatement) -> dict[str, Any]:
    return {
        "category": found.category,
        "mastered_in": list(found.mastered_in),
        "members": found.members,
        "draws": found.draws,
        "reviews": found.reviews,
        "log_e_value": found.log_e,
    }
