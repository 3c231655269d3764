"""A source that reads the pages of a book from a ZIP file: `recto index zip:book.zip`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from zipfile import ZipFile, is_zipfile

from recto import InvalidArgument, Settings
from recto.plugins import Notify
from recto.types.book import BookInfo, Failure, Page

FORMATS = {".md": "markdown", ".mdx": "mdx", ".rst": "rst"}


class ZipSource:
    """The Markdown and reStructuredText files of an archive; the top directory is the module."""

    def __init__(self, path: Path) -> None:
        self.book = path.stem
        self.location = f"zip:{path}"
        self.info = BookInfo(title=path.stem)
        self.failed: list[Failure] = []
        self.notes: list[str] = []
        self._path = path

    def pages(self) -> Iterator[Page]:
        """Yield the pages in the order of their names."""
        self.failed.clear()
        with ZipFile(self._path) as archive:
            for name in sorted(archive.namelist()):
                file = PurePosixPath(name)
                if file.suffix not in FORMATS:
                    continue
                data = archive.read(name)
                try:
                    text = data.decode()
                except UnicodeDecodeError:
                    self.failed.append(Failure(name, "it is not UTF-8"))
                    continue
                module = file.parts[0].lower() if len(file.parts) > 1 else "intro"
                yield Page(
                    path=name,
                    url=f"zip://{self.book}/{file.with_suffix('')}",
                    title=file.stem,
                    module=module,
                    module_keys=(module,),
                    text=text,
                    revision=hashlib.sha256(data).hexdigest(),
                    format=FORMATS[file.suffix],
                )


def open_zip(location: str, settings: Settings, notify: Notify) -> ZipSource:
    """Return the book at a location such as `zip:book.zip`."""
    path = Path(location.removeprefix("zip:"))
    if not is_zipfile(path):
        raise InvalidArgument(f"{path} is not a ZIP file", hint="Give the path of an archive.")
    return ZipSource(path)
