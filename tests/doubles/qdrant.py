"""A double of a Qdrant server, for faults and for tests without a server: what Recto uses of its REST API.

It works on the local mode of the official client. `tests/live/test_double.py` compares it with a server (1.16.3).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar, cast
from urllib.parse import unquote

import numpy as np
from pydantic import BaseModel, ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.common import client_warnings
from qdrant_client.local import sparse_distances

from tests.doubles.server import Answer, Double, Request, answer_json

Json = dict[str, Any]
Shape = TypeVar("Shape", bound=BaseModel)

# Pytest turns warnings into errors, and filters are not per thread: mark this warning as already shown.
client_warnings.SEEN_MESSAGES.add("large-local-collection")


def _sparse_dot_product(vector1: models.SparseVector, vector2: models.SparseVector) -> np.float32 | None:
    places = [
        (bisect_left(vector2.indices, index), index, value)
        for index, value in zip(vector1.indices, vector1.values, strict=True)
    ]
    count = len(vector2.indices)
    products = [
        value * vector2.values[place]
        for place, index, value in places
        if place < count and vector2.indices[place] == index
    ]
    return np.float32(sum(products)) if products else None


# The client's own function reads all indices of both vectors in Python, which takes a hundred times as long.
sparse_distances.sparse_dot_product = _sparse_dot_product

OPEN_PATHS = ("/", "/healthz", "/readyz", "/livez")
"""Paths that need no key, as on a real server."""

_SEE = "Check https://qdrant.tech/documentation/concepts/indexing/#payload-index to see which payload schemas support"
NO_FACET = f"Wrong input: No appropriate index for faceting: `{{}}`. Please create one to facet on this field. {_SEE} Match conditions"
NO_INDEX = (
    'Bad request: Index required but not found for "{}" of one of the following types: [keyword]. '
    "Help: Create an index for this key or use a different filter."
)

STRICT: Json = {"enabled": True, "unindexed_filtering_retrieve": False, "unindexed_filtering_update": False}
_REPLICAS: Json = {"shard_number": 1, "replication_factor": 1, "write_consistency_factor": 1}
DEFAULTS: Mapping[str, Json] = {
    "params": {**_REPLICAS, "on_disk_payload": True},
    "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
    "optimizer_config": {
        "deleted_threshold": 0.2,
        "vacuum_min_vector_number": 1000,
        "default_segment_number": 0,
        "indexing_threshold": 10_000,
        "flush_interval_sec": 5,
    },
    "wal_config": {"wal_capacity_mb": 32, "wal_segments_ahead": 0},
}


class Refused(Exception):
    """A request that the server rejects."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Collection:
    """The configuration and the payload indexes of a collection."""

    name: str
    config: dict[str, Json | None]
    indexes: dict[str, Json] = field(default_factory=dict)

    def check_params(self, params: Json) -> None:
        """Reject search parameters that strict mode does not allow."""
        if params.get("exact") and self.is_strict("search_allow_exact"):
            raise Refused(400, "Bad request: Exact search disabled!. Help: Set exact=false.")
        most = (self.config["strict_mode_config"] or {}).get("search_max_hnsw_ef")
        if most is not None and (ef := params.get("hnsw_ef") or 0) > most:
            raise Refused(
                400,
                f'Bad request: Limit exceeded {ef} > {most} for "hnsw_ef". '
                f'Help: Reduce the "hnsw_ef" parameter to or below {most}.',
            )

    def is_strict(self, knob: str) -> bool:
        strict = self.config["strict_mode_config"] or {}
        return bool(strict.get("enabled")) and strict.get(knob) is False


@dataclass(frozen=True)
class Call:
    """A request after routing."""

    names: Mapping[str, str]
    body: Json
    query: Mapping[str, str]


