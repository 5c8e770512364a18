"""Changes in mid-run: of the configuration, of the pool, of what is known of a prompt."""

import numpy as np
import pytest

from selector.errors import EstimatorFixed
from selector.types import Lifecycle, TicketState, VoidReason
from tests.selector.engine_cases import HORVITZ, MIXED, Session, coin, make_config, make_policy, make_pool, rollouts


def test_a_change_of_configuration_begins_a_new_segment() -> None:
    session = Session(make_config(**HORVITZ), make_pool(40))
    session.draw(0, 4)
    before = session.state.config_hash

    session.configure(weights="none", audit_share=0.5)
    event = session.draw(1, 4).event

    assert session.state.config_hash != before
    assert session.state.segment_start == 4
    assert event.config_hash == session.state.config_hash == session.state.config.config_hash()
    assert event.num_audit == 2
    assert event.claim["type"] == "modified"
    assert session.draw(0, 4).event.config_hash == before


def test_a_change_that_changes_nothing_is_no_event() -> None:
    session = Session()

    session.configure(audit_share=session.state.config.audit_share)

    assert session.state.seq == 2


def test_the_estimator_of_a_run_cannot_change() -> None:
    session = Session()

    with pytest.raises(EstimatorFixed, match="kalman_arcsine"):
        session.configure(policy=make_policy(estimator="kalman_arcsine", estimator_options={}))


def test_a_pool_edit_is_seen_by_the_next_draw_and_history_stays() -> None:
    """Prompts go and come; what is known of the others stays theirs."""
    session = Session(make_config(), make_pool(10))
    session.answer_batch(session.draw(0, 10), lambda row, index, n: float(n < row % 5))
    means = session.state.beliefs().mean_N

    session.revise(make_pool(14, revision=2, absent=[0, 1], quarantined=[2]))
    event = session.draw(1, 14).event

    assert sorted(event.row_K.tolist()) == list(range(3, 14))
    assert event.frame == 11
    assert session.state.beliefs().mean_N[:10].tolist() == means.tolist()
    assert session.state.rows["lifecycle_N"][10:].tolist() == [Lifecycle.NEW] * 4

    session.answer_batch(session.state.batches[1], coin(1, np.full(14, 0.5)))
    session.revise(make_pool(14, revision=3))
    assert session.draw(2, 14).event.frame == 14


def test_a_report_for_a_prompt_that_left_the_pool_still_counts() -> None:
    session = Session(make_config(), make_pool(4))
    session.draw(0, 4)
    session.revise(make_pool(4, revision=2, absent=range(4)))

    session.report(0, rollouts(*MIXED))

    assert session.ticket(0)["state"] == TicketState.REPORTED
    assert session.state.rows["groups_N"].sum() == 1


def test_a_prompt_becomes_active_with_its_first_group() -> None:
    session = Session(make_config())
    batch = session.draw(0, 3)
    session.report(0, rollouts(*MIXED))
    session.void(1, VoidReason.LOST)

    stages = session.state.rows["lifecycle_N"][batch.event.row_K]

    assert stages.tolist() == [Lifecycle.ACTIVE, Lifecycle.NEW, Lifecycle.NEW]
