"""Plugins: chosen by name or scheme, and clear errors if they are missing, broken or ambiguous."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recto import plugins
from recto.book.sources import SourceOptions, open_source, scheme_of
from recto.errors import ConfigurationError, EmbeddingError, InvalidArgument
from recto.settings import BUILT_IN_MODEL, Settings, load_settings

Install = Callable[..., None]
FACTORIES = """
from recto.errors import EmbeddingError
from recto.types.book import BookInfo, Failure
from recto.testing import HashEmbedder

class Memory:
    book, location, failed, notes = "memory", "demo:somewhere", (), ()
    info = BookInfo()
    def pages(self):
        return iter(())

def open_embedder(settings, notify):
    notify(settings.variables.get("DEMO_KEY", "no key"))
    return HashEmbedder()

def open_source(location, settings, notify):
    source = Memory()
    source.location = location
    return source

def refuse(settings, notify):
    raise EmbeddingError("the service is down", hint="Wait.")

def fail(settings, notify):
    return settings.nothing_of_the_kind
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings("demo", "edge", tmp_path / "home")


def test_an_embedder_is_chosen_by_its_name(install_plugin: Install, tmp_path: Path, told: list[str]) -> None:
    install_plugin("demo-plugin", {plugins.EMBEDDERS: "demo = demo_plugin:open_embedder"}, FACTORIES)
    values = {"RECTO_EMBEDDER": "demo", "DEMO_KEY": "secret", "RECTO_HOME": str(tmp_path)}
    settings = load_settings(values, tmp_path)
    assert (settings.embedder, settings.store, settings.model) == ("demo", "edge", "")
    assert "secret" not in repr(settings)
    assert plugins.open_embedder(settings, told.append).dim == 64
    assert told == ["secret"], "a plugin can read its own settings"
    assert load_settings({}, tmp_path).model == BUILT_IN_MODEL


def test_an_unknown_name(install_plugin: Install, settings: Settings, tmp_path: Path) -> None:
    install_plugin("demo-plugin", {plugins.EMBEDDERS: "demo = demo_plugin:open_embedder"}, FACTORIES)
    message = "must be one of local, cohere, openai, demo, not 'other'"
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_settings({"RECTO_EMBEDDER": "other"}, tmp_path)
    assert "recto.embedders must be installed in the same environment" in caught.value.hint
    with pytest.raises(ConfigurationError, match=r"There is no 'other' in recto\.embedders") as caught:
        plugins.open_embedder(replace(settings, embedder="other"), print)
    assert caught.value.hint.startswith("Installed: local, cohere, openai, demo. ")


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        ("open", "import nobody_has_this", "cannot be loaded: ModuleNotFoundError"),
        ("no_such_name", "", "cannot be loaded: AttributeError"),
        ("fail", FACTORIES, "cannot be opened: AttributeError"),
    ],
)
def test_failures(install_plugin: Install, settings: Settings, entry: str, code: str, message: str) -> None:
    install_plugin("demo-plugin", {plugins.EMBEDDERS: f"demo = demo_plugin:{entry}"}, code)
    with pytest.raises(ConfigurationError, match=f"'demo' of demo-plugin {message}") as caught:
        plugins.open_embedder(settings, print)
    assert caught.value.hint == "Reinstall demo-plugin, or report this to its authors."


def test_the_error_of_a_factory_is_kept(install_plugin: Install, settings: Settings) -> None:
    install_plugin("demo-plugin", {plugins.EMBEDDERS: "demo = demo_plugin:refuse"}, FACTORIES)
    with pytest.raises(EmbeddingError, match="the service is down"):
        plugins.open_embedder(settings, print)


def test_two_plugins_with_the_same_name(install_plugin: Install, settings: Settings) -> None:
    entry = {plugins.EMBEDDERS: "demo = demo_plugin:open_embedder"}
    install_plugin("demo-plugin", entry, FACTORIES)
    install_plugin("demo-other", entry, FACTORIES)
    assert plugins.plugin_names(plugins.EMBEDDERS) == ("demo",)
    with pytest.raises(ConfigurationError, match="demo-other and demo-plugin both have 'demo'") as caught:
        plugins.open_embedder(settings, print)
    assert caught.value.hint == "Uninstall one of them."


def test_the_scheme_of_a_location() -> None:
    schemes = {"https://x.org": "https", "HTTP://x.org": "http", "demo:book": "demo", "S3://bucket/x": "s3"}
    for location, scheme in (schemes | dict.fromkeys(("docs", "./docs", r"C:\docs", ""), "")).items():
        assert scheme_of(location) == scheme


def test_a_source_is_chosen_by_its_scheme(
    install_plugin: Install, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin("demo-plugin", {plugins.SOURCES: "demo = demo_plugin:open_source"}, FACTORIES)

    def opened(location: str, **options: Any) -> str:
        return open_source(location, SourceOptions(**options), None, print, settings).location

    assert opened("demo:a/book") == "demo:a/book"
    assert opened("DEMO://a/book") == "DEMO://a/book"
    with pytest.raises(InvalidArgument, match="There is no source for s3: locations") as caught:
        opened("s3://bucket")
    assert "Installed: demo." in caught.value.hint
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("other:book", {}, "other:book does not exist"),
        ("demo:book", {"locale": "de"}, "--locale is for books on disk"),
        ("demo:book", {"delay": 0}, "--delay is for websites"),
    ]
    for location, options, message in wrong:
        with pytest.raises(InvalidArgument, match=message):
            opened(location, **options)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo:book").mkdir()
    (tmp_path / "demo:book" / "page.md").write_text("# Page\n\nText.\n")
    assert opened("demo:book") == str(tmp_path / "demo:book"), "a directory of that name comes first"
