"""Read and check the settings from the environment, the user's settings file and the project's `.env`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from recto.errors import ConfigurationError, InvalidArgument
from recto.plugins import BUILT_IN, EMBEDDERS, STORES, choices, install_hint
from recto.types.search import LEXICAL_WEIGHT

BUILT_IN_MODEL = "recto-en-1"
GRANITE_MODEL = "granite"
"""The built-in model of older versions, from which the current one was trained."""
BUILT_IN_MODELS = (BUILT_IN_MODEL, GRANITE_MODEL)
COHERE_MODEL = "embed-english-v3.0"
CHUNK_TOKENS = 160
"""The default limit of tokens in a chunk (decision 3)."""
_DEFAULT_MODELS = {"local": BUILT_IN_MODEL, "cohere": COHERE_MODEL}

SAMPLE_COLLECTION = "recto-sample"

CLOUD_VARIABLES = ("COHERE_API_KEY", "QDRANT_URL", "QDRANT_API_KEY")
_COLLECTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAX_DIGITS = 9
_HOME = "~/.recto"
_PROJECT_ROOTS = ("pyproject.toml", ".git")
_MAX_DOTENV = 64 * 1024
ENVIRONMENT = "the environment"
_PRIVATE_NAMES = (".localhost", ".local", ".internal", ".svc", ".cluster.local", ".home.arpa")
"""Endings of names that public name servers never resolve; `.svc` is a Service of Kubernetes."""
_TRUSTED_PLACES = f"{ENVIRONMENT} or in ~/.config/recto/env"

SERVICE_VARIABLES = (
    *("RECTO_API_KEY", "RECTO_ALLOWED_HOSTS", "RECTO_COLLECTIONS", "RECTO_CORS_ORIGINS"),
    *("RECTO_RATE_LIMIT", "RECTO_TRUSTED_PROXIES"),
    *("RECTO_ANSWER_API_KEY", "RECTO_ANSWER_DAILY", "RECTO_ANSWER_MODEL", "RECTO_ANSWER_RATE"),
    *("RECTO_ANSWER_SCOPE", "RECTO_ANSWER_SECONDS", "RECTO_ANSWER_TOKENS", "RECTO_ANSWER_URL"),
    *("RECTO_QUERY_LOG", "RECTO_QUERY_LOG_DAYS", "RECTO_QUERY_LOG_MB", "RECTO_QUERY_LOG_TEXT"),
)
"""Who may use a service, what it shows, keeps and spends. A project's `.env` cannot set them."""

Precision = Literal["auto", "fp32", "int8", "bf16"]
Device = Literal["auto", "cpu", "cuda", "mps"]
QueryDevice = Literal["cpu", "same"]
CoherePace = Literal["trial", "production", "off"]
QueryLogText = Literal["keep", "hash", "drop"]
AnswerScope = Literal["search", "admin"]


class ServerOptions(NamedTuple):
    """The options of new collections on a server; None means the server's default."""

    shards: int | None = None
    replication: int | None = None
    write_consistency: int | None = None
    on_disk_vectors: bool | None = None
    on_disk_payload: bool | None = None
    quantization: str = ""
    tenant: bool = False


@dataclass(frozen=True, slots=True)
class OpenAIOptions:
    """A server with OpenAI's API, and what it does not tell; None means the default of the model."""

    url: str = ""
    api_key: str = field(default="", repr=False)
    api_version: str = ""
    dimensions: int | None = None
    max_tokens: int | None = None
    batch_size: int = 32
    query_prefix: str | None = None
    document_prefix: str | None = None
    input_types: tuple[str, str] | None = None
    """The values of `input_type` for queries and for documents."""


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """The chat endpoint that answers questions from the book (no address: answers are off), and its limits.

    `tokens` is the budget for the sections that a question is sent with, `seconds` the time limit of an
    answer, `rate` the number of questions per minute for each visitor, `daily` for all of them in a day.
    """

    url: str = ""
    model: str = ""
    api_key: str = field(default="", repr=False)
    scope: AnswerScope = "search"
    """The keys that may ask; `search` includes admin keys."""
    tokens: int = 1600
    seconds: int = 60
    rate: int = 5
    daily: int = 200


class QueryLogOptions(NamedTuple):
    """Where queries are logged (None: nowhere), what is kept of their text, and how long and how much."""

    directory: Path | None = None
    text: QueryLogText = "keep"
    days: int = 90
    megabytes: int = 100


