"""The versions of a Docusaurus site's docs: which there are, which one readers see, and where each is published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recto.book.sites.docusaurus_config import DEFAULT_ID, Docs, DocusaurusConfig
from recto.book.sites.javascript import Unknown
from recto.errors import ConfigurationError

CURRENT = "current"


@dataclass(frozen=True, slots=True)
class Versions:
    """`last` is the version without a name in its address, `chosen` the one that is read."""

    names: tuple[str, ...]
    last: str
    chosen: str
    routes: Mapping[str, str] = field(default_factory=dict)

    def route(self, version: str) -> str:
        """Return the part of the address that names a version."""
        if version in self.routes:
            return self.routes[version]
        return "" if version == self.last else "next" if version == CURRENT else version


def read_versions(config: DocusaurusConfig, site: Path, docs: Docs, asked: str) -> Versions:
    """Read the versions of an instance of the docs plugin and choose one."""
    options = docs.options
    released = _released(site, docs)
    if released and config.switch(options.get("disableVersioning"), "docs.disableVersioning"):
        released = []
    current = config.switch(options.get("includeCurrentVersion"), "docs.includeCurrentVersion") is not False
    names = released if CURRENT in released or not current else [CURRENT, *released]
    if not names:
        raise ConfigurationError(f"The docs in {docs.path} have no version", hint="Set includeCurrentVersion, or add to versions.json.")
    if len(names) == 1:  # whatever the rest says, there is nothing to choose from
        last = options.get("lastVersion")
        if not last.missing and last.data != names[0]:
            written = last.data.source if isinstance(last.data, Unknown) else last.plain
            config.notes.append(f"docs.lastVersion is {written}; only version {names[0]} is here, and is read as what readers get.")
        return Versions((names[0],), names[0], names[0], _routes(config, docs, names))
    only, last = options.get("onlyIncludeVersions"), options.get("lastVersion")
    unread = [key for key, value in (("onlyIncludeVersions", only), ("lastVersion", last)) if isinstance(value.data, Unknown)]
    if unread and not asked:
        config.known(options.get(unread[-1]), f"docs.{unread[-1]}")  # says what cannot be read and what to do
    wanted = None if "onlyIncludeVersions" in unread else config.texts(only, "docs.onlyIncludeVersions")
    names = [name for name in names if wanted is None or name in wanted] or names
    stated = "" if "lastVersion" in unread else config.text(last, "docs.lastVersion")
    usual = next((name for name in names if name != CURRENT), CURRENT)
    if unread:
        config.notes.append(f"docs.{unread[-1]} cannot be read; version {usual} is taken for the one without a version in its address.")
    if stated and stated not in names:
        raise ConfigurationError(
            f"{config.file.name}: docs.lastVersion is {stated}, which does not exist", hint=f"There are: {', '.join(names)}."
        )
    last_name = stated or usual
    return Versions(tuple(names), last_name, asked if asked in names else last_name, _routes(config, docs, names))


def _released(site: Path, docs: Docs) -> list[str]:
    file = site / ("versions.json" if docs.id == DEFAULT_ID else f"{docs.id}_versions.json")
    if not file.is_file():
        return []
    try:
        names = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file.name} cannot be read: {error}", hint="It must be a list of version names.") from error
    if not isinstance(names, list) or not all(_usable(name) for name in names):
        raise ConfigurationError(f"{file.name} is not a list of version names", hint='Such as ["2.0", "1.0"].')
    return names


def _usable(name: object) -> bool:
    """A version is a directory's name and nothing else."""
    return isinstance(name, str) and bool(name.strip()) and name not in (".", "..") and not set(name) & set("/\\\0")


def _routes(config: DocusaurusConfig, docs: Docs, names: list[str]) -> dict[str, str]:
    """Return the parts of addresses that the configuration sets itself."""
    found = {name: docs.options.get("versions", name, "path") for name in names}
    return {name: config.text(value, f"docs.versions.{name}.path") for name, value in found.items() if not value.missing}
