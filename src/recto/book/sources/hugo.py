"""Hugo: the content tree, front matter in YAML, TOML or JSON, page bundles, and shortcodes."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from recto._util.text import plural, short_name
from recto.book.parsing import MARKDOWN
from recto.book.parsing.frontmatter import load_mapping, split_front_matter, stated
from recto.book.sources.directory import Navigation, PageDirectory, is_file
from recto.book.sources.docusaurus.javascript import get
from recto.book.sources.includes import Directive, code_ranges, in_order, line_end, line_start, whole_line
from recto.book.sources.options import UnreadableSite, humanised, unknown_choice
from recto.book.sources.site import Site, text_of, texts_of, with_lines_of_head
from recto.types.book import Page

_CONFIG = tuple(f"{name}.{end}" for name in ("hugo", "config") for end in ("toml", "yaml", "yml", "json"))
_OTHER_HEAD = re.compile(
    r"\A\ufeff?(?:\+\+\+[ \t]*\r?\n(?P<toml>.*?)\r?\n\+\+\+[ \t]*(?:\r?\n|\Z)"
    r"|(?P<json>\{.*?\n\}[ \t]*(?:\r?\n|\Z)))",
    re.DOTALL,
)
_BEFORE_HEAD = re.compile(r"\A(?=\s|-{4})((?:[ \t]*+\r?\n)*+)-{3,}+(?=[ \t]*+\r?\n)")
_SHORTCODE = re.compile(
    r"\{\{(?P<mark>[<%])(?P<comment>/\*)?\s*+(?P<close>/?)[ \t]*+(?P<name>[\w./-]{1,100}+)"
    r"(?P<arguments>(?:[^{}%>]|[%>](?!\}\})|\{(?!\{)|\}(?!\})){0,1000}+)[>%]\}\}"
)
_ARGUMENT = re.compile(
    r"(?:(?P<key>[\w-]+)[ \t]*=[ \t]*)?"
    r"(?:\"(?P<double>(?:[^\"\\]|\\.){0,1000}+)\"|`(?P<raw>[^`]*)`|(?P<word>[^\s\"`=]+))"
)
_INCLUDES = ("include", "readfile", "include-md", "includes", "readFile", "read-file", "snippet", "import")
_LIST_MARK = re.compile(r"[ \t>]*(?:[-*+]|\d+[.)])[ \t]+")
_CODE = ("highlight", "code", "code-toggle", "code-block", "codeblock")
_SHOWN = ("title", "caption", "text", "label", "header", "heading", "alt", "name", "summary")
_LABELLED = ("tab", "details", "expand", "collapse", "accordion")  # by their first argument
_TERMS = ("term", "term_id")  # of a glossary, which shows their names
_SILENT = frozenset(
    {"comment", "figure", "gallery", "icon", "image", "img", "include", "toc"} | {"video", "vimeo", "youtube"}
)
_LARGE_SECTION = 300  # pages; a module with more is not useful as a filter
_MOST_NAMED = 3  # directories in a note
_DATES = ("date", "publishdate", "pubdate", "published", "lastmod", "modified")
_DIGITS = re.compile(r"[0-9]")
_DROPPED_CHARACTERS = re.compile(r"[^\w\s./\\%#+@~-]")


class HugoSite(Site):
    """A Hugo site in its default language, or in the one of `--locale`."""

    generator = "hugo"
    config_files = (*_CONFIG, *(f"config/_default/{name}" for name in _CONFIG))
    options = ("locale",)
    suffixes = MARKDOWN.suffixes

    @classmethod
    def folder_of(cls, config_file: Path) -> Path:
        """Return the directory above `config`."""
        return config_file.parents[2] if config_file.parent.name == "_default" else config_file.parent

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether there is content beside a file that may belong to another program."""
        folder = cls.folder_of(config_file)
        has_theme = any((folder / name).exists() for name in ("layouts", "themes", "go.mod"))
        return config_file.stem == "hugo" or ((folder / "content").is_dir() and has_theme)

    def configure(self, config_file: Path) -> None:
        """Read the options that decide where pages are and where they are published."""
        config = _lower(self._read(config_file))
        if config_file.parent.name == "_default":
            parts = ("languages", "module", "permalinks", "markup", "params")
            files = (config_file.with_name(f"{part}{end}") for part in parts for end in (".toml", ".yaml"))
            config |= {file.stem: self._read(file) for file in files if file.is_file()}
        self.title, self.url = text_of(config, "title"), text_of(config, "baseurl")
        default = text_of(config, "defaultcontentlanguage") or "en"
        language = self.book_file.options.locale or default
        languages = _lower(config.get("languages"))
        if language != default and language.lower() not in languages:
            raise unknown_choice(f"There is no locale {language} of this site", language, languages)
        language_config = _lower(languages.get(language.lower()))
        content = (
            text_of(language_config, "contentdir")
            or text_of(config, "contentdir")
            or _mounted(config, language)
        )
        self.root = self.directory / (content or "content")
        self.title = text_of(language_config, "title") or self.title
        in_subdirectory = language != default or config.get("defaultcontentlanguageinsubdir") is True
        self._prefix = f"{language}/" if in_subdirectory and languages else ""
        self._languages = {key for key in languages if key != language.lower()} | ({default} - {language})
        self._language = language
        parser = _lower(get(_lower(config.get("markup")), "goldmark", "parser"))
        self.anchors = "blackfriday" if parser.get("autoheadingidtype") == "blackfriday" else "hugo"
        self._params = config.get("params")
        self._words = self._translations(language)
        self._resources: set[str] = set()
        self._dates: dict[str, int] = {}
        self._lower = config.get("disablepathtolower") is not True
        self._ugly = config.get("uglyurls") is True
        self._builds_future, self._builds_expired = (
            config.get(f"build{kind}") is True for kind in ("future", "expired")
        )
        permalinks = _lower(config.get("permalinks"))
        pages = _lower(permalinks.get("page")) or permalinks
        self._permalinks = {key: value for key, value in pages.items() if isinstance(value, str)}

    def _read(self, file: Path) -> dict[str, Any]:
        return self.read_toml(file) if file.suffix == ".toml" else self.read_yaml(file)  # JSON is YAML

    def _translations(self, language: str) -> dict[str, Any]:
        """Return the words that templates show in a language, by their keys."""
        words: dict[str, Any] = {}
        for name in (language, f"{language}/{language}"):
            for file in (self.directory / f"i18n/{name}{end}" for end in (".toml", ".yaml", ".yml")):
                if file.is_file():
                    with suppress(UnreadableSite):
                        words |= self._read(file)
        return words

    def directories(self, path: Path) -> list[PageDirectory]:
        """Return the directory of the pages; it gets a note on files that are no pages."""
        directories = super().directories(path)
        self._directory_notes = directories[0].notes if directories else []
        return directories

    def wants(self, name: str) -> bool:
        """Return whether a file is a page: not a translation, nor a resource of a page bundle."""
        stem = name.rpartition("/")[2].rpartition(".")[0]
        language = stem.rpartition(".")[2].lower() if "." in stem else ""
        if not super().wants(name) or language in self._languages:
            return False
        index = stem.partition(".")[0] in ("index", "_index")
        above = [section.rstrip("/") for section in _sections_above(name) if section]
        is_resource = any(map(self._is_bundle, above[index:]))
        self._resources |= {name} if is_resource else set()
        return not is_resource

    def _is_bundle(self, folder: str) -> bool:
        return any(self.exists(f"{folder}/index{end}") for end in (".md", f".{self._language}.md", ".html"))

    def read_head(self, text: str) -> dict[str, Any]:
        """Return the front matter of a text in any of its three formats."""
        return split_front_matter(_with_yaml(text))[0]

    def page(self, name: str, page: Page) -> Page | str:
        """Complete the page of a file, with its front matter as YAML and its description as text."""
        if name.endswith("/_index.md"):  # without a title, it has the one of its directory
            page = replace(page, title=humanised(name.split("/")[-2]))
        return super().page(name, replace(page, text=_with_description(_with_yaml(page.text))))

    def reason_to_skip(self, name: str, head: dict[str, Any]) -> str:
        """Return why a page is not published: its own front matter or a section above it says so."""
        heads = [head, *(self._cascade(section, name) for section in _sections_above(name))]
        for values in heads:
            build = values.get("build", values.get("_build"))
            if values.get("draft") is True:
                return "draft"
            if isinstance(build, dict) and build.get("render") in ("never", False, "link"):
                return "not rendered"
        if head.get("headless") is True:
            return "headless"
        stated, today = _lower(head), datetime.now(UTC).date().isoformat()
        published, expiry = (str(stated.get(key) or "")[:10] for key in ("publishdate", "expirydate"))
        if (published or str(stated.get("date") or "")[:10]) > today and not self._builds_future:
            return "future"
        return "expired" if expiry and expiry < today and not self._builds_expired else ""

    def _cascade(self, section: str, name: str) -> dict[str, Any]:
        """Return what a section states for the pages below it."""
        values = self.head(f"{section}_index.md").get("cascade")
        merged: dict[str, Any] = {}
        for cascade in values if isinstance(values, list) else [values]:
            if isinstance(cascade, dict) and not cascade.get("target") and not cascade.get("_target"):
                merged |= cascade
                merged |= cascade["params"] if isinstance(cascade.get("params"), dict) else {}
        return merged if name != f"{section}_index.md" or "build" in merged else {}

    def address(self, name: str, head: dict[str, Any]) -> str:
        """Return the address of a page: by `url`, `slug` or its path, in lower case."""
        if url := stated(head, "url"):
            stem = name.removesuffix("/index.md").rpartition("/")[2].rpartition(".")[0]
            url = f"/{_permalink(url, name, stated(head, 'slug') or stem, head)}/" if "/:" in url else url
            return url.lstrip("/") if not url.startswith("/") else f"{self._prefix}{url.lstrip('/')}"
        folder, slash, file = name.rpartition("/")
        stem = file.partition(".")[0] if file.startswith(("index.", "_index.")) else file.rpartition(".")[0]
        stem = stem.removesuffix(f".{self._language}")
        if stem in ("index", "_index"):
            folder, slash, last = folder.rpartition("/")
            section = stem == "_index"
        else:
            last, section = stem, False
        last = last if section else stated(head, "slug") or last
        path = f"{folder}{slash}{last}"
        if not section and (pattern := self._permalinks.get(path.partition("/")[0])) and "/" in path:
            path = _permalink(pattern, path, last, head) or path
        path = _DROPPED_CHARACTERS.sub("", path.replace(" ", "-"))
        path = path.lower() if self._lower else path
        if not path:
            return self._prefix
        return f"{self._prefix}{path}.html" if self._ugly and not section else f"{self._prefix}{path}/"

    def label(self, folder: str) -> str:
        """Return the title of a section."""
        head = self.head(f"{folder}/_index.md")
        return stated(head, "linkTitle") or stated(head, "title") or ""

    def navigation(self, names: Sequence[str]) -> Navigation:
        """Order pages by weight, date and title, section by section; divide large sections into modules."""
        if self._resources:
            folders = Counter(name.rpartition("/")[0] for name in sorted(self._resources)).most_common(
                _MOST_NAMED
            )
            largest = ", ".join(f"{folder} ({count})" for folder, count in folders)
            files = plural(len(self._resources), "file")
            self._directory_notes.append(
                f"{files} of page bundles are no pages; pages may include them: {largest}."
            )
        for name in names:  # a section without a date has the last one below it
            for section in _sections_above(name):
                self._dates[section] = max(self._dates.get(section, 0), self._date(name))
        ordered = sorted(names, key=self._sort_key)
        sections = {name: tuple(self.label(folder) for folder in _folders(name)) for name in ordered}
        self.book_file = replace(self.book_file, pages=_divided(ordered))
        return Navigation(names, sections)

    def _sort_key(self, name: str) -> list[tuple[float, float, str]]:
        folders = [f"{section}_index.md" for section in _sections_above(name)][::-1][1:]
        page = [] if name.endswith("_index.md") else [name]
        return [self._weight(part) for part in (*folders, *page)]

    def _date(self, name: str) -> int:
        """Return the digits of a page's date and time; 0 if it has none."""
        head = _lower(self.head(name))
        date = next((str(head[key]) for key in _DATES if head.get(key)), "")
        return int("".join(_DIGITS.findall(date)[:14]).ljust(14, "0"))

    def _weight(self, name: str) -> tuple[float, float, str]:
        head = self.head(name)
        weight = head.get("weight")
        title = stated(head, "linkTitle") or stated(head, "title") or name
        number = float(weight) if isinstance(weight, int | float) and weight else math.inf
        date = self._date(name) or self._dates.get(name.removesuffix("_index.md"), 0)
        return number, -date, title.lower()

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find shortcodes."""
        if "{{" not in text:
            return ()
        head = self.read_head(text) if "param" in text else {}
        shown = {"param": [head, head.get("params"), self._params]}
        return _shortcodes(self.root, text, file, self._words | shown)


def _folders(name: str) -> list[str]:
    """Return the directories above a page, outermost first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def _divided(names: Sequence[str]) -> dict[str, str]:
    """Return the modules of pages in a section that is too large for one: those of its own sections."""
    above = {name: folders for name in names if (folders := _folders(name)[:2])}
    sizes = Counter(folder for folders in above.values() for folder in folders)
    sections = {folders[1] for folders in above.values() if len(folders) > 1 and sizes[folders[1]] > 1}
    parts = Counter(section.partition("/")[0] for section in sections)
    divided = {section for section in sections if sizes[section.partition("/")[0]] > _LARGE_SECTION}
    return {
        name: module
        for name, folders in above.items()
        if folders[-1] in divided and parts[folders[0]] > 1
        for module in [short_name(folders[1].rpartition("/")[2])]
        if module not in sizes
    }