class VariableSource(NamedTuple):
    """A place that variables were read from: the environment, or a file."""

    name: str
    values: Mapping[str, str]
    ignored: tuple[str, ...] = ()
    """Variables that this place has but cannot set."""
    is_project: bool = False
    """Whether it belongs to the project, so that others may have written it."""


class Variables(Mapping[str, str]):
    """Variables and the places that they were read from, the most trusted first.

    The order is: the environment, the user's settings file, the `.env` of the project. Anyone can write the
    `.env` of a cloned repository, so it can neither redirect a key nor open a service to others.
    """

    def __init__(self, *sources: VariableSource) -> None:
        self.sources = sources
        self._values: dict[str, str] = {}
        for source in reversed(sources):
            self._values |= source.values

    def __getitem__(self, name: str) -> str:
        """Return the value of a variable from the most trusted place that sets it."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._values)

    def __len__(self) -> int:
        """Count the variables."""
        return len(self._values)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that were read."""
        return tuple(source.name for source in self.sources if source.name != ENVIRONMENT)

    @property
    def warnings(self) -> list[str]:
        """What was ignored, and why."""
        return [
            f"{', '.join(source.ignored)} in {source.name} {'is' if len(source.ignored) == 1 else 'are'} "
            f"ignored: set {'it' if len(source.ignored) == 1 else 'them'} in {_TRUSTED_PLACES}"
            for source in self.sources
            if source.ignored
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

    def _rank(self, name: str) -> int:
        return next(rank for rank, source in enumerate(self.sources) if name in source.values)

    def origin(self, name: str) -> str:
        """Return the place that a variable was read from."""
        return self.sources[self._rank(name)].name


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; the repr does not contain API keys."""

    embedder: str
    store: str
    home: Path
    model: str = BUILT_IN_MODEL
    threads: int = 1
    precision: Precision = "auto"
    device: Device = "auto"
    query_device: QueryDevice = "cpu"
    lexical_weight: float = LEXICAL_WEIGHT
    chunk_tokens: int = CHUNK_TOKENS
    collection: str | None = None
    qdrant_url: str = ""
    qdrant_api_key: str = field(default="", repr=False)
    cohere_api_key: str = field(default="", repr=False)
    cohere_api_url: str = ""
    cohere_pace: CoherePace = "trial"
    openai: OpenAIOptions = OpenAIOptions()
    answer: AnswerOptions = AnswerOptions()
    dialect: str = ""
    server: ServerOptions = ServerOptions()
    keep_generations: int = 1
    """How many earlier generations of a collection are kept for `recto rollback`."""
    query_log: QueryLogOptions = QueryLogOptions()
    otel: bool = False
    """Record OpenTelemetry spans."""
    otel_capture_query: bool = False
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
        """The API keys: the texts that the repr leaves out."""
        parts = (self, self.openai, self.answer)
        values = [getattr(part, one.name) for part in parts for one in fields(part) if not one.repr]
        return tuple(value for value in values if isinstance(value, str) and value)

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


def _origin(url: str) -> str:
    """Return the scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if url else ""


def read_variables(environment: Mapping[str, str] | None = None, directory: Path | None = None) -> Variables:
    """Read the environment, the user's settings file and the nearest `.env` of the project."""
    given = os.environ if environment is None else environment
    sources = [VariableSource(ENVIRONMENT, _not_blank(given))]
    user = user_file(given)
    if user is not None and user.is_file():
        sources.append(VariableSource(str(user), _not_blank(_parse_dotenv(user))))
    project = _find_dotenv(directory or working_directory())
    if project is not None:
        values = _not_blank(_parse_dotenv(project))
        ignored = tuple(name for name in SERVICE_VARIABLES if name in values)
        allowed = {name: value for name, value in values.items() if name not in SERVICE_VARIABLES}
        sources.append(VariableSource(str(project), allowed, ignored, is_project=True))
    return Variables(*sources)


def user_file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's settings file."""
    if base := environment.get("XDG_CONFIG_HOME"):
        return Path(base) / "recto" / "env"
    home = environment.get("HOME") or environment.get("USERPROFILE")
    return Path(home) / ".config" / "recto" / "env" if home else None


def _not_blank(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value.strip() for name, value in values.items() if value.strip()}


def load_settings(environment: Mapping[str, str] | None = None, directory: Path | None = None) -> Settings:
    """Read and check all settings.

    The environment overrides the user's settings file, which overrides `.env`; blank values count as unset.
    """
    values = read_variables(environment, directory)
    cloud = _is_cloud(values)
    embedder = _component(values, "RECTO_EMBEDDER", EMBEDDERS, "cohere" if cloud else "local")
    store = _component(values, "RECTO_STORE", STORES, "server" if cloud else "edge")
    _require(values, embedder, store)
    collection = values.get("COLLECTION_NAME")
    if collection is not None:
        check_collection_name(collection, "COLLECTION_NAME")
    return Settings(
        embedder=embedder,
        store=store,
        home=parse_directory(values.get("RECTO_HOME", _HOME), "RECTO_HOME"),
        model=_model(embedder, values.get("RECTO_MODEL", _DEFAULT_MODELS.get(embedder, ""))),
        threads=_number(values, "RECTO_THREADS", 256) or _cores(),
        precision=_choice(values, "RECTO_PRECISION", get_args(Precision), "auto"),
        device=_choice(values, "RECTO_DEVICE", get_args(Device), "auto"),
        query_device=_choice(values, "RECTO_QUERY_DEVICE", get_args(QueryDevice), "cpu"),
        lexical_weight=_weight(values, "RECTO_LEXICAL_WEIGHT", LEXICAL_WEIGHT),
        chunk_tokens=_number(values, "RECTO_CHUNK_TOKENS", 8192, minimum=32) or CHUNK_TOKENS,
        collection=collection,
        qdrant_url=values.endpoint("QDRANT_URL", "QDRANT_API_KEY"),
        qdrant_api_key=values.get("QDRANT_API_KEY", ""),
        cohere_api_key=values.get("COHERE_API_KEY", ""),
        cohere_api_url=_endpoint(values, "COHERE_API_URL", "COHERE_API_KEY"),
        cohere_pace=_choice(values, "COHERE_PACE", get_args(CoherePace), "trial"),
        openai=_openai_options(values) if embedder == "openai" else OpenAIOptions(),
        answer=_answer_options(values),
        dialect=values.get("RECTO_DIALECT", ""),
        server=_server_options(values),
        keep_generations=_number(values, "RECTO_KEEP_GENERATIONS", 20) or 1,
        query_log=_query_log(values),
        otel=bool(_boolean(values, "RECTO_OTEL")),
        otel_capture_query=bool(_boolean(values, "RECTO_OTEL_CAPTURE_QUERY")),
        variables=values,
    )


def check_collection_name(name: str, origin: str) -> None:
    """Raise an error unless a name is valid for a directory and on a server; `origin` names its source."""
    if not isinstance(name, str) or not _COLLECTION_NAME.fullmatch(name):
        error = ConfigurationError if origin.isupper() else InvalidArgument
        raise error(
            f"{origin} is not a usable collection name: {name!r}",
            hint="Use at most 128 letters, digits, '.', '_' and '-', and start with a letter or digit.",
        )


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


def working_directory() -> Path | None:
    """Return the current directory, or None if it no longer exists."""
    try:
        return Path.cwd()
    except OSError:
        return None


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


def _parse_dotenv(path: Path) -> dict[str, str]:
    from io import StringIO

    from dotenv import dotenv_values

    from recto._util.files import read_limited

    try:
        text = read_limited(path, _MAX_DOTENV).decode("utf-8-sig")
        values = dotenv_values(stream=StringIO(text), interpolate=False)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}", hint="It must be a text file of NAME=value lines."
        ) from error
    return {name: value for name, value in values.items() if value is not None}


