"""A double of a Qdrant server, for faults and for tests without a server: what Recto uses of its REST API.

It works on the local mode of the official client. `tests/live` runs the same conformance suite, and the tests of
collections that other pipelines wrote, on a real server.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote

import numpy as np
from pydantic import BaseModel, ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.common import client_warnings
from qdrant_client.local import sparse_distances

from tests.doubles.server import Answer, Double, Request, answer_json

Json = dict[str, Any]

# Pytest turns warnings into errors, and filters are not per thread: mark this warning as already shown.
client_warnings.SEEN_MESSAGES.add("large-local-collection")


def _sparse_dot_product(vector1: models.SparseVector, vector2: models.SparseVector) -> np.float32 | None:
    products = []
    for index, value in zip(vector1.indices, vector1.values, strict=True):
        place = bisect_left(vector2.indices, index)
        if place < len(vector2.indices) and vector2.indices[place] == index:
            products.append(value * vector2.values[place])
    return np.float32(sum(products)) if products else None


# The client's own function compares all indices of both vectors in Python, which takes far longer.
sparse_distances.sparse_dot_product = _sparse_dot_product

OPEN_PATHS = ("/", "/healthz", "/readyz", "/livez")
"""Paths that need no key, as on a real server."""

NO_FACET = "Wrong input: No appropriate index for faceting: `{}`. Please create one to facet on this field."
NO_INDEX = (
    'Bad request: Index required but not found for "{}" of one of the following types: [keyword]. '
    "Help: Create an index for this key or use a different filter."
)

STRICT: Json = {"enabled": True, "unindexed_filtering_retrieve": False, "unindexed_filtering_update": False}
_SEGMENTS: Json = {"default_segment_number": 0, "indexing_threshold": 10_000, "flush_interval_sec": 5}
_REPLICAS: Json = {"shard_number": 1, "replication_factor": 1, "write_consistency_factor": 1}
DEFAULTS: Mapping[str, Json] = {
    "params": {**_REPLICAS, "on_disk_payload": True},
    "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10_000},
    "optimizer_config": {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, **_SEGMENTS},
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
            raise Refused(400, f'Bad request: Limit exceeded {ef} > {most} for "hnsw_ef".')

    def is_strict(self, knob: str) -> bool:
        strict = self.config["strict_mode_config"] or {}
        return bool(strict.get("enabled")) and strict.get(knob) is False


@dataclass(frozen=True)
class Call:
    """A request after routing."""

    names: Mapping[str, str]
    body: Any
    query: Mapping[str, str]
    headers: Mapping[str, str]


class QdrantDouble(Double):
    """A server in strict mode, like Qdrant Cloud; `metadata_supported=False` acts like one before 1.16."""

    def __init__(
        self, api_key: str | None = None, version: str = "1.20.0", metadata_supported: bool = True
    ) -> None:
        super().__init__()
        self.collections: dict[str, Collection] = {}
        self.aliases: dict[str, str] = {}
        self._api_key = api_key
        self._version = version
        self._metadata_supported = metadata_supported
        self._operations = 0
        self._local = QdrantClient(":memory:")
        # One request at a time, because the local mode is not thread-safe.
        self._state = threading.Lock()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._local.close()

    def error(self, code: int, message: str) -> Answer:
        if code in {401, 403}:
            return Answer(code, message.encode(), "text/plain")
        return answer_json({"status": {"error": message}, "time": 0.0}, code)

    def answer(self, request: Request) -> Answer:
        if request.path in OPEN_PATHS:
            title = {"title": "qdrant - vector search engine", "version": self._version, "commit": "0" * 40}
            return answer_json(title)
        if refusal := self._check_key(request.headers):
            return refusal
        handle, names = _route(request)
        if handle is None:
            return Answer(404)
        try:
            with self._state:
                result = self._carry_out(handle, names, request)
        except Refused as refused:
            return self.error(refused.code, str(refused))
        if isinstance(result, Answer):
            return result
        return answer_json({"result": result, "status": "ok", "time": 0.001, "usage": None})

    # The cluster

    def cluster(self, call: Call) -> object:
        return {"status": "disabled"}

    def collection_cluster(self, call: Call) -> object:
        collection = self._collection(call)
        shards = (collection.config["params"] or {}).get("shard_number") or 1
        shard = {"points_count": self._local.count(collection.name).count, "state": "Active"}
        return {
            "peer_id": 0,
            "shard_count": shards,
            "local_shards": [{"shard_id": number, **shard} for number in range(shards)],
            "remote_shards": [],
            "shard_transfers": [],
        }

    def _carry_out(self, handle: Handler, names: Mapping[str, str], request: Request) -> object:
        """Handle a request, and turn errors of the local mode into those of a server."""
        try:
            return handle(self, Call(names, request.body or {}, request.query, request.headers))
        except ValidationError as error:
            first = error.errors()[0]
            position = ".".join(str(part) for part in first["loc"])
            raise Refused(400, f"Format error in JSON body: {position}: {first['msg']}") from error
        except ValueError as error:
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
        is_done = call.query.get("wait") == "true"
        return {"operation_id": self._operations, "status": "completed" if is_done else "acknowledged"}

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
            raise Refused(400, f"Wrong input: Can't create collection with name {name}. Alias exists")
        self._create(name, call.body)
        config: dict[str, Json | None] = {part: dict(values) for part, values in DEFAULTS.items()}
        # A copy, because the recorded request must not change.
        body = deepcopy(call.body)
        params = {key: body[key] for key in models.CollectionParams.model_fields if body.get(key) is not None}
        config["params"] = {**DEFAULTS["params"], **params}
        config["quantization_config"] = None
        config["strict_mode_config"] = dict(STRICT)
        created = Collection(name, config)
        self._configure(created, body)
        if self._metadata_supported and body.get("metadata"):
            created.config["metadata"] = body["metadata"]  # unlike an update, this keeps null values
        self.collections[name] = created
        return True

    def _create(self, name: str, body: Json) -> None:
        parsed = models.CreateCollection.model_validate(body)
        sparse = parsed.sparse_vectors
        self._local.create_collection(name, vectors_config=parsed.vectors or {}, sparse_vectors_config=sparse)

    def update(self, call: Call) -> object:
        collection, changes = self._collection(call), call.body.get("params") or {}
        models.UpdateCollection.model_validate(call.body)
        collection.config["params"] = {**(collection.config["params"] or {}), **changes}
        self._configure(collection, call.body)
        return True

    def _configure(self, collection: Collection, body: Json) -> None:
        if strict := body.get("strict_mode_config"):
            collection.config["strict_mode_config"] = (collection.config["strict_mode_config"] or {}) | strict
        if body.get("metadata") and self._metadata_supported:
            merged = {**(collection.config.get("metadata") or {}), **body["metadata"]}
            collection.config["metadata"] = {key: value for key, value in merged.items() if value is not None}

    def info(self, call: Call) -> object:
        collection = self._collection(call)
        schema = {}
        for key, params in collection.indexes.items():
            filled = models.Filter(must_not=[models.IsEmptyCondition(is_empty=models.PayloadField(key=key))])
            points = self._local.count(collection.name, count_filter=filled).count
            more = params if len(params) > 1 else None
            schema[key] = {"data_type": params["type"], "params": more, "points": points}
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
        for action in models.ChangeAliasesOperation.model_validate(call.body).actions:
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
        models.CreateFieldIndex.model_validate(call.body)
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

    # Points

    def upsert(self, call: Call) -> object:
        points = models.PointsList.model_validate(call.body).points
        self._local.upsert(self._collection(call).name, points)
        return self._updated(call)

    def delete_points(self, call: Call) -> object:
        self._local.delete(self._collection(call).name, models.PointIdsList(points=call.body["points"]))
        return self._updated(call)

    def retrieve(self, call: Call) -> object:
        parsed = models.PointRequest.model_validate(call.body)
        name, payload, vector = self._collection(call).name, parsed.with_payload, parsed.with_vector
        return _plain(self._local.retrieve(name, parsed.ids, _or(payload, False), _or(vector, False)))

    def query(self, call: Call) -> object:
        return self._query(self._collection(call), call.body)

    def query_batch(self, call: Call) -> object:
        collection = self._collection(call)
        models.QueryRequestBatch.model_validate(call.body)
        return [self._query(collection, search) for search in call.body["searches"]]

    def _query(self, collection: Collection, body: Json) -> object:
        parsed = models.QueryRequest.model_validate(body)
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

    def _filtered(self, call: Call) -> Collection:
        """Return the collection of a request whose filter is allowed."""
        collection = self._collection(call)
        self._check_filter(collection, call.body.get("filter"))
        return collection

    def count(self, call: Call) -> object:
        parsed = models.CountRequest.model_validate(call.body)
        return {"count": self._local.count(self._filtered(call).name, count_filter=parsed.filter).count}

    def scroll(self, call: Call) -> object:
        parsed = models.ScrollRequest.model_validate(call.body)
        points, following = self._local.scroll(
            self._filtered(call).name,
            scroll_filter=parsed.filter,
            limit=_or(parsed.limit, 10),
            offset=parsed.offset,
            with_payload=_or(parsed.with_payload, True),
            with_vectors=_or(parsed.with_vector, False),
        )
        return {"points": _plain(points), "next_page_offset": _plain(following)}

    def facet(self, call: Call) -> object:
        parsed, collection = models.FacetRequest.model_validate(call.body), self._filtered(call)
        if parsed.key not in collection.indexes:
            raise Refused(400, NO_FACET.format(parsed.key))
        limit = _or(parsed.limit, 10)
        facet = self._local.facet(collection.name, parsed.key, facet_filter=parsed.filter, limit=limit)
        return _plain(facet)


Handler = Callable[[QdrantDouble, Call], object]
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "aliases", QdrantDouble.list_aliases),
    ("GET", "cluster", QdrantDouble.cluster),
    ("GET", "collections", QdrantDouble.list_collections),
    ("POST", "collections/aliases", QdrantDouble.change_aliases),
    ("GET", "collections/{name}", QdrantDouble.info),
    ("PUT", "collections/{name}", QdrantDouble.create),
    ("PATCH", "collections/{name}", QdrantDouble.update),
    ("DELETE", "collections/{name}", QdrantDouble.delete_collection),
    ("GET", "collections/{name}/aliases", QdrantDouble.list_aliases),
    ("GET", "collections/{name}/cluster", QdrantDouble.collection_cluster),
    ("GET", "collections/{name}/exists", QdrantDouble.exists),
    ("POST", "collections/{name}/facet", QdrantDouble.facet),
    ("PUT", "collections/{name}/index", QdrantDouble.create_index),
    ("DELETE", "collections/{name}/index/{field}", QdrantDouble.drop_index),
    ("PUT", "collections/{name}/points", QdrantDouble.upsert),
    ("POST", "collections/{name}/points", QdrantDouble.retrieve),
    ("POST", "collections/{name}/points/count", QdrantDouble.count),
    ("POST", "collections/{name}/points/delete", QdrantDouble.delete_points),
    ("POST", "collections/{name}/points/query", QdrantDouble.query),
    ("POST", "collections/{name}/points/query/batch", QdrantDouble.query_batch),
    ("POST", "collections/{name}/points/scroll", QdrantDouble.scroll),
)


def _route(request: Request) -> tuple[Handler | None, Mapping[str, str]]:
    parts = [unquote(part) for part in request.path.strip("/").split("/")]
    for method, pattern, handle in ROUTES:
        expected = pattern.split("/")
        if method == request.method and len(expected) == len(parts):
            pairs = list(zip(expected, parts, strict=True))
            if all(want == part or want[0] == "{" for want, part in pairs):
                return handle, {want[1:-1]: part for want, part in pairs if want[0] == "{"}
    return None, {}


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _plain(value: object) -> object:
    """Turn the client's models into JSON values."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
