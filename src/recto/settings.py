"""Read the settings from the environment and `.env`, check them at once, and say what is wrong in one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from recto.errors import ConfigurationError, InvalidArgument
from recto.plugins import BUILT_IN, EMBEDDERS, STORES, choices, install_hint

BUILT_IN_MODEL = "granite-embedding-30m-english"
COHERE_MODEL = "embed-english-v3.0"
_DEFAULT_MODELS = {"local": BUILT_IN_MODEL, "cohere": COHERE_MODEL}

QUERY_COLLECTION = "physical-ai-book"
SAMPLE_COLLECTION = "recto-sample"
DEFAULT_COLLECTIONS = (QUERY_COLLECTION, "humanoid_robotics_book", "website_embeddings", "rag_embedding")
"""The collection names that the four contracts fall back to: the query CLI, HTTP, the test CLI and the class."""

CLOUD_VARIABLES = ("COHERE_API_KEY", "QDRANT_URL", "QDRANT_API_KEY")
_COLLECTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DIGITS = 9
_PROJECT_ROOTS = ("pyproject.toml", ".git")


Precision = Literal["auto", "fp32", "int8"]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a new collection is laid out on a server; None leaves it to the server."""

    shards: int | None = None
    replication: int | None = None
    write_consistency: int | None = None
    on_disk_vectors: bool | None = None
    on_disk_payload: bool | None = None
    quantization: str = ""
    tenant: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is configured; keys are kept out of its repr."""

    embedder: str
    store: str
    home: Path
    model: str = BUILT_IN_MODEL
    threads: int = 1
    precision: Precision = "auto"
    collection: str | None = None
    qdrant_url: str = ""
    qdrant_api_key: str = field(default="", repr=False)
    cohere_api_key: str = field(default="", repr=False)
    cohere_api_url: str = ""
    cohere_pace: Literal["trial", "production", "off"] = "trial"
    dialect: str = ""
    server: ServerOptions = ServerOptions()
    single_query: bool = False
    """Prefer a fast start to fast batches: the process asks one query."""
    close_at_exit: bool = False
    """Leave closing the store to the end of the process."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """All variables of the environment and `.env`, for the settings of plugins."""

    def collection_or(self, default: str) -> str:
        """Return the configured collection, or a surface's default."""
        return self.collection or default


def load_settings(environment: Mapping[str, str] | None = None, directory: Path | None = None) -> Settings:
    """Read and check all settings; the environment wins over `.env`, blank values count as not set."""
    values = {
        **read_dotenv(directory or working_directory()),
        **(os.environ if environment is None else environment),
    }
    values = {name: value.strip() for name, value in values.items() if value.strip()}
    cloud = _is_cloud(values)
    embedder = _part(values, "RECTO_EMBEDDER", EMBEDDERS, "cohere" if cloud else "local")
    store = _part(values, "RECTO_STORE", STORES, "server" if cloud else "edge")
    _require(values, embedder, store)
    collection = values.get("COLLECTION_NAME")
    if collection is not None:
        check_collection_name(collection, "COLLECTION_NAME")
    return Settings(
        embedder=embedder,
        store=store,
        home=_home(values),
        model=values.get("RECTO_MODEL", _DEFAULT_MODELS.get(embedder, "")),
        threads=_number(values, "RECTO_THREADS", 256) or _cores(),
        precision=_choice(values, "RECTO_PRECISION", ("auto", "fp32", "int8"), "auto"),  # type: ignore[arg-type]
        collection=collection,
        qdrant_url=values.get("QDRANT_URL", ""),
        qdrant_api_key=values.get("QDRANT_API_KEY", ""),
        cohere_api_key=values.get("COHERE_API_KEY", ""),
        cohere_api_url=_address(values, "COHERE_API_URL"),
        cohere_pace=_choice(values, "COHERE_PACE", ("trial", "production", "off"), "trial"),  # type: ignore[arg-type]
        dialect=values.get("RECTO_DIALECT", ""),
        server=_server_options(values),
        variables=values,
    )


def check_collection_name(name: str, origin: str) -> None:
    """Refuse a name that could not be a directory and a server's collection alike; `origin` says where it came from."""
    if not isinstance(name, str) or not _COLLECTION_NAME.fullmatch(name):
        error = ConfigurationError if origin.isupper() else InvalidArgument
        raise error(
            f"{origin} is not a usable collection name: {name!r}",
            hint="Use letters, digits, '.', '_' and '-', at most 128 of them, beginning with a letter or digit.",
        )


def read_dotenv(directory: Path | None) -> dict[str, str]:
    """Read the nearest `.env` between a directory and the root of its project."""
    path = find_dotenv(directory)
    return _parse_dotenv(path) if path else {}


