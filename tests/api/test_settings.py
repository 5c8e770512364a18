"""Settings: read from the environment, refused at the start, shown without secrets."""

import socket
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from api.settings import Settings, default_database_url, is_loopback, shown_url
from tests.architecture.fresh import ROOT

WITH_PASSWORD = "postgresql://midband:tops3cret@db.example/midband"


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"MIDBAND_{name.upper()}", raising=False)


def test_the_list_of_settings_is_pinned() -> None:
    assert set(Settings.model_fields) == {
        "database_url", "host", "port", "advertise", "max_body_bytes", "max_import_bytes", "cors_origins", "log_level",
    }  # fmt: skip


def test_every_setting_has_a_row_in_the_page() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert [name for name in Settings.model_fields if f"| `MIDBAND_{name.upper()}` |" not in page] == []


def test_a_setting_comes_from_the_environment_and_a_flag_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDBAND_PORT", "9000")
    monkeypatch.setenv("MIDBAND_LOG_LEVEL", "WARNING")
    assert (Settings().port, Settings().log_level) == (9000, "warning")
    assert Settings(port=9001).port == 9001


def test_the_default_database_is_in_the_users_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings().database_url == f"sqlite:///{tmp_path}/midband/midband.db"
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_database_url() == f"sqlite:///{tmp_path}/home/.local/share/midband/midband.db"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_a_loopback_host_is_known_as_one(host: str) -> None:
    assert is_loopback(Settings(host=host).host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", "localhost.example.org"])
def test_any_other_host_is_known_as_one_that_others_reach(host: str) -> None:
    assert not is_loopback(Settings(host=host).host)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, "http://127.0.0.1:8765"),
        ({"host": "10.0.0.7", "port": 9000}, "http://10.0.0.7:9000"),
        ({"host": "::1"}, "http://[::1]:8765"),
        ({"host": "0.0.0.0"}, f"http://{socket.gethostname()}:8765"),
        ({"host": "::"}, f"http://{socket.gethostname()}:8765"),
        ({"advertise": "https://midband.lab.example"}, "https://midband.lab.example"),
        ({"advertise": "http://10.0.0.7:80/midband/", "host": "0.0.0.0"}, "http://10.0.0.7:80/midband"),
    ],
)
def test_other_servers_send_callers_to_what_is_advertised(given: dict[str, Any], address: str) -> None:
    assert Settings(**given).address == address


@pytest.mark.parametrize(
    "value", ["10.0.0.7:80", "ftp://x", "http://", "http://user:secret@x", "http://x?y", "http://x#y", "http://a b", ""]
)
def test_an_address_that_no_caller_can_be_sent_to_is_refused(value: str) -> None:
    with pytest.raises(ValidationError, match=r"advertise[\s\S]*not an address that callers can be sent to") as caught:
        Settings(advertise=value)
    assert "secret" not in str(caught.value)


def test_an_empty_host_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValidationError, match=r"would listen everywhere: write 127\.0\.0\.1"):
        Settings(host="")


def test_origins_are_a_list_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().cors_origins == ()
    monkeypatch.setenv("MIDBAND_CORS_ORIGINS", "https://lab.example, http://10.0.0.7:3000,")
    assert Settings().cors_origins == ("https://lab.example", "http://10.0.0.7:3000")


@pytest.mark.parametrize(
    "origin", ["*", "lab.example", "https://lab.example/", "https://*.example", "null", "https://"]
)
def test_an_origin_that_is_none_is_refused_by_name(origin: str) -> None:
    with pytest.raises(ValidationError, match="no origin: write https://host") as refusal:
        Settings(cors_origins=("https://lab.example", origin))
    assert repr(origin) in str(refusal.value)


@pytest.mark.parametrize("url", ["", "midband.db", "not a url"])
def test_a_database_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="not a database URL; write sqlite:////"):
        Settings(database_url=url)


@pytest.mark.parametrize("values", [{"port": 70_000}, {"max_body_bytes": 0}, {"log_level": "loud"}, {"prot": 1}])
def test_a_value_out_of_range_or_an_unknown_name_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(values)


def test_a_password_is_in_no_text_about_the_settings() -> None:
    settings = Settings(database_url=WITH_PASSWORD)
    assert settings.database_url == WITH_PASSWORD
    for text in (repr(settings), str(settings), shown_url(WITH_PASSWORD)):
        assert "tops3cret" not in text
        assert "midband:***@db.example" in text


def test_a_password_is_not_in_the_message_about_another_fault() -> None:
    with pytest.raises(ValidationError) as refusal:
        Settings(database_url="postgresql//midband:tops3cret@db", host="")
    assert "tops3cret" not in str(refusal.value)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]
