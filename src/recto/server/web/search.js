// The search form: the query, filters by module and page, the mode, and the collection.

import * as api from "./api.js";
import { byId, h } from "./dom.js";
import { NO_PAGE, NO_SEARCH, go, state, urlOf } from "./state.js";

let drawn = "";

export function start() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const q = byId("q").value.trim();
    if (q) go({ ...NO_PAGE, q, top_k: 10 });
    else byId("q").focus();
  });
  byId("page-filter").addEventListener("change", (event) => go({ url: event.target.value, top_k: 10 }));
  byId("mode").addEventListener("change", (event) => go({ mode: event.target.value, top_k: 10 }));
  byId("collection").addEventListener("change", (event) =>
    go({ ...NO_PAGE, collection: event.target.value, modules: [], url: "", top_k: 10 }));
  byId("modules").addEventListener("change", () => {
    const modules = [...byId("modules").querySelectorAll("input:checked")].map((box) => box.value);
    go({ modules, url: "", top_k: 10 });
  });
  showCollections();
}

export function show(now, before) {
  if (!before || now.q !== before.q) byId("q").value = now.q;
  byId("mode").value = now.mode;
  byId("collection").value = now.collection;
  byId("home").setAttribute("href", urlOf(NO_SEARCH));
  showFilters();
}

/** Draw the filters of the current book; if it cannot be read, hide them: the list shows the error. */
export async function showFilters() {
  const now = state();
  let book;
  try {
    book = await api.outline(now.collection);
  } catch {
    byId("filters").hidden = true;
    return;
  }
  if (state() !== now) return; // a later state draws its own filters
  const key = JSON.stringify([book, now.modules, now.url]);
  if (key === drawn) return;
  drawn = key;
  drawModules(book.modules, now.modules);
  drawPages(book.pages, now);
  byId("filters").hidden = false;
}

function drawModules(modules, chosen) {
  const fieldset = byId("modules");
  const focused = fieldset.contains(document.activeElement) ? document.activeElement.value : null;
  const names = modules.map(({ name }) => name);
  const unknown = chosen.filter((name) => !names.includes(name)).map((name) => ({ name, chunks: 0 }));
  const boxes = [...modules, ...unknown].map(({ name, chunks }) => {
    const hint = h("span", { class: "visually-hidden" }, " passages");
    return h("label", { class: "module-filter" },
      h("input", { type: "checkbox", name: "module", value: name, checked: chosen.includes(name) }),
      h("span", {}, name, " ", h("span", { class: "count" }, chunks.toLocaleString("en"), hint)));
  });
  fieldset.replaceChildren(h("legend", {}, "Modules"), ...boxes);
  fieldset.hidden = boxes.length < 2 && !chosen.length;
  if (focused !== null) [...fieldset.querySelectorAll("input")].find((box) => box.value === focused)?.focus();
}

function drawPages(pages, { modules, url }) {
  const listed = pages.filter((page) => !modules.length || modules.includes(page.module));
  const option = ({ url: value, title }) => h("option", { value, selected: value === url }, title);
  const unknown = url && !listed.some((page) => page.url === url) ? [option({ url, title: url })] : [];
  const groups = [...Map.groupBy(listed, (page) => page.module)];
  const options = groups.map(([module, own]) => h("optgroup", { label: module }, ...own.map(option)));
  byId("page-filter").replaceChildren(option({ url: "", title: "All pages" }), ...unknown, ...options);
}

/** List the served books if there are several. */
async function showCollections() {
  let collections;
  try {
    ({ collections } = await api.collections());
  } catch {
    return; // the list shows the error
  }
  const chosen = state().collection;
  const options = collections.map(({ name, default: isDefault }) => {
    const value = isDefault ? "" : name;
    return h("option", { value, selected: value === chosen }, name);
  });
  byId("collection").replaceChildren(...options);
  byId("collection-field").hidden = collections.length < 2;
}
