from __future__ import annotations

import re
from pathlib import Path

import pytest

from recto.errors import ConfigurationError, ErrorKind, InvalidArgument
from recto.settings import (
    SERVICE_VARIABLES,
    AnswerOptions,
    OpenAIOptions,
    QueryLogOptions,
    ServerOptions,
    Settings,
    check_collection_name,
    is_local_address,
    is_secret,
    load_settings,
    read_variables,
    settings_of,
    split_addresses,
)
from tests.running import ROOT

CLOUD = {"COHERE_API_KEY": "co_x", "QDRANT_URL": "https://x.cloud.qdrant.io:6333", "QDRANT_API_KEY": "q_x"}
OPENAI = {"RECTO_EMBEDDER": "openai", "RECTO_MODEL": "m", "RECTO_OPENAI_URL": "http://localhost:11434/v1"}


def documented_rows() -> dict[str, str]:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    return dict(re.findall(r"^\| `([A-Z_]+)` \| (.*) \|$", page, re.MULTILINE))


_PAIRS = r"""
RECTO_MODEL=m; RECTO_THREADS=7; RECTO_PRECISION=INT8; RECTO_LEXICAL_WEIGHT=0.4; RECTO_CHUNK_TOKENS=320;
COLLECTION_NAME=book; COHERE_PACE=Off; RECTO_OTEL=yes; RECTO_OTEL_CAPTURE_QUERY=on; RECTO_DIALECT=map.json;
QDRANT_URL=http://10.0.0.1:6333; QDRANT_API_KEY=q_x; COHERE_API_KEY=co_x; COHERE_API_URL=http://10.0.0.2;
RECTO_KEEP_GENERATIONS=3; QDRANT_SHARDS=12; QDRANT_REPLICATION=2; QDRANT_WRITE_CONSISTENCY=1;
QDRANT_ON_DISK_VECTORS=true; QDRANT_ON_DISK_PAYLOAD=no; QDRANT_QUANTIZATION=binary; QDRANT_TENANT=1;
RECTO_OPENAI_URL=http://10.0.0.3/v1; RECTO_OPENAI_API_KEY=sk-x; RECTO_OPENAI_DIMENSIONS=256;
RECTO_OPENAI_MAX_TOKENS=2000; RECTO_OPENAI_BATCH_SIZE=8;
RECTO_OPENAI_QUERY_PREFIX=Instruct: find\nQuery:; RECTO_OPENAI_DOCUMENT_PREFIX=None;
RECTO_OPENAI_INPUT_TYPE=query, passage; RECTO_ANSWER_URL=http://10.0.0.4/v1; RECTO_ANSWER_MODEL=chat;
RECTO_ANSWER_API_KEY=sk-a; RECTO_ANSWER_SCOPE=admin; RECTO_ANSWER_TOKENS=100; RECTO_ANSWER_SECONDS=5;
RECTO_ANSWER_RATE=9; RECTO_ANSWER_DAILY=10; RECTO_QUERY_LOG=/log; RECTO_QUERY_LOG_TEXT=HASH;
RECTO_QUERY_LOG_DAYS=1; RECTO_QUERY_LOG_MB=2
"""
VALUES = dict(pair.strip().split("=", 1) for pair in _PAIRS.split(";"))
ALL_VALUES = {**VALUES, "RECTO_EMBEDDER": "openai", "RECTO_STORE": "Server"}
OPTIONS = {
    "openai": OpenAIOptions,
    "answer": AnswerOptions,
    "server": ServerOptions,
    "query_log": QueryLogOptions,
}
SETTINGS = [("", name, one) for name, one in settings_of(Settings).items()] + [
    (group, name, one) for group, options in OPTIONS.items() for name, one in settings_of(options).items()
]


