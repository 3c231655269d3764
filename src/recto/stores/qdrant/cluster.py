"""Diagnose a server: nodes that do not answer, replicas that are missing, and what replication protects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from qdrant_client import QdrantClient

from recto._util.text import plural
from recto.errors import CollectionMissing, ConfigurationError, Unreachable
from recto.stores.qdrant.connection import Node, ServerConnection
from recto.types.index import StoreProblem

_RECENT = timedelta(seconds=30)  # older failures of messages between nodes are not reset by the server
_READABLE = ("Active", "ActiveRead")
_RESTART = "Restart the node; it then copies what it missed"
_STATES = {
    "yellow": ("is being optimized, so searches are slower", "Wait until the server has optimized it"),
    "grey": ("waits to be optimized, so searches are slower", "Any write, such as `recto index`, starts it"),
    "red": ("has failed", "Read the server's log, then run `recto index --rebuild`"),
}


def find_problems(connection: ServerConnection, collection: str) -> tuple[StoreProblem, ...]:
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


def _nodes(connection: ServerConnection, _: str) -> Iterator[StoreProblem]:
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


def _unreachable_peers(connection: ServerConnection, node: Node) -> set[str]:
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


def _state(connection: ServerConnection, collection: str) -> Iterator[StoreProblem]:
    status = connection.read(QdrantClient.get_collection, collection).status
    state = str(getattr(status, "value", status))
    if state in _STATES:
        meaning, repair = _STATES[state]
        message = f"The collection '{collection}' {meaning} (status {state})"
        yield StoreProblem(state, message, repair, serious=state == "red")


def _replicas(connection: ServerConnection, collection: str) -> Iterator[StoreProblem]:
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
            yield StoreProblem(
                "few_replicas", message, "Run `recto index --rebuild`, or add them with Qdrant's cluster API"
            )


def explain_replication(connection: ServerConnection, collection: str) -> str:
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


def _params(connection: ServerConnection, collection: str) -> Any:
    return connection.read(QdrantClient.get_collection, collection).config.params


def _states(info: Any) -> dict[int, dict[int, str]]:
    """Return the state of every replica, by shard and peer."""
    states: defaultdict[int, dict[int, str]] = defaultdict(dict)
    for shard in info.local_shards:
        states[shard.shard_id][info.peer_id] = shard.state.value
    for shard in info.remote_shards:
        states[shard.shard_id][shard.peer_id] = shard.state.value
    return states
