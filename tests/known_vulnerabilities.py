"""Says which installed packages have known vulnerabilities, and fails if one has.

`make check` runs it. It asks OSV, a public service, by pip-audit; where that cannot be reached, which is no fault of a
change, it says that nothing was scanned and passes. What pip-audit itself fails of is a failure here too.
"""

import json
import subprocess
import sys
from dataclasses import dataclass

COMMAND = [
    sys.executable, "-m", "pip_audit", "--vulnerability-service", "osv", "--skip-editable", "--progress-spinner", "off",
    "--timeout", "10", "--format", "json",
]  # fmt: skip
UNREACHABLE = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ServiceError")  # last words of its error


@dataclass(frozen=True, slots=True)
class Verdict:
    """What there is to say, and whether the scan failed."""

    text: str
    failed: bool


def verdict(returncode: int, output: str, errors: str) -> Verdict:
    """Reads pip-audit's answer: a JSON document, or no output where it could not scan. It exits with 1 in both cases.

    >>> verdict(1, "", "requests.exceptions.ConnectionError: no such host").failed
    False
    """
    if not output.strip():
        last = errors.strip().splitlines()[-1:] or ["it said nothing"]
        if any(word in last[0] for word in UNREACHABLE):
            return Verdict("dependencies were not scanned: the service of known vulnerabilities was not reached", False)
        return Verdict(f"pip-audit failed with exit code {returncode}: {last[0]}", True)
    packages = json.loads(output)["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'none'}"
        for package in packages
        for one in package.get("vulns", [])
    ]
    scanned = sum("vulns" in package for package in packages)
    if found:
        return Verdict("\n".join(["known vulnerabilities of what is installed:", *found]), True)
    return Verdict(f"no known vulnerability in {scanned} installed packages", False)


if __name__ == "__main__":
    answer = subprocess.run(COMMAND, capture_output=True, text=True, check=False)
    said = verdict(answer.returncode, answer.stdout, answer.stderr)
    sys.stdout.write(said.text + "\n")
    sys.exit(said.failed)
