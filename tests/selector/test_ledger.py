"""The ledger's sums: one source at a time, nothing lost, nothing twice."""

import json

from selector.ledger import PHASES, Ledger
from selector.types import SOURCES, Source


def test_a_new_ledger_has_every_source_and_phase_at_zero() -> None:
    ledger = Ledger()

    assert ledger.tokens == dict.fromkeys(SOURCES, 0)
    assert ledger.rollouts == dict.fromkeys(SOURCES, 0)
    assert ledger.seconds == dict.fromkeys(PHASES, 0.0)


def test_what_moves_keeps_the_total() -> None:
    ledger = Ledger()
    ledger.add(Source.TRAIN, tokens=100, rollouts=4)
    ledger.add(Source.AUDIT, tokens=20, rollouts=1)

    ledger.move(Source.TRAIN, Source.REJECTED, tokens=30, rollouts=1)
    ledger.move(Source.REJECTED, Source.LOST, tokens=5, rollouts=0)

    assert {source: n for source, n in ledger.tokens.items() if n} == {
        Source.TRAIN: 70,
        Source.AUDIT: 20,
        Source.REJECTED: 25,
        Source.LOST: 5,
    }
    assert sum(ledger.tokens.values()) == 120
    assert sum(ledger.rollouts.values()) == 5


def test_seconds_add_up_by_phase_and_the_environment_over_its_parts() -> None:
    ledger = Ledger()

    ledger.add_costs({"generation_s": 2.5, "environment_s": {"reset": 1.0, "act": 0.5}, "accelerators": 8})
    ledger.add_costs({"generation_s": 0.5, "update_s": 4.0, "environment_s": {}, "scoring_s": None})

    assert {phase: s for phase, s in ledger.seconds.items() if s} == {
        "generation": 3.0,
        "environment": 1.5,
        "update": 4.0,
    }


def test_the_ledger_comes_back_from_its_json() -> None:
    ledger = Ledger()
    ledger.add(Source.PROBE, tokens=7, rollouts=1)
    ledger.add_costs({"weight_sync_s": 0.25})
    ledger.statuses["scored"] += 3

    again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))

    assert again == ledger