def find_dotenv(directory: Path | None) -> Path | None:
    """Find the nearest `.env` between a directory and the root of its project."""
    for folder in (directory, *directory.parents) if directory else ():
        path = folder / ".env"
        try:
            if path.is_file():
                return path
            if any((folder / name).exists() for name in _PROJECT_ROOTS):
                break
        except OSError:  # a directory that may not be searched has nothing for us
            break
    return None


def working_directory() -> Path | None:
    """Return where we are, if that still exists."""
    try:
        return Path.cwd()
    except OSError:
        return None


def is_local_address(url: str) -> bool:
    """Tell whether a URL points to this machine or a private network, by its address or a name that exists only there."""
    host = urlsplit(url).hostname or ""
    if host.endswith(".localhost") or (host and "." not in host and ":" not in host):
        return True  # a name without a dot is known only to this machine or its own network
    import ipaddress

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def _parse_dotenv(path: Path) -> dict[str, str]:
    from dotenv import dotenv_values

    try:
        values = dotenv_values(path, interpolate=False, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}", hint="It must be a text file of NAME=value lines."
        ) from error
    return {name: value for name, value in values.items() if value is not None}


def _is_cloud(values: Mapping[str, str]) -> bool:
    profile = _choice(values, "RECTO_PROFILE", ("auto", "embedded", "cloud"), "auto")
    if profile == "auto":
        return any(name in values for name in CLOUD_VARIABLES)
    return profile == "cloud"


def _choice(values: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = values.get(name, default).lower()
    if value not in allowed:
        raise ConfigurationError(
            f"{name} must be one of {', '.join(allowed)}, not {values[name]!r}",
            hint=f"Set {name}={default}, or unset it.",
        )
    return value


def _part(values: Mapping[str, str], name: str, group: str, default: str) -> str:
    """Return the name of an embedder or a store, a built-in one or a plugin's."""
    value = values.get(name, default)
    if value.lower() in BUILT_IN[group]:
        return value.lower()
    known = choices(group)
    if value not in known:
        raise ConfigurationError(
            f"{name} must be one of {', '.join(known)}, not {value!r}",
            hint=f"Set {name}={default}, or unset it. {install_hint(group)}",
        )
    return value


def _require(values: Mapping[str, str], embedder: str, store: str) -> None:
    missing = []
    if embedder == "cohere" and "COHERE_API_KEY" not in values:
        missing.append("COHERE_API_KEY")
    if store == "server":
        url = values.get("QDRANT_URL", "")
        if not url:
            missing.append("QDRANT_URL")
        _address(values, "QDRANT_URL")
        if "QDRANT_API_KEY" not in values and not is_local_address(url):
            missing.append("QDRANT_API_KEY")
    if missing:
        rest = f"Also missing: {', '.join(missing[1:])}. " if missing[1:] else ""
        raise ConfigurationError(
            f"{missing[0]} is required but not set",
            hint=f"{rest}Set {'them' if rest else 'it'} in the environment or in .env; RECTO_PROFILE=embedded needs no key and no service.",
        )


def _home(values: Mapping[str, str]) -> Path:
    text = values.get("RECTO_HOME", "~/.recto")
    try:
        if "\0" in text:
            raise ValueError("it has a null byte in it")
        return Path(text).expanduser().absolute()
    except (RuntimeError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"RECTO_HOME is not a usable directory: {error}", hint="Set it to a directory of your own."
        ) from error


def _server_options(values: Mapping[str, str]) -> ServerOptions:
    return ServerOptions(
        shards=_number(values, "QDRANT_SHARDS", 10_000),
        replication=_number(values, "QDRANT_REPLICATION", 100),
        write_consistency=_number(values, "QDRANT_WRITE_CONSISTENCY", 100),
        on_disk_vectors=_switch(values, "QDRANT_ON_DISK_VECTORS"),
        on_disk_payload=_switch(values, "QDRANT_ON_DISK_PAYLOAD"),
        quantization=_choice(values, "QDRANT_QUANTIZATION", ("none", "int8", "binary"), "none").removeprefix(
            "none"
        ),
        tenant=bool(_switch(values, "QDRANT_TENANT")),
    )


def _address(values: Mapping[str, str], name: str) -> str:
    url = values.get(name, "")
    try:
        parts = urlsplit(url)
        usable = not url or (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(
            f"{name} is not an http(s) address", hint="It looks like https://xxx.cloud.qdrant.io:6333"
        )
    return url


def _number(values: Mapping[str, str], name: str, most: int) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS or not 1 <= int(text) <= most:
        raise ConfigurationError(
            f"{name} must be a whole number from 1 to {most}, not {text[:20]!r}",
            hint="Unset it for the default.",
        )
    return int(text)


def _switch(values: Mapping[str, str], name: str) -> bool | None:
    text = values.get(name, "").lower()
    if text in ("", "1", "true", "yes", "on"):
        return bool(text) or None
    if text in ("0", "false", "no", "off"):
        return False
    raise ConfigurationError(f"{name} must be true or false, not {text!r}", hint="Unset it for the default.")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
