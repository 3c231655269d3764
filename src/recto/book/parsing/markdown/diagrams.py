"""The labels of Mermaid diagrams: the words that a reader sees, on the lines where they are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from recto.book.parsing.markdown.tags import unescaped

_FLOW = ("graph", "flowchart")
_OUTLINES = ("mindmap", "timeline", "kanban")
_PLANS = ("gantt", "journey")
_SKIPPED = re.compile(
    r"(?:%%|---|style\b|classDef\b|class\s+[\w,]+\s+\w+$|click\b|linkStyle\b|direction\b|end\b|autonumber\b|activate\b|deactivate\b|"
    r"dateFormat\b|axisFormat\b|tickInterval\b|excludes\b|todayMarker\b|hide\b|cssClass\b|\}$|\{$|\[\*\]\s*-->\s*\[\*\]$)"
)
_EDGE_TEXT = re.compile(
    r"\|\"?([^|\"]+)\"?\||(?:--|==|-\.)\s*\"?([^-=.>|\"\s][^=>|\"]{0,500}?)\"?\s{0,20}(?:-->|---|==>|===|\.->|\.-)"
)
_ARROW = re.compile(r"[<ox]?(?:--+|==+|-\.+-?)[>ox]?|~~~|&")
_NODE = re.compile(
    r"((?<![\w.-])[.-]*+\w++(?:[.-]++\w++)*+)?\s?(?:@\{[^{}]{0,200}?label:\s{0,20}+\"([^\"]{0,500}+)\"[^{}]{0,200}+\}|\({1,3}\[?\"?([^\"()\[\]]+)\"?\]?\){1,3}|"
    r"\[{1,2}[(/\\]?\"([^\"]*)\"[)/\\]?\]{1,2}|"
    r"\[{1,2}[(/\\]?([^\[\]\"]+?)[)/\\]?\]{1,2}|\{{1,2}\"?([^{}\"]+)\"?\}{1,2}|(?<=\w)>\"?([^\[\]\"]{1,500}+)\"?\])(?::::\w+)?"
)  # bounded repeats, so that a line of brackets does not backtrack for ever
_NODE_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_PARTY = r"\w(?:[ ]*+[\w.]++)*+"
_SEQUENCE = re.compile(rf"({_PARTY})\s*+(?:<<)?(?:--?>>?|--?x|--?\))[+-]?\s*+({_PARTY})\s*+:\s*+(.*+)")
_PARTICIPANT = re.compile(
    r"(?:create\s++)?(?:participant|actor)\s++(\w[\w.]*+(?:[ ]++[\w.]++)*?)(?:\s++as\s++((?s:.++)))?"
)
_KEYWORD = re.compile(
    r"(?:title|accTitle:?|accDescr:?|section|loop|alt|else|opt|par|and|critical|option|break|rect|box|state|subgraph|namespace|note|Note|x-axis|"
    r"y-axis|quadrant-\d|class)\s+(?:(?:over|left of|right of)\s+[\w, ]+:?\s*)?(.*)"
)
_QUOTED = re.compile(r"\"([^\"]+)\"")
_DIAGRAM_TAG = re.compile(r"<[^<>]*>")
_SYNTAX = re.compile(r"[<>|o}{*.=~-]{2,}|[{}\[\]()|*;]|\bas\b|:::\w+")
_LONGEST_LINE = 2_000  # characters; a longer line is generated, and slow to match
_LARGEST_FLOW = 100_000  # characters; the nodes of a larger chart are shown by their names as well


def diagram_labels(lines: Sequence[str]) -> list[str] | None:
    """Return the labels of each line of a diagram; None if no line has any."""
    kind, first = _kind(lines)
    if not kind:
        return None
    read: Callable[[str], str]
    if kind.startswith(_FLOW):
        read = _flow_reader("\n".join(lines[first + 1 :]))
    elif kind == "sequenceDiagram":
        read = _sequence_reader(lines)
    else:
        read = _outline if kind in _OUTLINES else _task if kind in _PLANS else _words
    words = ["" for _ in lines]
    for number in range(first, len(lines)):
        line = lines[number].strip().rstrip(";")
        if number == first:
            line = line[len(kind) :].strip() if kind == "pie" else ""
        if line and len(line) <= _LONGEST_LINE and not _SKIPPED.match(line):
            words[number] = " ".join(unescaped(_DIAGRAM_TAG.sub(" ", read(line))).replace("\\n", " ").split())
    return words if any(words) else None


def _kind(lines: Sequence[str]) -> tuple[str, int]:
    """Return the type of a diagram and the line that states it, after comments and front matter."""
    settings = False
    for number, line in enumerate(lines):
        text = line.strip()
        if text == "---":
            settings = not settings
        elif text and not settings and not text.startswith("%%"):
            return text.split()[0].rstrip(";:"), number
    return "", 0


def _flow_reader(text: str) -> Callable[[str], str]:
    """Return a reader of a flow chart's lines; a node without a label is shown by its name."""
    labelled = (
        {match[1] for match in _NODE.finditer(text) if match[1]} if len(text) < _LARGEST_FLOW else set[str]()
    )

    def read(line: str) -> str:
        if line.startswith("subgraph"):
            node = _NODE.search(line[8:])
            return next(filter(None, node.groups()[1:]), "") if node else line[8:].strip().strip('"')
        labels: list[tuple[int, str]] = []

        def note(match: re.Match[str]) -> str:
            label = next((group for group in match.groups()[match.re is _NODE :] if group), "")
            labels.append((match.start(), label.strip()))
            return " " * len(match[0])

        rest = _EDGE_TEXT.sub(note, _NODE.sub(note, line))
        for name in _NODE_NAME.finditer(_ARROW.sub(lambda match: " " * len(match[0]), rest)):
            if name[0] not in labelled:
                labelled.add(name[0])
                labels.append((name.start(), name[0]))
        return ", ".join(label for _, label in sorted(labels) if label)

    return read


def _sequence_reader(lines: Sequence[str]) -> Callable[[str], str]:
    """Return a reader of a sequence diagram's lines; a participant is shown by its alias."""
    named = (_PARTICIPANT.fullmatch(line.strip()) for line in lines if len(line) <= _LONGEST_LINE)
    names = {match[1]: match[2] for match in named if match and match[2]}

    def read(line: str) -> str:
        if participant := _PARTICIPANT.fullmatch(line):
            return participant[2] or participant[1]
        if message := _SEQUENCE.fullmatch(line):
            sender, receiver = (names.get(name, name) for name in (message[1], message[2]))
            return f"{sender}, {receiver}: {message[3]}"
        keyword = _KEYWORD.fullmatch(line)
        return keyword[1] if keyword else line

    return read


def _outline(text: str) -> str:
    """Return the text of a line of a mind map or a timeline."""
    if shaped := _NODE.fullmatch(text):
        return next(filter(None, shaped.groups()[1:]), text)
    return re.sub(r"^(?:title|section)\s+|::icon\([^\n]{0,500}\)", "", text)


def _task(text: str) -> str:
    """Return the name of a task, without its dates and scores."""
    return re.sub(r"^(?:title|section)\s+", "", text).split(":")[0]


def _words(text: str) -> str:
    """Return the words of a line of any other diagram."""
    keyword = _KEYWORD.fullmatch(text)
    text = keyword[1] if keyword else text
    return _SYNTAX.sub(" ", _QUOTED.sub(r" \1 ", text)).replace(" : ", ": ")
