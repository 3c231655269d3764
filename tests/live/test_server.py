"""The commands on a real server that is set up like Qdrant Cloud: with keys and in strict mode."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient

from recto.settings import SAMPLE_COLLECTION, ServerOptions
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant.connection import ServerConnection
from tests.live.nodes import Node
from tests.running import Done, copy_home, recto
from tests.stores.test_server import (  # noqa: F401 - collections of other pipelines, on a real server, too
    test_a_damaged_vocabulary_is_reported,
    test_candidates_without_a_payload_index,
    test_filters_without_a_payload_index,
    test_foreign_collections_are_not_written_to,
    test_modules_are_derived_from_urls,
    test_named_vectors_and_copies,
)

KEY, READ_ONLY_KEY = "live-key-0123456789", "live-read-only-key-0123456789"
STRICT = {"enabled": True, "unindexed_filtering_retrieve": False, "unindexed_filtering_update": False}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    service = {"api_key": KEY, "read_only_api_key": READ_ONLY_KEY, "jwt_rbac": True}
    strict = {"collection": {"strict_mode": STRICT}}
    with Node(tmp_path_factory.mktemp("qdrant"), service, strict) as node:
        node.wait_until_ready()
        yield node


@pytest.fixture
def server(node: Node) -> dict[str, str]:
    return {"RECTO_EMBEDDER": "local", "RECTO_STORE": "server", "QDRANT_URL": node.url, "QDRANT_API_KEY": KEY}


@pytest.fixture
def other_client(node: Node) -> Iterator[QdrantClient]:
    """The client of another pipeline, on a server without any collection."""
    with pytest.warns(UserWarning, match="insecure"):
        client = QdrantClient(url=node.url, api_key=KEY, timeout=60, check_compatibility=False)
    for entry in client.get_collections().collections:
        client.delete_collection(entry.name)
    yield client
    client.close()


@pytest.fixture
def store(node: Node, home: Path) -> Iterator[ServerStore]:
    created = ServerStore(ServerConnection(node.url, KEY, lambda _: None), home, ServerOptions(), None)
    yield created
    created.close()


def run(home: Path, *arguments: str, **variables: str) -> Done:
    done = recto(home, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done


def run_json(home: Path, *arguments: str, **variables: str) -> Any:
    return json.loads(run(home, *arguments, "--json", **variables).stdout)


def pages(home: Path, query: str, mode: str, server: dict[str, str]) -> list[str]:
    result = run_json(home, "search", query, "--mode", mode, "--collection", "garden", **server)
    return [hit["url"] for hit in result["results"]]


def test_the_life_of_a_collection(home: Path, small_book: Path, server: dict[str, str]) -> None:
    index = ("index", str(small_book), "--collection", "garden")
    first = run_json(home, *index, **server)
    assert first["published"]
    assert first["embedded"]["texts"] == first["chunks"]
    for mode in ("dense", "lexical", "hybrid"):
        assert pages(home, "compost", mode, server), mode
    again = run_json(home, *index, **server)
    assert (again["published"], again["embedded"]["texts"]) == (False, 0)

    changed, *_, gone = sorted(small_book.rglob("*.md"))
    changed.write_text(changed.read_text() + "\n\n## Hedgehogs\n\nHedgehogs eat slugs at night.\n")
    gone.unlink()
    third = run_json(home, *index, **server)
    assert third["generation"] == first["generation"], "updated in place"
    assert (third["states"]["changed"], third["states"]["gone"]) == (1, 1)
    assert 0 < third["embedded"]["texts"] < third["chunks"]
    assert pages(home, "hedgehogs", "lexical", server)

    rebuilt = run_json(home, *index, "--rebuild", **server)
    assert rebuilt["generation"] != first["generation"]
    assert rebuilt["chunks"] == third["chunks"]
    assert run(home, "rollback", "garden", **server).stdout.startswith(f"Restored {first['generation']}")
    assert generations(home, server)["garden"] == first["generation"]
    assert pages(home, "hedgehogs", "hybrid", server)

    findings = run_json(home, "doctor", "--collection", "garden", **server)
    assert not [one for one in findings["findings"] if one["severity"] in ("error", "warning")], findings
    assert "All nodes and replicas work" in [one["message"] for one in findings["findings"]]
    assert "Nothing had to be changed" in run(home, "prepare", "garden", **server).stdout
    run(home, "delete", "garden", "--yes", **server)
    assert "garden" not in generations(home, server)


def generations(home: Path, server: dict[str, str]) -> dict[str, str]:
    """Return the generation of each collection; other tests have theirs on the same server."""
    return {row["collection"]: row["generation"] for row in run_json(home, "collections", **server)}


def test_promotion_and_parity_in_every_mode(sample_home: Path, home: Path, server: dict[str, str]) -> None:
    # A copy, because the tests of the cluster promote the collection, too, and one process may write it.
    copy_home(sample_home, home)
    done = run(home, "promote", "--collection", SAMPLE_COLLECTION, **server)
    assert "the results are the same on both sides" in done.stdout
    compared = run_json(home, "parity", "--collection", SAMPLE_COLLECTION, **server)
    assert compared["modes"] == ["hybrid", "dense", "lexical"]
    assert compared["differences"] == []
    run(home, "delete", SAMPLE_COLLECTION, "--yes", **server)


def test_keys(home: Path, small_book: Path, node: Node, server: dict[str, str]) -> None:
    run(home, "index", str(small_book), "--collection", "garden", **server)
    for key in (READ_ONLY_KEY, token(KEY, {"access": "r"})):
        reader = {**server, "QDRANT_API_KEY": key}
        assert pages(home, "compost", "hybrid", reader)
        refused = recto(home, "index", str(small_book), "--collection", "other", **reader)
        assert refused.returncode == 2
        assert "The key in QDRANT_API_KEY does not allow this" in refused.stderr
        assert "use a key that can write" in refused.stderr
        findings = json.loads(recto(home, "doctor", "--collection", "garden", "--json", **reader).stdout)
        assert not [one for one in findings["findings"] if one["severity"] == "error"], findings
    for key in ("wrong", token("wrong", {"access": "m"})):
        stranger = {**server, "QDRANT_API_KEY": key}
        refused = recto(home, "search", "compost", "--collection", "garden", **stranger)
        assert refused.returncode == 2
        assert "Qdrant refuses the key in QDRANT_API_KEY" in refused.stderr
        assert key not in refused.stderr
    assert pages(home, "compost", "hybrid", server), "the collection was not changed"
    run(home, "delete", "garden", "--yes", **server)


def test_a_missing_collection_is_named(home: Path, server: dict[str, str]) -> None:
    missing = recto(home, "search", "compost", "--collection", "absent", **server)
    assert missing.returncode == 2
    assert f"Collection 'absent' does not exist at {server['QDRANT_URL']}" in missing.stderr


def token(secret: str, claims: dict[str, Any]) -> str:
    """Return a JSON Web Token that is signed with HS256, as Qdrant expects it."""

    def encode(part: bytes) -> bytes:
        return urlsafe_b64encode(part).rstrip(b"=")

    signed = b".".join(encode(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return (signed + b"." + encode(hmac.digest(secret.encode(), signed, "sha256"))).decode()
