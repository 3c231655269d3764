// The right-hand page: a page of the book, whole, with the passage that was found marked in it.

import { announce } from "./announce.js";
import * as api from "./api.js";
import { byId, h, isWeb, outward } from "./dom.js";
import { mark, telling } from "./highlight.js";
import { inBook } from "./links.js";
import { blocks, render } from "./markdown.js";
import { problem } from "./notices.js";
import { outline } from "./outline.js";
import { showSelected } from "./selected.js";
import { leads, state } from "./state.js";

const run = api.lane();
let shown = "";

export async function show(now, before) {
  const sheet = byId("recto");
  sheet.hidden = !now.page || now.view === "health";
  if (sheet.hidden) {
    run(async () => undefined); // what is still on its way is no longer wanted
    if (!now.page) {
      shown = "";
      sheet.replaceChildren();
      if (before?.page) backToList(before);
    }
    return;
  }
  const want = JSON.stringify([now.collection, now.page, now.q]);
  if (want === shown) {
    if (before && (now.passage !== before.passage || now.anchor !== before.anchor)) point(now, true);
    showSelected(sheet, now.selection);
    return;
  }
  shown = want;
  sheet.setAttribute("aria-busy", "true");
  if (!sheet.hasChildNodes()) sheet.append(frame("Opening the page…", null));
  try {
    const page = await run(async (signal) => {
      const [read, book] = await Promise.all([api.page(now.page, now.collection, signal), outline(now.collection)]);
      return { ...read, book };
    });
    if (!page) return;
    sheet.replaceChildren(frame(page.title || page.url, page), ...draw(page), turning(page));
    mark(sheet.querySelector(".text"), telling(state().q));
    document.title = `${page.title || page.url} · Recto`;
    point(state(), before !== null || state().passage !== null || state().anchor !== "");
    showSelected(sheet, state().selection);
    announce(`Page: ${page.title}`);
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    shown = "";
    sheet.replaceChildren(frame("The page cannot be shown", null), problem(error, () => show(state(), null)));
  } finally {
    if (want === shown || !shown) sheet.removeAttribute("aria-busy");
  }
}

function frame(title, page) {
  const closing = { id: "close-page", class: "button quiet", ...leads({ page: "", anchor: "", passage: null, selection: "", ask: false }) };
  return h("header", { class: "page-head" },
    h("p", { class: "page-tools" }, h("span", { class: "module" }, page?.module ?? ""), h("a", closing, state().q ? "Back to the results" : "Back to the contents")),
    h("h2", { id: "page-title", tabindex: "-1" }, title),
    page && h("p", { class: "source" }, isWeb(page.url) ? outward(page.url, page.url) : h("span", {}, page.url)));
}

/** Put the headings back between the passages, and the passages into their order. */
function draw(page) {
  const links = inBook(page, page.book.pages);
  let path = [page.title];
  let level = 2;
  const heading = (depth, ...nodes) => {
    level = Math.max(3, Math.min(6, depth + 1, level + 1));
    return h(`h${level}`, {}, ...nodes);
  };
  const parts = [];
  for (const passage of page.passages) {
    const read = blocks(passage.text);
    const stated = read.some((block) => block.kind === "heading" && block.text === passage.headings.at(-1));
    const led = stated ? passage.headings.slice(0, -1) : passage.headings;
    const kept = led.findIndex((name, depth) => name !== path[depth]);
    const opened = kept < 0 ? [] : led.slice(kept).map((name, place) => heading(kept + place + 1, name));
    path = passage.headings;
    parts.push(section(passage, opened, render(read, { links, heading: (block, nodes) => heading(block.level, ...nodes) })));
  }
  return [h("div", { class: "text" }, ...parts)];
}

function section(passage, headings, body) {
  const name = passage.headings.at(-1) || passage.page_title;
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
  if (!move) return;
  const focus = target ?? byId("page-title");
  focus?.focus({ preventScroll: true });
  (target ?? sheet).scrollIntoView({ block: "start" });
}

function backToList(before) {
  const open = [...document.querySelectorAll("#list .entry")].find((one) => one.dataset.page === before.page && Number(one.dataset.passage) === before.passage);
  const target = open?.querySelector(".result") ?? byId("list-title");
  target?.focus({ preventScroll: true });
  target?.scrollIntoView({ block: "center" });
}
