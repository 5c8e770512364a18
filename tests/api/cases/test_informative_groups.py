"""What a run counts as informative: groups drawn to be trained on or to inform, and no look at the held-out split."""

import pytest

from tests.api.harness import Http, group, held_out, prompts

MIXED = [1.0, 0.0] * 4


@pytest.mark.parametrize(
    ("purpose", "counted"), [("train", 2), ("audit", 2), ("probe", 2), ("heldout", 0), ("control", 0)]
)
def test_informative_counts_the_purposes_that_inform(http: Http, purpose: str, counted: int) -> None:
    http.pool([*prompts(8), *held_out(4)])
    http.run()
    batch = http.draw(0, 2, purpose=purpose)
    http.report(*(group(ticket, MIXED) for ticket in batch["tickets"]))

    info = http.info()

    assert info["tickets"]["reported"] == 2
    rate = 1.0 if counted else None
    expected = {"groups": counted, "reported_groups": counted, "rate": rate, "disagreements": 0}
    assert info["informative"] == expected
