// The books: title and logo in the header, the choice of a book, and the title of the window.

import * as api from "./api.js";
import { byId, h } from "./dom.js";
import { NO_PAGE, NO_SEARCH, go, state, urlOf } from "./state.js";

let books = []; // the default one first
let view = ""; // what the window shows of the book

/** Set the title of the window: what it shows, and the book. */
export function setTitle(text) {
  view = text;
  const { title } = current();
  document.title = view ? `${view} · ${title}` : title;
}

/** Return the pages of an outline by the titles of their modules, in reading order. */
export function pagesByModule({ modules, pages }) {
  const titles = new Map(modules.map(({ name, title }) => [name, title]));
  const groups = [...Map.groupBy(pages, ({ module }) => module)];
  return groups.map(([module, own]) => [titles.get(module) || module || "Pages", own]);
}

export function start() {
  byId("collection").addEventListener("change", (event) =>
    go({ ...NO_PAGE, collection: event.target.value, modules: [], url: "", version: "", top_k: 10 }));
  // Nothing that is scrolled to or focused may be below the header.
  const measure = () => document.documentElement.style.setProperty("--top", `${byId("top").offsetHeight}px`);
  new ResizeObserver(measure).observe(byId("top"));
}

export async function show() {
  if (!books.length) {
    try {
      ({ collections: books } = await api.collections());
    } catch {
      books = []; // the list shows the error
    }
    const options = books.map(({ name, title, default: isDefault }) =>
      h("option", { value: isDefault ? "" : name }, title));
    byId("collection").replaceChildren(...options);
    byId("collection-field").hidden = books.length < 2;
  }
  draw();
}

function current() {
  const { collection } = state();
  const book = books.find((one) => (collection ? one.name === collection : one.default));
  return book ?? { title: collection || "Recto", logo: null };
}

function draw() {
  const { title, logo, default: isDefault } = current();
  const image = logo?.startsWith("data:image/") ? logo : "";
  byId("book-title").textContent = title;
  byId("home").setAttribute("href", urlOf(NO_SEARCH));
  byId("collection").value = isDefault ? "" : state().collection;
  byId("logo")?.remove();
  if (image) byId("home").prepend(h("img", { id: "logo", src: image, alt: "" }));
  byId("icon").setAttribute("href", image || "static/icon.svg");
  setTitle(view);
}
