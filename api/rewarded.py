"""What the API shows of prompts that have rewards and no outcomes, beside their beliefs. Called by `views`."""

from typing import Any

import numpy as np

from predictors.base import Source
from selector.beliefs.rewarded import reward_beliefs, reward_rows
from selector.run.state import RunState

REWARD_COLUMNS = ("reward_mean", "reward_sd")


def with_rewards_shown(state: RunState, columns: dict[str, Any], rows: np.ndarray | None) -> dict[str, Any]:
    """The columns of beliefs with `reward_mean` and `reward_sd`, the deviation of siblings, NaN where no rewards are
    known of. A prompt that has rewards of its own is of source `own`; `n_eff` and `lag` are then those of its rewards.
    """
    size = len(columns["key"])
    shown = {name: np.full(size, np.nan) for name in REWARD_COLUMNS}
    by_reward_N = reward_rows(state)
    if by_reward_N is None:
        return {**columns, **shown}
    chosen = np.arange(state.num_rows) if rows is None else rows
    at = np.flatnonzero(by_reward_N[chosen])
    found = reward_beliefs(state, state.config.group_size, chosen[at])
    shown["reward_mean"][at], shown["reward_sd"][at] = found.mean_N, np.sqrt(found.variance_N)
    own = found.n_eff_N > 0.0
    source = list(columns["source"])
    for place in at[own].tolist():
        source[place] = Source.OWN.value
    n_eff, lag = np.array(columns["n_eff"]), np.array(columns["lag"])
    n_eff[at[own]], lag[at[own]] = found.n_eff_N[own], found.lag_N[own]
    return {**columns, "n_eff": n_eff, "lag": lag, "source": source, **shown}
