"""Make questions from headings that ask, name steps, compare, or name an identifier or a subject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from zlib import crc32

from recto.evaluation.wording import Usage, agree, clean, english, head, is_plural, prose, words


@dataclass(frozen=True, slots=True)
class SectionText:
    """A section with all its text; `subject` is that of its page, "" if the title names none."""

    place: str
    page: str
    module: str
    title: str
    headings: tuple[str, ...]
    text: str
    subject: str = ""

    @property
    def heading(self) -> str:
        """The section's own heading; "" for the text under the page's title."""
        return self.headings[-1] if len(self.headings) > 1 else ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A question about a section; `about` is its subject, `rank` is 0 for the kinds that read best.

    If `needs_page` is true, it is clear only with the subject of the page.
    """

    query: str
    kind: str
    section: SectionText
    about: str
    rank: int = 0
    needs_page: bool = False


SETTABLE = "option|parameter|argument|setting|field|property|attribute|flag|keyword|variable|prop"
USABLE = (
    "function|method|decorator|class|type|component|hook|command|plugin|theme|node|topic|service|package|module"
    "|validator|file|tag|annotation"
)
OF_KIND = rf"(?P<noun>{SETTABLE}|{USABLE})s?\b"
CODE_SHAPE = re.compile(
    r"(?:--?[a-z][\w-]+|@?[A-Za-z][\w.]*\(.*\)|@[a-zA-Z][\w./-]+|<[A-Z]\w*\s?/?>|[A-Za-z]\w*(?:_\w+)+"
    r"|_*[a-z]+\d*[A-Z]\w*|[A-Z]\w+(?:\.\w+)+|[a-z]\w+(?:\.\w+)+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+)"
)
_KIND_ABOVE = (  # what an identifier is, by the headings above it
    ("front matter", "front matter field"),
    ("theme config", "option"),
    ("config", "setting"),
    ("option", "option"),
    ("parameter", "parameter"),
    ("setting", "setting"),
    ("field", "field"),
    ("component", "component"),
)
VAGUE = re.compile(
    r"\b(?:this|these|those|it|its|we|we're|our|us|here|above|below|following|previous|last|other|others|another"
    r"|same|such|next(?!\.)|you'll|you've|you're|let's|i'm|tbd|todo|etc|them|they)\b",
    re.IGNORECASE,
)
NOT_A_TOPIC = re.compile(
    r"[→↔⇒=?!;:/\"“”()&+,%]|\s[-–—]\s|\b(?:vs|is|are|was|has|can|will|not|don't|your|you|i|my)\b",
    re.IGNORECASE,
)
_WEAK = re.compile(
    r"\b(?:right|proper|essential|necessary|appropriate|everything|something|things|basic|good|more)\b",
    re.IGNORECASE,
)
_ALLOWED_IN_ACTION = re.compile(r"[\"()&+/,]|\b(?:your|you|is|are|my|I)\b")
_CLAUSE = re.compile(r" (?:is|are) ")
_CLAUSE_START = re.compile(r" (?:how|what|if|that|whether|when|which) ")
_SHORT_ACTION = re.compile(r"[\w-]+ (?:(?:the|my|an?|some) )?[\w-]+")
_IN_CONTEXT = re.compile(r"^\w+ with |\b(?:existing|complete|original|both|entire|final|current)\b")
_ADVICE = re.compile(r"avoid\b|use\b.*\b(?:over|instead of|not)\b")
_VERSUS = re.compile(
    r"^(?:the )?(?P<one>[^:]+?)\s(?:vs\.?|versus)\s(?:the )?(?P<other>(?:(?!\svs\b|\sversus\b)[^:,—–])+)$",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:how|what|when|where|which|who|why|can|should|do|does|is|are|could|will)\b", re.IGNORECASE
)
_WELL_FORMED = re.compile(
    r"(?:how|what|when|where|which|who|why)(?:'s)?\s(?:is|are|do|does|can|should|will|many|much)\b"
    r"|(?:can|should|do|does|is|are)\b|(?:what|which)\s\w+\s(?:is|are|do|does|can|should)\b",
    re.IGNORECASE,
)
_STEP = re.compile(r"\W*(?:step|phase|part|task|stage)\s+\d", re.IGNORECASE)
_TASK = re.compile(r"\W*(?:exercise|challenge|assignment|homework|project)\b", re.IGNORECASE)
_PROBLEM = re.compile(
    r"\W*(?:error|issue|problem|symptom|bug)\s*\d*\s*[:.—–-]\s*(?P<what>.+)$", re.IGNORECASE
)
_PROBLEMS = re.compile(r"error|fail|issue|warning", re.IGNORECASE)
_FAULT = ("error", "timeout", "failure", "warning", "exception", "crash")
_QUOTED = re.compile(r"[\"“](?P<what>[^\"“”]{6,90})[\"”]")
_BEFORE_SUBJECT = re.compile(
    r"^(?:an? )?(?:introduction to|intro to|getting started with|overview of|guide to|understanding"
    r"|introducing)\s+",
    re.IGNORECASE,
)
_AFTER_SUBJECT = re.compile(
    r"\s(?:guide|tutorial|overview|introduction|quick start|basics|fundamentals|summary|reference"
    r"|explained)$",
    re.IGNORECASE,
)
_MAX_SUBJECT = 6  # words
_MAX_TOPIC = 5


