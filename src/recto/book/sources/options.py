"""Options of sites, `recto.toml`, and the default names, titles and URLs of pages."""

from __future__ import annotations

import os
import tomllib
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recto._util.files import read_limited
from recto._util.text import ROOT_MODULE, module_keys, nearest
from recto.errors import ConfigurationError, InvalidOption

BOOK_FILE = "recto.toml"
_PLAIN = (
    "Pass the directory of the pages itself, or --generator plain. "
    "--site-url states where they are published."
)
LARGEST_CONFIG = 1 << 19  # bytes; far more than any configuration has
_START = 1 << 14  # bytes of a page that are searched for front matter
_LARGEST_LOGO = 32 << 10  # bytes; every index has it in its fingerprint
_IMAGES = {
    ".svg": "svg+xml",
    ".png": "png",
    ".ico": "x-icon",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".gif": "gif",
    ".webp": "webp",
}
LOCAL_ADDRESS = "local://docs/docs"
ROOT_TITLE = "Introduction"  # of the pages that are in no module
INDEX_PAGES = frozenset({"index", "readme"})
_GENERIC_NAMES = frozenset({"docs", "doc", "book", "content", "src", "site", "website", "pages"})


class UnreadableSite(ConfigurationError):
    """The site's configuration cannot be used; its pages can still be read as a plain tree."""

    def __init__(self, message: str, *, hint: str = _PLAIN) -> None:
        super().__init__(message, hint=hint)


def repository_of(site: Path) -> Path:
    """Return the nearest directory at or above a site that has `.git`, else the site's own.

    Recto reads no file outside it, whatever a site's configuration and links say. A home directory that is a
    repository itself, which holds much more than the book, does not count.
    """
    site = site.resolve()
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - without an error if there is no home
    above = (folder for folder in site.parents if folder != home)
    return next((folder for folder in (site, *above) if (folder / ".git").exists()), site)


def resolved_path(path: Path) -> Path:
    """Return a path without links; a name that cannot exist, which a site may state, stays as it is."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # too long, a loop of links, a null byte
        return path


def is_inside(file: Path, bounds: Path) -> bool:
    """Return whether a file is inside a repository after links are resolved, and not in its `.git`."""
    try:
        resolved = file.resolve()
    except ValueError:  # a null byte in its name
        return False
    return resolved.is_relative_to(bounds) and ".git" not in resolved.relative_to(bounds).parts


def read_config(file: Path, bounds: Path, limit: int = LARGEST_CONFIG) -> str:
    """Return the text of a site's configuration file; raise `UnreadableSite` if it cannot be read."""
    try:
        if is_inside(file, bounds):
            return read_limited(file, limit).decode("utf-8", "replace")
        reason = "it is a symbolic link that leaves the book"
    except ValueError as error:
        reason = str(error)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        reason = getattr(error, "strerror", None) or str(error)
    raise UnreadableSite(f"{file.name} cannot be read: {reason}")


def read_import(folder: Path, bounds: Path, path: str) -> str:
    """Return the text of a file that a configuration imports; raise LookupError if it cannot be read."""
    try:
        return read_config(folder / path, bounds)
    except (OSError, ValueError, UnreadableSite) as error:
        raise LookupError(path) from error


def read_start(file: Path, bounds: Path) -> str:
    """Return the start of a page, which may hold front matter; "" if it cannot be read."""
    try:
        if is_inside(file, bounds):
            with file.open("rb") as opened:
                return opened.read(_START).decode("utf-8", "replace")
    except (OSError, RuntimeError):  # it is missing, or reported when it is read
        pass
    return ""


