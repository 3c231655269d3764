"""Books that Pandoc renders: Quarto, and bookdown, which splits the merged R Markdown files at headings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from recto._util.markdown import code_fences
from recto.book.parsing.frontmatter import stated
from recto.book.parsing.markdown.headings import heading_texts, slugger
from recto.book.sources.directory import any_of
from recto.book.sources.docusaurus.javascript import get
from recto.book.sources.includes import Directive, code_ranges, find_containers, in_order, whole_line
from recto.book.sources.options import is_inside, local_url, read_config, read_start
from recto.book.sources.site import Entry, Site, html_address, text_of, texts_of
from recto.types.book import Page

_SHORTCODE = re.compile(r"\{\{<\s*+(?P<name>[\w-]++)(?P<arguments>[^{}\n]{0,1000})>\}\}")
_CALLOUT = re.compile(r"^(?P<prefix>[ \t>]*):{3,}[ \t]*\{(?P<attributes>[^{}\n]*)\}[ \t]*$", re.MULTILINE)
_KIND = re.compile(r"\.callout-(\w+)")
_TITLE = re.compile(r"\btitle=\"([^\"]*)\"")
_DEEPEST = 10

_LARGEST = 1 << 22  # bytes of a file
_HEADING = re.compile(
    r"^(?P<level>#{1,6})[ \t]++(?P<text>(?:[ \t]*+(?:[^ \t\n{]++|\{(?![^{}\n]*+\}[ \t]*+$)))*+)"
    r"[ \t]*+(?P<attributes>\{[^{}\n]*+\})?[ \t]*+$",
    re.MULTILINE,
)
_LONGEST_NAME = 200  # characters of the id that names a file; file systems allow no longer ones
_PART = re.compile(r"\((?:PART|APPENDIX)(?:\\?\*)?\)[ \t]*")
_ID = re.compile(r"#([\w:.-]+)")
_UNNUMBERED = re.compile(r"[{ \t](?:-|\.unnumbered)[} \t]")
_HTML_FORMAT = re.compile(r"html|gitbook|bs4")
_MOST_HEADINGS = 5_000  # of a file; 1 MB of headings alone would be 200 000 pages
_SPLIT_LEVELS = {"chapter": 1, "section": 2}
_HIDDEN = re.compile(r"\{r\b[^\n]{0,1000}\b(?:include|echo)[ ]*+=[ ]*+F(?:ALSE)?\b")
_PREFIXES = {  # of the ids of blocks
    "theorem": "thm", "lemma": "lem", "corollary": "cor", "proposition": "prp", "conjecture": "cnj",
    "definition": "def", "example": "exm", "exercise": "exr", "hypothesis": "hyp",
}  # fmt: skip
_NUMBERED = re.compile(rf"\.({'|'.join(_PREFIXES)})(?![\w-])")
_ENVIRONMENT = re.compile(rf"\{{({'|'.join(_PREFIXES)}|proof|remark|solution)\b")
_LABEL = re.compile(  # or code
    r"(?<!`)(?P<code>`+)(?!`)[^\n]{1,500}?(?<!`)(?P=code)(?!`)"
    r"|\\@ref\((?:[\w-]+:)?(?P<reference>[^()\n]*)\)|\(\\#[\w:.-]+\)|^\(ref:[\w-]+\)"
    r"|\\index\{(?:[^{}\n]++|\{[^{}\n]*+\})*+\}|^\\(?:front|main|back)matter\b",
    re.MULTILINE,
)


_INLINE = re.compile(  # code in a text, which may be a text only; knitr runs it in code blocks, too
    r"(?<!`)`r[ #][ \t]*+"
    r"(?:(?P<condition>if[ ]?\([^`'\"\n]{0,100}\))[ \t]*+|(?P<shown>knitr::inline_expr\())?"
    r"(?:(?P<quote>['\"])(?P<text>[^`]{0,1000}?)(?P=quote)\)?[ \t]*+`|[^`]{1,1000}+`)"
)


class QuartoSite(Site):
    """A Quarto book or website."""

    generator = "quarto"
    config_files = ("_quarto.yml", "_quarto.yaml")
    suffixes = (".qmd", ".md", ".ipynb", ".rmd")
    anchors = "pandoc"

    def configure(self, config_file: Path) -> None:
        """Read the project, its chapters or its sidebars."""
        config = self.read_yaml(config_file)
        project, book, website = (config.get(key) for key in ("project", "book", "website"))
        kind = text_of(project, "type")
        site = book if kind == "book" else website
        self.title = text_of(site, "title") or text_of(project, "title")
        self.url = text_of(site, "site-url")
        self.set_logo(text_of(site, "favicon"))
        render = texts_of(get(project, "render"))
        self._rendered = any_of([pattern for pattern in render if not pattern.startswith("!")] or ["**"])
        self._not_rendered = any_of(pattern[1:] for pattern in render if pattern.startswith("!"))
        self.only_listed = kind == "book"
        sidebar = get(site, "sidebar")
        sidebars = sidebar if isinstance(sidebar, list) else [sidebar]
        contents = [get(item, "contents") for item in sidebars]
        lists = (get(site, "chapters"), get(site, "appendices"), *contents)
        self.list_pages(entry for entries in lists for entry in self._entries(entries, ()))

    def _entries(self, value: Any, sections: tuple[str, ...]) -> Iterator[Entry]:
        """Yield the pages of a list of chapters or of a sidebar."""
        for item in value if isinstance(value, list) and len(sections) < _DEEPEST else ():
            if isinstance(item, str):
                yield item, "", sections
            elif isinstance(item, dict):
                file = _first_text(item, "href", "file", "part", "section")
                title = _first_text(item, "text", "section", "part")
                name = self.file_of(file)
                title = self._title(name) if name and title == file else title
                lists = (item.get(key) for key in ("chapters", "contents"))
                below = next((item for item in lists if isinstance(item, list)), None)
                inner = (*sections, title) if below and title else sections
                if name:
                    yield file, text_of(item, "text"), inner
                yield from self._entries(below, inner)

    def _title(self, name: str) -> str:
        """Return the title of the page that begins a part."""
        if title := stated(self.head(name), "title"):
            return title
        heading = next(iter(_headings(read_start(self.root / name, self.bounds))), None)
        return heading_texts(heading["text"])[0] if heading else ""

    def file_of(self, target: str) -> str | None:
        """Return the name of a page, which may begin with a slash."""
        return super().file_of(target.lstrip("/"))

    def enters(self, folder: str) -> bool:
        """Return whether a directory may hold pages."""
        return super().enters(folder) and not folder.rpartition("/")[2].startswith("_")

    def wants(self, name: str) -> bool:
        """Return whether a file is a page; a book has only its chapters."""
        file = name.rpartition("/")[2]
        if not super().wants(name) or file.startswith("_"):
            return False
        if file.upper().startswith("README.") or (file.endswith(".md") and file.partition(".")[0].isupper()):
            return name in self.sections
        return self.only_listed or (self._rendered(name) and not self._not_rendered(name))

    def expands(self, name: str) -> bool:
        """Return whether included files are inserted into a page."""
        return name.lower().endswith((".qmd", ".md", ".rmd"))

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the name of the HTML file; an index page has the address of its directory."""
        return re.sub(r"(^|/)index\.html$", r"\1", html_address(name))

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find included files, callouts and other shortcodes."""
        in_code = code_ranges(text) if "{{<" in text or ":::" in text else bool
        directives = []
        for match in _SHORTCODE.finditer(text) if "{{<" in text else ():
            if match["name"] == "include":
                start, end, prefix = whole_line(text, *match.span())
                path = match["arguments"].strip(" \t\"'")
                bases = (self.root,) if path.startswith("/") else (file.parent, self.root)
                include = Directive(start, end, path.lstrip("/"), bases, prefix=prefix or "", otherwise="")
                directives.append(include)
            elif not in_code(match.start()) and text[match.start() - 1 : match.start()] != "{":
                directives.append(Directive(*match.span()))
        if ":::" in text:
            for match in _CALLOUT.finditer(text):
                if not in_code(match.start()):
                    kind, title = _KIND.search(match["attributes"]), _TITLE.search(match["attributes"])
                    label = title[1] if title else kind[1].capitalize() if kind else ""
                    new = f"{match['prefix']}**{label}**\n\n" if label else ""
                    directives.append(Directive(match.start(), min(match.end() + 1, len(text)), new=new))
            directives += find_containers(text)
        return in_order([*directives, *_inline_code(text)])


def _inline_code(text: str) -> Iterator[Directive]:
    """Yield code of R between words: what is only a text is shown, anything else is computed."""
    for match in _INLINE.finditer(text) if "`r" in text else ():
        condition, code = match["condition"] or "", "`" if match["shown"] else ""
        if match["text"] is None:
            yield Directive(*match.span(), computes="`r …`")
        elif condition and ("html" in condition) == ("!" in condition):
            yield Directive(*match.span())
        else:
            yield Directive(match.start(), match.start("text"), new=code and "`r ")
            yield Directive(match.end("text"), match.end(), new=code)


def _first_text(values: dict[str, Any], *keys: str) -> str:
    """Return the first of these values that is a text; "" if there is none."""
    return next(filter(None, (text_of(values, key) for key in keys)), "")


class BookdownSite(Site):
    """A bookdown book, with the pages that `split_by` makes of it."""

    generator = "bookdown"
    config_files = ("_bookdown.yml", "index.Rmd")
    signature = r"(?m)^site:[ \t]*[\"']?bookdown::"
    suffixes = (".rmd", ".md")
    only_listed = True
    anchors = "pandoc"

    @classmethod
    def recognises(cls, config_file: Path) -> bool:
        """Return whether there is a configuration, which is optional, or a first page of a book."""
        return config_file.suffix == ".yml" or super().recognises(config_file)

    def configure(self, config_file: Path) -> None:
        """Read the list of files, and make the ids of all headings, which are numbered across the book."""
        config = self.read_yaml(config_file) if config_file.suffix == ".yml" else {}
        names = self._names(config)
        self._headings: dict[str, list[tuple[re.Match[str], str]]] = {}
        slug = slugger("pandoc")
        for name in names:
            text = read_config(self.root / name, self.bounds, _LARGEST)
            self._headings[name] = headings = []
            for match in islice(_headings(text), _MOST_HEADINGS):
                explicit = _ID.search(match["attributes"] or "")
                id = slug(explicit[1] if explicit else heading_texts(match["text"])[1])
                headings.append((match, explicit[1] if explicit else id))
        head = self.head(next((name for name in names if name.lower() == "index.rmd"), ""))
        self.title = text_of(head, "title")
        self.url = text_of(head, "url").replace("\\:", ":")  # R Markdown escapes what Pandoc would link
        output = self._output(config, head)
        split, _, numbers = (text_of(output, "split_by") or "chapter").partition("+")
        self._level = _SPLIT_LEVELS.get(split, 0)
        self._starts = self._split(numbered=bool(numbers) and output.get("number_sections") is not False)
        address, whole = "", f"{(text_of(config, 'book_filename') or '_main').removesuffix('.html')}.html"
        self._addresses: dict[str, str] = {}
        for name, headings in self._headings.items():
            stem = name.rpartition("/")[2].rpartition(".")[0]
            first = (self._starts[id] for _, id in headings if id in self._starts)
            address = {"rmd": f"{stem}.html", "none": f"{whole}?{stem}"}.get(split) or next(first, address)
            is_first = name.lower() == "index.rmd"
            self._addresses[name] = (whole if split == "none" else "") if is_first else address
        self.list_pages(self._entries())

    def _output(self, config: dict[str, Any], head: dict[str, Any]) -> dict[str, Any]:
        """Return the options of the format that is published: the first that is HTML."""
        file = self.directory / "_output.yml"
        formats = self.read_yaml(file) if file.is_file() else {}
        for more in (config.get("output"), head.get("output")):
            formats = more | formats if isinstance(more, dict) else formats
        options = next((value for name, value in formats.items() if _HTML_FORMAT.search(str(name))), None)
        return options if isinstance(options, dict) else {}

    def _split(self, *, numbered: bool) -> dict[str, str]:
        """Return the addresses of the pages by the id of the heading that each begins with."""
        starts: dict[str, str] = {}
        numbers, before_appendix = list[int](), 0
        for match, id in (heading for headings in self._headings.values() for heading in headings):
            level, number = len(match["level"]), ""
            if _PART.match(match["text"]):
                before_appendix = numbers[0] if numbers and "(APPENDIX" in match["text"] else before_appendix
                continue
            if not _UNNUMBERED.search(match["attributes"] or ""):  # as Pandoc counts them
                numbers += [0] * (level - len(numbers))
                numbers = [*numbers[: level - 1], numbers[level - 1] + 1]
                chapter = numbers[0] - before_appendix
                first = chr(64 + chapter) if before_appendix and 0 < chapter <= 26 else str(numbers[0])
                number = ".".join([first, *map(str, numbers[1:])])
            if level <= self._level and len(id) <= _LONGEST_NAME:
                starts.setdefault(id, f"{number}-{id}.html" if numbered and number else f"{id}.html")
        return starts

    def _names(self, config: dict[str, Any]) -> list[str]:
        """Return the files of the book: the listed ones, or all of the directory, the first page first."""
        listed = config.get("rmd_files")
        listed = listed.get("html") if isinstance(listed, dict) else listed
        if names := texts_of(listed):
            return [name for name in names if self.exists(name)]
        folders = config.get("rmd_subdir")
        found = list(self.root.glob("*.[Rr]md"))
        for folder in ["."] if folders is True else texts_of(folders):
            inside = is_inside(self.root / folder, self.root)
            below = (self.root / folder).rglob("*.[Rr]md") if inside else ()
            found += [file for file in below if file.parent != self.root]
        files = sorted(
            file.relative_to(self.root).as_posix() for file in found if file.is_relative_to(self.root)
        )
        names = [name for name in files if not name.rpartition("/")[2].startswith("_")]
        return sorted(names, key=lambda name: name.lower() != "index.rmd")

    def _entries(self) -> Iterator[Entry]:
        """Yield the files; a part begins with its title."""
        part = ""
        for name, headings in self._headings.items():
            for match, _ in headings:
                if start := _PART.match(match["text"]):
                    part = heading_texts(match["text"][start.end() :])[0]
            yield name, "", (part,) if part else ()

    def parts(self, page: Page) -> Iterable[Page]:
        """Yield the pages of a file; each begins with a heading, which is its title."""
        starts = [
            (match.start(), id)
            for match in _headings(page.text)
            if len(match["level"]) <= self._level
            and (id := (_ID.search(match["attributes"] or "") or ("", ""))[1]) in self._starts
        ][1:]
        lines, line = page.lines or range(1, page.text.count("\n") + 2), 0
        for (start, id), (end, _) in pairwise([(0, ""), *starts, (len(page.text), "")]) if starts else ():
            text = page.text[start:end]
            numbers = tuple(lines[line : line + text.count("\n") + 1])
            line += text.count("\n")
            text = _raised(text) if id and text.startswith("##") else text
            part = replace(page, text=text, lines=numbers, revision=hashlib.sha256(text.encode()).hexdigest())
            if id:
                part = replace(part, path=f"{page.path}/{id}", url=f"{local_url(page.path)}/{id}")
                part = self.publish(part, self._starts[id]) if self.url else part
            yield part
        if not starts:
            yield page

    def expands(self, name: str) -> bool:
        """Return whether the markup of a page is resolved."""
        return name.lower().endswith(self.suffixes)

    def address(self, name: str, head: dict[str, Any]) -> str:  # noqa: ARG002
        """Return the name of the HTML file, which is the id of the chapter."""
        return self._addresses[name]

    def find(self, text: str, file: Path) -> Sequence[Directive]:
        """Find parts, the ids of headings, cross-references, and code that is not shown."""
        name = file.relative_to(self.root).as_posix() if file.is_relative_to(self.root) else ""
        directives = [
            Directive(opening.start(), closing.end())
            for opening, closing in code_fences(text)
            if closing and _HIDDEN.search(opening[0])
        ]
        for opening, closing in code_fences(text):
            if closing and (kind := _ENVIRONMENT.match(opening["info"])):  # its content is text
                directives.append(Directive(*opening.span(), new=f"**{kind[1].capitalize()}**\n"))
                directives.append(Directive(*closing.span()))
        for match, (_, id) in zip(_headings(text), self._headings.get(name, ()), strict=False):
            is_part = _PART.match(match["text"])
            new = "" if is_part else f"{match['level']} {match['text']} {{#{id}}}"
            directives.append(Directive(*match.span(), new=new))
        in_code = code_ranges(text)
        for div in _CALLOUT.finditer(text) if ":::" in text else ():
            kind, named = _NUMBERED.search(div["attributes"]), _ID.search(div["attributes"])
            prefix = f"{_PREFIXES[kind[1]]}:" if kind else ""
            if prefix and named and not named[1].startswith(prefix) and not in_code(div.start()):
                at = div.start("attributes") + named.start(1)
                directives.append(Directive(at, at, new=prefix))
        for match in _LABEL.finditer(text):
            if not match["code"] and not in_code(match.start()):
                words = (match["reference"] or "").replace("-", " ").replace("_", " ")
                directives.append(Directive(*match.span(), new=words))
        return in_order([*directives, *_inline_code(text)])


def _raised(text: str) -> str:
    """Return a section as a page: its headings are one level higher."""
    starts = [match.start() for match in _headings(text)]
    return "".join(text[start + 1 : end] for start, end in pairwise([*starts, len(text)]))


def _headings(text: str) -> list[re.Match[str]]:
    """Return the headings of a text that are not in code."""
    in_code = code_ranges(text)
    return [match for match in _HEADING.finditer(text) if not in_code(match.start())]