@cache
def _roles() -> dict[str, tuple[list[str], list[str]]]:
    """Return the questions about a page's subject by heading: for a thing, and for an activity."""
    return {
        heading: (role["questions"], role.get("doing", []))
        for role in english()["roles"]
        for heading in role["headings"]
    }


def choose(section: SectionText, *templates: str) -> str:
    """Choose one wording, always the same one for a section."""
    return templates[crc32(f"{section.place}{templates[0]}".encode()) % len(templates)]


def is_empty(heading: str) -> bool:
    """Return whether a heading has no subject: "Summary", "Key concepts", "Chapter 3"."""
    found = re.findall(r"[a-z][a-z'’-]*", heading.casefold().replace("’", "'"))
    known = words("empty") | words("prepositions")
    return all(word in known or not word.strip("ivx") for word in found)


def page_subject(title: str, usage: Usage) -> str:
    """Return the subject that a page's title names, in sentence case, or "" if it names none."""
    if re.search(r"[→↔⇒≠=<>]|'s\b|’s\b", title):
        return ""
    text = clean(re.sub(r"\s\([^)]*\)$", "", clean(title)))
    parts = [part for part in re.split(r":\s|\s[-–—|]\s", text) if not is_empty(clean(part))]
    text = _AFTER_SUBJECT.sub("", _BEFORE_SUBJECT.sub("", clean(parts[0]) if parts else ""))
    text = text.replace("&", "and")
    first, *others = text.lower().split() or [""]
    if (
        not first
        or len(others) >= _MAX_SUBJECT
        or is_empty(text)
        or VAGUE.search(text)
        or NOT_A_TOPIC.search(text)
    ):
        return ""
    gerund = first.endswith("ing")
    starts_wrong = (
        _ASKS.match(text)
        or first in words("prepositions") | (words("determiners") - {"a", "an", "the"})
        or (others and first in words("verbs"))
    )
    ends_wrong = (others or [""])[-1] in words("prepositions") | words("determiners")
    if starts_wrong or ends_wrong or (not gerund and {"as", "that", "to"}.intersection(others)):
        return ""
    text = usage.cased(re.sub(r"^The ", "the ", text))
    return f"{text[0].lower()}{text[1:]}" if is_gerund(text, usage) else usage.indefinite(text)


def is_gerund(subject: str, usage: Usage) -> bool:
    """Return whether a page is about doing something: "deploying to Netlify"."""
    return subject.split(" ", 1)[0].lower().endswith("ing") and bool(usage.imperative(subject))


