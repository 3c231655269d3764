"""Back up a collection on a server: write a snapshot of Qdrant into an archive, and restore it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from recto._util.files import WriterLock
from recto._util.text import plural
from recto.errors import ConfigurationError, RectoError, Unreachable
from recto.protocols import Progress
from recto.stores.archive import Archive, Block, Header, write_archive
from recto.stores.qdrant.connection import Connection
from recto.types import GenerationInfo, IndexInfo

if TYPE_CHECKING:
    import httpx

KIND = "server"
_FILE = "snapshot"
_PART = 1 << 20  # bytes
_LONG = 3600.0  # seconds; the server answers when a snapshot is written or read
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BOUNDARY = "recto-snapshot-7c1f0d52b6"
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
        _check_shards(http, info.generation)
        with lock:
            chunks = connection.read(lambda client: client.count(info.generation, exact=True)).count
            made = _result(http.post(path, params={"wait": "true"}, timeout=_LONG))
        try:
            name, size, checksum = str(made["name"]), int(made["size"]), made.get("checksum")
            header = Header(
                KIND,
                info.collection,
                info.generation,
                tuple(sorted(aliases)),
                {_FILE: size},
                {"chunks": chunks, "checksum": checksum, "server": _version(http)},
            )
            blocks = _download(http, f"{path}/{quote(name)}", size, checksum, progress)
            written = write_archive(target, header, [blocks])
        finally:
            with suppress(RectoError, http_errors()):
                http.delete(f"{path}/{quote(str(made.get('name')))}", params={"wait": "true"})
    created = info.fingerprint.created_at if info.fingerprint else ""
    return GenerationInfo(info.generation, created, chunks, written, current=True)


def restore_snapshot(
    connection: Connection, archive: Archive, target: str, progress: Progress | None
) -> None:
    """Restore an archive as a new physical collection; the caller deletes it if this fails."""
    content = archive.header.content
    chunks, checksum = content.get("chunks"), content.get("checksum")
    if list(archive.header.files) != [_FILE] or type(chunks) is not int:
        raise archive.damaged("it does not contain one snapshot")
    with connection.http() as http:
        if (peers := _peers(http)) > 1:
            message = f"A snapshot cannot be restored on a cluster of {plural(peers, 'node')}"
            raise ConfigurationError(message, hint=_SEVERAL_NODES)
        _upload(http, archive, target, checksum, progress)
    counted = connection.read(lambda client: client.count(target, exact=True)).count
    if counted != chunks:
        raise archive.damaged(f"the snapshot has {counted} chunks, but {chunks} were backed up")


def http_errors() -> type[Exception]:
    """Return the base class of the errors of the HTTP client."""
    import httpx

    return httpx.HTTPError


def _download(
    http: httpx.Client, path: str, size: int, checksum: object, progress: Progress | None
) -> Iterator[Block]:
    """Yield the parts of a snapshot, and compare it with the size and checksum that the server reported."""
    found, done = hashlib.sha256(), 0
    # Servers compress the response if they may, and then its length and checksum are others.
    with http.stream("GET", path, headers={"Accept-Encoding": "identity"}) as response:
        for part in response.iter_bytes(_PART):
            found.update(part)
            yield done, part
            done += len(part)
            if progress:
                progress(done, size)
    if done != size or (checksum is not None and found.hexdigest() != checksum):
        raise Unreachable(
            "The server sent another snapshot than it made", hint="Try again. No archive was written."
        )


def _upload(
    http: httpx.Client, archive: Archive, target: str, checksum: object, progress: Progress | None
) -> None:
    size = archive.header.files[_FILE]
    field = f'form-data; name="snapshot"; filename="{_FILE}"'
    before = f"--{_BOUNDARY}\r\nContent-Disposition: {field}\r\n\r\n".encode()
    after = f"\r\n--{_BOUNDARY}--\r\n".encode()

    def body() -> Iterator[bytes]:
        yield before
        done = 0
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
        yield after

    params = {"priority": "snapshot", "wait": "true"}
    if isinstance(checksum, str) and _SHA256.fullmatch(checksum):
        params["checksum"] = checksum
    headers = {
        "Content-Type": f"multipart/form-data; boundary={_BOUNDARY}",
        "Content-Length": str(len(before) + size + len(after)),
    }
    path = f"/collections/{quote(target)}/snapshots/upload"
    http.post(path, params=params, content=body(), headers=headers, timeout=_LONG)


def _check_shards(http: httpx.Client, collection: str) -> None:
    """Raise an error if a shard of a collection is only on other nodes: a snapshot would not contain it."""
    if _peers(http) < 2:
        return
    found = _result(http.get(f"/collections/{quote(collection)}/cluster"))
    here = {shard["shard_id"] for shard in found["local_shards"] if shard.get("state") == "Active"}
    if missing := {shard["shard_id"] for shard in found["remote_shards"]} - here:
        raise ConfigurationError(
            f"{plural(len(missing), 'shard')} of the collection are on other nodes of the cluster, "
            "and a snapshot contains only the shards of one node",
            hint=_SEVERAL_NODES,
        )


def _peers(http: httpx.Client) -> int:
    """Return the number of nodes of the cluster; 1 if the server is not part of one."""
    return len(_result(http.get("/cluster")).get("peers") or ()) or 1


def _version(http: httpx.Client) -> str:
    return str(http.get("/").json().get("version", ""))


def _result(response: httpx.Response) -> dict[str, Any]:
    """Return the result of a response of Qdrant."""
    with suppress(ValueError, KeyError, TypeError):
        result = response.json()["result"]
        if isinstance(result, dict):
            return result
    raise Unreachable("The answer of the server cannot be understood", hint="Is it a Qdrant server?")
