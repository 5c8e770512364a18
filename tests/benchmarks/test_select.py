"""The benchmark of draws says what it has to, in its quick form."""

import json
import subprocess
import sys

from selector.policies import PRESETS
from tests.benchmarks.select import POLICIES, QUICK_POOLS


def test_a_quick_run_compares_every_policy_with_a_pass_and_with_what_trainers_do_today() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.select", "--quick", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = [json.loads(line) for line in done.stdout.splitlines()]

    draws = {(figure["case"], figure["n"]) for figure in figures if figure["metric"].startswith("draw of 512")}
    policies = [policy for policy in POLICIES if policy in PRESETS]
    assert {(policy, size) for policy in policies for size in QUICK_POOLS} <= draws
    assert len(draws) == (len(policies) + 2) * len(QUICK_POOLS)
    assert all(figure["benchmark"] == "select" and figure["value"] >= 0 for figure in figures)
    assert all(figure["ratio"] == figure["value"] / figure["reference"]["value"] for figure in figures)
    looped = [figure["setting"] for figure in figures if "loop" in figure["case"]]
    assert [setting["extrapolated"] for setting in looped] == [False, True]
    assert sum(figure["metric"].startswith("growth of memory") for figure in figures) == 1
