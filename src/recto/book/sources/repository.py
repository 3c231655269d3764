"""A book in a git repository on the web: clone it into a temporary directory, and read that."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

from recto.book.sources.options import NO_OPTIONS, SiteOptions
from recto.book.sources.tree import open_book
from recto.book.sources.website import Resolve, normal
from recto.book.sources.website.addresses import is_public, resolve_host
from recto.errors import ConfigurationError, InvalidArgument, Unreachable
from recto.plugins import Notify
from recto.protocols import Source
from recto.types.book import BookInfo, Failure, Page

_FORGES = frozenset({"github.com", "gitlab.com", "codeberg.org", "bitbucket.org"})
_FORGE_PATH = re.compile(r"/([^/]+)/([^/]+)/?")
_TIMEOUT = 600.0  # seconds; a repository of the largest size at 2 MB/s
_MAX_SIZE = 1 << 30  # bytes of the whole clone; Kubernetes' website has a third of it
_POLL = 0.2  # seconds between two looks at the size
_MAX_MESSAGE = 300  # characters of what git says
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.symlinks=false",  # a link could lead to any file of this machine
    "credential.helper=",
    "filter.lfs.process=",
    "filter.lfs.smudge=",
    "filter.lfs.required=false",
    "http.followRedirects=false",  # to a host whose address was not checked
)


def repository_url(location: str) -> str:
    """Return the address to clone a location from; "" if it is not the address of a git repository."""
    parts = urlsplit(location)
    if parts.scheme.lower() != "https" or parts.query or parts.fragment:
        return ""
    if parts.path.endswith(".git"):
        return location
    host = (parts.hostname or "").removeprefix("www.")
    if host in _FORGES and _FORGE_PATH.fullmatch(parts.path):
        return f"{location.rstrip('/')}.git"
    return ""


class RepositorySource:
    """Yields the pages of a repository's newest commit; the clone lives as long as this object."""

    def __init__(
        self,
        url: str,
        options: SiteOptions = NO_OPTIONS,
        notify: Notify = lambda _: None,
        *,
        allow_private: bool = False,
        resolve: Resolve = resolve_host,
        protocol: str = "https",
    ) -> None:
        self.location = url if protocol == "file" else normal(url)
        parts = urlsplit(self.location)
        self.book = f"{parts.netloc}{parts.path}".strip("/").removesuffix(".git")
        self._name = self.book.rpartition("/")[2]
        if not self._name:
            raise InvalidArgument(
                f"{url[:200]} is not the address of a git repository",
                hint="Pass an address such as https://example.org/book.git, without a user name.",
            )
        self.info = BookInfo()
        self._options, self._notify, self._protocol = options, notify, protocol
        self._resolve = None if allow_private or protocol == "file" else resolve

    @property
    def failed(self) -> Sequence[Failure]:
        """The pages that could not be read in the last run."""
        return self._tree.failed

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the last run."""
        return [note.replace(str(self.root), self.location) for note in self._tree.notes]

    def pages(self) -> Iterator[Page]:
        """Yield the pages of the clone."""
        yield from self._tree.pages()
        self.info = replace(self._tree.info, options=self.info.options)

    @cached_property
    def _tree(self) -> Source:
        return open_book(self.root, self._options, self._name)

    @cached_property
    def root(self) -> Path:
        """The directory of the clone, which is made on first use."""
        settings = [*_SETTINGS, *_pinned(self.location, self._resolve)] if self._resolve else [*_SETTINGS]
        directory = Path(mkdtemp(prefix="recto-"))
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)
        self._notify(f"Cloning {self.location}")
        _clone(self.location, directory, self._name, settings, self._protocol)
        return directory / self._name


def _pinned(url: str, resolve: Resolve) -> list[str]:
    """Return settings that make git connect to checked addresses only; raise an error for a private one."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    try:
        addresses = resolve(host, port)
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"The name {host} cannot be resolved", hint="Check the address.") from error
    for address in addresses:
        if not is_public(address):
            raise InvalidArgument(
                f"{host} is at {address}, which is not a public address",
                hint="Add --allow-private if the repository is yours.",
            )
    if ":" in host:  # it is an address
        return []
    return [f"http.curloptResolve={host}:{port}:{','.join(addresses)}"]


def _clone(url: str, directory: Path, name: str, settings: Sequence[str], protocol: str) -> None:
    """Clone the newest commit, without submodules; raise an error if it fails, takes too long or is large."""
    git = shutil.which("git")
    if git is None:
        raise ConfigurationError(
            "A git repository cannot be read without git", hint="Install git, or pass a directory."
        )
    configured = [word for setting in settings for word in ("-c", setting)]
    flags = ("--depth=1", "--single-branch", "--no-tags", "--no-recurse-submodules", "--template=", "--quiet")
    command = [git, *configured, "clone", *flags, "--", url, name]
    errors = directory / "errors.txt"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            command,
            cwd=directory,
            env=_environment(directory, protocol),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        ) as process,
    ):
        if problem := _wait(process, directory):
            raise InvalidArgument(
                f"{url} {problem}", hint="Clone it yourself, and pass the directory of the book."
            )
    if process.returncode:
        said = " ".join(errors.read_text("utf-8", "replace").split())[-_MAX_MESSAGE:]
        raise Unreachable(f"{url} cannot be cloned: {said}", hint="Only public repositories can be read.")


def _wait(process: subprocess.Popen[bytes], directory: Path) -> str:
    """Wait for git; stop it and return the problem if it exceeds a limit."""
    deadline = time.monotonic() + _TIMEOUT
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                return f"takes more than {_TIMEOUT:.0f} seconds to clone"
            if _size(directory) > _MAX_SIZE:
                return f"is larger than {_MAX_SIZE >> 20} MiB"
            time.sleep(_POLL)
        return f"is larger than {_MAX_SIZE >> 20} MiB" if _size(directory) > _MAX_SIZE else ""
    finally:
        if process.poll() is None:
            process.terminate()  # git then ends its own child processes


def _size(directory: Path) -> int:
    total = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - faster than Path
            except OSError:  # a temporary file of git that is gone
                continue
    return total


def _environment(directory: Path, protocol: str) -> dict[str, str]:
    """Return an environment without the user's git settings, credentials and proxies.

    Behind a proxy, the address of a host cannot be checked.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") and not name.lower().endswith("_proxy")
    }
    return kept | {
        "HOME": str(directory),  # without ~/.netrc
        "GIT_ALLOW_PROTOCOL": protocol,
        "GIT_ASKPASS": "",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