def _lower(values: Any) -> dict[str, Any]:
    """Return a mapping with keys in lower case: Hugo does not distinguish them."""
    return {str(key).lower(): value for key, value in values.items()} if isinstance(values, dict) else {}


def _mounted(config: dict[str, Any], language: str) -> str:
    """Return the directory that is mounted as the content of a language."""
    mounts = _lower(config.get("module")).get("mounts")
    for mount in mounts if isinstance(mounts, list) else ():
        languages = texts_of(get(mount, "sites", "matrix", "languages") or text_of(mount, "lang") or "*")
        if text_of(mount, "target") == "content" and any(fnmatch(language, name) for name in languages):
            return text_of(mount, "source")
    return ""


def _sections_above(name: str) -> Iterator[str]:
    """Yield the directories above a page, nearest first, each with a slash at its end; "" is the root."""
    folder = name.rpartition("/")[0]
    while folder:
        yield f"{folder}/"
        folder = folder.rpartition("/")[0]
    yield ""


def _permalink(pattern: str, path: str, slug: str, head: dict[str, Any]) -> str:
    """Return the address that a pattern states; "" if it needs more than names and the date."""
    title = _DROPPED_CHARACTERS.sub("", (stated(head, "title") or slug).lower()).strip()
    title = re.sub(r"-?\s++-?\s*+", "-", title)
    names = ("filename", "contentbasename", "slugorfilename", "slugorcontentbasename")
    values = dict.fromkeys(names, slug) | {"slug": stated(head, "slug") or title}
    date = re.match(r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)", str(head.get("date") or ""))
    values |= date.groupdict() if date else {}
    values |= {"title": title, "section": path.partition("/")[0], "sections": path.rpartition("/")[0]}
    address = re.sub(r":(\w+)", lambda key: values.get(key[1].lower(), ":"), pattern)
    return "" if ":" in address else address.strip("/")


