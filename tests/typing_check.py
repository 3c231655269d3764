"""Only the type checker reads this: every implementation fits its protocol."""

from __future__ import annotations

from recto.book.sources.tree import MarkdownTree
from recto.embedders.local import FastembedEmbedder
from recto.embedders.onnx import LocalEmbedder
from recto.protocols import Build, Embedder, Index, Source, Store
from recto.stores.edge import EdgeStore
from recto.stores.edge.build import EdgeBuild
from recto.stores.edge.index import EdgeIndex


def embedders(local: LocalEmbedder, hub: FastembedEmbedder) -> list[Embedder]:
    return [local, hub]


def stores(edge: EdgeStore) -> list[Store]:
    return [edge]


def indexes(edge: EdgeIndex) -> list[Index]:
    return [edge]


def builds(edge: EdgeBuild) -> list[Build]:
    return [edge]


def sources(tree: MarkdownTree) -> list[Source]:
    return [tree]
