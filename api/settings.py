"""What a person can set: environment variables with the prefix MIDBAND_, validated once when the service starts.

`create_app` and the command make one `Settings` and hand it on; nothing else reads the environment. Each setting is
described in docs/settings.md.
"""

import ipaddress
import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

MIB = 2**20
DEFAULT_PORT = 8765
ORIGIN = re.compile(r"https?://[^\s/?#@*,]+")  # as a browser writes it: no path, not even a slash

ADDRESS = re.compile(r"https?://[^\s/?#@*,]+(/[^\s?#]*)?")
EVERYWHERE = frozenset({"0.0.0.0", "::"})  # hosts to listen on that nobody can be sent to


def default_database_url() -> str:
    """A SQLite file in the user's data folder: $XDG_DATA_HOME/midband, or ~/.local/share/midband."""
    # The XDG rules say that a relative path is to be ignored.
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if home.startswith("/") else Path.home() / ".local" / "share"
    return f"sqlite:///{base / 'midband' / 'midband.db'}"


class Settings(BaseSettings):
    """The service's settings. A flag of the command overrides the environment, which overrides the default."""

    model_config = SettingsConfigDict(
        env_prefix="MIDBAND_",
        frozen=True,
        extra="forbid",
        # A refused database URL may hold a password: the message must not repeat what was typed.
        hide_input_in_errors=True,
    )

    database_url: str = Field(default_factory=default_database_url)
    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65_535)
    advertise: str | None = None
    max_body_bytes: int = Field(default=64 * MIB, ge=1_024)
    max_import_bytes: int = Field(default=2_048 * MIB, ge=1_024)
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("database_url")
    @classmethod
    def _is_a_url(cls, value: str) -> str:
        try:
            make_url(value)
        except ArgumentError:
            raise ValueError(
                "not a database URL; write sqlite:////absolute/path/midband.db or postgresql://user@host/database"
            ) from None
        return value

    @field_validator("host")
    @classmethod
    def _is_given(cls, value: str) -> str:
        if not value:
            raise ValueError("empty, which would listen everywhere: write 127.0.0.1, or 0.0.0.0 if that is meant")
        return value

    @field_validator("advertise")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and ADDRESS.fullmatch(value) is None:
            raise ValueError(
                "not an address that callers can be sent to: write http://host:port or https://host, without a password"
            )
        return None if value is None else value.rstrip("/")

    @property
    def address(self) -> str:
        """Where other servers of the database send callers: as advertised, else by host and port."""
        if self.advertise is not None:
            return self.advertise
        host = socket.gethostname() if self.host in EVERYWHERE else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if ORIGIN.fullmatch(origin) is None:
                raise ValueError(
                    f"{origin!r} is no origin: write https://host or http://host:port, each website by name"
                )
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, shown_url(value) if name == "database_url" else value


def shown_url(url: str) -> str:
    """A database URL fit for logs and messages: its password is replaced by stars."""
    return make_url(url).render_as_string(hide_password=True)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a service that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
