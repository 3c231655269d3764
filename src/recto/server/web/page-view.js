// The right-hand page: a page of the book, whole, with the passage that was found marked in it.

import { announce } from "./announce.js";
import * as api from "./api.js";
import { byId, h, isWeb, outward } from "./dom.js";
import { telling } from "./highlight.js";
import { inBook } from "./links.js";
import { blocks, render } from "./markdown.js";
import { problem } from "./notices.js";
import { outline } from "./outline.js";
import { paintSelected, paintWords } from "./painting.js";
import { reveal } from "./results.js";
import { leads, state } from "./state.js";

const run = api.lane();
let shown = "";
let asked = "";

export async function show(now, before) {
  const sheet = byId("recto");
  sheet.hidden = !now.page || now.view === "health";
  if (sheet.hidden) {
    leave(sheet, now, before);
    return;
  }
  const want = JSON.stringify([now.collection, now.page, now.q]);
  if (want === shown) {
    point(now, moved(now, before));
    return;
  }
  if (want === asked) return;
  asked = want;
  sheet.setAttribute("aria-busy", "true");
  if (!sheet.hasChildNodes()) sheet.append(...frame("Opening the page…", null));
  try {
    const page = await run(async (signal) => {
      const [read, book] = await Promise.all([api.page(now.page, now.collection, signal), outline(now.collection)]);
      return { ...read, book };
    });
    if (!page) return;
    shown = want;
    sheet.replaceChildren(...frame(page.title || page.url, page), draw(page), turning(page));
    point(state(), true);
    announce(`Page: ${page.title}`);
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    shown = "";
    sheet.replaceChildren(...frame("The page cannot be shown", null), problem(error, () => show(state(), null)));
  }
  asked = "";
  sheet.removeAttribute("aria-busy");
}

/** What is still on its way is no longer wanted; a reader who closes a page is back at the result that led there. */
function leave(sheet, now, before) {
  run(async () => undefined);
  asked = "";
  if (now.page) return;
  shown = "";
  sheet.replaceChildren();
  sheet.removeAttribute("aria-busy");
  if (before?.page) backToList(before);
}

/** Whether a reader has to be taken to another place of the page that is already shown. */
function moved(now, before) {
  if (!before || now.passage !== before.passage || now.anchor !== before.anchor) return Boolean(before);
  return Boolean(before.selection) && !now.selection && !byId("verso").checkVisibility();
}

function frame(title, page) {
  const closing = { id: "close-page", class: "button quiet", ...leads({ page: "", anchor: "", passage: null, selection: "", ask: false }) };
  return [
    h("p", { class: "page-tools" }, h("span", { class: "module" }, page?.module ?? ""), h("a", closing, state().q ? "Back to the results" : "Back to the contents")),
    h("header", { class: "page-head" },
      h("h2", { id: "page-title", tabindex: "-1" }, title),
      page && h("p", { class: "source" }, isWeb(page.url) ? outward(page.url, page.url) : h("span", {}, page.url))),
  ];
}

/** Put the headings back between the passages, and the passages into their order. */
function draw(page) {
  const links = inBook(page, page.book.pages);
  let path = [page.title];
  let last = ""; // the heading that the passage before states, if it goes on into the next section
  let level = 2;
  const heading = (depth, ...nodes) => {
    level = Math.max(3, Math.min(6, depth + 1, level + 1));
    return h(`h${level}`, {}, ...nodes);
  };
  const parts = [];
  for (const passage of page.chunks) {
    const read = blocks(passage.text);
    const stated = read.some((block) => block.kind === "heading" && block.text === passage.headings.at(-1));
    const led = stated ? passage.headings.slice(0, -1) : passage.headings;
    const kept = led.findIndex((name, depth) => name !== path[depth]);
    const names = kept < 0 || (kept === led.length - 1 && led[kept] === last) ? [] : led.slice(kept);
    const opened = names.map((name, place) => heading(kept + place + 1, name));
    path = passage.headings;
    last = read.findLast((block) => block.kind === "heading")?.text ?? "";
    parts.push(section(passage, opened, render(read, { links, heading: (block, nodes) => heading(block.level, ...nodes) })));
  }
  return h("div", { class: "text" }, ...parts);
}

function section(passage, headings, body) {
  const name = passage.headings.at(-1) || passage.title;
  const tool = h("button", { type: "button", class: "quiet relate", "aria-label": `Passages related to “${name}”` }, "Related");
  return h("section", { class: "passage", tabindex: "-1", "data-passage": passage.chunk_index, "data-anchor": passage.anchor, "data-anchors": JSON.stringify(passage.anchors ?? []) },
    ...headings, h("div", { class: "body" }, ...body), tool);
}

function turning({ url, book }) {
  const at = book.pages.findIndex((page) => page.url === url);
  const leaf = (page, words) => page && h("a", { ...leads({ page: page.url, anchor: "", passage: null, selection: "", ask: false }), rel: words }, h("span", {}, words === "prev" ? "Before" : "Next"), page.title);
  return h("nav", { class: "turning", "aria-label": "Pages before and after" }, at > 0 && leaf(book.pages[at - 1], "prev"), at >= 0 && leaf(book.pages[at + 1], "next"));
}

/** Mark the passage that the address names, and bring it into view; else begin at the top. */
function point(now, move) {
  const sheet = byId("recto");
  const all = [...sheet.querySelectorAll(".passage")];
  const opens = (one) => one.dataset.anchor === now.anchor || JSON.parse(one.dataset.anchors).includes(now.anchor);
  const named = all.find((one) => Number(one.dataset.passage) === now.passage && now.passage !== null);
  // A book that was indexed anew may count its passages otherwise; then the section is what is meant.
  const target = named && (!now.anchor || opens(named)) ? named : (now.anchor && all.find(opens)) || named;
  for (const one of all) {
    one.classList.toggle("here", one === target);
    one.querySelector(".found")?.remove();
  }
  target?.prepend(h("p", { class: "found" }, "The passage"));
  document.title = `${byId("page-title").textContent} · Recto`;
  paintWords(target, telling(now.q));
  const selected = paintSelected(sheet, now.selection);
  if (!move) return;
  (target ?? byId("page-title"))?.focus({ preventScroll: true });
  const place = target ?? selected?.startContainer.parentElement;
  (place ?? sheet).scrollIntoView({ block: place && !target ? "center" : "start" });
}

function backToList(before) {
  const open = [...document.querySelectorAll("#list .entry, #list .other")].find((one) => one.dataset.page === before.page && Number(one.dataset.passage) === before.passage);
  if (open) reveal(open);
  const target = open?.querySelector(".result") ?? byId("list-title");
  target?.focus({ preventScroll: true });
  target?.scrollIntoView({ block: "center" });
}