def _with_yaml(text: str) -> str:
    """Return a text with its front matter as YAML, on the same number of lines and at the beginning."""
    if before := _BEFORE_HEAD.match(text):  # blank lines, or a longer line than needed
        values, body, _ = split_front_matter(f"---{text[before.end() :]}")
        return f"---{text[before.end() : len(text) - len(body)]}{before[1]}{body}" if values else text
    match = _OTHER_HEAD.match(text)
    if match is None:
        return text
    try:
        values = tomllib.loads(match["toml"]) if match["toml"] is not None else load_mapping(match["json"])
    except tomllib.TOMLDecodeError:
        values = {}
    lines = match[0].count("\n")
    head = f"---\n{json.dumps(values, default=str, ensure_ascii=False)}\n---\n"
    return head + "\n" * max(lines - 3, 0) + text[match.end() :]


def _with_description(text: str) -> str:
    """Add the description, which themes show below the title."""
    head, body, _ = split_front_matter(text)
    description = " ".join((stated(head, "description") or "").split())
    return text if description in body else with_lines_of_head(text, [description])


def _shortcodes(root: Path, text: str, file: Path, words: Mapping[str, Any]) -> Sequence[Directive]:
    """Return the shortcodes of a text: included files, code, and the text that others show."""
    in_code, matches = code_ranges(text), list(_SHORTCODE.finditer(text))
    closed = {match["name"] for match in matches if match["close"]}
    directives, fences, shows_code = [], list[tuple[str, str]](), False
    for match in matches:
        if match["comment"]:  # an example: it is shown without the marks of the comment
            literal = re.sub(r"/\*|\*/", "", match[0])
            directives.append(Directive(*match.span(), new=literal))
            continue
        start, end, prefix = whole_line(text, *match.span())
        name, arguments = match["name"], list(_arguments(match["arguments"]))
        values = dict(arguments)
        if name == "tabpane":  # of Docsy
            shows_code = not match["close"] and values.get("text") != "true"
        is_tab = name == "tab" and match["mark"] == "<" and values.get("text") != "true"
        is_tab &= shows_code or "codelang" in values
        is_code = (name in _CODE or is_tab) and not match["arguments"].endswith("/")
        if match["close"]:
            marks = fences.pop()[1] if fences and fences[-1][0] == name else ""
            directives.append(_line(text, start, end, prefix, f"{prefix}{marks}" if marks else ""))
        elif not in_code(match.start()) and (
            include := _include(name, arguments, name in closed, root, file)
        ):
            if label := _label(match, arguments, False, {}):
                directives.append(Directive(start, start, new=f"{prefix or ''}{label}\n\n"))
            directives.append(replace(include, start=start, end=end, prefix=prefix or ""))
        elif is_code and prefix is not None and not in_code(match.start()):
            language = values.get("lang") or values.get("codelang")
            language = language or next((value for key, value in arguments if not key), "")
            title = values.get("header") or values.get("name") if is_tab else ""
            fences.append((name, "```"))
            info = f'{language} title="{title}"' if title else language
            directives.append(Directive(start, end, new=f"{prefix}```{info}"))
        elif name == "param" and arguments:
            directives.append(Directive(*match.span(), new=_parameter(arguments[0][1], words["param"])))
        elif name == "heading" and len(arguments) == 1:
            directives.append(Directive(*match.span(), new=_heading(arguments[0][1], words)))
        elif name in ("ref", "relref"):
            directives.append(Directive(*match.span(), new=next((value for _, value in arguments), "")))
        else:
            new = _label(match, arguments, name in closed, words)
            computes = "" if new or name in closed or name in _SILENT else name
            new = (prefix or "") + new
            line = text[line_start(text, start) : line_end(text, end)]
            if not new and _LIST_MARK.fullmatch(line.replace(match[0], "")):
                new = "<!---->"  # an empty item would make a heading of the line above it
            directives.append(replace(_line(text, start, end, prefix, new), computes=computes))
    return in_order(directives)


