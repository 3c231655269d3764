"""The reading order of a book and the titles of its modules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recto._util.text import ROOT_MODULE, short_name
from recto.book.sources.options import humanised

if TYPE_CHECKING:
    from recto.book.sources.directory import PageDirectory

_ROOT_TITLE = "Introduction"


@dataclass(frozen=True, slots=True)
class Navigation:
    """The reading order of a site.

    `names` are all pages in reading order; `sections` has the titles of the sections above each page that the
    navigation lists, outermost first; `labels` are the titles of top directories.
    """

    names: tuple[str, ...]
    sections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def by_navigation(names: Sequence[str], listed: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Order pages as the navigation lists them; pages that it does not list come last, in their own order."""
    there = set(names)
    return (*(name for name in listed if name in there), *(name for name in names if name not in listed))


def module_titles(directories: Sequence[tuple[PageDirectory, Navigation]]) -> dict[str, str]:
    """Return the title of each module.

    It is the label of the module's directory, else the navigation section that holds its pages, else the
    title of the directory's index page, else the directory's name.
    """
    sections = _section_titles(directories)
    titles: dict[str, str] = {}
    for directory, navigation in directories:
        for name in navigation.names:
            module = directory.rules.module(directory.prefix + name)
            if titles.get(module):
                continue
            top = name.split("/", maxsplit=1)[0] if "/" in name else ""
            own = not directory.prefix and module == (short_name(top) if top else ROOT_MODULE)
            label = navigation.labels.get(top, "") if own else ""
            title = label or sections.get(module, "") or (directory.index_title(top) if own else "")
            titles[module] = title or (_ROOT_TITLE if own and not top else humanised(module))
    return titles


def _section_titles(directories: Sequence[tuple[PageDirectory, Navigation]]) -> dict[str, str]:
    """Return the outermost section that holds most of a module's pages, or all of them if it is nested.

    No two modules share a section. The root module comes last, because its pages belong to many sections.
    """
    totals: Counter[str] = Counter()
    held: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
    for directory, navigation in directories:
        for name, sections in navigation.sections.items():
            module = directory.rules.module(directory.prefix + name)
            totals[module] += 1
            held[module].update(sections[: depth + 1] for depth in range(len(sections)))
    most = {
        module: [
            path
            for path, count in counts.items()
            if (count == totals[module] if len(path) > 1 else 2 * count > totals[module])
        ]
        for module, counts in held.items()
    }
    owners = Counter(path for module, paths in most.items() for path in paths if module != ROOT_MODULE)
    titles = {}
    for module, paths in most.items():
        own = [path for path in paths if owners[path] == (module != ROOT_MODULE)]
        if own:
            titles[module] = min(own, key=len)[-1]
    return titles