def _is_cloud(values: Mapping[str, str]) -> bool:
    profile = _choice(values, "RECTO_PROFILE", ("auto", "embedded", "cloud"), "auto")
    if profile == "auto":
        return any(name in values for name in CLOUD_VARIABLES)
    return bool(profile == "cloud")


def _wrong(name: str, expected: str, text: str, hint: str = "") -> ConfigurationError:
    hint = hint or "Unset it for the default."
    return ConfigurationError(f"{name} must be {expected}, not {text!r}", hint=hint)


def _choice(values: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> Any:
    value = values.get(name, default).lower()
    if value not in allowed:
        hint = f"Set {name}={default}, or unset it."
        raise _wrong(name, f"one of {', '.join(allowed)}", values[name], hint)
    return value


def _component(values: Mapping[str, str], name: str, group: str, default: str) -> str:
    """Return the name of an embedder or store, built-in or of a plugin."""
    value = values.get(name, default)
    if value.lower() in BUILT_IN[group]:
        return value.lower()
    installed = choices(group)
    if value not in installed:
        hint = f"Set {name}={default}, or unset it. {install_hint(group)}"
        raise _wrong(name, f"one of {', '.join(installed)}", value, hint)
    return value


def _require(values: Variables, embedder: str, store: str) -> None:
    missing = []
    if embedder == "cohere" and "COHERE_API_KEY" not in values:
        missing.append("COHERE_API_KEY")
    if store == "server":
        urls = split_addresses(values.get("QDRANT_URL", ""))
        if not urls:
            missing.append("QDRANT_URL")
        for number, url in enumerate(urls, 1):
            name = "QDRANT_URL" if len(urls) == 1 else f"Address {number} in QDRANT_URL"
            _check_address(url, name, "QDRANT_API_KEY")
        if "QDRANT_API_KEY" not in values and not all(map(is_local_address, urls or [""])):
            missing.append("QDRANT_API_KEY")
    if missing:
        raise _missing(values, missing)


def _missing(values: Variables, names: list[str]) -> ConfigurationError:
    """Return the error for variables that are not set, and say which variable selected the cloud profile."""
    rest = f"Also missing: {', '.join(names[1:])}. " if names[1:] else ""
    is_chosen = any(name in values for name in ("RECTO_PROFILE", "RECTO_EMBEDDER", "RECTO_STORE"))
    selecting = None if is_chosen else next((name for name in CLOUD_VARIABLES if name in values), None)
    reason = f"{selecting} from {values.origin(selecting)} selects the cloud profile. " if selecting else ""
    return ConfigurationError(
        f"{names[0]} is required but not set",
        hint=f"{reason}{rest}Set {'them' if rest else 'it'} in the environment or in .env; "
        "RECTO_PROFILE=embedded needs no key and no service.",
    )


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


def _query_log(values: Mapping[str, str]) -> QueryLogOptions:
    directory, default = values.get("RECTO_QUERY_LOG"), QueryLogOptions()
    return QueryLogOptions(
        None if directory is None else parse_directory(directory, "RECTO_QUERY_LOG"),
        _choice(values, "RECTO_QUERY_LOG_TEXT", get_args(QueryLogText), default.text),
        _number(values, "RECTO_QUERY_LOG_DAYS", 3650) or default.days,
        _number(values, "RECTO_QUERY_LOG_MB", 100_000) or default.megabytes,
    )


def _server_options(values: Mapping[str, str]) -> ServerOptions:
    quantization = _choice(values, "QDRANT_QUANTIZATION", ("none", "int8", "binary"), "none")
    return ServerOptions(
        shards=_number(values, "QDRANT_SHARDS", 10_000),
        replication=_number(values, "QDRANT_REPLICATION", 100),
        write_consistency=_number(values, "QDRANT_WRITE_CONSISTENCY", 100),
        on_disk_vectors=_boolean(values, "QDRANT_ON_DISK_VECTORS"),
        on_disk_payload=_boolean(values, "QDRANT_ON_DISK_PAYLOAD"),
        quantization="" if quantization == "none" else quantization,
        tenant=bool(_boolean(values, "QDRANT_TENANT")),
    )


def _openai_options(values: Variables) -> OpenAIOptions:
    for name, example in (
        ("RECTO_OPENAI_URL", "http://localhost:11434/v1"),
        ("RECTO_MODEL", "nomic-embed-text"),
    ):
        if name not in values:
            raise ConfigurationError(
                f"{name} is required but not set",
                hint=f"RECTO_EMBEDDER=openai needs it. Example for Ollama: {name}={example}",
            )
    url = _endpoint(values, "RECTO_OPENAI_URL", "RECTO_OPENAI_API_KEY")
    return OpenAIOptions(
        url=url,
        api_key=_openai_key(values, url),
        api_version=values.get("RECTO_OPENAI_API_VERSION", ""),
        dimensions=_number(values, "RECTO_OPENAI_DIMENSIONS", 16_384),
        max_tokens=_number(values, "RECTO_OPENAI_MAX_TOKENS", 1_000_000),
        batch_size=_number(values, "RECTO_OPENAI_BATCH_SIZE", 2048) or 32,
        query_prefix=_prefix(values.get("RECTO_OPENAI_QUERY_PREFIX")),
        document_prefix=_prefix(values.get("RECTO_OPENAI_DOCUMENT_PREFIX")),
        input_types=_input_types(values.get("RECTO_OPENAI_INPUT_TYPE")),
    )


def _answer_options(values: Variables) -> AnswerOptions:
    default = AnswerOptions()
    name, key = "RECTO_ANSWER_URL", "RECTO_ANSWER_API_KEY"
    url = _endpoint(values, name, key)
    if url and "RECTO_ANSWER_MODEL" not in values:
        raise ConfigurationError(
            "RECTO_ANSWER_MODEL is required but not set",
            hint=f"{name} needs it. Example for Ollama: RECTO_ANSWER_MODEL=qwen3:4b",
        )
    _check_encrypted(values, url, name, key)
    return AnswerOptions(
        url=url,
        model=values.get("RECTO_ANSWER_MODEL", ""),
        api_key=values.get(key, "") if url else "",
        scope=_choice(values, "RECTO_ANSWER_SCOPE", get_args(AnswerScope), default.scope),
        tokens=_number(values, "RECTO_ANSWER_TOKENS", 100_000, minimum=100) or default.tokens,
        seconds=_number(values, "RECTO_ANSWER_SECONDS", 600, minimum=5) or default.seconds,
        rate=_number(values, "RECTO_ANSWER_RATE", 1000) or default.rate,
        daily=_number(values, "RECTO_ANSWER_DAILY", 1_000_000) or default.daily,
    )


def _check_encrypted(values: Variables, url: str, name: str, key: str) -> None:
    if key in values and urlsplit(url).scheme == "http" and not is_local_address(url):
        raise ConfigurationError(f"{key} would be sent over plain http", hint=f"Use https in {name}.")


def _openai_key(values: Variables, url: str) -> str:
    """Return the key for an endpoint; the key of OpenAI, which other programs use too, is for OpenAI only."""
    name = "RECTO_OPENAI_API_KEY"
    parts = urlsplit(url)
    if name not in values and (parts.scheme, parts.hostname) == ("https", "api.openai.com"):
        name = "OPENAI_API_KEY"
        if name not in values:
            raise ConfigurationError(
                "RECTO_OPENAI_API_KEY is required but not set",
                hint="OpenAI needs a key: set it, or OPENAI_API_KEY, in the environment or in .env.",
            )
    _check_encrypted(values, url, "RECTO_OPENAI_URL", name)
    return values.get(name, "")


def _prefix(text: str | None) -> str | None:
    r"""Return a prefix that is followed by a space or a line break; values have no space at the end."""
    if text is None or text.lower() == "none":
        return None if text is None else ""
    text = text.replace("\\n", "\n")
    return text if text.endswith("\n") else f"{text} "


def _input_types(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    query, comma, document = (part.strip() for part in text.partition(","))
    if not (query and comma and document) or "," in document:
        name, hint = "RECTO_OPENAI_INPUT_TYPE", "Example: RECTO_OPENAI_INPUT_TYPE=query,document"
        raise _wrong(name, "two words, for queries and for documents", text, hint)
    return query, document


def _endpoint(values: Variables, name: str, key: str) -> str:
    """Return the address in a variable, which must be valid, and trusted with the key in another variable."""
    return _check_address(values.endpoint(name, key), name, key)


def _check_address(url: str, name: str, key: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if url and not valid:
        raise ConfigurationError(
            f"{name} is not an http(s) address", hint="Example: https://xxx.cloud.qdrant.io:6333"
        )
    if url and "@" in parts.netloc:  # it would appear in messages, and the clients ignore it
        raise ConfigurationError(f"{name} contains a user name or a password", hint=f"Set {key} instead.")
    return url


def _model(embedder: str, name: str) -> str:
    """Return the name of a model; one of the built-in models has three names."""
    names = (GRANITE_MODEL, "granite-embedding-30m-english", "ibm-granite/granite-embedding-30m-english")
    return GRANITE_MODEL if embedder == "local" and name in names else name


def _number(values: Mapping[str, str], name: str, maximum: int, minimum: int = 1) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    if not is_number or not minimum <= int(text) <= maximum:
        raise _wrong(name, f"a whole number from {minimum} to {maximum}", text[:20])
    return int(text)


def _weight(values: Mapping[str, str], name: str, default: float) -> float:
    text = values.get(name, str(default))
    if not re.fullmatch(r"0|1|[01]?\.[0-9]{1,6}", text) or float(text) > 1:
        raise _wrong(name, "a number from 0 to 1", text[:20])
    return float(text)


def _boolean(values: Mapping[str, str], name: str) -> bool | None:
    text = values.get(name, "").lower()
    if text in ("", "1", "true", "yes", "on"):
        return bool(text) or None
    if text in ("0", "false", "no", "off"):
        return False
    raise _wrong(name, "true or false", text)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
