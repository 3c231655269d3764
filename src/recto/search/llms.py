"""A book as text for language models: llms.txt, llms-full.txt, and each page as Markdown, from its index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote, urlsplit

from recto._util.text import plural
from recto.errors import InvalidArgument, StorageError
from recto.protocols import Index
from recto.search.outline import Outline, OutlinePage, read_outline
from recto.search.pages import BookPage, read_page

SUFFIX = ".md"
_MAX_NAME = 200  # bytes of a file name, with room for the suffix


def llms_txt(title: str, outline: Outline, link: Callable[[OutlinePage], str]) -> str:
    """Return the list of pages by module, as llmstxt.org describes it; `link` returns where a page is."""
    modules = outline.modules()
    counted = f"{plural(len(outline.pages), 'page')} in {plural(len(modules), 'module')}"
    lines = [f"# {_one_line(title)}", "", f"> A book of {counted}. Each link leads to a page as Markdown."]
    for module in modules:
        lines += ["", f"## {_one_line(outline.titles.get(module, module))}", ""]
        lines += [
            f"- [{_link_text(page.title or page.url)}]({quote(link(page), safe=_KEPT)})"
            for page in outline.pages
            if page.module == module
        ]
    return "\n".join(lines) + "\n"


_KEPT = "%/:?#@!$&'*+,;=~[]"  # all characters of addresses, without the parentheses that end a link


def full_text(page: BookPage) -> str:
    """Return a page for llms-full.txt: its address, then its Markdown."""
    return f"Source: {_one_line(page.url)}\n\n{page.markdown()}\n\n"


def export_llms(index: Index, name: str, directory: Path, site_url: str = "") -> int:
    """Write llms.txt, llms-full.txt and each page as Markdown; return the number of pages.

    Each page has the path of its URL below `site_url`, or else below its host.
    """
    outline = read_outline(index)
    if site_url and not any(page.url.startswith(site_url) for page in outline.pages):
        raise InvalidArgument(
            f"No page is below {site_url}", hint=f"A page of this book: {outline.pages[0].url}."
        )
    paths = {page.url: _page_path(page.url, site_url) for page in outline.pages}

    def link(page: OutlinePage) -> str:
        path = quote(str(paths[page.url]))
        if site_url and page.url.startswith(site_url):
            return site_url + path
        address = urlsplit(page.url)
        return f"{address.scheme}://{address.netloc}/{path}" if address.scheme in ("http", "https") else path

    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "llms.txt").write_text(
            llms_txt(outline.title or name, outline, link), "utf-8", "replace"
        )
        with (directory / "llms-full.txt").open("w", encoding="utf-8", errors="replace") as full:
            for page in _pages(index, outline):
                full.write(full_text(page))
                path = directory / paths[page.url]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{page.markdown()}\n", "utf-8", "replace")
    except OSError as error:
        raise StorageError(
            f"Cannot write to {directory}: {error.strerror}", hint="Choose another directory."
        ) from error
    return len(outline.pages)


def _pages(index: Index, outline: Outline) -> Iterator[BookPage]:
    for page in outline.pages:
        yield read_page(index, page.url, index.info.collection)


def _page_path(url: str, site_url: str) -> PurePosixPath:
    """Return the file of a page; no name in the URL leads out of the directory."""
    if site_url and url.startswith(site_url):
        path = url.removeprefix(site_url)
    else:
        address = urlsplit(url)
        path = f"{address.path}?{address.query}" if address.query else address.path
    parts = [_file_name(part) for part in path.split("/") if part] or ["index"]
    return PurePosixPath(*parts[:-1], parts[-1] + SUFFIX)


def _file_name(part: str) -> str:
    """Return a name as a web server looks it up, or its encoded form where that is not a safe name."""
    name = unquote(part)
    if re.search(r"[\x00-\x1f\x7f/\\:\ufffd]", name) or not name.strip(". "):
        name = quote(name, safe="").replace(".", "%2E")
    return name.encode("utf-8", "replace")[:_MAX_NAME].decode("utf-8", "ignore")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _link_text(text: str) -> str:
    return re.sub(r"([\\\[\]`*_<])", r"\\\1", _one_line(text))