def from_heading(section: SectionText, usage: Usage) -> Iterator[Draft]:
    """Yield the question that a section's heading asks or answers."""
    text = clean(section.heading).replace("’", "'")
    role = _roles().get(re.sub(r"^the ", "", text.casefold()).replace("&", "and").rstrip("?"))
    problem, quoted = _PROBLEM.match(section.heading), _QUOTED.search(text)
    if role:
        yield from _role(section, usage, *role)
    elif problem:
        yield from symptom(section, usage, quoted["what"] if quoted else clean(problem["what"]))
    elif quoted and _PROBLEMS.search(" ".join(section.headings[1:])):
        yield from symptom(section, usage, quoted["what"])
    elif not text or VAGUE.search(text) or _TASK.match(section.heading):
        return
    elif name := _code_name(text, usage):
        yield about_code(section, name, kind_of(name, section), 0)
    elif versus := _VERSUS.match(text):
        yield from _comparison(section, usage, versus["one"], versus["other"])
    elif asked := _asked(text, usage):
        if not is_empty(text) and len(asked.split()) > 3:
            yield Draft(asked, "question", section, text)
    elif "?" not in text and not is_empty(text):
        yield from _statement(section, usage, text)


def _role(section: SectionText, usage: Usage, things: list[str], activities: list[str]) -> Iterator[Draft]:
    """Ask about the subject of the page what a heading such as "Limitations" says."""
    subject = section.subject
    asked = activities if is_gerund(subject, usage) else things
    shared = set(clean(section.heading).casefold().split()).intersection(subject.casefold().split())
    if subject and asked and not shared and len(section.headings) == 2:
        does, is_ = agree("does", subject), agree("is", subject)
        query = choose(section, *asked).format(s=subject, does=does, **{"is": is_})
        yield Draft(query, "heading", section, "", 1)


def _comparison(section: SectionText, usage: Usage, one: str, other: str) -> Iterator[Draft]:
    one, other = usage.cased(clean(one)), usage.cased(clean(other))
    if is_empty(one) or is_empty(other):
        return
    first, second = usage.indefinite(one), usage.indefinite(other)
    query = choose(
        section,
        f"What is the difference between {first} and {second}?",
        f"How {agree('does', one)} {first} differ from {second}?",
    )
    yield Draft(query, "comparison", section, section.heading)


def _statement(section: SectionText, usage: Usage, text: str) -> Iterator[Draft]:
    """Ask about a heading that is an imperative, a gerund phrase or a noun phrase."""
    before, _, _ = text.partition(":")
    named = _BEFORE_SUBJECT.match(text)
    action = "" if named else usage.imperative(before if len(before.split()) > 2 else text)
    if action:
        yield from _steps(section, usage, text, action)
    elif not _STEP.match(section.heading):
        yield from _topic(section, usage, _BEFORE_SUBJECT.sub("", before).replace(" & ", " and "))


def _steps(section: SectionText, usage: Usage, text: str, action: str) -> Iterator[Draft]:
    clause = _CLAUSE.search(action) and not _CLAUSE_START.search(action)
    if clause or _WEAK.search(action) or NOT_A_TOPIC.search(_ALLOWED_IN_ACTION.sub("", action)):
        return
    query = choose(section, f"How do I {action}?", f"How do I {action}?", f"How can I {action}?")
    if _ADVICE.match(action):
        query = f"Why should I {action.replace(' not ', ' and not ')}?"
    short = _IN_CONTEXT.search(action) or (
        _SHORT_ACTION.fullmatch(action) and usage.is_common(action.rsplit(maxsplit=1)[-1])
    )
    rank = 2 if _STEP.match(section.heading) or is_empty(action.split(" ", 1)[1]) else 0
    yield Draft(query.replace("&", "and"), "steps", section, text, rank, needs_page=bool(short))


