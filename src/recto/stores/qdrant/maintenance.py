"""Maintain collections on a server: find problems of a cluster, add replicas, write and restore snapshots."""

from __future__ import annotations

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
from qdrant_client import QdrantClient, models

from recto._util.files import WriterLock
from recto._util.text import plural
from recto.errors import CollectionMissing, ConfigurationError, RectoError, Unreachable
from recto.plugins import Notify
from recto.protocols import Progress
from recto.settings import ServerOptions
from recto.stores.archive import Archive, Header, write_archive
from recto.stores.qdrant.connection import Connection, Node
from recto.types.index import GenerationInfo, IndexInfo, StoreProblem

_RECENT = timedelta(seconds=30)  # older failures of messages between nodes are not reset by the server
_TRANSFER_SECONDS = 3600.0
_POLL_SECONDS = 1.0
_MISSED_POLLS = 30  # without a transfer that is running
_READABLE = ("Active", "ActiveRead")
_RESTART = "Restart the node; it then copies what it missed"
_STATES = {
    "yellow": ("is being optimized, so searches are slower", "Wait until the server has optimized it"),
    "grey": ("waits to be optimized, so searches are slower", "Any write, such as `recto index`, starts it"),
    "red": ("has failed", "Read the server's log, then run `recto index --rebuild`"),
}
KIND = "server"
_SNAPSHOT_FILE = "snapshot"
_PART_BYTES = 1 << 20
_SNAPSHOT_SECONDS = 3600.0  # seconds; the server answers when a snapshot is written or read
_CLEANUP_SECONDS = 10.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BOUNDARY = "recto-snapshot-7c1f0d52b6"
_FIELD = f'form-data; name="snapshot"; filename="{_SNAPSHOT_FILE}"'
_FORM_START = f"--{_BOUNDARY}\r\nContent-Disposition: {_FIELD}\r\n\r\n".encode()
_FORM_END = f"\r\n--{_BOUNDARY}--\r\n".encode()
_SEVERAL_NODES = (
    "Index the book again instead, or use the snapshots of every node: see docs/how-to/backup.md."
)


def find_problems(connection: Connection, collection: str) -> tuple[StoreProblem, ...]:
    """Return what is wrong with the nodes of a server and the replicas of a physical collection."""
    problems: list[StoreProblem] = []
    for check in (_nodes, _replicas, _state):
        try:
            problems += check(connection, collection)
        except CollectionMissing:
            raise
        except ConfigurationError:
            message = "The key in QDRANT_API_KEY cannot read the state of the cluster, so it was not checked"
            problem = StoreProblem("not_checked", message, "Use a key with the right to manage the cluster")
            problems += [] if problem in problems else [problem]
        except Unreachable as error:
            if not any(problem.serious for problem in problems):
                problems.append(StoreProblem("unavailable", error.message, error.hint, serious=True))
    return tuple(problems)


def _nodes(connection: Connection, _: str) -> Iterator[StoreProblem]:
    """Ask every node in QDRANT_URL whether it is ready, and which of the others it cannot reach."""
    nodes = connection.nodes
    with ThreadPoolExecutor(len(nodes)) as pool:
        ready = dict(zip(nodes, pool.map(lambda node: node.is_ready(), nodes), strict=True))
    failed: set[str] = set()
    for node, is_ready in ready.items():
        if is_ready or len(nodes) == 1:
            failed |= _unreachable_peers(connection, node)
        else:
            message = f"The node at {node.url} does not answer, or is not ready"
            yield StoreProblem("node", message, f"{_RESTART}, or remove it from QDRANT_URL")
    for url in sorted(failed):
        yield StoreProblem("peer", f"The peer at {url} cannot be reached by another node", _RESTART)


def _unreachable_peers(connection: Connection, node: Node) -> set[str]:
    """Return the peers that a node has tried to reach lately; the leader tries to reach all of them."""
    status = connection.read_from(node, QdrantClient.cluster_status)
    if status.status != "enabled":
        return set()
    working = getattr(status.consensus_thread_status, "last_update", None)
    return {
        url
        for url, failures in status.message_send_failures.items()
        if failures.latest_error_timestamp is not None
        and working is not None
        and working - failures.latest_error_timestamp < _RECENT
    }


def _state(connection: Connection, collection: str) -> Iterator[StoreProblem]:
    status = connection.read(QdrantClient.get_collection, collection).status
    state = str(getattr(status, "value", status))
    if state in _STATES:
        meaning, repair = _STATES[state]
        message = f"The collection '{collection}' {meaning} (status {state})"
        yield StoreProblem(state, message, repair, serious=state == "red")


