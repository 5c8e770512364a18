"""What the tests of waves in a run share: rules, a run under one, and what it answered and recorded."""

from selector.config import RunConfig
from selector.groups.reports import Decision
from selector.groups.standing import what_next
from selector.run.state import RunState
from selector.types import TicketState
from selector.waves import WaveConfig
from tests.selector.engine_cases import Session, make_config, make_policy, make_pool

SCREEN = WaveConfig(rule="screen", first=2)
UNTIL = WaveConfig(rule="until_success", first=2, step=2)
PILOT = WaveConfig(rule="pilot", first=4, low=0.25, high=0.75)


def config_of(wave: WaveConfig, **changes: object) -> RunConfig:
    return make_config(make_policy(wave=wave), **({"group_size": 6} | changes))


def begin(wave: WaveConfig, **changes: object) -> Session:
    session = Session(config_of(wave, **changes), make_pool(8))
    session.draw(0, 2)
    return session


def told(session: Session, decision: Decision) -> list[tuple[str, int]]:
    return [
        ("stop", 0) if ticket is None else what_next(session.state, ticket, reached)
        for (_, ticket), reached in zip(decision.tickets, decision.reached, strict=True)
    ]


def state_of(session: Session, ticket: int = 0) -> TicketState:
    return TicketState(session.ticket(ticket)["state"])


def decisions(state: RunState) -> list[tuple[int, ...]]:
    table = state.book.decisions
    names = ("ticket", "attempt", "wave", "right", "scored", "verdict", "more")
    return list(zip(*(table[name].tolist() for name in names), strict=True))