def _topic(section: SectionText, usage: Usage, text: str) -> Iterator[Draft]:
    """Ask what a noun phrase in a heading is, if the section's own text speaks of it."""
    text = re.sub(r"^(?:the|an?)\s", "", text, flags=re.IGNORECASE)
    topic = usage.cased(text)
    body = prose(section.text).lower()
    plural, several = is_plural(topic), " " in topic
    if not _is_topic(topic) or not _mentions(topic, body) or (plural and topic.lower() not in body):
        return
    named = usage.with_article(topic)
    noun = head(topic).lower()
    rank = 1
    if noun in words("empty") or noun.removesuffix("s") in words("empty"):
        if " and " in topic or (named == topic and topic.count(" ") < 2):
            return
        rank, named = 2, f"the {topic}" if named == topic else named
    elif not several and topic.islower():
        if len(section.headings) == 2:
            query = f"How {agree('does', topic)} {named} work?"
            yield Draft(query, "heading", section, text, 2, needs_page=True)
        return
    elif named == topic and not plural and not usage.is_name(topic):
        named = topic if topic.endswith(tuple(words("abstract_endings"))) else f"the {topic}"
    query = f"What {agree('is', topic)} {named}?"
    if " and " in topic:
        if not all(is_plural(part) for part in topic.split(" and ")):
            return
        rank, query = 2, f"How do {topic} work?"
    elif rank == 1 and (plural or usage.is_name(topic)):
        query = choose(section, query, query, f"How {agree('does', topic)} {named} work?")
    yield Draft(query, "heading", section, text, rank if several else 2)


def _is_topic(topic: str) -> bool:
    """Return whether a phrase can be a noun phrase that names a subject."""
    found = topic.lower().split()
    if not 1 <= len(found) <= _MAX_TOPIC or NOT_A_TOPIC.search(topic) or is_empty(topic):
        return False
    if (words("prepositions") - {"of", "and"}).intersection(found) or found[0] in words("determiners"):
        return False
    adjective = found[0].endswith("ly") or any(word.endswith("ed") for word in (found[1:] or found))
    gerund = found[0].endswith("ing") and len(found) > 1 and is_plural(topic)
    return not adjective and not gerund and len(head(topic)) > 2


def _mentions(topic: str, body: str) -> bool:
    """Return whether all words of a topic are in the text, whatever their endings."""
    found = (word for word in topic.lower().split() if word not in words("prepositions"))
    return all(word[: max(4, len(word) - 3)] in body for word in found)


def symptom(section: SectionText, usage: Usage, what: str) -> Iterator[Draft]:
    """Ask about a problem in the book's words, as a reader types what is on the screen."""
    what = usage.cased(what.strip(" .!'\""))
    count = len(what.split())
    if count < 2 or is_empty(what) or "..." in what or '"' in what:
        return
    named = usage.with_article(what)
    if what.lower().endswith(_FAULT) and named != what:
        query = f"How do I fix {named}?"
    elif count > 3:
        query = choose(section, f"{what[0].upper()}{what[1:]}", f'How do I fix "{what}"?')
    else:
        query = f'How do I fix "{what}"?'
    yield Draft(query, "error", section, what)


def _asked(text: str, usage: Usage) -> str:
    """Return a heading that asks, or that begins like a question, as a question; "" for others."""
    first, *others = text.split()
    if text.endswith("?"):
        return _question(text, usage) if _ASKS.match(text) else ""
    first = first.lower()
    if (
        first not in {"how", "what", "when", "where", "why", "which"}
        or len(others) < 2
        or re.search(r"[?!:;]", text)
    ):
        return ""
    begin, second, rest = first.capitalize(), others[0].lower(), " ".join(others[1:])
    asked, ending = "", others[-1].lower()
    if second == "to":
        verb, _, after = rest.partition(" ")
        action = usage.imperative(rest) or f"{verb.lower()} {usage.object(after)}".strip()
        action = re.sub(r"\byour\b", "my", action)
        asked = f"{begin} {'do' if first == 'how' else 'should'} I {action}?"
    elif second in {"is", "are", "does", "do", "can", "should"}:
        asked = f"{begin} {second} {usage.cased(rest)}?"
    elif first == "why" and second in words("verbs"):
        asked = f"Why should I {second} {usage.object(rest)}?"
    elif ending.removesuffix("s") in {"work", "matter", "mean"} and first in {"how", "why", "what"}:
        subject = usage.with_article(usage.cased(" ".join(others[:-1])))
        asked = f"{begin} {'does' if ending.endswith('s') else 'do'} {subject} {ending.removesuffix('s')}?"
    return asked


