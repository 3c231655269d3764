"""Tabs: the label of each stands above its panel."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from selectolax.lexbor import LexborNode

_LEVELS = 2  # between a panel or a list of labels and the element that holds both


class Tabs:
    """Remembers the labels that were met, by the elements around them."""

    def __init__(self) -> None:
        self._labels: dict[int, deque[str]] = {}

    def note(self, node: LexborNode, tag: str, attributes: Mapping[str, str | None]) -> bool:
        """Remember the labels of an element; say whether it is a list of labels."""
        names = (attributes.get("class") or "").split()
        plain = "tabs" in names and tag == "div" and all(child.tag == "label" for child in node.iter())
        if attributes.get("role") != "tablist" and "tabbed-labels" not in names and not plain:
            return False
        labels = [" ".join(label.text().split()) for label in node.css("[role=tab], label")]
        around = node.parent
        for _ in range(_LEVELS):
            if around is not None and labels:
                self._labels.setdefault(around.mem_id, deque()).extend(labels)
                around = around.parent
        return True

    def label(self, node: LexborNode, attributes: Mapping[str, str | None]) -> str:
        """Return the label of a panel, nothing for any other element."""
        if not self._labels:
            return ""
        around = node.parent
        blocks = around is not None and "blocks" in (around.attributes.get("class") or "").split()
        if not blocks and attributes.get("role") != "tabpanel" and "tabbed-block" not in (attributes.get("class") or "").split():
            return ""
        for _ in range(_LEVELS):
            if around is None:
                break
            if labels := self._labels.get(around.mem_id):
                return labels.popleft()
            around = around.parent
        return ""
