"""Test stored keys and their commands, and services that read them again."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

from recto.errors import ConfigurationError, FormatMismatch, InvalidArgument
from recto.protocols import Embedder
from recto.server import keys as module
from recto.server.auth import ApiKeys, check_networks
from recto.server.keys import add_key, check_origin, digest, key_file, read_keys, revoke_key
from recto.server.limits import Refused
from recto.settings import load_settings
from tests.library import write_index
from tests.running import recto
from tests.server.http.service import Service

BOOK = "https://book.example"


def test_only_the_digest_is_stored(home: Path) -> None:
    key, text = add_key(home, "book", "search", [BOOK], ["house"])
    assert text.startswith("recto_pk_")
    assert len(text) == len("recto_pk_") + 43, "256 bits"
    stored = key_file(home).read_text("utf-8")
    assert text.removeprefix("recto_pk_") not in stored
    assert json.loads(stored)["keys"][0]["digest"] == sha256(text.encode()).hexdigest()
    assert "digest" not in repr(key) + json.dumps(key.to_dict())
    assert add_key(home, "me", "admin")[1].startswith("recto_sk_")
    if os.name == "posix":
        assert key_file(home).stat().st_mode & 0o777 == 0o600


def test_names_are_used_once_until_they_are_revoked(home: Path) -> None:
    _, first = add_key(home, "book", "search", collections=["house"])
    with pytest.raises(InvalidArgument, match="already"):
        add_key(home, "book", "admin")
    revoke_key(home, "book")
    with pytest.raises(InvalidArgument, match="no key"):
        revoke_key(home, "book")
    _, second = add_key(home, "book", "search", collections=["house"])
    service = ApiKeys((), home)
    with pytest.raises(Refused):
        service.authenticate({"x-api-key": first})
    assert service.authenticate({"x-api-key": second}).name == "book"


def test_several_writers_lose_nothing(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add_key(home, f"key{number}", "admin"), range(16)))
    assert {key.name for key in read_keys(home)} == {f"key{number}" for number in range(16)}


def test_the_oldest_revoked_keys_are_dropped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_REVOKED", 2)
    days = iter(range(1, 20))
    monkeypatch.setattr(module, "_now", lambda: f"2026-01-{next(days):02}T00:00:00Z")
    for name in ("a", "b", "c", "d"):
        add_key(home, name, "admin")
    for name in ("a", "b", "c"):
        revoke_key(home, name)
    assert [key.name for key in read_keys(home)] == ["b", "c", "d"]


def test_the_file_has_a_size_limit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(home, "first", "admin")
    monkeypatch.setattr(module, "MAX_FILE", 400)
    with pytest.raises(ConfigurationError, match="larger"):
        add_key(home, "second", "admin")
    assert [key.name for key in read_keys(home)] == ["first"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1", "admin"), "name"),
        (("a b", "admin"), "name"),
        (("a" * 65, "admin"), "name"),
        (("a", "search"), "--collection"),
        (("a", "admin", [BOOK]), "admin key"),
        (("a", "admin", [], ["house"]), "admin key"),
        (("a", "search", [], ["../house"]), "collection name"),
        (("a", "search", ["*"], ["house"]), "origin"),
        (("a", "admin", [], [], "2020-01-01"), "--expires"),
        (("a", "admin", [], [], "20301231"), "--expires"),
        (("a", "admin", [], [], "soon"), "--expires"),
    ],
)
def test_invalid_keys(home: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises((InvalidArgument, ConfigurationError), match=message) as caught:
        add_key(home, *arguments)  # type: ignore[arg-type]
    assert caught.value.hint
    assert not key_file(home).exists()


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("HTTPS://Book.Example", BOOK),
        ("https://book.example:443", BOOK),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_origins_are_written_as_browsers_write_them(given: str, origin: str) -> None:
    assert check_origin(given) == origin


INVALID_ORIGINS = (
    "null * book.example https://book.example/ https://a@b https://*.b https://a.example:99999 "
    "https://a.example:0 https://a..b https://.a https:// https://[x file://x"
)


@pytest.mark.parametrize("given", INVALID_ORIGINS.split())
def test_invalid_origins(given: str) -> None:
    with pytest.raises(ConfigurationError):
        check_origin(given)


DAMAGED_KEYS = (
    "[]",
    '{"name": "a"}',
    '{"name": "a", "scope": "all"}',
    '{"name": "a", "scope": "search", "collections": []}',
    '{"name": "a", "scope": "search", "collections": "house"}',
    '{"name": "a", "scope": "admin", "digest": 5}',
    '{"name": "a", "scope": "admin", "more": ""}',
)
DAMAGED_FILES = ["", "[]", "{}", '{"format": "1", "keys": []}', "[" * 100_000]


@pytest.mark.parametrize(
    "text", [*DAMAGED_FILES, *(f'{{"format": 1, "keys": [{key}]}}' for key in DAMAGED_KEYS)]
)
def test_a_damaged_file_is_an_error(home: Path, text: str) -> None:
    _, key = add_key(home, "a", "admin")
    service = ApiKeys(("from-the-environment",), home)
    assert service.authenticate({"authorization": f"Bearer {key}"}).name == "a"
    key_file(home).write_text(text, "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        read_keys(home)
    assert caught.value.hint
    with pytest.raises(ConfigurationError):
        add_key(home, "b", "admin")
    assert key_file(home).read_text("utf-8") == text, "nothing is overwritten"
    with pytest.raises(Refused) as refused:
        service.authenticate({"authorization": f"Bearer {key}"})
    assert refused.value.refusal.status == 503
    assert service.authenticate({"authorization": "Bearer from-the-environment"}).name == "1"


def test_a_newer_format(home: Path) -> None:
    home.mkdir()
    key_file(home).write_text('{"format": 2, "keys": []}', "utf-8")
    with pytest.raises(FormatMismatch, match="newer"):
        read_keys(home)


def test_services_notice_changes(home: Path) -> None:
    service = ApiKeys((), home)
    assert not service, "without keys, a local service is open"
    _, text = add_key(home, "book", "search", [BOOK], ["house"])
    assert service
    assert set(service.origins) == {BOOK}
    assert service.authenticate({"x-api-key": text}).name == "book"
    revoke_key(home, "book")
    with pytest.raises(Refused) as refused:
        service.authenticate({"authorization": f"Bearer {text}"})
    assert refused.value.reason == "revoked"
    assert set(service.origins) == {BOOK}, "its pages can read the error"
    key_file(home).unlink()
    assert service, "it does not open again"
    with pytest.raises(Refused):
        service.authenticate({"authorization": f"Bearer {text}"})
    assert ApiKeys((), home, was_found=True), "nor does a worker that starts now"


def test_a_key_is_valid_on_its_last_day(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    today = datetime.now(UTC).date()
    key, text = add_key(home, "book", "admin", expires=today.isoformat())
    service = ApiKeys((), home)
    assert service.authenticate({"authorization": f"Bearer {text}"}) == key
    monkeypatch.setattr(module, "_today", (today + timedelta(days=1)).isoformat)
    assert key.state == "expired"
    with pytest.raises(Refused) as refused:
        service.authenticate({"authorization": f"Bearer {text}"})
    assert (refused.value.reason, refused.value.refusal.status) == ("expired", 401)


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0", "proxy.example", "0.0.0.0/0", "::/0"])
def test_ranges_are_checked(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_networks([text])
    assert caught.value.hint


ADD = ("keys", "add", "book", "--origin", "https://book.example", "--collection", "my-book")


def test_a_key_is_shown_once(home: Path) -> None:
    made = recto(home, *ADD, "--expires", "2999-12-31")
    assert made.returncode == 0, made.stderr
    text = made.stdout.strip()
    assert text.startswith("recto_pk_")
    assert "cannot be shown again" in made.stderr
    assert text not in made.stderr
    (key,) = read_keys(home)
    assert key.digest == digest(text)
    assert (key.scope, key.origins, key.collections) == ("search", ("https://book.example",), ("my-book",))
    listed = recto(home, "keys", "list")
    assert listed.stdout.startswith("book: search, active; origins https://book.example; collections my-book")
    assert "expires 2999-12-31" in listed.stdout
    assert text not in listed.stdout
    assert key.digest not in recto(home, "keys", "list", "--json").stdout


def test_revoke(home: Path) -> None:
    assert recto(home, "keys", "list").stdout == "There are no keys.\n"
    text = json.loads(recto(home, *ADD, "--json").stdout)["key"]
    assert recto(home, "keys", "revoke", "book").stdout == "Revoked the key 'book'.\n"
    (listed,) = json.loads(recto(home, "keys", "list", "--json").stdout)
    assert listed["state"] == "revoked"
    assert "digest" not in listed
    (key,) = read_keys(home)
    assert (key.digest, key.state) == (digest(text), "revoked")
    again = recto(home, "keys", "revoke", "book", "--json")
    assert again.returncode == 4
    assert "recto keys list" in again.stderr


def test_a_service_does_not_start_with_a_damaged_file(home: Path) -> None:
    home.mkdir()
    key_file(home).write_text("{", "utf-8")
    done = recto(home, "serve", "--port", "0")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_a_repository_cannot_bring_keys(
    tmp_path: Path, small_book: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, project = tmp_path / "user", tmp_path / "project"
    project.mkdir()
    monkeypatch.setenv("HOME", str(user))
    (project / ".env").write_text("RECTO_HOME=hostile\n", "utf-8")
    monkeypatch.chdir(project)
    _, text = add_key(project / "hostile", "attacker", "admin")
    settings = load_settings({"HOME": str(user)}, project)
    assert settings.home == project / "hostile"
    assert settings.key_home == user / ".recto"
    add_key(settings.key_home, "own", "admin")
    write_index(small_book, embedder, settings.home, "house")
    with Service(settings) as service:
        assert service.get("/openapi.json", Authorization=f"Bearer {text}").status == 401
    trusted = load_settings({"HOME": str(user), "RECTO_HOME": str(project / "hostile")}, project)
    assert trusted.key_home == trusted.home