def _question(text: str, usage: Usage) -> str:
    """Return a heading with a question mark in sentence case, and complete if it has no verb."""
    body = re.sub(r"^.*[:.]\s(?=(?:how|what|why|when|which)\b)", "", text[:-1], flags=re.IGNORECASE)
    asked = usage.cased(body)
    found = asked.split()
    if ("you" in asked.lower().split() and len(found) < 5) or len(found) < 2 or "?" in asked:
        return ""
    if _WELL_FORMED.match(asked):
        return f"{asked[0].upper()}{asked[1:]}?"
    verb, rest = found[1].lower(), " ".join(found[2:])
    if found[0].lower() != "why" or not rest or verb in {"not", "isn't", "can't"}:
        return ""
    if verb in words("verbs"):
        return f"Why should I {verb} {usage.object(rest)}?"
    return f"Why use {' '.join(found[1:])}?"


def _code_name(text: str, usage: Usage) -> str:
    """Return the identifier or command that a whole heading consists of, or ""."""
    command = re.sub(r"\s*[\[<(]\w+[\])>]$", "", text)
    if command != text and re.fullmatch(r"[a-z][\w-]+(?:\s[a-z][\w:-]+){1,2}", command):
        return command
    text = re.sub(r"^<(\w+)\s?/?>$", r"\1", re.sub(r"\((?!\)).*\)$", "()", text))
    if " " in text or "..." in text or len(text) < 3:
        return ""
    bare = text.removesuffix("()")
    in_code = bool(usage.code[bare] or usage.code[text] or usage.code[f"{bare}()"])
    if CODE_SHAPE.fullmatch(text):
        return text if in_code or not text.isalnum() else ""  # GitHub is a name
    return text if in_code and text[0].islower() else ""


def kind_of(name: str, section: SectionText) -> str:
    """Return what an identifier is called in the text ("parameter"), or by the headings above it, or ""."""
    if said := re.search(rf"`{re.escape(name.removesuffix('()'))}(?:\(\))?`\s{OF_KIND}", section.text):
        return said["noun"].lower()
    if re.fullmatch(r"[A-Z][A-Za-z]+", name) or name.endswith("()") or name[0] == "@":
        return ""
    above = " ".join(section.headings[:-1] if section.heading else section.headings).lower()
    if "error" in above and re.fullmatch(r"[a-z_-]+", name):
        return "error"
    if re.match(r"use[A-Z]", name):
        return "hook"
    if name.isupper() and "_" in name and "nvironment" in section.text:
        return "environment variable"
    by_heading = next((noun for word, noun in _KIND_ABOVE if word in above), "")
    return "option" if name.startswith("--") else by_heading


def about_code(section: SectionText, name: str, noun: str, rank: int) -> Draft:
    """Ask what an identifier does, in the words for what it is."""
    does, what_for = f"What does the {name} {noun} do?", f"What is the {name} {noun} for?"
    when, how = f"When should I use the {name} {noun}?", f"How do I use the {name} {noun}?"
    if noun == "error":
        means = f"What does {'' if name.endswith('error') else 'the '}{name} error mean?".replace(
            "error error", "error"
        )
        query = choose(section, means, f"Why do I get the error {name}?")
    elif noun in SETTABLE.split("|") or noun == "front matter field":
        query = choose(section, does, what_for, does)
    elif noun in {"class", "type", "component", "decorator", "plugin", "hook", "annotation", "validator"}:
        query = choose(section, what_for, how, when)
    elif noun in {"function", "method", "command"}:
        query = choose(section, does, when)
    elif noun:
        query = what_for
    else:
        query = choose(section, f"What does {name} do?", f"What is {name} used for?")
    vague = name.isalpha() and name.islower() and noun != "error"
    return Draft(query, "identifier", section, name, rank, needs_page=vague)
