// The left-hand page: the contents, what a question found, or what goes with a selected text. One request counts, the latest.

import { announce } from "./announce.js";
import * as api from "./api.js";
import { drawContents } from "./contents.js";
import { byId, counted, h } from "./dom.js";
import { milliseconds } from "./charts.js";
import { problem } from "./notices.js";
import { noticed, outline } from "./outline.js";
import { drawAnswer, NOT_COVERED, reveal, summary } from "./results.js";
import { showFilters } from "./search.js";
import { leads, state } from "./state.js";

const run = api.lane();
let shown = "";


const kindOf = (now) => (now.selection ? "related" : now.q ? "search" : "contents");

function wanted(now) {
  const kind = kindOf(now);
  const asked = { related: [now.selection, now.ask && now.q], search: [now.q], contents: [] }[kind];
  const narrowed = kind === "contents" ? [] : [now.modules, now.url, now.mode, now.limit];
  return JSON.stringify([kind, now.collection, ...asked, ...narrowed]);
}

export async function show(now) {
  if (now.view === "health") return;
  const want = wanted(now);
  if (want === shown) {
    point(now);
    return;
  }
  const list = byId("list");
  list.setAttribute("aria-busy", "true");
  shown = want;
  try {
    const drawn = await run((signal) => draw(now, signal));
    if (!drawn) return;
    put(drawn);
    point(state());
    announce(drawn.said);
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    shown = ""; // the same question may be asked again
    put({ title: "What is wrong", parts: [problem(error, () => show(state()))] });
  }
}

function put({ kind, title, note = "", head = [], parts }) {
  const list = byId("list");
  const focused = list.contains(document.activeElement) ? document.activeElement.id || "list-title" : null;
  const href = document.activeElement?.matches("#list .result") ? document.activeElement.getAttribute("href") : null;
  const entries = list.querySelectorAll(".entry").length;
  list.replaceChildren(h("div", { class: "list-head" }, h("h2", { id: "list-title", tabindex: "-1" }, title), note && h("p", { class: "note" }, note)), ...head, ...parts);
  list.removeAttribute("aria-busy");
  const same = href && [...list.querySelectorAll(".result")].find((link) => link.getAttribute("href") === href);
  // Focus stays on a result that is in the new list, too. A reader who asked for more goes on where they begin; else whoever was in the old list is at the top of the new one.
  if (focused === "more") list.querySelectorAll(".entry")[entries]?.querySelector(".result").focus();
  else if (same) same.focus({ preventScroll: true });
  else if (focused || kind === "related") byId("list-title").focus({ preventScroll: true });
}

async function draw(now, signal) {
  const kind = kindOf(now);
  if (kind === "contents") {
    const book = await outline(now.collection);
    return { title: "Contents", parts: drawContents(book), said: `Contents: ${counted(book.pages.length, "page")}` };
  }
  const answer = await api[kind](now, signal);
  if (noticed(now.collection, answer.generation)) showFilters();
  const parts = drawAnswer(answer, now.limit);
  const title = kind === "search" ? "Passages" : "Related passages";
  const note = `${summary(answer)} · ${milliseconds(answer.timings.total_ms)}`;
  return { kind, title, note, head: kind === "related" ? aboutSelection(now, answer.selection) : [], parts, said: `${title}: ${answer.covered ? "" : `${NOT_COVERED} `}${summary(answer)}` };
}

function aboutSelection(now, { text, cut, left_out: leftOut }) {
  const words = [
    cut && `The model reads the first ${counted(text.length, "character")} of it.`,
    leftOut && `${counted(leftOut, "passage")} that ${leftOut === 1 ? "holds" : "hold"} this text ${leftOut === 1 ? "is" : "are"} left out.`,
  ].filter(Boolean);
  const asking = now.q && h("a", { ...leads({ ask: !now.ask }) }, now.ask ? `Without the question “${now.q}”` : `Together with the question “${now.q}”`);
  return [
    h("blockquote", { class: "selected" }, text.length > 280 ? `${text.slice(0, 280)}…` : text),
    words.length > 0 && h("p", { class: "note" }, words.join(" ")),
    h("p", { class: "actions" }, h("a", { id: "leave-related", ...leads({ selection: "", ask: false }) }, "Close related passages"), asking),
  ].filter(Boolean);
}

/** Show which result is the one that is open, and where the links of this state lead. */
function point(now) {
  for (const entry of byId("list").querySelectorAll(".entry, .other")) {
    const open = entry.dataset.page === now.page && Number(entry.dataset.passage) === now.passage;
    entry.classList.toggle("open", open);
    const link = entry.querySelector(".result");
    if (open) reveal(entry);
    if (open) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}
