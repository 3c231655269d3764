"""Compare the double of Qdrant with a real server: the same requests get the same statuses, texts and fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.doubles.qdrant import STRICT, QdrantDouble

NAME = "compared"
DENSE = {"size": 4, "distance": "Cosine"}
POINTS = [
    {
        "id": number,
        "vector": {"": [1.0, number, 0.5, 0.25], "lexical": {"indices": [number], "values": [1.0]}},
        "payload": {"module": "ab"[number % 2], "page": number, "tags": ["x", "y"]},
    }
    for number in range(1, 9)
]
MODULE_A = {"must": [{"key": "module", "match": {"any": ["a"]}}]}
SEARCH = {"query": [1.0, 2.0, 0.5, 0.25], "limit": 3}

REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "collections/{name}", None),
    ("GET", "collections/{name}/exists", None),
    ("PUT", "collections/{name}", {"vectors": DENSE, "sparse_vectors": {"lexical": {}}, "strict_mode_config": STRICT}),
    ("PUT", "collections/{name}", {"vectors": DENSE}),
    ("PUT", "collections/{name}/index?wait=true", {"field_name": "page", "field_schema": "integer"}),
    ("PUT", "collections/{name}/index?wait=true", {"field_name": "page", "field_schema": "integer"}),
    ("PUT", "collections/{name}/index?wait=true", {"field_name": "page", "field_schema": "nonsense"}),
    ("PUT", "collections/{name}/points?wait=true", {"points": POINTS}),
    ("PUT", "collections/{name}/points", {"points": POINTS[:1]}),
    ("PUT", "collections/{name}/points?wait=true", {"points": [{"id": 1, "vector": [1.0, 2.0]}]}),
    ("PUT", "collections/{name}/points?wait=true", {"points": [{"id": "no-uuid", "vector": [1.0] * 4}]}),
    ("PUT", "collections/{name}/points?wait=true", {"points": [{"id": 1, "vector": {"other": [1.0] * 4}}]}),
    ("PUT", "collections/{name}/points?wait=true", {}),
    ("POST", "collections/{name}/points/count", {"exact": True}),
    ("POST", "collections/{name}/points/count", {"exact": True, "filter": MODULE_A}),
    ("POST", "collections/{name}/points/query", SEARCH),
    ("POST", "collections/{name}/points/query", {**SEARCH, "with_payload": True, "with_vector": True}),
    ("POST", "collections/{name}/points/query", {**SEARCH, "filter": MODULE_A}),
    ("POST", "collections/{name}/points/query/batch", {"searches": [SEARCH, SEARCH]}),
    ("POST", "collections/{name}/facet", {"key": "module"}),
    ("POST", "collections/{name}/facet", {"key": "page", "limit": 2}),
    ("PUT", "collections/{name}/index?wait=true", {"field_name": "module", "field_schema": "keyword"}),
    ("POST", "collections/{name}/facet", {"key": "module", "exact": True}),
    ("POST", "collections/{name}/points/query", {**SEARCH, "filter": MODULE_A}),
    ("POST", "collections/{name}/points/scroll", {"limit": 3, "with_payload": False}),
    ("POST", "collections/{name}/points/scroll", {"limit": 3, "offset": 6, "with_payload": ["page"]}),
    ("POST", "collections/{name}/points", {"ids": [1, 99], "with_vector": [""]}),
    ("PATCH", "collections/{name}", {"metadata": {"recto": {"a": 1}}}),
    ("PATCH", "collections/{name}", {"metadata": {"other": None}}),
    ("GET", "collections/{name}", None),
    ("POST", "collections/{name}/points/delete?wait=true", {"points": [1, 99]}),
    ("POST", "collections/{name}/points/count", {"exact": True}),
    ("POST", "collections/aliases", {"actions": [{"create_alias": {"collection_name": "{name}", "alias_name": "{name}-alias"}}]}),
    ("GET", "collections/{name}-alias", None),
    ("GET", "collections/{name}-alias/exists", None),
    ("POST", "collections/aliases", {"actions": [{"create_alias": {"collection_name": "nowhere", "alias_name": "{name}-x"}}]}),
    ("PUT", "collections/{name}-alias", {"vectors": DENSE}),
    ("GET", "collections/{name}/aliases", None),
    ("POST", "collections/aliases", {"actions": [{"delete_alias": {"alias_name": "{name}-alias"}}]}),
    ("POST", "collections/aliases", {"actions": [{"delete_alias": {"alias_name": "{name}-alias"}}]}),
    ("GET", "collections/{name}/cluster", None),
    ("GET", "cluster", None),
    ("DELETE", "collections/{name}/index/page?wait=true", None),
    ("DELETE", "collections/{name}", None),
    ("DELETE", "collections/{name}", None),
    ("POST", "collections/{name}/points/query", SEARCH),
    ("GET", "nowhere", None),
]  # fmt: skip
UNCOMPARED = {
    "version",
    "indexed_vectors_count",
    "time",
    "operation_id",
    "usage",
    "peer_id",
    "optimizer_status",
    "config",
    "segments_count",
}


@pytest.fixture(scope="module")
def double() -> Iterator[QdrantDouble]:
    with QdrantDouble(strict=False, version="1.16.3") as double:
        yield double


def test_the_double_answers_like_a_server(server_url: str, double: QdrantDouble) -> None:
    differences = []
    for method, path, body in REQUESTS:
        real, doubled = (ask(url, method, path, body) for url in (server_url, double.url))
        if real != doubled:
            differences.append(f"{method} {path} {body}\n    server: {real}\n    double: {doubled}")
    assert not differences, "\n".join(differences)


def ask(url: str, method: str, path: str, body: Any) -> tuple[int, Any]:
    """Send a request, and return the status and the comparable part of the response."""
    text = json.dumps(body).replace("{name}", NAME).encode() if body is not None else None
    request = Request(
        f"{url}/{path.replace('{name}', NAME)}", text, {"content-type": "application/json"}, method=method
    )
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, comparable(json.loads(answer.read()))
    except HTTPError as error:
        said = error.read().decode()
        try:
            return error.code, shape_of(json.loads(said)["status"]["error"])
        except (ValueError, LookupError, TypeError):
            return error.code, said


def comparable(value: Any) -> Any:
    """Leave out times and defaults, and round numbers."""
    if isinstance(value, dict):
        return {
            name: comparable(one) for name, one in value.items() if name not in UNCOMPARED and one is not None
        }
    if isinstance(value, list):
        return [comparable(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def shape_of(message: str) -> str:
    """Return the part of an error message that Recto may read; details of wrong requests differ."""
    if result := re.match("Format error in JSON body|Validation error in JSON body", message):
        return result[0]
    return message
