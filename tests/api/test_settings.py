"""Settings: read from the environment, refused at the start, shown without secrets."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from api.settings import Settings, default_database_url, shown_url
from tests.architecture.fresh import ROOT

WITH_PASSWORD = "postgresql://midband:tops3cret@db.example/midband"


@pytest.fixture(autouse=True)
def _no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"MIDBAND_{name.upper()}", raising=False)


def test_the_list_of_settings_is_pinned() -> None:
    assert set(Settings.model_fields) == {
        "database_url", "host", "port", "max_body_bytes", "max_import_bytes", "log_level",
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
def test_a_loopback_host_is_accepted(host: str) -> None:
    assert Settings(host=host).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", ""])
def test_any_other_host_is_refused_with_the_remedy(host: str) -> None:
    with pytest.raises(ValidationError, match=r"not a loopback address.*127\.0\.0\.1") as refusal:
        Settings(host=host)
    assert repr(host) in str(refusal.value)


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
        Settings(database_url="postgresql//midband:tops3cret@db", host="10.0.0.7")
    assert "tops3cret" not in str(refusal.value)


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]
