"""What every kind of book does alike: modules of pages, titles of those that state none, addresses of those that have none."""

from __future__ import annotations

from pathlib import Path

from recto.book.bookfile import BookFile
from recto.modules import ROOT_MODULE, module_keys

LOCAL_ADDRESS = "local://docs/docs"
INDEX_PAGES = frozenset({"index", "readme"})
_GENERIC_NAMES = frozenset({"docs", "doc", "book", "content", "src", "site", "website", "pages"})


def page_modules(path: str, book_file: BookFile, labels: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return all names of a page's module, the canonical one first: what the book's owner says, else its top directory."""
    top = path.split("/", maxsplit=1)[0] if "/" in path else ""
    keys = (*module_keys(top), *(label.strip().lower() for label in labels)) if top else (ROOT_MODULE,)
    given = book_file.module_of(path)
    return tuple(dict.fromkeys((given, *keys) if given else keys))


def local_parts(path: str) -> list[str]:
    """Return the parts of a page's own address; the page of a directory has the directory's."""
    parts = path.rpartition(".")[0].split("/")
    return parts[:-1] if parts[-1].lower() in INDEX_PAGES else parts


def local_url(path: str) -> str:
    """Return the address of a page that is published nowhere."""
    return "/".join((LOCAL_ADDRESS, *local_parts(path)))


def title_of(path: str, book: str) -> str:
    """Return a title by the name of a file, or of its directory if it is the directory's page."""
    parts = path.rpartition(".")[0].split("/")
    title = parts[-1]
    if title.lower() in INDEX_PAGES:
        title = parts[-2] if len(parts) > 1 else book
    return humanised(title)


def humanised(name: str) -> str:
    """Return the name of a file or directory as a title: `ros2-fundamentals` is "Ros2 fundamentals"."""
    return name.replace("-", " ").replace("_", " ").strip().capitalize()


def book_name(root: Path) -> str:
    """Return the nearest name that says more than `docs`."""
    for folder in (root, *root.parents):
        if folder.name and folder.name.lower() not in _GENERIC_NAMES:
            return folder.name
    return root.name or "book"
