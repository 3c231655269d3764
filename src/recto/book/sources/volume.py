"""Files that hold many pages, such as an EPUB or a PDF, as a book of their own or in a tree."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from recto._util.files import read_limited, read_problem
from recto._util.text import ROOT_MODULE, slug
from recto.book.parsing import Format, format_of, formats, skip_advice
from recto.book.sources.options import SiteOptions, humanised, local_url
from recto.errors import ConfigurationError, InvalidArgument, RectoError
from recto.types.book import BookInfo, Failure, Page, Volume


def volume_format(name: str) -> Format | None:
    """Return the format of a file that holds many pages; None for any other file."""
    format = format_of(name)
    return format if format is not None and format.split is not None else None


def read_volume(file: Path, format: Format) -> Volume | str:
    """Read a file that holds many pages; return why it cannot be read."""
    try:
        return format.split(read_limited(file, format.largest)) if format.split else "it is one page"
    except OSError as error:
        return read_problem(error)
    except RectoError:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged file must not stop the run
        return str(error)[:300] if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"[:300]


def volume_pages(volume: Volume, name: str, format: Format, url: str) -> Iterator[Page]:
    """Yield the pages of a volume, which is the file `name` of the book; `url` is its published address."""
    for position, part in enumerate(volume.parts, 1):
        stem = part.name.rpartition(".")[0] or part.name
        address = f"{url}?{part.name}" if url else f"{local_url(name)}/{stem}"
        revision = hashlib.sha256(part.text.encode("utf-8", "replace")).hexdigest()
        title = part.title or humanised(stem.rpartition("/")[2])
        keys = (slug(part.section) or ROOT_MODULE,)
        yield Page(
            f"{name}/{part.name}",
            address,
            title,
            keys[0],
            keys,
            part.text,
            revision,
            format=format.name,
            module_title=part.section,
            position=position,
        )


def open_volume(location: Path, options: SiteOptions, book: str) -> VolumeSource | None:
    """Open a book that is one file; return None for a directory, or a file that is one page."""
    if not location.is_file():
        return None
    suffix = location.suffix.lower()
    if advice := skip_advice(suffix):
        lacks_extra = any(suffix in format.suffixes for format in formats())
        error = ConfigurationError if lacks_extra else InvalidArgument
        raise error(f"{location} cannot be read", hint=f"{advice[:1].upper()}{advice[1:]}.")
    format = volume_format(location.name)
    return VolumeSource(location, format, options, book) if format else None


class VolumeSource:
    """A book that is one file, such as an EPUB or a PDF."""

    def __init__(self, file: Path, format: Format, options: SiteOptions, book: str = "") -> None:
        """Read the file; raise an error if it cannot be read."""
        volume = read_volume(file, format)
        if isinstance(volume, str):
            raise InvalidArgument(f"{file} cannot be read: {volume}", hint="Open it in a viewer to check it.")
        self._volume, self._file, self._format = volume, file, format
        site = options.url.rstrip("/")
        self._url = site if not site or site.endswith(file.suffix) else f"{site}/{quote(file.name)}"
        self.book = book or file.stem
        self.location = str(file)
        self.info = BookInfo(options.title or volume.title or humanised(file.stem))
        self.failed: list[Failure] = []
        self.notes = list(volume.notes)

    def __len__(self) -> int:
        """Return the number of pages."""
        return len(self._volume.parts)

    def pages(self) -> Iterator[Page]:
        """Yield the pages in reading order."""
        for page in volume_pages(self._volume, self._file.name, self._format, self._url):
            yield replace(page, module_title=page.module_title or self.info.title)
