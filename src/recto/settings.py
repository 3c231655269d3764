"""All settings: their variables, fields, defaults and parsers in one place, and the checks between them."""
# ruff: noqa: RUF009 - `_setting` returns `dataclasses.field`

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from recto._util.variables import (
    Parse,
    Variables,
    invalid,
    parse_boolean,
    parse_choice,
    parse_directory,
    parse_number,
    parse_share,
    parse_text,
    read_sources,
)
from recto.errors import ConfigurationError, InvalidArgument
from recto.plugins import BUILT_IN_PARTS, EMBEDDERS, STORES, choices, install_hint
from recto.types.search import LEXICAL_WEIGHT

BUILT_IN_MODEL = "recto-1"
COHERE_MODEL = "embed-english-v3.0"
_DEFAULT_MODELS = {"local": BUILT_IN_MODEL, "cohere": COHERE_MODEL}
CHUNK_TOKENS = 160
"""The default limit of tokens in a chunk (decision 3)."""
SAMPLE_COLLECTION = "recto-sample"
CLOUD_VARIABLES = ("COHERE_API_KEY", "QDRANT_URL", "QDRANT_API_KEY")
"""Any of them selects the cloud profile."""
_EXAMPLES = {
    "COHERE_API_URL": "https://api.cohere.com",
    "RECTO_ANSWER_URL": "http://localhost:11434/v1",
    "RECTO_OPENAI_URL": "http://localhost:8000/v1",
}
_ENDPOINT_KEYS = {
    "COHERE_API_URL": "COHERE_API_KEY",
    "QDRANT_URL": "QDRANT_API_KEY",
    "RECTO_ANSWER_URL": "RECTO_ANSWER_API_KEY",
    "RECTO_OPENAI_URL": "RECTO_OPENAI_API_KEY",
}
"""The variables with addresses, and the variables with the keys that are sent there."""
_HOME = "~/.recto"
_COLLECTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PRIVATE_NAMES = (".localhost", ".local", ".internal", ".svc", ".cluster.local", ".home.arpa")
"""Endings of names that public name servers never resolve; `.svc` is a Service of Kubernetes."""

Precision = Literal["auto", "fp32", "int8"]
CoherePace = Literal["trial", "production", "off"]
QueryLogText = Literal["keep", "hash", "drop"]
AnswerScope = Literal["search", "admin"]


class Setting(NamedTuple):
    """The variable that sets a field, and how its text is parsed."""

    variable: str
    parse: Parse


def is_secret(variable: str) -> bool:
    """Return whether the value of a variable must not be shown or logged."""
    return variable.endswith("_API_KEY")


def _setting(variable: str, default: Any, parse: Parse = parse_text) -> Any:
    """Declare a field that a variable sets; the repr leaves out secrets."""
    metadata = {"setting": Setting(variable, parse)}
    return field(default=default, repr=not is_secret(variable), metadata=metadata)


def settings_of(options: type) -> dict[str, Setting]:
    """Return the fields of `Settings`, or of a class of options, that a variable sets."""
    return {part.name: part.metadata["setting"] for part in fields(options) if part.metadata}


def _parse_part(group: str) -> Parse:
    """Accept the name of an embedder or store, built in or of a plugin."""

    def parse(text: str, name: str) -> str:
        if text.lower() in BUILT_IN_PARTS[group]:
            return text.lower()
        installed = choices(group)
        if text not in installed:
            hint = f"Unset it for the default. {install_hint(group)}"
            raise invalid(name, f"one of {', '.join(installed)}", text, hint)
        return text

    return parse


def check_collection_name(name: str, origin: str) -> str:
    """Return a name that is valid for a directory and on a server; `origin` names its source in the error."""
    if not isinstance(name, str) or not _COLLECTION_NAME.fullmatch(name):
        error = ConfigurationError if origin.isupper() else InvalidArgument
        raise error(
            f"{origin} is not a usable collection name: {name!r}",
            hint="Use at most 128 letters, digits, '.', '_' and '-', and start with a letter or digit.",
        )
    return name


def _parse_quantization(text: str, name: str) -> str:
    kind: str = parse_choice("none", "int8", "binary")(text, name)
    return "" if kind == "none" else kind


