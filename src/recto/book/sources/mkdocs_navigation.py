"""The navigation of a MkDocs site: `nav`, the usual order of files, and what directories state."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from posixpath import normpath
from typing import Any, ClassVar

from recto.book.sources.directory import any_of, is_file
from recto.book.sources.options import read_config, title_of
from recto.book.sources.site import Entry, text_of
from recto.book.sources.summary import read_summary

_DEEPEST = 10  # directories in directories
_DEEPEST_LISTS = 50
_MOST_PATTERNS = 200  # each is compared with all pages
_NUMBER = re.compile(r"(\d{1,18})")


def nav_entries(nav: Any, sections: tuple[str, ...], title: str = "") -> Iterator[Entry]:
    """Yield each file of the navigation, its title, and the titles of the sections above it."""
    if len(sections) > _DEEPEST_LISTS:
        return
    if isinstance(nav, str):
        yield nav.removeprefix("./"), title, sections
    elif isinstance(nav, list):
        for item in nav:
            yield from nav_entries(item, sections)
    elif isinstance(nav, dict):
        for name, target in nav.items():
            below = sections if isinstance(target, str) else (*sections, str(name))
            yield from nav_entries(target, below, str(name))


def reading_order(name: str) -> list[tuple[bool, bool, str]]:
    """Return the key that sorts files as MkDocs does: an index first, then files, then directories."""
    *folders, file = name.split("/")
    is_index = file.partition(".")[0] in ("index", "README")
    return [*((True, True, folder) for folder in folders), (False, not is_index, file)]


class AwesomeNav:
    """The plugins awesome-nav and awesome-pages: directories have files that state their navigation.

    `load` returns the content of the file of a directory; {} if there is none. Pages come where they are
    listed, and the patterns stand for those that are listed nowhere. Only awesome-nav has a usual `order`.
    """

    FILES: ClassVar = {"awesome-nav": ".nav.yml", "awesome-pages": ".pages"}

    def __init__(self, names: Iterable[str], load: Callable[[str], dict[str, Any]], order: str) -> None:
        self._load, self._order = load, order
        self._pages = dict.fromkeys(sorted(names, key=reading_order))
        above = (name.split("/")[:-1] for name in self._pages)
        self._folders = dict.fromkeys(
            "/".join(parts[:end]) for parts in above for end in range(1, len(parts) + 1)
        )
        self._left, self._patterns = {**self._pages, **self._folders}, _MOST_PATTERNS

    def entries(self, folder: str = "", above: tuple[str, ...] = ()) -> list[Entry]:
        """Return the navigation of a directory."""
        config = self._load(folder)
        stated = config.get("nav") or config.get("arrange")
        items = stated if isinstance(stated, list) else ["index.md", "README.md", "..."]
        rest = ["..."] if config.get("append_unmatched") is True else []
        listed = list(self._listed([*items, *rest], folder, above))
        found: dict[int, list[Entry]] = {}
        for kind in (self._pages, self._folders, None):  # patterns come last
            for number, (target, title, sections) in enumerate(listed):
                if number in found or (kind is not None and target not in kind):
                    continue
                if kind is not None:
                    found[number] = self._resolved(target, title, sections)
                else:
                    found[number] = self._matching(target, sections, config)
        return [entry for number in range(len(listed)) for entry in found[number]]

    def _listed(self, items: list[Any], folder: str, above: tuple[str, ...]) -> Iterator[Entry]:
        """Yield the paths and patterns of a list, with their titles."""
        for item in items if len(above) < _DEEPEST else ():
            is_glob = isinstance(item, dict) and len(item) > 1 and "glob" in item
            stated = item if isinstance(item, dict) else {"": item}
            stated = {"": item["glob"]} if is_glob else stated
            for title, target in stated.items():
                if isinstance(target, list):
                    yield from self._listed(target, folder, (*above, str(title)))
                elif isinstance(target, str) and "://" not in target:
                    pattern = target.rpartition("|")[2].strip() if target.startswith("...") else target
                    yield normpath(f"{folder}/{pattern.replace('...', '*')}").lstrip("/"), str(title), above

    def _resolved(self, target: str, title: str, above: tuple[str, ...]) -> list[Entry]:
        """Return a page, or the pages of a directory."""
        if target not in self._left or len(above) > _DEEPEST:
            return []
        del self._left[target]
        if target in self._pages:
            return [(target, title, above)]
        name = title or text_of(self._load(target), "title") or title_of(target, "")
        return self.entries(target, (*above, name))

    def _matching(self, pattern: str, above: tuple[str, ...], config: dict[str, Any]) -> list[Entry]:
        """Return what is left and matches a pattern, in the order that the directory states."""
        self._patterns -= 1
        matches = any_of([pattern])
        names = [name for name in self._left if matches(name)] if self._patterns > 0 else []
        if order := text_of(config, "order") or text_of(config, "sort", "direction") or self._order:
            is_natural = bool(self._order) or config.get("sort_type") == "natural"
            names.sort(key=_natural if is_natural else str, reverse=order == "desc")
        if self._order:
            names.sort(key=self._folders.__contains__)
        shown = (name for name in names if name in self._pages or self._load(name).get("hide") is not True)
        return [entry for name in shown for entry in self._resolved(name, "", above)]


def _natural(name: str) -> list[Any]:
    """Return the key that sorts names as people do: `c2` comes before `c10`."""
    parts = _NUMBER.split(name.casefold())
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


def literate_entries(
    entries: Iterable[Entry], options: dict[str, Any], root: Path, bounds: Path
) -> Iterator[Entry]:
    """Yield the navigation with the entries that the plugin `literate-nav` reads in directories."""
    seen, file = set[Path](), text_of(options, "nav_file") or "SUMMARY.md"

    def listed(folder: str) -> list[Entry]:
        """Return the entries of the file of a directory, such as `guide/`; [] if there is none."""
        place = (root / folder).resolve()
        if place in seen or not is_file(place / file):
            return []
        seen.add(place)
        indexes = (f"{folder}{name}" for name in ("index.md", "README.md"))
        first = [name for name in indexes if options.get("implicit_index") is True and is_file(root / name)]
        links = list(read_summary(read_config(root / folder / file, bounds)))
        paths = [normpath(f"{folder}{path}") + "/" * path.endswith("/") for path, _, _ in links]
        below = [
            (path, title, () if above == (title,) else above)
            for path, (_, title, above) in zip(paths, links, strict=True)
        ]
        return [*((name, "", ()) for name in first[:1]), *below]

    def resolved(entries: Iterable[Entry], above: tuple[str, ...]) -> Iterator[Entry]:
        for name, title, sections in entries:
            titles = (*above, *sections, *filter(None, [title]))
            inner = listed(name) if name.endswith("/") and len(titles) < _DEEPEST else []
            yield from resolved(inner, titles) if inner else [(name, title, (*above, *sections))]

    return resolved(listed("") or entries, ())
