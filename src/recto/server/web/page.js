// The right panel: a page of the book with the found passage marked, and the button for a selected text.

import * as api from "./api.js";
import { pagesByModule, setTitle } from "./book.js";
import { byId, directionOf, externalLink, h, parseHtml } from "./dom.js";
import { highlightSelection, highlightWords, matchPattern } from "./highlight.js";
import { focusResult } from "./list.js";
import { announce, errorNotice } from "./messages.js";
import { NO_PAGE, go, linkTo, state, truncateSelection } from "./state.js";

const MIN_SELECTION = 3; // characters
const run = api.latestOnly();
let shown = "";
let requested = "";

export async function show(now, before) {
  const panel = byId("page-panel");
  panel.hidden = !now.page || now.view === "health";
  if (panel.hidden) {
    close(panel, now, before);
    return;
  }
  const key = JSON.stringify([now.collection, now.page, now.q]);
  if (key === shown) {
    markChunk(now, mustScroll(now, before));
    return;
  }
  if (key === requested) return;
  requested = key;
  panel.setAttribute("aria-busy", "true");
  if (!panel.hasChildNodes()) panel.append(...head("Loading…", null));
  try {
    const loaded = await run((signal) => Promise.all([api.page(now, signal), api.outline(now.collection)]));
    if (!loaded) return;
    const [page, outline] = loaded;
    const { pages } = outline;
    shown = key;
    const title = page.title || page.url;
    const module = pagesByModule(outline).find(([, own]) => own.some(({ url }) => url === page.url))?.[0];
    panel.replaceChildren(...head(title, page, module), drawText(page, pages), pageNav(page.url, pages));
    markChunk(state(), true);
    announce(`Page: ${page.title}`);
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    shown = "";
    const retry = () => show(state(), null);
    panel.replaceChildren(...head("The page cannot be shown", null), errorNotice(error, retry));
  }
  requested = "";
  panel.removeAttribute("aria-busy");
}

/** Cancel the request; if the page was closed, return to the result that opened it. */
function close(panel, now, before) {
  run(async () => undefined);
  requested = "";
  if (now.page) return;
  shown = "";
  panel.replaceChildren();
  panel.removeAttribute("aria-busy");
  if (before?.page) focusResult(before);
}

/** Return whether to scroll within the page that is already shown. */
function mustScroll(now, before) {
  if (!before) return false;
  if (now.chunk !== before.chunk || now.anchor !== before.anchor) return true;
  return Boolean(before.selection) && !now.selection && !byId("list-panel").checkVisibility();
}

function head(title, page, module = "") {
  const closing = { id: "close-page", class: "button quiet", ...linkTo(NO_PAGE) };
  return [
    h("p", { class: "page-tools" },
      h("span", { class: "module" }, module),
      h("a", closing, state().q ? "Back to the results" : "Back to the contents")),
    h("header", { class: "page-head" },
      h("h2", { id: "page-title", tabindex: "-1" }, title),
      page && h("p", { class: "source" }, externalLink(page.url, page.url))),
  ];
}

/** Draw the chunks in order, with the headings where a section starts. */
function drawText(page, pages) {
  const inBook = bookLinks(page.url, pages);
  const link = (url, ...children) => {
    const changes = inBook(url);
    return changes ? h("a", linkTo(changes), ...children) : externalLink(url, ...children);
  };
  let level = 2; // of the last heading: no level may be skipped
  const heading = (depth, ...children) => {
    level = Math.max(3, Math.min(6, depth + 1, level + 1));
    return h(`h${level}`, {}, ...children);
  };
  let path = [page.title];
  let lastHeading = ""; // of the chunk before, which may continue into the next section
  const sections = page.chunks.map((chunk) => {
    const body = h("div", { class: "body", dir: directionOf(chunk) }, ...parseHtml(chunk.html, link));
    const own = [...body.querySelectorAll("h1, h2, h3, h4, h5, h6")];
    const statesTitle = own.some(({ textContent }) => textContent === chunk.headings.at(-1));
    const above = statesTitle ? chunk.headings.slice(0, -1) : chunk.headings;
    const first = above.findIndex((name, depth) => name !== path[depth]);
    const isStated = first === above.length - 1 && above[first] === lastHeading;
    const missing = first < 0 || isStated ? [] : above.slice(first);
    const opening = missing.map((name, index) => heading(first + index + 1, name));
    path = chunk.headings;
    lastHeading = own.at(-1)?.textContent ?? "";
    for (const one of own) one.replaceWith(heading(Number(one.tagName[1]), ...one.childNodes));
    return section(chunk, opening, body);
  });
  return h("div", { class: "text" }, ...sections);
}

function section(chunk, headings, body) {
  const label = `Passages related to “${chunk.section}”`;
  const data = {
    "data-chunk": chunk.chunk_index,
    "data-anchors": JSON.stringify([chunk.anchor, ...chunk.anchors]),
    "data-matches": JSON.stringify(chunk.matches ?? []),
  };
  return h("section", { class: "chunk", tabindex: "-1", ...data },
    ...headings,
    body,
    h("button", { type: "button", class: "quiet related-button", "aria-label": label }, "Related"));
}