def _include(
    name: str, arguments: Sequence[tuple[str, str]], is_closed: bool, root: Path, file: Path
) -> Directive | None:
    """Return the file that a shortcode includes: as text, or as code if its name or an argument says so."""
    values, is_named = dict(arguments), name in _INCLUDES
    first = next((value for key, value in arguments if not key and is_named), "")
    written = values.get("file") or values.get("include") or first
    near = () if written.startswith("/") else (file.parent, root / "includes")
    bases, path = (*near, root / "examples", root, root.parent), written.lstrip("/")
    if not is_named and (is_closed or not path or not any(is_file(base / path) for base in bases)):
        return None
    is_text = is_named or path.endswith((*MARKDOWN.suffixes, ".html"))
    language = values.get("lang") or values.get("language") or ""
    title = "" if is_named else f' title="{path}"'
    code = None if is_text and values.get("code") != "true" else language + title
    suffixes = ("", ".md", "/index.md")
    return Directive(0, 0, path, bases, suffixes, code=code, nested=code is None, otherwise="")


def _label(
    match: re.Match[str], arguments: Sequence[tuple[str, str]], is_closed: bool, words: Mapping[str, Any]
) -> str:
    """Return the text that a shortcode shows: of its arguments, else the translation of its name."""
    name = match["name"]
    if label := ". ".join(value for key, value in arguments if key in _SHOWN and value):
        return label
    is_shown = name in _LABELLED or match["mark"] == "%"
    for key, value in arguments:
        if key in _TERMS or (not key and is_shown and (name in _LABELLED or " " in value)):
            return value
    word = words.get(name)
    return (
        f"**{word if isinstance(word, str) else text_of(word, 'other')}**\n\n" if is_closed and word else ""
    )


def _parameter(key: str, places: Sequence[Any]) -> str:
    """Return the first value of a parameter of the page or the site; "" if there is none."""
    values = (get(_lower(place), *key.lower().split(".")) for place in places)
    return next((str(value) for value in values if isinstance(value, str | int | float)), "")


def _heading(key: str, words: Mapping[str, Any]) -> str:
    """Return the words of a heading that a template translates, else its key as words."""
    for value in (words.get(f"{key}_heading"), words.get(key)):
        if text := value if isinstance(value, str) else text_of(value, "other"):
            return text
    return humanised(key)


def _line(text: str, start: int, end: int, prefix: str | None, new: str) -> Directive:
    """Return a directive that replaces a shortcode, and removes its line if nothing is left of it."""
    empty = prefix is not None and not new.strip()
    return Directive(start, min(end + 1, len(text)) if empty else end, new="" if empty else new)


def _arguments(written: str) -> Iterator[tuple[str, str]]:
    for match in _ARGUMENT.finditer(written):
        yield match["key"] or "", match["double"] or match["raw"] or match["word"] or ""
