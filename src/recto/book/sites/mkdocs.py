"""A MkDocs site: its pages, their addresses, and the titles that its navigation gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

from recto.book.bookfile import BookFile, UnreadableSite, check_url
from recto.book.naming import local_url, page_modules, title_of
from recto.book.shelf import LeftOut, Shelf, Written, bounds_of, is_file
from recto.book.sites.globs import any_of, ignored
from recto.types import Page

CONFIG_FILES = ("mkdocs.yml", "mkdocs.yaml")
_EXTENSIONS = (".markdown", ".mdown", ".mkdn", ".mkd", ".md")
_ALWAYS_IGNORED = (".*", "/templates/")
_LARGEST = 1 << 20  # bytes; no configuration that is written by people comes near it
_MOST_PARENTS = 10
_DEEPEST = 50


class MkDocsSite:
    """Finds the pages of a MkDocs site and acts as the rules for its one directory."""

    def __init__(self, config_file: Path, book_file: BookFile, book: str) -> None:
        self.directory = config_file.parent
        self._book_file = book_file
        self._book = book
        self._config = _load(config_file, self.directory.resolve())
        options = book_file.options
        url = options.url or check_url(_text(self._config, "site_url"), f"{config_file.name}: site_url")
        self._url = url if url.endswith("/") or not url else f"{url}/"
        self._directory_urls = self._config.get("use_directory_urls") is not False
        if options.trailing_slash is not None:
            self._directory_urls = options.trailing_slash
        self._ignored = ignored((*_ALWAYS_IGNORED, *_text(self._config, "exclude_docs").splitlines()))
        self._drafts = ignored(_text(self._config, "draft_docs").splitlines())
        self._left_out = any_of(book_file.exclude)
        self._titles = dict(_nav_titles(self._config.get("nav"), 0))
        self.notes: list[str] = []

    @property
    def root(self) -> Path:
        """The directory of the pages."""
        return (self.directory / (_text(self._config, "docs_dir") or "docs")).resolve()

    def shelves(self, path: Path) -> list[Shelf]:
        """Return the directory with the pages, narrowed to `path` if that is within; nothing if it is elsewhere."""
        if path != self.directory and not path.is_relative_to(self.root):
            return []
        below = "" if path == self.directory else path.relative_to(self.root).as_posix().removeprefix(".")
        bounds = bounds_of(self.directory, self.root)
        if bounds is None:
            raise UnreadableSite(f"docs_dir is outside the project: {self.root}", hint="Give the directory of the pages itself.")
        return [Shelf(self.root, self, below, bounds=bounds)]

    def enters(self, folder: str) -> bool:
        """Whether there may be pages below a directory."""
        return not folder.rpartition("/")[2].startswith(".") and folder != "templates"

    def wants(self, name: str) -> bool:
        """Whether a file is a page."""
        if not name.endswith(_EXTENSIONS) or self._ignored(name) or self._left_out(name):
            return False
        folder, _, file = name.rpartition("/")
        # Where both are there, MkDocs publishes the index.
        return not (
            file == "README.md" and is_file(self.root / folder / "index.md") and not self._ignored(f"{folder}/index.md".lstrip("/"))
        )

    def page(self, written: Written) -> Page | LeftOut:
        """Make the page of a file."""
        if self._drafts(written.name):
            return LeftOut("draft")
        keys = page_modules(written.path, self._book_file)
        return Page(
            path=written.path,
            url=urljoin(self._url, self._relative(written.name)) if self._url else local_url(written.path),
            title=self._titles.get(written.name) or title_of(written.name, self._book),
            module=keys[0],
            module_keys=keys,
            text=written.text,
            revision=written.revision,
            format="markdown",
            anchors="python-markdown",
        )

    def _relative(self, name: str) -> str:
        """Return a page's address below that of the site."""
        folder, _, file = name.rpartition("/")
        stem = file.rpartition(".")[0]
        stem = "index" if stem == "README" else stem
        parts = [folder] if folder else []
        if not self._directory_urls:
            return quote("/".join([*parts, f"{stem}.html"]))
        parts += [] if stem == "index" else [stem]
        return quote("/".join([*parts, ""])) if parts else ""


def _load(file: Path, bounds: Path, depth: int = 0) -> dict[str, Any]:
    """Read a configuration and those that it inherits from within the directory."""
    import yaml

    try:
        if file.stat().st_size > _LARGEST:
            raise UnreadableSite(f"{file.name} is larger than a configuration is", hint="Give the directory of the pages itself.")
        values = yaml.load(file.read_bytes().decode("utf-8"), Loader=_tolerant_loader())  # noqa: S506 (a safe loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        line = " ".join(str(error).split())[:200]
        raise UnreadableSite(f"{file.name} cannot be read: {line}", hint="Repair it, or give the directory of the pages itself.") from error
    values = values if isinstance(values, dict) else {}
    parent = values.pop("INHERIT", None)
    if not isinstance(parent, str):
        return values
    source = (file.parent / parent).resolve()
    if not source.is_relative_to(bounds) or not source.is_file() or depth >= _MOST_PARENTS:
        raise UnreadableSite(
            f"{file.name}: INHERIT names {parent}, which is no file within {bounds.name}", hint="Give --site-url and the pages' directory."
        )
    return {**_load(source, bounds, depth + 1), **values}


def _tolerant_loader() -> Any:
    """Return a safe YAML loader to which a tag it does not know is no error: the value behind it is not needed."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def environment(loader: Any, node: Any) -> Any:
        """With no environment variable set, the last of a list is what is left."""
        if isinstance(node, yaml.SequenceNode):
            values = loader.construct_sequence(node)
            return values[-1] if len(values) > 1 else None
        return None

    Loader.add_constructor("!ENV", environment)
    Loader.add_multi_constructor("", lambda _loader, _suffix, _node: None)
    return Loader


def _text(config: dict[str, Any], key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""


def _nav_titles(nav: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the files of the navigation with the titles they have there."""
    if depth > _DEEPEST:
        return
    if isinstance(nav, list):
        for item in nav:
            yield from _nav_titles(item, depth + 1)
    elif isinstance(nav, dict):
        for title, target in nav.items():
            if isinstance(target, str):
                yield target, str(title)
            else:
                yield from _nav_titles(target, depth + 1)
