"""What an operator can set: by flag, by environment, or in a TOML file; the first of them wins."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

PREFIX: Final = "QINDEX_SERVE_"
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "confirm": ("durable", "written"),
    "log": ("debug", "info", "warning", "error"),
    "log_format": ("text", "json"),
}
RELOADED: Final = ("log", "log_format", "log_file", "audit_file")
"""What counts at once when the file is read again; all else needs a start."""


class SettingsError(ValueError):
    """A setting is not known, or has a value that it cannot have; the text says where."""


@dataclass(frozen=True, slots=True)
class Settings:
    amqp: str = "127.0.0.1:5672"
    gmq: str = "none"
    gmq_http: str = "none"
    gmq_pop_seconds: str = "2"
    http: str = "none"
    http_host: str = ""  # names, with commas between them
    confirm: str = "durable"
    log: str = "info"
    log_format: str = "text"
    log_file: str = ""  # empty: stderr
    audit_file: str = ""  # empty: with the log


NAMES: Final = tuple(each.name for each in fields(Settings))


def read_settings(
    flags: Mapping[str, str | None], environment: Mapping[str, str], file: str | None
) -> Settings:
    """All settings. `flags` has None for those that were not given. SettingsError, OSError."""
    found: dict[str, str] = {} if file is None else _of_file(file)
    for name in NAMES:
        variable = PREFIX + name.upper()
        if variable in environment:
            found[name] = _checked(name, environment[variable], variable)
    for variable in environment:
        if variable.startswith(PREFIX) and variable[len(PREFIX) :].lower() not in NAMES:
            known = [PREFIX + name.upper() for name in NAMES]
            raise SettingsError(_unknown("variable", variable, known))
    found |= {name: value for name, value in flags.items() if value is not None}
    return Settings(**found)


HOST: Final = "127.0.0.1"
PORTS: Final = {"amqp": 5672, "gmq": 9503, "gmq-http": 9504, "http": 15672}
"""The doors, by the names of their flags, and the ports that clients expect."""


def addresses(settings: Settings) -> dict[str, tuple[str, int]]:
    """Where to listen for what: doors that are "none" are left out. SettingsError."""
    wanted = {name: getattr(settings, name.replace("-", "_")) for name in PORTS}
    return {
        name: address(text, f"--{name}", PORTS[name])
        for name, text in wanted.items()
        if text != "none" or name == "amqp"
    }


def hosts(settings: Settings) -> list[str]:
    """The names of this machine that HTTP clients may use besides its own."""
    return [name.strip() for name in settings.http_host.split(",") if name.strip()]


POP_SECONDS_MAX: Final = 86_400.0


def pop_seconds(settings: Settings) -> float:
    """How long a pop of gmq's version 1 waits for a job. SettingsError."""
    try:
        found = float(settings.gmq_pop_seconds)
    except ValueError:
        found = -1.0
    if not 0 <= found <= POP_SECONDS_MAX:
        what = f"a number of seconds from 0 to {POP_SECONDS_MAX:.0f}"
        raise SettingsError(f"--gmq-pop-seconds is {what}, not {settings.gmq_pop_seconds!r}")
    return found


def address(text: str, option: str, usual: int) -> tuple[str, int]:
    """HOST:PORT as a pair. SettingsError names the option."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"{option} takes HOST:PORT, as {HOST}:{usual}, not {text!r}")
    return host, int(port)


def _of_file(file: str) -> dict[str, str]:
    try:
        told: dict[str, Any] = tomllib.loads(Path(file).read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: {error}") from None
    found = {}
    for key, value in told.items():
        name = key.replace("-", "_")
        if name not in NAMES or "_" in key:
            known = [name.replace("_", "-") for name in NAMES]
            raise SettingsError(f"{file}: {_unknown('setting', key, known)}")
        found[name] = _checked(name, value, f"{file}: {key}")
    return found


def _unknown(what: str, name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    hint = f"is it {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"unknown {what} {name!r}; {hint}"


def _checked(name: str, value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise SettingsError(f"{where}: a text is needed, not {value!r}")
    choices = CHOICES.get(name)
    if choices is not None and value not in choices:
        raise SettingsError(f"{where}: {value!r} is none of {', '.join(choices)}")
    return value
