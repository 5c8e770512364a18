"""No file of the repository holds what opens something elsewhere."""

import re
import subprocess

import pytest

from tests.architecture.fresh import ROOT

# Forms that are secrets wherever they stand, each with its issuer's mark.
SECRETS = {
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE" rb" KEY-----",
    "a key of this service": rb"mb_[0-9a-f]{10}_[0-9a-f]{48}",
    "an AWS key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": rb"\b(?:gh[pousr]_[0-9A-Za-z]{36}|github_pat_[0-9A-Za-z_]{50,})",
    "a Hugging Face token": rb"\bhf_[0-9A-Za-z]{30,}",
    "a Slack token": rb"\bxox[abprs]-[0-9A-Za-z-]{10,}",
    "a key of a model's provider": rb"\bsk-[0-9A-Za-z_-]{32,}",
    "a token of a package registry": rb"\bpypi-[0-9A-Za-z_-]{50,}",
}


def found(content: bytes) -> list[str]:
    return [name for name, form in SECRETS.items() if re.search(form, content)]


def test_the_forms_are_recognised() -> None:
    assert found(b"key = mb_" + b"0123456789_" + b"ab" * 24) == ["a key of this service"]
    assert found(b"-----BEGIN RSA PRIVATE" + b" KEY-----") == ["a private key"]
    assert found(b"mb_0a1b2c3d4e, hf_hub, sk-learn") == []


def test_no_file_holds_a_secret() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout: git says which files are the repository's")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    files = [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    assert len(files) > 100
    assert {str(path): found(path.read_bytes()) for path in files if found(path.read_bytes())} == {}
