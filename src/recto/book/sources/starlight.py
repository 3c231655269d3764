"""Starlight: the documentation theme of Astro."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recto.book.parsing.frontmatter import stated
from recto.book.parsing.markdown.headings import slugger
from recto.book.sources.docusaurus.javascript import Unknown, get
from recto.book.sources.includes import Directive, find_containers
from recto.book.sources.options import is_inside
from recto.book.sources.site import Entry, Site, text_of

_DEEPEST = 10


class StarlightSite(Site):
    """A Starlight site in its default language, or in the one of `--locale`."""

    generator = "starlight"
    config_files = tuple(f"astro.config.{end}" for end in ("mjs", "ts", "js", "mts", "cjs"))
    signature = "starlight"
    anchors = "astro"
    options = ("locale",)

    def configure(self, config_file: Path) -> None:
        """Read the options of Starlight among the integrations."""
        config = self.read_javascript(config_file)
        listed = config.get("integrations")
        integrations = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        keys = ("sidebar", "title", "locales", "defaultLocale")
        options = next((one for one in integrations if any(key in one for key in keys)), {})
        self.root = self.directory / (text_of(config, "srcDir") or "src") / "content" / "docs"
        self.title = text_of(options, "title")
        self.set_logo(text_of(options, "logo", "src"), text_of(options, "favicon"))
        site, base = text_of(config, "site"), text_of(config, "base")
        self.url = (
            f"{site.rstrip('/')}/{base.strip('/')}/".replace("//", "/").replace(":/", "://") if site else ""
        )
        slash = self.book_file.options.trailing_slash
        self._slash = slash if slash is not None else text_of(config, "trailingSlash") != "never"
        self.choose_locale(options.get("locales"), text_of(options, "defaultLocale") or "root")
        self.list_pages(self._entries(options.get("sidebar"), ()))

    def _entries(self, value: Any, sections: tuple[str, ...]) -> Iterator[Entry]:
        if isinstance(value, Unknown) or len(sections) > _DEEPEST:
            self.notes.append("A part of the sidebar cannot be read without running the configuration.")
        for item in value if isinstance(value, list) else ():
            if isinstance(item, str):
                yield item, "", sections
            elif isinstance(item, dict):
                label, items = text_of(item, "label"), item.get("items")
                below = (*sections, label) if label else sections
                yield from self._entries(items, below)
                if folder := text_of(item, "autogenerate", "directory"):
                    start = self.root / self.locale
                    inside = is_inside(start / folder, self.root.resolve())
                    files = sorted((start / folder).rglob("*.md*"), key=self._order) if inside else []
                    yield from ((file.relative_to(start).as_posix(), "", below) for file in files)
                elif items is None and (target := text_of(item, "slug") or text_of(item, "link")):
                    yield target, label, sections

    def _order(self, file: Path) -> tuple[float, str]:
        order = get(self.head(file.relative_to(self.root).as_posix()), "sidebar", "order")
        number = float(order) if isinstance(order, int | float) else float("inf")
        return number, file.with_suffix("").as_posix()

    def file_of(self, target: str) -> str | None:
        """Return the file of a slug, a link or a path."""
        path = f"{self.locale}{target.strip('/')}"
        names = (f"{path}{end}" for end in ("", ".md", ".mdx", "/index.md", "/index.mdx"))
        names = (name.replace("//", "/").lstrip("/") for name in names)
        return None if "://" in target else next(filter(self.exists, names), None)

    def wants(self, name: str) -> bool:
        """Return whether a file is a page; the error page and names that begin with an underscore are not."""
        is_error = name.rpartition(".")[0] == f"{self.locale}404"
        hidden = is_error or any(part.startswith("_") for part in name.split("/"))
        return super().wants(name) and not hidden

    def address(self, name: str, head: dict[str, Any]) -> str:
        """Return the address of a page: its `slug`, or the slugs of the parts of its path."""
        slug = stated(head, "slug")
        if slug is None:
            parts = name.rpartition(".")[0].split("/")
            parts = parts[:-1] if parts[-1] == "index" else parts
            slug = "/".join(slugger("github")(part) for part in parts)
        return re.sub(r"/$", "", slug) + "/" * bool(slug and self._slash)

    def find(self, text: str, file: Path) -> Sequence[Directive]:  # noqa: ARG002
        """Find asides."""
        return find_containers(text) if ":::" in text else ()
