"""`recto keys add`, `list` and `revoke`, and `recto serve` with their keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recto.server.keys import add_key, digest, key_file, read_keys
from recto.settings import load_settings
from tests.running import recto
from tests.server.http.service import Service

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
    assert listed.stdout.startswith(
        "book: search, active; origins https://book.example; collections my-book;"
    )
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


def test_a_repository_cannot_bring_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with Service(settings) as service:
        assert service.get("/openapi.json", Authorization=f"Bearer {text}").status == 401
    trusted = load_settings({"HOME": str(user), "RECTO_HOME": str(project / "hostile")}, project)
    assert trusted.key_home == trusted.home
