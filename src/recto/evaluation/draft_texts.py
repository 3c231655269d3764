"""Make questions from the text of a section: definitions, tables, explained identifiers, and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from recto.evaluation.draft_headings import (
    CODE_SHAPE,
    NOT_A_TOPIC,
    OF_KIND,
    SETTABLE,
    USABLE,
    VAGUE,
    Draft,
    SectionText,
    about_code,
    choose,
    is_empty,
    kind_of,
    symptom,
)
from recto.evaluation.wording import (
    FENCE,
    INLINE_CODE,
    Usage,
    agree,
    clean,
    head,
    is_plural,
    prose,
    with_a,
    words,
)

_DEFINITION = re.compile(
    r"(?:^|(?<=[.!?]\s))(?P<article>An?\s)?(?P<term>[A-Za-z][\w'./+-]*(?:\s[\w'./+-]+){0,3}?)"
    r"(?:\s\([A-Z][A-Za-z]+\))?\s(?P<verb>is|are|refers to|means|is defined as|is called)\s"
    r"(?P<rest>[^.\n]{20,})",
    re.MULTILINE,
)
_DEFINED_AS = re.compile(
    r"(?:(?:simply|basically|essentially|also|just)\s)?(?:an?|any|the\s(?:process|ability|act|set"
    r"|number|amount|part|study|distance|rate|ratio|degree|practice|art|science|technique|method|task|idea|property|point"
    r"|name|space|way|collection|mechanism|problem|language|tool|framework|branch|component|format|standard|open"
    r"|angle|force|matrix|vector|region|difference|mapping|file|layer))\s",
    re.IGNORECASE,
)
_OPINION = re.compile(
    r"an?\s(?:good|bad|great|must|bit|lot|little|few|nice|better|big|common|problem|waste|no-op|key|critical|simple"
    r"|small|huge|large|useful|powerful|safe|sign|matter|result|consequence|wrong|real|separate|different|single"
    r"|strong|clean|perfect|valid|mistake|reminder|special|very|more|less|much|pure|natural|hard|design|feature"
    r"|choice|bug|pair|one|first|second|fixed|function of|known)\b",
    re.IGNORECASE,
)
_IN_TERM = {"to", "for", "and", "use", "like", "point", "key", "first", "from", "one"}
_LISTED = re.compile(
    r"^[ \t]*(?:[-*+]|\d+\.)\s+\*\*(?P<term>[^*\n]{3,40}?)(?::\*\*|\*\*\s*(?:\([A-Z]{2,6}\))?\s*(?::|-|–|—))"
    r"\s+(?P<rest>[^\n]{20,})$",
    re.MULTILINE,
)
_ACRONYM = re.compile(r"\b(?P<long>[A-Z]\w+(?:[ -][A-Za-z]\w*){1,5})\s\((?P<short>[A-Z][A-Za-z]{1,6})\)")
_EXAMPLES = re.compile(  # sections whose "X is a …" are remarks
    r"mistake|pitfall|worked|exercise|challenge|knowledge check|quiz|case stud|interactive|engineering"
    r" example|further reading",
    re.IGNORECASE,
)
_CODE_SENTENCE = re.compile(
    rf"(?:^|(?<=[.!?]\s))The\s`(?P<name>[\w.@/-]+(?:\(\))?)`\s{OF_KIND}\s(?:is|can|allows|controls|sets|specifies"
    r"|lets|determines|defines|tells|returns|accepts|takes|will|enables|makes|converts|adds|provides)\b",
    re.MULTILINE,
)
_CODE_ITEM = re.compile(
    r"^[ \t]*[-*+]\s+(?:\*\*)?`(?P<name>[^`\n]{3,40})`(?:\*\*)?(?:\s\([^)\n]*\))?\s*(?::|-|–|—)\s+\S.{15,}$",
    re.MULTILINE,
)
_GONE = re.compile(r"removed|removal|changes|changelog|deprecat", re.IGNORECASE)
_ERROR_LINE = re.compile(
    r"^[ \t]*(?P<line>(?:(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Warning)|error|ERROR|Error|fatal|FATAL)"
    r"(?:\[[\w-]+\])?:\s.{10,140})$",
    re.MULTILINE,
)
_PLACEHOLDER = re.compile(r"\.\.\.|…|[{}<>`|$*\\]|f\"|%s|\bYOUR\b|[,:(]$")
_EXCEPTION = re.compile(r"`(?:[\w.]+\.)?(?P<name>[A-Z]\w+(?:Error|Exception|Warning))`")
_RAISED = re.compile(r"\b(?:rais|throw|fail|result in|get an?|reported|emitted|occur)", re.IGNORECASE)
_TABLE = re.compile(
    r"^[ \t]*\|?.*\|.*\n[ \t]*\|?[ \t]*:?-{2,}[-:| \t]*\n(?:[ \t]*\|?.*\|.*(?:\n|\Z))+", re.MULTILINE
)
_CELL_BREAK = re.compile(r"(?<!\\)\|")
_MEANING = re.compile(
    r"description|meaning|definition|purpose|what it (?:does|is|means)|role|explanation|function|details"
)
_REMEDY = re.compile(
    r"solutions?|fix|fixes|remedy|resolution|what to do|how to fix|(?:likely |possible )?causes?|action"
)
_SYMPTOM = re.compile(r"symptoms?|problems?|issues?|errors?|error message|message|failure|failure mode")
_NAMED = re.compile(rf"(?:cli |config )?(?P<noun>name|{SETTABLE}|{USABLE}|key|hyperparameter)s?(?: name)?")
_TERMED = re.compile(
    r"terms?|concepts?|words?|acronym|abbreviation|symbol|notation|component|element|layer|type|tool|sensor|stage"
)
_QUANTITY = re.compile(r"default(?: value)?|units?|range|port|license|frequency|rate|resolution|latency")
_QUANTITIES = {"default": "default value", "units": "unit"}
_MAX_ROWS = 60


def from_text(section: SectionText, usage: Usage) -> Iterator[Draft]:
    """Yield the questions that the text of a section answers."""
    yield from _definitions(section, usage)
    yield from _tables(section, usage)
    yield from _identifiers(section)
    yield from _errors(section)


def _definitions(section: SectionText, usage: Usage) -> Iterator[Draft]:
    plain = INLINE_CODE.sub(r"\1", re.sub(r"(?<=\S)\n(?=\S)", " ", prose(section.text)))
    for found in _DEFINITION.finditer(plain):
        sure = found["verb"] in {"refers to", "is defined as"}
        if sure or (_DEFINED_AS.match(found["rest"]) and not _OPINION.match(found["rest"])):
            yield from _definition(section, usage, found["term"], article=bool(found["article"]), bare=True)
    for found in _LISTED.finditer(section.text):
        rest = found["rest"].strip("* ")
        if _DEFINED_AS.match(rest) and not _OPINION.match(rest):
            yield from _definition(section, usage, clean(found["term"]))
    for found in _ACRONYM.finditer(plain):
        short = found["short"].removesuffix("s")
        initials = "".join(word[0] for word in re.split(r"[ -]", found["long"]) if word[0].isupper())
        if len(short) > 2 and initials.endswith(short.upper()):
            yield Draft(f"What does {short} stand for?", "definition", section, f"{short} stands for", 1)


def _definition(
    section: SectionText, usage: Usage, term: str, *, article: bool = False, bare: bool = False
) -> Iterator[Draft]:
    """Ask what a term is; `article`: the book writes "a" before it, `bare`: nothing."""
    term = re.sub(r"^an?\s", "", term, flags=re.IGNORECASE)
    if not _is_term(term, section, usage):
        return
    topic = usage.cased(term)
    if article and not is_plural(topic):
        named = with_a(topic)
    else:
        named = topic if bare and head(topic) not in words("count_nouns") else usage.indefinite(topic)
    query = f"What {agree('is', topic)} {named}?"
    if not is_plural(topic) and not usage.is_name(topic):
        other = f"What does {topic} mean?" if named == topic else f"Can you explain what {named} is?"
        query = choose(section, query, query, other)
    yield Draft(query, "definition", section, topic)


def _is_term(term: str, section: SectionText, usage: Usage) -> bool:
    """Return whether a phrase before "is a" can be a term that the section defines."""
    found = term.lower().split()
    if len(term) < 3 or is_empty(term) or VAGUE.search(term) or _EXAMPLES.search(section.heading):
        return False
    if re.search(r"\b\d+\b|_|'|[^\w\s./+-]", term) or NOT_A_TOPIC.search(term.replace("/", "")):
        return False
    first, last = found[0], found[-1]
    wrong = (
        first in words("no_term") | words("qualities"),
        last in words("no_ending") or last.endswith("ly"),
        (words("prepositions") - {"of", "to", "for", "and"}).intersection(found),
        (words("no_term") - _IN_TERM).intersection(found),
        any(is_plural(word) for word in found[:-1]),
    )
    if any(wrong):
        return False
    if len(found) == 1:
        verb = usage.infinitives[term.lower()] > 1 and not usage.heads[term.lower()]
        code = usage.code[term] and term.islower() and term not in " ".join(section.headings).casefold()
        return not verb and not code
    verb = first in words("verbs") or first.endswith(("ing", "ly"))
    return not verb or usage.is_name(usage.cased(term).split(" ", 1)[0])


def _tables(section: SectionText, usage: Usage) -> Iterator[Draft]:
    for table in _TABLE.finditer(FENCE.sub("\n", section.text)):
        first, _, *lines = table[0].strip().splitlines()
        header = [clean(cell).lower() for cell in _cells(first)]
        meaning, remedy, quantity = (
            next((place for place, name in enumerate(header) if place and column.fullmatch(name)), 0)
            for column in (_MEANING, _REMEDY, _QUANTITY)
        )
        for cells in (_cells(line) for line in lines[:_MAX_ROWS]):
            name = clean(cells[0])
            if not name or len(cells) != len(header) or len(name.split()) > 8:
                continue
            if remedy and _SYMPTOM.fullmatch(header[0]):
                found = symptom(section, usage, name)
            elif meaning and len(cells[meaning].split()) > 2:
                found = _row(section, usage, header, cells[0], name)
            elif quantity and cells[quantity]:
                found = _value(section, usage, header[quantity], name)
            else:
                continue
            yield from (replace(one, kind="table") for one in found)


def _row(section: SectionText, usage: Usage, header: list[str], cell: str, name: str) -> Iterator[Draft]:
    """Ask about a row that names something and says what it means."""
    code = INLINE_CODE.fullmatch(cell.strip("* "))
    named = _NAMED.fullmatch(header[0])
    shaped = CODE_SHAPE.fullmatch(name)
    if (named and shaped) or (code and len(name) > 2 and re.fullmatch(r"-{0,2}@?[\w./-]+(?:\(\))?", name)):
        noun = named["noun"] if named else ""
        noun = kind_of(name, section) if noun in {"name", "key", "type", ""} else noun
        if not noun and named and any(column.startswith(("type", "default")) for column in header[1:]):
            noun = "option"
        if noun or shaped:
            yield about_code(section, name, noun, 0)
    elif code and header[0].startswith("command") and re.fullmatch(r"[\w./-]+(?: [\w./-]+){0,3}", name):
        yield Draft(f"What does the command {name} do?", "table", section, name)
    elif _TERMED.fullmatch(header[0]) and not code:
        yield from _definition(section, usage, name)


def _value(section: SectionText, usage: Usage, quantity: str, name: str) -> Iterator[Draft]:
    """Ask for a value in a row: the unit of X."""
    topic = usage.cased(name)
    if (
        len(topic.split()) < 5
        and topic[0].isalpha()
        and not is_empty(topic)
        and not NOT_A_TOPIC.search(topic)
    ):
        what = _QUANTITIES.get(quantity, quantity)
        yield Draft(
            f"What is the {what} of {usage.with_article(topic)}?", "table", section, f"{what} {topic}", 1
        )


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL_BREAK.split(line.strip().removeprefix("|").removesuffix("|"))]


def _identifiers(section: SectionText) -> Iterator[Draft]:
    if _GONE.search(" ".join(section.headings)):
        return
    for found in _CODE_SENTENCE.finditer(prose(section.text)):
        noun = found["noun"].lower()
        settable = noun in {"option", "parameter", "argument", "setting", "flag", "command", "keyword"}
        if settable or CODE_SHAPE.fullmatch(found["name"]):
            yield about_code(section, found["name"], noun, 0)
    for found in _CODE_ITEM.finditer(FENCE.sub("\n", section.text)):
        if CODE_SHAPE.fullmatch(found["name"]):
            noun = kind_of(found["name"], section)
            name = re.sub(r"\(.+\)$", "()", found["name"])
            yield about_code(section, name, "" if noun == "error" else noun, 1)


def _errors(section: SectionText) -> Iterator[Draft]:
    """Ask with a printed error as a reader pastes it, or for the cause of an exception."""
    for fence in FENCE.finditer(section.text):
        for found in _ERROR_LINE.finditer(fence[0]):
            line = " ".join(found["line"].split())
            if not _PLACEHOLDER.search(line):
                yield Draft(line, "error", section, line)
    for sentence in re.split(r"(?<=[.!?])\s+|\n\n", prose(section.text)):
        if _RAISED.search(sentence):
            for found in _EXCEPTION.finditer(sentence):
                name = with_a(found["name"])
                query = choose(section, f"Why do I get {name}?", f"When is {name} raised?")
                yield Draft(query, "error", section, found["name"], 1)
