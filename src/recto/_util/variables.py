"""Read variables from the environment and from settings files, and parse their values.

Anyone can write the `.env` of a cloned repository. It can therefore neither redirect a key to another address
nor set the variables of a service.
"""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recto.errors import ConfigurationError

ENVIRONMENT = "the environment"
_TRUSTED_PLACES = f"{ENVIRONMENT} or in ~/.config/recto/env"
_PROJECT_ROOTS = ("pyproject.toml", ".git")
_MAX_BYTES = 64 * 1024  # of a settings file; without a limit, a hostile one fills the memory


class VariableSource(NamedTuple):
    """A place that variables were read from: the environment, or a file."""

    name: str
    values: dict[str, str]
    ignored: tuple[str, ...] = ()
    """Variables that this place has but cannot set."""
    is_project: bool = False
    """Whether it belongs to the project, so that others may have written it."""


class Variables(ChainMap[str, str]):
    """Variables and the places that they were read from, the most trusted first."""

    def __init__(self, *sources: VariableSource) -> None:
        super().__init__(*(source.values for source in sources))
        self.sources = sources

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were read."""
        return tuple(source.name for source in self.sources if source.name != ENVIRONMENT)

    @property
    def warnings(self) -> list[str]:
        """The variables that were ignored, and where to set them instead."""
        return [
            f"{name} in {source.name} is ignored: set it in {_TRUSTED_PLACES}"
            for source in self.sources
            for name in source.ignored
        ]

    def endpoint(self, url: str, key: str) -> str:
        """Return the address in a variable; raise an error if it is less trusted than its key."""
        if url in self and key in self and self._rank(url) > self._rank(key):
            raise ConfigurationError(
                f"{url} from {self.origin(url)} would receive {key} from {self.origin(key)}",
                hint=f"If you trust this address, set {url} in {_TRUSTED_PLACES}; otherwise remove it.",
            )
        return self.get(url, "")

    def is_from_project(self, name: str) -> bool:
        """Return whether only the `.env` of the project sets a variable."""
        return name in self and self.sources[self._rank(name)].is_project

    def origin(self, name: str) -> str:
        """Return the place that a variable was read from."""
        return self.sources[self._rank(name)].name

    def _rank(self, name: str) -> int:
        return next(rank for rank, values in enumerate(self.maps) if name in values)


def read_sources(
    environment: Mapping[str, str] | None, directory: Path | None, protected: Collection[str]
) -> Variables:
    """Read all variables; a project's `.env` cannot set the `protected` ones."""
    if environment is None:
        environment = os.environ
    sources = [VariableSource(ENVIRONMENT, _without_blanks(environment))]
    user = _user_file(environment)
    if user is not None and user.is_file():
        sources.append(VariableSource(str(user), _parse_file(user)))
    project = _find_dotenv(directory or working_directory())
    if project is not None:
        values = _parse_file(project)
        ignored = tuple(name for name in protected if name in values)
        allowed = {name: value for name, value in values.items() if name not in protected}
        sources.append(VariableSource(str(project), allowed, ignored, is_project=True))
    return Variables(*sources)


def working_directory() -> Path | None:
    """Return the current directory, or None if it no longer exists."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _user_file(environment: Mapping[str, str]) -> Path | None:
    if base := environment.get("XDG_CONFIG_HOME"):
        return Path(base) / "recto" / "env"
    home = environment.get("HOME") or environment.get("USERPROFILE")
    return Path(home) / ".config" / "recto" / "env" if home else None


def _find_dotenv(directory: Path | None) -> Path | None:
    """Find the nearest `.env` between a directory and the root of its project."""
    for folder in (directory, *directory.parents) if directory else ():
        path = folder / ".env"
        try:
            if path.is_file():
                return path
            if any((folder / name).exists() for name in _PROJECT_ROOTS):
                break
        except OSError:  # the directory is not readable
            break
    return None


def _parse_file(path: Path) -> dict[str, str]:
    from io import StringIO

    from dotenv import dotenv_values

    from recto._util.files import read_limited

    try:
        text = read_limited(path, _MAX_BYTES).decode("utf-8-sig")
        values = dotenv_values(stream=StringIO(text), interpolate=False)  # a key can contain `$`
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}", hint="It must be a text file of NAME=value lines."
        ) from error
    return _without_blanks({name: value or "" for name, value in values.items()})


def _without_blanks(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value.strip() for name, value in values.items() if value.strip()}


Parse = Callable[[str, str], Any]
"""Returns the value of a text, or raises `ConfigurationError`; the second argument names the variable."""


def invalid(
    name: str, expected: str, text: str, hint: str = "Unset it for the default."
) -> ConfigurationError:
    """Return the error for a value that cannot be used."""
    return ConfigurationError(f"{name} must be {expected}, not {text[:40]!r}", hint=hint)


def parse_text(text: str, _name: str) -> str:
    """Accept any text."""
    return text


def parse_choice(*allowed: str) -> Parse:
    """Accept one of some words; the first one is the default."""

    def parse(text: str, name: str) -> str:
        word = text.lower()
        if word not in allowed:
            hint = f"Set {name}={allowed[0]}, or unset it."
            raise invalid(name, f"one of {', '.join(allowed)}", text, hint)
        return word

    return parse


def parse_number(minimum: int, maximum: int) -> Parse:
    """Accept a whole number between two bounds."""

    def parse(text: str, name: str) -> int:
        # `int` alone takes digits of other scripts, and quadratic time for a long text.
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(maximum))
        if not is_number or not minimum <= int(text) <= maximum:
            raise invalid(name, f"a whole number from {minimum} to {maximum}", text)
        return int(text)

    return parse


def parse_share(text: str, name: str) -> float:
    """Accept a number from 0 to 1."""
    if not re.fullmatch(r"0|1|[01]?\.[0-9]{1,6}", text) or float(text) > 1:
        raise invalid(name, "a number from 0 to 1", text)
    return float(text)


def parse_boolean(text: str, name: str) -> bool:
    """Accept the usual words for true and false."""
    word = text.lower()
    if word not in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        raise invalid(name, "true or false", text)
    return word in ("1", "true", "yes", "on")


def parse_directory(text: str, origin: str) -> Path:
    """Return the absolute path of a directory; `origin` names its source in the error."""
    try:
        if "\0" in text:
            raise ValueError("it contains a null byte")
        return Path(text).expanduser().absolute()
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"{origin} is not a usable directory: {error}", hint="Set it to a directory of your own."
        ) from error