def _parse_prefix(text: str, _name: str) -> str:
    """Return a prefix that is followed by a space or a line break; variables have no space at the end."""
    if text.lower() == "none":
        return ""
    text = text.replace("\\n", "\n")
    return text if text.endswith("\n") else f"{text} "


def _parse_input_types(text: str, name: str) -> tuple[str, str]:
    query, comma, document = (part.strip() for part in text.partition(","))
    if not (query and comma and document) or "," in document:
        hint = f"Example: {name}=query,document"
        raise invalid(name, "two words, for queries and for documents", text, hint)
    return query, document


def _parse_address(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        example = _EXAMPLES.get(name.rsplit(maxsplit=1)[-1], "https://xxx.cloud.qdrant.io:6333")
        raise ConfigurationError(f"{name} is not an http(s) address", hint=f"Example: {example}")
    if "@" in parts.netloc:  # it would appear in messages, and the clients ignore it
        key = _ENDPOINT_KEYS[name.rsplit(maxsplit=1)[-1]]
        raise ConfigurationError(f"{name} contains a user name or a password", hint=f"Set {key} instead.")
    return url


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of new collections on a server; None means the server's default."""

    shards: int | None = _setting("QDRANT_SHARDS", None, parse_number(1, 10_000))
    replication: int | None = _setting("QDRANT_REPLICATION", None, parse_number(1, 100))
    write_consistency: int | None = _setting("QDRANT_WRITE_CONSISTENCY", None, parse_number(1, 100))
    on_disk_vectors: bool | None = _setting("QDRANT_ON_DISK_VECTORS", None, parse_boolean)
    on_disk_payload: bool | None = _setting("QDRANT_ON_DISK_PAYLOAD", None, parse_boolean)
    quantization: str = _setting("QDRANT_QUANTIZATION", "", _parse_quantization)
    tenant: bool = _setting("QDRANT_TENANT", False, parse_boolean)


@dataclass(frozen=True, slots=True)
class OpenAIOptions:
    """A server with OpenAI's API and its model; None means the default of the model."""

    url: str = _setting("RECTO_OPENAI_URL", "", _parse_address)
    api_key: str = _setting("RECTO_OPENAI_API_KEY", "")
    dimensions: int | None = _setting("RECTO_OPENAI_DIMENSIONS", None, parse_number(1, 16_384))
    max_tokens: int | None = _setting("RECTO_OPENAI_MAX_TOKENS", None, parse_number(1, 1_000_000))
    batch_size: int = _setting("RECTO_OPENAI_BATCH_SIZE", 32, parse_number(1, 2048))
    query_prefix: str | None = _setting("RECTO_OPENAI_QUERY_PREFIX", None, _parse_prefix)
    document_prefix: str | None = _setting("RECTO_OPENAI_DOCUMENT_PREFIX", None, _parse_prefix)
    input_types: tuple[str, str] | None = _setting("RECTO_OPENAI_INPUT_TYPE", None, _parse_input_types)
    """The values of `input_type` for queries and for documents."""


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """The chat endpoint that answers questions from the book, and its limits.

    `tokens` is the budget for the sections that are sent with a question, `seconds` the time limit of an
    answer, `rate` the number of questions per minute for each visitor, `daily` for all of them in a day.
    """

    url: str = _setting("RECTO_ANSWER_URL", "", _parse_address)
    """Empty: answers are off."""
    model: str = _setting("RECTO_ANSWER_MODEL", "")
    api_key: str = _setting("RECTO_ANSWER_API_KEY", "")
    scope: AnswerScope = _setting("RECTO_ANSWER_SCOPE", "search", parse_choice(*get_args(AnswerScope)))
    """The keys that may ask; `search` includes admin keys."""
    tokens: int = _setting("RECTO_ANSWER_TOKENS", 1600, parse_number(100, 100_000))
    seconds: int = _setting("RECTO_ANSWER_SECONDS", 60, parse_number(5, 600))
    rate: int = _setting("RECTO_ANSWER_RATE", 5, parse_number(1, 1000))
    daily: int = _setting("RECTO_ANSWER_DAILY", 200, parse_number(1, 1_000_000))


@dataclass(frozen=True, slots=True)
class QueryLogOptions:
    """Where queries are logged (None: nowhere), what is kept of their text, and how long and how much."""

    directory: Path | None = _setting("RECTO_QUERY_LOG", None, parse_directory)
    text: QueryLogText = _setting("RECTO_QUERY_LOG_TEXT", "keep", parse_choice(*get_args(QueryLogText)))
    days: int = _setting("RECTO_QUERY_LOG_DAYS", 90, parse_number(1, 3650))
    megabytes: int = _setting("RECTO_QUERY_LOG_MB", 100, parse_number(1, 100_000))


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; the repr does not contain API keys."""

    embedder: str
    store: str
    home: Path
    model: str = _setting("RECTO_MODEL", BUILT_IN_MODEL)
    threads: int = _setting("RECTO_THREADS", 1, parse_number(1, 256))
    precision: Precision = _setting("RECTO_PRECISION", "auto", parse_choice(*get_args(Precision)))
    lexical_weight: float = _setting("RECTO_LEXICAL_WEIGHT", LEXICAL_WEIGHT, parse_share)
    chunk_tokens: int = _setting("RECTO_CHUNK_TOKENS", CHUNK_TOKENS, parse_number(32, 8192))
    collection: str | None = _setting("COLLECTION_NAME", None, check_collection_name)
    qdrant_url: str = _setting("QDRANT_URL", "")
    """The addresses of one or more nodes; they are checked if the store is a server."""
    qdrant_api_key: str = _setting("QDRANT_API_KEY", "")
    cohere_api_key: str = _setting("COHERE_API_KEY", "")
    cohere_api_url: str = _setting("COHERE_API_URL", "", _parse_address)
    cohere_pace: CoherePace = _setting("COHERE_PACE", "trial", parse_choice(*get_args(CoherePace)))
    openai: OpenAIOptions = OpenAIOptions()
    answer: AnswerOptions = AnswerOptions()
    dialect: str = _setting("RECTO_DIALECT", "")
    server: ServerOptions = ServerOptions()
    keep_generations: int = _setting("RECTO_KEEP_GENERATIONS", 1, parse_number(1, 20))
    """How many earlier generations of a collection are kept for `recto rollback`."""
    query_log: QueryLogOptions = QueryLogOptions()
    otel: bool = _setting("RECTO_OTEL", False, parse_boolean)
    """Record OpenTelemetry spans."""
    otel_capture_query: bool = _setting("RECTO_OTEL_CAPTURE_QUERY", False, parse_boolean)
    """Put the text of queries into the spans."""
    single_query: bool = False
    """The process runs one query: prefer a fast start to fast batches."""
    close_at_exit: bool = False
    """Leave closing the store to the end of the process."""
    variables: Variables = field(default_factory=Variables, repr=False, compare=False)
    """All variables, for the settings of plugins."""

    def collection_or(self, default: str) -> str:
        """Return the configured collection, or the default of an entry point."""
        return self.collection or default

    @property
    def key_home(self) -> Path:
        """The directory of stored API keys: not the home that a project's `.env` sets."""
        is_from_project = self.variables.is_from_project("RECTO_HOME")
        return Path(_HOME).expanduser() if is_from_project else self.home

    @property
    def secrets(self) -> tuple[str, ...]:
        """The API keys that are set."""
        return tuple(
            value
            for options in (self, self.openai, self.answer)
            for name, setting in settings_of(type(options)).items()
            if is_secret(setting.variable) and (value := getattr(options, name))
        )

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the engines, which clients of a service must not see."""
        services = (self.cohere_api_url, _origin(self.openai.url), _origin(self.answer.url))
        return tuple(filter(None, (*split_addresses(self.qdrant_url), *services)))

    @property
    def project_endpoint(self) -> tuple[str, str]:
        """The variable and the address of an embedding service that only the project's `.env` names.

        Both are empty if there is none, or if it is on this machine.
        """
        name = {"cohere": "COHERE_API_URL", "openai": "RECTO_OPENAI_URL"}.get(self.embedder, "")
        if not self.variables.is_from_project(name):
            return "", ""
        url = self.variables[name]
        return ("", "") if is_loopback(urlsplit(url).hostname or "") else (name, _origin(url))

    @property
    def extras(self) -> tuple[str, ...]:
        """The optional extras that the configured embedder and store need."""
        needed = {
            "cloud": self.embedder == "cohere" or self.store == "server",
            "openai": self.embedder == "openai",
        }
        return tuple(extra for extra, is_needed in needed.items() if is_needed)


SERVICE_VARIABLES = (
    *("RECTO_API_KEY", "RECTO_ALLOWED_HOSTS", "RECTO_COLLECTIONS", "RECTO_CORS_ORIGINS"),
    *("RECTO_RATE_LIMIT", "RECTO_TRUSTED_PROXIES"),
    *(setting.variable for setting in settings_of(AnswerOptions).values()),
    *(setting.variable for setting in settings_of(QueryLogOptions).values()),
)
"""Who may use a service, what it shows, keeps and spends. A project's `.env` cannot set them."""


def read_variables(environment: Mapping[str, str] | None = None, directory: Path | None = None) -> Variables:
    """Read the environment, the user's settings file and the nearest `.env` of the project."""
    return read_sources(environment, directory, SERVICE_VARIABLES)


def load_settings(environment: Mapping[str, str] | None = None, directory: Path | None = None) -> Settings:
    """Read and check all settings.

    The environment overrides the user's settings file, which overrides `.env`; blank values count as unset.
    """
    values = read_variables(environment, directory)

    def read(variable: str, parse: Parse, default: str) -> Any:
        return parse(values.get(variable, default), variable)

    profile = read("RECTO_PROFILE", parse_choice("auto", "embedded", "cloud"), "auto")
    is_cloud = profile == "cloud" or (profile == "auto" and any(name in values for name in CLOUD_VARIABLES))
    embedder = read("RECTO_EMBEDDER", _parse_part(EMBEDDERS), "cohere" if is_cloud else "local")
    store = read("RECTO_STORE", _parse_part(STORES), "server" if is_cloud else "edge")
    _check_cloud(values, embedder, store)
    defaults: dict[str, Any] = {"model": _DEFAULT_MODELS.get(embedder, ""), "threads": _cores()}
    return Settings(
        embedder,
        store,
        read("RECTO_HOME", parse_directory, _HOME),
        **(defaults | _read_options(values, Settings)),
        openai=_read_openai(values) if embedder == "openai" else OpenAIOptions(),
        answer=_read_answer(values),
        server=ServerOptions(**_read_options(values, ServerOptions)),
        query_log=QueryLogOptions(**_read_options(values, QueryLogOptions)),
        variables=values,
    )


def _read_options(values: Variables, options: type) -> dict[str, Any]:
    """Return the fields of a class that are set."""
    found = {}
    for name, (variable, parse) in settings_of(options).items():
        if variable in values:
            key = _ENDPOINT_KEYS.get(variable)
            text = values.endpoint(variable, key) if key else values[variable]
            found[name] = parse(text, variable)
    return found


def _check_cloud(values: Variables, embedder: str, store: str) -> None:
    """Raise an error unless the variables of Cohere and Qdrant are complete."""
    missing = []
    if embedder == "cohere" and "COHERE_API_KEY" not in values:
        missing.append("COHERE_API_KEY")
    if store == "server":
        urls = split_addresses(values.get("QDRANT_URL", ""))
        if not urls:
            missing.append("QDRANT_URL")
        for number, url in enumerate(urls, 1):
            name = "QDRANT_URL" if len(urls) == 1 else f"Address {number} in QDRANT_URL"
            _parse_address(url, name)
        if "QDRANT_API_KEY" not in values and not all(map(is_local_address, urls or [""])):
            missing.append("QDRANT_API_KEY")
    if not missing:
        return
    rest = f"Also missing: {', '.join(missing[1:])}. " if missing[1:] else ""
    is_chosen = any(name in values for name in ("RECTO_PROFILE", "RECTO_EMBEDDER", "RECTO_STORE"))
    selecting = None if is_chosen else next((name for name in CLOUD_VARIABLES if name in values), None)
    reason = f"{selecting} from {values.origin(selecting)} selects the cloud profile. " if selecting else ""
    raise ConfigurationError(
        f"{missing[0]} is required but not set",
        hint=f"{reason}{rest}Set {'them' if rest else 'it'} in the environment or in .env; "
        "RECTO_PROFILE=embedded needs no key and no service.",
    )


def _read_openai(values: Variables) -> OpenAIOptions:
    """Return the options of a server with OpenAI's API, which must be complete."""
    required_by = "RECTO_EMBEDDER=openai"
    _require(values, "RECTO_OPENAI_URL", required_by, "http://localhost:11434/v1")
    _require(values, "RECTO_MODEL", required_by, "nomic-embed-text")
    options = OpenAIOptions(**_read_options(values, OpenAIOptions))
    parts = urlsplit(options.url)
    # OPENAI_API_KEY is also for other programs, so it is sent to OpenAI only.
    if not options.api_key and (parts.scheme, parts.hostname) == ("https", "api.openai.com"):
        if "OPENAI_API_KEY" not in values:
            raise ConfigurationError(
                "RECTO_OPENAI_API_KEY is required but not set",
                hint="OpenAI needs a key: set it, or OPENAI_API_KEY, in the environment or in .env.",
            )
        return replace(options, api_key=values["OPENAI_API_KEY"])
    _check_encrypted(options.url, options.api_key, "RECTO_OPENAI_URL")
    return options


def _read_answer(values: Variables) -> AnswerOptions:
    """Return the options of answers; without an address, the key is left out."""
    options = AnswerOptions(**_read_options(values, AnswerOptions))
    if not options.url:
        return replace(options, api_key="")
    _require(values, "RECTO_ANSWER_MODEL", "RECTO_ANSWER_URL", "qwen3:4b")
    _check_encrypted(options.url, options.api_key, "RECTO_ANSWER_URL")
    return options


def _require(values: Variables, name: str, required_by: str, example: str) -> None:
    if name not in values:
        raise ConfigurationError(
            f"{name} is required but not set",
            hint=f"{required_by} needs it. Example for Ollama: {name}={example}",
        )


def _check_encrypted(url: str, key: str, name: str) -> None:
    if key and urlsplit(url).scheme == "http" and not is_local_address(url):
        raise ConfigurationError(
            f"{_ENDPOINT_KEYS[name]} would be sent over plain http", hint=f"Use https in {name}."
        )


def _origin(url: str) -> str:
    """Return the scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if url else ""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_addresses(text: str) -> list[str]:
    """Return the addresses of the nodes of a cluster, which commas or spaces separate."""
    return list(dict.fromkeys(part.rstrip("/") for part in re.split(r"[,\s]+", text) if part))


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is reachable from this machine only."""
    import ipaddress

    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_local_address(url: str) -> bool:
    """Return whether a URL points to this machine or a private network."""
    host = urlsplit(url).hostname or ""
    if host.endswith(_PRIVATE_NAMES) or (host and "." not in host and ":" not in host):
        return True  # a name without a dot exists only on this machine or its network
    import ipaddress

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def index_command(
    collection: str,
    source: str = "",
    *,
    options: Iterable[tuple[str, str | float | bool]] = (),
    rebuild: bool = False,
) -> str:
    """Return the command that indexes a book again with the same options; with `rebuild`, from scratch."""
    from shlex import quote

    again = " --rebuild" if rebuild else ""
    if collection == SAMPLE_COLLECTION:
        return f"recto index --sample{again}"
    exists = source and ("://" in source or Path(source).exists())
    flags = "".join(f" {flag}" for flag in option_flags(options))
    return f"recto index {quote(source) if exists else 'PATH'} --collection {collection}{flags}{again}"


def option_flags(options: Iterable[tuple[str, str | float | bool]]) -> list[str]:
    """Return the flags of `recto index` for options of an index run."""
    from shlex import quote

    flags = []
    for name, value in options:
        flag = name.replace("_", "-").replace("version", "docs-version")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag} {quote(str(value))}")
    return flags