def read_logo(files: Iterable[Path], bounds: Path) -> str:
    """Return the first of these files that is a small image, as a `data:` URL; "" if there is none."""
    for file in files:
        kind = _IMAGES.get(file.suffix.lower())
        with suppress(OSError, RuntimeError, ValueError):  # it is missing, too large, or a loop of links
            if kind and is_inside(file, bounds):
                return f"data:image/{kind};base64,{b64encode(read_limited(file, _LARGEST_LOGO)).decode()}"
    return ""


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """What the user states about a site instead of its configuration; "" and None mean not stated."""

    url: str = ""
    """The URL of the site with its base path, such as https://example.org/book/."""
    route_base_path: str | None = None
    """The path below the URL; "" is the root of the site."""
    trailing_slash: bool | None = None
    version: str = ""
    """A version, several that are separated by commas, or `all`; the same for locales."""
    locale: str = ""
    title: str = ""
    generator: str = ""

    def over(self, other: SiteOptions) -> SiteOptions:
        """Return these options, with `other` for those that are not stated."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return replace(
            other, **{name: values[name] for name in values if values[name] != getattr(NO_OPTIONS, name)}
        )


NO_OPTIONS = SiteOptions()


@dataclass(frozen=True, slots=True)
class BookFile:
    """The content of `recto.toml`; the directories in `module_root` are the modules by default.

    `pages` has the modules of pages that are not in a module's directory. The paths of all pages of one
    version or locale of the book may begin with `edition`, which is part of no module.
    """

    options: SiteOptions = NO_OPTIONS
    exclude: tuple[str, ...] = ()
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    module_root: str = ""
    pages: Mapping[str, str] = field(default_factory=dict)
    edition: str = ""

    def module_directory(self, path: str) -> str:
        """Return the name of the directory in `module_root` that holds a page; "" if none does."""
        directory, slash, _ = path.removeprefix(self.edition).removeprefix(self.module_root).partition("/")
        return directory if slash else ""

    def module_keys(self, path: str) -> tuple[str, ...]:
        """Return all names of a page's module, canonical one first: the one stated here, else its directory.

        The longest of the paths that match the page wins.
        """
        path = path.removeprefix(self.edition)
        top = self.module_directory(path)
        keys = (self.pages[path],) if path in self.pages else module_keys(top) if top else (ROOT_MODULE,)
        fitting = [
            (len(folder), name)
            for name, folders in self.modules.items()
            for folder in folders
            if path == folder or path.startswith(f"{folder}/") or path.rpartition(".")[0] == folder
        ]
        return tuple(dict.fromkeys((max(fitting)[1], *keys) if fitting else keys))


def chosen_names(stated: str, kind: str, names: Sequence[str], default: str) -> list[str]:
    """Return the versions or locales that an option names, the default one first."""
    if stated in ("", *names):
        return [stated or default]
    chosen = names if stated == "all" else [name.strip() for name in stated.split(",")]
    for name in chosen:
        if name not in names:
            raise unknown_choice(f"There is no {kind} {name} of this site", name, names)
    return sorted(dict.fromkeys(chosen), key=lambda name: name != default)


def read_book_file(*folders: Path, options: SiteOptions = NO_OPTIONS) -> BookFile:
    """Read the first `recto.toml` in these directories, if there is one; `options` override it."""
    path = next((folder / BOOK_FILE for folder in folders if (folder / BOOK_FILE).is_file()), None)
    if path is None:
        return BookFile(options)
    if not is_inside(path, repository_of(path.parent)):
        raise ConfigurationError(f"{path} is a symbolic link that leaves the book", hint="Copy the file.")
    try:
        data = tomllib.loads(read_limited(path, LARGEST_CONFIG).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error}", hint="It must be a TOML file; see the guide on book files."
        ) from error
    _check_keys(path, "", data, ("site", "modules"))
    site, modules = _table(path, data, "site"), _table(path, data, "modules")
    _check_keys(path, "site.", site, (*(option.name for option in fields(SiteOptions)), "exclude"))
    exclude = _texts(path, "site.exclude", site.pop("exclude", []))
    for key, value in site.items():
        if key == "trailing_slash" and not isinstance(value, bool):
            raise _wrong(path, f"site.{key}", "true or false", "Write it without quotes.")
        if key != "trailing_slash" and not isinstance(value, str):
            raise _wrong(path, f"site.{key}", "text", "Write it in quotes.")
    check_url(site.get("url", ""), f"{path}: site.url")
    folders_of = {name: _texts(path, f"modules.{name}", folders) for name, folders in modules.items()}
    return BookFile(
        options.over(SiteOptions(**site)),
        exclude,
        {
            name.strip().lower(): tuple(folder.strip("/") for folder in folders)
            for name, folders in folders_of.items()
        },
    )


def _check_keys(path: Path, prefix: str, table: dict[str, Any], allowed: tuple[str, ...]) -> None:
    for key in table:
        if key not in allowed:
            guess = nearest(key, allowed)
            every = ", ".join(prefix + name for name in allowed)
            hint = f"Did you mean {prefix}{guess}?" if guess else f"It may hold: {every}."
            raise ConfigurationError(f"{path}: unknown key {prefix}{key}", hint=hint)


def _table(path: Path, data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise _wrong(path, key, "a table", f"Write it as [{key}].")
    return value


def _texts(path: Path, key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(path, key, "a list of strings", 'Such as ["drafts/**"].')
    return tuple(value)


def _wrong(path: Path, key: str, expected: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"{path}: {key} must be {expected}", hint=hint)


def check_url(url: str, origin: str) -> str:
    """Return the URL of a website, or raise an error if it is not one; `origin` says who stated it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.query + parts.fragment
    except ValueError:
        usable = False
    if url and not usable:
        error = InvalidOption if origin.startswith("--") else ConfigurationError
        raise error(
            f"{origin} is not the URL of a website: {url[:200]!r}",
            hint="Use a URL such as https://example.org/book/.",
        )
    return url


def unknown_choice(message: str, requested: str, names: Collection[str]) -> ConfigurationError:
    """Return the error for a version or a language that a site does not have."""
    guess = nearest(requested, list(names))
    hint = f"Did you mean {guess}? " if guess else ""
    return ConfigurationError(message, hint=f"{hint}The site has: {', '.join(names) or 'only one'}.")


def local_parts(path: str) -> list[str]:
    """Return the parts of a page's local URL; an index page has the URL of its directory."""
    parts = path.rpartition(".")[0].split("/")
    return parts[:-1] if parts[-1].lower() in INDEX_PAGES else parts


def local_url(path: str) -> str:
    """Return the URL of a page that is not published."""
    return "/".join((LOCAL_ADDRESS, *local_parts(path)))


def title_of(path: str, book: str) -> str:
    """Return a title from the name of a file, or of its directory if it is an index page."""
    return humanised((local_parts(path) or [book])[-1])


def humanised(name: str) -> str:
    """Return the name of a file or directory as a title: `ros2-fundamentals` is "Ros2 fundamentals"."""
    return name.replace("-", " ").replace("_", " ").strip().capitalize()


def book_name(root: Path) -> str:
    """Return the name of the nearest directory that is not generic, such as `docs`."""
    names = (folder.name for folder in (root, *root.parents))
    return next((name for name in names if name and name.lower() not in _GENERIC_NAMES), root.name or "book")
