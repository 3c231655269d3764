// The search form: the query, filters by module, page and version, and the mode.

import * as api from "./api.js";
import { pagesByModule } from "./book.js";
import { byId, h } from "./dom.js";
import { NO_PAGE, go, state } from "./state.js";

let drawn = "";

export function start() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const q = byId("q").value.trim();
    if (q) go({ ...NO_PAGE, q, top_k: 10 });
    else byId("q").focus();
  });
  byId("page-filter").addEventListener("change", (event) => go({ url: event.target.value, top_k: 10 }));
  byId("version").addEventListener("change", (event) => go({ version: event.target.value, url: "", top_k: 10 }));
  byId("mode").addEventListener("change", (event) => go({ mode: event.target.value, top_k: 10 }));
  byId("modules").addEventListener("change", () => {
    const modules = [...byId("modules").querySelectorAll("input:checked")].map((box) => box.value);
    go({ modules, url: "", top_k: 10 });
  });
}

export function show(now, before) {
  if (!before || now.q !== before.q) byId("q").value = now.q;
  byId("mode").value = now.mode;
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
  const key = JSON.stringify([book, now.modules, now.url, now.version, now.mode]);
  if (key === drawn) return;
  drawn = key;
  drawModules(book.modules, now.modules);
  drawPages(book, now);
  drawVersions(book.versions, now.version);
  drawChosen(book, now);
  byId("filters").hidden = false;
}

function drawModules(modules, chosen) {
  const fieldset = byId("modules");
  const focused = fieldset.contains(document.activeElement) ? document.activeElement.value : null;
  const names = modules.map(({ name }) => name);
  const unknown = chosen.filter((name) => !names.includes(name));
  const all = [...modules, ...unknown.map((name) => ({ name, title: name, chunks: 0 }))];
  const boxes = all.map(({ name, title, chunks }) => {
    const hint = h("span", { class: "visually-hidden" }, " passages");
    return h("label", { class: "module-filter" },
      h("input", { type: "checkbox", name: "module", value: name, checked: chosen.includes(name) }),
      h("span", {}, title, " ", h("span", { class: "count" }, chunks.toLocaleString("en"), hint)));
  });
  fieldset.replaceChildren(h("legend", {}, "Modules"), ...boxes);
  fieldset.hidden = boxes.length < 2 && !chosen.length;
  if (focused !== null) [...fieldset.querySelectorAll("input")].find((box) => box.value === focused)?.focus();
}

function drawPages(book, { modules, url }) {
  const listed = book.pages.filter((page) => !modules.length || modules.includes(page.module));
  const option = ({ url: value, title }) => h("option", { value, selected: value === url }, title);
  const unknown = url && !listed.some((page) => page.url === url) ? [option({ url, title: url })] : [];
  const groups = pagesByModule({ ...book, pages: listed });
  const options = groups.map(([label, own]) => h("optgroup", { label }, ...own.map(option)));
  byId("page-filter").replaceChildren(option({ url: "", title: "All pages" }), ...unknown, ...options);
}

/** Offer the versions, if there are several. The listed pages are those of the current version. */
function drawVersions(versions, chosen) {
  const names = chosen && chosen !== "all" && !versions.includes(chosen) ? [...versions, chosen] : versions;
  const option = (value, title) => h("option", { value, selected: value === chosen }, title);
  const named = names.map((name) => option(name, name));
  byId("version").replaceChildren(option("", "Current version"), ...named, option("all", "All versions"));
  byId("version-field").hidden = names.length < 2 && !chosen;
  byId("page-field").hidden = Boolean(chosen);
}

/** Name the chosen filters where they are folded. */
function drawChosen({ modules, pages }, now) {
  const module = (name) => modules.find((one) => one.name === name)?.title ?? name;
  const page = pages.find(({ url }) => url === now.url)?.title ?? now.url;
  const [version, mode] = ["version", "mode"].map((name) => now[name] && byId(name).selectedOptions[0].text);
  byId("chosen").textContent = [...now.modules.map(module), page, version, mode].filter(Boolean).join(" · ");
}
