"""The dependency scan fails of what it finds, and only of that where the network is away."""

import json

from tests.known_vulnerabilities import verdict


def test_a_package_with_a_known_vulnerability_fails_the_scan_and_is_named_with_its_remedy() -> None:
    vulnerable = {"name": "left", "version": "1.0", "vulns": [{"id": "GHSA-1", "fix_versions": ["1.1", "2.0"]}]}
    unfixed = {"name": "right", "version": "3.0", "vulns": [{"id": "PYSEC-2", "fix_versions": []}]}
    sound = {"name": "middle", "version": "2.0", "vulns": []}
    said = verdict(1, json.dumps({"dependencies": [vulnerable, sound, unfixed]}), "Found 2 known vulnerabilities")
    assert said.failed
    assert said.text.splitlines()[1:] == [
        "left 1.0: GHSA-1, fixed in 1.1, 2.0",
        "right 3.0: PYSEC-2, fixed in none",
    ]


def test_sound_packages_pass_and_those_that_could_not_be_looked_up_are_not_counted() -> None:
    packages = [
        {"name": "sound", "version": "2.0", "vulns": []},
        {"name": "midband", "skip_reason": "distribution marked as editable"},
    ]
    said = verdict(0, json.dumps({"dependencies": packages}), "")
    assert (said.failed, said.text) == (False, "no known vulnerability in 1 installed packages")


def test_without_the_network_it_says_that_nothing_was_scanned() -> None:
    errors = "Traceback (most recent call last):\n  ...\nrequests.exceptions.ConnectionError: Failed to resolve a host"
    said = verdict(1, "", errors)
    assert not said.failed
    assert said.text.startswith("dependencies were not scanned")


def test_any_other_failure_of_the_scanner_is_a_failure() -> None:
    assert verdict(2, "", "usage: pip-audit\npip-audit: error: unrecognized arguments").failed
    assert verdict(1, "", "").failed
