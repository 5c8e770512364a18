"""`midband serve --ray` and `midband ray` where something they need is missing: one line, before anything is begun."""

import sys
from typing import Any

import pytest
from typer.testing import CliRunner

import midband


def command(*arguments: str) -> Any:
    return CliRunner().invoke(midband.app, [*arguments], catch_exceptions=False)


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "api.cluster.ray", raising=False)
    monkeypatch.delattr("api.cluster.ray", raising=False)


def refused(done: Any, *words: str) -> None:
    assert done.exit_code == 1
    assert done.stderr.startswith("midband: ")
    assert done.stderr.count("\n") == 1
    assert [word for word in words if word not in done.stderr] == []


def test_a_sqlite_file_is_not_served_on_ray(sqlite_url: str, tmp_path: Any) -> None:
    done = command("serve", "--ray", "--database-url", sqlite_url)
    refused(done, "has one server, and on Ray there are several processes", "PostgreSQL", "without --ray")
    assert not (tmp_path / "midband.db").exists()


def test_without_ray_both_commands_say_what_to_install(no_ray: None) -> None:
    words = "ray: pip install 'midband[ray]'"
    done = command("serve", "--ray", "--database-url", "postgresql://user:secret@nowhere/midband")
    refused(done, "serving on Ray needs", words)
    assert "secret" not in done.stderr
    refused(command("ray"), "looking at a Ray cluster needs", words)


def test_replicas_are_those_of_an_edge(sqlite_url: str) -> None:
    refused(command("serve", "--replicas", "2", "--database-url", sqlite_url), "--replicas is for --ray")
