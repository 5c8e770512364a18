"""Groups taken at once against the same groups looked at rollout by rollout."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selector.groups.deciding import decide
from selector.groups.reports import GroupIn, Report, RolloutIn
from selector.run.events import RolloutsReported
from selector.types import RolloutStatus, VoidReason
from selector.waves import WaveConfig
from tests.selector.engine_cases import Session, make_config, make_policy, rollouts

SIZE = 4

outcomes = st.none() | st.sampled_from([0.0, 0.5, 1.0])
values = st.builds(
    RolloutIn,
    n=st.none() | st.integers(0, SIZE),
    id=st.none() | st.none() | st.sampled_from(["a", "b"]),
    outcome=outcomes,
    reward=st.none() | st.floats(-2, 2),
    status=st.sampled_from(list(RolloutStatus)),
    tokens=st.none() | st.integers(0, 9),
    seconds=st.none() | st.floats(0, 9),
    fragment=st.sampled_from([0, 0, 0, 1]),
    rewards=st.none() | st.just({"format": 1.0}),
    version=st.none() | st.none() | st.just((4, 5)),
)
plain = st.builds(RolloutIn, outcome=outcomes, reward=outcomes, tokens=st.none() | st.integers(0, 9))
versions = st.none() | st.sampled_from([(5, 5), (3, 5), (0, 0), (9, 9)])


def reports(session: Session) -> st.SearchStrategy[Report]:
    """Reports on few tickets, some of them named twice, some unknown, some of which something is in already."""
    names = [session.state.ticket_id(ticket) for ticket in range(4)] + ["p:0:train:7:0:0", "other:0:train:0:0:0"]
    group = st.builds(
        GroupIn,
        ticket=st.sampled_from(names),
        attempt=st.none() | st.sampled_from([1, 2]),
        final=st.just(True),
        void=st.none() | st.none() | st.just(VoidReason.SURPLUS),
        version=versions,
        rollouts=st.lists(plain, min_size=SIZE, max_size=SIZE) | st.lists(values, max_size=SIZE),
    )
    return st.builds(Report, groups=st.lists(group, min_size=1, max_size=6), version=versions)


def partly_reported(**config: Any) -> Session:
    session = Session(make_config(**config))
    session.draw(0, 4, policy_version=5)
    session.report(0, rollouts(1.0, 0.0, 0.0, 1.0))
    return session


@pytest.mark.parametrize(
    "config", [{}, {"max_lag": 2}, {"policy": make_policy(wave=WaveConfig(rule="screen", first=2))}]
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_same_is_decided_either_way(
    config: dict[str, Any], data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = partly_reported(**config)
    report = data.draw(reports(session))

    found = decide(session.state, report)
    with monkeypatch.context() as patch:
        patch.setattr("selector.groups.deciding.untouched", lambda state, tickets: {})
        wanted = decide(session.state, report)

    assert found == wanted
    if isinstance(found.event, RolloutsReported):
        assert repr(found.event) == repr(wanted.event)  # the types too: they are what is written into the log
