"""Sites of Antora: the components of one repository, in one version."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recto._util.text import ROOT_MODULE, slug
from recto.book.parsing import ASCIIDOC
from recto.book.parsing.asciidoc.text import Attributes, Inline
from recto.book.sources.asciidoc import Preprocessor, page_title
from recto.book.sources.directory import Navigation, is_file
from recto.book.sources.includes import Includes
from recto.book.sources.options import UnreadableSite, read_config, resolved_path
from recto.book.sources.site import Entry, Site, html_address, text_of, texts_of

_LONGEST_NAVIGATION = 20_000  # lines; the one of a large product has a tenth of it
_DEEPEST = 6  # directories between a playbook and the components of its site
_RESOURCE = re.compile(
    r"(?:[^@:$]{1,99}@)?(?:(?:(?P<component>[^:$]{0,99}):)?(?P<module>[^:$]{0,99}):)?(?:(?P<family>\w+)\$)?(?P<path>[^:$]+)"
)
_NAVIGATION = re.compile(r"[ \t]*(?:(?P<mark>\*+|-|\.+)[ \t]+(?P<text>\S.*)|\.(?P<title>[^\s.].*))")
_LINK = re.compile(r"xref:(?P<target>[^\s\[\]]{1,300}+)\[(?P<text>[^\]]{0,300}+)\]")
_FAMILIES = {name: f"{name}s" for name in ("page", "partial", "example", "image", "attachment")}
_PLAYBOOKS = ("antora-playbook.yml", "antora-playbook*.yml", "*-playbook.yml", "site.yml")


@dataclass(frozen=True, slots=True)
class _Component:
    """A component of a site, as its `antora.yml` describes it."""

    folder: Path
    name: str
    version: str
    navigation: list[str] = field(default_factory=list)
    start: str = ""
    values: Mapping[str, str] = field(default_factory=dict)


class AntoraSite(Preprocessor, Site):
    """The components of a site of Antora that are in this repository, in one version."""

    generator = "antora"
    config_files = (*_PLAYBOOKS, "antora.yml")
    signature = r"^(?:name|content|site):"
    suffixes = ASCIIDOC.suffixes

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether there is a component at or below the file."""
        return (
            super().recognises(config_file) and next(_component_files(config_file.parent), None) is not None
        )

    def configure(self, config_file: Path) -> None:
        """Read the playbook, if there is one, the components and their navigation."""
        folders = (
            folder
            for folder in (self.directory, *self.directory.parents)
            if folder.is_relative_to(self.bounds)
        )
        files = (file for folder in folders for name in _PLAYBOOKS for file in sorted(folder.glob(name)))
        playbook_file = next((file for file in files if is_file(file)), None)
        playbook = self.read_yaml(playbook_file) if playbook_file else {}
        self.title, self.url = text_of(playbook, "site", "title"), text_of(playbook, "site", "url")
        self._style = text_of(playbook, "urls", "html_extension_style")
        self._latest = text_of(playbook, "urls", "latest_version_segment")
        if text_of(playbook, "urls", "latest_version_segment_strategy") not in ("", "replace"):
            self._latest = ""
        self._shared = _attribute_values(playbook)
        self.root = self.directory.resolve()
        self._components = [self._component(file) for file in _component_files(self.root)]
        if not self._components:
            raise UnreadableSite(f"{config_file.name}: there is no antora.yml in {self.directory.name}")
        self.title = self.title or (self._read_titles[0] if len(self._components) == 1 else "")
        self._page_titles: dict[Path, str] = {}
        for component in self._components:
            entries = list(self._entries(component))
            start = self.page_file(component.start, component.folder / "modules/ROOT/nav.adoc")
            name = (
                start.relative_to(self.root).as_posix() if start and start.is_relative_to(self.root) else ""
            )
            is_listed = not name or any(entry[0] == name for entry in entries)
            # The start page comes before the navigation that does not list it.
            self.list_pages(entries if is_listed else [(name, "", ()), *entries])

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order the pages, and set their modules."""
        self._sizes = Counter(section[0] for section in self.sections.values() if section)
        self.book_file = replace(self.book_file, pages={name: self._module(name) for name in names})
        return super().navigation(names)

    def _component(self, file: Path) -> _Component:
        data = self.read_yaml(file)
        version = data.get("version")
        version = "" if version is None or isinstance(version, bool) else str(version)
        title = text_of(data, "title") or text_of(data, "name")
        self._read_titles = [*getattr(self, "_read_titles", []), title]
        display = str(data.get("display_version", version) or version)
        values = {
            "page-component-name": text_of(data, "name"),
            "page-component-title": title,
            "page-component-version": version,
            "page-version": version,
            "page-component-display-version": display,
        }
        attributes = {**self._shared[0], **_attribute_values(data)[2], **self._shared[1], **values}
        segment = self._latest if self._latest and not data.get("prerelease") else version
        start = text_of(data, "start_page") or "index.adoc"
        name, listed = text_of(data, "name"), texts_of(data.get("nav"))
        return _Component(file.parent, name, segment, listed, start, attributes)

    def _place(self, file: Path) -> tuple[_Component, str, str, str] | None:
        """Return the component, the module, the family and the path of a file."""
        fitting = [part for part in self._components if file.is_relative_to(part.folder / "modules")]
        if not fitting:
            return None
        component = max(fitting, key=lambda part: len(part.folder.parts))
        module, family, path = (
            *file.relative_to(component.folder / "modules").as_posix().split("/", 2),
            "",
            "",
        )[:3]
        return component, module, family, path

    def wants(self, name: str) -> bool:
        """Return whether a file is a page of a component."""
        place = self._place(self.root / name)
        return (
            place is not None and place[2] == "pages" and "/_" not in f"/{place[3]}" and super().wants(name)
        )

    def expands(self, name: str) -> bool:
        """Return whether a file is a page."""
        return name.lower().endswith(ASCIIDOC.suffixes)

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the address of a page: component, version and module (except `ROOT`) and path."""
        place = self._place(self.root / name)
        if place is None:
            return html_address(name)
        component, module, _, path = place
        above = [part for part in (component.name, component.version, module) if part not in ("", "ROOT")]
        address = "/".join([*above, html_address(path)])
        if self._style in ("indexify", "drop"):
            address = re.sub(r"(^|/)index\.html$", r"\1", address)
            address = address.removesuffix(".html") + "/" * (
                self._style == "indexify" and address.endswith(".html")
            )
        return address

    def values_of(self, file: Path) -> Mapping[str, str]:
        """Return the attributes of the playbook, the component and the page."""
        place = self._place(file)
        site = {"env": "site", "env-site": "", "site-gen": "antora", "site-gen-antora": "", "icons": "font"}
        folders = {"partialsdir": "partial$", "examplesdir": "example$", "docname": file.stem}
        page = {"page-module": place[1], "page-relative-src-path": place[3]} if place else {}
        return {**site, **(place[0].values if place else {}), **folders, **page}

    def locate(self, target: str, file: Path) -> tuple[str, tuple[Path, ...]]:
        """Return the place of a resource such as `module:partial$file.adoc`."""
        found, place = _RESOURCE.fullmatch(target), self._place(file)
        if not found or not re.search(r"[$:@]", target) or "://" in target:
            return super().locate(target, file)
        component, module = (place[0], place[1]) if place else (self._components[0], "ROOT")
        if name := found["component"]:
            component = next((part for part in self._components if part.name == name), None)  # type: ignore[assignment]
        if component is None:
            return target, ()
        module = found["module"] or ("ROOT" if found["component"] else module)
        family = found["family"] or "page"
        above = component.folder / "modules" / module
        if found["path"].startswith("./"):
            return found["path"], (file.parent,)
        return found["path"].lstrip("/"), (
            above / _FAMILIES.get(family, family),
            above / "pages" / f"_{family}s",
        )

    def page_file(self, target: str, file: Path) -> Path | None:
        """Return the file of the page that a reference names."""
        path, bases = self.locate(target if re.search(r"[$:@]", target) else f"page${target}", file)
        found = next((base / path for base in bases if is_file(base / path)), None)
        return found.resolve() if found else None

    def title_of(self, target: str, file: Path) -> str:
        """Return the title of another page."""
        page = None if "#" in target else self.page_file(target, file)
        place = self._place(page) if page else None
        if page is None or place is None or place[2] != "pages":
            return ""
        if page not in self._page_titles:
            self._page_titles[page] = page_title(page, self.bounds, place[0].values, "reftext")
        return self._page_titles[page]

    def _entries(self, component: _Component) -> Iterator[Entry]:
        """Yield the pages that the navigation of a component lists."""
        left = _LONGEST_NAVIGATION
        names = [component.folder / name for name in component.navigation]
        for file in dict.fromkeys(map(resolved_path, names)):
            text = read_config(file, self.bounds, ASCIIDOC.largest)
            includes = Includes(self.find, self.bounds)
            text = includes.expand(file.name, file, text)[0]
            left -= text.count("\n")
            if left < 0:
                self.notes.append(f"{file.name}: the navigation is too long, the rest of it is not read")
                return
            self.notes += [f"{file.name}: {line} is not included" for line in includes.unresolved[:3]]
            title, above = "", list[tuple[int, str]]()
            for found in filter(None, map(_NAVIGATION.fullmatch, text.split("\n"))):
                if found["title"]:
                    title, above = found["title"].strip(), []
                    continue
                depth = len(found["mark"])
                above = [(other, text) for other, text in above if other < depth]
                link = _LINK.search(found["text"])
                words = Inline(Attributes(component.values)).words(link["text"] if link else found["text"])
                page = self.page_file(link["target"].partition("#")[0], file) if link else None
                if page is not None and page.is_relative_to(self.root):
                    sections = tuple(filter(None, [title, *(text for _, text in above)]))
                    yield page.relative_to(self.root).as_posix(), words, sections
                above.append((depth, words))

    def _module(self, name: str) -> str:
        """Return the module of a page: Antora's, or for `ROOT` the first section of the navigation."""
        place, section = self._place(self.root / name), self.sections.get(name, ("",))[:1]
        if place is not None and place[1] != "ROOT":
            return slug(place[1]) or ROOT_MODULE
        return slug(section[0]) or ROOT_MODULE if section and self._sizes[section[0]] > 1 else ROOT_MODULE


def _component_files(folder: Path) -> Iterator[Path]:
    """Yield the descriptions of components at or below a directory; links are not followed."""
    for here, folders, files in os.walk(folder):
        depth = len(Path(here).relative_to(folder).parts)
        folders[:] = (
            sorted(name for name in folders if name[0] != "." and name != "node_modules")
            if depth < _DEEPEST
            else []
        )
        if "antora.yml" in files:
            folders[:] = []
            yield Path(here, "antora.yml")


def _attribute_values(data: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """Return the attributes of a configuration: those that a component may change, the others, all."""
    section = data.get("asciidoc")
    values = section.get("attributes") if isinstance(section, dict) else None
    texts = {
        str(name).lower(): " ".join(("" if value is True else str(value)).split())
        for name, value in (values if isinstance(values, dict) else {}).items()
        if value is not None and value is not False and isinstance(value, str | int | float)
    }
    soft = {name: value.removesuffix("@") for name, value in texts.items() if value.endswith("@")}
    hard = {name: value for name, value in texts.items() if name not in soft}
    return soft, hard, soft | hard