function pageNav(url, pages) {
  const index = pages.findIndex((page) => page.url === url);
  const link = (page, rel, label) =>
    page && h("a", { ...linkTo({ ...NO_PAGE, page: page.url }), rel }, h("span", {}, label), page.title);
  return h("nav", { class: "page-nav", "aria-label": "Previous and next page" },
    index > 0 && link(pages[index - 1], "prev", "Previous"),
    index >= 0 && link(pages[index + 1], "next", "Next"));
}

/** Mark the chunk that the URL names, and scroll to it or to the top. */
function markChunk(now, scroll) {
  const panel = byId("page-panel");
  const chunks = [...panel.querySelectorAll(".chunk")];
  const hasAnchor = (one) => JSON.parse(one.dataset.anchors).includes(now.anchor);
  const numbered = now.chunk === null ? null : chunks.find((one) => Number(one.dataset.chunk) === now.chunk);
  // A new index may number the chunks differently; the anchor decides then.
  const target = numbered && (!now.anchor || hasAnchor(numbered)) ? numbered
    : (now.anchor && chunks.find(hasAnchor)) || numbered;
  for (const one of chunks) {
    one.classList.toggle("current", one === target);
    one.querySelector(".chunk-label")?.remove();
  }
  target?.prepend(h("p", { class: "chunk-label" }, "This passage"));
  setTitle(byId("page-title").textContent);
  highlightWords(target, target ? matchPattern(JSON.parse(target.dataset.matches)) : null);
  const selected = highlightSelection(panel, now.selection);
  if (!scroll) return;
  (target ?? byId("page-title"))?.focus({ preventScroll: true });
  const place = target ?? selected?.startContainer.parentElement;
  (place ?? panel).scrollIntoView({ block: place && !target ? "center" : "start" });
}

/** Return a function that turns a link on a page into a change of state, or null if it leaves the book. */
function bookLinks(pageUrl, pages) {
  const known = new Map(pages.map(({ url }) => [normalize(url), url]));
  return (href) => {
    let target;
    try {
      target = new URL(href, pageUrl);
    } catch {
      return null;
    }
    const anchor = decode(target.hash.slice(1));
    target.hash = "";
    target.search = "";
    const url = known.get(normalize(target.href));
    return url ? { ...NO_PAGE, page: url, anchor } : null;
  };
}

/** Remove what differs between the name of a file and its published URL. */
function normalize(url) {
  return decode(url)
    .replace(/\.(?:mdx?|html?)$/iu, "")
    .replace(/\/(?:index|readme)$/iu, "")
    .replace(/\/\d+[-_. ]+(?=[^/]+)/gu, "/")
    .replace(/\/+$/u, "")
    .toLowerCase();
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function start() {
  const tool = byId("related-tool");
  document.addEventListener("selectionchange", placeTool);
  addEventListener("resize", placeTool);
  tool.addEventListener("pointerdown", (event) => event.preventDefault()); // keeps the selection
  tool.addEventListener("click", showRelated);
  byId("page-panel").addEventListener("click", (event) => {
    const chunk = event.target.closest(".related-button")?.closest(".chunk");
    if (chunk) relate(textOf(chunk));
  });
}

function selectedText() {
  const selection = getSelection();
  const panel = byId("page-panel");
  if (!selection.rangeCount || selection.isCollapsed || panel.hidden) return "";
  const isInside = panel.contains(selection.anchorNode) && panel.contains(selection.focusNode);
  const text = selection.toString().trim();
  return isInside && text.length >= MIN_SELECTION ? text : "";
}

/** Show passages related to the selected text or the marked passage; return whether there is either. */
export function showRelated() {
  const marked = byId("page-panel").querySelector(".chunk:focus-within, .chunk.current");
  const text = selectedText() || (marked ? textOf(marked) : "");
  if (text) relate(text);
  return text !== "";
}

/** Clear the selection; return whether there was one. */
export function clearSelection() {
  const hadSelection = selectedText() !== "";
  if (hadSelection) getSelection().removeAllRanges();
  return hadSelection;
}

function relate(text) {
  getSelection().removeAllRanges();
  go({ selection: truncateSelection(text), ask: false, top_k: 10 });
}

const textOf = (chunk) => chunk.querySelector(".body").innerText;

/** Place the button below the end of the selection. */
function placeTool() {
  const tool = byId("related-tool");
  const wasHidden = tool.hidden;
  tool.hidden = !selectedText();
  if (tool.hidden) return;
  const range = getSelection().getRangeAt(0);
  const last = [...range.getClientRects()].at(-1) ?? range.getBoundingClientRect();
  const left = Math.min(last.right, document.documentElement.clientWidth - tool.offsetWidth - 12);
  tool.style.left = `${Math.max(12, left) + scrollX}px`;
  tool.style.top = `${last.bottom + scrollY + 6}px`;
  if (wasHidden) announce("Text is selected. Press r for related passages.");
}
