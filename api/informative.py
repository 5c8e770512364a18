"""Which groups a run's share of informative ones is of: those that were drawn to be trained on, or to inform.

Views and metrics call it. Looks at the held-out split and control arms are another question, and in no such share.
"""

from typing import Any

import numpy as np

from selector.run.state import RunState
from selector.types import PURPOSE_CODE, PURPOSES, UNSEEN_BY_BELIEFS, TicketState

INFORMING = tuple(PURPOSE_CODE[purpose] for purpose in PURPOSES if purpose not in UNSEEN_BY_BELIEFS)


def informing_reported(state: RunState) -> np.ndarray:
    """Mask of the run's tickets: reported, with one of these purposes."""
    table = state.book.tickets
    reported: np.ndarray = (table["state"] == TicketState.REPORTED) & np.isin(table["purpose"], INFORMING)
    return reported


def informative_counts(state: RunState) -> dict[str, Any]:
    """As the contract names them."""
    table, judged = state.book.tickets, informing_reported(state)
    groups, reported = int(np.count_nonzero(table["informative"][judged] == 1)), int(np.count_nonzero(judged))
    return {
        "groups": groups,
        "reported_groups": reported,
        "rate": groups / reported if reported else None,
        "disagreements": int(np.count_nonzero(table["disagrees"][judged])),
    }