def _replicas(connection: Connection, collection: str) -> Iterator[StoreProblem]:
    states = _states(connection.read(QdrantClient.collection_cluster_info, collection))
    for shard, replicas in sorted(states.items()):
        if not any(state in _READABLE for state in replicas.values()):
            message = f"Shard {shard} of '{collection}' has no live replica: searches fail"
            yield StoreProblem("missing_shard", message, "Restart the nodes that have it", serious=True)
            continue
        for peer, state in replicas.items():
            if state == "Dead":
                message = f"The replica of shard {shard} of '{collection}' on peer {peer} is dead"
                yield StoreProblem("dead_replica", message, _RESTART)
            elif state not in _READABLE:
                message = f"The replica of shard {shard} of '{collection}' on peer {peer} is being copied"
                yield StoreProblem("recovering", message, "Wait until the server has copied it")
    expected = _params(connection, collection).replication_factor or 1
    for shard, replicas in sorted(states.items()):
        if len(replicas) < expected:
            message = f"Shard {shard} of '{collection}' has {len(replicas)} of {expected} replicas"
            yield StoreProblem("few_replicas", message, "Run `recto prepare`, which adds them")


def set_replication(
    connection: Connection, collection: str, options: ServerOptions, notify: Notify
) -> list[str]:
    """Set replication and write consistency as configured, add missing replicas, and say what was done."""
    params = _params(connection, collection)
    factor = options.replication or params.replication_factor or 1
    consistency = options.write_consistency or params.write_consistency_factor or 1
    peers = read_peers(connection)
    if factor > max(1, len(peers)):
        raise ConfigurationError(
            f"QDRANT_REPLICATION is {factor}, but the cluster has {plural(max(1, len(peers)), 'node')}",
            hint="A node holds at most one replica of a shard. Add nodes, or lower QDRANT_REPLICATION.",
        )
    done = []
    if (factor, consistency) != (params.replication_factor, params.write_consistency_factor):
        changed = models.CollectionParamsDiff(replication_factor=factor, write_consistency_factor=consistency)
        connection.write(QdrantClient.update_collection, collection, collection_params=changed)
        done.append(f"set replication {factor} and write consistency {consistency}")
    if peers:
        added = _add_replicas(connection, collection, factor, peers, notify)
        done += [f"added {plural(added, 'replica')}"] if added else []
    return done


def explain_replication(connection: Connection, collection: str) -> str:
    """Explain in two sentences what the replication of a collection is good for."""
    params = _params(connection, collection)
    factor, consistency = params.replication_factor or 1, params.write_consistency_factor or 1
    if factor == 1:
        return "Replication 1: every shard is on one node. If it fails, searches fail until it is back."
    reads = f"every shard is on {factor} nodes, so searches survive the loss of {plural(factor - 1, 'node')}"
    replicas, lost = plural(consistency, "replica"), plural(factor - consistency, "node")
    writes = f"so a book can be indexed without {lost}" if consistency < factor else "so no node may be away"
    return (
        f"Replication {factor}: {reads}. Write consistency {consistency}: a write needs {replicas}, {writes}."
    )


def _add_replicas(
    connection: Connection, collection: str, factor: int, peers: Sequence[int], notify: Notify
) -> int:
    """Copy shards to the peers that have the fewest, until each has enough replicas."""
    info = connection.read(QdrantClient.collection_cluster_info, collection)
    states = _states(info)
    load = {peer: sum(peer in replicas for replicas in states.values()) for peer in peers}
    added = 0
    for shard, replicas in sorted(states.items()):
        if len(replicas) >= factor:
            continue
        source = next((peer for peer, state in replicas.items() if state == "Active"), None)
        if source is None:
            raise Unreachable(
                f"Shard {shard} of '{collection}' has no live replica to copy", hint="Run `recto doctor`."
            )
        while len(replicas) < factor:
            target = min((peer for peer in peers if peer not in replicas), key=lambda peer: load[peer])
            notify(f"Copying shard {shard} to peer {target}")
            copy = models.ReplicateShardOperation(
                replicate_shard=models.ReplicateShard(shard_id=shard, from_peer_id=source, to_peer_id=target)
            )
            connection.write(QdrantClient.cluster_collection_update, collection, copy)
            _wait_for_replica(connection, collection, shard, target)
            replicas[target] = "Active"
            load[target] += 1
            added += 1
    return added


def _wait_for_replica(connection: Connection, collection: str, shard: int, peer: int) -> None:
    deadline, missing = time.monotonic() + _TRANSFER_SECONDS, 0
    while time.monotonic() < deadline and missing < _MISSED_POLLS:
        info = connection.read(QdrantClient.collection_cluster_info, collection)
        if _states(info)[shard].get(peer) == "Active":
            return
        running = any(one.shard_id == shard and one.to == peer for one in info.shard_transfers)
        missing = 0 if running else missing + 1
        time.sleep(_POLL_SECONDS)
    raise Unreachable(
        f"Shard {shard} of '{collection}' was not copied to peer {peer}",
        hint="The node may be down: run `recto doctor`, then `recto prepare` again.",
    )


def _params(connection: Connection, collection: str) -> Any:
    return connection.read(QdrantClient.get_collection, collection).config.params


def read_peers(connection: Connection) -> list[int]:
    """Return the ids of the nodes of a cluster; none if the server is a single node."""
    status = connection.read(QdrantClient.cluster_status)
    return sorted(map(int, status.peers)) if status.status == "enabled" else []


