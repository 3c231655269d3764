// The left panel: the table of contents, the results of a search, or passages related to a selected text.

import * as api from "./api.js";
import { pagesByModule } from "./book.js";
import { milliseconds } from "./charts.js";
import { byId, h } from "./dom.js";
import { announce, errorNotice, notice } from "./messages.js";
import { NOT_COVERED, countResults, drawResponse, unfold } from "./results.js";
import { showFilters } from "./search.js";
import { NO_PAGE, linkTo, state } from "./state.js";
import { plural } from "./text.js";

const MANY_PAGES = 80; // modules are folded beyond this number
const MAX_QUOTE = 280; // characters
const run = api.latestOnly();
let shown = "";
let toFocus = null; // the result to focus when the list is drawn
let isFirstToFocus = false;

const kindOf = (now) => (now.selection ? "related" : now.q ? "search" : "contents");

/** Return a key that is equal for states with the same list. */
function keyOf(now) {
  const kind = kindOf(now);
  const text = { related: [now.selection, now.ask && now.q], search: [now.q], contents: [] }[kind];
  const parameters = kind === "contents" ? [] : [now.modules, now.url, now.version, now.mode, now.top_k];
  return JSON.stringify([kind, now.collection, ...text, ...parameters]);
}

export async function show(now) {
  if (now.view === "health") return;
  const key = keyOf(now);
  if (key === shown) {
    markOpenResult(now);
    return;
  }
  byId("list").setAttribute("aria-busy", "true");
  shown = key;
  try {
    const content = await run((signal) => load(now, signal));
    if (!content) return;
    replaceList(content);
    markOpenResult(state());
    announce(content.announcement);
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    shown = ""; // the same search may be tried again
    replaceList({ title: "Error", parts: [errorNotice(error, () => show(state()))] });
  }
}

function replaceList({ kind, title, note = "", parts }) {
  const list = byId("list");
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  const href = focused?.matches(".result") ? focused.getAttribute("href") : null;
  const count = list.querySelectorAll(".entry").length;
  const heading = h("h2", { id: "list-title", tabindex: "-1" }, title);
  const head = h("div", { class: "list-head" }, heading, note && h("p", { class: "note" }, note));
  list.replaceChildren(head, ...parts);
  list.removeAttribute("aria-busy");
  const results = [...list.querySelectorAll(".result")];
  const same = href && results.find((link) => link.getAttribute("href") === href);
  // Keep the focus on the same result, or move it to the first new one, or to the top of the new list.
  if (toFocus) focusResult(toFocus);
  else if (isFirstToFocus && byId("q").value.trim() === state().q) results[0]?.focus();
  else if (focused?.id === "more") list.querySelectorAll(".entry")[count]?.querySelector(".result").focus();
  else if (same) same.focus({ preventScroll: true });
  else if (focused || kind === "related") heading.focus({ preventScroll: true });
  isFirstToFocus = false;
}

async function load(now, signal) {
  const kind = kindOf(now);
  if (kind === "contents") {
    const book = await api.outline(now.collection);
    const announcement = `Contents: ${plural(book.pages.length, "page")}`;
    return { title: "Contents", parts: contents(book), announcement };
  }
  const response = await api[kind](now, signal);
  if (api.dropOldOutline(now.collection, response.generation)) showFilters();
  const title = kind === "search" ? "Passages" : "Related passages";
  const results = countResults(response);
  const head = kind === "related" ? selectionHead(now, response.selection) : [];
  return {
    kind,
    title,
    note: `${results} · ${milliseconds(response.timings.total_ms)}`,
    parts: [...head, ...drawResponse(response, now.top_k)],
    announcement: `${title}: ${response.covered ? "" : `${NOT_COVERED} `}${results}`,
  };
}

function selectionHead(now, { text, cut, left_out: leftOut }) {
  const notes = [
    cut && `Only the first ${plural(text.length, "character")} are searched for.`,
    leftOut === 1 && "1 passage that contains this text is left out.",
    leftOut > 1 && `${leftOut} passages that contain this text are left out.`,
  ].filter(Boolean);
  const question = `Search ${now.ask ? "without" : "with"} the question “${now.q}”`;
  return [
    h("blockquote", { class: "selected" }, text.length > MAX_QUOTE ? `${text.slice(0, MAX_QUOTE)}…` : text),
    notes.length > 0 && h("p", { class: "note" }, notes.join(" ")),
    h("p", { class: "actions" },
      h("a", { id: "close-related", ...linkTo({ selection: "", ask: false }) }, "Close related passages"),
      now.q && h("a", linkTo({ ask: !now.ask }), question)),
  ].filter(Boolean);
}

function contents(outline) {
  const { modules, pages } = outline;
  if (!pages.length) {
    return [notice("The book is empty.", ["Index it with `recto index PATH`, then reload this page."])];
  }
  const chunks = modules.reduce((sum, module) => sum + module.chunks, 0);
  const size = `${plural(chunks, "passage")} on ${plural(pages.length, "page")} in ${plural(modules.length, "module")}`;
  const isFolded = pages.length > MANY_PAGES;
  const groups = pagesByModule(outline).map(([module, own]) => moduleContents(module, own, isFolded));
  return [
    h("p", { class: "book-size" }, size),
    h("div", { class: "contents" }, ...groups),
  ];
}

function moduleContents(module, pages, isFolded) {
  const items = pages.map(({ url, title }) =>
    h("li", {}, h("a", linkTo({ ...NO_PAGE, page: url }), title || url)));
  const title = h("h3", {}, module);
  const list = h("ol", {}, ...items);
  if (!isFolded) return h("section", {}, title, list);
  return h("details", {}, h("summary", {}, title, h("span", { class: "count" }, String(pages.length))), list);
}

/** Focus the first result of the next list. */
export function focusFirst() {
  isFirstToFocus = true;
}

/** Focus the result that opened a page, now or as soon as the list is drawn. */
export function focusResult(now) {
  const list = byId("list");
  toFocus = list.hasAttribute("aria-busy") ? now : null;
  if (toFocus) return;
  const entry = [...list.querySelectorAll(".entry, .other")].find((one) => isOpen(one, now));
  if (entry) unfold(entry);
  const target = entry?.querySelector(".result") ?? byId("list-title");
  target.focus({ preventScroll: true });
  target.scrollIntoView({ block: "center" });
}

const isOpen = ({ dataset }, now) => dataset.page === now.page && Number(dataset.chunk) === now.chunk;

/** Mark the result whose page is open. */
function markOpenResult(now) {
  for (const entry of byId("list").querySelectorAll(".entry, .other")) {
    const link = entry.querySelector(".result");
    entry.classList.toggle("open", isOpen(entry, now));
    if (isOpen(entry, now)) {
      unfold(entry);
      link.setAttribute("aria-current", "true");
    } else {
      link.removeAttribute("aria-current");
    }
  }
}