def test_every_setting_is_read_and_documented_with_its_default(tmp_path: Path) -> None:
    rows = documented_rows()
    default = Settings("openai", "server", tmp_path)
    loaded = load_settings(ALL_VALUES, tmp_path)
    assert {setting.variable for _, _, setting in SETTINGS} == set(VALUES)
    assert set(VALUES) | set(SERVICE_VARIABLES) <= set(rows)
    for group, name, (variable, _) in SETTINGS:
        before, after = (getattr(getattr(one, group, one), name) for one in (default, loaded))
        assert before != after, variable
        if before and variable not in ("RECTO_THREADS", "RECTO_MODEL"):
            assert f"`{before}`" in rows[variable], variable
        if variable.endswith("_KEY"):
            assert is_secret(variable)
            assert after in loaded.secrets
            assert after not in repr(loaded)
    assert (loaded.precision, loaded.lexical_weight, loaded.threads) == ("int8", 0.4, 7)
    assert loaded.server == ServerOptions(12, 2, 1, True, False, "binary", True)
    assert loaded.openai.query_prefix == "Instruct: find\nQuery: "
    assert (loaded.openai.document_prefix, loaded.openai.input_types) == ("", ("query", "passage"))
    assert loaded.query_log == QueryLogOptions(Path("/log"), "hash", 1, 2)
    assert loaded.answer.scope == "admin"