def _states(info: Any) -> dict[int, dict[int, str]]:
    """Return the state of every replica, by shard and peer."""
    states: defaultdict[int, dict[int, str]] = defaultdict(dict)
    for shard in info.local_shards:
        states[shard.shard_id][info.peer_id] = shard.state.value
    for shard in info.remote_shards:
        states[shard.shard_id][shard.peer_id] = shard.state.value
    return states


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
            snapshot = _make_snapshot(http, path, connection.notify)
        try:
            version = str(connection.read(QdrantClient.info).version)
            content = {"chunks": chunks, "checksum": snapshot.checksum, "server": version}
            files, names = {_SNAPSHOT_FILE: snapshot.size}, tuple(sorted(aliases))
            header = Header(KIND, info.collection, info.generation, names, files, content)
            size = write_archive(target, header, [_download_snapshot(http, path, snapshot, progress)])
        finally:
            _delete_snapshot(http, path, snapshot.name, connection.notify)
    created = info.fingerprint.created_at if info.fingerprint else ""
    return GenerationInfo(info.generation, created, chunks, size, current=True)


class _Snapshot(NamedTuple):
    """A snapshot on the node that made it."""

    name: str
    size: int
    checksum: str | None


def _make_snapshot(http: httpx.Client, path: str, notify: Notify) -> _Snapshot:
    """Make a snapshot; the server finishes it even if nobody waits for it, so tell the user of that."""
    try:
        response = http.post(path, params={"wait": "true"}, timeout=_SNAPSHOT_SECONDS)
    except (httpx.HTTPError, KeyboardInterrupt):
        notify(f"The server may keep creating the snapshot. {_left_on_server(http, f'{path}/NAME')}")
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


def _delete_snapshot(http: httpx.Client, path: str, name: str, notify: Notify) -> None:
    """Delete a snapshot, or tell the user that it is left."""
    url = f"{path}/{quote(name)}"
    try:
        http.delete(url, params={"wait": "true"}, timeout=_CLEANUP_SECONDS)
    except BaseException as error:
        notify(_left_on_server(http, url))
        if not isinstance(error, (RectoError, httpx.HTTPError)):
            raise


def _left_on_server(http: httpx.Client, path: str) -> str:
    server = str(http.base_url).rstrip("/")
    return f"[WARNING] A snapshot is left on the server. Delete it with a DELETE request to {server}{path}"


def restore_snapshot(
    connection: Connection, archive: Archive, target: str, progress: Progress | None
) -> None:
    """Restore an archive as a new physical collection; the caller deletes it if this fails."""
    content = archive.header.content
    chunks, checksum = content.get("chunks"), content.get("checksum")
    if list(archive.header.files) != [_SNAPSHOT_FILE] or type(chunks) is not int:
        raise archive.damaged("it does not contain one snapshot")
    if len(peers := read_peers(connection)) > 1:
        message = f"A snapshot cannot be restored on a cluster of {plural(len(peers), 'node')}"
        raise ConfigurationError(message, hint=_SEVERAL_NODES)
    with connection.http() as http:
        _upload_snapshot(http, archive, target, checksum, progress)
    counted = connection.read(QdrantClient.count, target, exact=True).count
    if counted != chunks:
        raise archive.damaged(f"the snapshot has {counted} chunks, but {chunks} were backed up")


def _download_snapshot(
    http: httpx.Client, path: str, snapshot: _Snapshot, progress: Progress | None
) -> Iterator[bytes]:
    """Yield the parts of a snapshot, and compare it with the size and checksum that the server reported."""
    checksum, done = hashlib.sha256(), 0
    # Servers compress the response if they may, which changes its length and checksum.
    headers = {"Accept-Encoding": "identity"}
    with http.stream("GET", f"{path}/{quote(snapshot.name)}", headers=headers) as response:
        for part in response.iter_bytes(_PART_BYTES):
            checksum.update(part)
            yield part
            done += len(part)
            if progress:
                progress(done, snapshot.size)
    if done != snapshot.size or snapshot.checksum not in (None, checksum.hexdigest()):
        raise Unreachable(
            "The server sent another snapshot than it made", hint="Try again. No archive was written."
        )


def _upload_snapshot(
    http: httpx.Client, archive: Archive, target: str, checksum: object, progress: Progress | None
) -> None:
    params = {"priority": "snapshot", "wait": "true"}
    if isinstance(checksum, str) and _SHA256.fullmatch(checksum):
        params["checksum"] = checksum
    headers = {
        "Content-Type": f"multipart/form-data; boundary={_BOUNDARY}",
        "Content-Length": str(len(_FORM_START) + archive.header.files[_SNAPSHOT_FILE] + len(_FORM_END)),
    }
    path = f"/collections/{quote(target)}/snapshots/upload"
    http.post(
        path, params=params, content=_form(archive, progress), headers=headers, timeout=_SNAPSHOT_SECONDS
    )


def _form(archive: Archive, progress: Progress | None) -> Iterator[bytes]:
    """Yield the form with the snapshot of an archive."""
    yield _FORM_START
    done, size = 0, archive.header.files[_SNAPSHOT_FILE]
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
    yield _FORM_END


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
