// The question, the modules with their counts, and the page to search in.

import * as api from "./api.js";
import { byId, h } from "./dom.js";
import { outline } from "./outline.js";
import { address, go, state } from "./state.js";

let drawn = "";

export function begin() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const q = byId("q").value.trim();
    if (!q) {
      byId("q").focus();
      return;
    }
    go({ q, page: "", anchor: "", passage: null, selection: "", ask: false, limit: 10 });
  });
  byId("page-filter").addEventListener("change", (event) => go({ url: event.target.value, limit: 10 }));
  byId("mode").addEventListener("change", (event) => go({ mode: event.target.value, limit: 10 }));
  byId("collection").addEventListener("change", (event) =>
    go({ collection: event.target.value, modules: [], url: "", page: "", anchor: "", passage: null, selection: "", ask: false, limit: 10 }));
  byId("facets").addEventListener("change", () => {
    const modules = [...byId("facets").querySelectorAll("input:checked")].map((box) => box.value);
    go({ modules, url: "", limit: 10 });
  });
}

export function show(now, before) {
  if (!before || now.q !== before.q) byId("q").value = now.q;
  byId("mode").value = now.mode;
  byId("home").setAttribute("href", address({ collection: now.collection }, { ...emptied(now) }));
  showFilters();
}

const emptied = (now) => ({ ...now, q: "", modules: [], url: "", page: "", anchor: "", passage: null, selection: "", ask: false, view: "", limit: 10 });

/** Draw the filters of the book in use; if it cannot be asked, there are none, and the list says why. */
export async function showFilters() {
  const now = state();
  let book;
  try {
    book = await outline(now.collection);
  } catch {
    byId("filters").hidden = true;
    return;
  }
  if (state() !== now) return; // a later state draws its own
  const looks = JSON.stringify([book, now.modules, now.url]);
  if (looks === drawn) return;
  drawn = looks;
  drawFacets(book.modules, now.modules);
  drawPages(book.pages, now);
  byId("filters").hidden = false;
}

function drawFacets(modules, chosen) {
  const facets = byId("facets");
  const focused = facets.contains(document.activeElement) ? document.activeElement.value : null;
  const known = modules.map(({ name }) => name);
  const strangers = chosen.filter((name) => !known.includes(name)).map((name) => ({ name, chunks: 0, pages: 0 }));
  const boxes = [...modules, ...strangers].map(({ name, chunks }) =>
    h("label", { class: "facet" },
      h("input", { type: "checkbox", name: "module", value: name, checked: chosen.includes(name) }),
      h("span", {}, name, " ", h("span", { class: "count" }, chunks.toLocaleString("en"), h("span", { class: "unseen" }, " passages")))));
  facets.replaceChildren(h("legend", {}, "Modules"), ...boxes);
  facets.hidden = boxes.length < 2 && !chosen.length;
  if (focused !== null) [...facets.querySelectorAll("input")].find((box) => box.value === focused)?.focus();
}

function drawPages(pages, { modules, url }) {
  const open = pages.filter((page) => !modules.length || modules.includes(page.module));
  const groups = Map.groupBy(open, (page) => page.module);
  const option = ({ url: value, title }) => h("option", { value, selected: value === url }, title);
  const stranger = url && !open.some((page) => page.url === url) && h("option", { value: url, selected: true }, url);
  const listed = [...groups].map(([module, own]) => h("optgroup", { label: module }, ...own.map(option)));
  byId("page-filter").replaceChildren(h("option", { value: "" }, "All pages"), ...(stranger ? [stranger] : []), ...listed);
}

/** List the books that are served, if there are several. */
export async function showCollections() {
  let served;
  try {
    served = (await api.collections()).collections;
  } catch {
    return; // the list says what is wrong with the service
  }
  const chosen = state().collection;
  const options = served.map(({ name, default: first }) => h("option", { value: first ? "" : name, selected: first ? !chosen : name === chosen }, name));
  byId("collection").replaceChildren(...options);
  byId("collection-field").hidden = served.length < 2;
}

export function showCollection(now) {
  byId("collection").value = now.collection;
}
