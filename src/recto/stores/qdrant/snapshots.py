"""Back up a collection on a server: write a snapshot of Qdrant into an archive, and restore it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import httpx
from qdrant_client import QdrantClient, models

from recto._util.files import WriterLock
from recto._util.retry import Notify
from recto._util.text import plural
from recto.errors import ConfigurationError, RectoError, Unreachable
from recto.protocols import Progress
from recto.stores.archive import Archive, Header, write_archive
from recto.stores.qdrant.cluster import read_peers
from recto.stores.qdrant.connection import Connection
from recto.types.index import GenerationInfo, IndexInfo

KIND = "server"
_FILE = "snapshot"
_PART = 1 << 20  # bytes
_LONG = 3600.0  # seconds; the server answers when a snapshot is written or read
_CLEANUP_SECONDS = 10.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BOUNDARY = "recto-snapshot-7c1f0d52b6"
_FIELD = f'form-data; name="snapshot"; filename="{_FILE}"'
_BEFORE = f"--{_BOUNDARY}\r\nContent-Disposition: {_FIELD}\r\n\r\n".encode()
_AFTER = f"\r\n--{_BOUNDARY}--\r\n".encode()
_SEVERAL_NODES = (
    "Index the book again instead, or use the snapshots of every node: see docs/how-to/backup.md."
)


def write_snapshot(
    connection: Connection,
    info: IndexInfo,
    aliases: Iterable[str],
    lock: WriterLock,
    target: Path,
    progress: Progress | None,
) -> GenerationInfo:
    """Make a snapshot of a physical collection, write it into an archive, and delete it on the server.

    While the server makes the snapshot, the lock is held: a collection may be updated in place.
    """
    path = f"/collections/{quote(info.generation)}/snapshots"
    with connection.http() as http:
        if len(read_peers(connection)) > 1:
            _check_shards(http, info.generation)
        with lock:
            chunks = connection.read(QdrantClient.count, info.generation, exact=True).count
            snapshot = _make(http, path, connection.notify)
        try:
            version = str(connection.read(QdrantClient.info).version)
            content = {"chunks": chunks, "checksum": snapshot.checksum, "server": version}
            files, names = {_FILE: snapshot.size}, tuple(sorted(aliases))
            header = Header(KIND, info.collection, info.generation, names, files, content)
            size = write_archive(target, header, [_download(http, path, snapshot, progress)])
        finally:
            _delete(http, path, snapshot.name, connection.notify)
    created = info.fingerprint.created_at if info.fingerprint else ""
    return GenerationInfo(info.generation, created, chunks, size, current=True)


class _Snapshot(NamedTuple):
    """A snapshot on the node that made it."""

    name: str
    size: int
    checksum: str | None


def _make(http: httpx.Client, path: str, notify: Notify) -> _Snapshot:
    """Make a snapshot; the server finishes it even if nobody waits for it, so tell the user of that."""
    try:
        response = http.post(path, params={"wait": "true"}, timeout=_LONG)
    except (httpx.HTTPError, KeyboardInterrupt):
        notify(f"The server may keep creating the snapshot. {_left(http, f'{path}/NAME')}")
        raise
    with _understood():
        answer = response.json()["result"]
        name, size, checksum = answer["name"], answer["size"], answer.get("checksum")
        if isinstance(name, str) and type(size) is int:
            return _Snapshot(name, size, checksum if isinstance(checksum, str) else None)
        raise TypeError


@contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreachable(
            "The answer of the server cannot be understood", hint="Is it a Qdrant server?"
        ) from None


def _delete(http: httpx.Client, path: str, name: str, notify: Notify) -> None:
    """Delete a snapshot, or tell the user that it is left."""
    url = f"{path}/{quote(name)}"
    try:
        http.delete(url, params={"wait": "true"}, timeout=_CLEANUP_SECONDS)
    except BaseException as error:
        notify(_left(http, url))
        if not isinstance(error, (RectoError, httpx.HTTPError)):
            raise


def _left(http: httpx.Client, path: str) -> str:
    server = str(http.base_url).rstrip("/")
    return f"[WARNING] A snapshot is left on the server. Delete it with a DELETE request to {server}{path}"


def restore_snapshot(
    connection: Connection, archive: Archive, target: str, progress: Progress | None
) -> None:
    """Restore an archive as a new physical collection; the caller deletes it if this fails."""
    content = archive.header.content
    chunks, checksum = content.get("chunks"), content.get("checksum")
    if list(archive.header.files) != [_FILE] or type(chunks) is not int:
        raise archive.damaged("it does not contain one snapshot")
    if len(peers := read_peers(connection)) > 1:
        message = f"A snapshot cannot be restored on a cluster of {plural(len(peers), 'node')}"
        raise ConfigurationError(message, hint=_SEVERAL_NODES)
    with connection.http() as http:
        _upload(http, archive, target, checksum, progress)
    counted = connection.read(QdrantClient.count, target, exact=True).count
    if counted != chunks:
        raise archive.damaged(f"the snapshot has {counted} chunks, but {chunks} were backed up")


def _download(
    http: httpx.Client, path: str, snapshot: _Snapshot, progress: Progress | None
) -> Iterator[bytes]:
    """Yield the parts of a snapshot, and compare it with the size and checksum that the server reported."""
    checksum, done = hashlib.sha256(), 0
    # Servers compress the response if they may, which changes its length and checksum.
    headers = {"Accept-Encoding": "identity"}
    with http.stream("GET", f"{path}/{quote(snapshot.name)}", headers=headers) as response:
        for part in response.iter_bytes(_PART):
            checksum.update(part)
            yield part
            done += len(part)
            if progress:
                progress(done, snapshot.size)
    if done != snapshot.size or snapshot.checksum not in (None, checksum.hexdigest()):
        raise Unreachable(
            "The server sent another snapshot than it made", hint="Try again. No archive was written."
        )


def _upload(
    http: httpx.Client, archive: Archive, target: str, checksum: object, progress: Progress | None
) -> None:
    params = {"priority": "snapshot", "wait": "true"}
    if isinstance(checksum, str) and _SHA256.fullmatch(checksum):
        params["checksum"] = checksum
    headers = {
        "Content-Type": f"multipart/form-data; boundary={_BOUNDARY}",
        "Content-Length": str(len(_BEFORE) + archive.header.files[_FILE] + len(_AFTER)),
    }
    path = f"/collections/{quote(target)}/snapshots/upload"
    http.post(path, params=params, content=_form(archive, progress), headers=headers, timeout=_LONG)


def _form(archive: Archive, progress: Progress | None) -> Iterator[bytes]:
    """Yield the form with the snapshot of an archive."""
    yield _BEFORE
    done, size = 0, archive.header.files[_FILE]
    for _, _, blocks in archive.files():
        for offset, block in blocks:
            if offset != done:
                break
            yield block
            done += len(block)
            if progress:
                progress(done, size)
    if done != size:
        raise archive.damaged("the snapshot is not complete")
    yield _AFTER


def _check_shards(http: httpx.Client, collection: str) -> None:
    """Raise an error if a shard of a collection is only on other nodes: a snapshot would not contain it."""
    with _understood():
        answer = http.get(f"/collections/{quote(collection)}/cluster").json()["result"]
        shards = models.CollectionClusterInfo.model_validate(answer)
    here = {shard.shard_id for shard in shards.local_shards if shard.state.value == "Active"}
    if missing := {shard.shard_id for shard in shards.remote_shards} - here:
        raise ConfigurationError(
            f"{plural(len(missing), 'shard')} of the collection are on other nodes of the cluster, "
            "and a snapshot contains only the shards of one node",
            hint=_SEVERAL_NODES,
        )