class QdrantDouble(Double):
    """A server with its own state; `metadata_supported=False` acts like one before 1.16, `strict` like Qdrant Cloud."""

    max_body = 32 * 1024 * 1024

    def __init__(
        self,
        api_key: str | None = None,
        strict: bool = True,
        version: str = "1.20.0",
        metadata_supported: bool = True,
        max_body: int | None = None,
    ) -> None:
        super().__init__()
        self.collections: dict[str, Collection] = {}
        self.aliases: dict[str, str] = {}
        self.snapshots: dict[str, bytes] = {}
        self.peers = 1
        self.max_body = max_body or self.max_body
        self._api_key = api_key
        self._strict = strict
        self._version = version
        self._metadata_supported = metadata_supported
        self._operations = 0
        self._local = QdrantClient(":memory:")
        # One request at a time, because the local mode is not thread-safe.
        self._state = threading.Lock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._local.close()

    def error(self, code: int, message: str) -> Answer:
        if code in {401, 403}:
            return Answer(code, message.encode(), "text/plain")
        return answer_json({"status": {"error": message}, "time": 0.0}, code)

    def too_large(self, request: Request) -> Answer:
        return self.error(
            400,
            f"Payload error: JSON payload ({request.size} bytes) is larger than allowed (limit: {self.max_body} bytes).",
        )

    def answer(self, request: Request) -> Answer:  # noqa: PLR0911 - a table
        if request.path not in OPEN_PATHS and (refusal := self._check_key(request.headers)):
            return refusal
        if request.path == "/":
            return answer_json(
                {"title": "qdrant - vector search engine", "version": self._version, "commit": "0" * 40}
            )
        if request.path in OPEN_PATHS:
            return Answer(body=f"{request.path[1:]} check passed".encode(), content_type="text/plain")
        if "/snapshots" in request.path:
            return self._snapshot(request)
        route = _route(request)
        if route is None:
            return Answer(404)
        try:
            with self._state:
                return answer_json(
                    {"result": self._carry_out(*route, request), "status": "ok", "time": 0.001, "usage": None}
                )
        except Refused as refused:
            return self.error(refused.code, str(refused))

    def _snapshot(self, request: Request) -> Answer:  # noqa: PLR0911 - a table
        """Make, send, delete or restore a snapshot: here the configuration and the points as JSON."""
        _, name, _, *rest = [unquote(part) for part in request.path.strip("/").split("/")]
        with self._state:
            if rest == ["upload"]:
                return self._restore(name, request)
            if name not in self.collections:
                return self.error(404, f"Not found: Collection `{name}` doesn't exist!")
            if not rest and request.method == "POST":
                created = f"{name}-{len(self.snapshots)}.snapshot"
                self.snapshots[created] = data = self._dump(name)
                result = {"name": created, "size": len(data), "checksum": hashlib.sha256(data).hexdigest()}
                return answer_json({"result": {**result, "creation_time": None}, "status": "ok", "time": 0.1})
            if not rest:
                found_names = [{"name": one, "size": 0} for one in self.snapshots if one.startswith(name)]
                return answer_json({"result": found_names, "status": "ok", "time": 0.1})
            if rest[0] not in self.snapshots:
                return self.error(404, f"Not found: Snapshot {rest[0]} not found")
            if request.method == "DELETE":
                del self.snapshots[rest[0]]
                return answer_json({"result": True, "status": "ok", "time": 0.1})
            data, headers = self.snapshots[rest[0]], {}
            if "gzip" in request.headers.get("accept-encoding", ""):
                data, headers = gzip.compress(data), {"Content-Encoding": "gzip"}
            return Answer(200, data, "application/octet-stream", headers)

    def _dump(self, name: str) -> bytes:
        collection = self.collections[name]
        points, _ = self._local.scroll(name, limit=100_000, with_payload=True, with_vectors=True)
        state = {"config": collection.config, "indexes": collection.indexes, "points": _plain(list(points))}
        return json.dumps(state).encode()

    def _restore(self, name: str, request: Request) -> Answer:
        boundary = request.headers["content-type"].partition("boundary=")[2]
        data = request.body.partition(b"\r\n\r\n")[2].removesuffix(f"\r\n--{boundary}--\r\n".encode())
        result = hashlib.sha256(data).hexdigest()
        if request.query.get("checksum", result) != result:
            return self.error(
                400, f"Checksum mismatch: expected {result}, actual {request.query['checksum']}"
            )
        try:
            state = json.loads(data)
        except ValueError:
            return self.error(500, "Service internal error: failed to read snapshot archive")
        created = Collection(name, state["config"], state["indexes"])
        parsed = _parse(models.CreateCollection, state["config"]["params"])
        self._local.create_collection(
            name, vectors_config=parsed.vectors or {}, sparse_vectors_config=parsed.sparse_vectors
        )
        points = [
            models.PointStruct(id=one["id"], vector=one["vector"], payload=one["payload"])
            for one in state["points"]
        ]
        self._local.upsert(name, points)
        self.collections[name] = created
        return answer_json({"result": True, "status": "ok", "time": 0.1})

    def cluster(self, call: Call) -> object:
        peers = {str(number): {"uri": f"http://node-{number}:6335/"} for number in range(self.peers)}
        return (
            {
                "status": "enabled",
                "peer_id": 0,
                "peers": peers,
                "raft_info": {"term": 1, "commit": 1, "pending_operations": 0, "is_voter": True},
                "consensus_thread_status": {
                    "consensus_thread_status": "working",
                    "last_update": "2026-01-01T00:00:00Z",
                },
                "message_send_failures": {},
            }
            if self.peers > 1
            else {"status": "disabled"}
        )

    def collection_cluster(self, call: Call) -> object:
        collection = self._collection(call)
        shards = (collection.config["params"] or {}).get("shard_number") or 1
        count = self._local.count(collection.name).count
        on_this = [0] if self.peers > 1 else range(shards)
        local = [{"shard_id": one, "points_count": 0 if one else count, "state": "Active"} for one in on_this]
        remote = [
            {"shard_id": one, "peer_id": 1, "state": "Active"} for one in range(shards) if one not in on_this
        ]
        return {
            "peer_id": 0,
            "shard_count": shards,
            "local_shards": local,
            "remote_shards": remote,
            "shard_transfers": [],
        }

    def _carry_out(
        self, work: Callable[[QdrantDouble, Call], object], names: Mapping[str, str], request: Request
    ) -> object:
        """Handle a request, and turn errors of the local mode into those of a server."""
        if request.body is not None and not isinstance(request.body, dict):
            raise Refused(400, "Format error in JSON body: expected a JSON object")
        try:
            return work(self, Call(names, request.body or {}, request.query))
        except ValidationError as error:
            first = error.errors()[0]
            position = ".".join(str(part) for part in first["loc"])
            raise Refused(400, f"Format error in JSON body: {position}: {first['msg']}") from error
        except ValueError as error:
            if invalid := re.match(r"Point id (.*) is not a valid UUID", str(error)):
                message = f"Format error in JSON body: value {invalid[1]} is not a valid point ID"
                raise Refused(400, message) from error
            text = re.sub(r"( got \d+) for vector '.*'", r"\1", str(error))
            raise Refused(400, text if text.startswith("Wrong input") else f"Wrong input: {text}") from error

    def _check_key(self, headers: Mapping[str, str]) -> Answer | None:
        given = headers.get("api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if self._api_key is None or given == self._api_key:
            return None
        return self.error(
            401,
            "Invalid API key or JWT" if given else "Must provide an API key or an Authorization bearer token",
        )

    def _collection(self, call: Call) -> Collection:
        name = call.names["name"]
        collection = self.collections.get(self.aliases.get(name, name))
        if collection is None:
            raise Refused(404, f"Not found: Collection `{name}` doesn't exist!")
        return collection

    def _updated(self, call: Call) -> Json:
        self._operations += 1
        return {
            "operation_id": self._operations,
            "status": "completed" if call.query.get("wait") == "true" else "acknowledged",
        }

    # Collections

    def list_collections(self, call: Call) -> object:
        return {"collections": [{"name": name} for name in self.collections]}

    def exists(self, call: Call) -> object:
        name = call.names["name"]
        return {"exists": self.aliases.get(name, name) in self.collections}

    def create(self, call: Call) -> object:
        name = call.names["name"]
        if name in self.collections:
            raise Refused(409, f"Wrong input: Collection `{name}` already exists!")
        if name in self.aliases:
            raise Refused(
                400,
                f"Wrong input: Can't create collection with name {name}. Alias with the same name already exists",
            )
        parsed = _parse(models.CreateCollection, call.body)
        self._local.create_collection(
            name, vectors_config=parsed.vectors or {}, sparse_vectors_config=parsed.sparse_vectors
        )
        config: dict[str, Json | None] = {part: dict(values) for part, values in DEFAULTS.items()}
        # A copy, because the recorded request must not change.
        body = deepcopy(call.body)
        params = {key: body[key] for key in models.CollectionParams.model_fields if body.get(key) is not None}
        config["params"] = {**DEFAULTS["params"], **params}
        config["quantization_config"] = None
        config["strict_mode_config"] = dict(STRICT) if self._strict else {"enabled": False}
        created = Collection(name, config)
        self._configure(created, body)
        if self._metadata_supported and body.get("metadata"):
            created.config["metadata"] = body["metadata"]  # unlike an update, this keeps null values
        self.collections[name] = created
        return True

    def update(self, call: Call) -> object:
        collection = self._collection(call)
        _parse(models.UpdateCollection, call.body)
        collection.config["params"] = {
            **(collection.config["params"] or {}),
            **(call.body.get("params") or {}),
        }
        self._configure(collection, call.body)
        return True

    def _configure(self, collection: Collection, body: Json) -> None:
        if body.get("strict_mode_config"):
            collection.config["strict_mode_config"] = {
                **(collection.config["strict_mode_config"] or {}),
                **body["strict_mode_config"],
            }
        if body.get("metadata") and self._metadata_supported:
            merged = {**(collection.config.get("metadata") or {}), **body["metadata"]}
            collection.config["metadata"] = {key: value for key, value in merged.items() if value is not None}

    def info(self, call: Call) -> object:
        collection = self._collection(call)
        schema = {}
        for key, params in collection.indexes.items():
            filled = models.Filter(must_not=[models.IsEmptyCondition(is_empty=models.PayloadField(key=key))])
            points = self._local.count(collection.name, count_filter=filled).count
            schema[key] = {
                "data_type": params["type"],
                "params": params if len(params) > 1 else None,
                "points": points,
            }
        return {
            "status": "green",
            "optimizer_status": "ok",
            "points_count": self._local.count(collection.name).count,
            "indexed_vectors_count": 0,
            "segments_count": 1,
            "config": collection.config,
            "payload_schema": schema,
        }

    def delete_collection(self, call: Call) -> object:
        name = call.names["name"]
        self.aliases = {alias: target for alias, target in self.aliases.items() if target != name}
        self._local.delete_collection(name)
        return self.collections.pop(name, None) is not None

    # Aliases

    def change_aliases(self, call: Call) -> object:
        # Changed in a copy, because the actions are atomic.
        aliases = dict(self.aliases)
        for action in _parse(models.ChangeAliasesOperation, call.body).actions:
            if isinstance(action, models.CreateAliasOperation):
                alias, name = action.create_alias.alias_name, action.create_alias.collection_name
                if alias in self.collections:
                    raise Refused(409, f"Wrong input: Collection `{alias}` already exists!")
                if name not in self.collections:
                    raise Refused(404, f"Not found: Collection `{name}` doesn't exist!")
                aliases[alias] = name
            elif isinstance(action, models.DeleteAliasOperation):
                aliases.pop(action.delete_alias.alias_name, None)
        self.aliases = aliases
        return True

    def list_aliases(self, call: Call) -> object:
        only = self._collection(call).name if call.names else None
        result = [(alias, name) for alias, name in self.aliases.items() if only in {None, name}]
        return {"aliases": [{"alias_name": alias, "collection_name": name} for alias, name in result]}

    # Payload indexes

    def create_index(self, call: Call) -> object:
        collection = self._collection(call)
        _parse(models.CreateFieldIndex, call.body)
        schema = call.body["field_schema"]
        collection.indexes[call.body["field_name"]] = {"type": schema} if isinstance(schema, str) else schema
        return self._updated(call)

    def drop_index(self, call: Call) -> object:
        self._collection(call).indexes.pop(call.names["field"], None)
        return self._updated(call)

    def _check_filter(self, collection: Collection, condition: object) -> None:
        """In strict mode, reject a filter on a field without a payload index."""
        if isinstance(condition, list):
            for one in condition:
                self._check_filter(collection, one)
        elif isinstance(condition, dict) and collection.is_strict("unindexed_filtering_retrieve"):
            if "key" in condition and condition["key"] not in collection.indexes:
                raise Refused(400, NO_INDEX.format(condition["key"]))
            for clause in ("must", "should"):
                self._check_filter(collection, condition.get(clause))

    # Changing points

    def upsert(self, call: Call) -> object:
        collection = self._collection(call)
        self._local.upsert(collection.name, _parse(models.PointsList, call.body).points)
        return self._updated(call)

    def delete_points(self, call: Call) -> object:
        collection = self._collection(call)
        self._local.delete(collection.name, models.PointIdsList(points=call.body["points"]))
        return self._updated(call)

    # Reading points

    def retrieve(self, call: Call) -> object:
        collection = self._collection(call)
        parsed = _parse(models.PointRequest, call.body)
        return _plain(
            self._local.retrieve(
                collection.name, parsed.ids, _or(parsed.with_payload, False), _or(parsed.with_vector, False)
            )
        )

    def query(self, call: Call) -> object:
        return self._query(self._collection(call), call.body)

    def query_batch(self, call: Call) -> object:
        collection = self._collection(call)
        _parse(models.QueryRequestBatch, call.body)
        return [self._query(collection, search) for search in call.body["searches"]]

    def _query(self, collection: Collection, body: Json) -> object:
        parsed = _parse(models.QueryRequest, body)
        self._check_query(collection, body)
        # Without search parameters: the local mode does not support them, and warns.
        answer = self._local.query_points(
            collection.name,
            query=cast(Any, parsed.query),
            using=parsed.using,
            prefetch=parsed.prefetch,
            query_filter=parsed.filter,
            limit=_or(parsed.limit, 10),
            with_payload=_or(parsed.with_payload, False),
            with_vectors=_or(parsed.with_vector, False),
            score_threshold=parsed.score_threshold,
        )
        return _plain(answer)

    def _check_query(self, collection: Collection, body: Json) -> None:
        """Reject what a server rejects and the local mode does not, also in prefetches."""
        self._check_filter(collection, body.get("filter"))
        collection.check_params(body.get("params") or {})
        for one in body.get("prefetch") or []:
            self._check_query(collection, one)

    def count(self, call: Call) -> object:
        collection = self._collection(call)
        parsed = _parse(models.CountRequest, call.body)
        self._check_filter(collection, call.body.get("filter"))
        return {"count": self._local.count(collection.name, count_filter=parsed.filter).count}

    def scroll(self, call: Call) -> object:
        collection = self._collection(call)
        parsed = _parse(models.ScrollRequest, call.body)
        self._check_filter(collection, call.body.get("filter"))
        points, following = self._local.scroll(
            collection.name,
            scroll_filter=parsed.filter,
            limit=_or(parsed.limit, 10),
            offset=parsed.offset,
            with_payload=_or(parsed.with_payload, True),
            with_vectors=_or(parsed.with_vector, False),
        )
        return {"points": _plain(points), "next_page_offset": _plain(following)}

    def facet(self, call: Call) -> object:
        collection = self._collection(call)
        parsed = _parse(models.FacetRequest, call.body)
        self._check_filter(collection, call.body.get("filter"))
        if parsed.key not in collection.indexes:
            raise Refused(400, NO_FACET.format(parsed.key))
        return _plain(
            self._local.facet(
                collection.name, parsed.key, facet_filter=parsed.filter, limit=_or(parsed.limit, 10)
            )
        )


ROUTES: tuple[tuple[str, str, Callable[[QdrantDouble, Call], object]], ...] = (
    ("GET", "aliases", QdrantDouble.list_aliases),
    ("GET", "cluster", QdrantDouble.cluster),
    ("GET", "collections", QdrantDouble.list_collections),
    ("GET", "collections/{name}/cluster", QdrantDouble.collection_cluster),
    ("POST", "collections/aliases", QdrantDouble.change_aliases),
    ("GET", "collections/{name}", QdrantDouble.info),
    ("PUT", "collections/{name}", QdrantDouble.create),
    ("PATCH", "collections/{name}", QdrantDouble.update),
    ("DELETE", "collections/{name}", QdrantDouble.delete_collection),
    ("GET", "collections/{name}/exists", QdrantDouble.exists),
    ("GET", "collections/{name}/aliases", QdrantDouble.list_aliases),
    ("PUT", "collections/{name}/index", QdrantDouble.create_index),
    ("DELETE", "collections/{name}/index/{field}", QdrantDouble.drop_index),
    ("POST", "collections/{name}/facet", QdrantDouble.facet),
    ("PUT", "collections/{name}/points", QdrantDouble.upsert),
    ("POST", "collections/{name}/points", QdrantDouble.retrieve),
    ("POST", "collections/{name}/points/delete", QdrantDouble.delete_points),
    ("POST", "collections/{name}/points/query", QdrantDouble.query),
    ("POST", "collections/{name}/points/query/batch", QdrantDouble.query_batch),
    ("POST", "collections/{name}/points/count", QdrantDouble.count),
    ("POST", "collections/{name}/points/scroll", QdrantDouble.scroll),
)


def _route(request: Request) -> tuple[Callable[[QdrantDouble, Call], object], Mapping[str, str]] | None:
    parts = [unquote(part) for part in request.path.strip("/").split("/")]
    for method, pattern, work in ROUTES:
        expected = pattern.split("/")
        pairs = list(zip(expected, parts, strict=False))
        if (
            method == request.method
            and len(expected) == len(parts)
            and all(want == part or want[0] == "{" for want, part in pairs)
        ):
            return work, {want[1:-1]: part for want, part in pairs if want[0] == "{"}
    return None


def _parse(shape: type[Shape], body: Json) -> Shape:
    return shape.model_validate(body)


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _plain(value: object) -> object:
    """Turn the client's models into JSON values."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