def load_error(values: dict[str, str], directory: Path) -> ConfigurationError:
    """Return the error of loading settings; it always has a hint."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings(values, directory)
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({}, ("local", "edge", "recto-1", ())),
        (CLOUD, ("cohere", "server", "embed-english-v3.0", ("cloud",))),
        ({**CLOUD, "RECTO_PROFILE": "embedded"}, ("local", "edge", "recto-1", ())),
        (
            {"QDRANT_URL": "http://127.0.0.1:6333", "RECTO_EMBEDDER": "local"},
            ("local", "server", "recto-1", ("cloud",)),
        ),
        ({"COHERE_API_KEY": "  ", "QDRANT_URL": ""}, ("local", "edge", "recto-1", ())),
        (OPENAI, ("openai", "edge", "m", ("openai",))),
    ],
    ids=["nothing", "cloud", "embedded wins", "one half", "blank is not set", "OpenAI"],
)
def test_parts_of_a_profile(tmp_path: Path, values: dict[str, str], parts: tuple[object, ...]) -> None:
    settings = load_settings(values, tmp_path)
    assert (settings.embedder, settings.store, settings.model, settings.extras) == parts
    assert (settings.home, settings.collection) == (Path.home() / ".recto", None)
    assert "co_x" not in repr(settings)
    assert "q_x" not in repr(settings)


PRIVATE = ("localhost", "127.0.0.1", "[::1]", "10.1.2.3", "192.168.1.7", "qdrant", "q-0.q-headless.q.svc")
PUBLIC = ("qdrant.svc.example.org", "x.cloud.qdrant.io", "8.8.8.8", "localhost.example.org")


@pytest.mark.parametrize("host", [*PRIVATE, *PUBLIC, "localhost:6333,http://10.1.2.3"])
def test_private_addresses_need_no_key(tmp_path: Path, host: str) -> None:
    url, local = f"http://{host}:6333", host not in PUBLIC
    assert all(map(is_local_address, split_addresses(url))) is local
    values = {"QDRANT_URL": url, "COHERE_API_KEY": "co_x"}
    if local:
        assert load_settings(values, tmp_path).qdrant_api_key == ""
    else:
        assert "QDRANT_API_KEY" in str(load_error(values, tmp_path))


def test_dotenv_is_found_up_to_the_projects_root_and_not_beyond(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "backend").mkdir(parents=True)
    (tmp_path / ".env").write_text("COLLECTION_NAME=stranger\n", "utf-8")
    (project / "pyproject.toml").touch()
    assert read_variables({}, project / "backend") == {}
    (project / ".env").write_text("COHERE_API_KEY=a${HOME}b\n", "utf-8")
    expected = {"COHERE_API_KEY": "a${HOME}b"}
    assert read_variables({}, project / "backend") == expected, "a dollar in a key stays"


def test_a_dotenv_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe\x00")
    assert ".env cannot be read" in str(load_error({}, tmp_path))
    with (tmp_path / ".env").open("wb") as file:
        file.truncate(30 << 30)
    assert "larger than 64 KiB" in str(load_error({}, tmp_path))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RECTO_PROFILE", "clouds"),
        ("RECTO_EMBEDDER", "other"),
        ("RECTO_STORE", "sqlite"),
        ("RECTO_PRECISION", "bf16"),
        ("QDRANT_TENANT", "maybe"),
        ("COLLECTION_NAME", "../etc"),
        *(("RECTO_THREADS", value) for value in ("many", "0")),
        *(("RECTO_LEXICAL_WEIGHT", value) for value in ("-1", "1.5", "nan", "1e-1", "2", ".", "0.1234567")),
        *(("RECTO_CHUNK_TOKENS", value) for value in ("31", "0", "9000", "x")),
        *(("RECTO_OPENAI_URL", value) for value in ("localhost:11434", "https://user:word@example.org/v1")),
        *(("RECTO_OPENAI_INPUT_TYPE", value) for value in ("query", "a,b,c")),
        *(("RECTO_OPENAI_DIMENSIONS", "0"), ("RECTO_OPENAI_MAX_TOKENS", "many")),
    ],
)
def test_wrong_values_are_refused_with_advice(tmp_path: Path, name: str, value: str) -> None:
    others = OPENAI if "OPENAI" in name else {}
    assert name in str(load_error({**others, name: value}, tmp_path))


def test_a_wrong_address_has_an_example_of_its_own(tmp_path: Path) -> None:
    error = load_error({"RECTO_ANSWER_URL": "localhost"}, tmp_path)
    assert (str(error), error.hint) == (
        "Configuration error: RECTO_ANSWER_URL is not an http(s) address",
        "Example: http://localhost:11434/v1",
    )


@pytest.mark.parametrize("name", ["QDRANT_URL", "COHERE_API_URL"])
def test_wrong_addresses(tmp_path: Path, name: str) -> None:
    assert f"{name} is not an http(s) address" in str(load_error({**CLOUD, name: "xxx.qdrant.io"}, tmp_path))
    error = load_error({**CLOUD, name: "https://user:hunter2@x.example:6333"}, tmp_path)
    assert f"{name} contains a user name or a password" in str(error)
    assert "hunter2" not in f"{error} {error.hint}", "a password is not printed"
    assert error.hint == f"Set {name.partition('_')[0]}_API_KEY instead."
    several = {**CLOUD, "QDRANT_URL": "http://10.1.2.3:6333,nonsense"}
    assert "Address 2 in QDRANT_URL is not an http" in str(load_error(several, tmp_path))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "-x", "a b", "x" * 129, "a\0b", "ü"])
def test_unusable_collection_names(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_collection_name(name, "--collection")
    assert caught.value.kind is ErrorKind.ARGUMENT


HOSTILE = "https://attacker.example"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("COHERE_API_URL", "COHERE_API_KEY"),
        ("QDRANT_URL", "QDRANT_API_KEY"),
        ("RECTO_OPENAI_URL", "RECTO_OPENAI_API_KEY"),
    ],
)
def test_a_key_is_sent_only_to_an_address_that_is_trusted_as_much(tmp_path: Path, url: str, key: str) -> None:
    user, project = tmp_path / "config" / "recto" / "env", tmp_path / "book" / ".env"
    for file in (user, project):
        file.parent.mkdir(parents=True)
    rest = {name: value for name, value in ALL_VALUES.items() if name not in (url, key)}
    rest["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    project.write_text(f"{url}={HOSTILE}\n")
    error = load_error({**rest, key: VALUES[key]}, project.parent)
    assert f"{url} from {project} would receive {key} from the environment" in str(error)
    assert VALUES[key] not in f"{error} {error.hint}"
    user.write_text(f"{key}={VALUES[key]}\n")
    assert f"would receive {key} from {user}" in str(load_error(rest, project.parent))
    user.unlink()
    project.write_text(f"{url}={HOSTILE}\n{key}=of-the-project\n")
    assert HOSTILE in load_settings(rest, project.parent).addresses
    project.write_text(f"{key}=of-the-project\n")
    assert HOSTILE in load_settings({**rest, url: HOSTILE}, project.parent).addresses


def test_plugins_check_their_endpoints_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"VOYAGE_URL={HOSTILE}\n")
    variables = read_variables({"VOYAGE_KEY": "secret"}, tmp_path)
    with pytest.raises(ConfigurationError, match="VOYAGE_URL"):
        variables.endpoint("VOYAGE_URL", "VOYAGE_KEY")
    assert variables.endpoint("OTHER_URL", "VOYAGE_KEY") == ""


def test_the_environment_overrides_the_users_file_which_overrides_the_project(tmp_path: Path) -> None:
    (tmp_path / "recto").mkdir()
    (tmp_path / "recto" / "env").write_text("COLLECTION_NAME=user\nRECTO_MODEL=user\n")
    (tmp_path / ".env").write_text("COLLECTION_NAME=project\nRECTO_MODEL=project\nRECTO_THREADS=7\n")
    environment = {"COLLECTION_NAME": "shell", "XDG_CONFIG_HOME": str(tmp_path)}
    settings = load_settings(environment, tmp_path)
    assert (settings.collection, settings.model, settings.threads) == ("shell", "user", 7)
    assert settings.variables.files == (str(tmp_path / "recto" / "env"), str(tmp_path / ".env"))


@pytest.mark.parametrize("name", SERVICE_VARIABLES)
def test_a_project_cannot_open_a_service(tmp_path: Path, name: str) -> None:
    (tmp_path / ".env").write_text(f"{name}=evil\nCOLLECTION_NAME=book\n")
    variables = read_variables({"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path)
    assert dict(variables) | {"XDG_CONFIG_HOME": ""} == {"XDG_CONFIG_HOME": "", "COLLECTION_NAME": "book"}
    (warning,) = variables.warnings
    assert f"{name} in {tmp_path / '.env'} is ignored" in warning
    (tmp_path / "recto").mkdir()
    (tmp_path / "recto" / "env").write_text(f"{name}=mine\n")
    assert read_variables({"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path)[name] == "mine"


def test_the_variable_that_selects_the_cloud_profile_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"QDRANT_URL={HOSTILE}\n")
    reason = f"QDRANT_URL from {tmp_path / '.env'} selects the cloud profile."
    assert load_error({}, tmp_path).hint.startswith(reason)
    assert "RECTO_PROFILE=embedded" in load_error({}, tmp_path).hint
    assert reason not in load_error({"RECTO_PROFILE": "cloud"}, tmp_path).hint


class TestOpenAI:
    """A server with OpenAI's API, and the keys that it may see."""

    @pytest.mark.parametrize("missing", ["RECTO_MODEL", "RECTO_OPENAI_URL"])
    def test_what_is_required(self, tmp_path: Path, missing: str) -> None:
        values = {name: value for name, value in OPENAI.items() if name != missing}
        assert f"{missing} is required but not set" in str(load_error(values, tmp_path))

    def test_the_key_of_openai_is_for_openai_only(self, tmp_path: Path) -> None:
        values = {**OPENAI, "OPENAI_API_KEY": "sk-x"}
        others = ("https://example.org/v1", "https://api.openai.com.example.org/v1")
        for url in (OPENAI["RECTO_OPENAI_URL"], *others):
            assert load_settings({**values, "RECTO_OPENAI_URL": url}, tmp_path).openai.api_key == ""
        official = {"RECTO_OPENAI_URL": "https://api.openai.com/v1"}
        assert load_settings({**values, **official}, tmp_path).openai.api_key == "sk-x"
        both = {**values, **official, "RECTO_OPENAI_API_KEY": "sk-y"}
        assert load_settings(both, tmp_path).openai.api_key == "sk-y"
        assert "RECTO_OPENAI_API_KEY is required" in str(load_error({**OPENAI, **official}, tmp_path))

    def test_a_key_is_sent_over_plain_http_only_to_a_private_network(self, tmp_path: Path) -> None:
        values = {**OPENAI, "RECTO_OPENAI_API_KEY": "sk-x"}
        assert load_settings({**values, "RECTO_OPENAI_URL": "http://10.0.0.7:8000"}, tmp_path).openai.api_key
        public = {**values, "RECTO_OPENAI_URL": "http://example.org/v1"}
        assert "over plain http" in str(load_error(public, tmp_path))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://localhost:11434/v1", ""),
        ("http://127.0.0.1:11434/v1", ""),
        ("http://[::1]:11434/v1", ""),
        ("https://127.evil.example/v1", "https://127.evil.example"),
        ("https://localhost.evil.example/v1", "https://localhost.evil.example"),
        ("http://192.168.1.5:8000/v1", "http://192.168.1.5:8000"),
    ],
)
def test_an_embedding_service_that_only_the_project_names(tmp_path: Path, url: str, address: str) -> None:
    (tmp_path / ".env").write_text(f"RECTO_EMBEDDER=openai\nRECTO_OPENAI_URL={url}\nRECTO_MODEL=m\n")
    assert load_settings({}, tmp_path).project_endpoint[1] == address
    assert load_settings({"RECTO_OPENAI_URL": url}, tmp_path).project_endpoint == ("", "")
