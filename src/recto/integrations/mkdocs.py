"""A MkDocs plugin: index the book when the site is built, and add the widget to its pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from recto import api
from recto._util.text import collection_slug, plural
from recto.book.sources.mkdocs import CONFIG_FILES
from recto.errors import ConfigurationError, RectoError
from recto.indexing.indexer import IndexProgress, IndexReport
from recto.integrations import not_installed
from recto.server.static_export import export_static
from recto.settings import check_collection_name

try:
    from mkdocs.config import config_options as option
    from mkdocs.config.base import Config
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.exceptions import PluginError
    from mkdocs.plugins import BasePlugin, get_plugin_logger
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page
    from mkdocs.utils import yaml_load
except ModuleNotFoundError as error:
    raise not_installed("MkDocs", "mkdocs") from error

_LOG = get_plugin_logger("recto")
_STYLE = Path(__file__).with_name("material.css")
_STYLE_ADDRESS = "assets/stylesheets/recto.css"
_ADMIN_KEY = "recto_sk_"
_STATIC = "recto"
"""The directory of the static search in the built site."""
_HEADER = '<nav class="md-header__inner'
_BUTTON_BEFORE = (
    '<label class="md-header__button md-icon" for="__search">',
    '<div class="md-header__source">',
    "</nav>",
)
"""What the button comes before in the header of Material: its own search, the repository, the end."""
_BUTTON = (
    '<button type="button" class="recto-open" data-recto-open'
    ' aria-keyshortcuts="Control+K Meta+K"><svg viewBox="0 0 20 20" aria-hidden="true">'
    '<circle cx="8.5" cy="8.5" r="5.5"/><path d="M13 13l4.5 4.5"/></svg>'
    "<span>{label}</span></button>"
)


class RectoPluginConfig(Config):
    """The options below `recto` in `plugins`."""

    server = option.Type(str, default="/recto/")
    static = option.Type(bool, default=False)
    collection = option.Optional(option.Type(str))
    key = option.Optional(option.Type(str))
    index = option.Type(bool, default=True)
    index_on_serve = option.Type(bool, default=False)
    related = option.Type(bool, default=True)
    page_actions = option.Type(bool, default=False)
    assistants = option.Optional(option.Type(dict))
    mcp = option.Optional(option.Type(str))
    strings = option.Type(dict, default={})


class RectoPlugin(BasePlugin[RectoPluginConfig]):
    """Indexes the book after the build, and adds the script tag of the widget to each page."""

    _is_preview = False
    _script = ""

    def on_startup(self, *, command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:  # noqa: ARG002
        """Remember whether this is `mkdocs serve`."""
        self._is_preview = command == "serve"

    def on_config(self, config: MkDocsConfig) -> MkDocsConfig:
        """Check the options, and prepare the script tag."""
        try:
            attributes = self._attributes(config)
        except RectoError as error:
            raise PluginError(f"recto: {error.message}. {error.hint}") from error
        listed = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
        self._script = f"<script{listed}></script>\n"
        if config.theme.name == "material":
            config.extra_css.append(_STYLE_ADDRESS)
            if any(name in config.plugins for name in ("search", "material/search")):
                _LOG.info("Hiding the search of Material: you can remove `search` from `plugins`")
        return config

    def on_files(self, files: Files, *, config: MkDocsConfig) -> Files:
        """Add the style of the button in the header of Material."""
        if config.theme.name == "material":
            files.append(File.generated(config, _STYLE_ADDRESS, abs_src_path=str(_STYLE)))
        return files

    def on_post_page(self, output: str, *, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG002
        """Add the widget to a page."""
        return self._add_widget(output, config)

    def on_post_template(self, output_content: str, *, template_name: str, config: MkDocsConfig) -> str:
        """Add the widget to a page that has no source, such as 404.html."""
        return self._add_widget(output_content, config) if template_name.endswith(".html") else output_content

    def on_post_build(self, *, config: MkDocsConfig) -> None:
        """Index the book; MkDocs fails because of an error only in strict mode."""
        if not self.config.index or (self._is_preview and not self.config.index_on_serve):
            return
        try:
            report = self._index(config)
        except RectoError as error:
            _LOG.error("The book was not indexed. %s. %s", error, error.hint)
            return
        for note in report.plan.notes:
            _LOG.info("%s", note)
        for failure in report.plan.failed:
            _LOG.warning("Left out %s", failure)
        pages, chunks = plural(len(report.plan.indexed), "page"), plural(report.plan.chunks, "chunk")
        done = "Indexed" if report.published else "Nothing has changed in"
        _LOG.info("%s %s, %s: collection '%s'", done, pages, chunks, report.info.collection)
        if self.config.static:
            self._export(config)

    def _export(self, config: MkDocsConfig) -> None:
        """Write the static search into the built site."""
        try:
            with api.connect(self._collection(config)) as retriever:
                weight = retriever.lexical_weight
                exported = export_static(
                    retriever.open(), Path(config.site_dir, _STATIC), lexical_weight=weight
                )
        except RectoError as error:
            _LOG.error("The search was not written. %s. %s", error, error.hint)
            return
        kind = "by words and by meaning" if exported.semantic else "by words only"
        _LOG.info("Wrote the search to %s: %s, %s", _STATIC, plural(exported.files, "file"), kind)

    def _index(self, config: MkDocsConfig) -> IndexReport:
        file = Path(config.config_file_path)
        if file.name not in CONFIG_FILES:
            raise ConfigurationError(
                f"Recto reads {CONFIG_FILES[0]}, but this site is built from {file.name}",
                hint="Set `index: false`, and run: recto index DOCS_DIR --site-url SITE_URL",
            )
        if not (published := self._published(config)):
            raise ConfigurationError(
                f"{file.name} does not state where the site is published",
                hint="Set site_url, such as https://book.example.org/: results link to these pages",
            )
        options = api.SourceOptions(site_url=published, trailing_slash=config.use_directory_urls)
        return api.index(
            file.parent,
            self._collection(config),
            options=options,
            new_urls=self.config.static,  # no one else searches this index
            progress=_log_quarters(),
        )

    def _attributes(self, config: MkDocsConfig) -> dict[str, str]:
        """Return the attributes of the script tag; raise `RectoError` for an option that is not valid."""
        own = self.config
        if not re.match(r"/|https?://[^/]", own.server):
            raise ConfigurationError(
                f"`server` is not an address: {own.server!r}",
                hint="Write where `recto serve` is reachable, such as /recto/ or https://search.example.org/",
            )
        if own.static and (own.key or own.server != "/recto/" or not own.index):
            raise ConfigurationError(
                "`static` needs no `server` and no `key`, and the book must be indexed",
                hint="Remove `server`, `key` and `index: false`, or `static`",
            )
        if own.key and own.key.startswith(_ADMIN_KEY):
            raise ConfigurationError(
                "`key` is an admin key, which must not be published",
                hint="Create one for the pages with: recto keys add NAME --collection NAME --origin ORIGIN",
            )
        optional = {
            "data-key": own.key,
            "data-related": "" if own.related else "off",
            "data-strings": json.dumps(own.strings, ensure_ascii=False) if own.strings else "",
            "data-page-actions": "on" if own.page_actions else "",
            "data-assistants": "" if own.assistants is None else json.dumps(own.assistants),
            "data-mcp": own.mcp,
        }
        if self._is_preview and (published := self._published(config)):
            optional["data-rewrite"] = f"{published} {config.site_url}"
        server, collection = own.server.rstrip("/"), self._collection(config)
        if own.static:
            server, collection = f"{urlsplit(config.site_url or '').path.rstrip('/')}/{_STATIC}", ""
        optional["data-collection"] = collection
        return {
            "type": "module",
            "src": f"{server}/widget.js",
            **{name: value for name, value in optional.items() if value},
        }

    def _collection(self, config: MkDocsConfig) -> str:
        """Return the collection that is stated, else one that is named after the site."""
        name = self.config.collection or collection_slug(config.site_name)
        if not name:
            raise ConfigurationError("`site_name` has no Latin letters", hint="State a name in `collection`")
        check_collection_name(name, "`collection`")
        return name

    def _published(self, config: MkDocsConfig) -> str:
        """Return the address of the published site; during a preview, `site_url` is the preview's address."""
        stated = config.site_url or ""
        if self._is_preview:
            with Path(config.config_file_path).open("rb") as file:
                stated = str(yaml_load(file).get("site_url") or "")
        return f"{stated.rstrip('/')}/" if stated else ""

    def _add_widget(self, html: str, config: MkDocsConfig) -> str:
        if config.theme.name == "material":
            html = _add_button(html, str(self.config.strings.get("search", "Search")))
        before, end, after = html.partition("</head>")
        return f"{before}{self._script}{end}{after}" if end else html


def _add_button(html: str, label: str) -> str:
    """Put the button into the header of Material; without it, the widget shows a floating button."""
    header = html.find(_HEADER)
    starts = (html.find(text, header) for text in _BUTTON_BEFORE) if header >= 0 else ()
    start = next((position for position in starts if position > 0), None)
    if start is None:
        return html
    return f"{html[:start]}{_BUTTON.format(label=escape(label))}{html[start:]}"


def _log_quarters() -> Callable[[IndexProgress], None]:
    """Return a function that logs the progress of a larger book four times."""
    reported = 0

    def progress(now: IndexProgress) -> None:
        nonlocal reported
        quarter = 4 * now.done // now.chunks if now.plan and now.chunks else 0
        if quarter > reported:
            reported = quarter
            _LOG.info("Indexed %d of %s", now.done, plural(now.chunks, "chunk"))

    return progress
