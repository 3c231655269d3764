"""Site options, `recto.toml`, and the default modules, titles and URLs of pages."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recto._util.text import ROOT_MODULE, module_keys, nearest
from recto.errors import ConfigurationError, InvalidOption

BOOK_FILE = "recto.toml"
_TABLES = ("site", "modules")


class UnreadableSite(ConfigurationError):
    """The site's configuration cannot be used; its pages can still be read as a plain tree."""


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """What the user states about a site instead of its configuration; "" and None mean not stated."""

    url: str = ""
    """The URL of the site with its base path, such as https://example.org/book/."""
    route_base_path: str | None = None
    trailing_slash: bool | None = None
    version: str = ""
    locale: str = ""

    def over(self, other: SiteOptions) -> SiteOptions:
        """Return these options, with `other` for those that are not stated."""
        own = {
            name: value
            for name in _names(SiteOptions)
            if (value := getattr(self, name)) is not None and value != ""
        }
        if self.route_base_path == "":
            own["route_base_path"] = ""  # at the root of the site
        return replace(other, **own)


NO_OPTIONS = SiteOptions()


@dataclass(frozen=True, slots=True)
class BookFile:
    """The content of `recto.toml`."""

    options: SiteOptions = NO_OPTIONS
    exclude: tuple[str, ...] = ()
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def module_of(self, path: str) -> str | None:
        """Return the module that the file assigns to a page; the longest matching path wins."""
        fitting = [
            (len(folder), name)
            for name, folders in self.modules.items()
            for folder in folders
            if path == folder or path.startswith(f"{folder}/") or path.rpartition(".")[0] == folder
        ]
        return max(fitting)[1] if fitting else None


def read_book_file(*folders: Path) -> BookFile:
    """Read the first `recto.toml` in these directories; return an empty one if there is none."""
    for folder in folders:
        path = folder / BOOK_FILE
        if path.is_file():
            return _read(path)
    return BookFile()


def check_url(url: str, origin: str) -> str:
    """Return a URL, or raise an error if it is not that of a website; `origin` says where it came from."""
    try:
        parts = urlsplit(url)
        usable = not url or (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and not parts.query
            and not parts.fragment
        )
    except ValueError:
        usable = False
    if not usable:
        error = InvalidOption if origin.startswith("--") else ConfigurationError
        raise error(
            f"{origin} is not the address of a website: {url[:200]!r}",
            hint="It looks like https://example.org/book/",
        )
    return url


def _read(path: Path) -> BookFile:
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}", hint="It must be a TOML file; see the guide on book files."
        ) from error
    _check_keys(path, "", data, _TABLES)
    site = _table(path, data, "site")
    _check_keys(path, "site.", site, (*_names(SiteOptions), "exclude"))
    return BookFile(
        options=SiteOptions(
            url=check_url(_text(path, site, "url") or "", f"{path}: site.url"),
            route_base_path=_text(path, site, "route_base_path"),
            trailing_slash=_switch(path, site, "trailing_slash"),
            version=_text(path, site, "version") or "",
            locale=_text(path, site, "locale") or "",
        ),
        exclude=_texts(path, "site.exclude", site.get("exclude", [])),
        modules=_modules(path, _table(path, data, "modules")),
    )


def _modules(path: Path, table: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        name.strip().lower(): tuple(folder.strip("/") for folder in _texts(path, f"modules.{name}", folders))
        for name, folders in table.items()
    }


def _check_keys(path: Path, prefix: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            guess = nearest(key, known)
            hint = (
                f"Did you mean {prefix}{guess}?"
                if guess
                else f"It may hold: {', '.join(prefix + name for name in known)}."
            )
            raise ConfigurationError(f"{path}: unknown key {prefix}{key}", hint=hint)


def _table(path: Path, data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise _wrong(path, key, "a table", f"Write it as [{key}].")
    return value


def _text(path: Path, table: dict[str, Any], key: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise _wrong(path, f"site.{key}", "text", f'Write it in quotes: {key} = "{value}".')
    return value


def _switch(path: Path, table: dict[str, Any], key: str) -> bool | None:
    value = table.get(key)
    if value is not None and not isinstance(value, bool):
        raise _wrong(path, f"site.{key}", "true or false", "Write it without quotes.")
    return value


def _texts(path: Path, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(path, key, "a list of strings", 'Such as ["drafts/**"].')
    return tuple(value)


def _wrong(path: Path, key: str, wanted: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {key} must be {wanted}", hint=hint)


def _names(kind: type) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))


LOCAL_ADDRESS = "local://docs/docs"
INDEX_PAGES = frozenset({"index", "readme"})
_GENERIC_NAMES = frozenset({"docs", "doc", "book", "content", "src", "site", "website", "pages"})


def page_modules(path: str, book_file: BookFile, labels: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return all names of a page's module, canonical one first: that of `recto.toml`, else its directory."""
    top = path.split("/", maxsplit=1)[0] if "/" in path else ""
    keys = (*module_keys(top), *(label.strip().lower() for label in labels)) if top else (ROOT_MODULE,)
    given = book_file.module_of(path)
    return tuple(dict.fromkeys((given, *keys) if given else keys))


def local_parts(path: str) -> list[str]:
    """Return the parts of a page's local URL; an index page has those of its directory."""
    parts = path.rpartition(".")[0].split("/")
    return parts[:-1] if parts[-1].lower() in INDEX_PAGES else parts


def local_url(path: str) -> str:
    """Return the URL of a page that is not published."""
    return "/".join((LOCAL_ADDRESS, *local_parts(path)))


def title_of(path: str, book: str) -> str:
    """Return a title from the name of a file, or of its directory if it is an index page."""
    parts = path.rpartition(".")[0].split("/")
    title = parts[-1]
    if title.lower() in INDEX_PAGES:
        title = parts[-2] if len(parts) > 1 else book
    return humanised(title)


def humanised(name: str) -> str:
    """Return the name of a file or directory as a title: `ros2-fundamentals` is "Ros2 fundamentals"."""
    return name.replace("-", " ").replace("_", " ").strip().capitalize()


def book_name(root: Path) -> str:
    """Return the name of the nearest directory that is not generic, such as `docs`."""
    for folder in (root, *root.parents):
        if folder.name and folder.name.lower() not in _GENERIC_NAMES:
            return folder.name
    return root.name or "book"
